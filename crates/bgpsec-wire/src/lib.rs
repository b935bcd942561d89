//! BGPsec_PATH (RFC 8205): reading, building, the checks that cost nothing, and the octets that its signatures cover.
//!
//! No cryptography, no sockets, no state. A path is read once ([`Path::parse`]) and refused as a whole if anything in it is
//! malformed; what is read borrows the attribute's octets. [`Ingress::check`] has what a receiver looks at before any
//! signature (section 5.2), [`Signed`] what those cover (section 4.2), [`extend`] makes the path that goes on.
//!
//! ```
//! use holdfast_bgpsec_wire::{Path, Segment, SignatureBlock, Ski, extend};
//! use holdfast_types::Asn;
//!
//! let segment = Segment { pcount: 1, flags: 0, asn: Asn(64496) };
//! let signature = [0x30, 6, 2, 1, 1, 2, 1, 1];
//! let block = SignatureBlock { suite: 1, ski: Ski([7; 20]), signature: &signature };
//! let octets = extend(None, segment, &[block])?;
//! let path = Path::parse(&octets)?;
//! assert_eq!(path.segments().collect::<Vec<_>>(), [segment]);
//! assert_eq!(path.as_path(), [2, 1, 0, 0, 0xfb, 0xf0]); // one AS_SEQUENCE of one AS
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod build;
mod ingress;
mod path;
mod reader;
mod signed;

pub use build::{CannotExtend, SignatureBlock, extend, leave_confederation};
pub use holdfast_types::{ParseSkiError, Ski};
pub use ingress::{Ingress, MOST_HOPS, MOST_PCOUNT, Outside, Refused, Session, Update};
pub use path::{Block, CONFED_SEGMENT, MOST_BLOCKS, Malformed, Path, Segment, Signature};
pub use signed::{Nlri, Signed, octets_to_sign};

//! The RPKI-to-Router protocol on the wire: versions 0 (RFC 6810), 1 (RFC 8210) and 2 (draft-ietf-sidrops-8210bis-27).
//!
//! - [`Frame::split`] cuts the next PDU off what was received; its length is bounded before anything is kept of it;
//! - [`Frame::pdu`] reads it, each fault by its name ([`Malformed`]) and with the code that tells the other side;
//! - [`Pdu::write`] puts one at the end of a buffer, if the version has such a PDU;
//! - [`Serial`] compares as RFC 1982 says.
//!
//! No state and no decision: whether a PDU may come now, and in this version, is the business of `holdfast-rtr`.
//! Reserved fields and flags are ignored when read and zero when written; a prefix loses the bits after its length.
//!
//! ```
//! use holdfast_rtr_wire::{Frame, Pdu, Version};
//!
//! let mut octets = Vec::new();
//! Pdu::ResetQuery.write(Version::V1, &mut octets)?;
//! assert_eq!(octets, [1, 2, 0, 0, 0, 0, 0, 8]);
//! let (frame, rest) = Frame::split(&octets)?.expect("a whole PDU");
//! assert_eq!((frame.pdu(Version::V1)?, rest.len()), (Pdu::ResetQuery, 0));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod error;
mod frame;
pub mod fuzzing;
mod pdu;
mod read;
mod serial;
mod write;

// Tests of what the crate offers, in the executable of its unit tests.
#[cfg(test)]
extern crate self as holdfast_rtr_wire;
#[cfg(test)]
#[path = "../tests/mod.rs"]
mod tests;

pub use error::{ErrorCode, Malformed, Unwritable};
pub use frame::{Frame, HEADER, LONGEST};
pub use pdu::{ErrorReport, MOST_PROVIDERS, Pdu, PduType, Record, Timing, Version};
pub use serial::Serial;

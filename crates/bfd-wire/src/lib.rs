//! BFD Control packets on the wire (RFC 5880 section 4).
//!
//! - [`Received::read`] holds a datagram to the rules of section 6.8.6 that need no session, and says of a packet that is
//!   discarded why ([`Malformed`]);
//! - [`Received::is_signed_with`] checks its digest with a [`Key`] of the session (section 6.7);
//! - [`Packet::write`] makes the octets of a packet, and signs it.
//!
//! No state: which session a packet belongs to, and whether a sequence number is too old, is the business of
//! `holdfast-bfd`. Passwords in clear text (section 6.7.2) are not supported, and count as a foreign authentication.
//!
//! ```
//! use holdfast_bfd_wire::{Packet, Received, State};
//!
//! let packet = Packet { my_discriminator: 7, state: State::Down, ..Packet::default() };
//! let octets = packet.write(None);
//! assert_eq!(Received::read(octets.as_slice())?.packet, packet);
//! # Ok::<(), holdfast_bfd_wire::Malformed>(())
//! ```

pub mod fuzzing;
mod key;
mod packet;
mod read;
mod write;

// Tests of what the crate offers, in the executable of its unit tests.
#[cfg(test)]
extern crate self as holdfast_bfd_wire;
#[cfg(test)]
#[path = "../tests/mod.rs"]
mod tests;

pub use key::{Algorithm, BadKey, Key};
pub use packet::{Diagnostic, Flags, Packet, State};
pub use read::{Authentication, Malformed, Received};
pub use write::Octets;

/// Octets of a packet without authentication: the mandatory section.
pub const MANDATORY: usize = 24;

/// Octets of the longest packet: with a digest of SHA1.
pub const LONGEST: usize = MANDATORY + 28;

/// Octets of an authentication section before its digest: type, length, key, reserved, sequence number.
pub(crate) const BEFORE_DIGEST: usize = 8;

/// The version of the protocol.
pub(crate) const VERSION: u8 = 1;

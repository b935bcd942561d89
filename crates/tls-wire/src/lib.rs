//! What a first flight says before anybody has answered.
//!
//! - the ClientHello of TLS 1.3 (RFC 8446 section 4.1.2), whole or in pieces: which protocols (ALPN, RFC 7301) and which
//!   server (SNI, RFC 6066) are asked for;
//! - the Initial packet of QUIC (RFC 9000 section 17.2.2) around it: header, and the CRYPTO frames of what somebody has
//!   decrypted.
//!
//! No cryptography, no sockets, no state beyond one bounded reassembly. Whoever could not look says so; it never means no.
//!
//! Read first: [`Peek`], which is what every way to look ends in: [`peek`] for octets in one piece, [`peek_records`] for
//! TLS over TCP, [`peek_initial`] for QUIC.

mod client_hello;
mod frames;
pub mod fuzzing;
mod packet;
mod reader;
mod reassembly;
mod records;

// Tests of what the crate offers, in the executable of its unit tests.
#[cfg(test)]
extern crate self as holdfast_tls_wire;
#[cfg(test)]
#[path = "../tests/mod.rs"]
mod tests;

pub use client_hello::{BadHello, ClientHello, Peek, Protocols, peek};
pub use frames::{BadFrame, BadInitial, Frame, Frames, peek_initial};
pub use packet::{BadPacket, Initial, LongType, MOST_CONNECTION_ID, Packet, VERSION_1, VERSION_2, packet};
pub use reassembly::{LeftOut, MOST_OCTETS, MOST_RANGES, Reassembly};
pub use records::{MOST_FRAGMENT, peek_records};

//! RIP on the wire: version 2 for IPv4 ([`Ripv2`], RFC 2453, authenticated as in RFC 4822) and RIPng for IPv6
//! ([`Ripng`], RFC 2080).
//!
//! - [`Message::read`] checks the frame of a datagram; [`Message::entries`] and [`Message::queries`] then read it entry by
//!   entry, and tell of each entry that a router ignores why ([`BadEntry`]);
//! - [`Message::authenticate`] holds a message to the [`Credentials`] of the interface;
//! - [`Writer`] fills a datagram with as many entries as it may have, and signs it.
//!
//! No state and no decision: what a route is worth, and whether a sequence number is too old, is the business of
//! `holdfast-rip`. Fields that must be zero are ignored when read and zero when written. RIP version 1 is not spoken: its
//! messages are refused ([`Malformed::Version`]).
//!
//! ```
//! use holdfast_rip_wire::{Command, Entry, Message, Metric, Ripv2, Writer};
//!
//! let entry = Entry { prefix: "192.0.2.0/24".parse()?, tag: 7, metric: Metric::ONE, next_hop: None };
//! let mut writer = Writer::<Ripv2>::new(Command::Response, None, 1500);
//! assert!(writer.push(&entry));
//! let octets = writer.finish(0);
//! let message = Message::<Ripv2>::read(&octets)?;
//! assert_eq!(message.entries().collect::<Vec<_>>(), [Ok(entry)]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod authentication;
mod error;
pub mod fuzzing;
mod key;
mod message;
mod metric;
mod protocol;
mod ripng;
mod ripv2;
mod write;

// Tests of what the crate offers, in the executable of its unit tests.
#[cfg(test)]
extern crate self as holdfast_rip_wire;
#[cfg(test)]
#[path = "../tests/mod.rs"]
mod tests;

pub use authentication::{Authentication, Proof, Signed};
pub use error::{BadEntry, BadKey, Malformed, Unauthentic};
pub use key::{Algorithm, Credentials, Key, Password};
pub use message::{Command, Entries, Entry, Message, Queries};
pub use metric::Metric;
pub use protocol::{Layout, Protocol, Ripng, Ripv2};
pub use write::Writer;

/// Octets of the header that all messages have (RFC 2453 section 4, RFC 2080 section 2.1).
pub const HEADER: usize = 4;

/// Octets of a route entry (RFC 2453 section 4, RFC 2080 section 2.1).
pub const ENTRY: usize = 20;

/// Entries of the longest RIPv2 message (RFC 2453 section 3.6); an authentication entry is one of them.
pub const MOST_ENTRIES: usize = 25;

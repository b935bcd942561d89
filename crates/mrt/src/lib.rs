//! MRT dumps (RFC 6396, RFC 8050): routing tables and BGP messages as collectors store them.
//!
//! Bytes in, borrowed views out; nothing is copied and attributes are not interpreted. [`records`] cuts a dump
//! into [`Record`]s, [`Record::body`] reads one: a [`PeerIndex`], a prefix with its [`Rib`] entries, a BGP
//! [`Message`] or a [`StateChange`]; [`write`] makes them. Files, compression and what to make of the routes are the caller's.
//! No input makes it panic.

mod bgp4mp;
mod error;
#[doc(hidden)]
pub mod fuzzing;
mod reader;
mod record;
mod table;
pub mod write;

pub use bgp4mp::{Message, Session, StateChange};
pub use error::{Error, Fault};
pub use record::{Body, Record, Records, records};
pub use table::{Peer, PeerIndex, Peers, Rib, RibEntries, RibEntry};
pub use write::{Stamp, TooLong};

//! BGP-4 messages: bytes to values and back.
//!
//! Duty: frame a byte stream ([`message`]), read and write OPEN, NOTIFICATION and ROUTE-REFRESH, split and
//! classify UPDATEs ([`update`], RFC 7606), read path attributes ([`attributes`]) and NLRI ([`nlri`]), rewrite
//! attributes for export ([`edit`]) and build UPDATEs ([`encode`]).
//!
//! Never: keep state between messages, decide about a route, touch a socket. No input makes it panic.
//!
//! Read first: [`next_message`], then [`update::check`] and what it fills, [`update::Checked`].

pub mod as_path;
pub mod attribute;
pub mod attributes;
pub mod bgpsec;
pub mod edit;
pub mod encode;
pub mod message;
pub mod nlri;
pub mod notification;
pub mod open;
pub mod orf;
pub mod refresh;
pub mod update;

#[doc(hidden)]
pub mod fuzzing;

mod capability;
mod fault;
mod mp;

// Tests of what the crate offers, in the executable of its unit tests.
#[cfg(test)]
extern crate self as holdfast_bgp_wire;
#[cfg(test)]
#[path = "../tests/mod.rs"]
mod tests;

pub use as_path::AsPath;
pub use attributes::{Attributes, Origin};
pub use capability::{Capability, GracefulFamily, LongLivedFamily, OrfCapability};
pub use encode::UpdateEncoder;
pub use fault::{Fault, FaultReason, PathFault};
pub use message::{HEADER_LEN, KEEPALIVE, MAX_EXTENDED_LEN, MAX_LEN, Message, MessageType, next_message};
pub use mp::{MpReach, MpUnreach, NextHop};
pub use notification::{CeaseSubcode, FsmState, Notification};
pub use open::Open;
pub use orf::{OrfChange, OrfEntry, OrfMessage, WhenToRefresh};
pub use refresh::RouteRefresh;

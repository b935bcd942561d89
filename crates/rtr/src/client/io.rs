//! What comes in and what goes out.

use std::fmt;

use holdfast_rtr_wire::{Serial, Version};

use crate::{Counts, Fault};

/// What has happened to a session with a cache.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Input<'a> {
    /// The connection that was asked for is there.
    Connected,
    /// It brought octets.
    Received(&'a [u8]),
    /// It ended, or did not come about.
    Closed,
    /// What `poll_timeout` has said is here.
    Timeout,
    /// The operator wants the cache asked now; or a connection tried, if there is none.
    Refresh,
}

/// What is to be done for a session with a cache.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Output {
    /// Connect; [`Input::Connected`] or [`Input::Closed`] is the answer.
    Connect,
    /// Write.
    Send(Vec<u8>),
    /// Close once all is written. Nothing more of this connection may come in.
    Close,
    /// For the log.
    Event(Event),
}

/// What the operator might want to know.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event {
    /// An answer was taken in.
    Updated {
        /// In which version.
        version: Version,
        /// The serial number of the cache's data.
        serial: Serial,
        /// What is held now.
        counts: Counts,
    },
    /// The cache has no data yet. Once, until it says something else.
    NoData,
    /// The session has ended.
    Lost(Fault),
    /// Data were thrown away, as nothing was heard for longer than they hold.
    Expired,
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Updated { version, serial, counts } => write!(
                f,
                "up to date: serial {serial} in version {version}, {} IPv4 and {} IPv6 VRPs, {} ASPAs, {} router keys",
                counts.ipv4, counts.ipv6, counts.aspas, counts.router_keys
            ),
            Self::NoData => f.write_str("the cache has no data yet"),
            Self::Lost(fault) => fault.fmt(f),
            Self::Expired => f.write_str("data expired"),
        }
    }
}

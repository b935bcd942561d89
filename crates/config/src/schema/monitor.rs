//! Who is told what BGP hears and says: dumps and collectors.

use super::Size;
use std::marker::PhantomData;
use std::net::IpAddr;
use std::time::Duration;

use crate::keyed::{Maybe, OneOf, keys, seconds, words};
use crate::keys::types::SIZE;

keys! {
    /// Dumps on disk.
    pub struct Mrt {
        "what" what: MrtKind = OneOf::<MrtKind>(PhantomData), Reload, "`\"updates\"`: messages received and changes of state; `\"table\"`: all routes, as received";
        "interval" interval: Duration = seconds!(1..=86400, 900), Reload, "seconds between tables, or until the next file";
        "max-size" max_size: Option<Size> = Maybe(SIZE, "none"), Reload, "of a file of messages: then the next one begins";
        + /// An absolute path, with fields of strftime(3) in its last part.
        file: String = String::new();
    }
}

words! {
    /// What a dump has in it.
    pub enum MrtKind = Updates "updates" {
        /// Messages received, and changes of state.
        Updates = "updates",
        /// All routes, as received.
        Table = "table",
    }
}

/// A collector that is told by BMP.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Bmp {
    /// For the log.
    pub name: String,
    /// Where it listens.
    pub address: IpAddr,
    /// 11019 by default.
    pub port: u16,
    /// `pre-policy` by default.
    pub send: Vec<BmpTable>,
    /// Between statistics reports, 0 for none; a minute by default.
    pub statistics: Duration,
}

impl Bmp {
    /// What those who connect it call it: no name of a BGP peer has a space.
    pub fn peer_name(&self) -> String {
        format!("collector {}", self.name)
    }
}

words! {
    /// What a collector is told of.
    pub enum BmpTable = PrePolicy "pre-policy" {
        /// What peers send, before import policy.
        PrePolicy = "pre-policy",
        /// What peers are told.
        AdjRibOut = "adj-rib-out",
        /// The best routes.
        LocRib = "loc-rib",
    }
}

impl BmpTable {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::PrePolicy, Self::AdjRibOut, Self::LocRib];
}

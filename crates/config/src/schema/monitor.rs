//! Who is told what BGP hears and says: dumps and collectors.

use super::Size;
use std::net::IpAddr;
use std::time::Duration;

/// Dumps on disk.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Mrt {
    /// `updates` by default.
    pub what: MrtKind,
    /// An absolute path, with fields of strftime(3) in its last part.
    pub file: String,
    /// Between tables, or until the next file; 15 minutes by default.
    pub interval: Duration,
    /// Of a file of messages; `None`: as large as it gets.
    pub max_size: Option<Size>,
}

/// What a dump has in it.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum MrtKind {
    /// Messages received, and changes of state.
    Updates,
    /// All routes, as received.
    Table,
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

/// What a collector is told of.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum BmpTable {
    /// What peers send, before import policy.
    PrePolicy,
    /// What peers are told.
    AdjRibOut,
    /// The best routes.
    LocRib,
}

impl BmpTable {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::PrePolicy, Self::AdjRibOut, Self::LocRib];

    /// The word in the file.
    pub fn name(self) -> &'static str {
        match self {
            Self::PrePolicy => "pre-policy",
            Self::AdjRibOut => "adj-rib-out",
            Self::LocRib => "loc-rib",
        }
    }
}

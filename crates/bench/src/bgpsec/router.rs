//! The whole router with signed routes: what keys, paths and UPDATEs cost in all its processes, and what others notice.
//!
//! A feeder has signed everything before the clock starts, each route by itself, since signatures cover the prefix. Beside each
//! row stand the same routes as plain BGP has them, or the bare library with signatures as those routes have them, in the
//! same run. Goals and the figures of others are those of issues 20 and 21.

mod announced;
mod cache;
mod flood;
mod key_removed;
mod keys;
mod made;
mod paths;
mod probes;
mod scene;
mod signing;
mod signing_load;
mod table;
mod taken_in;

use std::time::Duration;

use anyhow::{Result, ensure};

use super::Figure;

/// How much of everything.
pub(super) struct Size {
    /// Routers' keys.
    pub(super) keys: &'static [u32],
    /// Routes whose memory is looked at, from few to many.
    pub(super) counts: &'static [u32],
    /// And their hops.
    pub(super) path_hops: &'static [usize],
    /// Hops of UPDATEs that are taken in, and how many are.
    pub(super) hops: &'static [usize],
    pub(super) taken: u32,
    /// With non-stop and without, in rows that have both.
    pub(super) nonstop: &'static [bool],
    /// Routers whose keys sign paths, beside the neighbour's.
    pub(super) signers: u32,
    /// Routes of a table, and keys in it.
    pub(super) routes: u32,
    pub(super) table_keys: u32,
    /// Routes that name a key that is removed.
    pub(super) naming: &'static [u32],
    /// Plain routes that are sent before anything else happens.
    pub(super) idle_probes: u32,
    /// Seconds of each flood.
    pub(super) seconds: u64,
    /// UPDATEs that are signed, and the hops that they were received with.
    pub(super) made: u32,
    pub(super) made_hops: &'static [usize],
    /// Routes that are announced with signatures, to so many peers of an AS.
    pub(super) announced: u32,
    pub(super) sharing: usize,
    /// How often `bgp` dies with these.
    pub(super) deaths: u32,
    /// From one death to the next: a router that dies again and again without it is in a crash loop.
    pub(super) pause: Duration,
}

/// All that issues 20 and 21 ask for; some minutes.
pub(super) const FULL: Size = Size {
    keys: &[100, 1_000, 10_000, 50_000, 100_000],
    counts: &[500, 5_000, 100_000],
    path_hops: &[1, 2, 3, 4, 5],
    hops: &[1, 2, 5],
    taken: 20_000,
    nonstop: &[true, false],
    signers: 1_000,
    routes: 100_000,
    table_keys: 100_000,
    naming: &[1, 100, 10_000],
    idle_probes: 200,
    seconds: 10,
    made: 5_000,
    made_hops: &[0, 1, 2, 3, 4],
    announced: 100_000,
    sharing: 10,
    deaths: 5,
    pause: Duration::from_secs(6),
};

/// Enough to see where things stand, in less than a minute on a quiet machine.
pub(super) const QUICK: Size = Size {
    keys: &[100, 10_000, 50_000],
    counts: &[500, 5_000],
    path_hops: &[1, 5],
    hops: &[1, 5],
    taken: 3_000,
    routes: 5_000,
    table_keys: 5_000,
    naming: &[1, 100],
    idle_probes: 50,
    seconds: 2,
    made: 2_000,
    made_hops: &[0, 4],
    announced: 5_000,
    deaths: 2,
    ..FULL
};

/// As little as possible, of which figures come.
pub(super) const TINY: Size = Size {
    keys: &[50, 300],
    counts: &[50, 200],
    path_hops: &[1, 2],
    hops: &[2],
    taken: 200,
    nonstop: &[true],
    signers: 100,
    routes: 200,
    table_keys: 200,
    naming: &[1, 20],
    idle_probes: 10,
    seconds: 1,
    made: 50,
    made_hops: &[0, 2],
    announced: 200,
    sharing: 3,
    deaths: 1,
    pause: Duration::from_secs(1),
};

/// What is measured of the router.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Row {
    /// Memory of routers' keys.
    Keys,
    /// Memory of paths.
    Paths,
    /// Processor time of an UPDATE.
    TakenIn,
    /// A table, and what else happens while it is verified.
    Table,
    /// A neighbour whose signatures are bad.
    Flood,
    /// A key goes.
    KeyRemoved,
    /// Processor time of an UPDATE that is signed.
    Made,
    /// Memory, refreshes and takeovers of routes that are announced signed.
    Announced,
    /// A table that is signed, and what others notice.
    SigningLoad,
}

/// Where figures go.
pub(super) type Print<'a> = &'a mut dyn FnMut(Figure) -> Result<()>;

impl Row {
    pub(super) fn run(self, size: &Size, print: Print<'_>) -> Result<()> {
        ensure!(rustix::process::geteuid().is_root(), "rows of the router need root");
        match self {
            Self::Keys => keys::run(size, print),
            Self::Paths => paths::run(size, print),
            Self::TakenIn => taken_in::run(size, print),
            Self::Table => table::run(size, print),
            Self::Flood => flood::run(size, print),
            Self::KeyRemoved => key_removed::run(size, print),
            Self::Made => made::run(size, print),
            Self::Announced => announced::run(size, print),
            Self::SigningLoad => signing_load::run(size, print),
        }
    }
}

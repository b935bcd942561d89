//! Routes for tests and measurements: made from a seed, or read from an MRT dump.
//!
//! A [`Table`] is what one speaker announces, without what depends on the speaker: no next hop, and paths begin
//! after its own AS. [`Synthetic`] makes one of any size that looks like the Internet's; [`Table::load`] reads a dump.

mod attributes;
mod load;
mod prefixes;
mod random;
mod synthetic;

use holdfast_types::{Family, IpPrefix, Prefix};

pub use synthetic::Synthetic;

/// Attributes that routes share.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct AttributeSet {
    /// Path attributes ascending by type, four-octet AS numbers, without NEXT_HOP, LOCAL_PREF and MP_REACH_NLRI.
    pub bytes: Vec<u8>,
}

/// Routes of one speaker.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Table {
    /// Each different one once.
    pub sets: Vec<AttributeSet>,
    /// Destination and index into `sets`, in the order of announcement. No destination twice.
    pub routes: Vec<(Prefix, u32)>,
}

impl Table {
    /// These prefixes with the least a route must have: ORIGIN IGP and an empty path.
    pub fn plain(prefixes: impl IntoIterator<Item = Prefix>) -> Self {
        let sets = vec![AttributeSet { bytes: attributes::Route::default().encode() }];
        Self { sets, routes: prefixes.into_iter().map(|prefix| (prefix, 0)).collect() }
    }

    /// Number of routes of a family.
    pub fn count(&self, family: Family) -> usize {
        self.routes.iter().filter(|(prefix, _)| family_of(*prefix) == family).count()
    }

    /// Puts the routes of another table, which has none of the same destinations, behind these.
    pub fn append(&mut self, other: Self) {
        let first = self.sets.len() as u32;
        self.sets.extend(other.sets);
        self.routes.extend(other.routes.into_iter().map(|(prefix, set)| (prefix, set + first)));
    }

    /// In prefix order: neighbouring prefixes often differ in their attributes, so there are few routes to an
    /// UPDATE, as when a router sends its table.
    pub fn sort_by_prefix(&mut self) {
        self.routes.sort_unstable();
    }

    /// All routes of a set together, so that there are as few UPDATEs as possible.
    pub fn sort_by_set(&mut self) {
        self.routes.sort_unstable_by_key(|&(prefix, set)| (set, prefix));
    }

    /// The first `count` routes; sets that are not used any more stay.
    pub fn truncate(&mut self, count: usize) {
        self.routes.truncate(count);
    }

    /// The attributes of one route.
    pub fn attributes(&self, route: usize) -> &[u8] {
        &self.sets[self.routes[route].1 as usize].bytes
    }
}

/// The unicast family of a prefix.
pub(crate) fn family_of(prefix: Prefix) -> Family {
    match prefix {
        Prefix::V4(_) => holdfast_types::Ipv4Prefix::UNICAST,
        Prefix::V6(_) => holdfast_types::Ipv6Prefix::UNICAST,
    }
}

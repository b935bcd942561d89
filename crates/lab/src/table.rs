//! Routes for tests and measurements: made from a seed, or read from an MRT dump.
//!
//! A [`Table`] is what one speaker announces, without what depends on the speaker: no next hop, and paths begin
//! after its own AS. [`Synthetic`] makes one of any size that looks like the Internet's; [`Table::load`] reads a dump.

mod attributes;
mod load;
mod prefixes;
pub mod random;
mod synthetic;

use std::collections::BTreeMap;

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

    /// So many prefixes of 24 bits within `1.NUMBER.0.0/16`, likewise.
    pub fn of_24s(number: u8, routes: u16) -> Self {
        Self::plain(
            (0..routes.min(256))
                .map(|third| Prefix::new([1, number, third as u8, 0].into(), 24).expect("a length of IPv4")),
        )
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

    /// What a speaker that has announced this table has to withdraw, and to announce, to have announced `new`.
    pub fn changes_to(&self, new: &Self) -> (Self, Self) {
        let of = |table: &Self, route: usize| (table.routes[route].0, table.attributes(route).to_vec());
        let before: BTreeMap<_, _> = (0..self.routes.len()).map(|route| of(self, route)).collect();
        let after: BTreeMap<_, _> = (0..new.routes.len()).map(|route| of(new, route)).collect();
        let withdrawn = Self::plain(before.keys().filter(|prefix| !after.contains_key(prefix)).copied());
        let mut announced = new.clone();
        announced.routes.retain(|(prefix, set)| before.get(prefix) != Some(&new.sets[*set as usize].bytes));
        (withdrawn, announced)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_differs_has_to_be_sent() {
        let prefix = |third| Prefix::new([10, 0, third, 0].into(), 24).expect("a length of IPv4");
        let set = |value| AttributeSet { bytes: vec![value] };
        let table = |sets: &[u8], routes: &[(u8, u32)]| Table {
            sets: sets.iter().map(|value| set(*value)).collect(),
            routes: routes.iter().map(|(third, set)| (prefix(*third), *set)).collect(),
        };
        let old = table(&[7, 8], &[(1, 0), (2, 0), (3, 1)]);
        // The set of the first has another number, the second is gone, the third another, the fourth new.
        let new = table(&[9, 7], &[(1, 1), (3, 0), (4, 1)]);
        let (withdrawn, announced) = old.changes_to(&new);
        assert_eq!(withdrawn.routes, [(prefix(2), 0)]);
        assert_eq!(announced.routes, [(prefix(3), 0), (prefix(4), 1)]);
    }
}

//! Outbound route filters by address prefix (RFC 5291, RFC 5292): which prefixes a peer says that it wants to be told.
//!
//! What came is kept as [`Orf`]. What is in force of it, as a [`PrefixFilter`], is a part of
//! [`Export`](crate::export::rules::Export): a change of it is one of what a group is told, and only differences are sent.

use std::{
    collections::{BTreeMap, BTreeSet},
    rc::Rc,
};

use holdfast_bgp_wire::{HEADER_LEN, OrfChange, OrfEntry, OrfMessage, WhenToRefresh};
use holdfast_types::{Family, IpPrefix, Prefix};

use crate::{PeerIndex, Pipeline, core::family_index, journal::format::Unreadable};

/// Entries that the filter of a peer may have in one family.
pub const MOST_ORF_ENTRIES: usize = 10_000;

/// What became of a message that changes a filter.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum OrfOutcome {
    /// The filter has so many entries.
    Taken(usize),
    /// It was not agreed that the peer sends filters of this family (RFC 5291 section 6).
    Ignored,
    /// An entry has a value that is none: there is no filter any more.
    Unrecognized,
    /// There are more than [`MOST_ORF_ENTRIES`]: there is no filter until the peer takes all of them back.
    TooMany,
}

/// What a peer has said of one family.
#[derive(Debug, Default)]
pub(crate) struct Orf {
    /// In the order in which they are asked.
    entries: BTreeSet<OrfEntry>,
    /// There were too many: none count until all are taken back.
    is_overflown: bool,
    /// What routes are filtered by: the entries as they were when the peer last asked for routes.
    in_force: Option<Rc<PrefixFilter>>,
    /// The peer has asked for routes. Before, none are sent (RFC 5291 section 6).
    is_open: bool,
    /// The entries may be others than those in force.
    is_changed: bool,
    /// And they are to be in force.
    is_due: bool,
}

impl Orf {
    /// What routes are filtered by; `None`: nothing.
    pub(crate) fn filter(&self) -> Option<Rc<PrefixFilter>> {
        self.in_force.clone()
    }

    /// Whether routes may be sent.
    pub(crate) fn is_open(&self) -> bool {
        self.is_open
    }

    fn take(&mut self, changes: &[OrfChange]) -> OrfOutcome {
        let mut outcome = None;
        self.is_changed |= !changes.is_empty();
        for change in changes {
            match change {
                OrfChange::RemoveAll => (self.entries, self.is_overflown) = (BTreeSet::new(), false),
                OrfChange::Unrecognized => {
                    self.entries.clear();
                    outcome = Some(OrfOutcome::Unrecognized);
                }
                OrfChange::Add(_) if self.is_overflown => {}
                OrfChange::Add(entry) => {
                    self.entries.insert(*entry);
                    if self.entries.len() > MOST_ORF_ENTRIES {
                        (self.entries, self.is_overflown) = (BTreeSet::new(), true);
                        outcome = Some(OrfOutcome::TooMany);
                    }
                }
                OrfChange::Remove(entry) => _ = self.entries.remove(entry),
            }
        }
        outcome.unwrap_or(OrfOutcome::Taken(self.entries.len()))
    }

    /// The peer asks for routes. Whether it does so for the first time.
    fn ask(&mut self) -> bool {
        self.is_due |= self.is_changed || !self.is_open;
        !std::mem::replace(&mut self.is_open, true)
    }

    /// What has been asked for takes effect; whether that changes anything.
    fn apply(&mut self) -> bool {
        if !std::mem::take(&mut self.is_due) {
            return false;
        }
        self.is_changed = false;
        self.in_force = (!self.entries.is_empty()).then(|| Rc::new(PrefixFilter::new(&self.entries)));
        true
    }
}

/// A filter, made to be asked often.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct PrefixFilter {
    /// Lengths of the entries' prefixes, each once, ascending.
    lengths: Vec<u8>,
    /// By length and address of the prefix, which entry counts for which lengths of routes; ascending.
    ranges: BTreeMap<(u8, u128), Box<[LengthRange]>>,
}

/// Routes of these lengths, if no entry of another prefix comes first.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
struct LengthRange {
    first: u8,
    last: u8,
    sequence: u32,
    permit: bool,
}

impl PrefixFilter {
    fn new(entries: &BTreeSet<OrfEntry>) -> Self {
        let mut by_prefix: BTreeMap<(u8, u128), Vec<&OrfEntry>> = BTreeMap::new();
        for entry in entries {
            let key = match entry.prefix {
                Prefix::V4(prefix) => (prefix.length(), prefix.bits()),
                Prefix::V6(prefix) => (prefix.length(), prefix.bits()),
            };
            by_prefix.entry(key).or_default().push(entry);
        }
        let mut lengths: Vec<u8> = by_prefix.keys().map(|(length, _)| *length).collect();
        lengths.dedup();
        let ranges = by_prefix.into_iter().map(|(key, entries)| (key, ranges(&entries))).collect();
        Self { lengths, ranges }
    }

    /// Whether routes to a prefix pass: the matching entry with the lowest number says so (RFC 5292 section 4).
    pub(crate) fn permits<P: IpPrefix>(&self, prefix: P) -> bool {
        let covering = self.lengths.iter().take_while(|length| **length <= prefix.length());
        let matching = covering.filter_map(|length| {
            let bits = P::from_bits(prefix.bits(), *length).bits();
            let mut ranges = self.ranges.get(&(*length, bits))?.iter();
            ranges.find(|range| (range.first..=range.last).contains(&prefix.length()))
        });
        matching.min_by_key(|range| range.sequence).is_some_and(|range| range.permit)
    }
}

/// Of entries of one prefix in order, which of them counts for which lengths of routes.
fn ranges(entries: &[&OrfEntry]) -> Box<[LengthRange]> {
    let mut by_length: [Option<(u32, bool)>; 129] = [None; _];
    for entry in entries {
        let (first, last) = entry.lengths();
        for length in first..=last {
            by_length[usize::from(length)].get_or_insert((entry.sequence, entry.permit));
        }
    }
    let mut ranges: Vec<LengthRange> = Vec::new();
    for (length, counts) in (0..).zip(by_length) {
        let Some((sequence, permit)) = counts else { continue };
        match ranges.last_mut() {
            Some(range) if (range.last + 1, range.sequence, range.permit) == (length, sequence, permit) => {
                range.last = length;
            }
            Some(_) | None => ranges.push(LengthRange { first: length, last: length, sequence, permit }),
        }
    }
    ranges.into()
}

/// The form of records of [`Pipeline::freeze_orf`]: the number in front of all records that a session leaves, one octet
/// of the flags below, the body of a message that adds entries.
pub(crate) const RECORD: u8 = 2;
const OPEN: u8 = 1;
const OVERFLOWN: u8 = 2;
/// Octets of such a message.
const LONGEST_RECORD: usize = 4096;

impl Pipeline {
    /// A peer changes its filter. What that changes for it is sent as with a change of policy, at once or when
    /// [`Self::route_refresh`] comes.
    pub fn take_orf(&mut self, index: PeerIndex, message: &OrfMessage) -> OrfOutcome {
        let Some(family) = family_index(message.family) else { return OrfOutcome::Ignored };
        let orf = self.session_mut(index).and_then(|session| session.orf[family].as_mut());
        let Some(orf) = orf else { return OrfOutcome::Ignored };
        let outcome = orf.take(&message.changes);
        if message.when == WhenToRefresh::Immediate {
            self.apply_orf(index, message.family);
        }
        outcome
    }

    /// The peer has asked for routes: they may be sent, and its filter is in force as soon as [`Self::work`] comes by.
    /// A filter takes milliseconds to make, and a peer that changes it by single entries asks with each. Without a
    /// filter nothing happens.
    pub fn apply_orf(&mut self, index: PeerIndex, family: Family) {
        let Some(at) = family_index(family) else { return };
        let orf = self.session_mut(index).and_then(|session| session.orf[at].as_mut());
        let Some(orf) = orf else { return };
        match (orf.ask(), orf.is_due) {
            (true, _) => self.change_filters(index),
            (false, true) => _ = self.background.filters.insert(index),
            (false, false) => {}
        }
    }

    /// Filters of one peer that has asked for that take effect; whether there was one.
    pub(crate) fn apply_filters(&mut self) -> bool {
        let Some(index) = self.background.filters.pop_first() else { return false };
        self.change_filters(index);
        true
    }

    fn change_filters(&mut self, index: PeerIndex) {
        let Some(session) = self.session_mut(index) else { return };
        let mut is_changed = false;
        session.orf.iter_mut().flatten().for_each(|orf| is_changed |= orf.apply());
        if is_changed {
            self.change_export(index);
        }
    }

    /// Entries of the peer's filter, and whether it has asked for routes yet; `None` where it may send no filter.
    pub fn orf(&self, index: PeerIndex, family: Family) -> Option<(usize, bool)> {
        let orf = self.session(index)?.orf[family_index(family)?].as_ref()?;
        Some((orf.entries.len(), orf.is_open))
    }

    /// What a peer has said of filters, for [`Self::thaw_routes`] of another process. Entries that are not in force yet
    /// are so there.
    pub fn freeze_orf(&self, index: PeerIndex) -> Vec<Vec<u8>> {
        let mut records = Vec::new();
        for (family, orf) in Family::ALL.into_iter().zip(self.session(index).iter().flat_map(|s| &s.orf)) {
            let Some(orf) = orf else { continue };
            let flags = if orf.is_open { OPEN } else { 0 } | if orf.is_overflown { OVERFLOWN } else { 0 };
            let entries: Vec<_> = orf.entries.iter().copied().collect();
            for message in OrfMessage::replacing(family, &entries, LONGEST_RECORD) {
                let mut record = vec![RECORD, flags];
                record.extend_from_slice(&message.encode()[HEADER_LEN..]);
                records.push(record);
            }
        }
        records
    }

    /// Takes in such a record without the number in front.
    pub(crate) fn thaw_orf(&mut self, index: PeerIndex, record: &[u8]) -> Result<(), Unreadable> {
        let (&flags, body) = record.split_first().ok_or(Unreadable)?;
        let message = OrfMessage::parse(body).map_err(|_| Unreadable)?;
        let family = family_index(message.family).ok_or(Unreadable)?;
        let Some(orf) = self.session_mut(index).and_then(|session| session.orf[family].as_mut()) else {
            return Ok(());
        };
        orf.take(&message.changes);
        orf.is_overflown = flags & OVERFLOWN != 0;
        if flags & OPEN != 0 && message.when == WhenToRefresh::Immediate {
            self.apply_orf(index, message.family);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use holdfast_types::Ipv4Prefix;

    use super::*;

    fn entry(sequence: u32, permit: bool, prefix: &str, (min_length, max_length): (u8, u8)) -> OrfEntry {
        OrfEntry { sequence, permit, prefix: prefix.parse().expect("a prefix"), min_length, max_length }
    }

    fn permits(filter: &PrefixFilter, prefix: &str) -> bool {
        let prefix: Prefix = prefix.parse().expect("a prefix");
        filter.permits(Ipv4Prefix::from_prefix(prefix).expect("of IPv4"))
    }

    /// RFC 5292 section 4 as it is written.
    fn naive(entries: &BTreeSet<OrfEntry>, prefix: Ipv4Prefix) -> bool {
        let matching = entries.iter().find(|entry| {
            let covers = Ipv4Prefix::from_prefix(entry.prefix).is_some_and(|own| own.contains(prefix));
            let (first, last) = entry.lengths();
            covers && (first..=last).contains(&prefix.length())
        });
        matching.is_some_and(|entry| entry.permit)
    }

    #[test]
    fn the_first_match_counts_whatever_its_length() {
        let entries = BTreeSet::from([
            entry(30, true, "10.0.0.0/8", (0, 24)),
            entry(20, false, "10.1.0.0/16", (17, 24)),
            entry(10, true, "10.1.1.0/24", (0, 0)),
            entry(40, true, "0.0.0.0/0", (0, 0)),
        ]);
        let filter = PrefixFilter::new(&entries);
        let wanted = ["10.0.0.0/8", "10.1.0.0/16", "10.1.1.0/24", "10.2.0.0/24", "0.0.0.0/0"];
        assert!(wanted.iter().all(|prefix| permits(&filter, prefix)));
        let unwanted = ["10.1.2.0/24", "10.1.128.0/17", "10.2.0.0/25", "192.0.2.0/24"];
        assert!(!unwanted.iter().any(|prefix| permits(&filter, prefix)));
    }

    #[test]
    fn a_filter_is_what_the_rfc_says_for_any_entries() {
        // A walk through few prefixes and many bounds, so that they meet.
        let mut state = 1_u64;
        let mut next = |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % below
        };
        for _ in 0..200 {
            let entries: BTreeSet<_> = (0..next(12))
                .map(|_| {
                    let length = next(9) as u8;
                    let prefix = Ipv4Prefix::from_bits(u128::from(next(4)) << 126, length);
                    let (min, max) = (next(12) as u8, next(12) as u8);
                    let max_length = if max < min { 0 } else { max };
                    let (sequence, permit) = (next(1 << 20) as u32, next(2) == 0);
                    OrfEntry { sequence, permit, prefix: prefix.into(), min_length: min, max_length }
                })
                .collect();
            let filter = PrefixFilter::new(&entries);
            for length in 0..=14 {
                for bits in 0..8_u128 {
                    let prefix = Ipv4Prefix::from_bits(bits << 125, length);
                    assert_eq!(filter.permits(prefix), naive(&entries, prefix), "{prefix} in {entries:?}");
                }
            }
        }
    }

    #[test]
    fn entries_come_and_go_and_are_in_force_when_routes_are_asked_for() {
        let (first, second) = (entry(1, true, "10.0.0.0/8", (0, 0)), entry(2, true, "10.0.0.0/9", (0, 0)));
        let mut orf = Orf::default();
        assert_eq!(orf.take(&[OrfChange::Add(first), OrfChange::Add(second)]), OrfOutcome::Taken(2));
        assert!(orf.filter().is_none() && !orf.is_open());
        assert!(orf.ask() && orf.apply());
        let before = orf.filter().expect("a filter");
        assert!(!orf.ask() && !orf.apply(), "nothing has changed");
        assert_eq!(orf.take(&[OrfChange::Remove(first), OrfChange::Remove(first)]), OrfOutcome::Taken(1));
        assert!(permits(&before, "10.0.0.0/8") && orf.filter() == Some(before));
        assert!(!orf.ask() && orf.apply());
        assert!(orf.filter().is_some_and(|filter| !permits(&filter, "10.0.0.0/8")));
        assert_eq!(orf.take(&[OrfChange::Unrecognized]), OrfOutcome::Unrecognized);
        assert!(!orf.ask() && orf.apply());
        assert!(orf.filter().is_none() && orf.is_open(), "without entries everything passes");
    }

    #[test]
    fn too_many_entries_are_none_until_all_are_taken_back() {
        let many: Vec<_> = (0..=MOST_ORF_ENTRIES as u32)
            .map(|number| OrfChange::Add(entry(number, true, "10.0.0.0/8", (0, 0))))
            .collect();
        let mut orf = Orf::default();
        assert_eq!(orf.take(&many[1..]), OrfOutcome::Taken(MOST_ORF_ENTRIES));
        assert_eq!(orf.take(&many[..1]), OrfOutcome::TooMany);
        assert_eq!(orf.take(&many[..1]), OrfOutcome::Taken(0));
        assert_eq!(orf.take(&[OrfChange::RemoveAll, many[0]]), OrfOutcome::Taken(1));
    }
}

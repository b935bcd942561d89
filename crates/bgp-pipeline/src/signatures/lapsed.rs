//! Router keys that expire because the cache has fallen silent. The pipeline verifies the routes that name such a key again slot by
//! slot: all routes of a neighbor name its key, and would lose their validity at the same moment.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};

use holdfast_bgpsec_wire::Ski;
use holdfast_types::Asn;

/// Slots that prefixes are spread over.
pub(crate) const SLOTS: u64 = 60;
/// Time of a slot.
const SLOT: Duration = Duration::from_secs(1);

/// The keys whose routes the pipeline verifies again in one slot of prefixes.
#[derive(PartialEq, Eq, Debug)]
pub(crate) struct Turn {
    pub(crate) slot: u64,
    pub(crate) names: BTreeSet<(Asn, Ski)>,
    /// Any key: the names were too many to be told apart.
    pub(crate) all: bool,
}

/// Names of keys that have expired, each until all slots have had their turn.
#[derive(Debug, Default)]
pub(crate) struct Lapsed {
    /// With the number of turns at which all slots have had theirs.
    names: BTreeMap<(Asn, Ski), u64>,
    /// The same where nobody knows which keys.
    all: u64,
    /// Turns that slots have had.
    turns: u64,
    /// When the next slot has its turn; `None`: nothing is left.
    next: Option<Instant>,
}

impl Lapsed {
    /// These have expired; `most` names are told apart.
    pub(crate) fn add(
        &mut self,
        names: impl IntoIterator<Item = (Asn, Ski)>,
        all: bool,
        (most, now): (usize, Instant),
    ) {
        let until = self.turns + SLOTS;
        self.names.extend(names.into_iter().map(|name| (name, until)));
        if all || self.names.len() > most {
            self.all = until;
            self.names.clear();
        }
        let is_there = self.all > self.turns || !self.names.is_empty();
        self.next = self.next.or(Some(now)).filter(|_| is_there);
    }

    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        self.next
    }

    /// The slot whose time has come, if there is one.
    pub(crate) fn poll(&mut self, now: Instant) -> Option<Turn> {
        let due = self.next.filter(|due| *due <= now)?;
        let (slot, all) = (self.turns % SLOTS, self.all > self.turns);
        let names = if all { BTreeSet::new() } else { self.names.keys().copied().collect() };
        self.turns += 1;
        self.names.retain(|_, until| *until > self.turns);
        let is_left = self.all > self.turns || !self.names.is_empty();
        // One after the other, also if a turn came late.
        self.next = is_left.then(|| due.max(now) + SLOT);
        Some(Turn { slot, names, all })
    }

    pub(crate) fn memory(&self) -> usize {
        self.names.len() * size_of::<((Asn, Ski), u64)>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(asn: u32) -> (Asn, Ski) {
        (Asn(asn), Ski([0; 20]))
    }

    #[test]
    fn each_name_is_looked_for_once_in_each_slot_whenever_it_came() {
        let (mut lapsed, start) = (Lapsed::default(), Instant::now());
        let mut slots: BTreeMap<_, Vec<u64>> = BTreeMap::new();
        let mut now = start;
        for turn in 0..200 {
            match turn {
                0 => lapsed.add([name(1)], false, (10, now)),
                7 => lapsed.add([name(2), name(3)], false, (10, now)),
                90 => lapsed.add([name(1)], false, (10, now)),
                _ => {}
            }
            if let Some(Turn { slot, names, all }) = lapsed.poll(now) {
                assert!(!all);
                names.iter().for_each(|(asn, _)| slots.entry(asn.0).or_default().push(slot));
            }
            assert_eq!(lapsed.poll(now), None, "one slot at a time");
            now += SLOT;
        }
        assert_eq!((lapsed.poll_timeout(), lapsed.memory()), (None, 0));
        for (asn, times) in [(1, 2), (2, 1), (3, 1)] {
            let mut of_it = slots.remove(&asn).expect("looked for");
            of_it.sort_unstable();
            let all = (0..SLOTS).flat_map(|slot| std::iter::repeat_n(slot, times));
            assert_eq!(of_it, all.collect::<Vec<_>>(), "{asn}");
        }
    }

    #[test]
    fn more_names_than_may_be_told_apart_are_all() {
        let (mut lapsed, mut now) = (Lapsed::default(), Instant::now());
        lapsed.add((0..11).map(name), false, (10, now));
        assert_eq!(lapsed.memory(), 0);
        let mut turns = 0;
        while let Some(due) = lapsed.poll_timeout() {
            now = due;
            let turn = lapsed.poll(now).expect("it is due");
            assert_eq!(turn, Turn { slot: turns, names: BTreeSet::new(), all: true });
            turns += 1;
        }
        assert_eq!(turns, SLOTS);
    }
}

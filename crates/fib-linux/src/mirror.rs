//! The table as the kernel was told it, and what the kernel has of each route.
//!
//! The backend writes with what the mirror says: a route that the kernel has is replaced, one that it has not is created
//! exclusively. So a route of another program is never overwritten, and what others remove is known. A route costs 3 octets
//! beside its value of 4.

use std::hash::{BuildHasher, RandomState};

use holdfast_prefix_table::PrefixTable;
use holdfast_types::{HashKey, IpPrefix, Ipv4Prefix, Ipv6Prefix, Prefix};

use crate::slots::{Slot, Slots};

/// What the kernel has of a route.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum State {
    /// The route, as far as is known.
    Installed,
    /// An older route of ours: the kernel refuses the one that is wanted.
    Outdated,
    /// Nothing of ours: the kernel refuses the route or its next hops.
    Refused,
    /// A route of another program, of the same prefix and metric, that was there first.
    Taken,
    /// Nothing: another program removed the route.
    Missing,
    /// A route of another program, which replaced ours.
    Overwritten,
    /// Nothing of ours: other programs removed or replaced it too often. The route is written again later.
    Contested,
}

impl State {
    const ALL: [Self; 7] = [
        Self::Installed,
        Self::Outdated,
        Self::Refused,
        Self::Taken,
        Self::Missing,
        Self::Overwritten,
        Self::Contested,
    ];

    /// Whether the kernel has a route of ours there.
    pub(crate) fn is_present(self) -> bool {
        matches!(self, Self::Installed | Self::Outdated)
    }
}

/// What is known of a route.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct Entry {
    pub(crate) slot: Slot,
    pub(crate) state: State,
    /// Equal to the mirror's: the route was written or seen since the last comparison began.
    pub(crate) parity: bool,
}

/// Bits of a value below the slot: three of the state, one of parity.
const SLOT_SHIFT: u32 = 4;
const PARITY: u32 = 8;

impl Entry {
    fn to_bits(self) -> u32 {
        (self.slot.0 << SLOT_SHIFT) | (u32::from(self.parity) * PARITY) | self.state as u32
    }

    fn from_bits(bits: u32) -> Self {
        let state = State::ALL.get((bits & (PARITY - 1)) as usize).copied().unwrap_or(State::Refused);
        Self { slot: Slot(bits >> SLOT_SHIFT), state, parity: bits & PARITY != 0 }
    }
}

/// Where a walk goes on. IPv4 comes first.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Cursor {
    V4(Option<Ipv4Prefix>),
    V6(Option<Ipv6Prefix>),
}

/// Where a walk begins.
pub(crate) const START: Cursor = Cursor::V4(None);

/// The table.
pub(crate) struct Mirror {
    ipv4: PrefixTable<Ipv4Prefix, u32>,
    ipv6: PrefixTable<Ipv6Prefix, u32>,
    pub(crate) tally: Tally,
}

/// What is counted of the entries.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub(crate) slots: Slots,
    states: [u64; State::ALL.len()],
    pub(crate) parity: bool,
}

impl Tally {
    #[inline]
    fn exchange(&mut self, old: Option<Entry>, new: Option<Entry>) {
        if let Some(new) = new {
            self.slots.enter(new.slot);
            self.states[new.state as usize] += 1;
        }
        if let Some(old) = old {
            self.slots.leave(old.slot);
            self.states[old.state as usize] -= 1;
        }
    }
}

/// The mirror's table of a family.
pub(crate) trait Family: IpPrefix + Into<Prefix> {
    fn of(mirror: &mut Mirror) -> (&mut PrefixTable<Self, u32>, &mut Tally);
}

impl Family for Ipv4Prefix {
    fn of(mirror: &mut Mirror) -> (&mut PrefixTable<Self, u32>, &mut Tally) {
        (&mut mirror.ipv4, &mut mirror.tally)
    }
}

impl Family for Ipv6Prefix {
    fn of(mirror: &mut Mirror) -> (&mut PrefixTable<Self, u32>, &mut Tally) {
        (&mut mirror.ipv6, &mut mirror.tally)
    }
}

impl Mirror {
    /// Empty.
    pub(crate) fn new() -> Self {
        let key = || HashKey::new([0_u64, 1].map(|word| RandomState::new().hash_one(word)));
        Self { ipv4: PrefixTable::new(key()), ipv6: PrefixTable::new(key()), tally: Tally::default() }
    }

    /// Routes in this state.
    pub(crate) fn count(&self, state: State) -> u64 {
        self.tally.states[state as usize]
    }

    /// What is known of a route; `None`: the route is not wanted.
    pub(crate) fn get(&self, prefix: Prefix) -> Option<Entry> {
        let bits = match prefix {
            Prefix::V4(prefix) => self.ipv4.get(prefix),
            Prefix::V6(prefix) => self.ipv6.get(prefix),
        };
        bits.map(Entry::from_bits)
    }

    /// The routes are about to be written: each is in its slot from now on, or not wanted (`None`). `before` gets what was
    /// known of each, in order.
    pub(crate) fn change_each<P: Family>(
        &mut self,
        prefixes: &[P],
        places: &[Option<(Slot, State)>],
        mut before: impl FnMut(Option<Entry>),
    ) {
        self.review_each(prefixes, |row, old, tally| {
            before(old);
            let place = places.get(row).copied().flatten();
            place.map(|(slot, state)| Entry { slot, state, parity: tally.parity })
        });
    }

    /// Puts what is now known of routes in the place of what was.
    pub(crate) fn review_each<P: Family>(
        &mut self,
        prefixes: &[P],
        mut review: impl FnMut(usize, Option<Entry>, &Tally) -> Option<Entry>,
    ) {
        let (table, tally) = P::of(self);
        let mut row = 0;
        table.update_each(prefixes, |_, bits| {
            let old = bits.map(Entry::from_bits);
            let new = review(row, old, tally);
            row += 1;
            tally.exchange(old, new);
            new.map(Entry::to_bits)
        });
    }

    /// The kernel has this of a route that is wanted.
    pub(crate) fn set_state(&mut self, prefix: Prefix, state: State) {
        let review = |_: usize, old: Option<Entry>, _: &Tally| old.map(|old| Entry { state, ..old });
        match prefix {
            Prefix::V4(prefix) => self.review_each(&[prefix], review),
            Prefix::V6(prefix) => self.review_each(&[prefix], review),
        }
    }

    /// The same of one route that is in another slot from now on.
    pub(crate) fn move_to(&mut self, prefix: Prefix, slot: Slot, state: State) {
        let review = |_: usize, old: Option<Entry>, tally: &Tally| {
            old.map(|_| Entry { slot, state, parity: tally.parity })
        };
        match prefix {
            Prefix::V4(prefix) => self.review_each(&[prefix], review),
            Prefix::V6(prefix) => self.review_each(&[prefix], review),
        }
    }

    /// From now on another parity is the present one: no route is seen yet.
    pub(crate) fn begin_comparison(&mut self) {
        self.tally.parity = !self.tally.parity;
    }

    /// Adds routes that are `wanted` to `found`, after the cursor, and visits at most so many. Where to go on; `None` at the
    /// end.
    pub(crate) fn scan(
        &self,
        from: Cursor,
        most_visited: usize,
        most_found: usize,
        found: &mut Vec<Prefix>,
        wanted: impl Fn(Prefix, Entry, &Tally) -> bool,
    ) -> Option<Cursor> {
        let (mut visited, tally) = (0, &self.tally);
        let mut show = |prefix: Prefix, bits| {
            visited += 1;
            if wanted(prefix, Entry::from_bits(bits), tally) {
                found.push(prefix);
            }
            visited < most_visited && found.len() < most_found
        };
        match from {
            Cursor::V4(from) => match self.ipv4.scan(from, |prefix, bits| show(prefix.into(), bits)) {
                Some(last) => Some(Cursor::V4(Some(last))),
                None => Some(Cursor::V6(None)),
            },
            Cursor::V6(from) => {
                let last = self.ipv6.scan(from, |prefix, bits| show(prefix.into(), bits))?;
                Some(Cursor::V6(Some(last)))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use holdfast_fib::Handle;

    use super::*;
    use crate::route::Target;

    fn prefix(number: u32) -> Ipv4Prefix {
        Ipv4Prefix::from_bits(u128::from(number) << 104, 24)
    }

    #[test]
    fn a_value_is_read_as_it_was_written() {
        for state in State::ALL {
            for parity in [false, true] {
                let entry = Entry { slot: Slot((1 << 28) - 1), state, parity };
                assert_eq!(Entry::from_bits(entry.to_bits()), entry);
            }
        }
    }

    #[test]
    fn states_and_slots_are_counted_over_every_change() {
        let mut mirror = Mirror::new();
        let slot = mirror.tally.slots.current(Handle(1), Some(Target::Group(1))).expect("room");
        let prefixes: Vec<_> = (1..101).map(prefix).collect();
        mirror.change_each(&prefixes, &[Some((slot, State::Installed)); 100], |before| {
            assert_eq!(before, None);
        });
        mirror.set_state(prefix(7).into(), State::Missing);
        assert_eq!((mirror.count(State::Installed), mirror.count(State::Missing)), (99, 1));
        mirror.set_state(prefix(700).into(), State::Missing);
        assert_eq!(mirror.count(State::Missing), 1, "not wanted");
        let mut known = Vec::new();
        mirror.change_each(&prefixes, &[None; 100], |before| known.extend(before));
        assert_eq!(known.iter().filter(|entry| entry.state == State::Missing).count(), 1);
        assert_eq!(State::ALL.map(|state| mirror.count(state)), [0; 7]);
        mirror.tally.slots.retire(Handle(1), crate::slots::Fate::Lost);
        assert_eq!(mirror.tally.slots.retired_routes(), 0);
    }

    #[test]
    fn a_walk_visits_each_route_of_both_families_once() {
        let mut mirror = Mirror::new();
        let place = mirror.tally.slots.current(Handle(1), None).map(|slot| (slot, State::Refused));
        let ipv4: Vec<_> = (1..101).map(prefix).collect();
        let ipv6: Vec<_> = (1..101_u128).map(|number| Ipv6Prefix::from_bits(number << 64, 64)).collect();
        mirror.change_each(&ipv4, &[place; 100], |_| {});
        mirror.change_each(&ipv6, &[place; 100], |_| {});
        let (mut found, mut cursor) = (Vec::new(), Some(START));
        while let Some(from) = cursor {
            cursor = mirror.scan(from, 7, usize::MAX, &mut found, |_, _, _| true);
        }
        let expected = ipv4.into_iter().map(Prefix::V4).chain(ipv6.into_iter().map(Prefix::V6));
        assert!(found.iter().copied().eq(expected));
    }
}

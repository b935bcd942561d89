//! What export policies have said of attribute sets, so that each is asked once.
//!
//! Beside each set there is room for the answers of two groups, more would be memory for every set: of groups
//! with different policies some ask again in each window.

use crate::path::SetId;

/// Names a group of peers as long as the process lives; 0 is none.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct GroupNumber(u32);

impl GroupNumber {
    const BITS: u32 = 24;

    /// A group for which nothing is remembered: so many have come and gone that there is no number left.
    pub(crate) const NONE: Self = Self(0);

    pub(crate) const FIRST: Self = Self(1);

    pub(crate) fn next(self) -> Self {
        if self == Self::NONE || (self.0 + 1) >> Self::BITS != 0 { Self::NONE } else { Self(self.0 + 1) }
    }
}

const WAYS: usize = 2;

/// A group's number and its answer, in one word; 0 is none.
type Entry = u32;

/// The answers, by set. They are small numbers that mean something to the group.
#[derive(Debug, Default)]
pub(crate) struct Verdicts {
    sets: Vec<[Entry; WAYS]>,
}

impl Verdicts {
    /// What the group has said of the set.
    #[inline]
    pub(crate) fn get(&self, set: SetId, group: GroupNumber) -> Option<u8> {
        let entry = self.sets.get(set.index())?[group.0 as usize % WAYS];
        (entry >> 8 == group.0 && entry != 0).then_some(entry as u8)
    }

    /// Remembers what the group says, and forgets what another said that had the place.
    pub(crate) fn put(&mut self, set: SetId, group: GroupNumber, answer: u8) {
        if group == GroupNumber::NONE {
            return;
        }
        if self.sets.len() <= set.index() {
            self.sets.resize(set.index() + 1, [0; WAYS]);
        }
        self.sets[set.index()][group.0 as usize % WAYS] = group.0 << 8 | u32::from(answer);
    }

    /// The set's number is about to mean another. `numbers` are in use, this one not counted.
    pub(crate) fn forget(&mut self, set: SetId, numbers: usize) {
        if let Some(entries) = self.sets.get_mut(set.index()) {
            *entries = [0; WAYS];
        }
        // Numbers are dense: after a burst what lies above them is never asked for.
        if self.sets.len() > 4 * numbers.max(1024) {
            self.sets.truncate(numbers);
            self.sets.shrink_to_fit();
        }
    }

    pub(crate) fn memory(&self) -> usize {
        self.sets.capacity() * size_of::<[Entry; WAYS]>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_remembered_for_its_group_and_set_until_the_set_goes() {
        let (mut verdicts, one) = (Verdicts::default(), GroupNumber::FIRST);
        let (two, three) = (one.next(), one.next().next());
        verdicts.put(SetId(5), one, 7);
        verdicts.put(SetId(5), two, 0);
        verdicts.put(SetId(5), GroupNumber::NONE, 9);
        assert_eq!([one, two, three].map(|group| verdicts.get(SetId(5), group)), [Some(7), Some(0), None]);
        assert_eq!(verdicts.get(SetId(5), GroupNumber::NONE), None);
        assert_eq!(verdicts.get(SetId(500), one), None);
        verdicts.put(SetId(5), three, 1);
        assert_eq!([one, two, three].map(|group| verdicts.get(SetId(5), group)), [None, Some(0), Some(1)]);
        verdicts.forget(SetId(5), 6);
        assert_eq!([one, two, three].map(|group| verdicts.get(SetId(5), group)), [None; 3]);
    }

    #[test]
    fn when_the_numbers_are_used_up_there_are_no_more() {
        let last = GroupNumber((1 << GroupNumber::BITS) - 1);
        assert_eq!((last.next(), last.next().next()), (GroupNumber::NONE, GroupNumber::NONE));
    }
}

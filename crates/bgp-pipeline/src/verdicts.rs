//! What export policies have said of attribute sets, so that each is asked once.
//!
//! Beside each set there is room for the answers of as many groups as there are, up to eight: more would be memory
//! for every set. Of more groups with different policies some ask again in each window.

use crate::path::SetId;

/// Names a group of peers as long as the process lives; 0 is none.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct GroupNumber(u32);

impl GroupNumber {
    const BITS: u32 = 24;

    /// A group for which nothing is remembered: so many have come and gone that there is no number left.
    pub(crate) const NONE: Self = Self(0);

    pub(crate) const FIRST: Self = Self(1);

    /// The number.
    pub(crate) fn bits(self) -> usize {
        self.0 as usize
    }

    pub(crate) fn next(self) -> Self {
        if self == Self::NONE || (self.0 + 1) >> Self::BITS != 0 { Self::NONE } else { Self(self.0 + 1) }
    }
}

/// Answers beside a set at most.
const MOST_WAYS: usize = 8;

/// A group's number and its answer, in one word; 0 is none.
type Entry = u32;

/// The answers, by set. They are small numbers that mean something to the group.
#[derive(Debug)]
pub(crate) struct Verdicts {
    /// Answers beside each set, a power of two.
    ways: usize,
    /// So many for each set.
    entries: Vec<Entry>,
}

impl Default for Verdicts {
    fn default() -> Self {
        Self { ways: 1, entries: Vec::new() }
    }
}

impl Verdicts {
    /// There are so many groups. When room has to be made, what was said is asked again.
    pub(crate) fn make_room(&mut self, groups: usize) {
        let ways = groups.next_power_of_two().min(MOST_WAYS);
        if ways > self.ways {
            *self = Self { ways, entries: Vec::new() };
        }
    }

    fn place(&self, set: SetId, group: GroupNumber) -> usize {
        set.index() * self.ways + (group.0 as usize & (self.ways - 1))
    }

    /// What the group has said of the set.
    #[inline]
    pub(crate) fn get(&self, set: SetId, group: GroupNumber) -> Option<u8> {
        let entry = *self.entries.get(self.place(set, group))?;
        (entry >> 8 == group.0 && entry != 0).then_some(entry as u8)
    }

    /// Remembers what the group says, and forgets what another said that had the place.
    pub(crate) fn put(&mut self, set: SetId, group: GroupNumber, answer: u8) {
        if group == GroupNumber::NONE {
            return;
        }
        let place = self.place(set, group);
        if self.entries.len() <= place {
            self.entries.resize((set.index() + 1) * self.ways, 0);
        }
        self.entries[place] = group.0 << 8 | u32::from(answer);
    }

    /// The set's number is about to mean another. Numbers in use are below `numbers`.
    #[inline]
    pub(crate) fn forget(&mut self, set: SetId, numbers: usize) {
        if !self.entries.is_empty() {
            self.forget_answers(set, numbers);
        }
    }

    fn forget_answers(&mut self, set: SetId, numbers: usize) {
        let first = set.index() * self.ways;
        if let Some(entries) = self.entries.get_mut(first..first + self.ways) {
            entries.fill(0);
        }
        // After a burst what lies above the numbers in use is never asked for.
        if self.entries.len() > 4 * self.ways * numbers.max(1024) {
            self.entries.truncate(self.ways * numbers);
            self.entries.shrink_to_fit();
        }
    }

    pub(crate) fn memory(&self) -> usize {
        self.entries.capacity() * size_of::<Entry>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_remembered_for_its_group_and_set_until_the_set_goes() {
        let (mut verdicts, one) = (Verdicts::default(), GroupNumber::FIRST);
        verdicts.make_room(2);
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
        verdicts.put(SetId(6), one, 3);
        verdicts.make_room(1);
        assert_eq!(verdicts.get(SetId(6), one), Some(3));
        verdicts.make_room(700);
        assert_eq!((verdicts.get(SetId(6), one), verdicts.ways), (None, MOST_WAYS));
    }

    #[test]
    fn when_the_numbers_are_used_up_there_are_no_more() {
        let last = GroupNumber((1 << GroupNumber::BITS) - 1);
        assert_eq!((last.next(), last.next().next()), (GroupNumber::NONE, GroupNumber::NONE));
    }
}

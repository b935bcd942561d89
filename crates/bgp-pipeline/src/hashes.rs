//! Hashes of attributes as groups announce them, kept while what sessions were told by another process is compared.
//!
//! Routes are compared in address order, in which those of one set are far apart: without this each would be encoded and
//! hashed.

use std::hint::black_box;

use holdfast_types::RouterId;

use crate::{path::SetId, verdicts::GroupNumber};

/// Hashes beside a set at most: see [`Verdicts`](crate::verdicts::Verdicts).
const MOST_WAYS: usize = 8;

/// Of what a hash is, beside the set.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct Asked {
    pub(crate) group: GroupNumber,
    pub(crate) family: u8,
    /// By whom a reflected route came.
    pub(crate) originator: Option<RouterId>,
    /// The set is one after import policy.
    pub(crate) is_imported: bool,
}

/// The hashes, by set as received, or after an import policy that looks at prefixes.
#[derive(Debug)]
pub(crate) struct Hashes {
    /// Hashes beside each set, a power of two.
    ways: usize,
    /// So many for each set.
    entries: Vec<Option<(Asked, u64)>>,
}

impl Default for Hashes {
    fn default() -> Self {
        Self { ways: 1, entries: Vec::new() }
    }
}

impl Hashes {
    /// There are so many groups.
    pub(crate) fn make_room(&mut self, groups: usize) {
        let ways = groups.next_power_of_two().min(MOST_WAYS);
        if ways > self.ways {
            *self = Self { ways, entries: Vec::new() };
        }
    }

    #[inline]
    fn place(&self, set: SetId, group: GroupNumber) -> usize {
        set.index() * self.ways + (group.bits() & (self.ways - 1))
    }

    /// Touches what [`Self::get`] looks at.
    #[inline]
    pub(crate) fn touch(&self, set: SetId, group: GroupNumber) {
        if let Some(entry) = self.entries.get(self.place(set, group)) {
            black_box(entry.is_some());
        }
    }

    #[inline]
    pub(crate) fn get(&self, set: SetId, asked: Asked) -> Option<u64> {
        let (known, hash) = (*self.entries.get(self.place(set, asked.group))?)?;
        (known == asked).then_some(hash)
    }

    /// Numbers of sets in use are below `numbers`.
    pub(crate) fn put(&mut self, set: SetId, asked: Asked, hash: u64, numbers: usize) {
        if asked.group == GroupNumber::NONE {
            return;
        }
        let place = self.place(set, asked.group);
        if self.entries.len() <= place {
            self.entries.resize(numbers.max(set.index() + 1) * self.ways, None);
        }
        self.entries[place] = Some((asked, hash));
    }

    /// The set's number is about to mean another.
    pub(crate) fn forget(&mut self, set: SetId) {
        let first = set.index() * self.ways;
        if let Some(entries) = self.entries.get_mut(first..first + self.ways) {
            entries.fill(None);
        }
    }

    /// They are of no use any more.
    pub(crate) fn clear(&mut self) {
        self.entries = Vec::new();
    }

    pub(crate) fn memory(&self) -> usize {
        self.entries.capacity() * size_of::<Option<(Asked, u64)>>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hash_is_that_of_a_set_for_one_who_asks_until_the_set_goes() {
        let one = Asked { group: GroupNumber::FIRST, family: 0, originator: None, is_imported: false };
        let others = [
            Asked { group: GroupNumber::FIRST.next(), ..one },
            Asked { family: 1, ..one },
            Asked { originator: RouterId::new(7), ..one },
            Asked { is_imported: true, ..one },
        ];
        let mut hashes = Hashes::default();
        hashes.make_room(2);
        hashes.put(SetId(5), one, 7, 10);
        hashes.put(SetId(6), others[0], 8, 10);
        hashes.put(SetId(7), Asked { group: GroupNumber::NONE, ..one }, 9, 10);
        assert_eq!((hashes.get(SetId(5), one), hashes.get(SetId(6), others[0])), (Some(7), Some(8)));
        assert_eq!(others.map(|other| hashes.get(SetId(5), other)), [None; 4]);
        assert_eq!(hashes.get(SetId(7), Asked { group: GroupNumber::NONE, ..one }), None);
        hashes.put(SetId(5), others[2], 9, 10);
        assert_eq!((hashes.get(SetId(5), one), hashes.get(SetId(5), others[2])), (None, Some(9)));
        hashes.forget(SetId(5));
        assert_eq!((hashes.get(SetId(5), others[2]), hashes.get(SetId(6), others[0])), (None, Some(8)));
        hashes.clear();
        assert_eq!((hashes.get(SetId(6), others[0]), hashes.memory()), (None, 0));
    }
}

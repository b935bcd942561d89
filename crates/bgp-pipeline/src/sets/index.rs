//! The index of attribute sets by the hash of what they are.

use hashbrown::HashTable;

use crate::path::SetId;

/// From hashes to sets: many hash tables that grow each on its own, so that no set waits until all are placed again. A
/// hash stands beside its set: a table that grows would have a cache miss for each that it had to look up.
#[derive(Debug)]
pub(super) struct Index {
    shards: Vec<HashTable<Indexed>>,
}

#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) struct Indexed {
    pub(super) hash: u32,
    pub(super) set: SetId,
}

impl Indexed {
    fn spread(&self) -> u64 {
        spread(self.hash)
    }
}

/// With a million sets the longest pause is to place 4,000 again.
const SHARDS: usize = 256;

impl Index {
    pub(super) fn new() -> Self {
        Self { shards: vec![HashTable::new(); SHARDS] }
    }

    /// The set with this hash of which `is_one` holds.
    #[inline(always)]
    pub(super) fn find(&self, hash: u32, is_one: impl Fn(SetId) -> bool) -> Option<SetId> {
        let same = |other: &Indexed| other.hash == hash && is_one(other.set);
        self.shards[shard(hash)].find(spread(hash), same).map(|found| found.set)
    }

    pub(super) fn insert(&mut self, new: Indexed) {
        self.shards[shard(new.hash)].insert_unique(new.spread(), new, Indexed::spread);
    }

    /// Forgets a set, and gives memory back that a burst has left.
    pub(super) fn remove(&mut self, old: Indexed) {
        let shard = &mut self.shards[shard(old.hash)];
        if let Ok(entry) = shard.find_entry(old.spread(), |other| *other == old) {
            entry.remove();
        }
        if shard.len() < shard.capacity() / 4 {
            shard.shrink_to(2 * shard.len(), Indexed::spread);
        }
    }

    pub(super) fn memory(&self) -> usize {
        let shards: usize = self.shards.iter().map(HashTable::allocation_size).sum();
        SHARDS * size_of::<HashTable<Indexed>>() + shards
    }
}

/// Bits that the tables use neither for the bucket, unless they are huge, nor for the tag.
#[inline]
fn shard(hash: u32) -> usize {
    (hash >> 16) as usize % SHARDS
}

/// The table takes its control bits from the top of 64.
fn spread(hash: u32) -> u64 {
    u64::from(hash) << 32 | u64::from(hash)
}

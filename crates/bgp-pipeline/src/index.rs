//! An index of things by their hashes: of attribute sets, and of signed routes.

use hashbrown::HashTable;

/// From hashes to numbers: many hash tables that grow each on its own, so that nothing waits until all are placed again. A
/// hash stands beside its number: a table that grows would have a cache miss for each that it had to look up.
#[derive(Debug)]
pub(crate) struct Index<T> {
    /// None before the first one.
    shards: Vec<HashTable<Indexed<T>>>,
}

#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct Indexed<T> {
    pub(crate) hash: u32,
    pub(crate) number: T,
}

impl<T> Indexed<T> {
    fn spread(&self) -> u64 {
        spread(self.hash)
    }
}

/// With a million of them the longest pause is to place 4,000 again.
const SHARDS: usize = 256;

impl<T: Copy + Eq> Index<T> {
    /// An empty one takes no memory.
    pub(crate) fn new() -> Self {
        Self { shards: Vec::new() }
    }

    /// The one with this hash of which `is_one` holds.
    #[inline(always)]
    pub(crate) fn find(&self, hash: u32, is_one: impl Fn(T) -> bool) -> Option<T> {
        let same = |other: &Indexed<T>| other.hash == hash && is_one(other.number);
        self.shards.get(shard(hash))?.find(spread(hash), same).map(|found| found.number)
    }

    pub(crate) fn insert(&mut self, new: Indexed<T>) {
        if self.shards.is_empty() {
            self.shards = vec![HashTable::new(); SHARDS];
        }
        self.shards[shard(new.hash)].insert_unique(new.spread(), new, Indexed::spread);
    }

    /// One has another number from now on.
    pub(crate) fn renumber(&mut self, old: Indexed<T>, number: T) {
        let shard = self.shards.get_mut(shard(old.hash));
        if let Some(found) = shard.and_then(|shard| shard.find_mut(old.spread(), |other| *other == old)) {
            found.number = number;
        }
    }

    /// Forgets one, and gives memory back that a burst has left.
    pub(crate) fn remove(&mut self, old: Indexed<T>) {
        let Some(shard) = self.shards.get_mut(shard(old.hash)) else { return };
        if let Ok(entry) = shard.find_entry(old.spread(), |other| *other == old) {
            entry.remove();
        }
        if shard.len() < shard.capacity() / 4 {
            shard.shrink_to(2 * shard.len(), Indexed::spread);
        }
    }

    pub(crate) fn memory(&self) -> usize {
        let shards: usize = self.shards.iter().map(HashTable::allocation_size).sum();
        self.shards.len() * size_of::<HashTable<Indexed<T>>>() + shards
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

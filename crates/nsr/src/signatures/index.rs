//! From the names of signatures to the numbers of their records.

use std::hash::BuildHasher;

use hashbrown::{HashTable, hash_table::Entry};
use holdfast_types::HashKey;

use crate::SignatureName;

/// Tables that grow each on its own: nothing waits until all are placed again. With a million records the longest pause
/// is to place 500.
const SHARDS: usize = 4096;

/// Many hash tables of numbers. A name is read where the record is.
#[derive(Debug)]
pub(crate) struct Index {
    key: HashKey,
    shards: Vec<HashTable<u32>>,
}

impl Index {
    /// With room for so many.
    pub(crate) fn new(key: HashKey, records: usize) -> Self {
        let of_shard = records / SHARDS;
        // Shards differ by some times the root of what they have.
        let room = of_shard + 3 * of_shard.isqrt();
        Self { key, shards: (0..SHARDS).map(|_| HashTable::with_capacity(room)).collect() }
    }

    /// The number of the record with this name.
    #[inline]
    pub(crate) fn find(
        &self,
        name: &SignatureName,
        name_of: impl Fn(u32) -> Option<SignatureName>,
    ) -> Option<u32> {
        let hash = self.key.hash_one(name);
        self.shards[shard(hash)].find(hash, |number| name_of(*number).as_ref() == Some(name)).copied()
    }

    /// Enters a name, unless it is there.
    pub(crate) fn insert(
        &mut self,
        name: &SignatureName,
        number: u32,
        name_of: impl Fn(u32) -> Option<SignatureName>,
    ) -> bool {
        let hash = self.key.hash_one(name);
        let is_it = |other: &u32| name_of(*other).as_ref() == Some(name);
        let again = |other: &u32| name_of(*other).map_or(0, |name| self.key.hash_one(name));
        match self.shards[shard(hash)].entry(hash, is_it, again) {
            Entry::Occupied(_) => false,
            Entry::Vacant(entry) => {
                entry.insert(number);
                true
            }
        }
    }

    pub(crate) fn remove(&mut self, name: &SignatureName, number: u32) {
        let hash = self.key.hash_one(name);
        if let Ok(entry) = self.shards[shard(hash)].find_entry(hash, |other| *other == number) {
            entry.remove();
        }
    }

    /// Octets that it takes.
    pub(crate) fn memory(&self) -> usize {
        let tables: usize = self.shards.iter().map(HashTable::allocation_size).sum();
        self.shards.len() * size_of::<HashTable<u32>>() + tables
    }
}

/// Bits that the tables use neither for the bucket nor for the tag.
#[inline]
fn shard(hash: u64) -> usize {
    (hash >> 40) as usize % SHARDS
}

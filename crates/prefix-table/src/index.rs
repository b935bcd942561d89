//! From regions to blocks, in one step instead of one for each level.

use holdfast_types::HashKey;
use std::hash::BuildHasher;

use crate::{
    block::{Block, Blocks},
    place::Region,
    shard::Shard,
    table::Value,
};

/// Number of hash tables. Each makes a larger one on its own: with 16 million blocks the longest pause is to clear 128 KiB.
const SHARDS: usize = 256;
/// Levels of IPv4 with an array instead of a hash table: 65,793 words, of which only touched pages count.
const IPV4_DIRECT_LEVELS: u8 = 2;

/// Finds the block of a region.
#[derive(Debug)]
pub(crate) struct Index {
    /// Blocks of the levels below `hashed_from`, level after level: the handle's bits plus one, zero for none. Made with
    /// the first of them, for most tables of a router with many VRFs are empty.
    direct: Vec<u32>,
    hashed_from: u8,
    /// Blocks of the other levels. Made with the first of them.
    shards: Vec<Shard>,
    /// Number of blocks by level.
    levels: [u32; 16],
    /// How often a block was taken out.
    removals: u64,
    key: HashKey,
}

/// What a region is found by, worked out once for several uses: its slot in the array, or its hash.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Clue(u64);

impl Index {
    /// For addresses of `width` bits.
    pub(crate) fn new(width: u8, key: HashKey) -> Self {
        let hashed_from = if width == 32 { IPV4_DIRECT_LEVELS + 1 } else { 1 };
        Self { direct: Vec::new(), hashed_from, shards: Vec::new(), levels: [0; 16], removals: 0, key }
    }

    pub(crate) fn memory(&self) -> usize {
        let shards: usize = self.shards.iter().map(Shard::memory).sum();
        self.direct.len() * 4 + self.shards.len() * size_of::<Shard>() + shards
    }

    /// What the region is found by. Valid as long as the table.
    #[inline]
    pub(crate) fn clue(&self, region: Region) -> Clue {
        Clue(if region.level < self.hashed_from { slot(region) as u64 } else { hash(self.key, region) })
    }

    #[inline]
    pub(crate) fn find<V: Value>(&self, region: Region, blocks: &Blocks<V>) -> Option<Block> {
        // No hash is worked out for a level that has no blocks.
        if region.level >= self.hashed_from && self.levels[usize::from(region.level)] == 0 {
            return None;
        }
        self.find_by(self.clue(region), region, blocks)
    }

    /// The same with what [`Self::clue`] has said of the region.
    #[inline]
    pub(crate) fn find_by<V: Value>(
        &self,
        Clue(clue): Clue,
        region: Region,
        blocks: &Blocks<V>,
    ) -> Option<Block> {
        if region.level < self.hashed_from {
            return self.direct.get(clue as usize)?.checked_sub(1).map(Block::from_bits);
        }
        self.shards.get(shard(clue))?.find(clue, |block| blocks.region(block) == region)
    }

    /// Takes note of the block of a region.
    pub(crate) fn insert<V: Value>(&mut self, region: Region, block: Block, blocks: &Blocks<V>) {
        self.insert_by(self.clue(region), region, block, blocks);
    }

    /// The same with what [`Self::clue`] has said of the region.
    pub(crate) fn insert_by<V: Value>(
        &mut self,
        Clue(clue): Clue,
        region: Region,
        block: Block,
        blocks: &Blocks<V>,
    ) {
        self.levels[usize::from(region.level)] += 1;
        if region.level < self.hashed_from {
            if self.direct.is_empty() {
                self.direct = vec![0; FIRST_OF_LEVEL[usize::from(self.hashed_from)]];
            }
            self.direct[clue as usize] = block.bits() + 1;
            return;
        }
        if self.shards.is_empty() {
            self.shards.resize_with(SHARDS, Shard::default);
        }
        let hash_of = |block: &Block| hash(self.key, blocks.region(*block));
        self.shards[shard(clue)].insert(clue, block, hash_of);
    }

    /// How often a block was taken out: as long as it is the same, what was found is still there.
    #[inline]
    pub(crate) fn removals(&self) -> u64 {
        self.removals
    }

    /// Forgets a block that is still in `blocks`.
    pub(crate) fn remove<V: Value>(&mut self, block: Block, blocks: &Blocks<V>) {
        let region = blocks.region(block);
        self.levels[usize::from(region.level)] -= 1;
        self.removals += 1;
        if region.level < self.hashed_from {
            self.direct[slot(region)] = 0;
            return;
        }
        let hash_of = |block: &Block| hash(self.key, blocks.region(*block));
        let hash = hash(self.key, region);
        self.shards[shard(hash)].remove(hash, block, hash_of);
    }
}

#[inline]
fn hash(key: HashKey, region: Region) -> u64 {
    // A region is at most 15 bytes, so the level fits behind it.
    key.hash_one(region.bits | u128::from(region.level))
}

/// Bits that the hash table itself uses neither for the bucket nor, unless it is huge, for the tag.
#[inline]
fn shard(hash: u64) -> usize {
    (hash >> 40) as usize % SHARDS
}

/// In the array, where the blocks of a level begin.
const FIRST_OF_LEVEL: [usize; 4] = [0, 1, 1 + 256, 1 + 256 + 65536];

#[inline]
fn slot(region: Region) -> usize {
    // Of the few levels with an array the first 32 bits say all; none at all for level 0.
    let number = u64::from((region.bits >> 96) as u32) >> (32 - 8 * u32::from(region.level));
    FIRST_OF_LEVEL[usize::from(region.level)] + number as usize
}

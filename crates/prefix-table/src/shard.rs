//! A hash table that changes its size step by step.

use hashbrown::HashTable;

use crate::block::Block;

/// Buckets of an outgrown table that each change of a shard empties. With half as many a shard that loses blocks would fall
/// behind: it has a quarter of them left when it begins to shrink.
const STEP: usize = 16;
/// A table with fewer buckets is placed again in one piece, which takes less work in all.
const LARGE: usize = 1024;

/// Blocks by hash.
///
/// A large table that is full is not placed again in one piece: its blocks move to the next one a few at a time, with each
/// change.
#[derive(Debug, Default)]
pub(crate) struct Shard {
    table: HashTable<Block>,
    outgrown: Option<Box<Outgrown>>,
}

/// The table before the last change of size.
#[derive(Debug)]
struct Outgrown {
    table: HashTable<Block>,
    /// Buckets, from the first on, that were not emptied yet.
    left: usize,
}

impl Outgrown {
    #[cold]
    fn find(&self, hash: u64, is_wanted: impl Fn(Block) -> bool) -> Option<Block> {
        self.table.find(hash, |block| is_wanted(*block)).copied()
    }
}

impl Shard {
    /// Bytes held.
    pub(crate) fn memory(&self) -> usize {
        let outgrown = self.outgrown.as_ref().map_or(0, |outgrown| outgrown.table.allocation_size());
        self.table.allocation_size() + outgrown
    }

    #[inline]
    pub(crate) fn find(&self, hash: u64, is_wanted: impl Fn(Block) -> bool) -> Option<Block> {
        if let Some(block) = self.table.find(hash, |block| is_wanted(*block)) {
            return Some(*block);
        }
        self.outgrown.as_ref()?.find(hash, is_wanted)
    }

    /// Adds a block that is not there.
    #[inline]
    pub(crate) fn insert(&mut self, hash: u64, block: Block, hash_of: impl Fn(&Block) -> u64) {
        self.move_some(&hash_of);
        if self.table.len() == self.table.capacity() && self.is_large() {
            self.resize(&hash_of);
        }
        self.table.insert_unique(hash, block, hash_of);
    }

    /// Takes a block out, and gives memory back that a burst has left.
    pub(crate) fn remove(&mut self, hash: u64, block: Block, hash_of: impl Fn(&Block) -> u64) {
        let outgrown = self.outgrown.as_mut().map(|outgrown| &mut outgrown.table);
        for table in [Some(&mut self.table), outgrown].into_iter().flatten() {
            if let Ok(entry) = table.find_entry(hash, |other| *other == block) {
                entry.remove();
                break;
            }
        }
        self.move_some(&hash_of);
        if self.outgrown.is_some() || self.table.len() >= self.table.capacity() / 4 {
            return;
        }
        match self.is_large() {
            true => self.resize(hash_of),
            false => self.table.shrink_to(2 * self.table.len(), hash_of),
        }
    }

    #[inline]
    fn is_large(&self) -> bool {
        self.table.num_buckets() >= LARGE
    }

    /// Goes on with a table for twice as many blocks as there are, which may be a smaller one.
    ///
    /// While blocks move at most one comes for each [`STEP`] buckets: the table has room for all, so the next change of size
    /// finds nothing left to move.
    #[cold]
    fn resize(&mut self, hash_of: impl Fn(&Block) -> u64) {
        while self.outgrown.is_some() {
            self.move_some(&hash_of);
        }
        let (len, buckets) = (self.table.len(), self.table.num_buckets());
        let room = (2 * len).max(len + buckets / STEP);
        let table = std::mem::replace(&mut self.table, HashTable::with_capacity(room));
        self.outgrown = Some(Box::new(Outgrown { table, left: buckets }));
    }

    /// Moves the blocks of the next buckets.
    #[inline]
    fn move_some(&mut self, hash_of: impl Fn(&Block) -> u64) {
        if self.outgrown.is_some() {
            self.move_blocks(hash_of);
        }
    }

    #[cold]
    fn move_blocks(&mut self, hash_of: impl Fn(&Block) -> u64) {
        let Some(outgrown) = &mut self.outgrown else { return };
        let left = outgrown.left.saturating_sub(STEP);
        for bucket in left..outgrown.left {
            if let Ok(entry) = outgrown.table.get_bucket_entry(bucket) {
                let (block, _) = entry.remove();
                self.table.insert_unique(hash_of(&block), block, &hash_of);
            }
        }
        outgrown.left = left;
        if left == 0 {
            self.outgrown = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    /// A hash that is not the number itself, and the same in every run.
    fn mixed(block: &Block) -> u64 {
        let mixed = (u64::from(block.bits()) + 1).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        (mixed ^ mixed >> 29).wrapping_mul(0x94d0_49bb_1331_11eb)
    }

    /// A shard, and how many blocks its changes have placed again.
    #[derive(Default)]
    struct Counted {
        shard: Shard,
        all: usize,
        most_at_once: usize,
        /// Where the table was small before.
        most_of_small: usize,
    }

    impl Counted {
        fn change(&mut self, change: impl FnOnce(&mut Shard, &dyn Fn(&Block) -> u64)) {
            let (placed, is_large) = (Cell::new(0), self.shard.is_large());
            change(&mut self.shard, &|block| {
                placed.set(placed.get() + 1);
                mixed(block)
            });
            self.all += placed.get();
            let most = if is_large { &mut self.most_at_once } else { &mut self.most_of_small };
            *most = placed.get().max(*most);
        }

        fn insert(&mut self, number: u32) {
            let block = Block::from_bits(number);
            self.change(|shard, hash_of| shard.insert(mixed(&block), block, hash_of));
        }

        fn remove(&mut self, number: u32) {
            let block = Block::from_bits(number);
            self.change(|shard, hash_of| shard.remove(mixed(&block), block, hash_of));
        }

        fn check(&self) {
            let (large, small) = (self.most_at_once, self.most_of_small);
            assert!(large <= FEW && small <= OF_SMALL, "{large} and {small} at once");
        }

        fn has(&self, number: u32) -> bool {
            let block = Block::from_bits(number);
            self.shard.find(mixed(&block), |other| other == block).is_some()
        }
    }

    /// Most blocks that one change may place again: of a large table, and of one that is about to become large.
    const FEW: usize = 16;
    const OF_SMALL: usize = 448;

    #[test]
    fn no_change_places_more_than_a_few_blocks_again() {
        const MANY: u32 = 100_000;
        let mut counted = Counted::default();
        for number in 0..MANY {
            counted.insert(number);
            let earlier = (mixed(&Block::from_bits(number)) % u64::from(number + 1)) as u32;
            assert!(counted.has(number) && counted.has(earlier) && !counted.has(number + 1));
        }
        counted.check();
        assert!(counted.all < 2 * MANY as usize, "{} in all", counted.all);
        let full = counted.shard.memory();
        for number in 0..MANY {
            counted.remove(number);
            assert!(!counted.has(number) && (number + 1 == MANY || counted.has(MANY - 1)));
        }
        counted.check();
        assert!(counted.shard.memory() < 100, "{} of {full}", counted.shard.memory());
    }

    #[test]
    fn blocks_that_come_and_go_let_a_table_neither_grow_nor_be_placed_in_one_piece() {
        let mut counted = Counted::default();
        (0..1000).for_each(|number| counted.insert(number));
        let full = counted.shard.memory();
        for number in 1000..100_000 {
            counted.remove(number - 1000);
            counted.insert(number);
            assert!(counted.has(number - 999) && !counted.has(number - 1000));
            assert!(counted.shard.memory() <= 4 * full, "{} of {full}", counted.shard.memory());
        }
        counted.check();
    }
}

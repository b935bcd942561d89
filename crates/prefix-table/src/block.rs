//! Blocks: a header and a run of entries each, both in the pool.
//!
//! ```text
//! header   run handle | entries + level << 16 | the region's bits, as many words as the level needs
//! run      capacity x u16 marks, ascending | capacity x value
//! ```
//!
//! The handle of the header names the block as long as it lives; the run moves when it grows or shrinks. A block
//! without entries has no run.

use std::marker::PhantomData;

use crate::{
    place::{Region, is_child},
    pool::{Handle, Pool},
    table::Value,
};

/// In a header, the place of the run's handle if there is none.
const NO_RUN: u32 = u32::MAX;
/// Words of a header before the bits of the region.
const FIXED: usize = 2;

/// A block, by the handle of its header.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct Block(Handle);

impl Block {
    pub(crate) fn bits(self) -> u32 {
        self.0.bits()
    }

    pub(crate) fn from_bits(bits: u32) -> Self {
        Self(Handle::from_bits(bits))
    }
}

/// The entries of a block, to be read.
#[derive(Copy, Clone, Debug)]
pub(crate) struct View<'a, V> {
    pub(crate) marks: &'a [u16],
    values: &'a [u32],
    kind: PhantomData<V>,
}

impl<V: Value> View<'_, V> {
    pub(crate) fn value(&self, at: usize) -> V {
        V::read(&self.values[at * V::WORDS..][..V::WORDS])
    }

    pub(crate) fn child(&self, at: usize) -> Block {
        Block::from_bits(self.values[at * V::WORDS])
    }

    /// The value under a mark.
    pub(crate) fn find(&self, mark: u16) -> Option<V> {
        self.marks.binary_search(&mark).ok().map(|at| self.value(at))
    }
}

/// All blocks of a table.
#[derive(Debug)]
pub(crate) struct Blocks<V> {
    pool: Pool,
    kind: PhantomData<V>,
}

impl<V: Value> Blocks<V> {
    pub(crate) fn new(pool: Pool) -> Self {
        Self { pool, kind: PhantomData }
    }

    pub(crate) fn memory(&self) -> usize {
        self.pool.memory()
    }

    /// An empty block; `None` when the pool is full.
    pub(crate) fn add(&mut self, region: Region) -> Option<Block> {
        let key = usize::from(region.level.div_ceil(4));
        let handle = self.pool.try_alloc(FIXED + key)?;
        let header = self.pool.get_mut(handle);
        (header[0], header[1]) = (NO_RUN, u32::from(region.level) << 16);
        for (i, word) in header[FIXED..][..key].iter_mut().enumerate() {
            *word = (region.bits >> (96 - 32 * i)) as u32;
        }
        Some(Block(handle))
    }

    /// Frees a block and its entries. Children are the business of the caller.
    pub(crate) fn discard(&mut self, block: Block) {
        self.free_run(block);
        self.pool.free(block.0);
    }

    fn free_run(&mut self, block: Block) {
        let run = std::mem::replace(&mut self.pool.get_mut(block.0)[0], NO_RUN);
        if run != NO_RUN {
            self.pool.free(Handle::from_bits(run));
        }
    }

    pub(crate) fn region(&self, block: Block) -> Region {
        let header = self.pool.get(block.0);
        let level = (header[1] >> 16) as u8;
        let key = &header[FIXED..][..usize::from(level.div_ceil(4))];
        let bits =
            key.iter().enumerate().fold(0, |bits, (i, word)| bits | u128::from(*word) << (96 - 32 * i));
        Region { level, bits }
    }

    /// Number of entries, children included.
    pub(crate) fn len(&self, block: Block) -> usize {
        usize::from(self.pool.get(block.0)[1] as u16)
    }

    /// The handle of the run, if there is one, and the number of entries.
    fn run_of(&self, block: Block) -> (Option<Handle>, usize) {
        let header = self.pool.get(block.0);
        let run = (header[0] != NO_RUN).then_some(Handle::from_bits(header[0]));
        (run, usize::from(header[1] as u16))
    }

    fn set_len(&mut self, block: Block, len: usize) {
        let word = &mut self.pool.get_mut(block.0)[1];
        *word = *word & !0xffff | len as u32;
    }

    fn run(&self, block: Block) -> &[u32] {
        match self.pool.get(block.0)[0] {
            NO_RUN => &[],
            run => self.pool.get(Handle::from_bits(run)),
        }
    }

    fn run_mut(&mut self, block: Block) -> (&mut [u16], &mut [u32]) {
        match self.pool.get(block.0)[0] {
            NO_RUN => (&mut [], &mut []),
            run => split_mut::<V>(self.pool.get_mut(Handle::from_bits(run))),
        }
    }

    /// One word of the run, to bring it near.
    pub(crate) fn touch(&self, block: Block) -> u32 {
        self.run(block).first().copied().unwrap_or(0)
    }

    pub(crate) fn view(&self, block: Block) -> View<'_, V> {
        let (Some(run), len) = self.run_of(block) else {
            return View { marks: &[], values: &[], kind: PhantomData };
        };
        let (marks, values) = split::<V>(self.pool.get(run));
        View { marks: &marks[..len], values, kind: PhantomData }
    }

    /// Whether there is nothing but one child.
    pub(crate) fn only_child(&self, block: Block) -> Option<Block> {
        let view = self.view(block);
        (view.marks.len() == 1 && is_child(view.marks[0])).then(|| view.child(0))
    }

    /// Changes the value at an index.
    pub(crate) fn set(&mut self, block: Block, at: usize, value: V) {
        value.write(&mut self.run_mut(block).1[at * V::WORDS..][..V::WORDS]);
    }

    /// Lets the child at an index be another block.
    pub(crate) fn set_child(&mut self, block: Block, at: usize, child: Block) {
        self.run_mut(block).1[at * V::WORDS] = child.bits();
    }

    /// Puts a value in before the index; `None` when the pool is full.
    pub(crate) fn put(&mut self, block: Block, at: usize, mark: u16, value: V) -> Option<()> {
        self.open(block, at, mark, |words| value.write(words))
    }

    /// Puts a child in before the index; `None` when the pool is full.
    pub(crate) fn put_child(&mut self, block: Block, at: usize, mark: u16, child: Block) -> Option<()> {
        self.open(block, at, mark, |words| words[0] = child.bits())
    }

    /// Makes room for an entry at the index, and writes it.
    fn open(&mut self, block: Block, at: usize, mark: u16, write: impl FnOnce(&mut [u32])) -> Option<()> {
        let (run, len) = self.run_of(block);
        let run = match run {
            Some(run) if len < capacity::<V>(self.pool.get(run).len()) => {
                let (marks, values) = split_mut::<V>(self.pool.get_mut(run));
                marks.copy_within(at..len, at + 1);
                values.copy_within(at * V::WORDS..len * V::WORDS, (at + 1) * V::WORDS);
                run
            }
            full => self.move_apart(block, full, len, at)?,
        };
        let (marks, values) = split_mut::<V>(self.pool.get_mut(run));
        marks[at] = mark;
        write(&mut values[at * V::WORDS..][..V::WORDS]);
        self.set_len(block, len + 1);
        Some(())
    }

    /// Moves the entries into a run for one more, with a gap at the index.
    fn move_apart(&mut self, block: Block, old: Option<Handle>, len: usize, at: usize) -> Option<Handle> {
        self.move_run(block, old, len + 1, |from, to| {
            to.0[..at].copy_from_slice(&from.0[..at]);
            to.0[at + 1..=len].copy_from_slice(&from.0[at..len]);
            let (at, len) = (at * V::WORDS, len * V::WORDS);
            to.1[..at].copy_from_slice(&from.1[..at]);
            to.1[at + V::WORDS..][..len - at].copy_from_slice(&from.1[at..len]);
        })
    }

    /// Takes entries out: of `start..end` the first `kept` stay, and all before and after.
    pub(crate) fn close(&mut self, block: Block, start: usize, end: usize, kept: usize) {
        let (Some(run), len) = self.run_of(block) else { return };
        let words = self.pool.get_mut(run);
        let capacity = capacity::<V>(words.len());
        let (marks, values) = split_mut::<V>(words);
        marks.copy_within(end..len, start + kept);
        values.copy_within(end * V::WORDS..len * V::WORDS, (start + kept) * V::WORDS);
        let len = len - (end - start - kept);
        self.set_len(block, len);
        if len == 0 {
            self.free_run(block);
        } else if 2 * len <= capacity {
            // Without memory for the smaller run the larger one goes on to serve.
            let _ = self.shrink(block, run, len);
        }
    }

    /// Gives each value of `start..end` to `keep`, changes or drops it. Returns how many were dropped.
    pub(crate) fn retain(
        &mut self,
        block: Block,
        (start, end): (usize, usize),
        mut keep: impl FnMut(u16, V) -> Option<V>,
    ) -> usize {
        let (marks, values) = self.run_mut(block);
        let mut kept = start;
        for at in start..end {
            let value = V::read(&values[at * V::WORDS..][..V::WORDS]);
            if let Some(new) = keep(marks[at], value) {
                if kept != at || new != value {
                    marks[kept] = marks[at];
                    new.write(&mut values[kept * V::WORDS..][..V::WORDS]);
                }
                kept += 1;
            }
        }
        if kept < end {
            self.close(block, start, end, kept - start);
        }
        end - kept
    }

    /// Moves the entries into a smaller run.
    fn shrink(&mut self, block: Block, old: Handle, len: usize) -> Option<Handle> {
        self.move_run(block, Some(old), len, |from, to| {
            to.0[..len].copy_from_slice(&from.0[..len]);
            to.1[..len * V::WORDS].copy_from_slice(&from.1[..len * V::WORDS]);
        })
    }

    /// Gives a block a run for `entries`, to be filled from the old one if there is one. `None` when the pool is
    /// full; then all is as it was.
    fn move_run(
        &mut self,
        block: Block,
        old: Option<Handle>,
        entries: usize,
        fill: impl FnOnce((&[u16], &[u32]), (&mut [u16], &mut [u32])),
    ) -> Option<Handle> {
        let new = self.pool.try_alloc(entries.div_ceil(2) + entries * V::WORDS)?;
        if let Some(old) = old {
            let Some((from, to)) = self.pool.get_pair(old, new) else {
                self.pool.free(new);
                return None;
            };
            fill(split::<V>(from), split_mut::<V>(to));
            self.pool.free(old);
        }
        self.pool.get_mut(block.0)[0] = new.bits();
        Some(new)
    }
}

/// How many entries a run of so many words takes: marks fill whole words.
fn capacity<V: Value>(words: usize) -> usize {
    let entry = 2 * V::WORDS + 1;
    let entries = 2 * words / entry;
    if entries * entry + entries % 2 > 2 * words { entries - 1 } else { entries }
}

fn split<V: Value>(run: &[u32]) -> (&[u16], &[u32]) {
    let (marks, values) = run.split_at(capacity::<V>(run.len()).div_ceil(2));
    (bytemuck::cast_slice(marks), values)
}

fn split_mut<V: Value>(run: &mut [u32]) -> (&mut [u16], &mut [u32]) {
    let (marks, values) = run.split_at_mut(capacity::<V>(run.len()).div_ceil(2));
    (bytemuck::cast_slice_mut(marks), values)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_asked_for_entries_has_room_for_them_and_no_word_more_is_used() {
        for entries in 1..=767_usize {
            for (words, capacity) in [
                (entries.div_ceil(2) + entries, capacity::<u32> as fn(usize) -> usize),
                (entries.div_ceil(2) + 2 * entries, capacity::<u64>),
            ] {
                assert_eq!(capacity(words), entries);
                assert!(capacity(words - 1) < entries);
            }
        }
    }

    #[test]
    fn the_region_of_every_level_is_kept_in_the_header() {
        let mut blocks = Blocks::<u32>::new(Pool::new());
        for level in 0..16 {
            let region = Region::of(0x2001_0db8_1234_5678_9abc_def0_1122_3344, level);
            let block = blocks.add(region).expect("memory");
            assert_eq!(blocks.region(block), region);
        }
    }
}

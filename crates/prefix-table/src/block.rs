//! Blocks: a header and a run of entries each, both in the pool.
//!
//! ```text
//! header   run handle | entries, capacity, level | the region's bits, as many words as the level needs
//! run      capacity x u16 marks, ascending | capacity x value
//! ```
//!
//! The handle of the header names the block as long as it lives; the run moves when it grows or shrinks. A block
//! without entries has no run. Nor has one with a single entry, where a value is one word: the header holds the mark and
//! the value itself. Most blocks of a sparse table are such.

use std::marker::PhantomData;

use crate::{
    place::{Region, common_length, is_child, mark_of},
    pool::{Handle, Pool},
    table::Value,
};

/// In a header, the place of the run's handle if there is none.
const NO_RUN: u32 = u32::MAX;
/// In the second word of a header, seen as two marks, that of a lone entry: the upper half.
const LONE_MARK: usize = cfg!(target_endian = "little") as usize;
/// Entries up to which they are moved one by one: four calls to copy them cost more.
const SHORT: usize = 10;
/// Words of a header before the bits of the region.
const FIXED: usize = 2;

/// The second word of a header. The lower half: entries and the level, in 10 and 4 bits, and [`Shape::LONE`]. The upper
/// half: how many entries the run takes, or the mark of a lone entry. A block has at most 511 prefixes and 256 children.
#[derive(Copy, Clone, Debug)]
struct Shape(u32);

impl Shape {
    const LEVEL: u32 = 10;
    const LONE: u32 = 1 << 15;
    const UPPER: u32 = 16;

    #[inline]
    fn new(level: u8, len: usize, capacity: usize) -> Self {
        // A run may be larger than any block needs.
        let capacity = capacity.min(1023) as u32;
        Self(len as u32 | u32::from(level) << Self::LEVEL | capacity << Self::UPPER)
    }

    /// Of a single entry in the header.
    #[inline]
    fn lone(level: u8, mark: u16) -> Self {
        Self(1 | u32::from(level) << Self::LEVEL | Self::LONE | u32::from(mark) << Self::UPPER)
    }

    /// Whether the header has the entry; never so where a value is more than one word.
    #[inline]
    fn is_lone<V: Value>(self) -> bool {
        V::WORDS == 1 && self.0 & Self::LONE != 0
    }

    #[inline]
    fn len(self) -> usize {
        (self.0 & 1023) as usize
    }

    /// Entries that the run takes.
    #[inline]
    fn capacity<V: Value>(self) -> usize {
        if self.is_lone::<V>() { 0 } else { (self.0 >> Self::UPPER) as usize }
    }

    #[inline]
    fn level(self) -> u8 {
        (self.0 >> Self::LEVEL & 15) as u8
    }

    #[inline]
    fn with_len(self, len: usize) -> Self {
        Self(self.0 & !1023 | len as u32)
    }
}

/// A header without the region.
#[derive(Copy, Clone, Debug)]
struct Header {
    /// The handle of the run, [`NO_RUN`], or the value of a lone entry.
    run: u32,
    shape: Shape,
}

impl Header {
    /// Where the entries are if not in the header.
    #[inline]
    fn run<V: Value>(self) -> Option<Handle> {
        (!self.shape.is_lone::<V>() && self.run != NO_RUN).then(|| Handle::from_bits(self.run))
    }
}

/// A block, by the handle of its header.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct Block(Handle);

impl Block {
    #[inline]
    pub(crate) fn bits(self) -> u32 {
        self.0.bits()
    }

    #[inline]
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
    #[inline]
    pub(crate) fn value(&self, at: usize) -> V {
        V::read(&self.values[at * V::WORDS..][..V::WORDS])
    }

    #[inline]
    pub(crate) fn child(&self, at: usize) -> Block {
        Block::from_bits(self.values[at * V::WORDS])
    }

    /// The value under a mark.
    #[inline]
    pub(crate) fn find(&self, mark: u16) -> Option<V> {
        self.marks.binary_search(&mark).ok().map(|at| self.value(at))
    }

    /// Shows the values of the nodes on the way to the one with `length` more bits of `byte`, itself included, the longest
    /// first, until `show` says that it has seen enough; whether it has.
    ///
    /// Where there are few, most lengths are passed over: what stands in front of a node in the order of marks has a
    /// common ancestor with it, and none is there between.
    #[inline]
    pub(crate) fn any_above(&self, byte: u8, mut length: u8, show: &mut impl FnMut(V) -> bool) -> bool {
        let mut marks = self.marks;
        loop {
            let mark = mark_of(byte, length);
            let Some(at) = marks.partition_point(|other| *other <= mark).checked_sub(1) else { return false };
            let common = common_length(marks[at], byte);
            if marks[at] == mark_of(byte, common) {
                if show(self.value(at)) {
                    return true;
                }
                let Some(shorter) = common.checked_sub(1) else { return false };
                length = shorter;
            } else {
                length = common;
            }
            marks = &marks[..at];
        }
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
        (header[0], header[1]) = (NO_RUN, Shape::new(region.level, 0, 0).0);
        let bits = [96, 64, 32, 0].map(|shift| (region.bits >> shift) as u32);
        header[FIXED..][..key].iter_mut().zip(bits).for_each(|(word, bits)| *word = bits);
        Some(Block(handle))
    }

    /// Frees a block and its entries. Children are the business of the caller.
    pub(crate) fn discard(&mut self, block: Block) {
        self.free_run(block);
        self.pool.free(block.0);
    }

    fn free_run(&mut self, block: Block) {
        let header = self.header(block);
        if let Some(run) = header.run::<V>() {
            self.pool.free(run);
        }
        self.set_header(block, Header { run: NO_RUN, shape: Shape::new(header.shape.level(), 0, 0) });
    }

    #[inline]
    pub(crate) fn region(&self, block: Block) -> Region {
        let header = self.pool.get(block.0);
        let level = Shape(header[1]).level();
        let word = |i: usize| u128::from(header[FIXED + i]) << (96 - 32 * i);
        let bits = match level.div_ceil(4) {
            0 => 0,
            1 => word(0),
            2 => word(0) | word(1),
            3 => word(0) | word(1) | word(2),
            _ => word(0) | word(1) | word(2) | word(3),
        };
        Region { level, bits }
    }

    /// Number of entries, children included.
    #[inline]
    pub(crate) fn len(&self, block: Block) -> usize {
        self.header(block).shape.len()
    }

    #[inline]
    pub(crate) fn level(&self, block: Block) -> u8 {
        self.header(block).shape.level()
    }

    #[inline]
    fn header(&self, block: Block) -> Header {
        let header = self.pool.get(block.0);
        Header { run: header[0], shape: Shape(header[1]) }
    }

    #[inline]
    fn set_header(&mut self, block: Block, Header { run, shape }: Header) {
        let header = self.pool.get_mut(block.0);
        (header[0], header[1]) = (run, shape.0);
    }

    /// The entries of a block that has, or is about to have, this header.
    #[inline(always)]
    fn run_mut(&mut self, block: Block, header: Header) -> (&mut [u16], &mut [u32]) {
        if header.shape.is_lone::<V>() {
            let (value, shape) = self.pool.get_mut(block.0).split_at_mut(1);
            return (&mut bytemuck::cast_slice_mut(&mut shape[..1])[LONE_MARK..][..1], value);
        }
        match header.run::<V>() {
            None => (&mut [], &mut []),
            Some(run) => split_mut(self.pool.get_mut(run), header.shape.capacity::<V>()),
        }
    }

    /// One word of the run, to bring it near.
    pub(crate) fn touch(&self, block: Block) -> u32 {
        self.header(block).run::<V>().map_or(0, |run| self.pool.get(run)[0])
    }

    #[inline(always)]
    pub(crate) fn view(&self, block: Block) -> View<'_, V> {
        let words = self.pool.get(block.0);
        let header = Header { run: words[0], shape: Shape(words[1]) };
        if header.shape.is_lone::<V>() {
            let marks = &bytemuck::cast_slice(&words[1..2])[LONE_MARK..][..1];
            return View { marks, values: &words[..1], kind: PhantomData };
        }
        let Some(run) = header.run::<V>() else {
            return View { marks: &[], values: &[], kind: PhantomData };
        };
        let (marks, values) = split(self.pool.get(run), header.shape.capacity::<V>());
        View { marks: &marks[..header.shape.len()], values, kind: PhantomData }
    }

    /// Whether there is nothing but one child.
    pub(crate) fn only_child(&self, block: Block) -> Option<Block> {
        let view = self.view(block);
        (view.marks.len() == 1 && is_child(view.marks[0])).then(|| view.child(0))
    }

    /// Changes the value at an index.
    #[inline]
    pub(crate) fn set(&mut self, block: Block, at: usize, value: V) {
        let header = self.header(block);
        value.write(&mut self.run_mut(block, header).1[at * V::WORDS..][..V::WORDS]);
    }

    /// Lets the child at an index be another block.
    pub(crate) fn set_child(&mut self, block: Block, at: usize, child: Block) {
        let header = self.header(block);
        self.run_mut(block, header).1[at * V::WORDS] = child.bits();
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
    #[inline]
    fn open(&mut self, block: Block, at: usize, mark: u16, write: impl FnOnce(&mut [u32])) -> Option<()> {
        let header = self.header(block);
        let len = header.shape.len();
        if len == 0 && V::WORDS == 1 {
            let mut value = [0];
            write(&mut value);
            let [run] = value;
            self.set_header(block, Header { run, shape: Shape::lone(header.shape.level(), mark) });
            return Some(());
        }
        if len >= header.shape.capacity::<V>() {
            return self.move_apart(block, header, at, mark, write);
        }
        let (marks, values) = self.run_mut(block, header);
        marks.copy_within(at..len, at + 1);
        values.copy_within(at * V::WORDS..len * V::WORDS, (at + 1) * V::WORDS);
        marks[at] = mark;
        write(&mut values[at * V::WORDS..][..V::WORDS]);
        self.set_header(block, Header { shape: header.shape.with_len(len + 1), ..header });
        Some(())
    }

    /// Moves the entries into a run with room for one more, which it puts in at the index.
    fn move_apart(
        &mut self,
        block: Block,
        old: Header,
        at: usize,
        mark: u16,
        write: impl FnOnce(&mut [u32]),
    ) -> Option<()> {
        let len = old.shape.len();
        let header = self.move_run(old, room::<V>(len + 1), |from, to| {
            if len > SHORT {
                to.0[..at].copy_from_slice(&from.0[..at]);
                to.0[at + 1..=len].copy_from_slice(&from.0[at..len]);
                let (at, len) = (at * V::WORDS, len * V::WORDS);
                to.1[..at].copy_from_slice(&from.1[..at]);
                to.1[at + V::WORDS..][..len - at].copy_from_slice(&from.1[at..len]);
            } else {
                for (i, (mark, value)) in from.0[..len].iter().zip(from.1.chunks_exact(V::WORDS)).enumerate()
                {
                    let i = i + usize::from(i >= at);
                    to.0[i] = *mark;
                    V::read(value).write(&mut to.1[i * V::WORDS..][..V::WORDS]);
                }
            }
            to.0[at] = mark;
            write(&mut to.1[at * V::WORDS..][..V::WORDS]);
        })?;
        self.set_header(block, Header { shape: header.shape.with_len(len + 1), ..header });
        Some(())
    }

    /// Takes entries out: of `start..end` the first `kept` stay, and all before and after.
    pub(crate) fn close(&mut self, block: Block, start: usize, end: usize, kept: usize) {
        let header = self.header(block);
        let old_len = header.shape.len();
        let len = old_len - (end - start - kept);
        if len == 0 {
            return self.free_run(block);
        }
        let (marks, values) = self.run_mut(block, header);
        marks.copy_within(end..old_len, start + kept);
        values.copy_within(end * V::WORDS..old_len * V::WORDS, (start + kept) * V::WORDS);
        let header = Header { shape: header.shape.with_len(len), ..header };
        // Without memory for the smaller run the larger one goes on to serve.
        let shrunk = if 2 * len <= header.shape.capacity::<V>() { self.shrink(header) } else { None };
        self.set_header(block, shrunk.unwrap_or(header));
    }

    /// Gives each value of `start..end` to `keep`, changes or drops it. Returns how many were dropped.
    pub(crate) fn retain(
        &mut self,
        block: Block,
        (start, end): (usize, usize),
        mut keep: impl FnMut(u16, V) -> Option<V>,
    ) -> usize {
        let header = self.header(block);
        let (marks, values) = self.run_mut(block, header);
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

    /// Moves the entries into a smaller run, or a single one into the header.
    fn shrink(&mut self, old: Header) -> Option<Header> {
        let len = old.shape.len();
        if let Some(run) = old.run::<V>().filter(|_| len == 1 && V::WORDS == 1) {
            let (marks, values) = split(self.pool.get(run), old.shape.capacity::<V>());
            let header = Header { run: values[0], shape: Shape::lone(old.shape.level(), marks[0]) };
            self.pool.free(run);
            return Some(header);
        }
        self.move_run(old, len, |from, to| {
            to.0[..len].copy_from_slice(&from.0[..len]);
            to.1[..len * V::WORDS].copy_from_slice(&from.1[..len * V::WORDS]);
        })
    }

    /// A run for `entries` in the place of the present one, filled from that; it is for the
    /// caller to put into the header. `None` when the pool is full; then all is as it was.
    #[inline]
    fn move_run(
        &mut self,
        old: Header,
        entries: usize,
        fill: impl FnOnce((&[u16], &[u32]), (&mut [u16], &mut [u32])),
    ) -> Option<Header> {
        let new = self.pool.try_alloc(entries.div_ceil(2) + entries * V::WORDS)?;
        let shape = Shape::new(old.shape.level(), old.shape.len(), capacity::<V>(self.pool.get(new).len()));
        if old.shape.is_lone::<V>() {
            let mark = (old.shape.0 >> Shape::UPPER) as u16;
            fill((&[mark], &[old.run]), split_mut(self.pool.get_mut(new), shape.capacity::<V>()));
        } else if let Some(run) = old.run::<V>() {
            let Some((from, to)) = self.pool.get_pair(run, new) else {
                self.pool.free(new);
                return None;
            };
            fill(split(from, old.shape.capacity::<V>()), split_mut(to, shape.capacity::<V>()));
            self.pool.free(run);
        } else {
            fill((&[], &[]), split_mut(self.pool.get_mut(new), shape.capacity::<V>()));
        }
        Some(Header { run: new.bits(), shape })
    }
}

/// How many entries to have room for when a run of so many is needed. With values of one word every other size of small
/// blocks is left out: a block that grows moves half as often.
#[inline]
fn room<V: Value>(entries: usize) -> usize {
    if V::WORDS == 1 { entries.next_multiple_of(2) } else { entries }
}

/// How many entries a run of so many words takes: marks fill whole words.
#[inline]
fn capacity<V: Value>(words: usize) -> usize {
    let entry = 2 * V::WORDS + 1;
    let entries = 2 * words / entry;
    if entries * entry + entries % 2 > 2 * words { entries - 1 } else { entries }
}

#[inline]
fn split(run: &[u32], capacity: usize) -> (&[u16], &[u32]) {
    let (marks, values) = run.split_at(capacity.div_ceil(2));
    (bytemuck::cast_slice(marks), values)
}

#[inline]
fn split_mut(run: &mut [u32], capacity: usize) -> (&mut [u16], &mut [u32]) {
    let (marks, values) = run.split_at_mut(capacity.div_ceil(2));
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

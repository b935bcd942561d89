//! The table and what can be asked of it.

use std::{hint::black_box, marker::PhantomData};

use holdfast_types::{HashKey, IpPrefix};

use crate::{
    block::{Block, Blocks},
    index::{Clue, Index},
    place::{Place, Region, byte_and_length, is_child, mark_of_length, prefix_at},
    pool::Pool,
    walk::{Iter, Trail},
};

/// What a table keeps for a prefix: a few words in the pool.
pub trait Value: Copy + Eq {
    /// Size in words of 32 bits: 1 or 2.
    const WORDS: usize;
    /// The value in its words (exactly [`Self::WORDS`]).
    fn read(words: &[u32]) -> Self;
    /// Puts the value into its words (exactly [`Self::WORDS`]).
    fn write(self, words: &mut [u32]);
}

impl Value for u32 {
    const WORDS: usize = 1;

    #[inline]
    fn read(words: &[u32]) -> Self {
        words[0]
    }

    #[inline]
    fn write(self, words: &mut [u32]) {
        words[0] = self;
    }
}

impl Value for u64 {
    const WORDS: usize = 2;

    #[inline]
    fn read(words: &[u32]) -> Self {
        Self::from(words[1]) << 32 | Self::from(words[0])
    }

    #[inline]
    fn write(self, words: &mut [u32]) {
        words[0] = self as u32;
        words[1] = (self >> 32) as u32;
    }
}

/// Prefixes whose blocks are looked for at once.
const AHEAD: usize = 64;
/// Fewer are done one after the other.
const FEW: usize = 4;

/// Where a prefix was looked for: the clue to its region, the block if there is one, and the mark in it.
type Found = (Clue, Option<Block>, u16);

/// Prefixes of one family, each with a value.
///
/// A trie of blocks, 256 ways each, that leaves out blocks with nothing in them but one child. A hash finds any
/// block in one step.
///
/// The memory below is limited to 16 GiB, more than a billion prefixes. What does not fit any more is not
/// stored, and counted in [`Self::refused`].
#[derive(Debug)]
pub struct PrefixTable<P, V> {
    blocks: Blocks<V>,
    index: Index,
    /// Empty between two calls: what [`Self::update_each`] has found.
    found: Vec<Found>,
    len: usize,
    refused: u64,
    family: PhantomData<P>,
}

impl<P: IpPrefix, V: Value> PrefixTable<P, V> {
    /// An empty table. `key` is that of the hashes of regions: prefixes come from the network.
    pub fn new(key: HashKey) -> Self {
        Self::with_limit(key, usize::MAX)
    }

    /// A table that takes about `bytes` of memory at most, beside its index of some hundred kilobytes. As long as nothing
    /// was put in it takes none.
    pub fn with_limit(key: HashKey, bytes: usize) -> Self {
        let (blocks, index) = (Blocks::new(Pool::with_limit(bytes)), Index::new(P::WIDTH, key));
        Self { blocks, index, found: Vec::new(), len: 0, refused: 0, family: PhantomData }
    }

    /// How many prefixes have a value.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether no prefix has a value.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Bytes held, slack included.
    pub fn memory(&self) -> usize {
        self.blocks.memory() + self.index.memory()
    }

    /// How many new prefixes were not stored because the memory was used up.
    pub fn refused(&self) -> u64 {
        self.refused
    }

    /// The value of exactly this prefix.
    pub fn get(&self, prefix: P) -> Option<V> {
        let place = Place::of(prefix);
        self.blocks.view(self.find(place.region)?).find(place.mark)
    }

    /// Sets the value; returns the one before.
    pub fn insert(&mut self, prefix: P, value: V) -> Option<V> {
        self.update(prefix, |_| Some(value))
    }

    /// Takes the prefix out; returns its value.
    pub fn remove(&mut self, prefix: P) -> Option<V> {
        self.update(prefix, |_| None)
    }

    /// Gives the present value to `change` and puts what it returns in its place (`None` takes the prefix
    /// out), with one search. Returns the value before.
    #[inline]
    pub fn update(&mut self, prefix: P, change: impl FnOnce(Option<V>) -> Option<V>) -> Option<V> {
        let place = Place::of(prefix);
        let clue = self.index.clue(place.region);
        let block = self.index.find_by(clue, place.region, &self.blocks);
        self.update_at(prefix, (clue, block, place.mark), change)
    }

    /// [`Self::update`] of one prefix after the other. `change` is given the prefix as well.
    ///
    /// The memory of up to 64 is fetched at once, so that the cache misses overlap, and each block is looked for once.
    #[inline]
    pub fn update_each(&mut self, prefixes: &[P], mut change: impl FnMut(P, Option<V>) -> Option<V>) {
        if prefixes.len() < FEW {
            for &prefix in prefixes {
                self.update(prefix, |value| change(prefix, value));
            }
            return;
        }
        let mut found = std::mem::take(&mut self.found);
        for batch in prefixes.chunks(AHEAD) {
            self.find_each(batch, &mut found);
            let removals = self.index.removals();
            for (&prefix, (clue, block, mark)) in batch.iter().zip(found.drain(..)) {
                // An earlier prefix of the batch may have brought the block, or taken it out.
                let block = block.filter(|_| self.index.removals() == removals);
                let block =
                    block.or_else(|| self.index.find_by(clue, Place::of(prefix).region, &self.blocks));
                self.update_at(prefix, (clue, block, mark), |value| change(prefix, value));
            }
        }
        self.found = found;
    }

    /// Looks for the blocks of a batch, and touches the memory that work on them will need.
    fn find_each(&self, batch: &[P], found: &mut Vec<Found>) {
        let mut last: Option<(Region, Clue, Option<Block>)> = None;
        found.extend(batch.iter().map(|prefix| {
            let Place { region, mark } = Place::of(*prefix);
            if let Some((_, clue, block)) = last.filter(|(other, ..)| *other == region) {
                return (clue, block, mark);
            }
            let clue = self.index.clue(region);
            let block = self.index.find_by(clue, region, &self.blocks);
            last = Some((region, clue, block));
            (clue, block, mark)
        }));
        // After all searches: a load that waits for another must not hold up the rest.
        for block in found.iter().filter_map(|(_, block, _)| *block) {
            black_box(self.blocks.touch(block));
        }
    }

    #[inline]
    fn update_at(
        &mut self,
        prefix: P,
        (clue, block, mark): Found,
        change: impl FnOnce(Option<V>) -> Option<V>,
    ) -> Option<V> {
        let spot = block.map(|block| {
            let view = self.blocks.view(block);
            let at = view.marks.binary_search(&mark);
            (block, at, at.ok().map(|at| view.value(at)))
        });
        let old = spot.and_then(|(_, _, old)| old);
        let new = change(old);
        if new == old {
            return old;
        }
        match (spot, new) {
            (Some((block, Ok(at), _)), Some(new)) => self.blocks.set(block, at, new),
            (Some((block, Ok(at), _)), None) => {
                self.blocks.close(block, at, at + 1, 0);
                self.len -= 1;
                self.tidy(block);
            }
            (Some((block, Err(at), _)), Some(new)) => self.add(block, at, mark, new),
            (None, Some(new)) => self.add_in_new_block(prefix, clue, new),
            (None | Some((_, Err(_), _)), None) => {}
        }
        old
    }

    #[inline]
    fn add(&mut self, block: Block, at: usize, mark: u16, value: V) {
        match self.blocks.put(block, at, mark, value) {
            Some(()) => self.len += 1,
            None => {
                self.refused += 1;
                // Nor is a block that was made for it of any use.
                self.tidy(block);
            }
        }
    }

    fn add_in_new_block(&mut self, prefix: P, clue: Clue, value: V) {
        let place = Place::of(prefix);
        let Some(block) = self.add_block(place.region, clue) else {
            self.refused += 1;
            return;
        };
        let at = self.blocks.view(block).marks.partition_point(|&mark| mark < place.mark);
        self.add(block, at, place.mark, value);
    }

    /// The most specific entry that contains `prefix`; that may be `prefix` itself.
    pub fn longest_match(&self, prefix: P) -> Option<(P, V)> {
        let place = Place::of(prefix);
        (0..=place.region.level).rev().find_map(|level| {
            let region = place.region.enclosing(level);
            let view = self.blocks.view(self.find(region)?);
            lengths_in(prefix, level).rev().find_map(|length| {
                let mark = mark_of_length(prefix.bits(), level, length);
                view.find(mark).map(|value| (prefix_at(region, mark), value))
            })
        })
    }

    /// All entries that contain `prefix`, itself included, shortest first.
    pub fn covering(&self, prefix: P) -> impl Iterator<Item = (P, V)> + '_ {
        let deepest = Place::of(prefix).region;
        let blocks = (0..=deepest.level).filter_map(move |level| {
            let region = deepest.enclosing(level);
            Some((region, self.blocks.view(self.find(region)?)))
        });
        blocks.flat_map(move |(region, view)| {
            lengths_in(prefix, region.level).filter_map(move |length| {
                let mark = mark_of_length(prefix.bits(), region.level, length);
                view.find(mark).map(|value| (prefix_at(region, mark), value))
            })
        })
    }

    /// Whether `test` says yes to the value of an entry that contains `prefix`, itself included: the longest
    /// first, and no more once it has said yes.
    ///
    /// Faster than [`Self::covering`].
    #[inline]
    pub fn any_covering(&self, prefix: P, mut test: impl FnMut(V) -> bool) -> bool {
        let (bits, deepest) = (prefix.bits(), Place::of(prefix).region);
        (0..=deepest.level).rev().any(|level| {
            let Some(block) = self.find(deepest.enclosing(level)) else { return false };
            let (byte, length) = byte_and_length(bits, prefix.length(), level);
            self.blocks.view(block).any_above(byte, length, &mut test)
        })
    }

    /// Whether an entry other than `prefix` itself lies inside it.
    pub fn has_more_specific(&self, prefix: P) -> bool {
        self.next(Some(prefix)).is_some_and(|(next, _)| prefix.contains(next))
    }

    /// All entries in address order, shorter first.
    pub fn iter(&self) -> Iter<'_, P, V> {
        Iter::new(&self.blocks, &self.index)
    }

    /// The entries from `from` on in address order; `from` itself only when `inclusive`. It need not be in
    /// the table: a paused walk keeps the last prefix it saw and goes on here.
    pub fn iter_from(&self, from: P, inclusive: bool) -> Iter<'_, P, V> {
        self.iter().seek(from, inclusive)
    }

    /// The first entry after `after` (or of all) in address order.
    pub fn next(&self, after: Option<P>) -> Option<(P, V)> {
        self.iter_after(after).next()
    }

    fn iter_after(&self, after: Option<P>) -> Iter<'_, P, V> {
        match after {
            Some(prefix) => self.iter_from(prefix, false),
            None => self.iter(),
        }
    }

    /// The entries inside `prefix`, itself included, in address order.
    pub fn within(&self, prefix: P) -> impl Iterator<Item = (P, V)> + '_ {
        self.iter_from(prefix, true).take_while(move |(p, _)| prefix.contains(*p))
    }

    /// Shows the entries after `from` (all on `None`) in address order until `show` returns false. Returns where to go
    /// on, `None` at the end.
    ///
    /// About twice as fast as [`Self::iter_from`].
    #[inline]
    pub fn scan(&self, from: Option<P>, show: impl FnMut(P, V) -> bool) -> Option<P> {
        self.iter_after(from).scan(show)
    }

    /// Gives at most `budget` (at least one) entries after `from` (from the start on `None`) to `keep`, in
    /// address order, and puts what it returns in the place of the value; `None` drops the entry. Returns where
    /// to go on, `None` at the end.
    ///
    /// Whole blocks are changed in place, which is several times cheaper than one by one. Between two calls the
    /// table may change: an entry that is there all the time is seen exactly once.
    pub fn retain(
        &mut self,
        from: Option<P>,
        budget: usize,
        mut keep: impl FnMut(P, V) -> Option<V>,
    ) -> Option<P> {
        let mut trail = self.iter_after(from).trail();
        let mut last = from;
        let mut left = budget.max(1);
        while left > 0 {
            let (block, start) = self.settle(&mut trail)?;
            let region = self.blocks.region(block);
            let marks = self.blocks.view(block).marks[start..].iter();
            let end = start + marks.take(left).take_while(|mark| !is_child(**mark)).count();
            let dropped = self.blocks.retain(block, (start, end), |mark, value| {
                let prefix = prefix_at(region, mark);
                last = Some(prefix);
                keep(prefix, value)
            });
            self.len -= dropped;
            trail.here = Some((block, end - dropped));
            left -= end - start;
        }
        while trail.here.is_some() {
            self.leave(&mut trail);
        }
        last
    }

    /// Goes on to the next value: its block and index. Blocks that have lost their reason go with the walk.
    fn settle(&mut self, trail: &mut Trail) -> Option<(Block, usize)> {
        loop {
            let (block, at) = trail.here?;
            let view = self.blocks.view(block);
            match view.marks.get(at) {
                None => self.leave(trail),
                Some(&mark) if is_child(mark) => trail.descend(view.child(at)),
                Some(_) => return Some((block, at)),
            }
        }
    }

    /// Leaves a block for the one above, and does what [`Self::tidy`] does, knowing where the block is listed.
    fn leave(&mut self, trail: &mut Trail) {
        let Some((block, _)) = trail.ascend() else { return };
        let heir = self.blocks.only_child(block);
        if heir.is_none() && self.blocks.len(block) > 0 {
            return;
        }
        match (&mut trail.here, heir) {
            (Some((parent, next)), Some(heir)) => self.blocks.set_child(*parent, *next - 1, heir),
            (Some((parent, next)), None) => {
                *next -= 1;
                self.blocks.close(*parent, *next, *next + 1, 0);
            }
            (None, Some(_)) => return,
            (None, None) => {}
        }
        self.index.remove(block, &self.blocks);
        self.blocks.discard(block);
    }

    /// Touches the memory that work on these prefixes will need, so that the cache misses overlap. Worth
    /// it before a batch of about 64 that lie far apart; neighbours in one block are skipped.
    pub fn prefetch(&self, prefixes: &[P]) {
        let mut found = [None; 64];
        for batch in prefixes.chunks(found.len()) {
            let mut last = None;
            for (found, prefix) in found.iter_mut().zip(batch) {
                let region = Place::of(*prefix).region;
                *found = if last == Some(region) { None } else { self.find(region) };
                last = Some(region);
            }
            // First all headers, then all runs: a load that waits for another must not hold up the rest.
            for block in found[..batch.len()].iter().flatten() {
                black_box(self.blocks.len(*block));
            }
            for block in found[..batch.len()].iter().flatten() {
                black_box(self.blocks.touch(*block));
            }
        }
    }

    #[inline]
    fn find(&self, region: Region) -> Option<Block> {
        self.index.find(region, &self.blocks)
    }

    /// The nearest block above a region, which is its parent in the trie.
    fn parent(&self, region: Region) -> Option<Block> {
        (0..region.level).rev().find_map(|level| self.find(region.enclosing(level)))
    }

    /// Adds the block of a region, empty, with its place in the trie; `None` when the memory is used up.
    fn add_block(&mut self, region: Region, clue: Clue) -> Option<Block> {
        let block = self.blocks.add(region)?;
        if region.level > 0 && self.link(block, region).is_none() {
            self.blocks.discard(block);
            return None;
        }
        self.index.insert_by(clue, region, block, &self.blocks);
        Some(block)
    }

    /// Puts a new block between the nearest one above and what lies below.
    fn link(&mut self, block: Block, region: Region) -> Option<()> {
        let parent = match self.parent(region) {
            Some(parent) => parent,
            None => {
                let top = region.enclosing(0);
                self.add_block(top, self.index.clue(top))?
            }
        };
        let mark = region.mark_in(self.blocks.level(parent));
        let view = self.blocks.view(parent);
        match view.marks.binary_search(&mark) {
            Err(at) => self.blocks.put_child(parent, at, mark, block),
            Ok(at) => {
                let upper = self.join(block, region, view.child(at))?;
                self.blocks.set_child(parent, at, upper);
                Some(())
            }
        }
    }

    /// Brings a new block and one that has its place already under one roof: the new block itself if it
    /// encloses the other, else one that encloses both.
    fn join(&mut self, block: Block, region: Region, other: Block) -> Option<Block> {
        let other_region = self.blocks.region(other);
        let level = region.common_level(other_region);
        if level == region.level {
            self.blocks.put_child(block, 0, other_region.mark_in(level), other)?;
            return Some(block);
        }
        let roof_region = region.enclosing(level);
        let roof = self.blocks.add(roof_region)?;
        let (mark, other_mark) = (region.mark_in(level), other_region.mark_in(level));
        let linked = self
            .blocks
            .put_child(roof, 0, mark, block)
            .and_then(|()| self.blocks.put_child(roof, usize::from(other_mark > mark), other_mark, other));
        if linked.is_none() {
            self.blocks.discard(roof);
            return None;
        }
        self.index.insert(roof_region, roof, &self.blocks);
        Some(roof)
    }

    /// Takes out a block that no longer has a reason: nothing in it, or nothing but one child. The top block
    /// stays as long as there is anything below.
    fn tidy(&mut self, block: Block) {
        let child = self.blocks.only_child(block);
        if child.is_none() && self.blocks.len(block) > 0 {
            return;
        }
        let region = self.blocks.region(block);
        let parent = self.parent(region);
        match parent {
            Some(parent) => self.unlink(parent, region, child),
            None if child.is_some() => return,
            None => {}
        }
        self.index.remove(block, &self.blocks);
        self.blocks.discard(block);
        if let (Some(parent), None) = (parent, child) {
            self.tidy(parent);
        }
    }

    /// Lets a parent point to `heir` in the place of the child with this region, or to nothing.
    fn unlink(&mut self, parent: Block, region: Region, heir: Option<Block>) {
        let mark = region.mark_in(self.blocks.level(parent));
        if let Ok(at) = self.blocks.view(parent).marks.binary_search(&mark) {
            match heir {
                Some(heir) => self.blocks.set_child(parent, at, heir),
                None => self.blocks.close(parent, at, at + 1, 0),
            }
        }
    }
}

/// The lengths, counted from the region's, at which a block of `level` may hold what contains `prefix`.
fn lengths_in<P: IpPrefix>(prefix: P, level: u8) -> std::ops::RangeInclusive<u8> {
    u8::from(level > 0)..=(prefix.length() - 8 * level).min(8)
}

//! Announcement entries: persistent lists, in blocks shared by all sessions.

use crate::{
    Full, Log, Memory, Unreadable,
    layout::checksum,
    log::{BEGUN, COLLECTED, REBASED},
    store::{Store, Taker},
};

/// Octets before those of an entry: the previous entry; the length, and a sum that tells an entry from anything else.
pub(crate) const HEADER: usize = 16;
/// No log gets so far: a hundred blocks a second for 80 years.
const MOST_BEGUN: u64 = 1 << 38;
/// No block.
const NONE: u32 = u32::MAX;

/// An entry. Means nothing to another log, and nothing after the entry was collected.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EntryId(u64);

impl EntryId {
    /// No entry: what the first one of a list has as previous.
    pub const NONE: Self = Self(0);

    /// As a number; the driver's own names for entries can be these.
    pub fn bits(self) -> u64 {
        self.0
    }

    /// From [`Self::bits`].
    pub fn from_bits(bits: u64) -> Self {
        Self(bits)
    }
}

/// The blocks of the entries, by block: as far as any has had entries.
#[derive(Debug, Default)]
pub(crate) struct Entries {
    blocks: Vec<EntryBlock>,
    /// The number of the last block that was begun. With it an entry is told from one that stood in its place before.
    begun: u64,
}

#[derive(Copy, Clone, Debug)]
struct EntryBlock {
    /// Octets used: 0 for a block without entries.
    used: u32,
    /// The one that took over when it was full. Entries that follow each other stand together, so that a block becomes
    /// free when its list is folded, whatever other lists are doing.
    next: u32,
}

impl EntryBlock {
    const FREE: Self = Self { used: 0, next: NONE };
}

impl Entries {
    /// Octets of the list of blocks.
    #[cfg(test)]
    pub(crate) fn lists(&self) -> usize {
        self.blocks.capacity() * size_of::<EntryBlock>()
    }

    /// Octets used of a block.
    fn used(&self, block: u32) -> u32 {
        self.blocks.get(block as usize).map_or(0, |block| block.used)
    }

    /// A block, to be changed.
    fn block(&mut self, block: u32) -> &mut EntryBlock {
        let at = block as usize;
        if self.blocks.len() <= at {
            self.blocks.resize(at + 1, EntryBlock::FREE);
        }
        &mut self.blocks[at]
    }

    /// Octets used, free ones between entries included, and blocks.
    pub(crate) fn usage(&self) -> (u64, usize) {
        let used = self.blocks.iter().filter(|block| block.used != 0);
        (used.clone().map(|block| u64::from(block.used)).sum(), used.count())
    }

    /// A block with room for so many octets: that of the previous entry, or the one that took over from it.
    fn room<M: Memory>(&mut self, store: &mut Store<M>, previous: EntryId, size: usize) -> Result<u32, Full> {
        let start = store.layout.place(previous.0).map(|(block, _)| block);
        let mut last = None;
        let mut at = start.unwrap_or(NONE);
        // What took over may have been freed since, and may even be of use to another list now: no harm.
        while let Some(EntryBlock { used, next }) =
            self.blocks.get(at as usize).filter(|block| block.used != 0)
        {
            if *used as usize + size <= store.layout.block() {
                return Ok(self.shorten(start, at));
            }
            last = Some(at);
            at = *next;
        }
        let number = self.next_number(store);
        let block = store.claim(Taker::Entries, 0, number)?;
        self.block(block).next = NONE;
        if let Some(last) = last {
            self.block(last).next = block;
        }
        Ok(self.shorten(start, block))
    }

    /// A number that no block has had, also none of a life before whose blocks are free by now.
    fn next_number<M: Memory>(&mut self, store: &mut Store<M>) -> u64 {
        self.begun += 1;
        store.set_word(BEGUN, self.begun);
        self.begun
    }

    /// The next entry behind one in `start` goes to `block` without a search.
    fn shorten(&mut self, start: Option<u32>, block: u32) -> u32 {
        if let Some(start) = start.filter(|start| *start != block) {
            self.block(start).next = block;
        }
        block
    }
}

impl<M: Memory> Log<M> {
    /// Longest entry, in octets: a block less 16.
    pub fn longest_entry(&self) -> usize {
        self.store.layout.block() - HEADER
    }

    /// Writes an entry behind another. It lives as long as a session's [`Self::passed`], or what is given to
    /// [`Self::collect`], reaches it; after [`Self::recover`] only the former counts.
    ///
    /// # Errors
    /// [`Full`] when there is no room, or the entry is over [`Self::longest_entry`].
    pub fn append(&mut self, previous: EntryId, entry: &[u8]) -> Result<EntryId, Full> {
        let size = HEADER + entry.len().next_multiple_of(HEADER);
        if size > self.store.layout.block() {
            return Err(Full);
        }
        let block = self.entries.room(&mut self.store, previous, size)?;
        let used = &mut self.entries.block(block).used;
        let at = self.store.layout.block_at(block) + *used as usize;
        *used += size as u32;
        let header = [previous.0, length_word(self.store.seed, at as u64, entry.len() as u32)];
        self.store.write(at, header.map(u64::to_le_bytes).as_flattened());
        self.store.write(at + HEADER, entry);
        Ok(EntryId(at as u64))
    }

    /// An entry and the one before it.
    pub fn entry(&self, id: EntryId) -> (EntryId, &[u8]) {
        let (previous, octets) = self.entry_at(id.0).expect("the entry is in the log");
        (EntryId(previous), &self.store.octets()[octets])
    }

    /// Replaces what stands before an entry: `base` says the same in fewer octets. Atomic.
    ///
    /// `base` must not reach `entry`.
    pub fn rebase(&mut self, entry: EntryId, base: EntryId) {
        self.entry_at(entry.0).expect("the entry is in the log");
        self.store.set_word(entry.0 as usize, base.0);
        let rebased = self.store.word(REBASED);
        self.store.set_word(REBASED, rebased.wrapping_add(1));
    }

    /// Frees the blocks of entries that neither a session's [`Self::passed`] nor these entries reach. It takes time
    /// proportional to what they do reach.
    pub fn collect(&mut self, heads: impl IntoIterator<Item = EntryId>) {
        let passed = self.sessions.iter().flatten().map(|session| session.state.passed);
        let roots = passed.chain(heads.into_iter().map(|entry| entry.0));
        let reached = self.reach(roots).expect("lists are whole and have an end");
        self.sweep(reached);
    }

    /// After recovery: `blocks`, each with its number, hold entries.
    pub(crate) fn recover_entries(&mut self, blocks: Vec<(u32, u64)>) -> Result<(), Unreadable> {
        let block = self.store.layout.block() as u32;
        self.entries.begun = self.store.word(BEGUN);
        if self.entries.begun > MOST_BEGUN {
            return Err(Unreadable::Damaged("the number of the last block"));
        }
        for (index, number) in blocks {
            if number > MOST_BEGUN {
                return Err(Unreadable::Damaged("the number of a block"));
            }
            self.entries.block(index).used = block;
            self.entries.begun = self.entries.begun.max(number);
        }
        let roots = self.sessions.iter().flatten().map(|session| session.state.passed);
        let reached = self.reach(roots)?;
        self.sweep(reached);
        Ok(())
    }

    /// For each block, where the last entry that is reached ends.
    fn reach(&self, roots: impl Iterator<Item = u64>) -> Result<Vec<u32>, Unreadable> {
        let blocks = self.entries.blocks.len();
        let mut used = vec![0; blocks];
        let mut marks = Marks::new(blocks, self.store.layout.block());
        for root in roots {
            self.walk(root, |block, within, size| {
                let end = &mut used[block as usize];
                *end = (within + size).max(*end as usize) as u32;
                marks.mark(block, within, PENDING)
            })?;
            // A second walk, over the entries that are new: what is still pending when it is met was met in a circle.
            self.walk(root, |block, within, _| marks.mark(block, within, DONE))?;
        }
        Ok(used)
    }

    /// Follows a list until `visit` says that this entry was here before.
    fn walk(
        &self,
        root: u64,
        mut visit: impl FnMut(u32, usize, usize) -> Result<bool, Unreadable>,
    ) -> Result<(), Unreadable> {
        let mut at = root;
        while at != EntryId::NONE.0 {
            let (previous, octets) = self.entry_at(at).ok_or(Unreadable::Damaged("an entry"))?;
            let (block, within) = self.store.layout.place(at).ok_or(Unreadable::Damaged("an entry"))?;
            if !visit(block, within, HEADER + octets.len().next_multiple_of(HEADER))? {
                break;
            }
            at = previous;
        }
        Ok(())
    }

    fn sweep(&mut self, reached: Vec<u32>) {
        let collected = self.store.word(COLLECTED);
        self.store.set_word(COLLECTED, collected.wrapping_add(1));
        for (at, reached) in reached.into_iter().enumerate() {
            let EntryBlock { used, .. } = self.entries.blocks[at];
            if used != 0 && reached == 0 {
                self.store.free(at as u32);
                self.entries.blocks[at].next = NONE;
            } else if used != reached {
                // Other entries may come to stand where some stood that are not reached any more.
                let number = self.entries.next_number(&mut self.store);
                self.store.set_position(at as u32, number);
            }
            self.entries.blocks[at].used = reached;
        }
    }

    /// The previous entry and where the octets stand; `None` if there is no entry at this place.
    fn entry_at(&self, at: u64) -> Option<(u64, std::ops::Range<usize>)> {
        let (block, within) = self.store.layout.place(at)?;
        let used = self.entries.used(block) as usize;
        if within % HEADER != 0 || within >= used {
            return None;
        }
        let start = at as usize;
        let word = self.store.word(start + 8);
        let length = word as u32;
        let fits = length as usize <= used - within - HEADER;
        let octets = start + HEADER..start + HEADER + length as usize;
        (fits && length_word(self.store.seed, at, length) == word).then(|| (self.store.word(start), octets))
    }
}

pub(crate) fn length_word(seed: u64, at: u64, length: u32) -> u64 {
    let length = u64::from(length);
    length | checksum(seed, [at, length]) << 32
}

/// Which entries a walk has met.
struct Marks {
    /// By block, then by place; nothing for a block that was not met.
    marks: Vec<Vec<u8>>,
    places: usize,
}

/// Met by the walk that goes on.
const PENDING: u8 = 1;
/// Met by a walk that came to its end.
const DONE: u8 = 2;

impl Marks {
    fn new(blocks: usize, block: usize) -> Self {
        Self { marks: vec![Vec::new(); blocks], places: block / HEADER }
    }

    /// Whether the mark is new here.
    fn mark(&mut self, block: u32, within: usize, mark: u8) -> Result<bool, Unreadable> {
        let marks = &mut self.marks[block as usize];
        marks.resize(self.places, 0);
        match std::mem::replace(&mut marks[within / HEADER], mark) {
            PENDING if mark == PENDING => Err(Unreadable::Damaged("a list of entries without an end")),
            DONE => {
                marks[within / HEADER] = DONE;
                Ok(false)
            }
            _ => Ok(true),
        }
    }
}

//! The memory as words and blocks: which block belongs to whom, and the order in which changes become visible.

use std::{ops::Range, sync::atomic::Ordering};

use crate::{
    Full, Memory, Unreadable,
    layout::{Layout, checksum},
};

/// Free blocks that keep their pages, to be used again first: 8 MiB of the usual blocks.
const RESERVE: usize = 64;
/// Free blocks of which the pages are given back at a time: half a millisecond for the usual blocks.
const FEW: usize = 16;

/// What comes in may not take the last blocks, one in so many: reading has to wait while there is still room for
/// what frees blocks, a snapshot or a folded list.
const READING_LEAVES: usize = 8;

/// Snapshots leave one in so many: for what goes out, and for entries. Whoever finds no room for these loses its
/// protection, and is not who has filled the log.
pub(crate) const SNAPSHOTS_LEAVE: usize = 16;
/// Entries leave one in so many to octets that go out: a list that finds no room ends the protection of its own sessions.
const ENTRIES_LEAVE: usize = 32;
/// Octets that go with an entry leave one in so many to those that do not: a session that is told nothing is not who has
/// filled the log, and finds room for a KEEPALIVE.
const ANNOUNCEMENTS_LEAVE: usize = 64;

/// Who takes a block. Each leaves some to those after it.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Taker {
    Incoming,
    Snapshot,
    Entries,
    /// Octets that go out with an entry.
    Announcements,
    /// Octets that go out without one.
    Messages,
}

impl Taker {
    fn kind(self) -> Kind {
        match self {
            Self::Incoming => Kind::Incoming,
            Self::Snapshot => Kind::Snapshot,
            Self::Entries => Kind::Entries,
            Self::Announcements | Self::Messages => Kind::Outgoing,
        }
    }
}

/// What a block is for.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    Incoming = 1,
    Outgoing = 2,
    Snapshot = 3,
    Entries = 4,
}

impl Kind {
    const ALL: [Self; 4] = [Self::Incoming, Self::Outgoing, Self::Snapshot, Self::Entries];
}

/// What the table says of a block in use.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) struct Claim {
    pub(crate) kind: Kind,
    /// Number of the session, 0 for entries.
    pub(crate) owner: u32,
    /// Offset of the first octet in a stream; place in a snapshot; number among the blocks of entries.
    pub(crate) position: u64,
}

/// The memory and its blocks.
///
/// A process that dies between two instructions leaves what it has stored, in the order of its program. So one
/// word ([`Self::set_word`]) is what makes a change count, and what it speaks of is written before it. A barrier on both
/// sides of that word keeps the order for a [`Reader`](crate::Reader) on another processor, too.
#[derive(Debug)]
pub(crate) struct Store<M> {
    memory: M,
    pub(crate) layout: Layout,
    /// Begins every sum, so that what another log left behind is not taken for ours.
    pub(crate) seed: u64,
    /// Free blocks with their pages, and free blocks without; the last one freed is taken first.
    warm: Vec<u32>,
    cold: Vec<u32>,
    /// The blocks from here on are free as well, and have no pages. They are taken last, the lowest first.
    fresh: u32,
    /// Blocks that what comes in leaves beside those: for the snapshots that are being made.
    pub(crate) held_back: usize,
}

impl<M: Memory> Store<M> {
    /// The memory with all blocks free.
    pub(crate) fn new(memory: M, layout: Layout, seed: u64) -> Self {
        Self { memory, layout, seed, warm: Vec::new(), cold: Vec::new(), fresh: 0, held_back: 0 }
    }

    /// The memory with the blocks free of which the table says so. Pages of free blocks are given back.
    ///
    /// `keep` is told of each block in use.
    pub(crate) fn recovered(
        memory: M,
        layout: Layout,
        seed: u64,
        mut keep: impl FnMut(u32, Claim),
    ) -> Result<Self, Unreadable> {
        let mut store = Self::new(memory, layout, seed);
        store.fresh = layout.blocks as u32;
        for block in (0..layout.blocks as u32).rev() {
            match store.claim_of(block)? {
                Some(claim) => keep(block, claim),
                None if store.fresh == block + 1 => store.fresh = block,
                None => store.cold.push(block),
            }
        }
        store.memory.release(layout.block_at(store.fresh)..layout.block_at(layout.blocks as u32));
        for run in store.cold.chunk_by(|above, below| *above == below + 1) {
            let ends = layout.block_at(run[run.len() - 1])..layout.block_at(run[0] + 1);
            store.memory.release(ends);
        }
        Ok(store)
    }

    pub(crate) fn into_memory(self) -> M {
        self.memory
    }

    #[inline]
    pub(crate) fn octets(&self) -> &[u8] {
        self.memory.octets()
    }

    #[inline]
    pub(crate) fn word(&self, at: usize) -> u64 {
        word(self.memory.octets(), at)
    }

    /// Stores a word at a multiple of eight, at once and in order with what is written before and after.
    #[inline]
    pub(crate) fn set_word(&mut self, at: usize, word: u64) {
        debug_assert!(at.is_multiple_of(8));
        self.write_in_order(at, &word.to_le_bytes());
    }

    /// [`Self::set_word`] where another word stands.
    #[inline]
    pub(crate) fn change_word(&mut self, at: usize, word: u64) {
        if self.word(at) != word {
            self.set_word(at, word);
        }
    }

    /// Writes octets after all that was written before, and before all that is written later.
    #[inline]
    pub(crate) fn write_in_order(&mut self, at: usize, octets: &[u8]) {
        write_in_order(&mut self.memory, at, octets);
    }

    /// Writes octets that nothing speaks of yet.
    #[inline]
    pub(crate) fn write(&mut self, at: usize, octets: &[u8]) {
        self.memory.write(at, octets);
    }

    /// Two places to be written from outside.
    pub(crate) fn places(&mut self, places: [Range<usize>; 2]) -> [&mut [u8]; 2] {
        self.memory.octets_mut().get_disjoint_mut(places).expect("two places of different blocks")
    }

    /// Gives back the pages of part of a block or cell.
    pub(crate) fn release(&mut self, range: Range<usize>) {
        self.memory.release(range);
    }

    #[inline]
    pub(crate) fn block(&self, block: u32) -> &[u8] {
        &self.memory.octets()[self.layout.block_at(block)..][..self.layout.block()]
    }

    /// Takes a free block. It contains what was left in it.
    pub(crate) fn claim(&mut self, taker: Taker, owner: u32, position: u64) -> Result<u32, Full> {
        let leaves = match taker {
            Taker::Incoming => self.layout.blocks / READING_LEAVES + self.held_back,
            Taker::Snapshot => self.layout.blocks / SNAPSHOTS_LEAVE,
            Taker::Entries => self.layout.blocks / ENTRIES_LEAVE,
            Taker::Announcements => self.layout.blocks / ANNOUNCEMENTS_LEAVE,
            Taker::Messages => 0,
        };
        if self.free_blocks() <= leaves {
            return Err(Full);
        }
        let kind = taker.kind();
        let block = self.warm.pop().or_else(|| self.cold.pop()).or_else(|| self.take_fresh()).ok_or(Full)?;
        if kind == Kind::Snapshot {
            self.held_back = self.held_back.saturating_sub(1);
        }
        self.set_position(block, position);
        self.set_word(self.layout.table_at(block), tag(self.seed, block, kind, owner));
        Ok(block)
    }

    #[cold]
    fn take_fresh(&mut self) -> Option<u32> {
        let block = Some(self.fresh).filter(|block| (*block as usize) < self.layout.blocks)?;
        self.fresh += 1;
        Some(block)
    }

    /// Changes the position of a block in use.
    #[inline]
    pub(crate) fn set_position(&mut self, block: u32, position: u64) {
        self.set_word(self.layout.table_at(block) + 8, position);
    }

    /// Gives a block back. It keeps its pages: a session that ends has thousands of blocks.
    pub(crate) fn free(&mut self, block: u32) {
        self.set_word(self.layout.table_at(block), 0);
        self.warm.push(block);
    }

    /// Whether more free blocks have kept their pages than are used soon.
    pub(crate) fn is_warm(&self) -> bool {
        self.warm.len() > RESERVE
    }

    /// Gives back the pages of a few of those.
    pub(crate) fn cool_some(&mut self) {
        self.cool_to(RESERVE.max(self.warm.len().saturating_sub(FEW)));
    }

    /// Gives back the pages of half of the free blocks that are used soon, and of the last one.
    pub(crate) fn cool(&mut self) {
        self.cool_to(self.warm.len().min(RESERVE) / 2);
    }

    fn cool_to(&mut self, kept: usize) {
        if kept >= self.warm.len() {
            return;
        }
        for block in self.warm.drain(kept..) {
            let at = self.layout.block_at(block);
            self.memory.release(at..at + self.layout.block());
            self.cold.push(block);
        }
    }

    /// Octets of the lists of free blocks.
    #[cfg(test)]
    pub(crate) fn lists(&self) -> usize {
        (self.warm.capacity() + self.cold.capacity()) * size_of::<u32>()
    }

    /// Number of free blocks.
    pub(crate) fn free_blocks(&self) -> usize {
        self.warm.len() + self.cold.len() + (self.layout.blocks - self.fresh as usize)
    }

    fn claim_of(&self, block: u32) -> Result<Option<Claim>, Unreadable> {
        let at = self.layout.table_at(block);
        claim_of(self.seed, block, self.word(at), self.word(at + 8))
    }
}

/// Kind in the lowest octet, owner in the highest four, between them a sum over both and the block.
fn tag(seed: u64, block: u32, kind: Kind, owner: u32) -> u64 {
    let tag = u64::from(owner) << 32 | kind as u64;
    tag | checksum(seed, [tag, block.into()]) & 0xff_ff_ff_00
}

/// What two words of the table say of a block; `None` when it is free.
pub(crate) fn claim_of(seed: u64, block: u32, word: u64, position: u64) -> Result<Option<Claim>, Unreadable> {
    if word == 0 {
        return Ok(None);
    }
    let owner = (word >> 32) as u32;
    let kind = Kind::ALL.into_iter().find(|kind| tag(seed, block, *kind, owner) == word);
    let kind = kind.ok_or(Unreadable::Damaged("the use of a block"))?;
    Ok(Some(Claim { kind, owner, position }))
}

/// Writes octets after all that was written before, and before all that is written later.
#[inline]
pub(crate) fn write_in_order(memory: &mut impl Memory, at: usize, octets: &[u8]) {
    memory.barrier(Ordering::Release);
    memory.write(at, octets);
    memory.barrier(Ordering::Release);
}

/// The word at a place.
#[inline]
pub(crate) fn word(octets: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(octets[at..at + 8].try_into().expect("eight octets"))
}

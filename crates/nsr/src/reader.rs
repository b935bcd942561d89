//! The log read by another process while its own writes it.
//!
//! A reader has no lock, and the writer does not know of it. What it reads may change meanwhile, so each call looks again
//! after it has read, and says [`Changed`] if what it wanted is not there any more. Then the session's state is read anew.
//! Everything is given by value: offsets of streams, numbers of entries, records. Where it stood is known to nobody else.

use std::ops::Range;

use crate::{
    EntryId, SessionId, Shared, Unreadable,
    cell::{ACKNOWLEDGED, NUMBERS, RECEIVED, SENT, State, WORDS},
    entries::{HEADER, length_word},
    layout::Layout,
    log::{COLLECTED, FORMAT, REBASED, seed},
    recover::Header,
    snapshot::records_end,
    store::{Claim, Kind, claim_of},
};

/// How often a state is read until it is whole: the writer changes one copy at a time, so twice is nearly always enough.
const ATTEMPTS: usize = 16;

/// Blocks behind those in use that are looked at before all of them are.
const AHEAD: u32 = 64;

/// What was to be read has been replaced or forgotten meanwhile.
#[derive(Copy, Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the log has changed while it was read")]
pub struct Changed;

/// The number of an entry. One that was collected never comes again.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct EntryNumber(pub u64);

/// A session at one moment.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct View {
    /// Which it is.
    pub id: SessionId,
    /// Changes with each commit, and is never the same for two states of a session.
    pub version: u64,
    /// Octets of the peer since what the snapshot holds: their offsets.
    pub incoming: (u64, u64),
    /// Octets to the peer that it is not known to have acknowledged: their offsets.
    pub outgoing: (u64, u64),
    /// Up to which of them the kernel has taken them: a lower bound.
    pub sent: u64,
    /// The entry that goes with the end of `outgoing`.
    pub passed: EntryId,
    /// The number of the snapshot; 0: there is none.
    pub snapshot: u32,
    /// Its blocks.
    pub snapshot_blocks: u32,
    /// The driver's numbers.
    pub numbers: [u64; 5],
    collected: u64,
    state: State,
    cell: usize,
}

/// A log that another process writes.
#[derive(Debug)]
pub struct Reader<R> {
    memory: R,
    layout: Layout,
    seed: u64,
    formats: u64,
    key: [u8; 16],
    /// Owner, kind and position of each block in use when the table was read last: a hint, which is looked at again before it
    /// is used.
    blocks: Vec<(u32, Kind, u64, u32)>,
    /// Behind the last block that was in use then.
    used: u32,
    /// The block of a snapshot.
    scratch: Vec<u8>,
}

impl<R: Shared> Reader<R> {
    /// The log in a memory.
    ///
    /// # Errors
    /// [`Unreadable`] when there is none, or one of a format that cannot be read while it is written.
    pub fn new(memory: R) -> Result<Self, Unreadable> {
        let Header { layout, format, formats, key } = Header::read(memory.len(), |at| memory.load(at))?;
        if format != FORMAT {
            return Err(Unreadable::Format(format));
        }
        let (blocks, scratch) = (Vec::new(), Vec::new());
        Ok(Self { memory, layout, seed: seed(key), formats, key, blocks, used: 0, scratch })
    }

    /// As [`Log::formats`](crate::Log::formats).
    pub fn formats(&self) -> u64 {
        self.formats
    }

    /// As [`Log::key`](crate::Log::key).
    pub fn key(&self) -> [u8; 16] {
        self.key
    }

    /// Changes whenever an entry was given another previous one, or entries were collected: what is known of lists may not
    /// hold any more.
    pub fn lists(&self) -> u64 {
        let lists = self.memory.load(REBASED).wrapping_add(self.memory.load(COLLECTED));
        self.memory.barrier();
        lists
    }

    /// The sessions in the log. It takes time proportional to those that there can be.
    pub fn sessions(&self) -> Vec<SessionId> {
        (0..self.layout.cells)
            .filter_map(|slot| u32::try_from(self.memory.load(self.layout.directory_at(slot))).ok())
            .filter(|id| *id != 0)
            .map(SessionId)
            .collect()
    }

    /// A session as it is now.
    ///
    /// # Errors
    /// [`Changed`]: it is not in the log, or changes faster than it can be read.
    pub fn view(&self, id: SessionId) -> Result<View, Changed> {
        let cell = self.layout.cell_at(id.0 as usize % self.layout.cells);
        // Before the state: what that reaches was not collected before.
        let collected = self.collected();
        let state = self.state(cell).filter(|state| state.id == id.0).ok_or(Changed)?;
        let word = |at: usize| self.memory.load(cell + at);
        let numbers = std::array::from_fn(|i| word(NUMBERS + 8 * i));
        let (sent, acknowledged) = (word(SENT), word(ACKNOWLEDGED));
        self.memory.barrier();
        // Octets received later than the state was committed are there as well, so this comes last.
        let received = word(RECEIVED).max(state.incoming);
        self.memory.barrier();
        Ok(View {
            id,
            version: state.sequence,
            incoming: (state.incoming, received),
            outgoing: (acknowledged.min(state.outgoing), state.outgoing),
            sent: sent.min(state.outgoing),
            passed: EntryId::from_bits(state.passed),
            snapshot: if state.snapshot_blocks == 0 { 0 } else { state.snapshot },
            snapshot_blocks: state.snapshot_blocks,
            numbers,
            collected,
            state,
            cell,
        })
    }

    /// Offset behind what has been received of a session, which only grows.
    ///
    /// # Errors
    /// [`Changed`]: it is not in the log any more.
    pub fn received(&self, view: &View) -> Result<u64, Changed> {
        let received = self.memory.load(view.cell + RECEIVED);
        self.memory.barrier();
        self.current(view)?;
        Ok(received)
    }

    /// The record.
    ///
    /// # Errors
    /// [`Changed`]: it was replaced.
    pub fn record(&self, view: &View) -> Result<Vec<u8>, Changed> {
        let place = view.state.record.place(&self.layout, view.cell).ok_or(Changed)?;
        let mut record = vec![0; place.len()];
        self.memory.copy(place.start, &mut record);
        view.state.record.is(self.seed, &record).then_some(record).ok_or(Changed)
    }

    /// Adds octets of the peer from an offset on, up to the end of a block: no more than `most`, and at least one where
    /// there is one.
    ///
    /// # Errors
    /// [`Changed`]: they were forgotten, because a snapshot covers them or they have no effect.
    pub fn incoming(
        &mut self,
        view: &View,
        Range { start, end }: Range<u64>,
        most: usize,
        into: &mut Vec<u8>,
    ) -> Result<(), Changed> {
        let before = into.len();
        self.octets(view, Kind::Incoming, start..end, most, into)?;
        let state = self.current(view);
        if state.is_err() || state.is_ok_and(|state| state.incoming > start) {
            into.truncate(before);
            return Err(Changed);
        }
        Ok(())
    }

    /// The same of octets to the peer.
    ///
    /// # Errors
    /// [`Changed`]: the peer has acknowledged them.
    pub fn outgoing(
        &mut self,
        view: &View,
        Range { start, end }: Range<u64>,
        most: usize,
        into: &mut Vec<u8>,
    ) -> Result<(), Changed> {
        let before = into.len();
        self.octets(view, Kind::Outgoing, start..end, most, into)?;
        let acknowledged = self.memory.load(view.cell + ACKNOWLEDGED);
        if self.current(view).is_err() || acknowledged > start {
            into.truncate(before);
            return Err(Changed);
        }
        Ok(())
    }

    /// The records of one block of the snapshot, from 0 on: each behind its length (32 bits, little endian).
    ///
    /// # Errors
    /// [`Changed`]: another snapshot holds.
    pub fn snapshot_block(&mut self, view: &View, number: u32) -> Result<&[u8], Changed> {
        let position = u64::from(view.state.snapshot) << 32 | u64::from(number);
        let (block, claim) = self.find(view.id.0, Kind::Snapshot, position, 0).ok_or(Changed)?;
        self.scratch.resize(self.layout.block(), 0);
        self.memory.copy(self.layout.block_at(block), &mut self.scratch);
        self.memory.barrier();
        self.still(block, claim)?;
        let end = records_end(&self.scratch).ok_or(Changed)?;
        Ok(&self.scratch[..end])
    }

    /// Number of an entry that the session reaches from `passed`, and the entry before it.
    ///
    /// # Errors
    /// [`Changed`]: some were collected.
    pub fn entry_head(&self, view: &View, id: EntryId) -> Result<(EntryNumber, EntryId), Changed> {
        let (number, previous, _) = self.head(view, id)?;
        Ok((number, previous))
    }

    /// The octets of an entry that the session reaches from `passed`.
    ///
    /// # Errors
    /// [`Changed`]: some were collected.
    pub fn entry(&self, view: &View, id: EntryId) -> Result<Vec<u8>, Changed> {
        let (_, _, length) = self.head(view, id)?;
        let mut octets = vec![0; length];
        self.memory.copy(id.bits() as usize + HEADER, &mut octets);
        self.memory.barrier();
        self.none_collected_since(view)?;
        Ok(octets)
    }

    fn collected(&self) -> u64 {
        let collected = self.memory.load(COLLECTED);
        self.memory.barrier();
        collected
    }

    /// What the session reaches is still there, and nothing else has come to stand in its place.
    fn none_collected_since(&self, view: &View) -> Result<(), Changed> {
        (self.collected() == view.collected).then_some(()).ok_or(Changed)
    }

    fn head(&self, view: &View, id: EntryId) -> Result<(EntryNumber, EntryId, usize), Changed> {
        let (block, within) = self.layout.place(id.bits()).ok_or(Changed)?;
        let (at, room) = (id.bits() as usize, self.layout.block() - within);
        if !at.is_multiple_of(HEADER) || room < HEADER {
            return Err(Changed);
        }
        let claim = self.claim(block).filter(|claim| claim.kind == Kind::Entries).ok_or(Changed)?;
        let (previous, word) = (self.memory.load(at), self.memory.load(at + 8));
        self.memory.barrier();
        self.none_collected_since(view)?;
        let length = word as u32;
        if length_word(self.seed, at as u64, length) != word || length as usize > room - HEADER {
            return Err(Changed);
        }
        // A block has no more entries than 2^26, and the number of blocks begun leaves 38 bits.
        let number = EntryNumber(claim.position << 26 | (within / HEADER) as u64);
        Ok((number, EntryId::from_bits(previous), length as usize))
    }

    /// The state of a cell, whole.
    fn state(&self, cell: usize) -> Option<State> {
        (0..ATTEMPTS).find_map(|_| {
            let copies = State::places(cell).map(|at| {
                let words: [u64; WORDS] = std::array::from_fn(|i| self.memory.load(at + 8 * i));
                State::from_words(self.seed, cell, words)
            });
            self.memory.barrier();
            // While one copy is written the other is whole, and older: the newer one may be the one that was missed.
            copies.into_iter().flatten().max_by_key(|state| state.sequence)
        })
    }

    /// The state now, of a session that is still there.
    fn current(&self, view: &View) -> Result<State, Changed> {
        self.memory.barrier();
        self.state(view.cell).filter(|state| state.id == view.id.0).ok_or(Changed)
    }

    fn octets(
        &mut self,
        view: &View,
        kind: Kind,
        Range { start, end }: Range<u64>,
        most: usize,
        into: &mut Vec<u8>,
    ) -> Result<(), Changed> {
        if start >= end || most == 0 {
            return Ok(());
        }
        let (block, claim) =
            self.find(view.id.0, kind, start, self.layout.block() as u64 - 1).ok_or(Changed)?;
        let within = (start - claim.position) as usize;
        let wanted = usize::try_from(end - start).unwrap_or(usize::MAX).min(most);
        let count = wanted.min(self.layout.block() - within);
        let before = into.len();
        into.resize(before + count, 0);
        // As long as they are held the block is theirs: that is what the caller looks at now.
        self.memory.copy(self.layout.block_at(block) + within, &mut into[before..]);
        self.memory.barrier();
        Ok(())
    }

    /// The block of a kind that has a position, or one up to `behind` before it.
    fn find(&mut self, owner: u32, kind: Kind, position: u64, behind: u64) -> Option<(u32, Claim)> {
        // Free blocks are used again before others, the lowest first. So one that came since is hardly ever far behind those
        // that were in use; a memory may have many thousand that never were.
        let all = self.layout.blocks as u32;
        for blocks in [self.used.saturating_add(AHEAD).min(all), all] {
            if let Some(found) = self.look_up(owner, kind, position, behind) {
                return Some(found);
            }
            self.read_table(blocks);
        }
        self.look_up(owner, kind, position, behind)
    }

    fn look_up(&self, owner: u32, kind: Kind, position: u64, behind: u64) -> Option<(u32, Claim)> {
        let after = self.blocks.partition_point(|(o, k, p, _)| (*o, *k, *p) <= (owner, kind, position));
        let (_, _, _, block) = *self.blocks.get(after.checked_sub(1)?)?;
        let claim = self.claim(block)?;
        let fits = claim.kind == kind && claim.owner == owner && claim.position <= position;
        (fits && position - claim.position <= behind).then_some((block, claim))
    }

    /// Which of the first blocks are in use, and for what.
    fn read_table(&mut self, first: u32) {
        let mut blocks = std::mem::take(&mut self.blocks);
        blocks.clear();
        let mut used = 0;
        for block in 0..first {
            let Some(Claim { kind, owner, position }) = self.claim(block) else { continue };
            used = block + 1;
            if kind != Kind::Entries {
                blocks.push((owner, kind, position, block));
            }
        }
        blocks.sort_unstable();
        (self.blocks, self.used) = (blocks, used);
    }

    fn claim(&self, block: u32) -> Option<Claim> {
        let at = self.layout.table_at(block);
        let tag = self.memory.load(at);
        if tag == 0 {
            return None;
        }
        self.memory.barrier();
        let position = self.memory.load(at + 8);
        self.memory.barrier();
        claim_of(self.seed, block, tag, position).ok().flatten()
    }

    fn still(&self, block: u32, claim: Claim) -> Result<(), Changed> {
        (self.claim(block) == Some(claim)).then_some(()).ok_or(Changed)
    }
}

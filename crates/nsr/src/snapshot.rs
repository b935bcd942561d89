//! Snapshots: records in blocks, of which the last whole one holds.

use crate::{
    Full, Log, Memory, SessionId, Unreadable,
    log::Session,
    store::{SNAPSHOTS_LEAVE, Store, Taker},
};

/// Octets before a record: its length.
const LENGTH: usize = 4;
/// In place of a length: no more records in this block.
const END: u32 = u32::MAX;

/// A snapshot that does not hold yet.
#[derive(Debug)]
pub(crate) struct Building {
    number: u32,
    pub(crate) blocks: Vec<u32>,
    /// Octets used of the last block.
    used: usize,
    octets: u64,
}

impl<M: Memory> Log<M> {
    /// What comes in leaves room for so many octets of snapshots that are being made, less what they take from now on.
    pub fn hold_back(&mut self, octets: u64) {
        self.store.held_back = octets.div_ceil(self.store.layout.block() as u64) as usize;
    }

    /// Octets that snapshots find room for.
    pub fn snapshot_room(&self) -> u64 {
        let blocks = self.store.free_blocks().saturating_sub(self.store.layout.blocks / SNAPSHOTS_LEAVE);
        (blocks * self.store.layout.block()) as u64
    }

    /// Begins a snapshot of a session; one that was begun and not committed is forgotten. The committed one holds
    /// until the new one is.
    pub fn begin_snapshot(&mut self, id: SessionId) {
        self.abort_snapshot(id);
        let session = self.parts(id).1;
        let number = session.state.snapshot.wrapping_add(1);
        session.building = Some(Building { number, blocks: Vec::new(), used: 0, octets: 0 });
    }

    /// Adds a record, of up to a block less 4 octets, to the snapshot that was begun.
    ///
    /// # Errors
    /// [`Full`] when there is no room, or the record is longer. The snapshot can go on or be aborted.
    pub fn snapshot_record(&mut self, id: SessionId, record: &[u8]) -> Result<(), Full> {
        let (store, session) = self.parts(id);
        let building = session.building.as_mut().expect("a snapshot was begun");
        let block = store.layout.block();
        if LENGTH + record.len() > block {
            return Err(Full);
        }
        if building.blocks.is_empty() || building.used + LENGTH + record.len() > block {
            let position = u64::from(building.number) << 32 | building.blocks.len() as u64;
            let new = store.claim(Taker::Snapshot, session.state.id, position)?;
            building.end(store);
            building.blocks.push(new);
            building.used = 0;
        }
        let at = building.at(store);
        store.write(at, &(record.len() as u32).to_le_bytes());
        store.write(at + LENGTH, record);
        building.used += LENGTH + record.len();
        building.octets += record.len() as u64;
        Ok(())
    }

    /// The snapshot that was begun holds from now on, together with the octets from `incoming` on: what came before
    /// is forgotten, as is the snapshot that held. Atomic. Octets that were trimmed meanwhile stay forgotten.
    pub fn commit_snapshot(&mut self, id: SessionId, incoming: u64) {
        let (store, session) = self.parts(id);
        let building = session.building.take().expect("a snapshot was begun");
        building.end(store);
        let incoming = incoming.max(session.incoming.start);
        session.set_incoming(incoming);
        session.state.snapshot = building.number;
        session.state.snapshot_blocks = building.blocks.len() as u32;
        session.commit(store);
        std::mem::replace(&mut session.snapshot, building.blocks).into_iter().for_each(|old| store.free(old));
        session.snapshot_octets = building.octets;
        session.incoming.forget_before(store, incoming);
        session.incoming.release_before_start(store);
    }

    /// Forgets the snapshot that was begun, if any.
    pub fn abort_snapshot(&mut self, id: SessionId) {
        let (store, session) = self.parts(id);
        let building = session.building.take();
        building.into_iter().flat_map(|building| building.blocks).for_each(|block| store.free(block));
    }

    /// The records of the snapshot that holds, in the order they were written.
    pub fn snapshot(&self, id: SessionId) -> impl Iterator<Item = &[u8]> {
        self.session(id).snapshot.iter().flat_map(|block| Records(self.store.block(*block)))
    }

    /// The records of one of its blocks, counted from 0; `None` behind the last.
    pub fn snapshot_block(&self, id: SessionId, number: usize) -> Option<impl Iterator<Item = &[u8]>> {
        self.session(id).snapshot.get(number).map(|block| Records(self.store.block(*block)))
    }
}

impl Building {
    /// Where the next record goes.
    fn at<M: Memory>(&self, store: &Store<M>) -> usize {
        store.layout.block_at(self.blocks[self.blocks.len() - 1]) + self.used
    }

    /// Says that there are no more records in the last block.
    fn end<M: Memory>(&self, store: &mut Store<M>) {
        if !self.blocks.is_empty() && self.used + LENGTH <= store.layout.block() {
            let at = self.at(store);
            store.write(at, &END.to_le_bytes());
        }
    }
}

impl Session {
    /// Takes the blocks of the snapshot that holds, by position, and frees those of any other.
    pub(crate) fn recover_snapshot<M: Memory>(
        &mut self,
        store: &mut Store<M>,
        mut blocks: Vec<(u64, u32)>,
    ) -> Result<(), Unreadable> {
        let first = u64::from(self.state.snapshot) << 32;
        let held = first..first + u64::from(self.state.snapshot_blocks);
        blocks.sort_unstable();
        for (position, block) in blocks {
            match held.contains(&position) {
                true if position == first + self.snapshot.len() as u64 => self.snapshot.push(block),
                true => return Err(Unreadable::Damaged("two blocks at one place of a snapshot")),
                false => store.free(block),
            }
        }
        if self.snapshot.len() as u64 != held.end - held.start {
            return Err(Unreadable::Damaged("part of a snapshot is missing"));
        }
        for block in &self.snapshot {
            let mut records = Records(store.block(*block));
            self.snapshot_octets += records.by_ref().map(|record| record.len() as u64).sum::<u64>();
            if !records.is_at_end() {
                return Err(Unreadable::Damaged("a record of a snapshot"));
            }
        }
        Ok(())
    }
}

/// Where the records of a block end; `None` if they do not.
pub(crate) fn records_end(block: &[u8]) -> Option<usize> {
    let mut records = Records(block);
    records.by_ref().for_each(drop);
    records.is_at_end().then(|| block.len() - records.0.len())
}

/// The records of a block.
struct Records<'a>(&'a [u8]);

impl Records<'_> {
    fn is_at_end(&self) -> bool {
        self.0.first_chunk().is_none_or(|length| u32::from_le_bytes(*length) == END)
    }
}

impl<'a> Iterator for Records<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        let (length, rest) = self.0.split_first_chunk::<LENGTH>()?;
        // `END` is longer than any block.
        let (record, rest) = rest.split_at_checked(u32::from_le_bytes(*length) as usize)?;
        self.0 = rest;
        Some(record)
    }
}

//! The log itself, its header and the sessions in it.

use crate::{
    Full, Memory, TooSmall,
    cell::{self, ACKNOWLEDGED, NUMBERS, RECEIVED, Record, SENT, State},
    entries::Entries,
    layout::{self, Layout, checksum},
    snapshot::Building,
    store::{Store, word},
    stream::Stream,
    suspects,
};

/// First word of a log.
pub(crate) const MAGIC: u64 = u64::from_le_bytes(*b"holdfast");
/// Format of everything this crate writes into a new log.
pub(crate) const FORMAT: u64 = 2;
/// What was sent is forgotten, blocks of entries have no number, and nothing says that an entry was based anew: there is
/// no [`Reader`](crate::Reader) of such a log. It is gone on with as it is.
pub(crate) const FIRST_FORMAT: u64 = 1;

/// Words of the header that never change: magic, format, octets of the memory, octets of a block, formats of the
/// driver, key (two words), and a sum over them.
pub(crate) const FIXED_WORDS: usize = 7;
/// Words of the header that do.
pub(crate) const NEXT_SESSION: usize = 128;
pub(crate) const LIVES: usize = NEXT_SESSION + 8;
/// Session that is being processed (0: none) in the low half; in the high half a number that changes with each.
pub(crate) const PROCESSING: usize = LIVES + 8;
/// The place among its octets.
pub(crate) const PLACE: usize = PROCESSING + 8;
/// How often an entry was given another previous one.
pub(crate) const REBASED: usize = PLACE + 8;
/// How often entries were collected: counted before any of them is freed.
pub(crate) const COLLECTED: usize = REBASED + 8;
/// The number of the last block of entries that was begun; 0 in a log of a build that has noted none.
pub(crate) const BEGUN: usize = COLLECTED + 8;

/// A session in the log. Never used for two sessions in one log.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionId(pub u32);

/// The replication log.
///
/// Offsets of a stream begin where [`Self::open`] says and never wrap: no stream reaches 2^63.
///
/// # Panics
/// Every call that takes a [`SessionId`] or an [`EntryId`](crate::EntryId) panics when that is not in the log, and
/// every one that takes an offset when the stream does not hold it: the driver got them from the log.
#[derive(Debug)]
pub struct Log<M> {
    pub(crate) store: Store<M>,
    /// By slot, the number of the session modulo the number of cells; as far as any slot was in use. There is one such log
    /// for each VRF, mostly with few sessions and room for thousands.
    pub(crate) sessions: Vec<Option<Box<Session>>>,
    pub(crate) entries: Entries,
    pub(crate) format: u64,
    pub(crate) formats: u64,
    pub(crate) key: [u8; 16],
    /// High half of [`PROCESSING`].
    pub(crate) turn: u32,
}

/// What the process knows of a session in the log.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) cell: usize,
    pub(crate) state: State,
    pub(crate) incoming: Stream,
    /// From what the peer has not acknowledged on.
    pub(crate) outgoing: Stream,
    /// Offset behind what the kernel has taken.
    pub(crate) sent: u64,
    pub(crate) snapshot: Vec<u32>,
    /// Octets of its records.
    pub(crate) snapshot_octets: u64,
    pub(crate) building: Option<Building>,
}

impl<M: Memory> Log<M> {
    /// A new log. The memory must read as zero throughout.
    ///
    /// `formats` is the driver's number for what it writes into records, entries and snapshots; `key` is 16 random
    /// octets, for hashes in entries that nobody outside can foresee.
    ///
    /// # Errors
    /// [`TooSmall`] below about half a mebibyte.
    pub fn create(memory: M, formats: u64, key: [u8; 16]) -> Result<Self, TooSmall> {
        Self::create_with_blocks(memory, formats, key, layout::BLOCK)
    }

    /// As [`Self::create`], with blocks of another size than 128 KiB: a power of two from 4 KiB to 1 GiB. Smaller
    /// blocks are for tests: the longest record, entry and octets received at a time shrink with them.
    ///
    /// # Errors
    /// [`TooSmall`] for less than four blocks, or blocks of another size.
    pub fn create_with_blocks(
        memory: M,
        formats: u64,
        key: [u8; 16],
        block: usize,
    ) -> Result<Self, TooSmall> {
        let octets = memory.octets().len();
        let layout = Layout::new(octets, block).ok_or(TooSmall)?;
        let mut store = Store::new(memory, layout, seed(key));
        store.set_word(NEXT_SESSION, 1);
        let fixed = fixed_words(FORMAT, octets, block, formats, key);
        for (i, word) in fixed.into_iter().enumerate().rev() {
            store.set_word(8 * i, word);
        }
        Ok(Self::empty(store, FORMAT, formats, key))
    }

    pub(crate) fn empty(store: Store<M>, format: u64, formats: u64, key: [u8; 16]) -> Self {
        Self { store, sessions: Vec::new(), entries: Entries::default(), format, formats, key, turn: 0 }
    }

    /// The memory, as the process would leave it if it died now.
    pub fn into_memory(self) -> M {
        self.store.into_memory()
    }

    /// The number given at [`Self::create`].
    pub fn formats(&self) -> u64 {
        self.formats
    }

    /// The key given at [`Self::create`].
    pub fn key(&self) -> [u8; 16] {
        self.key
    }

    /// Processes that had this log and died since the last [`Self::stable`].
    pub fn lives(&self) -> u32 {
        self.store.word(LIVES) as u32
    }

    /// The process that died last does not count in [`Self::lives`].
    pub fn spare_life(&mut self) {
        self.store.set_word(LIVES, self.lives().saturating_sub(1).into());
    }

    /// This process is well: [`Self::lives`] begins at 0 again.
    pub fn stable(&mut self) {
        self.store.set_word(LIVES, 0);
    }

    /// What this session caused is being processed from here on, until [`Self::leave`]: what stands at this place, and
    /// then at each that [`Self::advance`] names. A place is what the driver calls one, mostly an offset.
    #[inline]
    pub fn enter(&mut self, id: SessionId, place: u64) {
        self.turn = self.turn.wrapping_add(1);
        self.store.set_word(PLACE, place);
        self.store.set_word(PROCESSING, u64::from(self.turn) << 32 | u64::from(id.0));
    }

    /// What stands at this place of the session is being processed from here on.
    #[inline]
    pub fn advance(&mut self, place: u64) {
        self.store.set_word(PLACE, place);
    }

    /// No session is being processed.
    #[inline]
    pub fn leave(&mut self) {
        self.store.set_word(PROCESSING, u64::from(self.turn) << 32);
    }

    /// Processes that died while one and the same place of this session was being processed: of the place with the
    /// most. What other processes did in between makes no difference. A few places are known.
    pub fn suspicions(&self, id: SessionId) -> u32 {
        suspects::most(&self.store, self.session(id).cell)
    }

    #[cfg(test)]
    pub(crate) fn suspects(&self, id: SessionId) -> [suspects::Suspect; suspects::PLACES] {
        suspects::of(&self.store, self.session(id).cell)
    }

    /// Numbers of the driver's, 0 at first. Each is the one before or the new one, wherever the process dies.
    pub fn numbers(&self, id: SessionId) -> [u64; 5] {
        let cell = self.session(id).cell;
        std::array::from_fn(|i| self.store.word(cell + NUMBERS + 8 * i))
    }

    /// Replaces them.
    #[inline]
    pub fn set_numbers(&mut self, id: SessionId, numbers: [u64; 5]) {
        let cell = self.session(id).cell;
        for (i, number) in numbers.into_iter().enumerate() {
            self.store.change_word(cell + NUMBERS + 8 * i, number);
        }
    }

    /// Longest record, in octets: 5,354 with the usual blocks.
    pub fn longest_record(&self) -> usize {
        cell::longest_record(&self.store.layout)
    }

    /// Takes a session in whose streams begin at these offsets, below 2^62. Atomic.
    ///
    /// # Errors
    /// [`Full`] when there is no cell free, all numbers have been used, or the record is over
    /// [`Self::longest_record`].
    pub fn open(&mut self, incoming: u64, outgoing: u64, record: &[u8]) -> Result<SessionId, Full> {
        assert!(incoming.max(outgoing) < 1 << 62, "offsets leave room for a stream");
        if record.len() > self.longest_record() {
            return Err(Full);
        }
        let (id, slot) = self.vacancy()?;
        self.store.set_word(NEXT_SESSION, u64::from(id) + 1);
        // From here on the cell may hold something, until it says that it does not.
        self.store.set_word(self.store.layout.directory_at(slot), id.into());
        let cell = self.store.layout.cell_at(slot);
        let sequence = State::read(&self.store, cell).map_or(0, |last| last.sequence);
        self.store.set_word(cell + RECEIVED, incoming);
        self.store.set_word(cell + SENT, outgoing);
        self.store.set_word(cell + ACKNOWLEDGED, outgoing);
        // Of the session that had the cell before.
        let of_session = (0..5).map(|i| cell + NUMBERS + 8 * i).chain(suspects::places(cell));
        for at in of_session {
            self.store.change_word(at, 0);
        }
        let record = Record::default().write(&mut self.store, cell, record);
        let mut state = State { sequence, id, record, incoming, outgoing, ..State::default() };
        state.commit(&mut self.store, cell);
        let session = Session {
            cell,
            state,
            incoming: Stream::new(id, incoming),
            outgoing: Stream::new(id, outgoing),
            sent: outgoing,
            snapshot: Vec::new(),
            snapshot_octets: 0,
            building: None,
        };
        self.seat(slot, session);
        Ok(SessionId(id))
    }

    /// Puts a session into its slot.
    pub(crate) fn seat(&mut self, slot: usize, session: Session) {
        if self.sessions.len() <= slot {
            self.sessions.resize_with(slot + 1, || None);
        }
        self.sessions[slot] = Some(Box::new(session));
    }

    /// The next number whose slot is free: mostly the next one, for there are more cells than sessions fit in.
    fn vacancy(&self) -> Result<(u32, usize), Full> {
        let cells = self.store.layout.cells;
        let next = u32::try_from(self.store.word(NEXT_SESSION)).map_err(|_| Full)?;
        let mut numbers = (next..=u32::MAX).map(|id| (id, id as usize % cells)).take(cells);
        numbers.find(|(_, slot)| self.sessions.get(*slot).is_none_or(Option::is_none)).ok_or(Full)
    }

    /// Forgets a session and frees what it holds. Atomic.
    pub fn close(&mut self, id: SessionId) {
        let slot = self.slot(id);
        self.session(id);
        let Some(mut session) = self.sessions[slot].take() else { return };
        let sequence = session.state.sequence;
        State { sequence, ..State::default() }.commit(&mut self.store, session.cell);
        session.incoming.clear(&mut self.store);
        session.outgoing.clear(&mut self.store);
        let building = session.building.into_iter().flat_map(|building| building.blocks);
        session.snapshot.into_iter().chain(building).for_each(|block| self.store.free(block));
        self.store.set_word(self.store.layout.directory_at(slot), 0);
        self.store.release(session.cell..session.cell + self.store.layout.cell());
    }

    /// Whether more free memory is held than is used soon: [`Self::cool_some`] gives it back, in several calls.
    pub fn is_warm(&self) -> bool {
        self.store.is_warm()
    }

    /// Gives back some of the free memory that is not used soon: what a session had that ended takes tens of milliseconds.
    pub fn cool_some(&mut self) {
        self.store.cool_some();
    }

    /// Gives back memory that is kept for use soon, half of it each time: for when there was none.
    pub fn cool(&mut self) {
        self.store.cool();
    }

    /// The sessions in the log, in no order.
    pub fn sessions(&self) -> impl Iterator<Item = SessionId> {
        self.sessions.iter().flatten().map(|session| SessionId(session.state.id))
    }

    /// What is known of the session besides its octets: opaque.
    pub fn record(&self, id: SessionId) -> &[u8] {
        let session = self.session(id);
        session.state.record.read(&self.store, session.cell)
    }

    /// Replaces the record. Atomic.
    ///
    /// # Errors
    /// [`Full`] when it is over [`Self::longest_record`].
    pub fn set_record(&mut self, id: SessionId, record: &[u8]) -> Result<(), Full> {
        if record.len() > self.longest_record() {
            return Err(Full);
        }
        let (store, session) = self.parts(id);
        session.state.record = session.state.record.write(store, session.cell, record);
        session.commit(store);
        Ok(())
    }

    fn slot(&self, id: SessionId) -> usize {
        id.0 as usize % self.store.layout.cells
    }

    #[inline]
    pub(crate) fn session(&self, id: SessionId) -> &Session {
        let session = self.sessions.get(self.slot(id)).and_then(Option::as_deref);
        session.filter(|session| session.state.id == id.0).expect("the session is in the log")
    }

    #[inline]
    pub(crate) fn parts(&mut self, id: SessionId) -> (&mut Store<M>, &mut Session) {
        let slot = self.slot(id);
        let session = self.sessions.get_mut(slot).and_then(Option::as_deref_mut);
        let session = session.filter(|session| session.state.id == id.0).expect("the session is in the log");
        (&mut self.store, session)
    }
}

impl Session {
    pub(crate) fn commit<M: Memory>(&mut self, store: &mut Store<M>) {
        self.state.commit(store, self.cell);
    }
}

/// What sums begin with in a log with this key.
pub(crate) fn seed(key: [u8; 16]) -> u64 {
    checksum(0, key_words(key))
}

fn key_words(key: [u8; 16]) -> [u64; 2] {
    [word(&key, 0), word(&key, 8)]
}

/// The key of which these are the words.
pub(crate) fn key_of(words: [u64; 2]) -> [u8; 16] {
    let mut key = [0; 16];
    key.as_chunks_mut().0.iter_mut().zip(words).for_each(|(place, word)| *place = word.to_le_bytes());
    key
}

/// The words at the beginning of the header, with their sum.
pub(crate) fn fixed_words(
    format: u64,
    memory: usize,
    block: usize,
    formats: u64,
    key: [u8; 16],
) -> [u64; FIXED_WORDS + 1] {
    let [low, high] = key_words(key);
    let words = [MAGIC, format, memory as u64, block as u64, formats, low, high];
    let sum = checksum(0, words);
    std::array::from_fn(|i| words.get(i).copied().unwrap_or(sum))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_log_has_of_the_process_grows_with_its_sessions_and_not_with_its_size() {
        let of = |memory: usize| Log::create(vec![0; memory], 1, [7; 16]).expect("large enough");
        let held = |log: &Log<Vec<u8>>| {
            let sessions = log.sessions.capacity() * size_of::<Option<Box<Session>>>();
            sessions + log.store.lists() + log.entries.lists()
        };
        let mut log = of(1 << 30);
        assert_eq!(held(&log), 0);
        let id = log.open(0, 0, &[]).expect("room");
        log.push(id, &[1; 200_000], None).expect("room");
        log.append(crate::EntryId::NONE, b"entry").expect("room");
        log.close(id);
        assert!(held(&log) < 1000, "{} octets", held(&log));
        assert_eq!(
            log.free_blocks(),
            log.store.layout.blocks - 1,
            "every block is free but that of the entry"
        );
    }
}

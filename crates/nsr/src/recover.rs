//! Taking over the log of a process that died.

use crate::{
    Log, Memory, Unreadable,
    cell::{ACKNOWLEDGED, RECEIVED, SENT, State},
    layout::{Layout, PAGE},
    log::{
        FIRST_FORMAT, FIXED_WORDS, FORMAT, LIVES, MAGIC, NEXT_SESSION, PLACE, PROCESSING, Session,
        fixed_words, key_of, seed,
    },
    store::{Claim, Kind, Store, word},
    stream::Stream,
    suspects,
};

impl<M: Memory> Log<M> {
    /// The log that another process left in this memory. Counts a death ([`Self::lives`]), against the session that
    /// was being processed as well ([`Self::suspicions`]). To die in here does no harm either.
    ///
    /// Before the streams of a session are used, [`Self::set_received`] and [`Self::set_sent`] say what the kernel
    /// knows. Entries live as long as a [`Self::passed`] reaches them.
    ///
    /// # Errors
    /// [`Unreadable`] when the memory holds no log of this format, or one that contradicts itself.
    pub fn recover(memory: M) -> Result<Self, Unreadable> {
        let octets = memory.octets();
        let Header { layout, format, formats, key } = Header::read(octets.len(), |at| word(octets, at))?;
        let mut blocks: Vec<Vec<(u32, Claim)>> = Vec::new();
        blocks.resize_with(layout.cells, Vec::new);
        let mut entries = Vec::new();
        let mut store = Store::recovered(memory, layout, seed(key), |block, claim| match claim.kind {
            Kind::Entries => entries.push((block, claim.position)),
            _ => blocks[claim.owner as usize % layout.cells].push((block, claim)),
        })?;
        let lives = store.word(LIVES) as u32;
        store.set_word(LIVES, lives.saturating_add(1).into());
        let mut log = Self::empty(store, format, formats, key);
        for (slot, blocks) in blocks.into_iter().enumerate() {
            log.recover_session(slot, blocks)?;
        }
        log.recover_entries(entries)?;
        log.count_suspicion();
        Ok(log)
    }

    /// Takes up the session of a slot, if there is one, and frees what belongs to none.
    fn recover_session(&mut self, slot: usize, blocks: Vec<(u32, Claim)>) -> Result<(), Unreadable> {
        let cell = self.store.layout.cell_at(slot);
        let state = match self.store.word(self.store.layout.directory_at(slot)) {
            0 => None,
            _ => State::read(&self.store, cell),
        };
        let state = state.unwrap_or_default();
        let (blocks, strays): (Vec<_>, _) =
            blocks.into_iter().partition(|(_, claim)| state.id != 0 && claim.owner == state.id);
        strays.into_iter().for_each(|(block, _)| self.store.free(block));
        if state.id == 0 {
            return Ok(());
        }
        let is_ours = state.id as usize % self.store.layout.cells == slot;
        if !is_ours || u64::from(state.id) >= self.store.word(NEXT_SESSION) {
            return Err(Unreadable::Damaged("the number of a session"));
        }
        if !state.record.is_whole(&self.store, cell) {
            return Err(Unreadable::Damaged("a record"));
        }
        let session = Session::recovered(&mut self.store, self.format, cell, state, &blocks)?;
        self.seat(slot, session);
        Ok(())
    }

    /// Counts the death against the place that was being processed: once, even if the process dies again in here.
    fn count_suspicion(&mut self) {
        let processing = self.store.word(PROCESSING);
        self.turn = (processing >> 32) as u32;
        let mut sessions = self.sessions.iter().flatten();
        if let Some(session) = sessions.find(|session| session.state.id == processing as u32) {
            let place = self.store.word(PLACE);
            suspects::count(&mut self.store, session.cell, place, self.turn);
        }
        self.leave();
    }
}

impl Session {
    fn recovered<M: Memory>(
        store: &mut Store<M>,
        format: u64,
        cell: usize,
        state: State,
        blocks: &[(u32, Claim)],
    ) -> Result<Self, Unreadable> {
        let of = |kind: Kind| {
            let blocks = blocks.iter().filter(|(_, claim)| claim.kind == kind);
            blocks.map(|(block, claim)| (claim.position, *block)).collect::<Vec<_>>()
        };
        let (received, sent) = (store.word(cell + RECEIVED), store.word(cell + SENT));
        let incoming = Stream::new(state.id, state.incoming);
        let acknowledged = if format == FIRST_FORMAT { sent } else { store.word(cell + ACKNOWLEDGED) };
        if !(acknowledged..=state.outgoing).contains(&sent) {
            return Err(Unreadable::Damaged("what was sent"));
        }
        let outgoing = Stream::new(state.id, acknowledged);
        let mut session = Self {
            cell,
            state,
            incoming: incoming.recovered(store, received, of(Kind::Incoming))?,
            outgoing: outgoing.recovered(store, state.outgoing, of(Kind::Outgoing))?,
            sent,
            snapshot: Vec::new(),
            snapshot_octets: 0,
            building: None,
        };
        session.recover_snapshot(store, of(Kind::Snapshot))?;
        Ok(session)
    }
}

/// What the header says.
pub(crate) struct Header {
    pub(crate) layout: Layout,
    pub(crate) format: u64,
    pub(crate) formats: u64,
    pub(crate) key: [u8; 16],
}

impl Header {
    /// Reads it from a memory of so many octets.
    pub(crate) fn read(octets: usize, word: impl Fn(usize) -> u64) -> Result<Self, Unreadable> {
        if octets < PAGE || word(0) != MAGIC {
            return Err(Unreadable::NoLog);
        }
        let words: [u64; FIXED_WORDS + 1] = std::array::from_fn(|i| word(8 * i));
        let [_, format, memory, block, formats, low, high, _] = words;
        if ![FIRST_FORMAT, FORMAT].contains(&format) {
            return Err(Unreadable::Format(format));
        }
        let key = key_of([low, high]);
        let damaged = Unreadable::Damaged("the header");
        let block = usize::try_from(block).map_err(|_| damaged)?;
        if memory != octets as u64 || words != fixed_words(format, octets, block, formats, key) {
            return Err(damaged);
        }
        let layout = Layout::new(octets, block).ok_or(damaged)?;
        Ok(Self { layout, format, formats, key })
    }
}

//! The octets of a session, each direction in blocks of its own.

use std::{collections::VecDeque, ops::Range};

use crate::{
    EntryId, Full, Inconsistent, Log, Memory, SessionId, Unreadable,
    cell::{ACKNOWLEDGED, RECEIVED, SENT},
    log::Session,
    store::{Store, Taker},
};

/// No stream gets this far.
const LIMIT: u64 = 1 << 63;

/// Octets `start..end` of a stream. The blocks follow each other without a gap from offset `first` on; behind `end`
/// there may be room.
#[derive(Debug)]
pub(crate) struct Stream {
    owner: u32,
    blocks: VecDeque<u32>,
    /// Offset of the first octet of the first block.
    first: u64,
    pub(crate) start: u64,
    pub(crate) end: u64,
}

impl Stream {
    pub(crate) fn new(owner: u32, at: u64) -> Self {
        Self { owner, blocks: VecDeque::new(), first: at, start: at, end: at }
    }

    /// Puts together what the table says. Blocks before the start are freed: the process died between the commit that
    /// made them useless and their freeing. Blocks behind the end are room.
    pub(crate) fn recovered<M: Memory>(
        mut self,
        store: &mut Store<M>,
        end: u64,
        mut blocks: Vec<(u64, u32)>,
    ) -> Result<Self, Unreadable> {
        let damaged = Unreadable::Damaged("a stream");
        let block = store.layout.block() as u64;
        blocks.sort_unstable();
        blocks.retain(|(first, index)| {
            let is_useless = first.checked_add(block).is_some_and(|next| next <= self.start);
            if is_useless {
                store.free(*index);
            }
            !is_useless
        });
        let follow = blocks.windows(2).all(|pair| pair[0].0.checked_add(block) == Some(pair[1].0));
        self.first = blocks.first().map_or(self.start, |(first, _)| *first);
        self.blocks = blocks.into_iter().map(|(_, index)| index).collect();
        let limit = self.first.checked_add(self.blocks.len() as u64 * block).ok_or(damaged)?;
        if !(follow && self.first <= self.start && self.start <= end && end <= limit && limit < LIMIT) {
            return Err(damaged);
        }
        self.end = end;
        Ok(self)
    }

    pub(crate) fn len(&self) -> u64 {
        self.end - self.start
    }

    pub(crate) fn blocks(&self) -> usize {
        self.blocks.len()
    }

    /// Offset behind the room of the last block.
    #[inline]
    pub(crate) fn limit<M: Memory>(&self, store: &Store<M>) -> u64 {
        if self.blocks.is_empty() {
            self.end
        } else {
            self.first + (self.blocks.len() * store.layout.block()) as u64
        }
    }

    /// Adds a block of room.
    fn grow<M: Memory>(&mut self, store: &mut Store<M>, taker: Taker) -> Result<(), Full> {
        let position = self.limit(store);
        let block = store.claim(taker, self.owner, position)?;
        if self.blocks.is_empty() {
            self.first = position;
        }
        self.blocks.push_back(block);
        Ok(())
    }

    /// Adds room until there are so many octets, or none.
    pub(crate) fn reserve<M: Memory>(
        &mut self,
        store: &mut Store<M>,
        taker: Taker,
        octets: usize,
    ) -> Result<(), Full> {
        let before = self.blocks.len();
        while self.limit(store) - self.end < octets as u64 {
            if let Err(full) = self.grow(store, taker) {
                self.shrink(store, before);
                return Err(full);
            }
        }
        Ok(())
    }

    fn shrink<M: Memory>(&mut self, store: &mut Store<M>, blocks: usize) {
        while self.blocks.len() > blocks {
            self.blocks.pop_back().into_iter().for_each(|block| store.free(block));
        }
    }

    /// An empty stream goes on at the beginning of its block: one that is drained time and again touches the same
    /// pages. Nothing that still matters stands in the blocks, so dying on the way does no harm.
    #[inline]
    pub(crate) fn restart<M: Memory>(&mut self, store: &mut Store<M>) {
        if self.start == self.end && self.first != self.end && !self.blocks.is_empty() {
            self.shrink(store, 1);
            store.set_position(self.blocks[0], self.end);
            self.first = self.end;
        }
    }

    /// Writes octets behind the end, for which there is room. They count when the caller moves the end.
    pub(crate) fn write<M: Memory>(&self, store: &mut Store<M>, mut octets: &[u8]) {
        let mut offset = self.end;
        while !octets.is_empty() {
            let (at, room) = self.place(store, offset);
            let (now, later) = octets.split_at(room.min(octets.len()));
            store.write(at, now);
            (offset, octets) = (offset + now.len() as u64, later);
        }
    }

    /// Where an offset stands in the memory, and how many octets there are from there to the end of the block.
    #[inline]
    pub(crate) fn place<M: Memory>(&self, store: &Store<M>, offset: u64) -> (usize, usize) {
        let (block, within) = store.layout.split(offset - self.first);
        (store.layout.block_at(self.blocks[block]) + within, store.layout.block() - within)
    }

    /// What is held from an offset on, up to the end of its block.
    #[inline]
    pub(crate) fn read<'a, M: Memory>(&self, store: &'a Store<M>, from: u64) -> &'a [u8] {
        if from == self.end {
            return &[];
        }
        let (at, room) = self.place(store, from);
        let held = usize::try_from(self.end - from).unwrap_or(usize::MAX);
        &store.octets()[at..][..room.min(held)]
    }

    /// Moves the start and frees what lies before. An empty stream keeps no block: of thousands of sessions nearly all
    /// are empty nearly all the time, and take their turns with the same few blocks, and the pages of these.
    #[inline]
    pub(crate) fn forget_before<M: Memory>(&mut self, store: &mut Store<M>, offset: u64) {
        let block = store.layout.block() as u64;
        self.start = offset;
        if self.start == self.end {
            return self.clear(store);
        }
        while self.first + block <= offset {
            let Some(index) = self.blocks.pop_front() else { return };
            store.free(index);
            self.first += block;
        }
    }

    /// Gives back the pages before the start in the first block.
    pub(crate) fn release_before_start<M: Memory>(&self, store: &mut Store<M>) {
        if let Some(&block) = self.blocks.front() {
            let at = store.layout.block_at(block);
            store.release(at..at + (self.start - self.first) as usize);
        }
    }

    /// Frees all blocks.
    pub(crate) fn clear<M: Memory>(&mut self, store: &mut Store<M>) {
        self.shrink(store, 0);
    }
}

/// Octets that come in.
impl<M: Memory> Log<M> {
    /// Where the next octets go: the first slice is to be filled first. Together they have room for at least `least`
    /// octets, which may not be more than a block (128 KiB).
    ///
    /// # Errors
    /// [`Full`] when there is less room, or an eighth of all blocks is free and no more, those of
    /// [`Self::hold_back`] apart: the rest is for what makes room, snapshots above all.
    pub fn room(&mut self, id: SessionId, least: usize) -> Result<[&mut [u8]; 2], Full> {
        let (store, session) = self.parts(id);
        debug_assert!(least <= store.layout.block(), "at most a block is received at a time");
        let stream = &mut session.incoming;
        stream.restart(store);
        stream.reserve(store, Taker::Incoming, least)?;
        let (limit, end) = (stream.limit(store), stream.end);
        let place = |offset: u64| match limit > offset {
            true => {
                let (at, room) = stream.place(store, offset);
                at..at + room
            }
            false => 0..0,
        };
        let first = place(end);
        let second = place(end + first.len() as u64);
        Ok(store.places([first, second]))
    }

    /// So many octets were received into [`Self::room`]; after none the room of an empty stream is given back.
    #[inline]
    pub fn received(&mut self, id: SessionId, octets: usize) {
        let (store, session) = self.parts(id);
        let end = session.incoming.end + octets as u64;
        assert!(end <= session.incoming.limit(store), "octets are received where there is room");
        session.incoming.end = end;
        store.change_word(session.cell + RECEIVED, end);
        if session.incoming.start == end {
            session.incoming.clear(store);
        }
    }

    /// Offsets of the octets held.
    pub fn incoming(&self, id: SessionId) -> Range<u64> {
        let stream = &self.session(id).incoming;
        stream.start..stream.end
    }

    /// The octets from an offset up to the end of their block or of the stream; none at the end of the stream.
    #[inline]
    pub fn read(&self, id: SessionId, from: u64) -> &[u8] {
        let stream = &self.session(id).incoming;
        assert!((stream.start..=stream.end).contains(&from), "the octets are held");
        stream.read(&self.store, from)
    }

    /// After [`Self::recover`]: the kernel has handed over the octets before `end`, be it that the process had no
    /// time to say so with [`Self::received`].
    ///
    /// # Errors
    /// [`Inconsistent`] when that cannot be.
    pub fn set_received(&mut self, id: SessionId, end: u64) -> Result<(), Inconsistent> {
        let (store, session) = self.parts(id);
        let (least, most) = (session.incoming.end, session.incoming.limit(store));
        if !(least..=most).contains(&end) {
            return Err(Inconsistent { offset: end, least, most });
        }
        session.incoming.end = end;
        store.set_word(session.cell + RECEIVED, end);
        Ok(())
    }

    /// Octets before `to` have no effect that the snapshot lacks: they are forgotten. Atomic.
    ///
    /// For those that change nothing, so that an idle session does not fill the log. A session with no octets
    /// held has no block.
    pub fn trim(&mut self, id: SessionId, to: u64) {
        let (store, session) = self.parts(id);
        session.set_incoming(to);
        session.commit(store);
        session.incoming.forget_before(store, to);
    }
}

/// Octets that go out.
impl<M: Memory> Log<M> {
    /// Hands over octets to be sent, and says which entry the session has passed with them (`None`: the same as
    /// before). Atomic.
    ///
    /// # Errors
    /// [`Full`] when the octets find no room. Those without an entry find some where others do not: the last blocks are
    /// theirs.
    pub fn push(&mut self, id: SessionId, octets: &[u8], passed: Option<EntryId>) -> Result<(), Full> {
        let (store, session) = self.parts(id);
        let stream = &mut session.outgoing;
        stream.restart(store);
        let taker = if passed.is_some() { Taker::Announcements } else { Taker::Messages };
        stream.reserve(store, taker, octets.len())?;
        stream.write(store, octets);
        stream.end += octets.len() as u64;
        session.state.outgoing = stream.end;
        if let Some(entry) = passed {
            session.state.passed = entry.bits();
        }
        session.commit(store);
        Ok(())
    }

    /// Offsets of the octets handed over and not known to be taken by the kernel.
    pub fn outgoing(&self, id: SessionId) -> Range<u64> {
        let session = self.session(id);
        session.sent..session.outgoing.end
    }

    /// Offsets of the octets handed over and not known to be acknowledged.
    pub fn unacknowledged(&self, id: SessionId) -> Range<u64> {
        let stream = &self.session(id).outgoing;
        stream.start..stream.end
    }

    /// The octets of [`Self::outgoing`].
    pub fn unsent(&self, id: SessionId) -> impl Iterator<Item = &[u8]> {
        let session = self.session(id);
        let stream = &session.outgoing;
        let mut from = session.sent;
        std::iter::from_fn(move || {
            let octets = stream.read(&self.store, from);
            from += octets.len() as u64;
            (!octets.is_empty()).then_some(octets)
        })
    }

    /// The kernel took so many of them. They are held until [`Self::acknowledged`].
    #[inline]
    pub fn sent(&mut self, id: SessionId, octets: usize) {
        let (store, session) = self.parts(id);
        let sent = session.sent + octets as u64;
        assert!(sent <= session.outgoing.end, "what was sent was handed over before");
        session.set_sent(store, sent);
    }

    /// The octets before `to` have arrived, or need not be held for another reason: they are forgotten. Any lower bound
    /// will do, also one of an earlier call. What was not sent is held on.
    #[inline]
    pub fn acknowledged(&mut self, id: SessionId, to: u64) {
        let (store, session) = self.parts(id);
        let to = to.min(session.sent);
        if to > session.outgoing.start {
            store.set_word(session.cell + ACKNOWLEDGED, to);
            session.outgoing.forget_before(store, to);
        }
    }

    /// After [`Self::recover`]: the kernel has taken the octets before `end`.
    ///
    /// # Errors
    /// [`Inconsistent`] when that cannot be.
    pub fn set_sent(&mut self, id: SessionId, end: u64) -> Result<(), Inconsistent> {
        let (store, session) = self.parts(id);
        let (least, most) = (session.sent, session.outgoing.end);
        if !(least..=most).contains(&end) {
            return Err(Inconsistent { offset: end, least, most });
        }
        session.set_sent(store, end);
        Ok(())
    }

    /// The last entry the session has passed.
    pub fn passed(&self, id: SessionId) -> EntryId {
        EntryId::from_bits(self.session(id).state.passed)
    }

    /// The session has passed an entry without octets. Atomic.
    pub fn set_passed(&mut self, id: SessionId, entry: EntryId) {
        let (store, session) = self.parts(id);
        session.state.passed = entry.bits();
        session.commit(store);
    }
}

impl Session {
    /// Where the octets held shall begin from the next commit on.
    pub(crate) fn set_incoming(&mut self, to: u64) {
        assert!((self.incoming.start..=self.incoming.end).contains(&to), "the octets are held");
        self.state.incoming = to;
    }

    fn set_sent<M: Memory>(&mut self, store: &mut Store<M>, sent: u64) {
        store.set_word(self.cell + SENT, sent);
        self.sent = sent;
    }
}

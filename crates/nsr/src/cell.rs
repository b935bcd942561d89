//! The cell of a session: what must change at once.
//!
//! ```text
//! state, one copy; numbers │ state, other copy │ received, sent, acknowledged, suspects │ record, and room for the next one
//! ```
//! A commit writes the copy that does not hold, with the next sequence number and a sum. Whenever the process dies,
//! one copy is whole, and the whole one with the higher number holds.

use std::ops::Range;

use crate::{
    Memory,
    layout::{Layout, checksum, checksum_octets},
    store::{Store, word},
    suspects,
};

const COPY: usize = 128;
pub(crate) const WORDS: usize = 9;
/// Words that change alone: see [`Store::set_word`].
pub(crate) const NUMBERS: usize = 8 * WORDS;
pub(crate) const RECEIVED: usize = 2 * COPY;
pub(crate) const SENT: usize = RECEIVED + 8;
/// In the first format this word has no meaning: what was sent was forgotten.
pub(crate) const ACKNOWLEDGED: usize = SENT + 8;
pub(crate) const SUSPECTS: usize = ACKNOWLEDGED + 8;
const RECORDS: usize = SUSPECTS + 8 * suspects::PLACES;

/// What a commit makes true of a session.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct State {
    pub(crate) sequence: u64,
    /// The session, 0: none.
    pub(crate) id: u32,
    pub(crate) record: Record,
    /// Offset of the first octet held.
    pub(crate) incoming: u64,
    /// Offset behind the last octet handed over.
    pub(crate) outgoing: u64,
    /// The entry passed with that.
    pub(crate) passed: u64,
    /// Number of the snapshot that holds, and how many blocks it has.
    pub(crate) snapshot: u32,
    pub(crate) snapshot_blocks: u32,
}

/// Where the record stands in the cell.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Record {
    at: u32,
    length: u32,
    sum: u64,
}

/// Longest record, in octets: with a third of the room for each there is always one free beside that which holds.
pub(crate) fn longest_record(layout: &Layout) -> usize {
    (layout.cell() - RECORDS) / 3
}

impl State {
    /// The state that holds, of an open session or of the last one that was; `None` when there was none.
    pub(crate) fn read<M: Memory>(store: &Store<M>, cell: usize) -> Option<Self> {
        let copies = Self::places(cell).map(|at| Self::decode(store, cell, at));
        copies.into_iter().flatten().max_by_key(|state| state.sequence)
    }

    /// Makes this the state that holds.
    #[inline]
    pub(crate) fn commit<M: Memory>(&mut self, store: &mut Store<M>, cell: usize) {
        self.sequence += 1;
        let mut octets = [0; 8 * WORDS];
        for (place, word) in octets.chunks_exact_mut(8).zip(self.encode(store.seed ^ cell as u64)) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        store.write_in_order(cell + (self.sequence & 1) as usize * COPY, &octets);
    }

    fn encode(&self, seed: u64) -> [u64; WORDS] {
        let pair = |low: u32, high: u32| u64::from(low) | u64::from(high) << 32;
        let mut words = [
            self.sequence,
            u64::from(self.id),
            pair(self.record.at, self.record.length),
            self.record.sum,
            self.incoming,
            self.outgoing,
            self.passed,
            pair(self.snapshot, self.snapshot_blocks),
            0,
        ];
        words[WORDS - 1] = checksum(seed, words[..WORDS - 1].iter().copied());
        words
    }

    fn decode<M: Memory>(store: &Store<M>, cell: usize, at: usize) -> Option<Self> {
        let words = std::array::from_fn(|i| word(store.octets(), at + 8 * i));
        Self::from_words(store.seed, cell, words)
    }

    /// Where the copies of a cell stand.
    pub(crate) fn places(cell: usize) -> [usize; 2] {
        [cell, cell + COPY]
    }

    /// What the words of a copy say, if they are whole.
    pub(crate) fn from_words(seed: u64, cell: usize, words: [u64; WORDS]) -> Option<Self> {
        let low = |word: u64| word as u32;
        let high = |word: u64| (word >> 32) as u32;
        let state = Self {
            sequence: words[0],
            id: low(words[1]),
            record: Record { at: low(words[2]), length: high(words[2]), sum: words[3] },
            incoming: words[4],
            outgoing: words[5],
            passed: words[6],
            snapshot: low(words[7]),
            snapshot_blocks: high(words[7]),
        };
        (state.encode(seed ^ cell as u64) == words).then_some(state)
    }
}

impl Record {
    /// Writes a record of at most [`longest_record`] beside the one that holds.
    pub(crate) fn write<M: Memory>(self, store: &mut Store<M>, cell: usize, record: &[u8]) -> Self {
        let length = record.len() as u32;
        // At the front where it fits: short records then share the page of the cell's state.
        let at = if length <= self.at { 0 } else { self.at + self.length };
        store.write(cell + RECORDS + at as usize, record);
        Self { at, length, sum: checksum_octets(store.seed, record) }
    }

    pub(crate) fn read<M: Memory>(self, store: &Store<M>, cell: usize) -> &[u8] {
        &store.octets()[cell + RECORDS + self.at as usize..][..self.length as usize]
    }

    /// Where it stands, if it lies in the cell.
    pub(crate) fn place(self, layout: &Layout, cell: usize) -> Option<Range<usize>> {
        let (at, length) = (self.at as usize, self.length as usize);
        let start = cell + RECORDS + at;
        (at + length <= layout.cell() - RECORDS).then_some(start..start + length)
    }

    /// Whether these are its octets.
    pub(crate) fn is(self, seed: u64, octets: &[u8]) -> bool {
        checksum_octets(seed, octets) == self.sum
    }

    /// Whether it lies in the cell and is as it was written.
    pub(crate) fn is_whole<M: Memory>(self, store: &Store<M>, cell: usize) -> bool {
        let place = self.place(&store.layout, cell);
        place.is_some_and(|place| self.is(store.seed, &store.octets()[place]))
    }
}

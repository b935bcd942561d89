//! Numbered records in a memory, and the order in which changes of them become visible.
//!
//! ```text
//! header  magic:u64  format:u64  records begun:u64  key of marks:u64 u64  octets of the note:u64  zeros  note
//! ```

use super::record::{self, Octets, RECORD, Record, STATE};
use crate::{
    Memory, SignatureName, Unreadable,
    store::{word, write_in_order},
};

/// First word of a memory with signatures.
const MAGIC: u64 = u64::from_le_bytes(*b"holdsigs");
/// Format of the memory. A process that does not know it takes it for nothing: it signs anew.
pub(crate) const FORMAT: u64 = 1;
/// Octets before the first record.
pub(crate) const HEADER: usize = 4096;
const BEGUN: usize = 16;
const KEY: usize = 24;
const NOTED: usize = 40;
const NOTE: usize = 64;
/// Octets of a note at most.
pub const MOST_NOTED: usize = HEADER - NOTE;

/// What a record is read as that is not in the memory.
static VOID: Octets = [0; RECORD];

#[derive(Debug)]
pub(crate) struct Records<M> {
    memory: M,
    begun: u32,
}

impl<M: Memory> Records<M> {
    /// No records, in a memory with room for the header.
    pub(crate) fn create(mut memory: M) -> Self {
        write_in_order(&mut memory, BEGUN, &0u64.to_le_bytes());
        write_in_order(&mut memory, NOTED, &0u64.to_le_bytes());
        write_in_order(&mut memory, 8, &FORMAT.to_le_bytes());
        write_in_order(&mut memory, 0, &MAGIC.to_le_bytes());
        Self { memory, begun: 0 }
    }

    /// Those that another process has left.
    pub(crate) fn recover(memory: M) -> Result<Self, Unreadable> {
        let octets = memory.octets();
        if octets.len() < HEADER || word(octets, 0) != MAGIC {
            return Err(Unreadable::NoSignatures);
        }
        if word(octets, 8) != FORMAT {
            return Err(Unreadable::SignatureFormat(word(octets, 8)));
        }
        let begun = u32::try_from(word(octets, BEGUN));
        let records = Self { begun: begun.unwrap_or(u32::MAX), memory };
        match records.begun <= records.room() {
            true => Ok(records),
            false => Err(Unreadable::Damaged("the number of signatures")),
        }
    }

    /// Words that whoever writes here has chosen for all who come after.
    pub(crate) fn key(&self) -> [u64; 2] {
        [KEY, KEY + 8].map(|at| word(self.memory.octets(), at))
    }

    pub(crate) fn set_key(&mut self, key: [u64; 2]) {
        write_in_order(&mut self.memory, KEY, &key[0].to_le_bytes());
        write_in_order(&mut self.memory, KEY + 8, &key[1].to_le_bytes());
    }

    /// What was noted last, if that was written to its end.
    pub(crate) fn noted(&self) -> &[u8] {
        let octets = self.memory.octets();
        let length = usize::try_from(word(octets, NOTED)).unwrap_or(0);
        octets[NOTE..HEADER].get(..length).unwrap_or_default()
    }

    /// Takes the place of what was noted before. One that is too long is none.
    pub(crate) fn note(&mut self, note: &[u8]) {
        write_in_order(&mut self.memory, NOTED, &0u64.to_le_bytes());
        if note.len() <= MOST_NOTED {
            write_in_order(&mut self.memory, NOTE, note);
            write_in_order(&mut self.memory, NOTED, &(note.len() as u64).to_le_bytes());
        }
    }

    /// Records that the memory has room for.
    pub(crate) fn room(&self) -> u32 {
        let records = self.memory.octets().len().saturating_sub(HEADER) / RECORD;
        super::number(records)
    }

    /// Records that were ever begun; the others have never been touched.
    pub(crate) fn begun(&self) -> u32 {
        self.begun
    }

    /// The record behind the last one. Only one that was dropped can be there: it counts until it is written over, and
    /// is right for what it was made for.
    pub(crate) fn begin(&mut self) -> u32 {
        let number = self.begun;
        self.set_begun(number + 1);
        number
    }

    /// There are only so many records, if there are more.
    pub(crate) fn truncate(&mut self, records: u32) {
        if records < self.begun {
            let end = place(self.begun);
            self.set_begun(records);
            self.memory.release(place(records)..end);
        }
    }

    /// Writes a record. It is void until all of it is there.
    pub(crate) fn write(&mut self, number: u32, octets: &Octets) {
        let (state, rest) = octets.split_at(STATE);
        if !self.is_void(number) {
            self.set_state(number, &[0; STATE]);
        }
        write_in_order(&mut self.memory, place(number) + STATE, rest);
        self.set_state(number, state);
    }

    /// A record that is whole.
    pub(crate) fn read(&self, number: u32) -> Option<Record<'_>> {
        Record::decode(self.octets(number))
    }

    pub(crate) fn is_void(&self, number: u32) -> bool {
        self.octets(number)[..STATE] == [0; STATE]
    }

    /// Whom a record is of that [`Self::read`] has found whole, or [`Self::write`] has written; so of the next two.
    #[inline]
    pub(crate) fn name(&self, number: u32) -> Option<SignatureName> {
        record::name(self.octets(number))
    }

    #[inline]
    pub(crate) fn mark(&self, number: u32) -> u64 {
        record::mark(self.octets(number))
    }

    #[inline]
    pub(crate) fn signature(&self, number: u32) -> &[u8] {
        record::signature(self.octets(number))
    }

    pub(crate) fn memory(&self) -> &M {
        &self.memory
    }

    pub(crate) fn into_memory(self) -> M {
        self.memory
    }

    #[inline]
    fn octets(&self, number: u32) -> &Octets {
        self.memory.octets().get(place(number)..).and_then(|rest| rest.first_chunk()).unwrap_or(&VOID)
    }

    /// The word by which a record counts: one store.
    fn set_state(&mut self, number: u32, state: &[u8]) {
        write_in_order(&mut self.memory, place(number), state);
    }

    fn set_begun(&mut self, begun: u32) {
        self.begun = begun;
        write_in_order(&mut self.memory, BEGUN, &u64::from(begun).to_le_bytes());
    }
}

/// Where a record begins: at a multiple of four, so that its state lies in one word.
#[inline]
fn place(number: u32) -> usize {
    HEADER + number as usize * RECORD
}

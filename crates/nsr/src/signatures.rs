//! The signatures that a router has made, in memory that outlives the process: the next one sends the same octets.
//!
//! ```text
//! header │ record 0 │ record 1 │ …      records follow each other, so that memory is touched only as it fills
//! ```
//! A record counts by its first word, which is written last and made void before anything else of it changes. So a
//! death loses the signature that was being written, or the one in whose place it was to come, and no other.

mod index;
mod record;
mod records;

use std::ops::Range;

use holdfast_types::{Asn, HashKey, Prefix};

use crate::{Memory, TooSmall, Unreadable};
use index::Index;
use record::{RECORD, Record};
pub(crate) use records::FORMAT;
pub use records::MOST_NOTED;
use records::{HEADER, Records};

/// Records that are looked at for one whose prefix is not in use.
pub const MOST_LOOKED_AT: u32 = 64;

/// Names the signature of a route: one is kept for each.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub struct SignatureName {
    /// Of the route.
    pub prefix: Prefix,
    /// The AS that it is announced to.
    pub target: Asn,
    /// Tells the signatures of one route to one AS apart.
    pub slot: u32,
}

/// Signatures by name, at most so many.
#[derive(Debug)]
pub struct Signatures<M> {
    records: Records<M>,
    index: Index,
    most: u32,
    /// Void records between others.
    free: Vec<u32>,
    /// The next record to be looked at where there is no room.
    hand: u32,
    lost: u64,
}

impl<M: Memory> Signatures<M> {
    /// Room for `most` records in an empty memory. The key is for hashes of this process.
    ///
    /// # Errors
    /// [`TooSmall`] for less than [`Self::octets_for`] so many.
    pub fn create(memory: M, most: usize, key: HashKey) -> Result<Self, TooSmall> {
        if memory.octets().len() < Self::octets_for(most) {
            return Err(TooSmall);
        }
        let records = Records::create(memory);
        let most = number(most);
        Ok(Self { records, index: Index::new(key, 0), most, free: Vec::new(), hand: 0, lost: 0 })
    }

    /// What an earlier process has left. `most` may be another than it had: as many as there is room for in the memory,
    /// and records beyond are dropped and count as lost. So do records that are damaged.
    ///
    /// # Errors
    /// [`Unreadable`] when the memory holds no signatures of this format.
    pub fn recover(memory: M, most: usize, key: HashKey) -> Result<Self, Unreadable> {
        let records = Records::recover(memory)?;
        let most = number(most).min(records.room());
        let index = Index::new(key, records.begun().min(most) as usize);
        let mut signatures = Self { records, index, most, free: Vec::new(), hand: 0, lost: 0 };
        signatures.drop_from(most);
        (0..signatures.records.begun()).for_each(|number| signatures.recover_record(number));
        Ok(signatures)
    }

    /// Two words that are the same for all who go on with this memory: of the marks, say. Zeros at first.
    pub fn key(&self) -> [u64; 2] {
        self.records.key()
    }

    /// Chooses those words.
    pub fn set_key(&mut self, key: [u64; 2]) {
        self.records.set_key(key);
    }

    /// What was noted last for whoever goes on; nothing at first.
    pub fn noted(&self) -> &[u8] {
        self.records.noted()
    }

    /// Notes something, at most [`MOST_NOTED`] octets, in the place of what was noted before. A death meanwhile leaves nothing
    /// noted.
    pub fn note(&mut self, note: &[u8]) {
        self.records.note(note);
    }

    /// Octets of a memory with room for so many records.
    pub fn octets_for(most: usize) -> usize {
        HEADER.saturating_add(most.saturating_mul(RECORD))
    }

    fn recover_record(&mut self, number: u32) {
        let name = self.records.read(number).map(|record| record.name);
        let of = |other| self.records.name(other);
        if !name.is_some_and(|name| self.index.insert(&name, number, of)) {
            self.lost += u64::from(!self.records.is_void(number));
            self.free.push(number);
        }
    }

    /// The signature with this name, if what it was made for is the same (`mark`).
    pub fn get(&self, name: &SignatureName, mark: u64) -> Option<&[u8]> {
        let number = self.find(name)?;
        (self.records.mark(number) == mark).then(|| self.records.signature(number))
    }

    /// Keeps a signature in the place of any of this name. Where there is no room, it takes the place of a record whose
    /// prefix `is_used` says is not in use; at most [`MOST_LOOKED_AT`] are looked at, each time those that follow. If
    /// there is none the signature is not kept and counts as lost, as does one that does not fit a record: without
    /// octets, or with more than 72.
    pub fn keep(
        &mut self,
        name: SignatureName,
        mark: u64,
        signature: &[u8],
        is_used: &mut dyn FnMut(Prefix) -> bool,
    ) -> bool {
        let Some(record) = (Record { name, mark, signature }).encode() else { return self.lose() };
        if let Some(number) = self.find(&name) {
            self.records.write(number, &record);
            return true;
        }
        let Some(number) = self.vacancy(is_used) else { return self.lose() };
        self.records.write(number, &record);
        self.index.insert(&name, number, |other| self.records.name(other));
        true
    }

    fn lose(&mut self) -> bool {
        self.lost += 1;
        false
    }

    /// A record to be written.
    fn vacancy(&mut self, is_used: &mut dyn FnMut(Prefix) -> bool) -> Option<u32> {
        let fresh = || (self.records.begun() < self.most).then(|| self.records.begin());
        self.free.pop().or_else(fresh).or_else(|| self.evict(is_used))
    }

    /// A record whose prefix is not in use any more.
    fn evict(&mut self, is_used: &mut dyn FnMut(Prefix) -> bool) -> Option<u32> {
        for _ in 0..self.most.min(MOST_LOOKED_AT) {
            let number = self.hand;
            self.hand = (number + 1) % self.most;
            if let Some(name) = self.records.name(number).filter(|name| !is_used(name.prefix)) {
                self.index.remove(&name, number);
                return Some(number);
            }
        }
        None
    }

    /// Another bound, as far as there is room in the memory. What is beyond it is dropped and counts as lost.
    pub fn set_most(&mut self, most: usize) {
        self.most = number(most).min(self.records.room());
        for number in self.most..self.records.begun() {
            if let Some(name) = self.records.name(number) {
                self.index.remove(&name, number);
            }
        }
        self.drop_from(self.most);
    }

    /// Drops the records from this one on, which the index does not know.
    fn drop_from(&mut self, number: u32) {
        let of_rest = |range: Range<u32>, free: &[u32]| {
            let void = free.iter().filter(|free| range.contains(free)).count();
            range.len() - void
        };
        self.lost += of_rest(number..self.records.begun(), &self.free) as u64;
        self.free.retain(|free| *free < number);
        self.hand = 0;
        self.records.truncate(number);
    }

    fn find(&self, name: &SignatureName) -> Option<u32> {
        self.index.find(name, |number| self.records.name(number))
    }

    /// Signatures that are kept.
    pub fn len(&self) -> usize {
        self.records.begun() as usize - self.free.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Signatures that can be kept.
    pub fn most(&self) -> usize {
        self.most as usize
    }

    /// Signatures that this process could not keep, or has not found whole.
    pub fn lost(&self) -> u64 {
        self.lost
    }

    /// Octets of records and of what the process has beside them.
    pub fn memory_octets(&self) -> usize {
        let records = Self::octets_for(self.records.begun() as usize);
        records + self.index.memory() + self.free.capacity() * size_of::<u32>()
    }

    /// The memory.
    pub fn memory(&self) -> &M {
        self.records.memory()
    }

    /// The memory, as the process would leave it if it died now.
    pub fn into_memory(self) -> M {
        self.records.into_memory()
    }
}

/// Records are numbered in 32 bits.
fn number(most: usize) -> u32 {
    u32::try_from(most).unwrap_or(u32::MAX)
}

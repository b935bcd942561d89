//! The state of the sessions of a table, in memory that outlives this process: `sessions` is the keeper's name for that of
//! the default table, `sessions@blue` for that of a VRF.
//!
//! ```text
//! header │ record 0 │ record 1 │ …
//! header: format (4 octets), records (4 octets)
//! record: length of the profile's name + 1, or 0 for none (4 octets) │ the session (FROZEN octets) │ the name
//! ```
//! The first word of a record is written last, and made void before anything else of it changes. So a death loses the
//! session that was being written, and no other.

use std::{
    collections::BTreeMap,
    sync::atomic::{Ordering, compiler_fence},
};

use holdfast_bfd::{FORMAT, FROZEN, Frozen, SessionId};
use holdfast_sys::memory::SharedMemory;
use holdfast_xrl::XrlError;

use crate::{
    custody::Custody,
    section::{LONGEST_NAME, MOST_SESSIONS},
};

const HEADER: usize = 64;
const WORD: usize = 4;
const RECORD: usize = 256;
const _: () = assert!(WORD + FROZEN + LONGEST_NAME <= RECORD);

/// The memory, and which session has which record.
#[derive(Debug)]
pub(crate) struct Kept {
    memory: SharedMemory,
    records: BTreeMap<SessionId, (usize, Frozen)>,
    free: Vec<usize>,
}

/// A session of the process before.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Left {
    number: usize,
    pub(crate) frozen: Frozen,
    /// The name of its profile.
    pub(crate) profile: String,
}

impl Kept {
    /// What the process before has left, and memory for the sessions of this one. Each session that was left is to be
    /// [adopted](Self::adopt) or [dropped](Self::drop_left).
    ///
    /// # Errors
    /// As the keeper says, or when there is no memory.
    pub(crate) async fn open(custody: &Custody) -> Result<(Self, Vec<Left>), XrlError> {
        let failed = |error: std::io::Error| XrlError::internal(format!("memory for sessions: {error}"));
        let left = custody.memory().await?.and_then(|left| SharedMemory::from_descriptor(left).ok());
        let octets = HEADER + MOST_SESSIONS * RECORD;
        if let Some(memory) = left.filter(|memory| is_ours(memory.octets(), octets)) {
            return Ok(Self::recover(memory));
        }
        let mut memory = SharedMemory::create("holdfast-bfd", octets).map_err(failed)?;
        memory.octets_mut()[..WORD].copy_from_slice(&FORMAT.to_le_bytes());
        let copy = memory.descriptor().try_clone_to_owned().map_err(failed)?;
        custody.put_memory(copy).await?;
        Ok((Self { memory, records: BTreeMap::new(), free: (0..MOST_SESSIONS).rev().collect() }, Vec::new()))
    }

    fn recover(mut memory: SharedMemory) -> (Self, Vec<Left>) {
        let (mut left, mut free) = (Vec::new(), Vec::new());
        for number in (0..MOST_SESSIONS).rev() {
            let record = record(memory.octets_mut(), number);
            match read(record) {
                Some((frozen, profile)) => left.push(Left { number, frozen, profile }),
                None => {
                    // Only what was written takes memory.
                    if is_written(record) {
                        void(record);
                    }
                    free.push(number);
                }
            }
        }
        (Self { memory, records: BTreeMap::new(), free }, left)
    }

    /// A session that was left goes on under this name.
    pub(crate) fn adopt(&mut self, left: &Left, id: SessionId) {
        self.records.insert(id, (left.number, left.frozen));
    }

    /// A session that was left does not go on.
    pub(crate) fn drop_left(&mut self, left: &Left) {
        void(record(self.memory.octets_mut(), left.number));
        self.free.push(left.number);
    }

    /// Keeps a session as it is now.
    pub(crate) fn keep(&mut self, id: SessionId, frozen: Frozen, profile: &str) {
        if self.records.get(&id).is_some_and(|(_, kept)| *kept == frozen) {
            return;
        }
        let number = match self.records.get(&id) {
            Some((number, _)) => *number,
            // As many as there may be sessions.
            None => match self.free.pop() {
                Some(number) => number,
                None => return,
            },
        };
        self.records.insert(id, (number, frozen));
        write(record(self.memory.octets_mut(), number), &frozen, profile);
    }

    /// Writes a session again, whose profile has another name.
    pub(crate) fn rename(&mut self, id: SessionId, profile: &str) {
        if let Some((number, frozen)) = self.records.get(&id).copied() {
            write(record(self.memory.octets_mut(), number), &frozen, profile);
        }
    }

    /// The session has ended.
    pub(crate) fn forget(&mut self, id: SessionId) {
        if let Some((number, _)) = self.records.remove(&id) {
            void(record(self.memory.octets_mut(), number));
            self.free.push(number);
        }
    }
}

fn is_ours(octets: &[u8], length: usize) -> bool {
    octets.len() == length && octets.starts_with(&FORMAT.to_le_bytes())
}

fn record(octets: &mut [u8], number: usize) -> &mut [u8] {
    &mut octets[HEADER + number * RECORD..][..RECORD]
}

fn is_written(record: &[u8]) -> bool {
    record[..WORD] != [0; WORD]
}

fn void(record: &mut [u8]) {
    record[..WORD].fill(0);
    compiler_fence(Ordering::SeqCst);
}

fn write(record: &mut [u8], frozen: &Frozen, profile: &str) {
    void(record);
    let name = profile.as_bytes().get(..profile.len().min(LONGEST_NAME)).unwrap_or_default();
    record[WORD..WORD + FROZEN].copy_from_slice(&frozen.0);
    record[WORD + FROZEN..][..name.len()].copy_from_slice(name);
    compiler_fence(Ordering::SeqCst);
    let length = name.len() as u32 + 1;
    record[..WORD].copy_from_slice(&length.to_le_bytes());
}

fn read(record: &[u8]) -> Option<(Frozen, String)> {
    let (word, rest) = record.split_first_chunk::<WORD>()?;
    let length = usize::try_from(u32::from_le_bytes(*word)).ok()?.checked_sub(1)?;
    let (frozen, rest) = rest.split_first_chunk::<FROZEN>()?;
    let name = rest.get(..length).filter(|_| length <= LONGEST_NAME)?;
    Some((Frozen(*frozen), String::from_utf8(name.to_vec()).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_read_as_it_was_written_and_half_of_one_is_none() {
        let mut octets = vec![0; RECORD];
        assert_eq!(read(&octets), None);
        let frozen = Frozen([7; FROZEN]);
        for profile in ["", "fast", &"x".repeat(LONGEST_NAME)] {
            write(&mut octets, &frozen, profile);
            assert_eq!(read(&octets), Some((frozen, profile.to_owned())));
        }
        void(&mut octets);
        assert_eq!(read(&octets), None);
        octets.fill(0xff);
        assert_eq!(read(&octets), None, "octets of somebody else do no harm");
    }
}

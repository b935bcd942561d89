//! The connections of a queue as records, in memory that outlives the process: the next one knows where they begin. While no
//! process is there nothing leaves, so what is kept stays true.
//!
//! ```text
//! header: format (8 octets), whether nothing comes in (1 octet), to 128 │ record 0 │ record 1 │ …
//! record: state (4 octets; 0: none) │ what `Record` says, to 128
//! ```
//! The state of a record is made void before anything else of it changes, and written last. So a death loses the record
//! that was being written, and no other: its connection is then one that is older than the gate.

use std::{
    net::Ipv6Addr,
    sync::atomic::{Ordering, compiler_fence},
};

use crate::{Claim, Connection, MOST_FLOWS};

const FORMAT: u64 = u64::from_le_bytes(*b"hf-flow1");
const HEADER: usize = 128;
const CLOSED: usize = 8;
const RECORD: usize = 128;
const STATE: usize = 4;

const KNOWN: u32 = 1;
const HAS_IRS: u32 = 2;
const OLDER: u32 = 4;
const HANDSHAKE: u32 = 8;
const FINISHED: u32 = 16;
const CLAIMED: u32 = 32;
const BOUND: u32 = 64;
const ALL: u32 = 127;

/// Octets of the memory of a queue.
pub const KEPT: usize = HEADER + MOST_FLOWS * RECORD;

/// What the next process has to know of a connection.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Record {
    /// The connection.
    pub connection: Connection,
    /// Number of our SYN.
    pub iss: u32,
    /// Number of the peer's SYN.
    pub irs: u32,
    /// The peer's SYN is known.
    pub has_irs: bool,
    /// The connection is older than the gate: neither number is known.
    pub older: bool,
    /// Nothing but SYNs was seen.
    pub handshake: bool,
    /// Our FIN has left.
    pub finished: bool,
    /// The use of a slot that is or was for this connection, or for one before it of the same addresses.
    pub claim: Option<Claim>,
    /// That use is for this connection.
    pub bound: bool,
}

/// Makes an empty memory of [`KEPT`] octets, which read as zero, one of records. False: it has another size.
pub fn begin(octets: &mut [u8]) -> bool {
    if octets.len() != KEPT {
        return false;
    }
    octets[..8].copy_from_slice(&FORMAT.to_le_bytes());
    true
}

/// Whether a memory is one of records, as this build writes them.
pub fn is_kept(octets: &[u8]) -> bool {
    octets.len() == KEPT && octets.starts_with(&FORMAT.to_le_bytes())
}

/// Whether nothing comes in, as the process before has said.
pub fn is_closed(octets: &[u8]) -> bool {
    is_kept(octets) && octets[CLOSED] == 1
}

/// Says whether nothing comes in. No effect on a memory of something else.
pub fn set_closed(octets: &mut [u8], is_closed: bool) {
    if is_kept(octets) {
        octets[CLOSED] = is_closed.into();
    }
}

/// Writes a record, or that there is none. A number beyond the memory has no effect.
pub fn write(octets: &mut [u8], number: u32, record: Option<&Record>) {
    let Some(place) =
        octets.get_mut(HEADER + number as usize * RECORD..).and_then(|rest| rest.get_mut(..RECORD))
    else {
        return;
    };
    place[..STATE].fill(0);
    compiler_fence(Ordering::SeqCst);
    let Some(record) = record else { return };
    let Connection { local, remote, local_port, remote_port, vrf } = record.connection;
    let claim = record.claim.unwrap_or(Claim { slot: 0, generation: 0 });
    let mut at = STATE;
    let mut put = |value: &[u8]| {
        place[at..at + value.len()].copy_from_slice(value);
        at += value.len();
    };
    put(&local.octets());
    put(&remote.octets());
    put(&local_port.to_le_bytes());
    put(&remote_port.to_le_bytes());
    put(&vrf.to_le_bytes());
    put(&record.iss.to_le_bytes());
    put(&record.irs.to_le_bytes());
    put(&claim.slot.to_le_bytes());
    put(&claim.generation.to_le_bytes());
    compiler_fence(Ordering::SeqCst);
    let flags = [
        (record.has_irs, HAS_IRS),
        (record.older, OLDER),
        (record.handshake, HANDSHAKE),
        (record.finished, FINISHED),
        (record.claim.is_some(), CLAIMED),
        (record.bound, BOUND),
    ];
    let state = flags.iter().filter(|(is_set, _)| *is_set).fold(KNOWN, |state, (_, flag)| state | flag);
    place[..STATE].copy_from_slice(&state.to_le_bytes());
}

/// All records of a memory, each with its number. None of a memory of something else.
pub fn read(octets: &[u8]) -> impl Iterator<Item = (u32, Record)> {
    let records = if is_kept(octets) { &octets[HEADER..] } else { &[] };
    records.chunks_exact(RECORD).zip(0..).filter_map(|(place, number)| Some((number, read_record(place)?)))
}

fn read_record(place: &[u8]) -> Option<Record> {
    let mut rest = place;
    let state = u32::from_le_bytes(take(&mut rest)?);
    let has = |flag| state & flag != 0;
    if !has(KNOWN) || state & !ALL != 0 {
        return None;
    }
    let [local, remote] = [take::<16>(&mut rest)?, take::<16>(&mut rest)?].map(Ipv6Addr::from);
    let [local_port, remote_port] = [take(&mut rest)?, take(&mut rest)?].map(u16::from_le_bytes);
    let [vrf, iss, irs, slot] =
        [take(&mut rest)?, take(&mut rest)?, take(&mut rest)?, take(&mut rest)?].map(u32::from_le_bytes);
    let generation = u64::from_le_bytes(take(&mut rest)?);
    Some(Record {
        connection: Connection { local, remote, local_port, remote_port, vrf },
        iss,
        irs,
        has_irs: has(HAS_IRS),
        older: has(OLDER),
        handshake: has(HANDSHAKE),
        finished: has(FINISHED),
        claim: has(CLAIMED).then_some(Claim { slot, generation }),
        bound: has(BOUND) && has(CLAIMED),
    })
}

fn take<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (value, behind) = rest.split_first_chunk()?;
    *rest = behind;
    Some(*value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_process_knows_whether_anything_comes_in() {
        let mut octets = vec![0; KEPT];
        set_closed(&mut octets, true);
        assert!(!is_closed(&octets), "no memory of records");
        assert!(begin(&mut octets) && !is_closed(&octets));
        for is_so in [true, false] {
            set_closed(&mut octets, is_so);
            assert_eq!(is_closed(&octets), is_so);
        }
    }

    #[test]
    fn a_record_is_read_as_it_was_written_and_a_void_one_is_none() {
        let mut octets = vec![0; KEPT];
        assert_eq!(read(&octets).count(), 0, "no memory of records yet");
        assert!(begin(&mut octets) && is_kept(&octets) && !begin(&mut octets[1..]));
        let connection =
            Connection::new("10.0.0.1:179".parse().unwrap(), "[2001:db8::7]:4096".parse().unwrap(), 3);
        let mut all = Vec::new();
        for flags in 0..64_u32 {
            let is_set = |bit: u32| flags & 1 << bit != 0;
            let record = Record {
                connection,
                iss: flags,
                irs: 1000 + flags,
                has_irs: is_set(0),
                older: is_set(1),
                handshake: is_set(2),
                finished: is_set(3),
                claim: is_set(4).then_some(Claim { slot: 7, generation: 1 << 50 }),
                bound: is_set(4) && is_set(5),
            };
            let number = if flags == 63 { MOST_FLOWS as u32 - 1 } else { flags };
            write(&mut octets, number, Some(&record));
            all.push((number, record));
        }
        write(&mut octets, MOST_FLOWS as u32, Some(&all[0].1));
        assert_eq!(read(&octets).collect::<Vec<_>>(), all);
        write(&mut octets, 5, None);
        assert_eq!(read(&octets).count(), 63);
        octets[HEADER + RECORD..].fill(0xff);
        assert_eq!(read(&octets).count(), 1, "octets of somebody else do no harm");
    }
}

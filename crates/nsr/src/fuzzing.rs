//! Bodies of fuzz targets, also run by tests.

use std::net::IpAddr;

use holdfast_types::{Asn, HashKey, Prefix};

use crate::{EntryId, Log, SignatureName, Signatures};

/// Octets of a block of [`example`].
pub const BLOCK: usize = 4096;

/// A log that was damaged in some places is refused, or does no harm. Four octets a place: how, where (counted in
/// words, two octets), and with what.
pub fn damage(places: &[u8]) {
    if let Ok(log) = Log::recover(damaged(example(), places)) {
        use_it(log);
    }
}

/// The same of signatures.
///
/// # Panics
/// They contradict themselves.
pub fn damage_signatures(places: &[u8]) {
    let memory = damaged(example_of_signatures(), places);
    if let Ok(signatures) = Signatures::recover(memory, SIGNATURES, HashKey::new([1, 2])) {
        use_signatures(signatures);
    }
}

fn damaged(mut memory: Vec<u8>, places: &[u8]) -> Vec<u8> {
    let words = memory.len() / 8;
    for &[how, high, low, what] in places.as_chunks().0 {
        let at = usize::from(u16::from_be_bytes([high, low])) % words * 8;
        let word = &mut memory[at..at + 8];
        match how % 4 {
            0 => word[usize::from(how >> 4) % 8] = what,
            1 => word[usize::from(how >> 4) % 8] ^= what,
            2 => word.fill(what),
            _ => {
                let other = usize::from(what) * 8 % (words * 8);
                memory.copy_within(other..other + 8, at);
            }
        }
    }
    memory
}

/// A log with something of everything in it.
///
/// # Panics
/// Never: there is room.
pub fn example() -> Vec<u8> {
    let blocks = 48;
    let memory = vec![0; (3 + blocks) * BLOCK + blocks * 276];
    let mut log = Log::create_with_blocks(memory, 1, [3; 16], BLOCK).expect("large enough");
    let mut head = EntryId::NONE;
    for session in 0..4 {
        let id = log.open(1000, 2000, &[session; 40]).expect("room");
        for i in 0..12 {
            let room = log.room(id, 1000).expect("room");
            room.into_iter().flatten().take(1000).for_each(|octet| *octet = i);
            log.received(id, 1000);
            head = log.append(head, &[i; 300]).expect("room");
            log.push(id, &[i; 500], Some(head)).expect("room");
        }
        log.begin_snapshot(id);
        (0..30).for_each(|i| log.snapshot_record(id, &[i; 200]).expect("room"));
        log.commit_snapshot(id, 5000);
        log.sent(id, 3000);
        log.acknowledged(id, log.outgoing(id).start - 500);
    }
    log.into_memory()
}

/// Does everything with a log that a driver would.
///
/// # Panics
/// It contradicts itself.
pub fn use_it(mut log: Log<Vec<u8>>) {
    let most = log.usage().blocks * BLOCK as u64;
    let ids: Vec<_> = log.sessions().collect();
    for id in ids {
        assert!(log.record(id).len() <= log.longest_record());
        let incoming = log.incoming(id);
        let mut at = incoming.start;
        while at < incoming.end {
            at += log.read(id, at).len() as u64;
        }
        let unsent: usize = log.unsent(id).map(<[u8]>::len).sum();
        assert_eq!(unsent as u64, log.outgoing(id).end - log.outgoing(id).start);
        assert!(log.snapshot(id).map(|record| record.len() as u64).sum::<u64>() <= most);
        let mut entry = log.passed(id);
        for _ in 0..=most / 16 {
            if entry == EntryId::NONE {
                break;
            }
            entry = log.entry(entry).0;
        }
        assert_eq!(entry, EntryId::NONE, "a list has an end");
        let _ =
            log.append(log.passed(id), &[1; 2000]).and_then(|entry| log.push(id, &[1; 3000], Some(entry)));
        let _ = log.room(id, 2000);
        log.begin_snapshot(id);
        let _ = log.snapshot_record(id, &[1; 100]);
        log.commit_snapshot(id, incoming.end);
        log.close(id);
    }
    log.collect([]);
    assert_eq!(log.usage().free, log.usage().blocks);
}

/// Signatures that [`example_of_signatures`] has room for.
pub const SIGNATURES: usize = 40;

/// A name, the mark and the signature of it.
pub fn signature(number: u32) -> (SignatureName, u64, Vec<u8>) {
    let prefix = Prefix::host(IpAddr::V4(number.swap_bytes().into()));
    let name = SignatureName { prefix, target: Asn(number % 3), slot: number % 2 };
    (name, number.into(), vec![number as u8; 70])
}

/// A memory with signatures, and with room for some more.
///
/// # Panics
/// Never: there is room.
pub fn example_of_signatures() -> Vec<u8> {
    let memory = vec![0; Signatures::<Vec<u8>>::octets_for(SIGNATURES)];
    let mut signatures = Signatures::create(memory, SIGNATURES, HashKey::new([3, 4])).expect("large enough");
    for (name, mark, octets) in (0..30).map(signature) {
        assert!(signatures.keep(name, mark, &octets, &mut |_| true), "there is room");
    }
    signatures.into_memory()
}

/// Does everything with signatures that a driver would.
///
/// # Panics
/// They contradict themselves.
pub fn use_signatures(mut signatures: Signatures<Vec<u8>>) {
    let found =
        (0..60).map(signature).filter(|(name, mark, _)| signatures.get(name, *mark).is_some()).count();
    assert!(found <= signatures.len() && signatures.len() <= signatures.most());
    for (name, mark, octets) in (0..60).map(signature) {
        assert!(signatures.keep(name, mark, &octets, &mut |_| false), "some place is not in use");
        assert_eq!(signatures.get(&name, mark), Some(&octets[..]));
    }
    assert_eq!(signatures.len(), signatures.most());
}

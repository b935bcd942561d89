//! Memory that was damaged gives an error or a log that can be used: never a panic, never an endless list.

use holdfast_nsr::{EntryId, Log};

const BLOCK: usize = 4096;

fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
    *state >> 33
}

/// A log with something of everything in it.
fn example() -> Vec<u8> {
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
    }
    log.into_memory()
}

/// Does everything with it that a driver would.
fn use_it(mut log: Log<Vec<u8>>) {
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

#[test]
fn damage_is_refused_or_does_no_harm() {
    let whole = example();
    use_it(Log::recover(whole.clone()).expect("it is whole"));
    let (mut refused, mut state) = (0, 1);
    for round in 0..20_000 {
        let mut memory = whole.clone();
        for _ in 0..=round % 3 {
            // The first pages hold everything but the octets; of those the headers of entries matter.
            let limit = if round % 2 == 0 { 4 * BLOCK } else { memory.len() };
            let at = next(&mut state) as usize % limit / 8 * 8;
            let other = next(&mut state) as usize % limit / 8 * 8;
            match round % 5 {
                0 => memory[at..at + 8].copy_from_slice(&whole[other..other + 8]),
                1 => memory[at] ^= 1 << (next(&mut state) % 8),
                2 => memory[at..at + 8].fill(0),
                3 => memory[at..at + 8].fill(0xff),
                _ => memory[at..at + 8].copy_from_slice(&(other as u64).to_le_bytes()),
            }
        }
        match Log::recover(memory) {
            Ok(log) => use_it(log),
            Err(_) => refused += 1,
        }
    }
    assert!(refused > 500, "{refused} of 20,000 refused");
}

#[test]
fn a_list_that_bites_its_tail_is_refused() {
    let memory = vec![0; 64 * BLOCK];
    let mut log = Log::create_with_blocks(memory, 1, [3; 16], BLOCK).expect("large enough");
    let first = log.append(EntryId::NONE, b"first").expect("room");
    let second = log.append(first, b"second").expect("room");
    let third = log.append(second, b"third").expect("room");
    log.rebase(first, second);
    let ids = [0, 1].map(|_| log.open(0, 0, &[]).expect("room"));
    log.set_passed(ids[0], second);
    log.set_passed(ids[1], third);
    assert!(Log::recover(log.into_memory()).is_err());
}

//! Memory that was damaged gives an error or a log that can be used: never a panic, never an endless list.

use holdfast_nsr::{
    EntryId, Log,
    fuzzing::{BLOCK, example, use_it},
};

fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
    *state >> 33
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

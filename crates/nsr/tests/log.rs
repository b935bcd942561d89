//! What the log promises besides surviving deaths: bounds, limits, and how little an idle session takes.

use std::{cell::Cell, collections::BTreeSet, ops::Range, rc::Rc};

use holdfast_nsr::{EntryId, Full, Inconsistent, Log, Memory, SessionId, Unreadable};

const KEY: [u8; 16] = [7; 16];
const BLOCK: usize = 4096;

fn small(blocks: usize) -> Log<Vec<u8>> {
    let memory = vec![0; (3 + blocks) * BLOCK + blocks * 276];
    let log = Log::create_with_blocks(memory, 1, KEY, BLOCK).expect("large enough");
    assert_eq!(log.usage().blocks, blocks as u64);
    log
}

fn receive(log: &mut Log<impl Memory>, id: SessionId, octets: &[u8]) -> Result<(), Full> {
    let [first, second] = log.room(id, octets.len())?;
    let cut = first.len().min(octets.len());
    first[..cut].copy_from_slice(&octets[..cut]);
    second[..octets.len() - cut].copy_from_slice(&octets[cut..]);
    log.received(id, octets.len());
    Ok(())
}

/// Memory that knows which pages were touched.
#[derive(Debug)]
struct Pages {
    octets: Vec<u8>,
    touched: BTreeSet<usize>,
    /// How many were given back.
    released: Rc<Cell<usize>>,
}

impl Pages {
    fn new(octets: usize) -> Self {
        Self { octets: vec![0; octets], touched: BTreeSet::new(), released: Rc::default() }
    }
}

impl Memory for Pages {
    fn octets(&self) -> &[u8] {
        &self.octets
    }

    fn octets_mut(&mut self) -> &mut [u8] {
        &mut self.octets
    }

    fn release(&mut self, range: Range<usize>) {
        let whole = range.start.div_ceil(4096)..range.end / 4096;
        self.released.set(self.released.get() + whole.len());
        self.touched.retain(|page| !whole.contains(page));
    }

    fn write(&mut self, at: usize, octets: &[u8]) {
        self.touched.extend(at / 4096..(at + octets.len()).div_ceil(4096));
        self.octets[at..at + octets.len()].copy_from_slice(octets);
    }
}

#[test]
fn a_log_at_rest_gives_back_the_blocks_that_are_free() {
    let touched = |octets: usize, looks: usize| {
        let memory = Pages::new(64 << 20);
        let mut log = Log::create(memory, 1, KEY).expect("large enough");
        let id = log.open(0, 0, &[1; 300]).expect("room");
        for _ in 0..octets / 60_000 {
            log.push(id, &[1; 60_000], None).expect("room");
        }
        log.close(id);
        (0..looks).for_each(|_| log.cool());
        let id = log.open(0, 0, &[1; 300]).expect("room");
        log.push(id, &[1; 60], None).expect("they can be used again");
        log.into_memory().touched.len()
    };
    let (least, kept, left) = (touched(0, 0), touched(8 << 20, 0), touched(8 << 20, 8));
    assert!(kept > least + 1000, "{kept} pages are kept for use soon");
    assert!(left < least + 100, "{left} pages are left, {least} are needed");
}

#[test]
fn what_a_session_had_is_given_back_in_parts_when_it_ends() {
    let memory = Pages::new(64 << 20);
    let released = Rc::clone(&memory.released);
    let mut log = Log::create(memory, 1, KEY).expect("large enough");
    let id = log.open(0, 0, &[1; 300]).expect("room");
    for _ in 0..400 {
        log.push(id, &[1; 60_000], None).expect("room");
    }
    let before = released.get();
    log.close(id);
    assert!(released.get() <= before + 64, "its cell, at once");
    let mut parts = 0;
    while log.is_warm() {
        let before = released.get();
        log.cool_some();
        let pages = released.get() - before;
        assert!(pages > 0 && pages <= 16 * 32, "{pages} pages at a time");
        parts += 1;
    }
    let all = released.get() - before;
    assert!(parts > 5 && all > 3000, "{all} pages in {parts} parts");
    log.cool_some();
    assert_eq!(released.get() - before, all, "what is used soon stays");
}

#[test]
fn an_idle_session_takes_a_page_of_its_cell_and_no_block() {
    let memory = Pages::new(256 << 20);
    let mut log = Log::create(memory, 1, KEY).expect("large enough");
    let ids: Vec<_> = (0..500).map(|_| log.open(0, 0, &[1; 300]).expect("room")).collect();
    let mut received = BTreeSet::new();
    for _ in 0..10_000 {
        for id in &ids[..3] {
            let [first, _] = log.room(*id, 19).expect("room");
            received.insert(first.as_ptr() as usize / 4096);
            log.received(*id, 19);
            log.trim(*id, log.incoming(*id).end);
        }
    }
    for id in &ids {
        for _ in 0..1000 {
            log.push(*id, &[1; 19], None).expect("room");
            log.sent(*id, 19);
            log.acknowledged(*id, u64::MAX);
        }
        log.set_record(*id, &[2; 300]).expect("room");
    }
    // What is received is not seen by `write`, but may not wander: a page, or two when a block begins inside of one.
    assert!(received.len() <= 2, "{} pages received into", received.len());
    let mut memory = log.into_memory();
    let touched = memory.touched.len();
    assert!((500..515).contains(&touched), "{touched} pages for 500 sessions, what was received apart");
    memory.touched.clear();
    let mut log = Log::recover(memory).expect("a log");
    ids.iter().for_each(|id| log.close(*id));
    let touched = log.into_memory().touched.len();
    assert!(touched < 10 + 64, "{touched} pages when all have gone, with those of blocks to be used again");
}

#[test]
fn a_full_log_refuses_to_receive_first_and_a_snapshot_makes_room() {
    let mut log = small(32);
    let id = log.open(0, 0, &[]).expect("room");
    while receive(&mut log, id, &[1; 1000]).is_ok() {}
    assert_eq!(log.free_blocks(), 4, "an eighth is left");
    let held = log.incoming(id);
    log.begin_snapshot(id);
    log.snapshot_record(id, b"all of it").expect("room");
    log.commit_snapshot(id, held.end);
    assert!(log.incoming(id).is_empty() && log.free_blocks() >= 30, "{}", log.free_blocks());
    receive(&mut log, id, &[1; 1000]).expect("room");
    assert!(log.snapshot(id).eq([b"all of it"]));
}

#[test]
fn who_finds_no_room_has_changed_nothing() {
    let mut log = small(16);
    let id = log.open(0, 0, &[]).expect("room");
    let entry = log.append(EntryId::NONE, b"entry").expect("room");
    log.push(id, &[1; 100], None).expect("room");
    let free = log.free_blocks();
    assert_eq!(log.push(id, &[2; 17 * BLOCK], Some(entry)), Err(Full));
    assert_eq!((log.outgoing(id), log.passed(id), log.free_blocks()), (0..100, EntryId::NONE, free));
    assert_eq!(log.append(entry, &vec![0; log.longest_entry() + 1]), Err(Full));
    assert_eq!(log.set_record(id, &vec![0; log.longest_record() + 1]), Err(Full));
    assert_eq!(log.open(0, 0, &vec![0; log.longest_record() + 1]), Err(Full));
    log.begin_snapshot(id);
    assert_eq!(log.snapshot_record(id, &[0; BLOCK - 3]), Err(Full));
    log.snapshot_record(id, &[9; BLOCK - 4]).expect("as long as may be");
    log.commit_snapshot(id, 0);
    assert!(log.snapshot(id).eq([[9; BLOCK - 4]]));
    while log.append(entry, &[0; 3000]).is_ok() {}
    assert_eq!((log.free_blocks(), log.entry(entry)), (0, (EntryId::NONE, &b"entry"[..])));
    log.collect([]);
    assert_eq!(log.free_blocks(), 16 - 2, "what is sent and the snapshot stay");
}

#[test]
fn a_snapshot_that_is_given_up_leaves_nothing() {
    let mut log = small(16);
    let id = log.open(0, 0, &[]).expect("room");
    let begin = |log: &mut Log<Vec<u8>>, octets: u8| {
        log.begin_snapshot(id);
        (0..2).for_each(|_| log.snapshot_record(id, &[octets; 3000]).expect("room"));
    };
    begin(&mut log, 1);
    log.commit_snapshot(id, 0);
    begin(&mut log, 2);
    log.abort_snapshot(id);
    assert_eq!(log.free_blocks(), 14);
    (3..10).for_each(|octets| begin(&mut log, octets));
    assert_eq!(log.free_blocks(), 12);
    assert!(log.snapshot(id).eq([[1; 3000]; 2]), "the one that was committed holds");
    for number in 0..2 {
        assert!(log.snapshot_block(id, number).is_some_and(|records| records.eq([[1; 3000]])));
    }
    assert!(log.snapshot_block(id, 2).is_none());
    log.close(id);
    assert_eq!(log.free_blocks(), 16);
}

#[test]
fn records_of_every_length_replace_each_other() {
    let mut log = small(16);
    let id = log.open(0, 0, b"first").expect("room");
    let longest = log.longest_record();
    for length in (0..=longest).chain((0..=longest).rev()).chain([0, longest, 1, longest, longest, 0]) {
        let record = vec![length as u8; length];
        log.set_record(id, &record).expect("short enough");
        assert_eq!(log.record(id), record);
    }
    log.set_record(id, b"last").expect("short enough");
    let log = Log::recover(log.into_memory()).expect("a log");
    assert_eq!(log.record(id), b"last");
}

#[test]
fn a_number_is_never_used_twice() {
    let mut log = small(8);
    let mut seen = BTreeSet::new();
    let stays = log.open(0, 0, &[]).expect("room");
    for round in 0..100 {
        let others: Vec<_> = std::iter::from_fn(|| log.open(0, 0, &[]).ok()).collect();
        assert_eq!(others.len(), 3, "a cell for every second block");
        assert!(others.iter().all(|id| seen.insert(*id)) && !seen.contains(&stays));
        others.into_iter().for_each(|id| log.close(id));
        if round % 10 == 0 {
            log = Log::recover(log.into_memory()).expect("a log");
        }
    }
}

#[test]
fn a_quiet_list_does_not_hold_the_blocks_of_a_busy_one() {
    let mut log = small(200);
    let (mut busy, mut quiet) = (EntryId::NONE, EntryId::NONE);
    for i in 0..600 {
        busy = log.append(busy, &[1; 1000]).expect("room");
        if i % 10 == 0 {
            quiet = log.append(quiet, &[2; 20]).expect("room");
        }
    }
    let base = log.append(EntryId::NONE, &[3; 100]).expect("room");
    log.rebase(busy, base);
    log.collect([busy, quiet]);
    assert!(log.usage().entry_blocks < 5, "{:?}", log.usage());
    let mut length = 0;
    while quiet != EntryId::NONE {
        (quiet, length) = (log.entry(quiet).0, length + 1);
    }
    assert_eq!((length, log.entry(busy).0, log.entry(base).0), (60, base, EntryId::NONE));
}

#[test]
fn a_fork_from_an_old_entry_goes_where_its_list_has_room() {
    let mut log = small(200);
    let old = log.append(EntryId::NONE, &[1; 20]).expect("room");
    let mut last = old;
    for _ in 0..100 {
        last = log.append(last, &[1; 1000]).expect("room");
    }
    let before = log.usage().entry_blocks;
    let forks: Vec<_> = (0..100).map(|_| log.append(old, &[2; 20]).expect("room")).collect();
    assert!(log.usage().entry_blocks < before + 3, "{:?}", log.usage());
    assert!(forks.iter().all(|fork| log.entry(*fork) == (old, &[2; 20][..])));
}

#[test]
fn what_the_kernel_says_must_fit() {
    let mut log = small(16);
    let id = log.open(500, 900, &[]).expect("room");
    receive(&mut log, id, &[1; 10]).expect("room");
    log.push(id, &[2; 30], None).expect("room");
    log.sent(id, 5);
    let mut log = Log::recover(log.into_memory()).expect("a log");
    let refused = |offset, least, most| Err(Inconsistent { offset, least, most });
    let limit = 500 + BLOCK as u64;
    assert_eq!(log.set_received(id, 509), refused(509, 510, limit));
    assert_eq!(log.set_received(id, limit + 1), refused(limit + 1, 510, limit));
    assert_eq!(log.set_sent(id, 904), refused(904, 905, 930));
    assert_eq!(log.set_sent(id, 931), refused(931, 905, 930));
    log.set_received(id, 520).expect("ten more were received");
    log.set_sent(id, 930).expect("all were sent");
    assert_eq!((log.incoming(id), log.outgoing(id)), (500..520, 930..930));
}

#[test]
fn what_was_sent_is_held_until_it_is_acknowledged() {
    let mut log = small(32);
    let id = log.open(0, 900, &[]).expect("room");
    let free = log.free_blocks();
    let octets: Vec<u8> = (0..3 * BLOCK).map(|i| i as u8).collect();
    log.push(id, &octets, None).expect("room");
    log.sent(id, 2 * BLOCK);
    assert_eq!((log.unacknowledged(id).start, log.outgoing(id).start), (900, 900 + 2 * BLOCK as u64));
    log.acknowledged(id, 950);
    log.acknowledged(id, 940);
    let mut log = Log::recover(log.into_memory()).expect("a log");
    assert_eq!((log.unacknowledged(id).start, log.outgoing(id).start), (950, 900 + 2 * BLOCK as u64));
    assert_eq!(log.unsent(id).collect::<Vec<_>>().concat(), octets[2 * BLOCK..]);
    // More cannot have arrived than was sent.
    log.acknowledged(id, u64::MAX);
    assert_eq!(log.unacknowledged(id).start, 900 + 2 * BLOCK as u64);
    log.sent(id, BLOCK);
    log.acknowledged(id, u64::MAX);
    assert_eq!((log.unacknowledged(id).is_empty(), log.free_blocks()), (true, free));
}

/// A process dies while it processes what stands at the last of these places.
fn dies_at(mut log: Log<Vec<u8>>, id: SessionId, places: &[u64]) -> Log<Vec<u8>> {
    for (i, place) in places.iter().enumerate() {
        if i == 0 {
            log.enter(id, *place);
        } else {
            log.advance(*place);
        }
    }
    Log::recover(log.into_memory()).expect("a log")
}

#[test]
fn lives_count_until_one_is_well() {
    let mut log = small(16);
    for deaths in 1..=3 {
        log = Log::recover(log.into_memory()).expect("a log");
        assert_eq!(log.lives(), deaths);
    }
    for left in [2, 1, 0, 0] {
        log.spare_life();
        assert_eq!(log.lives(), left, "the death of a process that was only slow is none");
    }
    log.stable();
    assert_eq!(Log::recover(log.into_memory()).expect("a log").lives(), 1);
}

#[test]
fn deaths_count_against_the_place_that_was_processed() {
    let mut log = small(16);
    let [poisoned, other] = [0, 1].map(|_| log.open(0, 0, &[]).expect("room"));
    log.enter(other, 70);
    log.leave();
    log = dies_at(log, poisoned, &[70]);
    assert_eq!((log.suspicions(poisoned), log.suspicions(other)), (1, 0));
    log = Log::recover(log.into_memory()).expect("a log");
    assert_eq!(log.suspicions(poisoned), 1, "nobody was being processed");
    // A life gets further, and one gets through.
    log = dies_at(log, poisoned, &[70, 90]);
    log.enter(poisoned, 70);
    log.advance(90);
    log.leave();
    log.stable();
    assert_eq!(log.suspicions(poisoned), 1, "two places, a death each");
    log = dies_at(log, poisoned, &[50, 70]);
    log = dies_at(log, poisoned, &[50, 70]);
    assert_eq!((log.suspicions(poisoned), log.suspicions(other)), (3, 0));
    log.enter(poisoned, 70);
    log.close(poisoned);
    let mut log = Log::recover(log.into_memory()).expect("a log");
    assert_eq!(log.sessions().map(|id| log.suspicions(id)).collect::<Vec<_>>(), [0]);
    let again = (0..20).map(|_| log.open(0, 0, &[]).map(|id| log.suspicions(id)));
    assert!(again.map_while(Result::ok).all(|deaths| deaths == 0), "a new session is not blamed");
}

#[test]
fn a_place_is_remembered_beside_many_at_which_one_process_died() {
    let mut log = small(16);
    let id = log.open(0, 0, &[]).expect("room");
    for place in [1000, 1, 2, 3, 4, 1000].into_iter().chain(10..30) {
        log = dies_at(log, id, &[place]);
    }
    assert_eq!(log.suspicions(id), 2);
    log = dies_at(log, id, &[1000]);
    assert_eq!(log.suspicions(id), 3);
    // Each of 300 deaths counts, up to the most that is told.
    for _ in 0..300 {
        log = dies_at(log, id, &[1000]);
    }
    assert_eq!(log.suspicions(id), 255);
}

#[test]
fn numbers_are_those_of_the_session() {
    let mut log = small(16);
    let [one, other] = [0, 1].map(|_| log.open(0, 0, b"record").expect("room"));
    log.set_numbers(one, [1, 2, 3, 4, u64::MAX]);
    log.push(one, b"octets", None).expect("room");
    log.set_record(one, b"another").expect("room");
    let mut log = Log::recover(log.into_memory()).expect("a log");
    assert_eq!((log.numbers(one), log.numbers(other)), ([1, 2, 3, 4, u64::MAX], [0; 5]));
    log.close(one);
    let again = (0..20).map(|_| log.open(0, 0, &[]).map(|id| log.numbers(id)));
    assert!(again.map_while(Result::ok).all(|numbers| numbers == [0; 5]), "a new session has its own");
}

#[test]
fn what_goes_out_finds_room_beside_snapshots_and_these_beside_what_comes_in() {
    let mut log = small(64);
    let [reads, other] = [0, 1].map(|_| log.open(0, 0, &[]).expect("room"));
    log.hold_back(10 * BLOCK as u64);
    while receive(&mut log, reads, &[1; 1000]).is_ok() {}
    assert_eq!(log.free_blocks(), 8 + 10, "an eighth, and what is held back");
    log.begin_snapshot(other);
    for _ in 0..10 {
        log.snapshot_record(other, &[2; 4000]).expect("room");
        assert_eq!(receive(&mut log, reads, &[1; 1000]), Err(Full), "what it takes was held back");
    }
    while log.snapshot_record(other, &[2; 4000]).is_ok() {}
    assert_eq!((log.free_blocks(), log.snapshot_room()), (4, 0), "a sixteenth");
    log.push(reads, &[3; 4 * BLOCK], None).expect("room for what goes out");
}

#[test]
fn entries_leave_room_for_octets_that_go_out_and_announcements_for_messages() {
    let mut log = small(64);
    let (told, silent) = (log.open(0, 0, b"").expect("room"), log.open(0, 0, b"").expect("room"));
    let (mut last, entry) = (EntryId::NONE, vec![7; log.longest_entry()]);
    while let Ok(next) = log.append(last, &entry) {
        last = next;
    }
    assert_eq!(log.free_blocks(), 64 / 32);
    log.push(told, &[1; BLOCK], Some(last)).expect("what entries leave");
    assert_eq!(log.push(told, &[1; 1], Some(last)), Err(Full));
    assert_eq!(log.free_blocks(), 64 / 64);
    log.push(silent, &[1; 19], None).expect("what announcements leave");
    assert_eq!(log.free_blocks(), 0);
}

#[test]
fn what_is_no_log_is_told_from_one_of_another_format() {
    assert_eq!(Log::recover(Vec::new()).err(), Some(Unreadable::NoLog));
    assert_eq!(Log::recover(vec![0; 1 << 20]).err(), Some(Unreadable::NoLog));
    let mut other = small(16).into_memory();
    other[8] = 99;
    assert_eq!(Log::recover(other).err(), Some(Unreadable::Format(99)));
    let mut cut = small(16).into_memory();
    cut.truncate(cut.len() - BLOCK);
    assert_eq!(Log::recover(cut).err(), Some(Unreadable::Damaged("the header")));
    assert!(Log::create(vec![0; 4 * BLOCK], 1, KEY).is_err());
}

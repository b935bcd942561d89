//! A reader on another processor: whatever it is given was true at some time, however late the writer's changes arrive.
//!
//! The writer's memory is a model. What is written between two barriers reaches the reader in any order, and later than the
//! writer goes on; what is written before a barrier reaches it before what is written behind it.

use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet, VecDeque},
    ops::Range,
    rc::Rc,
    sync::atomic::Ordering,
};

use holdfast_nsr::{Changed, EntryId, EntryNumber, Log, Memory, Reader, SessionId, Shared, Unreadable};

use super::crash::memory::Random;

const BLOCK: usize = 4096;
const BLOCKS: usize = 24;

/// Words on their way from the writer to the reader.
#[derive(Debug)]
struct Bus {
    visible: Vec<u8>,
    /// What was written between two barriers each.
    groups: VecDeque<Vec<(usize, [u8; 8])>>,
    random: Random,
}

impl Bus {
    /// Some more of the writer's words arrive.
    fn advance(&mut self) {
        let count = [0, 0, 0, 0, 1, 4][self.random.below(6)];
        self.deliver(count);
    }

    /// So many of them arrive.
    fn deliver(&mut self, mut count: usize) {
        while count > 0
            && let Some(group) = self.groups.front_mut()
        {
            if group.is_empty() {
                self.groups.pop_front();
                continue;
            }
            let (at, word) = group.swap_remove(self.random.below(group.len()));
            self.visible[at..at + 8].copy_from_slice(&word);
            count -= 1;
        }
    }

    /// Few enough are left that the reader comes to their end in a while.
    fn hurry(&mut self) {
        let left: usize = self.groups.iter().map(Vec::len).sum();
        let kept = self.random.below(3000);
        self.deliver(left.saturating_sub(kept));
    }

    fn settle(&mut self) {
        for (at, word) in self.groups.drain(..).flatten() {
            self.visible[at..at + 8].copy_from_slice(&word);
        }
    }
}

#[derive(Debug)]
struct Writing {
    octets: Vec<u8>,
    /// As they were at the last barrier.
    before: Vec<u8>,
    bus: Rc<RefCell<Bus>>,
}

impl Memory for Writing {
    fn octets(&self) -> &[u8] {
        &self.octets
    }

    fn octets_mut(&mut self) -> &mut [u8] {
        &mut self.octets
    }

    fn release(&mut self, range: Range<usize>) {
        self.barrier(Ordering::Release);
        self.octets[range].fill(0xa5);
        self.barrier(Ordering::Release);
    }

    fn barrier(&mut self, _: Ordering) {
        let mut group = Vec::new();
        for start in (0..self.octets.len()).step_by(BLOCK) {
            let page = start..(start + BLOCK).min(self.octets.len());
            if self.octets[page.clone()] != self.before[page.clone()] {
                for at in
                    page.clone().step_by(8).filter(|at| self.octets[*at..at + 8] != self.before[*at..at + 8])
                {
                    group.push((at, self.octets[at..at + 8].try_into().expect("eight octets")));
                }
                self.before[page.clone()].copy_from_slice(&self.octets[page]);
            }
        }
        self.bus.borrow_mut().groups.push_back(group);
    }
}

struct Reading(Rc<RefCell<Bus>>);

impl Shared for Reading {
    fn len(&self) -> usize {
        self.0.borrow().visible.len()
    }

    fn load(&self, at: usize) -> u64 {
        let mut bus = self.0.borrow_mut();
        bus.advance();
        u64::from_le_bytes(bus.visible[at..at + 8].try_into().expect("eight octets"))
    }

    fn copy(&self, at: usize, into: &mut [u8]) {
        let mut bus = self.0.borrow_mut();
        for (i, part) in into.chunks_mut(64).enumerate() {
            // Now and then the reader stands still in the middle.
            let count = if bus.random.below(50) == 0 { 2000 } else { 0 };
            bus.deliver(count);
            bus.advance();
            part.copy_from_slice(&bus.visible[at + 64 * i..][..part.len()]);
        }
    }
}

/// The octet of a stream at an offset.
fn octet(id: SessionId, direction: u8, offset: u64) -> u8 {
    (offset.wrapping_mul(7) ^ offset >> 5) as u8 ^ (id.0 as u8).wrapping_mul(31) ^ direction
}

fn octets(id: SessionId, direction: u8, range: Range<u64>) -> Vec<u8> {
    range.map(|offset| octet(id, direction, offset)).collect()
}

/// What the writer has made true of a session, ever.
#[derive(Debug, Default)]
struct Told {
    /// End of what goes out, with the entry passed.
    passed: BTreeSet<(u64, EntryId)>,
    records: BTreeSet<Vec<u8>>,
    snapshots: BTreeMap<u32, Vec<Vec<u8>>>,
    next_snapshot: u32,
}

struct Writer {
    log: Log<Writing>,
    told: BTreeMap<SessionId, Told>,
    entries: Vec<EntryId>,
    count: u32,
    random: Random,
}

impl Writer {
    fn act(&mut self) {
        let ids: Vec<SessionId> = self.log.sessions().collect();
        if ids.len() < 2 || (ids.len() < 5 && self.random.below(60) == 0) {
            return self.open();
        }
        let id = ids[self.random.below(ids.len())];
        let amount = 1 + [3, 60, 700, 3500][self.random.below(4)] * self.random.below(8) / 7;
        match self.random.below(16) {
            0..=3 => self.receive(id, amount),
            4 | 5 => self.push(id, amount),
            6 | 7 => {
                let outgoing = self.log.outgoing(id);
                let count = (outgoing.end - outgoing.start) as usize;
                self.log.sent(id, count.min(amount));
            }
            8 => {
                let kept = amount as u64 * self.random.below(2) as u64;
                self.log.acknowledged(id, self.log.outgoing(id).start.saturating_sub(kept));
            }
            9 => {
                let Range { start, end } = self.log.incoming(id);
                self.log.trim(id, (start + amount as u64).min(end));
            }
            10 => self.snapshot(id),
            11 => {
                let record = vec![self.random.next() as u8; 1 + self.random.below(60)];
                self.told.get_mut(&id).expect("open").records.insert(record.clone());
                self.log.set_record(id, &record).expect("short enough");
            }
            12 | 13 => self.append(),
            14 => match self.random.below(3) {
                0 => self.rebase(),
                1 => self.collect(),
                _ => self.log.cool(),
            },
            _ if self.random.below(20) == 0 => {
                self.log.close(id);
            }
            _ => {}
        }
    }

    fn open(&mut self) {
        let (incoming, outgoing) = (self.random.next() % 1000, self.random.next() % 1000);
        let Ok(id) = self.log.open(incoming, outgoing, b"first") else { return };
        let told = self.told.entry(id).or_default();
        told.passed.insert((outgoing, EntryId::NONE));
        told.records.insert(b"first".to_vec());
    }

    fn receive(&mut self, id: SessionId, amount: usize) {
        let end = self.log.incoming(id).end;
        let Ok([first, second]) = self.log.room(id, amount) else { return self.log.trim(id, end) };
        let new = octets(id, 0, end..end + amount as u64);
        let cut = first.len().min(amount);
        first[..cut].copy_from_slice(&new[..cut]);
        second[..amount - cut].copy_from_slice(&new[cut..]);
        self.log.received(id, amount);
    }

    fn push(&mut self, id: SessionId, amount: usize) {
        let end = self.log.outgoing(id).end;
        let entry = (self.random.below(2) == 0).then(|| self.entries.last().copied()).flatten();
        if self.log.push(id, &octets(id, 1, end..end + amount as u64), entry).is_ok() {
            let passed = (end + amount as u64, self.log.passed(id));
            self.told.get_mut(&id).expect("open").passed.insert(passed);
        } else {
            self.log.sent(id, (end - self.log.outgoing(id).start) as usize);
            self.log.acknowledged(id, end);
        }
    }

    fn snapshot(&mut self, id: SessionId) {
        self.log.begin_snapshot(id);
        let told = self.told.get_mut(&id).expect("open");
        told.next_snapshot += 1;
        let mut records = Vec::new();
        for _ in 0..self.random.below(8) {
            let record = vec![self.random.next() as u8; self.random.below(3000)];
            if self.log.snapshot_record(id, &record).is_err() {
                // The number is used again for the next one.
                told.next_snapshot -= 1;
                return self.log.abort_snapshot(id);
            }
            records.push(record);
        }
        told.snapshots.insert(told.next_snapshot, records);
        let Range { start, end } = self.log.incoming(id);
        self.log.commit_snapshot(id, start + self.random.next() % (end - start + 1));
    }

    /// An entry says which it is, and which was before it.
    fn append(&mut self) {
        let previous = match self.random.below(6) {
            0 => EntryId::NONE,
            _ => self.entries.last().copied().unwrap_or(EntryId::NONE),
        };
        self.count += 1;
        let octets =
            [&self.count.to_le_bytes()[..], &vec![self.count as u8; self.random.below(500)]].concat();
        match self.log.append(previous, &octets) {
            Ok(entry) => self.entries.push(entry),
            Err(_) => self.collect(),
        }
    }

    /// What sessions have passed is gone on from.
    fn collect(&mut self) {
        self.log.collect([]);
        let passed = self.log.sessions().map(|id| self.log.passed(id));
        self.entries = passed.filter(|entry| *entry != EntryId::NONE).take(1).collect();
    }

    fn rebase(&mut self) {
        if let [.., last] = self.entries[..] {
            self.count += 1;
            if let Ok(base) = self.log.append(EntryId::NONE, &self.count.to_le_bytes()) {
                self.log.rebase(last, base);
            }
        }
    }
}

/// What one who reads has found so far.
#[derive(Default)]
struct Found {
    /// By its number, what an entry says.
    entries: BTreeMap<EntryNumber, Vec<u8>>,
    whole: usize,
    changed: usize,
}

fn read(reader: &mut Reader<Reading>, writer: &Writer, found: &mut Found) {
    for id in reader.sessions() {
        let outcome = read_session(reader, writer, id, found);
        match outcome {
            Ok(()) => found.whole += 1,
            Err(Changed) => found.changed += 1,
        }
    }
}

fn read_session(
    reader: &mut Reader<Reading>,
    writer: &Writer,
    id: SessionId,
    found: &mut Found,
) -> Result<(), Changed> {
    let view = reader.view(id)?;
    let told = &writer.told[&id];
    assert!(told.passed.contains(&(view.outgoing.1, view.passed)) || view.passed != EntryId::NONE);
    assert!(told.passed.iter().any(|(end, _)| *end == view.outgoing.1), "this was the end at some time");
    assert!(view.incoming.0 <= view.incoming.1 && view.outgoing.0 <= view.outgoing.1);
    assert!(told.records.contains(&reader.record(&view)?), "a record is whole");
    for (direction, (start, end)) in [(0, view.incoming), (1, view.outgoing)] {
        let (mut at, mut into) = (start, Vec::new());
        while at < end {
            let before = into.len();
            match direction {
                0 => reader.incoming(&view, at..end, 5000, &mut into)?,
                _ => reader.outgoing(&view, at..end, 5000, &mut into)?,
            }
            assert!(into.len() > before, "there are more");
            at = start + into.len() as u64;
        }
        assert_eq!(into, octets(id, direction, start..end), "in direction {direction} from {start}");
    }
    if view.snapshot != 0 {
        let mut records = Vec::new();
        for number in 0..view.snapshot_blocks {
            let mut block = reader.snapshot_block(&view, number)?;
            while let Some((length, rest)) = block.split_first_chunk() {
                let (record, rest) = rest.split_at(u32::from_le_bytes(*length) as usize);
                records.push(record.to_vec());
                block = rest;
            }
        }
        assert_eq!(records, told.snapshots[&view.snapshot], "a snapshot is whole");
    }
    let mut at = view.passed;
    for _ in 0..40 {
        if at == EntryId::NONE {
            break;
        }
        let (number, previous) = reader.entry_head(&view, at)?;
        let octets = reader.entry(&view, at)?;
        assert!(
            octets.len() >= 4 && octets[4..].iter().all(|octet| *octet == octets[0]),
            "an entry is whole"
        );
        assert_eq!(
            found.entries.entry(number).or_insert_with(|| octets.clone()),
            &octets,
            "one number, one entry"
        );
        at = previous;
    }
    Ok(())
}

fn run(seed: u64, acts: usize) -> Found {
    let octets = vec![0; (3 + BLOCKS) * BLOCK + BLOCKS * 276];
    let bus = Bus { visible: octets.clone(), groups: VecDeque::new(), random: Random::new(seed) };
    let bus = Rc::new(RefCell::new(bus));
    let memory = Writing { before: octets.clone(), octets, bus: Rc::clone(&bus) };
    let log = Log::create_with_blocks(memory, 1, [7; 16], BLOCK).expect("large enough");
    bus.borrow_mut().settle();
    let mut reader = Reader::new(Reading(Rc::clone(&bus))).expect("a log");
    let (told, entries) = (BTreeMap::new(), Vec::new());
    let mut writer = Writer { log, told, entries, count: 0, random: Random::new(!seed) };
    let mut found = Found::default();
    for _ in 0..acts {
        writer.act();
        if writer.random.below(12) == 0 {
            bus.borrow_mut().hurry();
            read(&mut reader, &writer, &mut found);
        }
    }
    bus.borrow_mut().settle();
    let changed = found.changed;
    read(&mut reader, &writer, &mut found);
    assert_eq!(found.changed, changed, "nothing changes any more");
    found
}

#[test]
fn whatever_is_read_was_true_at_some_time() {
    let (mut whole, mut changed) = (0, 0);
    for seed in 0..40 {
        let found = run(seed, 2000);
        (whole, changed) = (whole + found.whole, changed + found.changed);
    }
    assert!(whole > 1000 && changed > 400, "{whole} sessions were read, {changed} had changed");
}

/// Hundreds of blocks lie between those that were in use when the table was read last and the one that is looked for.
#[test]
fn a_block_far_behind_the_others_is_found() {
    const MANY: usize = 400;
    let empty = vec![0; (3 + MANY) * BLOCK + MANY * 276];
    let bus = Bus { visible: empty.clone(), groups: VecDeque::new(), random: Random::new(1) };
    let bus = Rc::new(RefCell::new(bus));
    let memory = Writing { before: empty.clone(), octets: empty, bus: Rc::clone(&bus) };
    let mut log = Log::create_with_blocks(memory, 1, [7; 16], BLOCK).expect("large enough");
    let [near, far] = [(); 2].map(|()| log.open(0, 0, b"first").expect("room"));
    bus.borrow_mut().settle();
    let mut reader = Reader::new(Reading(Rc::clone(&bus))).expect("a log");
    let mut read = |log: &Log<Writing>, id: SessionId| {
        bus.borrow_mut().settle();
        let (view, mut found) = (reader.view(id).expect("it is there"), Vec::new());
        let Range { start, end } = log.outgoing(id);
        while start + (found.len() as u64) < end {
            let rest = start + found.len() as u64..end;
            reader.outgoing(&view, rest, BLOCK, &mut found).expect("nothing changes");
        }
        assert!(found == octets(id, 1, start..end), "of {id:?}");
    };
    let push = |log: &mut Log<Writing>, id: SessionId, count: usize| {
        let end = log.outgoing(id).end;
        log.push(id, &octets(id, 1, end..end + count as u64), None).expect("room");
    };
    push(&mut log, near, 100);
    read(&log, near);
    for _ in 0..200 {
        push(&mut log, far, BLOCK);
    }
    push(&mut log, near, 2 * BLOCK);
    read(&log, near);
    read(&log, far);
}

#[test]
fn an_entry_has_no_number_that_another_had_before_its_process_died() {
    let octets = vec![0; (3 + BLOCKS) * BLOCK + BLOCKS * 276];
    let mut log = Log::create_with_blocks(octets, 1, [7; 16], BLOCK).expect("large enough");
    let [stays, goes] = [(); 2].map(|()| log.open(0, 0, b"first").expect("room"));
    // Each has a block of its own, and no room in it is left.
    let tell = |log: &mut Log<Vec<u8>>, id: SessionId| {
        let entry = log.append(EntryId::NONE, &vec![1; log.longest_entry()]).expect("room");
        log.push(id, &[1; 10], Some(entry)).expect("room");
    };
    let number = |octets: &[u8], id: SessionId| {
        let bus = Bus { visible: octets.to_vec(), groups: VecDeque::new(), random: Random::new(1) };
        let reader = Reader::new(Reading(Rc::new(RefCell::new(bus)))).expect("a log");
        let view = reader.view(id).expect("it is there");
        reader.entry_head(&view, view.passed).expect("nothing changes").0
    };
    tell(&mut log, stays);
    tell(&mut log, goes);
    let octets = log.into_memory();
    let gone = number(&octets, goes);
    let mut log = Log::recover(octets).expect("a log");
    log.close(goes);
    log.collect([]);
    let mut log = Log::recover(log.into_memory()).expect("a log");
    tell(&mut log, stays);
    assert_ne!(number(&log.into_memory(), stays), gone);
}

#[test]
fn memory_that_holds_no_log_is_refused() {
    let reading = |octets: Vec<u8>| {
        let bus = Bus { visible: octets, groups: VecDeque::new(), random: Random::new(1) };
        Reader::new(Reading(Rc::new(RefCell::new(bus)))).err()
    };
    assert_eq!(reading(Vec::new()), Some(Unreadable::NoLog));
    assert_eq!(reading(vec![0; 1 << 20]), Some(Unreadable::NoLog));
    let mut octets = Log::create(vec![0; 1 << 20], 1, [7; 16]).expect("large enough").into_memory();
    octets[16] ^= 1;
    assert!(matches!(reading(octets), Some(Unreadable::Damaged(_))));
}

//! Whatever is in the store after any batch is a log that can be gone on with.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Range,
};

use holdfast_api::stored::v1 as stored;
use holdfast_nsr::{EntryId, Log, Reader, SessionId};
use holdfast_store::{Batch, Claim, Contents, Description, MOST_OCTETS, Name, Page};
use proptest::prelude::*;
use prost::Message;

use super::*;
use crate::scene::{Both, Reading};

const BLOCK: usize = 4096;
const BLOCKS: usize = 40;

fn octets(id: SessionId, direction: u8, range: Range<u64>) -> Vec<u8> {
    range.map(|offset| (offset.wrapping_mul(7) ^ offset >> 5) as u8 ^ id.0 as u8 ^ direction).collect()
}

/// What is true of a session, or was.
#[derive(Default)]
struct Told {
    /// By the end of what goes out: what the list of entries said.
    lists: BTreeMap<u64, BTreeSet<Vec<u32>>>,
    records: BTreeSet<Vec<u8>>,
    /// Of each snapshot, its records and the offset from which on octets count.
    snapshots: BTreeMap<u32, (Vec<u8>, u64)>,
    /// Octets before these have no effect that the snapshot lacks.
    trims: BTreeSet<(u32, u64)>,
}

#[derive(Clone, Debug)]
enum Act {
    Open(u64),
    Close(usize),
    Receive(usize, usize),
    Push(usize, usize, bool),
    Acknowledge(usize, usize),
    Trim(usize),
    Snapshot(usize, Vec<usize>),
    Record(usize, u8),
    Append(usize, bool),
    /// What stands before an entry that has so many above it is written anew, as entries of these sizes.
    Fold(usize, Vec<usize>),
    Collect,
    /// The copier fills and the store confirms a batch, which has room for so many octets.
    Copy(usize),
    /// The same, and what is in the socket was looked at before.
    Peek(usize, usize),
    /// The store has lost everything.
    Restart,
}

fn act() -> impl Strategy<Value = Act> {
    let which = 0..4_usize;
    prop_oneof![
        2 => (0..5000_u64).prop_map(Act::Open),
        1 => which.clone().prop_map(Act::Close),
        8 => (which.clone(), 1..4000_usize).prop_map(|(which, count)| Act::Receive(which, count)),
        8 => (which.clone(), 1..4000_usize, any::<bool>()).prop_map(|(which, count, told)| Act::Push(which, count, told)),
        4 => (which.clone(), 0..3000_usize).prop_map(|(which, kept)| Act::Acknowledge(which, kept)),
        3 => which.clone().prop_map(Act::Trim),
        3 => (which.clone(), prop::collection::vec(0..3000_usize, 0..5)).prop_map(|(which, sizes)| Act::Snapshot(which, sizes)),
        2 => (which.clone(), any::<u8>()).prop_map(|(which, value)| Act::Record(which, value)),
        6 => (0..400_usize, any::<bool>()).prop_map(|(size, new)| Act::Append(size, new)),
        2 => (0..4_usize, prop::collection::vec(0..1500_usize, 1..5)).prop_map(|(above, sizes)| Act::Fold(above, sizes)),
        1 => Just(Act::Collect),
        12 => prop_oneof![4500..9000_usize, Just(MOST_OCTETS)].prop_map(Act::Copy),
        1 => (which, 1..3000_usize).prop_map(|(which, count)| Act::Peek(which, count)),
        1 => Just(Act::Restart),
    ]
}

struct World {
    log: Log<Both>,
    told: BTreeMap<SessionId, Told>,
    /// What the copier was told of sockets.
    sockets: BTreeMap<SessionId, u8>,
    /// What each entry says, and each list by its last.
    lists: BTreeMap<EntryId, Vec<u32>>,
    head: EntryId,
    count: u32,
    copier: Copier<Reading>,
    contents: Contents,
    sequence: u64,
    generation: u64,
}

impl World {
    fn new() -> Self {
        let (memory, reading) = Both::new((3 + BLOCKS) * BLOCK + BLOCKS * 276);
        let log = Log::create_with_blocks(memory, 8, [7; 16], BLOCK).expect("large enough");
        let copier = Copier::new(Reader::new(reading).expect("a log"), 0, "");
        let mut world = Self {
            log,
            told: BTreeMap::new(),
            sockets: BTreeMap::new(),
            lists: BTreeMap::from([(EntryId::NONE, Vec::new())]),
            head: EntryId::NONE,
            count: 0,
            copier,
            contents: Contents::new(1 << 30),
            sequence: 0,
            generation: 0,
        };
        world.claim();
        world
    }

    fn claim(&mut self) {
        self.generation += 1;
        let claim = Claim { incarnation: 1, is_empty: true, epoch: 1, generation: self.generation };
        self.contents = Contents::new(1 << 30);
        self.sequence = self.contents.claim(&claim).expect("empty").sequence;
    }

    fn session(&self, which: usize) -> Option<SessionId> {
        let mut ids: Vec<_> = self.log.sessions().collect();
        ids.sort_unstable();
        ids.get(which).copied()
    }

    fn act(&mut self, act: Act) {
        match act {
            Act::Open(at) => {
                if self.log.sessions().count() < 4
                    && let Ok(id) = self.log.open(at, 2 * at, b"first")
                {
                    let told = self.told.entry(id).or_default();
                    told.records.insert(b"first".to_vec());
                    told.lists.entry(2 * at).or_default().insert(Vec::new());
                    told.snapshots.insert(0, (Vec::new(), at));
                    told.trims.insert((0, at));
                }
            }
            Act::Close(which) => self.session(which).into_iter().for_each(|id| {
                self.log.close(id);
                self.copier.set_socket(id, None);
                self.sockets.remove(&id);
            }),
            Act::Receive(which, count) => {
                self.session(which).into_iter().for_each(|id| self.receive(id, count));
            }
            Act::Push(which, count, told) => {
                self.session(which).into_iter().for_each(|id| self.push(id, count, told));
            }
            Act::Acknowledge(which, kept) => self.session(which).into_iter().for_each(|id| {
                let Range { start, end } = self.log.outgoing(id);
                self.log.sent(id, (end - start) as usize);
                self.log.acknowledged(id, end.saturating_sub(kept as u64));
            }),
            Act::Trim(which) => self.session(which).into_iter().for_each(|id| {
                let end = self.log.incoming(id).end;
                self.log.trim(id, end);
                let told = self.told.get_mut(&id).expect("open");
                let number = told.snapshots.last_key_value().map_or(0, |(number, _)| *number);
                told.trims.insert((number, end));
            }),
            Act::Snapshot(which, sizes) => {
                self.session(which).into_iter().for_each(|id| self.snapshot(id, &sizes));
            }
            Act::Record(which, value) => self.session(which).into_iter().for_each(|id| {
                let record = vec![value; 1 + usize::from(value) % 60];
                self.log.set_record(id, &record).expect("short enough");
                self.told.get_mut(&id).expect("open").records.insert(record);
                if value % 3 == 0 {
                    self.copier.set_socket(id, Some(vec![value; 9]));
                    self.sockets.insert(id, value);
                }
            }),
            Act::Append(size, new) => self.append(size, new),
            Act::Fold(above, sizes) => self.fold(above, &sizes),
            Act::Collect => self.collect(),
            Act::Copy(room) => {
                self.copy(room, None);
            }
            Act::Peek(which, count) => {
                let peek = self.session(which).map(|id| (id, count));
                self.copy(MOST_OCTETS, peek);
            }
            Act::Restart => {
                self.copier.restart();
                self.claim();
            }
        }
    }

    fn receive(&mut self, id: SessionId, count: usize) {
        let end = self.log.incoming(id).end;
        let Ok([first, second]) = self.log.room(id, count) else { return };
        let new = octets(id, 0, end..end + count as u64);
        let cut = first.len().min(count);
        first[..cut].copy_from_slice(&new[..cut]);
        second[..count - cut].copy_from_slice(&new[cut..]);
        self.log.received(id, count);
    }

    fn push(&mut self, id: SessionId, count: usize, told: bool) {
        let end = self.log.outgoing(id).end;
        let entry = told.then_some(self.head);
        if self.log.push(id, &octets(id, 1, end..end + count as u64), entry).is_ok() {
            let list = self.lists[&self.log.passed(id)].clone();
            self.told.get_mut(&id).expect("open").lists.entry(end + count as u64).or_default().insert(list);
        }
    }

    fn snapshot(&mut self, id: SessionId, sizes: &[usize]) {
        self.log.begin_snapshot(id);
        let mut records = Vec::new();
        for size in sizes {
            self.count += 1;
            let record = vec![self.count as u8; *size];
            if self.log.snapshot_record(id, &record).is_err() {
                return self.log.abort_snapshot(id);
            }
            records.extend([&(*size as u32).to_le_bytes()[..], &record].concat());
        }
        let Range { start, end } = self.log.incoming(id);
        let covers = start + (end - start) / 2;
        self.log.commit_snapshot(id, covers);
        let told = self.told.get_mut(&id).expect("open");
        let number = told.snapshots.last_key_value().map_or(0, |(number, _)| *number) + 1;
        told.snapshots.insert(number, (records, covers));
        told.trims.insert((number, covers));
    }

    fn append(&mut self, size: usize, new: bool) {
        self.count += 1;
        let previous = if new { EntryId::NONE } else { self.head };
        let octets = [&self.count.to_le_bytes()[..], &vec![0; size]].concat();
        match self.log.append(previous, &octets) {
            Ok(entry) => {
                let list = [&self.lists[&previous][..], &[self.count]].concat();
                self.lists.insert(entry, list);
                self.head = entry;
            }
            Err(_) => self.collect(),
        }
    }

    /// The list before an entry is written anew: what it says changes for all that are behind it.
    fn fold(&mut self, above: usize, sizes: &[usize]) {
        let behind =
            |log: &Log<Both>, at| Some(log.entry(at).0).filter(|previous| *previous != EntryId::NONE);
        let mut entry = self.head;
        for _ in 0..above {
            let Some(previous) = (entry != EntryId::NONE).then(|| behind(&self.log, entry)).flatten() else {
                break;
            };
            entry = previous;
        }
        let list = self.lists[&entry].clone();
        let [.., last] = list[..] else { return };
        let (mut base, mut new) = (EntryId::NONE, Vec::new());
        for size in sizes {
            self.count += 1;
            let octets = [&self.count.to_le_bytes()[..], &vec![0; *size]].concat();
            let Ok(next) = self.log.append(base, &octets) else { return };
            new.push(self.count);
            self.lists.insert(next, new.clone());
            base = next;
        }
        self.log.rebase(entry, base);
        new.push(last);
        let old = list;
        for other in self.lists.values_mut().filter(|other| other.starts_with(&old)) {
            other.splice(..old.len(), new.iter().copied());
        }
        // What was told is the same in other words.
        for told in self.told.values_mut() {
            for lists in told.lists.values_mut() {
                let folded: Vec<_> = lists
                    .iter()
                    .filter(|list| list.starts_with(&old))
                    .map(|list| [&new[..], &list[old.len()..]].concat())
                    .collect();
                lists.extend(folded);
            }
        }
    }

    fn collect(&mut self) {
        self.log.collect([]);
        let mut passed = self.log.sessions().map(|id| self.log.passed(id));
        self.head = passed.next().unwrap_or(EntryId::NONE);
    }

    /// Fills a batch, which the store applies; whether the pass is over.
    fn copy(&mut self, room: usize, peek: Option<(SessionId, usize)>) -> Filled {
        self.sequence += 1;
        let mut batch = Draft::new(Batch::new(1, 1, self.generation, self.sequence));
        if room < MOST_OCTETS {
            let value = vec![0; MOST_OCTETS - room - 100];
            batch.push(Operation::Put { name: Name::new(b"other").expect("short"), value }).expect("room");
        }
        let filled = self.copier.fill(&mut batch);
        if let Some((id, count)) = peek
            && let Some(from) = self.copier.read_up_to(id)
        {
            let looked_at = octets(id, 0, from..from + count as u64);
            self.copier.peeked(&mut batch, id, from, &looked_at);
        }
        self.contents.apply(&batch.into_batch()).expect("it fits");
        let marks = self.copier.take_moved();
        self.check(&marks);
        filled
    }

    fn value(&self, name: Name) -> Option<Vec<u8>> {
        match self.contents.page(self.generation, &name, 0) {
            Ok(Page::Value(value)) => Some(value),
            _ => None,
        }
    }

    /// From where a range begins, its octets.
    fn range(&self, name: Name) -> Option<(u64, Vec<u8>)> {
        let listed = self.contents.list(self.generation, &Default::default());
        let described = listed.objects.into_iter().find(|object| object.name == name)?;
        let Description::Range { start, end } = described.description else { return None };
        let (mut at, mut all) = (start, Vec::new());
        while at < end {
            let Ok(Page::Range { octets, .. }) = self.contents.page(self.generation, &name, at) else {
                return None;
            };
            at += octets.len() as u64;
            all.extend(octets);
        }
        Some((start, all))
    }

    /// What the store has is a log, and as far as the marks say.
    fn check(&self, marks: &[Mark]) {
        let names = Names::new(0);
        for (id, told) in &self.told {
            let Some(value) = self.value(names.session(*id)) else { continue };
            let session = stored::Session::decode(&*value).expect("a session");
            let record = self.value(names.record(*id)).expect("a record");
            assert!(told.records.contains(&record), "the record");
            let (start, incoming) = self.range(names.incoming(*id)).expect("incoming octets");
            let end = start + incoming.len() as u64;
            assert!(start <= session.incoming, "no gap: {start} {session:?} {end}");
            assert_eq!(incoming, octets(*id, 0, start..end));
            assert!(
                told.trims.contains(&(session.snapshot, session.incoming)) || session.snapshot == 0,
                "{session:?}"
            );
            if session.snapshot != 0 {
                let (_, records) = self.range(names.snapshot(*id, session.snapshot)).expect("a snapshot");
                assert_eq!(records, told.snapshots[&session.snapshot].0, "a snapshot is whole");
            }
            let (start, outgoing) = self.range(names.outgoing(*id)).expect("outgoing octets");
            let end = start + outgoing.len() as u64;
            assert!(end >= session.outgoing, "what goes out is there");
            assert_eq!(outgoing, octets(*id, 1, start..end));
            let mut list = Vec::new();
            let mut at = session.passed;
            while at != 0 {
                let entry = self.value(names.entry(at)).expect("each entry of a list is there");
                let entry = stored::Entry::decode(&*entry).expect("an entry");
                list.insert(0, u32::from_le_bytes(entry.octets[..4].try_into().expect("its number")));
                at = entry.previous;
            }
            assert!(told.lists[&session.outgoing].contains(&list), "what was told up to then: {list:?}");
            if let Some(mark) = marks.iter().find(|mark| mark.id == *id) {
                assert!(
                    mark.received
                        <= (session.incoming).max(
                            self.range(names.incoming(*id))
                                .map_or(0, |(start, octets)| start + octets.len() as u64)
                        )
                );
                assert!(mark.sent <= session.outgoing, "octets behind the end mean nothing");
            }
        }
    }

    /// All is copied in the end, and nothing else is there.
    fn finish(&mut self) {
        for _ in 0..200 {
            if (0..3).all(|_| self.copy(MOST_OCTETS, None) == Filled::All) {
                break;
            }
        }
        let names = Names::new(0);
        let mut expected = BTreeSet::from([names.log(), Name::new(b"other").expect("short")]);
        for id in self.log.sessions() {
            let mark = self.copier.mark(id).expect("it is copied");
            let (incoming, outgoing) = (self.log.incoming(id), self.log.unacknowledged(id));
            assert!(
                mark.received >= incoming.end && mark.sent == outgoing.end,
                "{mark:?} {incoming:?} {outgoing:?}"
            );
            let session =
                stored::Session::decode(&*self.value(names.session(id)).expect("there")).expect("one");
            assert_eq!((session.incoming, session.outgoing), (incoming.start, outgoing.end));
            expected.extend([names.session(id), names.record(id), names.incoming(id), names.outgoing(id)]);
            expected.extend((session.snapshot != 0).then(|| names.snapshot(id, session.snapshot)));
            let socket = self.sockets.get(&id).map(|value| vec![*value; 9]);
            assert_eq!(
                (self.value(names.socket(id)), self.copier.has_socket(id)),
                (socket.clone(), socket.is_some())
            );
            expected.extend(socket.is_some().then(|| names.socket(id)));
        }
        let listed = self.contents.list(self.generation, &Default::default()).objects;
        let there = listed.into_iter().map(|object| object.name);
        let others: Vec<_> =
            there.filter(|name| !expected.contains(name) && !name.as_slice().starts_with(b"0/e/")).collect();
        assert_eq!(others, [], "nothing else is there");
    }
}

proptest! {
    #![proptest_config(holdfast_testing::cases(300))]

    #[test]
    fn after_any_batch_the_store_has_a_log(acts in prop::collection::vec(act(), 1..150)) {
        let mut world = World::new();
        for act in acts {
            world.act(act);
        }
        world.finish();
    }
}

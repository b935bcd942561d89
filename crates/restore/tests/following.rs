//! Whoever follows a store hears what every peer has said, whatever its writer does meanwhile.

use std::collections::{BTreeMap, BTreeSet};

use holdfast_api::stored::v1 as stored;
use holdfast_nsr::SessionId;
use holdfast_restore::{Followed, Following, Names, News, Objects, Reading};
use holdfast_store::{Answer, Batch, Claim, Contents, MERGED, Operation, Request};
use proptest::prelude::*;
use prost::Message;

const SESSIONS: u32 = 3;

#[derive(Clone, Debug)]
enum Op {
    /// The peer of a session says so many octets.
    Says(u32, usize),
    /// What it said so many octets ago, and before, is trimmed.
    Trims(u32, u64),
    /// It ends, if it is there, and another one begins in its place otherwise.
    Turns(u32),
    /// The router is configured anew. Its serial is greater than all before.
    Configures,
    /// Another generation counts.
    WritesAnew,
    Asks,
    Answers(usize),
    Rounds(bool),
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        8 => (0..SESSIONS, prop_oneof![1..40_usize, MERGED - 30..MERGED + 30]).prop_map(|(id, count)| Op::Says(id, count)),
        2 => (0..SESSIONS, 0..3 * MERGED as u64).prop_map(|(id, back)| Op::Trims(id, back)),
        1 => (0..SESSIONS).prop_map(Op::Turns),
        1 => Just(Op::Configures),
        1 => Just(Op::WritesAnew),
        6 => Just(Op::Asks),
        6 => (1..4_usize).prop_map(Op::Answers),
        4 => any::<bool>().prop_map(Op::Rounds),
    ]
}

/// The router whose store it is.
struct Writer {
    contents: Contents,
    generation: u64,
    sequence: u64,
    /// The session in each place. No two have the same number.
    places: [Option<u32>; SESSIONS as usize],
    begun: u32,
    /// What each peer has said from the beginning, and from where the store has it.
    said: BTreeMap<u32, (Vec<u8>, u64)>,
    /// 0: it has not said how it is configured.
    configuration: u64,
    next: u8,
}

impl Writer {
    fn new() -> Self {
        let mut writer = Self {
            contents: Contents::new(1 << 24),
            generation: 0,
            sequence: 0,
            places: [None; SESSIONS as usize],
            begun: 0,
            said: BTreeMap::new(),
            configuration: 0,
            next: 0,
        };
        writer.write_anew();
        writer
    }

    fn write(&mut self, operations: impl IntoIterator<Item = Operation>) {
        let mut batch = Batch::new(77, 1, self.generation, self.sequence + 1);
        operations.into_iter().for_each(|operation| batch.push(operation).expect("room"));
        self.sequence = self.contents.apply(&batch).expect("granted").sequence;
    }

    fn write_anew(&mut self) {
        let is_empty = self.generation == 0;
        let before = self.generation;
        self.generation += 1;
        let claim = Claim { incarnation: 77, is_empty, epoch: 1, generation: self.generation };
        self.sequence = self.contents.claim(&claim).expect("granted").sequence;
        let log = stored::Log { formats: 8, key: vec![3; 16], vrf: String::new() };
        self.write([Operation::Put { name: Names::new(0).log(), value: log.encode_to_vec() }]);
        for (id, (said, start)) in self.said.clone() {
            self.begin(id, start);
            self.append(id, start, &said[start as usize..]);
        }
        self.configure();
        self.write([Operation::Adopt]);
        if before > 0 {
            self.write([Operation::Discard { generation: before }]);
        }
    }

    fn configure(&mut self) {
        let value = self.configuration.to_le_bytes().to_vec();
        let put = |name| Operation::Put { name, value: value.clone() };
        if self.configuration > 0 {
            self.write([put(Names::configuration()), put(Names::configuration_serial())]);
        }
    }

    fn begin(&mut self, id: u32, start: u64) {
        let (names, id) = (Names::new(0), SessionId(id));
        let value = stored::Session { incoming: start, ..stored::Session::default() }.encode_to_vec();
        self.write([
            Operation::Put { name: names.session(id), value },
            Operation::Put { name: names.record(id), value: Vec::new() },
            Operation::Begin { name: names.incoming(id), at: start },
        ]);
    }

    fn append(&mut self, id: u32, at: u64, octets: &[u8]) {
        let name = Names::new(0).incoming(SessionId(id));
        if !octets.is_empty() {
            self.write([Operation::Append { name, at, octets: octets.to_vec() }]);
        }
    }

    fn session(&self, place: u32) -> Option<u32> {
        self.places[place as usize]
    }

    fn run(&mut self, op: &Op) {
        let names = Names::new(0);
        match *op {
            Op::Says(place, count) => {
                let Some(id) = self.session(place) else { return };
                let octets: Vec<u8> = (0..count).map(|at| self.next.wrapping_add(at as u8)).collect();
                self.next = self.next.wrapping_add(101);
                let (said, _) = self.said.get_mut(&id).expect("it is there");
                let at = said.len() as u64;
                said.extend(&octets);
                self.append(id, at, &octets);
            }
            Op::Trims(place, back) => {
                let Some(id) = self.session(place) else { return };
                let (said, start) = self.said.get_mut(&id).expect("it is there");
                *start = (*start).max((said.len() as u64).saturating_sub(back));
                let (to, id) = (*start, SessionId(id));
                let value = stored::Session { incoming: to, ..stored::Session::default() }.encode_to_vec();
                self.write([
                    Operation::Put { name: names.session(id), value },
                    Operation::Trim { name: names.incoming(id), to },
                ]);
            }
            Op::Turns(place) => match self.places[place as usize].take() {
                Some(id) => {
                    self.said.remove(&id);
                    let session = SessionId(id);
                    let all = [names.session(session), names.record(session), names.incoming(session)];
                    self.write(all.map(|name| Operation::Remove { name }));
                }
                None => {
                    let id = self.begun;
                    self.begun += 1;
                    self.places[place as usize] = Some(id);
                    self.said.insert(id, (Vec::new(), 0));
                    self.begin(id, 0);
                }
            },
            Op::Configures => {
                self.configuration += 1;
                self.configure();
            }
            Op::WritesAnew => self.write_anew(),
            Op::Asks | Op::Answers(_) | Op::Rounds(_) => {}
        }
    }

    fn answer(&self, request: &Request) -> Answer {
        match request {
            Request::State => Answer::State(self.contents.state()),
            Request::List { generation, from } => Answer::Listed(self.contents.list(*generation, from)),
            Request::Page { generation, name, at } => match self.contents.page(*generation, name, *at) {
                Ok(page) => Answer::Page(page),
                Err(refused) => Answer::Refused(refused),
            },
            Request::Values { generation, names } => Answer::Values(self.contents.values(*generation, names)),
            Request::Claim(_) | Request::Batch(_) => panic!("who follows writes nothing"),
        }
    }

    /// All that a reader finds who is as quick as the store.
    fn read(&self) -> (Objects, BTreeSet<Followed>) {
        let mut reading = Reading::live(self.generation);
        while let Some(request) = reading.ask() {
            reading.answered(self.answer(&request)).expect("an answer to it");
        }
        let objects = reading.finish().expect("all is read");
        let tables = objects.received_tables().expect("a log");
        let sessions =
            tables.iter().flat_map(|table| table.sessions.iter().map(|session| (table.number, session.id)));
        let sessions = sessions.collect();
        (objects, sessions)
    }
}

proptest! {
    #![proptest_config(holdfast_testing::cases(400))]

    #[test]
    fn what_is_heard_is_what_was_said_until_all_has_to_be_read_anew(
        before in prop::collection::vec(op(), 0..20),
        ops in prop::collection::vec(op(), 1..120),
    ) {
        let mut writer = Writer::new();
        (0..2).for_each(|id| writer.run(&Op::Turns(id)));
        before.iter().for_each(|op| writer.run(op));
        let (objects, sessions) = writer.read();
        prop_assert_eq!(sessions.len(), writer.said.len());
        let mut heard: BTreeMap<u32, Vec<u8>> =
            writer.said.iter().map(|(id, (said, _))| (*id, said.clone())).collect();
        // What a session has said that has ended since.
        let mut past: BTreeMap<u32, Vec<u8>> = BTreeMap::new();
        let mut configuration = Vec::new();
        let mut following = Following::new(writer.generation, &objects, &sessions);
        let mut requests = std::collections::VecDeque::new();
        let rest = [Op::Rounds(true), Op::Asks, Op::Answers(100), Op::Asks, Op::Answers(100)];
        let rest = rest.iter().cycle().take(40);
        for op in ops.iter().chain(rest) {
            if let Op::Turns(place) = op
                && let Some(id) = writer.session(*place)
            {
                past.insert(id, writer.said[&id].0.clone());
            }
            writer.run(op);
            match op {
                Op::Rounds(looks) if following.is_idle() => following.begin(|_| true, *looks),
                Op::Asks => requests.extend(std::iter::from_fn(|| following.ask())),
                Op::Answers(count) => {
                    for request in requests.drain(..(*count).min(requests.len())) {
                        for news in following.answered(writer.answer(&request)).expect("an answer to it") {
                            match news {
                                News::Octets((0, id), octets) => {
                                    heard.get_mut(&id.0).expect("followed").extend(octets);
                                }
                                News::Octets(..) => prop_assert!(false, "there is one table"),
                                News::Ended((_, id)) => {
                                    let octets = heard.remove(&id.0).expect("followed");
                                    let said = past.get(&id.0).expect("it has ended");
                                    prop_assert!(said.starts_with(&octets));
                                }
                                News::Configuration(octets) => configuration = octets,
                                News::Anew => return Ok(()),
                            }
                        }
                    }
                }
                _ => {}
            }
        }
        let said: BTreeMap<u32, Vec<u8>> = writer.said.into_iter().map(|(id, (said, _))| (id, said)).collect();
        prop_assert_eq!(heard, said);
        let number = writer.configuration.to_le_bytes();
        prop_assert_eq!(&configuration[..], if writer.configuration > 0 { &number[..] } else { &[] });
    }
}

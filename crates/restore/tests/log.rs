//! What was written in the form of a store is a log again.

use holdfast_api::{bgp::v1::HeldSession, stored::v1 as stored};
use holdfast_nsr::{Log, SessionId};
use holdfast_restore::{MOST_ASKED, Names, NotRebuilt, Objects, Reading, rebuild};
use holdfast_store::{Answer, Batch, Claim, Contents, Name, Operation, Refused, Request};
use prost::Message;

pub(super) const FORMATS: u64 = 8;
pub(super) const KEY: [u8; 16] = [3; 16];

/// A store with one table: two sessions, of which the first has a snapshot, and three entries.
pub(super) fn operations() -> Vec<Operation> {
    let names = Names::new(4);
    let put = |name, value: Vec<u8>| Operation::Put { name, value };
    let append = |name, at, octets: &[u8]| Operation::Append { name, at, octets: octets.to_vec() };
    let log = stored::Log { formats: FORMATS, key: KEY.to_vec(), vrf: "red".into() };
    let mut all = vec![put(names.log(), log.encode_to_vec())];
    for (id, session) in [
        (
            7,
            stored::Session {
                snapshot: 2,
                incoming: 1003,
                unacknowledged: 504,
                outgoing: 508,
                passed: 30,
                numbers: vec![1, 2, 3, 4, 5],
            },
        ),
        (
            9,
            stored::Session {
                snapshot: 0,
                incoming: 1 << 32,
                unacknowledged: 0,
                outgoing: 10,
                passed: 20,
                numbers: vec![6],
            },
        ),
    ] {
        let id = SessionId(id);
        let record = HeldSession { number: id.0, ..HeldSession::default() };
        all.extend([
            put(names.session(id), session.encode_to_vec()),
            put(names.record(id), record.encode_to_vec()),
        ]);
    }
    let (one, two) = (SessionId(7), SessionId(9));
    all.extend([
        append(names.incoming(one), 1000, b"0123456"),
        append(names.outgoing(one), 500, b"abcdefghi"),
        append(names.snapshot(one, 2), 0, b"\x03\0\0\0one\0\0\0\0"),
        Operation::Begin { name: names.incoming(two), at: 1 << 32 },
        append(names.outgoing(two), 3, b"DEFGHIJKL"),
    ]);
    for (number, previous) in [(10_u64, 0), (20, 10), (30, 20)] {
        let entry = stored::Entry { previous, octets: number.to_le_bytes().to_vec() };
        all.push(put(names.entry(number), entry.encode_to_vec()));
    }
    all
}

pub(super) fn contents(operations: Vec<Operation>) -> Contents {
    let mut contents = Contents::new(u64::MAX);
    let claim = Claim { incarnation: 1, is_empty: true, epoch: 1, generation: 1 };
    let sequence = contents.claim(&claim).expect("empty").sequence + 1;
    let mut batch = Batch::new(1, 1, 1, sequence);
    operations.into_iter().for_each(|operation| batch.push(operation).expect("room"));
    contents.apply(&batch).expect("it fits");
    contents
}

/// All objects, through requests and answers.
pub(super) fn read(contents: &Contents) -> Result<Objects, holdfast_restore::Damaged> {
    read_but(contents, None)
}

/// The same of a store that lists this one, and does not have it.
pub(super) fn read_but(
    contents: &Contents,
    lost: Option<Name>,
) -> Result<Objects, holdfast_restore::Damaged> {
    let mut contents = contents.clone();
    let (mut reading, mut asked) = (Reading::new(1), std::collections::VecDeque::<Request>::new());
    loop {
        while let Some(request) = reading.ask() {
            asked.push_back(request);
            assert!(asked.len() <= MOST_ASKED);
        }
        let Some(request) = asked.pop_front() else { break };
        let answer = match (contents.answer(&request), &request) {
            (Answer::Page(_), Request::Page { name, .. }) if lost == Some(*name) => {
                Answer::Refused(Refused::NotThere)
            }
            (Answer::Values(mut values), Request::Values { names, .. }) => {
                let of = names.iter().position(|name| lost == Some(*name));
                of.into_iter().for_each(|at| values[at] = None);
                Answer::Values(values)
            }
            (answer, _) => answer,
        };
        reading.answered(answer)?;
    }
    Ok(reading.finish().expect("all answers are there"))
}

#[test]
fn the_log_is_as_it_was_but_that_sockets_count_anew() {
    let tables = read(&contents(operations())).expect("whole").tables().0;
    let [table] = &tables[..] else { panic!("{tables:?}") };
    assert_eq!((table.number, table.vrf.as_str(), table.entries.len()), (4, "red", 3));
    let mut log = Log::create(vec![0; 4 << 20], FORMATS, KEY).expect("room");
    let restored = rebuild(table, &mut log).expect("room");
    // To die afterwards does no harm.
    let log = Log::recover(log.into_memory()).expect("a log");
    let [one, two] = &restored[..] else { panic!("{restored:?}") };
    assert_eq!((one.was, one.received, one.unacknowledged.clone()), (SessionId(7), 1007, 504..508));
    assert_eq!((two.was, two.received, two.unacknowledged.clone()), (SessionId(9), 1 << 32, 3..10));
    let read = |session: &holdfast_restore::Restored| {
        let id = session.id;
        let held = HeldSession::decode(log.record(id)).expect("a record");
        let octets: Vec<u8> = log.unsent(id).flatten().copied().collect();
        let mut list = Vec::new();
        let mut at = log.passed(id);
        while at != holdfast_nsr::EntryId::NONE {
            let (previous, octets) = log.entry(at);
            list.push(octets[0]);
            at = previous;
        }
        (held, log.read(id, log.incoming(id).start).to_vec(), octets, list)
    };
    let (held, incoming, outgoing, list) = read(one);
    assert_eq!((held.number, held.received_origin, held.sent_origin), (7, 1007, 504));
    assert_eq!((&incoming[..], &outgoing[..], &list[..]), (&b"3456"[..], &b"efgh"[..], &[30, 20, 10][..]));
    assert_eq!(log.snapshot(one.id).collect::<Vec<_>>(), [&b"one"[..], b""]);
    assert_eq!(log.numbers(one.id), [1, 2, 3, 4, 5]);
    let (held, incoming, outgoing, list) = read(two);
    assert_eq!((held.received_origin, held.sent_origin), (1 << 32, 3));
    assert_eq!((&incoming[..], &outgoing[..], &list[..]), (&b""[..], &b"DEFGHIJ"[..], &[20, 10][..]));
    assert_eq!(log.numbers(two.id), [6, 0, 0, 0, 0]);
}

#[test]
fn a_log_of_another_table_is_left_alone() {
    let tables = read(&contents(operations())).expect("whole").tables().0;
    for (formats, key) in [(FORMATS + 1, KEY), (FORMATS, [4; 16])] {
        let mut log = Log::create(vec![0; 4 << 20], formats, key).expect("room");
        assert_eq!(rebuild(&tables[0], &mut log), Err(NotRebuilt::OtherLog));
    }
    let mut log = Log::create(vec![0; 4 << 20], FORMATS, KEY).expect("room");
    rebuild(&tables[0], &mut log).expect("room");
    assert_eq!(rebuild(&tables[0], &mut log), Err(NotRebuilt::OtherLog), "it has sessions");
}

#[test]
fn a_store_without_a_table_has_none() {
    assert_eq!(read(&contents(Vec::new())).expect("empty").tables(), (Vec::new(), Vec::new()));
    let mut reading = Reading::new(1);
    assert!(reading.ask().is_some() && reading.ask().is_none(), "the list comes first");
    assert!(reading.answered(Answer::State(None)).is_err());
}

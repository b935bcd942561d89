//! A store that has lost something is named, with the sessions that it is lost to.

use std::collections::BTreeSet;

use holdfast_api::stored::v1 as stored;
use holdfast_nsr::{Log, SessionId};
use holdfast_restore::{Damaged, Names, NotRebuilt, Objects, Reading, Table, rebuild};
use holdfast_store::{Batch, Name, Operation};
use prost::Message;

use super::log::{FORMATS, KEY, contents, operations, read, read_but};

/// The numbers of the sessions that are there, and what others lack.
type Outcome = (Vec<u32>, Vec<(u32, Damaged)>);

fn outcome(operations: Vec<Operation>) -> Result<Outcome, Damaged> {
    outcome_of(read(&contents(operations)))
}

fn outcome_of(objects: Result<Objects, Damaged>) -> Result<Outcome, Damaged> {
    let (tables, damaged) = objects?.tables();
    if let Some(missing) = damaged.first() {
        return Err(*missing);
    }
    let here = tables.iter().flat_map(|table| &table.sessions).map(|session| session.id.0);
    let lost = tables.iter().flat_map(|table| &table.lost).map(|(id, damaged)| (id.0, *damaged));
    Ok((here.collect(), lost.collect()))
}

fn without(name: Name) -> Vec<Operation> {
    operations().into_iter().filter(|operation| operation.name() != Some(&name)).collect()
}

#[test]
fn whatever_is_missing_is_named_and_the_session_beside_it_is_there() {
    let names = Names::new(4);
    let (one, two) = (SessionId(7), SessionId(9));
    for (name, lost) in [
        (names.record(one), &[7][..]),
        (names.incoming(one), &[7]),
        (names.outgoing(two), &[9]),
        (names.snapshot(one, 2), &[7]),
        (names.entry(10), &[7, 9]),
        (names.entry(30), &[7]),
    ] {
        let (here, missing) = outcome(without(name)).expect("there is a log");
        let others: Vec<_> = [7, 9].into_iter().filter(|id| !lost.contains(id)).collect();
        assert_eq!(here, others, "{name:?}");
        assert_eq!(missing, lost.iter().map(|id| (*id, Damaged::Missing(name))).collect::<Vec<_>>());
        let unread = outcome_of(read_but(&contents(operations()), Some(name)));
        assert_eq!(unread, Ok((here, missing)), "it is listed, and cannot be read");
    }
    let unread = |name| outcome_of(read_but(&contents(operations()), Some(name)));
    let session = names.session(two);
    assert_eq!(unread(session), Ok((vec![7], vec![(9, Damaged::Missing(session))])));
    assert_eq!(unread(names.log()), Err(Damaged::Missing(names.log())));
    // A session that is not named there is none, and a table neither.
    assert_eq!(outcome(without(names.session(two))), Ok((vec![7], vec![])));
    assert_eq!(outcome(without(names.log())), Err(Damaged::Missing(names.log())), "it has sessions");
    // That of a table without sessions is nobody's.
    let put = |value| Operation::Put { name: Names::new(5).log(), value };
    let beside = [operations(), vec![put(vec![0xff; 3])]].concat();
    assert_eq!(outcome(beside), Ok((vec![7, 9], vec![])));
}

#[test]
fn whatever_makes_no_sense_is_named() {
    let names = Names::new(4);
    let one = SessionId(7);
    let replaced = |name: Name, operation: Operation| {
        let mut all = without(name);
        all.push(operation);
        outcome(all)
    };
    let put = |name| replaced(name, Operation::Put { name, value: vec![0xff; 3] });
    assert_eq!(put(names.log()), Err(Damaged::Senseless(names.log())));
    for name in [names.session(one), names.record(one)] {
        assert_eq!(put(name), Ok((vec![9], vec![(7, Damaged::Senseless(name))])));
    }
    let name = names.entry(20);
    let lost = put(name).expect("there is a log").1;
    assert!(lost.iter().all(|(_, damaged)| *damaged == Damaged::Senseless(name)) && !lost.is_empty());
    let name = names.snapshot(one, 2);
    let octets = vec![9, 0, 0, 0, 1];
    let half = replaced(name, Operation::Append { name, at: 0, octets });
    assert_eq!(half, Ok((vec![9], vec![(7, Damaged::Senseless(name))])), "half of a record");
    // Octets that begin too late, or end too early.
    for name in [names.incoming(one), names.outgoing(one)] {
        let late = replaced(name, Operation::Append { name, at: 1004, octets: vec![1] });
        let is_lost = name == names.incoming(one);
        let lost = late.expect("there is a log").1;
        assert_eq!(!lost.is_empty(), is_lost, "{name:?}: what is missing was acknowledged");
    }
    let name = names.outgoing(one);
    let early = replaced(name, Operation::Append { name, at: 500, octets: vec![1; 7] });
    assert_eq!(early, Ok((vec![9], vec![(7, Damaged::Missing(name))])));
}

/// A snapshot that is being written is not there before the session names it.
#[test]
fn a_snapshot_that_becomes_whole_while_it_is_read_is_never_there_by_halves() {
    let (names, id) = (Names::new(4), SessionId(7));
    let name = names.snapshot(id, 3);
    let append = |at, octets: &[u8]| Operation::Append { name, at, octets: octets.to_vec() };
    let before = [operations(), vec![append(0, b"\x03\0\0\0new")]].concat();
    let session = stored::Session { snapshot: 3, incoming: 1003, ..stored::Session::default() };
    let mut seen = BTreeSet::new();
    for finished_at in 0..10 {
        let mut contents = contents(before.clone());
        let mut reading = Reading::live(1);
        let mut asked = 0;
        loop {
            if asked == finished_at {
                let sequence = contents.state().expect("it was written").sequence + 1;
                let mut batch = Batch::new(1, 1, 1, sequence);
                for operation in [
                    append(7, b"\x03\0\0\0end"),
                    Operation::Put { name: names.session(id), value: session.encode_to_vec() },
                    Operation::Remove { name: names.snapshot(id, 2) },
                ] {
                    batch.push(operation).expect("room");
                }
                contents.apply(&batch).expect("it fits");
            }
            let Some(request) = reading.ask() else { break };
            reading.answered(contents.answer(&request)).expect("an answer to it");
            asked += 1;
        }
        let tables = reading.finish().expect("all is read").received_tables().expect("a log");
        let found = tables[0].sessions.iter().find(|session| session.id == id);
        seen.insert(found.map(|session| session.snapshot.concat()));
    }
    let expected = [None, Some(b"newend".to_vec()), Some(b"one".to_vec())];
    assert_eq!(seen, BTreeSet::from(expected));
}

#[test]
fn a_list_without_an_end_is_lost() {
    let name = Names::new(4).entry(10);
    let entry = holdfast_api::stored::v1::Entry { previous: 30, octets: Vec::new() };
    let mut all = without(name);
    all.push(Operation::Put { name, value: entry.encode_to_vec() });
    let (here, lost) = outcome(all).expect("there is a log");
    assert!(here.is_empty() && lost.iter().all(|(_, damaged)| matches!(damaged, Damaged::Senseless(_))));
}

#[test]
fn a_table_that_makes_no_sense_becomes_no_log() {
    let tables = read(&contents(operations())).expect("whole").tables().0;
    let refused = |change: &dyn Fn(&mut Table)| {
        let mut table = tables[0].clone();
        change(&mut table);
        let mut log = Log::create(vec![0; 4 << 20], FORMATS, KEY).expect("room");
        rebuild(&table, &mut log)
    };
    let record = refused(&|table| table.sessions[0].record = vec![0xff; 3]);
    assert_eq!(record, Err(NotRebuilt::Record(SessionId(7))));
    let circle = refused(&|table| table.entries.get_mut(&10).expect("there").previous = 30);
    assert_eq!(circle, Err(NotRebuilt::Entries(SessionId(7))));
}

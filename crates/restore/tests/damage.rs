//! A store that has lost something is refused, and names it.

use holdfast_nsr::{Log, SessionId};
use holdfast_restore::{Damaged, Names, NotRebuilt, rebuild};
use holdfast_store::{Name, Operation};
use prost::Message;

use super::log::{FORMATS, KEY, contents, operations, read};

fn without(name: Name) -> Vec<Operation> {
    operations().into_iter().filter(|operation| operation.name() != Some(&name)).collect()
}

#[test]
fn whatever_is_missing_is_named() {
    let names = Names::new(4);
    let (one, two) = (SessionId(7), SessionId(9));
    for name in [
        names.record(one),
        names.incoming(one),
        names.outgoing(two),
        names.snapshot(one, 2),
        names.entry(10),
        names.entry(30),
    ] {
        let tables = read(&contents(without(name))).and_then(|objects| objects.tables());
        assert_eq!(tables, Err(Damaged::Missing(name)));
    }
    // A session that is not named there is none, and a table neither.
    let tables = read(&contents(without(names.session(two)))).and_then(|objects| objects.tables());
    assert_eq!(tables.expect("whole")[0].sessions.len(), 1);
    assert_eq!(read(&contents(without(names.log()))).and_then(|objects| objects.tables()), Ok(Vec::new()));
}

#[test]
fn whatever_makes_no_sense_is_named() {
    let names = Names::new(4);
    let one = SessionId(7);
    let replaced = |name: Name, operation: Operation| {
        let mut all = without(name);
        all.push(operation);
        read(&contents(all)).and_then(|objects| objects.tables())
    };
    let put = |name| replaced(name, Operation::Put { name, value: vec![0xff; 3] });
    for name in [names.log(), names.session(one), names.entry(20)] {
        assert_eq!(put(name), Err(Damaged::Senseless(name)));
    }
    let name = names.snapshot(one, 2);
    let octets = vec![9, 0, 0, 0, 1];
    let tables = replaced(name, Operation::Append { name, at: 0, octets });
    assert_eq!(tables, Err(Damaged::Senseless(name)), "half of a record");
    // Octets that begin too late, or end too early.
    for name in [names.incoming(one), names.outgoing(one)] {
        let tables = replaced(name, Operation::Append { name, at: 1004, octets: vec![1] });
        let is_lost = name == names.incoming(one);
        assert_eq!(tables.is_err(), is_lost, "{name:?}: what is missing was acknowledged");
    }
    let name = names.outgoing(one);
    let tables = replaced(name, Operation::Append { name, at: 500, octets: vec![1; 7] });
    assert_eq!(tables, Err(Damaged::Missing(name)));
    let tables = put(names.record(one)).expect("records are opaque so far");
    let mut log = Log::create(vec![0; 4 << 20], FORMATS, KEY).expect("room");
    assert_eq!(rebuild(&tables[0], &mut log), Err(NotRebuilt::Record(one)));
}

#[test]
fn a_list_without_an_end_is_refused() {
    let name = Names::new(4).entry(10);
    let entry = holdfast_api::stored::v1::Entry { previous: 30, octets: Vec::new() };
    let mut all = without(name);
    all.push(Operation::Put { name, value: entry.encode_to_vec() });
    let tables = read(&contents(all)).and_then(|objects| objects.tables()).expect("each is there");
    let mut log = Log::create(vec![0; 4 << 20], FORMATS, KEY).expect("room");
    assert_eq!(rebuild(&tables[0], &mut log), Err(NotRebuilt::Entries(SessionId(7))));
}

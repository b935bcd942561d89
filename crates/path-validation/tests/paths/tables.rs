//! Tables of keys, which change while they are read.

use std::{
    sync::mpsc::{RecvTimeoutError, channel},
    time::Duration,
};

use holdfast_bgpsec_wire::Ski;
use holdfast_path_validation::{Change, KeyTable, MOST_OF_A_NAME, P256Signer, RouterKey, has_own_name};
use holdfast_types::Asn;

use crate::tests::paths::common::{keys_of, signers, table};

/// After so long somebody waits who shall not.
const FOR_EVER: Duration = Duration::from_secs(20);

#[test]
fn tables_change_and_what_was_taken_does_not() {
    let routers = signers([64496, 64496, 64497]);
    let keys = keys_of(&routers);
    let table = table([]);
    let before = table.keys();
    assert!(before.is_empty());
    let names = |keys: &[RouterKey]| keys.iter().map(|key| (key.asn, key.ski)).collect();
    let odd = RouterKey { spki: b"none".to_vec(), ..keys[0].clone() };
    let all = [&keys[..], std::slice::from_ref(&odd)].concat();
    let applied = table.apply(all.iter().cloned().map(Change::Announce));
    assert_eq!((applied.changed, applied.duplicates, applied.unknown), (names(&keys), 0, 0));
    let held = table.keys();
    let again = table.apply(all.iter().cloned().map(Change::Announce));
    assert_eq!((again.changed.len(), again.duplicates), (0, 4));
    assert_eq!((before.len(), held.len(), held.epoch(), table.keys().epoch()), (0, 4, 1, 1));
    let mut listed: Vec<_> = held.iter().collect();
    listed.sort();
    let mut expected = all.clone();
    expected.sort();
    assert_eq!(listed, expected);
    assert_eq!(held.of(keys[0].asn, keys[0].ski).count(), 2);
    assert!(all.iter().all(|key| held.contains(key) && !before.contains(key)));
    assert!(!held.contains(&RouterKey { spki: keys[2].spki.clone(), ..keys[0].clone() }));
    let withdrawn = table.apply([
        Change::Withdraw(keys[0].clone()),
        Change::Withdraw(odd),
        Change::Withdraw(keys[0].clone()),
    ]);
    assert_eq!((withdrawn.changed, withdrawn.duplicates, withdrawn.unknown), (names(&keys[..1]), 0, 1));
    assert_eq!((held.len(), table.keys().len()), (4, 2));
    assert_eq!(table.keys().of(keys[2].asn, keys[2].ski).count(), 1);
}

/// So many keys, all of one point.
fn many(count: u32) -> impl Iterator<Item = RouterKey> {
    (0..count).map(|number| P256Signer::generate(Asn(number / 3)).expect("randomness").router_key())
}

#[test]
fn a_reader_gets_keys_while_a_writer_is_in_the_middle() {
    let keys: Vec<_> = many(5).collect();
    let table = table(keys[..3].iter().cloned());
    let (ask, asked) = channel::<()>();
    let (answer, answered) = channel();
    std::thread::scope(|scope| {
        let reader = &table;
        scope.spawn(move || asked.iter().try_for_each(|()| answer.send(reader.keys().len())));
        let others = keys[3..].iter().map(|key| {
            ask.send(()).expect("somebody reads");
            let seen: Result<_, RecvTimeoutError> = answered.recv_timeout(FOR_EVER);
            assert_eq!(seen, Ok(3));
            Change::Announce(key.clone())
        });
        assert_eq!(table.apply(others).changed.len(), 2);
        drop(ask);
    });
    assert_eq!(table.keys().len(), 5);
}

#[test]
fn writers_take_turns() {
    const EACH: usize = 50;
    let table = KeyTable::new([3, 4]);
    let keys: Vec<_> = many(4 * EACH as u32).collect();
    // Whoever is in the middle lets others go on, who would be in the middle, too.
    let announce = |key: &RouterKey| {
        std::thread::yield_now();
        Change::Announce(key.clone())
    };
    std::thread::scope(|scope| {
        for keys in keys.chunks(EACH) {
            let table = &table;
            scope.spawn(move || {
                keys.iter().for_each(|key| drop(table.apply(std::iter::once(key).map(announce))));
            });
        }
    });
    assert_eq!((table.keys().len(), table.keys().epoch()), (4 * EACH, 4 * EACH as u64));
}

#[test]
fn a_name_has_eight_keys_at_most() {
    let name = keys_of(&signers([64496])).remove(0);
    let signers = signers([64496; 12]);
    let keys: Vec<_> = keys_of(&signers).into_iter().map(|key| RouterKey { ski: name.ski, ..key }).collect();
    let table = table([]);
    let applied = table.apply(keys.iter().cloned().map(Change::Announce));
    assert_eq!((applied.refused, table.keys().of(name.asn, name.ski).count()), (4, MOST_OF_A_NAME));
    // The same again is no more, and where one has gone there is room for another.
    let again = table.apply(keys[..8].iter().cloned().map(Change::Announce));
    assert_eq!((again.refused, again.duplicates), (0, 8));
    let changes = [Change::Withdraw(keys[0].clone()), Change::Withdraw(keys[11].clone())];
    let applied = table.apply(changes.into_iter().chain([Change::Announce(keys[9].clone())]));
    assert_eq!((applied.refused, applied.unknown, table.keys().len()), (0, 1, MOST_OF_A_NAME));
    // Another name has its own.
    assert_eq!(table.apply([Change::Announce(name)]).refused, 1);
    assert_eq!(table.apply([Change::Announce(keys_of(&signers).remove(0))]).refused, 0);
}

#[test]
fn another_bound_holds_for_keys_that_come() {
    let name = keys_of(&signers([64496])).remove(0);
    let keys = keys_of(&signers([64496; 12])).into_iter().map(|key| RouterKey { ski: name.ski, ..key });
    let keys: Vec<_> = keys.collect();
    let table = table(keys[..3].iter().cloned());
    table.set_most_of_a_name(2);
    assert_eq!((table.keys().len(), table.keys().epoch()), (3, 1), "what is there stays");
    let applied = table.apply([Change::Withdraw(keys[0].clone()), Change::Announce(keys[3].clone())]);
    assert_eq!((applied.refused, table.keys().len()), (1, 2));
    table.set_most_of_a_name(10);
    let applied = table.apply(keys.iter().cloned().map(Change::Announce));
    assert_eq!((applied.refused, applied.duplicates, table.keys().len()), (2, 2, 10));
}

#[test]
fn a_key_of_p256_has_one_name() {
    let key = keys_of(&signers([64496])).remove(0);
    assert!(has_own_name(&key));
    assert!(!has_own_name(&RouterKey { ski: Ski([1; 20]), ..key.clone() }));
    // What no suite knows may have any.
    assert!(has_own_name(&RouterKey { ski: Ski([1; 20]), spki: key.spki[1..].to_vec(), ..key }));
}

#[test]
fn an_as_has_its_own_keys_and_no_others() {
    // All of one name: a table that looks at less than AS and SKI mixes some of them up.
    let all: Vec<_> = many(1_000)
        .enumerate()
        .map(|(asn, key)| RouterKey { asn: Asn(asn as u32), ski: Ski([1; 20]), ..key })
        .collect();
    let keys = table(all.iter().cloned()).keys();
    assert!(all.iter().all(|key| keys.of(key.asn, key.ski).count() == 1));
    assert_eq!(keys.of(Asn(1_000), Ski([1; 20])).count(), 0);
}

#[test]
fn a_key_costs_85_octets_at_most() {
    // 14,337 is where the index of 16,384 places has become too small: the worst there is.
    for count in [100, 1_000, 10_000, 14_337] {
        let table = table(many(count));
        let memory = table.keys().memory();
        let records = 68 * count as usize;
        assert!((records..=85 * count as usize).contains(&memory), "{count} keys: {memory} octets");
    }
}

#[test]
fn memory_is_given_back() {
    let all: Vec<_> = many(10_000).collect();
    let (stay, go) = all.split_at(100);
    let table = table(all.iter().cloned());
    table.apply(go.iter().cloned().map(Change::Withdraw));
    let keys = table.keys();
    assert!(keys.memory() <= 85 * 100, "{} octets for 100 keys", keys.memory());
    for key in stay {
        assert_eq!(
            keys.of(key.asn, key.ski).map(|key| key.spki().into_owned()).collect::<Vec<_>>(),
            [&key.spki[..]]
        );
    }
}

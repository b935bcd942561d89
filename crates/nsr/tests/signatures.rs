//! Signatures that outlive the process that has made them.

use std::collections::{HashMap, HashSet};

use holdfast_nsr::{
    MOST_LOOKED_AT, Memory, SignatureName, Signatures, TooSmall, Unreadable,
    fuzzing::{SIGNATURES, example_of_signatures, signature, use_signatures},
};
use holdfast_types::{HashKey, Prefix};
use proptest::prelude::*;

use super::crash::memory::{Fuse, Keeper, Random, Shared, live};

fn key() -> HashKey {
    HashKey::new([7, 8])
}

fn octets(most: usize) -> usize {
    Signatures::<Vec<u8>>::octets_for(most)
}

fn created(most: usize) -> Signatures<Vec<u8>> {
    Signatures::create(vec![0; octets(most)], most, key()).expect("large enough")
}

fn recovered(memory: Vec<u8>, most: usize) -> Signatures<Vec<u8>> {
    Signatures::recover(memory, most, key()).expect("they can be read")
}

/// Keeps signatures of prefixes that are all in use.
fn keep(signatures: &mut Signatures<impl Memory>, numbers: impl IntoIterator<Item = u32>) {
    for (name, mark, octets) in numbers.into_iter().map(signature) {
        signatures.keep(name, mark, &octets, &mut |_| true);
    }
}

/// Which of these are kept. None is found that was not made for this.
fn kept(signatures: &Signatures<impl Memory>, numbers: impl IntoIterator<Item = u32>) -> Vec<u32> {
    let is_kept = |number: &u32| {
        let (name, mark, octets) = signature(*number);
        assert_eq!(signatures.get(&name, mark + 1), None, "it was made for something else");
        let found = signatures.get(&name, mark);
        assert!(found.is_none_or(|found| found == octets));
        found.is_some()
    };
    numbers.into_iter().filter(is_kept).collect()
}

fn numbers(range: std::ops::Range<u32>) -> Vec<u32> {
    range.collect()
}

#[test]
fn the_next_process_has_the_signatures_of_the_one_before() {
    let mut signatures = created(100);
    keep(&mut signatures, 0..60);
    let mut next = recovered(signatures.into_memory(), 100);
    assert_eq!((kept(&next, 0..100), next.len(), next.lost()), (numbers(0..60), 60, 0));
    keep(&mut next, 60..100);
    let last = recovered(next.into_memory(), 100);
    assert_eq!((kept(&last, 0..100), last.len(), last.lost()), (numbers(0..100), 100, 0));
}

#[test]
fn a_new_signature_takes_the_place_of_the_one_with_its_name() {
    let mut signatures = created(2);
    let (name, mark, octets) = signature(1);
    for (mark, octets) in [(mark, &octets[..]), (9, b"another"), (10, &[1; 72])] {
        assert!(signatures.keep(name, mark, octets, &mut |_| true));
        assert_eq!((signatures.get(&name, mark), signatures.len()), (Some(octets), 1));
    }
    assert_eq!(signatures.get(&name, mark), None);
    let other = SignatureName { slot: name.slot + 1, ..name };
    assert_eq!(signatures.get(&other, 10), None);
}

#[test]
fn without_room_a_record_goes_whose_prefix_is_not_in_use() {
    let mut signatures = created(100);
    keep(&mut signatures, 0..100);
    let unused = signature(50).0.prefix;
    let (name, mark, octets) = signature(100);
    assert!(signatures.keep(name, mark, &octets, &mut |prefix| prefix != unused));
    let rest = [numbers(0..50), numbers(51..101)].concat();
    assert_eq!((kept(&signatures, 0..101), signatures.lost()), (rest, 0));
}

#[test]
fn at_the_bound_a_signature_is_not_kept_and_counted_and_few_records_are_looked_at() {
    let mut signatures = created(100);
    keep(&mut signatures, 0..100);
    let mut looked_at = Vec::new();
    for number in 100..104 {
        let (name, mark, octets) = signature(number);
        let mut is_used = |prefix| {
            looked_at.push(prefix);
            true
        };
        assert!(!signatures.keep(name, mark, &octets, &mut is_used));
    }
    assert_eq!((kept(&signatures, 0..104), signatures.lost()), (numbers(0..100), 4));
    assert_eq!(looked_at.len(), 4 * MOST_LOOKED_AT as usize);
    let different: HashSet<Prefix> = looked_at[..100].iter().copied().collect();
    assert_eq!(different.len(), 100, "the hand goes round");
    let mut none = created(0);
    keep(&mut none, 0..3);
    assert_eq!((none.len(), none.most(), none.lost()), (0, 0, 3));
}

#[test]
fn what_is_no_signature_is_not_kept() {
    let mut signatures = created(2);
    let (name, mark, octets) = signature(1);
    assert!(signatures.keep(name, mark, &octets, &mut |_| true));
    for wrong in [&[][..], &[1; 73]] {
        assert!(!signatures.keep(name, 9, wrong, &mut |_| true));
    }
    assert_eq!((signatures.get(&name, 9), signatures.lost()), (None, 2));
    assert_eq!(signatures.get(&name, mark), Some(&octets[..]));
}

#[test]
fn the_bound_may_change_from_one_process_to_the_next() {
    let mut signatures = Signatures::create(vec![0; octets(100)], 20, key()).expect("large enough");
    keep(&mut signatures, 0..30);
    assert_eq!((signatures.len(), signatures.lost()), (20, 10));
    let mut fewer = recovered(signatures.into_memory(), 15);
    assert_eq!((kept(&fewer, 0..30), fewer.most(), fewer.lost()), (numbers(0..15), 15, 5));
    keep(&mut fewer, 30..31);
    assert_eq!(fewer.lost(), 6);
    let mut more = recovered(fewer.into_memory(), 1000);
    assert_eq!((kept(&more, 0..31), more.most(), more.lost()), (numbers(0..15), 100, 0));
    keep(&mut more, 15..100);
    assert_eq!((more.len(), more.lost()), (100, 0));
}

#[test]
fn the_bound_may_change_while_the_process_lives() {
    let mut signatures = Signatures::create(vec![0; octets(100)], 20, key()).expect("large enough");
    keep(&mut signatures, 0..20);
    signatures.set_most(10);
    assert_eq!((kept(&signatures, 0..20), signatures.len(), signatures.lost()), (numbers(0..10), 10, 10));
    signatures.set_most(1000);
    keep(&mut signatures, 10..120);
    assert_eq!((kept(&signatures, 0..120), signatures.most()), (numbers(0..100), 100));
    let next = recovered(signatures.into_memory(), 100);
    assert_eq!(kept(&next, 0..120), numbers(0..100));
}

#[test]
fn memory_is_touched_only_as_it_fills() {
    let mut signatures = created(1000);
    keep(&mut signatures, 0..10);
    let held = signatures.memory_octets();
    let memory = signatures.into_memory();
    assert!(memory[octets(10)..].iter().all(|octet| *octet == 0));
    assert!(held > octets(10) && held < octets(10) + (1 << 18), "{held} octets");
}

#[test]
fn other_memory_is_refused() {
    let small = Signatures::create(vec![0; octets(10) - 1], 10, key());
    assert_eq!(small.expect_err("too small"), TooSmall);
    let refused = |memory: Vec<u8>| Signatures::recover(memory, 10, key()).expect_err("refused");
    assert_eq!(refused(Vec::new()), Unreadable::NoSignatures);
    assert_eq!(refused(vec![0; 4096]), Unreadable::NoSignatures);
    let mut newer = created(10).into_memory();
    newer[8] += 1;
    assert_eq!(refused(newer), Unreadable::SignatureFormat(2));
    let mut cut = example_of_signatures();
    cut.truncate(octets(29));
    assert!(matches!(refused(cut), Unreadable::Damaged(_)));
}

/// Keeps numbers in this order, and dies at a step. What was kept before the one that was being kept.
fn dies(keeper: &Keeper, step: u64, names: &[(u32, u64)]) -> (usize, bool) {
    let fuse = Fuse::new(step);
    let done = std::cell::Cell::new(0);
    fuse.set(step);
    let end = live(|| {
        let mut signatures = found(keeper, &fuse);
        for (number, mark) in names {
            let (name, octets) = of(*number, *mark);
            signatures.keep(name, *mark, &octets, &mut |prefix| prefix == name.prefix);
            done.set(done.get() + 1);
        }
    });
    (done.get(), end.is_some())
}

/// Room for fewer than there are names.
const ROOM: usize = 6;
const NAMES: u32 = 8;

fn found(keeper: &Keeper, fuse: &Fuse) -> Signatures<Shared> {
    if keeper.borrow().is_empty() {
        keeper.replace(vec![0; octets(ROOM)]);
    }
    match Signatures::recover(Shared::take(keeper, fuse), ROOM, key()) {
        Ok(signatures) => signatures,
        Err(Unreadable::NoSignatures) => {
            Signatures::create(Shared::take(keeper, fuse), ROOM, key()).expect("large enough")
        }
        Err(error) => panic!("{error}"),
    }
}

/// The signature of a name that was made for this.
fn of(number: u32, mark: u64) -> (SignatureName, Vec<u8>) {
    (signature(number).0, vec![mark as u8; 1 + mark as usize % 72])
}

#[test]
fn a_death_at_any_write_loses_one_signature_and_makes_none_up() {
    let mut random = Random::new(1);
    let names: Vec<_> = (1..40).map(|mark| (random.below(NAMES as usize) as u32, mark)).collect();
    for step in 1.. {
        let keeper = Keeper::default();
        let (done, is_over) = dies(&keeper, step, &names);
        check(&keeper, &names, done);
        // The next process goes on, and dies as well.
        let (more, _) = dies(&keeper, 1 + step * 7 % 50, &names[done..]);
        check(&keeper, &names, done + more);
        if is_over {
            assert!(step > 100, "{step} steps are too few to mean something");
            break;
        }
    }
}

/// All is kept that was kept before number `done`, with room for one less than there is: the one for which room was made
/// may be there or not.
fn check(keeper: &Keeper, names: &[(u32, u64)], done: usize) {
    let signatures = found(keeper, &Fuse::new(0));
    let mut latest: HashMap<u32, u64> = HashMap::new();
    latest.extend(names[..done].iter().copied());
    let in_the_middle = names.get(done).copied();
    let mut known = 0;
    for number in 0..NAMES {
        for (_, mark) in names.iter().filter(|(other, _)| *other == number) {
            let (name, octets) = of(number, *mark);
            let Some(found) = signatures.get(&name, *mark) else { continue };
            assert_eq!(found, octets, "it was made for this");
            let is_new = in_the_middle == Some((number, *mark));
            assert!(is_new || latest.get(&number) == Some(mark), "a signature that was replaced");
            known += 1;
        }
    }
    assert!(known + 2 > latest.len().min(ROOM), "{known} are left of {}", latest.len());
}

#[test]
fn damage_is_refused_or_makes_no_signature_up() {
    let whole = example_of_signatures();
    use_signatures(recovered(whole.clone(), SIGNATURES));
    let (mut random, mut lost) = (Random::new(5), 0);
    for round in 0..10_000 {
        let mut memory = whole.clone();
        for _ in 0..=round % 3 {
            let (at, other) = (random.below(memory.len() / 4) * 4, random.below(memory.len() / 4) * 4);
            match round % 4 {
                0 => memory[at..at + 4].copy_from_slice(&whole[other..other + 4]),
                1 => memory[at] ^= 1 << random.below(8),
                2 => memory[at..at + 4].fill(0),
                _ => memory[at..at + 4].copy_from_slice(&(random.next() as u32).to_le_bytes()),
            }
        }
        if let Ok(signatures) = Signatures::recover(memory, SIGNATURES, key()) {
            let found = kept(&signatures, 0..SIGNATURES as u32).len();
            assert!(found <= signatures.len());
            lost += signatures.lost();
            use_signatures(signatures);
        }
    }
    assert!(lost > 5000, "{lost} were found damaged");
}

/// What is done with signatures.
#[derive(Clone, Debug)]
enum Step {
    Keep { number: u32, mark: u64, length: usize },
    Use(u32),
    Forget(u32),
    Die { most: usize },
    Bound { most: usize },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        8 => (0..40u32, 0..4u64, 0..75usize)
            .prop_map(|(number, mark, length)| Step::Keep { number, mark, length }),
        2 => (0..40u32).prop_map(Step::Use),
        2 => (0..40u32).prop_map(Step::Forget),
        1 => (0..30usize).prop_map(|most| Step::Die { most }),
        1 => (0..30usize).prop_map(|most| Step::Bound { most }),
    ];
    prop::collection::vec(step, 1..300)
}

proptest! {
    #![proptest_config(holdfast_testing::cases(256))]
    #[test]
    fn it_does_what_a_map_does(steps in steps()) {
        run(steps);
    }
}

type Model = HashMap<SignatureName, (u64, Vec<u8>)>;

/// The model forgets what the store has forgotten, if that was allowed to.
fn run(steps: Vec<Step>) {
    let (mut store, mut model, mut used) = (created(20), Model::new(), HashSet::new());
    for step in steps {
        match step {
            Step::Keep { number, mark, length } => {
                let name = signature(number).0;
                let octets = vec![(number + mark as u32) as u8; length];
                let (is_known, is_full) = (model.contains_key(&name), store.len() == store.most());
                let has_room = is_known || !is_full || model.keys().any(|name| !used.contains(&name.prefix));
                let is_kept = store.keep(name, mark, &octets, &mut |prefix| used.contains(&prefix));
                assert_eq!(is_kept, (1..=72).contains(&length) && has_room && store.most() > 0);
                if is_kept {
                    let allowed = usize::from(!is_known && is_full);
                    forget(&store, &mut model, allowed, &|other| {
                        other != name && !used.contains(&other.prefix)
                    });
                    model.insert(name, (mark, octets));
                }
            }
            Step::Use(number) => drop(used.insert(signature(number).0.prefix)),
            Step::Forget(number) => drop(used.remove(&signature(number).0.prefix)),
            Step::Die { most } => {
                let before = store.len();
                store = recovered(store.into_memory(), most);
                assert_eq!(store.len() as u64 + store.lost(), before as u64);
                forget(&store, &mut model, before.saturating_sub(most), &|_| true);
            }
            Step::Bound { most } => {
                let before = store.len();
                store.set_most(most);
                forget(&store, &mut model, before.saturating_sub(most), &|_| true);
            }
        }
        assert!(store.len() <= store.most() && store.most() <= 20);
        assert_eq!(store.len(), model.len());
        for (name, (mark, octets)) in &model {
            assert_eq!(store.get(name, *mark), Some(&octets[..]));
            assert_eq!(store.get(name, mark + 1), None);
        }
    }
}

/// So many are not in the store any more, all of them such that may go.
fn forget(
    store: &Signatures<Vec<u8>>,
    model: &mut Model,
    most: usize,
    may_go: &dyn Fn(SignatureName) -> bool,
) {
    let is_gone = |name: &SignatureName, (mark, _): &(u64, Vec<u8>)| store.get(name, *mark).is_none();
    let gone: Vec<_> = model
        .iter()
        .filter(|(name, kept)| is_gone(name, kept) && may_go(**name))
        .map(|(name, _)| *name)
        .collect();
    assert!(gone.len() <= most, "{} of {most} are gone", gone.len());
    gone.iter().for_each(|name| drop(model.remove(name)));
}

//! What was told comes out in address order, as it was said last.

use std::collections::BTreeMap;

use holdfast_bgp_wire::nlri::Identified;
use holdfast_types::{HashKey, IpPrefix, Ipv4Prefix, Ipv6Prefix};
use smallvec::SmallVec;

use super::{AdjRibOutSnapshot, Known, ToldFamily};
use crate::journal::format::{self, Announced, OURS_AGAIN, Recorder, Scope};

type All<P> = BTreeMap<(P, u32), Known>;

/// Numbers without order, the same each time.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self, below: u64) -> u64 {
        self.0 = self.0.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        (self.0 >> 33) % below
    }
}

fn snapshot() -> AdjRibOutSnapshot {
    AdjRibOutSnapshot::new(HashKey::new([1, 2]))
}

fn all<P: IpPrefix>(mut told: ToldFamily<P>) -> All<P> {
    let mut all = All::new();
    let mut last = None;
    while told.is_left() {
        if told.prepare() {
            told.pass(None, false, |route, known| {
                assert!(last.is_none_or(|last| last <= route.prefix), "in address order");
                last = Some(route.prefix);
                assert!(all.insert((route.prefix, route.identifier), known.clone()).is_none());
            });
        }
    }
    all
}

/// Takes in entries of routes to these prefixes, and what they come to by the simplest means.
fn journal<P: IpPrefix>(
    numbers: &mut Numbers,
    entries: u64,
    prefix: impl Fn(&mut Numbers) -> P,
) -> (AdjRibOutSnapshot, All<P>) {
    let (mut told, mut naive) = (snapshot(), All::new());
    for _ in 0..entries {
        let mut recorder = Recorder::default();
        let prefixes: Vec<P> = (0..1 + numbers.next(9)).map(|_| prefix(numbers)).collect();
        let identifier = numbers.next(3) as u32;
        let paths = prefixes.iter().map(|prefix| Identified { identifier, prefix: *prefix });
        let whom = match numbers.next(8) {
            0 => Scope::Only(1 + numbers.next(4) as u32),
            _ => Scope::All,
        };
        if whom != Scope::All || numbers.next(4) == 0 {
            match identifier {
                0 => recorder.withdrawn(prefixes.iter().copied()),
                _ => recorder.paths_withdrawn(paths),
            }
            for prefix in prefixes {
                match whom {
                    Scope::All => drop(naive.remove(&(prefix, identifier))),
                    Scope::Only(peer) => {
                        let known: Option<&mut Known> = naive.get_mut(&(prefix, identifier));
                        known.into_iter().filter(|(told, _)| told.source != peer).for_each(|(_, except)| {
                            except.push(peer);
                        });
                    }
                }
            }
        } else {
            let announced = Announced { hash: numbers.next(50), source: numbers.next(4) as u32 };
            recorder.announced(announced, identifier, prefixes.iter().copied());
            naive.extend(prefixes.iter().map(|prefix| ((*prefix, identifier), (announced, SmallVec::new()))));
        }
        told.entry(&format::entry(whom, &recorder.items)).expect("readable");
    }
    (told, naive)
}

#[test]
fn what_was_said_last_of_each_route_comes_out_in_address_order() {
    let mut numbers = Numbers(7);
    let wide = |numbers: &mut Numbers| {
        Ipv4Prefix::from_bits(u128::from(numbers.next(1 << 31)) << 97, 8 + numbers.next(25) as u8)
    };
    let (told, naive) = journal(&mut numbers, 5_000, wide);
    assert_eq!((told.count(), all(told.v4)), (naive.len(), naive));
    // So many in one place that they are dealt out again and again, down to the length.
    let narrow = |numbers: &mut Numbers| {
        Ipv4Prefix::from_bits((0x0a01_0200 + u128::from(numbers.next(4))) << 96, 30 + numbers.next(3) as u8)
    };
    let (told, naive) = journal(&mut numbers, 20_000, narrow);
    assert_eq!(all(told.v4), naive);
    let v6 = |numbers: &mut Numbers| {
        let bits = 0x2a00_u128 << 112 | u128::from(numbers.next(1 << 16)) << 80;
        Ipv6Prefix::from_bits(bits, 40 + numbers.next(20) as u8)
    };
    let (told, naive) = journal(&mut numbers, 10_000, v6);
    assert_eq!(all(told.clone().v6), naive);
    let (mut rewrite, mut entries) = (told.rewrite(), Vec::new());
    while rewrite.work(&mut entries).is_some() {}
    let mut again = snapshot();
    entries.iter().for_each(|entry| again.entry(entry).expect("what we write"));
    assert_eq!(all(again.v6), naive);
}

#[test]
fn networks_that_were_told_in_runs_and_some_again_come_out_one_by_one() {
    let mut numbers = Numbers(11);
    let (mut told, mut naive) = (snapshot(), All::new());
    for entry in 0..300 {
        // Across octets, across each other, and of several lengths.
        let length = 20 + numbers.next(6) as u8;
        let (first, count) = (numbers.next(1 << 12) << (length - 20), 1 + numbers.next(2_000));
        let network = |n: u64| Ipv4Prefix::from_bits(u128::from(n) << (128 - length), length);
        let prefixes = (0..count).map(|n| network((0x0a << (length - 8)) + first + n));
        let mut recorder = Recorder::default();
        match numbers.next(5) {
            0 => {
                recorder.withdrawn(prefixes.clone());
                prefixes.for_each(|prefix| drop(naive.remove(&(prefix, 0))));
            }
            _ => {
                let announced = Announced { hash: entry, source: 1 };
                recorder.announced(announced, 0, prefixes.clone());
                naive.extend(prefixes.map(|prefix| ((prefix, 0), (announced, SmallVec::new()))));
            }
        }
        told.entry(&format::entry(Scope::All, &recorder.items)).expect("readable");
    }
    let (mut slices, copy) = (told.v4.clone(), told.v4.clone());
    while slices.is_left() {
        let mut passed = 0;
        if slices.prepare() {
            slices.pass(None, false, |_, _| passed += 1);
        }
        assert!(passed <= 4096, "{passed} in one slice");
    }
    assert_eq!(all(copy), naive);
    let (mut rewrite, mut entries) = (told.rewrite(), Vec::new());
    while rewrite.work(&mut entries).is_some() {}
    let mut again = snapshot();
    entries.iter().for_each(|entry| again.entry(entry).expect("what we write"));
    assert_eq!(all(again.v4), naive);
}

#[test]
fn entries_of_the_eighth_version_of_the_log_are_read() {
    // Announced 10.1.2.0/24 and 10.1.3.0/24 with hash 9 of peer 7; withdrawn 10.1.2.0/24.
    let nlri = [24, 10, 1, 2, 24, 10, 1, 3];
    let announced = [&[0, 0x20, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0, 8][..], &nlri].concat();
    let withdrawn = [&[0, 0x10, 0, 0, 0, 4][..], &nlri[..4]].concat();
    let mut told = snapshot();
    [announced, withdrawn].iter().for_each(|entry| told.entry(entry).expect("readable"));
    let left = Ipv4Prefix::from_bits(0x0a01_0300 << 96, 24);
    let known = (Announced { hash: 9, source: 7 }, SmallVec::new());
    assert_eq!(all(told.v4), All::from([((left, 0), known)]));
}

#[test]
fn one_slice_looks_at_few_routes_however_many_there_are_and_copies_do_not_disturb_each_other() {
    let mut told = snapshot();
    let prefix = |n: u32| Ipv4Prefix::from_bits(u128::from(0x0a00_0000 + n) << 96, 32);
    let announced = Announced { hash: 1, source: 2 };
    for n in (0..100_000).rev() {
        let mut recorder = Recorder::default();
        recorder.announced(announced, 0, std::iter::once(prefix(n)));
        told.entry(&format::entry(Scope::All, &recorder.items)).expect("readable");
    }
    let (mut told, mut slices, mut expected) = (told.v4, 0, 0);
    while told.is_left() {
        slices += 1;
        if !told.prepare() {
            continue;
        }
        let copy = told.clone();
        let (limit, first) = (told.limit(), expected);
        told.pass(None, false, |route, known| {
            assert_eq!((route.prefix, &known.0), (prefix(expected), &announced));
            expected += 1;
        });
        assert!(expected - first <= 4096);
        assert_eq!(limit.unwrap_or(prefix(99_999)), prefix(expected - 1), "up to there all was known");
        assert_eq!(all(copy).len() as u32, 100_000 - first);
    }
    assert_eq!((expected, told.limit()), (100_000, None));
    assert!(slices > 100_000 / 4096);
}

#[test]
fn a_walk_takes_what_it_meets_and_leaves_behind_what_is_not_there() {
    let (mut told, prefix) = (snapshot(), |n: u128| Ipv4Prefix::from_bits(n << 104, 24));
    let mut recorder = Recorder::default();
    for (n, source) in [(1, 5), (2, OURS_AGAIN), (3, 6), (4, 7)] {
        recorder.announced(Announced { hash: n as u64, source }, 0, std::iter::once(prefix(n)));
    }
    told.entry(&format::entry(Scope::All, &recorder.items)).expect("readable");
    let mut told = told.v4;
    while !told.prepare() {}
    let mut gone = Vec::new();
    told.pass(Some(prefix(3)), true, |route, _| gone.push(route.prefix));
    assert_eq!((&*gone, told.sole(prefix(4))), (&[prefix(1)][..], None), "what is ours may come again");
    assert_eq!(told.sole(prefix(3)), Some(Announced { hash: 3, source: 6 }));
    told.skip();
    assert_eq!(told.take(prefix(5)).len(), 0);
    assert_eq!((told.take(prefix(4)).len(), told.is_left()), (1, false));
    let ours = Identified { identifier: 0, prefix: prefix(2) };
    assert!(told.awaits() && !told.has_missed());
    told.await_no_more();
    assert!(told.has_missed() && told.clone().take_awaited(ours).is_some());
    assert_eq!(told.take_missed(10).len(), 1);
    assert!(!told.awaits() && !told.has_missed());
}

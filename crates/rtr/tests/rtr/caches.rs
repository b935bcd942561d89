//! Several caches: who is used, and that what is told adds up.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use holdfast_rtr::{CacheId, Caches, ClientConfig, Dataset, Delta, Exceptions, Input};
use holdfast_rtr_wire::{Pdu, Record, Serial, Timing};
use proptest::prelude::*;

use crate::tests::rtr::script::{V2, answer, aspa, delta, key, octets, set, vrp};

const NET: &str = "192.0.2.0/24 AS1";
const OTHER: &str = "2001:db8::/32-48 AS2";
const THIRD: &str = "198.51.100.0/24 AS3";

/// Caches that the test answers for, and what a consumer has who applies what it is told.
struct Bench {
    caches: Caches,
    now: Instant,
    consumer: Dataset,
    told: Vec<Delta>,
}

impl Bench {
    fn new() -> Self {
        Self {
            caches: Caches::default(),
            now: Instant::now(),
            consumer: Dataset::default(),
            told: Vec::new(),
        }
    }

    fn insert(&mut self, id: u32, preference: u32) {
        self.caches.insert(CacheId(id), preference, ClientConfig::default(), self.now);
        self.settle();
    }

    fn handle(&mut self, id: u32, input: Input<'_>) {
        self.caches.handle(CacheId(id), input, self.now);
        self.settle();
    }

    /// A cache that begins anew, and says all that it has.
    fn says(&mut self, id: u32, session: u16, records: impl IntoIterator<Item = Record>) {
        self.handle(id, Input::Closed);
        self.now += Duration::from_secs(600);
        self.handle(id, Input::Timeout);
        self.handle(id, Input::Connected);
        let held = self.caches.client(CacheId(id)).and_then(holdfast_rtr::Client::serial);
        if held.is_some() {
            self.handle(id, Input::Received(&octets(V2, &[Pdu::CacheReset])));
        }
        let end = Pdu::EndOfData {
            session,
            serial: Serial(1),
            timing: Some(Timing { refresh: 86400, retry: 600, expire: 172_800 }),
        };
        let mut pdus = answer(session, 1, records.into_iter().map(Pdu::Announce));
        *pdus.last_mut().unwrap() = end;
        self.handle(id, Input::Received(&octets(V2, &pdus)));
    }

    /// The cache is suddenly another one: what it said is forgotten at once.
    fn forgets(&mut self, id: u32) {
        let notify = Pdu::SerialNotify { session: 0xffff, serial: Serial(1) };
        self.handle(id, Input::Received(&octets(V2, &[notify])));
    }

    fn except(&mut self, text: &str) {
        self.caches.set_exceptions(Exceptions::parse([("x", text)]).unwrap());
        self.settle();
    }

    fn settle(&mut self) {
        while self.caches.poll_output().is_some() {}
        while let Some(delta) = self.caches.poll_delta() {
            assert!(!delta.is_empty());
            self.consumer.apply(&delta);
            self.told.push(delta);
        }
        assert_eq!(self.caches.dataset(), self.consumer, "who applies what is told has what is published");
        assert_eq!(self.caches.counts(), self.consumer.counts());
    }

    fn told(&mut self) -> Vec<Delta> {
        std::mem::take(&mut self.told)
    }
}

fn exceptions(filters: &str, assertions: &str) -> String {
    let empty = |name: &str, text: &str| {
        if text.contains(name) { String::new() } else { format!(r#""{name}": [],"#) }
    };
    let part = |names: [&str; 3], text: &str| {
        let missing: String = names.iter().map(|name| empty(name, text)).collect();
        let whole = format!("{missing}{text}");
        whole.trim_end_matches(',').to_owned()
    };
    let filters = part(["prefixFilters", "bgpsecFilters", "aspaFilters"], filters);
    let assertions = part(["prefixAssertions", "bgpsecAssertions", "aspaAssertions"], assertions);
    format!(
        r#"{{"slurmVersion": 2, "validationOutputFilters": {{{filters}}}, "locallyAddedAssertions": {{{assertions}}}}}"#
    )
}

#[test]
fn a_record_of_two_caches_stays_when_one_withdraws_it() {
    let mut bench = Bench::new();
    bench.insert(1, 10);
    bench.insert(2, 10);
    bench.says(1, 1, [vrp(NET), key(1, 1), aspa(1, &[2])]);
    bench.says(2, 1, [vrp(NET), vrp(OTHER), aspa(1, &[3])]);
    assert_eq!(
        bench.told(),
        [delta([vrp(NET), key(1, 1), aspa(1, &[2])], []), delta([vrp(OTHER), aspa(1, &[2, 3])], [])]
    );
    bench.says(1, 2, []);
    assert_eq!(bench.told(), [delta([aspa(1, &[3])], [key(1, 1)])]);
    bench.says(2, 2, []);
    assert_eq!(bench.told(), [delta([], [vrp(NET), vrp(OTHER), aspa(1, &[3])])]);
}

#[test]
fn the_best_cache_with_data_is_used_and_a_change_of_caches_is_a_difference() {
    let mut bench = Bench::new();
    bench.insert(1, 10);
    bench.insert(2, 20);
    bench.says(2, 1, [vrp(NET), vrp(OTHER)]);
    assert_eq!(bench.told(), [delta([vrp(NET), vrp(OTHER)], [])]);
    bench.says(1, 1, [vrp(NET), vrp(THIRD)]);
    assert_eq!(bench.told(), [delta([vrp(THIRD)], [vrp(OTHER)])]);
    assert!(bench.caches.uses(CacheId(1)) && !bench.caches.uses(CacheId(2)));
    // What the other one says now is for later.
    bench.says(2, 2, [vrp(OTHER), key(1, 1)]);
    assert_eq!(bench.told(), []);
    bench.forgets(1);
    assert_eq!(bench.told(), [delta([vrp(OTHER), key(1, 1)], [vrp(NET), vrp(THIRD)])]);
    // A better one that is not there any more; and one that becomes better.
    bench.says(1, 2, [vrp(NET)]);
    bench.told();
    bench.insert(1, 30);
    assert_eq!(bench.told(), [delta([vrp(OTHER), key(1, 1)], [vrp(NET)])]);
    bench.caches.remove(CacheId(2));
    bench.settle();
    assert_eq!(bench.told(), [delta([vrp(NET)], [vrp(OTHER), key(1, 1)])]);
    bench.caches.remove(CacheId(1));
    bench.settle();
    assert_eq!(bench.told(), [delta([], [vrp(NET)])]);
    assert!(!bench.caches.has_data());
}

#[test]
fn what_a_retired_cache_has_said_holds_until_another_has_data_or_it_expires() {
    let mut bench = Bench::new();
    bench.insert(1, 10);
    bench.says(1, 1, [vrp(NET), vrp(OTHER)]);
    bench.told();
    bench.insert(2, 10);
    bench.caches.retire([CacheId(1)]);
    bench.settle();
    assert_eq!(bench.told(), [], "the other one has nothing yet");
    assert_eq!(bench.caches.clients().map(|(id, ..)| id.0).collect::<Vec<_>>(), [2]);
    bench.says(2, 1, [vrp(NET), vrp(THIRD)]);
    assert_eq!(bench.told(), [delta([vrp(THIRD)], []), delta([], [vrp(OTHER)])]);
    bench.insert(3, 10);
    bench.caches.retire([CacheId(2)]);
    bench.now += Duration::from_secs(172_800 - 1);
    bench.caches.handle_timeout(bench.now);
    bench.settle();
    assert_eq!(bench.told(), []);
    bench.now += Duration::from_secs(1);
    bench.caches.handle_timeout(bench.now);
    bench.settle();
    assert_eq!(bench.told(), [delta([], [vrp(NET), vrp(THIRD)])], "it has expired");
    bench.says(3, 1, [vrp(NET)]);
    bench.told();
    bench.caches.retire([CacheId(3)]);
    bench.settle();
    assert_eq!(bench.told(), [delta([], [vrp(NET)])], "nobody is waited for");
}

/// AS 0 says that there is no provider, which is not so where another cache knows one.
#[test]
fn no_provider_and_a_provider_are_a_provider() {
    let mut bench = Bench::new();
    bench.insert(1, 10);
    bench.insert(2, 10);
    bench.says(1, 1, [aspa(1, &[0])]);
    bench.says(2, 1, [aspa(1, &[3])]);
    assert_eq!(bench.told(), [delta([aspa(1, &[0])], []), delta([aspa(1, &[3])], [])]);
}

#[test]
fn an_empty_cache_is_one_that_has_data() {
    let mut bench = Bench::new();
    bench.insert(1, 10);
    bench.insert(2, 20);
    bench.says(2, 1, [vrp(NET)]);
    bench.says(1, 1, []);
    assert_eq!(bench.told(), [delta([vrp(NET)], []), delta([], [vrp(NET)])]);
}

/// In one input a cache both says something new and turns out to be another one.
#[test]
fn what_happens_at_once_is_told_as_one() {
    let mut bench = Bench::new();
    bench.insert(1, 10);
    bench.says(1, 1, [vrp(NET), aspa(1, &[2])]);
    bench.told();
    bench.now += Duration::from_secs(90000);
    bench.handle(1, Input::Timeout);
    let changes = [Pdu::Announce(vrp(OTHER)), Pdu::Withdraw(vrp(NET)), Pdu::Announce(aspa(1, &[3]))];
    let mut pdus = answer(1, 2, changes);
    pdus.push(Pdu::SerialNotify { session: 5, serial: Serial(9) });
    bench.handle(1, Input::Received(&octets(V2, &pdus)));
    assert_eq!(bench.told(), [delta([], [vrp(NET), aspa(1, &[2])])]);
}

#[test]
fn exceptions_filter_and_assert_and_what_is_asserted_is_never_filtered() {
    let mut bench = Bench::new();
    bench.insert(1, 10);
    let text = exceptions(
        r#""prefixFilters": [{"prefix": "192.0.0.0/16"}, {"asn": 3}], "bgpsecFilters": [{"asn": 7}],
           "aspaFilters": [{"customerAsn": 8}]"#,
        r#""prefixAssertions": [{"prefix": "192.0.2.0/24", "asn": 1}, {"prefix": "203.0.113.0/24", "asn": 9}],
           "aspaAssertions": [{"customerAsn": 8, "providerAsns": [4]}, {"customerAsn": 1, "providerAsns": [4]}]"#,
    );
    bench.except(&text);
    let asserted = "203.0.113.0/24 AS9";
    assert_eq!(
        bench.told(),
        [delta([vrp(NET), vrp(asserted), aspa(8, &[4]), aspa(1, &[4])], [])],
        "without any cache"
    );
    let said = ["192.0.3.0/24 AS1", THIRD, OTHER].map(vrp);
    bench.says(1, 1, said.into_iter().chain([vrp(NET), key(7, 1), key(8, 1), aspa(8, &[5]), aspa(1, &[5])]));
    assert_eq!(bench.told(), [delta([vrp(OTHER), key(8, 1), aspa(1, &[4, 5])], [])]);
    // A cache that withdraws what is asserted changes nothing.
    bench.says(1, 2, [vrp(OTHER), key(8, 1), aspa(1, &[5])]);
    assert_eq!(bench.told(), []);
    bench.says(1, 3, [vrp(OTHER), vrp(THIRD), aspa(8, &[0])]);
    assert_eq!(bench.told(), [delta([aspa(1, &[4])], [key(8, 1)])]);
    bench.except(&exceptions("", ""));
    assert_eq!(bench.told(), [delta([vrp(THIRD), aspa(8, &[0])], [vrp(NET), vrp(asserted), aspa(1, &[4])])]);
}

/// What can happen to a set of caches.
#[derive(Clone, Debug)]
enum Op {
    Insert(u32, u32),
    Remove(u32),
    Says(u32, u16, Vec<u8>),
    Forgets(u32),
    Except(Vec<u8>, Vec<u8>),
    Waits(u16),
}

fn record(number: u8) -> Record {
    let (kind, number) = (number % 4, u32::from(number / 4 % 6));
    match kind {
        0 => vrp(&format!("10.{number}.0.0/16 AS{number}")),
        1 => vrp(&format!("2001:db8:{number}::/48 AS{number}")),
        2 => key(number, 1),
        _ => aspa(number, &[100 + number]),
    }
}

fn except(filters: &[u8], assertions: &[u8]) -> String {
    let number = |octet: &u8| octet / 4 % 6;
    let of = |octets: &[u8], kind: u8, show: &dyn Fn(u8) -> String| {
        let numbers: std::collections::BTreeSet<u8> =
            octets.iter().filter(|octet| *octet % 4 == kind).map(number).collect();
        numbers.into_iter().map(show).collect::<Vec<_>>().join(",")
    };
    let filters = format!(
        r#""prefixFilters": [{}], "bgpsecFilters": [{}], "aspaFilters": [{}]"#,
        of(filters, 0, &|n| format!(r#"{{"prefix": "10.{}.0.0/15"}}"#, n & 0xfe)),
        of(filters, 2, &|n| format!(r#"{{"asn": {n}}}"#)),
        of(filters, 3, &|n| format!(r#"{{"customerAsn": {n}}}"#)),
    );
    let assertions = format!(
        r#""prefixAssertions": [{}], "bgpsecAssertions": [], "aspaAssertions": [{}]"#,
        of(assertions, 1, &|n| format!(r#"{{"prefix": "2001:db8:{n}::/48", "asn": {n}}}"#)),
        of(assertions, 3, &|n| format!(r#"{{"customerAsn": {n}, "providerAsns": [7]}}"#)),
    );
    exceptions(&filters, &assertions)
}

fn ops() -> impl Strategy<Value = Op> {
    let octets = || proptest::collection::vec(any::<u8>(), 0..12);
    let id = || 0..4u32;
    prop_oneof![
        3 => (id(), 0..3u32).prop_map(|(id, preference)| Op::Insert(id, preference)),
        1 => id().prop_map(Op::Remove),
        8 => (id(), 1..4u16, octets()).prop_map(|(id, session, records)| Op::Says(id, session, records)),
        2 => id().prop_map(Op::Forgets),
        2 => (octets(), octets()).prop_map(|(filters, assertions)| Op::Except(filters, assertions)),
        1 => any::<u16>().prop_map(Op::Waits),
    ]
}

proptest! {
    #![proptest_config(holdfast_testing::cases(256))]

    /// [`Bench::settle`] asks after each step whether what was told adds up to what is published; here, whether that is
    /// what a plain reading of the rules makes of it.
    #[test]
    fn whatever_happens_what_is_told_adds_up(ops in proptest::collection::vec(ops(), 1..40)) {
        let mut bench = Bench::new();
        let mut preferences = BTreeMap::new();
        let mut said: BTreeMap<u32, Dataset> = BTreeMap::new();
        let mut exceptions = Exceptions::default();
        for op in ops {
            match op {
                Op::Insert(id, preference) => {
                    bench.insert(id, preference);
                    preferences.insert(id, preference);
                }
                Op::Remove(id) => {
                    bench.caches.remove(CacheId(id));
                    bench.settle();
                    preferences.remove(&id);
                    said.remove(&id);
                }
                Op::Says(id, session, octets) if preferences.contains_key(&id) => {
                    let set: Dataset = octets.into_iter().map(record).collect();
                    let records = set.vrps().map(Record::Vrp)
                        .chain(set.router_keys().map(Record::RouterKey))
                        .chain(set.aspas().cloned().map(Record::Aspa))
                        .collect::<Vec<_>>();
                    bench.says(id, session, records);
                    said.insert(id, set);
                }
                Op::Forgets(id) => bench.forgets(id),
                Op::Says(..) => {}
                Op::Except(filters, assertions) => {
                    let text = except(&filters, &assertions);
                    bench.except(&text);
                    exceptions = Exceptions::parse([("x", text.as_str())]).unwrap();
                }
                Op::Waits(seconds) => {
                    bench.now += Duration::from_secs(seconds.into());
                    bench.caches.handle_timeout(bench.now);
                    bench.settle();
                }
            }
            // Data have gone with their session, or expired while time passed.
            said.retain(|id, _| bench.caches.client(CacheId(*id)).unwrap().data().is_some());
            let best = said.keys().map(|id| preferences[id]).min();
            let used = said.iter().filter(|(id, _)| Some(preferences[*id]) == best).map(|(_, set)| set);
            prop_assert_eq!(&bench.consumer, &plain(used, &exceptions));
        }
    }
}

/// RFC 8210 section 10 and RFC 8416 section 3, without any cleverness.
fn plain<'a>(used: impl Iterator<Item = &'a Dataset>, exceptions: &Exceptions) -> Dataset {
    let mut all = exceptions.assertions().clone();
    for set in used {
        all.extend(set.vrps().filter(|vrp| !exceptions.filters_vrp(*vrp)).map(Record::Vrp));
        all.extend(
            set.router_keys().filter(|key| !exceptions.filters_router_key(key)).map(Record::RouterKey),
        );
        for one in set.aspas().filter(|aspa| !exceptions.filters_aspa(aspa.customer())) {
            let before = all.aspa(one.customer()).map_or(&[][..], |aspa| aspa.providers());
            let providers = one.providers().iter().chain(before).copied().collect();
            all.insert(Record::Aspa(holdfast_types::Aspa::new(one.customer(), providers)));
        }
    }
    all
}

#[test]
fn the_caches_are_shown_in_the_order_of_preference() {
    let mut bench = Bench::new();
    for (id, preference) in [(1, 20), (2, 10), (3, 10)] {
        bench.insert(id, preference);
    }
    assert_eq!(bench.caches.clients().map(|(id, ..)| id.0).collect::<Vec<_>>(), [2, 3, 1]);
    bench.says(1, 1, [vrp(NET)]);
    assert_eq!(bench.caches.vrps().map(Record::Vrp).collect::<Dataset>(), set([vrp(NET)]));
}

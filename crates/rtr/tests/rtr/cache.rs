//! Our cache: what routers get from it, ours and others.

use std::time::{Duration, Instant};

use holdfast_rtr::{
    Cache, CacheConfig, Client, ClientConfig, Connection, Dataset, Fault, Input, Output, Reply,
};
use holdfast_rtr_wire::{ErrorCode, Pdu, Record, Serial, Timing, Version};
use proptest::prelude::*;

use crate::tests::rtr::script::{V0, V1, V2, aspa, error, key, octets, pdus, set, vrp};

const NET: &str = "192.0.2.0/24 AS1";
const OTHER: &str = "2001:db8::/32-48 AS2";

/// A cache, and a router that the test plays.
struct Bench {
    cache: Cache,
    connection: Connection,
    now: Instant,
}

impl Bench {
    fn new(config: CacheConfig) -> Self {
        let now = Instant::now();
        // The numbers go round in what follows.
        Self { cache: Cache::new(config, 7, Serial(u32::MAX)), connection: Connection::new(now), now }
    }

    fn holding<const N: usize>(records: [Record; N]) -> Self {
        let mut bench = Self::new(CacheConfig::default());
        bench.cache.publish(set(records));
        bench
    }

    /// All that is written now; whether it then hangs up.
    fn replies(&mut self) -> (Vec<Pdu>, bool) {
        let mut octets = Vec::new();
        loop {
            match self.connection.poll_reply(&mut self.cache, self.now) {
                Some(Reply::Send(more)) => octets.extend(more),
                closed => return (pdus(&octets).into_iter().map(|(_, pdu)| pdu).collect(), closed.is_some()),
            }
        }
    }

    fn asked(&mut self, version: Version, query: &Pdu) -> (Vec<Pdu>, bool) {
        self.connection.received(&mut self.cache, &octets(version, std::slice::from_ref(query)), self.now);
        self.replies()
    }

    fn reports(&mut self, version: Version, query: &Pdu) -> (ErrorCode, bool) {
        let (pdus, closed) = self.asked(version, query);
        let [Pdu::ErrorReport(report)] = &pdus[..] else { panic!("{pdus:?}") };
        (report.code, closed)
    }
}

fn query(session: u16, serial: u32) -> Pdu {
    Pdu::SerialQuery { session, serial: Serial(serial) }
}

fn end(session: u16, serial: u32, version: Version) -> Pdu {
    let timing = (version > V0).then_some(Timing::RECOMMENDED);
    Pdu::EndOfData { session, serial: Serial(serial), timing }
}

#[test]
fn each_version_gets_what_it_has() {
    let all = [vrp(NET), vrp(OTHER), key(1, 9), aspa(1, &[2])];
    for (version, count) in [(V0, 2), (V1, 3), (V2, 4)] {
        let session = 7 + u16::from(version.octet());
        let mut bench = Bench::holding(all.clone());
        let (pdus, closed) = bench.asked(version, &Pdu::ResetQuery);
        let (first, rest) = pdus.split_first().unwrap();
        assert_eq!((first, closed), (&Pdu::CacheResponse { session }, false));
        assert_eq!(rest.last(), Some(&end(session, u32::MAX, version)));
        let told: Dataset = rest[..rest.len() - 1]
            .iter()
            .map(|pdu| match pdu {
                Pdu::Announce(record) => record.clone(),
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!((told, rest.len() - 1), (all.iter().take(count).cloned().collect(), count));
    }
}

#[test]
fn what_cancels_out_is_not_told_and_an_aspa_is_told_as_it_is_now() {
    let mut bench = Bench::holding([vrp(NET), aspa(1, &[2]), aspa(3, &[4]), aspa(5, &[6])]);
    bench.asked(V2, &Pdu::ResetQuery);
    for step in [
        set([vrp(OTHER), aspa(1, &[9]), aspa(3, &[4, 9])]),
        set([vrp(NET), vrp(OTHER), aspa(1, &[2]), aspa(3, &[9]), aspa(7, &[8])]),
        set([vrp(NET), vrp(OTHER), key(1, 1), aspa(1, &[2]), aspa(3, &[9])]),
    ] {
        assert!(bench.cache.publish(step));
    }
    let changes = [
        Pdu::CacheResponse { session: 9 },
        Pdu::Announce(vrp(OTHER)),
        Pdu::Announce(key(1, 1)),
        Pdu::Announce(aspa(3, &[9])),
        Pdu::Withdraw(aspa(5, &[])),
        end(9, 2, V2),
    ];
    assert_eq!(bench.asked(V2, &query(9, u32::MAX)).0, changes);
    assert_eq!(bench.asked(V2, &query(9, 2)).0, [Pdu::CacheResponse { session: 9 }, end(9, 2, V2)]);
    assert!(!bench.cache.publish(set([vrp(NET), vrp(OTHER), key(1, 1), aspa(1, &[2]), aspa(3, &[9])])));
    assert_eq!(bench.cache.serial(), Serial(2), "the same is nothing new");
    // What was told before is not told again when there is something new since.
    assert!(bench.cache.publish(set([vrp(NET), aspa(1, &[2]), aspa(3, &[4]), aspa(5, &[6])])));
    assert_eq!(bench.asked(V2, &query(9, u32::MAX)).0, [Pdu::CacheResponse { session: 9 }, end(9, 3, V2)]);
}

/// 8210bis, on races: for routers that use records as they come.
#[test]
fn longer_prefixes_are_announced_first_and_nothing_is_withdrawn_before_it_is_replaced() {
    let mut bench = Bench::holding([vrp("10.0.0.0/8 AS1"), vrp("10.1.0.0/16 AS2")]);
    let (pdus, _) = bench.asked(V1, &Pdu::ResetQuery);
    assert_eq!(pdus[1..3], [Pdu::Announce(vrp("10.1.0.0/16 AS2")), Pdu::Announce(vrp("10.0.0.0/8 AS1"))]);
    bench.cache.publish(set([vrp("10.0.0.0/8 AS3")]));
    let (pdus, _) = bench.asked(V1, &query(8, u32::MAX));
    let withdrawn = ["10.0.0.0/8 AS1", "10.1.0.0/16 AS2"].map(vrp).map(Pdu::Withdraw);
    assert_eq!(pdus[1], Pdu::Announce(vrp("10.0.0.0/8 AS3")));
    assert_eq!(pdus[2..4], withdrawn);
}

#[test]
fn who_was_away_for_too_long_asks_for_all() {
    let config = CacheConfig { history: 3, ..CacheConfig::default() };
    let mut bench = Bench::new(config);
    let nets = |numbers: std::ops::Range<u32>| {
        numbers.map(|n| vrp(&format!("10.{n}.0.0/16 AS1"))).collect::<Dataset>()
    };
    (1..=4).for_each(|n| assert!(bench.cache.publish(nets(0..n))));
    bench.asked(V1, &Pdu::ResetQuery);
    assert_eq!(bench.cache.serial(), Serial(2));
    assert!(bench.cache.publish(nets(0..5)));
    // Three records of changes are kept: those after 0.
    for (serial, told) in [(3, 2), (2, 3), (0, 5), (u32::MAX, 1), (4, 1), (77, 1)] {
        let (pdus, _) = bench.asked(V1, &query(8, serial));
        assert_eq!(pdus.len(), told, "{serial}");
        assert_eq!(told == 1, pdus == [Pdu::CacheReset], "{serial}");
    }
}

#[test]
fn routers_that_read_slowly_keep_no_more_differences_than_there_is_room_for() {
    let config = CacheConfig { history: 100, ..CacheConfig::default() };
    let mut bench = Bench::new(config);
    let nets = |count: u32| (0..count).map(|n| vrp(&format!("10.0.{n}.0/24 AS1"))).collect::<Dataset>();
    // Ten changes of ten records each, from the serials -1 to 8.
    (0..=10).for_each(|n| assert!(bench.cache.publish(nets(10 * n))));
    let told = |records: usize| 1 + records + 1;
    // One after the other, who asks for whichever is told it.
    for _ in 0..2 {
        for back in 1..=10u32 {
            let serial = 9u32.wrapping_sub(back);
            assert_eq!(bench.asked(V1, &query(8, serial)).0.len(), told(10 * back as usize), "{serial}");
        }
    }
    // Two that have not read yet: 190 records, of the 200 that there may be.
    let mut slow = [u32::MAX, 0].map(|serial| {
        let mut connection = Connection::new(bench.now);
        connection.received(&mut bench.cache, &octets(V1, &[query(8, serial)]), bench.now);
        connection
    });
    assert_eq!(bench.asked(V1, &query(8, 1)).0, [Pdu::CacheReset]);
    assert_eq!(bench.asked(V1, &Pdu::ResetQuery).0.len(), told(100));
    assert_eq!(bench.asked(V1, &query(8, 0)).0.len(), told(90), "the same is there once");
    assert_eq!(bench.asked(V1, &query(8, 8)).0.len(), told(10), "there is room for it");
    // What they read counts also when it leads to the present no more.
    assert!(bench.cache.publish(nets(99)));
    assert_eq!(bench.asked(V1, &query(8, 7)).0, [Pdu::CacheReset]);
    std::mem::swap(&mut bench.connection, &mut slow[0]);
    assert_eq!(bench.replies().0.len(), told(100) + 1, "and then a Serial Notify");
    assert_eq!(bench.asked(V1, &query(8, 7)).0.len(), told(19));
    // The other one's is not what there is to be told now.
    assert_eq!(bench.asked(V1, &query(8, 0)).0.len(), told(89));
}

#[test]
fn without_data_a_router_is_told_so_and_then_that_there_are_some() {
    let mut bench = Bench::new(CacheConfig::default());
    assert_eq!(bench.reports(V1, &Pdu::ResetQuery), (ErrorCode::NoDataAvailable, false));
    assert_eq!(bench.replies(), (vec![], false));
    bench.cache.publish(set([vrp(NET)]));
    assert_eq!(bench.replies().0, [Pdu::SerialNotify { session: 8, serial: Serial(u32::MAX) }]);
}

#[test]
fn notifies_are_a_minute_apart() {
    let mut bench = Bench::holding([vrp(NET)]);
    assert_eq!(bench.replies(), (vec![], false), "not before the version is settled");
    bench.asked(V1, &Pdu::ResetQuery);
    let notify = |serial| Pdu::SerialNotify { session: 8, serial: Serial(serial) };
    bench.cache.publish(set([vrp(OTHER)]));
    assert_eq!(bench.replies().0, [notify(0)]);
    bench.cache.publish(set([vrp(NET)]));
    assert_eq!(bench.replies().0, []);
    assert_eq!(bench.connection.poll_timeout(&bench.cache), Some(bench.now + Duration::from_secs(60)));
    bench.now += Duration::from_secs(60);
    assert_eq!(bench.replies().0, [notify(1)]);
    assert_eq!(bench.connection.poll_timeout(&bench.cache), None);
}

#[test]
fn versions_that_are_not_spoken_are_refused_in_one_that_is() {
    let mut bench = Bench::new(CacheConfig { version: V1, ..CacheConfig::default() });
    let octets = octets(V2, &[Pdu::ResetQuery]);
    bench.connection.received(&mut bench.cache, &octets, bench.now);
    let Some(Reply::Send(reply)) = bench.connection.poll_reply(&mut bench.cache, bench.now) else { panic!() };
    let [(V1, Pdu::ErrorReport(report))] = &pdus(&reply)[..] else { panic!() };
    assert_eq!((report.code, &report.pdu), (ErrorCode::UnsupportedProtocolVersion, &octets));
    assert_eq!(bench.connection.poll_reply(&mut bench.cache, bench.now), Some(Reply::Close));
}

#[test]
fn routers_that_do_not_keep_to_the_protocol_are_told_so() {
    use ErrorCode::*;
    for (version, pdu, code) in [
        (V1, query(8, 0), UnexpectedProtocolVersion),
        (V2, query(8, 0), CorruptData),
        (V2, Pdu::CacheReset, InvalidRequest),
        (V2, Pdu::Announce(vrp(NET)), InvalidRequest),
    ] {
        let mut bench = Bench::holding([vrp(NET)]);
        bench.asked(V2, &Pdu::ResetQuery);
        assert_eq!(bench.reports(version, &pdu), (code, true), "{pdu:?}");
    }
    // One that comes back to a cache that has begun anew is not to blame.
    let mut bench = Bench::holding([vrp(NET)]);
    assert_eq!(bench.asked(V2, &query(1, 5)), (vec![Pdu::CacheReset], false));
    assert_eq!(bench.asked(V2, &Pdu::ResetQuery).0.len(), 3);
    // No report is answered with a report.
    assert_eq!(bench.asked(V2, &error(InternalError)), (vec![], true));
    let told = Fault::Reported { code: InternalError, text: "because".into() };
    assert_eq!(bench.connection.fault(), Some(&told));
}

#[test]
fn who_is_slow_costs_little_and_who_is_too_slow_is_given_up() {
    let many =
        (0..100_000u32).map(|n| vrp(&format!("{}.{}.{}.0/24 AS{n}", 10 + (n >> 16), n >> 8 & 255, n & 255)));
    let mut bench = Bench::new(CacheConfig::default());
    bench.cache.publish(many.collect());
    bench.connection.received(&mut bench.cache, &octets(V1, &[Pdu::ResetQuery, Pdu::ResetQuery]), bench.now);
    let Some(Reply::Send(chunk)) = bench.connection.poll_reply(&mut bench.cache, bench.now) else { panic!() };
    assert!(chunk.len() < 66_000, "{}", chunk.len());
    assert!(!bench.connection.wants_octets());
    bench.now += Duration::from_secs(600);
    assert_eq!(bench.connection.poll_timeout(&bench.cache), Some(bench.now));
    bench.connection.handle_timeout(bench.now);
    assert_eq!(bench.connection.poll_reply(&mut bench.cache, bench.now), Some(Reply::Close));

    let mut silent = Bench::holding([vrp(NET)]);
    silent.now += Duration::from_secs(60);
    silent.connection.handle_timeout(silent.now);
    assert_eq!(silent.replies(), (vec![], true));
}

/// Our client at our cache, octets in pieces of any size, connections that are lost at any time.
struct Pair {
    cache: Cache,
    connection: Option<Connection>,
    client: Client,
    now: Instant,
    seed: u64,
    /// What the client has said it holds.
    consumer: Dataset,
}

impl Pair {
    fn piece<'a>(&mut self, octets: &mut &'a [u8]) -> &'a [u8] {
        self.seed = self.seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let (piece, rest) = octets.split_at((self.seed >> 33) as usize % octets.len() + 1);
        *octets = rest;
        piece
    }

    /// Until nobody has anything to say any more.
    fn settle(&mut self) {
        for _ in 0..1000 {
            if self.client.poll_timeout().is_some_and(|at| at <= self.now) {
                self.client.handle(Input::Timeout, self.now);
            }
            while let Some(delta) = self.client.poll_delta() {
                self.consumer.apply(&delta);
            }
            match self.client.poll_output() {
                Some(Output::Connect) => {
                    self.connection = Some(Connection::new(self.now));
                    self.client.handle(Input::Connected, self.now);
                    continue;
                }
                Some(Output::Send(octets)) => {
                    let mut rest = &octets[..];
                    while !rest.is_empty() {
                        let piece = self.piece(&mut rest);
                        if let Some(connection) = &mut self.connection {
                            connection.received(&mut self.cache, piece, self.now);
                        }
                    }
                    continue;
                }
                Some(Output::Close) => {
                    self.connection = None;
                    continue;
                }
                Some(Output::Event(_)) => continue,
                None => {}
            }
            let reply = self
                .connection
                .as_mut()
                .and_then(|connection| connection.poll_reply(&mut self.cache, self.now));
            match reply {
                Some(Reply::Send(octets)) => {
                    let mut rest = &octets[..];
                    while !rest.is_empty() {
                        let piece = self.piece(&mut rest);
                        self.client.handle(Input::Received(piece), self.now);
                    }
                }
                Some(Reply::Close) => {
                    self.connection = None;
                    self.client.handle(Input::Closed, self.now);
                }
                None => return,
            }
        }
        panic!("they do not come to an end");
    }

    fn lose(&mut self) {
        if self.connection.take().is_some() {
            self.client.handle(Input::Closed, self.now);
        }
    }
}

/// What a version lets through.
fn seen(data: &Dataset, version: Version) -> Dataset {
    let keys = data.router_keys().map(Record::RouterKey).filter(|_| version >= V1);
    let aspas = data.aspas().cloned().map(Record::Aspa).filter(|_| version >= V2);
    data.vrps().map(Record::Vrp).chain(keys).chain(aspas).collect()
}

fn records() -> impl Strategy<Value = Dataset> {
    let record = |number: u8| match (number % 4, number / 4) {
        (0, n) => vrp(&format!("10.{n}.0.0/16 AS{n}")),
        (1, n) => vrp(&format!("2001:db8:{n}::/48 AS{n}")),
        (2, n) => key(n.into(), n),
        (_, n) => aspa(u32::from(n % 8), &[u32::from(n) + 1]),
    };
    proptest::collection::vec(any::<u8>(), 0..40)
        .prop_map(move |numbers| numbers.into_iter().map(record).collect())
}

proptest! {
    #![proptest_config(holdfast_testing::cases(256))]

    #[test]
    fn a_router_has_what_the_cache_has(
        router in 0..3u8,
        cache in 0..3u8,
        seed in any::<u64>(),
        serial in any::<u32>(),
        steps in proptest::collection::vec((records(), any::<bool>(), any::<bool>()), 1..12),
    ) {
        let (router, cache) = (Version::from_octet(router).unwrap(), Version::from_octet(cache).unwrap());
        let now = Instant::now();
        let config = CacheConfig { version: cache, history: 60, ..CacheConfig::default() };
        let mut pair = Pair {
            cache: Cache::new(config, seed as u16, Serial(serial)),
            connection: None,
            client: Client::new(ClientConfig { version: router, ..ClientConfig::default() }, now),
            now,
            seed,
            consumer: Dataset::default(),
        };
        for (data, lost, restarted) in steps {
            if restarted {
                let config = CacheConfig { version: cache, ..CacheConfig::default() };
                pair.lose();
                pair.cache = Cache::new(config, pair.seed as u16, Serial(serial));
            }
            if lost {
                pair.lose();
            }
            pair.cache.publish(data.clone());
            // Notifies are a minute apart; lost connections come back within the Retry Interval.
            for _ in 0..12 {
                pair.now += Duration::from_secs(61);
                pair.settle();
            }
            let expected = seen(&data, router.min(cache));
            prop_assert_eq!(pair.client.data(), Some(&expected));
            prop_assert_eq!(&pair.consumer, &expected);
        }
    }
}

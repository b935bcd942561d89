//! What the tests share: records by their short names, and a client whose cache is the test.

use std::time::{Duration, Instant};

use holdfast_rtr::{Client, ClientConfig, Dataset, Delta, Event, Fault, Input, Output, Phase};
use holdfast_rtr_wire::{ErrorCode, ErrorReport, Frame, Pdu, Record, Serial, Timing, Version};
use holdfast_types::{Asn, Aspa, RouterKey, Ski, Vrp};

pub(crate) const V0: Version = Version::V0;
pub(crate) const V1: Version = Version::V1;
pub(crate) const V2: Version = Version::V2;

/// `192.0.2.0/24-26 AS1`, as [`Vrp`] shows itself.
pub(crate) fn vrp(text: &str) -> Record {
    let (prefix, asn) = text.split_once(" AS").expect("an AS");
    let (prefix, max_length) = prefix.split_once('-').unwrap_or((prefix, ""));
    let prefix: holdfast_types::Prefix = prefix.parse().expect("a prefix");
    let max_length = max_length.parse().unwrap_or(prefix.length());
    Record::Vrp(Vrp::new(prefix, max_length, Asn(asn.parse().expect("a number"))).expect("a length"))
}

pub(crate) fn key(asn: u32, octet: u8) -> Record {
    Record::RouterKey(RouterKey { asn: Asn(asn), ski: Ski([octet; 20]), spki: vec![octet; 91] })
}

pub(crate) fn aspa(customer: u32, providers: &[u32]) -> Record {
    Record::Aspa(Aspa::new(Asn(customer), providers.iter().copied().map(Asn).collect()))
}

pub(crate) fn set<const N: usize>(records: [Record; N]) -> Dataset {
    records.into_iter().collect()
}

pub(crate) fn delta<const A: usize, const W: usize>(announced: [Record; A], withdrawn: [Record; W]) -> Delta {
    Delta { announced: set(announced), withdrawn: set(withdrawn) }
}

pub(crate) fn octets(version: Version, pdus: &[Pdu]) -> Vec<u8> {
    let mut octets = Vec::new();
    pdus.iter().for_each(|pdu| pdu.write(version, &mut octets).expect("the version has it"));
    octets
}

pub(crate) fn pdus(mut octets: &[u8]) -> Vec<(Version, Pdu)> {
    let mut pdus = Vec::new();
    while let Some((frame, rest)) = Frame::split(octets).expect("lengths") {
        let version = Version::from_octet(frame.version()).expect("a version");
        pdus.push((version, frame.pdu(version).expect("a PDU")));
        octets = rest;
    }
    assert!(octets.is_empty());
    pdus
}

pub(crate) fn error(code: ErrorCode) -> Pdu {
    Pdu::ErrorReport(ErrorReport { code, pdu: Vec::new(), text: "because".into() })
}

pub(crate) const TIMING: Timing = Timing { refresh: 1000, retry: 100, expire: 3000 };

/// An answer: Cache Response, records, End of Data.
pub(crate) fn answer(session: u16, serial: u32, records: impl IntoIterator<Item = Pdu>) -> Vec<Pdu> {
    let end = Pdu::EndOfData { session, serial: Serial(serial), timing: Some(TIMING) };
    [Pdu::CacheResponse { session }].into_iter().chain(records).chain([end]).collect()
}

/// A client, and the test as its cache.
pub(crate) struct Bench {
    pub(crate) client: Client,
    pub(crate) now: Instant,
    pub(crate) events: Vec<Event>,
}

/// What a client has done.
#[derive(PartialEq, Debug)]
pub(crate) enum Done {
    Connect,
    Sent(Version, Pdu),
    Close,
}

impl Bench {
    pub(crate) fn new(config: ClientConfig) -> Self {
        let now = Instant::now();
        Self { client: Client::new(config, now), now, events: Vec::new() }
    }

    /// Connected, and asked for all.
    pub(crate) fn connected(config: ClientConfig) -> Self {
        let version = config.version;
        let mut bench = Self::new(config);
        assert_eq!(bench.handle(Input::Timeout), [Done::Connect]);
        assert_eq!(bench.handle(Input::Connected), [Done::Sent(version, Pdu::ResetQuery)]);
        bench
    }

    /// Holds records as of serial 1 of session 7.
    pub(crate) fn holding<const N: usize>(version: Version, records: [Record; N]) -> Self {
        let mut bench = Self::connected(ClientConfig { version, ..ClientConfig::default() });
        let pdus = answer(7, 1, records.clone().map(Pdu::Announce));
        assert_eq!(bench.hears(version, &pdus), []);
        assert_eq!(bench.deltas(), [delta(records, [])]);
        assert_eq!(bench.client.phase(), Phase::Established);
        bench
    }

    pub(crate) fn handle(&mut self, input: Input<'_>) -> Vec<Done> {
        self.client.handle(input, self.now);
        let mut done = Vec::new();
        while let Some(output) = self.client.poll_output() {
            match output {
                Output::Connect => done.push(Done::Connect),
                Output::Send(octets) => {
                    done.extend(pdus(&octets).into_iter().map(|(version, pdu)| Done::Sent(version, pdu)));
                }
                Output::Close => done.push(Done::Close),
                Output::Event(event) => self.events.push(event),
            }
        }
        done
    }

    pub(crate) fn hears(&mut self, version: Version, pdus: &[Pdu]) -> Vec<Done> {
        self.handle(Input::Received(&octets(version, pdus)))
    }

    /// Hears something at which it hangs up; with which report, and why.
    pub(crate) fn refuses(&mut self, version: Version, pdus: &[Pdu]) -> (ErrorCode, Fault) {
        self.refuses_octets(&octets(version, pdus))
    }

    pub(crate) fn refuses_octets(&mut self, octets: &[u8]) -> (ErrorCode, Fault) {
        let done = self.handle(Input::Received(octets));
        let [Done::Sent(_, Pdu::ErrorReport(report)), Done::Close] = &done[..] else { panic!("{done:?}") };
        assert!(octets.windows(report.pdu.len()).any(|part| part == report.pdu), "what it is about");
        (report.code, self.client.fault().expect("a fault").clone())
    }

    /// Lets time pass, until something is due.
    pub(crate) fn wait(&mut self) -> (Duration, Vec<Done>) {
        let due = self.client.poll_timeout().expect("something is waited for");
        let waited = due.saturating_duration_since(self.now);
        self.now += waited;
        (waited, self.handle(Input::Timeout))
    }

    pub(crate) fn deltas(&mut self) -> Vec<Delta> {
        std::iter::from_fn(|| self.client.poll_delta()).collect()
    }
}

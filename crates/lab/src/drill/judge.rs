//! The judge of one session: reads a capture as the peer's TCP and BGP would, and counts what must not be.

use std::{
    collections::{BTreeMap, HashMap},
    hash::{DefaultHasher, Hash, Hasher},
    net::{Ipv4Addr, SocketAddrV4},
};

use holdfast_bgp_wire::{
    Attributes, MAX_EXTENDED_LEN, MessageType, Notification, next_message,
    nlri::prefixes,
    update::{Sections, sections},
};
use holdfast_types::{Ipv4Prefix, Prefix};
use serde::Serialize;

use super::{
    capture::{Segment, Stream, flag},
    churn::serial,
};

/// What the judge counts. "Router" is the one under test.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Counts {
    /// Connections that somebody has tried to open.
    pub syn: u64,
    /// Ends of a connection.
    pub fin: u64,
    /// Connections torn down.
    pub rst: u64,
    /// NOTIFICATIONs that the router has sent.
    pub notifications: u64,
    /// UPDATEs that the router has sent, without End-of-RIB.
    pub updates: u64,
    /// Prefixes announced as the peer had them, or withdrawn that it had not.
    pub doubled: u64,
    /// Prefixes announced with an older serial number than the peer had seen.
    pub reordered: u64,
}

impl Counts {
    /// What was counted after `before`.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        Self {
            syn: self.syn - before.syn,
            fin: self.fin - before.fin,
            rst: self.rst - before.rst,
            notifications: self.notifications - before.notifications,
            updates: self.updates - before.updates,
            doubled: self.doubled - before.doubled,
            reordered: self.reordered - before.reordered,
        }
    }

    /// Both together.
    #[must_use]
    pub fn plus(&self, other: &Self) -> Self {
        Self {
            syn: self.syn + other.syn,
            fin: self.fin + other.fin,
            rst: self.rst + other.rst,
            notifications: self.notifications + other.notifications,
            updates: self.updates + other.updates,
            doubled: self.doubled + other.doubled,
            reordered: self.reordered + other.reordered,
        }
    }
}

/// What the peer has been told of a prefix.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
struct Told {
    /// Hash of the attributes; `None` once withdrawn.
    attributes: Option<u64>,
    /// Serial number of the announcement.
    serial: Option<u32>,
    /// The greatest serial number so far.
    newest: Option<u32>,
}

/// Both directions of a connection.
#[derive(Debug, Default)]
struct Direction {
    stream: Stream,
    octets: Vec<u8>,
    /// The octets are no messages: what follows cannot be read.
    lost: bool,
}

/// The judge.
#[derive(Debug)]
pub struct Judge {
    router: Ipv4Addr,
    directions: HashMap<(SocketAddrV4, SocketAddrV4), Direction>,
    told: HashMap<Prefix, Told>,
    counts: Counts,
    /// Each new greatest serial number that came to the peer, and when.
    firsts: Vec<(u32, u64)>,
    last_notification: Option<Notification>,
    /// What was found wrong, in words; the first few.
    findings: Vec<String>,
}

/// Findings that are kept.
const FINDINGS: usize = 20;

impl Judge {
    /// A judge of what the router at this address sends.
    pub fn new(router: Ipv4Addr) -> Self {
        Self {
            router,
            directions: HashMap::new(),
            told: HashMap::new(),
            counts: Counts::default(),
            firsts: Vec::new(),
            last_notification: None,
            findings: Vec::new(),
        }
    }

    /// Takes the next segment of the capture.
    pub fn take(&mut self, segment: &Segment) {
        self.counts.syn += u64::from(segment.has(flag::SYN) && !segment.has(flag::ACK));
        self.counts.fin += u64::from(segment.has(flag::FIN));
        self.counts.rst += u64::from(segment.has(flag::RST));
        let key = (segment.from, segment.to);
        let direction = self.directions.entry(key).or_default();
        if segment.has(flag::SYN) {
            *direction = Direction::default();
        }
        let mut octets = std::mem::take(&mut direction.octets);
        direction.stream.take(segment, &mut octets);
        // What the peer says is only followed to find holes in the capture.
        let read = if *segment.from.ip() == self.router && !direction.lost {
            self.messages(&octets, segment.at)
        } else {
            Some(octets.len())
        };
        octets.drain(..read.unwrap_or(0));
        if let Some(direction) = self.directions.get_mut(&key) {
            direction.octets = octets;
            direction.lost |= read.is_none();
        }
    }

    /// Reads all whole messages: how many octets they are; `None` if there is something else.
    fn messages(&mut self, octets: &[u8], at: u64) -> Option<usize> {
        let mut read = 0;
        loop {
            match next_message(&octets[read..], MAX_EXTENDED_LEN) {
                Ok(None) => return Some(read),
                Ok(Some(message)) => {
                    read += message.wire.len();
                    self.message(message.kind, message.body, at);
                }
                Err(error) => {
                    self.find(format!("the stream cannot be read on: {error}"));
                    return None;
                }
            }
        }
    }

    fn message(&mut self, kind: MessageType, body: &[u8], at: u64) {
        match kind {
            // A new session: the peer knows nothing any more.
            MessageType::Open => self.told.clear(),
            MessageType::Notification => {
                self.counts.notifications += 1;
                self.last_notification = Notification::parse(body);
            }
            MessageType::Update => match sections(body) {
                Ok(sections) => self.update(&sections, at),
                Err(error) => self.find(format!("an UPDATE cannot be read: {error}")),
            },
            MessageType::KeepAlive | MessageType::RouteRefresh => {}
        }
    }

    fn update(&mut self, update: &Sections<'_>, at: u64) {
        self.counts.updates += u64::from(update.end_of_rib().is_none());
        for prefix in prefixes::<Ipv4Prefix>(update.withdrawn).flatten() {
            self.withdrawn(prefix.into());
        }
        let mut hasher = DefaultHasher::new();
        update.attributes.hash(&mut hasher);
        let (attributes, serial) = (hasher.finish(), serial(Attributes(update.attributes).as_path()));
        for prefix in prefixes::<Ipv4Prefix>(update.nlri).flatten() {
            self.announced(prefix.into(), attributes, serial, at);
        }
    }

    fn withdrawn(&mut self, prefix: Prefix) {
        match self.told.get_mut(&prefix) {
            Some(told @ Told { attributes: Some(_), .. }) => (told.attributes, told.serial) = (None, None),
            _ => {
                self.counts.doubled += 1;
                self.find(format!("{prefix} is withdrawn, which the peer has not"));
            }
        }
    }

    fn announced(&mut self, prefix: Prefix, attributes: u64, serial: Option<u32>, at: u64) {
        let before = self.told.get(&prefix).copied();
        let newest = before.and_then(|told| told.newest).max(serial);
        self.told.insert(prefix, Told { attributes: Some(attributes), serial, newest });
        if before.is_some_and(|told| told.attributes == Some(attributes)) {
            self.counts.doubled += 1;
            self.find(format!("{prefix} is announced as the peer has it, with serial number {serial:?}"));
        } else if serial < newest {
            self.counts.reordered += 1;
            self.find(format!("{prefix} comes with serial number {serial:?} after {newest:?}"));
        } else if serial.is_some() && serial == before.and_then(|told| told.newest) {
            // Withdrawn and announced again, which the feeder never does with the same number.
            self.counts.doubled += 1;
            self.find(format!("{prefix} is announced a second time with serial number {serial:?}"));
        }
        if let Some(serial) = serial.filter(|serial| self.firsts.last().is_none_or(|(last, _)| last < serial))
        {
            self.firsts.push((serial, at));
        }
    }

    fn find(&mut self, finding: String) {
        if self.findings.len() < FINDINGS {
            self.findings.push(finding);
        }
    }

    /// What was counted so far.
    pub fn counts(&self) -> Counts {
        self.counts.clone()
    }

    /// How many prefixes the peer has by what it was told in this session.
    pub fn held(&self) -> usize {
        self.told.values().filter(|told| told.attributes.is_some()).count()
    }

    /// Of how many of these prefixes, with serial numbers or `None` where withdrawn, the peer was told otherwise.
    pub fn differences(&self, wanted: &BTreeMap<Prefix, Option<u32>>) -> usize {
        let serial = |prefix| self.told.get(prefix).and_then(|told| told.serial);
        wanted.iter().filter(|(prefix, wanted)| serial(prefix) != **wanted).count()
    }

    /// When a serial number greater than this first came to the peer, in microseconds since 1970.
    pub fn first_after(&self, serial: u32) -> Option<u64> {
        let at = self.firsts.partition_point(|(seen, _)| *seen <= serial);
        self.firsts.get(at).map(|(_, at)| *at)
    }

    /// The last NOTIFICATION that the router has sent.
    pub fn last_notification(&self) -> Option<&Notification> {
        self.last_notification.as_ref()
    }

    /// What was found wrong, in words, and whether the capture has holes.
    pub fn findings(&self) -> Vec<String> {
        let mut all = self.findings.clone();
        if self.directions.values().any(|direction| direction.stream.has_hole()) {
            all.push("the capture has holes".to_owned());
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use holdfast_bgp_wire::{
        CeaseSubcode, KEEPALIVE, MAX_LEN, Origin, UpdateEncoder, edit::AttributesBuilder,
    };
    use holdfast_types::Asn;

    use super::*;
    use crate::drill::churn::path;

    const ROUTER: Ipv4Addr = Ipv4Addr::new(10, 0, 1, 1);

    /// A made-up capture of one connection.
    struct Wire {
        judge: Judge,
        sequence: u32,
        at: u64,
    }

    impl Wire {
        fn open() -> Self {
            let mut wire = Self { judge: Judge::new(ROUTER), sequence: 41, at: 0 };
            wire.flags(flag::SYN | flag::ACK);
            wire.sequence += 1;
            wire
        }

        fn flags(&mut self, flags: u8) {
            self.segment(flags, Vec::new());
        }

        fn segment(&mut self, flags: u8, payload: Vec<u8>) {
            let from = SocketAddrV4::new(ROUTER, 179);
            let to = SocketAddrV4::new(Ipv4Addr::new(10, 0, 1, 2), 40000);
            let (at, sequence) = (self.at, self.sequence);
            self.judge.take(&Segment { at, from, to, sequence, flags, payload });
        }

        fn send(&mut self, payload: Vec<u8>) {
            self.at += 10;
            let length = payload.len() as u32;
            self.segment(flag::ACK, payload);
            self.sequence += length;
        }
    }

    fn prefix() -> Ipv4Prefix {
        Ipv4Prefix::new([192, 0, 2, 0].into(), 24).expect("a length of IPv4")
    }

    fn announcement(serial: u32) -> Vec<u8> {
        let attributes = AttributesBuilder {
            as_path: [&[Asn(65000)], &path(serial)[..]].concat(),
            next_hop: Some(ROUTER),
            ..AttributesBuilder::new(Origin::Igp)
        };
        let mut out = Vec::new();
        let encoder = UpdateEncoder::new(MAX_LEN);
        encoder.announce(&attributes.build(), [prefix()], &mut out).expect("short attributes");
        out
    }

    fn withdrawal() -> Vec<u8> {
        let mut out = Vec::new();
        UpdateEncoder::new(MAX_LEN).withdraw([prefix()], &mut out);
        out
    }

    #[test]
    fn a_session_without_fault_is_found_to_be_so() {
        let mut wire = Wire::open();
        wire.send(KEEPALIVE.to_vec());
        // Cut in the middle of a message.
        let mut messages = [announcement(1), withdrawal(), announcement(4)].concat();
        let rest = messages.split_off(30);
        wire.send(messages);
        assert_eq!(wire.judge.counts().updates, 0);
        wire.send(rest);
        assert_eq!(wire.judge.counts(), Counts { updates: 3, ..Counts::default() });
        let table = |serial| BTreeMap::from([(prefix().into(), serial)]);
        assert_eq!([4, 5].map(|serial| wire.judge.differences(&table(Some(serial)))), [0, 1]);
        assert_eq!((wire.judge.differences(&table(None)), wire.judge.held()), (1, 1));
        assert!(wire.judge.findings().is_empty());
        assert_eq!((wire.judge.first_after(1), wire.judge.first_after(4)), (Some(30), None));
    }

    #[test]
    fn a_retransmission_is_no_second_update() {
        let mut wire = Wire::open();
        wire.send(announcement(1));
        wire.sequence -= announcement(1).len() as u32;
        wire.send(announcement(1));
        assert_eq!(wire.judge.counts(), Counts { updates: 1, ..Counts::default() });
    }

    #[test]
    fn what_ends_or_begins_a_connection_is_counted() {
        let mut wire = Wire::open();
        for flags in [flag::SYN, flag::FIN | flag::ACK, flag::RST | flag::ACK, flag::RST] {
            wire.flags(flags);
        }
        assert_eq!(wire.judge.counts(), Counts { syn: 1, fin: 1, rst: 2, ..Counts::default() });
    }

    #[test]
    fn what_is_doubled_or_out_of_order_is_found() {
        for (messages, doubled, reordered) in [
            (vec![announcement(3), announcement(3)], 1, 0),
            (vec![announcement(3), withdrawal(), withdrawal()], 1, 0),
            (vec![withdrawal()], 1, 0),
            (vec![announcement(3), withdrawal(), announcement(3)], 1, 0),
            (vec![announcement(3), announcement(2)], 0, 1),
            (vec![announcement(3), withdrawal(), announcement(2)], 0, 1),
        ] {
            let mut wire = Wire::open();
            let updates = messages.len() as u64;
            wire.send(messages.concat());
            assert_eq!(wire.judge.counts(), Counts { updates, doubled, reordered, ..Counts::default() });
            assert_eq!(wire.judge.findings().len(), 1);
        }
    }

    #[test]
    fn what_is_lost_is_missing_in_the_table() {
        let mut wire = Wire::open();
        wire.send(announcement(1));
        // An octet is lost for ever: not the router's fault, but nothing can be said of what follows.
        wire.sequence += 1;
        wire.send(announcement(2));
        assert_eq!(wire.judge.differences(&BTreeMap::from([(prefix().into(), Some(2))])), 1);
        assert_eq!(wire.judge.findings(), ["the capture has holes"]);
    }

    #[test]
    fn another_session_begins_with_nothing_and_a_notification_is_kept() {
        let mut wire = Wire::open();
        let notification = Notification::cease(CeaseSubcode::OutOfResources);
        wire.send([announcement(5), notification.encode()].concat());
        assert_eq!(wire.judge.last_notification(), Some(&notification));
        // The body of an OPEN is of no interest.
        let mut open = KEEPALIVE.to_vec();
        open.resize(29, 0);
        (open[17], open[18]) = (29, 1);
        wire.send([open, announcement(5)].concat());
        assert_eq!(wire.judge.counts(), Counts { updates: 2, notifications: 1, ..Counts::default() });
    }
}

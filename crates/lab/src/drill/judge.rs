//! The judge of one session: reads a capture as both sides' TCP and BGP would, counts what must not be, and takes down
//! what each side tells the other.

use std::{
    collections::{BTreeMap, HashMap},
    net::{Ipv4Addr, SocketAddrV4},
};

use holdfast_bgp_wire::{
    Attributes, MAX_EXTENDED_LEN, MessageType, Notification,
    attribute::{code, flag as flag_of},
    next_message,
    nlri::prefixes,
    update::{Sections, sections},
};
use holdfast_bgpsec_wire::Path as SecurePath;
use holdfast_types::{Ipv4Prefix, Prefix};
use serde::Serialize;

use super::{
    capture::{Segment, Stream, flag},
    record::{Record, Route, Said},
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
    /// UPDATEs that the router has sent, with End-of-RIB.
    pub updates: u64,
    /// UPDATEs that the peer has sent, with End-of-RIB.
    pub updates_of_peer: u64,
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
            updates_of_peer: self.updates_of_peer - before.updates_of_peer,
        }
    }
}

/// Who says something.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Speaker {
    Router,
    Peer,
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
    /// What the router has told the peer.
    told: Record,
    /// What the peer has sent to the router.
    sent: Record,
    counts: Counts,
    /// Each new greatest serial number that came to the peer, and when.
    firsts: Vec<(u32, u64)>,
    /// When the last UPDATE came to the peer.
    last_update: u64,
    last_notification: Option<Notification>,
    /// What was found wrong, in words; the first few.
    findings: Vec<String>,
}

/// Findings that are kept.
const FINDINGS: usize = 20;

impl Judge {
    /// A judge of a session with the router at this address.
    pub fn new(router: Ipv4Addr) -> Self {
        Self {
            router,
            directions: HashMap::new(),
            told: Record::default(),
            sent: Record::default(),
            counts: Counts::default(),
            firsts: Vec::new(),
            last_update: 0,
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
        let speaker = if *segment.from.ip() == self.router { Speaker::Router } else { Speaker::Peer };
        // Where messages cannot be read any more, the stream is followed to find holes in the capture.
        let read = match direction.lost {
            true => Some(octets.len()),
            false => self.messages(speaker, &octets, segment.at),
        };
        octets.drain(..read.unwrap_or(0));
        if let Some(direction) = self.directions.get_mut(&key) {
            direction.octets = octets;
            direction.lost |= read.is_none();
        }
    }

    /// Reads all whole messages: how many octets they are; `None` if there is something else.
    fn messages(&mut self, speaker: Speaker, octets: &[u8], at: u64) -> Option<usize> {
        let mut read = 0;
        loop {
            match next_message(&octets[read..], MAX_EXTENDED_LEN) {
                Ok(None) => return Some(read),
                Ok(Some(message)) => {
                    read += message.wire.len();
                    self.message(speaker, message.kind, message.body, at);
                }
                Err(error) => {
                    self.find(format!("what the {speaker:?} sends cannot be read on: {error}"));
                    return None;
                }
            }
        }
    }

    fn message(&mut self, speaker: Speaker, kind: MessageType, body: &[u8], at: u64) {
        match (kind, speaker) {
            // A new session: the other side knows nothing any more.
            (MessageType::Open, Speaker::Router) => self.told.forget(at),
            (MessageType::Open, Speaker::Peer) => self.sent.forget(at),
            (MessageType::Notification, Speaker::Router) => {
                self.counts.notifications += 1;
                self.last_notification = Notification::parse(body);
            }
            (MessageType::Update, _) => {
                match speaker {
                    Speaker::Router => self.counts.updates += 1,
                    Speaker::Peer => self.counts.updates_of_peer += 1,
                }
                match sections(body) {
                    Ok(sections) => self.update(speaker, &sections, at),
                    Err(error) => self.find(format!("an UPDATE of the {speaker:?} cannot be read: {error}")),
                }
            }
            (MessageType::Notification, Speaker::Peer)
            | (MessageType::KeepAlive | MessageType::RouteRefresh, _) => {}
        }
    }

    fn update(&mut self, speaker: Speaker, update: &Sections<'_>, at: u64) {
        let router = self.router;
        let route = |attributes: &[u8]| match speaker {
            Speaker::Router => Some(Route::passed(attributes, router)),
            Speaker::Peer => Route::sent(attributes),
        };
        let signed = signed(update.attributes);
        let of_signed = signed.iter().flat_map(|(attributes, nlri)| {
            let route = route(attributes);
            prefixes::<Ipv4Prefix>(nlri).flatten().map(move |prefix| (prefix, route))
        });
        let announced = route(update.attributes);
        let withdrawn = prefixes::<Ipv4Prefix>(update.withdrawn).flatten().map(|prefix| (prefix, None));
        let nlri = prefixes::<Ipv4Prefix>(update.nlri).flatten().map(|prefix| (prefix, announced));
        let all: Vec<_> = withdrawn.chain(nlri).chain(of_signed).collect();
        let record = match speaker {
            Speaker::Router => {
                self.last_update = at;
                let serials = all.iter().filter_map(|(_, route)| route.and_then(|route| route.serial));
                serials.for_each(|serial| self.first(serial, at));
                &mut self.told
            }
            Speaker::Peer => &mut self.sent,
        };
        for (prefix, route) in all {
            match route {
                Some(route) => record.say(prefix.into(), Said::Announced(route), at),
                // FRR sends back what it was told, and withdraws that: nothing of its own.
                None if speaker == Speaker::Peer && record.route(prefix.into()).is_none() => {}
                None => record.say(prefix.into(), Said::Withdrawn, at),
            }
        }
    }

    fn first(&mut self, serial: u32, at: u64) {
        if self.firsts.last().is_none_or(|(last, _)| *last < serial) {
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

    /// What the router has told the peer.
    pub fn told(&self) -> &Record {
        &self.told
    }

    /// What the peer has sent to the router.
    pub fn sent(&self) -> &Record {
        &self.sent
    }

    /// How many prefixes the peer has by what it was told in this session.
    pub fn held(&self) -> usize {
        self.told.held()
    }

    /// Whether the peer was told this of a prefix last: its serial number, or `None` if it has no route.
    pub fn was_told(&self, prefix: Prefix, serial: Option<u32>) -> bool {
        self.told.route(prefix).and_then(|route| route.serial) == serial
    }

    /// Of how many of these prefixes, with serial numbers or `None` where withdrawn, the peer was told otherwise.
    pub fn differences(&self, wanted: &BTreeMap<Prefix, Option<u32>>) -> usize {
        wanted.iter().filter(|(prefix, wanted)| !self.was_told(**prefix, **wanted)).count()
    }

    /// When a serial number greater than this first came to the peer, in microseconds since 1970.
    pub fn first_after(&self, serial: u32) -> Option<u64> {
        let at = self.firsts.partition_point(|(seen, _)| *seen <= serial);
        self.firsts.get(at).map(|(_, at)| *at)
    }

    /// When the last UPDATE came to the peer, in microseconds since 1970; 0 if none has.
    pub fn last_update(&self) -> u64 {
        self.last_update
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

/// Of an UPDATE with a signed path (RFC 8205), the attributes that it stands for, and its routes of IPv4.
fn signed(attributes: &[u8]) -> Option<(Vec<u8>, &[u8])> {
    let find = |code| Attributes(attributes).iter().find(|attribute| attribute.code == code);
    let (path, reach) = (find(code::BGPSEC_PATH)?, find(code::MP_REACH_NLRI)?);
    let path = SecurePath::parse(path.value).ok()?.as_path();
    // IPv4 unicast, a next hop of four octets, and one that is reserved (RFC 4760 section 3).
    let ([0, 1, 1, 4, next_hop @ .., _], nlri) = reach.value.split_first_chunk::<9>()? else { return None };
    let mut plain = find(code::ORIGIN)?.wire.to_vec();
    plain.extend([flag_of::TRANSITIVE, code::AS_PATH, u8::try_from(path.len()).ok()?]);
    plain.extend(path);
    plain.extend([flag_of::TRANSITIVE, code::NEXT_HOP, 4]);
    plain.extend(next_hop);
    Some((plain, nlri))
}

#[cfg(test)]
mod tests {
    use holdfast_bgp_wire::{
        CeaseSubcode, KEEPALIVE, MAX_LEN, Origin, UpdateEncoder, edit::AttributesBuilder,
    };
    use holdfast_types::Asn;

    use super::*;
    use crate::drill::{
        audit::{Audit, audit},
        churn::path,
    };

    const ROUTER: Ipv4Addr = Ipv4Addr::new(10, 0, 1, 1);
    const PEER: Ipv4Addr = Ipv4Addr::new(10, 0, 1, 2);

    /// A made-up capture of one side of a connection.
    struct Wire {
        judge: Judge,
        ends: (SocketAddrV4, SocketAddrV4),
        sequence: u32,
        at: u64,
    }

    impl Wire {
        fn open() -> Self {
            Self::open_by(ROUTER)
        }

        fn open_by(speaker: Ipv4Addr) -> Self {
            let (router, peer) = (SocketAddrV4::new(ROUTER, 179), SocketAddrV4::new(PEER, 40000));
            let ends = if speaker == ROUTER { (router, peer) } else { (peer, router) };
            let mut wire = Self { judge: Judge::new(ROUTER), ends, sequence: 41, at: 0 };
            wire.flags(flag::SYN | flag::ACK);
            wire.sequence += 1;
            wire
        }

        fn flags(&mut self, flags: u8) {
            self.segment(flags, Vec::new());
        }

        fn segment(&mut self, flags: u8, payload: Vec<u8>) {
            let (from, to) = self.ends;
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

    /// Announcements and a withdrawal of prefixes that are used once: one message each, as the speaker sends them.
    fn used_once(speaker: Ipv4Addr) -> Vec<Vec<u8>> {
        let encoder = UpdateEncoder::new(MAX_LEN);
        let host =
            |serial: u32| Ipv4Prefix::new((0x7600_0000 + serial).into(), 32).expect("a length of IPv4");
        let mut messages: Vec<_> = (1..=4)
            .map(|serial| {
                let own: &[Asn] = if speaker == ROUTER { &[Asn(65000), Asn(65002)] } else { &[Asn(65002)] };
                let attributes = AttributesBuilder {
                    as_path: [own, &path(serial)[..]].concat(),
                    next_hop: Some(speaker),
                    ..AttributesBuilder::new(Origin::Igp)
                };
                let mut out = Vec::new();
                encoder.announce(&attributes.build(), [host(serial)], &mut out).expect("short attributes");
                out
            })
            .collect();
        let mut withdrawal = Vec::new();
        encoder.withdraw([host(2)], &mut withdrawal);
        messages.insert(3, withdrawal);
        messages
    }

    /// The judgement where the feeder has sent all of it, and the router these messages to the stock router.
    fn judged(messages: &[Vec<u8>]) -> Audit {
        let (mut at_feeder, mut at_stock) = (Wire::open_by(PEER), Wire::open());
        at_feeder.send(used_once(PEER).concat());
        at_stock.send(messages.concat());
        let counts = [at_feeder.judge.counts().updates_of_peer, at_stock.judge.counts().updates];
        assert_eq!(counts, [5, messages.len() as u64]);
        let mut audit = audit(at_feeder.judge.sent(), at_stock.judge.told(), &[]);
        audit.findings.clear();
        audit
    }

    #[test]
    fn one_message_that_is_dropped_doubled_swapped_or_corrupted_is_seen() {
        let all = Audit { used_once: 4, ..Audit::default() };
        let tampered = |tamper: fn(&mut Vec<Vec<u8>>)| {
            let mut messages = used_once(ROUTER);
            tamper(&mut messages);
            judged(&messages)
        };
        assert_eq!(tampered(|_| ()), all);
        assert_eq!(tampered(|messages| drop(messages.remove(2))), Audit { lost: 1, ..all.clone() });
        assert_eq!(tampered(|messages| drop(messages.remove(3))), Audit { lost: 1, ..all.clone() });
        for message in [2, 3] {
            let mut messages = used_once(ROUTER);
            messages.insert(message + 1, messages[message].clone());
            assert_eq!(judged(&messages), Audit { doubled: 1, ..all.clone() });
        }
        assert_eq!(tampered(|messages| messages.swap(1, 2)), Audit { reordered: 1, ..all.clone() });
        // Each octet of the attributes of an announcement, but the bits of flags that mean nothing: with those of the
        // lengths it cannot be read at all.
        let message = &used_once(ROUTER)[2];
        let attributes = 23..message.len() - 5;
        for at in attributes {
            let mut messages = used_once(ROUTER);
            messages[2][at] ^= 0x80;
            let found = judged(&messages);
            assert!((found.corrupted, found.lost, found.doubled) == (1, 0, 0), "octet {at}: {found:?}");
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
        assert_eq!(wire.judge.told().of(prefix().into()).len(), 3);
    }
}

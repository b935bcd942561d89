//! The judge of one session that outlives its router: what each side has told the other, and how often.

use std::{
    collections::{HashMap, VecDeque},
    net::{IpAddr, Ipv4Addr, SocketAddr},
};

use holdfast_bgp_wire::{
    Attributes, MAX_EXTENDED_LEN, MessageType, attribute::code, next_message, nlri::prefixes,
    update::sections,
};
use holdfast_types::{IpPrefix, Ipv4Prefix, Ipv6Prefix, Prefix};

use crate::{
    drill::{
        capture::{Stream, flag},
        judge::Counts,
        record::Route,
    },
    replication::judge::Segment,
};

/// Octets of a stream that are kept, to compare retransmissions with them.
const KEPT: usize = 1 << 20;
/// Findings that are kept in words.
const FINDINGS: usize = 20;
/// Octets of a packet that are shown at most.
const MOST_SHOWN: usize = 96;

/// An Ethernet address.
pub type Mac = [u8; 6];

/// How often something was said of a prefix.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct Told {
    /// Announcements.
    pub announced: u32,
    /// Withdrawals.
    pub withdrawn: u32,
    /// Withdrawals of what was not there.
    pub early: u32,
    /// What the last announcement says, but for what each router sets anew.
    pub content: u64,
}

impl Told {
    fn is_held(self) -> bool {
        self.announced > self.withdrawn
    }
}

/// All that one side has said.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// By prefix.
    pub prefixes: HashMap<Prefix, Told>,
    /// Announcements and withdrawals of prefixes that are used once.
    pub once: (u64, u64),
    /// How many prefixes were announced, and not withdrawn since.
    pub held: usize,
}

impl Tally {
    fn announced(&mut self, prefix: Prefix, content: u64) {
        let told = self.prefixes.entry(prefix).or_default();
        let was_held = told.is_held();
        told.announced += 1;
        told.content = content;
        self.held += usize::from(told.is_held() && !was_held);
        self.once.0 += u64::from(is_used_once(prefix));
    }

    fn withdrawn(&mut self, prefix: Prefix) {
        let told = self.prefixes.entry(prefix).or_default();
        let was_held = told.is_held();
        told.early += u32::from(!was_held);
        told.withdrawn += 1;
        self.held -= usize::from(was_held && !told.is_held());
        self.once.1 += u64::from(is_used_once(prefix));
    }

    /// What is held was announced once, and the rest never.
    fn begin(&mut self) {
        self.prefixes.retain(|_, told| told.is_held());
        for told in self.prefixes.values_mut() {
            *told = Told { announced: 1, content: told.content, ..Told::default() };
        }
    }

    fn holds(&self, prefix: Prefix) -> bool {
        self.prefixes.get(&prefix).is_some_and(|told| told.is_held())
    }
}

/// Prefixes that are used once have these lengths, and no others have.
pub fn is_used_once(prefix: Prefix) -> bool {
    matches!((prefix, prefix.length()), (Prefix::V4(_), 32) | (Prefix::V6(_), 64))
}

#[derive(Debug, Default)]
struct Direction {
    stream: Stream,
    /// Not read yet.
    octets: Vec<u8>,
    /// The last ones that were read, the next one behind them.
    kept: Vec<u8>,
    /// What follows cannot be read.
    is_lost: bool,
    /// It has carried what is said on a connection that both sides have agreed to have.
    has_session: bool,
}

impl Direction {
    /// Whether octets that came before come again as they were, as far as they are kept.
    fn repeats(&self, sequence: u32, payload: &[u8]) -> bool {
        let Some(next) = self.stream.next() else { return true };
        let back = next.wrapping_sub(sequence) as i32;
        if back <= 0 {
            return true;
        }
        let (begin, skipped) = match self.kept.len().checked_sub(back as usize) {
            Some(begin) => (begin, 0),
            None => (0, back as usize - self.kept.len()),
        };
        self.kept[begin..].iter().zip(payload.iter().skip(skipped)).all(|(kept, again)| kept == again)
    }

    /// Whether it is of a session, as far as that can be told.
    fn is_of_session(&self) -> bool {
        self.has_session || self.is_lost || self.stream.has_hole() || self.stream.next().is_none()
    }

    fn keep(&mut self, fresh: &[u8]) {
        self.kept.extend_from_slice(fresh);
        if self.kept.len() > 2 * KEPT {
            self.kept.drain(..self.kept.len() - KEPT);
        }
    }
}

/// What is asked about the time after a failure.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct After {
    /// When the failure was made, in microseconds since 1970, as all times.
    failure: u64,
    /// When the first segment of the router came.
    pub segment: Option<u64>,
    /// When one came that acknowledges more than all before the failure.
    pub acknowledged: Option<u64>,
    /// When the router first began a connection.
    pub began: Option<u64>,
    /// When the first prefix with at least the number in question was announced.
    pub route: Option<u64>,
    number: u32,
}

/// The judge.
#[derive(Debug)]
pub struct Judge {
    router: IpAddr,
    number_of: fn(Prefix) -> Option<u32>,
    directions: HashMap<(SocketAddr, SocketAddr), Direction>,
    /// What the router has told the peer.
    pub told: Tally,
    /// What the peer has told the router, but for loops.
    pub sent: Tally,
    /// What must not be there, and UPDATEs.
    pub counts: Counts,
    /// ICMP of the router's that says the connection's end cannot be reached.
    pub unreachable: u64,
    /// Segments of a router that has the sessions no more, and octets that came again as others.
    pub stale: u64,
    /// What came after the last failure.
    pub after: After,
    acknowledged: Option<u32>,
    /// Where the router is that has died, and whether the next one has spoken.
    dead: Option<(Mac, bool)>,
    findings: Vec<String>,
    /// The last segments with SYN, FIN or RST: when they came, and what they say.
    marked: VecDeque<(u64, String)>,
}

impl Judge {
    /// A judge of a session with the router at this address. `number_of` tells the numbers of those prefixes that
    /// [`After::route`] is about.
    pub fn new(router: IpAddr, number_of: fn(Prefix) -> Option<u32>) -> Self {
        Self {
            router,
            number_of,
            directions: HashMap::new(),
            told: Tally::default(),
            sent: Tally::default(),
            counts: Counts::default(),
            unreachable: 0,
            stale: 0,
            after: After::default(),
            acknowledged: None,
            dead: None,
            findings: Vec::new(),
            marked: VecDeque::new(),
        }
    }

    /// A failure was made: asks what comes after it. A dead router at this Ethernet address must be silent once another one
    /// has spoken.
    pub fn failed(&mut self, at: u64, number: u32, dead: Option<Mac>) {
        self.after = After { failure: at, number, ..After::default() };
        self.dead = dead.map(|mac| (mac, false));
    }

    /// All is loaded: what came until then is counted as if it had come once. Whoever is told a table more slowly than it comes
    /// loses its place, and is told all of it again.
    pub fn begin(&mut self) {
        self.told.begin();
        self.sent.begin();
    }

    /// The peer begins anew: what the router told it before counts no more.
    pub fn forget(&mut self) {
        self.told = Tally::default();
    }

    /// What was found wrong, in words, and whether the capture has holes.
    pub fn findings(&self) -> Vec<String> {
        let mut all = self.findings.clone();
        if self.directions.values().any(|direction| direction.stream.has_hole()) {
            all.push("the capture has holes".to_owned());
        }
        all
    }

    /// Segments with SYN, FIN or RST since this time, in words; the last few.
    pub fn marked_since(&self, at: u64) -> impl Iterator<Item = &String> {
        self.marked.iter().filter(move |(when, _)| *when >= at).map(|(_, words)| words)
    }

    fn find(&mut self, finding: String) {
        if self.findings.len() < FINDINGS {
            self.findings.push(finding);
        }
    }

    fn mark(&mut self, source: Mac, segment: &Segment) {
        if self.marked.len() == FINDINGS {
            self.marked.pop_front();
        }
        let names = [(flag::SYN, "SYN"), (flag::FIN, "FIN"), (flag::RST, "RST"), (flag::ACK, "ACK")];
        let flags: Vec<_> =
            names.iter().filter(|(flag, _)| segment.has(*flag)).map(|(_, name)| *name).collect();
        let after = match self.after.failure {
            0 => "before any failure".to_owned(),
            failure => format!("{} us after the failure", segment.at as i64 - failure as i64),
        };
        self.marked.push_back((
            segment.at,
            format!(
                "{} of {} to {}, from {source:02x?}: number {} (next {:?}), acknowledges {} (next {:?}), {} octets, \
                 {after}",
                flags.join(" "),
                segment.from,
                segment.to,
                segment.sequence,
                self.next(segment.from, segment.to),
                segment.acknowledged,
                self.next(segment.to, segment.from),
                segment.payload.len()
            ),
        ));
    }

    /// Whether a session has a connection, or it began before anybody looked.
    fn is_of_session(&self, from: SocketAddr, to: SocketAddr) -> bool {
        let both = [(from, to), (to, from)].map(|ends| self.directions.get(&ends));
        both.iter().all(Option::is_none) || both.iter().flatten().any(|direction| direction.is_of_session())
    }

    fn next(&self, from: SocketAddr, to: SocketAddr) -> Option<u32> {
        self.directions.get(&(from, to)).and_then(|direction| direction.stream.next())
    }

    /// Takes the next frame.
    pub fn frame(&mut self, at: u64, frame: &[u8]) {
        match Segment::parse(at, frame) {
            Some(segment) => {
                let source = frame.get(6..).and_then(|rest| rest.first_chunk()).copied().unwrap_or_default();
                self.take(source, &segment);
            }
            // Nothing else passes the filter.
            // Of what else it speaks, TCP takes no notice.
            None if self.is_of_router(frame) && self.is_about_tcp(frame) => {
                self.unreachable += 1;
                // Which it is, and of what: behind the Ethernet header.
                let octets: String =
                    frame.iter().skip(14).take(MOST_SHOWN).map(|octet| format!("{octet:02x}")).collect();
                self.find(format!("ICMP of the router: {octets}"));
            }
            None => {}
        }
    }

    /// Whether an ICMP message is about a segment of TCP: behind its header of 8 octets is that of the packet.
    fn is_about_tcp(&self, frame: &[u8]) -> bool {
        const TCP: u8 = 6;
        match self.router {
            IpAddr::V4(_) => frame.get(14 + 20 + 8 + 9) == Some(&TCP),
            IpAddr::V6(_) => frame.get(14 + 40 + 8 + 6) == Some(&TCP),
        }
    }

    fn is_of_router(&self, frame: &[u8]) -> bool {
        match self.router {
            IpAddr::V4(router) => frame.get(26..30) == Some(&router.octets()),
            IpAddr::V6(router) => frame.get(22..38) == Some(&router.octets()),
        }
    }

    fn take(&mut self, source: Mac, segment: &Segment) {
        let is_of_router = segment.from.ip() == self.router;
        self.counts.syn += u64::from(segment.has(flag::SYN) && !segment.has(flag::ACK));
        // An attempt to connect that was given up may have a late answer, and of two connections that collide one ends with an OPEN.
        let is_of_session = self.is_of_session(segment.from, segment.to);
        self.counts.fin += u64::from(is_of_session && segment.has(flag::FIN));
        self.counts.rst += u64::from(is_of_session && segment.has(flag::RST));
        if [flag::SYN, flag::FIN, flag::RST].iter().any(|flag| segment.has(*flag)) {
            self.mark(source, segment);
        }
        if is_of_router {
            self.of_router(source, segment);
        }
        let mut direction = self.directions.remove(&(segment.from, segment.to)).unwrap_or_default();
        if segment.has(flag::SYN) {
            if !segment.has(flag::ACK) {
                // Of the attempt before, from the same port.
                self.directions.remove(&(segment.to, segment.from));
            }
            direction = Direction::default();
            direction.stream.begin(segment.sequence);
            if is_of_router {
                self.acknowledged = None;
            }
        } else {
            if !direction.repeats(segment.sequence, &segment.payload) {
                self.stale += u64::from(is_of_router);
                self.find(format!("{}: octets come again as others", segment.from));
            }
            let before = direction.octets.len();
            direction.stream.place(segment.sequence, &segment.payload, &mut direction.octets);
            let fresh = direction.octets[before..].to_vec();
            direction.keep(&fresh);
        }
        if direction.is_lost {
            direction.octets.clear();
        } else {
            match self.messages(is_of_router, &direction.octets, segment.at) {
                Some((read, has_session)) => {
                    direction.octets.drain(..read);
                    direction.has_session |= has_session;
                }
                None => direction.is_lost = true,
            }
        }
        self.directions.insert((segment.from, segment.to), direction);
    }

    fn of_router(&mut self, source: Mac, segment: &Segment) {
        if let Some((mac, has_successor)) = &mut self.dead {
            match *mac == source {
                true => self.stale += u64::from(*has_successor),
                false => *has_successor = true,
            }
        }
        let is_dead = self.dead.is_some_and(|(mac, _)| mac == source);
        let is_after = self.after.failure > 0 && segment.at > self.after.failure && !is_dead;
        let is_more =
            self.acknowledged.is_none_or(|before| segment.acknowledged.wrapping_sub(before) as i32 > 0);
        if is_after {
            self.after.segment.get_or_insert(segment.at);
            if segment.has(flag::SYN) {
                self.after.began.get_or_insert(segment.at);
            }
            if is_more {
                self.after.acknowledged.get_or_insert(segment.at);
            }
        }
        if is_more && segment.has(flag::ACK) {
            self.acknowledged = Some(segment.acknowledged);
        }
    }

    /// Reads all whole messages: how many octets they are, and whether there is one that an OPEN of the other side was answered
    /// with, or more. `None` if there is something else.
    fn messages(&mut self, is_of_router: bool, octets: &[u8], at: u64) -> Option<(usize, bool)> {
        let (mut read, mut has_session) = (0, false);
        loop {
            match next_message(&octets[read..], MAX_EXTENDED_LEN) {
                Ok(None) => return Some((read, has_session)),
                Ok(Some(message)) => {
                    read += message.wire.len();
                    has_session |= !matches!(message.kind, MessageType::Open | MessageType::Notification);
                    match message.kind {
                        MessageType::Update => self.update(is_of_router, message.body, at),
                        MessageType::Notification => self.counts.notifications += u64::from(is_of_router),
                        MessageType::Open | MessageType::KeepAlive | MessageType::RouteRefresh => {}
                    }
                }
                Err(error) => {
                    self.find(format!("a stream cannot be read on: {error}"));
                    return None;
                }
            }
        }
    }

    fn update(&mut self, is_of_router: bool, body: &[u8], at: u64) {
        match is_of_router {
            true => self.counts.updates += 1,
            false => self.counts.updates_of_peer += 1,
        }
        let Ok(update) = sections(body) else { return self.find("an UPDATE cannot be read".to_owned()) };
        let find = |code| Attributes(update.attributes).iter().find(|attribute| attribute.code == code);
        // RFC 4760 sections 3 and 4: family, in the first also the next hop with its length and a reserved octet.
        let reached = find(code::MP_REACH_NLRI).and_then(|reach| match reach.value {
            [0, 2, 1, length, rest @ ..] => rest.get(usize::from(*length) + 1..),
            _ => None,
        });
        let unreached =
            find(code::MP_UNREACH_NLRI).and_then(|unreach| unreach.value.strip_prefix(&[0, 2, 1]));
        let withdrawn: Vec<Prefix> = all::<Ipv4Prefix>(update.withdrawn)
            .chain(all::<Ipv6Prefix>(unreached.unwrap_or_default()))
            .collect();
        let announced: Vec<Prefix> =
            all::<Ipv4Prefix>(update.nlri).chain(all::<Ipv6Prefix>(reached.unwrap_or_default())).collect();
        let plain: Vec<u8> = Attributes(update.attributes)
            .iter()
            .filter(|attribute| !matches!(attribute.code, code::MP_REACH_NLRI | code::MP_UNREACH_NLRI))
            .flat_map(|attribute| attribute.wire.to_vec())
            .collect();
        let router = match self.router {
            IpAddr::V4(router) => router,
            IpAddr::V6(_) => Ipv4Addr::UNSPECIFIED,
        };
        let route = match is_of_router {
            true => Some(Route::passed(&plain, router)),
            false => Route::sent(&plain),
        };
        let tally = if is_of_router { &mut self.told } else { &mut self.sent };
        for prefix in withdrawn {
            // FRR sends back what it was told, and withdraws that: nothing of its own.
            if is_of_router || tally.holds(prefix) {
                tally.withdrawn(prefix);
            }
        }
        for prefix in announced {
            if let Some(route) = route {
                tally.announced(prefix, route.content);
            }
            let is_new = (self.number_of)(prefix).is_some_and(|number| number >= self.after.number);
            if is_of_router && is_new && at > self.after.failure {
                self.after.route.get_or_insert(at);
            }
        }
    }
}

fn all<P: IpPrefix + Into<Prefix>>(octets: &[u8]) -> impl Iterator<Item = Prefix> {
    prefixes::<P>(octets).flatten().map(Into::into)
}

#[cfg(test)]
mod tests {
    use holdfast_bgp_wire::{MAX_LEN, Origin, UpdateEncoder, edit::AttributesBuilder};
    use holdfast_types::Asn;

    use super::*;

    const ROUTER: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 1, 0, 10)), 179);
    const PEER: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 1, 0, 21)), 40_000);
    const A: Mac = [2, 0, 0, 0, 0, 1];
    const B: Mac = [2, 0, 0, 0, 0, 2];

    fn number(prefix: Prefix) -> Option<u32> {
        is_used_once(prefix).then_some(7)
    }

    fn segment(at: u64, sequence: u32, flags: u8, payload: &[u8]) -> Segment {
        Segment::made(at, ROUTER, PEER, sequence, flags, payload)
    }

    fn begun() -> Judge {
        let mut judge = Judge::new(ROUTER.ip(), number);
        judge.take(A, &segment(1, 99, flag::SYN | flag::ACK, b""));
        judge
    }

    fn prefix() -> Ipv4Prefix {
        Ipv4Prefix::new([119, 0, 0, 1].into(), 32).expect("a length of IPv4")
    }

    fn announcement() -> Vec<u8> {
        let attributes = AttributesBuilder {
            as_path: vec![Asn(65000), Asn(65025)],
            next_hop: Some(Ipv4Addr::new(10, 1, 0, 10)),
            ..AttributesBuilder::new(Origin::Igp)
        };
        let mut out = Vec::new();
        UpdateEncoder::new(MAX_LEN)
            .announce(&attributes.build(), [prefix()], &mut out)
            .expect("short attributes");
        out
    }

    #[test]
    fn a_retransmission_of_the_next_router_is_no_second_update() {
        let mut judge = begun();
        let update = announcement();
        judge.take(A, &segment(2, 100, flag::ACK, &update));
        judge.failed(3, 7, Some(A));
        judge.take(B, &segment(4, 100, flag::ACK, &update));
        let told = judge.told.prefixes[&prefix().into()];
        assert_eq!((told.announced, judge.told.once, judge.told.held, judge.stale), (1, (1, 0), 1, 0));
        assert_eq!((judge.after.segment, judge.after.route), (Some(4), None));
        // The same again as new octets is one.
        judge.take(B, &segment(5, 100 + update.len() as u32, flag::ACK, &update));
        assert_eq!((judge.told.prefixes[&prefix().into()].announced, judge.after.route), (2, Some(5)));
        assert!(judge.findings().is_empty());
    }

    #[test]
    fn what_came_twice_before_all_was_loaded_counts_as_once() {
        let mut judge = begun();
        let update = announcement();
        for number in [0, 1] {
            let at = 100 + number * update.len() as u32;
            judge.take(A, &segment(2, at, flag::ACK, &update));
        }
        let gone: Prefix = Prefix::host([119, 0, 0, 9].into());
        judge.told.withdrawn(gone);
        judge.begin();
        let told = judge.told.prefixes[&prefix().into()];
        assert_eq!(
            (told.announced, told.withdrawn, judge.told.held, judge.told.prefixes.len()),
            (1, 0, 1, 1)
        );
    }

    #[test]
    fn what_must_not_come_is_counted() {
        let mut judge = begun();
        let mut update = announcement();
        judge.take(A, &segment(2, 100, flag::ACK, &update));
        judge.failed(3, 7, Some(A));
        judge.take(A, &segment(4, 100, flag::ACK, b""));
        judge.take(B, &segment(5, 100, flag::ACK, b""));
        assert_eq!(judge.after.segment, Some(5));
        // The dead one speaks.
        judge.take(A, &segment(5, 100, flag::ACK, b""));
        assert_eq!(judge.stale, 1);
        // Other octets than before.
        update[30] ^= 1;
        judge.take(B, &segment(6, 100, flag::ACK, &update));
        assert_eq!((judge.stale, judge.findings().len()), (2, 1));
        for flags in [flag::FIN, flag::RST, flag::SYN] {
            judge.take(B, &segment(7, 5, flags, b""));
        }
        assert_eq!((judge.counts.syn, judge.counts.fin, judge.counts.rst), (1, 1, 1));
        let marked = judge.marked_since(7).cloned().collect::<Vec<_>>().join("; ");
        assert!(marked.starts_with("FIN of 10.1.0.10:179 to 10.1.0.21:40000"), "{marked}");
        assert!(marked.contains("RST of") && marked.contains("4 us after the failure"), "{marked}");
        assert_eq!(judge.marked_since(8).count(), 0);
        let mut icmp = vec![0; 70];
        icmp[26..30].copy_from_slice(&[10, 1, 0, 10]);
        judge.frame(8, &icmp);
        assert_eq!(judge.unreachable, 0, "it is about something else");
        icmp[51] = 6;
        judge.frame(8, &icmp);
        assert_eq!(judge.unreachable, 1);
    }

    /// A message (RFC 4271 section 4.1).
    fn message(kind: u8, body: &[u8]) -> Vec<u8> {
        let length = 19 + u16::try_from(body.len()).expect("a short one");
        [&[255; 16], &length.to_be_bytes()[..], &[kind], body].concat()
    }

    #[test]
    fn the_end_of_an_attempt_to_connect_is_none_of_a_session() {
        let ends = |judge: &Judge| (judge.counts.fin, judge.counts.rst);
        let mut judge = begun();
        judge.take(A, &segment(2, 100, flag::RST, b""));
        assert_eq!(ends(&judge), (0, 0), "nothing was said");
        for flags in [flag::FIN, flag::RST] {
            let mut judge = begun();
            let open = message(1, &[4, 0xfd, 0xe8, 0, 90, 10, 0, 0, 1, 0]);
            let keepalive = message(4, &[]);
            let closes = 100 + open.len() as u32;
            judge.take(A, &segment(2, 100, flag::ACK, &open));
            judge.take(A, &segment(3, closes, flags, b""));
            assert_eq!(ends(&judge), (0, 0), "it has ended with an OPEN");
            judge.take(A, &segment(4, closes, flag::ACK, &keepalive));
            judge.take(A, &segment(5, closes + keepalive.len() as u32, flags, b""));
            assert_eq!(ends(&judge).0 + ends(&judge).1, 1, "both sides have agreed");
            // Nobody has seen how it began.
            let mut judge = Judge::new(ROUTER.ip(), number);
            judge.take(A, &segment(3, 101, flags, b""));
            assert_eq!(ends(&judge).0 + ends(&judge).1, 1);
        }
    }

    #[test]
    fn a_hole_is_seen() {
        let mut judge = begun();
        judge.take(A, &segment(2, 101, flag::ACK, b"x"));
        assert_eq!(judge.findings(), ["the capture has holes"]);
    }

    #[test]
    fn an_acknowledgement_of_more_is_seen_once() {
        let mut judge = begun();
        let acknowledge = |judge: &mut Judge, at, number| {
            let mut segment = segment(at, 100, flag::ACK, b"");
            segment.acknowledged = number;
            judge.take(A, &segment);
            judge.after.acknowledged
        };
        assert_eq!(acknowledge(&mut judge, 2, u32::MAX), None);
        judge.failed(3, 0, None);
        let all = [(4, u32::MAX), (5, 3), (6, 9)].map(|(at, number)| acknowledge(&mut judge, at, number));
        assert_eq!(all, [None, Some(5), Some(5)]);
    }
}

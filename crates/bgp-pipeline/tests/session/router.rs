//! A router without sockets: the sessions of two peers and the pipeline between them, every seam checked. The clean
//! peer has done nothing wrong; the wild one may say what it likes. Used by the tests here and by the fuzz target
//! `session`.

use std::{
    cell::RefCell,
    collections::BTreeSet,
    net::{IpAddr, Ipv4Addr},
    rc::Rc,
    time::{Duration, Instant},
};

use holdfast_bgp_pipeline::{
    BgpsecValidation, CheckStage, Event, PathRules, PeerConfig, PeerIndex, PeerKind, Pipeline, Secured,
    SendPaths, SessionFacts, SpeakerConfig,
};
use holdfast_bgp_session::{
    AddPath, ConnId, Disposition, Input, Negotiated, Output, Peer, PeerAsn, SessionRules, State,
};
use holdfast_bgp_wire::{
    Capability, GracefulFamily, HEADER_LEN, KEEPALIVE, MAX_EXTENDED_LEN, MessageType, Notification, Open,
    OrfMessage, RouteRefresh, UpdateEncoder, next_message,
    nlri::prefixes,
    update::{self, AsSets, Checked, Rules, Verdict},
};
use holdfast_bgpsec_wire::{Ingress, Session};
use holdfast_config::schema::Bgpsec;
use holdfast_policy::Program;
use holdfast_types::{Afi, Asn, Family, HashKey, IpPrefix, Ipv4Prefix, Prefix, RouterId};

pub(crate) const OUR_AS: Asn = Asn(65_000);
/// What others know our confederation by, where there is one.
const CONFEDERATION: Asn = Asn(65_100);
/// Routes that the clean peer announces.
pub(crate) const CLEAN_ROUTES: [&str; 3] = ["198.18.0.0/24", "198.18.1.0/24", "203.0.113.0/24"];

/// What the wild peer offers.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Wild {
    pub(crate) kind: PeerKind,
    pub(crate) four_octet_as: bool,
    pub(crate) extended_messages: bool,
    pub(crate) v6_next_hops: bool,
    pub(crate) as_sets: AsSets,
    /// It sends and takes several paths of a prefix (RFC 7911).
    pub(crate) paths: bool,
    /// Our AS is a member of a confederation.
    pub(crate) confederation: bool,
    /// It says that it comes back, and that it forwards meanwhile.
    pub(crate) restarts: bool,
    /// It sends signed paths (RFC 8205), and this is what they mean.
    pub(crate) bgpsec: Option<BgpsecValidation>,
}

impl Wild {
    pub(crate) const EBGP: Self = Self {
        kind: PeerKind::Ebgp,
        four_octet_as: true,
        extended_messages: false,
        v6_next_hops: false,
        as_sets: AsSets::Reject,
        paths: false,
        confederation: false,
        restarts: false,
        bgpsec: None,
    };

    pub(crate) fn asn(self) -> Asn {
        match self.kind {
            PeerKind::Ebgp => Asn(65_001),
            PeerKind::Ibgp => OUR_AS,
            PeerKind::ConfedEbgp => Asn(64_513),
        }
    }
}

/// One peer, as the router has it.
struct Side {
    index: PeerIndex,
    kind: PeerKind,
    number: u8,
    peer: Peer,
    /// Its connection, of which it may have had many.
    connection: ConnId,
    open: bool,
    /// Octets that are no whole message yet.
    unread: Vec<u8>,
    negotiated: Option<Negotiated>,
    downs: usize,
    notified: Option<Notification>,
    /// The routes of IPv4 that it has from us.
    told: BTreeSet<Prefix>,
}

pub(crate) struct Router {
    pub(crate) pipeline: Pipeline,
    now: Instant,
    wild: Wild,
    /// The clean one, the wild one.
    sides: [Side; 2],
}

const CLEAN: usize = 0;
const WILD: usize = 1;

impl Router {
    /// Both sessions are up, and the clean peer has announced its routes.
    pub(crate) fn new(wild: Wild) -> Self {
        let mut router = Self::without_wild(wild);
        router.wild_comes_up();
        router
    }

    /// The wild peer has connected, and said nothing.
    pub(crate) fn without_wild(wild: Wild) -> Self {
        let now = Instant::now();
        let speaker = SpeakerConfig {
            as_sets: wild.as_sets,
            confederation: wild.confederation.then_some(CONFEDERATION),
            ..SpeakerConfig::new(OUR_AS, id(1), HashKey::new([42, 0]))
        };
        let mut pipeline = Pipeline::new(speaker);
        pipeline.observe(Rc::new(RefCell::new(CheckStage::default())));
        pipeline.set_now(now);
        let clean = side(&mut pipeline, 1, Wild::EBGP, Asn(65_010), now);
        let other = side(&mut pipeline, 2, wild, wild.asn(), now);
        let mut router = Self { pipeline, now, wild, sides: [clean, other] };
        // A hold time of 0: it needs no KEEPALIVEs, whatever time passes.
        router.receive(CLEAN, &open(Asn(65_010), 0, 1, Wild::EBGP));
        router.receive(CLEAN, &KEEPALIVE);
        let routes = CLEAN_ROUTES.map(|text| Ipv4Prefix::from_prefix(prefix(text)).expect("IPv4"));
        router.receive(CLEAN, &announcement(Asn(65_010), 1, &routes));
        router.settle();
        router
    }

    pub(crate) fn wild_comes_up(&mut self) {
        let open = open(self.wild.asn(), 90, 2, self.wild);
        self.wild_says(&open);
        self.wild_says(&KEEPALIVE);
    }

    pub(crate) fn wild_says(&mut self, octets: &[u8]) {
        self.receive(WILD, octets);
    }

    /// Its connection breaks.
    pub(crate) fn wild_leaves(&mut self) {
        if std::mem::take(&mut self.sides[WILD].open) {
            let id = self.sides[WILD].connection;
            self.input(WILD, Input::Closed(id, None));
        }
    }

    /// The same, and it connects anew.
    pub(crate) fn wild_reconnects(&mut self) {
        self.wild_leaves();
        let side = &mut self.sides[WILD];
        side.unread.clear();
        side.connection = ConnId((side.connection.0 + 1) % ConnId::FIRST_DIALLED.0);
        side.open = true;
        let id = side.connection;
        self.input(WILD, Input::Accepted(id));
    }

    pub(crate) fn wild_is_up(&self) -> bool {
        self.sides[WILD].peer.state() == State::Established
    }

    /// The last NOTIFICATION that the wild peer was sent.
    pub(crate) fn wild_was_told(&self) -> Option<&Notification> {
        self.sides[WILD].notified.as_ref()
    }

    pub(crate) fn wild_index(&self) -> PeerIndex {
        self.sides[WILD].index
    }

    /// The clean peer withdraws its last route, or announces it again.
    pub(crate) fn clean_flaps(&mut self, announce: bool) {
        let route = Ipv4Prefix::from_prefix(prefix(CLEAN_ROUTES[2])).expect("IPv4");
        let mut octets = Vec::new();
        if announce {
            octets = announcement(Asn(65_010), 1, &[route]);
        } else {
            UpdateEncoder::new(4096).withdraw([route], &mut octets);
        }
        self.receive(CLEAN, &octets);
    }

    /// Time passes, each timer at its time.
    pub(crate) fn pass(&mut self, time: Duration) {
        let until = self.now + time;
        loop {
            let due = (0..2).filter_map(|who| Some((self.sides[who].peer.poll_timeout()?, who)));
            let Some((at, who)) = due.min().filter(|(at, _)| *at <= until) else { break };
            self.now = at.max(self.now);
            self.pipeline.set_now(self.now);
            self.input(who, Input::Timeout);
        }
        self.now = until;
        self.pipeline.set_now(until);
    }

    pub(crate) fn now(&self) -> Instant {
        self.now
    }

    /// All background work is done, and everybody has read what there is for him.
    pub(crate) fn settle(&mut self) {
        for _ in 0..100_000 {
            let mut busy = self.pipeline.work(100) || self.pipeline.is_waiting();
            for who in [CLEAN, WILD] {
                busy |= self.reads(who);
            }
            while let Some(event) = self.pipeline.poll_event() {
                if let Event::EndOfRib { peer, family } = event {
                    let who = if peer == self.sides[WILD].index { WILD } else { CLEAN };
                    self.input(who, Input::EndOfRib(family));
                }
            }
            if !busy {
                return;
            }
        }
        panic!("never quiet");
    }

    /// The clean session has never gone down, nor was its peer told of an error, and its routes are all there.
    pub(crate) fn assert_clean(&mut self, routes: usize) {
        self.settle();
        let clean = &self.sides[CLEAN];
        assert_eq!(clean.peer.state(), State::Established);
        assert_eq!((clean.downs, &clean.notified), (0, &None));
        let held = self.pipeline.counts(clean.index, Family::IPV4_UNICAST).routes;
        assert_eq!((held.received, held.accepted), (routes as u64, routes as u64));
        let is_gone = !self.wild_is_up() && self.sides[WILD].peer.retained().next().is_none();
        if is_gone {
            let (_, paths) = self.pipeline.table_size(Family::IPV4_UNICAST);
            assert_eq!(paths, routes as u64, "what is left of a session that has ended");
            assert_eq!(self.pipeline.table_size(Family::IPV6_UNICAST), (0, 0));
        }
    }

    /// Whether the clean peer was told of a route of IPv4, and not that it is gone.
    pub(crate) fn clean_knows(&mut self, text: &str) -> bool {
        self.settle();
        self.sides[CLEAN].told.contains(&prefix(text))
    }

    /// Whether the wild peer has this route in the table.
    pub(crate) fn wild_has(&mut self, text: &str) -> bool {
        let index = self.sides[WILD].index;
        self.pipeline.explain(prefix(text)).iter().any(|path| path.peer == Some(index))
    }

    /// As `bgp` does it: whole messages, one after the other, until the connection ends.
    fn receive(&mut self, who: usize, octets: &[u8]) {
        if !self.sides[who].open {
            return;
        }
        let mut stream = std::mem::take(&mut self.sides[who].unread);
        stream.extend_from_slice(octets);
        let mut rest = &stream[..];
        while self.sides[who].open {
            let side = &mut self.sides[who];
            let id = side.connection;
            match next_message(rest, side.peer.max_received(id)) {
                Ok(Some(message)) => {
                    rest = &rest[message.wire.len()..];
                    let input = Input::Message(id, message.kind, message.body);
                    if self.input(who, input) == Disposition::Deliver {
                        self.deliver(who, message.kind, message.body);
                    }
                }
                Ok(None) => break,
                Err(error) => {
                    self.input(who, Input::FramingError(id, error));
                    break;
                }
            }
        }
        if self.sides[who].open {
            self.sides[who].unread = rest.to_vec();
        }
    }

    fn deliver(&mut self, who: usize, kind: MessageType, body: &[u8]) {
        let (index, id) = (self.sides[who].index, self.sides[who].connection);
        let taken = match kind {
            MessageType::Update => self.pipeline.update(index, body),
            MessageType::RouteRefresh => self.refresh(who, body),
            MessageType::Open | MessageType::Notification | MessageType::KeepAlive => Ok(()),
        };
        if let Err(refused) = taken {
            self.input(who, Input::UpdateRefused(id, refused));
        }
    }

    fn refresh(&mut self, who: usize, body: &[u8]) -> Result<(), Notification> {
        let index = self.sides[who].index;
        if OrfMessage::is_one(body) && self.pipeline.orf(index, Family::IPV4_UNICAST).is_some() {
            let message = OrfMessage::parse(body)?;
            self.pipeline.take_orf(index, &message);
            return Ok(());
        }
        let RouteRefresh { family, subtype } = RouteRefresh::parse(body)?;
        match subtype {
            RouteRefresh::REQUEST => self.pipeline.route_refresh(index, family),
            RouteRefresh::BORR => _ = self.input(who, Input::BeginRefresh(family)),
            RouteRefresh::EORR => _ = self.input(who, Input::EndRefresh(family)),
            _ => {}
        }
        Ok(())
    }

    fn input(&mut self, who: usize, input: Input<'_>) -> Disposition {
        let disposition = self.sides[who].peer.handle(input, self.now);
        while let Some(output) = self.sides[who].peer.poll_output() {
            let side = &mut self.sides[who];
            match output {
                Output::Connect(_) => panic!("both are passive"),
                Output::Close(id) => side.open &= id != side.connection,
                Output::Send(id, wire) => {
                    let message = next_message(&wire, MAX_EXTENDED_LEN).expect("sound").expect("whole");
                    if message.kind == MessageType::Notification {
                        side.notified = Notification::parse(message.body);
                    }
                    // It is taken at once.
                    self.sides[who].peer.handle(Input::Sent(id), self.now);
                }
                Output::Established(_, negotiated) => {
                    let facts = facts(side.number, side.kind, &negotiated);
                    side.negotiated = Some(*negotiated);
                    self.pipeline.peer_up(side.index, facts).expect("room");
                }
                Output::Down { retained, .. } => {
                    side.downs += 1;
                    side.negotiated = None;
                    side.told.clear();
                    self.pipeline.peer_away(side.index, &retained);
                }
                Output::LongLived(family) => self.pipeline.keep_long(side.index, family),
                Output::Forget(family) => self.pipeline.forget_stale(side.index, family),
                Output::MarkStale(family) => self.pipeline.begin_refresh(side.index, family),
                Output::Sweep(family) => self.pipeline.end_refresh(side.index, family),
                Output::Log(event) => assert!(!event.to_string().is_empty()),
            }
        }
        disposition
    }

    /// What we are to a peer.
    fn wire_kind(&self, who: usize) -> update::PeerKind {
        match self.sides[who].kind {
            PeerKind::Ebgp => update::PeerKind::Ebgp,
            PeerKind::Ibgp if self.wild.confederation => update::PeerKind::ConfedIbgp,
            PeerKind::Ibgp => update::PeerKind::Ibgp,
            PeerKind::ConfedEbgp => update::PeerKind::ConfedEbgp,
        }
    }

    /// Takes what the pipeline has for a peer: sound messages, short enough for it.
    fn reads(&mut self, who: usize) -> bool {
        let index = self.sides[who].index;
        while let Some(messages) = self.pipeline.pull(index) {
            let negotiated = self.sides[who].negotiated.as_ref().expect("only a session is told anything");
            let mut bytes = &messages[..];
            while !bytes.is_empty() {
                let message = next_message(bytes, negotiated.max_sent).expect("sound").expect("whole");
                bytes = &bytes[message.wire.len()..];
                if message.kind == MessageType::RouteRefresh {
                    assert!(negotiated.enhanced_refresh, "only who knows is told where a refresh begins");
                    continue;
                }
                assert_sound(message.body, self.wire_kind(who), negotiated);
                if who == CLEAN {
                    note(message.body, &mut self.sides[who].told);
                }
            }
        }
        self.pipeline.pending(index)
    }
}

/// What we send passes our own check without a word.
fn assert_sound(body: &[u8], kind: update::PeerKind, negotiated: &Negotiated) {
    let identified = negotiated.identifiers_sent.contains(&Family::IPV4_UNICAST);
    let split = if identified { update::sections_identified } else { update::sections };
    let sections = split(body).expect("readable");
    if sections.end_of_rib().is_some() {
        return;
    }
    let rules = Rules {
        four_octet_as: negotiated.four_octet_as,
        extended_next_hop: !negotiated.extended_next_hop.is_empty(),
        identifiers: negotiated.identifiers_sent.iter().copied().collect(),
        ..Rules::new(kind, AsSets::Accept)
    };
    let mut checked = Checked::default();
    update::check(sections.attributes, !sections.nlri.is_empty(), &rules, &mut checked);
    assert_eq!((&checked.verdict, &checked.discarded), (&Verdict::Ok, &Vec::new()));
}

/// Keeps what an UPDATE says of IPv4.
fn note(body: &[u8], told: &mut BTreeSet<Prefix>) {
    let sections = update::sections(body).expect("readable");
    let read = |bytes| prefixes::<Ipv4Prefix>(bytes).map(|prefix| Prefix::V4(prefix.expect("sound")));
    for prefix in read(sections.withdrawn) {
        told.remove(&prefix);
    }
    told.extend(read(sections.nlri));
}

fn prefix(text: &str) -> Prefix {
    text.parse().expect("a prefix")
}

fn id(bits: u32) -> RouterId {
    RouterId::new(bits).expect("not zero")
}

fn address(number: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 0, number, 2)
}

/// A passive peer that has just connected.
fn side(pipeline: &mut Pipeline, number: u8, wild: Wild, asn: Asn, now: Instant) -> Side {
    let index = pipeline.add_peer(PeerConfig {
        name: format!("peer-{number}"),
        address: IpAddr::V4(address(number)),
        asn,
        kind: wild.kind,
        import: Some(Program::accept_all()),
        export: Some(Program::accept_all()),
        paths: PathRules { bgpsec_validation: wild.bgpsec, ..PathRules::default() },
        send_paths: SendPaths::All,
    });
    let config = holdfast_bgp_session::PeerConfig {
        families: Family::ALL.to_vec(),
        extended_next_hop: wild.v6_next_hops,
        rules: SessionRules { passive: true, ..SessionRules::default() },
        add_path: AddPath { receive: true, send: Some(holdfast_bgp_session::SendPaths::All) },
        bgpsec: Bgpsec { receive: wild.bgpsec.is_some(), ..Bgpsec::default() },
        ..holdfast_bgp_session::PeerConfig::new(OUR_AS, id(1), PeerAsn::Exact(asn))
    };
    let mut peer = Peer::new(config, number.into(), now);
    peer.handle(Input::Start, now);
    let connection = ConnId(0);
    peer.handle(Input::Accepted(connection), now);
    Side {
        index,
        kind: wild.kind,
        number,
        peer,
        connection,
        open: true,
        unread: Vec::new(),
        negotiated: None,
        downs: 0,
        notified: None,
        told: BTreeSet::new(),
    }
}

fn facts(number: u8, kind: PeerKind, negotiated: &Negotiated) -> SessionFacts {
    let session = match kind {
        PeerKind::Ebgp => Session::External,
        PeerKind::Ibgp => Session::Internal,
        PeerKind::ConfedEbgp => Session::Confederation,
    };
    let ingress = Ingress { session, ..Ingress::external(negotiated.asn, OUR_AS) };
    let families = negotiated.bgpsec_received.iter().copied().collect();
    SessionFacts {
        enhanced_refresh: negotiated.enhanced_refresh,
        orf_received: negotiated.orf_received.clone(),
        long_lived: negotiated.long_lived.is_some(),
        families: negotiated.families.clone(),
        four_octet_as: negotiated.four_octet_as,
        max_message_len: negotiated.max_sent,
        extended_next_hop: !negotiated.extended_next_hop.is_empty(),
        bgpsec_received: (!negotiated.bgpsec_received.is_empty()).then_some(Secured { families, ingress }),
        bgpsec_sent: None,
        identifiers_received: negotiated.identifiers_received.iter().copied().collect(),
        identifiers_sent: negotiated.identifiers_sent.iter().copied().collect(),
        router_id: negotiated.router_id,
        peer_address: IpAddr::V4(address(number)),
        next_hop_v4: Some(Ipv4Addr::new(10, 0, number, 1)),
        next_hop_v6: Some("2001:db8:ffff::1".parse().expect("an address")),
        link_local: None,
        interface: 0,
        number: 0,
        first_identifier: 0,
    }
}

fn open(asn: Asn, hold_time: u16, number: u8, wild: Wild) -> Vec<u8> {
    let mut capabilities: Vec<_> = Family::ALL.iter().copied().map(Capability::Multiprotocol).collect();
    capabilities.push(Capability::RouteRefresh);
    if wild.four_octet_as {
        capabilities.push(Capability::FourOctetAs(asn));
    }
    if wild.extended_messages {
        capabilities.push(Capability::ExtendedMessage);
    }
    if wild.v6_next_hops {
        capabilities.push(Capability::ExtendedNextHop(vec![(Family::IPV4_UNICAST, Afi::IPV6)]));
    }
    if wild.paths {
        // In both directions.
        capabilities.push(Capability::AddPath(Family::ALL.iter().map(|family| (*family, 3)).collect()));
    }
    if wild.bgpsec.is_some() {
        let afis = [Afi::IPV4, Afi::IPV6];
        capabilities.extend(afis.map(|afi| Capability::Bgpsec { version: 0, send: true, afi }));
    }
    if wild.restarts {
        let families = Family::ALL.iter().map(|family| GracefulFamily { family: *family, forwarding: true });
        let families = families.collect();
        let restart =
            Capability::GracefulRestart { restarting: false, notification: false, time: 60, families };
        capabilities.push(restart);
    }
    Open { asn, hold_time, router_id: id(0x0a00_0100 + u32::from(number)), capabilities }.encode()
}

/// A whole UPDATE with these attributes and these prefixes of IPv4.
fn announcement(asn: Asn, number: u8, routes: &[Ipv4Prefix]) -> Vec<u8> {
    let attributes = [
        &[0x40, 1, 1, 0, 0x40, 2, 6, 2, 1][..],
        &asn.0.to_be_bytes(),
        &[0x40, 3, 4],
        &address(number).octets(),
    ]
    .concat();
    let mut out = Vec::new();
    let sent = UpdateEncoder::new(4096).announce(&attributes, routes.iter().copied(), &mut out);
    assert_eq!(sent, Ok(1));
    out
}

/// A whole UPDATE around a body.
pub(crate) fn update(body: &[u8]) -> Vec<u8> {
    message(MessageType::Update as u8, body)
}

/// A whole message around a body, cut off where no header can say its length.
pub(crate) fn message(kind: u8, body: &[u8]) -> Vec<u8> {
    let body = &body[..body.len().min(MAX_EXTENDED_LEN - HEADER_LEN)];
    let length = (HEADER_LEN + body.len()) as u16;
    [&[0xff; 16][..], &length.to_be_bytes(), &[kind], body].concat()
}

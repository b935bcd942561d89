//! What the tests share: peers that write UPDATEs and keep what they are sent.

use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, Ipv4Addr},
    rc::Rc,
};

use holdfast_bgp_pipeline::{
    CheckStage, FamilySet, Messages, NextHopMode, PathRules, PeerConfig, PeerIndex, PeerKind, Pipeline,
    Secured, SendPaths, SessionFacts, SpeakerConfig, ThawedSets, Unreadable,
};
use holdfast_bgp_wire::{
    Attributes, HEADER_LEN, MAX_LEN, MessageType, NextHop, RouteRefresh, UpdateEncoder, next_message,
    nlri::{self, Identified, prefixes},
    update::{self, AsSets, Checked, PeerKind as WireKind, Rules, Verdict},
};
use holdfast_policy::Program;
use holdfast_types::{Asn, Family, HashKey, IpPrefix, Ipv4Prefix, Ipv6Prefix, Prefix, RouterId};

pub(crate) const OUR_AS: Asn = Asn(65000);

pub(crate) fn prefix(text: &str) -> Prefix {
    text.parse().expect("a prefix")
}

pub(crate) fn router_id(bits: u32) -> RouterId {
    RouterId::new(bits).expect("not zero")
}

pub(crate) fn speaker(next_hops: NextHopMode) -> SpeakerConfig {
    SpeakerConfig { next_hops, ..SpeakerConfig::new(OUR_AS, router_id(0x0a00_0001), HashKey::new([42, 0])) }
}

/// A pipeline in which the contract between stages is checked at every seam.
pub(crate) fn checked(speaker: SpeakerConfig) -> Pipeline {
    let mut pipeline = Pipeline::new(speaker);
    pipeline.observe(Rc::new(RefCell::new(CheckStage::default())));
    pipeline
}

/// The address of peer `n`.
pub(crate) fn address(n: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 0, n, 2)
}

pub(crate) fn ebgp(n: u8) -> PeerConfig {
    PeerConfig {
        name: format!("peer-{n}"),
        address: IpAddr::V4(address(n)),
        asn: Asn(65100 + u32::from(n)),
        kind: PeerKind::Ebgp,
        import: Some(Program::accept_all()),
        export: Some(Program::accept_all()),
        paths: PathRules::default(),
        send_paths: SendPaths::All,
    }
}

pub(crate) fn ibgp(n: u8) -> PeerConfig {
    PeerConfig { asn: OUR_AS, kind: PeerKind::Ibgp, import: None, export: None, ..ebgp(n) }
}

pub(crate) fn facts(n: u8) -> SessionFacts {
    SessionFacts {
        families: Family::ALL.to_vec(),
        four_octet_as: true,
        max_message_len: MAX_LEN,
        enhanced_refresh: false,
        orf_received: Vec::new(),
        long_lived: false,
        extended_next_hop: false,
        bgpsec_received: None,
        bgpsec_sent: None,
        identifiers_received: FamilySet::NONE,
        identifiers_sent: FamilySet::NONE,
        router_id: router_id(0x0a00_0100 + u32::from(n)),
        peer_address: IpAddr::V4(address(n)),
        next_hop_v4: Some(Ipv4Addr::new(10, 0, 0, 1)),
        next_hop_v6: Some("2001:db8::1".parse().expect("an address")),
        link_local: None,
        interface: 0,
        number: 0,
        first_identifier: 0,
    }
}

/// The body of an UPDATE that announces, with these attributes (NEXT_HOP included for IPv4).
pub(crate) fn announcement(attributes: &[u8], routes: &[Prefix]) -> Vec<u8> {
    let encoder = UpdateEncoder::new(MAX_LEN);
    let mut out = Vec::new();
    let v4 = routes.iter().filter_map(|p| Ipv4Prefix::from_prefix(*p));
    let v6: Vec<Ipv6Prefix> = routes.iter().filter_map(|p| Ipv6Prefix::from_prefix(*p)).collect();
    let sent = if v6.is_empty() {
        encoder.announce(attributes, v4, &mut out)
    } else {
        let global = "2001:db8:ffff::1".parse().expect("an address");
        encoder.announce_mp(attributes, NextHop::V6 { global, link_local: None }, v6, &mut out)
    };
    assert_eq!(sent, Ok(1), "one message");
    out.split_off(HEADER_LEN)
}

/// The same with a path identifier for all (RFC 7911), if there is one.
pub(crate) fn announcement_of(identifier: Option<u32>, attributes: &[u8], routes: &[Prefix]) -> Vec<u8> {
    let Some(identifier) = identifier else { return announcement(attributes, routes) };
    let encoder = UpdateEncoder::new(MAX_LEN);
    let mut out = Vec::new();
    let v4 = routes.iter().filter_map(|p| Ipv4Prefix::from_prefix(*p));
    let v4 = v4.map(|prefix| Identified { identifier, prefix });
    let v6 = routes.iter().filter_map(|p| Ipv6Prefix::from_prefix(*p));
    let v6: Vec<_> = v6.map(|prefix| Identified { identifier, prefix }).collect();
    let sent = if v6.is_empty() {
        encoder.announce(attributes, v4, &mut out)
    } else {
        let global = "2001:db8:ffff::1".parse().expect("an address");
        encoder.announce_mp(attributes, NextHop::V6 { global, link_local: None }, v6, &mut out)
    };
    assert_eq!(sent, Ok(1), "one message");
    out.split_off(HEADER_LEN)
}

/// The same with a path identifier, if there is one.
pub(crate) fn withdrawal_of(identifier: Option<u32>, route: Prefix) -> Vec<u8> {
    let Some(identifier) = identifier else { return withdrawal(route) };
    let encoder = UpdateEncoder::new(MAX_LEN);
    let mut out = Vec::new();
    match route {
        Prefix::V4(prefix) => encoder.withdraw([Identified { identifier, prefix }], &mut out),
        Prefix::V6(prefix) => encoder.withdraw_mp([Identified { identifier, prefix }], &mut out),
    };
    out.split_off(HEADER_LEN)
}

/// The body of an UPDATE that withdraws.
pub(crate) fn withdrawal(route: Prefix) -> Vec<u8> {
    let encoder = UpdateEncoder::new(MAX_LEN);
    let mut out = Vec::new();
    match route {
        Prefix::V4(route) => encoder.withdraw([route], &mut out),
        Prefix::V6(route) => encoder.withdraw_mp([route], &mut out),
    };
    out.split_off(HEADER_LEN)
}

pub(crate) fn family_of(prefix: Prefix) -> Family {
    match prefix {
        Prefix::V4(_) => Family::IPV4_UNICAST,
        Prefix::V6(_) => Family::IPV6_UNICAST,
    }
}

/// A route as a peer holds it.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Held {
    /// Canonical attributes.
    pub(crate) attributes: Vec<u8>,
    pub(crate) next_hop: IpAddr,
}

impl Held {
    pub(crate) fn path(&self) -> String {
        Attributes(&self.attributes).as_path().to_string()
    }
}

/// A peer's receiving side.
#[derive(Debug, Default)]
pub(crate) struct Sink {
    pub(crate) routes: BTreeMap<Prefix, Held>,
    /// What came under path identifiers.
    pub(crate) paths: BTreeMap<(Prefix, u32), Held>,
    /// Where prefixes have them.
    pub(crate) identifiers: FamilySet,
    pub(crate) end_of_rib: Vec<Family>,
    /// Where refreshes begin and end, each after how many messages.
    pub(crate) refreshes: Vec<(RouteRefresh, usize)>,
    /// What was not told again since the peer asked for that, or since a refresh began: at its end it is gone.
    pub(crate) untold: BTreeSet<(Prefix, Option<u32>)>,
    /// Families of which a refresh has begun, and not ended.
    pub(crate) refreshing: Vec<Family>,
    /// Withdrawals of routes it did not have.
    pub(crate) idle_withdrawals: usize,
    pub(crate) messages: usize,
    /// How long next hops in MP_REACH_NLRI were.
    pub(crate) next_hop_octets: BTreeSet<u8>,
    pub(crate) internal: bool,
    /// It is in our confederation: in our AS or in another member.
    pub(crate) confederation: bool,
    /// It reads two-octet AS numbers only.
    pub(crate) two_octet_as: bool,
    /// It takes BGPsec_PATH.
    pub(crate) bgpsec: Option<Secured>,
}

impl Sink {
    /// What the pipeline gave for it at once.
    pub(crate) fn take(&mut self, messages: &Messages) {
        let before = self.messages;
        self.receive(messages);
        assert_eq!((self.messages - before) as u64, messages.count);
    }

    pub(crate) fn receive(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let message = next_message(bytes, MAX_LEN).expect("well-formed").expect("whole messages");
            bytes = &bytes[message.wire.len()..];
            self.messages += 1;
            match message.kind {
                MessageType::Update => self.update(message.body),
                MessageType::RouteRefresh => {
                    let refresh = RouteRefresh::parse(message.body).expect("readable");
                    self.refreshes.push((refresh, self.messages));
                    self.refresh(refresh);
                }
                other => panic!("{other:?} is not the pipeline's"),
            }
        }
    }

    /// All routes, by prefix, in no particular order of paths.
    pub(crate) fn held(&self) -> BTreeMap<Prefix, Vec<Held>> {
        let mut held: BTreeMap<Prefix, Vec<Held>> = BTreeMap::new();
        let routes = self.routes.iter().map(|(prefix, route)| (*prefix, route));
        for (prefix, route) in routes.chain(self.paths.iter().map(|((prefix, _), route)| (*prefix, route))) {
            held.entry(prefix).or_default().push(route.clone());
        }
        held.values_mut().for_each(|paths| paths.sort());
        held
    }

    /// A peer that keeps nothing of what is not told again (RFC 7313 section 4).
    fn refresh(&mut self, RouteRefresh { family, subtype }: RouteRefresh) {
        match subtype {
            RouteRefresh::BORR => {
                self.ask(family);
                if !self.refreshing.contains(&family) {
                    self.refreshing.push(family);
                }
            }
            RouteRefresh::EORR => {
                assert!(self.refreshing.contains(&family), "the end of a refresh that has not begun");
                self.refreshing.retain(|other| *other != family);
                let is_gone = |route: &(Prefix, Option<u32>)| family_of(route.0) == family;
                for (prefix, identifier) in self.untold.extract_if(.., |route| is_gone(route)) {
                    match identifier {
                        Some(identifier) => _ = self.paths.remove(&(prefix, identifier)),
                        None => _ = self.routes.remove(&prefix),
                    }
                }
            }
            other => panic!("{other} is no subtype that is sent"),
        }
    }

    /// The peer asks for everything of a family again: what it has counts only if it is told once more.
    pub(crate) fn ask(&mut self, family: Family) {
        let routes = self.routes.keys().map(|prefix| (*prefix, None));
        let paths = self.paths.keys().map(|(prefix, identifier)| (*prefix, Some(*identifier)));
        self.untold.extend(routes.chain(paths).filter(|(prefix, _)| family_of(*prefix) == family));
    }

    /// Whether everything that the peer has asked for has been told again.
    pub(crate) fn is_answered(&self) -> bool {
        self.untold.is_empty() && self.refreshing.is_empty()
    }

    fn update(&mut self, body: &[u8]) {
        let identified = self.identifiers.of(Family::IPV4_UNICAST);
        let sections = if identified { update::sections_identified(body) } else { update::sections(body) };
        let sections = sections.expect("readable");
        if let Some(family) = sections.end_of_rib() {
            return self.end_of_rib.push(family);
        }
        let kind = match (self.internal, self.confederation) {
            (true, false) => WireKind::Ibgp,
            (false, false) => WireKind::Ebgp,
            (true, true) => WireKind::ConfedIbgp,
            (false, true) => WireKind::ConfedEbgp,
        };
        let four_octet_as = !self.two_octet_as;
        let rules = Rules {
            four_octet_as,
            extended_next_hop: true,
            identifiers: self.identifiers,
            bgpsec: self.bgpsec,
            ..Rules::new(kind, AsSets::Reject)
        };
        let mut checked = Checked::default();
        let mp = update::check(sections.attributes, !sections.nlri.is_empty(), &rules, &mut checked);
        assert_eq!((&checked.verdict, &checked.discarded), (&Verdict::Ok, &Vec::new()));
        self.withdraw::<Ipv4Prefix>(sections.withdrawn);
        if let Some(unreach) = mp.unreach {
            self.withdraw::<Ipv6Prefix>(unreach.nlri);
        }
        let attributes = checked.canonical;
        if let Some(next_hop) = Attributes(&attributes).next_hop() {
            let held = Held { attributes: attributes.clone(), next_hop: next_hop.into() };
            self.announce::<Ipv4Prefix>(sections.nlri, &held);
        }
        if let Some(reach) = mp.reach {
            let next_hop = reach.next_hop.expect("usable");
            self.next_hop_octets.insert(next_hop.octets());
            let next_hop = next_hop.address();
            let held = Held { attributes, next_hop };
            if reach.family == Family::IPV4_UNICAST {
                self.announce::<Ipv4Prefix>(reach.nlri, &held);
            } else {
                self.announce::<Ipv6Prefix>(reach.nlri, &held);
            }
        }
    }

    fn announce<P: IpPrefix>(&mut self, nlri: &[u8], held: &Held) {
        for (identifier, prefix) in self.read::<P>(nlri) {
            self.untold.remove(&(prefix, identifier));
            match identifier {
                Some(identifier) => self.paths.insert((prefix, identifier), held.clone()),
                None => self.routes.insert(prefix, held.clone()),
            };
        }
    }

    fn withdraw<P: IpPrefix>(&mut self, nlri: &[u8]) {
        for (identifier, prefix) in self.read::<P>(nlri) {
            self.untold.remove(&(prefix, identifier));
            let known = match identifier {
                Some(identifier) => self.paths.remove(&(prefix, identifier)),
                None => self.routes.remove(&prefix),
            };
            self.idle_withdrawals += usize::from(known.is_none());
        }
    }

    fn read<P: IpPrefix>(&self, nlri: &[u8]) -> Vec<(Option<u32>, Prefix)> {
        if self.identifiers.of(P::UNICAST) {
            let paths = nlri::identified::<P>(nlri).map(|path| path.expect("sound"));
            return paths.map(|path| (Some(path.identifier), path.prefix.into())).collect();
        }
        prefixes::<P>(nlri).map(|prefix| (None, prefix.expect("sound").into())).collect()
    }
}

/// Background work and receiving until nothing is left.
pub(crate) fn settle(pipeline: &mut Pipeline, sinks: &mut [(PeerIndex, Sink)]) {
    for _ in 0..100_000 {
        let mut busy = pipeline.work(100) || pipeline.is_waiting();
        for (peer, sink) in sinks.iter_mut() {
            while let Some(messages) = pipeline.pull(*peer) {
                sink.take(&messages);
            }
            busy |= pipeline.pending(*peer);
        }
        if !busy {
            return;
        }
    }
    panic!("never quiet");
}

/// What these have brought, as [`Pipeline::freeze_routes`] writes it in slices of this size; `between` comes after each.
pub(super) fn frozen(
    pipeline: &mut Pipeline,
    peers: &[PeerIndex],
    budget: usize,
    mut between: impl FnMut(&mut Pipeline),
) -> Vec<(PeerIndex, Vec<u8>)> {
    let (mut records, mut walk) = (Vec::new(), pipeline.freeze(peers.iter().copied()));
    loop {
        let mut sink = |peer: PeerIndex, record: &[u8]| {
            records.push((peer, record.to_vec()));
            true
        };
        let goes_on = pipeline.freeze_routes(&mut walk, budget, &mut sink);
        between(pipeline);
        if !goes_on {
            return records;
        }
    }
}

/// Takes in such records of one peer, up to the first that cannot be read.
pub(super) fn thaw<'a>(
    pipeline: &mut Pipeline,
    peer: PeerIndex,
    records: impl IntoIterator<Item = &'a [u8]>,
) -> Result<(), Unreadable> {
    let mut sets = ThawedSets::new(HashKey::new([1, 2]));
    let thawed = records.into_iter().try_for_each(|record| pipeline.thaw_routes(peer, record, &mut sets));
    while pipeline.thawed(&mut sets, 1) {}
    thawed
}

/// The peers that are told of a prefix.
pub(super) fn advertised_to(pipeline: &mut Pipeline, route: Prefix) -> Vec<PeerIndex> {
    pipeline.sent_to(route).into_iter().map(|sent| sent.peer).collect()
}

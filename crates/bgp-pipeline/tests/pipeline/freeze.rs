//! Received routes on their way to another process.

use std::{
    collections::BTreeMap,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    time::Instant,
};

use holdfast_bgp_pipeline::{
    CheckStage, Event, NextHopMode, PathState, PathView, PeerConfig, PeerIndex, Pipeline, Reachability,
    RouteCounts, SessionFacts, SpeakerConfig, Unreadable,
};
use holdfast_bgp_wire::{HEADER_LEN, MAX_LEN, NextHop, UpdateEncoder};
use holdfast_policy::Program;
use holdfast_types::{Family, IpPrefix, Ipv4Prefix, Ipv6Prefix, Prefix};
use proptest::{collection::vec, prelude::*};

use crate::tests::pipeline::{
    model::{EXPORT_POLICIES, POLICIES, programs},
    speaker::{Held, Sink, checked, ebgp, facts, frozen, ibgp, prefix, settle, speaker, thaw, withdrawal},
};

/// eBGP; eBGP with two-octet AS numbers; eBGP on a link; iBGP; iBGP with IPv6 next hops for IPv4.
const PEERS: usize = 5;
const TWO_OCTETS: usize = 1;
const ON_LINK: usize = 2;
const FIRST_INTERNAL: usize = 3;
const EXTENDED: usize = 4;
const PREFIXES: usize = 14;
const FIRST_V6: usize = 9;

fn route(n: usize) -> Prefix {
    match n {
        0 => prefix("0.0.0.0/0"),
        1..FIRST_V6 => prefix(&format!("10.{}.0.0/{}", n / 2, 16 + n % 2)),
        FIRST_V6 => prefix("::/0"),
        _ => prefix(&format!("2001:db8:{n}::/{}", 47 + n % 2)),
    }
}

fn config(n: usize) -> PeerConfig {
    if n >= FIRST_INTERNAL { ibgp(n as u8) } else { ebgp(n as u8) }
}

fn link(n: usize) -> SessionFacts {
    SessionFacts {
        four_octet_as: n != TWO_OCTETS,
        extended_next_hop: n == EXTENDED,
        interface: if n == ON_LINK { 7 } else { 0 },
        ..facts(n as u8)
    }
}

/// What an UPDATE carries.
#[derive(Clone, Debug)]
struct Offer {
    /// 0 to 2 hops after the peer's; 3: our AS is among them; 4: the peer's is missing.
    path: u8,
    med: u8,
    community: u8,
    next_hop: u8,
    /// In MP_REACH_NLRI even if it is IPv4.
    multiprotocol: bool,
}

impl Offer {
    /// Path attributes as this peer writes them.
    fn attributes(&self, peer: usize) -> Vec<u8> {
        let mut path: Vec<u32> = match self.path {
            hops @ 0..3 => (0..u32::from(hops)).map(|n| 64001 + n).collect(),
            3 => vec![65000, 64001],
            _ => vec![64009],
        };
        let internal = peer >= FIRST_INTERNAL;
        if !internal && self.path < 4 {
            path.insert(0, config(peer).asn.0);
        }
        let octets: Vec<u8> = if peer == TWO_OCTETS {
            path.iter().flat_map(|asn| (*asn as u16).to_be_bytes()).collect()
        } else {
            path.iter().flat_map(|asn| asn.to_be_bytes()).collect()
        };
        let mut out = vec![0x40, 1, 1, 0];
        match path.len() {
            0 => out.extend([0x40, 2, 0]),
            hops => out.extend([0x40, 2, octets.len() as u8 + 2, 2, hops as u8].iter().chain(&octets)),
        }
        if !self.multiprotocol {
            out.extend([0x40, 3, 4, 192, 0, 2, self.next_hop]);
        }
        out.extend([0x80, 4, 4, 0, 0, 0, self.med]);
        if internal {
            out.extend([0x40, 5, 4, 0, 0, 0, 100]);
        }
        if self.community > 0 {
            out.extend([0xc0, 8, 4, 0xfd, 0xe8, 0, self.community]);
        }
        out
    }

    fn next_hop(&self, peer: usize, v4: bool) -> NextHop {
        if v4 && peer != EXTENDED {
            return NextHop::V4(Ipv4Addr::new(192, 0, 2, self.next_hop));
        }
        let network = if peer == ON_LINK { 0xfe80 } else { 0x2001 };
        let global = Ipv6Addr::new(network, 0, 0, 0, 0, 0, 0xff, self.next_hop.into());
        NextHop::V6 { global, link_local: None }
    }
}

fn announcement<P: IpPrefix>(peer: usize, offer: &Offer, routes: &[P]) -> Vec<u8> {
    let (encoder, mut out) = (UpdateEncoder::new(MAX_LEN), Vec::new());
    let (attributes, routes) = (offer.attributes(peer), routes.iter().copied());
    let next_hop = offer.next_hop(peer, P::WIDTH == 32);
    let sent = if offer.multiprotocol {
        encoder.announce_mp(&attributes, next_hop, routes, &mut out)
    } else {
        let routes = routes.filter_map(|route| Ipv4Prefix::from_prefix(route.into()));
        encoder.announce(&attributes, routes, &mut out)
    };
    assert_eq!(sent, Ok(1), "one message");
    out.split_off(HEADER_LEN)
}

/// What a session brings.
#[derive(Clone, Debug)]
enum Update {
    Announce(usize, Vec<usize>, Offer),
    Withdraw(usize, usize),
}

impl Update {
    fn peer(&self) -> usize {
        match self {
            Self::Announce(peer, ..) | Self::Withdraw(peer, _) => *peer,
        }
    }

    fn body(&self) -> Vec<u8> {
        match self {
            // One family for each UPDATE.
            Self::Announce(peer, routes, offer) if routes[0] < FIRST_V6 => {
                let routes: Vec<Ipv4Prefix> =
                    routes.iter().filter_map(|n| Ipv4Prefix::from_prefix(route(*n))).collect();
                announcement(*peer, offer, &routes)
            }
            Self::Announce(peer, routes, offer) => {
                let routes: Vec<Ipv6Prefix> =
                    routes.iter().filter_map(|n| Ipv6Prefix::from_prefix(route(*n))).collect();
                announcement(*peer, &Offer { multiprotocol: true, ..offer.clone() }, &routes)
            }
            Self::Withdraw(_, to) => withdrawal(route(*to)),
        }
    }
}

#[derive(Clone, Debug)]
enum Op {
    Update(Update),
    /// The session ends, and comes up again at once.
    Reset(usize),
    Import(usize, usize),
    Work(usize),
}

fn update() -> impl Strategy<Value = Update> {
    let offer = (0..5u8, 0..3u8, 0..3u8, 0..4u8, any::<bool>());
    let offer = offer.prop_map(|(path, med, community, next_hop, multiprotocol)| Offer {
        path,
        med,
        community,
        next_hop,
        multiprotocol,
    });
    prop_oneof![
        3 => (0..PEERS, vec(0..PREFIXES, 1..8), offer)
            .prop_map(|(peer, routes, offer)| Update::Announce(peer, routes, offer)),
        1 => (0..PEERS, 0..PREFIXES).prop_map(|(peer, to)| Update::Withdraw(peer, to)),
    ]
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        20 => update().prop_map(Op::Update),
        1 => (0..PEERS).prop_map(Op::Reset),
        1 => (0..PEERS, 0..POLICIES).prop_map(|(peer, policy)| Op::Import(peer, policy)),
        2 => (1..4usize).prop_map(Op::Work),
    ]
}

/// A speaker, and what is told to its peers.
struct World {
    pipeline: Pipeline,
    sinks: Vec<(PeerIndex, Sink)>,
    programs: [Option<Program>; EXPORT_POLICIES],
    import: [usize; PEERS],
}

impl World {
    /// All sessions are up, with these import policies.
    fn new(max_paths: u8, staged: bool, import: [usize; PEERS]) -> Self {
        let config = SpeakerConfig { max_paths, ..speaker(NextHopMode::Resolved) };
        let mut pipeline = checked(config);
        if staged {
            pipeline.add_stage(Box::new(CheckStage::default()), Instant::now());
        }
        let mut world = Self { pipeline, sinks: Vec::new(), programs: programs(), import };
        for (n, policy) in import.into_iter().enumerate() {
            let peer = world.pipeline.add_peer(config_of(n, &world.programs, policy));
            world.sinks.push((peer, Sink::default()));
            world.up(n);
        }
        world
    }

    fn up(&mut self, n: usize) {
        let (peer, sink) = &mut self.sinks[n];
        self.pipeline.peer_up(*peer, link(n)).expect("room");
        *sink = Sink { internal: n >= FIRST_INTERNAL, two_octet_as: n == TWO_OCTETS, ..Sink::default() };
    }

    fn run(&mut self, op: &Op) {
        match op {
            Op::Update(update) => {
                self.pipeline.update(self.sinks[update.peer()].0, &update.body()).expect("taken");
            }
            Op::Reset(n) => {
                self.pipeline.peer_down(self.sinks[*n].0);
                self.up(*n);
            }
            Op::Import(n, policy) => {
                self.import[*n] = *policy;
                let config = config_of(*n, &self.programs, *policy);
                self.pipeline.configure_peer(self.sinks[*n].0, config);
            }
            Op::Work(budget) => _ = self.pipeline.work(*budget),
        }
        self.answer();
    }

    /// A next hop that ends in 3 cannot be reached.
    fn answer(&mut self) {
        while let Some(event) = self.pipeline.poll_event() {
            let Event::RegisterNextHop(address) = event else { continue };
            let last = match address {
                IpAddr::V4(address) => address.octets()[3],
                IpAddr::V6(address) => address.octets()[15],
            };
            let reachable = Reachability::Reachable { metric: last.into() };
            self.pipeline.next_hop(address, if last == 3 { Reachability::Unreachable } else { reachable });
        }
    }

    /// Records of a walk. After each slice one of `between` happens.
    fn freeze(&mut self, budget: usize, between: &[Update]) -> Vec<(PeerIndex, Vec<u8>)> {
        let mut between = between.iter();
        let peers: Vec<PeerIndex> = self.sinks.iter().map(|(peer, _)| *peer).collect();
        let (mut records, mut walk) = (Vec::new(), self.pipeline.freeze(peers));
        loop {
            let mut sink = |peer: PeerIndex, record: &[u8]| {
                records.push((peer, record.to_vec()));
                true
            };
            let goes_on = self.pipeline.freeze_routes(&mut walk, budget, &mut sink);
            if let Some(update) = between.next() {
                self.run(&Op::Update(update.clone()));
                self.run(&Op::Work(10));
            }
            if !goes_on {
                break;
            }
        }
        // What comes after the walk counts as well.
        between.for_each(|update| self.run(&Op::Update(update.clone())));
        records
    }

    fn thaw(&mut self, records: &[(PeerIndex, Vec<u8>)]) {
        for n in 0..self.sinks.len() {
            let peer = self.sinks[n].0;
            let of_peer = records.iter().filter(|(from, _)| *from == peer);
            thaw(&mut self.pipeline, peer, of_peer.map(|(_, record)| &**record)).expect("records");
            self.answer();
        }
    }

    /// All that can be seen of routes, once everything has come to rest.
    fn seen(&mut self) -> Seen {
        for _ in 0..3 {
            settle(&mut self.pipeline, &mut self.sinks);
            self.answer();
        }
        let families = Family::ALL.map(|family| self.routes(family));
        let counts =
            |peer: &(PeerIndex, Sink)| Family::ALL.map(|family| self.pipeline.counts(peer.0, family).routes);
        let counts = self.sinks.iter().map(counts).collect();
        let told = self.sinks.iter().map(|(_, sink)| sink.routes.clone()).collect();
        Seen { families, counts, told }
    }

    fn routes(&mut self, family: Family) -> Vec<(Prefix, Vec<PathView>)> {
        let mut routes = self.pipeline.routes(family, None, 1000);
        // But for the best, which is the first, they are in no order.
        for (_, paths) in &mut routes {
            assert!(paths[1..].iter().all(|path| path.state != PathState::Best));
            paths.sort_by_key(|path| (path.state != PathState::Best, path.peer));
        }
        routes
    }
}

fn config_of(n: usize, programs: &[Option<Program>; EXPORT_POLICIES], import: usize) -> PeerConfig {
    PeerConfig { import: programs[import].clone(), ..config(n) }
}

/// What can be seen of routes.
#[derive(Debug, PartialEq)]
struct Seen {
    families: [Vec<(Prefix, Vec<PathView>)>; 2],
    counts: Vec<[RouteCounts; 2]>,
    /// What each peer holds.
    told: Vec<BTreeMap<Prefix, Held>>,
}

proptest! {
    #![proptest_config(ProptestConfig { max_shrink_iters: 3000, ..holdfast_testing::cases(400) })]

    #[test]
    fn thawed_routes_and_what_came_since_make_the_same_tables(
        max_paths in 1..4u8,
        staged in any::<bool>(),
        budget in 1..20usize,
        ops in vec(op(), 1..120),
        between in vec(update(), 0..30),
    ) {
        let mut original = World::new(max_paths, staged, [0; PEERS]);
        ops.iter().for_each(|op| original.run(op));
        let records = original.freeze(budget, &between);
        let mut other = World::new(max_paths, staged, original.import);
        other.thaw(&records);
        between.iter().for_each(|update| other.run(&Op::Update(update.clone())));
        prop_assert_eq!(other.seen(), original.seen());
        // No user of a set is left over.
        (0..PEERS).for_each(|n| other.pipeline.peer_down(other.sinks[n].0));
        other.seen();
        while other.pipeline.work(1000) {}
        prop_assert_eq!(other.pipeline.attribute_sets(), 0);
    }

    #[test]
    fn no_record_makes_the_pipeline_stumble_and_a_bad_one_leaves_it_alone(
        updates in vec(update(), 1..40),
        which in any::<prop::sample::Index>(),
        places in vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
        length in any::<prop::sample::Index>(),
        noise in vec(any::<u8>(), 0..60),
    ) {
        let mut world = World::new(1, false, [0; PEERS]);
        updates.iter().for_each(|update| world.run(&Op::Update(update.clone())));
        let records = world.freeze(10, &[]);
        prop_assume!(!records.is_empty());
        let (peer, mut record) = which.get(&records).clone();
        for (at, value) in places {
            let at = at.index(record.len());
            record[at] = value;
        }
        let before = world.seen();
        for bytes in [&noise[..], &record, &record[..length.index(record.len())]] {
            if thaw(&mut world.pipeline, peer, [bytes]).is_err() {
                prop_assert_eq!(&before, &world.seen());
            } else {
                world.answer();
                // Whatever it says, it is shown and told to others.
                let _ = Family::ALL.map(|family| world.routes(family));
                world.sinks.iter().for_each(|(peer, _)| while world.pipeline.pull(*peer).is_some() {});
                return Ok(());
            }
        }
    }
}

/// Two peers with routes, and their records.
fn two_peers(wanted: &[usize]) -> (World, Vec<(PeerIndex, Vec<u8>)>) {
    let mut world = World::new(1, false, [0; PEERS]);
    let offer = Offer { path: 1, med: 0, community: 0, next_hop: 1, multiprotocol: false };
    for peer in [0, FIRST_INTERNAL] {
        world.run(&Op::Update(Update::Announce(peer, vec![1, 2, 3, 4], offer.clone())));
        world.run(&Op::Update(Update::Announce(peer, vec![FIRST_V6, FIRST_V6 + 1], offer.clone())));
    }
    let wanted: Vec<PeerIndex> = wanted.iter().map(|n| world.sinks[*n].0).collect();
    let records = frozen(&mut world.pipeline, &wanted, 4096, |_| {});
    (world, records)
}

#[test]
fn routes_of_a_session_share_a_record() {
    let (world, records) = two_peers(&[0, FIRST_INTERNAL]);
    let [first, second] = [0, FIRST_INTERNAL].map(|n| world.sinks[n].0);
    let mut peers: Vec<PeerIndex> = records.iter().map(|(peer, _)| *peer).collect();
    peers.sort_unstable();
    assert_eq!(peers, [first, first, second, second], "one for each family");
}

/// 7 routes to a set, in no order.
#[test]
fn how_long_records_will_be_is_guessed_well() {
    let mut world = World::new(1, false, [0; PEERS]);
    let (peer, scattered) = (world.sinks[0].0, |n: u32| u128::from(n.wrapping_mul(0x9e37_79b1)));
    for number in 0..400_u32 {
        let (path, med, community) = ((number % 3) as u8, (number / 3) as u8, (number / 7 % 5) as u8);
        let routes = (7 * number..7 * number + 7).map(scattered);
        let offer = |multiprotocol| Offer { path, med, community, next_hop: 1, multiprotocol };
        let v4: Vec<_> = routes.clone().map(|bits| Ipv4Prefix::from_bits(bits << 96, 24)).collect();
        let v6: Vec<_> = routes.map(|bits| Ipv6Prefix::from_bits(0x20 << 120 | bits << 88, 48)).collect();
        for body in [announcement(0, &offer(false), &v4), announcement(0, &offer(true), &v6)] {
            world.pipeline.update(peer, &body).expect("a good UPDATE");
        }
    }
    let expected = world.pipeline.frozen_octets(peer);
    let records = frozen(&mut world.pipeline, &[peer], 4096, |_| {});
    let octets: u64 = records.iter().map(|(_, record)| record.len() as u64).sum();
    assert!(expected.abs_diff(octets) < octets / 4, "{expected} were expected, {octets} were written");
}

#[test]
fn only_wanted_peers_are_frozen_and_none_whose_session_has_ended() {
    let (mut world, records) = two_peers(&[FIRST_INTERNAL]);
    assert!(records.len() == 2 && records.iter().all(|(peer, _)| peer.0 == FIRST_INTERNAL as u16));
    world.run(&Op::Reset(FIRST_INTERNAL));
    world.run(&Op::Reset(0));
    assert_eq!(world.freeze(100, &[]), []);
}

#[test]
fn our_own_routes_are_not_frozen() {
    let mut world = World::new(1, false, [0; PEERS]);
    world.pipeline.originate(route(1), &Default::default());
    assert_eq!(world.freeze(100, &[]), []);
}

#[test]
fn another_version_is_refused_and_a_peer_that_is_down_takes_nothing() {
    let (mut world, records) = two_peers(&[0, FIRST_INTERNAL]);
    let (peer, record) = &records[0];
    let newer = [&[4], &record[1..]].concat();
    assert_eq!(thaw(&mut world.pipeline, *peer, [&*newer]), Err(Unreadable));
    world.pipeline.peer_down(*peer);
    world.seen();
    assert_eq!(thaw(&mut world.pipeline, *peer, [&**record]), Ok(()));
    assert_eq!(world.pipeline.explain(route(1)).len(), 1, "that of the other peer");
}

#[test]
fn a_route_whose_next_hop_has_become_our_own_is_not_taken() {
    let (_, records) = two_peers(&[0, FIRST_INTERNAL]);
    let mut other = World::new(1, false, [0; PEERS]);
    let (peer, record) = &records[0];
    let ours = SessionFacts { next_hop_v4: Some(Ipv4Addr::new(192, 0, 2, 1)), ..link(0) };
    other.pipeline.peer_up(*peer, ours).expect("room");
    assert_eq!(thaw(&mut other.pipeline, *peer, [&**record]), Ok(()));
    assert!(other.pipeline.explain(route(1)).is_empty());
    assert_eq!(other.pipeline.drops(*peer).map(|drops| drops.counts().len()), Some(1));
}

#[test]
fn a_record_is_judged_as_the_session_is_that_takes_it_in() {
    let (_, records) = two_peers(&[0]);
    let mut other = World::new(1, false, [0; PEERS]);
    let another = other.sinks[TWO_OCTETS].0;
    thaw(&mut other.pipeline, another, [&*records[0].1]).expect("a record");
    let states: Vec<PathState> =
        other.pipeline.explain(route(1)).into_iter().map(|path| path.state).collect();
    assert_eq!(states, [PathState::WrongFirstAs]);
}

#[test]
fn a_set_is_defined_once_in_all_records_of_a_session() {
    let mut world = World::new(1, false, [0; PEERS]);
    let offer = Offer { path: 1, med: 0, community: 0, next_hop: 1, multiprotocol: false };
    world.run(&Op::Update(Update::Announce(0, vec![1, 2, 3, 4], offer)));
    let peer = world.sinks[0].0;
    let whole = frozen(&mut world.pipeline, &[peer], 4096, |_| {});
    let sliced = frozen(&mut world.pipeline, &[peer], 1, |_| {});
    assert_eq!(whole, sliced);
    let attributes = world.pipeline.explain(route(1))[0].bytes.clone();
    let record = &whole[0].1;
    assert_eq!(record.windows(attributes.len()).filter(|octets| **octets == *attributes).count(), 1);
    // Four prefixes of 16 and 17 bits in two and three octets, and what is said about them.
    assert!(record.len() < attributes.len() + 30, "{} octets", record.len());
}

#[test]
fn a_number_that_another_set_gets_during_a_walk_is_defined_anew() {
    // Which numbers are given again depends on how often all of them were.
    (1..6).for_each(walk_while_sets_are_replaced);
}

fn walk_while_sets_are_replaced(times: u8) {
    let mut world = World::new(1, false, [0; PEERS]);
    let offer = |n: usize, time: u8| {
        let offer =
            Offer { path: 1, med: 10 * time + n as u8, community: 0, next_hop: 1, multiprotocol: false };
        Op::Update(Update::Announce(0, vec![n], offer))
    };
    (1..=4).for_each(|n| world.run(&offer(n, 0)));
    let peer = world.sinks[0].0;
    let mut records = Vec::new();
    let mut walk = world.pipeline.freeze([peer]);
    let mut slice = |world: &mut World, budget| {
        let mut sink = |peer: PeerIndex, record: &[u8]| {
            records.push((peer, record.to_vec()));
            true
        };
        world.pipeline.freeze_routes(&mut walk, budget, &mut sink)
    };
    assert!(slice(&mut world, 2));
    for time in 1..=times {
        (1..=4).for_each(|n| world.run(&offer(n, time)));
        world.seen();
        while world.pipeline.work(100) {}
    }
    while slice(&mut world, 2) {}
    let mut other = World::new(1, false, [0; PEERS]);
    other.thaw(&records);
    for n in 3..=4 {
        assert_eq!(other.pipeline.explain(route(n))[0].bytes, world.pipeline.explain(route(n))[0].bytes);
    }
}

#[test]
fn a_walk_ends_when_no_session_is_to_be_written_any_more() {
    let (mut world, _) = two_peers(&[]);
    let peers = [0, FIRST_INTERNAL].map(|n| world.sinks[n].0);
    let mut walk = world.pipeline.freeze(peers);
    let (mut slices, mut refused) = (0, Vec::new());
    loop {
        slices += 1;
        let mut sink = |peer: PeerIndex, _: &[u8]| {
            refused.push(peer);
            false
        };
        if !world.pipeline.freeze_routes(&mut walk, 100, &mut sink) {
            break;
        }
    }
    // The records of IPv4 are refused, and IPv6 is not looked at.
    assert_eq!((slices, refused), (1, peers.to_vec()));
}

#[test]
fn records_of_the_builds_before_are_read() {
    let attributes = [0x40, 1, 1, 0, 0x40, 2, 6, 2, 1, 0, 0, 0xfd, 0xe9, 0x40, 3, 4, 192, 0, 2, 9];
    let mut world = World::new(1, false, [0; PEERS]);
    let peer = world.sinks[0].0;
    let classic = [&[1, 0, 0, attributes.len() as u8], &attributes[..], &[16, 10, 1, 16, 10, 2]].concat();
    let reach = [&[0, 2, 1, 16, 0x20, 1, 0xd, 0xb8], &[0; 11][..], &[9, 0, 32, 0x20, 1, 0xd, 0xb8]].concat();
    let multiprotocol = [&[1, 1, 0, 13], &attributes[..13], &reach].concat();
    thaw(&mut world.pipeline, peer, [&*classic, &multiprotocol]).expect("records");
    assert_eq!(world.pipeline.counts(peer, Family::IPV4_UNICAST).routes.received, 2);
    assert_eq!(world.pipeline.counts(peer, Family::IPV6_UNICAST).routes.received, 1);
    assert!(thaw(&mut world.pipeline, peer, [&classic[..20]]).is_err());
}

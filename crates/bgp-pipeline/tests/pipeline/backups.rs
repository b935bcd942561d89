//! What the RIB is told to do when the next hops in use are gone: what another speaker chooses that has never heard of them.

use std::{
    collections::BTreeMap,
    net::{IpAddr, Ipv4Addr},
};

use holdfast_bgp_pipeline::{
    Event, NextHopMode, PeerConfig, PeerIndex, Pipeline, Reachability, RibChanges, SpeakerConfig,
};
use holdfast_bgp_wire::{Origin, edit::AttributesBuilder};
use holdfast_config::schema::DecisionRules;
use holdfast_types::{Asn, Prefix};
use proptest::prelude::*;

use crate::tests::pipeline::speaker::{
    announcement, checked, ebgp, facts, ibgp, prefix, speaker, withdrawal,
};

const PEERS: usize = 5;
const HOPS: usize = 4;
const ROUTES: [&str; 2] = ["203.0.113.0/24", "198.51.100.0/24"];

#[derive(Clone, Debug)]
struct Offer {
    hops: u8,
    neighbor: u8,
    med: u8,
    next_hop: usize,
}

#[derive(Clone, Debug)]
enum Op {
    Announce(usize, usize, Offer),
    Withdraw(usize, usize),
    Restart(usize),
    NextHop(usize, Option<u8>),
    Protect(usize, bool),
    Work(usize),
    PullRib(usize),
    Check,
}

fn op() -> impl Strategy<Value = Op> {
    let offer = (0..2u8, 0..2u8, 0..3u8, 0..HOPS).prop_map(|(hops, neighbor, med, next_hop)| Offer {
        hops,
        neighbor,
        med,
        next_hop,
    });
    prop_oneof![
        16 => (0..PEERS, 0..ROUTES.len(), offer).prop_map(|(peer, to, offer)| Op::Announce(peer, to, offer)),
        6 => (0..PEERS, 0..ROUTES.len()).prop_map(|(peer, to)| Op::Withdraw(peer, to)),
        2 => (0..PEERS).prop_map(Op::Restart),
        3 => (0..HOPS, prop::option::weighted(0.8, 0..3u8)).prop_map(|(hop, metric)| Op::NextHop(hop, metric)),
        3 => (0..PEERS, any::<bool>()).prop_map(|(peer, on)| Op::Protect(peer, on)),
        2 => (1..5usize).prop_map(Op::Work),
        3 => (1..4usize).prop_map(Op::PullRib),
        4 => Just(Op::Check),
    ]
}

fn hop(n: usize) -> Ipv4Addr {
    Ipv4Addr::new(192, 0, 2, n as u8 + 1)
}

fn attributes(peer: usize, offer: &Offer) -> Vec<u8> {
    let first = if is_internal(peer) { 65200 + u32::from(offer.neighbor) } else { 65101 + peer as u32 };
    let path = std::iter::once(first).chain((0..u32::from(offer.hops)).map(|n| 64001 + n));
    AttributesBuilder {
        as_path: path.map(Asn).collect(),
        next_hop: Some(hop(offer.next_hop)),
        med: (offer.med > 0).then_some(offer.med.into()),
        local_pref: is_internal(peer).then_some(100),
        ..AttributesBuilder::new(Origin::Igp)
    }
    .build()
}

fn is_internal(peer: usize) -> bool {
    peer >= 3
}

fn config(peer: usize) -> PeerConfig {
    let n = peer as u8 + 1;
    if is_internal(peer) { ibgp(n) } else { ebgp(n) }
}

/// The gateways of a route, the backup, and whose the best path is.
type Way = (Vec<IpAddr>, Option<IpAddr>, Option<PeerIndex>);

#[derive(Default)]
struct Rib {
    handles: BTreeMap<u32, (Vec<IpAddr>, Option<IpAddr>)>,
    routes: BTreeMap<Prefix, Way>,
}

impl Rib {
    fn take(&mut self, changes: &RibChanges) {
        changes.undefine.iter().for_each(|handle| drop(self.handles.remove(handle)));
        for defined in &changes.define {
            let mut gateways: Vec<_> = defined.gateways.iter().map(|gateway| gateway.address).collect();
            gateways.sort_unstable();
            self.handles.insert(defined.handle, (gateways, defined.backup.map(|gateway| gateway.address)));
        }
        let runs = changes.runs.iter().flat_map(|run| std::iter::repeat_n(run, run.routes as usize));
        for ((address, length), run) in changes.addresses.chunks(4).zip(&changes.lengths).zip(runs) {
            let octets = <[u8; 4]>::try_from(address).expect("IPv4");
            let to = Prefix::new(octets.into(), *length).expect("a prefix");
            match run.next_hops {
                0 => drop(self.routes.remove(&to)),
                handle => {
                    let (gateways, backup) = self.handles[&handle].clone();
                    self.routes.insert(to, (gateways, backup, run.peer));
                }
            }
        }
    }
}

struct World {
    pipeline: Pipeline,
    peers: Vec<PeerIndex>,
    rib: Rib,
    metrics: [Option<u8>; HOPS],
    received: BTreeMap<(usize, usize), Offer>,
    protected: [bool; PEERS],
    max_paths: u8,
}

impl World {
    fn new(max_paths: u8, metrics: [Option<u8>; HOPS]) -> Self {
        let decision = DecisionRules { prefer_oldest: false, ..DecisionRules::default() };
        let config_of = SpeakerConfig { max_paths, decision, ..speaker(NextHopMode::Resolved) };
        let mut pipeline = checked(config_of);
        let peers = (0..PEERS).map(|peer| pipeline.add_peer(config(peer))).collect();
        pipeline.rib_resync();
        let (rib, received, protected) = Default::default();
        let mut world = Self { pipeline, peers, rib, metrics, received, protected, max_paths };
        (0..PEERS).for_each(|peer| world.up(peer));
        world
    }

    fn up(&mut self, peer: usize) {
        self.pipeline.peer_up(self.peers[peer], facts(peer as u8 + 1)).expect("room");
    }

    fn answer(&mut self, n: usize) {
        let metric = self.metrics[n];
        let reachable = |metric: u8| Reachability::Reachable { metric: metric.into() };
        self.pipeline.next_hop(hop(n).into(), metric.map_or(Reachability::Unreachable, reachable));
    }

    fn answer_events(&mut self) {
        while let Some(event) = self.pipeline.poll_event() {
            if let Event::RegisterNextHop(address) = event {
                let n = (0..HOPS).find(|n| address == IpAddr::V4(hop(*n))).expect("one of ours");
                self.answer(n);
            }
        }
    }

    fn announce(&mut self, peer: usize, to: usize, offer: &Offer) {
        let update = announcement(&attributes(peer, offer), &[prefix(ROUTES[to])]);
        self.pipeline.update(self.peers[peer], &update).expect("taken");
        self.received.insert((peer, to), offer.clone());
    }

    fn run(&mut self, op: &Op) {
        match op {
            Op::Announce(peer, to, offer) => self.announce(*peer, *to, offer),
            Op::Withdraw(peer, to) => {
                let update = withdrawal(prefix(ROUTES[*to]));
                self.pipeline.update(self.peers[*peer], &update).expect("taken");
                self.received.remove(&(*peer, *to));
            }
            Op::Restart(peer) => {
                self.pipeline.peer_down(self.peers[*peer]);
                self.received.retain(|(from, _), _| from != peer);
                self.up(*peer);
            }
            Op::NextHop(n, metric) => {
                self.metrics[*n] = *metric;
                self.answer(*n);
            }
            Op::Protect(peer, on) => {
                self.protected[*peer] = *on;
                self.pipeline.set_protected(self.peers[*peer], *on);
            }
            Op::Work(budget) => drop(self.pipeline.work(*budget)),
            Op::PullRib(max) => {
                if let Some(changes) = self.pipeline.pull_rib(*max) {
                    self.rib.take(&changes);
                }
            }
            Op::Check => self.check(),
        }
        self.answer_events();
    }

    fn rest(&mut self) {
        loop {
            self.answer_events();
            let works = self.pipeline.work(100) || self.pipeline.is_waiting();
            for peer in &self.peers {
                while self.pipeline.pull(*peer).is_some() {}
            }
            match self.pipeline.pull_rib(3) {
                Some(changes) => self.rib.take(&changes),
                None if works => {}
                None => return,
            }
        }
    }

    /// What a speaker chooses that has heard of these offers only.
    fn choice(&self, to: usize, max_paths: u8, is_known: impl Fn(&Offer) -> bool) -> Option<Way> {
        let mut other = Self::new(max_paths, self.metrics);
        let offers = self.received.iter().filter(|((_, of), offer)| *of == to && is_known(offer));
        offers.for_each(|((peer, _), offer)| other.announce(*peer, to, offer));
        other.rest();
        other.rib.routes.remove(&prefix(ROUTES[to]))
    }

    fn expected(&self, to: usize) -> Option<Way> {
        let (gateways, _, peer) = self.choice(to, self.max_paths, |_| true)?;
        let is_other = |offer: &Offer| !gateways.contains(&hop(offer.next_hop).into());
        let without = self.choice(to, 1, is_other);
        let best = self.peers.iter().position(|index| Some(*index) == peer);
        let backup = without.filter(|_| best.is_some_and(|best| self.protected[best]));
        let backup = backup.and_then(|(gateways, ..)| gateways.first().copied());
        Some((gateways, backup, peer))
    }

    fn check(&mut self) {
        self.rest();
        let expected = (0..ROUTES.len()).filter_map(|to| Some((prefix(ROUTES[to]), self.expected(to)?)));
        assert_eq!(self.rib.routes, expected.collect());
    }
}

proptest! {
    #![proptest_config(holdfast_testing::cases(150))]

    #[test]
    fn the_backup_is_what_the_decision_would_choose_without_the_next_hops_in_use(
        max_paths in prop_oneof![3 => Just(1u8), 1 => 2..4u8],
        ops in prop::collection::vec(op(), 1..60),
    ) {
        let mut world = World::new(max_paths, [Some(0), Some(0), Some(1), None]);
        ops.iter().for_each(|op| world.run(op));
        world.check();
    }
}

fn offer(hops: u8, next_hop: usize) -> Offer {
    Offer { hops, neighbor: 0, med: 0, next_hop }
}

#[test]
fn the_rib_hears_that_a_backup_has_gone_whose_best_is_protected_no_more() {
    let mut world = World::new(1, [Some(0); HOPS]);
    world.run(&Op::Protect(0, true));
    // Another one stays protected: there is somebody to mark for.
    for other in [None, Some(1)] {
        other.iter().for_each(|peer| world.run(&Op::Protect(*peer, true)));
        for gone in [Op::Withdraw(4, 0), Op::Restart(4), Op::Announce(4, 0, offer(1, 2))] {
            for op in [
                Op::Announce(0, 0, offer(0, 2)),
                Op::Announce(4, 0, offer(0, 0)),
                Op::Protect(0, true),
                Op::Check,
            ] {
                world.run(&op);
            }
            assert!(world.rib.routes[&prefix(ROUTES[0])].1.is_some());
            // No walk comes by in between.
            world.run(&Op::Protect(0, false));
            world.run(&gone);
            world.check();
        }
    }
}

#[test]
fn the_rib_hears_of_a_backup_when_there_is_another_and_of_nothing_else() {
    let mut world = World::new(1, [Some(0); HOPS]);
    let to = prefix(ROUTES[0]);
    let address = |n| IpAddr::V4(hop(n));
    world.run(&Op::Protect(0, true));
    world.announce(0, 0, &offer(0, 0));
    world.rest();
    let first = world.peers[0];
    assert_eq!(world.rib.routes[&to], (vec![address(0)], None, Some(first)));
    world.announce(1, 0, &offer(1, 1));
    world.rest();
    assert_eq!(world.rib.routes[&to], (vec![address(0)], Some(address(1)), Some(first)));

    world.announce(2, 0, &offer(2, 2));
    world.announce(4, 0, &offer(1, 0));
    world.answer_events();
    assert!(!world.pipeline.rib_pending(), "neither is the backup");
    world.run(&Op::Withdraw(1, 0));
    world.rest();
    assert_eq!(world.rib.routes[&to], (vec![address(0)], Some(address(2)), Some(first)));

    world.run(&Op::Protect(0, false));
    world.rest();
    assert_eq!(world.rib.routes[&to], (vec![address(0)], None, Some(first)));
    world.run(&Op::Protect(0, true));
    world.rest();
    assert_eq!(world.rib.routes[&to].1, Some(address(2)), "of what is there already it is told as well");
    world.run(&Op::Restart(0));
    world.rest();
    let (gateways, backup, _) = &world.rib.routes[&to];
    assert_eq!(
        (&**gateways, *backup),
        (&[address(0)][..], None),
        "the next best is of a peer that is not protected"
    );
}

#[test]
fn the_rib_hears_of_a_backup_again_when_the_table_was_told_while_the_peer_was_not_protected() {
    let mut world = World::new(1, [Some(0); HOPS]);
    let to = prefix(ROUTES[0]);
    world.run(&Op::Protect(0, true));
    world.announce(0, 0, &offer(0, 0));
    world.announce(1, 0, &offer(1, 1));
    world.rest();
    assert_eq!(world.rib.routes[&to].1, Some(IpAddr::V4(hop(1))));

    // No walk comes by in between.
    world.run(&Op::Protect(0, false));
    world.pipeline.rib_resync();
    world.run(&Op::PullRib(1));
    world.run(&Op::Protect(0, true));
    world.rest();
    assert_eq!(world.rib.routes[&to].1, Some(IpAddr::V4(hop(1))));
}

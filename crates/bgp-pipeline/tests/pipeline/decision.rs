//! One row for each step of RFC 4271 section 9.1, with the additions of RFC 4456.

use std::net::{IpAddr, Ipv4Addr};

use holdfast_bgp_pipeline::{
    DecisionRules, NextHopMode, PathState, PeerConfig, PeerIndex, PeerKind, Pipeline, Reachability,
    SpeakerConfig, Step,
};
use holdfast_bgp_wire::{Origin, edit::AttributesBuilder};
use holdfast_types::Asn;

use crate::tests::pipeline::speaker::{announcement, checked, ebgp, facts, ibgp, prefix, router_id, speaker};

/// A path as one peer sends it. What a row does not name is the same for both.
#[derive(Clone)]
struct Offer {
    kind: PeerKind,
    peer: u8,
    asn: u32,
    router_id: u32,
    path: &'static [u32],
    origin: Origin,
    med: Option<u32>,
    local_pref: Option<u32>,
    metric: u32,
    originator: Option<u32>,
    clusters: &'static [u32],
}

const EXTERNAL: Offer = Offer {
    kind: PeerKind::Ebgp,
    peer: 1,
    asn: 65001,
    router_id: 7,
    path: &[65001, 1],
    origin: Origin::Igp,
    med: None,
    local_pref: None,
    metric: 10,
    originator: None,
    clusters: &[],
};

const INTERNAL: Offer =
    Offer { kind: PeerKind::Ibgp, asn: 65000, local_pref: Some(100), path: &[65001, 1], ..EXTERNAL };

impl Offer {
    fn attributes(&self) -> Vec<u8> {
        let mut bytes = AttributesBuilder {
            as_path: self.path.iter().map(|asn| Asn(*asn)).collect(),
            next_hop: Some(self.next_hop()),
            med: self.med,
            local_pref: self.local_pref,
            ..AttributesBuilder::new(self.origin)
        }
        .build();
        if let Some(id) = self.originator {
            bytes.extend_from_slice(&[0x80, 9, 4]);
            bytes.extend_from_slice(&id.to_be_bytes());
        }
        if !self.clusters.is_empty() {
            bytes.extend_from_slice(&[0x80, 10, 4 * self.clusters.len() as u8]);
            self.clusters.iter().for_each(|id| bytes.extend_from_slice(&id.to_be_bytes()));
        }
        bytes
    }

    fn next_hop(&self) -> Ipv4Addr {
        Ipv4Addr::new(192, 0, 2, self.peer)
    }

    /// Sends it, and has the RIB answer.
    fn send(&self, pipeline: &mut Pipeline) {
        self.announce(pipeline);
        let reachability = Reachability::Reachable { metric: self.metric };
        pipeline.next_hop(IpAddr::V4(self.next_hop()), reachability);
        while pipeline.work(1000) || pipeline.is_waiting() {}
    }

    fn announce(&self, pipeline: &mut Pipeline) -> PeerIndex {
        let config = match self.kind {
            PeerKind::Ebgp => ebgp(self.peer),
            PeerKind::Ibgp => ibgp(self.peer),
            PeerKind::ConfedEbgp => PeerConfig { kind: PeerKind::ConfedEbgp, ..ibgp(self.peer) },
        };
        let peer = pipeline.add_peer(PeerConfig { asn: Asn(self.asn), ..config });
        let facts =
            holdfast_bgp_pipeline::SessionFacts { router_id: router_id(self.router_id), ..facts(self.peer) };
        pipeline.peer_up(peer, facts).expect("room");
        let body = announcement(&self.attributes(), &[prefix("203.0.113.0/24")]);
        pipeline.update(peer, &body).expect("accepted");
        peer
    }
}

/// Sends both in this order; returns what became of the second offer of the row.
fn outcome(offers: [&Offer; 2], loser: &Offer) -> PathState {
    outcome_of(offers, loser, DecisionRules::default())
}

fn outcome_of(offers: [&Offer; 2], loser: &Offer, decision: DecisionRules) -> PathState {
    let mut pipeline = checked(SpeakerConfig { decision, ..speaker(NextHopMode::Resolved) });
    offers.iter().for_each(|offer| offer.send(&mut pipeline));
    let paths = pipeline.explain(prefix("203.0.113.0/24"));
    assert_eq!((paths.len(), &paths[0].state), (2, &PathState::Best));
    let of_loser = |path: &&holdfast_bgp_pipeline::PathView| {
        path.next_hop.is_some_and(|gateway| gateway.address == IpAddr::V4(loser.next_hop()))
    };
    paths.iter().find(of_loser).expect("there").state.clone()
}

#[test]
fn each_step_decides_when_all_before_it_are_equal() {
    let external = |peer| Offer { peer, ..EXTERNAL };
    let internal = |peer| Offer { peer, ..INTERNAL };
    let other_as = |peer| Offer { asn: 65002, path: &[65002, 1], ..external(peer) };
    let rows = [
        (Step::LocalPref, Offer { local_pref: Some(200), path: &[1, 2, 3], ..internal(1) }, internal(2)),
        (Step::AsPathLength, Offer { path: &[65001], ..external(1) }, external(2)),
        (Step::Origin, external(1), Offer { origin: Origin::Egp, ..external(2) }),
        (
            Step::Origin,
            Offer { origin: Origin::Egp, ..external(1) },
            Offer { origin: Origin::Incomplete, ..external(2) },
        ),
        (Step::Med, Offer { med: Some(5), metric: 99, ..external(1) }, Offer { med: Some(6), ..external(2) }),
        (Step::Med, Offer { med: None, ..external(1) }, Offer { med: Some(1), ..external(2) }),
        // The MED of another neighbour AS does not count.
        (
            Step::InteriorCost,
            Offer { med: Some(9), ..external(1) },
            Offer { med: Some(1), metric: 11, ..other_as(2) },
        ),
        (Step::Ebgp, Offer { metric: 99, ..external(1) }, internal(2)),
        (Step::InteriorCost, Offer { router_id: 9, ..external(1) }, Offer { metric: 11, ..other_as(2) }),
        (Step::RouterId, external(2), Offer { router_id: 8, ..other_as(1) }),
        (Step::RouterId, Offer { originator: Some(3), router_id: 9, ..internal(2) }, internal(1)),
        (
            Step::ClusterList,
            Offer { originator: Some(3), clusters: &[4], ..internal(2) },
            Offer { originator: Some(3), clusters: &[4, 5], router_id: 1, ..internal(1) },
        ),
        (Step::PeerAddress, external(1), other_as(2)),
    ];
    for (step, winner, loser) in &rows {
        for offers in [[winner, loser], [loser, winner]] {
            assert_eq!(outcome(offers, loser), PathState::Lost(*step), "{step:?}");
        }
    }
}

#[test]
fn what_may_differ_from_as_to_as_does() {
    let external = |peer| Offer { peer, ..EXTERNAL };
    let other_as = |peer| Offer { asn: 65002, path: &[65002, 1], ..external(peer) };
    let always = DecisionRules { always_compare_med: true, ..DecisionRules::default() };
    let worst = DecisionRules { med_missing_as_worst: true, ..DecisionRules::default() };
    let rows = [
        (
            always,
            Step::Med,
            Offer { med: Some(1), metric: 11, ..other_as(2) },
            Offer { med: Some(9), ..external(1) },
        ),
        (
            worst,
            Step::Med,
            Offer { med: Some(9), ..external(2) },
            Offer { med: None, metric: 1, ..external(1) },
        ),
    ];
    for (rules, step, winner, loser) in &rows {
        for offers in [[winner, loser], [loser, winner]] {
            assert_eq!(outcome_of(offers, loser, *rules), PathState::Lost(*step), "{rules:?}");
        }
    }
}

#[test]
fn another_rule_decides_anew_what_is_there() {
    let far = Offer { med: Some(1), metric: 11, asn: 65002, path: &[65002, 1], peer: 2, ..EXTERNAL };
    let near = Offer { med: Some(9), ..EXTERNAL };
    let mut pipeline = checked(speaker(NextHopMode::Resolved));
    [&far, &near].into_iter().for_each(|offer| offer.send(&mut pipeline));
    let mut best_under = |always_compare_med| {
        pipeline.set_decision(DecisionRules { always_compare_med, ..DecisionRules::default() });
        while pipeline.work(1000) || pipeline.is_waiting() {}
        pipeline.explain(prefix("203.0.113.0/24")).remove(0).next_hop.expect("of a peer").address
    };
    let best = [false, true, false].map(&mut best_under);
    assert_eq!(best, [near.next_hop(), far.next_hop(), near.next_hop()].map(IpAddr::V4));
}

/// RFC 5065 section 5.3.
#[test]
fn another_member_of_the_confederation_counts_as_internal() {
    let member = Offer { kind: PeerKind::ConfedEbgp, asn: 65003, ..INTERNAL };
    let through_member = |attributes: Vec<u8>| {
        // (65003) in front of the path.
        let path = attributes.windows(4).position(|window| window == [0x40, 2, 10, 2]).expect("two numbers");
        [&attributes[..path], &[0x40, 2, 16, 3, 1, 0, 0, 0xfd, 0xeb], &attributes[path + 3..]].concat()
    };
    let config = SpeakerConfig { confederation: Some(Asn(64999)), ..speaker(NextHopMode::Resolved) };
    let mut pipeline = checked(config);
    let send = |pipeline: &mut Pipeline, offer: &Offer, attributes: Vec<u8>| {
        let kind = offer.kind;
        let peer = pipeline.add_peer(PeerConfig { kind, asn: Asn(offer.asn), ..ibgp(offer.peer) });
        let facts = holdfast_bgp_pipeline::SessionFacts {
            router_id: router_id(offer.router_id),
            ..facts(offer.peer)
        };
        pipeline.peer_up(peer, facts).expect("room");
        pipeline.update(peer, &announcement(&attributes, &[prefix("203.0.113.0/24")])).expect("accepted");
        pipeline.next_hop(IpAddr::V4(offer.next_hop()), Reachability::Reachable { metric: offer.metric });
        while pipeline.work(1000) || pipeline.is_waiting() {}
        peer
    };
    let near = Offer { peer: 2, metric: 5, ..INTERNAL };
    send(&mut pipeline, &member, through_member(member.attributes()));
    let best = send(&mut pipeline, &near, near.attributes());
    let paths = pipeline.explain(prefix("203.0.113.0/24"));
    assert_eq!((paths[0].peer, &paths[1].state), (Some(best), &PathState::Lost(Step::InteriorCost)));
}

#[test]
fn paths_of_another_neighbor_share_the_traffic_unless_they_are_not_to() {
    for multipath_relax in [true, false] {
        let decision = DecisionRules { multipath_relax, ..DecisionRules::default() };
        let config = SpeakerConfig { decision, max_paths: 4, ..speaker(NextHopMode::Resolved) };
        let mut pipeline = checked(config);
        let other = Offer { peer: 2, asn: 65002, path: &[65002, 1], ..EXTERNAL };
        [&EXTERNAL, &other].into_iter().for_each(|offer| offer.send(&mut pipeline));
        let lost = pipeline.explain(prefix("203.0.113.0/24")).remove(1).state;
        let step = Step::PeerAddress;
        let expected = if !multipath_relax { PathState::Lost(step) } else { PathState::Multipath(step) };
        assert_eq!(lost, expected);
    }
}

/// The classic case in which pairwise comparison depends on the order: A and B are of one AS, A has the lower
/// MED, C beats A on router id, B beats C.
#[test]
fn meds_are_compared_among_all_whatever_the_order() {
    let a = Offer { med: Some(1), router_id: 9, ..EXTERNAL };
    let b = Offer { peer: 2, med: Some(2), router_id: 1, ..EXTERNAL };
    let c = Offer { peer: 3, asn: 65003, path: &[65003, 1], router_id: 5, ..EXTERNAL };
    for order in [[&a, &b, &c], [&a, &c, &b], [&b, &a, &c], [&b, &c, &a], [&c, &a, &b], [&c, &b, &a]] {
        let mut pipeline = checked(speaker(NextHopMode::Resolved));
        order.iter().for_each(|offer| offer.send(&mut pipeline));
        let best = pipeline.explain(prefix("203.0.113.0/24")).remove(0);
        assert_eq!(best.next_hop.expect("of a peer").address, IpAddr::V4(c.next_hop()));
    }
}

#[test]
fn nothing_is_settled_before_the_rib_has_answered_and_the_table_was_walked() {
    let mut pipeline = checked(speaker(NextHopMode::Resolved));
    let peer = EXTERNAL.announce(&mut pipeline);
    assert!(!pipeline.work(1000) && !pipeline.is_settled(), "there is nothing to do but to wait");
    let hop = IpAddr::V4(EXTERNAL.next_hop());
    pipeline.next_hop(hop, Reachability::Reachable { metric: 7 });
    assert!(pipeline.is_settled(), "the one route that waited was decided at once");
    pipeline.next_hop(hop, Reachability::Unreachable);
    assert!(!pipeline.is_settled(), "any route may be concerned");
    while pipeline.work(1000) || pipeline.is_waiting() {}
    assert!(pipeline.is_settled());
    pipeline.peer_down(peer);
    assert!(!pipeline.is_settled(), "its routes are still there");
}

/// A new next hop beside a large table: its routes must not wait until that was walked.
#[test]
fn few_routes_that_wait_for_a_next_hop_do_not_wait_for_a_walk() {
    let mut pipeline = checked(speaker(NextHopMode::Resolved));
    let better = Offer { peer: 2, asn: 65002, path: &[65002], ..EXTERNAL };
    for offer in [&EXTERNAL, &better] {
        offer.announce(&mut pipeline);
        pipeline.next_hop(IpAddr::V4(offer.next_hop()), Reachability::Reachable { metric: 7 });
        let best = pipeline.explain(prefix("203.0.113.0/24")).remove(0);
        assert_eq!(best.state, PathState::Best);
        assert_eq!(best.next_hop.expect("of a peer").address, IpAddr::V4(offer.next_hop()));
    }
}

#[test]
fn a_route_of_our_own_beats_all_received_ones() {
    let mut pipeline = checked(speaker(NextHopMode::Resolved));
    Offer { local_pref: Some(500), path: &[], ..INTERNAL }.send(&mut pipeline);
    pipeline.originate(prefix("203.0.113.0/24"), &holdfast_bgp_pipeline::OriginateAttributes::default());
    let paths = pipeline.explain(prefix("203.0.113.0/24"));
    assert_eq!((paths[0].peer, &paths[1].state), (None, &PathState::Lost(Step::LocalRoute)));
}

/// RFC 5004 section 3, each row in the order of arrival: who stays, or which step says that nobody stays.
#[test]
fn the_best_so_far_stays_if_nothing_but_router_ids_is_against_it() {
    let oldest = DecisionRules { prefer_oldest: true, ..DecisionRules::default() };
    let first = Offer { router_id: 9, peer: 1, ..EXTERNAL };
    let second = Offer { router_id: 8, peer: 2, asn: 65002, path: &[65002, 1], ..EXTERNAL };
    let internal =
        |offer: &Offer| Offer { kind: PeerKind::Ibgp, asn: 65000, local_pref: Some(100), ..offer.clone() };
    let rows = [
        (Step::Oldest, [&first, &second], &second),
        // It would be best in any case.
        (Step::RouterId, [&second, &first], &first),
        (Step::InteriorCost, [&Offer { metric: 11, ..first.clone() }, &second], &first),
        (Step::RouterId, [&internal(&first), &internal(&second)], &first),
        // Parallel sessions with one router.
        (
            Step::PeerAddress,
            [&Offer { peer: 3, ..first.clone() }, &Offer { router_id: 9, ..second.clone() }],
            &Offer { peer: 3, ..first.clone() },
        ),
    ];
    for (step, offers, loser) in rows {
        assert_eq!(outcome_of(offers, loser, oldest), PathState::Lost(step), "{step:?}");
    }
    assert_eq!(outcome([&first, &second], &first), PathState::Lost(Step::RouterId), "it is an option");
}

/// Whoever arrives, and whoever is looked at again: of two sessions with one router the lower address is better, also where
/// a third has a lower router id.
#[test]
fn sessions_with_one_router_are_told_apart_where_the_oldest_stays() {
    let decision = DecisionRules { prefer_oldest: true, ..DecisionRules::default() };
    let mut pipeline = checked(SpeakerConfig { decision, ..speaker(NextHopMode::AlwaysReachable) });
    let offer = |peer, router_id, asn, path| Offer { peer, router_id, asn, path, ..EXTERNAL };
    let high = offer(3, 9, 65001, &[65001, 1]).announce(&mut pipeline);
    offer(2, 8, 65002, &[65002, 1]).announce(&mut pipeline);
    let best = |pipeline: &mut Pipeline| pipeline.explain(prefix("203.0.113.0/24"))[0].peer;
    assert_eq!(best(&mut pipeline), Some(high), "it was there");
    let low = offer(1, 9, 65003, &[65003, 1]).announce(&mut pipeline);
    assert_eq!(best(&mut pipeline), Some(low));
    let states = pipeline.explain(prefix("203.0.113.0/24")).into_iter().map(|path| (path.peer, path.state));
    let state = states.into_iter().find(|(peer, _)| *peer == Some(high)).map(|(_, state)| state);
    assert_eq!(state, Some(PathState::Lost(Step::PeerAddress)));
}

#[test]
fn the_oldest_of_three_stays_until_it_goes_or_changes() {
    let decision = DecisionRules { prefer_oldest: true, ..DecisionRules::default() };
    let mut pipeline = checked(SpeakerConfig { decision, ..speaker(NextHopMode::AlwaysReachable) });
    let offer = |peer: u8| Offer { peer, router_id: 10 - u32::from(peer), ..EXTERNAL };
    let peers: Vec<PeerIndex> = (1..=3).map(|peer| offer(peer).announce(&mut pipeline)).collect();
    let best = |pipeline: &mut Pipeline| {
        while pipeline.work(1000) || pipeline.is_waiting() {}
        pipeline.explain(prefix("203.0.113.0/24"))[0].peer
    };
    assert_eq!(best(&mut pipeline), Some(peers[0]));
    // All are looked at again: without the rule, and under it.
    for (prefer_oldest, expected) in [(true, 0), (false, 2), (true, 2)] {
        pipeline.set_decision(DecisionRules { prefer_oldest, ..decision });
        assert_eq!(best(&mut pipeline), Some(peers[expected]), "{prefer_oldest}");
    }
    // With other attributes it is another path.
    pipeline.set_decision(decision);
    let again = |med| announcement(&Offer { med, ..offer(2) }.attributes(), &[prefix("203.0.113.0/24")]);
    pipeline.peer_down(peers[2]);
    assert_eq!(best(&mut pipeline), Some(peers[1]), "the one with the lower router id, as none is best");
    let lower = Offer { router_id: 1, ..offer(4) }.announce(&mut pipeline);
    assert_eq!(best(&mut pipeline), Some(peers[1]));
    pipeline.update(peers[1], &again(None)).expect("accepted");
    assert_eq!(best(&mut pipeline), Some(peers[1]), "the same again");
    pipeline.update(peers[1], &again(Some(0))).expect("accepted");
    assert_eq!(best(&mut pipeline), Some(lower));
}

//! Routes that are not used, and what the operator learns about it.

use std::net::{IpAddr, Ipv4Addr};

use holdfast_bgp_pipeline::{DropReason, NextHopMode, PathRules, PathState, PeerConfig, PeerIndex, Pipeline};
use holdfast_bgp_wire::{Origin, edit::AttributesBuilder};
use holdfast_types::{Asn, Family};

use crate::tests::pipeline::speaker::{OUR_AS, announcement, checked, ebgp, facts, ibgp, prefix, speaker};

fn attributes(path: &[u32]) -> AttributesBuilder {
    AttributesBuilder {
        as_path: path.iter().map(|asn| Asn(*asn)).collect(),
        next_hop: Some(Ipv4Addr::new(192, 0, 2, 1)),
        ..AttributesBuilder::new(Origin::Igp)
    }
}

fn received(config: PeerConfig, bytes: &[u8], next_hops: NextHopMode) -> (Pipeline, PeerIndex) {
    let mut pipeline = checked(speaker(next_hops));
    let peer = pipeline.add_peer(config);
    pipeline.peer_up(peer, facts(1)).expect("room");
    pipeline.update(peer, &announcement(bytes, &[prefix("203.0.113.0/24")])).expect("no reset");
    (pipeline, peer)
}

#[test]
fn every_unused_route_says_why() {
    let always = NextHopMode::AlwaysReachable;
    let internal = AttributesBuilder { local_pref: Some(100), ..attributes(&[]) };
    let reflected = [internal.build(), vec![0x80, 9, 4, 10, 0, 0, 1]].concat();
    let missing = PeerConfig { import: None, ..ebgp(1) };
    let rejecting = PeerConfig { import: Some(holdfast_policy::Program::reject_all()), ..ebgp(1) };
    let (policy, term) = ("reject-all".to_owned(), "reject-all".to_owned());
    let rows = [
        (ebgp(1), attributes(&[65101, OUR_AS.0, 7]).build(), always, PathState::AsLoop),
        (ebgp(1), attributes(&[65102]).build(), always, PathState::WrongFirstAs),
        (ibgp(1), reflected, always, PathState::ReflectionLoop),
        (missing, attributes(&[65101]).build(), always, PathState::NoPolicy),
        (rejecting, attributes(&[65101]).build(), always, PathState::Rejected { policy, term }),
        (ebgp(1), attributes(&[65101]).build(), NextHopMode::Resolved, PathState::UnreachableNextHop),
    ];
    for (config, bytes, mode, state) in rows {
        let (mut pipeline, peer) = received(config, &bytes, mode);
        let paths = pipeline.explain(prefix("203.0.113.0/24"));
        assert_eq!(paths.iter().map(|path| &path.state).collect::<Vec<_>>(), [&state]);
        let routes = pipeline.counts(peer, Family::IPV4_UNICAST).routes;
        let accepted = u64::from(state == PathState::UnreachableNextHop);
        assert_eq!((routes.received, routes.accepted, routes.best), (1, accepted, 0), "{state}");
    }
}

#[test]
fn a_route_server_may_leave_itself_out_of_the_path_where_that_is_configured() {
    let config =
        PeerConfig { paths: PathRules { enforce_first_as: false, ..PathRules::default() }, ..ebgp(1) };
    let (mut pipeline, _) = received(config, &attributes(&[65102]).build(), NextHopMode::AlwaysReachable);
    assert_eq!(pipeline.explain(prefix("203.0.113.0/24"))[0].state, PathState::Best);
}

#[test]
fn a_malformed_attribute_withdraws_the_route_and_is_remembered() {
    let good = attributes(&[65101]).build();
    let (mut pipeline, peer) = received(ebgp(1), &good, NextHopMode::AlwaysReachable);
    let mut bad = good;
    bad[3] = 7;
    pipeline.update(peer, &announcement(&bad, &[prefix("203.0.113.0/24")])).expect("no reset");
    assert!(pipeline.explain(prefix("203.0.113.0/24")).is_empty());
    let drops = pipeline.drops(peer).expect("a peer");
    let last = drops.last().next().expect("one");
    assert_eq!(last.prefix, Some(prefix("203.0.113.0/24")));
    assert!(matches!(last.reason, DropReason::Withdrawn(fault) if fault.attribute == 1), "{}", last.reason);
    assert_eq!(drops.counts().iter().map(|(_, count)| count).sum::<u64>(), 1);
}

#[test]
fn a_route_that_points_back_at_us_is_not_taken() {
    let ours = AttributesBuilder { next_hop: Some(Ipv4Addr::new(10, 0, 0, 1)), ..attributes(&[65101]) };
    let (mut pipeline, peer) = received(ebgp(1), &ours.build(), NextHopMode::AlwaysReachable);
    assert!(pipeline.explain(prefix("203.0.113.0/24")).is_empty());
    let drops = pipeline.drops(peer).expect("a peer");
    assert_eq!(drops.counts(), [(DropReason::OwnNextHop, 1)]);
}

#[test]
fn a_family_that_was_not_negotiated_is_ignored() {
    let mut pipeline = checked(speaker(NextHopMode::AlwaysReachable));
    let peer = pipeline.add_peer(ebgp(1));
    let only_v4 = vec![Family::IPV4_UNICAST];
    let facts = holdfast_bgp_pipeline::SessionFacts { families: only_v4, ..facts(1) };
    pipeline.peer_up(peer, facts).expect("room");
    let bytes = AttributesBuilder { next_hop: None, ..attributes(&[65101]) }.build();
    pipeline.update(peer, &announcement(&bytes, &[prefix("2001:db8::/32")])).expect("no reset");
    assert_eq!(pipeline.table_size(Family::IPV6_UNICAST), (0, 0));
    let counts = pipeline.drops(peer).expect("a peer").counts();
    assert_eq!(counts, [(DropReason::Family(Family::IPV6_UNICAST), 1)]);
}

#[test]
fn unreadable_prefixes_end_the_session() {
    let (mut pipeline, peer) = received(ebgp(1), &attributes(&[65101]).build(), NextHopMode::AlwaysReachable);
    let error = pipeline.update(peer, &[0, 2, 33, 1, 0, 0]).expect_err("a prefix of 33 bits");
    assert_eq!((error.code, error.subcode), (3, 10));
    assert_eq!(pipeline.explain(prefix("203.0.113.0/24"))[0].peer, Some(peer));
    assert_eq!(
        IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)),
        pipeline.explain(prefix("203.0.113.0/24"))[0].next_hop.expect("a gateway").address
    );
}

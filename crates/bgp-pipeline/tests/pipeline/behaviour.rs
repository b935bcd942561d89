//! Small stories about sessions, groups and the RIB.

use std::net::{IpAddr, Ipv4Addr};

use holdfast_bgp_pipeline::{
    Event, Limits, NextHopMode, OriginateAttributes, PeerConfig, PeerIndex, Pipeline, Pressure, Reachability,
    RibRun, SessionFacts, SpeakerConfig,
};
use holdfast_bgp_wire::{Origin, attributes::community, edit::AttributesBuilder};
use holdfast_types::{Asn, Family, Prefix};

use crate::tests::pipeline::speaker::{
    Held, Sink, advertised_to, announcement, checked, ebgp, facts, ibgp, prefix, settle, speaker, withdrawal,
};

pub(crate) fn attributes(peer: u8, communities: &[u32]) -> Vec<u8> {
    AttributesBuilder {
        as_path: vec![Asn(65100 + u32::from(peer))],
        next_hop: Some(Ipv4Addr::new(192, 0, 2, peer)),
        med: Some(5),
        communities: communities.to_vec(),
        ..AttributesBuilder::new(Origin::Igp)
    }
    .build()
}

/// The body of an UPDATE of a peer with this path.
pub(crate) fn announcement_by(peer: u8, path: &[Asn], route: Prefix) -> Vec<u8> {
    let attributes = AttributesBuilder {
        as_path: path.iter().rev().copied().collect(),
        next_hop: matches!(route, Prefix::V4(_)).then_some(Ipv4Addr::new(192, 0, 2, peer)),
        ..AttributesBuilder::new(Origin::Igp)
    };
    announcement(&attributes.build(), &[route])
}

pub(crate) fn up(pipeline: &mut Pipeline, n: u8) -> PeerIndex {
    let peer = pipeline.add_peer(ebgp(n));
    pipeline.peer_up(peer, facts(n)).expect("room");
    peer
}

pub(crate) fn always() -> SpeakerConfig {
    speaker(NextHopMode::AlwaysReachable)
}

fn events(pipeline: &mut Pipeline) -> Vec<Event> {
    std::iter::from_fn(|| pipeline.poll_event()).collect()
}

const P: &str = "203.0.113.0/24";

#[test]
fn a_family_without_a_next_hop_of_our_own_is_empty_and_has_an_end() {
    let mut pipeline = checked(always());
    let (from, to) = (up(&mut pipeline, 1), pipeline.add_peer(ebgp(2)));
    pipeline.peer_up(to, SessionFacts { next_hop_v4: None, ..facts(2) }).expect("room");
    pipeline.update(from, &announcement(&attributes(1, &[]), &[prefix(P)])).expect("taken");
    let mut sinks = [(to, Sink::default())];
    settle(&mut pipeline, &mut sinks);
    assert_eq!((sinks[0].1.routes.len(), &sinks[0].1.end_of_rib[..]), (0, &Family::ALL[..]));
    assert_eq!(pipeline.counts(to, Family::IPV4_UNICAST).announced, 0);
    assert_eq!(pipeline.too_long(), 0, "nothing was left out in the last moment");
}

#[test]
fn a_route_goes_to_everyone_but_its_sender_with_our_as_and_our_next_hop() {
    let mut pipeline = checked(always());
    let (from, to) = (up(&mut pipeline, 1), up(&mut pipeline, 2));
    pipeline.update(from, &announcement(&attributes(1, &[]), &[prefix(P)])).expect("taken");
    let mut sinks = [(from, Sink::default()), (to, Sink::default())];
    settle(&mut pipeline, &mut sinks);
    let held = &sinks[1].1.routes[&prefix(P)];
    assert_eq!((held.path(), held.next_hop), ("65000 65101".into(), IpAddr::from([10, 0, 0, 1])));
    let med = holdfast_bgp_wire::Attributes(&held.attributes).med();
    assert_eq!((med, sinks[0].1.routes.len()), (None, 0), "a MED stays between two ASes");
    assert_eq!(sinks[1].1.end_of_rib, Family::ALL);
    assert_eq!(advertised_to(&mut pipeline, prefix(P)), [to]);
    assert_eq!(pipeline.counts(to, Family::IPV4_UNICAST).announced, 1);
    assert_eq!(pipeline.counts(from, Family::IPV4_UNICAST).announced, 0);
}

#[test]
fn when_the_best_moves_to_a_peer_that_peer_gets_a_withdrawal() {
    let mut pipeline = checked(always());
    let (a, b) = (up(&mut pipeline, 1), up(&mut pipeline, 2));
    let mut sinks = [(a, Sink::default()), (b, Sink::default())];
    pipeline.update(b, &announcement(&attributes(2, &[]), &[prefix(P)])).expect("taken");
    settle(&mut pipeline, &mut sinks);
    assert_eq!((sinks[0].1.routes.len(), sinks[1].1.routes.len()), (1, 0));
    pipeline.update(a, &announcement(&attributes(1, &[]), &[prefix(P)])).expect("taken");
    settle(&mut pipeline, &mut sinks);
    assert_eq!((sinks[0].1.routes.len(), sinks[1].1.routes.len()), (0, 1));
    assert_eq!((sinks[0].1.idle_withdrawals, sinks[1].1.idle_withdrawals), (0, 0));
}

#[test]
fn internal_routes_stay_with_the_one_who_heard_them() {
    let mut pipeline = checked(always());
    let peers = [1, 2].map(|n| pipeline.add_peer(ibgp(n)));
    for (peer, n) in peers.into_iter().zip([1, 2]) {
        pipeline.peer_up(peer, facts(n)).expect("room");
    }
    let outside = up(&mut pipeline, 3);
    pipeline.update(peers[0], &announcement(&local_pref(200), &[prefix(P)])).expect("taken");
    let mut sinks = [(peers[1], Sink { internal: true, ..Sink::default() }), (outside, Sink::default())];
    settle(&mut pipeline, &mut sinks);
    assert_eq!(sinks[0].1.routes.len(), 0);
    assert_eq!(sinks[1].1.routes[&prefix(P)].path(), "65000 65009");
    // Our own goes to all, with LOCAL_PREF inside.
    pipeline.originate(prefix("198.51.100.0/24"), &OriginateAttributes::default());
    settle(&mut pipeline, &mut sinks);
    let inside = &sinks[0].1.routes[&prefix("198.51.100.0/24")];
    assert_eq!(holdfast_bgp_wire::Attributes(&inside.attributes).local_pref(), Some(100));
}

fn local_pref(value: u32) -> Vec<u8> {
    AttributesBuilder {
        as_path: vec![Asn(65009)],
        next_hop: Some(Ipv4Addr::new(192, 0, 2, 9)),
        local_pref: Some(value),
        ..AttributesBuilder::new(Origin::Igp)
    }
    .build()
}

#[test]
fn well_known_communities_keep_routes_in() {
    let mut pipeline = checked(always());
    let (from, outside, inside) = (up(&mut pipeline, 1), up(&mut pipeline, 2), pipeline.add_peer(ibgp(3)));
    pipeline.peer_up(inside, facts(3)).expect("room");
    let rows = [
        ("10.1.0.0/16", community::NO_EXPORT),
        ("10.2.0.0/16", community::NO_EXPORT_SUBCONFED),
        ("10.3.0.0/16", community::NO_ADVERTISE),
    ];
    for (route, community) in rows {
        let body = announcement(&attributes(1, &[community]), &[prefix(route)]);
        pipeline.update(from, &body).expect("taken");
    }
    let mut sinks = [(outside, Sink::default()), (inside, Sink { internal: true, ..Sink::default() })];
    settle(&mut pipeline, &mut sinks);
    let inside: Vec<&Prefix> = sinks[1].1.routes.keys().collect();
    assert_eq!((sinks[0].1.routes.len(), inside), (0, vec![&prefix("10.1.0.0/16"), &prefix("10.2.0.0/16")]));
}

#[test]
fn a_peer_may_be_back_before_its_old_routes_are_swept() {
    let mut pipeline = checked(always());
    let (from, to) = (up(&mut pipeline, 1), up(&mut pipeline, 2));
    let routes: Vec<Prefix> = (0..100).map(|n| prefix(&format!("10.{n}.0.0/16"))).collect();
    let mut sinks = [(to, Sink::default())];
    pipeline.update(from, &announcement(&attributes(1, &[]), &routes)).expect("taken");
    settle(&mut pipeline, &mut sinks);
    for _ in 0..3 {
        pipeline.peer_down(from);
        pipeline.peer_up(from, facts(1)).expect("room");
        pipeline.update(from, &announcement(&attributes(1, &[7]), &routes[..50])).expect("taken");
        pipeline.work(10);
    }
    settle(&mut pipeline, &mut sinks);
    assert_eq!(sinks[0].1.routes.keys().copied().collect::<Vec<_>>().len(), 50);
    let family = Family::IPV4_UNICAST;
    assert_eq!((pipeline.table_size(family), pipeline.counts(from, family).routes.best), ((50, 50), 50));
    assert_eq!(sinks[0].1.idle_withdrawals, 0);
    pipeline.peer_down(from);
    settle(&mut pipeline, &mut sinks);
    assert_eq!((pipeline.attribute_sets(), sinks[0].1.routes.len()), (0, 0), "all is given back");
}

#[test]
fn attributes_are_kept_for_the_peer_that_brought_them_first_as_long_as_anybody_uses_them() {
    let mut pipeline = checked(always());
    // Both in one AS: other attributes are not shared.
    let [first, second] = [1, 2].map(|number| {
        let peer = pipeline.add_peer(PeerConfig { asn: ebgp(1).asn, ..ebgp(number) });
        pipeline.peer_up(peer, facts(number)).expect("room");
        peer
    });
    let from_other = |pipeline: &mut Pipeline, from, communities: &[u32]| {
        let routes = [prefix("10.1.0.0/16"), prefix("10.2.0.0/16")];
        pipeline.update(from, &announcement(&attributes(9, communities), &routes)).expect("taken");
    };
    let many: Vec<u32> = (1 << 20..).take(900).collect();
    let octets = |pipeline: &Pipeline| [first, second].map(|peer| pipeline.kept_octets(peer));
    from_other(&mut pipeline, first, &many);
    let [brought, _] = octets(&pipeline);
    assert!((3600..3800).contains(&brought), "{brought}");
    from_other(&mut pipeline, second, &many);
    assert_eq!(octets(&pipeline), [brought, 32], "only its routes");

    pipeline.peer_down(first);
    settle(&mut pipeline, &mut []);
    assert_eq!(octets(&pipeline), [brought - 32, 32], "somebody uses them still");
    pipeline.peer_down(second);
    settle(&mut pipeline, &mut []);
    assert_eq!((pipeline.attribute_sets(), octets(&pipeline)), (0, [0, 0]));
}

#[test]
fn next_hops_are_registered_decided_again_and_given_back() {
    let mut pipeline = checked(speaker(NextHopMode::Resolved));
    let (from, to) = (up(&mut pipeline, 1), up(&mut pipeline, 2));
    let mut sinks = [(to, Sink::default())];
    let hop = IpAddr::from([192, 0, 2, 1]);
    pipeline.update(from, &announcement(&attributes(1, &[]), &[prefix(P)])).expect("taken");
    assert_eq!(events(&mut pipeline), [Event::RegisterNextHop(hop)]);
    settle(&mut pipeline, &mut sinks);
    assert_eq!(sinks[0].1.routes.len(), 0);
    pipeline.next_hop(hop, Reachability::Reachable { metric: 1 });
    settle(&mut pipeline, &mut sinks);
    assert_eq!(sinks[0].1.routes.len(), 1);
    pipeline.next_hop(hop, Reachability::Unreachable);
    settle(&mut pipeline, &mut sinks);
    assert_eq!(sinks[0].1.routes.len(), 0);
    pipeline.update(from, &withdrawal(prefix(P))).expect("taken");
    settle(&mut pipeline, &mut sinks);
    assert!(events(&mut pipeline).contains(&Event::UnregisterNextHop(hop)));
}

/// Peer `n` on a link of its own, where we have other addresses.
fn link(n: u8) -> SessionFacts {
    SessionFacts {
        next_hop_v4: Some(Ipv4Addr::new(10, 9, n, 1)),
        next_hop_v6: Some(format!("2001:db8:9:{n}::1").parse().expect("an address")),
        link_local: Some(format!("fe80::{n}").parse().expect("an address")),
        ..facts(n)
    }
}

/// All that a peer is sent.
fn pulled(pipeline: &mut Pipeline, peer: PeerIndex) -> Vec<u8> {
    let mut bytes = Vec::new();
    while pipeline.pending(peer) {
        pipeline.pull(peer).iter().for_each(|part| bytes.extend_from_slice(part));
    }
    bytes
}

#[test]
fn peers_on_different_links_share_a_group_and_each_is_sent_what_it_would_be_sent_alone() {
    let tell = |pipeline: &mut Pipeline, from: PeerIndex| {
        for n in 0..100u32 {
            let community = n / 3;
            let routes = [prefix(&format!("10.{n}.0.0/16")), prefix(&format!("2001:db8:{n}::/48"))];
            for route in routes {
                let body = announcement(&attributes(1, &[community]), &[route]);
                pipeline.update(from, &body).expect("taken");
            }
        }
        pipeline.update(from, &withdrawal(prefix("10.3.0.0/16"))).expect("taken");
    };
    let start = |links: &[u8]| {
        let mut pipeline = checked(always());
        let from = up(&mut pipeline, 1);
        let peers = links.iter().map(|n| {
            let peer = pipeline.add_peer(ebgp(*n));
            pipeline.peer_up(peer, link(*n)).expect("room");
            peer
        });
        let peers: Vec<_> = peers.collect();
        tell(&mut pipeline, from);
        (pipeline, peers)
    };
    let (mut together, peers) = start(&[2, 3, 4, 5]);
    for (n, peer) in (2..).zip(peers) {
        let (mut alone, only) = start(&[n]);
        let bytes = pulled(&mut together, peer);
        assert_eq!(bytes, pulled(&mut alone, only[0]), "peer {n}");
        assert_eq!(
            together.update_group(peer),
            Some(1),
            "the first is of the sender, whose addresses are shorter"
        );
    }
}

#[test]
fn members_of_a_group_share_messages_and_a_slow_one_holds_up_nobody() {
    let limits = Limits { shared_bytes: 1000, ..Limits::default() };
    let mut pipeline = checked(SpeakerConfig { limits, ..always() });
    let from = up(&mut pipeline, 1);
    let (fast, slow) = (up(&mut pipeline, 2), up(&mut pipeline, 3));
    let mut sinks = [(fast, Sink::default()), (slow, Sink::default())];
    settle(&mut pipeline, &mut sinks);
    assert_eq!(pipeline.update_group(fast), pipeline.update_group(slow));
    for n in 0..250 {
        let body = announcement(&attributes(1, &[n]), &[prefix(&format!("10.{n}.0.0/16"))]);
        pipeline.update(from, &body).expect("taken");
        while let Some(bytes) = pipeline.pull(fast) {
            sinks[0].1.receive(&bytes);
        }
    }
    assert_eq!(sinks[0].1.routes.len(), 250);
    assert_ne!(pipeline.update_group(fast), pipeline.update_group(slow));
    settle(&mut pipeline, &mut sinks);
    assert_eq!(sinks[1].1.routes, sinks[0].1.routes);
    assert_eq!(pipeline.update_group(fast), pipeline.update_group(slow), "together again");
}

#[test]
fn a_peer_is_named_once_when_it_becomes_pending_and_again_only_after_it_was_given_nothing() {
    let mut pipeline = checked(always());
    let (from, to) = (up(&mut pipeline, 1), up(&mut pipeline, 2));
    let ready = |pipeline: &mut Pipeline| -> Vec<PeerIndex> {
        std::iter::from_fn(|| pipeline.poll_ready()).take(9).collect()
    };
    let drain = |pipeline: &mut Pipeline, peer| while pipeline.pull(peer).is_some() {};
    assert_eq!(ready(&mut pipeline), [from, to], "the table and End-of-RIB");
    assert_eq!(ready(&mut pipeline), []);
    drain(&mut pipeline, to);
    drain(&mut pipeline, from);
    assert_eq!(ready(&mut pipeline), []);
    pipeline.update(from, &announcement(&attributes(1, &[]), &[prefix(P)])).expect("taken");
    assert_eq!(ready(&mut pipeline), [from, to]);
    pipeline.update(from, &withdrawal(prefix(P))).expect("taken");
    assert_eq!(ready(&mut pipeline), [], "both are pulling already");
    while pipeline.pending(to) {
        pipeline.pull(to);
    }
    drain(&mut pipeline, to);
    assert_eq!(ready(&mut pipeline), [], "the sender has not been given nothing yet");
    pipeline.route_refresh(to, Family::IPV4_UNICAST);
    assert_eq!(ready(&mut pipeline), [to]);
    pipeline.peer_down(to);
    pipeline.peer_up(to, facts(2)).expect("room");
    assert_eq!(ready(&mut pipeline), [to], "a new session is called anew");
}

#[test]
fn the_sender_of_a_long_table_stays_in_its_group() {
    let limits = Limits { shared_bytes: 1000, ..Limits::default() };
    let mut pipeline = checked(SpeakerConfig { limits, ..always() });
    let (from, to) = (up(&mut pipeline, 1), up(&mut pipeline, 2));
    let mut sinks = [(from, Sink::default()), (to, Sink::default())];
    for n in 0..250 {
        let body = announcement(&attributes(1, &[n]), &[prefix(&format!("10.{n}.0.0/16"))]);
        pipeline.update(from, &body).expect("taken");
        for (peer, sink) in &mut sinks {
            while pipeline.pending(*peer) {
                pipeline.pull(*peer).iter().for_each(|bytes| sink.receive(bytes));
            }
        }
        assert_eq!(pipeline.update_group(from), pipeline.update_group(to));
    }
    assert_eq!((sinks[0].1.routes.len(), sinks[1].1.routes.len()), (0, 250));
}

#[test]
fn a_peer_that_reads_nothing_while_the_log_runs_full_still_ends_right() {
    let limits = Limits { log: 50, window: 7, ..Limits::default() };
    let mut pipeline = checked(SpeakerConfig { limits, ..always() });
    let (from, to) = (up(&mut pipeline, 1), up(&mut pipeline, 2));
    let mut sinks = [(to, Sink::default())];
    let route = |n: u32| prefix(&format!("10.{n}.0.0/16"));
    (0..200).for_each(|n| {
        pipeline.update(from, &announcement(&attributes(1, &[n]), &[route(n)])).expect("taken");
    });
    settle(&mut pipeline, &mut sinks);
    assert_eq!(sinks[0].1.routes.len(), 200);
    (0..100).for_each(|n| pipeline.update(from, &withdrawal(route(n))).expect("taken"));
    (50..60).for_each(|n| {
        pipeline.update(from, &announcement(&attributes(1, &[n]), &[route(n)])).expect("taken");
    });
    settle(&mut pipeline, &mut sinks);
    assert_eq!(sinks[0].1.routes.len(), 110);
    assert_eq!(pipeline.counts(to, Family::IPV4_UNICAST).announced, 110);
}

#[test]
fn the_rib_and_peers_with_room_are_waited_for_before_they_lose_their_place() {
    let limits = Limits { log: 20, ..Limits::default() };
    let mut pipeline = checked(SpeakerConfig { limits, ..always() });
    let (from, to) = (up(&mut pipeline, 1), up(&mut pipeline, 2));
    settle(&mut pipeline, &mut [(from, Sink::default()), (to, Sink::default())]);
    pipeline.rib_resync();
    while pipeline.pull_rib(100).is_some() {}
    let route = |n: u8| prefix(&format!("10.{n}.0.0/16"));
    for n in 0..10 {
        assert_eq!(pipeline.pressure(|_| true), Pressure::Low);
        pipeline.update(from, &announcement(&attributes(1, &[]), &[route(n)])).expect("taken");
    }
    pipeline.update(from, &announcement(&attributes(1, &[]), &[route(10)])).expect("taken");
    assert_eq!(pipeline.pressure(|_| false), Pressure::High, "the rib is half the way to losing its place");
    assert_eq!(pipeline.pull_rib(100).map(|changes| (changes.restart, changes.len())), Some((false, 11)));
    assert_eq!(pipeline.pressure(|_| false), Pressure::Low, "a peer without room is not waited for");
    assert_eq!(pipeline.pressure(|peer| peer == to), Pressure::High);
    for n in 11..16 {
        pipeline.update(from, &announcement(&attributes(1, &[]), &[route(n)])).expect("taken");
    }
    assert_eq!(pipeline.pressure(|peer| peer == to), Pressure::Full);
    settle(&mut pipeline, &mut [(from, Sink::default()), (to, Sink::default())]);
    assert_eq!(pipeline.pressure(|_| true), Pressure::Low);
}

#[test]
fn a_peer_of_which_too_much_was_lost_is_given_up() {
    let limits = Limits { log: 10, withdrawn: 20, shared_bytes: 0, ..Limits::default() };
    let mut pipeline = checked(SpeakerConfig { limits, ..always() });
    let (from, to) = (up(&mut pipeline, 1), up(&mut pipeline, 2));
    for n in 0..60 {
        let route = prefix(&format!("10.{n}.0.0/16"));
        pipeline.update(from, &announcement(&attributes(1, &[]), &[route])).expect("taken");
        pipeline.update(from, &withdrawal(route)).expect("taken");
        pipeline.work(100);
        while pipeline.pending(from) {
            pipeline.pull(from);
        }
    }
    assert!(events(&mut pipeline).contains(&Event::TooSlow { peer: to }));
}

#[test]
fn a_walk_waits_for_receivers_but_not_for_ever() {
    let mut pipeline = checked(always());
    let (from, to) = (up(&mut pipeline, 1), up(&mut pipeline, 2));
    let mut sinks = [(to, Sink::default()), (from, Sink::default())];
    pipeline.update(from, &announcement(&attributes(1, &[]), &[prefix(P)])).expect("taken");
    settle(&mut pipeline, &mut sinks);
    pipeline.set_paced(to, 1 << 20);
    pipeline.peer_down(from);
    assert!(!pipeline.work(100) && pipeline.is_waiting());
    let rounds = (0..).take_while(|_| !pipeline.work(100) && pipeline.is_waiting()).count();
    assert!((10..1000).contains(&rounds), "{rounds}");
    pipeline.set_paced(to, 0);
    settle(&mut pipeline, &mut sinks[..1]);
    assert_eq!(sinks[0].1.routes.len(), 0);
}

#[test]
fn a_prefix_that_is_withdrawn_and_announced_in_one_update_is_announced() {
    // RFC 4271 section 4.3: as if it were not among the withdrawn routes.
    let mut pipeline = checked(always());
    let (from, to) = (up(&mut pipeline, 1), up(&mut pipeline, 2));
    let withdrawn = withdrawal(prefix(P));
    let both =
        [&withdrawn[..withdrawn.len() - 2], &announcement(&attributes(1, &[]), &[prefix(P)])[2..]].concat();
    let mut sinks = [(to, Sink::default())];
    for _ in 0..2 {
        pipeline.update(from, &both).expect("taken");
        settle(&mut pipeline, &mut sinks);
        assert!(sinks[0].1.routes.contains_key(&prefix(P)));
    }
}

#[test]
fn a_refresh_sends_everything_once_more() {
    let mut pipeline = checked(always());
    let (from, to) = (up(&mut pipeline, 1), up(&mut pipeline, 2));
    let mut sinks = [(to, Sink::default())];
    pipeline.update(from, &announcement(&attributes(1, &[]), &[prefix(P)])).expect("taken");
    settle(&mut pipeline, &mut sinks);
    let before = std::mem::take(&mut sinks[0].1.routes);
    pipeline.route_refresh(to, Family::IPV4_UNICAST);
    settle(&mut pipeline, &mut sinks);
    assert_eq!((&sinks[0].1.routes, before.len()), (&before, 1));
    assert_eq!(pipeline.counts(to, Family::IPV4_UNICAST).announced, 1);
}

#[test]
fn the_rib_is_given_the_table_and_then_changes_with_handles_defined_once() {
    let mut pipeline = checked(SpeakerConfig { max_paths: 2, ..always() });
    let (a, b) = (up(&mut pipeline, 1), up(&mut pipeline, 2));
    pipeline.update(a, &announcement(&attributes(1, &[]), &[prefix(P)])).expect("taken");
    pipeline.originate(prefix("198.51.100.0/24"), &OriginateAttributes::default());
    pipeline.rib_resync();
    let changes: Vec<_> = std::iter::from_fn(|| pipeline.pull_rib(10)).collect();
    assert!(changes[0].restart && changes.iter().filter(|part| part.complete).count() == 1);
    let first = changes.iter().find(|part| !part.is_empty()).expect("a route");
    assert_eq!(
        (first.len(), first.define.len(), first.runs[0].internal),
        (1, 1, false),
        "our own is not sent"
    );
    assert_eq!((&first.addresses[..], &first.lengths[..]), (&[203, 0, 113, 0][..], &[24][..]));
    pipeline.update(b, &announcement(&attributes(2, &[]), &[prefix(P)])).expect("taken");
    let both = pipeline.pull_rib(10).expect("a second path");
    let addresses: Vec<_> = both.define[0].gateways.iter().map(|gateway| gateway.address).collect();
    assert_eq!(addresses, [IpAddr::from([192, 0, 2, 1]), IpAddr::from([192, 0, 2, 2])]);
    pipeline.peer_down(a);
    pipeline.peer_down(b);
    while pipeline.work(100) {}
    let gone: Vec<_> = std::iter::from_fn(|| pipeline.pull_rib(10)).collect();
    let withdrawn = RibRun { routes: 1, next_hops: 0, internal: false, tag: 0, metric: 0, peer: None };
    assert_eq!(gone.last().expect("a withdrawal").runs, [withdrawn]);
}

#[test]
fn a_sweep_waits_for_a_rib_that_reads_however_slowly() {
    let limits = Limits { log: 64, window: 2, ..Limits::default() };
    let mut pipeline = checked(SpeakerConfig { limits, ..always() });
    let from = up(&mut pipeline, 1);
    for n in 0..200 {
        let body = announcement(&attributes(1, &[n]), &[prefix(&format!("10.{n}.0.0/16"))]);
        pipeline.update(from, &body).expect("taken");
    }
    pipeline.rib_resync();
    while pipeline.pull_rib(1000).is_some() {}
    pipeline.peer_down(from);
    let mut withdrawn = 0;
    while withdrawn < 200 {
        // Far more often than a RIB is waited for that need not be.
        for _ in 0..200 {
            pipeline.work(4);
        }
        let part = pipeline.pull_rib(1).expect("what the sweep has withdrawn");
        assert!(!part.restart, "the rib was lost after {withdrawn} of 200 withdrawals");
        withdrawn += part.len();
    }
}

#[test]
fn peers_that_understand_less_get_what_they_understand() {
    let mut pipeline = checked(always());
    let from = pipeline.add_peer(PeerConfig { asn: Asn(70_000), ..ebgp(1) });
    pipeline.peer_up(from, facts(1)).expect("room");
    let (old, new) = (pipeline.add_peer(ebgp(2)), pipeline.add_peer(ebgp(3)));
    pipeline.peer_up(old, SessionFacts { four_octet_as: false, ..facts(2) }).expect("room");
    let no_ipv4 = SessionFacts { next_hop_v4: None, extended_next_hop: true, ..facts(3) };
    pipeline.peer_up(new, no_ipv4).expect("room");
    let bytes = AttributesBuilder {
        as_path: vec![Asn(70_000), Asn(7)],
        next_hop: Some(Ipv4Addr::new(192, 0, 2, 1)),
        ..AttributesBuilder::new(Origin::Egp)
    };
    pipeline.update(from, &announcement(&bytes.build(), &[prefix(P)])).expect("taken");
    let mut sinks = [(old, Sink { two_octet_as: true, ..Sink::default() }), (new, Sink::default())];
    settle(&mut pipeline, &mut sinks);
    let held = sinks.each_ref().map(|(_, sink)| &sink.routes[&prefix(P)]);
    // AS_TRANS in AS_PATH, the truth in AS4_PATH (RFC 6793): the receiver puts them together again.
    assert_eq!(held.map(Held::path), ["65000 70000 7", "65000 70000 7"]);
    let ours = facts(3).next_hop_v6.expect("an address");
    assert_eq!(held.map(|held| held.next_hop), [IpAddr::from([10, 0, 0, 1]), IpAddr::from(ours)]);
    pipeline.update(from, &withdrawal(prefix(P))).expect("taken");
    settle(&mut pipeline, &mut sinks);
    assert!(sinks.iter().all(|(_, sink)| sink.routes.is_empty() && sink.idle_withdrawals == 0));
}

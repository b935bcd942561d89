//! Peers on links without global addresses (RFC 2545, RFC 8950): what next hops come to, and which ones are sent.

use std::{
    collections::BTreeSet,
    net::{IpAddr, Ipv6Addr},
};

use holdfast_bgp_pipeline::{
    DropReason, Gateway, NextHopMode, PeerIndex, Pipeline, RibChanges, RibNextHops, SessionFacts,
    SpeakerConfig,
};
use holdfast_bgp_wire::{HEADER_LEN, MAX_LEN, NextHop, Origin, UpdateEncoder, edit::AttributesBuilder};
use holdfast_types::{Asn, HashKey, IpPrefix, Ipv4Prefix, Ipv6Prefix, Prefix};

use crate::tests::pipeline::speaker::{OUR_AS, Sink, checked, ebgp, facts, router_id, settle};

/// The same on every link.
const THEIRS: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 2);
const OURS: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1);
const GLOBAL: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 2);
const ROUTES: [&str; 2] = ["203.0.113.0/24", "2001:db8:113::/48"];

/// Peer `n` on the link of this interface.
fn on(n: u8, interface: u32) -> SessionFacts {
    SessionFacts {
        peer_address: THEIRS.into(),
        next_hop_v4: None,
        next_hop_v6: None,
        link_local: Some(OURS),
        interface,
        extended_next_hop: true,
        ..facts(n)
    }
}

fn pipeline() -> Pipeline {
    let mut pipeline = checked(SpeakerConfig {
        max_paths: 4,
        next_hops: NextHopMode::Resolved,
        ..SpeakerConfig::new(OUR_AS, router_id(1), HashKey::new([1, 0]))
    });
    pipeline.rib_resync();
    pipeline
}

fn up(pipeline: &mut Pipeline, n: u8, facts: SessionFacts) -> PeerIndex {
    let peer = pipeline.add_peer(ebgp(n));
    pipeline.peer_up(peer, facts).expect("room");
    peer
}

/// UPDATEs with both routes and this next hop, from peer `n`.
fn updates(n: u8, next_hop: NextHop) -> Vec<Vec<u8>> {
    let attributes = AttributesBuilder {
        as_path: vec![Asn(65100 + u32::from(n))],
        next_hop: None,
        ..AttributesBuilder::new(Origin::Igp)
    }
    .build();
    let encoder = UpdateEncoder::new(MAX_LEN);
    let route = |text: &str| text.parse::<Prefix>().expect("a prefix");
    let (mut v4, mut v6) = (Vec::new(), Vec::new());
    let one = Ipv4Prefix::from_prefix(route(ROUTES[0])).expect("IPv4");
    let other = Ipv6Prefix::from_prefix(route(ROUTES[1])).expect("IPv6");
    encoder.announce_mp(&attributes, next_hop, [one], &mut v4).expect("it fits");
    encoder.announce_mp(&attributes, next_hop, [other], &mut v6).expect("it fits");
    [v4, v6].map(|mut message| message.split_off(HEADER_LEN)).into()
}

fn tell(pipeline: &mut Pipeline, peer: PeerIndex, n: u8, next_hop: NextHop) {
    for update in updates(n, next_hop) {
        pipeline.update(peer, &update).expect("taken");
    }
}

/// The sets of gateways that the rib is given; both families have the same.
fn gateways(pipeline: &mut Pipeline) -> BTreeSet<Vec<Gateway>> {
    let changes: Vec<RibChanges> = std::iter::from_fn(|| pipeline.pull_rib(10)).collect();
    let sorted = |mut defined: RibNextHops| {
        defined.gateways.sort();
        defined.gateways
    };
    changes.into_iter().flat_map(|part| part.define).map(sorted).collect()
}

/// Next hops that the rib is asked about.
fn asked(pipeline: &mut Pipeline) -> usize {
    std::iter::from_fn(|| pipeline.poll_event())
        .filter(|event| matches!(event, holdfast_bgp_pipeline::Event::RegisterNextHop(_)))
        .count()
}

#[test]
fn link_local_next_hops_are_on_the_link_of_the_session_and_nobody_is_asked_about_them() {
    let forms = [
        NextHop::V6 { global: THEIRS, link_local: None },
        NextHop::V6 { global: THEIRS, link_local: Some(THEIRS) },
        NextHop::V6 { global: GLOBAL, link_local: Some(THEIRS) },
        NextHop::V6 { global: Ipv6Addr::UNSPECIFIED, link_local: Some(THEIRS) },
    ];
    for form in forms {
        let mut pipeline = pipeline();
        let (first, second) = (up(&mut pipeline, 1, on(1, 7)), up(&mut pipeline, 2, on(2, 8)));
        tell(&mut pipeline, first, 1, form);
        settle(&mut pipeline, &mut []);
        let [near, far] = [7, 8].map(|interface| Gateway { address: THEIRS.into(), interface });
        assert_eq!(gateways(&mut pipeline), BTreeSet::from([vec![near]]), "{form}");
        tell(&mut pipeline, second, 2, form);
        settle(&mut pipeline, &mut []);
        assert_eq!(gateways(&mut pipeline), BTreeSet::from([vec![near, far]]), "one address, two ways");
        assert_eq!(asked(&mut pipeline), 0);
    }
}

#[test]
fn where_the_link_is_not_known_a_link_local_next_hop_alone_is_unusable() {
    let mut pipeline = pipeline();
    let peer = up(&mut pipeline, 1, SessionFacts { extended_next_hop: true, ..facts(1) });
    tell(&mut pipeline, peer, 1, NextHop::V6 { global: THEIRS, link_local: None });
    assert_eq!(asked(&mut pipeline), 0);
    let drops = pipeline.drops(peer).expect("a peer");
    assert_eq!(drops.total(), 2);
    assert_eq!(drops.counts(), [(DropReason::UnusableNextHop, 2)]);
    tell(&mut pipeline, peer, 1, NextHop::V6 { global: GLOBAL, link_local: Some(THEIRS) });
    assert_eq!(asked(&mut pipeline), 1, "the global one, as far as that leads");
}

#[test]
fn our_own_link_local_address_is_nobodys_next_hop() {
    let mut pipeline = pipeline();
    let peer = up(&mut pipeline, 1, on(1, 7));
    tell(&mut pipeline, peer, 1, NextHop::V6 { global: OURS, link_local: None });
    assert!(gateways(&mut pipeline).is_empty());
}

#[test]
fn we_are_the_next_hop_by_our_link_local_address_beside_the_global_one_or_alone() {
    let sent = |facts: SessionFacts| {
        let mut pipeline = pipeline();
        let from = up(&mut pipeline, 1, on(1, 7));
        let to = up(&mut pipeline, 2, facts);
        tell(&mut pipeline, from, 1, NextHop::V6 { global: THEIRS, link_local: None });
        let mut sinks = [(to, Sink::default())];
        settle(&mut pipeline, &mut sinks);
        let routes: Vec<IpAddr> = sinks[0].1.routes.values().map(|held| held.next_hop).collect();
        let octets: Vec<_> = sinks[0].1.next_hop_octets.iter().copied().collect();
        (routes, octets)
    };
    assert_eq!(sent(on(2, 8)), (vec![OURS.into(); 2], vec![16]));
    let with_global = SessionFacts { next_hop_v6: Some(GLOBAL), ..on(2, 8) };
    assert_eq!(sent(with_global), (vec![GLOBAL.into(); 2], vec![32]));
}

#[test]
fn another_address_of_ours_is_told_with_everything_again_to_that_peer_alone() {
    let mut pipeline = pipeline();
    let from = up(&mut pipeline, 1, on(1, 7));
    let with = |own: Ipv6Addr, n: u8| SessionFacts { next_hop_v6: Some(own), ..on(n, n.into()) };
    let peers = [2, 3].map(|n| (up(&mut pipeline, n, with(GLOBAL, n)), Sink::default()));
    let mut sinks = Vec::from(peers);
    tell(&mut pipeline, from, 1, NextHop::V6 { global: THEIRS, link_local: None });
    settle(&mut pipeline, &mut sinks);
    let next_hops = |sink: &Sink| Vec::from_iter(sink.routes.values().map(|held| held.next_hop));
    let before = sinks[1].1.messages;
    let other = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 9);
    // The second change is of another length: the peers are in different groups from then on.
    for (own, expected) in [(Some(other), other), (None, OURS), (Some(GLOBAL), GLOBAL)] {
        pipeline.change_next_hops(sinks[0].0, None, own);
        settle(&mut pipeline, &mut sinks);
        assert_eq!(next_hops(&sinks[0].1), [IpAddr::from(expected); 2]);
        assert_eq!((next_hops(&sinks[1].1), sinks[1].1.messages), (vec![GLOBAL.into(); 2], before));
    }
}

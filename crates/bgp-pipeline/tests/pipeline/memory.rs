//! Memory that a burst has taken, and what is left of that when the burst has gone.

use std::net::{IpAddr, Ipv4Addr};

use holdfast_bgp_pipeline::{NextHopMode, PeerConfig, Pipeline, Reachability};
use holdfast_bgp_wire::{Origin, edit::AttributesBuilder};
use holdfast_policy::{Action, Condition, Outcome, Term};
use holdfast_types::{IpPrefix, Ipv4Prefix, Prefix};

use crate::tests::pipeline::{
    policies::program,
    speaker::{Sink, announcement, checked, ebgp, facts, settle, speaker},
};

/// Routes of the burst, each with attributes and a next hop of its own.
const ROUTES: u32 = 20_000;
/// Octets that may be left of it.
const SLACK: usize = 512 << 10;

fn route(number: u32) -> Prefix {
    Ipv4Prefix::from_bits(u128::from(number) << 104, 24).into()
}

fn body(n: u8, number: u32, next_hop: Ipv4Addr) -> Vec<u8> {
    let attributes = AttributesBuilder {
        as_path: vec![ebgp(n).asn],
        next_hop: Some(next_hop),
        med: Some(number),
        ..AttributesBuilder::new(Origin::Igp)
    };
    announcement(&attributes.build(), &[route(number)])
}

#[test]
fn what_a_burst_of_attributes_and_next_hops_has_taken_is_given_back_when_it_has_gone() {
    let mut pipeline = checked(speaker(NextHopMode::Resolved));
    let within = Condition::Prefix(vec!["0.0.0.0/0 le 32".parse().expect("a range")]);
    let mark = Action::AddCommunities(vec!["65000:1".parse().expect("a community")]);
    let terms =
        vec![Term { name: "all".into(), from: vec![within], then: vec![mark], outcome: Outcome::Accept }];
    let peers = [1, 2, 3].map(|n| {
        let peer = pipeline.add_peer(PeerConfig { import: Some(program(terms.clone())), ..ebgp(n) });
        pipeline.peer_up(peer, facts(n)).expect("room");
        peer
    });
    let [stays, goes, _] = peers;
    // A peer that takes nothing would hold what was there.
    let mut sinks = peers.map(|peer| (peer, Sink::default()));
    let mut settled = |pipeline: &mut Pipeline| {
        settle(pipeline, &mut sinks);
        // The last users of next hops have gone when somebody asks for news of them.
        while pipeline.poll_event().is_some() {}
        pipeline.memory()
    };
    pipeline.update(stays, &body(1, 1 << 20, Ipv4Addr::new(192, 0, 2, 1))).expect("taken");
    let before = settled(&mut pipeline);
    for number in 0..ROUTES {
        let next_hop = Ipv4Addr::from_bits(0x0b00_0000 + number);
        pipeline.update(goes, &body(2, number, next_hop)).expect("taken");
        pipeline.next_hop(IpAddr::V4(next_hop), Reachability::Reachable { metric: 1 });
    }
    let most = settled(&mut pipeline);
    assert!(most.total() > before.total() + 300 * ROUTES as usize, "{before:?}, {most:?}");
    pipeline.peer_down(goes);
    // Sets that readers have just passed go with the next slice.
    settled(&mut pipeline);
    let after = settled(&mut pipeline);
    // Tables keep room for changes.
    let kept = after.attributes + after.output;
    assert!(
        kept <= before.attributes + before.output + SLACK,
        "{before:?}, {most:?}, {after:?}, {}",
        pipeline.attribute_sets()
    );
}

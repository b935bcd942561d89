//! Long UPDATEs (RFC 8654), which are taken in a part at a time.

use std::{net::Ipv4Addr, ops::Range};

use holdfast_bgp_pipeline::{NextHopMode, PeerIndex, Pipeline, SessionFacts, UpdatePart};
use holdfast_bgp_wire::update::FamilySet;
use holdfast_types::Family;

use crate::tests::pipeline::{
    behaviour::attributes,
    speaker::{checked, ebgp, facts, speaker},
};

/// Prefixes that a part has at most.
const PART: usize = 1024;

fn octets(numbers: Range<u32>, identifier: Option<u32>) -> Vec<u8> {
    let one = |number: u32| {
        let address = Ipv4Addr::from(0x1000_0000 + number * 256).octets();
        let identifier = identifier.map(u32::to_be_bytes);
        identifier.into_iter().flatten().chain([32]).chain(address)
    };
    numbers.flat_map(one).collect()
}

fn body(withdrawn: &[u8], attributes: &[u8], announced: &[u8]) -> Vec<u8> {
    let [first, second] = [withdrawn.len(), attributes.len()].map(|length| (length as u16).to_be_bytes());
    [&first[..], withdrawn, &second, attributes, announced].concat()
}

fn pipeline(change: impl FnOnce(&mut SessionFacts)) -> (Pipeline, PeerIndex) {
    let mut pipeline = checked(speaker(NextHopMode::AlwaysReachable));
    let peer = pipeline.add_peer(ebgp(1));
    let mut facts = facts(1);
    change(&mut facts);
    pipeline.peer_up(peer, facts).expect("room");
    (pipeline, peer)
}

fn size(pipeline: &Pipeline, family: Family) -> usize {
    pipeline.table_size(family).0
}

/// How many parts there are; none of them changes more prefixes than it may.
fn parts(pipeline: &mut Pipeline, peer: PeerIndex, body: &[u8], family: Family) -> usize {
    let (mut next, mut count) = (Some(UpdatePart::default()), 0);
    while let Some(part) = next {
        let before = size(pipeline, family);
        next = pipeline.update_part(peer, body, part).expect("taken");
        assert!(size(pipeline, family).abs_diff(before) <= PART);
        count += 1;
    }
    count
}

#[test]
fn all_parts_of_an_update_together_are_the_update() {
    for identifier in [None, Some(7)] {
        let identifiers: FamilySet = identifier.map(|_| Family::IPV4_UNICAST).into_iter().collect();
        let (mut pipeline, peer) = pipeline(|facts| facts.identifiers_received = identifiers);
        let announcement = body(&[], &attributes(1, &[]), &octets(0..2000, identifier));
        assert_eq!(parts(&mut pipeline, peer, &announcement, Family::IPV4_UNICAST), 2);
        // What is in both places is announced (RFC 7606 section 5.2).
        let numbers = octets(1000..6500, identifier);
        let both = body(&octets(0..1500, identifier), &attributes(1, &[9]), &numbers);
        assert_eq!(parts(&mut pipeline, peer, &both, Family::IPV4_UNICAST), 7000_usize.div_ceil(PART));
        assert_eq!(pipeline.table_size(Family::IPV4_UNICAST), (5500, 5500));
        let gone = body(&numbers, &[], &[]);
        assert_eq!(parts(&mut pipeline, peer, &gone, Family::IPV4_UNICAST), 5500_usize.div_ceil(PART));
        assert_eq!(pipeline.table_size(Family::IPV4_UNICAST), (0, 0));
    }
}

#[test]
fn routes_of_ipv6_come_in_parts_too() {
    let (mut pipeline, peer) = pipeline(|_| ());
    let one = |number: u32| [&[64, 0x20, 1, 0xd, 0xb8][..], &number.to_be_bytes()].concat();
    let nlri: Vec<u8> = (0..5000).flat_map(one).collect();
    let next_hop: std::net::Ipv6Addr = "2001:db8:ffff::1".parse().expect("an address");
    let reach = [&[0, 2, 1, 16][..], &next_hop.octets(), &[0], &nlri].concat();
    let long =
        |code: u8, value: &[u8]| [&[0x90, code][..], &(value.len() as u16).to_be_bytes(), value].concat();
    let announcement = body(&[], &[long(14, &reach), attributes(1, &[])].concat(), &[]);
    assert_eq!(parts(&mut pipeline, peer, &announcement, Family::IPV6_UNICAST), 5);
    assert_eq!(pipeline.table_size(Family::IPV6_UNICAST), (5000, 5000));
    let gone = body(&[], &long(15, &[&[0, 2, 1], &nlri[..]].concat()), &[]);
    assert_eq!(parts(&mut pipeline, peer, &gone, Family::IPV6_UNICAST), 5);
    assert_eq!(pipeline.table_size(Family::IPV6_UNICAST), (0, 0));
}

#[test]
fn what_is_wrong_with_a_long_update_is_counted_once() {
    let (mut pipeline, peer) = pipeline(|_| ());
    // An ATOMIC_AGGREGATE with an octet is left out (RFC 7606 section 7.6).
    let faulty = [attributes(1, &[]), vec![0x40, 6, 1, 0]].concat();
    let announcement = body(&[], &faulty, &octets(0..5000, None));
    assert_eq!(parts(&mut pipeline, peer, &announcement, Family::IPV4_UNICAST), 5);
    let drops = pipeline.drops(peer).expect("a peer");
    assert_eq!((drops.total(), drops.last().next().map(|dropped| dropped.routes)), (1, Some(5000)));
    assert_eq!(size(&pipeline, Family::IPV4_UNICAST), 5000);
}

//! UPDATEs as sent, read back.

use holdfast_bgp_wire::{
    Attributes, MAX_EXTENDED_LEN, MAX_LEN, Message, NextHop, Origin, UpdateEncoder,
    attribute::{code, flag, push},
    edit::AttributesBuilder,
    encode::{end_of_rib, next_hops},
    next_message,
    nlri::{self, Identified},
    update::{AsSets, Checked, PeerKind, Rules, Verdict, check, sections, sections_identified},
};
use holdfast_types::{Family, IpPrefix, Ipv4Prefix, Ipv6Prefix};
use proptest::{collection::vec, prelude::*};

const RULES: Rules = Rules { extended_next_hop: true, ..Rules::new(PeerKind::Ebgp, AsSets::Reject) };

fn attributes(next_hop: bool, communities: u32) -> Vec<u8> {
    let next_hop = next_hop.then_some([192, 0, 2, 1].into());
    let communities = (0..communities).collect();
    AttributesBuilder { next_hop, communities, ..AttributesBuilder::new(Origin::Igp) }.build()
}

fn v6_next_hop(link_local: bool) -> NextHop {
    NextHop::V6 {
        global: "2001:db8::1".parse().expect("an address"),
        link_local: link_local.then(|| "fe80::1".parse().expect("an address")),
    }
}

fn messages(mut stream: &[u8], max_len: usize) -> Vec<Message<'_>> {
    let mut messages = Vec::new();
    while let Some(message) = next_message(stream, max_len).expect("sound") {
        stream = &stream[message.wire.len()..];
        messages.push(message);
    }
    assert!(stream.is_empty());
    messages
}

/// What a receiver makes of a stream of UPDATEs.
struct Received<P> {
    announced: Vec<P>,
    withdrawn: Vec<P>,
    next_hops: Vec<NextHop>,
    attributes: Vec<Vec<u8>>,
}

fn read<P: IpPrefix>(stream: &[u8], max_len: usize) -> Received<P> {
    let mut received =
        Received { announced: vec![], withdrawn: vec![], next_hops: vec![], attributes: vec![] };
    let prefixes =
        |bytes| nlri::prefixes::<P>(bytes).map(|prefix| prefix.expect("sound")).collect::<Vec<P>>();
    for message in messages(stream, max_len) {
        let sections = sections(message.body).expect("sound");
        let mut checked = Checked::default();
        let mp = check(sections.attributes, !sections.nlri.is_empty(), &RULES, &mut checked);
        assert_eq!(checked.verdict, Verdict::Ok);
        // RFC 7606 section 5.1: routes of one kind in a message, and an MP attribute in front of all others.
        let mp_routes = mp.reach.is_some() || mp.unreach.is_some();
        let kinds = [
            sections.nlri.is_empty(),
            sections.withdrawn.is_empty(),
            mp.reach.is_none(),
            mp.unreach.is_none(),
        ];
        assert_eq!(kinds.into_iter().filter(|without| !without).count(), 1);
        let first = Attributes(sections.attributes).iter().next().map(|attribute| attribute.code);
        assert_eq!(mp_routes, matches!(first, Some(code::MP_REACH_NLRI | code::MP_UNREACH_NLRI)));
        received.announced.extend(prefixes(sections.nlri));
        received.withdrawn.extend(prefixes(sections.withdrawn));
        if let Some(reach) = mp.reach {
            assert_eq!(reach.family, P::UNICAST);
            received.announced.extend(prefixes(reach.nlri));
            received.next_hops.extend(reach.next_hop);
        }
        if let Some(unreach) = mp.unreach {
            assert_eq!(unreach.family, P::UNICAST);
            received.withdrawn.extend(prefixes(unreach.nlri));
        }
        received.attributes.push(checked.canonical);
    }
    received
}

fn v4() -> impl Strategy<Value = Ipv4Prefix> {
    (any::<u32>(), 0..=32u8).prop_map(|(bits, len)| Ipv4Prefix::from_bits(u128::from(bits) << 96, len))
}

fn v6() -> impl Strategy<Value = Ipv6Prefix> {
    (any::<u128>(), 0..=128u8).prop_map(|(bits, len)| Ipv6Prefix::from_bits(bits, len))
}

fn limit() -> impl Strategy<Value = usize> {
    prop_oneof![Just(MAX_LEN), Just(MAX_EXTENDED_LEN)]
}

proptest! {
    #![proptest_config(holdfast_testing::cases(64))]

    #[test]
    fn ipv4_prefixes_arrive_in_order_with_their_attributes(
        prefixes in vec(v4(), 0..3000), communities in 0..900u32, max_len in limit(),
    ) {
        let (encoder, attributes) = (UpdateEncoder::new(max_len), attributes(true, communities));
        let mut out = Vec::new();
        let count = encoder.announce(&attributes, prefixes.iter().copied(), &mut out).expect("room");
        let named: Vec<&[u8]> = next_hops(&out).map(|at| &out[at..at + 4]).collect();
        prop_assert_eq!(named, vec![&[192, 0, 2, 1]; count]);
        let withdrawing = encoder.withdraw(prefixes.iter().copied(), &mut out);
        let received = read::<Ipv4Prefix>(&out, max_len);
        prop_assert_eq!(received.attributes.len(), count + withdrawing);
        prop_assert!(received.attributes[..count].iter().all(|received| *received == attributes));
        prop_assert!(received.attributes[count..].iter().all(Vec::is_empty));
        prop_assert_eq!((received.announced, received.withdrawn), (prefixes.clone(), prefixes));
    }

    #[test]
    fn ipv6_prefixes_arrive_with_their_next_hop(
        prefixes in vec(v6(), 0..1500), communities in 0..900u32, max_len in limit(), link_local: bool,
    ) {
        let (encoder, attributes) = (UpdateEncoder::new(max_len), attributes(false, communities));
        let next_hop = v6_next_hop(link_local);
        let mut out = Vec::new();
        let count = encoder
            .announce_mp(&attributes, next_hop, prefixes.iter().copied(), &mut out)
            .expect("room");
        let mut octets = Vec::new();
        next_hop.push(&mut octets);
        let named: Vec<&[u8]> = next_hops(&out).map(|at| &out[at..at + octets.len()]).collect();
        prop_assert_eq!(named, vec![&octets; count]);
        encoder.withdraw_mp(prefixes.iter().copied(), &mut out);
        let received = read::<Ipv6Prefix>(&out, max_len);
        prop_assert_eq!(received.next_hops, vec![next_hop; count]);
        prop_assert!(received.attributes[..count].iter().all(|received| *received == attributes));
        prop_assert_eq!((received.announced, received.withdrawn), (prefixes.clone(), prefixes));
    }

    #[test]
    fn ipv4_prefixes_may_have_an_ipv6_next_hop(prefixes in vec(v4(), 1..2000)) {
        // RFC 8950
        let mut out = Vec::new();
        let encoder = UpdateEncoder::new(MAX_LEN);
        let next_hop = v6_next_hop(true);
        encoder
            .announce_mp(&attributes(false, 3), next_hop, prefixes.iter().copied(), &mut out)
            .expect("room");
        let received = read::<Ipv4Prefix>(&out, MAX_LEN);
        prop_assert_eq!((received.announced, received.next_hops[0]), (prefixes, next_hop));
    }
}

#[test]
fn messages_are_filled_before_the_next_one_is_begun() {
    let prefix = Ipv4Prefix::new([192, 0, 2, 0].into(), 24).expect("a prefix");
    let attributes = attributes(true, 0);
    let room = (MAX_LEN - 23 - attributes.len()) / 4;
    let encoder = UpdateEncoder::new(MAX_LEN);
    let count =
        |prefixes| encoder.announce(&attributes, std::iter::repeat_n(prefix, prefixes), &mut Vec::new());
    assert_eq!((count(0), count(1), count(room), count(room + 1)), (Ok(0), Ok(1), Ok(1), Ok(2)));
    // One withdrawn prefix of 4 octets: header, lengths, and nothing else.
    assert_eq!(encoder.withdraw(std::iter::repeat_n(prefix, (MAX_LEN - 23) / 4), &mut Vec::new()), 1);
}

#[test]
fn attributes_that_leave_no_room_are_refused_and_nothing_is_written() {
    let attributes = attributes(true, 1013);
    let prefix: Ipv4Prefix = "192.0.2.0/24".parse().expect("a prefix");
    let mut out = vec![7];
    let error = UpdateEncoder::new(MAX_LEN).announce(&attributes, [prefix], &mut out).expect_err("too long");
    assert_eq!((error.octets, error.max_len, &out), (attributes.len(), MAX_LEN, &vec![7]));
    assert_eq!(UpdateEncoder::new(MAX_EXTENDED_LEN).announce(&attributes, [prefix], &mut out), Ok(1));
    let error = UpdateEncoder::new(MAX_LEN)
        .announce_mp::<Ipv6Prefix>(&attributes, v6_next_hop(true), [], &mut out)
        .expect_err("too long");
    assert_eq!(error.octets, attributes.len() + 41);
}

#[test]
fn a_route_alone_fills_its_message_to_the_octet() {
    fn fills<N: nlri::Nlri>(route: N, octets: usize) {
        let encoder = UpdateEncoder::new(MAX_LEN);
        let room = MAX_LEN - 23 - 25 - octets;
        for (length, expected) in [(room, Ok(1)), (room + 1, Err(()))] {
            let (mut attributes, mut out) = (Vec::new(), Vec::new());
            push(&mut attributes, flag::OPTIONAL, 200, &vec![1; length - 4]);
            let sent = encoder.announce_alone(&attributes, v6_next_hop(false), route, &mut out);
            assert_eq!(sent.map_err(|_| ()), expected);
            assert_eq!(out.len(), if expected.is_ok() { MAX_LEN } else { 0 });
            assert!(
                encoder.announce_mp(&attributes, v6_next_hop(false), [route], &mut out).is_err(),
                "there is no room for any"
            );
        }
    }
    let (v4, v6): (Ipv4Prefix, Ipv6Prefix) =
        ("192.0.2.0/24".parse().expect("sound"), "2001:db8::/48".parse().expect("sound"));
    fills(v4, 4);
    fills(v6, 7);
    fills(Identified { identifier: 1, prefix: v4 }, 8);
}

#[test]
fn end_of_rib_is_recognised() {
    for family in Family::ALL {
        let mut out = Vec::new();
        end_of_rib(family, &mut out);
        let sections = sections(messages(&out, MAX_LEN)[0].body).expect("sound");
        assert_eq!(sections.end_of_rib(), Some(family));
    }
}

proptest! {
    #![proptest_config(holdfast_testing::cases(256))]

    #[test]
    fn prefixes_with_path_identifiers_come_back_as_they_were_sent(
        v4s in vec((any::<u32>(), v4()), 1..2000),
        v6s in vec((any::<u32>(), v6()), 1..2000),
    ) {
        let encoder = UpdateEncoder::new(MAX_LEN);
        let v4s: Vec<_> = v4s.into_iter().map(|(identifier, prefix)| Identified { identifier, prefix }).collect();
        let v6s: Vec<_> = v6s.into_iter().map(|(identifier, prefix)| Identified { identifier, prefix }).collect();
        let rules = Rules { identifiers: Family::ALL.into_iter().collect(), ..RULES };
        let mut out = Vec::new();
        encoder.announce(&attributes(true, 1), v4s.iter().copied(), &mut out).expect("it fits");
        encoder.announce_mp(&attributes(false, 1), v6_next_hop(false), v6s.iter().copied(), &mut out).expect("it fits");
        encoder.withdraw(v4s.iter().copied(), &mut out);
        encoder.withdraw_mp(v6s.iter().copied(), &mut out);
        let (mut announced, mut withdrawn) = ((vec![], vec![]), (vec![], vec![]));
        for message in messages(&out, MAX_LEN) {
            let sections = sections_identified(message.body).expect("sound");
            let mut checked = Checked::default();
            let mp = check(sections.attributes, !sections.nlri.is_empty(), &rules, &mut checked);
            prop_assert_eq!(checked.verdict, Verdict::Ok);
            nlri::read_identified(sections.nlri, &mut announced.0).expect("sound");
            nlri::read_identified(sections.withdrawn, &mut withdrawn.0).expect("sound");
            mp.reach.iter().for_each(|reach| nlri::read_identified(reach.nlri, &mut announced.1).expect("sound"));
            mp.unreach.iter().for_each(|gone| nlri::read_identified(gone.nlri, &mut withdrawn.1).expect("sound"));
        }
        prop_assert_eq!((&announced.0, &announced.1), (&v4s, &v6s));
        prop_assert_eq!((withdrawn.0, withdrawn.1), (v4s, v6s));
    }
}

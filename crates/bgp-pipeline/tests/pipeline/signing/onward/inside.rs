//! Paths inside our AS (RFC 8205 section 4.1): they go on as they came, and what starts here has none.

use holdfast_bgp_pipeline::{AggregateConfig, NextHopRule};
use holdfast_bgp_wire::edit::AttributesBuilder;

use super::*;

fn client(n: u8) -> PeerConfig {
    with(ibgp(n), PathRules { route_reflector_client: true, ..PathRules::default() })
}

#[test]
fn inside_our_as_a_path_goes_on_to_the_octet() {
    let mut router = Router::new();
    let from = router.up(1);
    let ourselves = PathRules { next_hop: NextHopRule::Ourselves, ..PathRules::default() };
    let usual = router.up_as(2, ibgp(2));
    let reflected = router.up_as(3, client(3));
    let ourselves = router.up_as(4, with(ibgp(4), ourselves));
    let received = from_peer(1, P);
    router.receive(from, &received, P);
    // What an internal peer has brought goes to clients, and outside.
    let inside = router.up_as(5, ibgp(5));
    let other = signed_path(&[plain_segment(8), plain_segment(9)], OUR_AS, prefix(OTHER), &[1]);
    router.receive(inside, &other, OTHER);
    router.settle();
    for peer in [usual, reflected, ourselves] {
        assert_eq!(router.path(peer, P), Some(received.clone()));
    }
    assert_eq!(router.held(ourselves, P).next_hop, std::net::IpAddr::from([10, 0, 0, 1]));
    assert_eq!(router.path(reflected, OTHER), Some(other));
    assert!(attribute(router.held(reflected, OTHER), code::ORIGINATOR_ID).is_some());
    assert!(!router.has(usual, OTHER));
    assert_eq!(router.segments(from, OTHER), [(1, 0, OUR_AS.0), (1, 0, 9), (1, 0, 8)]);
    assert!(router.has_good(from, OTHER));
    assert_eq!(router.toy.keys, [(OUR_AS.0, 1)], "nothing was signed inside");
}

#[test]
fn where_bgpsec_is_on_one_side_only_the_as_path_goes_on() {
    let mut router = Router::new();
    let (from, inside) = (router.up(1), router.up_as(2, ibgp(2)));
    let plain = router.up_with(ibgp(3), facts(3));
    router.receive(from, &from_peer(1, P), P);
    router.settle();
    assert_eq!((router.held(plain, P).path(), router.path(plain, P)), ("65101 7".into(), None));
    // What comes back from there without signatures has none outside.
    let attributes = AttributesBuilder {
        as_path: vec![Asn(8), Asn(9)],
        next_hop: Some([192, 0, 2, 3].into()),
        local_pref: Some(100),
        ..AttributesBuilder::new(Origin::Igp)
    };
    router.take(plain, &announcement(&attributes.build(), &[prefix(OTHER)]));
    router.settle();
    assert_eq!((router.held(from, OTHER).path(), router.path(from, OTHER)), ("65000 8 9".into(), None));
    assert!(!router.has(inside, OTHER));
    assert_eq!(router.toy.made, 0);
}

#[test]
fn neither_path_is_a_route_of_our_as_from_inside_and_none_from_outside() {
    let mut router = Router::new();
    let (from, inside) = (router.up(1), router.up_as(2, ibgp(2)));
    let (to, client) = (router.up(3), router.up_as(4, client(4)));
    router.receive_by(inside, None, None, P);
    router.settle();
    assert_eq!((router.segments(to, P), router.has_good(to, P)), (vec![(1, 0, OUR_AS.0)], true));
    assert_eq!(router.held(client, P).path(), "");
    // From outside it is no route, and what was there before is gone.
    router.receive(from, &from_peer(1, OTHER), OTHER);
    router.settle();
    assert!(router.has(to, OTHER));
    router.receive_by(from, None, None, OTHER);
    router.settle();
    assert!(!router.has(to, OTHER));
    // Of ours those inside are told neither of the two.
    router.pipeline.originate(prefix(OTHER), &OriginateAttributes::default());
    let bodies = updates(&mut router, client);
    let [body] = &bodies[..] else { panic!("{} messages", bodies.len()) };
    let (codes, ..) = anatomy(body);
    assert!(codes.contains(&code::LOCAL_PREF) && codes.contains(&code::ORIGIN), "{codes:?}");
    assert!(![code::AS_PATH, code::BGPSEC_PATH].iter().any(|code| codes.contains(code)), "{codes:?}");
}

/// The body of an UPDATE with one route and an empty AS_PATH, from inside our AS.
fn with_empty_path(n: u8) -> Vec<u8> {
    let attributes = AttributesBuilder {
        next_hop: Some([192, 0, 2, n].into()),
        local_pref: Some(100),
        ..AttributesBuilder::new(Origin::Igp)
    };
    announcement(&attributes.build(), &[prefix(P)])
}

#[test]
fn an_empty_as_path_is_unsigned_at_every_hop() {
    let mut first = Router::new();
    let plain = first.up_with(ibgp(2), facts(2));
    let (to, inside) = (first.up(1), first.up_as(4, client(4)));
    first.settle();
    first.take(plain, &with_empty_path(2));
    let bodies = updates(&mut first, inside);
    let [body] = &bodies[..] else { panic!("{} messages", bodies.len()) };
    let (codes, ..) = anatomy(body);
    assert!(codes.contains(&code::AS_PATH) && !codes.contains(&code::BGPSEC_PATH), "{codes:?}");
    first.settle();
    assert_eq!((first.held(to, P).path(), first.path(to, P)), ("65000".into(), None));
    // The next router has that from a peer that speaks BGPsec with it.
    let router_id = holdfast_types::RouterId::new(0x0a00_0909).expect("not zero");
    let mut next = Router::of(SpeakerConfig { router_id, cluster_id: router_id.bits(), ..always() });
    let (from, to, client) = (next.up_as(2, ibgp(2)), next.up(1), next.up_as(4, client(4)));
    next.settle();
    next.take(from, body);
    let bodies = updates(&mut next, client);
    let [passed_on] = &bodies[..] else { panic!("{} messages", bodies.len()) };
    let (codes, ..) = anatomy(passed_on);
    assert!(codes.contains(&code::AS_PATH) && !codes.contains(&code::BGPSEC_PATH), "{codes:?}");
    next.settle();
    assert_eq!((next.held(to, P).path(), next.path(to, P)), ("65000".into(), None));
    assert_eq!((first.toy.made, next.toy.made), (0, 0));
    // The same attributes without an AS_PATH are of a route that starts in our AS, and the other way round.
    for is_inside in [true, false, true] {
        match is_inside {
            true => next.receive_by(from, None, None, P),
            false => next.take(from, body),
        }
        next.settle();
        assert_eq!(next.path(to, P).is_some(), is_inside);
    }
}

#[test]
fn nobody_may_send_how_it_is_noted_that_a_route_starts_in_our_as() {
    let mut router = Router::new();
    let (inside, to) = (router.up_as(2, ibgp(2)), router.up(1));
    router.receive_by(inside, None, None, P);
    router.settle();
    assert!(router.has_good(to, P));
    // The octets of the set that is there.
    let mut attributes =
        AttributesBuilder { local_pref: Some(100), ..AttributesBuilder::new(Origin::Igp) }.build();
    push(&mut attributes, flag::OPTIONAL, code::BGPSEC_PATH, &[]);
    let mut out = Vec::new();
    let next_hop = NextHop::V4([192, 0, 2, 9].into());
    let Prefix::V4(route) = prefix(P) else { panic!("of IPv4") };
    let sent = UpdateEncoder::new(MAX_EXTENDED_LEN).announce_mp(&attributes, next_hop, [route], &mut out);
    assert_eq!(sent, Ok(1));
    router.take(inside, &out[HEADER_LEN..]);
    router.settle();
    assert!(!router.has(to, P), "both paths: it counts as withdrawn");
}

#[test]
fn an_aggregate_is_unsigned_also_behind_the_next_router_of_our_as() {
    let mut first = Router::new();
    let (from, inside) = (first.up(1), first.up_as(4, ibgp(4)));
    let prefix = prefix("203.0.112.0/20");
    let aggregate = AggregateConfig { prefix, summary_only: false, contributors: None, policy: None };
    first.pipeline.set_aggregates(&[aggregate]);
    first.receive(from, &from_peer(1, P), P);
    first.settle();
    let held = first.held(inside, "203.0.112.0/20");
    assert_eq!((held.path(), attribute(held, code::BGPSEC_PATH)), (String::new(), None));
}

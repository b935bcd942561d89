//! Paths inside our AS (RFC 8205 section 4.1): they go on as they came, and what starts here has none.

use holdfast_bgp_pipeline::NextHopRule;

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
    let attributes = holdfast_bgp_wire::edit::AttributesBuilder {
        as_path: vec![Asn(8), Asn(9)],
        next_hop: Some([192, 0, 2, 3].into()),
        local_pref: Some(100),
        ..holdfast_bgp_wire::edit::AttributesBuilder::new(Origin::Igp)
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

//! Paths that fit no message (RFC 8205 section 4.1).

use holdfast_bgp_pipeline::{Event, NeighborView, PathState, Withheld};

use super::*;

/// A path of peer 1 with a signature of so many octets.
fn long_path(octets: usize) -> Vec<u8> {
    let signature = vec![1; octets];
    let block = SignatureBlock { suite: 1, ski: ski(asn(1)), signature: &signature };
    extend(None, plain_segment(asn(1).0), &[block]).expect("fits")
}

fn up(router: &mut Router, n: u8, max_message_len: usize) -> PeerIndex {
    let facts = SessionFacts { max_message_len, ..secured(n, &ebgp(n), None) };
    let peer = router.up_with(ebgp(n), facts);
    assert_eq!(updates(router, peer).len(), 2, "an end of each family");
    peer
}

/// How long the one message is in which a peer is told of a route; `None`: it is withdrawn.
fn message(router: &mut Router, to: PeerIndex) -> Option<usize> {
    assert_eq!(updates(router, to).len(), 0);
    assert_eq!(router.toy.answer(&mut router.pipeline), 1);
    let bodies = updates(router, to);
    let [body] = &bodies[..] else { panic!("{} messages", bodies.len()) };
    let (codes, withdrawn, _) = anatomy(body);
    assert!(!codes.contains(&code::AS_PATH), "{codes:?}");
    (withdrawn == 0).then_some(HEADER_LEN + body.len())
}

#[test]
fn a_path_that_fits_no_message_is_withdrawn_and_never_stripped() {
    for most in [MAX_LEN, MAX_EXTENDED_LEN] {
        let mut router = Router::new();
        let from = router.up(1);
        let to = up(&mut router, 2, most);
        router.receive(from, &long_path(3000), P);
        let around = message(&mut router, to).expect("it fits") - 3000;
        for (octets, expected, too_long) in [
            (most - around, Some(most), 0),
            (most - around + 1, None, 1),
            (most - around - 1, Some(most - 1), 1),
        ] {
            router.receive(from, &long_path(octets), P);
            assert_eq!(message(&mut router, to), expected);
            let announced = usize::from(expected.is_some());
            assert_eq!((router.pipeline.too_long(), router.announced(to)), (too_long, announced));
        }
    }
}

/// Which routes a peer is told of, by what an operator may ask: of the prefix, of the peer, and by the counter.
fn shown(router: &mut Router, to: PeerIndex) -> (bool, Vec<PathState>, usize) {
    let is_sent = router.pipeline.sent_to(prefix(P)).iter().any(|sent| sent.peer == to);
    let withheld = NeighborView::Withheld;
    let session = router.pipeline.shown_session(to, withheld).expect("it is up");
    let page = router.pipeline.neighbor_routes(session, withheld, Family::IPV4_UNICAST, None, 9);
    let states = page.expect("it is up").routes.into_iter().map(|(_, view)| view.state);
    (is_sent, states.collect(), router.announced(to))
}

#[test]
fn a_path_that_fits_no_message_is_shown_as_withheld_for_that() {
    let mut router = Router::new();
    let from = router.up(1);
    let (to, other) = (up(&mut router, 2, MAX_LEN), up(&mut router, 3, MAX_LEN));
    let told = |router: &mut Router| {
        let events = std::iter::from_fn(|| router.pipeline.poll_event());
        events.filter(|event| matches!(event, Event::RouteTooLong { .. })).collect::<Vec<_>>()
    };
    let withheld = || (false, vec![PathState::Withheld(Withheld::TooLong)], 0);
    router.receive(from, &long_path(4000), P);
    router.settle();
    assert!(!router.has(to, P) && !router.has(other, P));
    assert_eq!((shown(&mut router, to), shown(&mut router, other)), (withheld(), withheld()));
    let mut expected: Vec<_> =
        [to, other].into_iter().map(|peer| Event::RouteTooLong { peer, prefix: prefix(P) }).collect();
    assert_eq!(told(&mut router), std::mem::take(&mut expected));
    // Another that is too long, and everything once more.
    router.receive(from, &long_path(4001), P);
    router.settle();
    router.pipeline.route_refresh(to, Family::IPV4_UNICAST);
    router.settle();
    assert_eq!((shown(&mut router, to), told(&mut router)), (withheld(), expected), "said once");
    // One that fits takes its place, and goes.
    router.receive(from, &long_path(100), P);
    router.settle();
    assert!(router.has(to, P));
    assert_eq!(shown(&mut router, to), (true, vec![], 1));
    router.receive(from, &long_path(4000), P);
    router.settle();
    assert_eq!((router.has(to, P), shown(&mut router, to)), (false, withheld()));
    router.withdraw(from, P);
    router.settle();
    assert_eq!((shown(&mut router, to), router.announced(other)), ((false, vec![], 0), 0));
}

#[test]
fn one_octet_more_than_an_attribute_has_room_for_is_too_long_as_well() {
    let mut router = Router::new();
    let from = router.up(1);
    let to = up(&mut router, 2, MAX_EXTENDED_LEN);
    // It is taken in, and has no room for another segment.
    router.receive(from, &long_path(65_450), P);
    assert_eq!(message(&mut router, to), None);
    assert_eq!(router.pipeline.too_long(), 1);
}

#[test]
fn a_peer_without_extended_messages_is_not_told_what_one_with_them_is() {
    let mut router = Router::new();
    let from = router.up(1);
    let (short, long) = (up(&mut router, 2, MAX_LEN), up(&mut router, 3, MAX_EXTENDED_LEN));
    for (octets, fits) in [(3000, true), (4000, false), (3000, true)] {
        router.receive(from, &long_path(octets), P);
        let both = [short, long].map(|peer| updates(&mut router, peer).len());
        assert_eq!((both, router.toy.answer(&mut router.pipeline)), ([0, 0], 2));
        let [told_short, told_long] = [short, long].map(|peer| updates(&mut router, peer));
        assert_eq!((anatomy(&told_short[0]).1 == 0, anatomy(&told_long[0]).1), (fits, 0));
    }
}

//! How each path goes on, to each kind of peer.

mod inside;
mod lengths;
mod numbers;
mod unsigned;

use super::*;

/// What a peer is sent at once: the body of each UPDATE, as it is on the wire.
fn updates(router: &mut Router, peer: PeerIndex) -> Vec<Vec<u8>> {
    let mut bodies = Vec::new();
    while router.pipeline.work(100) || router.pipeline.pending(peer) {
        let Some(messages) = router.pipeline.pull(peer) else { continue };
        let mut octets: &[u8] = &messages;
        while !octets.is_empty() {
            let message = next_message(octets, MAX_EXTENDED_LEN).expect("sound").expect("whole");
            bodies.push(message.body.to_vec());
            octets = &octets[message.wire.len()..];
        }
    }
    bodies
}

/// The type codes of the attributes in an UPDATE, and how long its fields for routes of IPv4 are.
fn anatomy(body: &[u8]) -> (Vec<u8>, usize, usize) {
    let sections = update::sections(body).expect("readable");
    let codes = Attributes(sections.attributes).iter().map(|attribute| attribute.code).collect();
    (codes, sections.withdrawn.len(), sections.nlri.len())
}

/// The signatures of a block with their keys.
type Signatures = Vec<(Ski, Vec<u8>)>;

/// All signatures of a path, by suite.
fn signatures(path: &[u8]) -> Vec<(u8, Signatures)> {
    let path = Path::parse(path).expect("sound");
    let all = |block: holdfast_bgpsec_wire::Block<'_>| {
        block.signatures().map(|signature| (signature.ski, signature.octets.to_vec())).collect()
    };
    path.blocks().map(|block| (block.suite, all(block))).collect()
}

#[test]
fn nothing_is_signed_where_the_session_has_not_agreed_on_it() {
    const V6: &str = "2001:db8:7::/48";
    let mut router = Router::new();
    let (from, plain) = (router.up(1), router.plain(2));
    let facts = secured(3, &ebgp(3), None);
    let v4_alone = SignedFor { families: [Family::IPV4_UNICAST].into_iter().collect(), target: asn(3) };
    let to = router.up_with(ebgp(3), SessionFacts { bgpsec_sent: Some(v4_alone), ..facts });
    for route in [P, V6] {
        router.receive(from, &from_peer(1, route), route);
    }
    router.settle();
    for (peer, route) in [(plain, P), (plain, V6), (to, V6)] {
        let held = router.held(peer, route);
        assert_eq!((held.path(), attribute(held, code::BGPSEC_PATH)), ("65000 65101 7".into(), None));
    }
    assert!(router.has_good(to, P));
    assert_eq!(router.toy.made, 1, "nothing else was asked");
}

#[test]
fn each_prefix_has_its_own_update_in_mp_reach_nlri_and_no_as_path() {
    const THIRD: &str = "203.0.114.0/24";
    let mut router = Router::new();
    let (from, to) = (router.up(1), router.up(2));
    router.receive(from, &from_peer(1, THIRD), THIRD);
    router.settle();
    // The same set: what was signed for one prefix does not cover another, which is not ours to say.
    let path = from_peer(1, P);
    for route in [P, OTHER, "2001:db8:7::/48"] {
        router.receive(from, &path, route);
    }
    router.withdraw(from, THIRD);
    let at_once = updates(&mut router, to);
    assert_eq!(at_once.iter().map(|body| anatomy(body)).collect::<Vec<_>>(), [(vec![], 4, 0)], "THIRD goes");
    assert_eq!(router.toy.answer(&mut router.pipeline), 3);
    let (reach, secure) = (code::MP_REACH_NLRI, code::BGPSEC_PATH);
    let bodies = updates(&mut router, to);
    for body in &bodies {
        let (codes, withdrawn, nlri) = anatomy(body);
        assert_eq!((codes.len(), withdrawn, nlri), (3, 0, 0), "{codes:?}");
        assert!([code::ORIGIN, reach, secure].iter().all(|code| codes.contains(code)), "{codes:?}");
    }
    assert_eq!(bodies.len(), 3);
}

#[test]
fn each_as_has_its_own_signature_and_all_peers_of_one_as_share_it() {
    let mut router = Router::new();
    let from = router.up(1);
    let one = router.up(2);
    // Of the same AS, on another link.
    let next_hop_v4 = Some([10, 0, 1, 1].into());
    let facts = SessionFacts { next_hop_v4, ..secured(4, &ebgp(2), None) };
    let two = router.up_with(PeerConfig { name: "other".into(), ..ebgp(2) }, facts);
    let other = router.up(3);
    for (route, made) in [(P, 2), (OTHER, 4)] {
        router.receive(from, &from_peer(1, route), route);
        router.settle();
        assert_eq!(router.toy.made, made);
        assert_eq!(router.path(one, route), router.path(two, route));
        assert_ne!(router.path(one, route), router.path(other, route));
        assert!([one, two, other].iter().all(|peer| router.has_good(*peer, route)));
        assert_ne!(router.held(one, route).next_hop, router.held(two, route).next_hop);
    }
}

#[test]
fn without_a_key_the_as_path_goes_out_and_with_one_the_signature() {
    let mut router = Router::new();
    let (from, to) = (router.up(1), router.up(2));
    router.pipeline.set_signers([]);
    router.receive(from, &from_peer(1, P), P);
    router.pipeline.originate(prefix(OTHER), &OriginateAttributes::default());
    let path = |router: &Router, route| (router.held(to, route).path(), router.path(to, route).is_some());
    let plain = [("65000 65101 7".into(), false), ("65000".into(), false)];
    let signed = [("65000 65101 7".into(), true), ("65000".into(), true)];
    for (keys, expected) in [(vec![], &plain), (vec![signer(OUR_AS)], &signed), (vec![], &plain)] {
        router.pipeline.set_signers(keys);
        router.settle();
        assert_eq!([P, OTHER].map(|route| path(&router, route)), *expected);
    }
    // A key of another AS is none.
    router.pipeline.set_signers([signer(asn(2))]);
    router.settle();
    assert_eq!([P, OTHER].map(|route| path(&router, route)), plain);
}

#[test]
fn both_blocks_go_on_or_the_one_that_we_can_sign() {
    let of = |suite| Signer { suite, ..signer(OUR_AS) };
    let path = || {
        let both = [plain_segment(7), plain_segment(asn(1).0)];
        signed_path(&both, OUR_AS, prefix(P), &[1, 2])
    };
    // The second block has a bad signature.
    let mut damaged = path();
    *damaged.last_mut().expect("octets") ^= 1;
    for (keys, suites) in [(vec![of(1), of(2)], vec![1, 2]), (vec![of(1)], vec![1]), (vec![of(2)], vec![2])] {
        for received in [path(), damaged.clone()] {
            let mut router = Router::new();
            router.pipeline.set_signers(keys.clone());
            let (from, to) = (router.up(1), router.up(2));
            router.receive(from, &received, P);
            router.settle();
            let sent = router.path(to, P).expect("signed");
            let blocks = signatures(&sent);
            assert_eq!(blocks.iter().map(|(suite, _)| *suite).collect::<Vec<_>>(), suites);
            let before = signatures(&received);
            for (suite, all) in &blocks {
                let (_, older) = before.iter().find(|(other, _)| other == suite).expect("it was there");
                assert_eq!((all.len(), &all[1..]), (3, &older[..]), "as they were received");
            }
            let keys: Vec<_> = suites.iter().map(|suite| (OUR_AS.0, *suite)).collect();
            assert_eq!(
                (router.has_good(to, P), router.toy.keys),
                (received == path() || suites == [1], keys)
            );
        }
    }
}

#[test]
fn a_route_of_ours_is_signed_in_each_suite_that_there_is_a_key_of() {
    let mut router = Router::new();
    router.pipeline.set_signers([1, 2].map(|suite| Signer { suite, ..signer(OUR_AS) }));
    let to = router.up(2);
    router.pipeline.originate(prefix(P), &OriginateAttributes::default());
    router.settle();
    let path = router.path(to, P).expect("signed");
    let path = Path::parse(&path).expect("sound");
    assert_eq!(path.blocks().map(|block| block.suite).collect::<Vec<_>>(), [1, 2]);
    assert!(router.has_good(to, P));
}

#[test]
fn a_path_that_is_not_valid_is_signed_all_the_same() {
    let mut router = Router::new();
    let (from, to) = (router.up(1), router.up(2));
    // Signed for somebody else.
    let received = signed_path(&[plain_segment(7), plain_segment(asn(1).0)], asn(9), prefix(P), &[1]);
    router.receive(from, &received, P);
    router.settle();
    let sent = router.path(to, P).expect("signed");
    assert_eq!(segments(&sent)[1..], segments(&received));
    assert_eq!(signatures(&sent)[0].1[1..], signatures(&received)[0].1);
    let sent = Path::parse(&sent).expect("sound");
    let signed = Signed::new(&sent, sent.blocks().next().expect("one"), asn(2), &Nlri::unicast(prefix(P)));
    let ours = sent.blocks().next().and_then(|block| block.signatures().next()).expect("ours");
    assert_eq!(ours.octets[..8], sum(signed.of(0)));
}

#[test]
fn the_target_is_the_as_of_the_peers_open() {
    let mut router = Router::new();
    let from = router.up(1);
    // A listen range takes several, and the peer has a number of its own for us.
    let facts = secured(2, &ebgp(2), None);
    let sent = SignedFor { families: all_families(), target: Asn(64777) };
    let to = router.up_with(ebgp(2), SessionFacts { bgpsec_sent: Some(sent), ..facts.clone() });
    router.receive(from, &from_peer(1, P), P);
    router.settle();
    let good_for = |router: &Router, target| is_good(&router.path(to, P).expect("signed"), target, prefix(P));
    assert!(good_for(&router, Asn(64777)) && !good_for(&router, asn(2)));
    // Its next session says another one.
    let sent = SignedFor { families: all_families(), target: Asn(64778) };
    router.session(to, SessionFacts { bgpsec_sent: Some(sent), ..facts });
    router.settle();
    assert!(good_for(&router, Asn(64778)) && !good_for(&router, Asn(64777)));
}

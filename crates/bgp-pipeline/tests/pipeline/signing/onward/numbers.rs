//! What our segments say: confederations (RFC 8205 section 4.3), numbers that an AS has besides (RFC 8206), route servers, and
//! prepending.

use holdfast_bgp_pipeline::LocalAsnMode;
use holdfast_policy::{Action, Prepend, PrependAs};

use super::*;

const CONFEDERATION: Asn = Asn(64999);
const OLD: Asn = Asn(64900);
const FLAG: u8 = CONFED_SEGMENT;

/// We are 65000 in the confederation 64999.
fn confederation() -> Router {
    let mut router = Router::of(SpeakerConfig { confederation: Some(CONFEDERATION), ..always() });
    router.pipeline.set_signers([signer(OUR_AS), signer(CONFEDERATION)]);
    router
}

fn member(n: u8, asn: u32) -> PeerConfig {
    PeerConfig { kind: PeerKind::ConfedEbgp, asn: Asn(asn), ..ibgp(n) }
}

fn inside(pcount: u8, asn: u32) -> Segment {
    Segment { pcount, flags: CONFED_SEGMENT, asn: Asn(asn) }
}

#[test]
fn a_segment_of_ours_has_the_flags_that_its_session_asks_for() {
    let mut router = confederation();
    let (from, to) = (router.up(1), router.up(2));
    let member = router.up_as(3, member(3, 65001));
    // Flags that we do not know stay in the segment that has them.
    let strange = Segment { flags: 0x21, ..plain_segment(asn(1).0) };
    router.receive(from, &signed_path(&[plain_segment(7), strange], CONFEDERATION, prefix(P), &[1]), P);
    router.settle();
    let behind = [(1, 0x21, asn(1).0), (1, 0, 7)];
    assert_eq!(router.segments(to, P), [&[(1, 0, 64999)][..], &behind].concat());
    assert_eq!(router.segments(member, P), [&[(1, 0x80, 65000), (0, 0x80, 64999)][..], &behind].concat());
}

#[test]
fn a_confederation_is_entered_crossed_and_left_by_its_rules() {
    let mut router = confederation();
    let (from, to, ours) = (router.up(1), router.up(2), router.up_as(3, ibgp(3)));
    let (other, third) = (router.up_as(4, member(4, 65001)), router.up_as(5, member(5, 65002)));
    // It is signed for the confederation, which says to whom it goes inside.
    let behind = [plain_segment(7), plain_segment(asn(1).0)];
    router.receive(from, &signed_path(&behind, CONFEDERATION, prefix(P), &[1]), P);
    router.settle();
    let rest = [(1, 0, asn(1).0), (1, 0, 7)];
    assert_eq!(router.segments(ours, P), [&[(0, FLAG, 64999)][..], &rest].concat());
    assert_eq!(router.segments(other, P), [&[(1, FLAG, 65000), (0, FLAG, 64999)][..], &rest].concat());
    assert_eq!(router.held(other, P).path(), "(65000) 65101 7");
    assert_eq!(router.segments(to, P), [&[(1, 0, 64999)][..], &rest].concat());
    assert!([ours, other, third, to].iter().all(|peer| router.has_good(*peer, P)));
    // It has come in elsewhere, and crosses us.
    let behind = [plain_segment(7), plain_segment(8), inside(0, 64999), inside(1, 65001)];
    router.receive(other, &signed_path(&behind, OUR_AS, prefix(OTHER), &[1]), OTHER);
    router.settle();
    let (rest, entered) = ([(1, 0, 8), (1, 0, 7)], [(1, FLAG, 65001), (0, FLAG, 64999)]);
    assert_eq!(router.segments(ours, OTHER), [&entered[..], &rest].concat());
    assert_eq!(router.segments(third, OTHER), [&[(1, FLAG, 65000)][..], &entered, &rest].concat());
    let left = [&[(1, 0, 64999)][..], &rest].concat();
    assert_eq!(router.segments(to, OTHER), left, "members are not named outside");
    assert!([ours, third, to].iter().all(|peer| router.has_good(*peer, OTHER)));
}

#[test]
fn what_came_in_at_another_router_of_our_member_leaves_as_of_the_confederation() {
    let mut router = confederation();
    let (to, ours, other) = (router.up(2), router.up_as(3, ibgp(3)), router.up_as(4, member(4, 65001)));
    let behind = [plain_segment(7), plain_segment(8)];
    // One says where it came in, and one does not.
    let said = [&behind[..], &[inside(0, 64999)]].concat();
    router.receive(ours, &signed_path(&said, OUR_AS, prefix(P), &[1]), P);
    router.receive(ours, &signed_path(&behind, CONFEDERATION, prefix(OTHER), &[1]), OTHER);
    router.settle();
    for route in [P, OTHER] {
        assert_eq!(router.segments(to, route), [(1, 0, 64999), (1, 0, 8), (1, 0, 7)]);
        assert!(router.has_good(to, route));
    }
    assert_eq!(router.segments(other, P)[..2], [(1, FLAG, 65000), (0, FLAG, 64999)]);
    assert!(router.has_good(other, P));
}

#[test]
fn a_route_that_starts_in_a_confederation_is_of_a_member_inside_and_of_the_confederation_outside() {
    let mut router = confederation();
    let to = router.up(2);
    let (other, third) = (router.up_as(4, member(4, 65001)), router.up_as(5, member(5, 65002)));
    router.pipeline.originate(prefix(P), &OriginateAttributes::default());
    router.receive(other, &signed_path(&[inside(1, 65001)], OUR_AS, prefix(OTHER), &[1]), OTHER);
    router.settle();
    assert_eq!(router.segments(to, P), [(1, 0, 64999)]);
    assert_eq!(router.segments(other, P), [(1, FLAG, 65000)]);
    assert_eq!(router.segments(to, OTHER), [(1, 0, 64999)]);
    assert_eq!(router.segments(third, OTHER), [(1, FLAG, 65000), (1, FLAG, 65001)]);
    assert!(router.has_good(to, P) && router.has_good(other, P));
    assert!(router.has_good(to, OTHER) && router.has_good(third, OTHER));
}

fn migrating(n: u8, local_asn_mode: LocalAsnMode) -> PeerConfig {
    with(ebgp(n), PathRules { local_asn: Some(OLD), local_asn_mode, ..PathRules::default() })
}

/// RFC 8206 section 5.4.
#[test]
fn an_as_that_migrates_signs_for_both_numbers() {
    use LocalAsnMode::{NoPrepend, Prepend, Replace};
    // How often each number counts: in paths from the neighbour that knows the old one, and in paths to it.
    for (mode, from_old, [to_old, to_new]) in
        [(Prepend, 1, [1, 1]), (NoPrepend, 0, [1, 1]), (Replace, 0, [1, 0])]
    {
        let mut router = Router::new();
        router.pipeline.set_signers([signer(OUR_AS), signer(OLD)]);
        let (old, new) = (router.up_as(1, migrating(1, mode)), router.up(2));
        let ours = router.up_as(3, ibgp(3));
        let path = |n: u8, target, route| {
            signed_path(&[plain_segment(7), plain_segment(asn(n).0)], target, prefix(route), &[1])
        };
        router.receive(old, &path(1, OLD, P), P);
        router.receive(new, &path(2, OUR_AS, OTHER), OTHER);
        router.settle();
        let (behind, entered) = ([(1, 0, asn(1).0), (1, 0, 7)], (from_old, 0, OLD.0));
        assert_eq!(router.segments(new, P), [&[(1, 0, OUR_AS.0), entered][..], &behind].concat());
        // Inside, others of our AS have it for the real number.
        assert_eq!(router.segments(ours, P), [&[entered][..], &behind].concat());
        let left = [(to_old, 0, OLD.0), (to_new, 0, OUR_AS.0), (1, 0, asn(2).0), (1, 0, 7)];
        assert_eq!(router.segments(old, OTHER), left);
        assert!(
            router.has_good(new, P) && router.has_good(ours, P) && router.has_good(old, OTHER),
            "{mode:?}"
        );
        assert_eq!(router.path(ours, OTHER), Some(path(2, OUR_AS, OTHER)), "nothing is to be said");
    }
}

#[test]
fn a_segment_is_signed_with_a_key_of_the_as_that_it_names() {
    // The toy looks whose key each job names.
    let mut router = Router::new();
    router.pipeline.set_signers([signer(OUR_AS), signer(OLD)]);
    let (from, to) = (router.up(1), router.up_as(2, migrating(2, LocalAsnMode::Prepend)));
    router.receive(from, &from_peer(1, P), P);
    router.settle();
    assert!(router.has_good(to, P));
    assert_eq!(router.toy.keys, [(OUR_AS.0, 1), (OLD.0, 1)], "the innermost first: the next one covers it");
    // A key of one of them is not enough.
    for keys in [[signer(OUR_AS)], [signer(OLD)]] {
        router.pipeline.set_signers(keys);
        router.settle();
        assert_eq!((router.path(to, P), router.held(to, P).path()), (None, "64900 65000 65101 7".into()));
    }

    let mut router = confederation();
    let (from, other) = (router.up(1), router.up_as(4, member(4, 65001)));
    router.receive(from, &signed_path(&[plain_segment(asn(1).0)], CONFEDERATION, prefix(P), &[1]), P);
    router.settle();
    assert!(router.has_good(other, P));
    assert_eq!(router.toy.keys, [(64999, 1), (65000, 1)]);
}

#[test]
fn a_route_server_signs_and_does_not_count() {
    for own_view in [false, true] {
        let rules = PathRules { route_server_client: true, own_view, ..PathRules::default() };
        let mut router = Router::new();
        let [from, to] = [1, 2].map(|n| router.up_as(n, with(ebgp(n), rules.clone())));
        router.receive(from, &from_peer(1, P), P);
        router.settle();
        assert_eq!(router.segments(to, P), [(0, 0, OUR_AS.0), (1, 0, asn(1).0), (1, 0, 7)]);
        assert_eq!((router.held(to, P).path(), router.has_good(to, P)), ("65101 7".into(), true));
    }
}

fn prepending(count: u8) -> Option<holdfast_policy::Program> {
    let prepend = Action::Prepend(Prepend { asn: PrependAs::Own, count });
    Some(changing(if count == 0 { vec![] } else { vec![prepend] }))
}

#[test]
fn our_prepends_are_a_pcount() {
    // How often at import and at export, and what our segment says.
    let rows = [(2, 0, Some(3)), (0, 3, Some(4)), (2, 3, Some(6)), (0, 254, Some(255)), (0, 255, None)];
    for (import, export, pcount) in rows.into_iter().chain([(128, 126, Some(255)), (128, 127, None)]) {
        let mut router = Router::new();
        let from = router.up_as(1, PeerConfig { import: prepending(import), ..ebgp(1) });
        let to = router.up_as(2, PeerConfig { export: prepending(export), ..ebgp(2) });
        router.receive(from, &from_peer(1, P), P);
        router.settle();
        let times = usize::from(import) + usize::from(export) + 1;
        assert_eq!(router.held(to, P).path(), format!("{}65101 7", "65000 ".repeat(times)));
        let found = router.path(to, P).map(|path| segments(&path));
        let expected = pcount.map(|pcount| vec![(pcount, 0, OUR_AS.0), (1, 0, asn(1).0), (1, 0, 7)]);
        assert_eq!(found, expected, "{import} and {export}");
        assert!(pcount.is_none() || router.has_good(to, P));
    }
}

#[test]
fn our_own_routes_are_prepended_as_well() {
    let mut router = Router::new();
    let to = router.up_as(2, PeerConfig { export: prepending(2), ..ebgp(2) });
    router.pipeline.originate(prefix(P), &OriginateAttributes::default());
    router.settle();
    assert_eq!((router.segments(to, P), router.has_good(to, P)), (vec![(3, 0, OUR_AS.0)], true));
}

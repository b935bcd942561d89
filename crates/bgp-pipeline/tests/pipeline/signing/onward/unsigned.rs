//! What goes on with an AS_PATH: what came so, what was changed here, and what was made of others. And what starts here.

use holdfast_bgp_pipeline::{AggregateConfig, ForeignRoute, PrivateAsnRule};
use holdfast_policy::{Action, Prepend, PrependAs, Program, Protocol};

use super::*;

/// The AS_PATH that a peer has, where there are no signatures.
fn plain(router: &Router, peer: PeerIndex, route: &str) -> String {
    assert_eq!(router.path(peer, route), None);
    router.held(peer, route).path()
}

#[test]
fn what_came_unsigned_goes_on_unsigned() {
    let mut router = Router::new();
    let (without, signing, to) = (router.plain(1), router.up(2), router.up(3));
    router.take(without, &announcement_by(1, &[Asn(7), asn(1)], prefix(P)));
    // One that has agreed on BGPsec may still send a route without.
    router.take(signing, &announcement_by(2, &[Asn(7), asn(2)], prefix(OTHER)));
    router.settle();
    assert_eq!([P, OTHER].map(|route| plain(&router, to, route)), ["65000 65101 7", "65000 65102 7"]);
    assert_eq!(router.toy.made, 0);
}

#[test]
fn an_aggregate_is_not_signed() {
    let mut router = Router::new();
    let (from, to) = (router.up(1), router.up(2));
    let whole = "203.0.112.0/23";
    let prefix = prefix(whole);
    let aggregate = AggregateConfig { prefix, summary_only: false, contributors: None, policy: None };
    router.pipeline.set_aggregates(&[aggregate]);
    for route in [P, OTHER] {
        router.receive(from, &from_peer(1, route), route);
    }
    router.settle();
    assert_eq!(plain(&router, to, whole), "65000");
    assert!(router.has_good(to, P) && router.has_good(to, OTHER));
    assert_eq!(router.toy.made, 2);
}

#[test]
fn what_starts_here_is_signed_wherever_it_comes_from() {
    let mut router = Router::new();
    let rules = PathRules { default_originate: true, ..PathRules::default() };
    let to = router.up_as(2, with(ebgp(2), rules));
    router.pipeline.originate(prefix(P), &OriginateAttributes::default());
    let route = ForeignRoute { protocol: Protocol::Static, tag: 0, metric: 0, policy: Program::accept_all() };
    router.pipeline.redistribute(&[prefix(OTHER)], &route).expect("room");
    router.settle();
    for route in [P, OTHER, "0.0.0.0/0", "::/0"] {
        assert_eq!((router.segments(to, route), router.has_good(to, route)), (vec![(1, 0, OUR_AS.0)], true));
    }
    router.pipeline.withdraw_origin(prefix(P));
    router.pipeline.withdraw_redistributed(&[prefix(OTHER)]);
    router.settle();
    assert_eq!(router.sink(to).routes.len(), 2);
    assert_eq!((router.announced(to), router.sink(to).idle_withdrawals), (2, 0));
}

#[test]
fn a_path_of_unknown_suites_goes_on_unsigned() {
    let mut router = Router::new();
    let (from, to) = (router.up(1), router.up(2));
    let path = signed_path(&[plain_segment(7), plain_segment(asn(1).0)], OUR_AS, prefix(P), &[9]);
    router.receive(from, &path, P);
    router.settle();
    assert_eq!((plain(&router, to, P), router.toy.made), ("65000 65101 7".into(), 0));
}

#[test]
fn what_policy_changes_in_a_path_is_not_signed() {
    let prepend = |asn| Some(changing(vec![Action::Prepend(Prepend { asn, count: 2 })]));
    let foreign = || prepend(PrependAs::Asn(Asn(9)));
    let last = PeerConfig { import: prepend(PrependAs::Last), ..ebgp(1) };
    let rules = |paths| with(ebgp(2), paths);
    let overriding = PathRules { as_override: true, ..PathRules::default() };
    let private = |remove_private_asns| rules(PathRules { remove_private_asns, ..PathRules::default() });
    // The AS behind the peer, what is configured, and what is sent.
    let rows = [
        (7, ebgp(1), PeerConfig { export: foreign(), ..ebgp(2) }, "65000 9 9 65101 7"),
        (7, PeerConfig { import: foreign(), ..ebgp(1) }, ebgp(2), "65000 9 9 65101 7"),
        (7, last, ebgp(2), "65000 65101 65101 65101 7"),
        (asn(2).0, ebgp(1), rules(overriding), "65000 65101 65000"),
        (64512, PeerConfig { asn: Asn(3), ..ebgp(1) }, private(PrivateAsnRule::Remove), "65000 3"),
        (64512, PeerConfig { asn: Asn(3), ..ebgp(1) }, private(PrivateAsnRule::Replace), "65000 3 65000"),
    ];
    for (behind, from, to, expected) in rows {
        let mut router = Router::new();
        let path = [plain_segment(behind), plain_segment(from.asn.0)];
        let (from, to) = (router.up_as(1, from), router.up_as(2, to));
        router.receive(from, &signed_path(&path, OUR_AS, prefix(P), &[1]), P);
        router.settle();
        assert_eq!((plain(&router, to, P), router.toy.made), (expected.into(), 0));
    }
}

/// RFC 8205 section 7.5.
#[test]
fn a_route_of_a_stub_with_a_private_number_is_one_of_ours_where_that_is_removed() {
    let removing = PathRules { remove_private_asns: PrivateAsnRule::Remove, ..PathRules::default() };
    for signs in [false, true] {
        let mut router = Router::new();
        let from = router.up_as(1, PeerConfig { asn: Asn(64512), ..ebgp(1) });
        let (to, keeping) = (router.up_as(2, with(ebgp(2), removing.clone())), router.up(3));
        match signs {
            true => router.receive(from, &signed_path(&[plain_segment(64512)], OUR_AS, prefix(P), &[1]), P),
            false => router.take(from, &announcement_by(1, &[Asn(64512)], prefix(P))),
        }
        // Behind another AS it is theirs.
        router.take(from, &announcement_by(1, &[Asn(7), Asn(64512)], prefix(OTHER)));
        router.settle();
        assert_eq!(router.held(to, P).path(), "65000");
        assert_eq!((router.segments(to, P), router.has_good(to, P)), (vec![(1, 0, OUR_AS.0)], true));
        assert_eq!(router.path(keeping, P).is_some(), signs, "so it is where the number stays");
        assert_eq!(plain(&router, to, OTHER), "65000 7");
    }
}

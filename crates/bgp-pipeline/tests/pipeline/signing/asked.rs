//! Whoever asks for everything is told everything: a peer drops at the end of a refresh what was not among it.

use super::*;

/// A peer that is told, as each kind of peer is.
fn kinds() -> Vec<(&'static str, PeerConfig, SessionFacts)> {
    let signed = |n: u8, config: &PeerConfig| secured(n, config, None);
    let view = PathRules { route_server_client: true, own_view: true, ..PathRules::default() };
    let default = PathRules { default_originate: true, ..PathRules::default() };
    let of_one_family = |sent: Option<SignedFor>| {
        sent.map(|sent| SignedFor { families: [Family::IPV4_UNICAST].into_iter().collect(), ..sent })
    };
    let several = |facts: SessionFacts| SessionFacts { identifiers_sent: all_families(), ..facts };
    let external = signed(4, &ebgp(4));
    let all = [
        ("plain", ebgp(2), facts(2)),
        ("internal", ibgp(3), facts(3)),
        (
            "of one family",
            ebgp(4),
            SessionFacts { bgpsec_sent: of_one_family(external.bgpsec_sent), ..external },
        ),
        ("signed", ebgp(5), signed(5, &ebgp(5))),
        ("internal and signed", ibgp(6), signed(6, &ibgp(6))),
        ("with a view", with(ebgp(7), view.clone()), facts(7)),
        ("with several paths", ebgp(8), several(facts(8))),
        ("with several signed paths", ebgp(9), several(signed(9, &ebgp(9)))),
        ("with a view of several paths", with(ebgp(10), view), several(facts(10))),
        ("with a default route", with(ebgp(11), default), facts(11)),
    ];
    let knows_where =
        |(name, config, facts)| (name, config, SessionFacts { enhanced_refresh: true, ..facts });
    all.into_iter().map(knows_where).collect()
}

#[test]
fn every_kind_of_peer_keeps_every_route_when_everything_is_told_again() {
    let mut router = Router::new();
    let (from, other) = (router.up(1), router.plain(12));
    for route in [P, OTHER, "2001:db8:7::/48"] {
        router.receive(from, &from_peer(1, route), route);
    }
    router.take(other, &announcement_by(12, &[Asn(8), asn(12)], prefix("198.51.100.0/24")));
    router.pipeline.originate(prefix("192.0.2.0/24"), &OriginateAttributes::default());
    let kinds: Vec<_> =
        kinds().into_iter().map(|(name, config, facts)| (name, router.up_with(config, facts))).collect();
    router.settle();
    let held = |router: &Router| -> Vec<_> {
        kinds.iter().map(|(name, peer)| (*name, router.sink(*peer).held())).collect()
    };
    let before = held(&router);
    for (name, routes) in &before {
        assert!(routes.len() >= 5, "{name}: {routes:?}");
    }
    let asked: [fn(&mut Pipeline, PeerIndex, Family); 3] = [
        |pipeline, peer, family| pipeline.route_refresh(peer, family),
        |pipeline, peer, family| pipeline.announce_again(peer, family),
        |pipeline, peer, _| {
            let v6 = "2001:db8::1".parse().expect("an address");
            pipeline.change_next_hops(peer, Some([10, 0, 0, 1].into()), Some(v6));
        },
    ];
    for ask in asked {
        for (_, peer) in &kinds {
            Family::ALL.into_iter().for_each(|family| ask(&mut router.pipeline, *peer, family));
        }
        router.settle();
        assert_eq!(held(&router), before);
        for ((name, peer), (_, routes)) in kinds.iter().zip(&before) {
            assert!(router.sink(*peer).is_answered(), "{name}");
            assert!(!router.pipeline.is_announcing_again(*peer), "{name}");
            assert_eq!(router.announced(*peer), routes.values().map(Vec::len).sum::<usize>(), "{name}");
        }
    }
}

#[test]
fn a_request_is_answered_only_when_all_that_it_brings_is_signed() {
    let mut router = Router::new();
    let from = router.up(1);
    let to = router.pipeline.add_peer(ebgp(2));
    let facts = SessionFacts { enhanced_refresh: true, ..secured(2, &ebgp(2), None) };
    router.session(to, facts);
    router.settle();
    router.receive(from, &from_peer(1, P), P);
    router.tell();
    router.pipeline.route_refresh(to, Family::IPV4_UNICAST);
    router.tell();
    // Nothing is to be sent, and nobody may say that the peer has been answered: another process would tell it nothing.
    assert!(!router.pipeline.pending(to) && router.pipeline.is_announcing_again(to));
    assert!(!router.sink(to).is_answered());
    router.settle();
    assert!(router.sink(to).is_answered() && !router.pipeline.is_announcing_again(to));
    assert!(router.has_good(to, P));
}

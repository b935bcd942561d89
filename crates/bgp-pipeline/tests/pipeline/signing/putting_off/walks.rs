//! Walks over the table, and what comes behind them.

use holdfast_bgp_pipeline::SendPaths;

use super::*;

const V4: Family = Family::IPV4_UNICAST;

fn route(n: u8) -> String {
    format!("10.4.{n}.0/24")
}

/// Peer 1 has announced so many routes.
fn with_routes(count: u8) -> (Router, PeerIndex) {
    let mut router = Router::new();
    let from = router.up(1);
    (0..count).for_each(|n| router.receive(from, &from_peer(1, &route(n)), &route(n)));
    router.settle();
    (router, from)
}

fn subtypes(router: &Router, peer: PeerIndex) -> Vec<u8> {
    router.sink(peer).refreshes.iter().map(|(refresh, _)| refresh.subtype).collect()
}

fn enclosed(n: u8) -> SessionFacts {
    SessionFacts { enhanced_refresh: true, ..secured(n, &ebgp(n), None) }
}

#[test]
fn end_of_rib_comes_behind_all_that_the_walk_has_put_off() {
    let (mut router, from) = with_routes(3);
    let to = router.up(2);
    router.tell();
    let ended = |router: &Router| {
        (router.sink(to).end_of_rib.clone(), router.pipeline.counts(to, V4).end_of_rib_sent)
    };
    assert_eq!(ended(&router), (vec![Family::IPV6_UNICAST], false), "there is nothing of the other family");
    let jobs = router.jobs();
    router.sign(&jobs[0]);
    router.tell();
    assert_eq!((router.announced(to), ended(&router).1), (1, false));
    // What comes behind the walk is not waited for, and what goes is not either.
    router.receive(from, &from_peer(1, P), P);
    router.withdraw(from, &route(1));
    router.tell();
    router.sign(&jobs[2]);
    router.tell();
    assert_eq!((router.announced(to), ended(&router).1, router.has(to, P)), (2, true, false));
    router.settle();
    assert_eq!((router.sink(to).end_of_rib.len(), router.announced(to)), (2, 3));
}

#[test]
fn a_route_that_changes_all_the_time_is_waited_for_by_end_of_rib() {
    let (mut router, from) = with_routes(2);
    let to = router.up(2);
    router.tell();
    for behind in 20..30 {
        router.receive(from, &over(behind, 1, &route(0)), &route(0));
        router.tell();
    }
    for job in router.jobs() {
        assert!(!router.sink(to).end_of_rib.contains(&V4));
        router.sign(&job);
        router.tell();
    }
    assert!(router.sink(to).end_of_rib.contains(&V4));
    assert_eq!(router.held(to, &route(0)).path(), "65000 65101 29");
}

#[test]
fn the_end_of_a_refresh_comes_behind_what_it_has_put_off_and_before_the_next_begins() {
    let (mut router, from) = with_routes(3);
    let to = router.up_with(ebgp(2), enclosed(2));
    router.settle();
    // What is kept is told at once; one route waits.
    router.receive(from, &over(8, 1, &route(1)), &route(1));
    router.tell();
    let jobs = router.jobs();
    (0..2).for_each(|_| router.pipeline.route_refresh(to, V4));
    router.tell();
    let [begin, end] = [RouteRefresh::BORR, RouteRefresh::EORR];
    assert_eq!(subtypes(&router, to), [begin]);
    router.sign(&jobs[0]);
    router.tell();
    assert_eq!(subtypes(&router, to), [begin, end, begin, end]);
    let at: Vec<_> = router.sink(to).refreshes.iter().map(|(_, at)| *at).collect();
    assert_eq!((at[1] - at[0], at[2] - at[1], at[3] - at[2]), (4, 1, 4), "three routes in each");
    assert_eq!((router.jobs(), router.announced(to)), (vec![], 3));
    // One that is withdrawn holds up no end.
    router.receive(from, &over(9, 1, &route(1)), &route(1));
    router.pipeline.route_refresh(to, V4);
    router.tell();
    assert_eq!(subtypes(&router, to)[4..], [begin]);
    router.withdraw(from, &route(1));
    router.tell();
    assert_eq!(subtypes(&router, to)[4..], [begin, end]);
    assert_eq!((router.announced(to), router.sink(to).idle_withdrawals), (2, 0));
}

#[test]
fn a_refresh_before_the_first_end_of_rib_has_its_own_end() {
    let (mut router, _) = with_routes(3);
    let to = router.up_with(ebgp(2), enclosed(2));
    router.tell();
    router.pipeline.route_refresh(to, V4);
    router.tell();
    assert!(!router.sink(to).end_of_rib.contains(&V4) && subtypes(&router, to).is_empty());
    router.settle();
    assert_eq!(subtypes(&router, to), [RouteRefresh::BORR, RouteRefresh::EORR]);
    assert!(router.sink(to).end_of_rib.contains(&V4));
    assert_eq!((router.announced(to), router.toy.made), (3, 3));
}

#[test]
fn nobody_keeps_a_route_that_goes_after_two_walks_at_once() {
    let (mut router, from) = with_routes(3);
    let to = router.up(2);
    router.settle();
    // Other keys twice, before anything is told: what the peer has is not known any more.
    router.pipeline.set_signing_rate(1_000_000);
    router.pipeline.set_signers([next_signer()]);
    router.pipeline.set_signers([signer(OUR_AS)]);
    router.pipeline.set_signers([next_signer()]);
    router.tell();
    let jobs = router.jobs();
    assert_eq!(jobs.len(), 3);
    router.withdraw(from, &route(1));
    router.tell();
    assert!(!router.has(to, &route(1)), "it had the route with a signature of the older key");
    jobs.iter().for_each(|job| router.sign(job));
    router.settle();
    assert_eq!((router.sink(to).routes.len(), router.announced(to)), (2, 2));
}

#[test]
fn each_path_of_a_prefix_waits_for_itself() {
    let mut router = Router::new();
    let from = [1, 2, 3].map(|n| router.up(n));
    let facts = SessionFacts { identifiers_sent: all_families(), ..secured(5, &ebgp(5), None) };
    let to = router.up_with(ebgp(5), facts.clone());
    let config = PeerConfig { send_paths: SendPaths::Best(2), ..ebgp(6) };
    let two = router.up_with(
        config.clone(),
        SessionFacts { identifiers_sent: all_families(), ..secured(6, &config, None) },
    );
    router.settle();
    for (peer, n) in from.into_iter().zip(1..) {
        router.receive(peer, &from_peer(n, P), P);
    }
    router.tell();
    let jobs = router.jobs();
    // Three for the one, two for the other, and the best for those that have brought others.
    assert_eq!((jobs.len(), router.sink(to).paths.len()), (7, 0));
    router.withdraw(from[0], P);
    router.tell();
    jobs.iter().for_each(|job| router.sign(job));
    router.settle();
    for peer in [to, two] {
        let target = router.pipeline.peer(peer).expect("it was added").asn;
        let paths: Vec<_> = router.sink(peer).paths.values().map(Held::path).collect();
        assert_eq!(paths.len(), 2, "{paths:?}");
        let good =
            |held: &Held| is_good(&attribute(held, code::BGPSEC_PATH).expect("signed"), target, prefix(P));
        assert!(router.sink(peer).paths.values().all(good));
        assert_eq!((router.announced(peer), router.sink(peer).idle_withdrawals), (2, 0));
    }
    from[1..].iter().for_each(|peer| router.withdraw(*peer, P));
    router.settle();
    assert_eq!([to, two].map(|peer| (router.sink(peer).paths.len(), router.announced(peer))), [(0, 0); 2]);
}

#[test]
fn a_view_waits_for_what_it_has_chosen() {
    let rules = PathRules { route_server_client: true, own_view: true, ..PathRules::default() };
    let mut router = Router::new();
    let from = [1, 2].map(|n| router.up(n));
    let to = router.up_as(3, with(ebgp(3), rules));
    router.settle();
    // The better one has the receiver's AS in it: it is told of the other one.
    router.receive(from[0], &signed_path(&[plain_segment(asn(1).0)], OUR_AS, prefix(P), &[1]), P);
    router.tell();
    router.receive(from[0], &over(asn(3).0, 1, P), P);
    router.receive(from[1], &signed_path(&[7, 8, asn(2).0].map(plain_segment), OUR_AS, prefix(P), &[1]), P);
    router.settle();
    assert_eq!((router.segments(to, P)[1], router.has_good(to, P)), ((1, 0, asn(2).0), true));
    router.receive(from[0], &from_peer(1, P), P);
    router.tell();
    assert_eq!((router.segments(to, P)[1], router.announced(to)), ((1, 0, asn(2).0), 1));
    router.withdraw(from[0], P);
    router.tell();
    assert_eq!(router.segments(to, P)[1], (1, 0, asn(2).0));
    router.withdraw(from[1], P);
    router.tell();
    assert_eq!((router.has(to, P), router.announced(to), router.jobs()), (false, 0, vec![]));
}

#[test]
fn who_reads_slowly_waits_for_the_same_signatures() {
    let limits = Limits { shared_bytes: 100, ..Limits::default() };
    let mut router = Router::of(SpeakerConfig { limits, ..always() });
    let from = router.up(1);
    let (quick, slow) = (router.up(2), router.up_as(4, PeerConfig { name: "slow".into(), ..ebgp(2) }));
    router.settle();
    let slow =
        router.sinks.remove(router.sinks.iter().position(|(peer, _)| *peer == slow).expect("it is up"));
    for n in 0..20 {
        router.receive(from, &from_peer(1, &route(n)), &route(n));
        router.settle();
        // One of them always waits.
        router.receive(from, &over(n.into(), 1, P), P);
        router.tell();
    }
    assert_ne!(router.pipeline.update_group(quick), router.pipeline.update_group(slow.0));
    router.sinks.push(slow);
    router.settle();
    let [(_, quick), (_, slow)] = &router.sinks[1..] else { panic!("two") };
    assert_eq!((quick.routes.len(), &quick.routes), (21, &slow.routes));
}

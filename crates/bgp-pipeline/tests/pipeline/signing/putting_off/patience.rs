//! Nobody signs, or nobody has said with which keys, or keys have changed.

use super::*;

const V4: Family = Family::IPV4_UNICAST;

fn route(n: u16) -> String {
    format!("10.{}.{}.0/24", n >> 8, n & 255)
}

fn receive(router: &mut Router, from: PeerIndex, count: u16) {
    (0..count).for_each(|n| router.receive(from, &from_peer(1, &route(n)), &route(n)));
}

/// How many routes a peer has with and without signatures.
fn told(router: &Router, peer: PeerIndex) -> [usize; 2] {
    let routes = &router.sink(peer).routes;
    let signed = routes.values().filter(|held| attribute(held, code::BGPSEC_PATH).is_some()).count();
    [signed, routes.len() - signed]
}

#[test]
fn where_nobody_signs_routes_go_with_an_as_path_and_the_signatures_follow() {
    // More than may be asked for at once.
    const COUNT: u16 = 3000;
    for is_walk in [false, true] {
        let mut router = Router::new();
        let from = router.up(1);
        let before = if is_walk { None } else { Some(router.up(2)) };
        router.tell();
        receive(&mut router, from, COUNT);
        let to = before.unwrap_or_else(|| router.up(2));
        router.tell();
        assert_eq!(told(&router, to), [0, 0]);
        router.pass(PATIENCE - Duration::from_millis(1));
        assert_eq!((told(&router, to), router.sink(to).end_of_rib.contains(&V4)), ([0, 0], !is_walk));
        router.pass(Duration::from_millis(1));
        assert_eq!(told(&router, to), [0, usize::from(COUNT)]);
        assert_eq!(router.held(to, &route(7)).path(), "65000 65101 7");
        assert_eq!((router.announced(to), router.sink(to).end_of_rib.len()), (usize::from(COUNT), 2));
        // What comes then, changes or goes does not wait at all.
        router.receive(from, &from_peer(1, P), P);
        router.receive(from, &over(8, 1, &route(0)), &route(0));
        router.withdraw(from, &route(1));
        router.tell();
        assert_eq!(told(&router, to), [0, usize::from(COUNT)]);
        assert_eq!(
            (router.held(to, &route(0)).path(), router.announced(to)),
            ("65000 65101 8".into(), usize::from(COUNT))
        );
        assert!(!router.pipeline.pending(to) && router.pipeline.poll_timeout().is_none());
        // Somebody signs.
        router.settle();
        assert_eq!((told(&router, to), router.announced(to)), ([usize::from(COUNT), 0], usize::from(COUNT)));
        assert!(router.has_good(to, &route(0)) && router.has_good(to, P));
        assert_eq!(router.sink(to).idle_withdrawals, 0);
        // And the next route waits again.
        router.receive(from, &from_peer(1, OTHER), OTHER);
        router.tell();
        assert!(!router.has(to, OTHER));
        router.settle();
        assert!(router.has_good(to, OTHER));
    }
}

#[test]
fn patience_is_as_long_as_nothing_is_signed_at_all() {
    let (mut router, from, to) = pair();
    receive(&mut router, from, 10);
    router.tell();
    for job in router.jobs() {
        router.pass(PATIENCE - Duration::from_secs(1));
        router.sign(&job);
        router.tell();
    }
    assert_eq!(told(&router, to), [10, 0], "it is slow, and alive");
    // A long time without anything to be signed is no silence.
    router.pass(10 * PATIENCE);
    router.receive(from, &from_peer(1, P), P);
    router.tell();
    assert!(!router.has(to, P));
    router.pass(PATIENCE);
    assert_eq!(router.held(to, P).path(), "65000 65101 7");
}

#[test]
fn what_is_withdrawn_or_replaced_while_it_has_an_as_path_is_counted_once() {
    let (mut router, from, to) = pair();
    receive(&mut router, from, 4);
    router.tell();
    router.pass(PATIENCE);
    assert_eq!((told(&router, to), router.announced(to)), ([0, 4], 4));
    router.withdraw(from, &route(0));
    router.take(from, &announcement_by(1, &[Asn(9), asn(1)], prefix(&route(1))));
    router.receive(from, &over(8, 1, &route(2)), &route(2));
    router.tell();
    assert_eq!((told(&router, to), router.announced(to)), ([0, 3], 3));
    router.settle();
    assert_eq!((told(&router, to), router.announced(to)), ([2, 1], 3));
    assert_eq!(router.held(to, &route(1)).path(), "65000 65101 9");
    router.pipeline.peer_down(from);
    router.settle();
    assert_eq!((told(&router, to), router.announced(to), router.sink(to).idle_withdrawals), ([0, 0], 0, 0));
}

#[test]
fn before_it_is_said_which_keys_there_are_what_could_be_signed_waits() {
    for says in [true, false] {
        let mut router = Router::without_keys(always(), Store::of(100));
        let (from, to, plain) = (router.up(1), router.up(2), router.plain(3));
        router.tell();
        assert!(!router.sink(to).end_of_rib.contains(&V4), "walks wait");
        receive(&mut router, from, 3);
        router.take(plain, &announcement_by(3, &[asn(3)], prefix("10.3.0.0/16")));
        let late = router.up(4);
        router.tell();
        assert_eq!((router.sink(plain).routes.len(), router.sink(to).routes.len()), (3, 0));
        assert_eq!(router.jobs(), []);
        let timeout = router.pipeline.poll_timeout().expect("patience has an end");
        assert!(timeout <= router.now + PATIENCE);
        match says {
            true => {
                router.pipeline.set_signers([signer(OUR_AS)]);
                router.settle();
                assert_eq!([to, late].map(|peer| told(&router, peer)), [[3, 1]; 2]);
            }
            false => {
                router.pass(PATIENCE);
                assert_eq!([to, late].map(|peer| told(&router, peer)), [[0, 4]; 2]);
                assert!([to, late].iter().all(|peer| router.sink(*peer).end_of_rib.len() == 2));
                // Then it is said.
                router.pipeline.set_signers([signer(OUR_AS)]);
                router.settle();
                assert_eq!([to, late].map(|peer| told(&router, peer)), [[3, 1]; 2]);
            }
        }
        assert_eq!([to, late].map(|peer| router.announced(peer)), [4, 4]);
    }
}

#[test]
fn a_route_that_changes_before_keys_are_known_is_told_as_it_is_then() {
    let mut router = Router::new();
    let (from, to) = (router.up(1), router.up(2));
    receive(&mut router, from, 3);
    router.settle();
    // The same in a process whose walk has passed: what the log brings waits for keys.
    let mut next = Router::without_keys(always(), Store::of(100));
    let (from_next, to_next) = (next.up(1), next.up(2));
    next.tell();
    next.pass(PATIENCE);
    receive(&mut next, from_next, 3);
    next.withdraw(from_next, &route(0));
    next.tell();
    assert_eq!(told(&next, to_next), [0, 2]);
    next.pipeline.set_signers([signer(OUR_AS)]);
    next.settle();
    router.withdraw(from, &route(0));
    router.settle();
    let paths = |router: &Router, peer: PeerIndex| {
        let held = router.sink(peer).routes.iter();
        held.map(|(route, held)| (*route, held.path())).collect::<Vec<_>>()
    };
    assert_eq!((paths(&next, to_next), told(&next, to_next)), (paths(&router, to), [2, 0]));
}

#[test]
fn routes_are_signed_again_at_a_rate() {
    const COUNT: u16 = 1000;
    let mut router = Router::new();
    let (from, to) = (router.up(1), router.up(2));
    receive(&mut router, from, COUNT);
    router.settle();
    router.pipeline.set_signing_rate(200);
    router.pipeline.set_signers([next_signer()]);
    let (started, made) = (router.now, router.toy.made);
    let mut most = 0;
    while router.toy.made - made < COUNT.into() {
        router.tell();
        let before = router.toy.made;
        router.toy.answer(&mut router.pipeline);
        router.tell();
        most = most.max(router.toy.made - before);
        let done = (router.toy.made - made) as f64;
        // A window goes at once.
        assert!(done <= 200.0 * (router.now - started).as_secs_f64() + 128.0, "{done}");
        if router.toy.made == before {
            let until = router.pipeline.poll_timeout().expect("it goes on");
            assert!(until > router.now && until <= router.now + Duration::from_secs(1));
            router.pass(until - router.now);
        }
    }
    let took = (router.now - started).as_secs_f64();
    assert!((4.0..5.1).contains(&took), "{took} s for {COUNT} routes, {most} at once");
    router.settle();
    assert!((0..COUNT).all(|n| router.has_good(to, &route(n))));
    assert_eq!((router.pipeline.poll_timeout(), router.announced(to)), (None, usize::from(COUNT)));
}

#[test]
fn a_change_waits_for_no_rate() {
    let mut router = Router::new();
    let (from, to) = (router.up(1), router.up(2));
    receive(&mut router, from, 600);
    router.settle();
    router.pipeline.set_signing_rate(1);
    router.pipeline.set_signers([next_signer()]);
    router.tell();
    router.toy.answer(&mut router.pipeline);
    router.tell();
    // The last one is not walked by for minutes.
    router.receive(from, &over(8, 1, &route(599)), &route(599));
    router.withdraw(from, &route(598));
    router.receive(from, &from_peer(1, P), P);
    router.tell();
    assert!(!router.has(to, &route(598)));
    let jobs = router.jobs();
    assert!(jobs.iter().all(|job| job.ski == next_signer().ski), "the older key may be gone");
    jobs.iter().for_each(|job| router.sign(job));
    router.tell();
    assert_eq!((router.held(to, &route(599)).path(), router.has_good(to, P)), ("65000 65101 8".into(), true));
    // Nor does a peer that comes up.
    let late = router.up(3);
    while {
        router.tell();
        router.toy.answer(&mut router.pipeline)
    } > 0
    {}
    assert_eq!(told(&router, late), [600, 0]);
}

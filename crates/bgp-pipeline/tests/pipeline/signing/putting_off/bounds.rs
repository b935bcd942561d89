//! More than is asked for at once.

use holdfast_types::{HashKey, Ipv4Prefix};

use super::*;
use crate::{
    path::SourceId,
    signing::{Had, Pending},
};

/// As much is asked for at once for the peers of one AS.
const MOST_ASKED: usize = 1024;
/// And for all.
const MOST_JOBS: usize = 8192;

fn route(n: u16) -> String {
    format!("10.{}.{}.0/24", n >> 8, n & 255)
}

fn receive(router: &mut Router, from: PeerIndex, count: u16) {
    (0..count).for_each(|n| router.receive(from, &from_peer(1, &route(n)), &route(n)));
}

#[test]
fn no_more_is_asked_for_at_once_and_the_log_is_read_meanwhile() {
    const COUNT: u16 = 3000;
    for is_walk in [false, true] {
        let mut router = Router::new();
        let (from, plain) = (router.up(1), router.plain(3));
        let before = if is_walk { None } else { Some(router.up(2)) };
        router.tell();
        receive(&mut router, from, COUNT);
        let to = before.unwrap_or_else(|| router.up(2));
        router.tell();
        let mut jobs = router.jobs();
        assert_eq!(jobs.len(), MOST_ASKED);
        for route in ["0.0.0.0/1", "128.0.0.0/1"] {
            router.take(plain, &announcement_by(3, &[asn(3)], prefix(route)));
        }
        router.withdraw(from, &route(0));
        router.tell();
        assert!(router.has(to, "0.0.0.0/1"));
        assert_eq!(router.has(to, "128.0.0.0/1"), !is_walk, "a walk that has not come by tells it");
        let mut rounds = 0;
        while !jobs.is_empty() {
            jobs.iter().for_each(|job| router.sign(job));
            router.tell();
            jobs = router.jobs();
            assert!(jobs.len() <= MOST_ASKED);
            rounds += 1;
        }
        assert!((3..6).contains(&rounds), "{rounds}");
        assert_eq!(
            (router.sink(to).routes.len(), router.announced(to)),
            (usize::from(COUNT) + 1, usize::from(COUNT) + 1)
        );
        assert!((1..COUNT).all(|n| router.has_good(to, &route(n))));
        assert_eq!(router.sink(to).end_of_rib.len(), 2);
    }
}

#[test]
fn who_comes_when_there_are_too_many_jobs_waits_for_fewer() {
    const COUNT: u16 = 1100;
    let mut router = Router::new();
    let from = router.up(1);
    receive(&mut router, from, COUNT);
    let mut to = Vec::new();
    for n in 10..20 {
        to.push(router.up(n));
        router.tell();
    }
    assert_eq!(
        router.pipeline.signing_counts().waiting as usize,
        MOST_JOBS,
        "eight have asked for all of them"
    );
    let mut asked = 0;
    loop {
        let jobs = router.jobs();
        asked += jobs.len();
        assert!(router.pipeline.signing_counts().waiting as usize <= MOST_JOBS);
        if jobs.is_empty() {
            break;
        }
        jobs.iter().for_each(|job| router.sign(job));
        router.tell();
    }
    assert_eq!(asked, to.len() * usize::from(COUNT));
    for peer in to {
        assert_eq!((router.sink(peer).routes.len(), router.announced(peer)), (COUNT.into(), COUNT.into()));
    }
}

#[test]
fn a_route_that_changes_all_the_time_takes_no_more_room() {
    let mut pending = Pending::<Ipv4Prefix>::new(HashKey::new([1, 2]));
    let prefix: Ipv4Prefix = P.parse().expect("a prefix");
    let route = Identified { identifier: 0, prefix };
    let add = |pending: &mut Pending<_>, asked| {
        let before = pending.take(route);
        pending.add(route, (Had::Nobody, SourceId::LOCAL), false, before, asked);
    };
    for asked in [None, Some(1)] {
        for _ in 0..20_000 {
            add(&mut pending, asked);
            pending.wake(route);
        }
    }
    assert!(pending.memory() < 200_000, "{} octets", pending.memory());
    // It is looked at once.
    let polled = std::iter::from_fn(|| pending.poll().map(|(route, _)| pending.take(route))).count();
    assert_eq!((polled, pending.is_empty()), (1, true));
}

//! More than is asked for at once.

use holdfast_bgp_pipeline::LocalAsnMode;
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

/// A path whose signature has so many octets.
fn long(octets: usize) -> Vec<u8> {
    let signature = vec![7; octets];
    let block = SignatureBlock { suite: 1, ski: ski(asn(1)), signature: &signature };
    extend(None, plain_segment(asn(1).0), &[block]).expect("fits")
}

#[test]
fn a_neighbour_does_not_choose_how_many_octets_wait_to_be_signed() {
    const COUNT: u16 = 600;
    let mut router = Router::new();
    let from = router.up(1);
    (0..COUNT).for_each(|n| router.receive(from, &long(60_000), &route(n)));
    router.up(2);
    router.tell();
    let octets = router.pipeline.signing_counts().octets;
    assert!(octets > 32 << 20 && octets < (32 << 20) + (1 << 17), "{octets}");
    loop {
        let jobs = router.jobs();
        if jobs.is_empty() {
            break;
        }
        jobs.iter().for_each(|job| router.sign(job));
        router.tell();
    }
    // The peer takes no such messages.
    assert_eq!(router.pipeline.too_long(), u64::from(COUNT));
}

#[test]
fn nothing_is_signed_that_is_longer_than_a_message() {
    const OLD: Asn = Asn(65010);
    let mut router = Router::new();
    router.pipeline.set_signers([signer(OUR_AS), signer(OLD)]);
    let from = router.up(1);
    let mut config = ebgp(2);
    config.paths.local_asn = Some(OLD);
    config.paths.local_asn_mode = LocalAsnMode::Replace;
    let facts = secured(2, &config, None);
    router.up_with(config, SessionFacts { max_message_len: 65_535, ..facts });
    // Two segments of ours: the first one fits, and then the path is too long.
    router.receive(from, &long(65_453), P);
    router.tell();
    let jobs = router.jobs();
    assert_eq!(jobs.iter().map(|job| (job.asn, job.octets.len())).collect::<Vec<_>>(), [(OUR_AS, 65_499)]);
    router.sign(&jobs[0]);
    router.tell();
    assert_eq!((router.jobs().len(), router.pipeline.too_long()), (0, 1));
}

//! Announcements that wait for their signatures.

mod bounds;
mod patience;
mod walks;

use super::*;

/// A source, and a peer that is told; both have had their End-of-RIB.
fn pair() -> (Router, PeerIndex, PeerIndex) {
    let mut router = Router::new();
    let (from, to) = (router.up(1), router.up(2));
    router.settle();
    (router, from, to)
}

/// The same where the peer has a route already.
fn pair_with_route() -> (Router, PeerIndex, PeerIndex) {
    let (mut router, from, to) = pair();
    router.receive(from, &from_peer(1, P), P);
    router.settle();
    assert!(router.has_good(to, P));
    (router, from, to)
}

#[test]
fn two_prefixes_of_one_set_in_one_window_are_signed_and_told_each() {
    let (mut router, from, to) = pair();
    let path = from_peer(1, P);
    let before = router.sink(to).messages;
    for route in [P, OTHER] {
        router.receive(from, &path, route);
    }
    router.tell();
    assert_eq!((router.sink(to).messages, router.announced(to)), (before, 0), "nothing but signed ones");
    let [first, second] = &router.jobs()[..] else { panic!("a job for each") };
    // In whatever order they are signed.
    router.sign(second);
    router.tell();
    assert_eq!([P, OTHER].map(|route| router.has(to, route)), [false, true]);
    router.sign(first);
    router.tell();
    assert_eq!((router.sink(to).messages, router.announced(to)), (before + 2, 2));
    assert!(router.jobs().is_empty());
    // The set was signed for the one prefix: ours is good for each.
    assert!(router.has_good(to, P) && !router.has_good(to, OTHER));
}

#[test]
fn a_route_that_goes_before_it_is_signed_is_told_to_nobody() {
    for is_handed_out in [false, true] {
        let (mut router, from, to) = pair();
        let before = router.sink(to).messages;
        router.receive(from, &from_peer(1, P), P);
        router.tell();
        let jobs = if is_handed_out { router.jobs() } else { Vec::new() };
        router.withdraw(from, P);
        router.tell();
        assert_eq!(router.jobs(), [], "nobody waits for it");
        jobs.iter().for_each(|job| router.sign(job));
        router.settle();
        assert_eq!((router.sink(to).messages, router.announced(to)), (before, 0));
        assert_eq!(router.pipeline.signing_counts().waiting, 0);
        assert!(!router.pipeline.pending(to));
    }
}

#[test]
fn a_route_that_goes_while_another_path_waits_is_withdrawn_at_once() {
    let (mut router, from, to) = pair_with_route();
    router.receive(from, &over(8, 1, P), P);
    router.tell();
    assert_eq!(router.held(to, P).path(), "65000 65101 7", "what it had stays meanwhile");
    assert_eq!(router.announced(to), 1);
    let jobs = router.jobs();
    router.withdraw(from, P);
    router.tell();
    assert_eq!((router.has(to, P), router.announced(to)), (false, 0));
    jobs.iter().for_each(|job| router.sign(job));
    let messages = router.sink(to).messages;
    router.settle();
    assert_eq!((router.sink(to).messages, router.sink(to).idle_withdrawals), (messages, 0));
}

#[test]
fn of_several_paths_one_after_the_other_the_newest_is_sent_and_no_other() {
    let (mut router, from, to) = pair();
    let before = router.sink(to).messages;
    let mut jobs = Vec::new();
    for behind in [7, 8, 9] {
        router.receive(from, &over(behind, 1, P), P);
        router.tell();
        jobs.extend(router.jobs());
    }
    assert_eq!(jobs.len(), 3);
    for job in &jobs[..2] {
        router.sign(job);
        router.tell();
    }
    assert_eq!(router.sink(to).messages, before);
    router.sign(&jobs[2]);
    router.tell();
    assert_eq!((router.held(to, P).path(), router.sink(to).messages), ("65000 65101 9".into(), before + 1));
    assert!(router.has_good(to, P));
    // Back and forth: the job that is under way serves both.
    router.receive(from, &over(7, 1, P), P);
    router.tell();
    router.receive(from, &over(8, 1, P), P);
    router.tell();
    router.receive(from, &over(7, 1, P), P);
    router.tell();
    let jobs = router.jobs();
    assert_eq!(jobs.len(), 1, "nobody waits for the one between");
    router.sign(&jobs[0]);
    router.settle();
    assert_eq!((router.held(to, P).path(), router.toy.made), ("65000 65101 7".into(), 4));
}

#[test]
fn a_route_that_is_back_as_it_was_is_told_with_what_is_kept() {
    let (mut router, from, to) = pair_with_route();
    let had = router.path(to, P);
    router.receive(from, &over(8, 1, P), P);
    router.tell();
    router.receive(from, &from_peer(1, P), P);
    router.tell();
    assert_eq!((router.path(to, P), router.announced(to)), (had, 1));
    assert_eq!(router.jobs(), []);
}

#[test]
fn others_do_not_wait_with_a_route_that_is_signed() {
    let (mut router, from, to) = pair_with_route();
    let plain = router.plain(3);
    router.receive(from, &from_peer(1, OTHER), OTHER);
    // In the same window: a withdrawal, an unsigned route, and one of the other family.
    router.withdraw(from, P);
    router.take(plain, &announcement_by(3, &[asn(3)], prefix("10.3.0.0/16")));
    router.take(plain, &announcement_by(3, &[asn(3)], prefix("2001:db8:3::/48")));
    router.tell();
    let has =
        |router: &Router| [P, OTHER, "10.3.0.0/16", "2001:db8:3::/48"].map(|route| router.has(to, route));
    assert_eq!((has(&router), router.announced(to)), ([false, false, true, true], 2));
    assert_eq!(router.held(plain, OTHER).path(), "65000 65101 7", "who does not take signatures has it");
    router.settle();
    assert_eq!((has(&router), router.announced(to)), ([false, true, true, true], 3));
}

#[test]
fn an_unsigned_route_takes_the_place_of_one_that_waits() {
    let (mut router, from, to) = pair_with_route();
    router.receive(from, &over(8, 1, P), P);
    router.tell();
    let jobs = router.jobs();
    router.take(from, &announcement_by(1, &[Asn(9), asn(1)], prefix(P)));
    router.tell();
    assert_eq!((router.held(to, P).path(), router.path(to, P)), ("65000 65101 9".into(), None));
    jobs.iter().for_each(|job| router.sign(job));
    router.settle();
    assert_eq!((router.held(to, P).path(), router.announced(to)), ("65000 65101 9".into(), 1));
}

#[test]
fn a_better_path_of_a_peer_of_the_group_is_not_told_to_that_one() {
    let mut router = Router::new();
    // Both are of one AS, and of one group: each is told of what the other one has brought.
    let other = PeerConfig { name: "other".into(), ..ebgp(2) };
    let (from, one, two) = (router.up(1), router.up(2), router.up_as(4, other));
    router.settle();
    let long =
        signed_path(&[plain_segment(9), plain_segment(8), plain_segment(asn(1).0)], OUR_AS, prefix(P), &[1]);
    router.receive(from, &long, P);
    router.settle();
    assert!(router.has_good(one, P) && router.has_good(two, P));
    router.receive(one, &from_peer(2, P), P);
    router.tell();
    assert_eq!(
        [one, two].map(|peer| router.has(peer, P)),
        [false, true],
        "it goes at once where it came from"
    );
    assert_eq!([one, two].map(|peer| router.announced(peer)), [0, 1]);
    router.settle();
    assert_eq!((router.has(one, P), router.held(two, P).path()), (false, "65000 65102 7".into()));
    assert_eq!([one, two].map(|peer| router.announced(peer)), [0, 1]);
    // And to the other one, and to the first path again, while nobody has signed.
    router.receive(two, &signed_path(&[plain_segment(asn(2).0)], OUR_AS, prefix(P), &[1]), P);
    router.tell();
    router.withdraw(two, P);
    router.withdraw(one, P);
    router.tell();
    router.settle();
    assert!(router.has_good(one, P) && router.has_good(two, P));
    assert_eq!([one, two].map(|peer| router.held(peer, P).path()), ["65000 65101 8 9", "65000 65101 8 9"]);
    assert_eq!([one, two].map(|peer| router.announced(peer)), [1, 1]);
    router.withdraw(from, P);
    router.settle();
    assert_eq!([one, two].map(|peer| (router.has(peer, P), router.announced(peer))), [(false, 0); 2]);
}

#[test]
fn jobs_of_a_peer_that_leaves_are_not_handed_out() {
    let (mut router, from, to) = pair();
    router.receive(from, &from_peer(1, P), P);
    router.tell();
    router.pipeline.peer_down(to);
    router.sinks.retain(|(peer, _)| *peer != to);
    router.tell();
    assert_eq!(router.jobs(), []);
    // Under way when it leaves: the signature is kept, and there when it is back.
    router.session(to, secured(2, &ebgp(2), None));
    router.tell();
    let jobs = router.jobs();
    assert_eq!(jobs.len(), 1);
    router.pipeline.peer_down(to);
    router.sign(&jobs[0]);
    router.session(to, secured(2, &ebgp(2), None));
    router.tell();
    assert!(router.has_good(to, P));
    assert_eq!((router.toy.made, router.jobs()), (1, vec![]));
    // The source leaves.
    router.receive(from, &from_peer(1, OTHER), OTHER);
    router.tell();
    router.pipeline.peer_down(from);
    router.tell();
    assert_eq!((router.jobs(), router.sink(to).routes.len()), (vec![], 0));
}

#[test]
fn a_session_that_begins_anew_is_told_for_its_own_as() {
    let (mut router, from, to) = pair();
    router.receive(from, &from_peer(1, P), P);
    router.tell();
    let jobs = router.jobs();
    // Another AS in its OPEN: what is under way is not for it.
    let sent = SignedFor { families: all_families(), target: Asn(64777) };
    router.session(to, SessionFacts { bgpsec_sent: Some(sent), ..secured(2, &ebgp(2), None) });
    router.tell();
    jobs.iter().for_each(|job| router.sign(job));
    router.tell();
    assert!(!router.has(to, P));
    router.settle();
    assert!(is_good(&router.path(to, P).expect("signed"), Asn(64777), prefix(P)));
    // And without BGPsec.
    router.receive(from, &over(8, 1, P), P);
    router.tell();
    let jobs = router.jobs();
    router.session(to, facts(2));
    router.tell();
    assert_eq!((router.held(to, P).path(), router.path(to, P)), ("65000 65101 8".into(), None));
    jobs.iter().for_each(|job| router.sign(job));
    let messages = router.sink(to).messages;
    router.settle();
    assert_eq!((router.sink(to).messages, router.announced(to)), (messages, 1));
}

#[test]
fn what_an_older_key_has_signed_is_not_sent_under_a_newer_one() {
    let (mut router, from, to) = pair();
    router.receive(from, &from_peer(1, P), P);
    router.tell();
    let old = router.jobs();
    router.pipeline.set_signers([next_signer()]);
    router.tell();
    old.iter().for_each(|job| router.sign(job));
    router.tell();
    assert!(!router.has(to, P));
    router.settle();
    let ours = |router: &Router, route| {
        let path = router.path(to, route).expect("signed");
        let path = Path::parse(&path).expect("sound");
        path.blocks().next().and_then(|block| block.signatures().next()).expect("ours").ski
    };
    assert_eq!((ours(&router, P), router.has_good(to, P)), (next_signer().ski, true));
    // A route that comes while routes are signed again is signed with the key that there is.
    router.pipeline.set_signing_rate(1);
    router.pipeline.set_signers([signer(OUR_AS)]);
    router.tell();
    router.pipeline.set_signers([next_signer()]);
    router.receive(from, &from_peer(1, OTHER), OTHER);
    router.tell();
    let jobs = router.jobs();
    assert!(jobs.iter().all(|job| job.ski == next_signer().ski), "{jobs:?}");
    router.settle();
    assert_eq!([P, OTHER].map(|route| ours(&router, route)), [next_signer().ski; 2]);
}

#[test]
fn without_the_key_that_was_asked_for_a_job_does_not_spin() {
    let (mut router, from, to) = pair();
    router.receive(from, &from_peer(1, P), P);
    let mut answered = 0;
    for _ in 0..10 {
        router.tell();
        for job in router.jobs() {
            router.pipeline.signed(job.number, &[]);
            answered += 1;
        }
    }
    assert!(answered <= 1, "{answered} times");
    // Until it is said which keys there are.
    router.pipeline.set_signers([next_signer()]);
    router.settle();
    assert!(router.has_good(to, P));
}

#[test]
fn lost_jobs_are_handed_out_once_more() {
    let (mut router, from, to) = pair();
    for route in [P, OTHER] {
        router.receive(from, &from_peer(1, route), route);
    }
    router.tell();
    let lost = router.jobs();
    assert_eq!((lost.len(), router.pipeline.has_to_sign()), (2, false));
    router.pipeline.signing_lost();
    assert!(router.pipeline.has_to_sign());
    router.withdraw(from, OTHER);
    router.tell();
    let again = router.jobs();
    assert_eq!(again.iter().map(|job| &job.octets).collect::<Vec<_>>(), [&lost[0].octets]);
    router.sign(&again[0]);
    // One that comes late, twice, and one that nobody has asked for.
    lost.iter().chain(&again).for_each(|job| router.sign(job));
    router.pipeline.signed(u64::MAX, &[1]);
    router.settle();
    assert!(router.has_good(to, P) && !router.has(to, OTHER));
    assert_eq!(router.pipeline.signing_counts().kept, 1);
}

//! What a peer can make verdicts cost: budget, turns, memory.

use super::*;

#[test]
fn peers_that_are_faster_than_verdicts_take_a_bounded_amount_of_memory() {
    let (mut pipeline, now) = (checked(always()), Instant::now());
    pipeline.set_now(now);
    let peers: Vec<_> =
        (1..=20).map(|n| (n, up_secured(&mut pipeline, n, BgpsecValidation::Require))).collect();
    let plain = up(&mut pipeline, 30);
    let mut sinks: Vec<_> =
        peers.iter().map(|(_, peer)| *peer).chain([plain]).map(|peer| (peer, Sink::default())).collect();
    let mut flap = |pipeline: &mut Pipeline, round: u32| {
        for (n, peer) in &peers {
            for number in 0..10 {
                let route = prefix(&format!("10.{n}.{number}.0/24"));
                pipeline.update(*peer, &signed(*n, 7 + round, route, true)).expect("taken");
            }
        }
        // Whoever does not sign is not behind them.
        let body = announcement_by(30, &[asn(30)], prefix(P));
        pipeline
            .update(plain, if round.is_multiple_of(2) { &body } else { &[0, 4, 24, 203, 0, 113, 0, 0] })
            .expect("taken");
        settle(pipeline, &mut sinks);
        assert_eq!(states(pipeline, P).len(), usize::from(round.is_multiple_of(2)));
    };
    (0..60).for_each(|round| flap(&mut pipeline, round));
    let most = pipeline.memory().total();
    (60..180).for_each(|round| flap(&mut pipeline, round));
    assert!(pipeline.memory().total() <= most + most / 10, "{} after {most}", pipeline.memory().total());
    let mut verifier = Verifier::default();
    while verifier.answer(&mut pipeline, now) > 0 || pipeline.has_signatures_to_verify(now) {}
    assert_eq!(verifier.asked, 200, "each route once, by its last octets");
    let valid: u64 = peers.iter().map(|(_, peer)| pipeline.signature_counts(*peer).valid).sum();
    assert_eq!(valid, 200);
}

#[test]
fn who_sends_bad_signatures_is_told_of_once_and_others_go_on() {
    let (mut pipeline, now) = (checked(always()), Instant::now());
    pipeline.set_now(now);
    let bad = up_secured(&mut pipeline, 1, BgpsecValidation::Log);
    let good = up_secured(&mut pipeline, 2, BgpsecValidation::Log);
    for n in 0..3 {
        pipeline.update(bad, &signed(1, 7, prefix(&format!("10.0.{n}.0/24")), false)).expect("taken");
        pipeline.update(good, &signed(2, 7, prefix(&format!("10.1.{n}.0/24")), true)).expect("taken");
    }
    let verifier = Verifier::default();
    while let Some(job) = pipeline.poll_signatures(now) {
        pipeline.verified(job.number, verifier.judge(&job), cost(FAILED_HOPS), true, now);
    }
    let counts = [bad, good].map(|peer| pipeline.signature_counts(peer));
    assert_eq!((counts[0].not_valid, counts[0].unverified, counts[0].queued_hops), (1, 2, 4));
    assert_eq!((counts[1].valid, counts[1].unverified), (3, 0));
    let told = |event: &Event| matches!(event, Event::TooManyBadSignatures { peer } if *peer == bad);
    assert_eq!(std::iter::from_fn(|| pipeline.poll_event()).filter(told).count(), 1);
    // Later its turn comes again.
    assert!(pipeline.poll_timeout().is_some_and(|at| at > now));
    assert!(pipeline.poll_signatures(now + Duration::from_secs(1)).is_some());
}

#[test]
fn bad_signatures_of_routes_that_are_replaced_or_withdrawn_meanwhile_are_charged() {
    for is_withdrawn in [false, true] {
        let (mut pipeline, now) = (checked(always()), Instant::now());
        pipeline.set_now(now);
        let peer = up_secured(&mut pipeline, 1, BgpsecValidation::Log);
        for behind in 0..2 {
            pipeline.update(peer, &signed(1, 7 + behind, prefix(P), false)).expect("taken");
            let job = pipeline.poll_signatures(now).expect("its budget is not used up");
            match is_withdrawn {
                true => pipeline.update(peer, &withdrawal(prefix(P))).expect("taken"),
                false => pipeline.update(peer, &signed(1, 9, prefix(P), false)).expect("taken"),
            }
            let verdict = Verifier::default().judge(&job);
            pipeline.verified(job.number, verdict, cost(FAILED_HOPS / 2), true, now);
        }
        let told = |event: &Event| matches!(event, Event::TooManyBadSignatures { .. });
        assert_eq!(std::iter::from_fn(|| pipeline.poll_event()).filter(told).count(), 1);
        pipeline.update(peer, &signed(1, 10, prefix(P), false)).expect("taken");
        assert_eq!(pipeline.poll_signatures(now), None);
        assert_eq!(states(&mut pipeline, P), [(PathSecurity::Unverified, true)]);
    }
}

#[test]
fn routes_that_are_replaced_all_the_time_cost_their_peer_its_turns() {
    let (mut pipeline, now) = (checked(always()), Instant::now());
    pipeline.set_now(now);
    let hasty = up_secured(&mut pipeline, 1, BgpsecValidation::Log);
    let other = up_secured(&mut pipeline, 2, BgpsecValidation::Log);
    // What was to be verified first does not count any more.
    for behind in 7..9 {
        for n in 0..200 {
            let route = prefix(&format!("10.0.{n}.0/24"));
            pipeline.update(hasty, &signed(1, behind, route, false)).expect("taken");
        }
    }
    pipeline.update(other, &signed(2, 7, prefix(P), true)).expect("taken");
    let job = pipeline.poll_signatures(now).expect("a job");
    assert_eq!(job.prefix, prefix(P));
}

#[test]
fn verdicts_on_routes_of_a_peer_that_was_removed_are_not_charged_to_the_next() {
    let (mut pipeline, now) = (checked(always()), Instant::now());
    pipeline.set_now(now);
    let peer = up_secured(&mut pipeline, 1, BgpsecValidation::Log);
    pipeline.update(peer, &signed(1, 7, prefix(P), false)).expect("taken");
    let job = pipeline.poll_signatures(now).expect("a job");
    pipeline.remove_peer(peer);
    settle(&mut pipeline, &mut []);
    let next = up_secured(&mut pipeline, 2, BgpsecValidation::Log);
    assert_eq!(next, peer, "it has the number of the one before");
    let verdict = Verifier::default().judge(&job);
    pipeline.verified(job.number, verdict, cost(FAILED_HOPS), true, now);
    pipeline.update(next, &signed(2, 7, prefix(P), true)).expect("taken");
    assert_eq!(Verifier::default().answer(&mut pipeline, now), 1);
}

#[test]
fn each_key_that_was_tried_counts_in_turns_and_each_one_in_vain_in_the_budget() {
    let (mut pipeline, now) = (checked(always()), Instant::now());
    pipeline.set_now(now);
    let dear = up_secured(&mut pipeline, 1, BgpsecValidation::Log);
    let other = up_secured(&mut pipeline, 2, BgpsecValidation::Log);
    for n in 0..250 {
        pipeline.update(dear, &signed(1, 7, prefix(&format!("10.0.{n}.0/24")), true)).expect("taken");
        pipeline.update(other, &signed(2, 7, prefix(&format!("10.1.{n}.0/24")), true)).expect("taken");
    }
    // For each hop of the one peer eight keys are tried, the last of which is good.
    let (mut spent, mut verifier) = ([0, 0], Verifier::default());
    for _ in 0..200 {
        let job = pipeline.poll_signatures(now).expect("both have more");
        let is_dear = prefix("10.0.0.0/16").contains(job.prefix);
        let hops = job.hops as u32;
        let cost = if is_dear { SignatureCost { verified: 8 * hops, failed: 7 * hops } } else { cost(hops) };
        spent[usize::from(is_dear)] += cost.verified;
        pipeline.verified(job.number, verifier.judge(&job), cost, true, now);
    }
    assert!(spent[0].abs_diff(spent[1]) <= 2 * 64 + 16, "{spent:?}: one has more of the workers' time");
    // Also where it has one route at a time to verify.
    let (mut pipeline, _) = (checked(always()), ());
    pipeline.set_now(now);
    let dear = up_secured(&mut pipeline, 1, BgpsecValidation::Log);
    let other = up_secured(&mut pipeline, 2, BgpsecValidation::Log);
    for n in 0..100 {
        pipeline.update(other, &signed(2, 7, prefix(&format!("10.1.{n}.0/24")), true)).expect("taken");
    }
    let mut asked = 0;
    for n in 0..100 {
        pipeline.update(dear, &signed(1, 7, prefix(&format!("10.0.{n}.0/24")), true)).expect("taken");
        let job = pipeline.poll_signatures(now).expect("one of either");
        let is_dear = prefix("10.0.0.0/16").contains(job.prefix);
        asked += usize::from(is_dear);
        let verified = if is_dear { 500 } else { 2 };
        pipeline.verified(job.number, verifier.judge(&job), cost(verified), true, now);
    }
    assert!(asked <= 2, "{asked} of its paths came before those of the other");
    verifier.answer(&mut pipeline, now);

    // What is tried in vain is charged, whatever the verdict is.
    let told = |pipeline: &mut Pipeline| {
        let told = |event: &Event| matches!(event, Event::TooManyBadSignatures { .. });
        std::iter::from_fn(|| pipeline.poll_event()).filter(told).count()
    };
    assert_eq!(told(&mut pipeline), 0);
    pipeline.update(dear, &signed(1, 8, prefix(P), true)).expect("taken");
    let job = pipeline.poll_signatures(now).expect("its budget is not used up");
    let cost = SignatureCost { verified: FAILED_HOPS + 2, failed: FAILED_HOPS };
    pipeline.verified(job.number, SignatureVerdict::Valid, cost, true, now);
    assert_eq!((told(&mut pipeline), states(&mut pipeline, P)), (1, vec![VALID]));
}

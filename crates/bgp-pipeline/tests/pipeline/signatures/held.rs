//! What replaces a valid route: it waits for its verdict, and not for ever.

use super::*;

#[test]
fn what_replaces_a_valid_route_waits_for_its_verdict_and_not_for_ever() {
    let (mut pipeline, now) = (checked(always()), Instant::now());
    pipeline.set_now(now);
    let (peer, other) = (up_secured(&mut pipeline, 1, BgpsecValidation::Require), up(&mut pipeline, 2));
    let mut sinks = [(other, Sink::default())];
    let mut verifier = Verifier::default();
    let announce = |pipeline: &mut Pipeline, behind, is_good| {
        pipeline.update(peer, &signed(1, behind, prefix(P), is_good)).expect("taken");
    };
    announce(&mut pipeline, 7, true);
    verifier.answer(&mut pipeline, now);
    settle(&mut pipeline, &mut sinks);
    let mut path = |pipeline: &mut Pipeline| {
        settle(pipeline, &mut sinks);
        let held = sinks[0].1.routes.get(&prefix(P)).map(Held::path);
        (held.unwrap_or_default(), sinks[0].1.messages)
    };
    let (before, count) = path(&mut pipeline);
    assert_eq!(before, "65000 65101 7");
    announce(&mut pipeline, 8, true);
    assert_eq!(path(&mut pipeline), ("65000 65101 7".to_owned(), count));
    assert_eq!(verifier.answer(&mut pipeline, now), 1);
    assert_eq!(path(&mut pipeline), ("65000 65101 8".to_owned(), count + 1), "no withdrawal between");
    // What is replaced before it was verified never is.
    announce(&mut pipeline, 9, false);
    announce(&mut pipeline, 10, true);
    assert_eq!(verifier.answer(&mut pipeline, now), 1);
    assert_eq!(path(&mut pipeline), ("65000 65101 10".to_owned(), count + 2));
    // The one before is back before the verdict.
    announce(&mut pipeline, 11, true);
    announce(&mut pipeline, 10, true);
    assert_eq!(verifier.answer(&mut pipeline, now), 0);
    assert_eq!(path(&mut pipeline), ("65000 65101 10".to_owned(), count + 2));
    // A bad one ends the valid one when that is known.
    announce(&mut pipeline, 12, false);
    assert_eq!(path(&mut pipeline).1, count + 2);
    verifier.answer(&mut pipeline, now);
    assert_eq!(path(&mut pipeline), (String::new(), count + 3));
    // Nobody answers.
    announce(&mut pipeline, 13, true);
    verifier.answer(&mut pipeline, now);
    assert_eq!(path(&mut pipeline).0, "65000 65101 13");
    announce(&mut pipeline, 14, true);
    assert_eq!(pipeline.poll_timeout(), Some(now + HOLD));
    pipeline.set_now(now + HOLD);
    assert_eq!(path(&mut pipeline).0, "", "it was withdrawn: the valid one is not the peer's any more");
    assert_eq!(states(&mut pipeline, P), [(PathSecurity::Unverified, false)]);
    verifier.answer(&mut pipeline, now + HOLD);
    assert_eq!(path(&mut pipeline).0, "65000 65101 14");
    // A withdrawal does not wait.
    announce(&mut pipeline, 15, true);
    pipeline.update(peer, &withdrawal(prefix(P))).expect("taken");
    assert_eq!(path(&mut pipeline).0, "");
    assert_eq!(verifier.answer(&mut pipeline, now), 0);
}

#[test]
fn a_peer_that_restarts_and_signs_anew_withdraws_nothing() {
    let (mut pipeline, now) = (checked(always()), Instant::now());
    pipeline.set_now(now);
    let (peer, other) = (up_secured(&mut pipeline, 1, BgpsecValidation::Require), up(&mut pipeline, 2));
    let mut sinks = [(other, Sink::default())];
    let mut verifier = Verifier::default();
    for route in [P, OTHER] {
        pipeline.update(peer, &signed(1, 7, prefix(route), true)).expect("taken");
    }
    verifier.answer(&mut pipeline, now);
    settle(&mut pipeline, &mut sinks);
    let messages = sinks[0].1.messages;
    pipeline.peer_away(peer, &Family::ALL);
    pipeline.peer_up(peer, secured(1)).expect("room");
    // The same route with another path; one that turns out bad; then it has sent all.
    pipeline.update(peer, &signed(1, 8, prefix(P), true)).expect("taken");
    pipeline.update(peer, &signed(1, 8, prefix(OTHER), false)).expect("taken");
    Family::ALL.into_iter().for_each(|family| pipeline.forget_stale(peer, family));
    settle(&mut pipeline, &mut sinks);
    assert_eq!(sinks[0].1.messages, messages, "both are used as they were");
    assert_eq!(states(&mut pipeline, P), [VALID]);
    assert_eq!(pipeline.signature_counts(peer).queued_hops, 4);
    assert_eq!(verifier.answer(&mut pipeline, now), 2);
    settle(&mut pipeline, &mut sinks);
    assert_eq!(sinks[0].1.routes[&prefix(P)].path(), "65000 65101 8");
    assert!(!sinks[0].1.routes.contains_key(&prefix(OTHER)));
    assert_eq!((states(&mut pipeline, P), pipeline.poll_timeout()), (vec![VALID], None));
    // What the peer's earlier session has brought and its new one does not is withdrawn, even if it is valid.
    pipeline.peer_away(peer, &Family::ALL);
    pipeline.peer_up(peer, secured(1)).expect("room");
    Family::ALL.into_iter().for_each(|family| pipeline.forget_stale(peer, family));
    settle(&mut pipeline, &mut sinks);
    pipeline.update(peer, &signed(1, 9, prefix(P), true)).expect("taken");
    assert_eq!(states(&mut pipeline, P), [(PathSecurity::Unverified, false)]);
    // Nor is anything known where the path is for another AS now.
    verifier.answer(&mut pipeline, now);
    pipeline.peer_away(peer, &Family::ALL);
    let mut facts = secured(1);
    facts.bgpsec_received.as_mut().expect("agreed").ingress.own = Asn(64999);
    pipeline.peer_up(peer, facts).expect("room");
    pipeline.update(peer, &signed(1, 9, prefix(P), true)).expect("taken");
    assert_eq!(states(&mut pipeline, P), [(PathSecurity::Unverified, false)]);
}

#[test]
fn a_refresh_with_new_signatures_withdraws_nothing() {
    let (mut pipeline, now) = (checked(always()), Instant::now());
    pipeline.set_now(now);
    let (peer, other) = (up_secured(&mut pipeline, 1, BgpsecValidation::Require), up(&mut pipeline, 2));
    let mut sinks = [(other, Sink::default())];
    let mut verifier = Verifier::default();
    for route in [P, OTHER] {
        pipeline.update(peer, &signed(1, 7, prefix(route), true)).expect("taken");
    }
    verifier.answer(&mut pipeline, now);
    settle(&mut pipeline, &mut sinks);
    let messages = sinks[0].1.messages;
    pipeline.begin_refresh(peer, Family::IPV4_UNICAST);
    pipeline.update(peer, &signed(1, 8, prefix(P), true)).expect("taken");
    pipeline.end_refresh(peer, Family::IPV4_UNICAST);
    settle(&mut pipeline, &mut sinks);
    assert_eq!(states(&mut pipeline, P), [VALID], "it came in the refresh");
    assert!(states(&mut pipeline, OTHER).is_empty(), "it did not");
    assert_eq!(verifier.answer(&mut pipeline, now), 1);
    settle(&mut pipeline, &mut sinks);
    assert_eq!(sinks[0].1.routes[&prefix(P)].path(), "65000 65101 8");
    assert_eq!(sinks[0].1.messages - messages, 2, "a withdrawal of the other one, and an announcement");
}

#[test]
fn a_route_that_waits_is_swept_with_the_one_that_it_was_to_replace() {
    for answers_before_the_end in [true, false] {
        let (mut pipeline, now) = (checked(always()), Instant::now());
        pipeline.set_now(now);
        let peer = up_secured(&mut pipeline, 1, BgpsecValidation::Require);
        let mut verifier = Verifier::default();
        pipeline.update(peer, &signed(1, 7, prefix(P), true)).expect("taken");
        verifier.answer(&mut pipeline, now);
        pipeline.update(peer, &signed(1, 8, prefix(P), true)).expect("taken");
        pipeline.begin_refresh(peer, Family::IPV4_UNICAST);
        if answers_before_the_end {
            verifier.answer(&mut pipeline, now);
            assert_eq!(states(&mut pipeline, P), [VALID]);
        }
        pipeline.end_refresh(peer, Family::IPV4_UNICAST);
        verifier.answer(&mut pipeline, now);
        settle(&mut pipeline, &mut []);
        assert!(states(&mut pipeline, P).is_empty(), "the peer has not announced it again");
        assert_eq!(pipeline.signature_counts(peer), Default::default());
    }
}

#[test]
fn a_route_of_the_session_before_keeps_what_the_rpki_says_of_it() {
    let (mut pipeline, now) = (checked(always()), Instant::now());
    pipeline.set_now(now);
    let authorizations = Rc::new(RefCell::new(Authorizations::new(HashKey::new([1, 2]))));
    let vrp = Vrp::new(prefix(P), 24, Asn(7)).expect("a VRP");
    authorizations.borrow_mut().apply(&Delta { announced: vec![vrp], ..Delta::default() });
    pipeline.set_authorizations(Some(authorizations));
    let peer = up_secured(&mut pipeline, 1, BgpsecValidation::Require);
    pipeline.update(peer, &signed(1, 7, prefix(P), true)).expect("taken");
    let mut verifier = Verifier::default();
    verifier.answer(&mut pipeline, now);
    pipeline.peer_away(peer, &Family::ALL);
    pipeline.peer_up(peer, secured(1)).expect("room");
    pipeline.update(peer, &signed(1, 666, prefix(P), true)).expect("taken");
    let validity = |pipeline: &mut Pipeline| {
        let paths = pipeline.explain(prefix(P));
        assert_eq!(paths.len(), 1);
        paths[0].states.map(|states| (states.signatures, states.validity))
    };
    assert_eq!(validity(&mut pipeline), Some((PathSecurity::Valid, Validity::Valid)));
    verifier.answer(&mut pipeline, now);
    assert_eq!(validity(&mut pipeline), Some((PathSecurity::Valid, Validity::Invalid)));
}

#[test]
fn a_valid_route_is_not_kept_for_longer_because_its_successor_is_replaced() {
    let (mut pipeline, now) = (checked(always()), Instant::now());
    pipeline.set_now(now);
    let peer = up_secured(&mut pipeline, 1, BgpsecValidation::Require);
    pipeline.update(peer, &signed(1, 7, prefix(P), true)).expect("taken");
    Verifier::default().answer(&mut pipeline, now);
    for tenth in 0..20 {
        pipeline.set_now(now + tenth * HOLD / 20);
        pipeline.update(peer, &signed(1, 8 + tenth, prefix(P), true)).expect("taken");
        assert_eq!(states(&mut pipeline, P), [VALID]);
        assert_eq!(pipeline.poll_timeout(), Some(now + HOLD));
    }
    pipeline.set_now(now + HOLD);
    while pipeline.work(100) {}
    assert_eq!(states(&mut pipeline, P), [(PathSecurity::Unverified, false)]);
    assert_eq!(pipeline.poll_timeout(), None);
}

#[test]
fn a_policy_that_asks_for_signatures_has_the_valid_route_kept() {
    let (mut pipeline, now) = (checked(always()), Instant::now());
    pipeline.set_now(now);
    let mut verifier = Verifier::default();
    let valid = Condition::Bgpsec(vec![PathSecurity::Valid]);
    let term = |from| Term { name: "t".into(), from, then: vec![], outcome: Outcome::Accept };
    let nested = Condition::Not(vec![Condition::Not(vec![valid])]);
    for (from, is_kept) in [(vec![nested], true), (vec![], false)] {
        let config = PeerConfig { import: Some(program(vec![term(from)])), ..with(1, BgpsecValidation::Log) };
        let peer = pipeline.add_peer(config);
        pipeline.peer_up(peer, secured(1)).expect("room");
        pipeline.update(peer, &signed(1, 7, prefix(P), true)).expect("taken");
        verifier.answer(&mut pipeline, now);
        assert_eq!(states(&mut pipeline, P), [VALID]);
        pipeline.update(peer, &signed(1, 8, prefix(P), true)).expect("taken");
        assert_eq!(states(&mut pipeline, P)[0].0 == PathSecurity::Valid, is_kept);
        pipeline.remove_peer(peer);
        while pipeline.work(100) {}
    }
}

#[test]
fn what_waits_for_its_verdict_is_in_a_snapshot() {
    let (mut pipeline, now) = (checked(always()), Instant::now());
    pipeline.set_now(now);
    let peer = up_secured(&mut pipeline, 1, BgpsecValidation::Require);
    pipeline.update(peer, &signed(1, 7, prefix(P), true)).expect("taken");
    Verifier::default().answer(&mut pipeline, now);
    pipeline.update(peer, &signed(1, 8, prefix(P), true)).expect("taken");
    let records = frozen(&mut pipeline, &[peer], 100, |_| {});
    let mut next = checked(always());
    next.set_now(now);
    let peer = up_secured(&mut next, 1, BgpsecValidation::Require);
    let octets = records.iter().map(|(_, record)| record.as_slice());
    thaw(&mut next, peer, octets).expect("readable");
    assert_eq!(states(&mut next, P), [(PathSecurity::Unverified, false)]);
    assert_eq!(Verifier::default().answer(&mut next, now), 1);
    assert_eq!(states(&mut next, P), [VALID]);
    let path = next.explain(prefix(P)).remove(0);
    assert_eq!(path.attributes().as_path().to_string(), "65101 8");
}

#[test]
fn a_route_that_waits_keeps_what_the_rpki_says_of_the_one_in_use() {
    let (mut pipeline, now) = (checked(always()), Instant::now());
    pipeline.set_now(now);
    let authorizations = Rc::new(RefCell::new(Authorizations::new(HashKey::new([1, 2]))));
    let vrp = Vrp::new(prefix(P), 24, Asn(7)).expect("a VRP");
    authorizations.borrow_mut().apply(&Delta { announced: vec![vrp], ..Delta::default() });
    pipeline.set_authorizations(Some(authorizations));
    let peer = up_secured(&mut pipeline, 1, BgpsecValidation::Require);
    let validity =
        |pipeline: &mut Pipeline| pipeline.explain(prefix(P))[0].states.map(|states| states.validity);
    pipeline.update(peer, &signed(1, 7, prefix(P), true)).expect("taken");
    Verifier::default().answer(&mut pipeline, now);
    assert_eq!(validity(&mut pipeline), Some(Validity::Valid));
    pipeline.update(peer, &signed(1, 8, prefix(P), true)).expect("taken");
    assert_eq!(validity(&mut pipeline), Some(Validity::Valid), "of the route that is in use");
    Verifier::default().answer(&mut pipeline, now);
    assert_eq!(validity(&mut pipeline), Some(Validity::Invalid));
}

#[test]
fn what_was_to_replace_a_route_does_not_after_the_end_of_its_session() {
    for answers in [true, false] {
        let (mut pipeline, now) = (checked(always()), Instant::now());
        pipeline.set_now(now);
        let peer = up_secured(&mut pipeline, 1, BgpsecValidation::Require);
        pipeline.update(peer, &signed(1, 7, prefix(P), true)).expect("taken");
        Verifier::default().answer(&mut pipeline, now);
        pipeline.update(peer, &signed(1, 8, prefix(P), false)).expect("taken");
        let job = pipeline.poll_signatures(now).expect("a job");
        pipeline.peer_down(peer);
        // Before background work has removed the route.
        match answers {
            true => pipeline.verified(job.number, Verifier::default().judge(&job), cost(1), true, now),
            false => {
                pipeline.set_now(now + HOLD);
                pipeline.work(0);
            }
        }
        for path in pipeline.explain(prefix(P)) {
            let signatures = path.signatures.as_ref().map(|signatures| signatures.state);
            assert_eq!(signatures, path.states.map(|states| states.signatures), "{answers}");
        }
        settle(&mut pipeline, &mut []);
        assert!(pipeline.explain(prefix(P)).is_empty());
    }
}

#[test]
fn a_route_that_comes_back_while_what_replaces_it_waits_is_verified_again_if_keys_have_changed() {
    let (mut pipeline, now) = (checked(always()), Instant::now());
    pipeline.set_now(now);
    let peer = up_secured(&mut pipeline, 1, BgpsecValidation::Require);
    let announce = |pipeline: &mut Pipeline, behind, is_good| {
        pipeline.update(peer, &signed(1, behind, prefix(P), is_good)).expect("taken");
    };
    announce(&mut pipeline, 7, true);
    let mut verifier = Verifier::default();
    verifier.answer(&mut pipeline, now);
    announce(&mut pipeline, 8, false);
    verifier.missing.insert(Asn(7));
    pipeline.keys_changed([], [(Asn(7), ski(Asn(7)))], false);
    settle(&mut pipeline, &mut []);
    announce(&mut pipeline, 7, true);
    assert_eq!(verifier.answer(&mut pipeline, now), 1);
    assert_eq!(states(&mut pipeline, P), [(PathSecurity::NotValid, false)]);
}

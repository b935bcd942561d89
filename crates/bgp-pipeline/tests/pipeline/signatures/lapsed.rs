//! Keys that have expired: the routes of a neighbor end one after the other.

use super::*;

const ROUTES: u32 = 600;

fn route(number: u32) -> Prefix {
    prefix(&format!("10.{}.{}.0/24", number / 256, number % 256))
}

/// Routes of a peer under `require`, all of them valid.
fn valid(pipeline: &mut Pipeline, now: Instant) -> (PeerIndex, Verifier) {
    pipeline.set_now(now);
    let (peer, mut verifier) = (up_secured(pipeline, 1, BgpsecValidation::Require), Verifier::default());
    for number in 0..ROUTES {
        pipeline.update(peer, &signed(1, 7 + number % 2, route(number), true)).expect("taken");
    }
    verifier.answer(pipeline, now);
    assert_eq!(pipeline.signature_counts(peer).valid, u64::from(ROUTES));
    (peer, verifier)
}

/// The key of the neighbor, which all of its paths name.
fn own_key() -> (Asn, Ski) {
    (asn(1), ski(asn(1)))
}

#[test]
fn routes_of_a_neighbor_whose_key_has_expired_end_over_a_minute() {
    for all in [false, true] {
        let (mut pipeline, mut now) = (checked(always()), Instant::now());
        let (peer, mut verifier) = valid(&mut pipeline, now);
        verifier.missing.insert(asn(1));
        let names = if all { vec![] } else { vec![own_key()] };
        pipeline.keys_lapsed(names, all);
        let (begin, mut falls) = (now, Vec::new());
        loop {
            pipeline.set_now(now);
            settle(&mut pipeline, &mut []);
            falls.push(verifier.answer(&mut pipeline, now));
            let Some(next) = pipeline.poll_timeout() else { break };
            assert!(next > now, "it waits");
            now = next;
        }
        let seconds = (now - begin).as_secs();
        assert!((58..=60).contains(&seconds) && falls.len() >= 58, "{seconds} s, {} steps", falls.len());
        assert!(falls.iter().all(|fallen| *fallen <= 30), "10 a second: {falls:?}");
        let counts = pipeline.signature_counts(peer);
        assert_eq!((counts.valid, counts.not_valid), (0, u64::from(ROUTES)));
        assert!(falls.len() as u64 <= 61, "and no route was asked about twice");
    }
}

#[test]
fn a_key_that_is_withdrawn_ends_its_routes_at_once_also_while_it_lapses() {
    let (mut pipeline, now) = (checked(always()), Instant::now());
    let (peer, mut verifier) = valid(&mut pipeline, now);
    verifier.missing.insert(Asn(7));
    pipeline.keys_lapsed([(Asn(7), ski(Asn(7)))], false);
    settle(&mut pipeline, &mut []);
    verifier.answer(&mut pipeline, now);
    assert!(pipeline.signature_counts(peer).not_valid < 30);
    pipeline.keys_changed([], [(Asn(7), ski(Asn(7)))], false);
    settle(&mut pipeline, &mut []);
    verifier.answer(&mut pipeline, now);
    let counts = pipeline.signature_counts(peer);
    assert_eq!((counts.valid, counts.not_valid), (u64::from(ROUTES) / 2, u64::from(ROUTES) / 2));
}

#[test]
fn a_key_that_is_there_again_in_time_costs_nothing() {
    let (mut pipeline, mut now) = (checked(always()), Instant::now());
    let (peer, mut verifier) = valid(&mut pipeline, now);
    pipeline.keys_lapsed([own_key()], false);
    verifier.missing.insert(asn(1));
    for _ in 0..10 {
        settle(&mut pipeline, &mut []);
        verifier.answer(&mut pipeline, now);
        now += Duration::from_secs(1);
        pipeline.set_now(now);
    }
    let fallen = pipeline.signature_counts(peer).not_valid;
    assert!((50..200).contains(&fallen), "{fallen}");
    verifier.missing.clear();
    pipeline.keys_changed([own_key()], [], false);
    while let Some(next) = pipeline.poll_timeout() {
        settle(&mut pipeline, &mut []);
        verifier.answer(&mut pipeline, now);
        assert!(pipeline.signature_counts(peer).not_valid <= fallen);
        now = next.max(now);
        pipeline.set_now(now);
    }
    assert_eq!(pipeline.signature_counts(peer).valid, u64::from(ROUTES));
}

//! Routes with BGPsec_PATH: verdicts belong to prefix and attributes, and decide what policy says that they decide.
//!
//! PathSecurity here are made by a toy: they name what they cover. The verifier reads that.

use std::{
    cell::RefCell,
    collections::BTreeSet,
    rc::Rc,
    time::{Duration, Instant},
};

use holdfast_bgp_pipeline::{
    BgpsecValidation, DropReason, Event, FAILED_HOPS, FamilySet, HOLD, PeerConfig, PeerIndex, Pipeline,
    Secured, SessionFacts, SignatureFault, SignatureFaultReason, SignatureJob, SignatureVerdict,
};
use holdfast_bgp_wire::{
    Fault as WireFault, FaultReason as WireFaultReason, HEADER_LEN, NextHop, Origin, PathFault,
    bgpsec::announce,
};
use holdfast_bgpsec_wire::{Ingress, Nlri, Path, Segment, SignatureBlock, Signed, Ski, extend};
use holdfast_origin_validation::{Authorizations, Delta};
use holdfast_policy::{Condition, Outcome, PathSecurity, Term, Validity};
use holdfast_types::{Asn, Family, HashKey, Prefix, Vrp};
use proptest::prelude::*;

use crate::tests::pipeline::{
    behaviour::{always, announcement_by, up},
    policies::program,
    speaker::{Held, OUR_AS, Sink, checked, ebgp, facts, frozen, prefix, settle, thaw, withdrawal},
};

const P: &str = "203.0.113.0/24";
const OTHER: &str = "203.0.112.0/24";

/// The key of an AS.
fn ski(asn: Asn) -> Ski {
    Ski([asn.0 as u8; 20])
}

/// What a signature over these octets is.
fn toy(covered: &[u8]) -> Vec<u8> {
    let sum = covered.iter().fold(7_u64, |sum, octet| sum.wrapping_mul(31).wrapping_add(u64::from(*octet)));
    sum.to_be_bytes().to_vec()
}

/// A path over these ASes, the origin first, to us.
fn path(ases: &[Asn], route: Prefix, is_good: bool) -> Vec<u8> {
    let mut octets: Option<Vec<u8>> = None;
    for (at, asn) in ases.iter().enumerate() {
        let target = ases.get(at + 1).copied().unwrap_or(OUR_AS);
        let segment = Segment { pcount: 1, flags: 0, asn: *asn };
        let before = octets.as_deref().map(|value| Path::parse(value).expect("sound"));
        let extended = |signature: &[u8]| {
            let block = SignatureBlock { suite: 1, ski: ski(*asn), signature };
            extend(before.as_ref(), segment, &[block]).expect("fits")
        };
        // What is covered does not depend on the newest signature.
        let draft = extended(&[0; 8]);
        let read = Path::parse(&draft).expect("sound");
        let block = read.blocks().next().expect("one");
        let signed = Signed::new(&read, block, target, &Nlri::unicast(route));
        let mut signature = toy(signed.of(0));
        signature[0] ^= u8::from(!is_good);
        octets = Some(extended(&signature));
    }
    octets.expect("an AS")
}

/// The body of an UPDATE with such a path.
fn update(path: &[u8], route: Prefix) -> Vec<u8> {
    let next_hop = match route {
        Prefix::V4(_) => NextHop::V4([192, 0, 2, 9].into()),
        Prefix::V6(_) => {
            NextHop::V6 { global: "2001:db8:ffff::1".parse().expect("an address"), link_local: None }
        }
    };
    let message = announce(path, Origin::Igp, next_hop, route).expect("fits");
    message[HEADER_LEN..].to_vec()
}

fn asn(n: u8) -> Asn {
    Asn(65100 + u32::from(n))
}

/// An UPDATE of peer `n` over an AS of its own.
fn signed(n: u8, behind: u32, route: Prefix, is_good: bool) -> Vec<u8> {
    update(&path(&[Asn(behind), asn(n)], route, is_good), route)
}

fn secured(n: u8) -> SessionFacts {
    let families: FamilySet = Family::ALL.into_iter().collect();
    SessionFacts {
        bgpsec_received: Some(Secured { families, ingress: Ingress::external(asn(n), OUR_AS) }),
        ..facts(n)
    }
}

fn with(n: u8, validation: BgpsecValidation) -> PeerConfig {
    let mut config = ebgp(n);
    config.paths.bgpsec_validation = Some(validation);
    config
}

fn up_secured(pipeline: &mut Pipeline, n: u8, validation: BgpsecValidation) -> PeerIndex {
    let peer = pipeline.add_peer(with(n, validation));
    pipeline.peer_up(peer, secured(n)).expect("room");
    peer
}

/// The keys that there are; all by default.
#[derive(Default)]
struct Verifier {
    missing: BTreeSet<Asn>,
    asked: usize,
}

impl Verifier {
    fn judge(&self, job: &SignatureJob) -> SignatureVerdict {
        let read = Path::parse(&job.path).expect("PeerIn has read it");
        let block = read.blocks().next().expect("one");
        let signed = Signed::new(&read, block, job.target, &Nlri::unicast(job.prefix));
        let hops = read.segments().zip(block.signatures()).enumerate();
        let fault = |hop: usize, asn: Asn, ski, reason| {
            SignatureVerdict::NotValid(SignatureFault { suite: 1, hop: hop as u32, asn, ski, reason })
        };
        for (hop, (segment, signature)) in hops {
            if self.missing.contains(&segment.asn) {
                return fault(hop, segment.asn, signature.ski, SignatureFaultReason::NoKey);
            }
            if toy(signed.of(hop)) != signature.octets {
                return fault(hop, segment.asn, signature.ski, SignatureFaultReason::BadSignature);
            }
        }
        SignatureVerdict::Valid
    }

    /// Answers all that is asked; how much that was.
    fn answer(&mut self, pipeline: &mut Pipeline, now: Instant) -> usize {
        let before = self.asked;
        while let Some(job) = pipeline.poll_signatures(now) {
            self.asked += 1;
            let verdict = self.judge(&job);
            pipeline.verified(job.number, verdict, job.hops as u32, true, now);
        }
        self.asked - before
    }
}

/// What is known of each path of a prefix, and whether it is used.
fn states(pipeline: &mut Pipeline, route: &str) -> Vec<(PathSecurity, bool)> {
    let paths = pipeline.explain(prefix(route));
    paths.iter().map(|path| (path.states.unwrap_or_default().signatures, path.is_best)).collect()
}

const VALID: (PathSecurity, bool) = (PathSecurity::Valid, true);

#[test]
fn a_verdict_belongs_to_the_prefix_and_not_to_the_attributes_alone() {
    let (mut pipeline, now) = (checked(always()), Instant::now());
    pipeline.set_now(now);
    let peer = up_secured(&mut pipeline, 1, BgpsecValidation::Require);
    let path = path(&[Asn(7), asn(1)], prefix(P), true);
    pipeline.update(peer, &update(&path, prefix(P))).expect("taken");
    let mut verifier = Verifier::default();
    assert_eq!(states(&mut pipeline, P), [(PathSecurity::Unverified, false)]);
    assert_eq!(verifier.answer(&mut pipeline, now), 1);
    assert_eq!(states(&mut pipeline, P), [VALID]);
    // The same octets with another prefix, of the same family and of the other.
    for other in [OTHER, "2001:db8:1::/48"] {
        pipeline.update(peer, &update(&path, prefix(other))).expect("taken");
        assert_eq!(states(&mut pipeline, other), [(PathSecurity::Unverified, false)], "{other}");
        assert_eq!(verifier.answer(&mut pipeline, now), 1);
        assert_eq!(states(&mut pipeline, other), [(PathSecurity::NotValid, false)], "{other}");
    }
    assert_eq!(states(&mut pipeline, P), [VALID]);
}

#[test]
fn what_comes_again_unchanged_is_not_verified_again() {
    let (mut pipeline, now) = (checked(always()), Instant::now());
    pipeline.set_now(now);
    let (peer, other) = (up_secured(&mut pipeline, 1, BgpsecValidation::Require), up(&mut pipeline, 2));
    let mut sinks = [(other, Sink::default())];
    let body = signed(1, 7, prefix(P), true);
    pipeline.update(peer, &body).expect("taken");
    let mut verifier = Verifier::default();
    verifier.answer(&mut pipeline, now);
    settle(&mut pipeline, &mut sinks);
    let messages = sinks[0].1.messages;
    assert_eq!(sinks[0].1.routes[&prefix(P)].path(), "65000 65101 7");
    pipeline.update(peer, &body).expect("taken");
    settle(&mut pipeline, &mut sinks);
    assert_eq!((verifier.answer(&mut pipeline, now), sinks[0].1.messages), (0, messages));
    // Nor where the session has restarted (RFC 4724).
    pipeline.peer_away(peer, &Family::ALL);
    pipeline.peer_up(peer, secured(1)).expect("room");
    settle(&mut pipeline, &mut sinks);
    pipeline.update(peer, &body).expect("taken");
    settle(&mut pipeline, &mut sinks);
    Family::ALL.into_iter().for_each(|family| pipeline.forget_stale(peer, family));
    settle(&mut pipeline, &mut sinks);
    assert_eq!((verifier.answer(&mut pipeline, now), sinks[0].1.messages), (0, messages));
    assert_eq!(states(&mut pipeline, P), [VALID]);
}

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

/// The body of an UPDATE with a path identifier (RFC 7911).
fn identified(identifier: u32, path: &[u8]) -> Vec<u8> {
    let reach = [&[0, 1, 1, 4, 192, 0, 2, 9, 0][..], &identifier.to_be_bytes(), &[24, 203, 0, 113]].concat();
    let mut attributes = vec![0x40, 1, 1, 0];
    for (code, value) in [(14, &reach[..]), (33, path)] {
        attributes.extend([0x90, code]);
        attributes.extend((value.len() as u16).to_be_bytes());
        attributes.extend(value);
    }
    let length = (attributes.len() as u16).to_be_bytes();
    [&[0, 0], &length[..], &attributes].concat()
}

#[test]
fn each_path_of_a_prefix_has_a_verdict_of_its_own() {
    let (mut pipeline, now) = (checked(always()), Instant::now());
    pipeline.set_now(now);
    let peer = pipeline.add_peer(with(1, BgpsecValidation::Require));
    let identifiers_received = Family::ALL.into_iter().collect();
    pipeline.peer_up(peer, SessionFacts { identifiers_received, ..secured(1) }).expect("room");
    let path = |behind, is_good| path(&[Asn(behind), asn(1)], prefix(P), is_good);
    let mut verifier = Verifier::default();
    for (identifier, behind, is_good) in [(1, 7, true), (2, 8, false), (3, 9, true)] {
        pipeline.update(peer, &identified(identifier, &path(behind, is_good))).expect("taken");
    }
    assert_eq!(verifier.answer(&mut pipeline, now), 3);
    let known = |pipeline: &mut Pipeline| {
        let mut known: Vec<_> = states(pipeline, P).into_iter().map(|(state, _)| state).collect();
        known.sort_by_key(|state| *state as u8);
        known
    };
    let (valid, bad) = (PathSecurity::Valid, PathSecurity::NotValid);
    assert_eq!(known(&mut pipeline), [valid, valid, bad]);
    // The identifier is not signed: the same octets under another one are a path of their own.
    pipeline.update(peer, &identified(2, &path(7, true))).expect("taken");
    pipeline.update(peer, &identified(1, &path(7, false))).expect("taken");
    assert_eq!(
        known(&mut pipeline),
        [PathSecurity::Unverified, valid, valid],
        "the first one is kept meanwhile"
    );
    assert_eq!(verifier.answer(&mut pipeline, now), 2);
    assert_eq!(known(&mut pipeline), [valid, valid, bad]);
    let counts = pipeline.signature_counts(peer);
    assert_eq!((counts.valid, counts.not_valid, counts.unverified, counts.queued_hops), (2, 1, 0, 0));
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
fn verdicts_are_in_a_snapshot() {
    let (mut pipeline, now) = (checked(always()), Instant::now());
    pipeline.set_now(now);
    let peer = up_secured(&mut pipeline, 1, BgpsecValidation::Require);
    let good = path(&[Asn(7), asn(1)], prefix(P), true);
    for route in [P, OTHER, "2001:db8:1::/48"] {
        pipeline.update(peer, &update(&good, prefix(route))).expect("taken");
    }
    let mut verifier = Verifier::default();
    assert_eq!(verifier.answer(&mut pipeline, now), 3);
    pipeline.update(peer, &signed(1, 9, prefix("10.0.0.0/8"), true)).expect("taken");
    let records = frozen(&mut pipeline, &[peer], 1, |_| {});
    let mut next = checked(always());
    next.set_now(now);
    let peer = up_secured(&mut next, 1, BgpsecValidation::Require);
    thaw(&mut next, peer, records.iter().map(|(_, record)| record.as_slice())).expect("readable");
    assert_eq!(states(&mut next, P), [VALID]);
    for route in [OTHER, "2001:db8:1::/48"] {
        assert_eq!(states(&mut next, route), [(PathSecurity::NotValid, false)], "the same octets, {route}");
    }
    assert_eq!(states(&mut next, "10.0.0.0/8"), [(PathSecurity::Unverified, false)]);
    // The one, and the reasons of those that are not valid.
    assert_eq!(verifier.answer(&mut next, now), 3);
    // A session that has not agreed on it has no such records.
    let other = up(&mut next, 3);
    let record = &records[0].1;
    assert!(thaw(&mut next, other, [record.as_slice()]).is_err());
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
fn verdicts_on_what_is_not_there_any_more_do_nothing() {
    let (mut pipeline, now) = (checked(always()), Instant::now());
    pipeline.set_now(now);
    let peer = up_secured(&mut pipeline, 1, BgpsecValidation::Log);
    let take = |pipeline: &mut Pipeline, is_good| {
        pipeline.update(peer, &signed(1, 7, prefix(P), is_good)).expect("taken");
        pipeline.poll_signatures(now).expect("a job")
    };
    // Withdrawn, and announced anew with other octets.
    let old = take(&mut pipeline, true);
    pipeline.update(peer, &withdrawal(prefix(P))).expect("taken");
    let new = take(&mut pipeline, false);
    pipeline.verified(old.number, SignatureVerdict::Valid, 2, true, now);
    assert_eq!(states(&mut pipeline, P), [(PathSecurity::Unverified, true)]);
    let verdict = Verifier::default().judge(&new);
    pipeline.verified(new.number, verdict, 2, true, now);
    assert_eq!(states(&mut pipeline, P), [(PathSecurity::NotValid, true)], "it is logged, and used");
    // The session has ended, and another one has its number.
    let last = take(&mut pipeline, true);
    pipeline.peer_down(peer);
    settle(&mut pipeline, &mut []);
    pipeline.peer_up(peer, secured(1)).expect("room");
    pipeline.update(peer, &signed(1, 7, prefix(P), false)).expect("taken");
    pipeline.verified(last.number, SignatureVerdict::Valid, 2, true, now);
    assert_eq!(states(&mut pipeline, P), [(PathSecurity::Unverified, true)]);
    // A verdict twice, and one that nobody has asked for.
    for number in [last.number, u64::MAX] {
        pipeline.verified(number, SignatureVerdict::Valid, 2, true, now);
    }
    assert_eq!(states(&mut pipeline, P), [(PathSecurity::Unverified, true)]);
}

#[test]
fn jobs_that_are_lost_are_asked_again() {
    let (mut pipeline, now) = (checked(always()), Instant::now());
    pipeline.set_now(now);
    let peer = up_secured(&mut pipeline, 1, BgpsecValidation::Require);
    pipeline.update(peer, &signed(1, 7, prefix(P), true)).expect("taken");
    let lost = pipeline.poll_signatures(now).expect("a job");
    assert_eq!(pipeline.poll_signatures(now), None);
    pipeline.signatures_lost();
    pipeline.verified(lost.number, SignatureVerdict::Valid, 2, true, now);
    assert_eq!(states(&mut pipeline, P), [(PathSecurity::Unverified, false)], "it was another asking");
    assert_eq!(Verifier::default().answer(&mut pipeline, now), 1);
    assert_eq!(states(&mut pipeline, P), [VALID]);
}

#[test]
fn of_changed_keys_exactly_those_routes_are_verified_again_that_they_concern() {
    let (mut pipeline, now) = (checked(always()), Instant::now());
    pipeline.set_now(now);
    let peer = up_secured(&mut pipeline, 1, BgpsecValidation::Require);
    let routes: Vec<Prefix> = (0..20).map(|n| prefix(&format!("10.0.{n}.0/24"))).collect();
    for (n, route) in routes.iter().enumerate() {
        pipeline.update(peer, &signed(1, 7 + (n as u32 % 4), *route, true)).expect("taken");
    }
    let mut verifier = Verifier::default();
    assert_eq!(verifier.answer(&mut pipeline, now), 20);
    let change = |pipeline: &mut Pipeline, verifier: &mut Verifier, asn: u32, is_there: bool| {
        let (asn, name) = (Asn(asn), (Asn(asn), ski(Asn(asn))));
        match is_there {
            true => verifier.missing.remove(&asn),
            false => verifier.missing.insert(asn),
        };
        let (added, removed) = if is_there { (vec![name], vec![]) } else { (vec![], vec![name]) };
        pipeline.keys_changed(added, removed, false);
        settle(pipeline, &mut []);
        verifier.answer(pipeline, now)
    };
    assert_eq!(change(&mut pipeline, &mut verifier, 8, false), 5);
    let count = |pipeline: &Pipeline| {
        let counts = pipeline.signature_counts(peer);
        (counts.valid, counts.not_valid, counts.unverified, counts.queued_hops)
    };
    assert_eq!(count(&pipeline), (15, 5, 0, 0));
    assert_eq!(change(&mut pipeline, &mut verifier, 99, true), 0, "nobody names it");
    assert_eq!(
        change(&mut pipeline, &mut verifier, 7, true),
        0,
        "a second key: those that name one are valid"
    );
    assert_eq!(change(&mut pipeline, &mut verifier, 8, true), 5);
    assert_eq!(count(&pipeline), (20, 0, 0, 0));
    pipeline.keys_changed([], [], true);
    settle(&mut pipeline, &mut []);
    assert_eq!(verifier.answer(&mut pipeline, now), 20);
}

#[test]
fn a_verdict_by_older_keys_is_asked_for_once_more() {
    let (mut pipeline, now) = (checked(always()), Instant::now());
    pipeline.set_now(now);
    let peer = up_secured(&mut pipeline, 1, BgpsecValidation::Require);
    pipeline.update(peer, &signed(1, 7, prefix(P), true)).expect("taken");
    let job = pipeline.poll_signatures(now).expect("a job");
    pipeline.keys_changed([], [(Asn(7), ski(Asn(7)))], false);
    settle(&mut pipeline, &mut []);
    pipeline.verified(job.number, SignatureVerdict::Valid, 2, false, now);
    let mut verifier = Verifier { missing: [Asn(7)].into(), asked: 0 };
    assert_eq!(verifier.answer(&mut pipeline, now), 1);
    assert_eq!(states(&mut pipeline, P), [(PathSecurity::NotValid, false)]);
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
        pipeline.verified(job.number, verifier.judge(&job), FAILED_HOPS, true, now);
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
            pipeline.verified(job.number, verdict, FAILED_HOPS / 2, true, now);
        }
        let told = |event: &Event| matches!(event, Event::TooManyBadSignatures { .. });
        assert_eq!(std::iter::from_fn(|| pipeline.poll_event()).filter(told).count(), 1);
        pipeline.update(peer, &signed(1, 10, prefix(P), false)).expect("taken");
        assert_eq!(pipeline.poll_signatures(now), None);
        assert_eq!(states(&mut pipeline, P), [(PathSecurity::Unverified, true)]);
    }
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
            true => pipeline.verified(job.number, Verifier::default().judge(&job), 1, true, now),
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
    pipeline.verified(job.number, verdict, FAILED_HOPS, true, now);
    pipeline.update(next, &signed(2, 7, prefix(P), true)).expect("taken");
    assert_eq!(Verifier::default().answer(&mut pipeline, now), 1);
}

#[test]
fn routes_are_preferred_by_their_signatures_where_that_is_configured() {
    let (mut pipeline, now) = (checked(always()), Instant::now());
    pipeline.set_now(now);
    let [one, two, three] = [1, 2, 3].map(|n| up_secured(&mut pipeline, n, BgpsecValidation::Prefer));
    // The longest path is the valid one; the shortest is not.
    pipeline
        .update(one, &update(&path(&[Asn(6), Asn(7), asn(1)], prefix(P), true), prefix(P)))
        .expect("taken");
    pipeline.update(two, &signed(2, 7, prefix(P), false)).expect("taken");
    pipeline.update(three, &announcement_by(3, &[Asn(6), Asn(7), Asn(8), asn(3)], prefix(P))).expect("taken");
    Verifier::default().answer(&mut pipeline, now);
    let best = |pipeline: &mut Pipeline| {
        let paths = pipeline.explain(prefix(P));
        paths.iter().find(|path| path.is_best).map(|path| (path.peer, path.local_pref))
    };
    assert_eq!(best(&mut pipeline), Some((Some(one), 110)));
    pipeline.update(one, &withdrawal(prefix(P))).expect("taken");
    assert_eq!(
        best(&mut pipeline),
        Some((Some(three), 100)),
        "one without signatures, before one with bad ones"
    );
}

#[test]
fn attributes_with_both_paths_are_refused_though_a_set_has_them() {
    let (mut pipeline, now) = (checked(always()), Instant::now());
    pipeline.set_now(now);
    let peer = up_secured(&mut pipeline, 1, BgpsecValidation::Log);
    pipeline.update(peer, &signed(1, 7, prefix(P), true)).expect("taken");
    let canonical = pipeline.explain(prefix(P))[0].bytes.clone();
    let dumped = pipeline.dump(Family::IPV4_UNICAST, holdfast_bgp_pipeline::DumpView::Received, None, 9);
    let codes =
        |bytes: &[u8]| holdfast_bgp_wire::Attributes(bytes).iter().map(|one| one.code).collect::<Vec<_>>();
    assert_eq!((codes(&canonical), codes(&dumped.prefixes[0].1[0].bytes)), (vec![1, 2, 33], vec![1, 33]));
    let encoder = holdfast_bgp_wire::UpdateEncoder::new(4096);
    let mut out = Vec::new();
    let routes = [OTHER, "203.0.114.0/24"].map(|text| match prefix(text) {
        Prefix::V4(route) => route,
        Prefix::V6(_) => unreachable!("IPv4"),
    });
    let sent = encoder.announce_mp(&canonical, NextHop::V4([192, 0, 2, 9].into()), routes, &mut out);
    assert_eq!(sent, Ok(1));
    pipeline.update(peer, &out[HEADER_LEN..]).expect("treated as withdrawn");
    assert!(pipeline.explain(prefix(OTHER)).is_empty());
    let drops = pipeline.drops(peer).expect("there").counts().to_vec();
    assert_eq!(drops.len(), 1, "{drops:?}");
}

#[test]
fn what_cannot_be_a_path_is_a_withdrawal_with_a_reason_of_its_own() {
    let (mut pipeline, now) = (checked(always()), Instant::now());
    pipeline.set_now(now);
    let peer = up_secured(&mut pipeline, 1, BgpsecValidation::Log);
    let route = prefix(P);
    let over = |ases: &[u32]| {
        let ases: Vec<_> = ases.iter().map(|asn| Asn(*asn)).collect();
        update(&path(&ases, route, true), route)
    };
    let own = asn(1).0;
    let many: Vec<u32> = (1..=64).chain([own]).collect();
    let wrong = [
        (over(&[7, 9]), PathFault::NotThePeer),
        (over(&[7, 0, own]), PathFault::AsZero),
        (over(&[7, OUR_AS.0, own]), PathFault::Loop),
        (over(&many), PathFault::TooManyHops),
        (update(&[0, 8, 1, 0, 0, 0, 0, 7], route), PathFault::Malformed),
    ];
    for (body, fault) in wrong {
        pipeline.update(peer, &over(&[7, own])).expect("taken");
        assert_eq!(pipeline.explain(route).len(), 1);
        pipeline.update(peer, &body).expect("treated as withdrawn");
        assert!(pipeline.explain(route).is_empty(), "{fault:?}");
        let counts = pipeline.counts(peer, Family::IPV4_UNICAST).routes;
        assert_eq!(counts.received, 0, "nor does it count for `max-prefix`");
        let expected =
            DropReason::Withdrawn(WireFault { attribute: 33, reason: WireFaultReason::Bgpsec(fault) });
        let drops = pipeline.drops(peer).expect("there");
        assert!(drops.counts().contains(&(expected, 1)), "{fault:?}: {:?}", drops.counts());
    }
    assert_eq!(pipeline.signature_counts(peer).unverified, 0);
}

/// The whole UPDATE that announces with this path, and with the prefix once more in the NLRI field.
fn repeated(path: &[u8], route: Prefix, nlri: &[u8]) -> Vec<u8> {
    [update(path, route), nlri.to_vec()].concat()
}

#[test]
fn a_prefix_may_stand_in_the_nlri_field_as_well_only_where_that_is_configured() {
    let (mut pipeline, now) = (checked(always()), Instant::now());
    pipeline.set_now(now);
    let (strict, patient) = (pipeline.add_peer(ebgp(1)), pipeline.add_peer(ebgp(2)));
    pipeline.peer_up(strict, secured(1)).expect("room");
    let mut facts = secured(2);
    facts.bgpsec_received.iter_mut().for_each(|secured| secured.ingress.repeated_prefix = true);
    pipeline.peer_up(patient, facts).expect("room");
    let taken = |pipeline: &mut Pipeline, peer, n, nlri: &[u8]| {
        let path = path(&[Asn(7), asn(n)], prefix(P), true);
        pipeline.update(peer, &repeated(&path, prefix(P), nlri)).expect("treated as withdrawn at worst");
        let paths = pipeline.explain(prefix(P));
        paths.iter().any(|path| path.peer == Some(peer))
    };
    let (same, other) = ([24, 203, 0, 113], [24, 203, 0, 112]);
    assert!(!taken(&mut pipeline, strict, 1, &same));
    assert!(taken(&mut pipeline, patient, 2, &same));
    assert!(!taken(&mut pipeline, patient, 2, &other));
    assert!(taken(&mut pipeline, patient, 2, &same));
    assert!(!taken(&mut pipeline, patient, 2, &[&same[..], &other].concat()));
    assert!(pipeline.explain(prefix(OTHER)).is_empty());
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

#[test]
fn what_others_are_told_is_not_final_before_the_first_verdicts_and_for_two_seconds_at_most() {
    for answers in [true, false] {
        let (mut pipeline, now) = (checked(always()), Instant::now());
        pipeline.set_now(now);
        let peer = up_secured(&mut pipeline, 1, BgpsecValidation::Require);
        settle(&mut pipeline, &mut []);
        assert!(pipeline.is_settled());
        pipeline.update(peer, &signed(1, 7, prefix(P), true)).expect("taken");
        settle(&mut pipeline, &mut []);
        assert!(!pipeline.is_settled());
        if answers {
            Verifier::default().answer(&mut pipeline, now);
        } else {
            pipeline.set_now(now + HOLD);
        }
        settle(&mut pipeline, &mut []);
        assert!(pipeline.is_settled());
    }
}

/// What happens in the model.
#[derive(Clone, Debug)]
enum Step {
    Announce {
        peer: u8,
        route: u8,
        behind: u8,
        is_good: bool,
    },
    Withdraw {
        peer: u8,
        route: u8,
    },
    Unsigned {
        peer: u8,
        route: u8,
    },
    Session {
        peer: u8,
        restarts: bool,
    },
    /// What the peer's session before has brought, and this one has not, goes.
    Forget {
        peer: u8,
    },
    Key {
        asn: u8,
        is_there: bool,
    },
    Ask {
        count: u8,
    },
    /// Of those under way, which is answered.
    Answer {
        which: u8,
    },
    Lose,
    Work,
    Time {
        ms: u16,
    },
}

fn step() -> impl Strategy<Value = Step> {
    let (peer, route, behind) = (0..3_u8, 0..4_u8, 0..4_u8);
    prop_oneof![
        6 => (peer.clone(), route.clone(), behind.clone(), prop::bool::weighted(0.8))
            .prop_map(|(peer, route, behind, is_good)| Step::Announce { peer, route, behind, is_good }),
        2 => (peer.clone(), route.clone()).prop_map(|(peer, route)| Step::Withdraw { peer, route }),
        1 => (peer.clone(), route).prop_map(|(peer, route)| Step::Unsigned { peer, route }),
        1 => (peer.clone(), any::<bool>()).prop_map(|(peer, restarts)| Step::Session { peer, restarts }),
        1 => peer.prop_map(|peer| Step::Forget { peer }),
        2 => (behind, any::<bool>()).prop_map(|(asn, is_there)| Step::Key { asn, is_there }),
        4 => (1..5_u8).prop_map(|count| Step::Ask { count }),
        6 => any::<u8>().prop_map(|which| Step::Answer { which }),
        1 => Just(Step::Lose),
        3 => Just(Step::Work),
        2 => (0..3000_u16).prop_map(|ms| Step::Time { ms }),
    ]
}

fn route(number: u8) -> Prefix {
    match number {
        3 => prefix("2001:db8:7::/48"),
        number => prefix(&format!("10.0.{number}.0/24")),
    }
}

proptest! {
    #![proptest_config(holdfast_testing::cases(256))]

    /// At rest everything is as if it had been verified at once; under `require` no route is in use that is not valid.
    #[test]
    fn at_rest_verdicts_are_those_of_verifying_all_at_once(steps in prop::collection::vec(step(), 1..80)) {
        let mut now = Instant::now();
        let mut pipeline = checked(always());
        pipeline.set_now(now);
        let modes = [BgpsecValidation::Require, BgpsecValidation::Log, BgpsecValidation::Prefer];
        let peers: Vec<_> = (0..3).map(|n| up_secured(&mut pipeline, n, modes[usize::from(n)])).collect();
        let watcher = up(&mut pipeline, 9);
        let mut sinks = [(watcher, Sink::default())];
        let mut verifier = Verifier::default();
        let mut under_way: Vec<(SignatureJob, SignatureVerdict, u64)> = Vec::new();
        let mut epoch = 0_u64;
        // What each peer has said last: the octets and whether these are good.
        let mut said = std::collections::BTreeMap::new();
        for step in steps {
            pipeline.set_now(now);
            match step {
                Step::Announce { peer, route: of, behind, is_good } => {
                    let path = path(&[Asn(u32::from(behind) + 10), asn(peer)], route(of), is_good);
                    pipeline.update(peers[usize::from(peer)], &update(&path, route(of))).expect("taken");
                    said.insert((peer, of), Some((behind, is_good)));
                }
                Step::Withdraw { peer, route: of } => {
                    pipeline.update(peers[usize::from(peer)], &withdrawal(route(of))).expect("taken");
                    said.remove(&(peer, of));
                }
                Step::Unsigned { peer, route: of } => {
                    let body = announcement_by(peer, &[asn(peer)], route(of));
                    pipeline.update(peers[usize::from(peer)], &body).expect("taken");
                    said.insert((peer, of), None);
                }
                Step::Session { peer, restarts } => {
                    let index = peers[usize::from(peer)];
                    match restarts {
                        true => pipeline.peer_away(index, &Family::ALL),
                        false => pipeline.peer_down(index),
                    }
                    pipeline.peer_up(index, secured(peer)).expect("room");
                    said.retain(|(of, _), _| *of != peer);
                }
                Step::Forget { peer } => {
                    let index = peers[usize::from(peer)];
                    Family::ALL.into_iter().for_each(|family| pipeline.forget_stale(index, family));
                }
                Step::Key { asn, is_there } => {
                    let asn = Asn(u32::from(asn) + 10);
                    let changes = match is_there {
                        true => verifier.missing.remove(&asn),
                        false => verifier.missing.insert(asn),
                    };
                    if changes {
                        epoch += 1;
                        let name = [(asn, ski(asn))];
                        let (added, removed): (&[_], &[_]) = if is_there { (&name, &[]) } else { (&[], &name) };
                        pipeline.keys_changed(added.iter().copied(), removed.iter().copied(), false);
                    }
                }
                Step::Ask { count } => {
                    for _ in 0..count {
                        let Some(job) = pipeline.poll_signatures(now) else { break };
                        let verdict = verifier.judge(&job);
                        under_way.push((job, verdict, epoch));
                    }
                }
                Step::Answer { which } if !under_way.is_empty() => {
                    let (job, verdict, by) = under_way.swap_remove(usize::from(which) % under_way.len());
                    pipeline.verified(job.number, verdict, 1, by == epoch, now);
                }
                Step::Answer { .. } => {}
                Step::Lose => pipeline.signatures_lost(),
                Step::Work => {
                    pipeline.work(3);
                }
                Step::Time { ms } => now += Duration::from_millis(ms.into()),
            }
            for number in 0..4 {
                for path in pipeline.explain(route(number)) {
                    let is_valid = path.states.unwrap_or_default().signatures == PathSecurity::Valid;
                    prop_assert!(path.peer != Some(peers[0]) || !path.is_best || is_valid);
                }
            }
        }
        for (peer, family) in peers.iter().flat_map(|peer| Family::ALL.map(|family| (*peer, family))) {
            pipeline.forget_stale(peer, family);
        }
        for (job, verdict, by) in under_way {
            pipeline.verified(job.number, verdict, 1, by == epoch, now);
        }
        for _ in 0..3 {
            settle(&mut pipeline, &mut sinks);
            verifier.answer(&mut pipeline, now);
        }
        settle(&mut pipeline, &mut sinks);
        for number in 0..4 {
            let paths = pipeline.explain(route(number));
            for (n, index) in peers.iter().enumerate() {
                let found = paths.iter().find(|path| path.peer == Some(*index));
                let found = found.map(|path| path.states.unwrap_or_default().signatures);
                let expected = said.get(&(n as u8, number)).map(|said| match said {
                    None => PathSecurity::Unsigned,
                    Some((behind, is_good)) => {
                        let has_key = !verifier.missing.contains(&Asn(u32::from(*behind) + 10));
                        if has_key && *is_good { PathSecurity::Valid } else { PathSecurity::NotValid }
                    }
                });
                prop_assert_eq!(found, expected, "peer {} route {}", n, number);
            }
        }
        let pending: u64 = peers.iter().map(|peer| pipeline.signature_counts(*peer).queued_hops).sum();
        prop_assert_eq!(pending, 0);
    }
}

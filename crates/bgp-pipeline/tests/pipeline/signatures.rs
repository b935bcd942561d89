//! Routes with BGPsec_PATH: verdicts belong to prefix and attributes, and decide what policy says that they decide.
//!
//! PathSecurity here are made by a toy: they name what they cover. The verifier reads that.

mod costs;
mod held;
mod lapsed;
mod model;
mod paced;

use std::{
    cell::RefCell,
    collections::BTreeSet,
    rc::Rc,
    time::{Duration, Instant},
};

use holdfast_bgp_pipeline::{
    BgpsecValidation, DropReason, Event, FAILED_HOPS, FamilySet, HOLD, PathView, PeerConfig, PeerIndex,
    Pipeline, Secured, SessionFacts, SignatureCost, SignatureFault, SignatureFaultReason, SignatureJob,
    SignatureVerdict,
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
    ski_of(asn, 0)
}

/// One of the keys of an AS.
fn ski_of(asn: Asn, version: u8) -> Ski {
    let mut octets = [asn.0 as u8; 20];
    octets[19] ^= version;
    Ski(octets)
}

/// What a signature over these octets is.
fn toy(covered: &[u8]) -> Vec<u8> {
    let sum = covered.iter().fold(7_u64, |sum, octet| sum.wrapping_mul(31).wrapping_add(u64::from(*octet)));
    sum.to_be_bytes().to_vec()
}

/// A path over these ASes, the origin first, to us.
fn path(ases: &[Asn], route: Prefix, is_good: bool) -> Vec<u8> {
    path_by(ases, route, is_good, 0)
}

/// The same, signed with these keys.
fn path_by(ases: &[Asn], route: Prefix, is_good: bool, version: u8) -> Vec<u8> {
    let mut octets: Option<Vec<u8>> = None;
    for (at, asn) in ases.iter().enumerate() {
        let target = ases.get(at + 1).copied().unwrap_or(OUR_AS);
        let segment = Segment { pcount: 1, flags: 0, asn: *asn };
        let before = octets.as_deref().map(|value| Path::parse(value).expect("sound"));
        let extended = |signature: &[u8]| {
            let block = SignatureBlock { suite: 1, ski: ski_of(*asn, version), signature };
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
            pipeline.verified(job.number, verdict, cost(job.hops as u32), true, now);
        }
        self.asked - before
    }
}

/// So many signatures were verified.
fn cost(verified: u32) -> SignatureCost {
    SignatureCost { verified, failed: 0 }
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
    pipeline.verified(old.number, SignatureVerdict::Valid, cost(2), true, now);
    assert_eq!(states(&mut pipeline, P), [(PathSecurity::Unverified, true)]);
    let verdict = Verifier::default().judge(&new);
    pipeline.verified(new.number, verdict, cost(2), true, now);
    assert_eq!(states(&mut pipeline, P), [(PathSecurity::NotValid, true)], "it is logged, and used");
    // The session has ended, and another one has its number.
    let last = take(&mut pipeline, true);
    pipeline.peer_down(peer);
    settle(&mut pipeline, &mut []);
    pipeline.peer_up(peer, secured(1)).expect("room");
    pipeline.update(peer, &signed(1, 7, prefix(P), false)).expect("taken");
    pipeline.verified(last.number, SignatureVerdict::Valid, cost(2), true, now);
    assert_eq!(states(&mut pipeline, P), [(PathSecurity::Unverified, true)]);
    // A verdict twice, and one that nobody has asked for.
    for number in [last.number, u64::MAX] {
        pipeline.verified(number, SignatureVerdict::Valid, cost(2), true, now);
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
    pipeline.verified(lost.number, SignatureVerdict::Valid, cost(2), true, now);
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
    pipeline.verified(job.number, SignatureVerdict::Valid, cost(2), false, now);
    let mut verifier = Verifier { missing: [Asn(7)].into(), asked: 0 };
    assert_eq!(verifier.answer(&mut pipeline, now), 1);
    assert_eq!(states(&mut pipeline, P), [(PathSecurity::NotValid, false)]);
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

/// RFC 8205 section 5.2.
#[test]
fn a_path_of_which_no_suite_is_known_counts_as_one_without_signatures() {
    let (mut pipeline, now) = (checked(always()), Instant::now());
    pipeline.set_now(now);
    let modes = [BgpsecValidation::Log, BgpsecValidation::Prefer, BgpsecValidation::Require];
    for (n, mode) in (1..).zip(modes) {
        let peer = up_secured(&mut pipeline, n, mode);
        pipeline.update(peer, &signed(n, 7, prefix(P), true)).expect("taken");
        let job = pipeline.poll_signatures(now).expect("a job");
        pipeline.verified(job.number, SignatureVerdict::Unsupported, cost(0), true, now);
        let paths = pipeline.explain(prefix(P));
        let [path] = &paths[..] else { panic!("{} paths", paths.len()) };
        let (state, is_used) = (path.states.unwrap_or_default().signatures, path.is_best);
        assert_eq!((state, path.local_pref), (PathSecurity::Unsigned, 100), "{mode:?}");
        assert_eq!(is_used, mode != BgpsecValidation::Require);
        pipeline.update(peer, &withdrawal(prefix(P))).expect("taken");
    }
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

#[test]
fn a_route_without_signatures_of_a_peer_that_signs_is_shown_as_unsigned() {
    let (mut pipeline, now) = (checked(always()), Instant::now());
    pipeline.set_now(now);
    let signs = up_secured(&mut pipeline, 1, BgpsecValidation::Log);
    let plain = up(&mut pipeline, 2);
    for (peer, n) in [(signs, 1), (plain, 2)] {
        pipeline.update(peer, &announcement_by(n, &[Asn(7), asn(n)], prefix(P))).expect("taken");
    }
    let paths = pipeline.explain(prefix(P));
    let states: Vec<_> =
        paths.iter().map(|path| (path.peer, path.signatures.as_ref().map(|view| view.state))).collect();
    assert!(states.contains(&(Some(signs), Some(PathSecurity::Unsigned))), "{states:?}");
    assert!(states.contains(&(Some(plain), None)), "{states:?}");
    assert!(paths.iter().flat_map(|path| &path.signatures).all(|view| !view.is_pending && view.at.is_none()));
}

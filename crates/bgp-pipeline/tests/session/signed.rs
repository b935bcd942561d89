//! The body of the fuzz target `signed_session`: a peer that sends signed paths, and a verifier that says anything.

use std::{collections::VecDeque, time::Duration};

use holdfast_bgp_pipeline::{
    BgpsecValidation, PeerKind, SignatureCost, SignatureCounts, SignatureFault, SignatureFaultReason,
    SignatureJob, SignatureVerdict,
};
use holdfast_bgp_wire::{KEEPALIVE, NextHop, Origin, bgpsec::announce, encode::end_of_rib};
use holdfast_bgpsec_wire::{CONFED_SEGMENT, Path, Segment, SignatureBlock, Ski, extend};
use holdfast_policy::PathSecurity;
use holdfast_types::{Asn, Family, Prefix};

use super::{
    router::{OUR_AS, Wild},
    sequence::{Life, Step, Steps, wild},
};

/// Steps of one sequence at most.
const MOST_STEPS: usize = 150;
/// Signatures that one verdict has cost at most: what all steps make of debt is paid at the end.
const MOST_VERIFIED: u8 = 64;
/// Seconds in which that is so.
const PATIENCE: usize = 30;
/// Numbers of jobs that were answered already.
const MOST_OLD: usize = 32;
/// What signed routes lead to; the third is one that the clean peer has, too.
const PREFIXES: [&str; 4] = ["192.0.2.0/24", "192.0.2.0/25", "203.0.113.0/24", "2001:db8:113::/48"];
/// ASs in paths: whatever stands there is one of these, of which one is never the peer's.
const ASES: u32 = 8;

/// What the verifier has been asked and has not answered, and what it has answered.
#[derive(Default)]
struct Verifier {
    asked: VecDeque<SignatureJob>,
    old: VecDeque<u64>,
    /// Verdicts on what was asked.
    said: usize,
}

/// The first octet says who the wild peer is, the second what signatures mean; then each step is an octet, a length of
/// two, and so many octets. Returns how many jobs had a verdict.
///
/// # Panics
/// Something of the session beside it, of what stages promise each other or of what signed routes are promised is
/// broken.
pub(crate) fn signed_session(data: &[u8]) -> usize {
    let Some((&[who, meaning], steps)) = data.split_first_chunk() else { return 0 };
    let modes =
        [BgpsecValidation::Require, BgpsecValidation::Prefer, BgpsecValidation::Log, BgpsecValidation::Off];
    let mode = modes[usize::from(meaning % 4)];
    let peer = Wild { bgpsec: Some(mode), ..wild(who) };
    let (mut life, mut verifier) = (Life::of(who, peer), Verifier::default());
    for step in Steps(steps).take(MOST_STEPS) {
        let Step { kind, low, octets } = step;
        let pipeline = &mut life.router.pipeline;
        match kind % 16 {
            8 | 9 => life.router.wild_says(&signed(peer, octets)),
            10 => verifier.ask(&mut life, low),
            11 => verifier.answer(&mut life, low, octets),
            12 => pipeline.signatures_lost(),
            13 => {
                let name = (Asn(u32::from(low) % ASES), ski(low));
                let (added, removed): (&[_], &[_]) =
                    if octets.is_empty() { (&[name], &[]) } else { (&[], &[name]) };
                pipeline.keys_changed(added.iter().copied(), removed.iter().copied(), low == 255);
            }
            14 => life.router.pass(Duration::from_millis(u64::from(low) * 16)),
            15 => _ = pipeline.work(usize::from(low)),
            _ => life.step(step),
        }
        assert_promises(&mut life, mode);
    }
    at_rest(&mut life, &mut verifier);
    let wild = life.router.wild_index();
    let mut router = life.end();
    let now = router.now();
    assert_eq!(router.pipeline.signature_counts(wild), SignatureCounts::default());
    assert_eq!(router.pipeline.poll_signatures(now), None, "nothing is verified that nobody has sent");
    verifier.said
}

fn prefix(text: &str) -> Prefix {
    text.parse().expect("a prefix")
}

/// The name of a key: few of them, so that changes meet routes.
fn ski(low: u8) -> Ski {
    Ski([low % 4; 20])
}

/// An UPDATE: what the first octet says, and either the value of BGPsec_PATH or what its segments are, the oldest first.
fn signed(peer: Wild, octets: &[u8]) -> Vec<u8> {
    let (&choice, octets) = octets.split_first().unwrap_or((&0, &[]));
    let route = prefix(PREFIXES[usize::from(choice % 4)]);
    let next_hop = match route {
        Prefix::V4(_) => NextHop::V4([10, 0, 2, 2].into()),
        Prefix::V6(_) => {
            NextHop::V6 { global: "2001:db8:ffff::2".parse().expect("an address"), link_local: None }
        }
    };
    let value = if choice & 0x80 == 0 { path(peer, choice, octets) } else { octets.to_vec() };
    announce(&value, Origin::Igp, next_hop, route).unwrap_or_default()
}

/// A path of as many segments as there are threes of octets, and the peer's own.
fn path(peer: Wild, choice: u8, octets: &[u8]) -> Vec<u8> {
    let flags = if peer.kind == PeerKind::ConfedEbgp { CONFED_SEGMENT } else { 0 };
    let own = Segment { pcount: 1, flags, asn: peer.asn() };
    let others = octets.as_chunks::<3>().0.iter().map(|&[asn, pcount, flags]| Segment {
        pcount,
        flags,
        asn: if asn == 255 { OUR_AS } else { Asn(u32::from(asn) % ASES) },
    });
    let is_whole = choice & 0x40 == 0;
    let mut value: Option<Vec<u8>> = None;
    for segment in others.chain(is_whole.then_some(own)) {
        let (suite, signature) = (1 + (choice >> 5 & 1) * 0xfa, [segment.pcount]);
        let new = |suite| SignatureBlock { suite, ski: ski(segment.asn.0 as u8), signature: &signature };
        let both = [new(suite), new(0xf0)];
        let blocks = if choice & 0x10 == 0 { &both[..1] } else { &both };
        let before = value.as_deref().map(|value| Path::parse(value).expect("what we built"));
        let Ok(longer) = extend(before.as_ref(), segment, blocks) else { break };
        value = Some(longer);
    }
    value.unwrap_or_default()
}

impl Verifier {
    fn ask(&mut self, life: &mut Life, most: u8) {
        let now = life.router.now();
        for _ in 0..=most {
            let Some(job) = life.router.pipeline.poll_signatures(now) else { return };
            let path = Path::parse(&job.path).expect("what cannot be read is not asked");
            assert_eq!((job.hops, job.target), (path.hops(), OUR_AS));
            assert!(self.asked.iter().all(|other| other.number != job.number));
            self.asked.push_back(job);
        }
    }

    /// Says anything of one that was asked, or of one that has its answer.
    fn answer(&mut self, life: &mut Life, low: u8, octets: &[u8]) {
        let &[which, reason, cost, is_current] = octets.first_chunk().unwrap_or(&[low, low, low, low]);
        let verdict = match reason % 4 {
            0 => SignatureVerdict::Valid,
            1 => SignatureVerdict::Unsupported,
            _ => {
                let reasons = [SignatureFaultReason::NoKey, SignatureFaultReason::BadSignature];
                let reason = reasons[usize::from(reason >> 2 & 1)];
                let fault = SignatureFault {
                    suite: 1,
                    hop: which.into(),
                    asn: Asn(which.into()),
                    ski: ski(which),
                    reason,
                };
                SignatureVerdict::NotValid(fault)
            }
        };
        let number = match usize::from(which) {
            old if old >= 128 => self.old.get(old % MOST_OLD).copied().unwrap_or(u64::MAX),
            asked if self.asked.is_empty() => asked as u64,
            asked => {
                self.said += 1;
                self.asked.remove(asked % self.asked.len()).expect("one of them").number
            }
        };
        self.say(life, number, verdict, u32::from(cost % MOST_VERIFIED), is_current % 2 == 0);
    }

    fn say(
        &mut self,
        life: &mut Life,
        number: u64,
        verdict: SignatureVerdict,
        verified: u32,
        is_current: bool,
    ) {
        let cost = SignatureCost { verified, failed: verified / 2 };
        let now = life.router.now();
        life.router.pipeline.verified(number, verdict, cost, is_current, now);
        self.old.push_front(number);
        self.old.truncate(MOST_OLD);
    }
}

/// What is so at any moment.
fn assert_promises(life: &mut Life, mode: BgpsecValidation) {
    let (wild, is_up) = (life.router.wild_index(), life.router.wild_is_up());
    for route in PREFIXES.map(prefix) {
        for path in life.router.pipeline.explain(route).iter().filter(|path| path.peer == Some(wild)) {
            let state = path.states.unwrap_or_default().signatures;
            if mode == BgpsecValidation::Require {
                assert!(!path.is_best || state == PathSecurity::Valid, "{route}: {state:?} is used");
            }
            let Some(signatures) = &path.signatures else { continue };
            assert_ne!(mode, BgpsecValidation::Off);
            assert_eq!(signatures.state, state, "{route}");
            if state == PathSecurity::Unverified && is_up && !path.is_stale {
                assert!(signatures.is_pending, "{route}: nobody will verify it");
            }
        }
    }
}

/// Where all is answered and debts are paid, all routes of a session that is up have their verdicts.
fn at_rest(life: &mut Life, verifier: &mut Verifier) {
    for family in Family::ALL {
        let mut octets = Vec::new();
        end_of_rib(family, &mut octets);
        life.router.wild_says(&octets);
    }
    for _ in 0..PATIENCE {
        life.router.settle();
        while let Some(job) = verifier.asked.pop_front() {
            verifier.say(life, job.number, SignatureVerdict::Valid, 1, true);
        }
        verifier.ask(life, u8::MAX);
        life.router.wild_says(&KEEPALIVE);
        life.router.pass(Duration::from_secs(1));
    }
    life.router.settle();
    if life.router.wild_is_up() {
        let counts = life.router.pipeline.signature_counts(life.router.wild_index());
        assert_eq!((counts.unverified, counts.queued_hops), (0, 0), "{counts:?}");
    }
}

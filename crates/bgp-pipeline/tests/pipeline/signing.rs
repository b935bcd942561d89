//! Routes that go on with signatures of ours (RFC 8205 section 4).
//!
//! The signer is a toy: what it makes of octets names them, and is another each time, as ECDSA is. So octets that are the
//! same were kept.

mod asked;
mod model;
mod onward;
mod putting_off;
mod stability;

use std::{
    cell::RefCell,
    collections::BTreeMap,
    rc::Rc,
    time::{Duration, Instant},
};

use holdfast_bgp_pipeline::{
    FamilySet, Limits, OriginateAttributes, PATIENCE, PathRules, PeerConfig, PeerIndex, PeerKind, Pipeline,
    Secured, SessionFacts, SignatureName, SignatureStore, SignedFor, Signer, SigningJob, SpeakerConfig,
};
use holdfast_bgp_wire::{
    Attributes, HEADER_LEN, MAX_EXTENDED_LEN, MAX_LEN, NextHop, Origin, RouteRefresh, UpdateEncoder,
    attribute::{code, flag, push},
    next_message,
    nlri::Identified,
    update,
};
use holdfast_bgpsec_wire::{
    CONFED_SEGMENT, Ingress, Nlri, Path, Segment, Session, SignatureBlock, Signed, Ski, extend,
    octets_to_sign,
};
use holdfast_types::{Asn, Family, Prefix};
use proptest::prelude::*;

use crate::tests::pipeline::{
    behaviour::{always, announcement_by},
    policies::changing,
    speaker::{Held, OUR_AS, Sink, announcement, checked, ebgp, facts, ibgp, prefix, settle, withdrawal},
};

const P: &str = "203.0.113.0/24";
const OTHER: &str = "203.0.112.0/24";

fn ski(asn: Asn) -> Ski {
    Ski([asn.0 as u8; 20])
}

fn signer(asn: Asn) -> Signer {
    Signer { asn, suite: 1, ski: ski(asn) }
}

/// Another key of ours.
fn next_signer() -> Signer {
    let Ski(mut octets) = ski(OUR_AS);
    octets[0] = 77;
    Signer { ski: Ski(octets), ..signer(OUR_AS) }
}

/// What stands for octets in each signature of them.
fn sum(octets: &[u8]) -> [u8; 8] {
    octets.iter().fold(7_u64, |sum, octet| sum.wrapping_mul(31).wrapping_add(u64::from(*octet))).to_be_bytes()
}

/// A path over these segments, the origin first, each signed for the next one and the last for `target`, in this suite.
fn signed_path(segments: &[Segment], target: Asn, route: Prefix, suites: &[u8]) -> Vec<u8> {
    let mut octets: Option<Vec<u8>> = None;
    for (at, segment) in segments.iter().enumerate() {
        let target = segments.get(at + 1).map_or(target, |next| next.asn);
        let before = octets.as_deref().map(|value| Path::parse(value).expect("sound"));
        let signatures: Vec<_> = suites
            .iter()
            .map(|suite| {
                let block = before.as_ref().and_then(|path| {
                    path.blocks().find(|block| block.suite == *suite).map(|block| (path, block))
                });
                sum(&octets_to_sign(block, *suite, *segment, target, &Nlri::unicast(route)))
            })
            .collect();
        let blocks: Vec<_> = suites
            .iter()
            .zip(&signatures)
            .map(|(suite, signature)| SignatureBlock { suite: *suite, ski: ski(segment.asn), signature })
            .collect();
        octets = Some(extend(before.as_ref(), *segment, &blocks).expect("fits"));
    }
    octets.expect("a segment")
}

fn plain_segment(asn: u32) -> Segment {
    Segment { pcount: 1, flags: 0, asn: Asn(asn) }
}

/// Whether all signatures of a path are such as were made for it.
fn is_good(path: &[u8], target: Asn, route: Prefix) -> bool {
    let path = Path::parse(path).expect("sound");
    path.blocks().all(|block| {
        let signed = Signed::new(&path, block, target, &Nlri::unicast(route));
        let mut hops = path.segments().zip(block.signatures()).enumerate();
        hops.all(|(hop, (segment, signature))| {
            is_of(signature.ski, segment.asn) && signature.octets[..8] == sum(signed.of(hop))
        })
    })
}

/// Whether a key is one of this AS.
fn is_of(ski: Ski, asn: Asn) -> bool {
    ski.0[1..].iter().all(|octet| *octet == asn.0 as u8)
}

/// Makes signatures.
#[derive(Default)]
struct Toy {
    made: u64,
    /// The AS and the suite of each.
    keys: Vec<(u32, u8)>,
}

impl Toy {
    fn sign(&mut self, job: &SigningJob) -> Vec<u8> {
        assert!(is_of(job.ski, job.asn));
        self.made += 1;
        self.keys.push((job.asn.0, job.suite));
        [&sum(&job.octets)[..], &self.made.to_be_bytes()].concat()
    }

    /// Answers all that is asked.
    fn answer(&mut self, pipeline: &mut Pipeline) -> usize {
        let mut answered = 0;
        while let Some(job) = pipeline.poll_to_sign() {
            pipeline.signed(job.number, &self.sign(&job));
            answered += 1;
        }
        answered
    }
}

type Kept = BTreeMap<(Prefix, u32, u32), (u64, Vec<u8>)>;

/// Signatures that outlive a pipeline: what is kept is here as well for the next one.
#[derive(Clone, Debug, Default)]
struct Store {
    kept: Kept,
    copy: Rc<RefCell<Kept>>,
    note: Vec<u8>,
    noted: Rc<RefCell<Vec<u8>>>,
    /// Room for no more.
    most: usize,
}

impl Store {
    fn of(most: usize) -> Self {
        Self { most, ..Self::default() }
    }

    /// For the pipeline that comes after.
    fn recovered(&self) -> Self {
        Self { kept: self.copy.borrow().clone(), note: self.noted.borrow().clone(), ..self.clone() }
    }
}

impl SignatureStore for Store {
    fn get(&self, name: &SignatureName, mark: u64) -> Option<&[u8]> {
        let (of, signature) = self.kept.get(&(name.prefix, name.target.0, name.slot))?;
        (*of == mark).then_some(signature)
    }

    fn keep(
        &mut self,
        name: SignatureName,
        mark: u64,
        signature: &[u8],
        is_used: &mut dyn FnMut(Prefix) -> bool,
    ) -> bool {
        let key = (name.prefix, name.target.0, name.slot);
        if self.kept.len() >= self.most && !self.kept.contains_key(&key) {
            self.kept.retain(|(prefix, ..), _| is_used(*prefix));
        }
        let has_room = self.kept.len() < self.most || self.kept.contains_key(&key);
        if has_room {
            self.kept.insert(key, (mark, signature.to_vec()));
        }
        self.copy.borrow_mut().clone_from(&self.kept);
        has_room
    }

    fn set_most(&mut self, most: usize) {
        self.most = most;
    }

    fn note(&mut self, signers: &[u8]) {
        *self.noted.borrow_mut() = signers.to_vec();
        self.note = signers.to_vec();
    }

    fn noted(&self) -> &[u8] {
        &self.note
    }

    fn key(&self) -> [u64; 2] {
        [3, 4]
    }

    fn counts(&self) -> (usize, u64) {
        (self.kept.len(), 0)
    }

    fn memory(&self) -> usize {
        0
    }
}

/// A router with peers, a signer and what it keeps.
struct Router {
    pipeline: Pipeline,
    toy: Toy,
    store: Store,
    sinks: Vec<(PeerIndex, Sink)>,
    confederation: Option<Asn>,
    now: Instant,
}

fn all_families() -> FamilySet {
    Family::ALL.into_iter().collect()
}

fn with(config: PeerConfig, paths: PathRules) -> PeerConfig {
    PeerConfig { paths, ..config }
}

/// Our AS as the peer knows it.
fn known_as(config: &PeerConfig, confederation: Option<Asn>) -> Asn {
    match config.kind {
        PeerKind::Ebgp => config.paths.local_asn.or(confederation).unwrap_or(OUR_AS),
        PeerKind::ConfedEbgp | PeerKind::Ibgp => OUR_AS,
    }
}

fn session_of(kind: PeerKind) -> Session {
    match kind {
        PeerKind::Ebgp => Session::External,
        PeerKind::ConfedEbgp => Session::Confederation,
        PeerKind::Ibgp => Session::Internal,
    }
}

/// What a session has agreed on with peer `n`: BGPsec both ways.
fn secured(n: u8, config: &PeerConfig, confederation: Option<Asn>) -> SessionFacts {
    let own = known_as(config, confederation);
    let ingress =
        Ingress { session: session_of(config.kind), pcount_zero: true, ..Ingress::external(config.asn, own) };
    SessionFacts {
        bgpsec_received: Some(Secured { families: all_families(), ingress }),
        bgpsec_sent: Some(SignedFor { families: all_families(), target: config.asn }),
        number: u32::from(n) + 1,
        ..facts(n)
    }
}

/// A peer's receiving side. What is wrong in an UPDATE is found here, but for signatures, and for loops: each peer is told of
/// each path.
fn sink(config: &PeerConfig, facts: &SessionFacts, confederation: Option<Asn>) -> Sink {
    let ingress = Ingress {
        session: session_of(config.kind),
        pcount_zero: true,
        ..Ingress::external(known_as(config, confederation), Asn(0))
    };
    Sink {
        bgpsec: facts.bgpsec_sent.map(|sent| Secured { families: sent.families, ingress }),
        identifiers: facts.identifiers_sent,
        internal: config.kind == PeerKind::Ibgp,
        confederation: confederation.is_some() && config.kind != PeerKind::Ebgp,
        ..Sink::default()
    }
}

impl Router {
    fn new() -> Self {
        Self::of(always())
    }

    fn of(speaker: SpeakerConfig) -> Self {
        Self::with(speaker, Store::of(10_000))
    }

    fn with(speaker: SpeakerConfig, store: Store) -> Self {
        let mut router = Self::without_keys(speaker, store);
        router.pipeline.set_signers([signer(OUR_AS)]);
        router
    }

    /// Nobody has said yet which keys there are.
    fn without_keys(speaker: SpeakerConfig, store: Store) -> Self {
        let confederation = speaker.confederation;
        let (mut pipeline, now) = (checked(speaker), Instant::now());
        pipeline.set_now(now);
        pipeline.keep_signatures(Box::new(store.clone()));
        Self { pipeline, toy: Toy::default(), store, sinks: Vec::new(), confederation, now }
    }

    /// A peer of another AS that signs, and takes what is signed.
    fn up(&mut self, n: u8) -> PeerIndex {
        self.up_as(n, ebgp(n))
    }

    fn up_as(&mut self, n: u8, config: PeerConfig) -> PeerIndex {
        let facts = secured(n, &config, self.confederation);
        self.up_with(config, facts)
    }

    /// A peer that has never heard of BGPsec.
    fn plain(&mut self, n: u8) -> PeerIndex {
        self.up_with(ebgp(n), facts(n))
    }

    fn up_with(&mut self, config: PeerConfig, facts: SessionFacts) -> PeerIndex {
        let peer = self.pipeline.add_peer(config);
        self.session(peer, facts);
        peer
    }

    /// A session of the peer begins; any before has ended.
    fn session(&mut self, peer: PeerIndex, facts: SessionFacts) {
        let config = self.pipeline.peer(peer).expect("it was added");
        let sink = sink(config, &facts, self.confederation);
        self.sinks.retain(|(other, _)| *other != peer);
        self.sinks.push((peer, sink));
        self.pipeline.peer_up(peer, facts).expect("room");
    }

    /// Everything is told that can be; nobody signs.
    fn tell(&mut self) {
        settle(&mut self.pipeline, &mut self.sinks);
    }

    /// Everything is signed that is asked, and what is told at a rate gets its time.
    fn settle(&mut self) {
        loop {
            self.tell();
            let waits = self.pipeline.poll_timeout().filter(|until| *until < self.now + PATIENCE / 2);
            match (self.toy.answer(&mut self.pipeline), waits) {
                (0, Some(until)) => self.pass(until - self.now),
                (0, None) => return,
                _ => {}
            }
        }
    }

    /// Time passes, and nobody signs.
    fn pass(&mut self, time: Duration) {
        self.now += time;
        self.pipeline.set_now(self.now);
        self.tell();
    }

    /// All that is asked, without an answer.
    fn jobs(&mut self) -> Vec<SigningJob> {
        std::iter::from_fn(|| self.pipeline.poll_to_sign()).collect()
    }

    fn sign(&mut self, job: &SigningJob) {
        let signature = self.toy.sign(job);
        self.pipeline.signed(job.number, &signature);
    }

    fn sink(&self, peer: PeerIndex) -> &Sink {
        &self.sinks.iter().find(|(other, _)| *other == peer).expect("it is up").1
    }

    fn has(&self, peer: PeerIndex, route: &str) -> bool {
        self.sink(peer).routes.contains_key(&prefix(route))
    }

    fn held(&self, peer: PeerIndex, route: &str) -> &Held {
        self.sink(peer).routes.get(&prefix(route)).expect("it was told")
    }

    /// The BGPsec_PATH that a peer has of a route.
    fn path(&self, peer: PeerIndex, route: &str) -> Option<Vec<u8>> {
        attribute(self.held(peer, route), code::BGPSEC_PATH)
    }

    fn segments(&self, peer: PeerIndex, route: &str) -> Vec<(u8, u8, u32)> {
        segments(&self.path(peer, route).expect("signed"))
    }

    /// Whether a peer has a route with signatures that are good for it.
    fn has_good(&self, peer: PeerIndex, route: &str) -> bool {
        let target = self.pipeline.peer(peer).expect("it was added").asn;
        self.path(peer, route).is_some_and(|path| is_good(&path, target, prefix(route)))
    }

    fn announced(&self, peer: PeerIndex) -> usize {
        Family::ALL.iter().map(|family| self.pipeline.counts(peer, *family).announced as usize).sum()
    }

    /// Takes in an UPDATE with one route over a path.
    fn receive(&mut self, peer: PeerIndex, path: &[u8], route: &str) {
        self.receive_by(peer, Some(path), None, route);
    }

    /// The same with a path identifier; without a path it is a route of the AS that both ends of the session are in.
    fn receive_by(&mut self, peer: PeerIndex, path: Option<&[u8]>, identifier: Option<u32>, route: &str) {
        let is_internal = self.pipeline.peer(peer).expect("it was added").kind == PeerKind::Ibgp;
        self.take(peer, &update_by(is_internal, path, identifier, prefix(route)));
    }

    fn take(&mut self, peer: PeerIndex, update: &[u8]) {
        self.pipeline.update(peer, update).expect("taken");
    }

    fn withdraw(&mut self, peer: PeerIndex, route: &str) {
        self.take(peer, &withdrawal(prefix(route)));
    }
}

fn attribute(held: &Held, wanted: u8) -> Option<Vec<u8>> {
    let found = Attributes(&held.attributes).iter().find(|attribute| attribute.code == wanted);
    found.map(|attribute| attribute.value.to_vec())
}

fn segments(path: &[u8]) -> Vec<(u8, u8, u32)> {
    let path = Path::parse(path).expect("sound");
    path.segments().map(|segment| (segment.pcount, segment.flags, segment.asn.0)).collect()
}

/// The body of an UPDATE with one route.
fn update_by(is_internal: bool, path: Option<&[u8]>, identifier: Option<u32>, route: Prefix) -> Vec<u8> {
    let (mut attributes, mut out) = (Vec::new(), Vec::new());
    push(&mut attributes, flag::TRANSITIVE, code::ORIGIN, &[Origin::Igp as u8]);
    if is_internal {
        push(&mut attributes, flag::TRANSITIVE, code::LOCAL_PREF, &100_u32.to_be_bytes());
    }
    path.into_iter().for_each(|path| push(&mut attributes, flag::OPTIONAL, code::BGPSEC_PATH, path));
    let encoder = UpdateEncoder::new(MAX_EXTENDED_LEN);
    let v4 = NextHop::V4([192, 0, 2, 9].into());
    let v6 = NextHop::V6 { global: "2001:db8:ffff::1".parse().expect("an address"), link_local: None };
    let sent = match (route, identifier) {
        (Prefix::V4(prefix), None) => encoder.announce_mp(&attributes, v4, [prefix], &mut out),
        (Prefix::V6(prefix), None) => encoder.announce_mp(&attributes, v6, [prefix], &mut out),
        (Prefix::V4(prefix), Some(identifier)) => {
            encoder.announce_mp(&attributes, v4, [Identified { identifier, prefix }], &mut out)
        }
        (Prefix::V6(prefix), Some(identifier)) => {
            encoder.announce_mp(&attributes, v6, [Identified { identifier, prefix }], &mut out)
        }
    };
    assert_eq!(sent, Ok(1), "one message");
    out.split_off(HEADER_LEN)
}

fn asn(n: u8) -> Asn {
    Asn(65100 + u32::from(n))
}

/// A path of peer `n` over AS 7.
fn from_peer(n: u8, route: &str) -> Vec<u8> {
    over(7, n, route)
}

/// A path of peer `n` over another AS.
fn over(behind: u32, n: u8, route: &str) -> Vec<u8> {
    signed_path(&[plain_segment(behind), plain_segment(asn(n).0)], OUR_AS, prefix(route), &[1])
}

#[test]
fn a_path_goes_on_with_a_signature_of_ours_for_the_peers_as() {
    let mut router = Router::new();
    let (from, to) = (router.up(1), router.up(2));
    for route in [P, "2001:db8:7::/48"] {
        router.receive(from, &from_peer(1, route), route);
        router.settle();
        assert_eq!(router.segments(to, route), [(1, 0, OUR_AS.0), (1, 0, asn(1).0), (1, 0, 7)]);
        let path = router.path(to, route).expect("signed");
        assert!(is_good(&path, asn(2), prefix(route)) && !is_good(&path, asn(3), prefix(route)));
        assert_eq!(router.held(to, route).path(), format!("{} {} 7", OUR_AS.0, asn(1).0));
    }
    assert_eq!(router.toy.made, 2);
}

//! Routes that go on with signatures of ours (RFC 8205 section 4).
//!
//! The signer is a toy: what it makes of octets names them, and is another each time, as ECDSA is. So octets that are the
//! same were kept.

mod onward;
mod putting_off;
mod stability;

use std::{cell::RefCell, collections::BTreeMap, rc::Rc, time::Instant};

use holdfast_bgp_pipeline::{
    FamilySet, PeerConfig, PeerIndex, Pipeline, Secured, SessionFacts, SignatureName, SignatureStore,
    SignedFor, Signer, SigningJob, SpeakerConfig,
};
use holdfast_bgp_wire::{Attributes, NextHop, Origin, attribute::code, bgpsec::announce};
use holdfast_bgpsec_wire::{
    Ingress, Nlri, Path, Segment, Session, SignatureBlock, Signed, Ski, extend, octets_to_sign,
};
use holdfast_types::{Asn, Family, Prefix};

use crate::tests::pipeline::{
    behaviour::always,
    speaker::{Held, OUR_AS, Sink, checked, ebgp, facts, prefix, settle},
};

const P: &str = "203.0.113.0/24";
const OTHER: &str = "203.0.112.0/24";

fn ski(asn: Asn) -> Ski {
    Ski([asn.0 as u8; 20])
}

fn signer(asn: Asn) -> Signer {
    Signer { asn, suite: 1, ski: ski(asn) }
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
            signature.ski == ski(segment.asn) && signature.octets[..8] == sum(signed.of(hop))
        })
    })
}

/// Makes signatures.
#[derive(Default)]
struct Toy {
    made: u64,
}

impl Toy {
    fn sign(&mut self, job: &SigningJob) -> Vec<u8> {
        self.made += 1;
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
    now: Instant,
}

fn all_families() -> FamilySet {
    Family::ALL.into_iter().collect()
}

/// What a session has agreed on with peer `n`: BGPsec both ways.
fn secured(n: u8, config: &PeerConfig, session: Session, own: Asn) -> SessionFacts {
    let ingress = Ingress { session, ..Ingress::external(config.asn, own) };
    SessionFacts {
        bgpsec_received: Some(Secured { families: all_families(), ingress }),
        bgpsec_sent: Some(SignedFor { families: all_families(), target: config.asn }),
        ..facts(n)
    }
}

impl Router {
    fn new() -> Self {
        Self::of(always())
    }

    fn of(speaker: SpeakerConfig) -> Self {
        Self::with(speaker, Store::of(1000))
    }

    fn with(speaker: SpeakerConfig, store: Store) -> Self {
        let (mut pipeline, now) = (checked(speaker), Instant::now());
        pipeline.set_now(now);
        pipeline.keep_signatures(Box::new(store.clone()));
        pipeline.set_signers([signer(OUR_AS)]);
        Self { pipeline, toy: Toy::default(), store, sinks: Vec::new(), now }
    }

    /// A peer of another AS that signs, and takes what is signed.
    fn up(&mut self, n: u8) -> PeerIndex {
        self.up_as(n, ebgp(n))
    }

    fn up_as(&mut self, n: u8, config: PeerConfig) -> PeerIndex {
        let facts = secured(n, &config, Session::External, OUR_AS);
        self.up_with(config, facts)
    }

    fn up_with(&mut self, config: PeerConfig, facts: SessionFacts) -> PeerIndex {
        let peer = self.pipeline.add_peer(config);
        self.session(peer, facts);
        peer
    }

    fn session(&mut self, peer: PeerIndex, facts: SessionFacts) {
        self.sinks.retain(|(other, _)| *other != peer);
        let own = facts.bgpsec_sent.map(|sent| sent.target);
        let ingress = Ingress { pcount_zero: true, ..Ingress::external(OUR_AS, own.unwrap_or(OUR_AS)) };
        let bgpsec = own.map(|_| Secured { families: all_families(), ingress });
        self.sinks.push((peer, Sink { bgpsec, identifiers: facts.identifiers_sent, ..Sink::default() }));
        self.pipeline.peer_up(peer, facts).expect("room");
    }

    fn settle(&mut self) {
        loop {
            settle(&mut self.pipeline, &mut self.sinks);
            if self.toy.answer(&mut self.pipeline) == 0 {
                return;
            }
        }
    }

    fn sink(&self, peer: PeerIndex) -> &Sink {
        &self.sinks.iter().find(|(other, _)| *other == peer).expect("it is up").1
    }

    fn held(&self, peer: PeerIndex, route: &str) -> &Held {
        self.sink(peer).routes.get(&prefix(route)).expect("it was told")
    }

    /// The BGPsec_PATH that a peer has of a route.
    fn path(&self, peer: PeerIndex, route: &str) -> Option<Vec<u8>> {
        attribute(self.held(peer, route), code::BGPSEC_PATH)
    }

    fn segments(&self, peer: PeerIndex, route: &str) -> Vec<(u8, u8, u32)> {
        let path = self.path(peer, route).expect("signed");
        let path = Path::parse(&path).expect("sound");
        path.segments().map(|segment| (segment.pcount, segment.flags, segment.asn.0)).collect()
    }

    /// Takes in an UPDATE with one route over a path.
    fn receive(&mut self, peer: PeerIndex, path: &[u8], route: &str) {
        let update = signed_update(path, prefix(route));
        self.pipeline.update(peer, &update).expect("taken");
    }
}

fn attribute(held: &Held, wanted: u8) -> Option<Vec<u8>> {
    let found = Attributes(&held.attributes).iter().find(|attribute| attribute.code == wanted);
    found.map(|attribute| attribute.value.to_vec())
}

fn signed_update(path: &[u8], route: Prefix) -> Vec<u8> {
    let next_hop = match route {
        Prefix::V4(_) => NextHop::V4([192, 0, 2, 9].into()),
        Prefix::V6(_) => {
            NextHop::V6 { global: "2001:db8:ffff::1".parse().expect("an address"), link_local: None }
        }
    };
    announce(path, Origin::Igp, next_hop, route).expect("fits")[holdfast_bgp_wire::HEADER_LEN..].to_vec()
}

fn asn(n: u8) -> Asn {
    Asn(65100 + u32::from(n))
}

/// A path of peer `n` over AS 7.
fn from_peer(n: u8, route: &str) -> Vec<u8> {
    signed_path(&[plain_segment(7), plain_segment(asn(n).0)], OUR_AS, prefix(route), &[1])
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

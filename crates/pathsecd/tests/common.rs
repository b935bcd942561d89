//! A process `pathsec` in the test's own, and paths for it.

use std::{
    rc::Rc,
    sync::{Arc, Condvar, Mutex},
};

use holdfast_api::pathsec::v1::{
    Empty, Job, PathSecClient, PathSecDispatcher, PathSecStatus, Reason, State, ValidateReply,
    ValidateRequest, Verdict,
};
use holdfast_bgpsec_wire::{Nlri, Path, Segment, SignatureBlock, Ski, extend};
use holdfast_path_validation::{
    BadSignature, Change, Digest, P256Signer, RouterKey, StoredKey, Suite, Validator, sign,
};
use holdfast_types::Asn;
use holdfast_xrl::{Channel, Client, Link, Node, PeerIdentity, XrlError};
use tokio::{runtime::Builder, task::LocalSet};

use crate::{
    keys::{Gathered, RouterKeys},
    pathsec::PathSec,
    private_keys::PrivateKeys,
    service::PathSecService,
    workers::Workers,
};

pub(crate) const TARGET: u32 = 65_000;
/// For experiments (RFC 8608 section 2.1).
pub(crate) const SUITE: u8 = 0xfb;

pub(crate) fn run(story: impl Future<Output = ()>) {
    let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
    LocalSet::new().block_on(&runtime, story);
}

/// A process that runs, without an `rpki`.
pub(crate) struct Scene {
    pub(crate) pathsec: Rc<PathSec>,
    node: Node,
}

impl Scene {
    pub(crate) fn new(threads: usize, validator: Validator) -> Self {
        let workers = Workers::start(threads, validator).expect("threads");
        let pathsec =
            Rc::new(PathSec { keys: RouterKeys::new([1, 2]), private_keys: PrivateKeys::default(), workers });
        let node = Node::new("pathsec");
        node.serve(PathSecDispatcher::new(PathSecService(Rc::clone(&pathsec))));
        Self { pathsec, node }
    }

    pub(crate) fn caller(&self, role: &str) -> PathSecClient {
        let (near, far) = Link::pair();
        self.node.attach_link(far, PeerIdentity::new(role));
        PathSecClient::new(Channel::over(near))
    }

    /// As if `rpki` had said a difference.
    pub(crate) async fn change(&self, changes: impl IntoIterator<Item = Change>) {
        let epoch = Gathered::Delta(changes.into_iter().collect());
        self.pathsec.keys.heard(epoch, u32::MAX, false).await;
    }

    pub(crate) async fn announce(&self, keys: impl IntoIterator<Item = RouterKey>) {
        self.change(keys.into_iter().map(Change::Announce)).await;
    }
}

pub(crate) async fn validate(bgp: &PathSecClient, jobs: &[Job]) -> Result<ValidateReply, XrlError> {
    bgp.validate(ValidateRequest { jobs: jobs.to_vec() }).await
}

pub(crate) async fn status(caller: &PathSecClient) -> PathSecStatus {
    caller.status(Empty {}).await.expect("alive")
}

pub(crate) fn state(state: State) -> Verdict {
    Verdict { state: state.into(), ..Verdict::default() }
}

/// Not valid at this hop, after so many signatures.
pub(crate) fn not_valid(hop: usize, signer: &P256Signer, reason: Reason, verified: u64) -> Verdict {
    let RouterKey { asn, ski, .. } = signer.router_key();
    Verdict {
        failing_hop: hop as u32,
        asn: asn.0,
        ski: ski.0.to_vec(),
        suite: 1,
        reason: reason.into(),
        verified,
        ..state(State::NotValid)
    }
}

/// A job about 192.0.2.0/24.
pub(crate) fn job(path: Vec<u8>) -> Job {
    Job { path, afi: 1, prefix: vec![192, 0, 2], prefix_length: 24, target_asn: TARGET }
}

pub(crate) fn signers(ases: impl IntoIterator<Item = u32>) -> Vec<P256Signer> {
    ases.into_iter().map(|asn| P256Signer::generate(Asn(asn)).expect("a key")).collect()
}

fn plain(asn: u32) -> Segment {
    Segment { pcount: 1, flags: 0, asn: Asn(asn) }
}

/// A path to 192.0.2.0/24, signed by each in turn; the first is the origin.
pub(crate) fn signed(signers: &[P256Signer]) -> Vec<u8> {
    let nlri = Nlri::unicast("192.0.2.0/24".parse().expect("a prefix"));
    let asn = |signer: &P256Signer| signer.router_key().asn;
    let mut octets: Option<Vec<u8>> = None;
    for (number, signer) in signers.iter().enumerate() {
        let target = signers.get(number + 1).map_or(Asn(TARGET), asn);
        let before = octets.as_deref().map(|octets| Path::parse(octets).expect("what we built"));
        let octets_now = sign(before.as_ref(), plain(asn(signer).0), target, &nlri, &[signer]);
        octets = Some(octets_now.expect("signed"));
    }
    octets.expect("a signer")
}

/// A path of so many hops, in a suite of one's own, with signatures of so many octets.
pub(crate) fn unsigned(hops: usize, suite: u8, octets: usize) -> Vec<u8> {
    let signature = vec![1; octets];
    let block = SignatureBlock { suite, ski: Ski([7; 20]), signature: &signature };
    let mut path = extend(None, plain(1), &[block]).expect("it fits");
    for _ in 1..hops {
        path =
            extend(Some(&Path::parse(&path).expect("what we built")), plain(1), &[block]).expect("it fits");
    }
    path
}

/// The key that the hops of [`unsigned`] name.
pub(crate) fn their_key() -> RouterKey {
    RouterKey { asn: Asn(1), ski: Ski([7; 20]), spki: vec![1] }
}

/// A suite whose threads stop at a gate until it is opened, and then find every signature good.
#[derive(Clone, Default)]
pub(crate) struct Gate(Arc<(Mutex<Passing>, Condvar)>);

#[derive(Default)]
struct Passing {
    is_open: bool,
    /// So many pass before it is opened.
    may_pass: usize,
    begun: usize,
}

impl Gate {
    pub(crate) fn open(&self) {
        self.0.0.lock().expect("sound").is_open = true;
        self.0.1.notify_all();
    }

    /// Lets so many signatures pass.
    pub(crate) fn pass(&self, signatures: usize) {
        self.0.0.lock().expect("sound").may_pass += signatures;
        self.0.1.notify_all();
    }

    /// How many signatures were begun with.
    pub(crate) fn begun(&self) -> usize {
        self.0.0.lock().expect("sound").begun
    }
}

impl Suite for Gate {
    fn id(&self) -> u8 {
        SUITE
    }

    fn digest(&self, _: &[u8]) -> Digest {
        Digest::new(&[])
    }

    fn takes(&self, _: StoredKey<'_>) -> bool {
        true
    }

    fn verify(&self, _: StoredKey<'_>, _: &Digest, _: &[u8]) -> Result<(), BadSignature> {
        let mut gate = self.0.0.lock().expect("sound");
        gate.begun += 1;
        let is_shut = |gate: &mut Passing| !gate.is_open && gate.may_pass == 0;
        let mut gate = self.0.1.wait_while(gate, is_shut).expect("sound");
        gate.may_pass = gate.may_pass.saturating_sub(1);
        Ok(())
    }
}

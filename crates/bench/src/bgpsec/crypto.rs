//! Paths verified and signed, and the same by the bare library.

use std::{hint::black_box, sync::Barrier, thread, time::Instant};

use anyhow::{Context, Result, ensure};
use aws_lc_rs::{
    rand::SystemRandom,
    signature::{
        ECDSA_P256_SHA256_ASN1, ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, KeyPair, UnparsedPublicKey,
    },
};
use holdfast_bgpsec_wire::{Nlri, Path, Segment, Signed, octets_to_sign};
use holdfast_path_validation::{Change, KeyTable, P256Signer, Validator, Verdict, random_seed, sign};
use holdfast_types::Asn;

use super::{Effort, median};

/// The AS of the origin; each further hop is the next one.
const ORIGIN: u32 = 65_000;
/// Threads that are compared with one.
const THREADS: usize = 2;

/// Medians, of microseconds or whatever was compared.
pub(super) struct Pair {
    pub(super) ours: f64,
    pub(super) bare: f64,
    /// Of ours to bare in the same round.
    pub(super) ratio: f64,
}

/// What one verification by the library needs.
pub(super) struct Bare {
    key: UnparsedPublicKey<Vec<u8>>,
    octets: Vec<u8>,
    signature: Vec<u8>,
}

impl Bare {
    /// Of a key that is the octets of a point.
    pub(super) fn new(point: &[u8], octets: &[u8], signature: &[u8]) -> Self {
        Self {
            key: UnparsedPublicKey::new(&ECDSA_P256_SHA256_ASN1, point.to_vec()),
            octets: octets.to_vec(),
            signature: signature.to_vec(),
        }
    }

    /// Whether the library takes it.
    pub(super) fn verify(&self) -> bool {
        self.key.verify(&self.octets, &self.signature).is_ok()
    }
}

/// What a signature by the library needs.
pub(super) struct BareSigner {
    key: EcdsaKeyPair,
    random: SystemRandom,
}

impl BareSigner {
    /// With a new key, read from PKCS#8 as that of a router is.
    pub(super) fn new() -> Result<Self> {
        let (random, algorithm) = (SystemRandom::new(), &ECDSA_P256_SHA256_ASN1_SIGNING);
        let der = EcdsaKeyPair::generate_pkcs8(algorithm, &random).ok().context("a key")?;
        let key = EcdsaKeyPair::from_pkcs8(algorithm, der.as_ref()).ok().context("its own key")?;
        Ok(Self { key, random })
    }

    /// Whether the library signs.
    pub(super) fn sign(&self, octets: &[u8]) -> bool {
        self.key.sign(&self.random, octets).is_ok()
    }
}

/// A router of the path.
struct Router {
    ours: P256Signer,
    bare: EcdsaKeyPair,
}

/// Paths of one hop, of two, and so on; each goes to the AS of the next one.
pub(super) struct Hops {
    routers: Vec<Router>,
    paths: Vec<Vec<u8>>,
    nlri: Nlri,
    table: KeyTable,
    validator: Validator,
    random: SystemRandom,
}

fn asn(hop: usize) -> Asn {
    Asn(ORIGIN + hop as u32)
}

fn segment(hop: usize) -> Segment {
    Segment { pcount: 1, flags: 0, asn: asn(hop) }
}

impl Hops {
    pub(super) fn new(count: usize) -> Result<Self> {
        let random = SystemRandom::new();
        let algorithm = &ECDSA_P256_SHA256_ASN1_SIGNING;
        let router = |hop| -> Result<Router> {
            let der = EcdsaKeyPair::generate_pkcs8(algorithm, &random).ok().context("a key")?;
            let bare = EcdsaKeyPair::from_pkcs8(algorithm, der.as_ref()).ok().context("its own key")?;
            Ok(Router { ours: P256Signer::from_der(asn(hop), der.as_ref())?, bare })
        };
        let routers = (0..count).map(router).collect::<Result<Vec<_>>>()?;
        let nlri = Nlri::unicast("192.0.2.0/24".parse()?);
        let mut paths: Vec<Vec<u8>> = Vec::new();
        for (hop, router) in routers.iter().enumerate() {
            let before = paths.last().map(|octets| Path::parse(octets)).transpose()?;
            paths.push(sign(before.as_ref(), segment(hop), asn(hop + 1), &nlri, &[&router.ours])?);
        }
        let table = KeyTable::new(random_seed()?);
        table.apply(routers.iter().map(|router| Change::Announce(router.ours.router_key())));
        Ok(Self { routers, paths, nlri, table, validator: Validator::default(), random })
    }

    /// What the library has to verify of a path, the most recent first as we do.
    fn bare(&self, hops: usize) -> Result<Vec<Bare>> {
        let path = Path::parse(&self.paths[hops - 1])?;
        let block = path.blocks().next().context("a block")?;
        let signed = Signed::new(&path, block, asn(hops), &self.nlri);
        let bare = |(hop, router): (usize, &Router)| {
            let signature = block.signatures().nth(hop).map_or(&[][..], |signature| signature.octets);
            Bare::new(router.bare.public_key().as_ref(), signed.of(hop), signature)
        };
        Ok(self.routers[..hops].iter().rev().enumerate().map(bare).collect())
    }

    /// From the octets of the attribute to the verdict.
    fn is_valid(&self, hops: usize) -> bool {
        let Ok(path) = Path::parse(&self.paths[hops - 1]) else { return false };
        self.validator.validate(&path, asn(hops), &self.nlri, &self.table.keys()) == Verdict::Valid
    }

    /// Microseconds for a path of so many hops.
    pub(super) fn verify(&self, hops: usize, effort: &Effort) -> Result<Pair> {
        let bare = self.bare(hops)?;
        alternate(effort, || self.is_valid(hops), || bare.iter().all(Bare::verify))
    }

    /// Microseconds to add a hop, the first or a further one.
    pub(super) fn sign(&self, hop: usize, effort: &Effort) -> Result<Pair> {
        let (number, router) = (hop - 1, &self.routers[hop - 1]);
        let before = number.checked_sub(1).map(|before| &self.paths[before][..]);
        let path = before.map(Path::parse).transpose()?;
        let block = path.as_ref().and_then(|path| Some((path, path.blocks().next()?)));
        let octets = octets_to_sign(block, 1, segment(number), asn(hop), &self.nlri);
        let ours = || {
            let Ok(path) = before.map(Path::parse).transpose() else { return false };
            sign(path.as_ref(), segment(number), asn(hop), &self.nlri, &[&router.ours]).is_ok()
        };
        alternate(effort, ours, || router.bare.sign(&self.random, &octets).is_ok())
    }

    /// How many times as many verdicts two threads come to as one does: ours, and bare.
    pub(super) fn cores(&self, effort: &Effort) -> Result<Pair> {
        let bare = self.bare(1)?;
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        for _ in 0..effort.rounds {
            // Threads have to begin and to end, too.
            let count = 10 * effort.paths;
            ours.push(gain(count, || self.is_valid(1))?);
            theirs.push(gain(count, || bare[0].verify())?);
        }
        let (ours, bare) = (median(ours), median(theirs));
        Ok(Pair { ours, bare, ratio: ours / bare })
    }
}

/// Microseconds of each, in turns.
fn alternate(effort: &Effort, ours: impl Fn() -> bool, bare: impl Fn() -> bool) -> Result<Pair> {
    let (mut all_ours, mut all_bare, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..effort.rounds {
        let time = |work: &dyn Fn() -> bool| timed(effort.paths, work);
        // Who comes second has warm caches, so both do.
        let (ours, bare) = match round % 2 {
            0 => (time(&ours)?, time(&bare)?),
            _ => {
                let bare = time(&bare)?;
                (time(&ours)?, bare)
            }
        };
        all_ours.push(ours);
        all_bare.push(bare);
        ratios.push(ours / bare);
    }
    Ok(Pair { ours: median(all_ours), bare: median(all_bare), ratio: median(ratios) })
}

/// Microseconds that it takes once.
fn timed(count: usize, work: &dyn Fn() -> bool) -> Result<f64> {
    let begin = Instant::now();
    let good = (0..count).filter(|_| black_box(work())).count();
    let time = begin.elapsed();
    ensure!(good == count, "{good} of {count} are good");
    Ok(time.as_secs_f64() * 1e6 / count as f64)
}

/// So much work by each of the threads, over that by one.
fn gain(count: usize, work: impl Fn() -> bool + Sync) -> Result<f64> {
    let one = timed(count, &work)?;
    let ready = Barrier::new(THREADS);
    let slowest = thread::scope(|scope| {
        let threads = [(); THREADS].map(|()| {
            scope.spawn(|| {
                ready.wait();
                timed(count, &work)
            })
        });
        threads.into_iter().try_fold(0.0, |slowest: f64, thread| match thread.join() {
            Ok(time) => Ok(slowest.max(time?)),
            Err(_) => anyhow::bail!("a thread has panicked"),
        })
    })?;
    Ok(THREADS as f64 * one / slowest)
}

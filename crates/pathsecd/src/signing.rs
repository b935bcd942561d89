//! Signatures, for `bgp`: what a batch may be, and what a thread does with it.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use holdfast_api::pathsec::v1::SignJob;
use holdfast_path_validation::{CannotSign, P256Signer, RouterKey, Signer};
use holdfast_xrl::XrlError;
use tokio::sync::oneshot;

use crate::queue::Turn;

/// Jobs of a batch.
pub(crate) const MOST_JOBS: usize = 64;
/// Octets of what one signature covers.
pub(crate) const MOST_JOB_OCTETS: usize = 65_535;
/// Octets of all jobs of a batch together.
pub(crate) const MOST_OCTETS: usize = 256 << 10;

/// A private key of the router. It is gone from memory with the last who has it.
pub(crate) struct Key {
    pub(crate) signer: P256Signer,
    /// As caches have to publish it.
    pub(crate) public: RouterKey,
    signed: AtomicU64,
}

impl Key {
    pub(crate) fn new(signer: P256Signer) -> Self {
        Self { public: signer.router_key(), signer, signed: AtomicU64::default() }
    }

    /// Signatures that were made with it.
    pub(crate) fn signed(&self) -> u64 {
        self.signed.load(Ordering::Relaxed)
    }

    fn sign(&self, octets: &[u8], all: &AtomicU64) -> Result<Vec<u8>, CannotSign> {
        let signature = self.signer.sign(octets)?;
        for count in [&self.signed, all] {
            count.fetch_add(1, Ordering::Relaxed);
        }
        Ok(signature)
    }
}

/// What one signature is to cover, and the key; `None`: there is no such key.
pub(crate) struct Job {
    pub(crate) key: Option<Arc<Key>>,
    pub(crate) octets: Vec<u8>,
}

/// What came in one request.
pub(crate) struct Batch {
    pub(crate) jobs: Vec<Job>,
    pub(crate) turn: Turn,
    pub(crate) signatures: oneshot::Sender<Result<Vec<Vec<u8>>, CannotSign>>,
}

impl Batch {
    /// Signs it, unless nobody waits for that any more. `all` counts signatures of all keys.
    pub(crate) fn sign(self, all: &AtomicU64) {
        let Self { jobs, turn, signatures: answer } = self;
        if answer.is_closed() {
            return;
        }
        let signature = |job: &Job| job.key.as_ref().map_or(Ok(Vec::new()), |key| key.sign(&job.octets, all));
        let signatures = jobs.iter().map(signature).collect();
        // The turn is given back before the caller hears of it, who may ask for more at once.
        drop(turn);
        // Whoever has gone meanwhile misses nothing.
        let _ = answer.send(signatures);
    }
}

/// # Errors
/// The batch is above its bounds.
pub(crate) fn check(jobs: &[SignJob]) -> Result<(), XrlError> {
    let refused = |why: String| Err(XrlError::invalid_argument(why));
    if jobs.len() > MOST_JOBS {
        return refused(format!("{} jobs, at most {MOST_JOBS}", jobs.len()));
    }
    if let Some(job) = jobs.iter().find(|job| job.octets.len() > MOST_JOB_OCTETS) {
        return refused(format!("{} octets to sign, at most {MOST_JOB_OCTETS}", job.octets.len()));
    }
    match jobs.iter().map(|job| job.octets.len()).sum::<usize>() {
        sum if sum > MOST_OCTETS => refused(format!("{sum} octets to sign, at most {MOST_OCTETS}")),
        _ => Ok(()),
    }
}

//! The verdict on a path (RFC 8205 section 5.2).

use std::ops::AddAssign;

use holdfast_bgpsec_wire::{Block, Nlri, Path, Signed, Ski};
use holdfast_types::Asn;
use thiserror::Error;

use crate::{
    cache::VerifiedSignatures,
    keys::{Keys, StoredKey},
    p256::P256,
    suite::{Digest, Suite},
};

/// What is to be thought of a path whose form is right.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// All signatures of a block are good.
    Valid,
    /// In each block of a suite that is known, one is not; this is about the first of them.
    NotValid(Failure),
    /// No block has a suite that is known: the route goes on as one without signatures, and is not "Not Valid".
    Unsupported,
}

/// Where validation has ended.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Error)]
#[error("hop {hop} (AS {asn}, key {ski}, suite {suite}): {reason}")]
pub struct Failure {
    /// The block's algorithm suite.
    pub suite: u8,
    /// The segment; 0 is the most recent.
    pub hop: usize,
    /// Its AS.
    pub asn: Asn,
    /// What its signature calls the key.
    pub ski: Ski,
    /// What is wrong.
    pub reason: Reason,
}

/// What is wrong with a signature.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Error)]
pub enum Reason {
    /// The AS has no key of that name. It may have come with another AS, or has been withdrawn.
    #[error("this AS has no such key")]
    NoKey,
    /// It has one, of which the suite can make nothing.
    #[error("the key is none of this suite")]
    UnusableKey,
    /// It was not made with the key, or over other octets.
    #[error("the signature is bad")]
    BadSignature,
}

/// What a verdict has cost.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct Work {
    /// Signatures that were verified, once for each key that was tried.
    pub verified: u64,
    /// Signatures that the [memory](VerifiedSignatures) has known as good, so that nothing was verified.
    pub remembered: u64,
    /// Of those that were verified, how many were bad.
    pub failed: u64,
}

impl AddAssign for Work {
    fn add_assign(&mut self, more: Self) {
        self.verified += more.verified;
        self.remembered += more.remembered;
        self.failed += more.failed;
    }
}

/// Judges paths. Shared by reference between threads.
pub struct Validator {
    suites: Vec<Box<dyn Suite>>,
    verified: Option<VerifiedSignatures>,
}

impl Default for Validator {
    /// With suite 1, and no memory.
    fn default() -> Self {
        Self { suites: vec![Box::new(P256)], verified: None }
    }
}

impl Validator {
    /// Knows another suite as well; one with the same identifier takes the place of the one before.
    #[must_use]
    pub fn with_suite(mut self, suite: impl Suite + 'static) -> Self {
        self.suites.retain(|known| known.id() != suite.id());
        self.suites.push(Box::new(suite));
        self
    }

    /// Remembers good signatures.
    #[must_use]
    pub fn with_memory(mut self, verified: VerifiedSignatures) -> Self {
        self.verified = Some(verified);
        self
    }

    /// The suites that it knows, by their identifiers.
    pub fn suites(&self) -> impl Iterator<Item = u8> {
        self.suites.iter().map(|suite| suite.id())
    }

    /// Judges a path that has come to `target`, the AS in our OPEN of that session, with one route. What is looked at before any
    /// signature is the caller's ([`Ingress::check`](holdfast_bgpsec_wire::Ingress::check)).
    pub fn validate(&self, path: &Path<'_>, target: Asn, nlri: &Nlri, keys: &Keys) -> Verdict {
        self.judge(path, target, nlri, keys).0
    }

    /// As [`Self::validate`], and says what the verdict has cost.
    pub fn judge(&self, path: &Path<'_>, target: Asn, nlri: &Nlri, keys: &Keys) -> (Verdict, Work) {
        let (mut verdict, mut work) = (Verdict::Unsupported, Work::default());
        for block in path.blocks() {
            let Some(suite) = self.suites.iter().find(|suite| suite.id() == block.suite) else { continue };
            match self.validate_block(&**suite, path, block, (target, nlri), keys, &mut work) {
                Ok(()) => return (Verdict::Valid, work),
                Err(failure) if verdict == Verdict::Unsupported => verdict = Verdict::NotValid(failure),
                Err(_) => {}
            }
        }
        (verdict, work)
    }

    /// Octets that the memory of good signatures takes.
    pub fn memory(&self) -> usize {
        self.verified.as_ref().map_or(0, VerifiedSignatures::memory)
    }

    fn validate_block(
        &self,
        suite: &dyn Suite,
        path: &Path<'_>,
        block: Block<'_>,
        (target, nlri): (Asn, &Nlri),
        keys: &Keys,
        work: &mut Work,
    ) -> Result<(), Failure> {
        let hops = || path.segments().zip(block.signatures()).enumerate();
        let failure = |hop, asn, ski, reason| Failure { suite: block.suite, hop, asn, ski, reason };
        // A key that is not there costs no signature.
        for (hop, (segment, signature)) in hops() {
            let mut candidates = keys.of(segment.asn, signature.ski).map(|key| suite.takes(key));
            let reason = match candidates.next() {
                None => Reason::NoKey,
                Some(first) if first || candidates.any(|is_usable| is_usable) => continue,
                Some(_) => Reason::UnusableKey,
            };
            return Err(failure(hop, segment.asn, signature.ski, reason));
        }
        let signed = Signed::new(path, block, target, nlri);
        for (hop, (segment, signature)) in hops() {
            let digest = suite.digest(signed.of(hop));
            let mut candidates = keys.of(segment.asn, signature.ski).filter(|key| suite.takes(*key));
            if !candidates.any(|key| self.is_good(suite, key, &digest, signature.octets, work)) {
                return Err(failure(hop, segment.asn, signature.ski, Reason::BadSignature));
            }
        }
        Ok(())
    }

    fn is_good(
        &self,
        suite: &dyn Suite,
        key: StoredKey<'_>,
        digest: &Digest,
        signature: &[u8],
        work: &mut Work,
    ) -> bool {
        let remembered = self.verified.as_ref().map(|verified| {
            let fingerprint = verified.fingerprint(suite.id(), key, digest, signature);
            (verified, fingerprint)
        });
        if remembered.is_some_and(|(verified, fingerprint)| verified.has(fingerprint)) {
            work.remembered += 1;
            return true;
        }
        let is_good = suite.verify(key, digest, signature).is_ok();
        work.verified += 1;
        match remembered {
            _ if !is_good => work.failed += 1,
            Some((verified, fingerprint)) => verified.insert(fingerprint),
            None => {}
        }
        is_good
    }
}

impl std::fmt::Debug for Validator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let suites: Vec<u8> = self.suites().collect();
        f.debug_struct("Validator").field("suites", &suites).field("verified", &self.verified).finish()
    }
}

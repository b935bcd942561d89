//! Algorithm suites (RFC 8205 section 6.1): what digests, keys and signatures are.

use thiserror::Error;

use crate::keys::StoredKey;

/// A digest of up to 64 octets.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Digest {
    octets: [u8; 64],
    length: u8,
}

impl Digest {
    /// Of these octets; what is behind the 64th is left out.
    pub fn new(from: &[u8]) -> Self {
        let mut octets = [0; 64];
        let length = from.len().min(octets.len());
        octets[..length].copy_from_slice(&from[..length]);
        Self { octets, length: length as u8 }
    }
}

impl AsRef<[u8]> for Digest {
    fn as_ref(&self) -> &[u8] {
        &self.octets[..self.length.into()]
    }
}

/// How a suite verifies. Called from several threads.
pub trait Suite: Send + Sync {
    /// Algorithm Suite Identifier (RFC 8608 section 2.1).
    fn id(&self) -> u8;
    /// What is signed of what a signature covers.
    fn digest(&self, octets: &[u8]) -> Digest;
    /// Whether this key is one of the suite's.
    fn takes(&self, key: StoredKey<'_>) -> bool;
    /// Whether the signature of a digest was made with a key that [`Self::takes`] has taken.
    ///
    /// # Errors
    /// It was not, or is none.
    fn verify(&self, key: StoredKey<'_>, digest: &Digest, signature: &[u8]) -> Result<(), BadSignature>;
}

/// A signature that was not made with the key, over other octets, or that is none at all.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Error)]
#[error("the signature is not of this key and these octets")]
pub struct BadSignature;

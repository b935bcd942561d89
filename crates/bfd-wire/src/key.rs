//! Keys of a session, and the digests that are made with them (RFC 5880 sections 6.7.3 and 6.7.4).

use std::fmt;

use aws_lc_rs::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};
use md5::{Digest as _, Md5};

/// Octets of the longest digest, SHA1, which are those of the longest secret.
pub(crate) const LONGEST_DIGEST: usize = 20;

/// How packets are signed: the authentication type of RFC 5880 section 4.1.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum Algorithm {
    /// MD5; the sequence number grows now and then.
    KeyedMd5 = 2,
    /// MD5; the sequence number grows with each packet.
    MeticulousKeyedMd5 = 3,
    /// SHA1; the sequence number grows now and then.
    KeyedSha1 = 4,
    /// SHA1; the sequence number grows with each packet.
    MeticulousKeyedSha1 = 5,
}

impl Algorithm {
    /// The algorithm of an authentication type; `None`: another kind of authentication.
    pub fn from_type(number: u8) -> Option<Self> {
        match number {
            2 => Some(Self::KeyedMd5),
            3 => Some(Self::MeticulousKeyedMd5),
            4 => Some(Self::KeyedSha1),
            5 => Some(Self::MeticulousKeyedSha1),
            _ => None,
        }
    }

    /// Whether each packet has another sequence number than the one before.
    pub fn is_meticulous(self) -> bool {
        matches!(self, Self::MeticulousKeyedMd5 | Self::MeticulousKeyedSha1)
    }

    /// Octets of a digest, and most octets of a secret.
    pub fn length(self) -> usize {
        match self {
            Self::KeyedMd5 | Self::MeticulousKeyedMd5 => 16,
            Self::KeyedSha1 | Self::MeticulousKeyedSha1 => LONGEST_DIGEST,
        }
    }
}

/// Why a secret is none.
#[derive(Copy, Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum BadKey {
    /// It has no octets.
    #[error("the secret is empty")]
    Empty,
    /// It is longer than a digest.
    #[error("the secret has {0} octets, and may have {1}")]
    TooLong(usize, usize),
}

/// A secret with its number.
#[derive(Clone, PartialEq, Eq)]
pub struct Key {
    id: u8,
    algorithm: Algorithm,
    /// Behind the secret are zeros.
    secret: [u8; LONGEST_DIGEST],
}

impl Key {
    /// A key with this number, which packets name.
    ///
    /// # Errors
    /// The secret is empty, or longer than a digest of the algorithm.
    pub fn new(id: u8, algorithm: Algorithm, secret: &[u8]) -> Result<Self, BadKey> {
        let most = algorithm.length();
        if secret.is_empty() {
            return Err(BadKey::Empty);
        }
        if secret.len() > most {
            return Err(BadKey::TooLong(secret.len(), most));
        }
        let mut padded = [0; LONGEST_DIGEST];
        padded[..secret.len()].copy_from_slice(secret);
        Ok(Self { id, algorithm, secret: padded })
    }

    /// Its number.
    pub fn id(&self) -> u8 {
        self.id
    }

    /// How packets are signed with it.
    pub fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    /// Fills the end of a packet, which is the place of the digest: the digest is made of the packet with the secret there.
    pub(crate) fn sign(&self, packet: &mut [u8]) {
        let length = self.algorithm.length();
        let Some(start) = packet.len().checked_sub(length) else { return };
        packet[start..].copy_from_slice(&self.secret[..length]);
        match self.algorithm {
            Algorithm::KeyedMd5 | Algorithm::MeticulousKeyedMd5 => {
                let digest = Md5::digest(&*packet);
                packet[start..].copy_from_slice(&digest);
            }
            Algorithm::KeyedSha1 | Algorithm::MeticulousKeyedSha1 => {
                let digest = digest(&SHA1_FOR_LEGACY_USE_ONLY, packet);
                packet[start..].copy_from_slice(digest.as_ref());
            }
        }
    }
}

/// Nothing of the secret.
impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Key")
            .field("id", &self.id)
            .field("algorithm", &self.algorithm)
            .finish_non_exhaustive()
    }
}

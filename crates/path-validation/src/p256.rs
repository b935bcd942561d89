//! Algorithm suite 1: ECDSA on P-256 with SHA-256 (RFC 8608).

use aws_lc_rs::{
    digest::{Algorithm, SHA1_FOR_LEGACY_USE_ONLY, SHA256, digest},
    rand::{self, SystemRandom},
    signature::{
        ECDSA_P256_SHA256_ASN1, ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, KeyPair, ParsedPublicKey,
        UnparsedPublicKey,
    },
};
use holdfast_bgpsec_wire::Ski;
use holdfast_types::{Asn, RouterKey, SPKI_P256};
use thiserror::Error;

use crate::{
    keys::{Form, StoredKey},
    records::Point,
    sign::{CannotSign, Signer},
    suite::{BadSignature, Digest, Suite},
};

/// Its Algorithm Suite Identifier.
pub const SUITE_P256: u8 = 1;

/// The point of a subjectPublicKeyInfo, if that is of this form.
pub(crate) fn point(spki: &[u8]) -> Option<Point> {
    spki.strip_prefix(&SPKI_P256)?.try_into().ok()
}

/// The subjectPublicKeyInfo of a point.
pub(crate) fn spki(point: &Point) -> Vec<u8> {
    [&SPKI_P256[..], point].concat()
}

fn uncompressed(point: &Point) -> [u8; 65] {
    let mut octets = [4; 65];
    octets[1..].copy_from_slice(point);
    octets
}

/// Whether it is a key at all.
pub(crate) fn is_on_curve(point: &Point) -> bool {
    ParsedPublicKey::new(&ECDSA_P256_SHA256_ASN1, uncompressed(point)).is_ok()
}

/// The point of a key, which is stored whole if it has another name than its own.
fn usable_point(key: StoredKey<'_>) -> Option<Point> {
    match key.0 {
        Form::Point(stored) => Some(*stored),
        Form::Whole(spki) => point(spki).filter(is_on_curve),
    }
}

/// The subject key identifier of a key: SHA-1 of the point's octets (RFC 5280 section 4.2.1.2, by RFC 6487).
pub(crate) fn ski(point: &Point) -> Ski {
    let mut ski = Ski([0; 20]);
    ski.0.copy_from_slice(digest_of(&SHA1_FOR_LEGACY_USE_ONLY, &uncompressed(point)).as_ref());
    ski
}

/// Whether a key of P-256 is called by the SHA-1 of its point (RFC 8209 section 3.1.3.2, RFC 6487 section 4.8.2). Of keys of
/// other forms nothing is known.
pub fn has_own_name(key: &RouterKey) -> bool {
    point(&key.spki).is_none_or(|point| ski(&point) == key.ski)
}

/// A part of the hash of a key with its name.
pub(crate) fn hash_of_key(RouterKey { asn, ski, spki }: &RouterKey) -> u128 {
    let octets = [&asn.0.to_be_bytes()[..], &ski.0, spki].concat();
    let digest = digest(&SHA256, &octets);
    digest.as_ref().first_chunk().map_or(0, |first| u128::from_be_bytes(*first))
}

fn digest_of(algorithm: &'static Algorithm, octets: &[u8]) -> Digest {
    Digest::new(digest(algorithm, octets).as_ref())
}

/// Two random numbers, as [`KeyTable::new`](crate::KeyTable::new) and
/// [`VerifiedSignatures::new`](crate::VerifiedSignatures::new) want them.
///
/// # Errors
/// The system has no randomness.
pub fn random_seed() -> Result<[u64; 2], NoRandomness> {
    let mut octets = [[0; 8]; 2];
    rand::fill(octets.as_flattened_mut()).map_err(|_| NoRandomness)?;
    Ok(octets.map(u64::from_ne_bytes))
}

/// The system has no randomness.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Error)]
#[error("the system has no randomness")]
pub struct NoRandomness;

/// The suite.
#[derive(Copy, Clone, Debug, Default)]
pub struct P256;

impl Suite for P256 {
    fn id(&self) -> u8 {
        SUITE_P256
    }

    fn digest(&self, octets: &[u8]) -> Digest {
        digest_of(&SHA256, octets)
    }

    fn takes(&self, key: StoredKey<'_>) -> bool {
        usable_point(key).is_some()
    }

    fn verify(&self, key: StoredKey<'_>, digest: &Digest, signature: &[u8]) -> Result<(), BadSignature> {
        let point = usable_point(key).ok_or(BadSignature)?;
        let digest = aws_lc_rs::digest::Digest::import_less_safe(digest.as_ref(), &SHA256)
            .map_err(|_| BadSignature)?;
        UnparsedPublicKey::new(&ECDSA_P256_SHA256_ASN1, uncompressed(&point))
            .verify_digest(&digest, signature)
            .map_err(|_| BadSignature)
    }
}

/// A router's private key. It is gone from memory when this is dropped.
pub struct P256Signer {
    asn: Asn,
    ski: Ski,
    point: Point,
    key: EcdsaKeyPair,
    random: SystemRandom,
}

impl P256Signer {
    /// A new one.
    ///
    /// # Errors
    /// The system has no randomness.
    pub fn generate(asn: Asn) -> Result<Self, BadPrivateKey> {
        Self::new(asn, EcdsaKeyPair::generate(&ECDSA_P256_SHA256_ASN1_SIGNING).map_err(|_| BadPrivateKey)?)
    }

    /// From DER: PKCS#8 (RFC 5958) or an ECPrivateKey of SEC 1 (RFC 5915).
    ///
    /// # Errors
    /// The octets are none of these, or not of P-256.
    pub fn from_der(asn: Asn, octets: &[u8]) -> Result<Self, BadPrivateKey> {
        let algorithm = &ECDSA_P256_SHA256_ASN1_SIGNING;
        let key = EcdsaKeyPair::from_pkcs8(algorithm, octets)
            .or_else(|_| EcdsaKeyPair::from_private_key_der(algorithm, octets));
        Self::new(asn, key.map_err(|_| BadPrivateKey)?)
    }

    fn new(asn: Asn, key: EcdsaKeyPair) -> Result<Self, BadPrivateKey> {
        let point: Point = match key.public_key().as_ref() {
            [4, point @ ..] => point.try_into().map_err(|_| BadPrivateKey)?,
            _ => return Err(BadPrivateKey),
        };
        Ok(Self { asn, ski: ski(&point), point, key, random: SystemRandom::new() })
    }

    /// The public key, as others have to know it.
    pub fn router_key(&self) -> RouterKey {
        RouterKey { asn: self.asn, ski: self.ski, spki: spki(&self.point) }
    }
}

impl Signer for P256Signer {
    fn suite(&self) -> u8 {
        SUITE_P256
    }

    fn asn(&self) -> Asn {
        self.asn
    }

    fn ski(&self) -> Ski {
        self.ski
    }

    fn sign(&self, octets: &[u8]) -> Result<Vec<u8>, CannotSign> {
        let signature = self.key.sign(&self.random, octets).map_err(|_| CannotSign::Library)?;
        Ok(signature.as_ref().to_vec())
    }
}

impl std::fmt::Debug for P256Signer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("P256Signer").field("asn", &self.asn).field("ski", &self.ski).finish_non_exhaustive()
    }
}

/// Octets that are no private key of P-256.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Error)]
#[error("no private key of P-256: neither PKCS#8 nor an ECPrivateKey in DER")]
pub struct BadPrivateKey;

//! Texts that lie in places which must not read or change them.

use std::fmt;

use aws_lc_rs::{
    aead::{AES_256_GCM, Aad, MAX_TAG_LEN, NONCE_LEN, Nonce, RandomizedNonceKey},
    error::Unspecified,
    hkdf::{HKDF_SHA256, Prk, Salt},
};

/// Keeps what is derived here apart from other uses of the same secret.
const SALT: &[u8] = b"holdfast sealing 1";

/// Seals texts (AES-256-GCM, RFC 5116) under a key that derives from a secret (HKDF-SHA256, RFC 5869). A sealed text is the
/// nonce, which is random, and behind it what was encrypted with its tag. Whoever has the secret opens it, in every build.
///
/// `Debug` shows nothing of the secret.
#[derive(Clone)]
pub struct Sealing(Prk);

impl Sealing {
    /// Under this secret. It has to be hard to guess: whoever has a sealed text can try any.
    pub fn new(secret: &[u8]) -> Self {
        Self(Salt::new(HKDF_SHA256, SALT).extract(secret))
    }

    /// A key for keyed hashes, which says nothing of the secret.
    pub fn hash_key(&self) -> [u64; 2] {
        let octets: [u8; 16] = self.derive("hash");
        let (first, second) = octets.split_at(8);
        [first, second].map(|half| u64::from_le_bytes(half.try_into().expect("eight octets")))
    }

    /// Seals a text. `context` has to be the same where it is opened.
    ///
    /// # Errors
    /// The system has no random numbers.
    pub fn seal(&self, context: &[u8], text: &[u8]) -> Result<Vec<u8>, Unspecified> {
        let mut sealed = Vec::with_capacity(NONCE_LEN + text.len() + MAX_TAG_LEN);
        sealed.extend_from_slice(text);
        let nonce = self.key()?.seal_in_place_append_tag(Aad::from(context), &mut sealed)?;
        sealed.splice(..0, *nonce.as_ref());
        Ok(sealed)
    }

    /// The text; `None`: it was sealed under another secret or for another context, or somebody has changed it.
    pub fn open(&self, context: &[u8], sealed: &[u8]) -> Option<Vec<u8>> {
        let (nonce, sealed) = sealed.split_first_chunk::<NONCE_LEN>()?;
        let mut text = sealed.to_vec();
        let nonce = Nonce::assume_unique_for_key(*nonce);
        let length = self.key().ok()?.open_in_place(nonce, Aad::from(context), &mut text).ok()?.len();
        text.truncate(length);
        Some(text)
    }

    fn key(&self) -> Result<RandomizedNonceKey, Unspecified> {
        RandomizedNonceKey::new(&AES_256_GCM, &self.derive::<32>("seal"))
    }

    fn derive<const N: usize>(&self, label: &str) -> [u8; N] {
        let mut key = [0; N];
        let label = [label.as_bytes()];
        let expanded = self.0.expand(&label, Length(N)).and_then(|expanded| expanded.fill(&mut key));
        expanded.expect("HKDF gives 32 octets");
        key
    }
}

impl fmt::Debug for Sealing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Sealing")
    }
}

/// How many octets HKDF is to give.
#[derive(Copy, Clone, Debug)]
struct Length(usize);

impl aws_lc_rs::hkdf::KeyType for Length {
    fn len(&self) -> usize {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_opened_by_who_knows_the_secret_and_only_as_it_was() {
        let sealing = Sealing::new(b"a secret of both");
        let sealed = sealing.seal(b"7", b"md5 = \"x\"").expect("random numbers");
        assert_eq!(sealing.open(b"7", &sealed).as_deref(), Some(&b"md5 = \"x\""[..]));
        assert_ne!(sealed, sealing.seal(b"7", b"md5 = \"x\"").expect("random numbers"), "another nonce");
        assert_eq!(sealing.open(b"8", &sealed), None);
        assert_eq!(Sealing::new(b"another secret").open(b"7", &sealed), None);
        for length in 0..sealed.len() {
            assert_eq!(sealing.open(b"7", &sealed[..length]), None);
        }
        for at in 0..sealed.len() {
            let mut changed = sealed.clone();
            changed[at] ^= 1;
            assert_eq!(sealing.open(b"7", &changed), None);
        }
        assert!(!sealed.windows(3).any(|octets| octets == b"md5"));
        assert_eq!(sealing.open(b"", &sealing.seal(b"", b"").expect("random numbers")), Some(Vec::new()));
    }

    #[test]
    fn what_derives_from_a_secret_is_the_same_in_every_build() {
        assert_eq!(
            Sealing::new(b"a secret of both").hash_key(),
            [0x3eae_1fc4_b65e_3134, 0xf349_d203_ea39_be5a]
        );
        // Sealed by another implementation of AES-256-GCM and HKDF.
        let sealed = [
            0x00, 0x01, 0x02, 0x03, 0x04, 0x05, 0x06, 0x07, 0x08, 0x09, 0x0a, 0x0b, 0x7d, 0xfd, 0x88, 0x9a,
            0x3a, 0xac, 0x5a, 0x0d, 0x71, 0x30, 0x5a, 0x04, 0xfa, 0xe5, 0x90, 0x3c, 0x27, 0xe9, 0x86, 0x87,
        ];
        assert_eq!(Sealing::new(b"a secret of both").open(b"7", &sealed).as_deref(), Some(&b"text"[..]));
    }
}

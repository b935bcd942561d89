//! Secrets of an interface.

use std::fmt;

use aws_lc_rs::{constant_time, digest, hmac};
use md5::{Digest as _, Md5};

use crate::BadKey;

/// How a key makes a digest of a message (RFC 4822 section 2.2).
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub enum Algorithm {
    /// KEYED-MD5 (section 2.4).
    KeyedMd5,
    /// HMAC-SHA-1 (section 2.5).
    HmacSha1,
    /// HMAC-SHA-256.
    HmacSha256,
    /// HMAC-SHA-384.
    HmacSha384,
    /// HMAC-SHA-512.
    HmacSha512,
}

impl Algorithm {
    /// Octets of a digest.
    pub fn length(self) -> usize {
        match self {
            Self::KeyedMd5 => 16,
            Self::HmacSha1 => 20,
            Self::HmacSha256 => 32,
            Self::HmacSha384 => 48,
            Self::HmacSha512 => 64,
        }
    }
}

/// One key of an interface: a RIPv2 Security Association of RFC 4822 section 2.2, without its lifetime. The caller
/// watches the clock, and sets what the key is used for by [`Key::using`].
#[derive(Clone, Debug)]
pub struct Key {
    id: u8,
    send: bool,
    accept: bool,
    algorithm: Algorithm,
    secret: Secret,
}

#[derive(Clone)]
enum Secret {
    Md5([u8; 16]),
    Hmac(Box<hmac::Key>),
}

/// Nothing of it.
impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

impl Key {
    /// A key to send and to accept with.
    ///
    /// # Errors
    /// The secret is empty, or has more than 16 octets and is for MD5. (HMAC takes the hash of a long secret, RFC 4822
    /// section 2.5.)
    pub fn new(id: u8, algorithm: Algorithm, secret: &[u8]) -> Result<Self, BadKey> {
        if secret.is_empty() {
            return Err(BadKey::Empty);
        }
        let secret = match algorithm {
            Algorithm::KeyedMd5 => Secret::Md5(padded(secret)?),
            Algorithm::HmacSha1 => {
                hashed(hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY, &digest::SHA1_FOR_LEGACY_USE_ONLY, secret)
            }
            Algorithm::HmacSha256 => hashed(hmac::HMAC_SHA256, &digest::SHA256, secret),
            Algorithm::HmacSha384 => hashed(hmac::HMAC_SHA384, &digest::SHA384, secret),
            Algorithm::HmacSha512 => hashed(hmac::HMAC_SHA512, &digest::SHA512, secret),
        };
        Ok(Self { id, send: true, accept: true, algorithm, secret })
    }

    /// Sets whether messages may be signed with it, and whether messages that are signed with it are accepted.
    pub fn using(self, send: bool, accept: bool) -> Self {
        Self { send, accept, ..self }
    }

    /// The Key-ID, which messages name.
    pub fn id(&self) -> u8 {
        self.id
    }

    /// How it makes a digest.
    pub fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    /// The digest of `message`: the packet with the first four octets of its trailer (RFC 4822 sections 2.4, 2.5).
    pub(crate) fn digest(&self, message: &[u8]) -> Vec<u8> {
        match &self.secret {
            Secret::Md5(secret) => {
                let digest = Md5::new().chain_update(message).chain_update(secret).finalize();
                digest.as_slice().to_vec()
            }
            Secret::Hmac(key) => {
                let mut context = hmac::Context::with_key(key);
                context.update(message);
                context.update(&APAD[..self.algorithm.length()]);
                context.sign().as_ref().to_vec()
            }
        }
    }

    /// Whether `digest` is that of `message`; the time does not tell how much of it is right.
    pub(crate) fn verifies(&self, message: &[u8], digest: &[u8]) -> bool {
        constant_time::verify_slices_are_equal(&self.digest(message), digest).is_ok()
    }
}

/// Apad of the longest digest (RFC 4822 section 2.5): what stands in the place of the digest while it is made.
const APAD: [u8; 64] = {
    let mut octets = [0; 64];
    let mut at = 0;
    while at < octets.len() {
        octets[at] = [0x87, 0x8f, 0xe1, 0xf3][at % 4];
        at += 1;
    }
    octets
};

/// "PREPARATION OF KEY" (RFC 4822 section 2.5); HMAC itself appends the zeros.
fn hashed(algorithm: hmac::Algorithm, hash: &'static digest::Algorithm, secret: &[u8]) -> Secret {
    let key = if secret.len() > hash.output_len() {
        hmac::Key::new(algorithm, digest::digest(hash, secret).as_ref())
    } else {
        hmac::Key::new(algorithm, secret)
    };
    Secret::Hmac(Box::new(key))
}

fn padded(secret: &[u8]) -> Result<[u8; 16], BadKey> {
    let mut octets = [0; 16];
    octets.get_mut(..secret.len()).ok_or(BadKey::TooLong(secret.len()))?.copy_from_slice(secret);
    Ok(octets)
}

/// A simple password (RFC 2453 section 4.1). Everybody on the network can read it.
#[derive(Clone)]
pub struct Password([u8; 16]);

impl Password {
    /// Pads it with zeros.
    ///
    /// # Errors
    /// It is empty or has more than 16 octets.
    pub fn new(text: &[u8]) -> Result<Self, BadKey> {
        if text.is_empty() { Err(BadKey::Empty) } else { padded(text).map(Self) }
    }

    pub(crate) fn octets(&self) -> &[u8; 16] {
        &self.0
    }

    pub(crate) fn is(&self, theirs: &[u8; 16]) -> bool {
        constant_time::verify_slices_are_equal(&self.0, theirs).is_ok()
    }
}

/// Nothing of it.
impl fmt::Debug for Password {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Password")
    }
}

/// What authenticates the RIPv2 messages of an interface.
#[derive(Clone, Debug)]
pub enum Credentials {
    /// Authentication Type 2 (RFC 2453 section 4.1).
    Password(Password),
    /// Authentication Type 3 (RFC 4822); made by [`Credentials::keys`].
    Keys(Keys),
}

/// Keys with different identifiers, one of which is for sending.
#[derive(Clone, Debug)]
pub struct Keys(Vec<Key>);

impl Credentials {
    /// Keys of an interface; the first that is for sending signs.
    ///
    /// # Errors
    /// No key is for sending, or two have one identifier.
    pub fn keys(keys: Vec<Key>) -> Result<Self, BadKey> {
        let twice =
            keys.iter().enumerate().find(|(at, key)| keys[..*at].iter().any(|other| other.id == key.id));
        match twice {
            Some((_, key)) => Err(BadKey::Twice(key.id)),
            None if !keys.iter().any(|key| key.send) => Err(BadKey::NoneToSend),
            None => Ok(Self::Keys(Keys(keys))),
        }
    }
}

impl Keys {
    /// The only key that may have signed (RFC 4822 section 3.2: a receiver does not try all).
    pub(crate) fn accepted(&self, id: u8) -> Option<&Key> {
        self.0.iter().find(|key| key.id == id && key.accept)
    }

    /// There is one by construction.
    pub(crate) fn sending(&self) -> Option<&Key> {
        self.0.iter().find(|key| key.send)
    }
}

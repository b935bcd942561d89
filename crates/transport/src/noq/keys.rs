//! Keys of an endpoint that outlive it: whoever has its seeds goes on with its connection ids, its resets and its tokens
//! (RFC 9000 sections 5.1, 10.3 and 8.1.3).
//!
//! A connection id says by its form which generation made it, so that a reset after a rotation is the one that the peer
//! was given. Connections that live longer than a generation get other ids in time. Tokens are sealed with the current generation and opened with either.

use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use holdfast_tls::{Seeds, rustls};
use noq::{
    ConnectionId, ConnectionIdGenerator, InvalidCid,
    crypto::{CryptoError, HandshakeTokenKey, HmacKey},
};
use noq_proto::HashedConnectionIdGenerator;
use rustls::{
    Tls13CipherSuite,
    crypto::{
        aws_lc_rs::cipher_suite::TLS13_CHACHA20_POLY1305_SHA256,
        cipher::{AeadKey, Iv},
        hmac::Tag,
        tls13::OkmBlock,
    },
    quic::{PacketKey, Suite},
};

use crate::Side;

/// Octets of a connection id of ours.
const ID: usize = 8;
/// Octets of a signature: HMAC-SHA256.
const SIGNATURE: usize = 32;
/// What a sealed token is bound to, beside its key.
const TOKEN: &[u8] = b"token";

struct Generation {
    reset: [u8; 32],
    token: [u8; 32],
    ids: HashedConnectionIdGenerator,
}

impl Generation {
    fn derive(seeds: &Seeds, generation: usize) -> Option<Self> {
        let [a, b, c, d, e, f, g, h, ..] = seeds.derive(generation, "connection id")?;
        Some(Self {
            reset: seeds.derive(generation, "reset")?,
            token: seeds.derive(generation, "token")?,
            ids: HashedConnectionIdGenerator::from_key(u64::from_le_bytes([a, b, c, d, e, f, g, h])),
        })
    }

    fn made(&self, id: &[u8]) -> bool {
        id.len() == ID && self.ids.validate(ConnectionId::new(id)).is_ok()
    }
}

struct Generations {
    current: Generation,
    earlier: Option<Generation>,
}

/// What there is of an endpoint.
struct Known {
    generations: Generations,
    /// Of the ids that are made; `None`: either.
    side: Option<Side>,
}

/// Shared by an endpoint, its listeners, and noq. `Debug` shows none.
#[derive(Clone)]
pub(super) struct Keys(Arc<Mutex<Known>>);

impl Keys {
    /// `None`: there are no seeds.
    pub(super) fn new(seeds: &Seeds) -> Option<Self> {
        let known = Known { generations: Self::derive(seeds)?, side: None };
        Some(Self(Arc::new(Mutex::new(known))))
    }

    /// Other seeds from now on; without any, those from before stay.
    pub(super) fn set(&self, seeds: &Seeds) {
        if let Some(generations) = Self::derive(seeds) {
            self.with(|keys| *keys = generations);
        }
    }

    /// Ids that are made from now on are of this side.
    pub(super) fn take_side(&self, side: Side) {
        self.lock().side = Some(side);
    }

    /// What makes connection ids for an endpoint.
    pub(super) fn ids(&self) -> Box<dyn ConnectionIdGenerator> {
        Box::new(Ids(self.clone()))
    }

    /// Octets of a connection id of ours.
    pub(super) const ID: usize = ID;

    /// Whether a connection id may be one of ours.
    pub(super) fn may_have_made(&self, id: &[u8]) -> bool {
        self.with(|keys| keys.current.made(id) || keys.earlier.as_ref().is_some_and(|keys| keys.made(id)))
    }

    fn derive(seeds: &Seeds) -> Option<Generations> {
        Some(Generations { current: Generation::derive(seeds, 0)?, earlier: Generation::derive(seeds, 1) })
    }

    /// Whoever panicked while it had the lock has left nothing half done.
    fn with<T>(&self, f: impl FnOnce(&mut Generations) -> T) -> T {
        f(&mut self.lock().generations)
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn signature(&self, id: &[u8]) -> Tag {
        self.with(|keys| match &keys.earlier {
            Some(earlier) if earlier.made(id) => hmac(&earlier.reset, id),
            _ => hmac(&keys.current.reset, id),
        })
    }
}

impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Keys")
    }
}

/// Stateless resets.
impl HmacKey for Keys {
    fn sign(&self, data: &[u8], signature_out: &mut [u8]) {
        signature_out.copy_from_slice(self.signature(data).as_ref());
    }

    fn signature_len(&self) -> usize {
        SIGNATURE
    }

    fn verify(&self, data: &[u8], signature: &[u8]) -> Result<(), CryptoError> {
        let expected = self.signature(data);
        let differing = expected.as_ref().iter().zip(signature).fold(0, |all, (a, b)| all | (a ^ b));
        if signature.len() == SIGNATURE && differing == 0 { Ok(()) } else { Err(CryptoError) }
    }
}

/// Tokens of Retry.
impl HandshakeTokenKey for Keys {
    fn seal(&self, token_nonce: u128, data: &mut Vec<u8>) -> Result<(), CryptoError> {
        let key = self.with(|keys| token_key(&keys.current.token, token_nonce));
        let tag = key.encrypt_in_place(0, TOKEN, data).map_err(|_| CryptoError)?;
        data.extend_from_slice(tag.as_ref());
        Ok(())
    }

    fn open<'a>(&self, token_nonce: u128, data: &'a mut [u8]) -> Result<&'a [u8], CryptoError> {
        let (current, earlier) =
            self.with(|keys| (keys.current.token, keys.earlier.as_ref().map(|earlier| earlier.token)));
        for secret in [Some(current), earlier].into_iter().flatten() {
            // A key that does not fit leaves nothing of what it was tried on.
            let mut copy = data.to_vec();
            if let Ok(plain) = token_key(&secret, token_nonce).decrypt_in_place(0, TOKEN, &mut copy) {
                let length = plain.len();
                data[..length].copy_from_slice(plain);
                return Ok(&data[..length]);
            }
        }
        Err(CryptoError)
    }
}

struct Ids(Keys);

impl ConnectionIdGenerator for Ids {
    fn generate_cid(&mut self) -> ConnectionId {
        let Known { generations, side } = &mut *self.0.lock();
        // It begins with octets that are random: half of all are of either side.
        loop {
            let id = generations.current.ids.generate_cid();
            if side.is_none_or(|side| side.has(&id)) {
                return id;
            }
        }
    }

    fn validate(&self, cid: ConnectionId) -> Result<(), InvalidCid> {
        let known = self.0.with(|keys| {
            keys.current.made(&cid) || keys.earlier.as_ref().is_some_and(|earlier| earlier.made(&cid))
        });
        if known { Ok(()) } else { Err(InvalidCid) }
    }

    fn cid_len(&self) -> usize {
        ID
    }

    /// It is replaced before the generation that has made it is forgotten.
    fn cid_lifetime(&self) -> Option<Duration> {
        Some(Seeds::LIFETIME / 2)
    }
}

/// SHA-256 and ChaCha20-Poly1305, as packets of QUIC are protected.
fn suite() -> Suite {
    TLS13_CHACHA20_POLY1305_SHA256
        .tls13()
        .and_then(Tls13CipherSuite::quic_suite)
        .expect("this suite of TLS 1.3 is made for QUIC as well")
}

fn hmac(key: &[u8; 32], data: &[u8]) -> Tag {
    suite().suite.hkdf_provider.hmac_sign(&OkmBlock::new(key), data)
}

/// A key for one token alone: its nonce is random and longer than that of the cipher, whose own is then always the same.
fn token_key(secret: &[u8; 32], nonce: u128) -> Box<dyn PacketKey> {
    let mut key = [0; 32];
    key.copy_from_slice(hmac(secret, &nonce.to_le_bytes()).as_ref());
    suite().quic.packet_key(AeadKey::from(key), Iv::from([0; 12]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seeds(octets: &[u8]) -> Seeds {
        let seeds: Vec<Vec<u8>> = octets.iter().map(|&octet| vec![octet; 64]).collect();
        Seeds::new(&seeds).expect("seeds")
    }

    fn keys(octets: &[u8]) -> Keys {
        Keys::new(&seeds(octets)).expect("keys")
    }

    fn sealed(keys: &Keys) -> Vec<u8> {
        let mut token = b"192.0.2.1".to_vec();
        keys.seal(7, &mut token).expect("sealed");
        token
    }

    fn reset(keys: &Keys, id: &[u8]) -> [u8; SIGNATURE] {
        let mut token = [0; SIGNATURE];
        keys.sign(id, &mut token);
        token
    }

    #[test]
    fn a_token_is_opened_with_its_nonce_only_and_as_it_was() {
        let keys = keys(&[1]);
        let token = sealed(&keys);
        assert_ne!(&token[..9], b"192.0.2.1");
        assert_eq!(keys.open(7, &mut token.clone()).expect("opened"), b"192.0.2.1");
        assert!(keys.open(8, &mut token.clone()).is_err());
        for at in 0..token.len() {
            let mut other = token.clone();
            other[at] ^= 1;
            assert!(keys.open(7, &mut other).is_err(), "octet {at}");
        }
        assert!(keys.open(7, &mut []).is_err());
    }

    #[test]
    fn a_token_outlives_one_rotation() {
        let keys = keys(&[1]);
        let token = sealed(&keys);
        keys.set(&seeds(&[2, 1]));
        assert_eq!(keys.open(7, &mut token.clone()).expect("opened"), b"192.0.2.1");
        assert_ne!(sealed(&keys), token);
        keys.set(&seeds(&[3, 2]));
        assert!(keys.open(7, &mut token.clone()).is_err());
    }

    #[test]
    fn the_reset_of_an_id_is_the_same_for_who_has_the_seeds_and_after_a_rotation() {
        let before = keys(&[1]);
        let id = before.ids().generate_cid();
        let token = reset(&before, &id);
        let successor = keys(&[2, 1]);
        assert!(successor.ids().validate(id).is_ok());
        assert_eq!(reset(&successor, &id), token);
        assert_eq!(successor.verify(&id, &token).ok(), Some(()));
        // Its own ids are of its own generation.
        let own = successor.ids().generate_cid();
        assert_ne!(reset(&successor, &own), reset(&before, &own));
    }

    #[test]
    fn ids_are_of_the_side_that_was_taken_and_ours_on_either() {
        let keys = keys(&[1]);
        for side in [Side::Low, Side::High] {
            keys.take_side(side);
            for _ in 0..32 {
                let id = keys.ids().generate_cid();
                assert!(side.has(&id) && keys.may_have_made(&id));
            }
        }
    }

    #[test]
    fn ids_of_others_are_not_ours() {
        let keys = keys(&[1]);
        assert!(keys.ids().validate(self::keys(&[9]).ids().generate_cid()).is_err());
        for length in 0..20 {
            if length != ID {
                assert!(keys.ids().validate(ConnectionId::new(&vec![0; length])).is_err());
                // A reset of it is possible all the same, and guessable by nobody.
                assert_ne!(reset(&keys, &vec![0; length]), [0; SIGNATURE]);
            }
        }
        let mut token = reset(&keys, &[1; ID]);
        token[31] ^= 1;
        assert!(keys.verify(&[1; ID], &token).is_err());
        assert!(keys.verify(&[1; ID], &token[..31]).is_err());
    }
}

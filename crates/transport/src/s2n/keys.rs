//! Keys of an endpoint that outlive it: whoever has its seeds goes on with its tokens, its connection ids and its resets.
//!
//! A connection id is `random (12) | MAC (4)`: it says which generation of the seeds has made it, so that a reset after a
//! rotation is the one that the peer was given (RFC 9000 section 10.3.2).

use std::{
    convert::Infallible,
    sync::{Arc, Mutex},
    time::Duration,
};

use hmac_sha256::HMAC;
use holdfast_tls::Seeds;
use s2n_quic::provider::{
    connection_id::{ConnectionInfo, Generator, LocalId, Validator, default::Format},
    stateless_reset_token,
};
use s2n_quic_core::stateless_reset;

use super::door::lock;

/// Of HMAC-SHA256.
pub(super) type Key = [u8; 32];

/// Octets of a connection id of ours, and those of it that are random.
const ID: usize = 16;
const RANDOM: usize = 12;
/// The current seed and that before.
const MOST: usize = 2;

/// What derives from one seed.
struct Generation {
    token: Key,
    id: Key,
    reset: Key,
}

impl Generation {
    fn derive(seeds: &Seeds, generation: usize) -> Option<Self> {
        Some(Self {
            token: seeds.derive(generation, "s2n-quic retry token")?,
            id: seeds.derive(generation, "s2n-quic connection id")?,
            reset: seeds.derive(generation, "s2n-quic stateless reset")?,
        })
    }

    /// What says that a connection id is of this generation.
    fn mark(&self, random: &[u8]) -> [u8; ID - RANDOM] {
        let [a, b, c, d, ..] = HMAC::mac(random, self.id);
        [a, b, c, d]
    }

    fn has_made(&self, id: &[u8]) -> bool {
        id.len() == ID && id[RANDOM..] == self.mark(&id[..RANDOM])
    }
}

/// Keys of the seeds that an endpoint was given last; its parts share them.
#[derive(Clone)]
pub(super) struct Keys(Arc<Mutex<Vec<Generation>>>);

impl Keys {
    /// `None`: there is no seed.
    pub(super) fn new(seeds: &Seeds) -> Option<Self> {
        Some(Self(Arc::new(Mutex::new(derive(seeds)?))))
    }

    /// Other seeds from now on.
    pub(super) fn set(&self, seeds: &Seeds) {
        if let Some(generations) = derive(seeds) {
            *lock(&self.0) = generations;
        }
    }

    /// Of tokens: what is given out is under the first, what comes may be under any.
    pub(super) fn tokens(&self) -> Vec<Key> {
        lock(&self.0).iter().map(|generation| generation.token).collect()
    }

    /// Makes a connection id of the current generation out of random octets.
    fn mark(&self, id: &mut [u8]) {
        if let (Some(current), Some((random, mark))) =
            (lock(&self.0).first(), id.split_at_mut_checked(RANDOM))
            && mark.len() == ID - RANDOM
        {
            mark.copy_from_slice(&current.mark(random));
        }
    }

    /// What ends the connection that has a connection id.
    fn reset(&self, id: &[u8]) -> [u8; 16] {
        let generations = lock(&self.0);
        // Those of others are of nobody: any token does for them.
        let made = generations.iter().find(|generation| generation.has_made(id)).or(generations.first());
        let mac = HMAC::mac(id, made.map_or(Key::default(), |generation| generation.reset));
        let mut token = [0; 16];
        token.copy_from_slice(&mac[..16]);
        token
    }
}

/// `None`: there is no seed.
fn derive(seeds: &Seeds) -> Option<Vec<Generation>> {
    let generations: Vec<_> = (0..MOST).map_while(|number| Generation::derive(seeds, number)).collect();
    (!generations.is_empty()).then_some(generations)
}

/// Makes connection ids, as the library does but for their end.
pub(super) struct Ids {
    keys: Keys,
    random: Format,
}

impl Ids {
    pub(super) fn new(keys: Keys) -> Self {
        // It has 16 octets.
        Self { keys, random: Format::default() }
    }
}

impl Generator for Ids {
    fn generate(&mut self, info: &ConnectionInfo<'_>) -> LocalId {
        let random = self.random.generate(info);
        let mut id = random.as_bytes().to_vec();
        self.keys.mark(&mut id);
        LocalId::try_from_bytes(&id).unwrap_or(random)
    }

    fn lifetime(&self) -> Option<Duration> {
        self.random.lifetime()
    }

    fn rotate_handshake_connection_id(&self) -> bool {
        self.random.rotate_handshake_connection_id()
    }
}

impl Validator for Ids {
    fn validate(&self, info: &ConnectionInfo<'_>, buffer: &[u8]) -> Option<usize> {
        self.random.validate(info, buffer)
    }
}

/// Stateless resets: tell a peer after a restart that its connection is no more.
pub(super) struct Resets(pub(super) Keys);

impl stateless_reset_token::Provider for Resets {
    type Generator = Self;
    type Error = Infallible;

    fn start(self) -> Result<Self, Infallible> {
        Ok(self)
    }
}

impl stateless_reset_token::Generator for Resets {
    fn generate(&mut self, connection_id: &[u8]) -> stateless_reset::Token {
        self.0.reset(connection_id).into()
    }
}

#[cfg(test)]
mod tests {
    use s2n_quic_core::inet::SocketAddress;

    use super::*;

    fn keys(seeds: &[u8]) -> Keys {
        let seeds: Vec<_> = seeds.iter().map(|seed| vec![*seed; 64]).collect();
        Keys::new(&Seeds::new(&seeds).expect("seeds")).expect("a seed")
    }

    fn id(keys: &Keys) -> LocalId {
        Ids::new(keys.clone()).generate(&ConnectionInfo::new(&SocketAddress::default()))
    }

    #[test]
    fn a_token_of_before_the_rotation_is_taken_after_it() {
        let (before, after) = (keys(&[1]), keys(&[2, 1]));
        assert_eq!(after.tokens()[1], before.tokens()[0]);
        assert_ne!(after.tokens()[0], before.tokens()[0]);
    }

    #[test]
    fn a_reset_is_the_one_that_the_peer_was_given() {
        let (before, after, later) = (keys(&[1]), keys(&[2, 1]), keys(&[3, 2]));
        let (old, new) = (id(&before), id(&after));
        assert_ne!(old, new);
        assert_eq!(before.reset(old.as_bytes()), after.reset(old.as_bytes()));
        assert_eq!(after.reset(new.as_bytes()), later.reset(new.as_bytes()));
        assert_ne!(before.reset(old.as_bytes()), later.reset(old.as_bytes()));
        assert_ne!(after.reset(old.as_bytes()), after.reset(new.as_bytes()));
    }

    #[test]
    fn seeds_change_on_the_way() {
        let keys = keys(&[1]);
        let tokens = keys.tokens();
        keys.set(&Seeds::new(&[vec![2; 64], vec![1; 64]]).expect("seeds"));
        assert_eq!(keys.tokens()[1..], tokens[..]);
    }

    #[test]
    fn ids_have_one_length_and_differ() {
        let keys = keys(&[1]);
        let ids = [id(&keys), id(&keys)];
        assert_ne!(ids[0], ids[1]);
        assert!(ids.iter().all(|id| id.len() == ID));
        // An id of somebody else, of whatever length, has a token too.
        let foreign = [keys.reset(b""), keys.reset(&[7; ID]), keys.reset(&[7; 20])];
        assert!(foreign[0] != foreign[1] && foreign[1] != foreign[2]);
    }
}

//! Keys of an endpoint that outlive it: whoever has its seeds goes on with its tokens, its connection ids and its resets.
//!
//! A connection id is `random (12) | mark (4)`: it says which generation of the seeds has made it, so that a reset after a
//! rotation is the one that the peer was given (RFC 9000 section 10.3.2), and that nobody is answered with a reset who
//! sends what was never an id of ours. That is all a mark protects: every packet is asked for it, so it is a hash that
//! strangers cannot guess, and no MAC. Connections that live longer than a generation get other ids in time.

use std::{
    collections::VecDeque,
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
use crate::Side;

/// Of HMAC-SHA256.
pub(super) type Key = [u8; 32];

/// Octets of a connection id of ours, those of it that are random, and those that say whose it is.
const ID: usize = 16;
const RANDOM: usize = 12;
const MARK: usize = ID - RANDOM;
/// The current seed and that before.
const MOST: usize = 2;
/// Changes of seeds that an id may see, if they come faster than they should: it does not live for two rotations.
const MOST_FORMER: usize = 8;

/// What derives from one seed.
struct Generation {
    token: Key,
    ids: Marks,
    reset: Key,
}

/// Marks connection ids: a multilinear hash. Of two ids that differ, the marks are the same once in 2^32 keys.
#[derive(PartialEq)]
struct Marks([u64; 1 + RANDOM / 4]);

impl Marks {
    fn new(key: &Key) -> Self {
        let mut words = key.as_chunks().0.iter().map(|octets| u64::from_le_bytes(*octets));
        Self(std::array::from_fn(|_| words.next().unwrap_or_default()))
    }

    fn of(&self, random: &[u8]) -> [u8; MARK] {
        let Self([start, factors @ ..]) = self;
        let words = random.as_chunks().0.iter().map(|octets| u32::from_le_bytes(*octets));
        let sum = words
            .zip(factors)
            .fold(*start, |sum, (word, factor)| sum.wrapping_add(factor.wrapping_mul(u64::from(word))));
        ((sum >> 32) as u32).to_le_bytes()
    }

    fn are_on(&self, id: &[u8]) -> bool {
        id.len() == ID && id[RANDOM..] == self.of(&id[..RANDOM])
    }
}

impl Generation {
    fn derive(seeds: &Seeds, generation: usize) -> Option<Self> {
        Some(Self {
            token: seeds.derive(generation, "s2n-quic retry token")?,
            ids: Marks::new(&seeds.derive(generation, "s2n-quic connection id")?),
            reset: seeds.derive(generation, "s2n-quic stateless reset")?,
        })
    }
}

/// Of the seeds that an endpoint was given last, the current ones first.
struct Generations {
    known: Vec<Generation>,
    /// Of ids that were made here before, also under seeds that were lost since; the oldest first.
    former: VecDeque<Marks>,
    /// Of the ids that are made; `None`: either.
    side: Option<Side>,
}

/// Keys of an endpoint; its parts share them.
#[derive(Clone)]
pub(super) struct Keys(Arc<Mutex<Generations>>);

impl Keys {
    /// `None`: there is no seed.
    pub(super) fn new(seeds: &Seeds) -> Option<Self> {
        let generations = Generations { known: derive(seeds)?, former: VecDeque::new(), side: None };
        Some(Self(Arc::new(Mutex::new(generations))))
    }

    /// Other seeds from now on.
    pub(super) fn set(&self, seeds: &Seeds) {
        let Some(known) = derive(seeds) else { return };
        let mut generations = lock(&self.0);
        let before = std::mem::replace(&mut generations.known, known).into_iter().next();
        let before = before.map(|generation| generation.ids);
        let same = before.as_ref() == generations.known.first().map(|generation| &generation.ids);
        if !same {
            generations.former.extend(before);
            let forgotten = generations.former.len().saturating_sub(MOST_FORMER);
            generations.former.drain(..forgotten);
        }
    }

    /// Of tokens: what is given out is under the first, what comes may be under any.
    pub(super) fn tokens(&self) -> Vec<Key> {
        lock(&self.0).known.iter().map(|generation| generation.token).collect()
    }

    /// Ids that are made from now on are of this side.
    pub(super) fn take_side(&self, side: Side) {
        lock(&self.0).side = Some(side);
    }

    /// Makes a connection id of the current generation out of random octets.
    fn mark(&self, id: &mut [u8]) {
        let Generations { known, side, .. } = &*lock(&self.0);
        if let (Some(current), Some((random, mark))) = (known.first(), id.split_at_mut_checked(RANDOM))
            && mark.len() == MARK
        {
            side.iter().for_each(|side| side.mark(random));
            mark.copy_from_slice(&current.ids.of(random));
        }
    }

    /// Octets of a connection id of ours.
    pub(super) const ID: usize = ID;

    /// Whether a connection id may be one that was made here or by a predecessor.
    pub(super) fn may_have_made(&self, id: &[u8]) -> bool {
        let Generations { known, former, .. } = &*lock(&self.0);
        let mut all = known.iter().map(|generation| &generation.ids).chain(former);
        all.any(|marks| marks.are_on(id))
    }

    /// What ends the connection that has a connection id.
    fn reset(&self, id: &[u8]) -> [u8; 16] {
        let known = &lock(&self.0).known;
        // Those of others are of nobody: any token does for them.
        let made = known.iter().find(|generation| generation.ids.are_on(id)).or(known.first());
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

    /// It is replaced before the generation that has made it is forgotten.
    fn lifetime(&self) -> Option<Duration> {
        Some(Seeds::LIFETIME / 2)
    }

    fn rotate_handshake_connection_id(&self) -> bool {
        self.random.rotate_handshake_connection_id()
    }
}

impl Validator for Ids {
    fn validate(&self, info: &ConnectionInfo<'_>, buffer: &[u8]) -> Option<usize> {
        let length = self.random.validate(info, buffer)?;
        buffer.get(..length).is_some_and(|id| self.keys.may_have_made(id)).then_some(length)
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
    fn ids_are_of_the_side_that_was_taken_and_ours_on_either() {
        let keys = keys(&[1]);
        for side in [Side::Low, Side::High] {
            keys.take_side(side);
            for _ in 0..32 {
                let id = id(&keys);
                assert!(side.has(id.as_bytes()) && keys.may_have_made(id.as_bytes()));
            }
        }
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

    fn is_looked_for(keys: &Keys, packet: &[u8]) -> bool {
        Ids::new(keys.clone()).validate(&ConnectionInfo::new(&SocketAddress::default()), packet).is_some()
    }

    #[test]
    fn packets_with_ids_that_nobody_has_made_are_of_no_connection() {
        let (before, after) = (keys(&[1]), keys(&[2, 1]));
        let packet = [id(&before).as_bytes(), b"what follows"].concat();
        assert!(is_looked_for(&after, &packet) && is_looked_for(&before, &packet));
        assert!(!is_looked_for(&keys(&[3]), &packet));
        for position in 0..ID {
            let mut other = packet.clone();
            other[position] ^= 1;
            assert!(!is_looked_for(&after, &other), "octet {position}");
        }
        assert!(!is_looked_for(&after, &packet[..ID - 1]));
    }

    #[test]
    fn a_connection_goes_on_also_when_seeds_are_lost() {
        let keys = keys(&[0]);
        let own = id(&keys);
        for seed in 1..=2 * MOST_FORMER as u8 {
            keys.set(&Seeds::new(&[vec![seed; 64]]).expect("seeds"));
            // The same seeds again are no change.
            keys.set(&Seeds::new(&[vec![seed; 64]]).expect("seeds"));
            let known = usize::from(seed) <= MOST_FORMER;
            assert_eq!(is_looked_for(&keys, own.as_bytes()), known, "change {seed}");
            assert!(!is_looked_for(&keys, &[7; ID]));
        }
        assert_eq!(lock(&keys.0).former.len(), MOST_FORMER);
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

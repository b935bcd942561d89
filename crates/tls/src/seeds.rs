//! Seeds that the keys of tokens and resets derive from.

use std::{fmt, time::Duration};

use aws_lc_rs::{
    hkdf::{HKDF_SHA256, Salt},
    rand,
};

use crate::TlsError;

/// Octets of a seed.
const LENGTH: usize = 64;
/// The current one and that before: what was given out under the old one is valid until the next rotation.
const MOST: usize = 2;
/// Keeps what is derived here apart from other uses of the same octets.
const SALT: &[u8] = b"holdfast seeds 1";

/// What the keys of Retry tokens, stateless resets and tickets derive from (HKDF-SHA256, RFC 5869), so that they survive
/// a restart. The current seed is first; the one before may follow. Cheap enough to clone; `Debug` shows no octet.
#[derive(Clone)]
pub struct Seeds(Vec<[u8; LENGTH]>);

impl Seeds {
    /// For how long a seed is the current one, at least, before another takes its place; and so for how long it is the one
    /// before. What is to be found under one of both has a shorter life.
    pub const LIFETIME: Duration = Duration::from_secs(24 * 60 * 60);

    /// One or two seeds of 64 octets, the current one first.
    ///
    /// # Errors
    /// [`TlsError::Seeds`] and [`TlsError::SeedLength`].
    pub fn new(seeds: &[Vec<u8>]) -> Result<Self, TlsError> {
        if seeds.is_empty() || seeds.len() > MOST {
            return Err(TlsError::Seeds(seeds.len()));
        }
        let seed = |seed: &Vec<u8>| {
            <[u8; LENGTH]>::try_from(seed.as_slice()).map_err(|_| TlsError::SeedLength(seed.len()))
        };
        Ok(Self(seeds.iter().map(seed).collect::<Result<_, _>>()?))
    }

    /// A seed of its own, of which nothing survives a restart.
    ///
    /// # Panics
    /// The system has no random numbers.
    pub fn random() -> Self {
        let mut seed = [0; LENGTH];
        rand::fill(&mut seed).expect("the system has random numbers");
        Self(vec![seed])
    }

    /// The key of a use, `label`, under the current seed (generation 0) or the one before (1); `None` if there is none.
    pub fn derive(&self, generation: usize, label: &str) -> Option<[u8; 32]> {
        let seed = self.0.get(generation)?;
        let extracted = Salt::new(HKDF_SHA256, SALT).extract(seed);
        let mut key = [0; 32];
        extracted.expand(&[label.as_bytes()], HKDF_SHA256).ok()?.fill(&mut key).ok()?;
        Some(key)
    }
}

impl fmt::Debug for Seeds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Seeds({})", self.0.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seeds() -> Seeds {
        Seeds::new(&[vec![1; 64], vec![2; 64]]).expect("two seeds")
    }

    #[test]
    fn keys_differ_by_use_and_generation_and_are_the_same_after_a_restart() {
        let keys = [
            seeds().derive(0, "retry token"),
            seeds().derive(0, "stateless reset"),
            seeds().derive(1, "retry token"),
            seeds().derive(1, "stateless reset"),
        ];
        for (number, key) in keys.iter().enumerate() {
            assert!(key.is_some());
            assert!(!keys[..number].contains(key), "key {number} is there twice");
        }
        assert_eq!(keys[0], seeds().derive(0, "retry token"));
    }

    #[test]
    fn the_seed_before_is_the_current_one_of_yesterday() {
        let yesterday = Seeds::new(&[vec![2; 64]]).expect("a seed");
        assert_eq!(seeds().derive(1, "retry token"), yesterday.derive(0, "retry token"));
        assert_eq!(yesterday.derive(1, "retry token"), None);
        assert_eq!(seeds().derive(2, "retry token"), None);
    }

    #[test]
    fn a_random_seed_is_of_its_own() {
        assert_ne!(Seeds::random().derive(0, "retry token"), Seeds::random().derive(0, "retry token"));
    }

    #[test]
    fn seeds_of_another_length_or_number_are_refused() {
        assert_eq!(Seeds::new(&[]).expect_err("none"), TlsError::Seeds(0));
        assert_eq!(Seeds::new(&vec![vec![0; 64]; 3]).expect_err("three"), TlsError::Seeds(3));
        assert_eq!(Seeds::new(&[vec![0; 32]]).expect_err("short"), TlsError::SeedLength(32));
    }

    #[test]
    fn debug_shows_no_octet() {
        assert_eq!(format!("{:?}", seeds()), "Seeds(2)");
    }
}

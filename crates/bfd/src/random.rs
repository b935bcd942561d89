//! Numbers that neighbours cannot guess.

use std::{hash::BuildHasher, time::Duration};

use holdfast_types::HashKey;

/// A hash with a secret key counts upwards.
#[derive(Clone, Debug)]
pub(crate) struct Random {
    key: HashKey,
    drawn: u64,
}

impl Random {
    pub(crate) fn new(key: HashKey) -> Self {
        Self { key, drawn: 0 }
    }

    pub(crate) fn word(&mut self) -> u32 {
        self.drawn += 1;
        // The upper half is as good as the lower one.
        (self.key.hash_one(self.drawn) >> 32) as u32
    }

    /// From `least` to `most` percent.
    pub(crate) fn jitter(&mut self, least: u32, most: u32) -> Jitter {
        let span = u64::from(self.word()) * u64::from(most - least);
        Jitter((u64::from(least) << 32) + span)
    }
}

/// A part of an interval, in percent times 2^32.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct Jitter(u64);

impl Jitter {
    /// All of it.
    pub(crate) const NONE: Self = Self(100 << 32);

    pub(crate) fn of(self, interval: Duration) -> Duration {
        let micros = (u128::from(self.0) * interval.as_micros() / 100) >> 32;
        Duration::from_micros(u64::try_from(micros).unwrap_or(u64::MAX))
    }
}

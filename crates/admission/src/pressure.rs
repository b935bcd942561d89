//! Whether there is load.

use std::{
    cell::Cell,
    time::{Duration, Instant},
};

use crate::{Load, Numbers};

const SECOND: Duration = Duration::from_secs(1);

/// Tells whether there is load: by the handshakes under way, and by the attempts of the last second. One for all listeners
/// that share a processor.
#[derive(Debug)]
pub struct Pressure {
    handshakes: usize,
    attempts: u32,
    pace: Cell<Pace>,
}

/// Attempts in this second, and in the one before.
#[derive(Copy, Clone, Default, Debug)]
struct Pace {
    began: Option<Instant>,
    this: u32,
    before: u32,
}

impl Pressure {
    /// With load from `load_handshakes` or `load_attempts` on; 0 means always.
    pub fn new(numbers: &Numbers) -> Self {
        Self { handshakes: numbers.load_handshakes, attempts: numbers.load_attempts, pace: Cell::default() }
    }

    /// Counts an attempt.
    pub fn attempt(&self, now: Instant) {
        let pace = self.pace.get().at(now);
        self.pace.set(Pace { this: pace.this.saturating_add(1), ..pace });
    }

    /// Attempts in the second before now: those of this second, and of the one before as many as would be left of it if
    /// they had come evenly.
    pub fn attempts_per_second(&self, now: Instant) -> u32 {
        let pace = self.pace.get().at(now);
        let passed = pace.began.map_or(Duration::ZERO, |began| now.saturating_duration_since(began));
        let left = SECOND.saturating_sub(passed).as_nanos();
        let before = u128::from(pace.before) * left / SECOND.as_nanos();
        u32::try_from(before + u128::from(pace.this)).unwrap_or(u32::MAX)
    }

    /// Whether there is load now.
    pub fn is_high(&self, load: Load, now: Instant) -> bool {
        load.handshakes >= self.handshakes || self.attempts_per_second(now) >= self.attempts
    }
}

impl Pace {
    fn at(self, now: Instant) -> Self {
        let Some(began) = self.began else { return Self { began: Some(now), ..self } };
        match now.saturating_duration_since(began) {
            passed if passed < SECOND => self,
            passed if passed < 2 * SECOND => Self { began: Some(began + SECOND), this: 0, before: self.this },
            _ => Self { began: Some(now), this: 0, before: 0 },
        }
    }
}

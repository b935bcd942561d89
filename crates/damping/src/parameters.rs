//! What an operator may set.

use std::time::Duration;

use crate::history::CHANGE;

/// Lists of routes to be looked at again that cover the longest time of suppression (RFC 2439 section 4.2 suggests
/// 256 to 1,024).
const REUSE_LISTS: u32 = 1024;
/// The finest grain of reuse lists.
const FINEST: Duration = Duration::from_millis(1);

/// Parameters of damping (RFC 2439 section 4.2).
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Parameters {
    /// A figure of merit is half of what it was after this time.
    pub half_life: Duration,
    /// A route with this figure of merit, or a higher one, is held back ("cutoff threshold").
    pub suppress: u32,
    /// A route that is held back and whose figure has decayed below this one is used again.
    pub reuse: u32,
    /// The longest time a route is held back after its last flap.
    pub max_suppress: Duration,
}

impl Default for Parameters {
    /// RFC 7196 section 6: a suppress threshold of 6,000; the rest as usual.
    fn default() -> Self {
        Self {
            half_life: Duration::from_secs(15 * 60),
            suppress: 6000,
            reuse: 750,
            max_suppress: Duration::from_secs(60 * 60),
        }
    }
}

/// Why parameters make no sense.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum BadParameters {
    /// Something is zero.
    Zero,
    /// The reuse threshold is not below the suppress threshold.
    ReuseNotBelowSuppress,
    /// The figure of merit never gets as high as the suppress threshold: with this one its ceiling is.
    NeverSuppresses {
        /// The ceiling.
        ceiling: u32,
    },
}

impl Parameters {
    /// Checks that damping with these parameters does something.
    ///
    /// # Errors
    /// It would not.
    pub fn check(&self) -> Result<(), BadParameters> {
        if self.reuse == 0 || self.half_life.is_zero() || self.max_suppress.is_zero() {
            return Err(BadParameters::Zero);
        }
        if self.reuse >= self.suppress {
            return Err(BadParameters::ReuseNotBelowSuppress);
        }
        match self.ceiling() {
            ceiling if ceiling < f64::from(self.suppress) => {
                Err(BadParameters::NeverSuppresses { ceiling: ceiling as u32 })
            }
            _ => Ok(()),
        }
    }

    /// The highest figure of merit: the one that decays to the reuse threshold in `max_suppress` (RFC 2439
    /// section 4.2). There is no other maximum (RFC 7196 section 6 asks for 50,000 at least).
    pub(crate) fn ceiling(&self) -> f64 {
        f64::from(self.reuse) * self.half_lives(self.max_suppress).exp2()
    }

    /// Below this figure a route that is not held back has no history any more: half the reuse threshold, and less
    /// than the smallest penalty, as penalties would never add up otherwise.
    pub(crate) fn forget(&self) -> f64 {
        f64::from(self.reuse.min(CHANGE)) / 2.0
    }

    /// What a figure of merit has become after a time.
    pub(crate) fn decayed(&self, merit: f64, after: Duration) -> f64 {
        merit * (-self.half_lives(after)).exp2()
    }

    /// After what time a figure of merit has decayed to another.
    pub(crate) fn time_to(&self, merit: f64, threshold: f64) -> Duration {
        let half_lives = (merit / threshold).log2().max(0.0);
        // A figure is never above its ceiling: it takes `max_suppress` and a few half-lives at most.
        Duration::try_from_secs_f64(half_lives * self.half_life.as_secs_f64()).unwrap_or(self.max_suppress)
    }

    /// The time that one reuse list stands for.
    pub(crate) fn grain(&self) -> Duration {
        (self.max_suppress / REUSE_LISTS).max(FINEST)
    }

    fn half_lives(&self, time: Duration) -> f64 {
        time.as_secs_f64() / self.half_life.as_secs_f64()
    }
}

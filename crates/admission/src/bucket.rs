//! Buckets of tokens.

use std::time::Instant;

/// A token, in the unit of what a bucket holds: one token a second is one of these a nanosecond.
const TOKEN: u64 = 1_000_000_000;

/// How many in a second, and how many at once.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Rate {
    /// Tokens that come in a second.
    pub per_second: u32,
    /// Tokens that a bucket holds at most. Without any, nothing passes.
    pub burst: u32,
}

/// A bucket of tokens, full at its first use. In no time t does it let more than `burst + per_second * t` through.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct Bucket {
    /// In billionths of a token.
    left: u64,
    /// When it was as full as that; `None` before the first use.
    at: Option<Instant>,
}

impl Bucket {
    /// Takes a token, if there is one. Time that goes backwards brings none.
    pub fn take(&mut self, rate: Rate, now: Instant) -> bool {
        let most = u64::from(rate.burst) * TOKEN;
        let gained = self.at.map_or(most, |at| {
            let passed = u64::try_from(now.saturating_duration_since(at).as_nanos()).unwrap_or(u64::MAX);
            passed.saturating_mul(rate.per_second.into())
        });
        self.at = self.at.max(Some(now));
        self.left = self.left.saturating_add(gained).min(most);
        match self.left.checked_sub(TOKEN) {
            Some(left) => {
                self.left = left;
                true
            }
            None => false,
        }
    }
}

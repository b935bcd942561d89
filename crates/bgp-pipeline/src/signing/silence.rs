//! Whether anybody signs. Routes do not wait for a process that is dead or hangs.

use std::time::{Duration, Instant};

/// So long an announcement waits for its signatures if none is made. Then routes go on with an AS_PATH, until one is.
pub const PATIENCE: Duration = Duration::from_secs(15);

#[derive(Debug, Default)]
pub(crate) struct Silence {
    /// From when on something was asked and nothing answered.
    since: Option<Instant>,
    is_silent: bool,
}

impl Silence {
    /// Something is waited for.
    pub(crate) fn asks(&mut self, now: Option<Instant>) {
        self.since = self.since.or(now);
    }

    /// A job is done; others may be waited for.
    pub(crate) fn heard(&mut self, now: Option<Instant>) {
        (self.since, self.is_silent) = (now, false);
    }

    /// Nothing is waited for.
    pub(crate) fn rests(&mut self) {
        (self.since, self.is_silent) = (None, false);
    }

    pub(crate) fn is_silent(&self) -> bool {
        self.is_silent
    }

    /// When [`Self::ends`] may be true.
    pub(crate) fn timeout(&self) -> Option<Instant> {
        self.since.filter(|_| !self.is_silent).map(|since| since + PATIENCE)
    }

    /// Whether patience has just come to its end.
    pub(crate) fn ends(&mut self, now: Option<Instant>) -> bool {
        let ends = self.timeout().zip(now).is_some_and(|(end, now)| end <= now);
        self.is_silent |= ends;
        ends
    }
}

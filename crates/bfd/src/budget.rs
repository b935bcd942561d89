//! How many packets a session sends besides the periodic ones: what a neighbour, or somebody in its name, sends must not
//! choose how many we do. RFC 5880 section 6.8.7 allows to limit answers to polls so.

use std::time::{Duration, Instant};

/// Packets that may follow each other at once: a session comes up with about four.
const BURST: u32 = 10;
/// One more is allowed after so long at most.
const LONGEST: Duration = Duration::from_millis(100);

/// What is left.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct Budget {
    left: u32,
    /// Until then it has grown.
    counted: Instant,
}

impl Budget {
    pub(crate) fn new(now: Instant) -> Self {
        Self { left: BURST, counted: now }
    }

    /// How often it grows, in a session that advertises this Desired Min TX Interval: it must not be less often than that.
    fn pace(desired_tx: Duration) -> Duration {
        desired_tx.clamp(Duration::from_millis(1), LONGEST)
    }

    /// Whether there is something left.
    pub(crate) fn allows(&self, now: Instant, desired_tx: Duration) -> bool {
        self.left > 0 || now >= self.next(desired_tx)
    }

    /// When there is something left again.
    pub(crate) fn next(&self, desired_tx: Duration) -> Instant {
        self.counted + Self::pace(desired_tx)
    }

    /// One packet less.
    pub(crate) fn take(&mut self, now: Instant, desired_tx: Duration) {
        let pace = Self::pace(desired_tx);
        let grown = now.saturating_duration_since(self.counted).as_micros() / pace.as_micros();
        let grown = u32::try_from(grown).unwrap_or(u32::MAX);
        self.counted = if grown >= BURST { now } else { self.counted + pace * grown };
        self.left = self.left.saturating_add(grown).min(BURST).saturating_sub(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn after_a_burst_there_is_one_packet_for_each_interval() {
        let begin = Instant::now();
        let (mut budget, mut sent) = (Budget::new(begin), 0);
        for milliseconds in 0..1000 {
            let now = begin + Duration::from_millis(milliseconds);
            if budget.allows(now, Duration::from_millis(50)) {
                budget.take(now, Duration::from_millis(50));
                sent += 1;
            }
        }
        assert_eq!(sent, BURST + 19);
        let later = begin + Duration::from_secs(60);
        budget.take(later, Duration::from_secs(1));
        assert_eq!(budget, Budget { left: BURST - 1, counted: later });
    }
}

//! What a peer costs this process.

use std::time::{Duration, Instant};

use crate::fairness::PATIENCE;

/// What a peer has cost since it was configured, or since this process began.
#[derive(Clone, Debug, Default)]
pub(crate) struct Cost {
    /// Octets read from it.
    pub(crate) octets_in: u64,
    /// Processor time of turns in which it was read or written, with what followed from that for others.
    pub(crate) cpu: Duration,
    pub(crate) turns: u64,
    pub(crate) longest: Duration,
    /// What the longest turn was for.
    pub(crate) longest_cause: &'static str,
    /// What others have waited for it.
    pub(crate) waited_for: Share,
    /// What it may send without waiting for those who are told.
    pub(crate) allowance: Allowance,
}

impl Cost {
    /// So many octets were read from it.
    pub(crate) fn read(&mut self, octets: u64, now: Instant) {
        self.octets_in += octets;
        self.allowance.take(octets, now);
    }

    /// Another turn of its.
    pub(crate) fn turn(&mut self, cause: &'static str, took: Duration) {
        self.cpu += took;
        self.turns += 1;
        if took > self.longest {
            (self.longest, self.longest_cause) = (took, cause);
        }
    }
}

/// What a peer may send in [`PATIENCE`] while others are behind, and is read at once.
const LITTLE: u32 = 16 << 10;

/// The octets that a peer may still send until it counts among those that send much.
#[derive(Copy, Clone, Debug, Default)]
pub(crate) struct Allowance {
    /// When all of [`LITTLE`] is there again.
    whole: Option<Instant>,
}

impl Allowance {
    /// So many octets came. What is more than twice as much is forgotten: who has sent a table is as good as others a second
    /// later.
    fn take(&mut self, octets: u64, now: Instant) {
        let octets = u32::try_from(octets).unwrap_or(u32::MAX).min(2 * LITTLE);
        let whole = self.whole.map_or(now, |whole| whole.max(now)) + PATIENCE * octets / LITTLE;
        self.whole = Some(whole.min(now + 2 * PATIENCE));
    }

    /// Whether nothing of it is left.
    pub(crate) fn is_spent(&self, now: Instant) -> bool {
        self.whole.is_some_and(|whole| whole >= now + PATIENCE)
    }
}

/// Seconds over which a share of a core is taken.
const SPAN: usize = 10;

/// Processor time of the last ten seconds.
#[derive(Clone, Debug, Default)]
pub(crate) struct Share {
    begin: Option<Instant>,
    /// By second; that with the number `n` is at `n % SPAN`.
    seconds: [Duration; SPAN],
    /// The number of the last one.
    last: u64,
}

impl Share {
    /// So much was taken now.
    pub(crate) fn add(&mut self, now: Instant, took: Duration) {
        self.pass(now);
        self.seconds[self.last as usize % SPAN] += took;
    }

    /// Per mille of a core.
    pub(crate) fn permille(&mut self, now: Instant) -> u32 {
        self.pass(now);
        (self.seconds.iter().sum::<Duration>().as_millis() / SPAN as u128).try_into().unwrap_or(u32::MAX)
    }

    fn pass(&mut self, now: Instant) {
        let begin = *self.begin.get_or_insert(now);
        let second = now.saturating_duration_since(begin).as_secs();
        for passed in (self.last + 1..=second).take(SPAN) {
            self.seconds[passed as usize % SPAN] = Duration::ZERO;
        }
        self.last = second.max(self.last);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_that_of_the_last_ten_seconds() {
        let (mut share, begin) = (Share::default(), Instant::now());
        let at = |millis| begin + Duration::from_millis(millis);
        assert_eq!(share.permille(begin), 0);
        share.add(begin, Duration::from_millis(300));
        share.add(at(900), Duration::from_millis(100));
        share.add(at(5000), Duration::from_secs(1));
        assert_eq!(
            [5001, 9999, 10_000, 14_999, 15_000].map(|t| share.permille(at(t))),
            [140, 140, 100, 100, 0]
        );
        share.add(at(3_600_000), Duration::from_millis(20));
        assert_eq!(share.permille(at(3_600_001)), 2, "what was long ago is not in it");
    }

    #[test]
    fn who_sends_little_has_always_some_left_and_who_sends_much_none_for_half_a_second() {
        let (mut little, mut much, begin) = (Allowance::default(), Allowance::default(), Instant::now());
        let at = |millis| begin + Duration::from_millis(millis);
        // 3,000 octets in 100 ms are 15,000 in half a second.
        for step in 0..100 {
            little.take(3_000, at(100 * step));
            assert!(!little.is_spent(at(100 * step)));
        }
        (0..2_000).for_each(|_| much.take(64 << 10, begin));
        assert!(much.is_spent(begin) && much.is_spent(at(500)));
        assert!(!much.is_spent(at(501)), "it has sent nothing more");
        much.take(16 << 10, at(501));
        assert!(much.is_spent(at(501)));
    }

    #[test]
    fn who_takes_a_whole_core_has_a_thousand() {
        let (mut share, begin) = (Share::default(), Instant::now());
        for second in 0..30 {
            share.add(begin + Duration::from_secs(second), Duration::from_secs(1));
        }
        assert_eq!(share.permille(begin + Duration::from_secs(29)), 1000);
    }
}

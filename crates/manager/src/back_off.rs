//! How long the next start of a process that has died waits: a decision, to which the time is told.
//!
//! One that came up is started again at once, also if it dies time and again: until it has died [`MANY`] times within
//! [`WHILE`]; each start waits [`SLOW`] then. One that did not come up is started at once the first time, and from the
//! second time in a row on after a delay that doubles from [`FIRST_DELAY`] to [`LAST_DELAY`].

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

/// Delay after a second life in a row that did not come up.
pub(crate) const FIRST_DELAY: Duration = Duration::from_millis(100);
/// Upper bound of the delay.
pub(crate) const LAST_DELAY: Duration = Duration::from_secs(10);
/// Deaths within [`WHILE`] from which on each start waits [`SLOW`].
const MANY: usize = 30;
const WHILE: Duration = Duration::from_secs(60);
pub(crate) const SLOW: Duration = Duration::from_secs(1);

/// What is known of the deaths of one process.
#[derive(Debug, Default)]
pub(crate) struct BackOff {
    /// Those within [`WHILE`], the oldest first; less than [`MANY`].
    deaths: VecDeque<Instant>,
    /// What the next start waits if this life does not come up.
    delay: Duration,
}

impl BackOff {
    /// A process has died; how long its next start waits.
    pub(crate) fn died(&mut self, came_up: bool, now: Instant) -> Duration {
        self.deaths.push_back(now);
        self.deaths.retain(|death| now.saturating_duration_since(*death) < WHILE);
        let is_slow = self.deaths.len() >= MANY;
        if is_slow {
            self.deaths.pop_front();
        }
        let (wait, next) = match came_up {
            true => (Duration::ZERO, Duration::ZERO),
            false => (self.delay, (self.delay * 2).clamp(FIRST_DELAY, LAST_DELAY)),
        };
        self.delay = next;
        if is_slow { wait.max(SLOW) } else { wait }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the starts wait after deaths at these milliseconds, of lives that came up or did not.
    fn waits(deaths: impl IntoIterator<Item = (u64, bool)>) -> Vec<u64> {
        let (start, mut back_off) = (Instant::now(), BackOff::default());
        let died =
            |(at, came_up)| back_off.died(came_up, start + Duration::from_millis(at)).as_millis() as u64;
        deaths.into_iter().map(died).collect()
    }

    #[test]
    fn twenty_deaths_in_ten_seconds_wait_for_nothing() {
        assert_eq!(waits((0..20).map(|i| (500 * i, true))), [0; 20]);
    }

    #[test]
    fn from_the_thirtieth_death_in_a_minute_on_each_start_waits_a_second() {
        let waits = waits((0..100).map(|i| (1500 * i, true)));
        assert_eq!((&waits[..29], &waits[29..]), (&[0; 29][..], &[1000; 71][..]));
    }

    #[test]
    fn deaths_that_are_a_minute_old_do_not_count() {
        assert_eq!(waits((0..29).map(|i| (i, true)).chain([(60_000, true), (60_001, true)])), [0; 31]);
        // 30 in a minute, and one after a rest.
        let deaths = (0..30).map(|i| (i, true)).chain([(120_000, true)]);
        assert_eq!(waits(deaths)[28..], [0, 1000, 0]);
    }

    #[test]
    fn who_does_not_come_up_waits_longer_each_time_and_one_good_life_makes_up_for_it() {
        let bad = |i: u64| (20_000 * i, false);
        let deaths = (0..10).map(bad).chain([(200_000, true), bad(11), bad(12)]);
        let expected = [0, 100, 200, 400, 800, 1600, 3200, 6400, 10_000, 10_000, 0, 0, 100];
        assert_eq!(waits(deaths), expected);
    }
}

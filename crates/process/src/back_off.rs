//! How long the next start of a process that has died waits: a decision, to which the time is told.
//!
//! A life that did its work is followed by the next one at once, also if that happens time and again: until there were
//! [`MANY`] deaths within [`WHILE`]; each start waits [`Pauses::slow`] then. After a life that did nothing the next start
//! is at once the first time, and from the second time in a row on after a delay that doubles from [`FIRST_DELAY`] to
//! [`Pauses::longest`].

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use crate::{HangLimit, Process};

/// Delay after a second life in a row that did nothing.
pub const FIRST_DELAY: Duration = Duration::from_millis(100);
/// Deaths within [`WHILE`] from which on each start waits.
const MANY: usize = 30;
const WHILE: Duration = Duration::from_secs(60);

/// How long starts wait.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Pauses {
    /// Of a process whose lives do their work and end all the time. So a process that dies of its work cannot take the
    /// machine from the others.
    pub slow: Duration,
    /// Of one whose lives do nothing, at most.
    pub longest: Duration,
}

impl Default for Pauses {
    fn default() -> Self {
        Self { slow: Duration::from_secs(1), longest: Duration::from_secs(10) }
    }
}

impl Process {
    /// How long its starts wait. Whatever depends on a process with a limit of its own for hangs waits a little longer than
    /// that limit, for an end of it as for a hang: a fifth of it leaves time for the start.
    pub fn pauses(&self) -> Pauses {
        let default = Pauses::default();
        let slow = match self.hang_limit {
            Some(HangLimit::Exactly(limit)) => default.slow.min(limit / 5),
            Some(HangLimit::Percent(_)) | None => default.slow,
        };
        Pauses { slow, ..default }
    }
}

/// What is known of the deaths of one process.
#[derive(Debug, Default)]
pub struct BackOff {
    pauses: Pauses,
    /// Those within [`WHILE`], the oldest first; less than [`MANY`].
    deaths: VecDeque<Instant>,
    /// What the next start waits if this life does nothing.
    delay: Duration,
}

impl BackOff {
    /// It has not died yet.
    pub fn new(pauses: Pauses) -> Self {
        Self { pauses, ..Self::default() }
    }

    /// A life has ended, and had done its work or not; how long the next start waits.
    pub fn died(&mut self, did_work: bool, now: Instant) -> Duration {
        self.deaths.push_back(now);
        self.deaths.retain(|death| now.saturating_duration_since(*death) < WHILE);
        let is_slow = self.deaths.len() >= MANY;
        if is_slow {
            self.deaths.pop_front();
        }
        let (wait, next) = match did_work {
            true => (Duration::ZERO, Duration::ZERO),
            false => (self.delay, (self.delay * 2).clamp(FIRST_DELAY, self.pauses.longest)),
        };
        self.delay = next;
        if is_slow { wait.max(self.pauses.slow) } else { wait }
    }

    /// The deaths so far are not held against it.
    pub fn forgive(&mut self) {
        *self = Self::new(self.pauses);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the starts wait after deaths at these milliseconds, of lives that did their work or did not.
    fn waits(deaths: impl IntoIterator<Item = (u64, bool)>) -> Vec<u64> {
        waits_with(Pauses::default(), deaths)
    }

    fn waits_with(pauses: Pauses, deaths: impl IntoIterator<Item = (u64, bool)>) -> Vec<u64> {
        let (start, mut back_off) = (Instant::now(), BackOff::new(pauses));
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
    fn who_is_waited_for_half_a_second_is_started_in_time_after_any_number_of_deaths() {
        let limit =
            |limit| Process { hang_limit: limit, ..crate::descriptor::tests::process("bfd", 9, &[], &[]) };
        let bfd = limit(Some(HangLimit::Exactly(Duration::from_millis(500)))).pauses();
        let waits = waits_with(bfd, (0..200).map(|i| (150 * i, true)));
        assert_eq!((&waits[..29], &waits[29..]), (&[0; 29][..], &[100; 171][..]));
        for other in [None, Some(HangLimit::Percent(25)), Some(HangLimit::Exactly(Duration::from_secs(60)))] {
            assert_eq!(limit(other).pauses(), Pauses::default(), "{other:?}");
        }
    }

    #[test]
    fn a_bound_is_kept_to_and_forgiving_keeps_the_pauses() {
        let pauses = Pauses { slow: Duration::from_millis(250), longest: Duration::from_millis(150) };
        assert_eq!(waits_with(pauses, (0..4).map(|i| (i, false))), [0, 100, 150, 150]);
        let (now, mut back_off) = (Instant::now(), BackOff::new(pauses));
        let last = |back_off: &mut BackOff| (0..40).fold(Duration::ZERO, |_, _| back_off.died(true, now));
        assert_eq!(last(&mut back_off), pauses.slow);
        back_off.forgive();
        assert_eq!(back_off.died(true, now), Duration::ZERO);
        assert_eq!(last(&mut back_off), pauses.slow);
    }

    #[test]
    fn deaths_that_are_a_minute_old_do_not_count() {
        assert_eq!(waits((0..29).map(|i| (i, true)).chain([(60_000, true), (60_001, true)])), [0; 31]);
        // 30 in a minute, and one after a rest.
        let deaths = (0..30).map(|i| (i, true)).chain([(120_000, true)]);
        assert_eq!(waits(deaths)[28..], [0, 1000, 0]);
    }

    #[test]
    fn who_does_nothing_waits_longer_each_time_and_one_good_life_makes_up_for_it() {
        let bad = |i: u64| (20_000 * i, false);
        let deaths = (0..10).map(bad).chain([(200_000, true), bad(11), bad(12)]);
        let expected = [0, 100, 200, 400, 800, 1600, 3200, 6400, 10_000, 10_000, 0, 0, 100];
        assert_eq!(waits(deaths), expected);
    }
}

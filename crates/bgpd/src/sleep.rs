//! Sleep of the whole machine: its monotonic clock stands still, and the clocks of its neighbors do not.

use std::{
    rc::Rc,
    time::{Duration, Instant},
};

use holdfast_sys::clock::since_boot;
use tracing::warn;

use crate::bgp::Bgp;

/// How often it is looked whether the machine has slept.
const LOOK: Duration = Duration::from_secs(2);
/// A shorter sleep is none: the two clocks are read one after the other.
const LEAST: Duration = Duration::from_secs(1);

/// How far the clock that counts sleep is ahead of the one that does not.
#[derive(Debug)]
struct Sleep {
    started: Instant,
    /// At the start, since the machine was started.
    since_boot: Duration,
    known: Duration,
}

impl Sleep {
    fn new(now: Instant, since_boot: Duration) -> Self {
        Self { started: now, since_boot, known: Duration::ZERO }
    }

    /// How long the machine has slept since the last look.
    fn look(&mut self, now: Instant, since_boot: Duration) -> Option<Duration> {
        let awake = now.saturating_duration_since(self.started);
        let slept = since_boot.saturating_sub(self.since_boot).saturating_sub(awake);
        let new = slept.saturating_sub(self.known);
        if new < LEAST {
            return None;
        }
        self.known = slept;
        Some(new)
    }
}

/// Has the timers of all sessions go on for as long as the machine has slept, for ever.
pub(crate) async fn follow(bgp: Rc<Bgp>) {
    let mut sleep = Sleep::new(Instant::now(), since_boot());
    loop {
        tokio::time::sleep(LOOK).await;
        if let Some(slept) = sleep.look(Instant::now(), since_boot()) {
            warn!(event = "machine-slept", seconds = slept.as_secs(), "the machine has slept");
            bgp.settle("sleep of the machine", |speaker, now| speaker.slept(slept, now));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sleep_is_noticed_once_and_the_time_between_two_readings_is_none() {
        let (start, boot) = (Instant::now(), Duration::from_secs(5_000));
        let mut sleep = Sleep::new(start, boot);
        let mut look = |awake_ms: u64, slept_ms: u64| {
            let awake = Duration::from_millis(awake_ms);
            sleep.look(start + awake, boot + awake + Duration::from_millis(slept_ms))
        };
        assert_eq!([look(0, 0), look(10_000, 0), look(20_000, 900)], [None; 3]);
        assert_eq!(look(22_000, 600_000), Some(Duration::from_secs(600)));
        assert_eq!([look(24_000, 600_000), look(26_000, 600_999)], [None; 2]);
        assert_eq!(look(28_000, 603_000), Some(Duration::from_secs(3)));
        // A clock that was read before the other.
        assert_eq!(look(31_000, 602_000), None);
    }
}

//! How many lines somebody outside can have us write.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use tracing::warn;

/// Lines that may be written at once.
pub const BURST: u32 = 20;
/// After those, one line in this time.
pub const EVERY: Duration = Duration::from_secs(1);
/// Names whose lines are counted apart; the others share one count.
const MOST_NAMES: usize = 16_384;

/// A bucket of lines.
#[derive(Debug)]
struct Bucket {
    lines: u32,
    filled: Instant,
    left_out: u64,
}

impl Bucket {
    fn new(now: Instant) -> Self {
        Self { lines: BURST, filled: now, left_out: 0 }
    }

    fn pass(&mut self, now: Instant) -> Option<u64> {
        let more = now.saturating_duration_since(self.filled).as_secs() / EVERY.as_secs();
        if more > 0 {
            self.lines = self.lines.saturating_add(more.min(BURST.into()) as u32).min(BURST);
            self.filled = now;
        }
        if self.lines == 0 {
            self.left_out += 1;
            return None;
        }
        self.lines -= 1;
        Some(std::mem::take(&mut self.left_out))
    }
}

/// Keeps those who can have lines written, such as peers, from filling the disk: of each name [`BURST`] lines at once,
/// then one [`EVERY`] second.
#[derive(Debug, Default)]
pub struct Limits(HashMap<String, Bucket>);

impl Limits {
    /// Whether a line about this peer, or listen range, may be written now. How many were left out before is written first.
    pub fn may_write(&mut self, peer: &str, now: Instant) -> bool {
        let left_out = self.pass(peer, now);
        if let Some(lines) = left_out.filter(|lines| *lines > 0) {
            warn!(event = "lines-left-out", peer, lines, "lines about it were left out: there were too many");
        }
        left_out.is_some()
    }

    /// Whether a line about this name may be written now; if so, how many were left out before.
    fn pass(&mut self, name: &str, now: Instant) -> Option<u64> {
        let name = if self.0.len() < MOST_NAMES || self.0.contains_key(name) { name } else { "" };
        match self.0.get_mut(name) {
            Some(bucket) => bucket.pass(now),
            None => self.0.entry(name.to_owned()).or_insert(Bucket::new(now)).pass(now),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flapping_peer_has_a_burst_and_then_a_line_each_second() {
        let (mut limits, start) = (Limits::default(), Instant::now());
        let mut written = 0;
        for flap in 0..1000_u32 {
            // A hundred in a second.
            let now = start + Duration::from_millis(10) * flap;
            written += u32::from(limits.pass("flapping", now).is_some());
            assert!(flap % 100 != 0 || limits.pass("quiet", now).is_some(), "others are not concerned");
        }
        assert_eq!(written, BURST + 9);
    }

    #[test]
    fn what_was_left_out_is_counted_and_told_once() {
        let (mut limits, start) = (Limits::default(), Instant::now());
        (0..BURST).for_each(|_| assert_eq!(limits.pass("a", start), Some(0)));
        (0..7).for_each(|_| assert_eq!(limits.pass("a", start), None));
        assert_eq!(limits.pass("a", start + EVERY), Some(7));
        assert_eq!(limits.pass("a", start + 2 * EVERY), Some(0));
    }

    #[test]
    fn names_without_end_share_one_count() {
        let (mut limits, now) = (Limits::default(), Instant::now());
        let lines = (0..MOST_NAMES + 1000).filter(|n| limits.pass(&n.to_string(), now).is_some()).count();
        assert_eq!((limits.0.len(), lines), (MOST_NAMES + 1, MOST_NAMES + BURST as usize));
    }
}

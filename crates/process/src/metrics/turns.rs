//! How long the one thread of a process is busy with one thing while everything else waits.

use std::{cell::RefCell, time::Duration};

use holdfast_api::metrics::v1::{Bucket, Histogram};
use rustix::time::{ClockId, clock_gettime};

/// Upper ends of the ranges that are told apart, in microseconds.
const ENDS: [u64; 11] = [50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 20_000, 50_000, 200_000];

/// The turns of a thread so far.
#[derive(Clone, Debug, Default)]
pub(crate) struct Turns {
    /// The last is what is longer than all.
    by_range: [u64; ENDS.len() + 1],
    count: u64,
    sum: Duration,
    pub(crate) longest: Duration,
    /// What that was for.
    pub(crate) cause: &'static str,
}

thread_local! {
    static OF_THIS_THREAD: RefCell<Turns> = RefCell::default();
}

/// Does something that everything else waits for, and counts the processor time that it took, which is returned too.
pub fn turn<T>(cause: &'static str, act: impl FnOnce() -> T) -> (T, Duration) {
    let start = spent();
    let result = act();
    let took = spent().saturating_sub(start);
    OF_THIS_THREAD.with_borrow_mut(|turns| turns.see(cause, took));
    (result, took)
}

/// Processor time of this thread.
fn spent() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs() as u32)
}

/// The turns of this thread so far.
pub(crate) fn of_this_thread() -> Turns {
    OF_THIS_THREAD.with_borrow(Turns::clone)
}

/// The processor time of the longest of them.
pub(crate) fn longest_turn() -> Duration {
    OF_THIS_THREAD.with_borrow(|turns| turns.longest)
}

impl Turns {
    fn see(&mut self, cause: &'static str, took: Duration) {
        let range = ENDS.iter().position(|end| took <= Duration::from_micros(*end));
        self.by_range[range.unwrap_or(ENDS.len())] += 1;
        self.count += 1;
        self.sum += took;
        if took > self.longest {
            (self.longest, self.cause) = (took, cause);
        }
    }

    pub(crate) fn histogram(&self) -> Histogram {
        let ends = ENDS.into_iter().map(|end| end as f64 / 1e6).chain([f64::INFINITY]);
        let buckets = ends.zip(self.by_range).map(|(at_most, count)| Bucket { at_most, count }).collect();
        Histogram { sum: self.sum.as_secs_f64(), count: self.count, buckets }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_are_counted_by_their_length() {
        let mut turns = Turns::default();
        for micros in [10, 50, 51, 3_000, 900_000] {
            turns.see("reading", Duration::from_micros(micros));
        }
        turns.see("writing", Duration::from_micros(899_999));
        let histogram = turns.histogram();
        let counts: Vec<u64> = histogram.buckets.iter().map(|bucket| bucket.count).collect();
        assert_eq!(counts, [2, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 2]);
        assert_eq!((histogram.count, histogram.buckets[6].at_most), (6, 0.005));
        assert_eq!((turns.longest, turns.cause), (Duration::from_micros(900_000), "reading"));
    }

    #[test]
    fn a_turn_takes_the_time_of_this_thread() {
        let before = of_this_thread();
        let (result, took) = turn("test", || (0..10_000).map(std::hint::black_box).sum::<u64>());
        let after = of_this_thread();
        assert_eq!((result, after.count), (49_995_000, before.count + 1));
        assert_eq!(after.sum - before.sum, took);
        assert!(took > Duration::ZERO);
    }
}

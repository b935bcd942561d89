use std::time::{Duration, Instant};

use holdfast_admission::{Bucket, Rate, RefusalLog};
use proptest::prelude::*;

#[test]
fn a_bucket_is_full_first_and_fills_with_time() {
    let now = Instant::now();
    let rate = Rate { per_second: 2, burst: 3 };
    let mut bucket = Bucket::default();
    let mut taken = |after: u64| bucket.take(rate, now + Duration::from_millis(after));
    assert_eq!([0, 0, 0, 0].map(&mut taken), [true, true, true, false]);
    assert_eq!([499, 500, 500, 1000].map(&mut taken), [false, true, false, true]);
    // An hour fills it, and no more.
    assert_eq!([3_600_000; 4].map(&mut taken), [true, true, true, false]);
    // Time that goes backwards and forwards again brings nothing.
    assert_eq!([0, 3_600_000].map(&mut taken), [false, false]);
}

#[test]
fn who_has_no_rate_has_the_burst_and_who_has_no_burst_has_nothing() {
    let now = Instant::now();
    let later = now + Duration::from_secs(1 << 30);
    let mut bucket = Bucket::default();
    let once = Rate { per_second: 0, burst: 1 };
    assert_eq!([now, later].map(|at| bucket.take(once, at)), [true, false]);
    let mut bucket = Bucket::default();
    let never = Rate { per_second: u32::MAX, burst: 0 };
    assert_eq!([now, later].map(|at| bucket.take(never, at)), [false, false]);
}

#[test]
fn a_log_has_so_many_lines_and_says_what_is_missing() {
    let now = Instant::now();
    let mut log = RefusalLog::new(2);
    let at = |millis: u64| now + Duration::from_millis(millis);
    assert_eq!([0, 0, 0, 0, 0].map(|millis| log.refused(at(millis))), [Some(0), Some(0), None, None, None]);
    assert_eq!(log.rest(at(100)), None);
    assert_eq!(log.refused(at(500)), Some(3));
    assert_eq!(log.refused(at(500)), None);
    // Nothing follows: a timer says the rest, once.
    assert_eq!(log.rest(at(1000)), Some(1));
    assert_eq!(log.rest(at(2000)), None);
    let mut silent = RefusalLog::new(0);
    assert_eq!(silent.refused(at(0)), None);
    assert_eq!(silent.rest(at(9000)), None);
}

proptest! {
    #![proptest_config(holdfast_testing::cases(256))]

    #[test]
    fn never_more_than_the_burst_and_what_has_come_since(
        per_second in 0u32..5000,
        burst in 0u32..50,
        steps in proptest::collection::vec(0u64..400_000, 1..300),
    ) {
        let rate = Rate { per_second, burst };
        let start = Instant::now();
        let (mut bucket, mut at, mut passed) = (Bucket::default(), 0, Vec::new());
        for step in steps {
            // Half of them come at once.
            at += if step % 2 == 0 { 0 } else { step };
            if bucket.take(rate, start + Duration::from_micros(at)) {
                passed.push(at);
            }
        }
        for (index, from) in passed.iter().enumerate() {
            for (count, to) in passed[index..].iter().enumerate() {
                let most = u64::from(burst) * 1_000_000 + u64::from(per_second) * (to - from);
                prop_assert!((count as u64 + 1) * 1_000_000 <= most, "{} within {} us", count + 1, to - from);
            }
        }
    }

    #[test]
    fn every_refusal_has_a_line_or_is_counted_in_a_later_one(
        per_second in 0u32..20,
        steps in proptest::collection::vec(0u64..200, 1..200),
    ) {
        let start = Instant::now();
        let (mut log, mut at, mut lines, mut left_out) = (RefusalLog::new(per_second), 0, 0, 0);
        for step in &steps {
            at += step;
            if let Some(missing) = log.refused(start + Duration::from_millis(at)) {
                lines += 1;
                left_out += missing;
            }
        }
        left_out += log.rest(start + Duration::from_secs(3600)).unwrap_or_default();
        let said = if per_second == 0 { 0 } else { steps.len() as u64 };
        prop_assert_eq!(lines + left_out, said);
        prop_assert!(lines <= u64::from(per_second) * (at + 1000) / 1000);
    }
}

use std::time::Instant;

use crate::{Bucket, Rate};

/// Says which refusals are worth a line in the log: so many in a second, so that who is refused cannot fill it. Those that
/// were left out are counted for the next line.
#[derive(Clone, Debug)]
pub struct RefusalLog {
    rate: Rate,
    bucket: Bucket,
    left_out: u64,
}

impl RefusalLog {
    /// So many lines in a second; 0: none at all.
    pub fn new(per_second: u32) -> Self {
        Self { rate: Rate { per_second, burst: per_second }, bucket: Bucket::default(), left_out: 0 }
    }

    /// A refusal: with how many were left out since the last line, if it is to be logged.
    pub fn refused(&mut self, now: Instant) -> Option<u64> {
        if self.bucket.take(self.rate, now) {
            return Some(std::mem::take(&mut self.left_out));
        }
        self.left_out = self.left_out.saturating_add(1);
        None
    }

    /// How many were left out since the last line, if there are any and a line may say so: for a timer, when no refusal
    /// follows that would.
    pub fn rest(&mut self, now: Instant) -> Option<u64> {
        (self.left_out > 0 && self.bucket.take(self.rate, now)).then(|| std::mem::take(&mut self.left_out))
    }
}

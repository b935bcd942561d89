//! What a peer costs this process.

use std::time::Duration;

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
}

impl Cost {
    /// Another turn of its.
    pub(crate) fn turn(&mut self, cause: &'static str, took: Duration) {
        self.cpu += took;
        self.turns += 1;
        if took > self.longest {
            (self.longest, self.longest_cause) = (took, cause);
        }
    }
}

//! Sequence numbers of messages that carry a digest.

use std::time::{SystemTime, UNIX_EPOCH};

/// The first sequence number of a life of the process: seconds of the calendar. So numbers grow over restarts, as long as the
/// protocol uses at most one in a second.
pub fn first_sequence() -> u32 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs() as u32)
}

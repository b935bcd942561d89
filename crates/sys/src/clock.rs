//! The clock that goes on while the machine sleeps, and that nobody sets.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// CLOCK_BOOTTIME: the time since the machine was started.
pub fn since_boot() -> Duration {
    let now = clock_gettime(ClockId::Boottime);
    // Neither is ever negative.
    let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
    Duration::new(seconds, u32::try_from(now.tv_nsec).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_goes_forwards() {
        let before = since_boot();
        std::thread::sleep(Duration::from_millis(2));
        assert!(since_boot() >= before + Duration::from_millis(2));
    }
}

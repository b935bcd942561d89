//! How long something had to wait for the machine, so that what is slow by itself is told from what others make slow.

use std::{fmt, fs, time::Duration};

/// Time for which something waited, since the machine runs (Linux, `Documentation/accounting/psi.rst`).
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) struct Pressure {
    processors: Duration,
    disks: Duration,
}

impl Pressure {
    /// So far; `None` if the kernel does not count it.
    pub(super) fn now() -> Option<Self> {
        let read = |what: &str| total(&fs::read_to_string(format!("/proc/pressure/{what}")).ok()?);
        Some(Self { processors: read("cpu")?, disks: read("io")? })
    }

    /// What came since an earlier time.
    pub(super) fn since(self, before: Self) -> Self {
        Self {
            processors: self.processors.saturating_sub(before.processors),
            disks: self.disks.saturating_sub(before.disks),
        }
    }
}

impl fmt::Display for Pressure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "waited for processors {} ms, disks {} ms",
            self.processors.as_millis(),
            self.disks.as_millis()
        )
    }
}

/// Reads the line `some avg10=0.00 avg60=0.00 avg300=0.00 total=123`, in microseconds.
fn total(text: &str) -> Option<Duration> {
    let line = text.lines().find(|line| line.starts_with("some "))?;
    let (_, total) = line.split_once("total=")?;
    total.trim().parse().ok().map(Duration::from_micros)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_some_have_waited_is_read() {
        let text = "some avg10=1.00 avg60=0.00 avg300=0.00 total=1500000\nfull avg10=0.00 total=7\n";
        assert_eq!(total(text), Some(Duration::from_millis(1500)));
        assert_eq!((total(""), total("some total=x")), (None, None));
    }
}

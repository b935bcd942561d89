//! What is the same on all interfaces.

use std::time::Duration;

/// Times and bounds of a router.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Settings {
    /// How often the whole table is told: 30 s (RFC 2453 section 3.8), a second at least. Each time is moved by up to a
    /// sixth of it, 5 s at most.
    pub update: Duration,
    /// How long a route stays that is not repeated: 180 s (RFC 2453 section 3.8).
    pub timeout: Duration,
    /// How long a lost route is told as unreachable: 120 s (RFC 2453 section 3.8).
    pub garbage: Duration,
    /// Destinations that are kept: 100 000; about 300 octets each. Further ones are ignored and counted. Networks of the
    /// interfaces are kept in any case.
    pub max_routes: usize,
    /// Neighbours that are kept of each interface: 255; about 200 octets each. A new one takes the place of the one that was
    /// silent for the longest time, unless all have sequence numbers that count: then it is refused.
    pub max_neighbours: usize,
    /// Where random times come from. Routers of one network have different ones.
    pub seed: u64,
    /// The sequence number of the first digest (RFC 4822 section 2.1); it grows by one each second. Seconds of a clock keep it
    /// from decreasing when the process starts again.
    pub first_sequence: u32,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            update: Duration::from_secs(30),
            timeout: Duration::from_secs(180),
            garbage: Duration::from_secs(120),
            max_routes: 100_000,
            max_neighbours: 255,
            seed: 0,
            first_sequence: 0,
        }
    }
}

impl Settings {
    /// How much earlier or later a regular update may come (RFC 2453 section 3.8).
    pub(crate) fn jitter(&self) -> Duration {
        (self.update / 6).min(Duration::from_secs(5))
    }
}

//! What is configured for sessions.

use std::time::Duration;

use holdfast_bfd_wire::Key;

use crate::Hops;

/// How sessions that use it behave.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Profile {
    /// Desired Min TX Interval while a session is Up. Otherwise it is a second at least (RFC 5880 section 6.8.3).
    pub transmit_interval: Duration,
    /// Required Min RX Interval.
    pub receive_interval: Duration,
    /// Detect Mult; 0 counts as 1.
    pub detect_multiplier: u8,
    /// Sends nothing before the neighbour has (RFC 5880 section 6.1).
    pub passive: bool,
    /// The least TTL of packets over several hops. Over one it is 255 always.
    pub minimum_ttl: u8,
    /// Keys; none: packets without authentication.
    pub keys: Vec<UsedKey>,
}

/// A key, and what it is used for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UsedKey {
    /// The key.
    pub key: Key,
    /// Packets are signed with the first key for which this is true.
    pub send: bool,
    /// Packets that are signed with it are accepted.
    pub accept: bool,
}

impl Default for Profile {
    fn default() -> Self {
        Self {
            transmit_interval: Duration::from_millis(300),
            receive_interval: Duration::from_millis(300),
            detect_multiplier: 3,
            passive: false,
            minimum_ttl: 254,
            keys: Vec::new(),
        }
    }
}

impl Profile {
    /// How soon a failure is found if the neighbour is as quick as it is asked to be.
    pub fn detection_time(&self) -> Duration {
        self.receive_interval * u32::from(self.detect_multiplier.max(1))
    }

    pub(crate) fn least_ttl(&self, hops: Hops) -> u8 {
        match hops {
            Hops::Single => 255,
            Hops::Multiple => self.minimum_ttl,
        }
    }

    pub(crate) fn signing_key(&self) -> Option<&Key> {
        self.keys.iter().find(|used| used.send).map(|used| &used.key)
    }

    pub(crate) fn accepted_keys(&self) -> impl Iterator<Item = &Key> {
        self.keys.iter().filter(|used| used.accept).map(|used| &used.key)
    }
}

/// A time in the microseconds of a packet.
pub(crate) fn micros(time: Duration) -> u32 {
    u32::try_from(time.as_micros()).unwrap_or(u32::MAX)
}

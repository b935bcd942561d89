//! What is said of a cache beforehand, and the times that are in force.

use std::time::Duration;

use holdfast_rtr_wire::{Timing, Version};

/// How a session with a cache is held.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ClientConfig {
    /// The highest version that is spoken; each connection begins with it. Default: the latest.
    pub version: Version,
    /// Replaces the cache's Refresh Interval.
    pub refresh: Option<Duration>,
    /// Replaces the cache's Retry Interval, and is what holds before the cache has said one.
    pub retry: Option<Duration>,
    /// Replaces the cache's Expire Interval.
    pub expire: Option<Duration>,
    /// Records that are taken from it at most: one that is longer than a VRP counts one more for each 32 octets. Default
    /// 8 million, which is ten times what there is in 2026, and some 200 MB.
    pub limit: usize,
}

impl Default for ClientConfig {
    fn default() -> Self {
        Self { version: Version::LATEST, refresh: None, retry: None, expire: None, limit: 8_000_000 }
    }
}

/// The intervals in force (RFC 8210 section 6).
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Times {
    /// Between polls.
    pub refresh: Duration,
    /// After a poll that failed.
    pub retry: Duration,
    /// For how long data hold without a poll that succeeds.
    pub expire: Duration,
}

impl Times {
    /// What the cache says, within the bounds of section 6, where the configuration says nothing. A cache of which data
    /// would expire before they are refreshed, which it must not say, is asked twice as often as they expire.
    pub(crate) fn new(config: &ClientConfig, timing: Timing) -> Self {
        let seconds = |seconds: u32, least, most| Duration::from_secs(seconds.clamp(least, most).into());
        let expire = config.expire.unwrap_or_else(|| seconds(timing.expire, 600, 172_800));
        let refresh = config.refresh.unwrap_or_else(|| seconds(timing.refresh, 1, 86400));
        Self {
            refresh: if refresh < expire { refresh } else { expire / 2 },
            retry: config.retry.unwrap_or_else(|| seconds(timing.retry, 1, 7200)),
            expire,
        }
    }
}

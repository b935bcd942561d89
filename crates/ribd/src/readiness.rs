//! When the first sync of the forwarding engine may end.
//!
//! The end of a sync removes what the sync did not name. After a start this process knows nothing, while the kernel
//! forwards by what its predecessor had installed: so the end waits until the configuration and the interfaces are
//! here and every origin that the configuration expects has announced all its routes, or for as long as stale routes
//! stay. Whether the process behind an origin lives makes no difference: it may have died together with ours.

use std::time::{Duration, Instant};

use tokio::time::timeout_at;
use tracing::info;

use crate::router::Router;

#[derive(Debug)]
pub(crate) struct Readiness {
    started: Instant,
    expected: Option<Expected>,
    has_interfaces: bool,
}

/// What the configuration says of it.
#[derive(Debug)]
pub(crate) struct Expected {
    /// How long stale routes stay.
    pub(crate) stale_time: Duration,
    /// Names of the origins that other processes bring.
    pub(crate) origins: Vec<String>,
}

impl Readiness {
    pub(crate) fn new(started: Instant) -> Self {
        Self { started, expected: None, has_interfaces: false }
    }

    /// Whether an origin of this name is to come back, as far as is known.
    pub(crate) fn expects(&self, name: &str) -> bool {
        self.expected.as_ref().is_none_or(|expected| expected.origins.iter().any(|origin| origin == name))
    }

    /// Whether the configuration is here.
    pub(crate) fn is_configured(&self) -> bool {
        self.expected.is_some()
    }

    pub(crate) fn configured(&mut self, expected: Expected) {
        self.expected = Some(expected);
    }

    pub(crate) fn interfaces_known(&mut self) {
        self.has_interfaces = true;
    }

    /// When patience ends, once that is known.
    fn limit(&self) -> Option<Instant> {
        self.expected.as_ref().map(|expected| self.started + expected.stale_time)
    }

    /// Whether the sync may end, when `is_synced` says which origins have announced everything.
    fn is_reached(&self, now: Instant, is_synced: impl Fn(&str) -> bool) -> bool {
        self.is_reached_for(&[], now, is_synced)
    }

    /// The same for who asks about some origins only; none are all.
    fn is_reached_for(&self, wanted: &[String], now: Instant, is_synced: impl Fn(&str) -> bool) -> bool {
        let Some(expected) = self.expected.as_ref().filter(|_| self.has_interfaces) else { return false };
        let is_wanted = |origin: &&String| wanted.is_empty() || wanted.contains(origin);
        expected.origins.iter().filter(is_wanted).all(|origin| is_synced(origin))
            || self.limit().is_some_and(|limit| now >= limit)
    }
}

/// Whether what the table has of these origins (none: of all) is all they have, as far as one can know.
pub(crate) fn is_complete(router: &Router, origins: &[String]) -> bool {
    let readiness = router.readiness.borrow();
    readiness.is_reached_for(origins, Instant::now(), |origin| is_synced(router, origin))
}

/// Lets the sync end when the time has come.
pub(crate) async fn watch(router: &Router) {
    let mut bell = router.bell();
    loop {
        if router.readiness.borrow().is_reached(Instant::now(), |origin| is_synced(router, origin)) {
            info!(event = "rib-ready", "everything is known: routes left in the kernel may go");
            return router.change(|rib| rib.hold_fib_sync(false));
        }
        let limit = router.readiness.borrow().limit();
        match limit.filter(|limit| *limit > Instant::now()) {
            // Whether it rang or time passed: both are looked at above.
            Some(limit) => drop(timeout_at(limit.into(), bell.rings()).await),
            None => bell.rings().await,
        }
    }
}

fn is_synced(router: &Router, origin: &str) -> bool {
    let status = router.quietly(|rib| rib.status());
    status.origins.iter().any(|known| &*known.name == origin && known.synced)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: Duration = Duration::from_secs(30);

    fn configured(start: Instant) -> Readiness {
        let mut readiness = Readiness::new(start);
        readiness.configured(Expected { stale_time: PATIENCE, origins: vec!["bgp".into()] });
        readiness
    }

    #[test]
    fn the_sync_waits_for_configuration_interfaces_and_origins() {
        let start = Instant::now();
        let mut readiness = Readiness::new(start);
        readiness.interfaces_known();
        assert!(!readiness.is_reached(start, |_| true), "no configuration");
        let mut readiness = configured(start);
        assert!(!readiness.is_reached(start, |_| true), "no interfaces");
        readiness.interfaces_known();
        assert!(!readiness.is_reached(start, |_| false), "bgp has not said all");
        assert!(readiness.is_reached(start, |origin| origin == "bgp"));
    }

    #[test]
    fn who_wants_some_origins_waits_for_no_other() {
        let start = Instant::now();
        let mut readiness = configured(start);
        readiness.interfaces_known();
        let reached = |wanted: &str| readiness.is_reached_for(&[wanted.to_owned()], start, |_| false);
        assert!(reached("static") && !reached("bgp"));
    }

    #[test]
    fn patience_ends_with_the_stale_time() {
        let start = Instant::now();
        let mut readiness = configured(start);
        readiness.interfaces_known();
        assert!(!readiness.is_reached(start + PATIENCE - Duration::from_secs(1), |_| false));
        assert!(readiness.is_reached(start + PATIENCE, |_| false));
    }
}

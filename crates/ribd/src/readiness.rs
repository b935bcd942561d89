//! When the first sync of the forwarding engine may end.
//!
//! The end of a sync removes what the sync did not name. After a start this process knows nothing, while the kernel
//! forwards by what its predecessor had installed: so the end waits until the configuration and the interfaces are
//! here and every protocol process that lives has announced all its routes, or for as long as stale routes stay.

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use holdfast_xrl::{Lifecycle, Resolver};
use tokio::time::sleep;
use tracing::{info, warn};

use crate::router::Router;

/// Class of the processes that are expected to bring routes.
const PROTOCOL: &str = "bgp";
/// What a protocol process that died with us gets to come back.
const LEAST: Duration = Duration::from_secs(2);
/// How often it is looked. Nothing else waits for this.
const LOOK: Duration = Duration::from_millis(250);

#[derive(Debug)]
pub(crate) struct Readiness {
    started: Instant,
    /// How long stale routes stay, once configured.
    stale_time: Option<Duration>,
    has_interfaces: bool,
    /// Protocol processes that live.
    protocols: BTreeSet<String>,
}

impl Readiness {
    pub(crate) fn new(started: Instant) -> Self {
        Self { started, stale_time: None, has_interfaces: false, protocols: BTreeSet::new() }
    }

    pub(crate) fn configured(&mut self, stale_time: Duration) {
        self.stale_time = Some(stale_time);
    }

    pub(crate) fn interfaces_known(&mut self) {
        self.has_interfaces = true;
    }

    fn happened(&mut self, event: Lifecycle) {
        match event {
            Lifecycle::Birth(instance) => drop(self.protocols.insert(instance.name)),
            Lifecycle::Death(instance) => drop(self.protocols.remove(&instance.name)),
        }
    }

    /// Whether the sync may end, when `is_synced` says which processes have announced everything.
    fn is_reached(&self, now: Instant, is_synced: impl Fn(&str) -> bool) -> bool {
        let Some(stale_time) = self.stale_time.filter(|_| self.has_interfaces) else { return false };
        let age = now.saturating_duration_since(self.started);
        age >= stale_time || (age >= LEAST && self.protocols.iter().all(|instance| is_synced(instance)))
    }
}

/// Lets the sync end when the time has come.
pub(crate) async fn watch(router: &Router, resolver: &Resolver) {
    let mut lives = resolver.watch(PROTOCOL);
    loop {
        tokio::select! {
            event = lives.next() => match event {
                Ok(event) => router.readiness.borrow_mut().happened(event),
                Err(error) => {
                    warn!("watching for protocols: {error}");
                    sleep(LOOK).await;
                }
            },
            () = sleep(LOOK) => {}
        }
        if router.readiness.borrow().is_reached(Instant::now(), |instance| is_synced(router, instance)) {
            info!("everything is known: routes left in the kernel may go");
            return router.change(|rib| rib.hold_fib_sync(false));
        }
    }
}

fn is_synced(router: &Router, instance: &str) -> bool {
    let origins = router.origins.borrow();
    let status = router.quietly(|rib| rib.status());
    let synced = |id| status.origins.iter().any(|origin| origin.id == id && origin.synced);
    let mut known = origins.of_instance(instance).peekable();
    known.peek().is_some() && known.all(synced)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn instance(name: &str) -> holdfast_api::finder::v1::Instance {
        holdfast_api::finder::v1::Instance { name: name.into(), ..Default::default() }
    }

    #[test]
    fn the_sync_waits_for_configuration_interfaces_and_protocols() {
        let start = Instant::now();
        let mut readiness = Readiness::new(start);
        let late = start + LEAST;
        readiness.happened(Lifecycle::Birth(instance("bgp-1")));
        readiness.configured(Duration::from_secs(120));
        assert!(!readiness.is_reached(late, |_| true), "no interfaces");
        readiness.interfaces_known();
        assert!(!readiness.is_reached(start, |_| true), "too early");
        assert!(!readiness.is_reached(late, |_| false), "bgp has not said all");
        assert!(readiness.is_reached(late, |name| name == "bgp-1"));
        readiness.happened(Lifecycle::Death(instance("bgp-1")));
        assert!(readiness.is_reached(late, |_| false), "nobody is expected");
    }

    #[test]
    fn patience_ends_with_the_stale_time() {
        let start = Instant::now();
        let mut readiness = Readiness::new(start);
        readiness.happened(Lifecycle::Birth(instance("bgp-1")));
        readiness.configured(Duration::from_secs(30));
        readiness.interfaces_known();
        assert!(!readiness.is_reached(start + Duration::from_secs(29), |_| false));
        assert!(readiness.is_reached(start + Duration::from_secs(30), |_| false));
    }
}

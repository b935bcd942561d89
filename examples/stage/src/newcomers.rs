//! The stage. All it knows of time is what it is told, so a test needs no clock.

use std::{
    borrow::Cow,
    collections::{BTreeSet, HashMap},
    time::{Duration, Instant},
};

use holdfast_bgp_pipeline::{Batch, Cause, PeerIndex, Release, Stage};
use holdfast_types::{Asn, Prefix};

/// AS numbers that are remembered. When there are more, all are known.
const MOST_ORIGINS: usize = 1 << 20;
/// Routes that may wait at a time. When there are more, the others pass.
const MOST_WAITING: usize = 1 << 16;

/// A route of a peer.
type Route = (PeerIndex, Prefix);

/// Holds routes back whose origin AS is new.
#[derive(Debug)]
pub struct Newcomers {
    hold: Duration,
    /// The end of the time in which whoever is seen is known at once.
    learning_until: Option<Instant>,
    /// When routes of each origin AS may pass.
    origins: HashMap<Asn, Instant>,
    waiting: HashMap<Route, Waiting>,
    /// The same, first come first.
    queue: BTreeSet<(Instant, Route)>,
}

/// Why and how long a route waits.
#[derive(Copy, Clone, Debug)]
struct Waiting {
    origin: Asn,
    until: Instant,
}

impl Newcomers {
    /// Newcomers wait so long.
    pub fn new(hold: Duration) -> Self {
        Self {
            hold,
            learning_until: None,
            origins: HashMap::new(),
            waiting: HashMap::new(),
            queue: BTreeSet::new(),
        }
    }

    /// From when on routes of this origin AS may pass.
    fn known_from(&mut self, origin: Asn, now: Instant, cause: Cause) -> Instant {
        let learning_until = *self.learning_until.get_or_insert(now + self.hold);
        let room = self.origins.len() < MOST_ORIGINS;
        // What another process has known before this one, this one cannot tell from what is new.
        let trusted = now < learning_until || cause == Cause::Replay || !room;
        let known = if trusted { now } else { now + self.hold };
        match self.origins.get(&origin) {
            Some(known) => *known,
            None if room => *self.origins.entry(origin).or_insert(known),
            None => known,
        }
    }

    fn wait(&mut self, route: Route, origin: Asn, until: Instant) -> bool {
        let room = self.waiting.len() < MOST_WAITING;
        if room {
            self.waiting.insert(route, Waiting { origin, until });
            self.queue.insert((until, route));
        }
        room
    }

    fn forget(&mut self, route: Route) {
        if let Some(waiting) = self.waiting.remove(&route) {
            self.queue.remove(&(waiting.until, route));
        }
    }
}

impl Stage for Newcomers {
    fn push(&mut self, batch: &mut Batch<'_>) {
        // All announced routes of a batch have the same path.
        let origin = batch.attributes.and_then(|attributes| attributes.as_path().origin_as());
        let known = origin.map(|origin| (origin, self.known_from(origin, batch.now, batch.cause)));
        for change in batch.changes.iter_mut() {
            let route = (batch.peer, change.prefix);
            self.forget(route);
            if let (Some(_), Some((origin, until))) = (change.new, known)
                && until > batch.now
            {
                change.suppress |= self.wait(route, origin, until);
            }
        }
    }

    fn peer_down(&mut self, peer: PeerIndex) {
        let gone: Vec<Route> = self.waiting.keys().filter(|(of, _)| *of == peer).copied().collect();
        gone.into_iter().for_each(|route| self.forget(route));
    }

    fn work(&mut self, now: Instant, budget: usize, released: &mut Vec<Release>) -> bool {
        for _ in 0..budget {
            let Some(&(until, route)) = self.queue.first() else { return false };
            if until > now {
                return false;
            }
            self.forget(route);
            released.push(Release { peer: route.0, prefix: route.1 });
        }
        true
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.queue.first().map(|(until, _)| *until)
    }

    fn holds(&self, now: Instant, peer: PeerIndex, prefix: Prefix) -> Option<Cow<'static, str>> {
        let Waiting { origin, until } = self.waiting.get(&(peer, prefix))?;
        let left = until.saturating_duration_since(now).as_secs();
        Some(format!("AS {origin} is new here (for {left} s more)").into())
    }

    fn describe(&self) -> String {
        format!("newcomers: {} origins are known, {} routes wait", self.origins.len(), self.waiting.len())
    }
}

//! Routes with signatures: what is known of each, whose are verified next, and what stands for whom. The pipeline's part in
//! that is [`verifying`](crate::verifying).

mod counts;
mod fault;
mod lapsed;
mod queue;
mod routes;
mod under_way;

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use holdfast_bgpsec_wire::{Path as SecurePath, Segment, Signature, Ski};
use holdfast_policy::PathSecurity;
use holdfast_types::{Asn, HashKey, Prefix};

pub use self::{
    counts::SignatureCounts,
    fault::{Fault, FaultReason},
    queue::{FAILED_HOPS, FAILED_HOPS_A_SECOND},
};
pub(crate) use self::{
    lapsed::SLOTS,
    queue::{Priority, Queues, Ticket},
    routes::{Next, Place, RouteKey, SignedRoute, SignedRoutes, Work},
    under_way::{Asked, UnderWay},
};
use self::{
    lapsed::{Lapsed, Turn},
    routes::NEVER,
};
use crate::{
    PeerIndex,
    path::{SetId, SourceId},
    secure_path::secure_path,
    sets::AttributeSets,
};

/// How long a valid route stays in use while what replaces it is verified.
pub const HOLD: Duration = Duration::from_secs(2);
/// When a state was found is counted so often a second.
const TICKS: u32 = 16;

/// A path whose signatures are to be verified.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SignatureJob {
    /// Given back with the verdict.
    pub number: u64,
    /// The value of BGPsec_PATH.
    pub path: Vec<u8>,
    /// The route.
    pub prefix: Prefix,
    /// The AS in our OPEN.
    pub target: Asn,
    /// Signatures of each block.
    pub hops: usize,
}

/// What has come of a [`SignatureJob`].
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum SignatureVerdict {
    /// All signatures of a block are good.
    Valid,
    /// In each block of a known suite one is not.
    NotValid(Fault),
    /// No block is of a known suite: the route counts as one without signatures (RFC 8205 section 5.2).
    Unsupported,
}

/// What the verdict on a [`SignatureJob`] has cost. A signature counts once for each key that was tried.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct SignatureCost {
    /// Signatures that were verified; not those that were remembered.
    pub verified: u32,
    /// Those of them that were bad, whatever the verdict is.
    pub failed: u32,
}

/// What is known of one route, for display.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SignatureView {
    /// Of the path in use.
    pub state: PathSecurity,
    /// Why it is not valid.
    pub fault: Option<Fault>,
    /// When that was found.
    pub at: Option<Instant>,
    /// It is being verified, or waits for that.
    pub is_pending: bool,
}

/// Routers' keys that have changed.
#[derive(Clone, Debug, Default)]
pub(crate) struct ChangedKeys {
    /// Valid routes that name one of these are verified again.
    pub(crate) removed: BTreeSet<(Asn, Ski)>,
    /// And routes that are not valid and name one of these.
    pub(crate) added: BTreeSet<(Asn, Ski)>,
    /// All routes are.
    pub(crate) all: bool,
}

/// A walk over the routes for keys that have changed.
#[derive(Debug)]
pub(crate) struct Look {
    pub(crate) keys: ChangedKeys,
    /// Only routes in this slot are looked at; `None`: all.
    pub(crate) slot: Option<u64>,
    /// Up to which place.
    pub(crate) place: usize,
}

impl ChangedKeys {
    pub(crate) fn is_empty(&self) -> bool {
        !self.all && self.removed.is_empty() && self.added.is_empty()
    }

    /// Whether the changed keys may change the verdict on the route's path, or on the path that is to replace that.
    pub(crate) fn concerns(&self, route: &SignedRoute, sets: &AttributeSets) -> bool {
        let next = route.next.as_deref().and_then(|next| Some((next.verdict?.0, next.set)));
        self.concerns_path((route.state(), route.set), sets)
            || next.is_some_and(|next| self.concerns_path(next, sets))
    }

    fn concerns_path(&self, (state, set): (PathSecurity, SetId), sets: &AttributeSets) -> bool {
        let names = |keys: &BTreeSet<(Asn, Ski)>| {
            let path = secure_path(sets.attributes(set));
            let path = path.and_then(|value| SecurePath::parse(value).ok());
            path.is_some_and(|path| {
                let named = |(segment, signature): (Segment, Signature<'_>)| {
                    keys.contains(&(segment.asn, signature.ski))
                };
                path.blocks().any(|block| path.segments().zip(block.signatures()).any(named))
            })
        };
        match state {
            // It is in a queue.
            PathSecurity::Unverified => false,
            // Keys have no part in that.
            PathSecurity::Unsigned => false,
            PathSecurity::Valid => self.all || !self.removed.is_empty() && names(&self.removed),
            PathSecurity::NotValid => self.all || !self.added.is_empty() && names(&self.added),
        }
    }
}

/// What is known of signatures, and what is to be found out.
#[derive(Debug)]
pub(crate) struct SignatureTable {
    /// Whether some session may bring BGPsec_PATH: without, nothing of this is looked at.
    pub(crate) is_used: bool,
    pub(crate) routes: SignedRoutes,
    pub(crate) queues: Queues,
    pub(crate) asked: UnderWay,
    /// Routes whose paths are to be replaced, each with its deadline.
    pub(crate) held: BTreeSet<(Instant, RouteKey)>,
    /// A path whose only change is a new signature replaces the one before at most once in so long.
    pub(crate) pace: Duration,
    pub(crate) changed: ChangedKeys,
    pub(crate) lapsed: Lapsed,
    /// For those that are being looked for.
    pub(crate) looking: Option<Look>,
    /// Sources of the earlier session of the peer whose UPDATE is being taken in (RFC 4724).
    pub(crate) earlier: Vec<SourceId>,
    /// What the process before has known of the routes that are being taken in.
    pub(crate) thawing: PathSecurity,
    /// There are tickets that nobody has looked at.
    pub(crate) goes_on: bool,
    /// When the first route with signatures came.
    pub(crate) first: Option<Instant>,
    pub(crate) now: Option<Instant>,
}

impl SignatureTable {
    pub(crate) fn new(key: HashKey) -> Self {
        Self {
            is_used: false,
            routes: SignedRoutes::new(key),
            queues: Queues::default(),
            asked: UnderWay::default(),
            held: BTreeSet::new(),
            pace: Duration::ZERO,
            changed: ChangedKeys::default(),
            lapsed: Lapsed::default(),
            looking: None,
            earlier: Vec::new(),
            thawing: PathSecurity::Unverified,
            goes_on: false,
            first: None,
            now: None,
        }
    }

    /// Octets held beside the paths of the routes and their sets.
    pub(crate) fn memory(&self) -> usize {
        let held = self.held.len() * (size_of::<(Instant, RouteKey)>() + size_of::<Next>());
        self.routes.memory() + self.queues.memory() + self.asked.memory() + self.lapsed.memory() + held
    }

    /// The next peer with this number is another.
    pub(crate) fn peer_removed(&mut self, peer: PeerIndex) {
        self.queues.forget(peer);
        self.asked.forget(peer);
    }

    pub(crate) fn set_now(&mut self, now: Instant) {
        self.now = Some(now);
    }

    /// What is known of a route in the table.
    pub(crate) fn state(&self, source: SourceId, prefix: Prefix) -> PathSecurity {
        self.routes.get(RouteKey::new(source, prefix)).map_or(PathSecurity::Unverified, SignedRoute::state)
    }

    /// What is to replace a path as soon as there is a verdict on it.
    pub(crate) fn next(&self, source: SourceId, prefix: Prefix) -> Option<SetId> {
        self.routes.get(RouteKey::new(source, prefix))?.next.as_ref().map(|next| next.set)
    }

    /// A path is to replace a route's as soon as there is a verdict on it, or when its time has come; with a user.
    pub(crate) fn set_next(&mut self, key: RouteKey, next: Next) {
        if let Some(route) = self.routes.get_mut(key) {
            route.next = Some(Box::new(next));
            self.held.insert((next.until, key));
        }
    }

    /// The verdict on what is to replace a route's path is that on the path: it does so when its time has come.
    pub(crate) fn put_off_next(
        &mut self,
        place: Place,
        until: Instant,
        verdict: (PathSecurity, Option<Fault>),
    ) {
        let Some(route) = self.routes.at_mut(place) else { return };
        let key = route.key;
        let Some(next) = &mut route.next else { return };
        self.held.remove(&(next.until, key));
        (next.until, next.verdict) = (until, Some(verdict));
        self.held.insert((until, key));
    }

    /// What was to replace a route's path, with its user. It is not to any more.
    pub(crate) fn take_next(&mut self, place: Place) -> Option<Next> {
        let route = self.routes.at_mut(place)?;
        let next = *route.next.take()?;
        self.held.remove(&(next.until, route.key));
        Some(next)
    }

    /// The next walk for keys that have changed: at once where they were withdrawn or added, in slots where they have expired.
    pub(crate) fn next_look(&mut self) -> Option<Look> {
        let place = self.routes.len();
        if !self.changed.is_empty() {
            return Some(Look { keys: std::mem::take(&mut self.changed), slot: None, place });
        }
        let Turn { slot, names, all } = self.lapsed.poll(self.now?)?;
        let keys = ChangedKeys { removed: names, all, ..ChangedKeys::default() };
        Some(Look { keys, slot: Some(slot), place })
    }

    /// When a path whose only change is a new signature may replace a route's; `None`: at once.
    pub(crate) fn paced(&self, route: &SignedRoute) -> Option<Instant> {
        let came = self.first.filter(|_| route.at != NEVER)? + Duration::from_secs(1) * route.at / TICKS;
        let until = came + self.pace;
        self.now.is_some_and(|now| now < until && !self.pace.is_zero()).then_some(until)
    }

    /// What is known of a route from now on.
    pub(crate) fn judge(
        &mut self,
        place: Place,
        state: PathSecurity,
        at: Option<Instant>,
        fault: Option<Box<Fault>>,
    ) {
        let first = self.first;
        // Rounded up: what is paced by that does not come too early.
        let ticks = |since: Duration| (since.as_millis() * u128::from(TICKS)).div_ceil(1000);
        let since = |at: Instant| u32::try_from(ticks(at.saturating_duration_since(first?))).ok();
        let at = at.and_then(since).unwrap_or(NEVER);
        self.routes.change(place, |route| (route.state, route.at, route.fault) = (state, at, fault));
    }

    /// When the state of a route was found, roughly; `None`: nothing was.
    pub(crate) fn found_at(&self, route: &SignedRoute) -> Option<Instant> {
        let is_found = route.at != NEVER && route.state != PathSecurity::Unverified;
        self.first.filter(|_| is_found).map(|first| first + Duration::from_secs(1) * route.at / TICKS)
    }

    /// Whether routes wait for their first verdicts, after the process has begun. Not for longer than [`HOLD`]: what others
    /// were told by the process before is not withdrawn meanwhile.
    pub(crate) fn are_awaited(&self) -> bool {
        let has_begun = self.first.zip(self.now).is_some_and(|(first, now)| now < first + HOLD);
        has_begun && self.routes.unverified() > 0
    }

    pub(crate) fn enqueue(&mut self, peer: PeerIndex, priority: Priority, place: Place, hops: usize) {
        let Self { routes, queues, .. } = self;
        let Some(key) = routes.at(place).map(|route| route.key) else { return };
        let counts = |ticket: &Ticket| due(routes, ticket).is_some();
        let number = queues.push(peer, priority, key, routes.len(), counts);
        routes.change(place, |route| (route.work, route.hops) = (Work::Queued(number), hops as u16));
    }
}

/// The route of a ticket, if that counts.
pub(crate) fn due(routes: &SignedRoutes, ticket: &Ticket) -> Option<Place> {
    let place = routes.place(ticket.key)?;
    (routes.at(place)?.work() == Work::Queued(ticket.number)).then_some(place)
}

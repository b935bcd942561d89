//! The table as a whole: inputs, and what follows from each within the same event.

use std::{
    collections::{BTreeMap, VecDeque},
    time::{Duration, Instant},
};

use holdfast_types::{HashKey, Ipv4Prefix, Ipv6Prefix, Prefix};

use crate::{
    background::{FlipWalk, Sweep},
    family::Family,
    fib::Fib,
    interface::{Interface, Interfaces},
    neighbors::Failed,
    nexthop::{InterfaceRef, Nexthop, NexthopSet, Nexthops},
    nexthops::NexthopSetId,
    origin::{Origin, OriginConfig, OriginError, OriginId, OriginKind},
    path::{Path, PathId},
    redist::{Subscription, SubscriptionId},
    register::{MAX_REGISTRATIONS, Registry},
    store::{Outdated, Store},
    tables::{Routed, Tables},
    tracker::Tracker,
};

/// Most origins of routes, the connected one included.
pub const MAX_ORIGINS: usize = 32;

/// Most subscriptions to routes.
pub const MAX_SUBSCRIPTIONS: usize = 64;

/// Routes that are put into the table at once: so many cache misses overlap.
const RUN: usize = 64;

/// Name of the origin whose routes follow from the addresses of interfaces.
pub const CONNECTED: &str = "connected";

/// Settings of the table.
#[derive(Clone, Debug)]
pub struct RibConfig {
    /// How long routes of a dead origin stay when it does not come back.
    pub stale_time: Duration,
    /// Whether the default route may resolve next hops. It makes every next hop reachable, so a lost IGP route is
    /// not noticed; but a router with one upstream and iBGP may need it.
    pub resolve_via_default: bool,
    /// Changes kept for readers of the table, per family. 12 bytes each for IPv4, 48 for IPv6, given back when read.
    pub log_capacity: usize,
    /// Of all hashes: prefixes and next hops come from the network.
    pub hash_key: HashKey,
}

impl RibConfig {
    /// The defaults with a key.
    pub fn new(hash_key: HashKey) -> Self {
        let stale_time = Duration::from_secs(120);
        Self { stale_time, resolve_via_default: false, log_capacity: 65_536, hash_key }
    }
}

/// What an origin says of a prefix.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum RouteAction {
    /// This is the route now, in the place of any that the origin had.
    Announce {
        /// From [`Rib::nexthops`].
        nexthops: NexthopSetId,
        /// Lower wins among routes of equal distance.
        metric: u32,
        /// Administrative distance; `None`: that of the origin.
        distance: Option<u8>,
        /// For policies of others; 0 is none.
        tag: u32,
        /// Of whom the origin has it, by a number that its next life uses as well; 0 is nobody. See
        /// [`Rib::origin_told`].
        source: u32,
    },
    /// The origin has no route any more.
    Withdraw,
}

/// Who may announce again what an earlier life of an origin had of them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Awaited {
    /// Nobody knows who: no stale route goes.
    Everybody,
    /// These sources ([`RouteAction::Announce`]).
    These(Vec<u32>),
}

/// An input that makes no sense. What came before it in a batch has been done.
#[derive(Copy, Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RibError {
    /// No such origin, or it is not registered now.
    #[error("no live origin has the number {}", .0.number())]
    UnknownOrigin(OriginId),
    /// The next hops were released or belong to another origin.
    #[error("the origin has not defined these next hops")]
    UnknownNexthops,
    /// The limit of registrations is reached.
    #[error("a client may register interest in {MAX_REGISTRATIONS} ranges at most")]
    TooManyRegistrations,
}

/// The routing information base.
///
/// Inputs are methods. After each of them everything that follows has happened: winners, resolution, the answers to
/// registrations. What has to be told to others waits to be fetched: [`Rib::poll_invalidation`], [`Rib::poll_fib`],
/// [`Rib::poll_redist`]. What takes a walk over the table waits for [`Rib::work`], what takes time for
/// [`Rib::handle_timeout`] at [`Rib::poll_timeout`].
#[derive(Debug)]
pub struct Rib {
    pub(crate) config: RibConfig,
    pub(crate) tables: Tables,
    pub(crate) store: Store,
    pub(crate) interfaces: Interfaces,
    pub(crate) failed: Failed,
    pub(crate) fib: Fib,
    pub(crate) flips: FlipWalk,
    pub(crate) sweeps: VecDeque<Sweep>,
    pub(crate) tracker: Tracker,
    pub(crate) registry: Registry,
    pub(crate) subscriptions: BTreeMap<SubscriptionId, Subscription>,
    pub(crate) last_subscription: u32,
    /// Empty between two inputs: prefixes about which the same is said.
    run: (Vec<Ipv4Prefix>, Vec<Ipv6Prefix>),
}

impl Rib {
    /// An empty table with one origin, [`CONNECTED`].
    pub fn new(config: RibConfig) -> Self {
        let mut store = Store::new(config.hash_key);
        let connected = OriginConfig { distance: 0, kind: OriginKind::Internal, install: false };
        store.origins.push(Origin::new(CONNECTED, connected));
        Self {
            tables: Tables::new(config.hash_key, config.log_capacity),
            config,
            store,
            interfaces: Interfaces::default(),
            failed: Failed::default(),
            fib: Fib::default(),
            flips: FlipWalk::default(),
            sweeps: VecDeque::new(),
            tracker: Tracker::default(),
            registry: Registry::default(),
            subscriptions: BTreeMap::new(),
            last_subscription: 0,
            run: Default::default(),
        }
    }

    /// The origin of connected routes.
    pub const fn connected() -> OriginId {
        OriginId(0)
    }
}

/// Origins and their routes.
impl Rib {
    /// An origin registers. If it was known, its routes so far are stale: they stay until it has announced them
    /// again or [`Self::origin_end_of_sync`] comes, or the stale time is over.
    pub fn add_origin(
        &mut self,
        name: &str,
        config: OriginConfig,
        now: Instant,
    ) -> Result<OriginId, OriginError> {
        let Some(id) = self.origin_named(name) else { return self.new_origin(name, config) };
        let kind = self.store.origin(id).map(|origin| origin.config.kind);
        if kind.is_some_and(|kind| kind != config.kind) {
            return Err(OriginError::KindChanged(name.into()));
        }
        self.origin_died(id, now);
        if let Some(origin) = self.store.origin_mut(id) {
            origin.config = config;
            origin.alive = true;
            origin.generation += 1;
        }
        self.choose_origins();
        Ok(id)
    }

    fn new_origin(&mut self, name: &str, config: OriginConfig) -> Result<OriginId, OriginError> {
        if self.store.origins.len() == MAX_ORIGINS {
            return Err(OriginError::TooMany);
        }
        self.store.origins.push(Origin::new(name, config));
        self.choose_origins();
        Ok(OriginId(self.store.origins.len() as u16 - 1))
    }

    /// A set of next hops with this content, for routes of this origin, held until [`Self::release_nexthops`].
    /// It is a new one, or one that nobody holds any more: so routes that an origin announces again after its
    /// restart are the same as before, and no reader hears of them.
    pub fn nexthops(&mut self, origin: OriginId, nexthops: impl Into<Nexthops>) -> NexthopSetId {
        let mut nexthops = nexthops.into();
        nexthops.truncate();
        let found = self.store.sets.find_unheld(origin, &nexthops);
        let id = found.unwrap_or_else(|| self.add_set(origin, nexthops));
        self.store.sets.hold(id);
        self.settle();
        id
    }

    /// These sets have this content from now on, for every route that uses them, stale ones included. What follows from it is
    /// worked out once for all of them.
    pub fn change_nexthops(
        &mut self,
        changes: impl IntoIterator<Item = (NexthopSetId, impl Into<Nexthops>)>,
    ) {
        let mut is_internal = false;
        for (id, nexthops) in changes {
            let mut nexthops = nexthops.into();
            nexthops.truncate();
            let Some(set) = self.store.sets.get(id) else { continue };
            set.unresolved_gateways().for_each(|gateway| self.tracker.remove_set(gateway, id));
            self.store.sets.change(id, nexthops);
            self.track_set(id);
            self.tracker.dirty_sets.push(id);
            is_internal |= self.is_internal(id);
            if !self.subscriptions.is_empty() {
                self.flip(id);
            }
        }
        if is_internal {
            // What is reached through routes with these sets may be reached otherwise now.
            self.tracker.mark_all();
        }
        self.settle();
    }

    /// How many next hops and backups the sets of an origin have: those that it names, and those that its routes use.
    pub fn nexthops_of(&self, origin: OriginId) -> usize {
        self.store.sets.members_of(origin)
    }

    /// How many routes an origin has, stale ones included.
    pub fn routes_by(&self, origin: OriginId) -> u64 {
        self.store.origin(origin).map_or(0, |origin| origin.routes)
    }

    fn is_internal(&self, id: NexthopSetId) -> bool {
        let origin = self.store.sets.get(id).and_then(|set| self.store.origin(set.origin));
        origin.is_some_and(Origin::is_internal)
    }

    /// The caller names the set no more. It stays as long as a route uses it.
    pub fn release_nexthops(&mut self, id: NexthopSetId) {
        self.store.sets.unhold(id);
        self.store.unused.push(id);
        self.settle();
    }

    /// Changes of routes, in order: each action with the prefixes it is about.
    pub fn origin_routes<P: IntoIterator<Item = Prefix>>(
        &mut self,
        origin: OriginId,
        changes: impl IntoIterator<Item = (RouteAction, P)>,
    ) -> Result<(), RibError> {
        let done = changes
            .into_iter()
            .try_for_each(|(action, prefixes)| self.origin_run(origin, action, prefixes.into_iter()));
        self.settle();
        done
    }

    fn origin_run(
        &mut self,
        id: OriginId,
        action: RouteAction,
        prefixes: impl Iterator<Item = Prefix>,
    ) -> Result<(), RibError> {
        let origin =
            self.store.origin(id).filter(|origin| origin.alive).ok_or(RibError::UnknownOrigin(id))?;
        let internal = origin.is_internal();
        let path = match action {
            RouteAction::Withdraw => None,
            RouteAction::Announce { nexthops, metric, distance, tag, source } => {
                let set = self.store.sets.get(nexthops).filter(|set| set.origin == id);
                set.ok_or(RibError::UnknownNexthops)?;
                let distance = distance.unwrap_or(origin.config.distance);
                let generation = origin.generation;
                Some(Path { origin: id, generation, nexthops, metric, distance, tag, source })
            }
        };
        let mut prefixes = prefixes.peekable();
        if prefixes.peek().is_none() {
            return Ok(());
        }
        let new = path.map(|path| self.store.intern(path));
        let (mut v4, mut v6) = (std::mem::take(&mut self.run.0), std::mem::take(&mut self.run.1));
        for prefix in prefixes {
            match prefix {
                Prefix::V4(prefix) => v4.push(prefix),
                Prefix::V6(prefix) => v6.push(prefix),
            }
            // What follows from a route concerns no route of the other family.
            if v4.len() == RUN {
                self.put(id, internal, &mut v4, new);
            }
            if v6.len() == RUN {
                self.put(id, internal, &mut v6, new);
            }
        }
        self.put(id, internal, &mut v4, new);
        self.put(id, internal, &mut v6, new);
        self.run = (v4, v6);
        Ok(())
    }

    /// Puts a path into the rows of these prefixes, and leaves the list empty.
    fn put<P: Routed>(
        &mut self,
        origin: OriginId,
        internal: bool,
        prefixes: &mut Vec<P>,
        new: Option<PathId>,
    ) {
        let store = &mut self.store;
        let Family { internal: inside, external: outside, log, is_followed, .. } =
            P::tables_mut(&mut self.tables);
        let (table, other) = if internal { (inside, &*outside) } else { (outside, &*inside) };
        // Of internal routes, which are few: these, and whether each came or went.
        let mut changed = Vec::new();
        table.update_each(prefixes, |prefix, row| {
            let put = store.put(row, origin, new);
            if put.changed && *is_followed {
                log.push(prefix, put.origins_before | store.origins_of(&other.get(prefix)));
            }
            if put.changed && internal {
                changed.push((prefix, row.is_some() != put.row.is_some()));
            }
            put.row
        });
        prefixes.clear();
        changed.into_iter().for_each(|(prefix, came_or_went)| self.rests_on(prefix, came_or_went));
    }

    /// A row is another now: tells the readers, and looks for answers that rested on it.
    pub(crate) fn changed<P: Routed>(
        &mut self,
        internal: bool,
        prefix: P,
        origins_before: u32,
        came_or_went: bool,
    ) {
        let family = P::tables_mut(&mut self.tables);
        if family.is_followed {
            let other = if internal { &family.external } else { &family.internal };
            let origins_beside = self.store.origins_of(&other.get(prefix));
            family.log.push(prefix, origins_before | origins_beside);
        }
        if internal {
            self.rests_on(prefix, came_or_went);
        }
    }

    /// An internal row is another now: looks for answers that rested on it.
    fn rests_on<P: Routed>(&mut self, prefix: P, came_or_went: bool) {
        self.tracker.mark(prefix.into());
        if came_or_went {
            self.invalidate_around(prefix);
        }
    }

    /// The origin has announced everything it has: what an earlier life left and this one did not repeat goes.
    pub fn origin_end_of_sync(&mut self, id: OriginId) -> Result<(), RibError> {
        let origin = self.store.origin_mut(id).filter(|origin| origin.alive);
        let origin = origin.ok_or(RibError::UnknownOrigin(id))?;
        (origin.told, origin.synced) = (true, true);
        if origin.deadline.take().is_some() {
            let generation = origin.generation;
            self.sweep(id, Outdated { generation, awaited: Vec::new() });
        }
        Ok(())
    }

    /// The origin has announced everything it has, and waits for some: what an earlier life left of others, and this one
    /// did not repeat, goes. What it left of these stays until they are named no more, [`Self::origin_end_of_sync`] comes,
    /// or the stale time is over.
    pub fn origin_told(&mut self, id: OriginId, awaited: Awaited) -> Result<(), RibError> {
        let origin = self.store.origin_mut(id).filter(|origin| origin.alive);
        let origin = origin.ok_or(RibError::UnknownOrigin(id))?;
        origin.told = true;
        if let (Some(_), Awaited::These(mut awaited)) = (origin.deadline, awaited) {
            let generation = origin.generation;
            awaited.sort_unstable();
            self.sweep(id, Outdated { generation, awaited });
        }
        Ok(())
    }

    /// The origin is gone. Its routes stay for the stale time, counted from the first death since it was complete.
    pub fn origin_died(&mut self, id: OriginId, now: Instant) {
        let deadline = now + self.config.stale_time;
        if let Some(origin) = self.store.origin_mut(id).filter(|origin| origin.alive) {
            (origin.alive, origin.told, origin.synced) = (false, false, false);
            origin.deadline.get_or_insert(deadline);
        }
    }

    /// Only origins of these names are wanted: the routes of the others go at the next [`Self::handle_timeout`].
    pub fn retain_origins(&mut self, is_wanted: impl Fn(&str) -> bool, now: Instant) {
        for origin in self.store.origins.iter_mut().filter(|origin| !is_wanted(&origin.name)) {
            (origin.alive, origin.told, origin.synced) = (false, false, false);
            origin.deadline = Some(now);
        }
    }

    /// The distance of routes that are announced from now on without their own.
    pub fn set_distance(&mut self, id: OriginId, distance: u8) {
        if let Some(origin) = self.store.origin_mut(id) {
            origin.config.distance = distance;
        }
    }

    /// The stale time of origins that die from now on.
    pub fn set_stale_time(&mut self, stale_time: Duration) {
        self.config.stale_time = stale_time;
    }

    /// When [`Self::handle_timeout`] has something to do.
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.store.origins.iter().filter_map(|origin| origin.deadline).min()
    }

    /// Ends the patience with origins that have not come back, or not completely.
    pub fn handle_timeout(&mut self, now: Instant) {
        for number in 0..self.store.origins.len() {
            let origin = &mut self.store.origins[number];
            if origin.deadline.is_some_and(|deadline| deadline <= now) {
                origin.deadline = None;
                let generation = origin.generation + u32::from(!origin.alive);
                self.sweep(OriginId(number as u16), Outdated { generation, awaited: Vec::new() });
            }
        }
    }
}

/// Interfaces.
impl Rib {
    /// An interface is new or another than before.
    pub fn interface_changed(&mut self, interface: Interface) {
        self.replace_interface(interface.index, Some(interface));
    }

    /// An interface is gone.
    pub fn interface_gone(&mut self, index: u32) {
        self.replace_interface(index, None);
    }

    fn replace_interface(&mut self, index: u32, new: Option<Interface>) {
        let networks = self.interfaces.replace(index, new);
        networks.into_iter().for_each(|network| self.connect(network));
        self.tracker.mark_all();
        self.tracker.dirty_sets.extend(self.store.sets.ids());
        self.settle();
    }

    /// Brings the connected route of a network up to date.
    fn connect(&mut self, network: Prefix) {
        let origin = Self::connected();
        let held = self.interfaces.attached_to(network).map(|index| {
            let member = Nexthop::on(InterfaceRef::Index(index));
            self.nexthops(origin, NexthopSet::Forward(vec![member]))
        });
        let action = held.map_or(RouteAction::Withdraw, |nexthops| RouteAction::Announce {
            nexthops,
            metric: 0,
            distance: None,
            tag: 0,
            source: 0,
        });
        // The connected origin never dies and the set is held: there is nothing to refuse.
        let _ = self.origin_run(origin, action, std::iter::once(network));
        if let Some(id) = held {
            self.release_nexthops(id);
        }
    }
}

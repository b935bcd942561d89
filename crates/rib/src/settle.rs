//! What follows from a change, within the same event.

use std::net::IpAddr;

use holdfast_types::Prefix;

use crate::{
    Rib, RibError,
    nexthop::{Nexthops, Resolution},
    nexthops::{Flip, NexthopSetId},
    origin::OriginId,
    register::{Answer, ClientId, WatchId},
    resolve::View,
    tables::{Routed, Tables},
    tracker::TrackedId,
};

/// Registration of interest.
impl Rib {
    /// How an address is reached through internal routes, as the next hops of external routes are. The client is
    /// told by [`Self::poll_invalidation`] when the answer no longer holds for all of its range; until then it need
    /// not ask about any address in it.
    pub fn register_interest(&mut self, client: ClientId, address: IpAddr) -> Result<Answer, RibError> {
        if !self.registry.has_room(client) {
            return Err(RibError::TooManyRegistrations);
        }
        let view = self.view();
        let answer = Answer::new(view, address, &view.evaluate(address));
        let watch = self.watch_at(answer.range).unwrap_or_else(|| self.add_watch(address, answer.clone()));
        self.registry.join(watch, client, address);
        Ok(answer)
    }

    /// The client is no longer interested in an address about which it has asked. It goes on to be told of the range
    /// while it is interested in others there.
    pub fn unregister_interest(&mut self, client: ClientId, address: IpAddr) {
        for watch in watches_around(&self.tables, Prefix::host(address)) {
            self.leave(watch, client, |other| other == address);
        }
    }

    /// The client is gone and with it all its interest.
    pub fn client_gone(&mut self, client: ClientId) {
        for watch in self.registry.watches_of(client) {
            self.leave(watch, client, |_| true);
        }
        self.registry.forget(client);
    }

    /// A range whose answer a client has been given and which no longer holds ("cache invalidated"). It is no longer
    /// registered.
    pub fn poll_invalidation(&mut self, client: ClientId) -> Option<Prefix> {
        self.registry.next_invalidated(client)
    }

    fn watch_at(&self, range: Prefix) -> Option<WatchId> {
        match range {
            Prefix::V4(range) => self.tables.v4.watches.get(range),
            Prefix::V6(range) => self.tables.v6.watches.get(range),
        }
    }

    fn add_watch(&mut self, address: IpAddr, answer: Answer) -> WatchId {
        let range = answer.range;
        // Routes that kept ranges small may have gone since.
        for smaller in watches_inside(&self.tables, range) {
            self.invalidate(smaller);
        }
        let tracked = self.tracker.track(address);
        let id = self.registry.add_watch(tracked, answer);
        match range {
            Prefix::V4(range) => self.tables.v4.watches.insert(range, id),
            Prefix::V6(range) => self.tables.v6.watches.insert(range, id),
        };
        if let Some(tracked) = self.tracker.get_mut(tracked) {
            tracked.watch = Some(id);
        }
        self.settle();
        id
    }

    fn leave(&mut self, watch: WatchId, client: ClientId, gone: impl Fn(IpAddr) -> bool) {
        if self.registry.leave(watch, client, gone) {
            self.invalidate(watch);
        }
    }

    /// The answer for the range of a watch no longer holds.
    fn invalidate(&mut self, id: WatchId) {
        let Some(watch) = self.registry.invalidate(id) else { return };
        match watch.answer.range {
            Prefix::V4(range) => self.tables.v4.watches.remove(range),
            Prefix::V6(range) => self.tables.v6.watches.remove(range),
        };
        if let Some(tracked) = self.tracker.get_mut(watch.tracked) {
            tracked.watch = None;
        }
        self.tracker.untrack_if_unused(watch.tracked);
    }

    /// An internal route came or went: larger ranges around it do not have one answer any more, or could be larger.
    pub(crate) fn invalidate_around<P: Routed>(&mut self, prefix: P) {
        let around = P::tables(&self.tables).watches.covering(prefix);
        let around: Vec<_> = around.filter(|&(range, _)| range != prefix).map(|(_, id)| id).collect();
        around.into_iter().for_each(|id| self.invalidate(id));
    }
}

fn watches_around(tables: &Tables, prefix: Prefix) -> Vec<WatchId> {
    match prefix {
        Prefix::V4(prefix) => tables.v4.watches.covering(prefix).map(|(_, id)| id).collect(),
        Prefix::V6(prefix) => tables.v6.watches.covering(prefix).map(|(_, id)| id).collect(),
    }
}

fn watches_inside(tables: &Tables, range: Prefix) -> Vec<WatchId> {
    match range {
        Prefix::V4(range) => tables.v4.watches.within(range).map(|(_, id)| id).collect(),
        Prefix::V6(range) => tables.v6.watches.within(range).map(|(_, id)| id).collect(),
    }
}

/// Resolution.
impl Rib {
    pub(crate) fn view(&self) -> View<'_> {
        View {
            tables: &self.tables,
            store: &self.store,
            interfaces: &self.interfaces,
            via_default: self.config.resolve_via_default,
        }
    }

    pub(crate) fn add_set(&mut self, origin: OriginId, nexthops: Nexthops) -> NexthopSetId {
        let id = self.store.sets.add(origin, nexthops);
        if let Some((resolution, backup, detour)) = self.resolved(id)
            && let Some(set) = self.store.sets.get_mut(id)
        {
            (set.resolution, set.backup, set.detour) = (resolution, backup, detour);
        }
        self.track_set(id);
        id
    }

    /// What the set leads to now, what its backups do, and the way around neighbours that have failed.
    fn resolved(&self, id: NexthopSetId) -> Option<(Resolution, Resolution, Option<Resolution>)> {
        let set = self.store.sets.get(id)?;
        let (resolution, backup) = (self.view().resolve(&set.nexthops), self.view().members(&set.backups));
        let detour = self.detour(id, &resolution);
        Some((resolution, backup, detour))
    }

    pub(crate) fn track_set(&mut self, id: NexthopSetId) {
        if let Some(set) = self.store.sets.get(id) {
            set.unresolved_gateways().for_each(|gateway| self.tracker.add_set(gateway, id));
        }
    }

    /// Works out everything that rests on what has changed. At its end nothing is out of date.
    pub(crate) fn settle(&mut self) {
        while let Some(id) = self.tracker.next_dirty() {
            self.reconsider(id);
        }
        let mut sets = std::mem::take(&mut self.tracker.dirty_sets);
        sets.sort_unstable();
        sets.dedup();
        for id in sets {
            self.resolve_set(id);
        }
        while let Some(id) = self.store.unused.pop() {
            self.drop_if_unused(id);
        }
    }

    fn reconsider(&mut self, id: TrackedId) {
        let Some(tracked) = self.tracker.get(id) else { return };
        let (address, watch, sets) = (tracked.address, tracked.watch, tracked.sets.clone());
        self.tracker.dirty_sets.extend(sets);
        let view = self.view();
        let evaluation = view.evaluate(address);
        let known = watch.and_then(|id| self.registry.get(id)).map(|watch| &watch.answer);
        let holds = known.is_none_or(|known| *known == Answer::new(view, address, &evaluation));
        self.tracker.rests_on(id, evaluation.visits);
        if let Some(watch) = watch.filter(|_| !holds) {
            self.invalidate(watch);
        }
    }

    /// Returns whether the forwarding engine is to have something else of it.
    pub(crate) fn resolve_set(&mut self, id: NexthopSetId) -> bool {
        let Some((resolution, backup, detour)) = self.resolved(id) else { return false };
        let Some(set) = self.store.sets.get_mut(id) else { return false };
        set.backup = backup;
        if (&set.resolution, &set.detour) == (&resolution, &detour) {
            return false;
        }
        let flips = set.resolution.is_usable() != resolution.is_usable();
        (set.resolution, set.detour) = (resolution, detour);
        self.fib.set_changed(&mut self.store, id);
        if flips {
            self.flip(id);
        }
        true
    }

    /// The readers have to look again at the routes of a set.
    pub(crate) fn flip(&mut self, id: NexthopSetId) {
        if let Some(set) = self.store.sets.get_mut(id) {
            set.flip = Flip::Waiting;
            self.flips.request();
        }
    }

    /// Takes a set that no path uses from the forwarding engine, and from the table unless its origin still names the set: an
    /// origin may name a set for long that it used for a moment.
    fn drop_if_unused(&mut self, id: NexthopSetId) {
        let Some(set) = self.store.sets.get_mut(id).filter(|set| !set.is_used()) else { return };
        set.fib_changed = false;
        let (handle, is_held) = (set.fib_handle.take(), set.is_held());
        if let Some(handle) = handle {
            self.fib.release(handle, (self.tables.v4.log.end(), self.tables.v6.log.end()));
        }
        if is_held {
            return;
        }
        let Some(set) = self.store.sets.remove(id) else { return };
        set.unresolved_gateways().for_each(|gateway| self.tracker.remove_set(gateway, id));
    }
}

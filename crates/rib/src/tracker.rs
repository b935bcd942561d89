//! Which answers may change when a prefix does.
//!
//! Every address whose way out somebody relies on (a gateway of a set of next hops, an address in which a client has
//! registered interest) is tracked with the addresses that were looked up for it. A change of an internal route
//! finds the tracked addresses inside its prefix and marks those whose answer could rest on it; nothing is scanned.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use holdfast_types::Prefix;
use smallvec::SmallVec;

use crate::{nexthops::NexthopSetId, register::WatchId, resolve::Visits, tables::last_address};

pub(crate) type TrackedId = u32;

#[derive(Debug)]
pub(crate) struct Tracked {
    pub(crate) address: IpAddr,
    /// Sets that have this gateway.
    pub(crate) sets: SmallVec<[NexthopSetId; 2]>,
    /// The registered range that this address stands for.
    pub(crate) watch: Option<WatchId>,
    visits: Visits,
    is_dirty: bool,
}

#[derive(Debug, Default)]
pub(crate) struct Tracker {
    slots: Vec<Option<Tracked>>,
    free: Vec<TrackedId>,
    by_address: BTreeMap<IpAddr, TrackedId>,
    /// Addresses looked up, with those for whom.
    visits: BTreeSet<(IpAddr, TrackedId)>,
    dirty: Vec<TrackedId>,
    /// Sets to be resolved again.
    pub(crate) dirty_sets: Vec<NexthopSetId>,
}

impl Tracker {
    pub(crate) fn get(&self, id: TrackedId) -> Option<&Tracked> {
        self.slots.get(id as usize)?.as_ref()
    }

    pub(crate) fn get_mut(&mut self, id: TrackedId) -> Option<&mut Tracked> {
        self.slots.get_mut(id as usize)?.as_mut()
    }

    /// The tracked address, new and dirty if it was not tracked.
    pub(crate) fn track(&mut self, address: IpAddr) -> TrackedId {
        if let Some(&id) = self.by_address.get(&address) {
            return id;
        }
        let tracked =
            Tracked { address, sets: SmallVec::new(), watch: None, visits: Visits::new(), is_dirty: false };
        let id = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            self.slots.len() as TrackedId - 1
        });
        self.slots[id as usize] = Some(tracked);
        self.by_address.insert(address, id);
        self.mark_one(id);
        id
    }

    pub(crate) fn add_set(&mut self, gateway: IpAddr, set: NexthopSetId) {
        let id = self.track(gateway);
        if let Some(tracked) = self.get_mut(id).filter(|tracked| !tracked.sets.contains(&set)) {
            tracked.sets.push(set);
        }
    }

    pub(crate) fn remove_set(&mut self, gateway: IpAddr, set: NexthopSetId) {
        let Some(&id) = self.by_address.get(&gateway) else { return };
        if let Some(tracked) = self.get_mut(id) {
            tracked.sets.retain(|other| *other != set);
        }
        self.untrack_if_unused(id);
    }

    pub(crate) fn untrack_if_unused(&mut self, id: TrackedId) {
        let unused = |tracked: &&Tracked| tracked.sets.is_empty() && tracked.watch.is_none();
        let Some(address) = self.get(id).filter(unused).map(|tracked| tracked.address) else { return };
        self.rests_on(id, Visits::new());
        self.by_address.remove(&address);
        self.slots[id as usize] = None;
        self.free.push(id);
    }

    /// The answer now rests on these lookups.
    pub(crate) fn rests_on(&mut self, id: TrackedId, visits: Visits) {
        let Some(tracked) = self.slots.get_mut(id as usize).and_then(Option::as_mut) else { return };
        for &(address, _) in &tracked.visits {
            self.visits.remove(&(address, id));
        }
        self.visits.extend(visits.iter().map(|&(address, _)| (address, id)));
        tracked.visits = visits;
    }

    /// Marks the answers that may rest on a route of this prefix.
    pub(crate) fn mark(&mut self, prefix: Prefix) {
        let length = prefix.length();
        let inside = (prefix.address(), 0)..=(last_address(prefix), TrackedId::MAX);
        for &(address, id) in self.visits.range(inside) {
            let Some(Some(tracked)) = self.slots.get_mut(id as usize) else { continue };
            let rests = tracked.visits.iter().any(|&(visited, found)| visited == address && found <= length);
            if rests && !std::mem::replace(&mut tracked.is_dirty, true) {
                self.dirty.push(id);
            }
        }
    }

    pub(crate) fn mark_all(&mut self) {
        (0..self.slots.len() as TrackedId).for_each(|id| self.mark_one(id));
    }

    fn mark_one(&mut self, id: TrackedId) {
        if let Some(tracked) = self.get_mut(id)
            && !std::mem::replace(&mut tracked.is_dirty, true)
        {
            self.dirty.push(id);
        }
    }

    pub(crate) fn next_dirty(&mut self) -> Option<TrackedId> {
        while let Some(id) = self.dirty.pop() {
            // The slot may have been given up, even to another address, since.
            if let Some(tracked) = self.get_mut(id)
                && std::mem::take(&mut tracked.is_dirty)
            {
                return Some(id);
            }
        }
        None
    }
}

//! The sets of next hops in use, with what they resolve to.

use hashbrown::HashTable;
use holdfast_types::HashKey;
use std::{hash::BuildHasher, net::IpAddr};

use crate::{
    nexthop::{Nexthop, NexthopSet, Nexthops, Resolution},
    origin::OriginId,
};

/// Number of a set of next hops. It is valid until [`Rib::release_nexthops`](crate::Rib::release_nexthops), and
/// inside the table for as long as a route uses the set.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct NexthopSetId(pub(crate) u32);

/// Whether the routes of a set have to be visited because the set has become usable or unusable.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Flip {
    No,
    /// The next walk will visit them.
    Waiting,
    /// The walk that goes on now visits them.
    Walking,
}

#[derive(Debug)]
pub(crate) struct Set {
    pub(crate) origin: OriginId,
    pub(crate) nexthops: NexthopSet,
    pub(crate) backups: Vec<Nexthop>,
    pub(crate) resolution: Resolution,
    /// Of the backups.
    pub(crate) backup: Resolution,
    /// What the forwarding engine has instead of the resolution, as neighbours have failed.
    pub(crate) detour: Option<Resolution>,
    pub(crate) flip: Flip,
    /// The number by which the forwarding engine knows it.
    pub(crate) fib_handle: Option<u32>,
    /// Is in the list of those whose definition has to be sent again.
    pub(crate) fib_changed: bool,
    /// Paths that use it.
    users: u32,
    /// The origin names it by its number.
    is_held: bool,
}

impl Set {
    /// Whether a path uses the set.
    pub(crate) fn is_used(&self) -> bool {
        self.users > 0
    }

    /// Whether the origin names the set.
    pub(crate) fn is_held(&self) -> bool {
        self.is_held
    }

    /// The gateways whose way out has to be found.
    pub(crate) fn unresolved_gateways(&self) -> impl Iterator<Item = IpAddr> + '_ {
        let members = self.nexthops.as_slice().iter().chain(&self.backups);
        members.filter(|member| member.interface.is_none()).filter_map(|member| member.gateway)
    }

    fn content(&self) -> (OriginId, &NexthopSet, &[Nexthop]) {
        (self.origin, &self.nexthops, &self.backups)
    }

    /// How many next hops it counts for.
    fn members(&self) -> usize {
        self.nexthops.members() + self.backups.len()
    }
}

#[derive(Debug)]
pub(crate) struct Sets {
    slots: Vec<Option<Set>>,
    free: Vec<u32>,
    index: HashTable<u32>,
    key: HashKey,
    /// Members of the sets of each origin.
    members: Vec<usize>,
}

impl Sets {
    pub(crate) fn new(key: HashKey) -> Self {
        Self { slots: Vec::new(), free: Vec::new(), index: HashTable::new(), key, members: Vec::new() }
    }

    pub(crate) fn get(&self, id: NexthopSetId) -> Option<&Set> {
        self.slots.get(id.0 as usize)?.as_ref()
    }

    pub(crate) fn get_mut(&mut self, id: NexthopSetId) -> Option<&mut Set> {
        self.slots.get_mut(id.0 as usize)?.as_mut()
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Set> {
        self.slots.iter_mut().flatten()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (NexthopSetId, &Set)> {
        let numbered = (0..).zip(&self.slots);
        numbered.filter_map(|(id, set)| Some((NexthopSetId(id), set.as_ref()?)))
    }

    pub(crate) fn ids(&self) -> impl Iterator<Item = NexthopSetId> + use<> {
        (0..self.slots.len() as u32).map(NexthopSetId)
    }

    pub(crate) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Members and backups of all sets of an origin.
    pub(crate) fn members_of(&self, origin: OriginId) -> usize {
        self.members.get(usize::from(origin.0)).copied().unwrap_or(0)
    }

    pub(crate) fn is_usable(&self, id: NexthopSetId) -> bool {
        self.get(id).is_some_and(|set| set.resolution.is_usable())
    }

    /// A set with this content that nobody holds: one that routes of an earlier life use.
    pub(crate) fn find_unheld(&self, origin: OriginId, nexthops: &Nexthops) -> Option<NexthopSetId> {
        let content = (origin, &nexthops.set, &*nexthops.backups);
        let hash = self.key.hash_one(content);
        let equal = |&id: &u32| {
            let set = self.slots[id as usize].as_ref();
            set.is_some_and(|set| !set.is_held && set.content() == content)
        };
        self.index.find(hash, equal).map(|&id| NexthopSetId(id))
    }

    /// Stores a set. Nobody uses or holds it yet.
    pub(crate) fn add(&mut self, origin: OriginId, nexthops: Nexthops) -> NexthopSetId {
        let Nexthops { set, backups } = nexthops;
        let set = Set {
            origin,
            nexthops: set,
            backups,
            resolution: Resolution::Unresolved,
            backup: Resolution::Unresolved,
            detour: None,
            flip: Flip::No,
            fib_handle: None,
            fib_changed: false,
            users: 0,
            is_held: false,
        };
        let id = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            self.slots.len() as u32 - 1
        });
        self.slots[id as usize] = Some(set);
        self.add_to_index(id);
        NexthopSetId(id)
    }

    /// Gives the set other next hops.
    pub(crate) fn change(&mut self, id: NexthopSetId, nexthops: Nexthops) {
        self.remove_from_index(id.0);
        if let Some(set) = self.get_mut(id) {
            (set.nexthops, set.backups) = (nexthops.set, nexthops.backups);
        }
        self.add_to_index(id.0);
    }

    pub(crate) fn hold(&mut self, id: NexthopSetId) {
        if let Some(set) = self.get_mut(id) {
            set.is_held = true;
        }
    }

    pub(crate) fn unhold(&mut self, id: NexthopSetId) {
        if let Some(set) = self.get_mut(id) {
            set.is_held = false;
        }
    }

    pub(crate) fn retain(&mut self, id: NexthopSetId) {
        if let Some(set) = self.get_mut(id) {
            set.users += 1;
        }
    }

    /// One path less uses the set. Returns whether no path is left.
    pub(crate) fn release(&mut self, id: NexthopSetId) -> bool {
        self.get_mut(id).is_some_and(|set| {
            set.users = set.users.saturating_sub(1);
            set.users == 0
        })
    }

    pub(crate) fn remove(&mut self, id: NexthopSetId) -> Option<Set> {
        self.remove_from_index(id.0);
        let set = self.slots.get_mut(id.0 as usize)?.take()?;
        self.free.push(id.0);
        Some(set)
    }

    fn add_to_index(&mut self, id: u32) {
        let (slots, hasher) = (&self.slots, &self.key);
        let hash = |&id: &u32| {
            let set = slots[id as usize].as_ref();
            set.map_or(0, |set| hasher.hash_one(set.content()))
        };
        self.index.insert_unique(hash(&id), id, hash);
        let Some(Some(set)) = self.slots.get(id as usize) else { return };
        let (origin, members) = (usize::from(set.origin.0), set.members());
        self.members.resize(self.members.len().max(origin + 1), 0);
        self.members[origin] += members;
    }

    fn remove_from_index(&mut self, id: u32) {
        let Some(Some(set)) = self.slots.get(id as usize) else { return };
        let hash = self.key.hash_one(set.content());
        if let Ok(entry) = self.index.find_entry(hash, |&other| other == id) {
            entry.remove();
            self.members[usize::from(set.origin.0)] -= set.members();
        }
    }

    pub(crate) fn memory(&self) -> usize {
        self.slots.capacity() * size_of::<Option<Set>>() + (self.free.capacity() + self.index.capacity()) * 4
    }
}

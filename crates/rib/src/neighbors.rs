//! Neighbours to which packets do not arrive, and the ways around them.
//!
//! That a neighbour has failed changes no route and no answer: the protocols whose neighbour it is decide about those. Only
//! what the forwarding engine has of a set of next hops is another: the members that still work, or, where none does, the
//! backups of the set. So it costs one message for each set, however many routes use it, and no walk.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use crate::{
    Rib,
    nexthop::{Nexthop, Resolution, ResolvedNexthop},
    nexthops::{NexthopSetId, Set},
};

/// A neighbour of which is said whether packets to it arrive.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Neighbor {
    /// Its address.
    pub address: IpAddr,
    /// The kernel's number of the interface where it is; 0 stands for all.
    pub interface: u32,
}

/// The neighbours that have failed.
#[derive(Debug, Default)]
pub(crate) struct Failed(BTreeSet<Neighbor>);

impl Failed {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns whether that is new.
    fn set(&mut self, neighbor: Neighbor, has_failed: bool) -> bool {
        if has_failed { self.0.insert(neighbor) } else { self.0.remove(&neighbor) }
    }

    /// Whether the origin itself has named a neighbour that has failed. Where it names an interface as well, the resolved
    /// way tells.
    pub(crate) fn names(&self, member: &Nexthop) -> bool {
        let gateway = member.gateway.filter(|_| member.interface.is_none());
        gateway.is_some_and(|address| {
            let all = |interface| Neighbor { address, interface };
            self.0.range(all(0)..=all(u32::MAX)).next().is_some()
        })
    }

    fn blocks(&self, way: &ResolvedNexthop) -> bool {
        way.gateway.is_some_and(|address| {
            let at = |interface| self.0.contains(&Neighbor { address, interface });
            at(0) || at(way.interface)
        })
    }

    /// What is left of a resolution.
    pub(crate) fn without(&self, resolution: Resolution) -> Resolution {
        let Resolution::Forward(mut ways) = resolution else { return resolution };
        ways.retain(|way| !self.blocks(way));
        if ways.is_empty() { Resolution::Unresolved } else { Resolution::Forward(ways) }
    }
}

impl Set {
    /// What the forwarding engine is to have.
    pub(crate) fn forwarding(&self) -> &Resolution {
        self.detour.as_ref().unwrap_or(&self.resolution)
    }

    /// Whether the state of one of these neighbours can matter to it.
    fn mentions(&self, neighbors: &BTreeSet<IpAddr>) -> bool {
        let ways = self.resolution.members().iter().chain(self.backup.members());
        let mut gateways = ways.filter_map(|way| way.gateway).chain(self.unresolved_gateways());
        gateways.any(|gateway| neighbors.contains(&gateway))
    }
}

/// Neighbours that fail.
impl Rib {
    /// Packets to these neighbours do not arrive any more (`true`), or do so again. Sets of next hops that lead to them are
    /// defined anew for the forwarding engine: [`Self::poll_fib_at_once`]. Winners, registered answers and what is
    /// redistributed stay.
    pub fn neighbors_failed(&mut self, changes: impl IntoIterator<Item = (Neighbor, bool)>) {
        let changed = changes.into_iter().filter(|(neighbor, failed)| self.failed.set(*neighbor, *failed));
        let changed: BTreeSet<IpAddr> = changed.map(|(neighbor, _)| neighbor.address).collect();
        if changed.is_empty() {
            return;
        }
        let sets = self.store.sets.iter();
        let touched: Vec<_> = sets.filter(|(_, set)| set.mentions(&changed)).map(|(id, _)| id).collect();
        for id in touched {
            if self.resolve_set(id) {
                self.fib.hurry(&self.store, id);
            }
        }
    }

    /// The neighbours that have failed.
    pub fn failed_neighbors(&self) -> impl Iterator<Item = Neighbor> {
        self.failed.0.iter().copied()
    }

    /// Handles that lead elsewhere because neighbours have failed, or work again, since this was asked last. They need not
    /// wait for batches that are under way. [`Self::poll_fib`] says the same again in its order, so that a definition in one
    /// of those does not stay. To be asked before `poll_fib`, or it has said it already.
    pub fn poll_fib_at_once(&mut self) -> BTreeMap<u32, Resolution> {
        self.fib.take_hurried(&self.store)
    }

    /// The way around neighbours that have failed: members that work, else backups that do. `None`: there is none, or none
    /// is needed.
    pub(crate) fn detour(&self, id: NexthopSetId, resolution: &Resolution) -> Option<Resolution> {
        let set = self.store.sets.get(id).filter(|_| !self.failed.is_empty() && forwards(resolution))?;
        let left = self.view().around(set.nexthops.as_slice(), &self.failed);
        if left == *resolution {
            return None;
        }
        let backups = || self.view().around(&set.backups, &self.failed);
        Some(left).filter(forwards).or_else(|| Some(backups()).filter(forwards))
    }
}

fn forwards(way: &Resolution) -> bool {
    matches!(way, Resolution::Forward(_))
}

//! Recursive resolution: from the gateway that a route names to the neighbour and interface that lead there.
//!
//! Only internal routes resolve: a route learned from outside can then never pull another route's next hop away.
//! An address is looked up longest match first. A route that leads nowhere is passed over, and so is one whose own
//! gateways are being looked up already (a route never resolves itself): the next shorter one is tried. At most
//! [`MAX_DEPTH`] gateways follow each other and [`MAX_LOOKUPS`] lookups make an answer; what needs more is
//! unresolved. The answer depends on the tables and interfaces only, never on the order in which they changed.

use std::net::IpAddr;

use holdfast_types::Prefix;
use smallvec::SmallVec;

use crate::{
    interface::Interfaces,
    neighbors::Failed,
    nexthop::{Nexthop, NexthopSet, Resolution, ResolvedNexthop},
    path::PathId,
    store::Store,
    tables::Tables,
};

/// Most gateways that follow each other from a route to the wire.
pub const MAX_DEPTH: usize = 8;

/// Most lookups for one answer. Reached only by routes that share their load among many gateways at each step.
pub const MAX_LOOKUPS: usize = 256;

/// Addresses that were looked up for an answer, each with the length of what was found (0 if nothing). Changes of
/// shorter prefixes cannot alter the answer.
pub(crate) type Visits = SmallVec<[(IpAddr, u8); 2]>;

/// A route that leads somewhere.
pub(crate) struct Found {
    pub(crate) prefix: Prefix,
    pub(crate) path: PathId,
    /// A member without a gateway: the address itself is the neighbour.
    pub(crate) resolution: Resolution,
}

/// An answer and what it rests on.
pub(crate) struct Evaluation {
    pub(crate) found: Option<Found>,
    pub(crate) visits: Visits,
    /// The address was met again on the way: other addresses may have other answers.
    pub(crate) met_itself: bool,
}

/// Everything that resolution reads.
#[derive(Copy, Clone)]
pub(crate) struct View<'a> {
    pub(crate) tables: &'a Tables,
    pub(crate) store: &'a Store,
    pub(crate) interfaces: &'a Interfaces,
    pub(crate) via_default: bool,
}

impl<'a> View<'a> {
    /// How an address is reached.
    pub(crate) fn evaluate(self, address: IpAddr) -> Evaluation {
        let mut search = Search::new(self);
        let found = search.lookup(address);
        Evaluation { found, visits: search.visits, met_itself: search.met_itself }
    }

    /// What a set of next hops leads to.
    pub(crate) fn resolve(self, nexthops: &NexthopSet) -> Resolution {
        Search::new(self).set(nexthops)
    }

    /// What these members lead to without neighbours that have failed.
    pub(crate) fn around(self, members: &[Nexthop], failed: &Failed) -> Resolution {
        let (mut search, mut all) = (Search::new(self), Resolution::Unresolved);
        let left = members.iter().filter(|member| !failed.names(member));
        left.for_each(|member| all.join(failed.without(search.member(member))));
        all
    }

    /// What backups lead to.
    pub(crate) fn members(self, members: &[Nexthop]) -> Resolution {
        Search::new(self).members(members)
    }
}

struct Search<'a> {
    view: View<'a>,
    /// Addresses being looked up, outermost first.
    stack: SmallVec<[IpAddr; MAX_DEPTH]>,
    visits: Visits,
    met_itself: bool,
    lookups_left: usize,
}

impl<'a> Search<'a> {
    fn new(view: View<'a>) -> Self {
        let (stack, visits) = (SmallVec::new(), SmallVec::new());
        Self { view, stack, visits, met_itself: false, lookups_left: MAX_LOOKUPS }
    }

    fn lookup(&mut self, address: IpAddr) -> Option<Found> {
        self.lookups_left = self.lookups_left.checked_sub(1)?;
        self.stack.push(address);
        let found = self.longest_usable(address);
        self.stack.pop();
        self.visits.push((address, found.as_ref().map_or(0, |found| found.prefix.length())));
        found
    }

    fn longest_usable(&mut self, address: IpAddr) -> Option<Found> {
        let store = self.view.store;
        for (prefix, row) in self.view.tables.internal_rows(address).into_iter().rev() {
            if prefix.length() == 0 && !self.view.via_default {
                continue;
            }
            for &path in store.paths(&Some(row)) {
                let resolution = self.path(path);
                if resolution.is_usable() {
                    return Some(Found { prefix, path, resolution });
                }
            }
        }
        None
    }

    fn path(&mut self, path: PathId) -> Resolution {
        let store = self.view.store;
        let set = store.sets.get(store.path(path).nexthops).filter(|_| store.may_use(path));
        set.map_or(Resolution::Unresolved, |set| self.set(&set.nexthops))
    }

    fn set(&mut self, nexthops: &NexthopSet) -> Resolution {
        match nexthops {
            NexthopSet::Blackhole => Resolution::Blackhole,
            NexthopSet::Unreachable => Resolution::Unreachable,
            NexthopSet::Forward(members) => self.members(members),
        }
    }

    fn members(&mut self, members: &[Nexthop]) -> Resolution {
        let mut all = Resolution::Unresolved;
        members.iter().for_each(|member| all.join(self.member(member)));
        all
    }

    fn member(&mut self, member: &Nexthop) -> Resolution {
        match (&member.interface, member.gateway) {
            (Some(interface), gateway) => {
                let direct = |interface| ResolvedNexthop { gateway, interface, weight: member.weight.max(1) };
                let index = self.view.interfaces.usable(interface);
                index.map_or(Resolution::Unresolved, |index| Resolution::Forward([direct(index)].into()))
            }
            (None, Some(gateway)) => self.gateway(gateway).through(gateway, member.weight),
            (None, None) => Resolution::Unresolved,
        }
    }

    fn gateway(&mut self, gateway: IpAddr) -> Resolution {
        self.met_itself |= self.stack.first() == Some(&gateway);
        if self.stack.len() == MAX_DEPTH || self.stack.contains(&gateway) {
            return Resolution::Unresolved;
        }
        self.lookup(gateway).map_or(Resolution::Unresolved, |found| found.resolution)
    }
}

//! The model: maps, and functions that read them from scratch.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use holdfast_rib::{
    Interface, InterfaceRef, MAX_DEPTH, Neighbor, Nexthop, NexthopSet, Nexthops, Resolution, ResolvedNexthop,
};
use holdfast_types::Prefix;

use super::ORIGINS;

pub(crate) const CONNECTED: usize = ORIGINS.len();

#[derive(Clone, Debug)]
pub(crate) struct ModelRoute {
    /// Into [`Model::handles`].
    pub(crate) handle: usize,
    pub(crate) metric: u32,
    pub(crate) distance: u8,
    pub(crate) life: u32,
    pub(crate) source: u32,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Winner {
    pub(crate) origin: usize,
    pub(crate) metric: u32,
    pub(crate) nexthops: NexthopSet,
    pub(crate) resolution: Resolution,
    /// The same as neighbours have failed.
    pub(crate) forwarding: Resolution,
}

#[derive(Debug, Default)]
pub(crate) struct Model {
    pub(crate) interfaces: BTreeMap<u32, Interface>,
    pub(crate) routes: BTreeMap<(Prefix, usize), ModelRoute>,
    pub(crate) handles: Vec<Nexthops>,
    pub(crate) failed: BTreeSet<Neighbor>,
    pub(crate) via_default: bool,
}

fn name(origin: usize) -> &'static str {
    ORIGINS.get(origin).map_or("connected", |origin| origin.0)
}

pub(crate) fn is_internal(origin: usize) -> bool {
    ORIGINS.get(origin).is_none_or(|origin| origin.1)
}

struct Candidate {
    prefix: Prefix,
    origin: usize,
    distance: u8,
    metric: u32,
    nexthops: Nexthops,
}

impl Model {
    fn networks(&self) -> BTreeMap<Prefix, u32> {
        let mut networks = BTreeMap::new();
        for interface in self.interfaces.values().filter(|interface| interface.up) {
            for network in interface.addresses.iter().filter_map(|address| address.network()) {
                networks.entry(network).or_insert(interface.index);
            }
        }
        networks
    }

    /// Every route of every origin, most preferred first.
    fn candidates(&self) -> Vec<Candidate> {
        let connected = self.networks().into_iter().map(|(prefix, index)| {
            let nexthops = NexthopSet::Forward(vec![Nexthop::on(InterfaceRef::Index(index))]);
            Candidate { prefix, origin: CONNECTED, distance: 0, metric: 0, nexthops: nexthops.into() }
        });
        let others = self.routes.iter().map(|(&(prefix, origin), route)| Candidate {
            prefix,
            origin,
            distance: route.distance,
            metric: route.metric,
            nexthops: self.handles[route.handle].clone(),
        });
        let mut all: Vec<_> = connected.chain(others).collect();
        all.sort_by_key(|candidate| (candidate.distance, candidate.metric, name(candidate.origin)));
        all
    }

    /// The internal route for an address: its prefix, metric and resolution.
    pub(crate) fn evaluate(&self, address: IpAddr) -> Option<(Prefix, u32, Resolution)> {
        self.lookup(address, &mut vec![])
    }

    fn lookup(&self, address: IpAddr, stack: &mut Vec<IpAddr>) -> Option<(Prefix, u32, Resolution)> {
        stack.push(address);
        let mut covering = self.candidates();
        covering.retain(|c| is_internal(c.origin) && c.prefix.contains_address(address) && c.distance != 255);
        covering.retain(|c| self.via_default || c.prefix.length() > 0);
        covering.sort_by_key(|c| std::cmp::Reverse(c.prefix.length()));
        let found = covering.into_iter().find_map(|candidate| {
            let resolution = self.resolve_in(&candidate.nexthops.set, stack);
            resolution.is_usable().then_some((candidate.prefix, candidate.metric, resolution))
        });
        stack.pop();
        found
    }

    pub(crate) fn resolve(&self, nexthops: &NexthopSet) -> Resolution {
        self.resolve_in(nexthops, &mut vec![])
    }

    fn resolve_in(&self, nexthops: &NexthopSet, stack: &mut Vec<IpAddr>) -> Resolution {
        let members = match nexthops {
            NexthopSet::Blackhole => return Resolution::Blackhole,
            NexthopSet::Unreachable => return Resolution::Unreachable,
            NexthopSet::Forward(members) => members,
        };
        together(members.iter().map(|member| self.member(member, stack)).collect())
    }

    /// What the kernel is to have of next hops that lead to `resolution`.
    fn forwarding(&self, nexthops: &Nexthops, resolution: &Resolution) -> Resolution {
        let Resolution::Forward(_) = resolution else { return resolution.clone() };
        let NexthopSet::Forward(members) = &nexthops.set else { return resolution.clone() };
        let ways = [members, &nexthops.backups].map(|members| self.working(members));
        ways.into_iter().find(|way| !way.members().is_empty()).unwrap_or_else(|| resolution.clone())
    }

    /// What is left of members as neighbours have failed.
    fn working(&self, members: &[Nexthop]) -> Resolution {
        let is_named = |member: &Nexthop| {
            let named = |failed: &Neighbor| Some(failed.address) == member.gateway;
            member.interface.is_none() && self.failed.iter().any(named)
        };
        let left = members.iter().filter(|member| !is_named(member));
        let parts = left.map(|member| match self.member(member, &mut vec![]) {
            Resolution::Forward(ways) => {
                let works = |way: &ResolvedNexthop| {
                    !self.failed.iter().any(|failed| {
                        let here = [0, way.interface].contains(&failed.interface);
                        here && Some(failed.address) == way.gateway
                    })
                };
                let left = ways.into_iter().filter(works).collect::<Vec<_>>();
                if left.is_empty() { Resolution::Unresolved } else { Resolution::Forward(left.into()) }
            }
            other => other,
        });
        together(parts.collect())
    }

    fn member(&self, member: &Nexthop, stack: &mut Vec<IpAddr>) -> Resolution {
        if let Some(interface) = &member.interface {
            let found = self.interfaces.values().find(|i| match interface {
                InterfaceRef::Index(index) => i.index == *index,
                InterfaceRef::Name(name) => i.name == *name,
            });
            return found.filter(|interface| interface.up).map_or(Resolution::Unresolved, |interface| {
                let (gateway, weight) = (member.gateway, member.weight);
                Resolution::Forward([ResolvedNexthop { gateway, interface: interface.index, weight }].into())
            });
        }
        let gateway = member.gateway.expect("no member without both");
        if stack.len() == MAX_DEPTH || stack.contains(&gateway) {
            return Resolution::Unresolved;
        }
        match self.lookup(gateway, stack) {
            None => Resolution::Unresolved,
            Some((_, _, Resolution::Forward(ways))) => {
                let through = ways.into_iter().map(|way| ResolvedNexthop {
                    gateway: Some(way.gateway.unwrap_or(gateway)),
                    weight: way.weight.saturating_mul(member.weight),
                    ..way
                });
                Resolution::Forward(through.collect())
            }
            Some((_, _, other)) => other,
        }
    }

    pub(crate) fn prefixes(&self) -> BTreeSet<Prefix> {
        self.candidates().into_iter().map(|candidate| candidate.prefix).collect()
    }

    /// The winner of every prefix that has one.
    pub(crate) fn winners(&self) -> BTreeMap<Prefix, Winner> {
        let mut winners = BTreeMap::new();
        for candidate in self.candidates().into_iter().filter(|candidate| candidate.distance != 255) {
            let resolution = self.resolve(&candidate.nexthops.set);
            if resolution.is_usable() {
                let forwarding = self.forwarding(&candidate.nexthops, &resolution);
                let Candidate { prefix, origin, metric, nexthops, .. } = candidate;
                let nexthops = nexthops.set;
                winners.entry(prefix).or_insert(Winner { origin, metric, nexthops, resolution, forwarding });
            }
        }
        winners
    }

    /// What the kernel should have from us: the kernel makes connected routes itself.
    pub(crate) fn installed(&self) -> BTreeMap<Prefix, Resolution> {
        let installed = self.winners().into_iter().filter(|(_, winner)| winner.origin != CONNECTED);
        installed.map(|(prefix, winner)| (prefix, winner.forwarding)).collect()
    }

    /// Whether an internal route lies inside a prefix and is not the prefix.
    pub(crate) fn is_overlaid(&self, range: Prefix) -> bool {
        let candidates = self.candidates();
        candidates.iter().any(|c| is_internal(c.origin) && c.prefix != range && range.contains(c.prefix))
    }
}

/// Ways of several members in one. Any that forwards beats those that drop.
fn together(parts: Vec<Resolution>) -> Resolution {
    let mut ways: Vec<ResolvedNexthop> = Vec::new();
    for way in parts.iter().flat_map(Resolution::members) {
        match ways.iter_mut().find(|w| (w.gateway, w.interface) == (way.gateway, way.interface)) {
            Some(same) => same.weight = same.weight.saturating_add(way.weight),
            None => ways.push(*way),
        }
    }
    if ways.is_empty() {
        parts.into_iter().find(Resolution::is_usable).unwrap_or(Resolution::Unresolved)
    } else {
        Resolution::Forward(ways.into_iter().collect())
    }
}

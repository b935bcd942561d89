//! What a sink has heard, against what it must have.

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    net::IpAddr,
};

use anyhow::{Context, Result, ensure};
use holdfast_bgp_wire::{
    Attributes, NextHop, Origin,
    nlri::prefixes,
    update::{AsSets, PeerKind, Rules, cut, sections},
};
use holdfast_lab::table::Table;
use holdfast_types::{Asn, Ipv4Prefix, Ipv6Prefix, Prefix};

use crate::load::updates;

/// The attributes that every router passes on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Route {
    pub(crate) origin: Option<Origin>,
    pub(crate) path: Vec<Asn>,
    /// `None` in what a feeder has: the router puts in its own.
    pub(crate) next_hop: Option<IpAddr>,
    pub(crate) communities: BTreeSet<u32>,
    pub(crate) large_communities: BTreeSet<(u32, u32, u32)>,
}

impl Route {
    fn read(attributes: Attributes<'_>, next_hop: Option<IpAddr>) -> Self {
        Self {
            origin: attributes.origin(),
            path: attributes.as_path().asns().collect(),
            next_hop,
            communities: attributes.communities().collect(),
            large_communities: attributes.large_communities().collect(),
        }
    }
}

/// The routes of a session after all that came.
#[derive(Debug, Default)]
pub(crate) struct Heard {
    routes: HashMap<Prefix, usize>,
    sets: Vec<Route>,
}

impl Heard {
    /// Reads all messages.
    pub(crate) fn read(octets: &[u8]) -> Result<Self> {
        let mut heard = Self::default();
        let mut rest = Vec::new();
        let rules = Rules::new(PeerKind::Ebgp, AsSets::Accept);
        for body in updates(octets) {
            let sections = sections(body)?;
            let mp = cut(sections.attributes, &mut rest).context("attributes")?.parse(&rules)?;
            heard.withdraw(prefixes::<Ipv4Prefix>(sections.withdrawn).flatten().map(Prefix::V4));
            if let Some(unreach) = mp.unreach {
                heard.withdraw(prefixes::<Ipv6Prefix>(unreach.nlri).flatten().map(Prefix::V6));
            }
            let attributes = Attributes(&rest);
            if !sections.nlri.is_empty() {
                let set = heard.set(attributes, attributes.next_hop().map(IpAddr::V4));
                heard.announce(prefixes::<Ipv4Prefix>(sections.nlri).flatten().map(Prefix::V4), set);
            }
            if let Some(reach) = mp.reach {
                let set = heard.set(attributes, reach.next_hop.map(NextHop::address));
                heard.announce(prefixes::<Ipv6Prefix>(reach.nlri).flatten().map(Prefix::V6), set);
            }
        }
        Ok(heard)
    }

    fn set(&mut self, attributes: Attributes<'_>, next_hop: Option<IpAddr>) -> usize {
        self.sets.push(Route::read(attributes, next_hop));
        self.sets.len() - 1
    }

    fn announce(&mut self, prefixes: impl Iterator<Item = Prefix>, set: usize) {
        self.routes.extend(prefixes.map(|prefix| (prefix, set)));
    }

    fn withdraw(&mut self, prefixes: impl Iterator<Item = Prefix>) {
        prefixes.for_each(|prefix| {
            self.routes.remove(&prefix);
        });
    }

    /// How many routes there are.
    pub(crate) fn len(&self) -> usize {
        self.routes.len()
    }
}

/// What sinks must have: for each prefix the routes that are right, of which any will do.
#[derive(Debug, Default)]
pub(crate) struct Expected {
    routes: HashMap<Prefix, Vec<usize>>,
    sets: Vec<Route>,
}

impl Expected {
    /// The best routes among those of several feeders with these AS numbers: the shortest paths, as far as all
    /// routers agree. The router is `asn`.
    pub(crate) fn best(tables: &[(&Table, Asn)], asn: Asn) -> Self {
        let mut expected = Self::default();
        for (table, feeder) in tables {
            let first = expected.sets.len();
            for set in &table.sets {
                let mut route = Route::read(Attributes(&set.bytes), None);
                route.path.splice(0..0, [asn, *feeder]);
                expected.sets.push(route);
            }
            for (prefix, set) in &table.routes {
                expected.add(*prefix, first + *set as usize);
            }
        }
        expected
    }

    fn add(&mut self, prefix: Prefix, set: usize) {
        let rank = |set: usize| {
            let route = &self.sets[set];
            (route.path.len(), route.origin.map(|origin| origin as u8))
        };
        let (rank_of_new, known) = (rank(set), self.routes.get(&prefix));
        match known.map(|sets| rank_of_new.cmp(&rank(sets[0]))) {
            None | Some(std::cmp::Ordering::Less) => {
                self.routes.insert(prefix, vec![set]);
            }
            Some(std::cmp::Ordering::Equal) => self.routes.entry(prefix).or_default().push(set),
            Some(std::cmp::Ordering::Greater) => {}
        }
    }

    /// Takes out what a policy refuses, and changes what it changes.
    pub(crate) fn apply(&mut self, passes: impl Fn(Prefix, &Route) -> bool, change: impl Fn(&mut Route)) {
        let sets = &self.sets;
        self.routes.retain(|prefix, of| of.iter().any(|set| passes(*prefix, &sets[*set])));
        self.sets.iter_mut().for_each(change);
    }

    /// How many routes there must be.
    pub(crate) fn len(&self) -> usize {
        self.routes.len()
    }

    /// Compares; every next hop must be one of these.
    pub(crate) fn check(&self, heard: &Heard, next_hop: IpAddr) -> Result<()> {
        let missing = || self.routes.keys().find(|prefix| !heard.routes.contains_key(prefix));
        let surplus = || heard.routes.keys().find(|prefix| !self.routes.contains_key(prefix));
        ensure!(
            heard.len() == self.len(),
            "{} routes instead of {}: {:?} is missing, {:?} is too much",
            heard.len(),
            self.len(),
            missing(),
            surplus()
        );
        let mut right: HashSet<(usize, usize)> = HashSet::new();
        for (prefix, set) in &heard.routes {
            let wanted = self.routes.get(prefix).with_context(|| format!("{prefix} is not announced"))?;
            let same = |wanted: &usize| {
                right.contains(&(*set, *wanted)) || {
                    let route = Route { next_hop: Some(next_hop), ..self.sets[*wanted].clone() };
                    heard.sets[*set] == route
                }
            };
            let found = wanted.iter().find(|wanted| same(wanted));
            let found = found.with_context(|| {
                format!("{prefix} came as {:?}, not as {:?}", heard.sets[*set], self.sets[wanted[0]])
            })?;
            right.insert((*set, *found));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use holdfast_lab::table::Synthetic;

    use super::*;
    use crate::feed;

    const ROUTER: Asn = Asn(65_500);
    const FEEDER: Asn = Asn(64_512);

    /// What a sink hears from a router that does its work: its own AS in front, itself as the next hop.
    fn heard(table: &Table) -> Heard {
        let mut longer = table.clone();
        for set in &mut longer.sets {
            let edit = holdfast_bgp_wire::edit::Edit { prepend: &[(FEEDER, 1)], ..Default::default() };
            let mut bytes = Vec::new();
            holdfast_bgp_wire::edit::rewrite(&set.bytes, &edit, &mut bytes);
            set.bytes = bytes;
        }
        Heard::read(&feed::announce(&longer, hop(1), ROUTER).unwrap()).unwrap()
    }

    fn hop(last: u8) -> IpAddr {
        [10, 0, 0, last].into()
    }

    #[test]
    fn only_exactly_the_right_routes_pass() {
        let table = Synthetic::ipv4(1, 500).build();
        let expected = Expected::best(&[(&table, FEEDER)], ROUTER);
        expected.check(&heard(&table), hop(1)).unwrap();
        assert!(expected.check(&heard(&table), hop(2)).is_err(), "another next hop");
        let mut short = table.clone();
        short.truncate(499);
        assert!(expected.check(&heard(&short), hop(1)).is_err(), "one is missing");
        let mut other = table.clone();
        other.routes[7].1 = (other.routes[7].1 + 1) % other.sets.len() as u32;
        assert!(expected.check(&heard(&other), hop(1)).is_err(), "one has other attributes");
        other.routes[7] = ("203.0.113.0/24".parse().unwrap(), table.routes[7].1);
        assert!(expected.check(&heard(&other), hop(1)).is_err(), "another prefix instead");
    }

    #[test]
    fn of_several_feeders_the_shortest_paths_are_right() {
        let mut tables = [Synthetic::ipv4(1, 300).build(), Synthetic::ipv4(2, 300).build()];
        let prefixes: Vec<Prefix> = tables[0].routes.iter().map(|(prefix, _)| *prefix).collect();
        tables[1].routes.iter_mut().zip(prefixes).for_each(|(route, prefix)| route.0 = prefix);
        let expected = Expected::best(&[(&tables[0], FEEDER), (&tables[1], FEEDER)], ROUTER);
        assert_eq!(expected.len(), 300);
        assert!(expected.check(&heard(&tables[0]), hop(1)).is_err(), "not all of the first are best");
    }

    #[test]
    fn a_policy_takes_routes_out_and_changes_others() {
        let table = Synthetic::ipv4(1, 200).build();
        let mut expected = Expected::best(&[(&table, FEEDER)], ROUTER);
        let refused = table.routes[0].0;
        expected.apply(|prefix, _| prefix != refused, |_| {});
        assert_eq!(expected.len(), 199);
        expected.apply(
            |_, _| true,
            |route| {
                route.communities.insert(7);
            },
        );
        let mut rest = table.clone();
        rest.routes.remove(0);
        assert!(expected.check(&heard(&rest), hop(1)).is_err(), "the community is missing");
    }
}

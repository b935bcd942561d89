//! Reading the table.

use std::{collections::BTreeSet, net::IpAddr};

use holdfast_types::{IpPrefix, Prefix};

use crate::{
    Rib,
    family::Row,
    interface::Interface,
    nexthop::{NexthopSet, Resolution},
    nexthops::NexthopSetId,
    origin::{OriginId, OriginKind},
    path::PathId,
    rejected::Reason,
    tables::Routed,
};

/// A route as the operator sees it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ShownRoute {
    /// Its prefix.
    pub prefix: Prefix,
    /// Where it comes from.
    pub origin: OriginId,
    /// Administrative distance.
    pub distance: u8,
    /// Metric inside the origin.
    pub metric: u32,
    /// Tag that the origin gave; 0 is none.
    pub tag: u32,
    /// Whether it wins its prefix.
    pub selected: bool,
    /// Whether the forwarding engine has carried it out, and does not say that the kernel does not have it.
    pub installed: bool,
    /// Whether the forwarding engine gets it, and has not carried it out yet.
    pub requested: bool,
    /// Why the kernel does not have it, if the forwarding engine gets it and says so.
    pub rejected: Option<Reason>,
    /// Left by a life of the origin that has ended.
    pub stale: bool,
    /// Next hops as the origin gave them.
    pub nexthops: NexthopSet,
    /// Next hops as they are used: without neighbours that have failed, where there is a way around them.
    pub resolution: Resolution,
}

/// An origin as the operator sees it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OriginStatus {
    /// Its number.
    pub id: OriginId,
    /// Its name.
    pub name: Box<str>,
    /// Internal or external.
    pub kind: OriginKind,
    /// Routes, stale ones included.
    pub routes: u64,
    /// Whether it lives.
    pub alive: bool,
    /// Whether it has sent all it has, in this life.
    pub told: bool,
    /// And waits for nobody who may have more.
    pub synced: bool,
    /// Whether routes of an earlier life may be left.
    pub has_stale: bool,
}

/// The table in numbers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Status {
    /// Every origin, in the order in which they came.
    pub origins: Vec<OriginStatus>,
    /// Rows of IPv4; a prefix with internal and external routes counts twice.
    pub ipv4_prefixes: u64,
    /// Rows of IPv6.
    pub ipv6_prefixes: u64,
    /// Sets of next hops.
    pub nexthop_sets: u64,
    /// Changes that the forwarding engine has not been given yet.
    pub pending: u64,
    /// Whether the forwarding engine has been given everything once.
    pub fib_synced: bool,
    /// More routes are rejected than are shown as rejected.
    pub rejected_incomplete: bool,
    /// Bytes of tables and what rows refer to.
    pub memory: usize,
}

impl Rib {
    /// The winning route for an address, longest match first.
    pub fn lookup(&self, address: IpAddr) -> Option<ShownRoute> {
        match Prefix::host(address) {
            Prefix::V4(host) => self.longest_winner(host),
            Prefix::V6(host) => self.longest_winner(host),
        }
    }

    fn longest_winner<P: Routed>(&self, host: P) -> Option<ShownRoute> {
        let family = P::tables(&self.tables);
        let mut prefixes: Vec<P> = family
            .internal
            .covering(host)
            .chain(family.external.covering(host))
            .map(|entry| entry.0)
            .collect();
        prefixes.sort_unstable_by_key(|prefix| std::cmp::Reverse(prefix.length()));
        let mut rows = prefixes.into_iter().map(|prefix| family.row(prefix));
        let mut found = rows
            .find_map(|row| row.winner(&self.store).map(|path| self.shown(row.prefix.into(), path, true)));
        self.mark_requested(found.as_mut_slice());
        found
    }

    /// All routes of a prefix, the winner marked.
    pub fn routes_of(&self, prefix: Prefix) -> Vec<ShownRoute> {
        let mut routes = Vec::new();
        match prefix {
            Prefix::V4(prefix) => self.show_row(&self.tables.v4.row(prefix), &mut routes),
            Prefix::V6(prefix) => self.show_row(&self.tables.v6.row(prefix), &mut routes),
        }
        self.mark_requested(&mut routes);
        routes
    }

    /// All routes of the next `limit` prefixes after `after` (`None`: from the start), IPv4 first, in address order.
    /// Fewer than `limit` prefixes: that was all.
    pub fn routes_after(&self, after: Option<Prefix>, limit: usize) -> Vec<ShownRoute> {
        let mut routes = Vec::new();
        let (seen, after_v6) = match after {
            Some(Prefix::V6(prefix)) => (0, Some(prefix)),
            Some(Prefix::V4(prefix)) => (self.show_rows(Some(prefix), limit, &mut routes), None),
            None => (self.show_rows(None::<holdfast_types::Ipv4Prefix>, limit, &mut routes), None),
        };
        self.show_rows(after_v6, limit - seen, &mut routes);
        self.mark_requested(&mut routes);
        routes
    }

    /// Marks those whose last change the forwarding engine has not carried out yet.
    fn mark_requested(&self, routes: &mut [ShownRoute]) {
        let Some((v4, v6)) = self.fib.positions() else { return };
        let shown: BTreeSet<Prefix> = routes.iter().map(|route| route.prefix).collect();
        let v4 = self.tables.v4.log.since(v4).map(|(prefix, _)| Prefix::V4(prefix));
        let v6 = self.tables.v6.log.since(v6).map(|(prefix, _)| Prefix::V6(prefix));
        let changed: BTreeSet<Prefix> = v4.chain(v6).filter(|prefix| shown.contains(prefix)).collect();
        for route in routes.iter_mut().filter(|route| route.installed && changed.contains(&route.prefix)) {
            (route.installed, route.requested) = (false, true);
        }
    }

    fn show_rows<P: Routed>(&self, after: Option<P>, limit: usize, routes: &mut Vec<ShownRoute>) -> usize {
        let rows = P::tables(&self.tables).rows(after).take(limit);
        rows.map(|row| self.show_row(&row, routes)).count()
    }

    fn show_row<P: IpPrefix>(&self, row: &Row<P>, routes: &mut Vec<ShownRoute>) {
        let winner = row.winner(&self.store);
        let shown =
            row.paths(&self.store).map(|path| self.shown(row.prefix.into(), path, Some(path) == winner));
        routes.extend(shown);
    }

    fn shown(&self, prefix: Prefix, id: PathId, selected: bool) -> ShownRoute {
        let path = self.store.path(id);
        let origin = self.store.origin(path.origin);
        let set = self.store.sets.get(path.nexthops);
        let sent = selected && !self.fib.discards && origin.is_some_and(|origin| origin.config.install);
        let rejected = self.why_rejected(prefix, path.nexthops).filter(|_| sent).cloned();
        let is_walked = self.fib.progress().is_some_and(|progress| progress.has_walked(prefix));
        ShownRoute {
            prefix,
            origin: path.origin,
            distance: path.distance,
            metric: path.metric,
            tag: path.tag,
            selected,
            installed: sent && is_walked && rejected.is_none(),
            requested: sent && !is_walked && rejected.is_none(),
            rejected,
            stale: origin.is_some_and(|origin| origin.is_stale(path.generation)),
            nexthops: set.map_or(NexthopSet::Unreachable, |set| set.nexthops.clone()),
            resolution: set.map(|set| set.forwarding().clone()).unwrap_or_default(),
        }
    }

    /// Next hops by their number; `None` when nobody uses the set any more.
    pub fn nexthop_set(&self, id: NexthopSetId) -> Option<&NexthopSet> {
        self.store.sets.get(id).map(|set| &set.nexthops)
    }

    /// The name of an origin.
    pub fn origin_name(&self, id: OriginId) -> &str {
        self.store.origin(id).map_or("", |origin| &origin.name)
    }

    /// The origin of this name.
    pub fn origin_named(&self, name: &str) -> Option<OriginId> {
        let position = self.store.origins.iter().position(|origin| *origin.name == *name)?;
        Some(OriginId(position as u16))
    }

    /// All interfaces, by number.
    pub fn interfaces(&self) -> impl Iterator<Item = &Interface> {
        self.interfaces.iter()
    }

    /// Numbers for the operator.
    pub fn status(&self) -> Status {
        let (v4, v6) = (&self.tables.v4, &self.tables.v6);
        Status {
            origins: self.origin_status().collect(),
            ipv4_prefixes: (v4.internal.len() + v4.external.len()) as u64,
            ipv6_prefixes: (v6.internal.len() + v6.external.len()) as u64,
            nexthop_sets: self.store.sets.len() as u64,
            pending: self.fib.reader.as_ref().map_or(0, |reader| reader.lag(&self.tables)),
            fib_synced: self.fib.is_synced(),
            rejected_incomplete: self.fib.rejected.is_incomplete,
            memory: self.tables.memory() + self.store.memory(),
        }
    }

    fn origin_status(&self) -> impl Iterator<Item = OriginStatus> + '_ {
        self.store.origins.iter().enumerate().map(|(number, origin)| OriginStatus {
            id: OriginId(number as u16),
            name: origin.name.clone(),
            kind: origin.config.kind,
            routes: origin.routes,
            alive: origin.alive,
            told: origin.told,
            synced: origin.synced,
            has_stale: origin.deadline.is_some(),
        })
    }
}

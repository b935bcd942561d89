//! What operators look at.

use std::time::Instant;

use crate::{Counters, Interface, Metric, Neighbour, Origin, Policy, Protocol, Rip, route::Route};

/// Where a route comes from.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Source<P: Protocol> {
    /// The router itself.
    Own(Origin),
    /// A neighbour.
    Learned {
        /// Where it was learned.
        interface: u32,
        /// Who has told it.
        neighbour: P::Address,
        /// Where packets are sent.
        next_hop: P::Address,
        /// Since when it is as it is.
        since: Instant,
        /// When it is lost unless it is repeated.
        expires: Instant,
    },
    /// It is lost; neighbours are told so.
    Garbage {
        /// Since when.
        since: Instant,
        /// When it is forgotten.
        expires: Instant,
    },
}

/// A route, as neighbours are told of it.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct ShownRoute<P: Protocol> {
    /// The destination.
    pub prefix: P::Prefix,
    /// The distance; infinity if it is lost.
    pub metric: Metric,
    /// The Route Tag.
    pub tag: u16,
    /// Where it comes from.
    pub source: Source<P>,
}

/// An interface.
#[derive(Copy, Clone, Debug)]
pub struct ShownInterface<'a, P: Protocol> {
    /// Its number.
    pub id: u32,
    /// As it was described.
    pub interface: &'a Interface<P>,
    /// What has come and gone.
    pub counters: Counters,
    /// The next regular update; `None` if it is passive.
    pub next_update: Option<Instant>,
    /// How many neighbours are known there.
    pub neighbours: usize,
}

/// A neighbour.
#[derive(Copy, Clone, Debug)]
pub struct ShownNeighbour<'a, P: Protocol> {
    /// Where it is.
    pub interface: u32,
    /// Its address there.
    pub address: P::Address,
    /// What it has sent.
    pub neighbour: &'a Neighbour,
}

impl<P: Protocol, Q: Policy<P>> Rip<P, Q> {
    /// All routes, by destination.
    pub fn routes(&self) -> impl Iterator<Item = ShownRoute<P>> {
        self.routes_after(None)
    }

    /// Those from the first destination after one, which need not be there any more.
    pub fn routes_after(&self, prefix: Option<P::Prefix>) -> impl Iterator<Item = ShownRoute<P>> {
        self.table.after(prefix).filter_map(|(prefix, route)| shown(prefix, route))
    }

    /// The route to one destination.
    pub fn route(&self, prefix: P::Prefix) -> Option<ShownRoute<P>> {
        shown(prefix, self.table.get(prefix)?)
    }

    /// How many destinations there are.
    pub fn route_count(&self) -> usize {
        self.table.len()
    }

    /// Whether [`Settings::max_routes`](crate::Settings::max_routes) are there.
    pub fn is_full(&self) -> bool {
        self.table.len() >= self.settings.max_routes
    }

    /// How many routes were ignored because the table was full.
    pub fn ignored_routes(&self) -> u64 {
        self.excess.ignored
    }

    /// All interfaces, by number.
    pub fn interfaces(&self) -> impl Iterator<Item = ShownInterface<'_, P>> {
        self.links.iter().map(|(id, link)| ShownInterface {
            id: *id,
            interface: &link.config,
            counters: link.counters,
            next_update: (!link.config.passive).then_some(link.regular),
            neighbours: link.neighbours.iter().len(),
        })
    }

    /// All neighbours, by interface and address.
    pub fn neighbours(&self) -> impl Iterator<Item = ShownNeighbour<'_, P>> {
        self.neighbours_after(None)
    }

    /// Those after an address on an interface, which need not be there any more.
    pub fn neighbours_after(
        &self,
        after: Option<(u32, P::Address)>,
    ) -> impl Iterator<Item = ShownNeighbour<'_, P>> {
        let links = self.links.range(after.map_or(0, |(id, _)| id)..);
        links.flat_map(move |(id, link)| {
            let after = after.filter(|(last, _)| last == id).map(|(_, address)| address);
            let some = link.neighbours.after(after);
            some.map(|(address, neighbour)| ShownNeighbour { interface: *id, address, neighbour })
        })
    }
}

fn shown<P: Protocol>(prefix: P::Prefix, route: &Route<P>) -> Option<ShownRoute<P>> {
    let told = route.told()?;
    let source = match (route.best_own(), route.learned, route.garbage) {
        (Some(own), _, _) => Source::Own(own.origin),
        (None, Some(learned), _) => Source::Learned {
            interface: learned.interface,
            neighbour: learned.router,
            next_hop: learned.next_hop,
            since: learned.since,
            expires: learned.deadline,
        },
        (None, None, garbage) => {
            let garbage = garbage?;
            Source::Garbage { since: garbage.since, expires: garbage.until }
        }
    };
    Some(ShownRoute { prefix, metric: told.metric, tag: told.tag, source })
}

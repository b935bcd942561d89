//! All destinations, their deadlines, and what has changed.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Bound,
    time::{Duration, Instant},
};

use crate::{
    Protocol,
    route::{Garbage, Learned, Route},
};

/// Every change goes through [`Table::edit`], which keeps the rest in step.
#[derive(Debug)]
pub(crate) struct Table<P: Protocol> {
    routes: BTreeMap<P::Prefix, Route<P>>,
    /// Of each route with a deadline, that deadline.
    deadlines: BTreeSet<(Instant, P::Prefix)>,
    /// The last change of each destination in what neighbours are told.
    changes: BTreeMap<u64, P::Prefix>,
    /// Number of the last change.
    change: u64,
    /// Destinations whose learned route has changed, until the caller is told.
    news: BTreeSet<P::Prefix>,
    garbage: Duration,
}

impl<P: Protocol> Table<P> {
    pub(crate) fn new(garbage: Duration) -> Self {
        Self {
            routes: BTreeMap::new(),
            deadlines: BTreeSet::new(),
            changes: BTreeMap::new(),
            change: 0,
            news: BTreeSet::new(),
            garbage,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.routes.len()
    }

    pub(crate) fn get(&self, prefix: P::Prefix) -> Option<&Route<P>> {
        self.routes.get(&prefix)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (P::Prefix, &Route<P>)> {
        self.routes.iter().map(|(prefix, route)| (*prefix, route))
    }

    /// From the first destination after one.
    pub(crate) fn after(&self, prefix: Option<P::Prefix>) -> impl Iterator<Item = (P::Prefix, &Route<P>)> {
        let from = prefix.map_or(Bound::Unbounded, Bound::Excluded);
        self.routes.range((from, Bound::Unbounded)).map(|(prefix, route)| (*prefix, route))
    }

    /// Number of the last change.
    pub(crate) fn change(&self) -> u64 {
        self.change
    }

    /// Destinations by the number of their last change.
    pub(crate) fn changes(
        &self,
        after: u64,
        until: u64,
    ) -> impl Iterator<Item = (u64, P::Prefix, &Route<P>)> {
        let between = (Bound::Excluded(after), Bound::Included(until.max(after + 1)));
        let changes = self.changes.range(between).filter(move |(change, _)| **change <= until);
        changes.filter_map(|(change, prefix)| Some((*change, *prefix, self.routes.get(prefix)?)))
    }

    /// For how long garbage is left from now on.
    pub(crate) fn set_garbage(&mut self, garbage: Duration) {
        self.garbage = garbage;
    }

    /// Changes a destination, which is made if it is not there. When the last route is lost, garbage is left (RFC 2453 section
    /// 3.8); when that is taken away, the destination is forgotten.
    pub(crate) fn edit(&mut self, now: Instant, prefix: P::Prefix, edit: impl FnOnce(&mut Route<P>)) {
        let route = self.routes.entry(prefix).or_default();
        let (told, learned, deadline) = (route.told(), route.learned, route.deadline());
        edit(route);
        if !route.own.is_empty() || route.learned.is_some() {
            route.garbage = None;
        } else if let Some(told) = told.filter(|told| told.metric.is_reachable()) {
            let until = now + self.garbage;
            route.garbage = Some(Garbage { tag: told.tag, over: told.over, since: now, until });
        }
        if route.deadline() != deadline {
            if let Some(deadline) = deadline {
                self.deadlines.remove(&(deadline, prefix));
            }
            self.deadlines.extend(route.deadline().map(|deadline| (deadline, prefix)));
        }
        if !is_like(learned.as_ref(), route.learned.as_ref()) {
            self.news.insert(prefix);
        }
        let now_told = route.told();
        if now_told != told {
            self.changes.remove(&route.change);
            if now_told.is_some() {
                self.change += 1;
                route.change = self.change;
                self.changes.insert(self.change, prefix);
            }
        }
        if now_told.is_none() {
            self.routes.remove(&prefix);
        }
    }

    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        self.deadlines.first().map(|(deadline, _)| *deadline)
    }

    /// Loses routes that were not repeated, and forgets garbage: at most so many. The others keep a deadline that is over.
    pub(crate) fn expire(&mut self, now: Instant, most: usize) {
        for _ in 0..most {
            let Some(&(_, prefix)) = self.deadlines.first().filter(|(deadline, _)| *deadline <= now) else {
                return;
            };
            self.edit(now, prefix, |route| {
                if route.learned.take().is_none() {
                    route.garbage = None;
                }
            });
        }
    }

    /// A destination whose learned route has changed, and the route if there is one.
    pub(crate) fn pop_news(&mut self) -> Option<(P::Prefix, Option<&Learned<P>>)> {
        let prefix = self.news.pop_first()?;
        Some((prefix, self.routes.get(&prefix).and_then(|route| route.learned.as_ref())))
    }
}

fn is_like<P: Protocol>(one: Option<&Learned<P>>, other: Option<&Learned<P>>) -> bool {
    match (one, other) {
        (Some(one), Some(other)) => one.is_like(other),
        (None, None) => true,
        (Some(_), None) | (None, Some(_)) => false,
    }
}

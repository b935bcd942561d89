//! One destination.

use std::time::Instant;

use crate::{Metric, Protocol};

/// Why the router itself has a route.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Origin {
    /// The network of this interface.
    Connected(u32),
    /// Another protocol's.
    Redistributed,
}

/// A route of the router itself.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct Own {
    pub(crate) origin: Origin,
    pub(crate) metric: Metric,
    pub(crate) tag: u16,
}

/// A route that a neighbour has told; it is reachable.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Learned<P: Protocol> {
    pub(crate) interface: u32,
    /// Who has told it.
    pub(crate) router: P::Address,
    pub(crate) next_hop: P::Address,
    pub(crate) metric: Metric,
    pub(crate) tag: u16,
    /// Since when it is as it is.
    pub(crate) since: Instant,
    /// When it is lost unless it is repeated.
    pub(crate) deadline: Instant,
}

impl<P: Protocol> Learned<P> {
    pub(crate) fn is_from(&self, interface: u32, router: P::Address) -> bool {
        (self.interface, self.router) == (interface, router)
    }

    /// Whether the routing tables of others are the same with either.
    pub(crate) fn is_like(&self, other: &Self) -> bool {
        let key = |it: &Self| (it.interface, it.router, it.next_hop, it.metric, it.tag);
        key(self) == key(other)
    }
}

/// What is left of a route that was lost: neighbours are told so for a time.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct Garbage {
    pub(crate) tag: u16,
    /// Where it was learned, or connected.
    pub(crate) over: Option<u32>,
    pub(crate) since: Instant,
    pub(crate) until: Instant,
}

/// All that is known of a destination. At least one of `own`, `learned` and `garbage` is there between two calls; `garbage`
/// only if neither of the others is.
#[derive(Debug)]
pub(crate) struct Route<P: Protocol> {
    pub(crate) own: Vec<Own>,
    /// Beside a route of our own only if it is shorter: what comes back of what we tell is longer.
    pub(crate) learned: Option<Learned<P>>,
    pub(crate) garbage: Option<Garbage>,
    /// Number of the last change; none has 0.
    pub(crate) change: u64,
}

impl<P: Protocol> Default for Route<P> {
    fn default() -> Self {
        Self { own: Vec::new(), learned: None, garbage: None, change: 0 }
    }
}

/// What neighbours are told of a destination, but for split horizon.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct Told<P: Protocol> {
    pub(crate) metric: Metric,
    pub(crate) tag: u16,
    /// Where packets go.
    pub(crate) over: Option<u32>,
    /// The router on `over`; `None` of what is directly connected or lost.
    pub(crate) next_hop: Option<P::Address>,
}

impl<P: Protocol> Route<P> {
    /// The best of our own.
    pub(crate) fn best_own(&self) -> Option<&Own> {
        self.own.iter().min_by_key(|own| (own.metric, own.origin))
    }

    /// Takes a route of our own, in the place of another one of this origin.
    pub(crate) fn set_own(&mut self, own: Own) {
        self.unset_own(own.origin);
        self.own.push(own);
        self.learned = self.learned.filter(|learned| learned.metric < own.metric);
    }

    pub(crate) fn unset_own(&mut self, origin: Origin) {
        self.own.retain(|own| own.origin != origin);
    }

    /// Routes of our own come first: packets follow them.
    pub(crate) fn told(&self) -> Option<Told<P>> {
        if let Some(own) = self.best_own() {
            let over = match own.origin {
                Origin::Connected(interface) => Some(interface),
                Origin::Redistributed => None,
            };
            return Some(Told { metric: own.metric, tag: own.tag, over, next_hop: None });
        }
        if let Some(learned) = self.learned {
            let (over, next_hop) = (Some(learned.interface), Some(learned.next_hop));
            return Some(Told { metric: learned.metric, tag: learned.tag, over, next_hop });
        }
        let lost = |garbage: Garbage| Told {
            metric: Metric::INFINITY,
            tag: garbage.tag,
            over: garbage.over,
            next_hop: None,
        };
        self.garbage.map(lost)
    }

    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.learned.map(|learned| learned.deadline).or(self.garbage.map(|garbage| garbage.until))
    }
}

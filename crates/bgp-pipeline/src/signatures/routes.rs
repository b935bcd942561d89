//! Routes with BGPsec_PATH, and what is known of their signatures: of each by its source and its prefix.
//!
//! A verdict belongs to prefix and attributes, never to the attributes alone. Signatures cover the prefix, which is cut out
//! before a set is interned: a good attribute that is repeated with another prefix is the same set.

use std::{hash::BuildHasher, time::Instant};

use holdfast_policy::PathSecurity;
use holdfast_types::{HashKey, IpPrefix, Ipv4Prefix, Ipv6Prefix, Prefix};

use super::{counts::SignatureCounts, fault::Fault};
use crate::{
    index::{Index, Indexed},
    path::{SetId, SourceId},
};

/// A route, by who sent it and where it leads: 20 octets, where a [`Prefix`] beside a source takes 64.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct RouteKey {
    source: SourceId,
    is_v6: bool,
    length: u8,
    bits: [u8; 16],
}

impl RouteKey {
    pub(crate) fn new(source: SourceId, prefix: Prefix) -> Self {
        let (is_v6, bits) = match prefix {
            Prefix::V4(prefix) => (false, prefix.bits()),
            Prefix::V6(prefix) => (true, prefix.bits()),
        };
        Self { source, is_v6, length: prefix.length(), bits: bits.to_be_bytes() }
    }

    pub(crate) fn source(&self) -> SourceId {
        self.source
    }

    pub(crate) fn prefix(&self) -> Prefix {
        let bits = u128::from_be_bytes(self.bits);
        match self.is_v6 {
            false => Ipv4Prefix::from_bits(bits, self.length).into(),
            true => Ipv6Prefix::from_bits(bits, self.length).into(),
        }
    }
}

/// What is under way to find out about a route's signatures.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Work {
    /// Nothing.
    Done,
    /// A ticket with this number stands in a queue.
    Queued(u32),
    /// They are being verified, under a number that ends in these 32 bits.
    Asked(u32),
}

/// Routes that there is room for at first.
const FEW: usize = 16;
/// The state is not known.
pub(super) const NEVER: u32 = u32::MAX;

/// A path that waits to replace the path of a route: for the verdict on its signatures, or for the pace of new signatures.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Next {
    /// With a user.
    pub(crate) set: SetId,
    /// It does so then in any case.
    pub(crate) until: Instant,
    /// The verdict on its signatures, with the fault if they are not valid; the same as on the path in the table.
    pub(crate) verdict: Option<(PathSecurity, Option<Fault>)>,
}

/// A route with BGPsec_PATH.
#[derive(Debug)]
pub(crate) struct SignedRoute {
    pub(crate) key: RouteKey,
    /// That of its path in the table.
    pub(crate) set: SetId,
    pub(crate) next: Option<Box<Next>>,
    /// Of the path in the table.
    pub(super) state: PathSecurity,
    pub(crate) work: Work,
    /// Keys that the path in the table names have changed, or were about to be looked at, when another verdict was asked for.
    pub(crate) is_doubted: bool,
    /// Signatures of a block of what is to be verified.
    pub(super) hops: u16,
    /// When the verdict came, or the path if there is no verdict yet; in ticks of [`SignatureTable`](super::SignatureTable).
    pub(crate) at: u32,
    /// Why it is not valid.
    pub(crate) fault: Option<Box<Fault>>,
}

impl SignedRoute {
    /// Of which nothing is known.
    fn new(key: RouteKey, set: SetId) -> Self {
        let (state, work) = (PathSecurity::Unverified, Work::Done);
        Self { key, set, next: None, state, work, is_doubted: false, hops: 0, at: NEVER, fault: None }
    }

    pub(crate) fn state(&self) -> PathSecurity {
        self.state
    }

    pub(crate) fn work(&self) -> Work {
        self.work
    }

    pub(crate) fn hops(&self) -> usize {
        self.hops.into()
    }

    /// The set that is to be verified.
    pub(crate) fn wanted(&self) -> SetId {
        self.next.as_ref().map_or(self.set, |next| next.set)
    }

    fn count(&self, counts: &mut [SignatureCounts], change: impl Fn(&mut u64, u64)) {
        let Some(counts) = counts.get_mut(usize::from(self.key.source.0)) else { return };
        match self.state {
            PathSecurity::Valid => change(&mut counts.valid, 1),
            PathSecurity::NotValid => change(&mut counts.not_valid, 1),
            PathSecurity::Unverified => change(&mut counts.unverified, 1),
            PathSecurity::Unsigned => change(&mut counts.unsigned, 1),
        }
        if self.work != Work::Done {
            change(&mut counts.queued_hops, self.hops.into());
        }
    }
}

/// Where a route is in [`SignedRoutes`], until one is removed.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct Place(u32);

/// All of them, by place: in no order, without gaps.
#[derive(Debug)]
pub(crate) struct SignedRoutes {
    key: HashKey,
    routes: Vec<SignedRoute>,
    /// Of their places, while there are any.
    index: Index<Place>,
    /// How many are unverified.
    unverified: usize,
    /// By source.
    counts: Vec<SignatureCounts>,
}

impl SignedRoutes {
    pub(crate) fn new(key: HashKey) -> Self {
        Self { key, routes: Vec::new(), index: Index::new(), unverified: 0, counts: Vec::new() }
    }

    pub(crate) fn len(&self) -> usize {
        self.routes.len()
    }

    /// How many of them are unverified.
    pub(crate) fn unverified(&self) -> usize {
        self.unverified
    }

    /// What is known of the routes of a source.
    pub(crate) fn counts(&self, source: SourceId) -> SignatureCounts {
        self.counts.get(usize::from(source.0)).copied().unwrap_or_default()
    }

    /// Changes what is counted of a route.
    pub(crate) fn change(
        &mut self,
        place: Place,
        change: impl FnOnce(&mut SignedRoute),
    ) -> Option<&mut SignedRoute> {
        let (route, counts) = (self.routes.get_mut(place.0 as usize)?, &mut self.counts);
        let was_unverified = route.state == PathSecurity::Unverified;
        route.count(counts, |count, one| *count -= one);
        change(route);
        route.count(counts, |count, one| *count += one);
        self.unverified -= usize::from(was_unverified);
        self.unverified += usize::from(route.state == PathSecurity::Unverified);
        Some(route)
    }

    /// The one with this number, of [`Self::len`].
    pub(crate) fn nth(&self, number: usize) -> Option<&SignedRoute> {
        self.routes.get(number)
    }

    pub(crate) fn at(&self, place: Place) -> Option<&SignedRoute> {
        self.routes.get(place.0 as usize)
    }

    pub(crate) fn at_mut(&mut self, place: Place) -> Option<&mut SignedRoute> {
        self.routes.get_mut(place.0 as usize)
    }

    pub(crate) fn get(&self, key: RouteKey) -> Option<&SignedRoute> {
        self.at(self.place(key)?)
    }

    pub(crate) fn get_mut(&mut self, key: RouteKey) -> Option<&mut SignedRoute> {
        self.at_mut(self.place(key)?)
    }

    fn hash(&self, key: RouteKey) -> u32 {
        self.key.hash_one(key) as u32
    }

    /// The slot of a route, the same for all routes with its prefix.
    pub(crate) fn slot(&self, key: RouteKey, slots: u64) -> u64 {
        self.key.hash_one((key.is_v6, key.length, key.bits)) % slots
    }

    /// Where the route is until one is removed.
    pub(crate) fn place(&self, key: RouteKey) -> Option<Place> {
        if self.routes.is_empty() {
            return None;
        }
        self.index.find(self.hash(key), |place| self.at(place).is_some_and(|route| route.key == key))
    }

    /// Adds a route of which nothing is known; none has its key.
    pub(crate) fn add(&mut self, key: RouteKey, set: SetId) -> Place {
        let (hash, number) = (self.hash(key), Place(self.routes.len() as u32));
        self.index.insert(Indexed { hash, number });
        let Self { routes, unverified, counts, .. } = self;
        if routes.len() == routes.capacity() {
            // To double would leave half of it empty.
            routes.reserve_exact((routes.len() / 8).max(FEW));
        }
        let (route, source) = (SignedRoute::new(key, set), usize::from(key.source.0));
        if counts.len() <= source {
            counts.resize(source + 1, SignatureCounts::default());
        }
        route.count(counts, |count, one| *count += one);
        routes.push(route);
        *unverified += 1;
        number
    }

    /// The route that is not there any more.
    pub(crate) fn remove(&mut self, key: RouteKey) -> Option<SignedRoute> {
        let place = self.place(key)?;
        self.index.remove(Indexed { hash: self.hash(key), number: place });
        let last = Place(self.routes.len() as u32 - 1);
        if place != last
            && let Some(moved) = self.at(last)
        {
            let hash = self.hash(moved.key);
            self.index.renumber(Indexed { hash, number: last }, place);
        }
        let removed = self.routes.swap_remove(place.0 as usize);
        self.unverified -= usize::from(removed.state == PathSecurity::Unverified);
        removed.count(&mut self.counts, |count, one| *count -= one);
        if self.routes.is_empty() {
            // What was there has left.
            (self.routes, self.index, self.counts) = (Vec::new(), Index::new(), Vec::new());
        }
        Some(removed)
    }

    /// Octets of memory, without those of the allocator, and without the faults of routes: who asks for the sum does not wait
    /// for a walk over the table.
    pub(crate) fn memory(&self) -> usize {
        let counts = self.counts.capacity() * size_of::<SignatureCounts>();
        self.routes.capacity() * size_of::<SignedRoute>() + self.index.memory() + counts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_a_source_and_a_prefix_of_either_family() {
        for text in ["0.0.0.0/0", "203.0.113.128/25", "::/0", "2001:db8:7::/48", "2001:db8::1/128"] {
            let prefix = text.parse().expect("a prefix");
            let key = RouteKey::new(SourceId(9), prefix);
            assert_eq!((key.source(), key.prefix()), (SourceId(9), prefix));
        }
        assert!(size_of::<SignedRoute>() <= 56, "{}", size_of::<SignedRoute>());
    }

    #[test]
    fn routes_are_found_whatever_came_and_went() {
        let mut routes = SignedRoutes::new(HashKey::new([1, 2]));
        let key = |number: u32| {
            let prefix = format!("10.{}.{}.0/24", number / 256, number % 256).parse().expect("a prefix");
            RouteKey::new(SourceId((number % 7) as u16), prefix)
        };
        for number in 0..1000 {
            routes.add(key(number), SetId(number));
        }
        for number in 0..1000 {
            let place = routes.place(key(number)).expect("there");
            routes.change(place, |route| {
                (route.work, route.hops) = (Work::Queued(number), 3);
                if number < 500 {
                    route.state = PathSecurity::Valid;
                }
            });
        }
        assert_eq!(routes.unverified(), 500);
        let counts = routes.counts(SourceId(2));
        assert_eq!((counts.valid, counts.unverified, counts.queued_hops), (72, 71, 3 * 143));
        let place = routes.place(key(2)).expect("there");
        assert!(routes.change(place, |route| route.work = Work::Done).is_some());
        assert_eq!(routes.counts(SourceId(2)).queued_hops, 3 * 142);
        assert_eq!(routes.counts(SourceId(7)), SignatureCounts::default());
        for number in (0..1000).step_by(3) {
            assert_eq!(routes.remove(key(number)).map(|route| route.set), Some(SetId(number)));
            assert!(routes.remove(key(number)).is_none());
        }
        for number in 0..1000 {
            let expected = (number % 3 != 0).then_some(SetId(number));
            assert_eq!(routes.get(key(number)).map(|route| route.set), expected);
        }
        assert_eq!(routes.len(), 666);
        (0..1000).for_each(|number| drop(routes.remove(key(number))));
        assert_eq!((routes.len(), routes.unverified(), routes.memory()), (0, 0, 0));
    }
}

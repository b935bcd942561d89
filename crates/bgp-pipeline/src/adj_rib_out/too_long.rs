//! Routes that fit no message of a group's sessions, with their attributes. They count as not announced: what was announced of
//! them before is withdrawn.

use std::collections::HashSet;

use holdfast_bgp_wire::nlri::Identified;
use holdfast_types::{HashKey, IpPrefix};

/// Those that one reader of the log has met, of one family: as many at most as the table has.
#[derive(Clone, Debug)]
pub(crate) struct TooLong<P> {
    routes: HashSet<Identified<P>, HashKey>,
}

impl<P: IpPrefix> TooLong<P> {
    pub(super) fn new(key: HashKey) -> Self {
        Self { routes: HashSet::with_hasher(key) }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.routes.is_empty()
    }

    pub(super) fn add(&mut self, route: Identified<P>) {
        self.routes.insert(route);
    }

    /// Whether it is among them; it is not any more.
    pub(super) fn forget(&mut self, route: Identified<P>) -> bool {
        self.routes.remove(&route)
    }

    /// Whether a route is among them; under the identifier 0 where it is told without.
    pub(crate) fn has(&self, route: Identified<P>) -> bool {
        self.routes.contains(&route)
    }

    /// Octets of memory, without those of the allocator.
    pub(crate) fn memory(&self) -> usize {
        self.routes.capacity() * (size_of::<Identified<P>>() + 1)
    }
}

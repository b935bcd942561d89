//! Routes that the forwarding engine was sent and does not have: the kernel refuses them.
//!
//! The engine says which, by handle or one by one, and when that is over. Nothing but what is shown depends on it; and those
//! that are refused one by one are offered again from time to time ([`Rib::fib_offer_again`]).

use std::collections::{BTreeSet, VecDeque};

use holdfast_types::Prefix;

use crate::{Rib, nexthops::NexthopSetId, path::PathId, tables::Routed};

/// Rejected routes, and rejected handles, that are remembered.
pub const MAX_REJECTED: usize = 65_536;

/// What the forwarding engine says of its kernel: differences to what it said before.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Rejections {
    /// Handles of which it has no route, and whether that begins or is over.
    pub handles: Vec<(u32, bool)>,
    /// The same of routes that are refused for themselves.
    pub routes: Vec<(Prefix, bool)>,
    /// There are more than it remembers.
    pub incomplete: bool,
}

#[derive(Debug, Default)]
pub(crate) struct Rejected {
    handles: BTreeSet<u32>,
    routes: BTreeSet<Prefix>,
    /// There are more.
    pub(crate) is_incomplete: bool,
    /// To be offered again.
    again: VecDeque<Prefix>,
}

impl Rejected {
    pub(crate) fn has_handle(&self, handle: u32) -> bool {
        self.handles.contains(&handle)
    }

    pub(crate) fn has_route(&self, prefix: Prefix) -> bool {
        !self.routes.is_empty() && self.routes.contains(&prefix)
    }

    /// The next that is to be offered again.
    pub(crate) fn next_again(&mut self) -> Option<Prefix> {
        self.again.pop_front()
    }
}

/// Puts an entry in or takes it out. Whether it had no room.
fn set<T: Ord>(set: &mut BTreeSet<T>, entry: T, rejected: bool) -> bool {
    let full = rejected && set.len() == MAX_REJECTED && !set.contains(&entry);
    if !rejected {
        set.remove(&entry);
    } else if !full {
        set.insert(entry);
    }
    full
}

impl Rib {
    /// The forwarding engine says what it does not have.
    pub fn fib_rejects(&mut self, rejections: Rejections) {
        let rejected = &mut self.fib.rejected;
        rejected.is_incomplete = rejections.incomplete;
        for (handle, is_rejected) in rejections.handles {
            rejected.is_incomplete |= set(&mut rejected.handles, handle, is_rejected);
        }
        for (prefix, is_rejected) in rejections.routes {
            rejected.is_incomplete |= set(&mut rejected.routes, prefix, is_rejected);
        }
    }

    /// It is another engine: what the one before has said means nothing any more.
    pub fn fib_forget_rejected(&mut self) {
        self.fib.rejected = Rejected::default();
    }

    /// Offers the routes that were rejected one by one to the forwarding engine once more. Whether there are any.
    pub fn fib_offer_again(&mut self) -> bool {
        let Rejected { routes, again, .. } = &mut self.fib.rejected;
        // Those of the last time have not gone yet: the engine is slow.
        if again.is_empty() {
            again.extend(routes.iter().copied());
        }
        !again.is_empty()
    }

    /// What the engine is to have of a prefix that it has rejected.
    pub(crate) fn offered_again(&self, prefix: Prefix) -> Option<NexthopSetId> {
        let path = match prefix {
            Prefix::V4(prefix) => self.installed(prefix),
            Prefix::V6(prefix) => self.installed(prefix),
        };
        path.map(|path| self.store.path(path).nexthops)
    }

    fn installed<P: Routed>(&self, prefix: P) -> Option<PathId> {
        let reader = self.fib.reader.as_ref()?;
        let winner = P::tables(&self.tables).row(prefix).winner(&self.store);
        winner.filter(|path| self.store.path(*path).origin.bit() & reader.origins != 0)
    }

    /// Whether the engine has said that it does not have this route.
    pub(crate) fn is_rejected(&self, prefix: Prefix, nexthops: NexthopSetId) -> bool {
        let handle = self.store.sets.get(nexthops).and_then(|set| set.fib_handle);
        handle.is_some_and(|handle| self.fib.rejected.has_handle(handle))
            || self.fib.rejected.has_route(prefix)
    }
}

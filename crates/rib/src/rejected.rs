//! Routes that the forwarding engine was sent and does not have: the kernel refuses them.
//!
//! The engine says which, by handle or one by one, and when that is over. Nothing but what is shown depends on it; and those
//! that are refused one by one are offered again from time to time ([`Rib::fib_offer_again`]).

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
};

use holdfast_types::Prefix;

use crate::{Rib, nexthops::NexthopSetId, path::PathId, tables::Routed};

/// Rejected routes, and rejected handles, that are remembered.
pub const MAX_REJECTED: usize = 65_536;

/// Why the kernel does not have a route: text for the operator.
pub type Reason = Arc<str>;

/// What the forwarding engine says of its kernel: differences to what it said before.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Rejections {
    /// Handles of which it has no route, and why; `None`: that is over.
    pub handles: Vec<(u32, Option<Reason>)>,
    /// The same of routes that are refused for themselves.
    pub routes: Vec<(Prefix, Option<Reason>)>,
    /// There are more than it remembers.
    pub incomplete: bool,
}

#[derive(Debug, Default)]
pub(crate) struct Rejected {
    handles: BTreeMap<u32, Reason>,
    routes: BTreeMap<Prefix, Reason>,
    /// There are more.
    pub(crate) is_incomplete: bool,
    /// To be offered again.
    again: VecDeque<Prefix>,
}

impl Rejected {
    /// The next that is to be offered again.
    pub(crate) fn next_again(&mut self) -> Option<Prefix> {
        self.again.pop_front()
    }
}

/// Puts an entry in or takes it out. Whether it had no room.
fn set<T: Ord>(map: &mut BTreeMap<T, Reason>, entry: T, reason: Option<Reason>) -> bool {
    let Some(reason) = reason else {
        map.remove(&entry);
        return false;
    };
    let full = map.len() == MAX_REJECTED && !map.contains_key(&entry);
    if !full {
        map.insert(entry, reason);
    }
    full
}

impl Rib {
    /// The forwarding engine says what it does not have.
    pub fn fib_rejects(&mut self, rejections: Rejections) {
        let rejected = &mut self.fib.rejected;
        rejected.is_incomplete = rejections.incomplete;
        for (handle, reason) in rejections.handles {
            rejected.is_incomplete |= set(&mut rejected.handles, handle, reason);
        }
        for (prefix, reason) in rejections.routes {
            rejected.is_incomplete |= set(&mut rejected.routes, prefix, reason);
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
            again.extend(routes.keys().copied());
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

    /// Why the engine does not have this route, if it has said so.
    pub(crate) fn why_rejected(&self, prefix: Prefix, nexthops: NexthopSetId) -> Option<&Reason> {
        let Rejected { handles, routes, .. } = &self.fib.rejected;
        let handle = self.store.sets.get(nexthops).and_then(|set| set.fib_handle);
        handle.and_then(|handle| handles.get(&handle)).or_else(|| routes.get(&prefix))
    }
}

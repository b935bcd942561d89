//! A forwarding plane that forwards nothing.

use std::hash::BuildHasher;

use foldhash::fast::RandomState;
use hashbrown::HashSet;

use crate::{Fib, FibError, Handle, NextHops, Report, RouteChange, TableId};

/// Accepts everything and counts it: for a router that selects and announces only.
///
/// Of each route it keeps a hash of eight octets, so that the number of routes is right after replacements.
#[derive(Debug, Default)]
pub struct NoneFib {
    report: Report,
    handles: HashSet<Handle>,
    hasher: RandomState,
    routes: HashSet<u64>,
    /// Hashes of the routes of before that a running sync has not named.
    leftover: HashSet<u64>,
}

impl NoneFib {
    /// Empty.
    pub fn new() -> Self {
        Self::default()
    }

    fn change(&mut self, table: TableId, change: RouteChange) {
        let hash = self.hasher.hash_one((table, change.prefix));
        self.leftover.remove(&hash);
        if change.next_hops.is_some() {
            self.report.counters.added += 1;
            self.routes.insert(hash);
        } else if self.routes.remove(&hash) {
            self.report.counters.deleted += 1;
        }
    }

    fn count(&mut self) {
        self.report.counters.routes = self.routes.len() as u64;
        self.report.counters.next_hops = self.handles.len() as u64;
    }
}

impl Fib for NoneFib {
    fn name(&self) -> &'static str {
        "none"
    }

    fn define(&mut self, handle: Handle, _next_hops: &NextHops) -> Result<(), FibError> {
        self.handles.insert(handle);
        self.count();
        Ok(())
    }

    fn undefine(&mut self, handle: Handle) -> Result<(), FibError> {
        self.handles.remove(&handle);
        self.count();
        Ok(())
    }

    fn apply(&mut self, table: TableId, changes: &[RouteChange]) -> Result<(), FibError> {
        for change in changes {
            self.change(table, *change);
        }
        self.count();
        Ok(())
    }

    fn sync_begin(&mut self) -> Result<(), FibError> {
        self.leftover = self.routes.clone();
        self.handles.clear();
        self.count();
        Ok(())
    }

    fn sync_end(&mut self) -> Result<(), FibError> {
        for hash in std::mem::take(&mut self.leftover) {
            self.routes.remove(&hash);
            self.report.counters.deleted += 1;
        }
        self.count();
        Ok(())
    }

    fn work(&mut self, _budget: usize) -> Result<bool, FibError> {
        Ok(false)
    }

    fn interface_changed(&mut self, _index: u32, _usable: bool) -> Result<(), FibError> {
        Ok(())
    }

    fn take_loss(&mut self) -> Option<String> {
        None
    }

    fn clear(&mut self) -> Result<(), FibError> {
        *self = Self { report: std::mem::take(&mut self.report), ..Self::default() };
        self.count();
        Ok(())
    }

    fn report(&self) -> &Report {
        &self.report
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(prefix: &str, handle: Option<u32>) -> RouteChange {
        RouteChange { prefix: prefix.parse().expect("prefix"), next_hops: handle.map(Handle) }
    }

    #[test]
    fn a_replaced_route_is_one_route() {
        let mut fib = NoneFib::new();
        let changes = [change("10.0.0.0/8", Some(1)), change("10.0.0.0/8", Some(2)), change("::/0", Some(1))];
        fib.apply(TableId::MAIN, &changes).expect("accepted");
        let counters = fib.report().counters;
        assert_eq!((counters.routes, counters.added, counters.deleted), (2, 3, 0));
    }

    #[test]
    fn a_sync_takes_away_what_it_does_not_name() {
        let mut fib = NoneFib::new();
        let changes = [change("10.0.0.0/8", Some(1)), change("11.0.0.0/8", Some(1))];
        fib.apply(TableId::MAIN, &changes).expect("accepted");
        fib.sync_begin().expect("begin");
        fib.apply(TableId::MAIN, &changes[..1]).expect("accepted");
        fib.sync_end().expect("end");
        let counters = fib.report().counters;
        assert_eq!((counters.routes, counters.deleted), (1, 1));
    }
}

//! A forwarding plane of maps, for tests.

use std::collections::BTreeMap;

use holdfast_types::Prefix;

use crate::{Fib, FibError, Handle, NextHops, Report, RouteChange};

type Routes = BTreeMap<Prefix, Handle>;

/// Keeps the table as maps, readable, and as strict as a kernel: a route needs a defined handle, and a
/// handle that goes takes its routes along.
#[derive(Debug, Default)]
pub struct MemoryFib {
    report: Report,
    handles: BTreeMap<Handle, NextHops>,
    routes: Routes,
    /// In a sync: the routes of before that it has not named, with what they led to then.
    leftover: BTreeMap<Prefix, NextHops>,
    loss: Option<String>,
}

impl MemoryFib {
    /// Empty.
    pub fn new() -> Self {
        Self::default()
    }

    /// Where the route leads.
    pub fn route(&self, prefix: Prefix) -> Option<&NextHops> {
        self.leftover.get(&prefix).or_else(|| self.handles.get(self.routes.get(&prefix)?))
    }

    /// Every route and where it leads, in order.
    pub fn routes(&self) -> BTreeMap<Prefix, NextHops> {
        let mut all = self.leftover.clone();
        let resolved =
            self.routes.iter().filter_map(|(key, handle)| Some((*key, self.handles.get(handle)?.clone())));
        all.extend(resolved);
        all
    }

    /// Loses all routes, as a kernel does whose interface went down, and says so.
    pub fn lose_routes(&mut self, reason: &str) {
        self.routes.clear();
        self.leftover.clear();
        self.loss = Some(reason.to_owned());
        self.count();
    }

    fn change(&mut self, change: RouteChange) {
        let key = change.prefix;
        match change.next_hops {
            Some(handle) if !self.handles.contains_key(&handle) => {
                self.report.refuse_route(key, format!("next hops {} are not defined", handle.0));
            }
            Some(handle) => {
                self.leftover.remove(&key);
                self.routes.insert(key, handle);
                self.report.refused.settle(key);
                self.report.counters.added += 1;
            }
            None => {
                let known = self.leftover.remove(&key).is_some() | self.routes.remove(&key).is_some();
                self.report.refused.settle(key);
                self.report.counters.deleted += u64::from(known);
            }
        }
    }

    fn count(&mut self) {
        self.report.counters.routes = (self.routes.len() + self.leftover.len()) as u64;
        self.report.counters.next_hops = self.handles.len() as u64;
    }
}

impl Fib for MemoryFib {
    fn name(&self) -> &'static str {
        "memory"
    }

    fn define(&mut self, handle: Handle, next_hops: &NextHops) -> Result<(), FibError> {
        self.handles.insert(handle, next_hops.clone());
        self.count();
        Ok(())
    }

    fn undefine(&mut self, handle: Handle) -> Result<(), FibError> {
        self.handles.remove(&handle);
        self.routes.retain(|_, used| *used != handle);
        self.count();
        Ok(())
    }

    fn apply(&mut self, changes: &[RouteChange]) -> Result<(), FibError> {
        for change in changes {
            self.change(*change);
        }
        self.count();
        Ok(())
    }

    fn sync_begin(&mut self) -> Result<(), FibError> {
        self.leftover = self.routes();
        self.routes.clear();
        self.handles.clear();
        self.report.refused.clear();
        self.count();
        Ok(())
    }

    fn sync_end(&mut self) -> Result<(), FibError> {
        self.report.counters.deleted += self.leftover.len() as u64;
        self.leftover.clear();
        self.count();
        Ok(())
    }

    fn work(&mut self, _budget: usize) -> Result<bool, FibError> {
        Ok(false)
    }

    fn interface_changed(&mut self, _index: u32, _usable: bool) -> Result<(), FibError> {
        Ok(())
    }

    fn interfaces_unknown(&mut self) -> Result<(), FibError> {
        Ok(())
    }

    fn take_loss(&mut self) -> Option<String> {
        self.loss.take()
    }

    fn clear(&mut self) -> Result<(), FibError> {
        self.handles.clear();
        self.routes.clear();
        self.leftover.clear();
        self.report.refused.clear();
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

    fn prefix(text: &str) -> Prefix {
        text.parse().expect("prefix")
    }

    fn apply(fib: &mut MemoryFib, text: &str, handle: Option<u32>) {
        let change = RouteChange { prefix: prefix(text), next_hops: handle.map(Handle) };
        fib.apply(&[change]).expect("accepted");
    }

    #[test]
    fn routes_follow_their_handle() {
        let mut fib = MemoryFib::new();
        fib.define(Handle(1), &NextHops::Blackhole).expect("defined");
        apply(&mut fib, "10.0.0.0/8", Some(1));
        fib.define(Handle(1), &NextHops::Unreachable).expect("defined");
        assert_eq!(fib.route(prefix("10.0.0.0/8")), Some(&NextHops::Unreachable));
    }

    #[test]
    fn a_handle_that_is_not_defined_is_refused() {
        let mut fib = MemoryFib::new();
        apply(&mut fib, "10.0.0.0/8", Some(9));
        assert_eq!((fib.report().counters.routes, fib.report().counters.errors), (0, 1));
        assert!(fib.report().refused.routes().contains_key(&prefix("10.0.0.0/8")));
        apply(&mut fib, "10.0.0.0/8", None);
        assert!(fib.report().refused.routes().is_empty());
    }

    #[test]
    fn in_a_sync_routes_of_before_keep_what_they_led_to() {
        let mut fib = MemoryFib::new();
        fib.define(Handle(1), &NextHops::Blackhole).expect("defined");
        apply(&mut fib, "10.0.0.0/8", Some(1));
        apply(&mut fib, "11.0.0.0/8", Some(1));
        fib.sync_begin().expect("begin");
        fib.define(Handle(1), &NextHops::Unreachable).expect("defined");
        assert_eq!(fib.route(prefix("10.0.0.0/8")), Some(&NextHops::Blackhole));
        apply(&mut fib, "10.0.0.0/8", Some(1));
        fib.sync_end().expect("end");
        assert_eq!(fib.route(prefix("10.0.0.0/8")), Some(&NextHops::Unreachable));
        assert_eq!(fib.route(prefix("11.0.0.0/8")), None);
    }
}

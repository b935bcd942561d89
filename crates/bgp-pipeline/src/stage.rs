//! The seam for further stages, between ImportPolicy and Decision.
//!
//! A [`Stage`] sees every batch of changes of the Adj-RIBs-In on its way to the decision, and may hold routes
//! back. It stores what it needs itself; the routes stay in the table. Stages are called once per batch, so
//! what is behind the `dyn` costs nothing per route. Without stages nothing of this is done at all.
//!
//! Changes follow the rules of XORP's stages: a route is added once, then replaced or deleted, and `old` is
//! what was said last. [`CheckStage`] verifies that.

use std::collections::HashMap;

use holdfast_types::{Family, Prefix};

use crate::PeerIndex;

/// Stands for the attributes of a route, as received: equal numbers are equal attributes (a hash of 64 bits).
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SetNumber(pub u64);

/// The route of one peer to one prefix is another.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct RouteChange {
    /// Where it leads.
    pub prefix: Prefix,
    /// Before; `None` if the peer had none.
    pub old: Option<SetNumber>,
    /// From now on; `None` if it is withdrawn.
    pub new: Option<SetNumber>,
    /// To be set by the stage: the route is kept, but takes no part in the decision until it is released.
    pub suppress: bool,
}

/// Changes of one UPDATE.
#[derive(Debug)]
pub struct Batch<'a> {
    /// Who sent it.
    pub peer: PeerIndex,
    /// Of which family.
    pub family: Family,
    /// In the order of the UPDATE.
    pub changes: &'a mut [RouteChange],
}

/// A route that a stage lets go: it takes part in the decision again.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Release {
    /// Whose.
    pub peer: PeerIndex,
    /// Where it leads.
    pub prefix: Prefix,
}

/// A stage between ImportPolicy and Decision.
pub trait Stage: std::fmt::Debug {
    /// A batch passes.
    fn push(&mut self, batch: &mut Batch<'_>);

    /// A session has ended: all routes of the peer are deleted, without a batch.
    fn peer_down(&mut self, peer: PeerIndex);

    /// Background work: up to `budget` routes to let go. Returns whether there is more.
    fn work(&mut self, budget: usize, released: &mut Vec<Release>) -> bool {
        let _ = (budget, released);
        false
    }

    /// What it is and does, for the operator.
    fn describe(&self) -> String;
}

/// Verifies the contract between stages; for tests, as it holds every route again.
#[derive(Debug, Default)]
pub struct CheckStage {
    held: HashMap<(PeerIndex, Prefix), SetNumber>,
    violations: Violations,
}

/// What a [`CheckStage`] has found, shared with whoever plugged it in.
pub type Violations = std::rc::Rc<std::cell::RefCell<Vec<String>>>;

impl CheckStage {
    /// A stage, and where it writes what it finds.
    pub fn new() -> (Self, Violations) {
        let stage = Self::default();
        let violations = Violations::clone(&stage.violations);
        (stage, violations)
    }
}

impl Stage for CheckStage {
    fn push(&mut self, batch: &mut Batch<'_>) {
        for change in batch.changes.iter() {
            let key = (batch.peer, change.prefix);
            let held = match change.new {
                Some(new) => self.held.insert(key, new),
                None => self.held.remove(&key),
            };
            if held != change.old {
                let text = format!("{:?}: {change:?} follows {held:?}", batch.peer);
                self.violations.borrow_mut().push(text);
            }
        }
    }

    fn peer_down(&mut self, peer: PeerIndex) {
        self.held.retain(|(other, _), _| *other != peer);
    }

    fn describe(&self) -> String {
        format!("check: {} routes, {} violations", self.held.len(), self.violations.borrow().len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(old: Option<u64>, new: Option<u64>) -> RouteChange {
        let prefix = "192.0.2.0/24".parse().expect("a prefix");
        RouteChange { prefix, old: old.map(SetNumber), new: new.map(SetNumber), suppress: false }
    }

    #[test]
    fn a_replacement_of_what_was_never_added_is_a_violation() {
        let (mut stage, violations) = CheckStage::new();
        let mut push = |change: RouteChange| {
            let family = Family::IPV4_UNICAST;
            stage.push(&mut Batch { peer: PeerIndex(1), family, changes: &mut [change] });
            violations.borrow().len()
        };
        assert_eq!(push(change(None, Some(1))), 0);
        assert_eq!(push(change(Some(1), Some(2))), 0);
        assert_eq!(push(change(Some(2), None)), 0);
        assert_eq!(push(change(Some(2), Some(3))), 1);
        assert_eq!(push(change(None, Some(4))), 2);
        stage.peer_down(PeerIndex(1));
        assert_eq!(stage.describe(), "check: 0 routes, 2 violations");
    }
}

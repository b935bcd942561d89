//! What a backend was told and the forwarding plane does not have now.

use std::{collections::BTreeMap, sync::Arc};

use holdfast_types::Prefix;

use crate::Handle;

/// Refused routes that a [`Refused`] remembers.
pub const REFUSED_KEPT: usize = 16_384;

/// Why the forwarding plane does not have a route: text for the operator.
pub type Reason = Arc<str>;

/// Routes that the forwarding plane refuses now: all those of some handles, and some one by one.
#[derive(Clone, Debug, Default)]
pub struct Refused {
    handles: BTreeMap<Handle, Reason>,
    routes: BTreeMap<Prefix, Reason>,
    is_incomplete: bool,
    changes: u64,
}

impl Refused {
    /// The handles that stand for nothing in the forwarding plane, and why: it has none of their routes. There are no more of
    /// them than handles that are defined.
    pub fn handles(&self) -> &BTreeMap<Handle, Reason> {
        &self.handles
    }

    /// The routes refused for themselves, and why; at most [`REFUSED_KEPT`].
    pub fn routes(&self) -> &BTreeMap<Prefix, Reason> {
        &self.routes
    }

    /// More routes were refused than are remembered.
    pub fn is_incomplete(&self) -> bool {
        self.is_incomplete
    }

    /// The handles and the routes.
    pub fn into_parts(self) -> (BTreeMap<Handle, Reason>, BTreeMap<Prefix, Reason>) {
        (self.handles, self.routes)
    }

    /// Counts changes of all that.
    pub fn changes(&self) -> u64 {
        self.changes
    }

    /// Why the forwarding plane has nothing for the handle, if so.
    pub fn set_handle(&mut self, handle: Handle, reason: Option<&str>) {
        let changed = match reason {
            None => self.handles.remove(&handle).is_some(),
            Some(reason) if self.handles.get(&handle).is_some_and(|known| **known == *reason) => false,
            Some(reason) => {
                self.handles.insert(handle, reason.into());
                true
            }
        };
        self.changes += u64::from(changed);
    }

    /// The route is refused for itself.
    pub fn refuse(&mut self, prefix: Prefix, reason: &str) {
        let known = self.routes.get(&prefix);
        if known.is_some_and(|known| **known == *reason) {
            return;
        }
        if known.is_some() || self.routes.len() < REFUSED_KEPT {
            self.routes.insert(prefix, reason.into());
            self.changes += 1;
        } else if !self.is_incomplete {
            self.is_incomplete = true;
            self.changes += 1;
        }
    }

    /// The route is there, or is not wanted any more.
    pub fn settle(&mut self, prefix: Prefix) {
        if !self.routes.is_empty() {
            self.changes += u64::from(self.routes.remove(&prefix).is_some());
        }
    }

    /// Half of the memory is free again after it was full: whoever asks now is to have all routes written again, to
    /// find those that are not remembered. Says so once.
    pub fn take_is_drained(&mut self) -> bool {
        let drained = self.is_incomplete && self.routes.len() <= REFUSED_KEPT / 2;
        if drained {
            self.is_incomplete = false;
            self.changes += 1;
        }
        drained
    }

    /// No handle and no route means anything any more.
    pub fn clear(&mut self) {
        *self = Self { changes: self.changes + 1, ..Self::default() };
    }
}

#[cfg(test)]
mod tests {
    use holdfast_types::{IpPrefix, Ipv4Prefix};

    use super::*;

    fn prefix(number: usize) -> Prefix {
        Prefix::V4(Ipv4Prefix::from_bits((number as u128) << 104, 24))
    }

    #[test]
    fn only_what_changes_counts() {
        let mut refused = Refused::default();
        refused.settle(prefix(1));
        refused.set_handle(Handle(1), None);
        assert_eq!(refused.changes(), 0);
        refused.set_handle(Handle(1), Some("no"));
        refused.refuse(prefix(1), "no");
        refused.refuse(prefix(1), "no");
        assert_eq!((refused.changes(), refused.handles().len(), refused.routes().len()), (2, 1, 1));
        refused.refuse(prefix(1), "never");
        assert_eq!((refused.changes(), &*refused.routes()[&prefix(1)]), (3, "never"));
        refused.settle(prefix(1));
        refused.set_handle(Handle(1), None);
        assert_eq!((refused.changes(), refused.handles().len(), refused.routes().len()), (5, 0, 0));
    }

    #[test]
    fn memory_is_bounded_and_a_drained_one_says_once_that_it_was_full() {
        let mut refused = Refused::default();
        (0..=REFUSED_KEPT).for_each(|number| refused.refuse(prefix(number), "no"));
        assert!(refused.routes().len() == REFUSED_KEPT && refused.is_incomplete());
        assert!(!refused.take_is_drained());
        (0..REFUSED_KEPT / 2).for_each(|number| refused.settle(prefix(number)));
        assert!(refused.take_is_drained() && !refused.take_is_drained() && !refused.is_incomplete());
        refused.clear();
        assert!(refused.routes().is_empty());
    }
}

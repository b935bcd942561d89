//! A forwarding engine that does what it is told, and complains.

use std::collections::{BTreeMap, BTreeSet};

use holdfast_rib::{FibBatch, Resolution};
use holdfast_types::Prefix;

#[derive(Debug, Default)]
pub(crate) struct Kernel {
    handles: BTreeMap<u32, Resolution>,
    /// Routes of this sync and after, by handle.
    routes: BTreeMap<Prefix, u32>,
    /// Routes that a sync has not named yet: left from before.
    left: BTreeMap<Prefix, Resolution>,
    pub(crate) is_synced: bool,
}

impl Kernel {
    pub(crate) fn apply(&mut self, batch: FibBatch) {
        if batch.begin {
            self.forget();
        }
        for (handle, resolution) in batch.define {
            assert!(resolution.is_usable(), "a handle has to lead somewhere");
            self.handles.insert(handle, resolution);
        }
        for (prefix, handle) in batch.routes {
            self.left.remove(&prefix);
            match handle {
                Some(handle) => {
                    assert!(self.handles.contains_key(&handle), "handle {handle} is not defined");
                    self.routes.insert(prefix, handle);
                }
                None => drop(self.routes.remove(&prefix)),
            }
        }
        let used: BTreeSet<_> = self.routes.values().collect();
        for handle in &batch.undefine {
            assert!(!used.contains(handle), "handle {handle} is still used");
            assert!(self.handles.contains_key(handle), "handle {handle} is not defined");
        }
        self.handles.retain(|handle, _| !batch.undefine.contains(handle));
        if batch.end {
            assert!(!self.is_synced, "the sync has ended before");
            self.is_synced = true;
            self.left.clear();
        }
    }

    /// Definitions that have overtaken batches.
    pub(crate) fn define(&mut self, handles: BTreeMap<u32, Resolution>) {
        for (handle, resolution) in handles {
            assert!(resolution.is_usable(), "a handle has to lead somewhere");
            assert!(
                self.handles.insert(handle, resolution).is_some(),
                "handle {handle} was not defined before"
            );
        }
    }

    /// What happens when the connection is lost, or a sync begins: routes stay, handles mean nothing.
    pub(crate) fn forget(&mut self) {
        self.left = self.table();
        self.routes.clear();
        self.handles.clear();
        self.is_synced = false;
    }

    pub(crate) fn table(&self) -> BTreeMap<Prefix, Resolution> {
        let named = self.routes.iter().map(|(&prefix, handle)| (prefix, self.handles[handle].clone()));
        self.left.iter().map(|(&prefix, resolution)| (prefix, resolution.clone())).chain(named).collect()
    }

    pub(crate) fn handles(&self) -> usize {
        self.handles.len()
    }
}

//! Several changes of one prefix in a window become one.

use std::hash::BuildHasher;

use holdfast_types::{HashKey, IpPrefix};

use crate::fanout::Change;

/// Finds changes of the same prefix within a window.
#[derive(Debug)]
pub(super) struct Merge<P> {
    pub(super) changes: Vec<Change<P>>,
    /// Open addressing, twice the window's size: place in `changes`, plus 1.
    slots: Vec<u32>,
    key: HashKey,
}

impl<P: IpPrefix> Merge<P> {
    pub(super) fn new(key: HashKey) -> Self {
        Self { changes: Vec::new(), slots: Vec::new(), key }
    }

    pub(super) fn run(
        &mut self,
        changes: impl ExactSizeIterator<Item = Change<P>>,
        only: Option<bool>,
    ) -> Vec<Change<P>> {
        let mut merged = std::mem::take(&mut self.changes);
        merged.clear();
        merged.extend(changes);
        if let Some(each) = only {
            merged.retain(|change| change.is_each() == each);
        }
        if !are_distinct(&merged) {
            self.unite(&mut merged);
        }
        merged
    }

    fn unite(&mut self, changes: &mut Vec<Change<P>>) {
        self.slots.clear();
        self.slots.resize((2 * changes.len()).next_power_of_two(), 0);
        let mut kept = 0;
        for at in 0..changes.len() {
            let change = changes[at];
            match self.find(&changes[..kept], &change) {
                Ok(place) => changes[place].new = change.new,
                Err(slot) => {
                    changes[kept] = change;
                    kept += 1;
                    self.slots[slot] = kept as u32;
                }
            }
        }
        changes.truncate(kept);
    }

    /// Where a change of the same is among those before, or else the slot to note it in.
    fn find(&self, before: &[Change<P>], change: &Change<P>) -> Result<usize, usize> {
        let mask = self.slots.len() - 1;
        let source = change.is_each().then_some(change.new.source);
        let mut slot = self.key.hash_one((change.prefix, source)) as usize & mask;
        loop {
            match self.slots[slot] {
                0 => return Err(slot),
                place if before[place as usize - 1].concerns(change) => return Ok(place as usize - 1),
                _ => slot = (slot + 1) & mask,
            }
        }
    }
}

/// Whether no prefix is there twice, as far as that can be seen at once. The second change of a prefix starts from
/// what the first led to: so there is none where all are additions, or all are deletions. Walks over the table make
/// changes in address order.
fn are_distinct<P: IpPrefix>(changes: &[Change<P>]) -> bool {
    let Some(first) = changes.first() else { return true };
    let is_like_first = |change: &Change<P>| {
        (change.old.is_some(), change.new.is_some()) == (first.old.is_some(), first.new.is_some())
    };
    first.old.is_some() != first.new.is_some() && changes.iter().all(is_like_first)
        || changes.is_sorted_by(|a, b| a.prefix < b.prefix)
}

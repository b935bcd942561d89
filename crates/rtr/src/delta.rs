//! A difference between two versions of data.

use std::collections::BTreeSet;

use holdfast_rtr_wire::Record;
use holdfast_types::Asn;

use crate::Dataset;

/// What is new, and what holds no longer. An ASPA that takes the place of its customer's one before is in `announced`
/// only; in `withdrawn` are customers that have none any more.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Delta {
    /// From now on.
    pub announced: Dataset,
    /// No longer.
    pub withdrawn: Dataset,
}

impl Delta {
    /// Whether nothing has changed.
    pub fn is_empty(&self) -> bool {
        self.announced.is_empty() && self.withdrawn.is_empty()
    }

    /// Of whom an ASPA has come, gone or changed.
    pub(crate) fn customers(&self) -> BTreeSet<Asn> {
        self.announced.aspas.keys().chain(self.withdrawn.aspas.keys()).copied().collect()
    }

    /// What a bound on records is held against.
    pub(crate) fn weight(&self) -> usize {
        self.announced.weight() + self.withdrawn.weight()
    }

    /// Both, one after the other, as one, but for ASPAs: of these a delta does not say what was there before it, and those
    /// of the second are left out. VRPs and keys that come and go, or go and come, are in neither part.
    pub(crate) fn then(mut self, next: &Self) -> Self {
        move_on(&next.withdrawn, &mut self.announced, &mut self.withdrawn);
        move_on(&next.announced, &mut self.withdrawn, &mut self.announced);
        self
    }
}

/// What follows takes away what it undoes, or is added.
fn move_on(next: &Dataset, undone: &mut Dataset, added: &mut Dataset) {
    for record in next.vrps().map(Record::Vrp) {
        if !undone.remove(&record) {
            added.insert(record);
        }
    }
    for key in &next.router_keys {
        if !undone.remove_key(key) {
            added.insert_key(key.clone());
        }
    }
}

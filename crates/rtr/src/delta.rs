//! A difference between two versions of data.

use std::collections::BTreeSet;

use holdfast_types::{Asn, Aspa};

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

    /// Both, one after the other, as one, but for ASPAs: of these a delta does not say what was there before it. VRPs
    /// and keys that come and go, or go and come, are in neither part.
    pub(crate) fn then(self, next: Self) -> Self {
        Self {
            announced: either(&self.announced, &next.withdrawn, &next.announced, &self.withdrawn),
            withdrawn: either(&self.withdrawn, &next.announced, &next.withdrawn, &self.announced),
        }
    }
}

/// What is in `a` and not in `not_a`, and what is in `b` and not in `not_b`.
fn either(a: &Dataset, not_a: &Dataset, b: &Dataset, not_b: &Dataset) -> Dataset {
    fn part<T: Ord + Clone>(
        [a, not_a, b, not_b]: [&Dataset; 4],
        of: fn(&Dataset) -> &BTreeSet<T>,
    ) -> BTreeSet<T> {
        of(a).difference(of(not_a)).chain(of(b).difference(of(not_b))).cloned().collect()
    }
    let sets = [a, not_a, b, not_b];
    let none = std::iter::empty::<Aspa>();
    Dataset::of(
        part(sets, |set| &set.ipv4),
        part(sets, |set| &set.ipv6),
        part(sets, |set| &set.router_keys),
        none,
    )
}

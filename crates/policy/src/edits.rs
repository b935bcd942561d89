//! What a policy wants changed on a route it accepted.

use std::net::IpAddr;

use holdfast_types::Asn;
use serde::{Deserialize, Serialize};

use crate::Origin;

/// The changes to make to one route. Equal edits of equal routes give equal routes, so a caller may keep
/// results by (attribute set, edits). Reused between evaluations: clearing keeps the lists' memory.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Edits {
    /// The new LOCAL_PREF.
    pub local_pref: Option<u32>,
    /// The weight.
    pub weight: Option<u32>,
    /// What becomes of MULTI_EXIT_DISC.
    pub med: Option<MedEdit>,
    /// The new ORIGIN.
    pub origin: Option<Origin>,
    /// AS numbers to put before the path.
    pub prepend: Option<Prepend>,
    /// What becomes of the communities (RFC 1997).
    pub communities: ListEdit<u32>,
    /// What becomes of the large communities (RFC 8092).
    pub large_communities: ListEdit<(u32, u32, u32)>,
    /// What becomes of the extended communities (RFC 4360).
    pub ext_communities: ListEdit<u64>,
    /// The new next hop.
    pub next_hop: Option<NextHopEdit>,
    /// The new tag.
    pub tag: Option<u32>,
}

/// What becomes of MULTI_EXIT_DISC.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub enum MedEdit {
    /// It gets this value.
    Set(u32),
    /// It is removed.
    Remove,
    /// It becomes the metric of the way to the next hop as it is when the route is announced, and so much more or
    /// less.
    Metric(i64),
}

impl MedEdit {
    /// So much more, or less; what does not fit becomes what does.
    #[must_use]
    pub fn plus(self, difference: i64) -> Self {
        match self {
            Self::Set(value) => Self::Set(clamp(i64::from(value).saturating_add(difference))),
            Self::Remove => Self::Set(clamp(difference)),
            Self::Metric(offset) => Self::Metric(offset.saturating_add(difference)),
        }
    }

    /// The new value, where the way to the next hop has this metric; `None`: there is to be none.
    pub fn value(self, metric: Option<u32>) -> Option<u32> {
        match self {
            Self::Set(value) => Some(value),
            Self::Remove => None,
            Self::Metric(offset) => metric.map(|metric| clamp(i64::from(metric).saturating_add(offset))),
        }
    }
}

fn clamp(value: i64) -> u32 {
    value.clamp(0, i64::from(u32::MAX)) as u32
}

/// An AS number to put before the path, and how often. A later term's replaces an earlier one's.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct Prepend {
    /// Which AS.
    pub asn: PrependAs,
    /// How often; 1 or more.
    pub count: u8,
}

/// Which AS number is put before the path.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PrependAs {
    /// The router's own.
    Own,
    /// The nearest of the path, once more. A path without any stays as it is.
    Last,
    /// This one.
    #[serde(with = "crate::text")]
    Asn(Asn),
}

/// What becomes of the next hop.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NextHopEdit {
    /// The router's address on the session.
    SelfAddress,
    /// This address.
    Address(IpAddr),
}

/// Changes to a list of communities: the result is what [`ListEdit::keeps`] of the received list,
/// followed by [`ListEdit::add`]. Both lists are sorted, without repetition and disjoint.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct ListEdit<T> {
    /// Whether everything that was received goes.
    pub replace: bool,
    /// Values to append, which the received list does not have (or which go with `replace`).
    pub add: Vec<T>,
    /// Received values that go; patterns are already resolved. Empty when `replace` is set.
    pub remove: Vec<T>,
}

impl<T> Default for ListEdit<T> {
    fn default() -> Self {
        Self { replace: false, add: Vec::new(), remove: Vec::new() }
    }
}

impl Edits {
    /// Whether the route stays as it is.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.local_pref.is_none()
            && self.weight.is_none()
            && self.med.is_none()
            && self.origin.is_none()
            && self.prepend.is_none()
            && self.communities.is_empty()
            && self.large_communities.is_empty()
            && self.ext_communities.is_empty()
            && self.next_hop.is_none()
            && self.tag.is_none()
    }

    /// Forgets all changes and keeps the lists' memory.
    pub fn clear(&mut self) {
        self.local_pref = None;
        self.weight = None;
        self.med = None;
        self.origin = None;
        self.prepend = None;
        self.communities.clear();
        self.large_communities.clear();
        self.ext_communities.clear();
        self.next_hop = None;
        self.tag = None;
    }
}

impl<T: Copy + Ord> ListEdit<T> {
    /// Whether the list stays as it is.
    pub fn is_empty(&self) -> bool {
        !self.replace && self.add.is_empty() && self.remove.is_empty()
    }

    /// Whether this received value stays.
    pub fn keeps(&self, value: T) -> bool {
        !self.replace && (self.remove.is_empty() || self.remove.binary_search(&value).is_err())
    }

    /// The list as it becomes.
    pub fn apply(&self, received: impl Iterator<Item = T>) -> impl Iterator<Item = T> {
        received.filter(|&value| self.keeps(value)).chain(self.add.iter().copied())
    }

    pub(crate) fn clear(&mut self) {
        self.replace = false;
        self.add.clear();
        self.remove.clear();
    }

    /// Adds a value; `received` says whether the received list has it.
    pub(crate) fn add(&mut self, value: T, received: bool) {
        if received && !self.replace {
            if let Ok(at) = self.remove.binary_search(&value) {
                self.remove.remove(at);
            }
        } else {
            insert(&mut self.add, value);
        }
    }

    /// Removes what `goes` names from the received list and from what was added before. Whether that was anything.
    pub(crate) fn remove(&mut self, received: impl Iterator<Item = T>, goes: impl Fn(T) -> bool) -> bool {
        let added = self.add.len();
        self.add.retain(|&value| !goes(value));
        let mut removed = self.add.len() < added;
        if !self.replace {
            for value in received.filter(|&value| goes(value)) {
                removed |= insert(&mut self.remove, value);
            }
        }
        removed
    }

    /// Everything goes; [`Self::add`] says what comes instead.
    pub(crate) fn replace(&mut self) {
        self.clear();
        self.replace = true;
    }
}

/// Whether it was not there.
fn insert<T: Ord>(sorted: &mut Vec<T>, value: T) -> bool {
    match sorted.binary_search(&value) {
        Ok(_) => false,
        Err(at) => {
            sorted.insert(at, value);
            true
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RECEIVED: [u32; 3] = [5, 1, 3];

    fn result(edit: &ListEdit<u32>) -> Vec<u32> {
        edit.apply(RECEIVED.into_iter()).collect()
    }

    #[test]
    fn adding_what_is_there_changes_nothing() {
        let mut edit = ListEdit::default();
        edit.add(3, true);
        assert!(edit.is_empty());
        edit.add(9, false);
        edit.add(9, false);
        assert_eq!(result(&edit), [5, 1, 3, 9]);
    }

    #[test]
    fn adding_back_what_was_removed_leaves_no_trace() {
        let mut edit = ListEdit::default();
        edit.remove(RECEIVED.into_iter(), |value| value == 3);
        assert_eq!(result(&edit), [5, 1]);
        edit.add(3, true);
        assert!(edit.is_empty());
    }

    #[test]
    fn removing_also_takes_what_was_added() {
        let mut edit = ListEdit::default();
        edit.add(9, false);
        edit.remove(RECEIVED.into_iter(), |value| value > 4);
        assert_eq!(result(&edit), [1, 3]);
    }

    #[test]
    fn replacing_drops_everything_and_what_comes_after_still_counts() {
        let mut edit = ListEdit::default();
        edit.remove(RECEIVED.into_iter(), |value| value == 1);
        edit.replace();
        edit.add(3, true);
        edit.add(7, false);
        edit.remove(RECEIVED.into_iter(), |value| value == 7);
        assert_eq!((result(&edit), edit.remove.len()), (vec![3], 0));
    }

    #[test]
    fn cleared_edits_are_empty_again() {
        let mut edits = Edits { local_pref: Some(1), med: Some(MedEdit::Remove), ..Edits::default() };
        edits.large_communities.add((1, 2, 3), false);
        assert!(!edits.is_empty());
        edits.clear();
        assert!(edits.is_empty() && edits == Edits::default());
    }
}

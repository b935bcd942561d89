//! After a death: who may still announce again what the process before had of them.
//!
//! The rib keeps stale routes of these, each until its End-of-RIB, and drops those of all others at once: of sessions that
//! went on, since what they have is here, and of peers that were down.

use std::collections::BTreeMap;

use crate::location::Location;

/// Who is waited for.
#[derive(Debug)]
pub(crate) enum Awaited {
    /// Nobody knows who was there before: all who are configured.
    Everybody,
    /// These, and whether each is of a listen range.
    These(BTreeMap<Location, bool>),
}

/// What becomes of routes that the rib has from the process before.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Stale {
    /// They stay for now.
    Stays,
    /// Those of these sources do.
    StaysOf(Vec<u32>),
    /// They go.
    Goes,
}

impl Awaited {
    pub(super) fn contains(&self, location: &Location) -> bool {
        match self {
            Self::Everybody => false,
            Self::These(places) => places.contains_key(location),
        }
    }

    pub(super) fn remove(&mut self, location: &Location) {
        match self {
            Self::Everybody => {}
            Self::These(places) => drop(places.remove(location)),
        }
    }
}

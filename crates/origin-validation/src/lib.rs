//! What the RPKI says of routes: whether their origin may announce them (RFC 6811), and whether their path can have come
//! about as providers and customers say (ASPA, draft-ietf-sidrops-aspa-verification-28).
//!
//! [`VrpTable`] holds validated ROA payloads and validates an origin; [`AspaTable`] holds provider authorizations and
//! verifies a path. [`Authorizations`] is both, as whoever speaks to caches keeps them for all its routes.
//!
//! The crate knows no cache, no protocol and no session: what is announced and withdrawn comes in as it is to hold, and
//! what follows from a verdict is policy's to say.

mod aspa;
mod runs;
mod vrps;

// Tests of what the crate offers, in the executable of its unit tests.
#[cfg(test)]
extern crate self as holdfast_origin_validation;
#[cfg(test)]
#[path = "../tests/mod.rs"]
mod tests;

pub use aspa::{AspaTable, Procedure};
pub use vrps::{VrpTable, origin};

use holdfast_types::{Asn, Aspa, HashKey, Prefix, Vrp};

/// All that holds at a time.
#[derive(Debug)]
pub struct Authorizations {
    /// Who may originate what.
    pub vrps: VrpTable,
    /// Who provides for whom.
    pub aspas: AspaTable,
}

/// A difference between what held and what holds.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Delta {
    /// VRPs that hold from now on.
    pub announced: Vec<Vrp>,
    /// Those that do not any more.
    pub withdrawn: Vec<Vrp>,
    /// Provider authorizations from now on, in the place of any of the same customers.
    pub aspas: Vec<Aspa>,
    /// Customers that have none any more.
    pub without_aspa: Vec<Asn>,
}

/// Routes whose state may be another.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Affected {
    /// Those to these prefixes and to what lies inside; each once, in order.
    pub prefixes: Vec<Prefix>,
    /// All that have a path to verify.
    pub paths: bool,
    /// All: there are VRPs where there were none, or none any more.
    pub all: bool,
}

impl Affected {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.prefixes.is_empty() && !self.paths && !self.all
    }
}

impl Authorizations {
    /// Nothing holds. `key` is that of the hashes: what caches say comes from the network.
    pub fn new(key: HashKey) -> Self {
        Self { vrps: VrpTable::new(), aspas: AspaTable::new(key) }
    }

    /// Applies a difference. What is in it and held already, or did not hold, changes nothing.
    pub fn apply(&mut self, delta: &Delta) -> Affected {
        let was_empty = self.vrps.is_empty();
        let prefixes = self.vrps.apply(&delta.withdrawn, &delta.announced);
        let all = self.vrps.is_empty() != was_empty;
        let mut affected = Affected { prefixes, paths: false, all };
        for customer in &delta.without_aspa {
            affected.paths |= self.aspas.remove(*customer);
        }
        for aspa in &delta.aspas {
            affected.paths |= self.aspas.insert(aspa);
        }
        affected
    }

    /// Bytes held.
    pub fn memory(&self) -> usize {
        self.vrps.memory() + self.aspas.memory()
    }
}

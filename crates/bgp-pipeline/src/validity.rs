//! What can be known of a route's validity, and how it is found out: part of the class of its set.

use holdfast_origin_validation::Procedure;
use holdfast_policy::{PathValidity, Validity};

use crate::{PeerConfig, PeerKind};

/// What is known of a route.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct States {
    /// By its origin.
    pub validity: Validity,
    /// By its path.
    pub path: PathValidity,
}

impl Default for States {
    fn default() -> Self {
        Self { validity: Validity::NotFound, path: PathValidity::Unknown }
    }
}

impl States {
    /// The validity in the extended community (RFC 8097 section 2).
    pub(crate) fn octet(self) -> u8 {
        match self.validity {
            Validity::Valid => 0,
            Validity::NotFound => 1,
            Validity::Invalid => 2,
        }
    }
}

/// How it is found out what is known of a peer's routes.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Rule {
    /// The RPKI is asked of origins.
    pub(crate) origins: bool,
    /// And of paths.
    pub(crate) paths: Option<Procedure>,
    /// What the peer says counts where the RPKI says nothing (RFC 8097).
    pub(crate) conveyed: bool,
}

impl Rule {
    /// `None`: not at all. The RPKI can be asked if it `is_known`.
    pub(crate) fn new(config: &PeerConfig, is_known: bool) -> Option<Self> {
        let asks = is_known && config.paths.origin_validation;
        let role = config.paths.role.filter(|_| asks && config.kind == PeerKind::Ebgp);
        let conveyed = config.paths.accept_validity && config.kind == PeerKind::Ibgp;
        let rule = Self { origins: asks, paths: role.map(Procedure::of), conveyed };
        (rule != Self::default()).then_some(rule)
    }
}

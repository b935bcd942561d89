//! What can be known of a route's validity, and how it is found out: part of the class of its set.

use holdfast_origin_validation::Procedure;
use holdfast_policy::{PathSecurity, PathValidity, Program, Validity};

use crate::{BgpsecValidation, PeerConfig, PeerKind};

/// What is known of a route.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct States {
    /// By its origin.
    pub validity: Validity,
    /// By its path.
    pub path: PathValidity,
    /// By the signatures of its path.
    pub signatures: PathSecurity,
}

impl Default for States {
    fn default() -> Self {
        Self { validity: Validity::NotFound, path: PathValidity::Unknown, signatures: PathSecurity::Unsigned }
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
    /// What is made of the signatures of its paths; `None`: they are not looked at.
    pub(crate) signatures: Option<SignatureRule>,
}

/// What is made of the signatures of a peer's paths.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct SignatureRule {
    pub(crate) demand: Demand,
    /// What replaces a valid route waits for its verdict.
    pub(crate) holds: bool,
}

/// What a verdict means for a route.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Demand {
    /// Nothing but what policies make of it.
    Nothing,
    /// A valid route is better, one that is not valid the last choice.
    Prefers,
    /// Only valid routes are used.
    Requires,
}

impl SignatureRule {
    /// `is_agreed`: the session has agreed on BGPsec with the peer as the sender.
    fn new(config: &PeerConfig, is_agreed: bool) -> Option<Self> {
        let external = config.kind != PeerKind::Ibgp;
        let usual = if external { BgpsecValidation::Log } else { BgpsecValidation::Off };
        let demand = match config.paths.bgpsec_validation.unwrap_or(usual) {
            BgpsecValidation::Off => return None,
            BgpsecValidation::Log if !is_agreed => return None,
            BgpsecValidation::Log => Demand::Nothing,
            BgpsecValidation::Prefer => Demand::Prefers,
            BgpsecValidation::Require => Demand::Requires,
        };
        let asks = config.import.as_ref().is_some_and(Program::reads_bgpsec);
        Some(Self { demand, holds: asks || demand != Demand::Nothing })
    }
}

impl Rule {
    /// `None`: not at all. The RPKI can be asked if it `is_known`; the peer sends BGPsec_PATH if that `is_agreed`.
    pub(crate) fn new(config: &PeerConfig, is_known: bool, is_agreed: bool) -> Option<Self> {
        let asks = is_known && config.paths.origin_validation;
        let role = config.paths.role.filter(|_| asks && config.kind == PeerKind::Ebgp);
        let conveyed = config.paths.accept_validity && config.kind == PeerKind::Ibgp;
        let signatures = SignatureRule::new(config, is_agreed);
        let rule = Self { origins: asks, paths: role.map(Procedure::of), conveyed, signatures };
        (rule != Self::default()).then_some(rule)
    }
}

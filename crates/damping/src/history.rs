//! What is remembered of a route that has flapped.

use std::time::{Duration, Instant};

use holdfast_bgp_pipeline::{PeerIndex, RouteChange};
use holdfast_types::Prefix;

use crate::Parameters;

/// Penalty of a withdrawal (RFC 7196 section 2, as with Cisco and Juniper). The announcement after it has none.
pub const WITHDRAWAL: u32 = 1000;
/// Penalty of other attributes.
pub const CHANGE: u32 = 500;

/// The penalty of a change; 0 for what is no flap.
pub(crate) fn penalty(change: &RouteChange) -> u32 {
    match (change.old, change.new) {
        (Some(_), None) => WITHDRAWAL,
        (Some(old), Some(new)) if old != new => CHANGE,
        (Some(_), Some(_)) | (None, _) => 0,
    }
}

/// Of one route of one peer.
#[derive(Clone, Debug)]
pub(crate) struct History {
    /// The figure of merit at `updated`.
    merit: f64,
    updated: Instant,
    first: Instant,
    flaps: u32,
    pub(crate) suppressed: bool,
    /// The reuse list that it is in.
    pub(crate) list: u64,
}

impl History {
    pub(crate) fn new(now: Instant) -> Self {
        Self { merit: 0.0, updated: now, first: now, flaps: 0, suppressed: false, list: 0 }
    }

    /// The figure of merit.
    pub(crate) fn merit(&self, parameters: &Parameters, now: Instant) -> f64 {
        parameters.decayed(self.merit, now.saturating_duration_since(self.updated))
    }

    /// Brings the figure up to date, and adds a penalty if it is one.
    pub(crate) fn add(&mut self, parameters: &Parameters, now: Instant, penalty: u32) {
        let merit = self.merit(parameters, now) + f64::from(penalty);
        (self.merit, self.updated) = (merit.min(parameters.ceiling()), now);
        self.flaps = self.flaps.saturating_add(u32::from(penalty > 0));
    }

    /// Decides whether the route is held back (RFC 2439 section 4.8.3). To be called when the figure is up to date.
    pub(crate) fn judge(&mut self, parameters: &Parameters) {
        let threshold = if self.suppressed { parameters.reuse } else { parameters.suppress };
        self.suppressed = self.merit >= f64::from(threshold);
    }

    /// As if it had never flapped. It is held back until that is looked at.
    pub(crate) fn forgive(&mut self) {
        self.merit = 0.0;
    }

    /// When there is something to decide if nothing else happens: it may be used again, or forgotten.
    pub(crate) fn due(&self, parameters: &Parameters) -> Instant {
        let threshold = if self.suppressed { f64::from(parameters.reuse) } else { parameters.forget() };
        self.updated + parameters.time_to(self.merit, threshold)
    }

    /// Whether nothing needs to be remembered. To be called when the figure is up to date.
    pub(crate) fn is_over(&self, parameters: &Parameters) -> bool {
        !self.suppressed && self.merit < parameters.forget()
    }

    pub(crate) fn flaps(
        &self,
        peer: PeerIndex,
        prefix: Prefix,
        parameters: &Parameters,
        now: Instant,
    ) -> Flaps {
        Flaps {
            peer,
            prefix,
            penalty: self.merit(parameters, now) as u32,
            flaps: self.flaps,
            since: now.saturating_duration_since(self.first),
            reuse_in: self.suppressed.then(|| self.due(parameters).saturating_duration_since(now)),
        }
    }
}

/// What an operator may know of a route that has flapped.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Flaps {
    /// Whose route.
    pub peer: PeerIndex,
    /// Where it leads.
    pub prefix: Prefix,
    /// The figure of merit.
    pub penalty: u32,
    /// How often it has flapped.
    pub flaps: u32,
    /// Since the first of these flaps.
    pub since: Duration,
    /// How long it is held back if it does not flap again; `None` if it is not.
    pub reuse_in: Option<Duration>,
}

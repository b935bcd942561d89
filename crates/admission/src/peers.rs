use std::{fmt, time::Instant};

use crate::{Attempt, Stage, Verdict};

/// Who is configured where an attempt comes from.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum PeerState {
    /// A peer that is configured by its address, and may connect so.
    Wanted,
    /// One of a range, who may connect so.
    Guest,
    /// A peer that is down on purpose.
    Disabled,
    /// A peer that may use other transports only.
    OtherTransport,
    /// Nobody.
    Nobody,
}

/// Refuses who is no peer that may connect.
pub struct Peers<F> {
    state: F,
}

impl<F: FnMut(&dyn Attempt) -> PeerState> Peers<F> {
    /// With who knows the peers.
    pub fn new(state: F) -> Self {
        Self { state }
    }
}

impl<F> fmt::Debug for Peers<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Peers").finish_non_exhaustive()
    }
}

impl<F: FnMut(&dyn Attempt) -> PeerState> Stage for Peers<F> {
    fn name(&self) -> &'static str {
        "peers"
    }

    fn judge(&mut self, attempt: &mut dyn Attempt, _: Instant) -> Verdict {
        match (self.state)(attempt) {
            PeerState::Wanted | PeerState::Guest => Verdict::Next,
            PeerState::Disabled => Verdict::Refuse("the peer is disabled"),
            PeerState::OtherTransport => Verdict::Refuse("the peer may not use this transport"),
            PeerState::Nobody => Verdict::Refuse("no peer is configured there"),
        }
    }
}

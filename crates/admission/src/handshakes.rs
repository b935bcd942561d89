use std::{fmt, time::Instant};

use crate::{AddressProof, Attempt, PeerState, Stage, Verdict};

/// Turns away what comes while as many handshakes are under way as may be. [`ByHello`](crate::ByHello), before it, lets
/// some pass by.
///
/// Who is configured by address has room of its own: those who come from a range, who may be many, leave a quarter more.
pub struct Handshakes<F> {
    most: usize,
    state: F,
}

impl<F: FnMut(&dyn Attempt) -> PeerState> Handshakes<F> {
    /// So many at most, and of a peer that is configured by address and has proven it a quarter more, and one at least.
    pub fn new(most: usize, state: F) -> Self {
        Self { most, state }
    }

    /// Whether one more may be under way beside so many: where there is no room for all, who comes is looked at.
    fn has_room(&mut self, attempt: &dyn Attempt, handshakes: usize) -> bool {
        let most_of_all = self.most.saturating_add((self.most / 4).max(1));
        // An address that may be forged says nothing about who comes.
        handshakes < self.most
            || handshakes < most_of_all
                && attempt.proof() != AddressProof::None
                && (self.state)(attempt) == PeerState::Wanted
    }
}

impl<F> fmt::Debug for Handshakes<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handshakes").field("most", &self.most).finish_non_exhaustive()
    }
}

impl<F: FnMut(&dyn Attempt) -> PeerState> Stage for Handshakes<F> {
    fn name(&self) -> &'static str {
        "handshakes"
    }

    fn judge(&mut self, attempt: &mut dyn Attempt, _: Instant) -> Verdict {
        let handshakes = attempt.load().handshakes;
        if self.has_room(attempt, handshakes) {
            return Verdict::Next;
        }
        match attempt.proof() {
            AddressProof::None => Verdict::Ignore,
            AddressProof::Token | AddressProof::Handshake => {
                Verdict::Refuse("too many handshakes are under way")
            }
        }
    }
}

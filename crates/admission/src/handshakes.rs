use std::time::Instant;

use crate::{AddressProof, Attempt, Stage, Verdict};

/// Turns away what comes while as many handshakes are under way as may be. [`ByHello`](crate::ByHello), before it, lets
/// some pass by.
#[derive(Clone, Debug)]
pub struct Handshakes {
    most: usize,
}

impl Handshakes {
    /// So many at most.
    pub fn new(most: usize) -> Self {
        Self { most }
    }
}

impl Stage for Handshakes {
    fn name(&self) -> &'static str {
        "handshakes"
    }

    fn judge(&mut self, attempt: &mut dyn Attempt, _: Instant) -> Verdict {
        if attempt.load().handshakes < self.most {
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

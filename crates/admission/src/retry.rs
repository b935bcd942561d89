use std::{rc::Rc, time::Instant};

use crate::{AddressProof, Attempt, Pressure, Stage, Verdict};

/// When the sender is asked to prove its address.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub enum RetryPolicy {
    /// While there is load ([`Pressure`]).
    #[default]
    UnderLoad,
    /// Always: a round trip more for everybody.
    Always,
    /// Never.
    Never,
}

/// Asks for a proof of the address where none is given and one can be asked for. Counts for [`Pressure`].
#[derive(Clone, Debug)]
pub struct Retry {
    policy: RetryPolicy,
    pressure: Rc<Pressure>,
}

impl Retry {
    /// By this policy.
    pub fn new(policy: RetryPolicy, pressure: Rc<Pressure>) -> Self {
        Self { policy, pressure }
    }
}

impl Stage for Retry {
    fn name(&self) -> &'static str {
        "retry"
    }

    fn judge(&mut self, attempt: &mut dyn Attempt, now: Instant) -> Verdict {
        let proof = attempt.proof();
        // Who has a token was counted when it came without.
        if proof != AddressProof::Token {
            self.pressure.attempt(now);
        }
        let wanted = match self.policy {
            RetryPolicy::UnderLoad => self.pressure.is_high(attempt.load(), now),
            RetryPolicy::Always => true,
            RetryPolicy::Never => false,
        };
        if wanted && proof == AddressProof::None && attempt.can_retry() {
            Verdict::Retry
        } else {
            Verdict::Next
        }
    }
}

use std::{net::SocketAddr, rc::Rc, time::Instant};

use crate::{AddressProof, Attempt, PerAddress, Pressure, Rate, Stage, Verdict};

/// When the sender is asked to prove its address.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub enum RetryPolicy {
    /// While there is load ([`Pressure`]), or many come from one address ([`Retry::by_address`]).
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
    of_one: Option<PerAddress>,
}

impl Retry {
    /// By this policy.
    pub fn new(policy: RetryPolicy, pressure: Rc<Pressure>) -> Self {
        Self { policy, pressure, of_one: None }
    }

    /// Asks also whoever is behind an address from which more come than so many, load or not. Without it a peer that connects
    /// over and over would never be asked, and whoever counts what is proven would not see it.
    #[must_use]
    pub fn by_address(mut self, rate: Rate, peers: &[u128]) -> Self {
        self.of_one = Some(PerAddress::new(rate, peers));
        self
    }

    fn are_too_many(&mut self, from: SocketAddr, now: Instant) -> bool {
        self.of_one.as_mut().is_some_and(|of_one| !of_one.take(from, now))
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
        if proof != AddressProof::None || !attempt.can_retry() {
            return Verdict::Next;
        }
        let wanted = match self.policy {
            RetryPolicy::UnderLoad => {
                self.pressure.is_high(attempt.load(), now) || self.are_too_many(attempt.remote(), now)
            }
            RetryPolicy::Always => true,
            RetryPolicy::Never => false,
        };
        if wanted { Verdict::Retry } else { Verdict::Next }
    }
}

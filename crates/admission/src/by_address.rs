use std::time::Instant;

use crate::{AddressProof, Attempt, PerAddress, Rate, Stage, Verdict};

/// Refuses more than so many attempts of one address ([`PerAddress`]) once it is proven that they come from there. While
/// nothing proves it, others could use up what is an address's own.
#[derive(Clone, Debug)]
pub struct ByAddress(PerAddress);

impl ByAddress {
    /// Lets through so many of each. IPv6 addresses of peers count each for itself.
    pub fn new(rate: Rate, peers: &[u128]) -> Self {
        Self(PerAddress::new(rate, peers))
    }

    /// How many addresses are remembered.
    pub fn remembered(&self) -> usize {
        self.0.remembered()
    }
}

impl Stage for ByAddress {
    fn name(&self) -> &'static str {
        "by-address"
    }

    fn judge(&mut self, attempt: &mut dyn Attempt, now: Instant) -> Verdict {
        if attempt.proof() == AddressProof::None || self.0.take(attempt.remote(), now) {
            Verdict::Next
        } else {
            Verdict::Refuse("too many attempts from its address")
        }
    }
}

//! What is counted of signed routes.

use std::iter::Sum;

/// Sums over a peer's routes.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct SignatureCounts {
    /// By state.
    pub valid: u64,
    /// By state.
    pub not_valid: u64,
    /// By state.
    pub unverified: u64,
    /// Those with BGPsec_PATH, without signatures of a known suite.
    pub unsigned: u64,
    /// Hops that are to be verified.
    pub queued_hops: u64,
}

impl Sum for SignatureCounts {
    fn sum<I: Iterator<Item = Self>>(counts: I) -> Self {
        counts.fold(Self::default(), |sum, counts| Self {
            valid: sum.valid + counts.valid,
            not_valid: sum.not_valid + counts.not_valid,
            unverified: sum.unverified + counts.unverified,
            unsigned: sum.unsigned + counts.unsigned,
            queued_hops: sum.queued_hops + counts.queued_hops,
        })
    }
}

//! Distances.

use std::fmt;

/// A distance: 1 to 15, or infinity, which is 16 (RFC 2453 section 3.6).
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Metric(u8);

impl Metric {
    /// A network that is directly connected.
    pub const ONE: Self = Self(1);
    /// The destination cannot be reached.
    pub const INFINITY: Self = Self(16);

    /// `None` if it is not 1 to 16.
    pub fn new(value: u32) -> Option<Self> {
        u8::try_from(value).ok().filter(|value| (Self::ONE.0..=Self::INFINITY.0).contains(value)).map(Self)
    }

    /// 1 to 16.
    pub fn get(self) -> u8 {
        self.0
    }

    /// Whether it is less than infinity.
    pub fn is_reachable(self) -> bool {
        self < Self::INFINITY
    }

    /// MIN (metric + cost, infinity) (RFC 2453 section 3.9.2).
    pub fn plus(self, cost: Self) -> Self {
        Self(self.0.saturating_add(cost.0)).min(Self::INFINITY)
    }
}

impl fmt::Display for Metric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for Metric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

//! Serial numbers of a cache.

use std::fmt;

/// The number of a cache's version of its data. There is no greatest one: they go round (RFC 1982).
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub struct Serial(pub u32);

impl Serial {
    /// The one after it.
    pub fn next(self) -> Self {
        Self(self.0.wrapping_add(1))
    }

    /// Whether it comes after the other (RFC 1982 section 3.2). Of two that are half the circle apart neither does.
    pub fn is_newer_than(self, other: Self) -> bool {
        (1..1 << 31).contains(&self.0.wrapping_sub(other.0))
    }
}

impl fmt::Display for Serial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn serials_go_round() {
        assert_eq!(Serial(u32::MAX).next(), Serial(0));
        for (newer, older) in [(1, 0), (0, u32::MAX), (5, u32::MAX - 5), (0x7fff_ffff, 0), (0, 0x8000_0001)] {
            assert!(Serial(newer).is_newer_than(Serial(older)), "{newer} {older}");
            assert!(!Serial(older).is_newer_than(Serial(newer)), "{older} {newer}");
        }
        let apart = (Serial(0), Serial(1 << 31));
        assert!(!apart.0.is_newer_than(apart.1) && !apart.1.is_newer_than(apart.0), "undefined is no");
        assert!(!Serial(7).is_newer_than(Serial(7)));
    }
}

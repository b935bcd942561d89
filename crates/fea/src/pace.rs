//! How many routes are worked on before everything else has its turn.
//!
//! What a route costs is the kernel's matter: deleting a million one after the other, some cost a thousand times what others
//! do, when the kernel rebuilds the top of its tree for each. So the size of a slice follows from how long the last ones took.
//! Pure: times come in.

use std::time::Duration;

/// A slice is to take no longer.
const LONGEST: Duration = Duration::from_millis(5);
/// Routes in a slice at most: in larger ones a route costs the same.
const MOST: usize = 256;

/// The size of the next slice.
#[derive(Debug)]
pub(crate) struct Pace {
    slice: usize,
}

impl Default for Pace {
    fn default() -> Self {
        Self { slice: MOST }
    }
}

impl Pace {
    /// Routes in the next slice, at least one.
    pub(crate) fn slice(&self) -> usize {
        self.slice
    }

    /// The last slice took so long.
    pub(crate) fn took(&mut self, time: Duration) {
        if time > LONGEST {
            let fits = self.slice as u128 * LONGEST.as_micros() / time.as_micros().max(1);
            self.slice = usize::try_from(fits).unwrap_or(MOST).clamp(1, MOST);
        } else if time < LONGEST / 4 {
            self.slice = (self.slice * 2).min(MOST);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn routes_that_cost_much_are_worked_on_in_small_slices_and_others_in_large_ones() {
        let mut pace = Pace::default();
        // So many microseconds a route.
        let mut slices_at = |cost: u64| {
            (0..12).for_each(|_| pace.took(Duration::from_micros(cost * pace.slice() as u64)));
            pace.slice()
        };
        assert_eq!([2, 1_000, 100_000, 2].map(&mut slices_at), [MOST, 5, 1, MOST]);
    }

    #[test]
    fn one_slice_that_took_very_long_does_not_make_all_others_small() {
        let mut pace = Pace::default();
        pace.took(Duration::from_secs(3600));
        assert_eq!(pace.slice(), 1);
        (0..8).for_each(|_| pace.took(Duration::ZERO));
        assert_eq!(pace.slice(), MOST);
    }
}

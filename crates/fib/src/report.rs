//! What a backend has done and refused.

use std::collections::VecDeque;

use holdfast_types::Prefix;

use crate::Refused;

/// How many refused routes a [`Report`] remembers.
pub const ERRORS_KEPT: usize = 16;

/// Totals since the backend was made, except where they say "now".
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct Counters {
    /// Routes now in the forwarding plane.
    pub routes: u64,
    /// Handles now defined.
    pub next_hops: u64,
    /// Routes added or replaced.
    pub added: u64,
    /// Routes deleted.
    pub deleted: u64,
    /// Routes of a sync that were already there as they should be.
    pub kept: u64,
    /// Routes and next hops refused.
    pub errors: u64,
}

/// A route or next hop that was refused.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RouteError {
    /// The prefix, or the next hops by their handle.
    pub what: String,
    /// Why.
    pub error: String,
}

/// Counters, the last refusals, and what is refused now.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Totals.
    pub counters: Counters,
    /// What is refused now.
    pub refused: Refused,
    last_errors: VecDeque<RouteError>,
}

impl Report {
    /// A route is refused for itself.
    pub fn refuse_route(&mut self, prefix: Prefix, error: String) {
        self.refused.refuse(prefix);
        self.refuse(prefix.to_string(), error);
    }

    /// Counts a refusal and remembers it in the place of the oldest of [`ERRORS_KEPT`].
    pub fn refuse(&mut self, what: String, error: String) {
        self.counters.errors += 1;
        if self.last_errors.len() == ERRORS_KEPT {
            self.last_errors.pop_front();
        }
        self.last_errors.push_back(RouteError { what, error });
    }

    /// The last refusals, oldest first.
    pub fn last_errors(&self) -> impl Iterator<Item = &RouteError> {
        self.last_errors.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_refusal_is_counted_and_the_last_are_kept() {
        let mut report = Report::default();
        for number in 0..20 {
            report.refuse(number.to_string(), "no".into());
        }
        assert_eq!(report.counters.errors, 20);
        let kept: Vec<_> = report.last_errors().map(|error| error.what.as_str()).collect();
        assert_eq!((kept.len(), kept[0], kept[15]), (16, "4", "19"));
    }
}

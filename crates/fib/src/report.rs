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

/// Totals of what other programs did to routes and next hops of ours, and of what followed.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct Repairs {
    /// Routes that another program removed.
    pub removed: u64,
    /// Routes that another program replaced by its own.
    pub replaced: u64,
    /// Sets of next hops that another program removed or changed, or that the forwarding plane dropped by itself.
    pub next_hops: u64,
    /// Routes that a comparison did not find.
    pub unseen: u64,
    /// Routes that were made in our name and that nobody wanted.
    pub strays: u64,
    /// Pauses that began because other programs removed or replaced the same route again and again.
    pub pauses: u64,
    /// Times that there was no room for what other programs did.
    pub overruns: u64,
    /// Comparisons of the whole table that have ended.
    pub comparisons: u64,
}

/// What another program did last.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Interference {
    /// The port of its netlink socket: as a rule the number of the process.
    pub port: u32,
    /// The route, or the next hops.
    pub what: String,
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
    /// Totals of repairs.
    pub repairs: Repairs,
    /// What another program did last to a route or next hops of ours.
    pub interference: Option<Interference>,
    /// The route of the last pause.
    pub contested: Option<Prefix>,
    last_errors: VecDeque<RouteError>,
}

impl Report {
    /// A route is refused for itself.
    pub fn refuse_route(&mut self, prefix: Prefix, error: String) {
        self.refused.refuse(prefix, &error);
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

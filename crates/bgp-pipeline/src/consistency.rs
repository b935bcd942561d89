//! Checking the contract between stages in a running router.
//!
//! [`crate::CheckStage`] is for tests: it panics, copies whole lanes, and has to be there from the start. This observer
//! begins in the middle. Routes of sessions and the best ones are taken over from the table by a walk in slices; until that
//! has come by a prefix, nothing is checked there. What a group or the RIB was told of before is not stored anywhere: of
//! each route there the first change is believed. Nothing here takes time that grows with the table.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    fmt,
};

use holdfast_types::{Family, Prefix};

use crate::seam::{Observer, Old, RouteEvent, RouteNumber, Seam, StreamKey};

/// Violations that wait to be reported; further ones are counted.
const MOST_WAITING: usize = 64;

/// A change that does not follow from those before it.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Violation {
    /// The change.
    pub event: RouteEvent,
    /// What had passed last.
    pub known: Option<RouteNumber>,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let RouteEvent { seam, lane, old, new, .. } = self.event;
        write!(f, "at {seam:?}, {lane:?}: {old:?} becomes {new:?}, but there was {:?}", self.known)
    }
}

type Routes = BTreeMap<Prefix, RouteNumber>;

/// How far the table has been taken over.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Covered {
    Nothing,
    UpTo(Prefix),
    /// IPv4, whatever comes there from now on.
    Ipv4,
    All,
}

/// What has passed the seams since it was looked at.
#[derive(Debug)]
pub(crate) struct Consistency {
    held: BTreeMap<(Seam, StreamKey), Routes>,
    covered: Covered,
    /// Of these lanes not all that they have is known.
    unknown: BTreeSet<StreamKey>,
    waiting: VecDeque<Violation>,
    violations: u64,
    /// What is known of lanes that have ended, to be given back in slices.
    rest: Vec<Routes>,
}

impl Consistency {
    /// `told`: lanes of readers that are there already.
    pub(crate) fn new(told: impl Iterator<Item = StreamKey>) -> Self {
        Self {
            held: BTreeMap::new(),
            covered: Covered::Nothing,
            unknown: told.collect(),
            waiting: VecDeque::new(),
            violations: 0,
            rest: Vec::new(),
        }
    }

    /// A route of the table, as it has passed a seam before the walk came by.
    pub(crate) fn take_over(&mut self, seam: Seam, lane: StreamKey, prefix: Prefix, route: RouteNumber) {
        self.held.entry((seam, lane)).or_default().insert(prefix, route);
    }

    /// The table is known up to this prefix.
    pub(crate) fn cover(&mut self, last: Prefix) {
        self.covered = Covered::UpTo(last);
    }

    /// That of a family is known to its end; IPv4 comes first.
    pub(crate) fn cover_all(&mut self, family: Family) {
        self.covered = if family == Family::IPV4_UNICAST { Covered::Ipv4 } else { Covered::All };
    }

    /// Whether the table is known to its end.
    pub(crate) fn is_complete(&self) -> bool {
        self.covered == Covered::All
    }

    /// The next violation.
    pub(crate) fn poll(&mut self) -> Option<Violation> {
        self.waiting.pop_front()
    }

    pub(crate) fn violations(&self) -> u64 {
        self.violations
    }

    /// Gives back up to `budget` entries of what is known of ended lanes; whether there are more.
    pub(crate) fn free(&mut self, mut budget: usize) -> bool {
        while let Some(routes) = self.rest.last_mut() {
            while budget > 0 && routes.pop_first().is_some() {
                budget -= 1;
            }
            if budget == 0 {
                return true;
            }
            self.rest.pop();
        }
        false
    }

    /// All that is known is to be given back.
    pub(crate) fn forget(&mut self) {
        self.rest.extend(std::mem::take(&mut self.held).into_values());
    }

    fn drop_lane(&mut self, lane: StreamKey) {
        self.unknown.remove(&lane);
        let ended = self.held.extract_if(.., |(_, other), _| other.reader() == lane);
        self.rest.extend(ended.map(|(_, routes)| routes));
    }

    fn is_checked(&self, event: &RouteEvent) -> bool {
        let is_of_table = matches!(event.lane, StreamKey::Session(_) | StreamKey::LocRib);
        !is_of_table
            || match self.covered {
                Covered::Nothing => false,
                Covered::UpTo(last) => event.prefix <= last,
                Covered::Ipv4 => matches!(event.prefix, Prefix::V4(_)),
                Covered::All => true,
            }
    }
}

impl Observer for Consistency {
    fn pass(&mut self, event: &RouteEvent) {
        if !self.is_checked(event) {
            return;
        }
        let is_unknown = self.unknown.contains(&event.lane.reader());
        let routes = self.held.entry((event.seam, event.lane)).or_default();
        let known = match event.new {
            Some(new) => routes.insert(event.prefix, new),
            None => routes.remove(&event.prefix),
        };
        let follows = match event.old {
            Old::Unknown => true,
            Old::Is(old) => old == known || known.is_none() && is_unknown,
        };
        if follows {
            return;
        }
        self.violations += 1;
        if self.waiting.len() < MOST_WAITING {
            self.waiting.push_back(Violation { event: *event, known });
        }
    }

    fn fork(&mut self, _: StreamKey, to: StreamKey) {
        self.drop_lane(to);
        self.unknown.insert(to);
    }

    fn join(&mut self, lane: StreamKey, _: StreamKey) {
        self.drop_lane(lane);
    }

    fn end(&mut self, lane: StreamKey) {
        self.drop_lane(lane);
    }
}

impl StreamKey {
    /// The reader whose lane, or part of a lane, this is.
    fn reader(self) -> Self {
        match self {
            Self::GroupPath(group, _) => Self::Group(group),
            lane => lane,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prefix(n: u8) -> Prefix {
        Prefix::host([192, 0, 2, n].into())
    }

    fn event(lane: StreamKey, n: u8, old: Option<u64>, new: Option<u64>) -> RouteEvent {
        let seam = if lane == StreamKey::LocRib { Seam::DecisionToFanout } else { Seam::FanoutToExport };
        RouteEvent {
            seam,
            lane,
            prefix: prefix(n),
            old: Old::Is(old.map(RouteNumber)),
            new: new.map(RouteNumber),
        }
    }

    /// How many violations these changes of the best routes are.
    fn violations(
        check: &mut Consistency,
        lane: StreamKey,
        changes: &[(u8, Option<u64>, Option<u64>)],
    ) -> u64 {
        let before = check.violations();
        changes.iter().for_each(|(n, old, new)| check.pass(&event(lane, *n, *old, *new)));
        check.violations() - before
    }

    #[test]
    fn where_the_walk_has_been_each_change_is_checked_and_elsewhere_none() {
        let mut check = Consistency::new([].into_iter());
        let lane = StreamKey::LocRib;
        assert_eq!(violations(&mut check, lane, &[(1, Some(9), None), (2, Some(9), Some(1))]), 0);
        check.take_over(Seam::DecisionToFanout, lane, prefix(1), RouteNumber(5));
        check.cover(prefix(1));
        assert_eq!(violations(&mut check, lane, &[(1, Some(5), Some(6)), (2, Some(9), Some(1))]), 0);
        // Added twice, replaced as another one, deleted twice.
        let wrong = [(1, None, Some(7)), (1, Some(6), Some(8)), (1, Some(8), None), (1, Some(8), None)];
        assert_eq!(violations(&mut check, lane, &wrong), 3);
        check.cover_all(Family::IPV4_UNICAST);
        assert_eq!(violations(&mut check, lane, &[(200, None, Some(1)), (200, None, Some(1))]), 1);
        check.cover_all(Family::IPV6_UNICAST);
        assert!(check.is_complete());
        assert_eq!(violations(&mut check, lane, &[(3, None, Some(1)), (4, Some(2), None)]), 1);
        let text = check.poll().expect("a violation").to_string();
        assert!(text.starts_with("at DecisionToFanout, LocRib: Is(None) becomes "), "{text}");
    }

    #[test]
    fn what_a_reader_was_told_before_is_believed_and_what_comes_after_is_not() {
        let old = StreamKey::Group(1);
        let mut check = Consistency::new([old].into_iter());
        check.cover_all(Family::IPV6_UNICAST);
        assert_eq!(violations(&mut check, old, &[(1, Some(5), Some(6)), (1, Some(5), None)]), 1);
        assert_eq!(violations(&mut check, StreamKey::Group(2), &[(1, Some(5), Some(6))]), 1, "it is new");
        // It goes on from where another one is, and its place is then given to a new one.
        check.fork(StreamKey::Group(2), StreamKey::Group(3));
        assert_eq!(violations(&mut check, StreamKey::GroupPath(3, 7), &[(9, Some(1), None)]), 0);
        check.end(StreamKey::Group(3));
        assert_eq!(violations(&mut check, StreamKey::GroupPath(3, 7), &[(9, Some(1), None)]), 1);
    }

    #[test]
    fn so_many_violations_wait_and_all_are_counted() {
        let mut check = Consistency::new([].into_iter());
        check.cover_all(Family::IPV6_UNICAST);
        for _ in 0..MOST_WAITING + 5 {
            check.pass(&event(StreamKey::LocRib, 1, Some(1), None));
        }
        assert_eq!(check.violations(), MOST_WAITING as u64 + 5);
        assert_eq!(std::iter::from_fn(|| check.poll()).count(), MOST_WAITING);
    }

    #[test]
    fn what_is_known_is_given_back_in_slices() {
        let mut check = Consistency::new([].into_iter());
        check.cover_all(Family::IPV6_UNICAST);
        let changes: Vec<_> = (0..100).map(|n| (n, None, Some(1))).collect();
        assert_eq!(violations(&mut check, StreamKey::Group(1), &changes), 0);
        check.end(StreamKey::Group(1));
        assert_eq!([check.free(60), check.free(60), check.free(60)], [true, false, false]);
    }
}

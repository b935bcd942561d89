//! Refreshes of what the peer announces, from BoRR to EoRR (RFC 7313 section 4).

use std::time::{Duration, Instant};

use holdfast_types::Family;

use crate::timer::earlier;

/// What an Established session has to know for that.
#[derive(Clone, Debug, Default)]
pub(crate) struct Refreshes {
    /// Families of which the peer has sent its End-of-RIB.
    ended: Vec<Family>,
    /// Families that are being announced again, and until when that is waited for; `None`: for ever.
    running: Vec<(Family, Option<Instant>)>,
}

impl Refreshes {
    /// The peer has announced everything of a family once.
    pub(crate) fn end_of_rib(&mut self, family: Family) {
        if !self.ended.contains(&family) {
            self.ended.push(family);
        }
    }

    /// Whether the peer has done so.
    pub(crate) fn has_ended(&self, family: Family) -> bool {
        self.ended.contains(&family)
    }

    /// It begins to do so again, also if it has begun before: it has `longest` from now.
    pub(crate) fn begin(&mut self, family: Family, longest: Duration, now: Instant) {
        self.running.retain(|(other, _)| *other != family);
        self.running.push((family, now.checked_add(longest)));
    }

    /// It is done; whether it had begun.
    pub(crate) fn end(&mut self, family: Family) -> bool {
        let before = self.running.len();
        self.running.retain(|(other, _)| *other != family);
        self.running.len() < before
    }

    /// So much time has passed that the clock did not count.
    pub(crate) fn bring_forward(&mut self, by: Duration, now: Instant) {
        let deadlines = self.running.iter_mut().filter_map(|(_, until)| until.as_mut());
        deadlines.for_each(|deadline| *deadline = earlier(*deadline, by, now));
    }

    /// When [`Self::expire`] has something.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.running.iter().filter_map(|(_, until)| *until).min()
    }

    /// Families whose refresh is not waited for any longer.
    pub(crate) fn expire(&mut self, now: Instant) -> Vec<Family> {
        let is_due = |(_, until): &mut (Family, Option<Instant>)| until.is_some_and(|until| until <= now);
        self.running.extract_if(.., is_due).map(|(family, _)| family).collect()
    }

    /// Families that are being announced again.
    pub(crate) fn running(&self) -> impl Iterator<Item = Family> {
        self.running.iter().map(|(family, _)| *family)
    }
}

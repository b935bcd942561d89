//! What was published lately, change by change, for those who watch. Pure.
//!
//! Each watcher is somewhere in here, and has no queue of its own: one that is so slow that its place is gone is told all
//! there is once more.

use std::{
    collections::VecDeque,
    rc::Rc,
    time::{Duration, Instant},
};

use holdfast_rtr::Delta;

/// Records of all changes together; a long one counts as several. More at once is told as all there is: that is put together
/// beside what holds, piece by piece, where a change is applied in one turn of `bgp`.
const MOST_RECORDS: usize = 1 << 16;
/// Changes, many of which may be empty.
const MOST_CHANGES: usize = 1024;

/// So long it is said that something has expired to who has not heard it: twice as long as it takes to leave.
const LATELY: Duration = Duration::from_secs(120);

/// What differs from the epoch before.
#[derive(Debug)]
pub(crate) struct Change {
    pub(crate) epoch: u64,
    pub(crate) delta: Delta,
    /// When it holds no longer, if nothing more is heard; `None`: for ever.
    pub(crate) expires: Option<Instant>,
    /// What is withdrawn has expired, in part at least.
    pub(crate) expired: bool,
}

impl Change {
    fn weight(&self) -> usize {
        self.delta.announced.weight() + self.delta.withdrawn.weight()
    }
}

/// What comes after an epoch.
#[derive(Debug)]
pub(crate) enum Next {
    /// Nothing yet.
    Nothing,
    /// The next epoch.
    Change(Rc<Change>),
    /// It is not known any more.
    Lost,
}

/// Changes, the newest last.
#[derive(Debug, Default)]
pub(crate) struct Log {
    /// The newest; 0: nothing was published.
    epoch: u64,
    expires: Option<Instant>,
    /// The newest epoch in which something has expired, and when.
    expired: Option<(u64, Instant)>,
    changes: VecDeque<Rc<Change>>,
    weight: usize,
}

impl Log {
    /// The newest epoch; 0: nothing was published yet.
    pub(crate) fn epoch(&self) -> u64 {
        self.epoch
    }

    /// When the newest epoch holds no longer; `None`: never.
    pub(crate) fn expires(&self) -> Option<Instant> {
        self.expires
    }

    /// Whether something has expired since this epoch, not long ago.
    pub(crate) fn has_expired_since(&self, epoch: u64, now: Instant) -> bool {
        self.expired.is_some_and(|(expired, at)| expired > epoch && now < at + LATELY)
    }

    /// The next epoch. It may be as the one before, which then holds for another time.
    pub(crate) fn push(&mut self, delta: Delta, expires: Option<Instant>, expired: Option<Instant>) {
        self.epoch += 1;
        self.expires = expires;
        if let Some(at) = expired {
            self.expired = Some((self.epoch, at));
        }
        let change = Change { epoch: self.epoch, delta, expires, expired: expired.is_some() };
        self.weight += change.weight();
        self.changes.push_back(Rc::new(change));
        while self.weight > MOST_RECORDS || self.changes.len() > MOST_CHANGES {
            let Some(oldest) = self.changes.pop_front() else { return };
            self.weight -= oldest.weight();
        }
    }

    /// What follows this epoch.
    pub(crate) fn after(&self, epoch: u64) -> Next {
        if epoch == self.epoch {
            return Next::Nothing;
        }
        let behind = self.epoch.checked_sub(epoch).and_then(|behind| usize::try_from(behind).ok());
        let place = behind.and_then(|behind| self.changes.len().checked_sub(behind));
        match place.and_then(|place| self.changes.get(place)) {
            Some(change) => Next::Change(Rc::clone(change)),
            None => Next::Lost,
        }
    }
}

#[cfg(test)]
mod tests {
    use holdfast_rtr::Dataset;
    use holdfast_rtr_wire::Record;
    use holdfast_types::{Asn, Aspa, RouterKey, Ski};

    use super::*;

    /// So many announced keys.
    fn keys(count: usize) -> Delta {
        let key = |asn: usize| RouterKey { asn: Asn(asn as u32), ski: Ski([0; 20]), spki: Vec::new() };
        let announced = (0..count).map(|asn| Record::RouterKey(key(asn))).collect();
        Delta { announced, withdrawn: Dataset::default() }
    }

    /// One ASPA as long as they come.
    fn aspa() -> Delta {
        let announced =
            [Record::Aspa(Aspa::new(Asn(1), (1..16_000).map(Asn).collect()))].into_iter().collect();
        Delta { announced, withdrawn: Dataset::default() }
    }

    fn epochs(log: &Log, mut at: u64) -> Option<Vec<u64>> {
        let mut epochs = Vec::new();
        loop {
            match log.after(at) {
                Next::Nothing => return Some(epochs),
                Next::Lost => return None,
                Next::Change(change) => {
                    at = change.epoch;
                    epochs.push(at);
                }
            }
        }
    }

    #[test]
    fn a_watcher_goes_from_epoch_to_epoch() {
        let mut log = Log::default();
        assert_eq!(epochs(&log, 0), Some(vec![]));
        (0..3).for_each(|_| log.push(keys(1), None, None));
        assert_eq!(epochs(&log, 0), Some(vec![1, 2, 3]));
        assert_eq!(epochs(&log, 2), Some(vec![3]));
        assert_eq!(epochs(&log, 4), None, "of another life");
    }

    #[test]
    fn who_is_too_slow_has_lost_its_place() {
        let mut log = Log::default();
        (0..3).for_each(|_| log.push(keys(MOST_RECORDS / 5 * 2), None, None));
        assert_eq!(epochs(&log, 0), None);
        assert_eq!(epochs(&log, 1), Some(vec![2, 3]));
        log.push(keys(MOST_RECORDS + 1), None, None);
        assert_eq!((epochs(&log, 3), epochs(&log, 4)), (None, Some(vec![])), "too large to be kept at all");
        (0..=MOST_CHANGES).for_each(|_| log.push(Delta::default(), None, None));
        assert_eq!(epochs(&log, 4), None);
        assert_eq!(epochs(&log, 5).map(|epochs| epochs.len()), Some(MOST_CHANGES));
    }

    #[test]
    fn what_has_expired_is_said_to_whoever_was_there_before() {
        let mut log = Log::default();
        let now = Instant::now();
        log.push(keys(1), None, None);
        assert!(!log.has_expired_since(0, now));
        log.push(keys(1), None, Some(now));
        log.push(keys(1), None, None);
        assert!([0, 1].into_iter().all(|epoch| log.has_expired_since(epoch, now)));
        assert!(!log.has_expired_since(2, now) && !log.has_expired_since(0, now + LATELY));
    }

    #[test]
    fn long_records_count_by_their_length() {
        let mut log = Log::default();
        (0..100).for_each(|_| log.push(aspa(), None, None));
        assert!(log.changes.len() < 40, "{} of 64 KB each", log.changes.len());
    }
}

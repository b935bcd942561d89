//! How the table of keys has changed lately, for those who watch. Pure.
//!
//! Each watcher is somewhere in here, and has no queue of its own: one that is so slow that its place is gone is told that
//! everything may have changed.

use std::{collections::VecDeque, rc::Rc};

use holdfast_api::pathsec::v1::KeysChanged;

/// Names of keys in all changes together. A change of more is told as one of everything: to look at all routes once costs
/// less then, and `bgp` would do so by itself.
const MOST_NAMES: usize = 1 << 13;
/// Changes, some of which name nothing.
const MOST_CHANGES: usize = 1024;

/// What comes after a change.
#[derive(Debug)]
pub(crate) enum Next {
    /// Nothing yet.
    Nothing,
    /// The next change.
    Change(Rc<KeysChanged>),
    /// It is not known any more.
    Lost,
}

/// Changes, the newest last. The first one has the number 1.
#[derive(Debug, Default)]
pub(crate) struct Log {
    number: u64,
    changes: VecDeque<Rc<KeysChanged>>,
    names: usize,
}

impl Log {
    /// The number of the newest; 0: there was none.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    pub(crate) fn push(&mut self, change: KeysChanged) {
        self.number += 1;
        self.names += names(&change);
        self.changes.push_back(Rc::new(change));
        while self.names > MOST_NAMES || self.changes.len() > MOST_CHANGES {
            let Some(oldest) = self.changes.pop_front() else { return };
            self.names -= names(&oldest);
        }
    }

    /// What follows the change of this number.
    pub(crate) fn after(&self, number: u64) -> Next {
        if number == self.number {
            return Next::Nothing;
        }
        let behind = self.number.checked_sub(number).and_then(|behind| usize::try_from(behind).ok());
        let place = behind.and_then(|behind| self.changes.len().checked_sub(behind));
        match place.and_then(|place| self.changes.get(place)) {
            Some(change) => Next::Change(Rc::clone(change)),
            None => Next::Lost,
        }
    }
}

fn names(change: &KeysChanged) -> usize {
    change.added.len() + change.removed.len()
}

#[cfg(test)]
mod tests {
    use holdfast_api::pathsec::v1::KeyName;

    use super::*;

    /// A change of so many names.
    fn change(epoch: u64, names: usize) -> KeysChanged {
        KeysChanged { epoch, added: vec![KeyName::default(); names], ..KeysChanged::default() }
    }

    fn epochs(log: &Log, mut at: u64) -> Option<Vec<u64>> {
        let mut epochs = Vec::new();
        loop {
            match log.after(at) {
                Next::Nothing => return Some(epochs),
                Next::Lost => return None,
                Next::Change(change) => epochs.push(change.epoch),
            }
            at += 1;
        }
    }

    #[test]
    fn a_watcher_goes_from_change_to_change() {
        let mut log = Log::default();
        assert_eq!(epochs(&log, 0), Some(vec![]));
        (11..14).for_each(|epoch| log.push(change(epoch, 1)));
        assert_eq!((epochs(&log, 0), log.number()), (Some(vec![11, 12, 13]), 3));
        assert_eq!(epochs(&log, 2), Some(vec![13]));
        assert_eq!(epochs(&log, 4), None, "there is none of this number");
    }

    #[test]
    fn who_is_too_slow_has_lost_its_place() {
        let mut log = Log::default();
        (0..3).for_each(|epoch| log.push(change(epoch, MOST_NAMES / 5 * 2)));
        assert_eq!((epochs(&log, 0), epochs(&log, 1)), (None, Some(vec![1, 2])));
        log.push(change(3, MOST_NAMES + 1));
        assert_eq!((epochs(&log, 3), epochs(&log, 4)), (None, Some(vec![])), "too many to be kept at all");
        (0..=MOST_CHANGES).for_each(|_| log.push(change(4, 0)));
        assert_eq!(epochs(&log, 4), None);
        assert_eq!(epochs(&log, 5).map(|epochs| epochs.len()), Some(MOST_CHANGES));
    }
}

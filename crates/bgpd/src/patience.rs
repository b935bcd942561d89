//! How long peers wait for this process: the keeper, which ends whoever does not answer, goes by the one with the least patience.

use std::{cell::RefCell, collections::BTreeMap, rc::Rc, time::Duration};

use holdfast_process::progress::Progress;

/// So many times in its hold time a peer has to hear of us (RFC 4271 section 10): what is silent for longer than one of these
/// times endangers the session.
const TIMES: u32 = 3;

/// The hold times of all sessions of the process.
#[derive(Debug, Default)]
pub(crate) struct Waiters {
    progress: Progress,
    /// How many sessions have each.
    hold_times: RefCell<BTreeMap<Duration, usize>>,
}

/// A session that is up: its peer waits for as long as its hold time.
#[derive(Debug)]
pub(crate) struct Waits {
    of: Rc<Waiters>,
    hold_time: Duration,
}

impl Waiters {
    /// Of nobody. The keeper is told by this.
    pub(crate) fn new(progress: Progress) -> Self {
        Self { progress, hold_times: RefCell::default() }
    }

    /// A session with this hold time is up until what is returned is dropped. Zero: its peer waits for ever.
    pub(crate) fn add(self: &Rc<Self>, hold_time: Duration) -> Option<Waits> {
        if hold_time.is_zero() {
            return None;
        }
        *self.hold_times.borrow_mut().entry(hold_time).or_default() += 1;
        self.tell();
        Some(Waits { of: Rc::clone(self), hold_time })
    }

    fn tell(&self) {
        self.progress.set_patience(self.patience());
    }

    fn patience(&self) -> Option<Duration> {
        self.hold_times.borrow().first_key_value().map(|(shortest, _)| *shortest / TIMES)
    }
}

impl Drop for Waits {
    fn drop(&mut self) {
        let mut hold_times = self.of.hold_times.borrow_mut();
        if let Some(count) = hold_times.get_mut(&self.hold_time) {
            *count -= 1;
            if *count == 0 {
                hold_times.remove(&self.hold_time);
            }
        }
        drop(hold_times);
        self.of.tell();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shortest_hold_time_of_those_that_are_up_counts() {
        let waiters = Rc::new(Waiters::default());
        let seconds = Duration::from_secs;
        assert!(waiters.add(Duration::ZERO).is_none());
        assert_eq!(waiters.patience(), None);
        let [long, short, same] = [90, 9, 9].map(|hold_time| waiters.add(seconds(hold_time)));
        assert_eq!(waiters.patience(), Some(seconds(3)));
        drop(short);
        assert_eq!(waiters.patience(), Some(seconds(3)));
        drop(same);
        assert_eq!(waiters.patience(), Some(seconds(30)));
        drop(long);
        assert_eq!(waiters.patience(), None);
    }
}

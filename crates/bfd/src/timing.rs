//! How often a session sends and expects packets, and how that changes (RFC 5880 sections 6.5, 6.8.3).

/// While a session is not Up, it sends no more often.
pub(crate) const SLOW: u32 = 1_000_000;

/// A Poll Sequence: whether the neighbour is being asked to confirm what we advertise.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub(crate) enum Poll {
    /// It has confirmed it.
    #[default]
    Idle,
    /// It is being asked.
    Active,
    /// It is to be asked when a packet without F has come: until then nobody knows which question an F answers (the third
    /// choice of section 6.8.3).
    Wanted,
}

/// Intervals in microseconds.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct Timing {
    /// bfd.DesiredMinTxInterval, as advertised.
    pub(crate) desired_tx: u32,
    /// The one in use.
    pub(crate) tx: u32,
    /// bfd.RequiredMinRxInterval, as advertised.
    pub(crate) required_rx: u32,
    /// The one in use.
    pub(crate) rx: u32,
    pub(crate) poll: Poll,
    /// What was advertised when the poll began.
    polled: (u32, u32),
    /// No packet without F has come since the last poll ended.
    unsettled: bool,
}

impl Timing {
    pub(crate) fn new(desired_tx: u32, required_rx: u32) -> Self {
        let (tx, rx, polled) = (desired_tx, required_rx, (desired_tx, required_rx));
        Self { desired_tx, tx, required_rx, rx, poll: Poll::Idle, polled, unsettled: false }
    }

    /// Advertises other intervals from now on. While the session is Up, the neighbour has to confirm what would have it
    /// wait longer, or us wait less long.
    pub(crate) fn advertise(&mut self, desired_tx: u32, required_rx: u32, is_up: bool) {
        if (desired_tx, required_rx) == (self.desired_tx, self.required_rx) {
            return;
        }
        (self.desired_tx, self.required_rx) = (desired_tx, required_rx);
        if !is_up || desired_tx < self.tx {
            self.tx = desired_tx;
        }
        if !is_up || required_rx > self.rx {
            self.rx = required_rx;
        }
    }

    /// Asks the neighbour to confirm what is advertised, unless it is being asked.
    pub(crate) fn begin_poll(&mut self) {
        if self.poll == Poll::Active {
            return;
        }
        self.poll = if self.unsettled { Poll::Wanted } else { Poll::Active };
        self.polled = (self.desired_tx, self.required_rx);
    }

    /// Nobody is asked any more: the session is Down, and what is advertised is in use. The answer to what was asked may come.
    pub(crate) fn forget_poll(&mut self) {
        self.unsettled |= self.poll == Poll::Active;
        self.poll = Poll::Idle;
        (self.tx, self.rx) = (self.desired_tx, self.required_rx);
    }

    /// A packet has come, with F or without.
    pub(crate) fn received(&mut self, is_final: bool) {
        if !is_final {
            self.unsettled = false;
            if self.poll == Poll::Wanted {
                self.begin_poll();
            }
            return;
        }
        if self.poll != Poll::Active {
            return;
        }
        self.unsettled = true;
        if self.polled == (self.desired_tx, self.required_rx) {
            self.poll = Poll::Idle;
            (self.tx, self.rx) = self.polled;
        } else {
            self.poll = Poll::Wanted;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_would_make_somebody_wait_is_used_when_it_is_confirmed() {
        let mut timing = Timing::new(50, 50);
        timing.advertise(100, 20, true);
        timing.begin_poll();
        assert_eq!((timing.tx, timing.rx, timing.poll), (50, 50, Poll::Active));
        timing.received(false);
        assert_eq!((timing.tx, timing.rx, timing.poll), (50, 50, Poll::Active));
        timing.received(true);
        assert_eq!((timing.tx, timing.rx, timing.poll), (100, 20, Poll::Idle));
        timing.advertise(10, 70, true);
        assert_eq!((timing.tx, timing.rx), (10, 70), "that is used at once");
    }

    #[test]
    fn a_change_while_the_neighbour_is_asked_is_asked_about_when_it_is_clear_what_it_answers() {
        let mut timing = Timing::new(50, 50);
        timing.advertise(100, 50, true);
        timing.begin_poll();
        timing.advertise(200, 50, true);
        timing.begin_poll();
        timing.received(true);
        assert_eq!((timing.tx, timing.poll), (50, Poll::Wanted), "it may have answered the first question");
        timing.received(true);
        assert_eq!((timing.tx, timing.poll), (50, Poll::Wanted));
        timing.received(false);
        assert_eq!(timing.poll, Poll::Active);
        timing.received(true);
        assert_eq!((timing.tx, timing.poll), (200, Poll::Idle));
    }

    #[test]
    fn while_the_session_is_not_up_everything_is_used_at_once() {
        let mut timing = Timing::new(50, 50);
        timing.advertise(100, 20, true);
        timing.begin_poll();
        timing.forget_poll();
        assert_eq!((timing.tx, timing.rx, timing.poll), (100, 20, Poll::Idle));
        timing.advertise(SLOW, 10, false);
        assert_eq!((timing.tx, timing.rx), (SLOW, 10));
    }
}

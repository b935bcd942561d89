//! Timers: which there are, and when each is due.

use std::time::{Duration, Instant};

/// The timers of RFC 4271 section 10, RFC 9687 and draft-ietf-idr-bgp-bfd-strict-mode section 3.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Timer {
    /// The pause in Idle after a failure; one per peer.
    IdleHold,
    /// Until the next attempt to connect; one per peer.
    ConnectRetry,
    /// Until the connection is given up for lack of messages.
    Hold,
    /// Until the connection is given up because nothing can be sent.
    SendHold,
    /// Until the connection is given up because BFD does not come up, where the hold time is zero.
    BfdHold,
    /// Until our next KEEPALIVE.
    Keepalive,
}

impl Timer {
    /// All of them; of several that are due, those that end a connection come first.
    pub const ALL: [Self; 6] =
        [Self::IdleHold, Self::ConnectRetry, Self::Hold, Self::SendHold, Self::BfdHold, Self::Keepalive];
}

/// When each timer expires, for those that run.
#[derive(Clone, Debug, Default)]
pub(crate) struct TimerTable([Option<Instant>; Timer::ALL.len()]);

impl TimerTable {
    /// (Re)starts a timer. One that would expire after the end of time does not run.
    pub(crate) fn start(&mut self, timer: Timer, now: Instant, after: Duration) {
        self.0[timer as usize] = now.checked_add(after);
    }

    pub(crate) fn stop(&mut self, timer: Timer) {
        self.0[timer as usize] = None;
    }

    pub(crate) fn deadline(&self, timer: Timer) -> Option<Instant> {
        self.0[timer as usize]
    }

    /// So much time has passed that the clock did not count.
    pub(crate) fn bring_forward(&mut self, by: Duration, now: Instant) {
        self.0.iter_mut().flatten().for_each(|deadline| *deadline = earlier(*deadline, by, now));
    }

    pub(crate) fn next(&self) -> Option<Instant> {
        self.0.iter().flatten().min().copied()
    }

    /// Stops a timer that is due, and names it.
    pub(crate) fn take_due(&mut self, now: Instant) -> Option<Timer> {
        let due = Timer::ALL.into_iter().find(|timer| self.deadline(*timer).is_some_and(|at| at <= now))?;
        self.stop(due);
        Some(due)
    }
}

/// A deadline that is so much earlier; before the beginning of time, it is now.
pub(crate) fn earlier(deadline: Instant, by: Duration, now: Instant) -> Instant {
    deadline.checked_sub(by).unwrap_or(now)
}

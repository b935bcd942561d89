//! Connections that wait to be taken by the protocol.
//!
//! Whoever takes them may be away for a moment, as after a crash: what came in meanwhile waits, but not many and not long.
//! Pure: time comes in.

use std::{
    collections::VecDeque,
    os::fd::OwnedFd,
    time::{Duration, Instant},
};

use holdfast_api::transport::v1::Connection;

/// Connections that wait at most: one more is refused.
pub(crate) const MOST: usize = 256;
/// A connection that nobody has taken for so long is closed.
pub(crate) const LONGEST: Duration = Duration::from_secs(10);

/// A connection with its descriptor.
pub(crate) type AcceptedConnection = (Connection, OwnedFd);

/// The first in is the first out.
#[derive(Debug, Default)]
pub(crate) struct Handover {
    waiting: VecDeque<(Instant, AcceptedConnection)>,
    /// Those that were refused or closed.
    lost: u64,
    high: usize,
}

impl Handover {
    /// One more waits, or is returned: there are too many.
    pub(crate) fn offer(&mut self, handed: AcceptedConnection, now: Instant) -> Option<AcceptedConnection> {
        self.expire(now);
        if self.waiting.len() >= MOST {
            self.lost += 1;
            return Some(handed);
        }
        self.waiting.push_back((now, handed));
        self.high = self.high.max(self.waiting.len());
        None
    }

    /// The one that has waited longest.
    pub(crate) fn take(&mut self, now: Instant) -> Option<AcceptedConnection> {
        self.expire(now);
        self.waiting.pop_front().map(|(_, handed)| handed)
    }

    /// Closes those that have waited too long.
    pub(crate) fn expire(&mut self, now: Instant) {
        while self.waiting.front().is_some_and(|(since, _)| now.saturating_duration_since(*since) >= LONGEST)
        {
            self.waiting.pop_front();
            self.lost += 1;
        }
    }

    /// When [`Self::expire`] has something to do next.
    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        self.waiting.front().map(|(since, _)| *since + LONGEST)
    }

    /// Whether one more may wait.
    pub(crate) fn has_room(&self) -> bool {
        self.waiting.len() < MOST
    }

    /// How many wait, the most so far, and how many were lost.
    pub(crate) fn figures(&self) -> (usize, usize, u64) {
        (self.waiting.len(), self.high, self.lost)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn handed(peer: &str) -> AcceptedConnection {
        let (socket, _) = std::os::unix::net::UnixStream::pair().expect("sockets");
        (Connection { peer: peer.into(), ..Connection::default() }, socket.into())
    }

    #[test]
    fn what_came_first_is_taken_first() {
        let (mut handover, now) = (Handover::default(), Instant::now());
        for peer in ["a", "b"] {
            assert!(handover.offer(handed(peer), now).is_none());
        }
        let mut take = || handover.take(now).map(|(connection, _)| connection.peer);
        assert_eq!([take(), take(), take()], [Some("a".into()), Some("b".into()), None]);
    }

    #[test]
    fn nobody_waits_for_ever() {
        let (mut handover, now) = (Handover::default(), Instant::now());
        assert!(handover.offer(handed("early"), now).is_none());
        assert!(handover.offer(handed("late"), now + LONGEST / 2).is_none());
        assert_eq!(handover.next_deadline(), Some(now + LONGEST));
        let taken = handover.take(now + LONGEST).map(|(connection, _)| connection.peer);
        assert_eq!((taken.as_deref(), handover.figures()), (Some("late"), (0, 2, 1)));
    }

    #[test]
    fn there_is_room_for_so_many_and_no_more() {
        let (mut handover, now) = (Handover::default(), Instant::now());
        (0..MOST).for_each(|_| assert!(handover.offer(handed("a"), now).is_none()));
        assert!(handover.offer(handed("b"), now).is_some());
        assert_eq!(handover.figures(), (MOST, MOST, 1));
        assert!(handover.offer(handed("b"), now + LONGEST).is_none(), "the others are gone");
        assert_eq!(handover.figures(), (1, MOST, 1 + MOST as u64));
    }
}

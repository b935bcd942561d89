//! What is written about peers in the log: as far as there are not too many lines, for a peer can have as many events as it
//! likes.

use std::time::Instant;

use holdfast_bgp_session::SessionEvent;
use holdfast_process::log::Limits;
use tracing::{debug, info, warn};

use super::slot::Slot;

/// What a line is about. Each has a count of its own: with events of one kind a peer does not hide those of another.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum About {
    /// Connections that were tried, refused, or have failed before there was a session.
    Connections,
    /// A session, and why it has ended.
    Sessions,
    /// What of its UPDATEs was dropped.
    Drops,
    /// Refreshes and filters that make no sense, of which it can send any number in one session.
    Refreshes,
}

/// How many lines are written about whom.
#[derive(Debug, Default)]
pub(crate) struct Lines {
    connections: Limits,
    sessions: Limits,
    drops: Limits,
    refreshes: Limits,
}

impl Lines {
    /// Whether a line may be written about the peers or the range of this name.
    pub(super) fn may(&mut self, about: About, name: &str, now: Instant) -> bool {
        let limits = match about {
            About::Connections => &mut self.connections,
            About::Sessions => &mut self.sessions,
            About::Drops => &mut self.drops,
            About::Refreshes => &mut self.refreshes,
        };
        limits.may_write(name, now)
    }

    /// One line per change of adjacency, and one for what connecting fails with when that is something else than before; other
    /// attempts that failed are for debugging.
    pub(super) fn log(&mut self, slot: &mut Slot, event: &SessionEvent, now: Instant) {
        let neighbor = &slot.neighbor;
        let (peer, address) = (neighbor.name.as_str(), &neighbor.location);
        match event {
            SessionEvent::ConnectFailed(why) if slot.failed == *why => {
                debug!(peer, %address, "{event}");
            }
            SessionEvent::ConnectTimedOut if slot.unanswered => debug!(peer, %address, "{event}"),
            _ if !self.may(about(event), &neighbor.source.name, now) => {}
            SessionEvent::ConnectTimedOut => {
                info!(event = "connect-failed", peer, %address, "{event}");
                slot.unanswered = true;
            }
            SessionEvent::ConnectFailed(why) => {
                info!(event = "connect-failed", peer, %address, "{event}");
                slot.failed.clone_from(why);
            }
            SessionEvent::Established(_) => info!(event = "session-up", peer, %address, "{event}"),
            SessionEvent::Down(_) => warn!(event = "session-down", peer, %address, "{event}"),
            SessionEvent::RefreshTooEarly(_) | SessionEvent::RefreshTooLong(_) => {
                warn!(event = "refresh-failed", peer, %address, "{event}");
            }
            SessionEvent::Refused(_) | SessionEvent::CollisionLost(_) => {
                info!(event = "connection-refused", peer, %address, "{event}");
            }
            SessionEvent::OpenFailed(..) | SessionEvent::WithoutCapabilities => {
                info!(event = "session-failed", peer, %address, "{event}");
            }
        }
    }
}

fn about(event: &SessionEvent) -> About {
    match event {
        SessionEvent::Established(_) | SessionEvent::Down(_) => About::Sessions,
        SessionEvent::RefreshTooEarly(_) | SessionEvent::RefreshTooLong(_) => About::Refreshes,
        SessionEvent::ConnectFailed(_)
        | SessionEvent::ConnectTimedOut
        | SessionEvent::Refused(_)
        | SessionEvent::CollisionLost(_)
        | SessionEvent::OpenFailed(..)
        | SessionEvent::WithoutCapabilities => About::Connections,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn with_many_lines_of_one_kind_a_peer_hides_none_of_another() {
        let (mut lines, now) = (Lines::default(), Instant::now());
        for about in [About::Connections, About::Refreshes, About::Drops] {
            let written = (0..1000).filter(|_| lines.may(about, "guest", now)).count();
            assert!(written < 100, "{about:?}: {written}");
        }
        assert!(lines.may(About::Sessions, "guest", now));
    }
}

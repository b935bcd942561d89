//! What BFD has to do with the session (RFC 5882 section 10.2, draft-ietf-idr-bgp-bfd-strict-mode).

use std::time::Instant;

use holdfast_config::schema::PeerBfd;

use super::Peer;
use crate::{Bfd, DownReason, State, StopReason, connection::Connection};

impl Peer {
    /// Takes another configuration of BFD; a session that is up stays, whatever is `strict` from its next OPEN on.
    pub fn change_bfd(&mut self, bfd: Option<PeerBfd>, now: Instant) {
        let was_strict = self.config.is_bfd_strict();
        self.config.bfd = bfd;
        match &self.config.bfd {
            // BfdDisabled (event 33). What it has said of another session counts no more.
            None => {
                self.bfd = Bfd::Unknown;
                self.end_awaiting_bfd(now);
            }
            Some(bfd) if bfd.strict != was_strict => self.bfd_strict_changed(now),
            Some(_) => {}
        }
        self.history.enter(self.current_state(), now);
    }

    /// What BFD has said last.
    pub fn bfd(&self) -> Bfd {
        self.bfd
    }

    /// Whether the session waits for BFD to come up.
    pub fn awaits_bfd(&self) -> bool {
        self.connections.iter().flatten().any(Connection::awaits_bfd)
    }

    /// BfdStrictConfigChanged (event 35): what comes up with another OPEN begins anew.
    fn bfd_strict_changed(&mut self, now: Instant) {
        if self.has_open_connection() && self.current_state() != State::Established {
            self.stop(StopReason::OtherConfigChange, now);
        }
    }

    /// Events 30 to 32.
    pub(super) fn bfd_says(&mut self, bfd: Bfd, now: Instant) {
        let before = std::mem::replace(&mut self.bfd, bfd);
        match bfd {
            Bfd::Up | Bfd::AdminDown => self.end_awaiting_bfd(now),
            Bfd::Down { independent } if before == Bfd::Up => self.bfd_failed(independent, now),
            Bfd::Down { .. } | Bfd::Unknown => {}
        }
    }

    /// A session that waits for BFD need not do so.
    pub(super) fn bfd_releases(&self) -> bool {
        match self.bfd {
            Bfd::Up | Bfd::AdminDown => true,
            Bfd::Down { .. } | Bfd::Unknown => self.config.bfd.is_none(),
        }
    }

    fn end_awaiting_bfd(&mut self, now: Instant) {
        for slot in 0..self.connections.len() {
            let (connections, mut cx) = self.parts(now);
            let confirmed = connections[slot].as_mut().and_then(|waiting| waiting.end_awaiting_bfd(&mut cx));
            if let Some(negotiated) = confirmed {
                self.establish(slot, negotiated, now);
            }
        }
    }

    /// Packets do not arrive any more.
    fn bfd_failed(&mut self, independent: bool, now: Instant) {
        // RFC 5882 section 4.3: while the peer restarts, BFD fails for that reason alone unless its C bit is set.
        if independent {
            self.forget_retained();
        }
        for slot in 0..self.connections.len() {
            if self.connections[slot].as_ref().is_some_and(Connection::ends_with_bfd) {
                self.end(slot, DownReason::BfdDown, now);
            }
        }
    }
}

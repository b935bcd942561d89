//! We have restarted, and the kernel forwards as before (RFC 4724 section 4.1).
//!
//! Neighbours that were asked to help are told so in OPEN, and keep what we had announced. Nobody is told anything new
//! until the tables are what they were: all have sent their End-of-RIB, or have had their time. Sessions that go on
//! where another process has left them need nothing of this.

use std::{
    rc::Rc,
    time::{Duration, Instant},
};

use holdfast_bgp_session as session;
use tracing::info;

use super::Speaker;
use crate::config::Neighbor;

/// How often it is looked at whether the restart is over.
const LOOK: Duration = Duration::from_secs(1);

/// What is known of a restart of our own.
#[derive(Debug, Default)]
pub(crate) struct Restart {
    /// The kernel has kept our routes.
    routes_kept: bool,
    /// It is under way; when it is looked at again.
    next_look: Option<Instant>,
}

impl Restart {
    /// Whether announcements wait.
    pub(super) fn defers(&self) -> bool {
        self.next_look.is_some()
    }

    pub(super) fn next_look(&self) -> Option<Instant> {
        self.next_look
    }
}

impl Speaker {
    /// What ran before has left its routes in the kernel: only before the first peer.
    pub(crate) fn set_routes_kept(&mut self, kept: bool) {
        self.restart = Restart { routes_kept: kept, next_look: kept.then_some(self.started) };
    }

    /// What a new session of a peer begins with.
    pub(super) fn session_config(&self, neighbor: &Neighbor) -> session::PeerConfig {
        session::PeerConfig {
            restarting: self.restart.defers(),
            forwarding: self.restart.routes_kept,
            ..neighbor.session(&self.settings)
        }
    }

    /// Sessions go on where another process has left them: there was no restart for anybody to see.
    pub(super) fn is_no_restart(&mut self) {
        self.restart.next_look = None;
    }

    /// Ends the restart if everybody has sent what they have, or had their time.
    pub(super) fn look_at_restart(&mut self, now: Instant) {
        let due = self.restart.next_look.is_some_and(|at| at <= now);
        if !due {
            return;
        }
        if self.slots.is_empty() || !self.is_synced(now) {
            self.restart.next_look = Some(now + LOOK);
            return;
        }
        self.restart.next_look = None;
        self.slots.values_mut().for_each(|slot| slot.session.end_restarting());
        for connection in self.connections.values() {
            Rc::clone(&connection.wake).notify_one();
        }
        info!(
            event = "restart-over",
            "everybody has sent their routes, or has had their time: announcing ours"
        );
    }
}

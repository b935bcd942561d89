//! We have restarted, and the kernel forwards as before (RFC 4724 section 4.1).
//!
//! Neighbours that were asked to help are told so in OPEN, and keep what we had announced. They are told nothing new
//! until the tables are what they were: all have sent their End-of-RIB, or have had their time. Others have kept
//! nothing, and hear at once what there is; sessions that go on where another process has left them need nothing of this.

use std::{
    rc::Rc,
    time::{Duration, Instant},
};

use holdfast_bgp_session as session;
use holdfast_config::schema::GracefulRestart;
use tracing::info;

use super::{Sessions, slot::Slot};
use crate::config::{Neighbor, Settings};

/// How often it is looked at whether the restart is over.
const LOOK: Duration = Duration::from_secs(1);

impl Slot {
    /// The peer keeps what it was told before our restart: what it is to be told waits.
    pub(crate) fn defers(&self) -> bool {
        self.session.config().restarting
    }

    /// Whether our restart waits for what the peer has to send. One that restarts itself waits for us (RFC 4724 section
    /// 4.1), and a peer of a range is not waited for before it is there.
    pub(super) fn holds_restart_up(&self, now: Instant) -> bool {
        let theirs = self.session.negotiated().map(|negotiated| negotiated.graceful_restart.as_ref());
        let restarts = theirs.flatten().is_some_and(|theirs| theirs.restarting);
        let is_awaited = !self.dynamic || theirs.is_some();
        is_awaited && !restarts && !self.has_sent_all(now)
    }
}

impl Sessions {
    /// What ran before has left its routes in the kernel: only before the first peer.
    pub(crate) fn set_routes_kept(&mut self, kept: bool) {
        (self.routes_kept, self.next_look) = (kept, kept.then_some(self.started));
    }

    /// What a new session of a peer begins with.
    pub(crate) fn session_config(&self, neighbor: &Neighbor, settings: &Settings) -> session::PeerConfig {
        let config = neighbor.session(settings);
        let helped = config.rules.graceful_restart == GracefulRestart::Full;
        session::PeerConfig {
            restarting: helped && self.next_look.is_some(),
            forwarding: self.routes_kept,
            ..config
        }
    }

    /// Whether the tables are what they were before our restart, or there was time enough for that.
    fn is_restart_over(&self, settings: &Settings, now: Instant) -> bool {
        if now.saturating_duration_since(self.started) >= settings.sync {
            return !self.are_replaying();
        }
        !self.holds_restart_up(now)
    }

    /// Ends the restart if everybody has sent what they have, or had their time.
    pub(crate) fn look_at_restart(&mut self, settings: &Settings, now: Instant) {
        let due = self.next_look.is_some_and(|at| at <= now);
        if !due {
            return;
        }
        if !self.is_restart_over(settings, now) {
            self.next_look = Some(now + LOOK);
            return;
        }
        self.next_look = None;
        if !self.slots.values().any(Slot::defers) {
            return;
        }
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

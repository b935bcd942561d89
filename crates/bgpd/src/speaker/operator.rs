//! What the operator has done with a session.

use std::time::Instant;

use holdfast_bgp_pipeline::PeerIndex;
use holdfast_bgp_session::{Input, State, StopReason};

use super::Speaker;
use crate::sessions::slot::Slot;

impl Speaker {
    /// The operator has a peer stopped; the session stays down until [`Self::start_peer`], whatever becomes of this process.
    pub(crate) fn stop_peer(&mut self, index: PeerIndex, text: &str, now: Instant) {
        if self.sessions.keep_down(index, text) {
            self.input(index, Input::Stop(StopReason::AdminShutdown(text.to_owned())), now);
        }
    }

    /// Ends the session of a peer that is stopped: the process before has died before it could.
    pub(crate) fn end_if_stopped(&mut self, index: PeerIndex, now: Instant) {
        let Some(slot) = self.sessions.slot(index) else { return };
        if let Some(text) = self.sessions.stopped.noted(&slot.neighbor.location) {
            let text = text.to_owned();
            self.input(index, Input::Stop(StopReason::AdminShutdown(text)), now);
        }
    }

    /// The operator has a peer try at once; whether that may be: not where the configuration says `disabled`.
    pub(crate) fn start_peer(&mut self, index: PeerIndex, now: Instant) -> bool {
        let may = self.sessions.release(index);
        if may {
            self.input(index, Input::Start, now);
        }
        may
    }

    /// The operator has a session begin anew: one that is up, or held back. What stayed of an earlier one goes.
    pub(crate) fn clear_peer(&mut self, index: PeerIndex, text: &str, now: Instant) {
        let is_held = |slot: &Slot| {
            let leaves_nothing = slot.session.retained().next().is_none();
            slot.session.state() == State::Idle && !slot.is_kept_down() && leaves_nothing
        };
        match self.sessions.slot_mut(index) {
            Some(slot) if is_held(slot) => {
                self.start_peer(index, now);
            }
            Some(slot) => {
                slot.offends = false;
                self.input(index, Input::Stop(StopReason::AdminReset(text.to_owned())), now);
            }
            None => {}
        }
    }

    /// Ends every session, with a text for the operator on the other side (RFC 9003).
    pub(crate) fn shut_down(&mut self, text: &str, now: Instant) {
        for index in self.sessions.indexes() {
            self.input(index, Input::Stop(StopReason::AdminShutdown(text.to_owned())), now);
        }
    }
}

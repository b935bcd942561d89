//! Which BFD sessions peers have, and what follows from what they say.

use std::time::Instant;

use holdfast_api::bfd::v1::SessionState;
use holdfast_bgp_pipeline::PeerIndex;
use holdfast_bgp_session::{Bfd, Input};

use super::Speaker;
use crate::{
    bfd::{self, Following},
    sessions::slot::Slot,
};

impl Speaker {
    /// Has a peer followed as it is now to be, or not at all. What is said of another session does not count for this one.
    pub(super) fn follow_bfd(&mut self, index: PeerIndex, now: Instant) {
        let concerns = |slot: &Slot| slot.neighbor.source.bfd.is_some() || slot.bfd.is_some();
        if !self.sessions.slot(index).is_some_and(concerns) {
            return;
        }
        let wanted = self.sessions.wanted_bfd(index, &self.settings);
        let Some(slot) = self.sessions.slot_mut(index) else { return };
        let is_other_session = match (&slot.bfd, &wanted) {
            (None, None) => return,
            (Some(following), Some(wanted)) if following.wanted == *wanted => return,
            (Some(following), Some(wanted)) => !following.wanted.is_same_session(wanted),
            (Some(_), None) | (None, Some(_)) => true,
        };
        if is_other_session {
            slot.session.handle(Input::Bfd(Bfd::Unknown), now);
        }
        let before = slot.bfd.take();
        slot.bfd = wanted.map(|wanted| Following::new(wanted, before));
        let is_followed = slot.bfd.is_some();
        if is_followed {
            self.sessions.follow(index);
        }
        // When BFD finds a failure, the rib needs another way at once.
        self.pipeline.set_protected(index, is_followed);
    }

    /// BFD says this of the path to a peer. `is_new`: of a session that has begun, and has not been up.
    pub(crate) fn bfd_says(&mut self, index: PeerIndex, state: SessionState, is_new: bool, now: Instant) {
        let Some(slot) = self.sessions.slot_mut(index) else { return };
        let Some(following) = &mut slot.bfd else { return };
        following.said = Some((state, now));
        let (said, was_up) = (bfd::read(&state), slot.session.bfd() == Bfd::Up);
        if is_new && said != Bfd::Up {
            slot.session.handle(Input::Bfd(Bfd::Unknown), now);
        }
        let has_failed = slot.session.bfd() == Bfd::Up && matches!(said, Bfd::Down { .. });
        if has_failed {
            slot.bfd_failures += 1;
            self.reporter.bfd_down(slot, state.diagnostic, now);
        }
        self.input(index, Input::Bfd(said), now);
        if was_up != (said == Bfd::Up) {
            // For the next process, which may hear of a failure first.
            self.update_record(index, now);
        }
    }

    /// The process before has heard last that BFD is up, of a session that goes on.
    pub(super) fn bfd_was_up(&mut self, index: PeerIndex, now: Instant) {
        let slot = self.sessions.slot_mut(index).filter(|slot| slot.bfd.is_some());
        slot.into_iter().for_each(|slot| _ = slot.session.handle(Input::Bfd(Bfd::Up), now));
    }
}

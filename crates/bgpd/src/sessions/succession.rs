//! What is known of the process before, and noted for the next one: whose routes are here.

use std::{collections::BTreeMap, time::Instant};

use holdfast_bgp_pipeline::PeerIndex;
use holdfast_bgp_session::State;

use super::{
    Sessions,
    awaited::{Awaited, Stale},
    slot::Slot,
};
use crate::{config::Settings, location::Location, roster::Present};

/// What the rib calls routes that are no peer's: aggregates. Who is awaited may have contributed to them.
const NOBODY: u32 = 0;

impl Sessions {
    /// Who was there before, as that process has left it, or that this is not known; before any peer is added.
    /// `configured` says of a place whether somebody is expected there, and whether as one of a listen range.
    pub(crate) fn set_present(
        &mut self,
        mut present: Present,
        is_known: bool,
        configured: impl Fn(&Location) -> Option<bool>,
    ) {
        if is_known {
            let (mut places, mut gone) = (BTreeMap::new(), Vec::new());
            for location in present.peers() {
                match configured(location) {
                    Some(dynamic) => drop(places.insert(location.clone(), dynamic)),
                    None => gone.push(location.clone()),
                }
            }
            gone.iter().for_each(|location| present.leave(location));
            self.awaited = Awaited::These(places);
        }
        self.present = Some(present);
    }

    /// What it had is here, or on its way here: its session goes on.
    pub(crate) fn goes_on(&mut self, location: &Location) {
        self.awaited.remove(location);
    }

    /// The session does not go on after all.
    pub(crate) fn await_again(&mut self, location: Location, dynamic: bool) {
        if let Awaited::These(places) = &mut self.awaited {
            places.insert(location, dynamic);
        }
    }

    /// The peer is not configured any more.
    pub(super) fn await_no_more(&mut self, slot: &Slot) {
        if !slot.dynamic {
            self.awaited.remove(&slot.neighbor.location);
        }
        self.note_absent(&slot.neighbor.location);
    }

    /// Notes for the next process whether a peer has routes here.
    pub(crate) fn note_presence(&mut self, index: PeerIndex) {
        let Some(slot) = self.slots.get_mut(&index) else { return };
        let has_routes =
            slot.session.state() == State::Established || slot.session.retained().next().is_some();
        match (&mut self.present, has_routes, slot.source) {
            (Some(present), true, 0) => slot.source = present.enter(&slot.neighbor.location),
            (_, false, 1..) => {
                slot.source = 0;
                let location = slot.neighbor.location.clone();
                self.note_absent(&location);
            }
            _ => {}
        }
    }

    /// Of one that is awaited the rib has routes still.
    fn note_absent(&mut self, location: &Location) {
        if let Some(present) = self.present.as_mut().filter(|_| !self.awaited.contains(location)) {
            present.leave(location);
        }
    }

    /// Whether the peers have sent everything they have since this process started, or have had their time: a peer
    /// without End-of-RIB is taken to be done when it has been quiet.
    pub(crate) fn is_synced(&mut self, settings: &Settings, now: Instant) -> bool {
        if self.synced {
            return true;
        }
        self.end_waiting(now);
        let is_replaying = self.are_replaying();
        let is_over = now.saturating_duration_since(self.started) >= settings.sync;
        self.synced = !is_replaying
            && match &self.awaited {
                _ if is_over => true,
                Awaited::These(places) => places.is_empty(),
                Awaited::Everybody => {
                    self.slots.values().filter(|slot| !slot.dynamic).all(|slot| slot.has_sent_all(now))
                }
            };
        if self.synced {
            self.end_all_waiting();
        }
        self.synced
    }

    /// Which stale routes the rib is to keep; `None` while what peers have sent is still being replayed.
    pub(crate) fn stale(&mut self, settings: &Settings, now: Instant) -> Option<Stale> {
        if self.is_synced(settings, now) {
            return Some(Stale::Goes);
        }
        if self.are_replaying() {
            return None;
        }
        Some(match (&self.awaited, &self.present) {
            (Awaited::These(places), Some(present)) => {
                let sources = places.keys().map(|location| present.number(location));
                Stale::StaysOf(sources.chain([NOBODY]).collect())
            }
            (Awaited::Everybody, _) | (Awaited::These(_), None) => Stale::Stays,
        })
    }

    /// How many are waited for.
    pub(crate) fn awaited(&self) -> usize {
        match &self.awaited {
            Awaited::These(places) => places.len(),
            Awaited::Everybody => self.slots.len(),
        }
    }

    /// Nobody waits any more for who has sent all, or is not to come.
    fn end_waiting(&mut self, now: Instant) {
        let Awaited::These(places) = &mut self.awaited else { return };
        let (slots, locations) = (&self.slots, &self.locations);
        let ended = places.extract_if(.., |location, _| {
            let slot = locations.get(location).and_then(|index| slots.get(index));
            slot.is_some_and(|slot| slot.takeover.is_none() && slot.has_sent_all(now))
        });
        let ended: Vec<Location> = ended.map(|(location, _)| location).collect();
        self.note_ended(ended);
    }

    fn end_all_waiting(&mut self) {
        if let Awaited::These(places) = &mut self.awaited {
            let ended = std::mem::take(places).into_keys().collect();
            self.note_ended(ended);
        }
    }

    /// These are not awaited any more: who is not here either has no routes.
    fn note_ended(&mut self, ended: Vec<Location>) {
        for location in ended {
            let slot = self.locations.get(&location).and_then(|index| self.slots.get(index));
            if slot.is_none_or(|slot| slot.source == 0) {
                self.note_absent(&location);
            }
        }
    }

    /// Whether our restart waits for somebody, who is configured or there.
    pub(super) fn holds_restart_up(&self, now: Instant) -> bool {
        match &self.awaited {
            // Where all peers are of ranges nobody knows who is missing.
            Awaited::Everybody => {
                !self.slots.values().any(|slot| !slot.dynamic)
                    || self.slots.values().any(|slot| slot.holds_restart_up(now))
            }
            Awaited::These(places) => {
                self.are_replaying()
                    || places.iter().any(|(location, dynamic)| {
                        let slot = self.locations.get(location).and_then(|index| self.slots.get(index));
                        slot.map_or(!dynamic, |slot| slot.holds_restart_up(now))
                    })
            }
        }
    }
}

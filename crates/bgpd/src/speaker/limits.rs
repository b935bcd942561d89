//! How many prefixes peers may have: looked at when an UPDATE came, when something was announced, when a policy has
//! changed, never by route. How many octets may be kept for them: looked at after each turn of reading. And how much of a
//! core they may take of others: looked at after each turn that others have waited for.

use std::time::{Duration, Instant};

use holdfast_bgp_pipeline::{FamilyCounts, PeerIndex, Pipeline};
use holdfast_bgp_session::{Counted, Input, Level, PrefixLimit, State, StopReason};

use super::Speaker;
use crate::{reporter::Reporter, sessions::slot::Slot};

impl Slot {
    /// Tells the operator of counts that are near their limits or above; why the session has to end, if it does.
    pub(super) fn judge_limits(
        &mut self,
        index: PeerIndex,
        pipeline: &Pipeline,
        reporter: &mut Reporter,
        now: Instant,
    ) -> Option<StopReason> {
        if self.neighbor.limits.is_empty() || self.session.state() != State::Established {
            return None;
        }
        for limit in &self.neighbor.limits {
            let counts = pipeline.counts(index, limit.family);
            for counted in Counted::ALL {
                let Some(crossing) = self.limits.see(limit, counted, count(&counts, counted)) else {
                    continue;
                };
                reporter.prefixes(&self.neighbor, &crossing, now);
                if let Some(reason) = limit.stop(&crossing) {
                    return Some(reason);
                }
            }
        }
        None
    }
}

impl Speaker {
    /// Looks at the counts of a peer; ends its session where one is above its limit.
    pub(crate) fn check_limits(&mut self, index: PeerIndex, now: Instant) {
        let Some(slot) = self.sessions.slot_mut(index) else { return };
        if let Some(reason) = slot.judge_limits(index, &self.pipeline, &mut self.reporter, now) {
            self.stop_for_limit(index, reason, now);
        }
    }

    /// Looks at what is kept for a peer; ends its session where that is above its limit.
    pub(super) fn check_octets(&mut self, index: PeerIndex, now: Instant) {
        let Some(slot) = self.sessions.slot_mut(index) else { return };
        let limit = slot.neighbor.source.rules.max_octets.octets();
        if slot.session.state() != State::Established {
            return;
        }
        let kept = self.pipeline.kept_octets(index);
        let level = level(kept, limit);
        if level <= slot.octets {
            return;
        }
        slot.octets = level;
        self.reporter.octets(slot, kept, now);
        if level == Level::Over {
            slot.offends = true;
            self.input(index, Input::Stop(StopReason::MaxOctets { limit }), now);
        }
    }

    /// Another limit holds for what is kept.
    pub(super) fn change_octets(&mut self, index: PeerIndex, before: u64, now: Instant) {
        if let Some(slot) = self.sessions.slot_mut(index)
            && slot.neighbor.source.rules.max_octets.octets() != before
        {
            slot.octets = Level::Fine;
            self.check_octets(index, now);
        }
    }

    /// Another limit holds for what others wait.
    pub(super) fn change_cost(&mut self, index: PeerIndex, before: Option<u8>, now: Instant) {
        let Some(slot) = self.sessions.slot_mut(index) else { return };
        let limit = slot.neighbor.source.rules.max_cost;
        let is_other = limit != before && slot.session.state() == State::Established;
        // Nobody has waited any longer: what has been waited for is looked at again.
        if is_other && self.was_waited_for(index, Duration::ZERO, now) {
            self.stop_for_cost(index, now);
        }
    }

    /// Another peer has waited for a turn of this one, which has taken so long: whether its session has to end. What the exchange
    /// of the tables takes does not count.
    pub(crate) fn was_waited_for(&mut self, index: PeerIndex, took: Duration, now: Instant) -> bool {
        let Some(slot) = self.sessions.slot_mut(index) else { return false };
        if slot.exchanges_tables(now) {
            return false;
        }
        slot.cost.waited_for.add(now, took);
        let Some(limit) = slot.neighbor.source.rules.max_cost.map(u32::from) else { return false };
        let (permille, before) = (slot.cost.waited_for.permille(now), slot.cost_level);
        // Who stays near its limit is told of once, until it is far below.
        slot.cost_level = match level(permille.into(), u64::from(limit) * 10) {
            Level::Fine if permille * 2 > limit * 10 => before.min(Level::Near),
            level => level,
        };
        if slot.cost_level > before {
            self.reporter.cost(slot, permille / 10, now);
        }
        slot.cost_level == Level::Over
    }

    /// Ends the session of a peer that costs others more than it may.
    pub(crate) fn stop_for_cost(&mut self, index: PeerIndex, now: Instant) {
        if let Some(slot) = self.sessions.slot_mut(index) {
            let percent = slot.neighbor.source.rules.max_cost.map_or(0, u32::from);
            slot.offends = true;
            self.input(index, Input::Stop(StopReason::MaxCost { percent }), now);
        }
    }

    pub(super) fn stop_for_limit(&mut self, index: PeerIndex, reason: StopReason, now: Instant) {
        if let Some(slot) = self.sessions.slot_mut(index) {
            slot.limited = true;
        }
        self.input(index, Input::Stop(reason), now);
    }

    /// Other limits hold: the session may have to end, or may be tried again.
    pub(super) fn change_limits(&mut self, index: PeerIndex, before: &[PrefixLimit], now: Instant) {
        let Some(slot) = self.sessions.slot_mut(index).filter(|slot| slot.neighbor.limits != before) else {
            return;
        };
        slot.limits.forget();
        if slot.limited && !slot.is_kept_down() {
            self.start_peer(index, now);
        }
        self.check_limits(index, now);
    }
}

/// From three quarters of a limit on one is near it.
fn level(count: u64, limit: u64) -> Level {
    match count {
        count if count > limit => Level::Over,
        count if count >= limit / 4 * 3 => Level::Near,
        _ => Level::Fine,
    }
}

fn count(counts: &FamilyCounts, counted: Counted) -> u64 {
    match counted {
        Counted::Received => counts.routes.received,
        Counted::Accepted => counts.routes.accepted,
        Counted::Announced => counts.announced,
    }
}

//! Peers come, change and go.

use std::time::Instant;

use holdfast_bgp_pipeline::{Direction, PeerIndex, PeerKind};
use holdfast_bgp_session::{Input, Peer, StopReason};
use holdfast_types::Asn;

use super::Speaker;
use crate::{
    config::Neighbor,
    nonstop::Unprotected,
    sessions::slot::{PolicyChange, Slot},
};

impl Speaker {
    /// Adds a peer and starts it, unless it is disabled or stopped.
    pub(crate) fn add_peer(
        &mut self,
        neighbor: Neighbor,
        dynamic: bool,
        seed: u64,
        now: Instant,
    ) -> PeerIndex {
        let index = self.pipeline.add_peer(neighbor.pipeline(&self.settings, None));
        let session = Peer::new(self.sessions.session_config(&neighbor, &self.settings), seed, now);
        let range = self.sessions.ranges.get(&neighbor.source.name).filter(|_| dynamic);
        let offences = range.map_or(0, |range| range.offenders.times(&neighbor.location));
        let slot = self.sessions.insert(index, Slot::new(neighbor, session, dynamic));
        if !slot.is_kept_down() {
            slot.session.handle(Input::Start, now);
        }
        slot.session.count_failures(offences);
        slot.offends = offences > 0;
        // What a dynamic peer does begins with the connection that it is born of.
        if !dynamic {
            self.drain(index, now);
        }
        index
    }

    /// Ends a peer's session and forgets the peer.
    pub(crate) fn remove_peer(&mut self, index: PeerIndex, reason: StopReason, now: Instant) {
        self.input(index, Input::Stop(reason), now);
        self.forget(index);
    }

    /// Takes a stopped peer out. Connections that still say goodbye live on until they have.
    fn forget(&mut self, index: PeerIndex) {
        match self.sessions.take_out(index, self.pipeline.drops(index)) {
            None => {}
            Some(0) => self.pipeline.remove_peer(index),
            Some(_) => self.pipeline.peer_down(index),
        }
    }

    /// A peer of a listen range has no life beyond its connections.
    pub(super) fn end_dynamic(&mut self, index: PeerIndex) {
        if self.sessions.is_over(index) {
            self.forget(index);
        }
    }

    /// Another configuration of a peer whose session stays.
    pub(crate) fn change_peer(&mut self, index: PeerIndex, neighbor: Neighbor, now: Instant) {
        let Some(slot) = self.sessions.slot_mut(index) else { return };
        let before = std::mem::replace(&mut slot.neighbor, neighbor);
        let asn = slot.session.negotiated().map(|negotiated| negotiated.asn);
        slot.session.change_rules(slot.neighbor.source.session.clone(), now);
        slot.session.change_bfd(slot.neighbor.source.bfd.clone(), now);
        if let Some((id, _)) = slot.session.connection()
            && let Some((slot, connection)) = self.sessions.both_mut((index, id))
            && !slot.neighbor.source.nonstop
        {
            connection.unprotect(Unprotected::NotConfigured);
        }
        self.drain(index, now);
        self.configure_pipeline(index, asn);
        let Some(slot) = self.sessions.slot_mut(index) else { return };
        for direction in [Direction::Import, Direction::Export] {
            if self.pipeline.policy_progress(index, direction).is_some() {
                slot.policies.insert(direction, PolicyChange { started: now, ended: None });
            }
        }
        let next_hops = |of: &Neighbor| (of.source.next_hop_ipv4, of.source.next_hop_ipv6);
        let (has_next_hops, has_filter) =
            (next_hops(&slot.neighbor) == next_hops(&before), slot.neighbor.orf == before.orf);
        if !has_next_hops {
            self.change_next_hops(index, now);
        }
        if !has_filter {
            self.send_filters(index);
        }
        self.change_limits(index, &before.limits, now);
        self.change_octets(index, before.source.rules.max_octets.octets(), now);
        self.change_cost(index, before.source.rules.max_cost, now);
        self.change_disabled(index, before.disabled, now);
    }

    /// Other addresses of ours as next hop, with which the peer is told everything again.
    fn change_next_hops(&mut self, index: PeerIndex, now: Instant) {
        let Some((key, _)) = self.sessions.session_connection(index) else { return };
        let Some(slot) = self.sessions.slot(index) else { return };
        let Some(facts) =
            slot.session.negotiated().and_then(|agreed| self.sessions.facts(key, agreed, &self.settings))
        else {
            return;
        };
        self.reporter.next_hops(slot, &facts, now);
        self.pipeline.change_next_hops(index, facts.next_hop_v4, facts.next_hop_v6);
        self.announce_again(index, now);
    }

    /// Ends the session of a peer, which begins anew at once.
    pub(crate) fn begin_anew(&mut self, index: PeerIndex, now: Instant) {
        self.input(index, Input::Stop(StopReason::OtherConfigChange), now);
        self.input(index, Input::Start, now);
    }

    fn change_disabled(&mut self, index: PeerIndex, before: bool, now: Instant) {
        let Some(slot) = self.sessions.slot(index) else { return };
        match (before, slot.neighbor.disabled) {
            (false, true) => {
                let text = slot.neighbor.source.rules.shutdown_text.clone().unwrap_or_default();
                self.input(index, Input::Stop(StopReason::AdminShutdown(text)), now);
            }
            (true, false) if !slot.stopped => _ = self.input(index, Input::Start, now),
            (true, _) | (false, false) => {}
        }
    }

    /// Tells the pipeline, and the stage that damps, what is configured about a peer with this AS number.
    pub(crate) fn configure_pipeline(&mut self, index: PeerIndex, asn: Option<Asn>) {
        let Some(slot) = self.sessions.slot(index) else { return };
        let config = slot.neighbor.pipeline(&self.settings, asn);
        if let Some(damping) = &self.damping {
            let damped = slot.neighbor.source.damping && config.kind == PeerKind::Ebgp;
            damping.borrow_mut().set_peer(index, damped);
        }
        self.pipeline.configure_peer(index, config);
    }
}

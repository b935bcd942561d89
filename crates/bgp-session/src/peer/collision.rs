//! Two connections: which one is kept, and the way to Established (RFC 4271 section 6.8).

use std::time::Instant;

use holdfast_bgp_wire::{CeaseSubcode, Notification};

use super::Peer;
use crate::{
    DownReason, Negotiated, Output, Role, SessionEvent,
    connection::{Connection, Phase},
};

impl Peer {
    /// A good OPEN came in (event 19).
    ///
    /// The side whose connection is to be kept decides, and does so before it sends a KEEPALIVE on either:
    /// so the other side never sees a session come up on a connection that is then closed.
    pub(super) fn opened(&mut self, slot: usize, negotiated: Negotiated, now: Instant) {
        let other = 1 - slot;
        let preserved = self.preserved(&negotiated);
        let role = |slot: usize| self.connections[slot].as_ref().map(|connection| connection.role);
        match self.connections[other].as_ref().map(|rival| &rival.phase) {
            None => {}
            // It could only lead to a collision.
            Some(Phase::Connect) => _ = self.drop_dial(),
            // RFC 4271 section 6.8 allows this where the peer's Identifier is known, as it is by now.
            Some(Phase::OpenSent) if preserved == Role::Outgoing && role(other) == Some(preserved) => {
                return self.lose(slot, now);
            }
            // The peer may have given it up already, for this one.
            Some(Phase::OpenSent) => {}
            Some(Phase::AwaitsBfd { .. } | Phase::OpenConfirm(_)) if role(slot) == Some(preserved) => {
                self.lose(other, now);
            }
            // RFC 4724 section 5 gives the session up as soon as the peer connects anew. We wait until the
            // peer confirms the new one: a connection that crossed the session's coming up is no restart.
            Some(Phase::Established(session)) if session.negotiated.peer_restarts_gracefully() => {}
            Some(Phase::AwaitsBfd { .. } | Phase::OpenConfirm(_) | Phase::Established(_)) => {
                return self.lose(slot, now);
            }
        }
        let waits = negotiated.bfd_strict && !self.bfd_releases();
        let (connections, mut cx) = self.parts(now);
        let Some(connection) = &mut connections[slot] else { return };
        if waits {
            connection.await_bfd(negotiated, &mut cx);
            let role = connection.role;
            self.out.log(SessionEvent::AwaitsBfd(role));
        } else {
            connection.confirm(negotiated, &mut cx);
        }
    }

    /// Which of two connections is kept: the one that the speaker with the higher BGP Identifier dialled,
    /// or, where the Identifiers are the same, the one with the higher AS number (RFC 6286 section 2.3).
    fn preserved(&self, negotiated: &Negotiated) -> Role {
        let ours = (self.config.router_id, self.config.local_asn);
        if ours > (negotiated.router_id, negotiated.asn) { Role::Outgoing } else { Role::Incoming }
    }

    /// OpenCollisionDump (event 23). The other connection remains, so nothing else follows.
    fn lose(&mut self, slot: usize, now: Instant) {
        let cease = Notification::cease(CeaseSubcode::ConnectionCollisionResolution);
        if let Some(lost) = self.retire(slot, &DownReason::Sent(cease), now) {
            self.out.log(SessionEvent::CollisionLost(lost.role));
        }
    }

    /// A speaker dials one connection at a time: when a new one comes in, an earlier one that did not get
    /// to Established is dead at the other end, and would block us until its hold timer expires.
    pub(super) fn drop_superseded(&mut self, now: Instant) {
        let superseded = |c: &Connection| c.role == Role::Incoming && c.established().is_none();
        if let Some(slot) = self.connections.iter().position(|c| c.as_ref().is_some_and(superseded)) {
            self.lose(slot, now);
        }
    }

    /// The first KEEPALIVE (event 26 in OpenConfirm). Never two Established: whatever else there is goes.
    pub(super) fn establish(&mut self, slot: usize, negotiated: Negotiated, now: Instant) {
        let other = 1 - slot;
        match self.connections[other].as_ref().map(|rival| &rival.phase) {
            None => {}
            Some(Phase::Connect) => _ = self.drop_dial(),
            Some(Phase::OpenSent | Phase::AwaitsBfd { .. } | Phase::OpenConfirm(_)) => self.lose(other, now),
            Some(Phase::Established(_)) => _ = self.finish(other, DownReason::Replaced, now),
        }
        let (connections, mut cx) = self.parts(now);
        let Some(connection) = &mut connections[slot] else { return };
        connection.establish(negotiated.clone(), now, &mut cx);
        let (id, role) = (connection.link.id, connection.role);
        self.history.established += 1;
        // What this session brings is forwarded when it is lost, too: the next OPEN says so (RFC 8538 section 4).
        self.config.forwarding = true;
        let gone = self.retention.peer_is_back(&negotiated, self.config.rules.stale_time, now);
        self.out.push(Output::Established(id, Box::new(negotiated)));
        gone.into_iter().for_each(|family| self.out.push(Output::Forget(family)));
        self.out.log(SessionEvent::Established(role));
    }
}

//! Somebody has come in: handed over, or turned away.

use std::{rc::Rc, time::Instant};

use holdfast_api::transport::v1::Connection;
use holdfast_transport::{Outcome, Permit};
use tokio::time::sleep_until;
use tracing::warn;

use crate::{
    carried::REJECTED, connect::hand_out, door::ConnectionBroker, entry::Entry, handover::AcceptedConnection,
    peers::Peer, succession,
};

impl ConnectionBroker {
    /// Somebody has come in who has proven who it is, as far as that is still wanted.
    pub(crate) fn let_in(self: &Rc<Self>, entry: &Rc<Entry>, mut connection: holdfast_transport::Connection) {
        let permit = connection.permit.take();
        let identity = &connection.identity;
        let (peer, remote, protocol) = (identity.peer.clone(), identity.remote, identity.protocol);
        let is_wanted =
            |peer: &Rc<Peer>| peer.name == identity.peer && peer.may_use(protocol) && !peer.disabled;
        if !entry.peer(remote).as_ref().is_some_and(is_wanted) {
            connection.control.close(REJECTED, "");
            return self.turn_away(&peer, permit, "the peer may not come in any more");
        }
        match hand_out(self, connection, entry.source(remote).interface.as_deref()) {
            // The kernel's own socket: nothing of it is carried here.
            Ok(handed) if handed.0.number == 0 => self.hand_over(handed, permit),
            Ok(handed) => self.beside_others(entry, handed, permit),
            Err(error) => {
                settle(permit, Outcome::Refused);
                warn!(event = "accept-failed", address = %entry.address, "taking a connection: {error}");
            }
        }
    }

    /// Hands a connection over that is carried from now on, as others with the same peer may be.
    fn beside_others(
        self: &Rc<Self>,
        entry: &Entry,
        handed: AcceptedConnection,
        permit: Option<Box<dyn Permit>>,
    ) {
        let earlier = self.carried.beside(&handed.0);
        if earlier.len() <= succession::MOST {
            let (door, protocol) = (Rc::clone(self), entry.protocol);
            self.spawn(succession::hand_over(door, protocol, handed, permit, earlier));
        } else {
            self.reject(&handed.0, permit, "the peer has too many already");
        }
    }

    /// A connection that has come in and is carried is closed at once.
    fn reject(&self, connection: &Connection, permit: Option<Box<dyn Permit>>, why: &str) {
        if let Some(carried) = self.carried.get(connection.number) {
            carried.control.close(REJECTED, "");
        }
        self.turn_away(&connection.peer, permit, why);
    }

    /// Says that somebody has proven who it is, and is not wanted.
    fn turn_away(&self, peer: &str, permit: Option<Box<dyn Permit>>, why: &str) {
        settle(permit, Outcome::Refused);
        if self.may_log(peer) {
            warn!(event = "connection-refused", peer, "connection refused: {why}");
        }
    }

    /// A connection that has come in waits to be taken.
    pub(crate) fn hand_over(self: &Rc<Self>, handed: AcceptedConnection, permit: Option<Box<dyn Permit>>) {
        let mut handover = self.handover.borrow_mut();
        let is_first = handover.next_deadline().is_none();
        let offered = handover.offer(handed, Instant::now());
        if let Some((connection, _)) = &offered {
            return self.reject(connection, permit, "too many wait to be taken");
        }
        if is_first {
            self.spawn(expire(Rc::clone(self)));
        }
        drop(handover);
        self.offered.notify_waiters();
        settle(permit, Outcome::LetIn);
    }
}

fn settle(permit: Option<Box<dyn Permit>>, outcome: Outcome) {
    if let Some(permit) = permit {
        permit.settle(outcome);
    }
}

/// Closes connections that nobody takes, until none is left.
async fn expire(door: Rc<ConnectionBroker>) {
    loop {
        let deadline = door.handover.borrow().next_deadline();
        let Some(deadline) = deadline else { return };
        sleep_until(deadline.into()).await;
        door.handover.borrow_mut().expire(Instant::now());
        door.taken.notify_waiters();
    }
}

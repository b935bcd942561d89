//! Connections of peers: those that are asked for, there, and saying goodbye.

use std::{net::SocketAddr, time::Instant};

use holdfast_bgp_pipeline::PeerIndex;
use holdfast_bgp_session::{ConnId, State};
use holdfast_nsr::SessionId;
use tokio::task::AbortHandle;

use super::{Effect, Sessions, slot::Slot};
use crate::{
    connection::{Connection, Key},
    nonstop::Unprotected,
    stream::AcceptedConnection,
};

impl Sessions {
    /// The next thing to be done outside.
    pub(crate) fn poll_effect(&mut self) -> Option<Effect> {
        self.effects.pop_front()
    }

    /// A session asks for a connection.
    pub(crate) fn dial(&mut self, index: PeerIndex, id: ConnId) {
        if let Some(slot) = self.slots.get_mut(&index) {
            slot.dialing.insert(id, None);
            self.effects.push_back(Effect::Dial((index, id), slot.neighbor.name.clone()));
        }
    }

    /// The task that dials, so that it can be given up.
    pub(crate) fn dialing(&mut self, (index, id): Key, task: AbortHandle) {
        match self.slots.get_mut(&index).and_then(|slot| slot.dialing.get_mut(&id)) {
            Some(place) => *place = Some(task),
            None => task.abort(),
        }
    }

    /// A connection that was asked for is there, or cannot be made; whether it is still wanted.
    pub(crate) fn dialled(&mut self, (index, id): Key) -> bool {
        self.slots.get_mut(&index).is_some_and(|slot| slot.dialing.remove(&id).is_some())
    }

    /// The keeper is to have a copy of a connection's descriptor.
    pub(crate) fn keep(&mut self, key: Key) {
        self.effects.push_back(Effect::Keep(key));
    }

    /// Adds a connection that somebody has opened to us.
    pub(crate) fn accept(&mut self, index: PeerIndex, handed: AcceptedConnection, now: Instant) -> Key {
        let id = ConnId(self.next_accepted);
        self.next_accepted = (self.next_accepted + 1) % ConnId::FIRST_DIALLED.0;
        self.add_connection((index, id), Connection::new(handed, now));
        (index, id)
    }

    pub(crate) fn add_connection(&mut self, key: Key, connection: Connection) {
        self.connections.insert(key, connection);
    }

    /// Adds one that the process before has had, under its number.
    pub(crate) fn resume_connection(&mut self, key: Key, connection: Connection) {
        self.add_connection(key, connection);
        if !key.1.is_dialled() {
            self.next_accepted = self.next_accepted.max((key.1.0 + 1) % ConnId::FIRST_DIALLED.0);
        }
    }

    /// A session has no more use for a connection: what is queued goes out, then it is closed.
    pub(crate) fn close(&mut self, (index, id): Key) {
        if let Some(connection) = self.connections.get_mut(&(index, id)) {
            connection.closing = true;
            connection.unprotect(Unprotected::Ending);
            connection.wake.notify_one();
        } else if let Some(slot) = self.slots.get_mut(&index)
            && let Some(Some(task)) = slot.dialing.remove(&id)
        {
            task.abort();
        }
    }

    /// The socket is gone, whoever closed it; whether it was the last one of a peer that is gone.
    pub(crate) fn drop_connection(&mut self, key: Key) -> bool {
        if self.connections.remove(&key).is_some()
            && let Some(open) = self.leaving.get_mut(&key.0)
        {
            *open -= 1;
            if *open == 0 {
                self.leaving.remove(&key.0);
                return true;
            }
        }
        false
    }

    #[inline]
    pub(crate) fn connection(&self, key: Key) -> Option<&Connection> {
        self.connections.get(&key)
    }

    #[inline]
    pub(crate) fn connection_mut(&mut self, key: Key) -> Option<&mut Connection> {
        self.connections.get_mut(&key)
    }

    pub(crate) fn connections(&self) -> impl Iterator<Item = (Key, &Connection)> {
        self.connections.iter().map(|(key, connection)| (*key, connection))
    }

    /// A connection and whose it is.
    #[inline]
    pub(crate) fn both_mut(&mut self, key: Key) -> Option<(&mut Slot, &mut Connection)> {
        Some((self.slots.get_mut(&key.0)?, self.connections.get_mut(&key)?))
    }

    /// The connection of an established session.
    pub(crate) fn session_connection(&self, index: PeerIndex) -> Option<(Key, &Connection)> {
        let slot = self.slots.get(&index)?;
        let (id, _) = slot.session.connection()?;
        let key = (index, id);
        (slot.session.state() == State::Established)
            .then(|| Some((key, self.connections.get(&key)?)))
            .flatten()
    }

    /// The connection of a session in the log.
    pub(crate) fn key_of(&self, id: SessionId) -> Option<Key> {
        let is_its = |connection: &Connection| connection.held.as_ref().is_some_and(|held| held.id == id);
        self.connections.iter().find(|(_, connection)| is_its(connection)).map(|(key, _)| *key)
    }

    /// Whether the connection has this place in the log.
    pub(crate) fn holds(&self, key: Key, id: SessionId) -> bool {
        let held = self.connections.get(&key).and_then(|connection| connection.held.as_ref());
        held.is_some_and(|held| held.id == id)
    }

    /// Connections of a peer that have these numbers: the peer says nothing over them any more.
    pub(crate) fn numbered(&self, index: PeerIndex, numbers: &[u64]) -> Vec<Key> {
        let is_one = |(key, connection): &(&Key, &Connection)| {
            key.0 == index && numbers.contains(&connection.said.number)
        };
        self.connections.iter().filter(is_one).map(|(&key, _)| key).collect()
    }

    /// An interface has this number now, or 0 while it carries nothing: connections of its peers over another link, which are
    /// lost.
    pub(crate) fn over_another_link(&mut self, interface: &str, link: u32) -> Vec<Key> {
        let slots = &self.slots;
        self.links.retain(|known, _| slots.values().any(|slot| slot.is_on(known)));
        let before = self.links.insert(interface.into(), link);
        let is_lost = |(key, connection): &(&Key, &Connection)| {
            let is_here = slots.get(&key.0).is_some_and(|slot| slot.is_on(interface));
            is_here
                && match connection.remote {
                    SocketAddr::V6(remote) if remote.scope_id() != 0 => remote.scope_id() != link,
                    // Neither an address of wider scope nor some doors say which link the connection is over.
                    SocketAddr::V4(_) | SocketAddr::V6(_) => link == 0 || before.is_some_and(|it| it != link),
                }
        };
        self.connections.iter().filter(is_lost).map(|(&key, _)| key).collect()
    }

    /// The peers that are on the link of an interface.
    pub(crate) fn on(&self, interface: &str) -> Vec<PeerIndex> {
        let here = self.slots.iter().filter(|(_, slot)| slot.is_on(interface));
        here.map(|(index, _)| *index).collect()
    }

    /// Whether every connection is closed.
    pub(crate) fn is_quiet(&self) -> bool {
        self.connections.is_empty()
    }
}

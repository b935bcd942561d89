//! Connections come and go.

use std::{
    io,
    time::{Duration, Instant},
};

use holdfast_bgp_pipeline::PeerIndex;
use holdfast_bgp_session::Input;

use super::Speaker;
use crate::{
    connection::{Connection, Key},
    location::Location,
    stream::AcceptedConnection,
};

impl Speaker {
    /// A connection that was asked for is there; whether it is still wanted.
    pub(crate) fn connected(&mut self, key: Key, handed: AcceptedConnection, now: Instant) -> bool {
        let wanted = self.sessions.dialled(key);
        if wanted {
            self.sessions.add_connection(key, Connection::new(handed, now));
            self.input(key.0, Input::Connected(key.1), now);
        }
        wanted
    }

    /// There is no connection, over whatever: that is one event (18 of RFC 4271).
    pub(crate) fn connect_failed(&mut self, key: Key, why: &str, now: Instant) {
        self.sessions.dialled(key);
        self.input(key.0, Input::ConnectFailed(key.1, why), now);
    }

    /// A connection came in from a peer that is known: its key, or itself if it is not for this peer. Over those of the numbers in `replaced` the
    /// peer says nothing any more; as they end last, the peer has a connection all the time and need not wait for the next.
    pub(crate) fn accepted(
        &mut self,
        index: PeerIndex,
        handed: AcceptedConnection,
        replaced: &[u64],
        now: Instant,
    ) -> Result<Key, Box<AcceptedConnection>> {
        let key = self.accept(index, handed, now);
        for key in self.sessions.numbered(index, replaced) {
            self.lost(key, Some(io::ErrorKind::ConnectionReset), now);
        }
        self.end_dynamic(index);
        key
    }

    fn accept(
        &mut self,
        index: PeerIndex,
        handed: AcceptedConnection,
        now: Instant,
    ) -> Result<Key, Box<AcceptedConnection>> {
        let Some(slot) = self.sessions.slot(index) else { return Err(Box::new(handed)) };
        let address = handed.remote.ip().to_canonical();
        if matches!(slot.neighbor.location, Location::Neighbor(_))
            && let Some((_, session)) = self.sessions.session_connection(index)
            && session.remote_address() != address
        {
            // It would take the session over and over (RFC 4724 section 5), and the first one take it back.
            self.reporter.another_router(&slot.neighbor, address, now);
            return Err(Box::new(handed));
        }
        let key = self.sessions.accept(index, handed, now);
        self.input(index, Input::Accepted(key.1), now);
        Ok(key)
    }

    /// A router is heard on an interface: the peer without address there need not wait to try.
    pub(crate) fn heard(&mut self, interface: &str, now: Instant) {
        if let Some(index) = self.sessions.peer_at(&Location::Neighbor(interface.into())) {
            self.input(index, Input::Heard, now);
        }
    }

    /// An interface has this number now, or 0 while it carries nothing. Sessions over another link end without waiting for their
    /// hold timers, and while the interface carries nothing, routes that ended sessions have left there are withdrawn.
    pub(crate) fn link_is(&mut self, interface: &str, link: u32, now: Instant) {
        for key in self.sessions.over_another_link(interface, link) {
            self.lost(key, Some(io::ErrorKind::NetworkDown), now);
        }
        if link == 0 {
            for index in self.sessions.on(interface) {
                self.input(index, Input::LinkDown, now);
            }
        }
    }

    /// The machine has slept for so long: sessions whose hold time is over end now, and come up again.
    pub(crate) fn slept(&mut self, time: Duration, now: Instant) {
        let peers: Vec<_> = self.sessions.slots().map(|(index, _)| index).collect();
        for index in peers {
            self.input(index, Input::Slept(time), now);
        }
    }

    /// The socket is gone, whoever closed it.
    pub(crate) fn drop_connection(&mut self, key: Key) {
        if self.sessions.drop_connection(key) {
            self.pipeline.remove_peer(key.0);
        }
    }

    /// The connection ended from outside.
    pub(super) fn lost(&mut self, key: Key, error: Option<io::ErrorKind>, now: Instant) {
        let closing = self.sessions.connection(key).is_some_and(|connection| connection.closing);
        self.drop_connection(key);
        if !closing {
            self.input(key.0, Input::Closed(key.1, error), now);
        }
    }
}

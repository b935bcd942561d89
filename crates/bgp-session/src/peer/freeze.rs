//! A session that goes on in another process.

use std::time::Instant;

use holdfast_bgp_wire::Open;

use super::{Activity, Peer};
use crate::{
    Frozen, History, PeerConfig, State, ThawError, connection::Connection, frozen::Agreed, negotiation::Offer,
};

impl Peer {
    /// What another process needs to go on with the session; `None` unless it is Established. The peer itself goes on
    /// as before.
    ///
    /// Read [`Self::poll_output`] until it is empty before: what waits there is not part of it. Nor is a newer
    /// connection of the peer's, which dies with its process.
    pub fn freeze(&self, now: Instant) -> Option<Frozen> {
        let connection = self.leading()?;
        let session = connection.established()?;
        Some(Frozen {
            id: connection.link.id,
            next_dialled: self.next_dialled,
            role: connection.role,
            plain: connection.plain,
            offered_retention: session.negotiated.offered_retention,
            offered_enhanced_refresh: session.negotiated.offered_enhanced_refresh,
            local: (self.config.local_asn, self.config.router_id),
            agreed: Agreed::from(&session.negotiated),
            peer_open: connection.peer_open.clone(),
            up_for: now.saturating_duration_since(session.since),
            established: self.history.established,
            failures: self.failures,
            counters: self.out.counters,
        })
    }

    /// What the peer has sent is not being read: the hold timer of its session begins anew.
    pub fn restart_hold(&mut self, now: Instant) {
        let (connections, mut cx) = self.parts(now);
        for connection in connections.iter_mut().flatten() {
            connection.restart_hold(&mut cx);
        }
    }

    /// The peer with a session that another process has frozen, in Established. What to do at once is read from
    /// [`Self::poll_output`]: a KEEPALIVE goes to the peer, behind what that process had queued for it. There is no
    /// [`Output::Established`](crate::Output::Established): [`Self::negotiated`] and [`Self::connection`] say what the
    /// driver has to know. The hold timers begin anew. `seed` is as for [`Self::new`].
    ///
    /// # Errors
    /// The session cannot be held any more: end it.
    pub fn thaw(config: PeerConfig, frozen: Frozen, seed: u64, now: Instant) -> Result<Self, ThawError> {
        let Frozen { id, role, plain, peer_open, .. } = frozen;
        let open = Open::parse(&peer_open).map_err(|_| ThawError::Changed)?;
        // A role that it has to say it says with its next OPEN.
        let mut lenient = config.clone();
        lenient.rules.role_strict = false;
        let mut negotiated = Offer::new(&lenient, plain).negotiate(open).map_err(|_| ThawError::Changed)?;
        // Whatever is configured now: the peer knows what the OPEN has said.
        negotiated.offered_retention = frozen.offered_retention;
        negotiated.offered_enhanced_refresh = frozen.offered_enhanced_refresh;
        negotiated.enhanced_refresh &= frozen.offered_enhanced_refresh;
        let is_same = frozen.local == (config.local_asn, config.router_id)
            && frozen.agreed == Agreed::from(&negotiated);
        if !is_same {
            return Err(ThawError::Changed);
        }
        let since = now.checked_sub(frozen.up_for).unwrap_or(now);
        let mut peer = Self::new(PeerConfig { forwarding: true, ..config }, seed, now);
        (peer.activity, peer.plain) = (Activity::Running, plain);
        (peer.next_dialled, peer.failures) = (frozen.next_dialled, frozen.failures);
        peer.history =
            History { state: State::Established, established: frozen.established, ..History::new(since) };
        peer.out.counters = frozen.counters;
        let mut cx = peer.parts(now).1;
        let connection = Connection::resume(id, role, plain, (peer_open, negotiated), since, &mut cx);
        peer.connections[0] = Some(connection);
        Ok(peer)
    }
}

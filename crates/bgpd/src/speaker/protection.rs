//! Sessions that are to outlive this process, and those that have outlived the one before.

use std::{collections::BTreeSet, rc::Rc, time::Instant};

use holdfast_bgp_pipeline::{PeerIndex, SessionFacts};
use holdfast_bgp_session::{ConnId, Frozen, Input, Peer, PeerConfig, StopReason, ThawError};
use holdfast_nsr::{Holding, Log, Relief, SessionId, SessionUsage, Standing};
use holdfast_types::Family;
use tracing::warn;

use super::{
    Effect, Speaker,
    slot::{Slot, Takeover},
};
use crate::{
    config::Neighbor,
    connection::{Connection, Key},
    nonstop::{self, Held, Names, Progress, ReplicationLog, Shared, Unprotected},
    seed::seed,
    stream::Handed,
};

impl Speaker {
    /// A peer with a session of the process before, which goes on as soon as what was received is in the tables again.
    pub(crate) fn resume(
        &mut self,
        (neighbor, dynamic): (Neighbor, bool),
        handed: Handed,
        (log, id): (&Rc<ReplicationLog>, SessionId),
        (frozen, names, end_of_rib, progress): (Frozen, Names, BTreeSet<Family>, Progress),
        now: Instant,
    ) -> Result<Key, ThawError> {
        // What goes on has not restarted, for the peer to see; others may have.
        let config = PeerConfig { restarting: false, ..self.session_config(&neighbor) };
        let session = Peer::thaw(config, frozen, seed(), now)?;
        let (Some((conn, _)), Some(negotiated)) = (session.connection(), session.negotiated().cloned())
        else {
            return Err(ThawError::Changed);
        };
        let mut connection = Connection::new(handed, now);
        let parsed = log.log.borrow().incoming(id).start;
        let mut held = Held::new(log, id, parsed, Progress { announcing: false, ..progress });
        held.kept = true;
        connection.held = Some(held);
        let index = self.pipeline.add_peer(neighbor.pipeline(&self.settings, Some(negotiated.asn)));
        let mut slot = Slot::new(neighbor, session, dynamic);
        (slot.number, slot.end_of_rib, slot.takeover) = (names.number, end_of_rib, Some(Takeover::Replaying));
        slot.last_update = Some(now);
        self.goes_on(&slot.neighbor.location);
        self.insert(index, slot);
        self.configure_pipeline(index, Some(negotiated.asn));
        self.connections.insert((index, conn), connection);
        if !conn.is_dialled() {
            self.next_accepted = self.next_accepted.max((conn.0 + 1) % ConnId::FIRST_DIALLED.0);
        }
        if let Some(facts) = self.facts(index, conn, &negotiated)
            && let facts = (SessionFacts { first_identifier: names.first_identifier, ..facts })
            && let Err(error) = self.pipeline.peer_resumed(index, facts)
        {
            self.out_of_sessions(index, &error, now);
        }
        for family in self.slots.get(&index).map(|slot| slot.end_of_rib.clone()).unwrap_or_default() {
            self.input(index, Input::EndOfRib(family), now);
        }
        if progress.announcing {
            self.announce_again(index, now);
        }
        self.drain(index, now);
        Ok((index, conn))
    }

    /// Takes a session that has come up into the log.
    pub(super) fn protect(&mut self, index: PeerIndex, id: ConnId, now: Instant) {
        let (Some(log), Some(slot)) = (self.nonstop.clone(), self.slots.get_mut(&index)) else { return };
        let Some(connection) = self.connections.get_mut(&(index, id)) else { return };
        if !slot.neighbor.source.nonstop {
            return;
        }
        let Some(frozen) = slot.session.freeze(now) else { return };
        let (location, carried) = (&slot.neighbor.location, connection.carried());
        let record = |number| {
            let (frozen, names) = (frozen.to_bytes(), Names { number, first_identifier: 0 });
            nonstop::record(location, carried.clone(), names, frozen, [].into_iter(), Progress::default())
        };
        connection.protect(&log, self.unparsed.0, &record(slot.number));
        let Some(held) = &connection.held else { return };
        if slot.number == 0 {
            slot.number = held.id.0;
            let written = log.log.borrow_mut().set_record(held.id, &record(slot.number));
            if written.is_err() {
                return connection.unprotect(Unprotected::LogFull);
            }
        }
        self.begun = Some((index, id));
        self.effects.push_back(Effect::Keep((index, id)));
    }

    /// Writes what is known of a session into the log again.
    pub(crate) fn update_record(&mut self, index: PeerIndex, now: Instant) {
        let Some(slot) = self.slots.get(&index) else { return };
        let (Some(frozen), Some((id, _))) = (slot.session.freeze(now), slot.session.connection()) else {
            return;
        };
        let Some(connection) = self.connections.get_mut(&(index, id)) else { return };
        let Some(held) = &connection.held else { return };
        let families = slot.end_of_rib.iter().copied();
        let (location, frozen) = (&slot.neighbor.location, frozen.to_bytes());
        let (carried, progress) = (connection.carried(), held.progress());
        let names = Names { number: slot.number, first_identifier: self.pipeline.first_identifier(index) };
        let record = nonstop::record(location, carried, names, frozen, families, progress);
        let written = held.log.log.borrow_mut().set_record(held.id, &record);
        if written.is_err() {
            connection.unprotect(Unprotected::LogFull);
        }
    }

    /// Whether the connection has this place in the log.
    pub(crate) fn holds(&self, key: Key, id: SessionId) -> bool {
        let held = self.connections.get(&key).and_then(|connection| connection.held.as_ref());
        held.is_some_and(|held| held.id == id)
    }

    /// A session cannot go on where the process before has left it: it begins anew.
    pub(crate) fn restart(&mut self, index: PeerIndex, now: Instant) {
        if let Some(slot) = self.slots.get(&index).filter(|slot| slot.is_replaying()) {
            let (location, dynamic) = (slot.neighbor.location.clone(), slot.dynamic);
            self.await_again(location, dynamic);
        }
        self.input(index, Input::Stop(StopReason::OutOfResources), now);
        self.input(index, Input::Start, now);
    }

    /// What the sessions in the log hold of it.
    pub(crate) fn holdings(&self, log: &Log<Shared>) -> Vec<Holding> {
        let holding = |(index, slot): (&PeerIndex, &Slot)| {
            let held = self.session_connection(*index)?.1.held.as_ref()?;
            let SessionUsage { incoming, snapshot, blocks, .. } = log.session_usage(held.id);
            // From BoRR to EoRR what is stale would not be said in a snapshot: the stream says it.
            let is_refreshed = slot.session.refreshing().next().is_some();
            let standing = match () {
                () if slot.is_replaying() => Standing::Replaying,
                () if held.refreshing || is_refreshed => Standing::Busy,
                () => Standing::Ready,
            };
            Some(Holding { id: held.id, incoming, snapshot, held: blocks, standing })
        };
        self.slots.iter().filter_map(holding).collect()
    }

    /// What helps a read that has found no room in the log.
    pub(crate) fn relieve(&self) -> Relief {
        let Some(log) = &self.nonstop else { return Relief::GiveUp(None) };
        let (mut pacing, log) = (log.pacing.borrow_mut(), log.log.borrow());
        pacing.relieve(&self.holdings(&log), log.snapshot_room())
    }

    /// The connection of a session in the log.
    pub(crate) fn key_of(&self, id: SessionId) -> Option<Key> {
        let is_its = |connection: &Connection| connection.held.as_ref().is_some_and(|held| held.id == id);
        self.connections.iter().find(|(_, connection)| is_its(connection)).map(|(key, _)| *key)
    }

    /// The log is full, and nothing else helps: this session leaves it.
    pub(crate) fn give_up_protection(&mut self, key: Key) {
        if let Some(connection) = self.connections.get_mut(&key) {
            connection.unprotect(Unprotected::LogFull);
        }
        self.say_full(key.0);
    }

    /// A session is not protected any more, for want of room.
    pub(super) fn say_full(&self, index: PeerIndex) {
        if let Some(slot) = self.slots.get(&index) {
            warn!(
                event = "protection-lost",
                peer = slot.neighbor.name,
                "session is no longer protected: {}",
                Unprotected::LogFull.text()
            );
        }
    }
}

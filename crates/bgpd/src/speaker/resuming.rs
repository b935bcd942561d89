//! Sessions of the process before go on, and are noted for the next one.

use std::{collections::BTreeSet, rc::Rc, time::Instant};

use holdfast_api::bgp::v1::HeldConfiguration;
use holdfast_bgp_pipeline::{PeerIndex, SessionFacts};
use holdfast_bgp_session::{Frozen, Input, Peer, PeerConfig, StopReason, ThawError};
use holdfast_nsr::SessionId;
use holdfast_types::Family;

use super::Speaker;
use crate::{
    config::Neighbor,
    connection::{Connection, Key},
    nonstop::{Held, Names, Progress, ReplicationLog, Unprotected},
    protection::Protection,
    seed::seed,
    sessions::slot::{Slot, Takeover},
    stream::AcceptedConnection,
};

impl Speaker {
    /// A peer with a session of the process before, which goes on as soon as what was received is in the tables again.
    pub(crate) fn resume(
        &mut self,
        (neighbor, dynamic): (Neighbor, bool),
        handed: AcceptedConnection,
        (log, id): (&Rc<ReplicationLog>, SessionId),
        (frozen, names, end_of_rib, progress): (Frozen, Names, BTreeSet<Family>, Progress),
        now: Instant,
    ) -> Result<Key, ThawError> {
        // What goes on has not restarted, for the peer to see; others may have.
        let config =
            PeerConfig { restarting: false, ..self.sessions.session_config(&neighbor, &self.settings) };
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
        connection.waits = self.waiters.add(negotiated.hold_time);
        let index = self.pipeline.add_peer(neighbor.pipeline(&self.settings, Some(negotiated.asn)));
        let mut slot = Slot::new(neighbor, session, dynamic);
        (slot.number, slot.end_of_rib, slot.takeover) = (names.number, end_of_rib, Some(Takeover::Replaying));
        (slot.last_update, slot.as_sets) = (Some(now), self.settings.as_sets);
        self.sessions.goes_on(&slot.neighbor.location);
        self.sessions.insert(index, slot);
        self.configure_pipeline(index, Some(negotiated.asn));
        self.sessions.resume_connection((index, conn), connection);
        if let Some(facts) = self.sessions.facts((index, conn), &negotiated, &self.settings)
            && let facts = (SessionFacts { first_identifier: names.first_identifier, ..facts })
            && let Err(error) = self.pipeline.peer_resumed(index, facts)
        {
            self.out_of_sessions(index, &error, now);
        }
        for family in self.sessions.slot(index).map(|slot| slot.end_of_rib.clone()).unwrap_or_default() {
            self.input(index, Input::EndOfRib(family), now);
        }
        if progress.announcing {
            self.announce_again(index, now);
        }
        self.drain(index, now);
        Ok((index, conn))
    }

    /// What was configured when a session that goes on was noted last, and is otherwise now.
    pub(crate) fn notice(&mut self, index: PeerIndex, before: &HeldConfiguration, now: Instant) {
        let Some(configuration) = self.sessions.slot(index).map(Slot::configuration) else { return };
        let next_hops = |of: &HeldConfiguration| (of.next_hop_v4.clone(), of.next_hop_v6.clone());
        if before.bfd_up {
            self.bfd_was_up(index, now);
        }
        // The journal does not know our addresses.
        if next_hops(&configuration) != next_hops(before) {
            self.announce_again(index, now);
        }
        if configuration.accepts_as_sets != before.accepts_as_sets {
            self.ask_for_as_sets(index, now);
        }
    }

    /// A session cannot go on where the process before has left it: it begins anew.
    pub(crate) fn restart(&mut self, index: PeerIndex, now: Instant) {
        if let Some(slot) = self.sessions.slot(index).filter(|slot| slot.is_replaying()) {
            let (location, dynamic) = (slot.neighbor.location.clone(), slot.dynamic);
            self.sessions.await_again(location, dynamic);
        }
        self.input(index, Input::Stop(StopReason::OutOfResources), now);
        self.input(index, Input::Start, now);
    }

    /// Writes what is known of a session into the log again.
    pub(crate) fn update_record(&mut self, index: PeerIndex, now: Instant) {
        let Some((id, _)) = self.sessions.slot(index).and_then(|slot| slot.session.connection()) else {
            return;
        };
        let first_identifier = self.pipeline.first_identifier(index);
        if let Some((slot, connection)) = self.sessions.both_mut((index, id)) {
            Protection::update_record(slot, connection, first_identifier, now);
        }
    }

    /// The log is full, and nothing else helps: this session leaves it.
    pub(crate) fn give_up_protection(&mut self, key: Key) {
        if let Some(connection) = self.sessions.connection_mut(key) {
            connection.unprotect(Unprotected::LogFull);
        }
        self.has_left_log(key.0);
    }

    /// A session has found no room in the log: this is said, and what it is told from here on is noted for nobody.
    pub(crate) fn has_left_log(&mut self, index: PeerIndex) {
        if let Some(slot) = self.sessions.slot(index) {
            self.reporter.log_full(slot);
        }
        if self.pipeline.end_history(index)
            && let Some(log) = &self.protection.log
        {
            log.history_ended();
        }
    }
}

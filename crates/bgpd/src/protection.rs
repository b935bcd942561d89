//! Sessions that are to outlive this process: their place in the replication log.

use std::{
    rc::Rc,
    time::{Duration, Instant},
};

use holdfast_bgp_pipeline::{PeerIndex, Pipeline};
use holdfast_nsr::{Holding, Log, Relief, SessionUsage, Standing};

use crate::{
    connection::{Connection, Key},
    nonstop::{self, Names, Progress, ReplicationLog, Shared, Unprotected},
    sessions::{Sessions, slot::Slot},
};

/// The replication log, and how far the message that is being taken in is in it.
#[derive(Debug, Default)]
pub(crate) struct Protection {
    /// Where sessions are protected.
    pub(crate) log: Option<Rc<ReplicationLog>>,
    /// Octets behind the message that is being taken in, and where that begins in the stream.
    unparsed: (usize, u64),
    /// The connection that came into the log with that message.
    begun: Option<Key>,
}

/// A read that has found no room in the log for so long ends the protection of its own session.
pub(crate) const ROOM: Duration = Duration::from_secs(10);

/// Whether a session is one of the process before whose history `bgp` has not read yet.
fn is_unread(slot: &Slot, peer: PeerIndex, pipeline: &Pipeline) -> bool {
    slot.takeover.is_some() && !pipeline.is_told(peer)
}

/// The one that was agreed on; zero: none.
fn hold_time(slot: &Slot) -> Duration {
    slot.session.negotiated().map(|agreed| agreed.hold_time).unwrap_or_default()
}

impl Protection {
    /// A message is being taken in that begins here in its stream; so many octets behind it are known.
    #[inline]
    pub(crate) fn taking_in(&mut self, behind: usize, at: u64) {
        self.unparsed = (behind, at);
    }

    /// Whether the session has come up with the last message, and its connection into the log.
    #[inline]
    pub(crate) fn has_begun(&mut self, key: Key) -> bool {
        std::mem::take(&mut self.begun) == Some(key)
    }

    /// Whether the process before has answered the request that is being taken in, which is noted.
    pub(crate) fn has_answered(&self, connection: &mut Connection) -> bool {
        connection.held.as_mut().is_some_and(|held| {
            held.refreshing = true;
            self.unparsed.1 < held.progress.answered
        })
    }

    /// Takes a session that has come up into the log; whether it is there.
    pub(crate) fn protect(
        &mut self,
        key: Key,
        slot: &mut Slot,
        connection: &mut Connection,
        now: Instant,
    ) -> bool {
        let Some(log) = self.log.as_ref().filter(|_| slot.neighbor.source.nonstop) else { return false };
        let Some(frozen) = slot.session.freeze(now) else { return false };
        let counted = connection.counted();
        let record = |slot: &Slot, number| {
            let (frozen, names) = (frozen.to_bytes(), Names { number, first_identifier: 0 });
            nonstop::record(
                (&slot.neighbor.location, hold_time(slot)),
                slot.configuration(),
                counted.clone(),
                names,
                frozen,
                [].into_iter(),
                Progress::default(),
            )
        };
        connection.protect(log, self.unparsed.0, &record(slot, slot.number));
        let Some(held) = &connection.held else { return false };
        if slot.number == 0 {
            slot.number = held.id.0;
            let written = log.log.borrow_mut().set_record(held.id, &record(slot, slot.number));
            if written.is_err() {
                connection.unprotect(Unprotected::LogFull);
                return false;
            }
        }
        self.begun = Some(key);
        true
    }

    /// Writes what is known of a session into the log again; `first_identifier` is that of its paths.
    pub(crate) fn update_record(
        slot: &Slot,
        connection: &mut Connection,
        first_identifier: u32,
        now: Instant,
    ) {
        let (Some(frozen), Some(held)) = (slot.session.freeze(now), &connection.held) else { return };
        let families = slot.end_of_rib.iter().copied();
        let frozen = frozen.to_bytes();
        let (counted, progress) = (connection.counted(), held.progress());
        let names = Names { number: slot.number, first_identifier };
        let record = nonstop::record(
            (&slot.neighbor.location, hold_time(slot)),
            slot.configuration(),
            counted,
            names,
            frozen,
            families,
            progress,
        );
        let written = held.log.log.borrow_mut().set_record(held.id, &record);
        if written.is_err() {
            connection.unprotect(Unprotected::LogFull);
        }
    }

    /// What the sessions in the log hold of it.
    pub(crate) fn holdings(sessions: &Sessions, pipeline: &Pipeline, log: &Log<Shared>) -> Vec<Holding> {
        let holding = |(index, slot)| {
            let slot: &Slot = slot;
            let held = sessions.session_connection(index)?.1.held.as_ref()?;
            let SessionUsage { incoming, snapshot, blocks, .. } = log.session_usage(held.id);
            // From BoRR to EoRR what is stale would not be said in a snapshot: the stream says it.
            let is_refreshed = slot.session.refreshing().next().is_some();
            let standing = match () {
                () if slot.is_replaying() => Standing::Replaying,
                () if is_unread(slot, index, pipeline) => Standing::Unread,
                () if held.refreshing || is_refreshed => Standing::Busy,
                () => Standing::Ready,
            };
            let expected = pipeline.frozen_octets(index);
            Some(Holding { id: held.id, incoming, snapshot, expected, held: blocks, standing })
        };
        sessions.slots().filter_map(holding).collect()
    }

    /// Decides how a read of this peer finds room in the log, which it has `waited` for. A session of the process before whose
    /// history `bgp` has not read yet would end without the log: its reads wait.
    pub(crate) fn relieve(
        &self,
        (sessions, pipeline): (&Sessions, &Pipeline),
        peer: PeerIndex,
        waited: Duration,
    ) -> Relief {
        let Some(log) = &self.log else { return Relief::GiveUp(None) };
        if waited >= ROOM {
            let is_lost_without = sessions
                .slot(peer)
                .is_some_and(|slot| slot.is_replaying() || is_unread(slot, peer, pipeline));
            return if is_lost_without { Relief::Wait } else { Relief::GiveUp(None) };
        }
        let (mut pacing, log) = (log.pacing.borrow_mut(), log.log.borrow());
        pacing.relieve(&Self::holdings(sessions, pipeline, &log), log.snapshot_room())
    }
}

//! Keeping the replication log short: snapshots of the sessions' routes, and announcements written as one.

use std::{
    collections::BTreeSet,
    rc::Rc,
    time::{Duration, Instant},
};

use holdfast_bgp_pipeline::{FreezePlace, JournalEntry, PeerIndex};
use holdfast_nsr::{EntryId, SessionId};
use holdfast_types::Family;
use tracing::{debug, warn};

use crate::{
    nonstop::ReplicationLog,
    speaker::{Slot, Speaker},
    takeover::{history, told},
    tasks::Bgp,
};

/// Paths that a slice of a snapshot looks at, 0.1 us each.
const SLICE: usize = 4096;
/// Octets received below which a session needs no snapshot.
const SHORT_TAIL: u64 = 64 << 10;
/// Sessions whose records are written before others have their turn.
const RECORDS: usize = 64;
/// How often what is known of sessions is written again, and short histories of idle sessions are dropped.
const REFRESH: Duration = Duration::from_secs(10);

/// A session of which a snapshot is being made.
struct Frozen {
    index: PeerIndex,
    id: SessionId,
    /// What came before this offset is in the snapshot.
    covered: u64,
}

/// Works for ever, when there is something to do.
pub(crate) async fn run(bgp: Rc<Bgp>, log: Rc<ReplicationLog>) {
    loop {
        tokio::select! {
            () = bgp.freeze.notified() => {
                snapshots(&bgp, &log).await;
                bgp.freed.notify_waiters();
            }
            () = bgp.collect.notified() => {}
            () = tokio::time::sleep(REFRESH) => refresh(&bgp, &log).await,
        }
        if log.wants_folding() {
            fold(&bgp, &log).await;
        } else if log.wants_collecting() {
            let _turn = log.histories.lock().await;
            log.collect(heads(&bgp.speaker.borrow()));
        }
    }
}

/// Takes what holds of all sessions into the log again: counters, End-of-RIBs. Of those that have sent no routes, the
/// octets that are there are nothing but KEEPALIVEs.
async fn refresh(bgp: &Rc<Bgp>, log: &Rc<ReplicationLog>) {
    let indexes: Vec<PeerIndex> = bgp.speaker.borrow().slots.keys().copied().collect();
    for part in indexes.chunks(RECORDS) {
        bgp.with(|speaker, now| part.iter().for_each(|index| refresh_session(speaker, log, *index, now)));
        tokio::task::yield_now().await;
    }
}

fn refresh_session(speaker: &mut Speaker, log: &Rc<ReplicationLog>, index: PeerIndex, now: Instant) {
    if speaker.slots.get(&index).is_none_or(Slot::is_replaying) {
        return;
    }
    speaker.update_record(index, now);
    let connection = speaker.session_connection(index).map(|(_, connection)| connection);
    let Some(held) = connection.and_then(|connection| connection.held.as_ref()) else { return };
    let mut log = log.log.borrow_mut();
    let has_snapshot = log.session_usage(held.id).snapshot > 0;
    let has_routes =
        Family::ALL.iter().any(|family| speaker.pipeline.counts(index, *family).routes.received > 0);
    let takes_filters = speaker.slots.get(&index).is_some_and(Slot::takes_filters);
    if !has_routes && !has_snapshot && !held.refreshing && !takes_filters {
        log.trim(held.id, held.parsed);
    }
}

/// One walk over the tables for all sessions of which much was received.
async fn snapshots(bgp: &Rc<Bgp>, log: &Rc<ReplicationLog>) {
    let begun = begin(bgp, log);
    let id_of = |index: PeerIndex| begun.iter().find(|frozen| frozen.index == index).map(|frozen| frozen.id);
    let mut place = FreezePlace::default();
    let mut full = false;
    loop {
        let next = {
            let (speaker, mut log) = (bgp.speaker.borrow(), log.log.borrow_mut());
            let mut sink = |index: PeerIndex, record: &[u8]| {
                if let Some(id) = id_of(index).filter(|id| is_held(&speaker, index, *id)) {
                    full |= log.snapshot_record(id, record).is_err();
                }
            };
            speaker.pipeline.freeze_routes(place, SLICE, |index| id_of(index).is_some(), &mut sink)
        };
        tokio::task::yield_now().await;
        match next {
            Some(next) if !full => place = next,
            _ => break,
        }
    }
    let mut octets = 0;
    for Frozen { index, id, covered } in begun {
        bgp.with(|speaker, now| {
            if !is_held(speaker, index, id) {
                return;
            }
            if full {
                return log.log.borrow_mut().abort_snapshot(id);
            }
            speaker.update_record(index, now);
            let Some((key, _)) = speaker.session_connection(index) else { return };
            if let Some(held) = speaker.connection_mut(key).and_then(|connection| connection.held.as_mut()) {
                held.snapshot_at = Some(now);
                log.log.borrow_mut().commit_snapshot(id, covered);
                octets += log.log.borrow().session_usage(id).snapshot;
            }
        });
    }
    match full {
        true => warn!(
            event = "nonstop-log-full",
            "there is no room in the log for snapshots: set a larger nonstop-memory"
        ),
        false => {
            debug!(octets, "snapshots made");
            log.set_snapshots(octets);
        }
    }
}

fn is_held(speaker: &Speaker, index: PeerIndex, id: SessionId) -> bool {
    let connection = speaker.session_connection(index).map(|(_, connection)| connection);
    connection.and_then(|connection| connection.held.as_ref()).is_some_and(|held| held.id == id)
}

fn begin(bgp: &Rc<Bgp>, log: &Rc<ReplicationLog>) -> Vec<Frozen> {
    log.begin_snapshots();
    let speaker = bgp.speaker.borrow();
    let mut log = log.log.borrow_mut();
    let mut begun = Vec::new();
    for (&index, slot) in &speaker.slots {
        let Some((_, connection)) = speaker.session_connection(index) else { continue };
        let Some(held) = &connection.held else { continue };
        let incoming = log.incoming(held.id);
        // From BoRR to EoRR what is stale would not be said in a snapshot: the stream says it.
        let is_refreshed = slot.session.refreshing().next().is_some();
        if !slot.is_replaying()
            && !held.refreshing
            && !is_refreshed
            && incoming.end - incoming.start >= SHORT_TAIL
        {
            log.begin_snapshot(held.id);
            let filters = speaker.pipeline.freeze_orf(index);
            if filters.iter().any(|record| log.snapshot_record(held.id, record).is_err()) {
                log.abort_snapshot(held.id);
                continue;
            }
            begun.push(Frozen { index, id: held.id, covered: held.parsed });
        }
    }
    begun
}

/// Writes each long history as one: what was announced last of each prefix.
async fn fold(bgp: &Rc<Bgp>, log: &Rc<ReplicationLog>) {
    let _turn = log.histories.lock().await;
    let places: BTreeSet<EntryId> = {
        let speaker = bgp.speaker.borrow();
        let log = log.log.borrow();
        let of_slot = |index: &PeerIndex| {
            let held = speaker.session_connection(*index)?.1.held.as_ref()?;
            Some(log.passed(held.id))
        };
        // Those of streams without a protected member, too.
        let heads = heads(&speaker);
        speaker
            .slots
            .keys()
            .filter_map(of_slot)
            .chain(heads)
            .filter(|entry| *entry != EntryId::NONE)
            .collect()
    };
    let mut octets = 0;
    for place in places {
        let before = length(log, place);
        let Some(told) = told(log, place).await else { continue };
        let (mut rewrite, mut entries) = (told.rewrite(), Vec::new());
        while rewrite.work(&mut entries).is_some() {
            tokio::task::yield_now().await;
        }
        let after: usize = entries.iter().map(|entry| entry.len() + 16).sum();
        if after * 2 > before {
            octets += before;
            continue;
        }
        octets += after;
        let mut log = log.log.borrow_mut();
        let mut base = Ok(EntryId::NONE);
        for entry in &entries {
            base = base.and_then(|base| log.append(base, entry));
        }
        match base {
            Ok(base) => log.rebase(place, base),
            Err(error) => warn!(event = "nonstop-failed", "announcements cannot be written as one: {error}"),
        }
    }
    log.collect(heads(&bgp.speaker.borrow()));
    debug!(octets, "announcements folded");
    log.set_folded(octets as u64);
}

/// The entries that streams go on from, sessions apart.
fn heads(speaker: &Speaker) -> Vec<EntryId> {
    let entries = speaker.pipeline.journal_heads().filter(|head| *head != JournalEntry::LOST);
    entries.map(|head| EntryId::from_bits(head.0)).filter(|head| *head != EntryId::NONE).collect()
}

/// Octets of a history.
fn length(log: &Rc<ReplicationLog>, place: EntryId) -> usize {
    let entries = history(log, place);
    let log = log.log.borrow();
    entries.iter().map(|entry| log.entry(*entry).1.len() + 16).sum()
}

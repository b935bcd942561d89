//! Keeping the replication log short: snapshots of the sessions' routes, and announcements written as one.

use std::{
    collections::{BTreeMap, BTreeSet},
    rc::Rc,
    time::{Duration, Instant},
};

use holdfast_bgp_pipeline::{JournalEntry, PeerIndex};
use holdfast_nsr::{EntryId, SessionId, Walk};
use holdfast_process::metrics::turn;
use holdfast_types::Family;
use tracing::{debug, warn};

use crate::{
    bgp::Bgp,
    nonstop::ReplicationLog,
    protection::Protection,
    sessions::{Sessions, slot::Slot},
    speaker::Speaker,
    takeover::{history, told},
};

/// Paths that a slice of a snapshot looks at, 0.1 us each.
const SLICE: usize = 4096;
/// Octets of the announcement of a route, where there are two of a set in a message: a guess.
const ANNOUNCEMENT: u64 = 16;
/// Sessions whose records are written before others have their turn.
const RECORDS: usize = 64;
/// While histories are written as one, what they replace is freed when that is one in so many octets of the log: a log that
/// is nearly full has no room for all of them beside the old ones.
const COLLECTED_OF_LOG: u64 = 32;
/// How often what is known of sessions is written again, and short histories of idle sessions are dropped.
const REFRESH: Duration = Duration::from_secs(10);

/// A session of which a snapshot is being made.
struct Frozen {
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
            () = tokio::time::sleep(REFRESH) => {
                refresh(&bgp, &log).await;
                if log.rests_unfolded(announced_once(&bgp.speaker.borrow())) {
                    fold(&bgp, &log).await;
                }
                log.log.borrow_mut().cool();
                if log.says_nearly_full() {
                    warn!(
                        event = "nonstop-log-nearly-full",
                        "less than a quarter of nonstop-memory is free: sessions that find no room lose their protection"
                    );
                }
            }
        }
        cool(&log).await;
        if log.wants_folding(announced_once(&bgp.speaker.borrow())) {
            fold(&bgp, &log).await;
        } else if log.wants_collecting() {
            let _turn = log.histories.lock().await;
            log.collect(heads(&bgp.speaker.borrow()));
        }
    }
}

/// Gives back what sessions that have ended had in the log; everything else has its turn in between.
async fn cool(log: &Rc<ReplicationLog>) {
    while log.log.borrow().is_warm() {
        turn("giving memory back", || log.log.borrow_mut().cool_some());
        tokio::task::yield_now().await;
    }
}

/// Takes what holds of all sessions into the log again: counters, End-of-RIBs. Of those that have sent no routes, the
/// octets that are there are nothing but KEEPALIVEs.
async fn refresh(bgp: &Rc<Bgp>, log: &Rc<ReplicationLog>) {
    let indexes: Vec<PeerIndex> = bgp.speaker.borrow().sessions.indexes();
    for part in indexes.chunks(RECORDS) {
        bgp.with(|speaker, now| part.iter().for_each(|index| refresh_session(speaker, log, *index, now)));
        tokio::task::yield_now().await;
    }
}

fn refresh_session(speaker: &mut Speaker, log: &Rc<ReplicationLog>, index: PeerIndex, now: Instant) {
    if speaker.sessions.slot(index).is_none_or(Slot::is_replaying) {
        return;
    }
    speaker.update_record(index, now);
    let connection = speaker.sessions.session_connection(index).map(|(_, connection)| connection);
    let Some(held) = connection.and_then(|connection| connection.held.as_ref()) else { return };
    let mut log = log.log.borrow_mut();
    let has_snapshot = log.session_usage(held.id).snapshot > 0;
    let has_routes =
        Family::ALL.iter().any(|family| speaker.pipeline.counts(index, *family).routes.received > 0);
    let takes_filters = speaker.sessions.slot(index).is_some_and(Slot::takes_filters);
    if !has_routes && !has_snapshot && !held.refreshing && !takes_filters {
        log.trim(held.id, held.parsed);
    }
}

/// One walk over the tables for all sessions of which a snapshot is worth its octets, if there are any.
async fn snapshots(bgp: &Rc<Bgp>, log: &Rc<ReplicationLog>) {
    let mut begun = begin(bgp, log);
    if begun.is_empty() {
        return;
    }
    let mut walk = bgp.with(|speaker, _| speaker.pipeline.freeze(begun.keys().copied()));
    loop {
        let goes_on = bgp.with(|speaker, _| {
            let Speaker { pipeline, sessions, .. } = speaker;
            let mut sink = |index: PeerIndex, octets: &[u8]| {
                let Some(id) = begun.get(&index).map(|frozen| frozen.id) else { return false };
                let is_written = is_held(sessions, index, id) && record(log, id, octets);
                if !is_written {
                    begun.remove(&index);
                }
                is_written
            };
            pipeline.freeze_routes(&mut walk, SLICE, &mut sink)
        });
        tokio::task::yield_now().await;
        if !goes_on {
            break;
        }
    }
    let mut octets = 0;
    for (index, frozen) in begun {
        octets += bgp.with(|speaker, now| commit(speaker, log, index, &frozen, now));
    }
    log.log.borrow_mut().hold_back(0);
    log.pacing.borrow_mut().end();
    let (received, written) = log.pacing.borrow().totals();
    debug!(octets, received, written, "snapshots made");
}

/// Writes a record of a snapshot. Where it has not been earned, or finds no room, that is given up.
fn record(log: &ReplicationLog, id: SessionId, octets: &[u8]) -> bool {
    let (mut held, mut pacing) = (log.log.borrow_mut(), log.pacing.borrow_mut());
    let is_paid = pacing.pay(id, octets.len() as u64);
    let is_written = is_paid && held.snapshot_record(id, octets).is_ok();
    if !is_written {
        held.abort_snapshot(id);
        pacing.abandoned(id, is_paid);
        debug!(session = id.0, is_paid, "a snapshot was given up");
        if is_paid && log.says_full() {
            warn!(
                event = "nonstop-log-full",
                "there is no room in the log for a snapshot: set a larger nonstop-memory"
            );
        }
    }
    is_written
}

/// The snapshot holds from now on; its octets.
fn commit(
    speaker: &mut Speaker,
    log: &ReplicationLog,
    index: PeerIndex,
    &Frozen { id, covered }: &Frozen,
    now: Instant,
) -> u64 {
    if !is_held(&speaker.sessions, index, id) {
        return 0;
    }
    speaker.update_record(index, now);
    let Some((key, _)) = speaker.sessions.session_connection(index) else { return 0 };
    let connection = speaker.sessions.connection_mut(key);
    let Some(held) = connection.and_then(|connection| connection.held.as_mut()) else { return 0 };
    held.snapshot_at = Some(now);
    let mut all = log.log.borrow_mut();
    all.commit_snapshot(id, covered);
    let octets = all.session_usage(id).snapshot;
    log.pacing.borrow_mut().committed(id, octets);
    octets
}

fn is_held(sessions: &Sessions, index: PeerIndex, id: SessionId) -> bool {
    let connection = sessions.session_connection(index).map(|(_, connection)| connection);
    connection.and_then(|connection| connection.held.as_ref()).is_some_and(|held| held.id == id)
}

fn begin(bgp: &Rc<Bgp>, log: &Rc<ReplicationLog>) -> BTreeMap<PeerIndex, Frozen> {
    let speaker = bgp.speaker.borrow();
    let walk = {
        let all = log.log.borrow();
        let holdings = Protection::holdings(&speaker.sessions, &speaker.pipeline, &all);
        log.pacing.borrow_mut().begin(&holdings, all.snapshot_room())
    };
    let Some(Walk { sessions, octets }) = walk else { return BTreeMap::new() };
    log.log.borrow_mut().hold_back(octets);
    let mut begun = BTreeMap::new();
    for id in sessions {
        let Some(key) = speaker.sessions.key_of(id) else { continue };
        let held = speaker.sessions.connection(key).and_then(|connection| connection.held.as_ref());
        let Some(covered) = held.map(|held| held.parsed) else { continue };
        log.log.borrow_mut().begin_snapshot(id);
        if speaker.pipeline.freeze_orf(key.0).iter().all(|octets| record(log, id, octets)) {
            begun.insert(key.0, Frozen { id, covered });
        }
    }
    if begun.is_empty() {
        log.log.borrow_mut().hold_back(0);
        log.pacing.borrow_mut().end();
    }
    begun
}

/// Writes each long history as one: what was announced last of each prefix.
async fn fold(bgp: &Rc<Bgp>, log: &Rc<ReplicationLog>) {
    let _turn = log.histories.lock().await;
    let places: BTreeSet<EntryId> = {
        let speaker = bgp.speaker.borrow();
        let log = log.log.borrow();
        let of_slot = |(index, _): (PeerIndex, &Slot)| {
            let held = speaker.sessions.session_connection(index)?.1.held.as_ref()?;
            Some(log.passed(held.id))
        };
        // Those of streams without a protected member, too.
        let heads = heads(&speaker);
        speaker
            .sessions
            .slots()
            .filter_map(of_slot)
            .chain(heads)
            .filter(|entry| *entry != EntryId::NONE)
            .collect()
    };
    let (mut octets, mut replaced) = (0, 0);
    for place in places {
        let before = length(log, place).await;
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
        let (size, _) = log.size_and_used();
        replaced += before as u64;
        if replaced > size / COLLECTED_OF_LOG {
            replaced = 0;
            log.collect(heads(&bgp.speaker.borrow()));
        }
    }
    log.collect(heads(&bgp.speaker.borrow()));
    debug!(octets, "announcements folded");
    log.set_folded(octets as u64);
}

/// Octets of the announcements of all routes to all streams, each once: writing such a history as one frees nothing.
fn announced_once(speaker: &Speaker) -> u64 {
    let routes: usize = Family::ALL.iter().map(|family| speaker.pipeline.table_size(*family).0).sum();
    (routes * heads(speaker).len()) as u64 * ANNOUNCEMENT
}

/// The entries that streams go on from, sessions apart.
fn heads(speaker: &Speaker) -> Vec<EntryId> {
    let entries = speaker.pipeline.journal_heads().filter(|head| *head != JournalEntry::LOST);
    entries.map(|head| EntryId::from_bits(head.0)).filter(|head| *head != EntryId::NONE).collect()
}

/// Octets of a history.
async fn length(log: &Rc<ReplicationLog>, place: EntryId) -> usize {
    let entries = history(log, place).await;
    let log = log.log.borrow();
    entries.iter().map(|entry| log.entry(*entry).1.len() + 16).sum()
}

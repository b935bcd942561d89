//! From one process to the next: the sessions that the one before has left in the log and with the keeper go on.
//!
//! [`open`] takes log and sockets, [`resume`] makes peers of them, [`replay`] puts what was received into the tables
//! again and then, when next hops are known, tells peers what has changed for them meanwhile.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    io, ops,
    os::fd::{AsFd, OwnedFd},
    rc::Rc,
    time::{Duration, Instant, SystemTime},
};

use holdfast_api::{
    bgp::v1::HeldSession,
    carrier::v1::{self as carrier, CarrierClient},
    transport::v1::{Connection, MeterReply, MeterRequest, TransportClient},
};
use holdfast_bgp_pipeline::{AdjRibOutSnapshot, JournalEntry, PeerIndex, ThawedSets};
use holdfast_bgp_session::{Frozen, Messages, ThawError};
use holdfast_bgp_wire::{CeaseSubcode, HEADER_LEN, MessageType, Notification};
use holdfast_nsr::{EntryId, Log, SessionId};
use holdfast_process::{OLD_TRANSPORT, formats::NSR_LOGS, hash_key, spawn_task};
use holdfast_sys::{memory::SharedMemory, pair};
use holdfast_xrl::{ErrorKind, XrlError};
use prost::Message;
use tokio::time::{sleep, timeout};
use tracing::{debug, error, info, warn};

use crate::{
    bgp::Bgp,
    config::{Configuration, Neighbor, Peers, Range},
    connection::Key,
    custody::{self, FdStore},
    fairness::PATIENCE,
    location::Location,
    nonstop::{self, FORMATS, Names, Progress, ReplicationLog, Resumed, Shared, Unprotected},
    redistribute,
    seed::seed,
    sessions::slot::Takeover,
    speaker::Speaker,
    stream::{self, AcceptedConnection, Offsets, Stream},
};

/// Deaths in a row of processes that had not resumed all sessions, after which none is taken over any more.
const MOST_LIVES: u32 = 5;
/// Deaths while the octets at one place of a session were being processed, after which that one is not taken over any
/// more.
const MOST_SUSPICIONS: u32 = 3;
/// A process that has lived so long with what it has taken over is well, whether its peers have taken a message or not.
const STABLE: Duration = Duration::from_secs(5);
/// How long replaying goes on before others have their turn.
const SLICE: Duration = Duration::from_millis(2);
/// Entries of the journal read before it is looked whether others are to have their turn.
const READ: usize = 16;
/// How long replaying waits in all for what the rib says of next hops.
const ANSWERS: Duration = Duration::from_millis(100);
/// After so long without an answer about next hops it is said.
const LATE: Duration = Duration::from_secs(10);
/// Size of a log that is needed for nothing.
const LEAST: u64 = 1 << 20;
/// Attribute sets of a snapshot that are given back before others have their turn.
const SETS: usize = 1 << 14;
/// Entries of the journal found before others have their turn.
const ENTRIES: usize = 4096;
/// Histories that are compared at a time with what is to be told now, beside the one that is read.
const COMPARED: usize = 2;
/// Sessions of which something short is done before others have their turn.
const SESSIONS: usize = 64;
/// How long the door may take to say how far a connection was read and written, or to be there at all.
const DOOR: Duration = Duration::from_secs(5);
/// How often it is asked while it is putting octets in. Nobody takes them out, so there is soon no room for more.
const MOST_ASKED: usize = 1000;

/// The log, and who was in it.
pub(crate) struct Opened {
    pub(crate) log: Rc<ReplicationLog>,
    sessions: Vec<Left>,
    started: Instant,
}

/// A session that goes on.
type Going = (Key, SessionId);

/// How far it had been written when it was taken over.
type Written = (SessionId, u64);

/// A session that the process before has left.
struct Left {
    id: SessionId,
    socket: OwnedFd,
    suspicions: u32,
    /// How far its connection was read and written, or why that is not known.
    offsets: Result<Offsets, String>,
}

impl Opened {
    /// The same, where the process before was killed because it did not answer, and had finished work meanwhile: it would have
    /// come to an end, so this was no death of a row that does not end.
    pub(crate) fn after_work(self) -> Self {
        self.log.log.borrow_mut().spare_life();
        self
    }

    /// The same, where the last death was nobody's fault of whom there are sessions.
    pub(crate) fn without_suspicion(mut self) -> Self {
        self.sessions.iter_mut().for_each(|left| left.suspicions = 0);
        self
    }
}

/// Takes the log from the keeper, or makes one. What cannot be used is given up, and said.
pub(crate) async fn open(custody: &FdStore, octets: u64) -> Result<Opened, XrlError> {
    let started = Instant::now();
    let custody::Left { log, mut sockets } = custody.take().await?;
    let log = match log.and_then(recover) {
        Some(log) => log,
        None => {
            // Without the log nobody knows what these sessions have been told.
            std::mem::take(&mut sockets).into_keys().for_each(|id| custody.drop(id));
            create(custody, octets).await?
        }
    };
    let ids: Vec<SessionId> = log.log.borrow().sessions().collect();
    let mut sessions = Vec::new();
    for id in ids {
        match sockets.remove(&id) {
            Some(socket) => {
                let suspicions = log.log.borrow().suspicions(id);
                // Of carried connections the door is asked later.
                let offsets = origin(&log, id).and_then(|origin| {
                    stream::tcp_offsets(&socket, origin).map_err(|error| error.to_string())
                });
                sessions.push(Left { id, socket, suspicions, offsets });
            }
            // It died before the keeper had the socket, or the keeper has closed it.
            None => log.close(id),
        }
    }
    sockets.into_keys().for_each(|id| custody.drop(id));
    Ok(Opened { log, sessions, started })
}

/// Where the socket of a session began to count.
fn origin(log: &ReplicationLog, id: SessionId) -> Result<Offsets, String> {
    let held = HeldSession::decode(log.log.borrow().record(id)).map_err(|error| error.to_string())?;
    Ok(Offsets { read: held.received_origin, written: held.sent_origin })
}

/// The log of the process before if there are sessions in it, where none is to outlive this one: they go on all the same.
pub(crate) async fn open_last(custody: &FdStore) -> Result<Option<Opened>, XrlError> {
    if !custody.has_sessions().await? {
        custody.drop_sessions().await?;
        return Ok(None);
    }
    // There is a log where there are sessions; if it cannot be read they cannot go on, and a new one need not be large.
    open(custody, LEAST).await.map(Some)
}

/// The log of the process before; `None` if there is none that can be read.
fn recover(descriptor: OwnedFd) -> Option<Rc<ReplicationLog>> {
    let recovered = SharedMemory::from_descriptor(descriptor)
        .map_err(|error| error.to_string())
        .and_then(|memory| Log::recover(Shared(memory)).map_err(|error| error.to_string()));
    match recovered {
        // Nobody is in it: it may as well be of the size that is configured now.
        Ok(log) if log.sessions().next().is_none() => None,
        Ok(log) if NSR_LOGS.map(u64::from).contains(&log.formats()) => Some(ReplicationLog::new(log)),
        Ok(log) => {
            let theirs = log.formats();
            error!(
                event = "nonstop-failed",
                theirs,
                ours = FORMATS,
                "the replication log is of another version: all sessions begin anew"
            );
            None
        }
        Err(error) => {
            error!(
                event = "nonstop-failed",
                "the replication log cannot be used, all sessions begin anew: {error}"
            );
            None
        }
    }
}

async fn create(custody: &FdStore, octets: u64) -> Result<Rc<ReplicationLog>, XrlError> {
    let failed = |error: &dyn std::fmt::Display| XrlError::internal(format!("the replication log: {error}"));
    let size = usize::try_from(octets).map_err(|error| failed(&error))?;
    let memory = SharedMemory::create("holdfast-log", size).map_err(|error| failed(&error))?;
    let copy = memory.descriptor().try_clone_to_owned().map_err(|error| failed(&error))?;
    let key = [seed(), seed()].map(u64::to_le_bytes);
    let key = <[u8; 16]>::try_from(key.as_flattened()).map_err(|error| failed(&error))?;
    let log = Log::create(Shared(memory), FORMATS, key).map_err(|error| failed(&error))?;
    custody.put_log(copy).await?;
    Ok(ReplicationLog::new(log))
}

/// Makes peers of the sessions, before those are configured that have none. Sessions that cannot go on are ended in
/// order.
pub(crate) async fn resume(bgp: &Rc<Bgp>, opened: Opened, configuration: &Configuration) {
    let Opened { log, sessions, started } = opened;
    let sessions = measure(bgp, &log, sessions).await;
    let lives = log.log.borrow().lives();
    let (mut keys, mut written) = (Vec::new(), Vec::new());
    let configuration = Configured::new(configuration);
    let mut since = Instant::now();
    for left in sessions {
        if since.elapsed() >= SLICE {
            tokio::task::yield_now().await;
            since = Instant::now();
        }
        let (id, suspicions) = (left.id, left.suspicions);
        let reason = match () {
            () if lives >= MOST_LIVES => Some("this process has died too often before it had resumed all"),
            () if suspicions >= MOST_SUSPICIONS => Some("processing what it sends has ended this process"),
            () => None,
        };
        match take(bgp, &log, left, &configuration, reason) {
            Ok(key) => {
                bgp.serve_writer(key);
                keys.push((key, id));
                written.push((id, log.log.borrow().outgoing(id).start));
                bgp.with(|speaker, now| speaker.end_if_stopped(key.0, now));
            }
            Err((socket, peer, why)) => {
                warn!(event = "session-given-up", peer, session = id.0, "session given up: {why}");
                let unsent: Vec<u8> = log.log.borrow().unsent(id).collect::<Vec<_>>().concat();
                log.close(id);
                spawn_task(farewell(socket, unsent));
            }
        }
    }
    bgp.spawn_for_life(replay(Rc::clone(bgp), log, (keys, written), started));
}

/// Has those who carry connections say of them what the kernel says of its own sockets.
async fn measure(bgp: &Rc<Bgp>, log: &Rc<ReplicationLog>, sessions: Vec<Left>) -> Vec<Left> {
    let (carried, mut measured): (Vec<Left>, Vec<Left>) =
        sessions.into_iter().partition(|left| stream::is_pair(&left.socket));
    let asking: Vec<_> = carried
        .into_iter()
        .map(|left| {
            let held = HeldSession::decode(log.log.borrow().record(left.id)).unwrap_or_default();
            let (bgp, said) = (Rc::clone(bgp), held.connection.unwrap_or_default());
            spawn_task(async move { Left { offsets: meter(&bgp, &said, &left.socket).await, ..left } })
        })
        .collect();
    for one in asking {
        // One whose task has panicked has ended the process.
        measured.extend(one.await);
    }
    measured
}

/// What the carrier of one says: octets that it has put in, less those that are still there, and octets that it has taken out
/// or finds there.
async fn meter(bgp: &Bgp, connection: &Connection, socket: &OwnedFd) -> Result<Offsets, String> {
    const GONE: &str = "the process that carried it is gone";
    let unread = || pair::unread(socket).map_err(|error| error.to_string());
    let is_gone = || pair::is_abandoned(socket).map_err(|error| error.to_string());
    for _ in 0..MOST_ASKED {
        if is_gone()? {
            return Err(GONE.into());
        }
        let before = unread()?;
        let number = connection.number;
        let said = match connection.carrier.as_str() {
            "" => {
                let said = ask_meter(bgp, "transport", number).await?;
                // Whoever has the other end lives: it has retired.
                let has_retired =
                    said.as_ref().is_err_and(|error| error.kind() == ErrorKind::NotFound) && !is_gone()?;
                if has_retired { ask_meter(bgp, OLD_TRANSPORT, number).await? } else { said }
            }
            class => ask_carrier(bgp, class, number).await?,
        };
        // Another one may have a connection of this number, too.
        if is_gone()? {
            return Err(GONE.into());
        }
        let said = said.map_err(|error| format!("nobody carries it any more: {}", error.message()))?;
        if unread()? == before {
            let read = said.received.checked_sub(before.into()).ok_or("its carrier has counted wrong")?;
            return Ok(Offsets { read, written: said.sent });
        }
        tokio::task::yield_now().await;
    }
    Err("its carrier goes on putting octets in".into())
}

/// What the door of this class says of a connection; the outer error: it is not there.
async fn ask_meter(bgp: &Bgp, class: &str, number: u64) -> Result<Result<MeterReply, XrlError>, String> {
    let door = timeout(DOOR, bgp.surroundings.wait_for::<TransportClient>(class)).await;
    let door = door.map_err(|_| format!("the process {class} is not there"))?;
    Ok(door.map_err(|error| error.to_string())?.meter(MeterRequest { number }).within(DOOR).await)
}

/// What another carrier says, as a door does.
async fn ask_carrier(bgp: &Bgp, class: &str, number: u64) -> Result<Result<MeterReply, XrlError>, String> {
    let carrier = timeout(DOOR, bgp.surroundings.wait_for::<CarrierClient>(class)).await;
    let carrier = carrier.map_err(|_| format!("the process {class} is not there"))?;
    let carrier = carrier.map_err(|error| error.to_string())?;
    let said = carrier.meter(carrier::MeterRequest { number }).within(DOOR).await;
    Ok(said.map(|carrier::MeterReply { received, sent }| MeterReply { received, sent }))
}

/// Makes one peer.
fn take(
    bgp: &Rc<Bgp>,
    log: &Rc<ReplicationLog>,
    left: Left,
    configuration: &Configured<'_>,
    reason: Option<&'static str>,
) -> Result<Key, (OwnedFd, String, String)> {
    let Left { id, socket, offsets, .. } = left;
    let held = HeldSession::decode(log.log.borrow().record(id));
    let held = match held {
        Ok(held) => held,
        Err(error) => return Err((socket, String::new(), error.to_string())),
    };
    let location = Location::read(&held.address, &held.interface);
    let found = location.as_ref().and_then(|location| configuration.find(location));
    let name = match (&found, &location) {
        (Some((neighbor, _)), _) => neighbor.name.clone(),
        (None, location) => location.as_ref().map(ToString::to_string).unwrap_or_default(),
    };
    let aligned = offsets.and_then(|offsets| Ok((offsets, align(log, id, offsets, &held)?)));
    let (offsets, (frozen, counted)) = match aligned {
        Ok(aligned) => aligned,
        Err(error) => return Err((socket, name, error)),
    };
    let Some((neighbor, dynamic)) = found.filter(|_| reason.is_none()) else {
        return Err((socket, name, reason.unwrap_or("it is not configured any more").into()));
    };
    let before = held.configuration;
    let noted = before.as_ref().and_then(|before| before.session.as_ref());
    if noted.is_some_and(|noted| neighbor.session.as_ref().is_some_and(|session| session != noted)) {
        return Err((socket, name, "another session is configured".into()));
    }
    let said = held.connection.unwrap_or_default();
    let copy = socket.as_fd().try_clone_to_owned();
    let origin = Offsets { read: held.received_origin, written: held.sent_origin };
    let handed = copy.and_then(|copy| AcceptedConnection::new(said, Stream::at(copy, offsets, origin)?));
    let handed = match handed {
        Ok(handed) => handed,
        Err(error) => return Err((socket, name, error.to_string())),
    };
    let families = held.end_of_rib.iter().map(|number| nonstop::family(*number)).collect();
    let names = Names { number: held.number, first_identifier: held.first_identifier };
    let progress = Progress { answered: held.answered, announcing: held.announcing, counted };
    bgp.with(|speaker, now| {
        let session = (frozen, names, families, progress);
        let key = speaker.resume((neighbor, dynamic), handed, (log, id), session, now)?;
        before.iter().for_each(|before| speaker.notice(key.0, before, now));
        Ok(key)
    })
    .map_err(|error: ThawError| (socket, name, error.to_string()))
}

/// Brings the log to where the connection is; the session as it was then, and up to which offset messages are counted.
fn align(
    log: &Rc<ReplicationLog>,
    id: SessionId,
    offsets: Offsets,
    held: &HeldSession,
) -> Result<(Frozen, u64), String> {
    let text = |error: &dyn std::fmt::Display| error.to_string();
    let keeps_sent = log.keeps_sent.get();
    let mut log = log.log.borrow_mut();
    log.set_received(id, offsets.read).map_err(|error| text(&error))?;
    log.set_sent(id, offsets.written).map_err(|error| text(&error))?;
    if !keeps_sent {
        log.acknowledged(id, u64::MAX);
    }
    let mut frozen = Frozen::from_bytes(&held.frozen).map_err(|error| text(&error))?;
    let now = nonstop::unix_milliseconds(SystemTime::now());
    frozen.age(Duration::from_millis(now.saturating_sub(held.frozen_at_unix_milliseconds)));
    let (received, counted) = count(&log, id, held.counted);
    frozen.count(log.numbers(id), &received);
    Ok((frozen, counted))
}

/// The messages in the log from an offset on, and where the last whole one ends: what the peer is known to have sent
/// does not wait for the replay.
fn count(log: &Log<Shared>, id: SessionId, from: u64) -> (Messages, u64) {
    let ops::Range { start, end } = log.incoming(id);
    let (mut messages, mut at) = (Messages::default(), from.max(start));
    while at + HEADER_LEN as u64 <= end {
        let mut header = [0; HEADER_LEN];
        let mut filled = 0;
        while filled < HEADER_LEN {
            let octets = log.read(id, at + filled as u64);
            let count = octets.len().min(HEADER_LEN - filled);
            header[filled..filled + count].copy_from_slice(&octets[..count]);
            filled += count;
        }
        let [.., high, low, kind] = header;
        let length = u16::from_be_bytes([high, low]);
        // What is no message ends the session, when it is taken in.
        let Some(kind) = MessageType::from_octet(kind) else { break };
        if usize::from(length) < HEADER_LEN || at + u64::from(length) > end {
            break;
        }
        messages.add(kind, 1);
        at += u64::from(length);
    }
    (messages, at)
}

/// The peers that are configured, found by their places.
pub(crate) struct Configured<'a> {
    neighbors: HashMap<&'a Location, &'a Neighbor>,
    ranges: &'a [Range],
}

impl<'a> Configured<'a> {
    pub(crate) fn new(configuration: &'a Configuration) -> Self {
        let Peers { neighbors, ranges, .. } = &configuration.peers;
        let neighbors = neighbors.iter().map(|neighbor| (&neighbor.location, neighbor)).collect();
        Self { neighbors, ranges }
    }

    /// The peer that is configured at a place, or that a listen range brings; and whether it is of a range.
    pub(crate) fn at(&self, location: &Location) -> Option<(Neighbor, bool)> {
        if let Some(neighbor) = self.neighbors.get(location) {
            return Some(((*neighbor).clone(), false));
        }
        let range = self.ranges.iter().find(|range| range.holds(location))?;
        Some((range.template.at(location.clone()), true))
    }

    /// The same, unless it is disabled.
    pub(crate) fn find(&self, location: &Location) -> Option<(Neighbor, bool)> {
        self.at(location).filter(|(neighbor, _)| !neighbor.disabled)
    }
}

/// Says what the process before had still to say, and that the session ends.
async fn farewell(socket: OwnedFd, mut octets: Vec<u8>) {
    octets.extend(Notification::cease(CeaseSubcode::AdministrativeReset).encode());
    let ending = async {
        let stream = Stream::new(socket)?;
        let mut rest = &*octets;
        while !rest.is_empty() {
            stream.writable().await?;
            match stream.try_write(rest) {
                Ok(count) => rest = &rest[count..],
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
        stream.goodbye().await;
        Ok(())
    };
    if let Ok(Err(error)) = timeout(stream::LINGER, ending).await {
        debug!("goodbye of the process before: {error}");
    }
}

/// Puts what was received into the tables again, session by session, and lets each go on; then tells peers what has
/// changed for them.
async fn replay(
    bgp: Rc<Bgp>,
    log: Rc<ReplicationLog>,
    (sessions, before): (Vec<Going>, Vec<Written>),
    started: Instant,
) {
    write_first(&bgp, &sessions).await;
    let mut patience = ANSWERS;
    for &(key, id) in &sessions {
        replay_session(&bgp, &log, (key, id), &mut patience).await;
        bgp.replayed.notify_one();
        // Also where it has ended meanwhile: what is read then is its end.
        bgp.serve_reader(key);
    }
    if sessions.is_empty() {
        return log.log.borrow_mut().stable();
    }
    // It may take long, and nobody waits for it: until then what peers have been told of it stays.
    bgp.with(|speaker, _| speaker.pipeline.await_ours(true));
    let known = Rc::clone(&bgp);
    bgp.spawn_for_life(async move {
        redistribute::known(&known).await;
        known.with(|speaker, _| speaker.pipeline.await_ours(false));
    });
    // The rib may be looking for next hops meanwhile. Where there is one history, as most often, it is read by then.
    let first = first_history(&bgp, &log, &sessions).await;
    while timeout(LATE, settled(&bgp)).await.is_err() {
        warn!(
            event = "next-hops-late",
            "{} peers are told nothing new until the rib knows their next hops",
            sessions.len()
        );
    }
    resume_output(&bgp, &log, &sessions, first).await;
    let took = started.elapsed();
    info!(
        event = "sessions-resumed",
        sessions = sessions.len(),
        "resumed {} sessions in {:.1} ms",
        sessions.len(),
        took.as_secs_f64() * 1e3
    );
    log.resumed.set(Some(Resumed { sessions: sessions.len(), at: SystemTime::now(), took }));
    let is_well = async {
        loop {
            let written = log.written.notified();
            if has_written(&log, &before) {
                return;
            }
            written.await;
        }
    };
    // Or it has lived long enough.
    let _ = timeout(STABLE, is_well).await;
    log.log.borrow_mut().stable();
}

/// Writes the KEEPALIVEs with which sessions go on. That a socket takes octets is known only after the event loop has looked
/// at it, and writers have their turns one after the other: of a thousand, the last one would be seconds late.
async fn write_first(bgp: &Rc<Bgp>, sessions: &[Going]) {
    for part in sessions.chunks(SESSIONS) {
        tokio::task::yield_now().await;
        bgp.with(|speaker, _| speaker.hurry(part.iter().map(|(key, _)| *key)));
    }
}

/// Whether a peer has been sent something since its session was taken over: this process did what it is for.
fn has_written(log: &ReplicationLog, sessions: &[Written]) -> bool {
    let log = log.log.borrow();
    let held: BTreeSet<SessionId> = log.sessions().collect();
    sessions.iter().any(|(id, before)| held.contains(id) && log.outgoing(*id).start > *before)
}

/// How often it is looked whether verdicts on signed routes have come, or are not waited for any more.
const PACE_OF_VERDICTS: Duration = Duration::from_millis(10);

/// Returns when the tables are what they will be until something happens outside.
async fn settled(bgp: &Rc<Bgp>) {
    loop {
        let (is_settled, awaits_signatures) = {
            let pipeline = &bgp.speaker.borrow().pipeline;
            (pipeline.is_settled(), pipeline.awaits_signatures())
        };
        match (is_settled, awaits_signatures) {
            (true, _) => return,
            (false, false) => bgp.answered.notified().await,
            // Time alone may settle that. `answered` says nothing of verdicts, and each turn notifies it: whoever waited for
            // it here would never let those have a turn who bring them.
            (false, true) => {
                sleep(PACE_OF_VERDICTS).await;
                bgp.settle("taking over", |_, _| {});
            }
        }
    }
}

/// Waits for the rib's word on new next hops, if there is patience left: what is taken in before has to be decided again.
async fn answered(bgp: &Rc<Bgp>, patience: &mut Duration) {
    let answered = async {
        while bgp.speaker.borrow().pipeline.awaits_next_hops() {
            bgp.answered.notified().await;
        }
    };
    let start = Instant::now();
    let _ = timeout(*patience, answered).await;
    *patience = patience.saturating_sub(start.elapsed());
}

/// What sessions were told up to an entry; `None` where that cannot be read.
type History = (EntryId, Option<AdjRibOutSnapshot>);

/// That of the first session.
async fn first_history(bgp: &Rc<Bgp>, log: &Rc<ReplicationLog>, sessions: &[Going]) -> Option<History> {
    let _turn = log.histories.lock().await;
    let holds = |going: &&Going| bgp.speaker.borrow().sessions.holds(going.0, going.1);
    let place = sessions.iter().find(holds).map(|(_, id)| log.log.borrow().passed(*id))?;
    Some((place, told(log, place).await))
}

/// From here on peers are told what changes, one history after the other: those of hundreds of members, each told in its
/// own way, would take more memory than the tables.
async fn resume_output(
    bgp: &Rc<Bgp>,
    log: &Rc<ReplicationLog>,
    sessions: &[Going],
    mut first: Option<History>,
) {
    let mut places: BTreeMap<EntryId, Vec<Going>> = BTreeMap::new();
    for part in sessions.chunks(SESSIONS) {
        for (key, id) in bgp.with(|speaker, now| held(speaker, part.to_vec(), now)) {
            places.entry(log.log.borrow().passed(id)).or_default().push((key, id));
        }
        tokio::task::yield_now().await;
    }
    while let Some((place, going)) = places.pop_first() {
        let turn = log.histories.lock().await;
        let held = bgp.with(|speaker, now| held(speaker, going, now));
        let (here, elsewhere): (Vec<Going>, Vec<Going>) =
            held.into_iter().partition(|(_, id)| log.log.borrow().passed(*id) == place);
        // Their history was written as one meanwhile.
        for (key, id) in elsewhere {
            places.entry(log.log.borrow().passed(id)).or_default().push((key, id));
        }
        if here.is_empty() {
            continue;
        }
        let told = match first.take_if(|(of, _)| *of == place) {
            Some((_, told)) => told,
            None => told(log, place).await,
        };
        resume_those(bgp, place, told, here);
        drop(turn);
        compared(bgp).await;
    }
    for part in sessions.chunks(SESSIONS) {
        bgp.with(|speaker, _| {
            for (key, _) in part {
                if speaker.sessions.slot(key.0).is_some_and(|slot| !slot.neighbor.source.nonstop)
                    && let Some(connection) = speaker.sessions.connection_mut(*key)
                {
                    connection.unprotect(Unprotected::NotConfigured);
                }
            }
        });
        tokio::task::yield_now().await;
    }
}

/// Those of the sessions that are in the log still; others that were not told anything yet begin anew.
fn held(speaker: &mut Speaker, going: Vec<Going>, now: Instant) -> Vec<Going> {
    let (held, lost): (Vec<Going>, Vec<Going>) =
        going.into_iter().partition(|(key, id)| speaker.sessions.holds(*key, *id));
    for (key, _) in lost {
        // It has lost its protection, and with it what is known of what the peer was told.
        if speaker.sessions.slot(key.0).is_some_and(|slot| slot.takeover.is_some())
            && !speaker.pipeline.is_told(key.0)
        {
            speaker.restart(key.0, now);
        }
    }
    held
}

/// The same for those with one history.
fn resume_those(bgp: &Rc<Bgp>, place: EntryId, told: Option<AdjRibOutSnapshot>, going: Vec<Going>) {
    bgp.with(|speaker, now| {
        // Some may have ended meanwhile.
        let still = going.iter().filter(|(key, id)| speaker.sessions.holds(*key, *id));
        let peers: Vec<PeerIndex> = still.map(|(key, _)| key.0).collect();
        match told {
            Some(told) if !peers.is_empty() => {
                debug!(peers = peers.len(), "what these were told is known");
                speaker.pipeline.resume(&peers, told, JournalEntry(place.bits()));
            }
            Some(_) => {}
            None => {
                error!(
                    event = "nonstop-failed",
                    "what {} peers were told cannot be read: their sessions begin anew",
                    peers.len()
                );
                peers.into_iter().for_each(|peer| speaker.restart(peer, now));
            }
        }
    });
}

/// Lets everything else have its turn; waits while more histories than [`COMPARED`] are compared, as long as that makes
/// progress. A peer that takes nothing holds up nobody.
async fn compared(bgp: &Rc<Bgp>) {
    let (mut since, mut seen) = (Instant::now(), None);
    loop {
        let (resuming, effort) =
            bgp.settle("taking over", |speaker, _| (speaker.pipeline.resuming(), speaker.pipeline.effort()));
        tokio::task::yield_now().await;
        if seen.replace(effort) != Some(effort) {
            since = Instant::now();
        }
        if resuming <= COMPARED || since.elapsed() >= PATIENCE {
            return;
        }
    }
}

async fn replay_session(bgp: &Rc<Bgp>, log: &Rc<ReplicationLog>, (key, id): Going, patience: &mut Duration) {
    if bgp.speaker.borrow().sessions.holds(key, id) {
        thaw(bgp, log, (key, id), patience).await;
    }
    while bgp.with(|speaker, now| {
        speaker.sessions.holds(key, id) && speaker.replay(key, now, &|| now.elapsed() >= SLICE)
    }) {
        tokio::task::yield_now().await;
        answered(bgp, patience).await;
    }
    bgp.with(|speaker, now| {
        let held = speaker.sessions.holds(key, id);
        let Some(slot) = speaker.sessions.slot_mut(key.0).filter(|slot| slot.is_replaying()) else { return };
        if held {
            slot.takeover = Some(Takeover::Done);
            info!(event = "session-resumed", peer = slot.neighbor.name, "session resumed");
            // They may be others than those of the process before.
            speaker.check_limits(key.0, now);
            // Nobody knows which were told, and configured, before.
            speaker.send_filters(key.0);
        } else {
            // Not all that was received is known any more.
            speaker.restart(key.0, now);
        }
    });
}

/// Takes in the snapshot of a session.
async fn thaw(bgp: &Rc<Bgp>, log: &Rc<ReplicationLog>, going: Going, patience: &mut Duration) {
    let mut sets = ThawedSets::new(hash_key());
    thaw_records(bgp, log, going, patience, &mut sets).await;
    while bgp.with(|speaker, _| speaker.pipeline.thawed(&mut sets, SETS)) {
        tokio::task::yield_now().await;
    }
}

async fn thaw_records(
    bgp: &Rc<Bgp>,
    log: &Rc<ReplicationLog>,
    (key, id): Going,
    patience: &mut Duration,
    sets: &mut ThawedSets,
) {
    let mut records = Records::new(log, id);
    loop {
        let goes_on = bgp.with(|speaker, now| {
            if !speaker.sessions.holds(key, id) {
                return false;
            }
            let (mut readable, mut is_over) = (true, false);
            log.log.borrow_mut().enter(id, nonstop::place_of_record(0));
            while readable
                && !is_over
                && let Some((number, record)) = records.next()
            {
                log.log.borrow_mut().advance(nonstop::place_of_record(number));
                readable = speaker.pipeline.thaw_routes(key.0, record, sets).is_ok();
                is_over = now.elapsed() >= SLICE;
            }
            log.log.borrow_mut().leave();
            if !readable {
                error!(event = "nonstop-failed", "a snapshot cannot be read: the session begins anew");
                speaker.restart(key.0, now);
            }
            readable && is_over
        });
        if !goes_on {
            return;
        }
        tokio::task::yield_now().await;
        answered(bgp, patience).await;
    }
}

/// The records of a snapshot, block by block. Copies: the log is written to while they are taken in.
struct Records<'a> {
    log: &'a ReplicationLog,
    id: SessionId,
    blocks: usize,
    octets: Vec<u8>,
    /// Where each of the block ends, and the next one to be taken in.
    ends: Vec<usize>,
    next: usize,
    /// Records of earlier blocks.
    before: usize,
}

impl<'a> Records<'a> {
    fn new(log: &'a ReplicationLog, id: SessionId) -> Self {
        Self { log, id, blocks: 0, octets: Vec::new(), ends: Vec::new(), next: 0, before: 0 }
    }

    /// The next one, with its number.
    fn next(&mut self) -> Option<(usize, &[u8])> {
        while self.next == self.ends.len() {
            self.read_block()?;
        }
        let at = self.next;
        self.next += 1;
        let begin = at.checked_sub(1).map_or(0, |before| self.ends[before]);
        Some((self.before + at, &self.octets[begin..self.ends[at]]))
    }

    fn read_block(&mut self) -> Option<()> {
        (self.before, self.next) = (self.before + self.ends.len(), 0);
        self.octets.clear();
        self.ends.clear();
        let log = self.log.log.borrow();
        let records = log.snapshot_block(self.id, self.blocks)?;
        self.blocks += 1;
        for record in records {
            self.octets.extend_from_slice(record);
            self.ends.push(self.octets.len());
        }
        Some(())
    }
}

/// What was told up to an entry; `None` if that cannot be read.
pub(crate) async fn told(log: &Rc<ReplicationLog>, place: EntryId) -> Option<AdjRibOutSnapshot> {
    let mut told = AdjRibOutSnapshot::new(hash_key());
    let mut since = Instant::now();
    for part in history(log, place).await.chunks(READ) {
        for entry in part {
            told.entry(log.log.borrow().entry(*entry).1).ok()?;
        }
        if since.elapsed() >= SLICE {
            tokio::task::yield_now().await;
            since = Instant::now();
        }
    }
    Some(told)
}

/// An entry and all before it, the oldest first. Nobody changes histories meanwhile.
pub(crate) async fn history(log: &Rc<ReplicationLog>, place: EntryId) -> Vec<EntryId> {
    let (mut at, mut entries) = (place, Vec::new());
    while at != EntryId::NONE {
        entries.push(at);
        at = log.log.borrow().entry(at).0;
        if entries.len().is_multiple_of(ENTRIES) {
            tokio::task::yield_now().await;
        }
    }
    entries.reverse();
    entries
}

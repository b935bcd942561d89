//! A log in new memory.

use std::{collections::BTreeMap, ops::Range};

use holdfast_api::{bgp::v1::HeldSession, stored::v1 as stored};
use holdfast_nsr::{EntryId, Full, Log, Memory, SessionId};
use prost::Message;

use crate::{Session, Table};

/// What the socket of a session needs. The octets that are sent again are in the log: `Log::unsent`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Restored {
    /// What the log before called it.
    pub was: SessionId,
    /// What the new one does.
    pub id: SessionId,
    /// The offset of the next octet of the peer: what comes before has been read.
    pub received: u64,
    /// What its connection is made again with; `None`: it cannot be.
    pub socket: Option<stored::Socket>,
    /// Octets to the peer that it may lack. The socket begins at the first of them.
    pub unacknowledged: Range<u64>,
}

/// No log could be made.
#[derive(Copy, Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum NotRebuilt {
    /// The log has other formats or another key, or sessions already.
    #[error("the log is none for this table")]
    OtherLog,
    /// It has no room for what the store holds.
    #[error("the log has no room for what the store holds")]
    Full(#[from] Full),
    /// The record of this session cannot be read.
    #[error("the record of session {} makes no sense", .0.0)]
    Record(SessionId),
    /// Entries form a circle.
    #[error("the entries of session {} have no end", .0.0)]
    Entries(SessionId),
}

/// Puts the sessions of a table into a new log, which has the formats and the key of the table: as the process before would have
/// left it, but that no octets to a peer have been sent yet.
///
/// The sockets of the sessions are new. So their records say that these begin to count where [`Restored`] says.
///
/// # Errors
/// [`NotRebuilt`]; the log is of no use.
pub fn rebuild<M: Memory>(table: &Table, log: &mut Log<M>) -> Result<Vec<Restored>, NotRebuilt> {
    if (log.formats(), log.key()) != (table.formats, table.key) || log.sessions().next().is_some() {
        return Err(NotRebuilt::OtherLog);
    }
    let mut entries = BTreeMap::from([(0, EntryId::NONE)]);
    table.sessions.iter().map(|session| add(table, session, log, &mut entries)).collect()
}

fn add<M: Memory>(
    table: &Table,
    session: &Session,
    log: &mut Log<M>,
    entries: &mut BTreeMap<u64, EntryId>,
) -> Result<Restored, NotRebuilt> {
    let ((incoming, octets), (unacknowledged, to_send)) = (&session.incoming, &session.outgoing);
    let received = incoming + octets.len() as u64;
    let held = HeldSession::decode(&*session.record).map_err(|_| NotRebuilt::Record(session.id))?;
    let held = HeldSession { received_origin: received, sent_origin: *unacknowledged, ..held };
    let id = log.open(*incoming, *unacknowledged, &held.encode_to_vec())?;
    log.set_numbers(id, session.numbers);
    if !session.snapshot.is_empty() {
        log.begin_snapshot(id);
        for record in &session.snapshot {
            log.snapshot_record(id, record)?;
        }
        log.commit_snapshot(id, *incoming);
    }
    receive(log, id, octets)?;
    let passed = entry(table, session, log, entries)?;
    log.push(id, to_send, Some(passed))?;
    let unacknowledged = log.unacknowledged(id);
    Ok(Restored { was: session.id, id, received, socket: session.socket.clone(), unacknowledged })
}

fn receive<M: Memory>(log: &mut Log<M>, id: SessionId, mut octets: &[u8]) -> Result<(), Full> {
    while !octets.is_empty() {
        let [first, second] = log.room(id, 1)?;
        let count = octets.len().min(first.len() + second.len());
        let (now, later) = octets.split_at(count);
        let cut = first.len().min(count);
        first[..cut].copy_from_slice(&now[..cut]);
        second[..count - cut].copy_from_slice(&now[cut..]);
        log.received(id, count);
        octets = later;
    }
    Ok(())
}

/// The entry that a session has passed, behind all before it.
fn entry<M: Memory>(
    table: &Table,
    session: &Session,
    log: &mut Log<M>,
    known: &mut BTreeMap<u64, EntryId>,
) -> Result<EntryId, NotRebuilt> {
    let (mut at, mut new) = (session.passed, Vec::new());
    while !known.contains_key(&at) {
        let Some(entry) = table.entries.get(&at).filter(|_| new.len() < table.entries.len()) else {
            return Err(NotRebuilt::Entries(session.id));
        };
        new.push((at, entry));
        at = entry.previous;
    }
    let mut last = known[&at];
    while let Some((number, entry)) = new.pop() {
        last = log.append(last, &entry.octets)?;
        known.insert(number, last);
    }
    Ok(last)
}

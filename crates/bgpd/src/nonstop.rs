//! The replication log as this process uses it: what has to be in it for another process to go on with our sessions.

use std::{
    cell::{Cell, RefCell},
    ops::Range,
    rc::Rc,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use holdfast_api::{
    bgp::v1::{HeldConfiguration, HeldSession},
    transport::v1 as transport,
};
use holdfast_bgp_pipeline::{Journal, JournalEntry};
use holdfast_nsr::{EntryId, Full, Log, Memory, Pacing, SessionId};
use holdfast_process::formats::NSR_LOG;
use holdfast_sys::memory::SharedMemory;
use holdfast_types::{Afi, Family, Safi};
use prost::Message;
use tokio::sync::Notify;

use crate::{location::Location, stream::Offsets};

/// Version of all that this process writes into the log: records, entries, snapshots. One that it does not know it
/// does not touch.
pub(crate) const FORMATS: u64 = NSR_LOG as u64;
/// Octets of new announcements after which old and new are written as one, unless the old are more.
const LONG_HISTORY: u64 = 8 << 20;
/// The same where there have been no new ones for a while.
const RESTING_HISTORY: u64 = 256 << 10;
/// However much one announcement of each route is, new announcements are at most one in so many octets of the log before old
/// and new are written as one.
const HISTORY_OF_LOG: u64 = 4;
/// It is said that a log is nearly full when fewer than one in so many octets are free.
const NEARLY_FULL: u64 = 4;
/// Histories begun, each in a block of its own, after which the blocks of those that have ended are freed: one in so
/// many blocks of the log, and never more than so many.
const BEGUN_OF_BLOCKS: u64 = 16;
const MOST_BEGUN: u64 = 256;

/// A mapped memfd.
#[derive(Debug)]
pub(crate) struct Shared(pub(crate) SharedMemory);

impl Memory for Shared {
    #[inline]
    fn octets(&self) -> &[u8] {
        self.0.octets()
    }

    #[inline]
    fn octets_mut(&mut self) -> &mut [u8] {
        self.0.octets_mut()
    }

    fn release(&mut self, range: Range<usize>) {
        self.0.release(range);
    }
}

/// Why a session is not in the log.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Unprotected {
    /// `nonstop` is off for the peer, or was when the session began.
    NotConfigured,
    /// It is saying goodbye.
    Ending,
    /// There was no room.
    LogFull,
    /// It is not known how far the connection was read, or the keeper would not keep its descriptor.
    NoCustody,
}

impl Unprotected {
    pub(crate) fn text(self) -> &'static str {
        match self {
            Self::NotConfigured => "nonstop is off, or was when the session came up",
            Self::Ending => "the session is ending",
            Self::LogFull => "the log was full: set a larger nonstop-memory",
            Self::NoCustody => "its socket could not be given to the keeper",
        }
    }
}

/// The log, shared by connections, journal and background work.
#[derive(Debug)]
pub(crate) struct ReplicationLog {
    pub(crate) log: RefCell<Log<Shared>>,
    /// Sessions that have left the log: the keeper is to close its copies of their sockets.
    left: RefCell<Vec<SessionId>>,
    /// When snapshots are worth their octets.
    pub(crate) pacing: RefCell<Pacing>,
    /// It was said that there was no room for one.
    said_full: Cell<bool>,
    /// It was said that there will soon be none, and there was no more since.
    said_nearly_full: Cell<bool>,
    /// Octets that the log has room for.
    size: u64,
    /// Octets of announcements since they were last written as one, and then.
    history: Cell<u64>,
    folded: Cell<u64>,
    /// [`Self::history`] at the last look.
    looked: Cell<u64>,
    /// Histories begun, or ended, since the ended ones were last freed, and the most there may be.
    begun: Cell<u64>,
    most_begun: u64,
    pub(crate) resumed: Cell<Option<Resumed>>,
    /// Held by who reads histories, or frees parts of them.
    pub(crate) histories: tokio::sync::Mutex<()>,
    /// A session's octets went into its socket.
    pub(crate) written: Notify,
    /// What was sent is held until the peer has acknowledged it: for who has no socket of this machine.
    pub(crate) keeps_sent: Cell<bool>,
}

/// What became of the sessions of the process before.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Resumed {
    pub(crate) sessions: usize,
    pub(crate) at: SystemTime,
    pub(crate) took: Duration,
}

impl ReplicationLog {
    pub(crate) fn new(log: Log<Shared>) -> Rc<Self> {
        let most_begun = (log.usage().blocks / BEGUN_OF_BLOCKS).clamp(1, MOST_BEGUN);
        let size = log.size_and_used().0;
        let mut pacing = Pacing::new(size);
        for id in log.sessions() {
            let usage = log.session_usage(id);
            pacing.recovered(id, usage.incoming, usage.snapshot);
        }
        Rc::new(Self {
            log: RefCell::new(log),
            left: RefCell::default(),
            pacing: RefCell::new(pacing),
            said_full: Cell::new(false),
            said_nearly_full: Cell::new(false),
            size,
            history: Cell::new(0),
            folded: Cell::new(0),
            looked: Cell::new(0),
            begun: Cell::new(0),
            most_begun,
            resumed: Cell::default(),
            histories: tokio::sync::Mutex::default(),
            written: Notify::new(),
            keeps_sent: Cell::new(false),
        })
    }

    /// Forgets a session.
    pub(crate) fn close(&self, id: SessionId) {
        self.log.borrow_mut().close(id);
        self.pacing.borrow_mut().closed(id);
        self.left.borrow_mut().push(id);
    }

    /// A session that has left the log since this was asked last.
    pub(crate) fn poll_left(&self) -> Option<SessionId> {
        self.left.borrow_mut().pop()
    }

    /// Whether it is to be said that there was no room: once.
    pub(crate) fn says_full(&self) -> bool {
        !self.said_full.replace(true)
    }

    /// Whether it is to be said that there is little room left: once until there is more.
    pub(crate) fn says_nearly_full(&self) -> bool {
        let used = self.log.borrow().size_and_used().1;
        let is_nearly_full = self.size - used < self.size / NEARLY_FULL;
        !self.said_nearly_full.replace(is_nearly_full) && is_nearly_full
    }

    /// Whether the announcements are worth to be written as one. `first` octets are what all routes take that were announced
    /// once.
    pub(crate) fn wants_folding(&self, first: u64) -> bool {
        let first = first.min(self.size / HISTORY_OF_LOG);
        self.history.get() > LONG_HISTORY.max(self.folded.get()).max(first)
    }

    /// The same, and nothing was announced since the last time that this was asked: a quarter is worth it then.
    pub(crate) fn rests_unfolded(&self, first: u64) -> bool {
        let (history, folded) = (self.history.get(), self.folded.get());
        let least = if folded == 0 { first / 2 } else { folded / 4 };
        self.looked.replace(history) == history && history > RESTING_HISTORY.max(least)
    }

    pub(crate) fn set_folded(&self, octets: u64) {
        self.history.set(0);
        self.folded.set(octets);
    }

    /// Counts a history that ended while its session continues.
    pub(crate) fn history_ended(&self) {
        self.begun.set(self.begun.get() + 1);
    }

    /// An entry has found no room: what has ended is freed before the next one, if anything may have.
    fn lacks_room(&self) {
        if self.begun.get() > 0 {
            self.begun.set(self.most_begun);
        }
    }

    /// Whether so many histories have begun that some will have ended: a peer that comes and goes begins one each time.
    pub(crate) fn wants_collecting(&self) -> bool {
        self.begun.get() >= self.most_begun
    }

    /// Frees the blocks of histories that nobody goes on from; `heads` are those that streams do.
    pub(crate) fn collect(&self, heads: Vec<EntryId>) {
        self.begun.set(0);
        self.log.borrow_mut().collect(heads);
    }
}

/// The pipeline's side of the log.
#[derive(Debug)]
pub(crate) struct LogJournal(pub(crate) Rc<ReplicationLog>);

impl Journal for LogJournal {
    fn append(&mut self, previous: JournalEntry, entry: &[u8]) -> JournalEntry {
        let history = &self.0.history;
        history.set(history.get() + entry.len() as u64);
        if previous == JournalEntry::NONE {
            self.0.begun.set(self.0.begun.get() + 1);
        }
        match self.0.log.borrow_mut().append(EntryId::from_bits(previous.0), entry) {
            Ok(entry) => JournalEntry(entry.bits()),
            Err(Full) => {
                self.0.lacks_room();
                JournalEntry::LOST
            }
        }
    }

    fn key(&self) -> [u8; 16] {
        self.0.log.borrow().key()
    }
}

/// A connection's place in the log.
#[derive(Debug)]
pub(crate) struct Held {
    pub(crate) log: Rc<ReplicationLog>,
    pub(crate) id: SessionId,
    /// Offset of the first octet of the incoming stream that has not been taken in.
    pub(crate) parsed: u64,
    pub(crate) progress: Progress,
    /// A request for a refresh is being answered.
    pub(crate) refreshing: bool,
    /// The keeper has the socket.
    pub(crate) kept: bool,
    /// When the snapshot that holds was made.
    pub(crate) snapshot_at: Option<Instant>,
}

/// What was done about messages that may be taken in once more.
#[derive(Copy, Clone, Debug, Default)]
pub(crate) struct Progress {
    /// Requests for a refresh before this offset have been answered.
    pub(crate) answered: u64,
    /// The peer is being told everything as the operator has asked: nothing in the incoming stream says so.
    pub(crate) announcing: bool,
    /// Messages before this offset have been counted.
    pub(crate) counted: u64,
}

impl Held {
    pub(crate) fn new(log: &Rc<ReplicationLog>, id: SessionId, parsed: u64, progress: Progress) -> Self {
        let log = Rc::clone(log);
        Self { log, id, parsed, progress, refreshing: false, kept: false, snapshot_at: None }
    }

    /// What a record says of it.
    pub(crate) fn progress(&self) -> Progress {
        // What is being replayed was counted further on than it was taken in.
        Progress { counted: self.progress.counted.max(self.parsed), ..self.progress }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.log.close(self.id);
    }
}

/// How the next process finds out how far a connection was read and written.
#[derive(Clone, Debug)]
pub(crate) enum Counted {
    /// By the kernel, from these offsets on.
    ByKernel(Offsets),
    /// By the door, which carries it.
    ByDoor(transport::Connection),
}

/// What its routes are called where they are announced: the same in all processes that go on with the session.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Names {
    /// What the journal of announcements calls the peer.
    pub(crate) number: u32,
    /// The first of the session's path identifiers; 0: not known.
    pub(crate) first_identifier: u32,
}

/// What is written of a session, with its hold time, what counts its connection, and its End-of-RIBs.
pub(crate) fn record(
    (location, hold_time): (&Location, Duration),
    configuration: HeldConfiguration,
    counted_by: Counted,
    Names { number, first_identifier }: Names,
    frozen: Vec<u8>,
    end_of_rib: impl Iterator<Item = Family>,
    Progress { answered, announcing, counted }: Progress,
) -> Vec<u8> {
    let (connection, origin) = match counted_by {
        Counted::ByKernel(origin) => (None, origin),
        Counted::ByDoor(connection) => (Some(connection), Offsets::default()),
    };
    HeldSession {
        configuration: Some(configuration),
        address: location.octets(),
        interface: location.interface().to_owned(),
        number,
        frozen,
        frozen_at_unix_milliseconds: unix_milliseconds(SystemTime::now()),
        end_of_rib: end_of_rib
            .map(|family| u32::from(family.afi.0) << 8 | u32::from(family.safi.0))
            .collect(),
        answered,
        announcing,
        connection,
        counted,
        first_identifier,
        received_origin: origin.read,
        sent_origin: origin.written,
        hold_seconds: u32::try_from(hold_time.as_secs()).unwrap_or(0),
    }
    .encode_to_vec()
}

/// What [`Log::enter`] is told of a record of a snapshot: no offset is so large.
pub(crate) fn place_of_record(number: usize) -> u64 {
    !(number as u64)
}

/// A family in a record.
pub(crate) fn family(number: u32) -> Family {
    Family { afi: Afi((number >> 8) as u16), safi: Safi(number as u8) }
}

pub(crate) fn unix_milliseconds(at: SystemTime) -> u64 {
    at.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log() -> Rc<ReplicationLog> {
        log_of(64 * LONG_HISTORY)
    }

    fn log_of(octets: u64) -> Rc<ReplicationLog> {
        let memory = SharedMemory::create("test", octets as usize).expect("memory");
        ReplicationLog::new(Log::create(Shared(memory), FORMATS, [1; 16]).expect("large enough"))
    }

    #[test]
    fn a_history_is_folded_when_more_was_announced_than_every_route_once() {
        let log = log();
        log.history.set(LONG_HISTORY + 1);
        assert!(log.wants_folding(0) && !log.wants_folding(2 * LONG_HISTORY));
        log.history.set(2 * LONG_HISTORY + 1);
        assert!(log.wants_folding(2 * LONG_HISTORY));
        log.set_folded(3 * LONG_HISTORY);
        log.history.set(2 * LONG_HISTORY + 1);
        assert!(!log.wants_folding(0), "as much as what it was folded to");
    }

    #[test]
    fn a_history_of_a_quarter_of_the_log_is_folded_however_many_routes_there_are() {
        let log = log_of(8 * LONG_HISTORY);
        let most = log.size / HISTORY_OF_LOG;
        log.history.set(most);
        assert!(most > LONG_HISTORY && !log.wants_folding(u64::MAX));
        log.history.set(most + 1);
        assert!(log.wants_folding(u64::MAX));
        log.set_folded(most + 2);
        log.history.set(most + 1);
        assert!(!log.wants_folding(u64::MAX), "it was of no use the last time");
    }

    #[test]
    fn that_a_log_is_nearly_full_is_said_once_until_there_is_room() {
        let log = log_of(4 << 20);
        assert!(!log.says_nearly_full());
        let mut last = EntryId::NONE;
        let fill = |log: &ReplicationLog, last: &mut EntryId| {
            let entry = vec![0; log.log.borrow().longest_entry()];
            while log.size - log.log.borrow().size_and_used().1 >= log.size / NEARLY_FULL {
                *last = log.log.borrow_mut().append(*last, &entry).expect("room");
            }
        };
        for _ in 0..2 {
            fill(&log, &mut last);
            assert!(log.says_nearly_full() && !log.says_nearly_full());
            log.collect(Vec::new());
            assert!(!log.says_nearly_full());
        }
    }

    #[test]
    fn an_entry_that_finds_no_room_has_what_has_ended_freed_and_nothing_else_does() {
        let log = log_of(64 << 20);
        let mut journal = LogJournal(Rc::clone(&log));
        let entry = vec![0; log.log.borrow().longest_entry()];
        let mut last = journal.append(JournalEntry::NONE, &entry);
        log.collect(vec![EntryId::from_bits(last.0)]);
        while last != JournalEntry::LOST {
            last = journal.append(last, &entry);
        }
        assert!(!log.wants_collecting(), "nothing has ended");
        log.history_ended();
        assert!(!log.wants_collecting());
        assert_eq!(journal.append(JournalEntry::NONE, &entry), JournalEntry::LOST);
        assert!(log.wants_collecting());
        log.collect(Vec::new());
        assert_ne!(journal.append(JournalEntry::NONE, &entry), JournalEntry::LOST);
    }

    #[test]
    fn a_resting_history_is_folded_when_half_of_it_may_be_superfluous() {
        let log = log();
        log.history.set(RESTING_HISTORY + 1);
        assert!(!log.rests_unfolded(0), "it has grown since the last look");
        assert!(log.rests_unfolded(0) && !log.rests_unfolded(4 * RESTING_HISTORY));
        log.set_folded(8 * RESTING_HISTORY);
        log.history.set(RESTING_HISTORY + 1);
        assert!(
            !log.rests_unfolded(0) && !log.rests_unfolded(0),
            "less than a quarter of what it was folded to"
        );
    }
}

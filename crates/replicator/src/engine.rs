//! What the process does: it follows the logs of `bgp`, writes the store, and says to the gate what may leave.
//!
//! ```text
//!  keeper ── log, sockets of bgp ──> Table (one for each table) ── batches ──> Writer ── Link ──> store
//!  gate   ── bell ──────────────────────┘    marks <── confirmed ───────────────┘
//! ```
//! Nothing tells the process that a log has changed: when there is something that the store lacks, a segment that says so waits
//! at the gate, and the gate rings. What waits for nothing is copied a little later.

use std::{
    collections::{BTreeMap, BTreeSet},
    hash::{BuildHasher, RandomState},
    net::Ipv4Addr,
    os::fd::OwnedFd,
    rc::Rc,
    time::{Duration, Instant},
};

use holdfast_api::replicator::v1::{Configuration, Kind, OnLoss};
use holdfast_gate::{BadMarks, Marks, Side, SlotState};
use holdfast_process::Resolver;
use holdfast_store::{Answer, Failure, Request, redis::Keys};
use holdfast_sys::memory::SharedMemory;
use tokio::sync::Notify;
use tracing::{error, info, warn};

use crate::{
    copier::{Copier, Filled},
    lease::Lease,
    link::{Event, Link, Servers, shortened},
    local::LocalStore,
    table::Table,
    writer::{Outcome, Phase, TableMark, Trouble, Writer},
};

/// Slots of marks: sessions of all tables together.
const SLOTS: usize = 4096;
/// Batches on their way. While they are, the next one gathers what comes meanwhile.
const MOST_WAITING: usize = 4;
/// Batches that are made before others have their turn.
const BATCHES_A_TURN: usize = 4;
/// Between two attempts to reach the store: at first, and at most.
const RETRY: Duration = Duration::from_millis(50);
const MOST_RETRY: Duration = Duration::from_secs(1);
/// A store that has not answered for half of the time that sessions wait for it is connected to anew: at least after this
/// long, and at most.
const LEAST_PATIENCE: Duration = Duration::from_millis(500);
const MOST_PATIENCE: Duration = Duration::from_secs(5);
/// How often a store that is sent nothing is asked whether it has what it had.
const PROBE: Duration = Duration::from_millis(500);
/// A store that has not confirmed for so long is said to be away.
const SILENCE: Duration = Duration::from_millis(250);
/// A session that the gate waits for, and that `bgp` has not read for so long, is looked at in its socket.
const UNREAD: Duration = Duration::from_millis(30);
/// For how long sessions that are to end may say so to their peers.
const GOODBYE: Duration = Duration::from_secs(3);

/// Where what is asked goes.
enum Way {
    None,
    Server(Link),
    Local(LocalStore),
}

/// What protects the sessions.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Protection {
    /// The store has not had everything yet.
    Beginning,
    /// Nothing leaves that the store does not have.
    Full,
    /// The store is away, and sessions wait for it.
    Waiting,
    /// It was away for too long: everything leaves.
    Degraded,
    /// It was away for too long: sessions end, and what they have still to say leaves.
    SteppingDown,
    /// They have ended: nothing leaves, and none begins.
    SteppedDown,
    /// Another router has the sessions: nothing leaves.
    Fenced,
}

impl Protection {
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Beginning => "beginning",
            Self::Full => "full",
            Self::Waiting => "waiting",
            Self::Degraded => "degraded",
            Self::SteppingDown => "stepping-down",
            Self::SteppedDown => "stepped-down",
            Self::Fenced => "fenced",
        }
    }

    /// What may leave of sessions that the store has.
    fn state(self) -> SlotState {
        match self {
            Self::Beginning | Self::Degraded | Self::SteppingDown => SlotState::Open,
            Self::Full | Self::Waiting => SlotState::Gated,
            Self::SteppedDown | Self::Fenced => SlotState::Closed,
        }
    }

    /// Whether the lease is renewed: without it no session begins.
    fn may_begin(self) -> bool {
        match self {
            Self::Beginning | Self::Full | Self::Waiting | Self::Degraded => true,
            Self::SteppingDown | Self::SteppedDown | Self::Fenced => false,
        }
    }
}

/// All state of the process.
pub(crate) struct Engine {
    pub(crate) configuration: Configuration,
    servers: Servers,
    keys: Option<Keys>,
    resolver: Resolver,
    pub(crate) tables: Vec<Table>,
    /// What the keeper has of `bgp`.
    kept: BTreeMap<String, u64>,
    pub(crate) writer: Writer,
    way: Way,
    /// The store in memory, while it is to be asked a little later.
    memory: Option<LocalStore>,
    files: Vec<OwnedFd>,
    pub(crate) lease: Option<Lease>,
    marks: SharedMemory,
    pub(crate) protection: Protection,
    /// Since when sessions end, as the store is away.
    stepping_down_since: Option<Instant>,
    /// `bgp` is to be told to end its sessions.
    must_end_sessions: bool,
    /// That another router has the lease was said.
    has_said_lease: bool,
    /// The tables that the store has had as a whole since it was begun.
    whole: BTreeSet<usize>,
    /// Since when the store has not had everything.
    not_whole_since: Option<Instant>,
    retry_at: Option<Instant>,
    retries: u32,
    probed_at: Option<Instant>,
    /// Since when the store is asked what it has, or claimed.
    asked_at: Option<Instant>,
    /// The keeper has said all that it has.
    pub(crate) is_complete: bool,
    is_swept: bool,
    /// There is something in the marks that the gate has not been told.
    has_news: bool,
    pub(crate) trouble: Option<Trouble>,
    pub(crate) server: Option<String>,
    pub(crate) batches: u64,
    pub(crate) octets: u64,
    pub(crate) gaps: u64,
    /// What cannot be gated, as the gate says.
    pub(crate) missing: Vec<String>,
    /// Sessions that the gate waits for, since when, and how far they had been read then.
    unread: Option<Instant>,
    /// Something has come of the store.
    pub(crate) notify: Rc<Notify>,
}

/// The memory of marks: that of the process before, or new.
///
/// # Errors
/// There is no memory.
pub(crate) fn marks(before: Option<OwnedFd>) -> std::io::Result<SharedMemory> {
    let found = before.and_then(|descriptor| SharedMemory::from_descriptor(descriptor).ok());
    if let Some(mut memory) = found
        && Marks::open(memory.words()).is_ok()
    {
        return Ok(memory);
    }
    let mut memory = SharedMemory::create("holdfast-marks", Marks::octets(SLOTS))?;
    Marks::create(memory.words()).map_err(|bad: BadMarks| std::io::Error::other(bad.to_string()))?;
    Ok(memory)
}

/// The number of a table in marks and in the store: 0 is that of the default one.
fn number(vrf: &str, at: u32) -> u32 {
    if vrf.is_empty() { 0 } else { at }
}

fn random() -> u64 {
    RandomState::new().hash_one(())
}

impl Engine {
    /// Without anything to do yet.
    pub(crate) fn new(resolver: Resolver, mut marks: SharedMemory) -> Self {
        // What was gated waits for us. Sessions of a log that we do not know yet are none of it.
        let was_gated = Marks::open(marks.words()).is_ok_and(|marks| {
            (0..marks.slots() as u32)
                .any(|slot| marks.view(slot).is_some_and(|view| view.state == SlotState::Gated))
        });
        Self {
            configuration: Configuration::default(),
            servers: Servers::default(),
            keys: None,
            resolver,
            tables: Vec::new(),
            kept: BTreeMap::new(),
            writer: Writer::new(0, random()),
            way: Way::None,
            memory: None,
            files: Vec::new(),
            lease: None,
            marks,
            protection: if was_gated { Protection::Waiting } else { Protection::Beginning },
            stepping_down_since: None,
            must_end_sessions: false,
            has_said_lease: false,
            whole: BTreeSet::new(),
            not_whole_since: None,
            retry_at: None,
            retries: 0,
            probed_at: None,
            asked_at: None,
            is_complete: false,
            is_swept: false,
            has_news: false,
            trouble: None,
            server: None,
            batches: 0,
            octets: 0,
            gaps: 0,
            missing: Vec::new(),
            unread: None,
            notify: Rc::new(Notify::new()),
        }
    }

    /// Another configuration. What it leaves as it was goes on.
    pub(crate) fn configure(&mut self, configuration: Configuration, password: &[u8], files: Vec<OwnedFd>) {
        let servers = Servers {
            peers: configuration.servers.iter().map(|one| (one.peer.clone(), one.address.clone())).collect(),
            user: Some(configuration.user.clone()).filter(|user| !user.is_empty()),
            password: Some(String::from_utf8_lossy(password).trim_end().to_owned())
                .filter(|word| !word.is_empty()),
            replicas: configuration.wait_replicas,
            patience: Duration::from_millis(configuration.store_timeout_milliseconds.into()),
        };
        let is_other_store = configuration.kind != self.configuration.kind
            || !servers.are(&self.servers)
            || configuration.directory != self.configuration.directory;
        let is_other_tables = configuration.tables != self.configuration.tables
            || configuration.port != self.configuration.port;
        if is_other_tables {
            // Those of tables that are gone are nobody's.
            self.is_swept = false;
            let port = u16::try_from(configuration.port).unwrap_or(0);
            let numbered = configuration.tables.iter().zip(1..);
            self.tables =
                numbered.map(|(table, at)| Table::new(&table.vrf, number(&table.vrf, at), port)).collect();
            for (key, number) in &self.kept {
                if let Some(table) = self.tables.iter_mut().find(|table| table.owns(key)) {
                    table.noted(key.clone(), *number);
                }
            }
        }
        self.files = files;
        let router = Ipv4Addr::from_bits(configuration.router_id).to_string();
        self.keys = Keys::new(&router).ok();
        (self.configuration, self.servers) = (configuration, servers);
        if is_other_store || is_other_tables {
            self.way = Way::None;
            self.writer.disconnected();
            // What another store has is not known, and other tables are another copy.
            self.writer.rewrite();
            self.retry_at = None;
        }
    }

    pub(crate) fn marks(&mut self) -> Option<Marks<'_>> {
        Marks::open(self.marks.words()).ok()
    }

    /// What the keeper has of `bgp` under a key now; 0: nothing.
    pub(crate) fn kept(&mut self, key: &str, number: u64) {
        if number == 0 {
            self.kept.remove(key);
        } else {
            self.kept.insert(key.to_owned(), number);
        }
        if let Some(table) = self.tables.iter_mut().find(|table| table.owns(key)) {
            table.noted(key.to_owned(), number);
        }
    }

    /// Descriptors that are not here yet.
    pub(crate) fn wanted(&self) -> Vec<(String, u64)> {
        self.tables.iter().flat_map(Table::wanted).collect()
    }

    /// A descriptor of the keeper.
    pub(crate) fn take(&mut self, key: &str, number: u64, descriptor: OwnedFd) {
        let Some(at) = self.tables.iter().position(|table| table.owns(key)) else { return };
        let is_other_log = self.tables[at].take(key, number, descriptor);
        if let Some(trouble) = self.tables[at].trouble.as_ref().filter(|_| is_other_log) {
            warn!(event = "replication-failed", vrf = self.tables[at].vrf, "{trouble}");
        }
        if is_other_log {
            // Numbers of sessions and entries mean something else there: everything is copied anew.
            self.writer.rewrite();
            if !matches!(self.writer.phase(), Phase::Down | Phase::Fenced) {
                self.reconnect(None, Instant::now());
            }
        }
        if let Some(marks) = Marks::open(self.marks.words()).ok().filter(|_| is_other_log) {
            self.tables[at].free_slots(&marks);
        }
    }

    /// Does what there is to do now; whether there is more.
    pub(crate) fn turn(&mut self, now: Instant) -> bool {
        self.take_lease(now);
        if self.lease.is_none() {
            // What the process before has renewed ends by itself.
            return false;
        }
        self.connect(now);
        let mut more = self.events(now);
        more |= self.write(now);
        self.probe(now);
        self.lose_patience(now);
        self.judge(now);
        self.publish();
        more
    }

    /// Gives up a connection over which no answer comes, and tries the next server first.
    fn lose_patience(&mut self, now: Instant) {
        match self.writer.phase() {
            Phase::Asking | Phase::Claiming => drop(self.asked_at.get_or_insert(now)),
            Phase::Down | Phase::Copying | Phase::Whole | Phase::Fenced => self.asked_at = None,
        }
        let since = self.asked_at.or_else(|| self.writer.oldest().filter(|_| self.server.is_some()));
        let timeout = Duration::from_millis(self.configuration.store_timeout_milliseconds.into());
        let limit = (timeout / 2).clamp(LEAST_PATIENCE, MOST_PATIENCE);
        if since.is_some_and(|since| now.duration_since(since) >= limit) {
            self.asked_at = None;
            if !self.servers.peers.is_empty() {
                self.servers.peers.rotate_left(1);
            }
            self.reconnect(Some(Trouble::Silent), now);
        }
    }

    fn probe(&mut self, now: Instant) {
        if self.probed_at.is_some_and(|at| now.duration_since(at) < PROBE) {
            return;
        }
        if let Some(request) = self.writer.probe(now) {
            self.probed_at = Some(now);
            self.ask(&request);
        }
    }

    fn take_lease(&mut self, now: Instant) {
        if self.lease.is_none()
            && let Some(file) = self.files.first()
        {
            match Lease::take(file) {
                Ok(Some(lease)) => {
                    info!(event = "lease-taken", epoch = lease.epoch(), "the lease is ours");
                    self.lease = Some(lease);
                    self.writer = Writer::new(lease.epoch(), random());
                    self.not_whole_since = Some(now);
                }
                Ok(None) if std::mem::replace(&mut self.has_said_lease, true) => {}
                Ok(None) => {
                    warn!(event = "lease-elsewhere", "another router has the lease: no session begins here");
                }
                Err(error) => error!(event = "lease-failed", "the file of the lease cannot be used: {error}"),
            }
        }
    }

    /// Opens a way to the store where there is none, and it is time to.
    fn connect(&mut self, now: Instant) {
        let is_time = self.retry_at.is_none_or(|at| at <= now);
        if !matches!(self.way, Way::None) || !is_time || self.writer.phase() == Phase::Fenced {
            return;
        }
        match self.configuration.kind() {
            Kind::Unspecified => {}
            Kind::Redis => {
                if let Some(keys) = &self.keys {
                    let (resolver, notify) = (self.resolver.clone(), Rc::clone(&self.notify));
                    self.way = Way::Server(Link::new(resolver, self.servers.clone(), keys.clone(), notify));
                }
            }
            Kind::Memory => {
                self.way = Way::Local(self.memory.take().unwrap_or_else(LocalStore::in_memory));
                self.connected(None);
            }
            Kind::File => {
                let copies = self.files.iter().skip(1).map(OwnedFd::try_clone).collect::<Result<Vec<_>, _>>();
                let files = copies.ok().and_then(|files| <[OwnedFd; 2]>::try_from(files).ok());
                match files.map(LocalStore::in_files) {
                    Some(Ok(store)) => {
                        self.way = Way::Local(store);
                        self.connected(None);
                    }
                    Some(Err(_)) | None => self.reconnect(Some(Failure::CannotSave.into()), now),
                }
            }
        }
    }

    fn connected(&mut self, server: Option<String>) {
        self.server = server;
        let request = self.writer.connected();
        request.iter().for_each(|request| self.ask(request));
    }

    fn ask(&mut self, request: &Request) {
        match &mut self.way {
            Way::None => {}
            Way::Server(link) => link.ask(request),
            Way::Local(store) => store.ask(request),
        }
    }

    /// The store is asked anew what it has, a little later each time.
    fn reconnect(&mut self, trouble: Option<Trouble>, now: Instant) {
        if let Some(trouble) = trouble {
            if self.trouble.as_ref() != Some(&trouble) {
                let text = trouble.to_string();
                warn!(event = "store-failed", "{}", shortened(&text));
            }
            self.trouble = Some(trouble);
            let pause = RETRY.saturating_mul(1 << self.retries.min(10)).min(MOST_RETRY);
            self.retry_at = Some(now + pause);
            self.retries += 1;
        } else {
            self.retry_at = None;
        }
        self.writer.disconnected();
        // A store in memory stays as it is; what it has answered is nobody's any more.
        if let (Way::Local(mut store), Kind::Memory) =
            (std::mem::replace(&mut self.way, Way::None), self.configuration.kind())
        {
            while store.take().is_some() {}
            self.memory = Some(store);
        }
        self.server = None;
    }

    fn event(&mut self) -> Option<Event> {
        match &mut self.way {
            Way::None => None,
            Way::Server(link) => link.event(),
            Way::Local(store) => store.take().map(Event::Answered),
        }
    }

    /// Takes what has come of the store; whether there is more.
    fn events(&mut self, now: Instant) -> bool {
        while let Some(event) = self.event() {
            match event {
                Event::Connected(server) => self.connected(Some(server)),
                Event::Ended(why) => {
                    if self.server.is_some() || self.trouble.is_none() {
                        warn!(event = "store-lost", "no connection to the store: {}", shortened(&why));
                    }
                    self.reconnect(Some(Trouble::NoConnection), now);
                }
                Event::Answered(answer) => self.answered(answer, now),
            }
        }
        match &mut self.way {
            Way::Local(store) => store.work(),
            Way::None | Way::Server(_) => false,
        }
    }

    fn answered(&mut self, answer: Result<Answer, Failure>, now: Instant) {
        let before = self.writer.phase();
        match self.writer.answered(answer) {
            Outcome::Send(request) => self.ask(&request),
            Outcome::Confirmed(marks) => {
                self.confirmed(&marks);
                self.batches += u64::from(before != Phase::Asking);
                if before == Phase::Asking {
                    let again: Vec<_> = self.writer.again().collect();
                    again.iter().for_each(|request| self.ask(request));
                }
                (self.trouble, self.retries) = (None, 0);
            }
            Outcome::Restart => {
                self.whole.clear();
                self.tables.iter_mut().for_each(Table::restart);
                if self.writer.losses() > 0 {
                    warn!(
                        event = "store-anew",
                        "everything is written anew: the store does not have what it had confirmed"
                    );
                }
            }
            Outcome::Reconnect(trouble) => self.reconnect(Some(trouble), now),
            Outcome::Fenced => {
                error!(
                    event = "fenced",
                    "another router has claimed the store: nothing leaves this one any more"
                );
                self.way = Way::None;
                self.protection = Protection::Fenced;
            }
        }
    }

    fn confirmed(&mut self, confirmed: &[TableMark]) {
        let Ok(marks) = Marks::open(self.marks.words()) else { return };
        self.has_news |= !confirmed.is_empty();
        for (at, mark) in confirmed {
            if let Some(table) = self.tables.get_mut(*at) {
                table.confirmed(*mark, &marks);
            }
        }
    }

    /// Writes what the store lacks; whether there is more.
    fn write(&mut self, now: Instant) -> bool {
        for _ in 0..BATCHES_A_TURN {
            if self.writer.waiting() >= MOST_WAITING {
                return false;
            }
            let Some(mut batch) = self.writer.begin() else { return false };
            let mut is_full = self.peek(&mut batch, now);
            for (at, table) in self.tables.iter_mut().enumerate() {
                let Some(copier) = table.copier() else {
                    // Of a table without a log there is nothing to be had.
                    self.whole.insert(at);
                    continue;
                };
                match copier.fill(&mut batch) {
                    Filled::All => drop(self.whole.insert(at)),
                    Filled::Full => {
                        is_full = true;
                        break;
                    }
                }
            }
            let moved = self.tables.iter_mut().enumerate().flat_map(|(at, table)| {
                let moved = table.copier().map(Copier::take_moved).unwrap_or_default();
                moved.into_iter().map(move |mark| (at, mark))
            });
            let moved = moved.collect();
            let is_whole = !is_full && self.whole.len() == self.tables.len();
            let octets = batch.octets() as u64;
            match self.writer.send(batch, moved, is_whole, now) {
                Some(request) => {
                    self.octets += octets;
                    self.ask(&request);
                    if matches!(self.way, Way::Local(_)) {
                        self.events(now);
                    }
                }
                None => return false,
            }
            if !is_full {
                return false;
            }
        }
        true
    }

    /// Looks into sockets that `bgp` does not read, while the gate waits. Whether the batch is full.
    fn peek(&mut self, batch: &mut holdfast_store::Batch, now: Instant) -> bool {
        let Ok(marks) = Marks::open(self.marks.words()) else { return false };
        if marks.held() == 0 {
            self.unread = None;
            return false;
        }
        let since = *self.unread.get_or_insert(now);
        if now.duration_since(since) < UNREAD {
            return false;
        }
        for table in &mut self.tables {
            for (id, from, octets) in table.peek(&marks) {
                let Some(copier) = table.copier() else { continue };
                if !copier.peeked(batch, id, from, &octets) {
                    return true;
                }
            }
        }
        false
    }

    /// What protects the sessions now.
    fn judge(&mut self, now: Instant) {
        let is_whole = self.writer.phase() == Phase::Whole;
        if is_whole {
            self.not_whole_since = None;
        } else {
            self.not_whole_since.get_or_insert(now);
        }
        let silent = self.silent(now);
        let limit = Duration::from_millis(self.configuration.store_timeout_milliseconds.into());
        let after = match self.protection {
            Protection::Fenced => Protection::Fenced,
            _ if self.writer.phase() == Phase::Fenced => Protection::Fenced,
            _ if is_whole && silent < SILENCE => Protection::Full,
            Protection::SteppingDown if self.have_ended(now) => Protection::SteppedDown,
            before @ (Protection::Beginning
            | Protection::Degraded
            | Protection::SteppingDown
            | Protection::SteppedDown) => before,
            Protection::Full | Protection::Waiting if silent < SILENCE => self.protection,
            Protection::Full | Protection::Waiting if silent < limit => Protection::Waiting,
            Protection::Full | Protection::Waiting => match self.configuration.on_loss() {
                OnLoss::StepDown => Protection::SteppingDown,
                OnLoss::Degrade | OnLoss::Unspecified => Protection::Degraded,
            },
        };
        if after == self.protection {
            return;
        }
        let (was, is) = (self.protection.word(), after.word());
        match after {
            Protection::Full => info!(event = "protection", was, is, "the store has every session"),
            Protection::Waiting => {
                warn!(event = "protection", was, is, "the store does not answer: sessions wait");
            }
            Protection::SteppingDown => {
                self.gaps += 1;
                (self.stepping_down_since, self.must_end_sessions) = (Some(now), true);
                error!(event = "protection", was, is, "the store is away: all sessions end");
            }
            Protection::SteppedDown => {
                error!(event = "protection", was, is, "no session begins before the store is back");
            }
            Protection::Degraded | Protection::Fenced | Protection::Beginning => {
                self.gaps += 1;
                error!(event = "protection", was, is, "sessions are not protected by the store");
            }
        }
        self.protection = after;
    }

    /// Whether no session is left of those that were to end, or they have had their time.
    fn have_ended(&self, now: Instant) -> bool {
        let is_over = |since| now.duration_since(since) >= GOODBYE;
        self.stepping_down_since.is_none_or(is_over) || self.tables.iter().all(Table::is_empty)
    }

    /// Whether `bgp` is to be told to end its sessions. True once for each loss of the store.
    pub(crate) fn must_end_sessions(&mut self) -> bool {
        std::mem::take(&mut self.must_end_sessions)
    }

    /// Frees slots of sessions that have ended while no replicator ran.
    fn sweep(&mut self) {
        let Ok(marks) = Marks::open(self.marks.words()) else { return };
        for slot in 0..marks.slots() as u32 {
            if let Some(view) = marks.view(slot)
                && !self.tables.iter().any(|table| table.has_slot(view.claim))
            {
                self.has_news |= marks.free(view.claim);
            }
        }
    }

    /// For how long the store has not confirmed what it was sent.
    pub(crate) fn silent(&self, now: Instant) -> Duration {
        let since = self.not_whole_since.or_else(|| self.writer.oldest());
        since.map_or(Duration::ZERO, |since| now.duration_since(since))
    }

    /// Tells the gate.
    fn publish(&mut self) {
        // Before all sockets are here nobody knows whose slots are left over.
        if self.is_complete
            && !self.is_swept
            && self.protection == Protection::Full
            && self.wanted().is_empty()
        {
            self.is_swept = true;
            self.sweep();
        }
        let Ok(marks) = Marks::open(self.marks.words()) else { return };
        let (state, may_begin) = (self.protection.state(), self.protection.may_begin());
        marks.set_lease(self.lease.filter(|_| may_begin).map_or(0, Lease::until));
        for table in &mut self.tables {
            self.has_news |= table.gate(&marks, state);
        }
    }

    /// Whether the gate is to be woken.
    pub(crate) fn must_ring(&mut self) -> bool {
        std::mem::take(&mut self.has_news) && self.marks().is_some_and(|marks| marks.must_ring(Side::Gate))
    }

    /// For how long there is nothing to do, unless somebody rings.
    pub(crate) fn pause(&mut self, now: Instant) -> Duration {
        const IDLE: Duration = Duration::from_millis(100);
        const HELD: Duration = Duration::from_millis(1);
        let retry = self.retry_at.filter(|_| matches!(self.way, Way::None));
        let retry = retry.map_or(IDLE, |at| at.saturating_duration_since(now).max(HELD));
        let held = self.marks().map_or(0, |marks| marks.held());
        if held > 0 && self.protection == Protection::Full { HELD } else { IDLE.min(retry) }
    }

    /// The process is about to sleep; whether there is nothing to do even now.
    pub(crate) fn begin_sleep(&mut self) {
        if let Some(marks) = self.marks() {
            marks.begin_sleep(Side::Replicator);
        }
    }

    pub(crate) fn end_sleep(&mut self) {
        if let Some(marks) = self.marks() {
            marks.end_sleep(Side::Replicator);
        }
    }

    /// Sessions that the store protects, and others.
    pub(crate) fn count(&mut self) -> (u64, u64) {
        let is_full = self.protection == Protection::Full;
        let Ok(marks) = Marks::open(self.marks.words()) else { return (0, 0) };
        let sessions = self.tables.iter().flat_map(|table| table.sessions(&marks));
        sessions.fold((0, 0), |(protected, other), session| match session.lacks {
            None if is_full => (protected + 1, other),
            None | Some(_) => (protected, other + 1),
        })
    }

    /// The memory of marks, for the gate and the keeper.
    ///
    /// # Errors
    /// There are no descriptors left.
    pub(crate) fn marks_descriptor(&self) -> std::io::Result<OwnedFd> {
        self.marks.descriptor().try_clone_to_owned()
    }

    /// Ports and VRFs of sessions, for the gate: the number of each VRF is that of its table.
    pub(crate) fn ports(&self) -> BTreeSet<u32> {
        let ports = self.configuration.tables.iter().flat_map(|table| table.ports.iter().copied());
        ports.chain([self.configuration.port]).filter(|port| *port != 0).collect()
    }

    pub(crate) fn vrfs(&self) -> BTreeMap<String, (u32, String)> {
        let tables = self.configuration.tables.iter().zip(1..);
        tables
            .filter(|(table, _)| !table.vrf.is_empty())
            .map(|(table, at)| (table.vrf.clone(), (number(&table.vrf, at), table.netns.clone())))
            .collect()
    }
}

//! What the process does: it follows the logs of `bgp`, writes the store, and says to the gate what may leave.
//!
//! ```text
//!  keeper ── log, sockets of bgp ──> Table (one for each table) ── batches ──> Writer ── Link ──> store
//!  gate   ── bell ──────────────────────┘    marks <── confirmed ───────────────┘
//! ```
//! Nothing tells the process that a log has changed: when there is something that the store lacks, a segment that says so waits
//! at the gate, and the gate rings. What waits for nothing is copied a little later.

mod restoring;
mod store;

use std::{
    collections::{BTreeMap, BTreeSet},
    hash::{BuildHasher, RandomState},
    net::Ipv4Addr,
    os::fd::OwnedFd,
    time::{Duration, Instant},
};

use holdfast_api::{
    replicator::v1::{Configuration, OnLoss},
    stored::v1 as stored,
};
use holdfast_gate::{BadMarks, Marks, Side, SlotState};
use holdfast_store::redis::Keys;
use holdfast_sys::{clock, memory::SharedMemory};
use holdfast_xrl::scoped;
use tracing::{error, info, warn};

pub(crate) use restoring::{Follows, NotNow, Owner};
use restoring::{Restoring, Standing};

use crate::{
    lease::{Has, Lease},
    link::Servers,
    protection::{Known, Protection},
    sharing::Sharing,
    table::Table,
    way::{Open, Way},
    writer::{Phase, Trouble, Writer},
};

/// Slots of marks: sessions of all tables together.
const SLOTS: usize = 4096;
/// How often a standby says that it waits, and configurations are compared.
const WAITING: Duration = Duration::from_secs(1);
/// For how long a standby may be configured differently before that is logged.
const TAKING: Duration = Duration::from_secs(5);
/// For how long sessions that are to end may say so to their peers.
const GOODBYE: Duration = Duration::from_secs(3);

/// All state of the process.
pub(crate) struct Engine {
    pub(crate) configuration: Configuration,
    servers: Servers,
    keys: Option<Keys>,
    open: Box<dyn Open>,
    pub(crate) tables: Vec<Table>,
    /// What the keeper has of `bgp`.
    kept: BTreeMap<String, u64>,
    pub(crate) writer: Writer,
    /// The configuration, as far as other routers have it, too.
    pub(crate) sharing: Sharing,
    way: Option<Box<dyn Way>>,
    files: Vec<OwnedFd>,
    pub(crate) lease: Option<Lease>,
    /// The network namespace of this router (SO_NETNS_COOKIE); 0: not known.
    pub(crate) namespace: u64,
    /// The tag of the lease that the process before has had.
    pub(crate) tag_before: Option<u64>,
    marks: SharedMemory,
    pub(crate) protection: Protection,
    /// Since when sessions end, as the store is away.
    stepping_down_since: Option<Instant>,
    /// `bgp` is to be told to end its sessions.
    must_end_sessions: bool,
    /// Why there is no lease was said.
    has_said_lease: bool,
    /// The epoch of the store was higher once.
    has_raised: bool,
    /// The tables that the store has had as a whole since it was begun.
    whole: BTreeSet<usize>,
    /// Since when the store has not had everything.
    not_whole_since: Option<Instant>,
    retry_at: Option<Instant>,
    retries: u32,
    probed_at: Option<Instant>,
    /// Since when the store is asked what it has, or claimed.
    asked_at: Option<Instant>,
    /// When what it has not confirmed was sent once more.
    sent_again_at: Option<Instant>,
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
    /// The gate has said that it stands everywhere.
    pub(crate) gate_stands: bool,
    /// Sessions that the gate waits for, since when, and how far they had been read then.
    unread: Option<Instant>,
    standing: Standing,
    restoring: Restoring,
    /// What `bgp` has stands in for sessions of another router.
    pub(crate) has_stand_ins: bool,
    /// When it was said that this standby waits, and when configurations were compared.
    said_waiting_at: Option<Instant>,
    /// What was said then.
    has_said: Has,
    compared_at: Option<Instant>,
    /// That they differ was said.
    has_said_other: bool,
    /// Since when it is configured differently.
    differs_since: Option<Instant>,
    /// When the reader of the store was further than ever before.
    heard_at: Option<Instant>,
    /// Answers that it has had since it began, and the most that it ever had.
    heard: (usize, usize),
    /// Sessions of another router that go on here, and those that could not.
    pub(crate) sessions_restored: (u32, u32),
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
    pub(crate) fn new(open: Box<dyn Open>, mut marks: SharedMemory) -> Self {
        // What was gated waits for us. Sessions of a log that we do not know yet are none of it.
        let was_gated = Marks::open(marks.words()).is_ok_and(|marks| {
            (0..marks.slots() as u32)
                .any(|slot| marks.view(slot).is_some_and(|view| view.state == SlotState::Gated))
        });
        Self {
            configuration: Configuration::default(),
            servers: Servers::default(),
            keys: None,
            open,
            tables: Vec::new(),
            kept: BTreeMap::new(),
            writer: Writer::new(0, random()),
            sharing: Sharing::default(),
            way: None,
            files: Vec::new(),
            lease: None,
            namespace: 0,
            tag_before: None,
            marks,
            protection: if was_gated { Protection::Waiting } else { Protection::Beginning },
            stepping_down_since: None,
            must_end_sessions: false,
            has_said_lease: false,
            has_raised: false,
            whole: BTreeSet::new(),
            not_whole_since: None,
            retry_at: None,
            retries: 0,
            probed_at: None,
            asked_at: None,
            sent_again_at: None,
            is_complete: false,
            is_swept: false,
            has_news: false,
            trouble: None,
            server: None,
            batches: 0,
            octets: 0,
            gaps: 0,
            missing: Vec::new(),
            gate_stands: false,
            unread: None,
            standing: Standing::default(),
            restoring: Restoring::Undecided,
            has_stand_ins: false,
            said_waiting_at: None,
            has_said: Has::default(),
            compared_at: None,
            has_said_other: false,
            differs_since: None,
            heard_at: None,
            heard: (0, 0),
            sessions_restored: (0, 0),
        }
    }

    /// Another configuration. What it leaves as it was goes on. Whether it has another store.
    pub(crate) fn configure(
        &mut self,
        configuration: Configuration,
        password: &[u8],
        files: Vec<OwnedFd>,
    ) -> bool {
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
            || configuration.directory != self.configuration.directory
            // What is there is found by it.
            || configuration.router_id != self.configuration.router_id;
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
        if is_other_store {
            self.open.forget();
        }
        if is_other_store || is_other_tables {
            self.way = None;
            self.writer.disconnected();
            // What another store has is not known, and other tables are another copy.
            self.writer.rewrite();
            self.retry_at = None;
        }
        is_other_store
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

    /// Whether the log of a VRF that is copied is this one.
    pub(crate) fn copies(&self, vrf: &str, log: &OwnedFd) -> bool {
        self.tables.iter().any(|table| table.vrf == vrf && table.has_log(log))
    }

    /// Descriptors that are not here yet. What stands in for sessions is not copied.
    pub(crate) fn wanted(&self) -> Vec<(String, u64)> {
        if self.has_stand_ins {
            return Vec::new();
        }
        self.tables.iter().flat_map(Table::wanted).collect()
    }

    /// A descriptor of the keeper.
    pub(crate) fn take(&mut self, key: &str, number: u64, descriptor: OwnedFd) {
        let Some(at) = self.tables.iter().position(|table| table.owns(key)) else { return };
        if self.has_stand_ins {
            return;
        }
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
        self.compare(now);
        if self.lease.is_none() {
            self.wait(now);
            // What the process before has renewed ends by itself.
            return false;
        }
        self.renew_lease();
        self.connect(now);
        let mut more = self.events(now);
        more |= self.restore(now);
        if self.writer.phase() == Phase::Copying {
            // Slots of the process before are known by then.
            self.publish();
        }
        more |= self.write(now);
        self.probe(now);
        self.lose_patience(now);
        self.judge(now);
        self.publish();
        more
    }

    fn take_lease(&mut self, now: Instant) {
        if self.lease.is_none() && !self.files.is_empty() && self.protection != Protection::Fenced {
            if matches!(Lease::is_given_up(&self.files[0], self.tag_before), Ok(true)) {
                self.begin_fenced();
                return;
            }
            let taken = match self.standing.may_take() {
                true => {
                    Lease::take(&self.files[0], self.tag_before, self.may_take_by_time(), clock::since_boot)
                }
                false => self.look(),
            };
            match taken {
                Ok(Some(lease)) => {
                    info!(event = "lease-taken", epoch = lease.epoch(), "the lease is ours");
                    lease.set_namespace(self.namespace);
                    (self.heard_at, self.heard) = (Some(now), (0, 0));
                    self.writer = Writer::new(lease.epoch(), random());
                    self.lease = Some(lease);
                    self.not_whole_since = Some(now);
                }
                Ok(None) if std::mem::replace(&mut self.has_said_lease, true) => {}
                Ok(None) if self.standing.is_standby => {
                    info!(event = "standby", "this router waits for the sessions of another one");
                }
                Ok(None) => {
                    warn!(event = "lease-elsewhere", "another router has the lease: no session begins here");
                }
                Err(_) if std::mem::replace(&mut self.has_said_lease, true) => {}
                Err(error) => error!(event = "lease-failed", "the file of the lease cannot be used: {error}"),
            }
        }
    }

    /// Whether it may take the lease of a router that may be alive. Of one that is stopped beside this one the gate has the queue:
    /// nothing could be made again, and all sessions would be lost, also those that go on when it does.
    fn may_take_by_time(&self) -> bool {
        !self.standing.is_standby || self.gate_stands || self.last_owner() != Some(Owner::Beside)
    }

    /// Says in the file of the lease that a standby waits here.
    fn wait(&mut self, now: Instant) {
        let has = Has { runs: self.sharing.runs(), refused: self.sharing.refused() };
        let is_time = self.said_waiting_at.is_none_or(|at| now.duration_since(at) >= WAITING);
        let is_news = std::mem::replace(&mut self.has_said, has) != has;
        let waits = self.standing.is_standby && self.protection != Protection::Fenced;
        if let Some(file) = self.files.first().filter(|_| waits && (is_time || is_news)) {
            self.said_waiting_at = Some(now);
            // Whoever cannot write there cannot take the lease: that is said then.
            let _ = Lease::waits(file, has, clock::since_boot());
        }
    }

    /// The configuration of who has the lease, as a number, and what the standby that waits has, by its file.
    pub(crate) fn configurations(&self) -> (Option<u64>, Option<Has>) {
        let known = self.files.first().map(|file| Lease::configurations(file, clock::since_boot));
        let (holder, standby) = known.and_then(Result::ok).unwrap_or_default();
        (Some(holder).filter(|holder| *holder != 0), standby)
    }

    /// Says once that the sessions of another configuration may come here, or go there.
    fn compare(&mut self, now: Instant) {
        let is_time = self.compared_at.is_none_or(|at| now.duration_since(at) >= WAITING);
        if !is_time || self.sharing.runs() == 0 {
            return;
        }
        self.compared_at = Some(now);
        let (holder, standby) = self.configurations();
        let other = match self.lease.is_some() {
            true => standby.map(|standby| standby.runs),
            false => holder.filter(|_| self.standing.is_standby && self.sharing.next().is_none()),
        };
        let differs = other.is_some_and(|other| other != self.sharing.runs());
        // Whoever takes a commit differs for a moment.
        self.differs_since = differs.then(|| self.differs_since.unwrap_or(now));
        let lasts = self.differs_since.is_some_and(|since| now.duration_since(since) >= TAKING);
        if lasts && !self.has_said_other {
            warn!(
                event = "standby-differs",
                "the standby and the router that has the sessions are configured differently: sessions may not go on"
            );
        }
        self.has_said_other = lasts;
    }

    /// What this router is to take of the one that has the sessions, or has had them. One that has them takes nothing.
    pub(crate) fn next_shared(&self) -> Option<&stored::Configuration> {
        let takes = self.standing.is_standby && self.protection != Protection::Fenced && !self.is_ready();
        self.sharing.next().filter(|_| takes)
    }

    /// This is to take effect here.
    ///
    /// # Errors
    /// [`NotNow::Bound`]: the router with the sessions says what does.
    pub(crate) fn offer(&mut self, configuration: stored::Configuration) -> Result<(), NotNow> {
        let waits = self.standing.is_standby && self.lease.is_none() && self.protection != Protection::Fenced;
        if waits && self.sharing.is_bound(configuration.number) {
            return Err(NotNow::Bound);
        }
        self.sharing.offer(configuration);
        Ok(())
    }

    /// Whether a standby may wait for the sessions of this router.
    fn has_sessions(&self) -> bool {
        self.lease.is_some() && self.protection != Protection::Fenced
    }

    /// Whether the generation that counts has what was offered. Who has no sessions writes nothing, and waits for nobody.
    pub(crate) fn has_stored(&self) -> bool {
        let is_whole = self.writer.phase() == Phase::Whole;
        !self.has_sessions() || is_whole && self.sharing.is_stored(self.writer.confirmed())
    }

    /// What the standby that waits makes of a configuration: `None`: it does not have it yet, and has not refused it.
    pub(crate) fn standby_takes(&self, number: u64, serial: u64) -> Option<bool> {
        match self.configurations().1.filter(|_| self.has_sessions()) {
            Some(has) if has.runs == number => Some(true),
            Some(has) if has.refused == serial => Some(false),
            Some(_) => None,
            None => Some(true),
        }
    }

    /// Looks whether another router has the lease, as a standby that has not seen one yet.
    fn look(&mut self) -> std::io::Result<Option<Lease>> {
        let file = self.files.first().ok_or(std::io::ErrorKind::NotFound)?;
        if Lease::is_held(file, clock::since_boot)? {
            self.standing.sees_another();
        }
        Ok(None)
    }

    /// A copy of the file of the lease, with its tag. Also when it is lost: the next process knows it by the tag.
    pub(crate) fn lease_file(&self) -> Option<(OwnedFd, u64)> {
        let lease = self.lease.as_ref()?;
        Some((self.files.first()?.try_clone().ok()?, lease.tag()))
    }

    /// No session has a slot any more.
    fn free_all(&mut self) {
        let Ok(marks) = Marks::open(self.marks.words()) else { return };
        self.tables.iter_mut().for_each(|table| table.free_slots(&marks));
        // Those of the process before, whose sessions nobody knows.
        for slot in 0..marks.slots() as u32 {
            if let Some(view) = marks.view(slot) {
                marks.free(view.claim);
            }
        }
        self.has_news = true;
    }

    /// What protects the sessions now.
    fn judge(&mut self, now: Instant) {
        let is_whole = self.writer.phase() == Phase::Whole;
        if is_whole {
            self.not_whole_since = None;
        } else {
            // What is on its way may wait for longer.
            let since = self.writer.oldest().unwrap_or(now);
            self.not_whole_since.get_or_insert(since);
        }
        let known = Known {
            is_whole,
            is_fenced: self.writer.phase() == Phase::Fenced,
            silent: self.silent(now),
            limit: self.store_timeout(),
            steps_down: self.configuration.on_loss() == OnLoss::StepDown,
            have_ended: self.have_ended(now),
        };
        let after = self.protection.after(known);
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
                if let Some(lease) = self.lease.as_mut().filter(|_| after == Protection::Fenced) {
                    lease.give_up();
                }
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

    /// How long sessions wait for a store that is away.
    fn store_timeout(&self) -> Duration {
        let configured = Duration::from_millis(self.configuration.store_timeout_milliseconds.into());
        // Peers may have asked for shorter hold times than are configured here.
        let agreed = self.tables.iter().filter_map(Table::shortest_hold_time).min();
        let agreed = agreed.filter(|_| !self.configuration.store_timeout_is_said);
        agreed.map_or(configured, |agreed| configured.min(agreed / 3))
    }

    /// The store has had a router of a higher epoch, and the lease is ours: its file does not know of that one any more, as after a
    /// restart of the machine. Whether this router goes on behind it.
    pub(super) fn raise_epoch(&mut self, there: u64) -> bool {
        // Once: of two routers without a common file of the lease, one has to give way.
        if self.lease.is_none() || std::mem::replace(&mut self.has_raised, true) {
            return false;
        }
        let Some(lease) = self.lease.as_mut() else { return false };
        if !lease.raise(there) {
            return false;
        }
        info!(event = "lease-taken", epoch = lease.epoch(), "the store has had later epochs than the file");
        self.writer = Writer::new(lease.epoch(), random());
        true
    }

    /// Classes of the processes that speak BGP, one for each table.
    pub(crate) fn speakers(&self) -> Vec<String> {
        let vrf = |table: &Table| Some(table.vrf.clone()).filter(|vrf| !vrf.is_empty());
        self.tables.iter().map(|table| scoped("bgp", vrf(table).as_deref())).collect()
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
        let (until, is_ready) = (self.lease_until(), self.is_ready());
        let Ok(marks) = Marks::open(self.marks.words()) else { return };
        marks.set_whole(is_ready);
        marks.set_fenced(self.protection == Protection::Fenced);
        let (state, may_begin) = (self.protection.state(), self.protection.may_begin());
        marks.set_lease(if may_begin { until } else { 0 });
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
        // A death of the router that has the lease is noticed so soon.
        const STANDBY: Duration = Duration::from_millis(10);
        if self.lease.is_none() {
            return STANDBY;
        }
        let retry = self.retry_at.filter(|_| self.way.is_none());
        let retry = retry.map_or(IDLE, |at| at.saturating_duration_since(now).max(HELD));
        let held = self.marks().map_or(0, |marks| marks.held());
        if held > 0 && self.protection == Protection::Full { HELD } else { IDLE.min(retry) }
    }

    /// The process is about to sleep.
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

#[cfg(test)]
mod tests;

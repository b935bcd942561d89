//! The speaker: where sessions, their protection, those who are told, and the pipeline meet.
//!
//! ```text
//! bytes, timers, calls ──> Sessions ──outputs──> drain ──┬──> Pipeline    routes
//!                             ^                          ├──> Protection  the replication log
//!                             └──────────────────────────┴──> Reporter    log, watchers, profiling points
//! ```
//!
//! [`Speaker`] owns all state, on one thread. What happens (bytes, timers, calls) enters through its methods, which tell the
//! session; what that asks for is carried out in [`Speaker::drain`], where alone the four parts meet. `Protection` and
//! `Reporter` look at peers; beyond that no part knows of another. What is to be done outside (dialling) leaves as
//! [`Effect`](crate::sessions::Effect)s. The tasks that feed it are in [`crate::tasks`].

mod bfd;
mod connecting;
mod limits;
mod operator;
mod peers;
mod poison;
mod receiving;
mod refresh;
mod resuming;
mod sending;

use std::{cell::RefCell, collections::VecDeque, rc::Rc, time::Instant};

use bytes::Bytes;
use holdfast_api::bgp::v1::WatchRequest;
use holdfast_bgp_pipeline::{Event, PeerIndex, Pipeline, TooManySessions};
use holdfast_bgp_session::{
    ConnId, Disposition, DownReason, Input, Level, Negotiated, Output, StopReason, Timer,
};
use holdfast_bgp_wire::HEADER_LEN;
use holdfast_damping::Damping;
use holdfast_process::progress::Finished;
use holdfast_types::Family;
use tracing::debug;

use crate::{
    config::Settings,
    connection::{Connection, Key, verdict},
    patience::Waiters,
    protection::Protection,
    reporter::Reporter,
    roster::Stopped,
    sessions::{Sessions, Stale, cost::Share},
    speaker::poison::Poison,
    watch::Watcher,
};

/// Octets that the pipeline hands over for one peer before they are written, with one system call.
pub(crate) const CHUNK: usize = 64 * 1024;
/// Chunks written to one peer before others have their turn.
const CHUNKS_PER_TURN: usize = 8;
/// Peers whose timers run before others have their turn: 20 us each, with the KEEPALIVE that is written.
pub(crate) const MOST_EXPIRED: usize = 128;
/// Peers that are written to before others have their turn.
const WRITES_PER_TURN: usize = 32;

/// What a reader does next.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Read {
    /// There may be more at once.
    More,
    /// Wait for the socket.
    Wait,
    /// The log has no room: wait until it has.
    Full,
    /// The connection is over.
    Gone,
}

/// What a writer does next.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Write {
    /// Wait to be woken.
    Idle,
    /// Wait for the socket.
    Blocked,
    /// Let others have their turn, then go on.
    Yield,
    /// All is sent: close in order.
    Finish,
    /// The connection is over.
    Gone,
}

/// The whole state of the process.
pub(crate) struct Speaker {
    pub(crate) settings: Settings,
    pub(crate) pipeline: Pipeline,
    pub(crate) sessions: Sessions,
    pub(crate) protection: Protection,
    pub(crate) reporter: Reporter,
    /// The stage that damps, if one is plugged into the pipeline.
    pub(crate) damping: Option<Rc<RefCell<Damping>>>,
    next_hops: VecDeque<Event>,
    /// Connections with messages of their sessions' own.
    urgent: Vec<Key>,
    poison: Option<Poison>,
    /// Counts octets of peers that are taken in, and what readers pass.
    finished: Finished,
    waiters: Rc<Waiters>,
}

impl Speaker {
    pub(crate) fn new(settings: Settings, pipeline: Pipeline, stopped: Stopped, now: Instant) -> Self {
        Self {
            settings,
            pipeline,
            sessions: Sessions::new(stopped, now),
            protection: Protection::default(),
            reporter: Reporter::new(),
            damping: None,
            next_hops: VecDeque::new(),
            urgent: Vec::new(),
            poison: Poison::from_environment(),
            finished: Finished::default(),
            waiters: Rc::default(),
        }
    }

    /// Counts finished work there, and says there how long peers wait.
    pub(crate) fn tell_of_progress(&mut self, finished: Finished, waiters: &Rc<Waiters>) {
        (self.finished, self.waiters) = (finished, Rc::clone(waiters));
    }

    /// Something happened to a peer: tells its session, does what that asks for.
    pub(crate) fn input(&mut self, index: PeerIndex, input: Input<'_>, now: Instant) -> Disposition {
        let Some(slot) = self.sessions.slot_mut(index) else { return Disposition::Done };
        let disposition = slot.session.handle(input, now);
        self.drain(index, now);
        disposition
    }

    /// Carries out what a session asks for.
    fn drain(&mut self, index: PeerIndex, now: Instant) {
        while let Some(slot) = self.sessions.slot_mut(index)
            && let Some(output) = slot.session.poll_output()
        {
            match output {
                Output::Connect(id) => self.sessions.dial(index, id),
                Output::Close(id) => self.sessions.close((index, id)),
                Output::Send(id, bytes) => self.send((index, id), bytes),
                Output::Established(id, negotiated) => {
                    self.established(index, id, &negotiated, now);
                    self.reporter.watch_up(&self.sessions, &self.settings, index);
                }
                Output::Down { retained, reason } => self.down(index, &retained, &reason, now),
                Output::MarkStale(family) => self.mark_stale(index, family),
                Output::Sweep(family) => self.sweep(index, family),
                Output::LongLived(family) => self.pipeline.keep_long(index, family),
                Output::Forget(family) => self.pipeline.forget_stale(index, family),
                Output::Log(event) => self.reporter.session(slot, &event, now),
            }
        }
        if !self.reporter.watchers.is_empty() {
            self.reporter.watch_state(&mut self.sessions, &self.settings, index);
        }
        self.sessions.note_presence(index);
        self.follow_bfd(index, now);
        self.sessions.arm(index);
        self.end_dynamic(index);
    }

    fn send(&mut self, key: Key, bytes: Vec<u8>) {
        let Some((slot, connection)) = self.sessions.both_mut(key) else { return };
        if is_open(&bytes) {
            connection.sent_open.clone_from(&bytes);
        }
        connection.verdict = verdict(&bytes).or(connection.verdict);
        let was_held = connection.held.is_some();
        connection.queue(Bytes::from(bytes), None);
        connection.count(&slot.session.counters().sent);
        connection.wake.notify_one();
        if was_held && connection.held.is_none() {
            self.has_left_log(key.0);
        }
        if self.urgent.last() != Some(&key) {
            self.urgent.push(key);
        }
    }

    fn established(&mut self, index: PeerIndex, id: ConnId, negotiated: &Negotiated, now: Instant) {
        let key = (index, id);
        if let Some(connection) = self.sessions.connection_mut(key) {
            connection.waits = self.waiters.add(negotiated.hold_time);
        }
        if let Some((slot, connection)) = self.sessions.both_mut(key)
            && self.protection.protect(key, slot, connection, now)
        {
            self.sessions.keep(key);
        }
        let as_sets = self.settings.as_sets;
        let Some(slot) = self.sessions.slot_mut(index) else { return };
        (slot.last_update, slot.as_sets) = (Some(now), as_sets);
        slot.limited = false;
        slot.failed.clear();
        slot.unanswered = false;
        let Some(facts) = self.sessions.facts(key, negotiated, &self.settings) else { return };
        if let Some(slot) = self.sessions.slot(index) {
            self.reporter.next_hops(slot, &facts, now);
            self.reporter.bgpsec(slot, negotiated, now);
        }
        // The peer of a range is known only now.
        self.configure_pipeline(index, Some(negotiated.asn));
        if let Err(error) = self.pipeline.peer_up(index, facts) {
            return self.out_of_sessions(index, &error, now);
        }
        // With the path identifiers of its routes: before any goes out.
        self.update_record(index, now);
        self.send_filters(index);
    }

    fn out_of_sessions(&mut self, index: PeerIndex, error: &TooManySessions, now: Instant) {
        if let Some(slot) = self.sessions.slot(index) {
            self.reporter.out_of_sessions(slot, error, now);
        }
        self.input(index, Input::Stop(StopReason::OutOfResources), now);
    }

    fn down(&mut self, index: PeerIndex, retained: &[Family], reason: &DownReason, now: Instant) {
        if let Some(slot) = self.sessions.slot_mut(index) {
            slot.end_of_rib.clear();
            slot.announced.clear();
            slot.policies.clear();
            slot.limits.forget();
            slot.octets = Level::Fine;
            (slot.cost_level, slot.cost.waited_for) = (Level::Fine, Share::default());
            slot.takeover = None;
            if !retained.is_empty() {
                self.reporter.routes_kept(slot, now);
            }
        }
        self.pipeline.peer_away(index, retained);
        self.reporter.watch_down(index, reason);
    }

    // The pipeline.

    /// What the pipeline has to say since last time.
    pub(crate) fn drain_pipeline(&mut self, now: Instant) {
        while let Some(event) = self.pipeline.poll_event() {
            match event {
                Event::RegisterNextHop(_) | Event::UnregisterNextHop(_) => self.next_hops.push_back(event),
                Event::EndOfRib { peer, family } => {
                    if let Some(slot) = self.sessions.slot_mut(peer) {
                        slot.end_of_rib.insert(family);
                    }
                    self.input(peer, Input::EndOfRib(family), now);
                }
                Event::Announced { peer, family } => {
                    if let Some(slot) = self.sessions.slot_mut(peer) {
                        slot.announced.insert(family);
                    }
                }
                Event::PolicyApplied { peer, direction } => {
                    let slot = self.sessions.slot_mut(peer);
                    if let Some(change) = slot.and_then(|slot| slot.policies.get_mut(&direction)) {
                        // Another change of what the peer is told may follow: its filter.
                        change.ended.get_or_insert(now);
                    }
                    self.check_limits(peer, now);
                }
                Event::BadAnswer { stage, slot } => self.reporter.bad_answer(stage, slot, now),
                Event::RouteTooLong { peer, prefix } => {
                    if let Some(slot) = self.sessions.slot(peer) {
                        self.reporter.route_too_long(slot, prefix);
                    }
                }
                Event::TooManyBadSignatures { peer } => {
                    if let Some(slot) = self.sessions.slot(peer) {
                        self.reporter.bad_signatures(slot);
                    }
                }
                Event::TooSlow { peer } => {
                    if let Some(slot) = self.sessions.slot(peer) {
                        self.reporter.too_slow(slot, now);
                    }
                    self.input(peer, Input::Stop(StopReason::OutOfResources), now);
                }
            }
        }
        while let Some(violation) = self.pipeline.poll_violation() {
            self.reporter.violation(&violation, now);
        }
        self.sessions.look_at_restart(&self.settings, now);
    }

    /// The pipeline is about to change.
    pub(crate) fn watch_changes(&mut self) {
        self.reporter.changing(&self.pipeline);
    }

    /// It has changed.
    pub(crate) fn note_changes(&mut self) {
        self.reporter.changed(&mut self.pipeline);
    }

    /// Begins to watch: what is up already comes first.
    pub(crate) fn watch(&mut self, wants: WatchRequest) -> Option<Rc<Watcher>> {
        self.reporter.watch(&mut self.sessions, &self.settings, wants)
    }

    /// The next change of interest in a next hop.
    pub(crate) fn poll_next_hop(&mut self) -> Option<Event> {
        self.next_hops.pop_front()
    }

    /// Whether [`Self::poll_next_hop`] has something.
    pub(crate) fn has_next_hop_events(&self) -> bool {
        !self.next_hops.is_empty()
    }

    /// Whether there is no route.
    pub(crate) fn is_empty(&self) -> bool {
        Family::ALL.into_iter().all(|family| self.pipeline.table_size(family) == (0, 0))
    }

    /// Which stale routes the rib is to keep; `None` while what peers have sent is still being replayed.
    pub(crate) fn stale(&mut self, now: Instant) -> Option<Stale> {
        self.sessions.stale(&self.settings, now)
    }

    // Timers.

    /// Runs timers that are due, of as many peers as one turn is for.
    pub(crate) fn expire(&mut self, now: Instant) {
        for _ in 0..MOST_EXPIRED {
            let due = self.sessions.first_deadline().filter(|(at, _)| *at <= now);
            let Some((at, index)) = due else { return };
            if let Some(slot) = self.sessions.slot_mut(index).filter(|slot| slot.is_replaying()) {
                slot.session.restart_hold(now);
            }
            self.excuse(index, now);
            self.input(index, Input::Timeout, now);
            // A session that leaves its deadline in the past would otherwise hold everybody up.
            if self.sessions.disarm((at, index)) {
                debug!(peer = index.0, "timer did not move");
            }
        }
    }

    /// A peer whose hold timer is over, but whose octets wait here to be taken in, was not silent: we were late.
    fn excuse(&mut self, index: PeerIndex, now: Instant) {
        let Some(slot) = self.sessions.slot_mut(index) else { return };
        let Some(at) = slot.session.deadline(Timer::Hold).filter(|at| *at <= now) else { return };
        let Some((id, _)) = slot.session.connection() else { return };
        let waits = |connection: &Connection| connection.is_behind || connection.stream.has_unread();
        if let Some((slot, connection)) = self.sessions.both_mut((index, id))
            && waits(connection)
        {
            slot.session.restart_hold(now);
            self.reporter.late(slot, at, now);
        }
    }
}

/// Whether a message is an OPEN.
fn is_open(message: &[u8]) -> bool {
    message.get(HEADER_LEN - 1) == Some(&1)
}

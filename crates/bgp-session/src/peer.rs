//! The peer: both its connections, and what happens between attempts.

use std::time::{Duration, Instant};

use holdfast_bgp_wire::{Capability, CeaseSubcode, MAX_LEN, MessageType, Notification};
use holdfast_config::schema::SessionRules;
use holdfast_types::Family;

use crate::{
    Bfd, ConnId, Counters, Disposition, History, Input, Negotiated, Output, PeerConfig, Role, SessionEvent,
    State, Timer,
    connection::{Connection, Context, Event, Phase, Step},
    jitter::Jitter,
    negotiation::Offer,
    outbox::Outbox,
    refresh::Refreshes,
    retention::{Expired, Retention},
    timer::TimerTable,
};

mod bfd;
mod collision;
mod ending;
mod freeze;

/// The least time between two attempts to connect, before jitter.
const MIN_CONNECT_RETRY: Duration = Duration::from_secs(1);

/// Whether the peer is wanted now.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum Activity {
    /// Idle until the operator starts it.
    Stopped,
    /// Idle until the IdleHoldTimer expires (DampPeerOscillations).
    Held,
    /// Any other state.
    Running,
}

/// The session of one configured peer. See the crate for how it is driven.
///
/// There are at most two connections: the one we dialled and one of the peer's, or, beside an
/// Established one, a newer one of the peer's.
#[derive(Debug)]
pub struct Peer {
    config: PeerConfig,
    activity: Activity,
    connections: [Option<Connection>; 2],
    /// IdleHold and ConnectRetry.
    timers: TimerTable,
    jitter: Jitter,
    next_dialled: ConnId,
    /// ConnectRetryCounter: failures since the last start or good session.
    failures: u32,
    /// The peer refused capabilities: the next OPEN goes without.
    plain: bool,
    history: History,
    retention: Retention,
    refreshes: Refreshes,
    /// What BFD has said last.
    bfd: Bfd,
    out: Outbox,
}

impl Peer {
    /// A peer in Idle; [`Input::Start`] sets it going. `seed` feeds the jitter of its timers: give each
    /// peer another one.
    pub fn new(config: PeerConfig, seed: u64, now: Instant) -> Self {
        Self {
            plain: !config.capabilities,
            config,
            activity: Activity::Stopped,
            connections: [None, None],
            timers: TimerTable::default(),
            jitter: Jitter::new(seed),
            next_dialled: ConnId::FIRST_DIALLED,
            failures: 0,
            history: History::new(now),
            retention: Retention::default(),
            refreshes: Refreshes::default(),
            bfd: Bfd::default(),
            out: Outbox::default(),
        }
    }

    /// Takes one input. Afterwards read [`Self::poll_output`] until it is empty: before the next message
    /// is framed, as [`Self::max_received`] and the session may have changed.
    pub fn handle(&mut self, input: Input<'_>, now: Instant) -> Disposition {
        let disposition = self.dispatch(input, now);
        self.history.enter(self.current_state(), now);
        disposition
    }

    /// The next thing to do.
    pub fn poll_output(&mut self) -> Option<Output> {
        self.out.pop()
    }

    /// When [`Input::Timeout`] is due; `None`: never.
    pub fn poll_timeout(&self) -> Option<Instant> {
        let connections = self.connections.iter().flatten().filter_map(|c| c.link.timers.next());
        let stale = self.retention.deadline().into_iter().chain(self.refreshes.deadline());
        self.timers.next().into_iter().chain(connections).chain(stale).min()
    }

    /// Octets of the longest message to accept on a connection: what to frame with.
    pub fn max_received(&self, id: ConnId) -> usize {
        let connection = self.connections.iter().flatten().find(|c| c.link.id == id);
        connection.map_or(MAX_LEN, |c| c.max_received(&self.config))
    }

    /// Counts messages that the driver sent on the session (UPDATE, ROUTE-REFRESH).
    pub fn count_sent(&mut self, kind: MessageType, messages: u64) {
        self.out.counters.sent.add(kind, messages);
    }

    /// The state.
    pub fn state(&self) -> State {
        self.history.state
    }

    /// What is configured.
    pub fn config(&self) -> &PeerConfig {
        &self.config
    }

    /// Takes the rules of another configuration, of which no OPEN says anything else; a session that is up stays. Whether
    /// we dial counts at once, the time between attempts from the next one on, that for stale routes when the peer restarts
    /// next, and whether it has to say its role with its next OPEN.
    pub fn change_rules(&mut self, rules: SessionRules, now: Instant) {
        self.config.rules = rules;
        let is_alone = self.connections.iter().all(Option::is_none);
        if self.config.rules.passive && is_alone {
            self.timers.stop(Timer::ConnectRetry);
        } else if self.deadline(Timer::ConnectRetry).is_none() {
            self.heard(now);
            self.history.enter(self.current_state(), now);
        }
    }

    /// The capabilities that our next OPEN offers.
    pub fn offered(&self) -> Vec<Capability> {
        Offer::new(&self.config, self.plain).open().capabilities
    }

    /// What was agreed, while Established.
    pub fn negotiated(&self) -> Option<&Negotiated> {
        self.leading()?.established().map(|session| &session.negotiated)
    }

    /// Since when the session is Established.
    pub fn established_since(&self) -> Option<Instant> {
        self.leading()?.established().map(|session| session.since)
    }

    /// The connection that is furthest, and who dialled it.
    pub fn connection(&self) -> Option<(ConnId, Role)> {
        self.leading().map(|connection| (connection.link.id, connection.role))
    }

    /// Families of which routes of an earlier session stay (RFC 4724).
    pub fn retained(&self) -> impl Iterator<Item = Family> {
        self.retention.families()
    }

    /// Families that the peer announces again, from BoRR to EoRR (RFC 7313).
    pub fn refreshing(&self) -> impl Iterator<Item = Family> {
        self.refreshes.running()
    }

    /// We have restarted, and this is over (RFC 4724 section 4.1): the next OPEN does not say so any more.
    pub fn end_restarting(&mut self) {
        self.config.restarting = false;
    }

    /// What happened so far.
    pub fn history(&self) -> &History {
        &self.history
    }

    /// Messages so far.
    pub fn counters(&self) -> &Counters {
        &self.out.counters
    }

    /// So many failures have gone before, which another one has counted for this peer.
    pub fn count_failures(&mut self, failures: u32) {
        self.failures = self.failures.saturating_add(failures);
    }

    /// ConnectRetryCounter: failures since the last start or good session.
    pub fn failures(&self) -> u32 {
        self.failures
    }

    /// When a timer expires, if it runs; of the connection that is furthest where each has its own.
    pub fn deadline(&self, timer: Timer) -> Option<Instant> {
        let of_connection = || self.leading()?.link.timers.deadline(timer);
        self.timers.deadline(timer).or_else(of_connection)
    }

    fn dispatch(&mut self, input: Input<'_>, now: Instant) -> Disposition {
        match input {
            Input::Start => self.start(now),
            Input::Stop(reason) => self.stop(reason, now),
            Input::Heard => self.heard(now),
            Input::Accepted(id) => self.accept(id, now),
            Input::Timeout => self.expire(now),
            Input::BeginRefresh(family) => self.begin_refresh(family, now),
            Input::EndRefresh(family) => {
                // Without a beginning it may be ignored.
                if self.refreshes.end(family) {
                    self.out.push(Output::Sweep(family));
                }
            }
            Input::EndOfRib(family) => {
                self.refreshes.end_of_rib(family);
                if self.retention.end_of_rib(family) {
                    self.out.push(Output::Forget(family));
                }
            }
            Input::Connected(id) => return self.event(id, Event::Connected, now),
            Input::ConnectFailed(id, error) => return self.event(id, Event::ConnectFailed(error), now),
            Input::Closed(id, error) => return self.event(id, Event::Lost(error), now),
            Input::Message(id, kind, body) => {
                if self.slot_of(id).is_some() {
                    self.out.counters.received.add(kind, 1);
                }
                return self.event(id, Event::Message(kind, body), now);
            }
            Input::Replayed(id, kind, body) => return self.event(id, Event::Message(kind, body), now),
            Input::FramingError(id, error) => return self.event(id, Event::FramingError(error), now),
            Input::UpdateRefused(id, error) => return self.event(id, Event::UpdateRefused(error), now),
            Input::LinkDown => self.forget_retained(),
            Input::Slept(time) => self.slept(time, now),
            Input::Bfd(bfd) => self.bfd_says(bfd, now),
            Input::Sent(id) => return self.event(id, Event::Sent, now),
        }
        Disposition::Done
    }

    fn slept(&mut self, time: Duration, now: Instant) {
        self.timers.bring_forward(time, now);
        let connections = self.connections.iter_mut().flatten();
        connections.for_each(|connection| connection.link.timers.bring_forward(time, now));
        self.retention.bring_forward(time, now);
        self.refreshes.bring_forward(time, now);
        self.expire(now);
    }

    /// RFC 7313 section 4.
    fn begin_refresh(&mut self, family: Family, now: Instant) {
        let Some(agreed) = self.negotiated() else { return };
        if !agreed.enhanced_refresh || !agreed.families.contains(&family) {
            return;
        }
        if agreed.graceful_restart.is_some() && !self.refreshes.has_ended(family) {
            return self.out.log(SessionEvent::RefreshTooEarly(family));
        }
        self.refreshes.begin(family, self.config.rules.stale_time, now);
        self.out.push(Output::MarkStale(family));
    }

    fn event(&mut self, id: ConnId, event: Event<'_>, now: Instant) -> Disposition {
        let Some(slot) = self.slot_of(id) else { return Disposition::Done };
        self.step(slot, event, now)
    }

    fn step(&mut self, slot: usize, event: Event<'_>, now: Instant) -> Disposition {
        let (connections, mut cx) = self.parts(now);
        let Some(connection) = &mut connections[slot] else { return Disposition::Done };
        match connection.handle(event, &mut cx) {
            Step::Stay => {}
            Step::Deliver => return Disposition::Deliver,
            Step::OpenSent => self.timers.stop(Timer::ConnectRetry),
            Step::Opened(negotiated) => self.opened(slot, negotiated, now),
            Step::Confirmed(negotiated) => self.establish(slot, negotiated, now),
            Step::ConnectFailed(error) => self.dial_failed(slot, SessionEvent::ConnectFailed(error), now),
            Step::End(reason) => self.end(slot, reason, now),
        }
        Disposition::Done
    }

    /// Event 1 or 4; ignored outside Idle.
    fn start(&mut self, now: Instant) {
        if self.activity != Activity::Running {
            self.failures = 0;
            self.run(now);
        }
    }

    /// Idle to Connect, or to Active if passive.
    fn run(&mut self, now: Instant) {
        self.activity = Activity::Running;
        self.timers.stop(Timer::IdleHold);
        self.dial(now);
    }

    /// In Active, as if ConnectRetryTimer had expired.
    fn heard(&mut self, now: Instant) {
        if self.activity == Activity::Running && self.connections.iter().all(Option::is_none) {
            self.dial(now);
        }
    }

    fn dial(&mut self, now: Instant) {
        self.restart_connect_retry(now);
        let free = self.connections.iter().position(Option::is_none);
        let Some(slot) = free.filter(|_| !self.config.rules.passive) else { return };
        let (id, plain) = (self.next_dialled, self.plain);
        self.next_dialled = ConnId(id.0.wrapping_add(1)).max(ConnId::FIRST_DIALLED);
        self.connections[slot] = Some(Connection::dial(id, plain, &mut self.parts(now).1));
    }

    /// Until the next attempt, which also bounds the present one. A passive peer makes none.
    fn restart_connect_retry(&mut self, now: Instant) {
        if !self.config.rules.passive {
            let after = self.jitter.apply(self.config.rules.connect_retry.max(MIN_CONNECT_RETRY));
            self.timers.start(Timer::ConnectRetry, now, after);
        }
    }

    /// Gives up dialling; whether there was any.
    fn drop_dial(&mut self) -> bool {
        let is_dialling =
            |c: &Option<Connection>| matches!(c, Some(Connection { phase: Phase::Connect, .. }));
        let Some(slot) = self.connections.iter().position(is_dialling) else { return false };
        if let Some(dial) = self.connections[slot].take() {
            self.out.push(Output::Close(dial.link.id));
        }
        true
    }

    /// Event 18 in Connect. We go to Active, where RFC 4271 goes to Idle: the peer may still connect.
    fn dial_failed(&mut self, slot: usize, event: SessionEvent, now: Instant) {
        self.connections[slot] = None;
        self.failed(event, now);
    }

    /// An attempt has failed: kept for the operator, as the log may not show it.
    fn failed(&mut self, event: SessionEvent, now: Instant) {
        self.history.last_failed = Some((now, event.clone()));
        self.out.log(event);
    }

    /// Event 17.
    fn accept(&mut self, id: ConnId, now: Instant) {
        if self.slot_of(id).is_some() || id.is_dialled() {
            return;
        }
        if self.activity != Activity::Running {
            return self.refuse(id, CeaseSubcode::ConnectionRejected);
        }
        self.drop_superseded(now);
        let Some(slot) = self.connections.iter().position(Option::is_none) else {
            return self.refuse(id, CeaseSubcode::ConnectionCollisionResolution);
        };
        self.timers.stop(Timer::ConnectRetry);
        let plain = self.plain;
        self.connections[slot] = Some(Connection::accept(id, plain, &mut self.parts(now).1));
    }

    /// A connection that is not taken, and why (RFC 4486 section 4): the peer need not wait for our OPEN.
    fn refuse(&mut self, id: ConnId, why: CeaseSubcode) {
        self.out.send(id, MessageType::Notification, Notification::cease(why).encode());
        self.out.push(Output::Close(id));
        self.out.log(SessionEvent::Refused(why));
    }

    fn expire(&mut self, now: Instant) {
        while let Some(timer) = self.timers.take_due(now) {
            match timer {
                Timer::IdleHold => self.run(now),
                Timer::ConnectRetry => self.dial_again(now),
                Timer::Hold | Timer::Keepalive | Timer::SendHold | Timer::BfdHold => {}
            }
        }
        for (family, expired) in self.retention.expire(now) {
            self.out.push(match expired {
                Expired::LongLived => Output::LongLived(family),
                Expired::Over => Output::Forget(family),
            });
        }
        for family in self.refreshes.expire(now) {
            self.out.log(SessionEvent::RefreshTooLong(family));
            self.out.push(Output::Sweep(family));
        }
        for slot in 0..self.connections.len() {
            while let Some(timer) = self.take_due(slot, now) {
                self.step(slot, Event::Expired(timer), now);
            }
        }
    }

    /// Event 9. ConnectRetry runs only while no connection is open.
    fn dial_again(&mut self, now: Instant) {
        if self.drop_dial() {
            self.failed(SessionEvent::ConnectTimedOut, now);
        }
        self.dial(now);
    }

    fn take_due(&mut self, slot: usize, now: Instant) -> Option<Timer> {
        self.connections[slot].as_mut()?.link.timers.take_due(now)
    }

    fn current_state(&self) -> State {
        match self.activity {
            Activity::Stopped | Activity::Held => State::Idle,
            Activity::Running => self.leading().map_or(State::Active, Connection::state),
        }
    }

    /// The connection that is furthest.
    fn leading(&self) -> Option<&Connection> {
        self.connections.iter().flatten().max_by_key(|connection| connection.state())
    }

    fn has_open_connection(&self) -> bool {
        self.connections.iter().flatten().any(|connection| connection.state() > State::Active)
    }

    fn slot_of(&self, id: ConnId) -> Option<usize> {
        self.connections.iter().position(|c| c.as_ref().is_some_and(|c| c.link.id == id))
    }

    fn parts(&mut self, now: Instant) -> (&mut [Option<Connection>; 2], Context<'_>) {
        let cx = Context { config: &self.config, jitter: &mut self.jitter, out: &mut self.out, now };
        (&mut self.connections, cx)
    }
}

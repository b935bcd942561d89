//! One session: its state machine (RFC 5880 section 6.2), and when it sends and expires.

use std::{
    rc::Rc,
    time::{Duration, Instant},
};

use holdfast_bfd_wire::{Diagnostic, Flags, Octets, Packet, Received, State};

use crate::{
    Path, Profile,
    authentication::Sequence,
    budget::Budget,
    profile::micros,
    random::{Jitter, Random},
    timing::{Poll, SLOW, Timing},
};

/// Percent of its interval by which a periodic packet may be early.
const EARLY: u32 = 5;

/// What has come and gone in a session.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct Counters {
    /// Packets that were received and not discarded.
    pub received: u64,
    /// Packets that were sent.
    pub sent: u64,
    /// Packets of this session with a wrong authentication.
    pub unauthentic: u64,
    /// Packets of this session that came from too far away, or by another interface.
    pub misdirected: u64,
    /// How often it became Up.
    pub ups: u64,
    /// How often it was Up no more.
    pub downs: u64,
}

/// What the neighbour has said last.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct Remote {
    /// bfd.RemoteDiscr; 0: not known.
    pub(crate) discriminator: u32,
    /// bfd.RemoteSessionState.
    pub(crate) state: State,
    pub(crate) diagnostic: Diagnostic,
    /// bfd.RemoteDemandMode.
    pub(crate) demand: bool,
    pub(crate) control_plane_independent: bool,
    pub(crate) detect_multiplier: u8,
    pub(crate) desired_min_tx: u32,
    /// bfd.RemoteMinRxInterval.
    pub(crate) required_min_rx: u32,
    pub(crate) required_min_echo_rx: u32,
}

/// As section 6.8.1 has them at first.
impl Default for Remote {
    fn default() -> Self {
        Self {
            discriminator: 0,
            state: State::Down,
            diagnostic: Diagnostic::NONE,
            demand: false,
            control_plane_independent: false,
            detect_multiplier: 0,
            desired_min_tx: 0,
            required_min_rx: 1,
            required_min_echo_rx: 0,
        }
    }
}

/// A session with a neighbour.
#[derive(Debug)]
pub struct Session {
    pub(crate) path: Path,
    pub(crate) profile: Rc<Profile>,
    /// bfd.LocalDiscr.
    pub(crate) discriminator: u32,
    pub(crate) state: State,
    pub(crate) diagnostic: Diagnostic,
    /// It was Up, and went Down for another reason than an operator's wish.
    pub(crate) has_failed: bool,
    pub(crate) remote: Remote,
    pub(crate) timing: Timing,
    pub(crate) sequence: Sequence,
    pub(crate) since: Instant,
    pub(crate) last_received: Option<Instant>,
    last_sent: Option<Instant>,
    /// When the next periodic packet is due; `None`: none is.
    next_periodic: Option<Instant>,
    /// The part of the interval that passes until then.
    jitter: Jitter,
    /// Nobody knows the neighbour's sequence number any more then (bfd.AuthSeqKnown).
    sequence_known_until: Option<Instant>,
    /// A packet says something new, or is due.
    pub(crate) is_due: bool,
    /// The neighbour has asked for an answer with F.
    pub(crate) is_final_due: bool,
    /// The neighbour has been sent a packet since the session was Up.
    has_said_down: bool,
    /// For packets besides the periodic ones.
    budget: Budget,
    /// It is held down until the neighbour has been told so.
    restarts: bool,
    /// It ends then.
    pub(crate) ends: Option<Instant>,
    pub(crate) counters: Counters,
}

impl Session {
    pub(crate) fn new(
        now: Instant,
        path: Path,
        profile: Rc<Profile>,
        discriminator: u32,
        sequence: u32,
    ) -> Self {
        let timing =
            Timing::new(micros(profile.transmit_interval).max(SLOW), micros(profile.receive_interval));
        let mut session = Self {
            path,
            profile,
            discriminator,
            state: State::Down,
            diagnostic: Diagnostic::NONE,
            has_failed: false,
            remote: Remote::default(),
            timing,
            sequence: Sequence { next: sequence, received: None },
            since: now,
            last_received: None,
            last_sent: None,
            next_periodic: Some(now),
            jitter: Jitter::NONE,
            sequence_known_until: None,
            is_due: true,
            is_final_due: false,
            has_said_down: false,
            budget: Budget::new(now),
            restarts: false,
            ends: None,
            counters: Counters::default(),
        };
        session.is_due = session.sends();
        session
    }

    /// One that was another process's. Packets of the neighbour that came meanwhile may have been lost: the detection time
    /// begins anew, and what it waits for is sent at once.
    pub(crate) fn resume(&mut self, now: Instant) {
        self.last_received = (self.remote.discriminator != 0).then_some(now);
        self.sequence_known_until = Some(now + 2 * self.detection_time());
        (self.since, self.next_periodic, self.is_due) = (now, Some(now), self.sends());
    }

    /// Between which places it is.
    pub fn path(&self) -> Path {
        self.path
    }

    /// What is configured for it.
    pub fn profile(&self) -> &Rc<Profile> {
        &self.profile
    }

    /// bfd.SessionState.
    pub fn state(&self) -> State {
        self.state
    }

    /// bfd.RemoteSessionState.
    pub fn remote_state(&self) -> State {
        self.remote.state
    }

    /// Whether it was Up, and has failed since: packets do not arrive. Not so if an operator of either end has ended it
    /// (RFC 5882 section 3.2).
    pub fn has_failed(&self) -> bool {
        self.has_failed
    }

    /// bfd.LocalDiag.
    pub fn diagnostic(&self) -> Diagnostic {
        self.diagnostic
    }

    /// The neighbour's diagnostic.
    pub fn remote_diagnostic(&self) -> Diagnostic {
        self.remote.diagnostic
    }

    /// bfd.LocalDiscr.
    pub fn discriminator(&self) -> u32 {
        self.discriminator
    }

    /// bfd.RemoteDiscr; 0: not known.
    pub fn remote_discriminator(&self) -> u32 {
        self.remote.discriminator
    }

    /// The C bit of the neighbour.
    pub fn is_remote_control_plane_independent(&self) -> bool {
        self.remote.control_plane_independent
    }

    /// Since when it is in its state, as far as this process knows.
    pub fn since(&self) -> Instant {
        self.since
    }

    /// What has come and gone since this process has it.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// Desired Min TX and Required Min RX, as advertised.
    pub fn intervals(&self) -> [Duration; 2] {
        [self.timing.desired_tx, self.timing.required_rx].map(time)
    }

    /// The neighbour's Desired Min TX, Required Min RX and Required Min Echo RX.
    pub fn remote_intervals(&self) -> [Duration; 3] {
        [self.remote.desired_min_tx, self.remote.required_min_rx, self.remote.required_min_echo_rx].map(time)
    }

    /// The neighbour's Detect Mult; 0: not known.
    pub fn remote_detect_multiplier(&self) -> u8 {
        self.remote.detect_multiplier
    }

    /// Whether the neighbour is in Demand mode, and so is sent no periodic packets (section 6.6).
    pub fn is_demand_active(&self) -> bool {
        self.remote.demand && self.state == State::Up && self.remote.state == State::Up
    }

    /// The detection time (section 6.8.4); zero as long as the neighbour has said nothing.
    pub fn detection_time(&self) -> Duration {
        let interval = time(self.timing.rx.max(self.remote.desired_min_tx));
        interval * u32::from(self.remote.detect_multiplier)
    }

    /// The negotiated interval between periodic packets, before jitter (section 6.8.2).
    pub fn transmit_interval(&self) -> Duration {
        time(self.timing.tx.max(self.remote.required_min_rx))
    }

    /// Whether it may send at all: the Passive role waits for the neighbour (section 6.8.7).
    fn sends(&self) -> bool {
        !self.profile.passive || self.remote.discriminator != 0
    }

    pub(crate) fn send_again(&mut self) {
        self.is_due = self.sends();
    }

    fn sends_periodically(&self) -> bool {
        let is_polling = self.timing.poll == Poll::Active;
        self.sends() && self.remote.required_min_rx != 0 && (!self.is_demand_active() || is_polling)
    }

    /// When nothing was received for so long.
    pub(crate) fn expires(&self) -> Option<Instant> {
        let last = self.last_received.filter(|_| self.remote.discriminator != 0)?;
        Some(last + self.detection_time())
    }

    /// When [`Self::advance`] has something to do.
    pub(crate) fn deadline(&self, now: Instant) -> Option<Instant> {
        let is_ready = self.is_ready(now);
        let waits = (self.is_due || self.is_final_due) && !is_ready;
        let periodic = self.next_periodic.filter(|_| !(self.is_due && is_ready));
        let allowed = waits.then(|| self.budget.next(time(self.timing.desired_tx)));
        [periodic, allowed, self.expires(), self.ends].into_iter().flatten().min()
    }

    /// Whether there is a packet that may be sent now.
    pub(crate) fn is_ready(&self, now: Instant) -> bool {
        let is_allowed = self.budget.allows(now, time(self.timing.desired_tx));
        self.is_final_due && is_allowed || self.is_due && (is_allowed || self.is_periodic_due(now))
    }

    /// A packet may leave a little early, with those of other sessions: what is drawn for its interval leaves room for that.
    fn is_periodic_due(&self, now: Instant) -> bool {
        self.next_periodic.is_some_and(|next| next <= now + self.transmit_interval() * EARLY / 100)
    }

    /// Does what is due.
    pub(crate) fn advance(&mut self, now: Instant) {
        if self.expires().is_some_and(|expires| expires <= now) {
            self.expire(now);
        }
        if self.is_periodic_due(now) {
            let sends = self.sends_periodically();
            self.is_due |= sends;
            self.next_periodic = self.next_periodic.filter(|_| sends);
        }
    }

    /// The detection time has passed.
    fn expire(&mut self, now: Instant) {
        self.remote = Remote { diagnostic: self.remote.diagnostic, ..Remote::default() };
        if matches!(self.state, State::Init | State::Up) {
            self.change(now, State::Down, Diagnostic::DETECTION_TIME_EXPIRED);
        }
    }

    /// Takes other settings.
    pub(crate) fn set_profile(&mut self, now: Instant, profile: Rc<Profile>) {
        let differs = self.profile.detect_multiplier != profile.detect_multiplier;
        self.profile = profile;
        self.advertise(now);
        if differs {
            self.say_anew();
        }
        self.schedule(now);
    }

    /// A packet says something new. A neighbour in Demand mode has to confirm it (section 6.6).
    fn say_anew(&mut self) {
        self.is_due |= self.sends();
        if self.is_demand_active() {
            self.timing.begin_poll();
        }
    }

    /// The way to the neighbour is known to be broken, without waiting for the detection time.
    pub(crate) fn path_down(&mut self, now: Instant) {
        if matches!(self.state, State::Init | State::Up) {
            self.change(now, State::Down, Diagnostic::PATH_DOWN);
        }
    }

    /// Ends, when the neighbour has had the time to hear that nothing is wrong with the path (section 6.8.16).
    pub(crate) fn close(&mut self, now: Instant) {
        let multiplier = u32::from(self.profile.detect_multiplier.max(1));
        let heard = self.remote.discriminator != 0;
        self.change(now, State::AdminDown, Diagnostic::ADMINISTRATIVELY_DOWN);
        self.ends = Some(if heard { now + self.transmit_interval() * multiplier } else { now });
    }

    /// Begins anew: the neighbour is told AdminDown before, so that it takes this for no failure.
    pub(crate) fn restart(&mut self, now: Instant) {
        if self.ends.is_none() {
            self.change(now, State::AdminDown, Diagnostic::ADMINISTRATIVELY_DOWN);
            self.restarts = self.is_due;
            if !self.restarts {
                self.change(now, State::Down, Diagnostic::NONE);
            }
        }
    }

    /// Goes on, though it was to end.
    pub(crate) fn reopen(&mut self, now: Instant) {
        if self.ends.take().is_some() {
            self.change(now, State::Down, Diagnostic::NONE);
        }
    }

    fn change(&mut self, now: Instant, state: State, diagnostic: Diagnostic) {
        if state == State::Up {
            self.counters.ups += 1;
        }
        if self.state == State::Up {
            self.counters.downs += 1;
        }
        self.has_failed |= self.state == State::Up;
        self.has_said_down &= self.state != State::Up;
        self.has_failed &= state != State::Up && diagnostic != Diagnostic::ADMINISTRATIVELY_DOWN;
        (self.state, self.diagnostic, self.since) = (state, diagnostic, now);
        self.is_due = self.sends();
        if matches!(state, State::AdminDown | State::Down) {
            self.timing.forget_poll();
        }
        self.advertise(now);
    }

    /// Advertises what is configured for the state, and has the neighbour confirm a change.
    fn advertise(&mut self, now: Instant) {
        let is_up = self.state == State::Up;
        let least = if is_up { 0 } else { SLOW };
        let desired = micros(self.profile.transmit_interval).max(least);
        let required = micros(self.profile.receive_interval);
        let before = (self.timing.desired_tx, self.timing.required_rx);
        self.timing.advertise(desired, required, is_up);
        if before != (desired, required) {
            self.is_due |= self.sends();
            // A neighbour that is away is asked nothing.
            if self.remote.discriminator != 0 {
                self.timing.begin_poll();
            }
        }
        self.schedule(now);
    }

    /// Whether a packet of this session is believed (section 6.7).
    pub(crate) fn believes(&mut self, now: Instant, received: &Received<'_>) -> bool {
        if self.sequence_known_until.is_some_and(|until| until <= now) {
            self.sequence.received = None;
        }
        let is_believed = self.sequence.accepts(received, &self.profile);
        self.counters.unauthentic += u64::from(!is_believed);
        is_believed
    }

    /// Takes a packet of this session that is believed (section 6.8.6).
    pub(crate) fn receive(&mut self, now: Instant, packet: &Packet) {
        self.counters.received += 1;
        self.last_received = Some(now);
        let before = (self.state, self.remote.discriminator);
        self.remote = Remote {
            discriminator: packet.my_discriminator,
            state: packet.state,
            diagnostic: packet.diagnostic,
            demand: packet.flags.demand,
            control_plane_independent: packet.flags.control_plane_independent,
            detect_multiplier: packet.detect_multiplier,
            desired_min_tx: packet.desired_min_tx,
            required_min_rx: packet.required_min_rx,
            required_min_echo_rx: packet.required_min_echo_rx,
        };
        self.sequence_known_until = Some(now + 2 * self.detection_time());
        self.timing.received(packet.flags.is_final);
        if let Some((state, diagnostic)) = self.next_state(packet.state) {
            self.change(now, state, diagnostic);
        }
        // An operator holds the neighbour's end down: that says nothing of the path (RFC 5882 section 3.2).
        self.has_failed &= packet.state != State::AdminDown;
        self.is_final_due |= packet.flags.poll;
        if before != (self.state, self.remote.discriminator) {
            self.say_anew();
        }
        self.schedule(now);
    }

    /// The state machine: to which state a packet leads, if to another.
    fn next_state(&self, remote: State) -> Option<(State, Diagnostic)> {
        let down = Some((State::Down, Diagnostic::NEIGHBOR_SIGNALED_DOWN));
        match (self.state, remote) {
            (State::AdminDown, _) | (State::Down, State::AdminDown | State::Up) => None,
            (State::Init | State::Up, State::AdminDown) | (State::Up, State::Down) => down,
            (State::Down, State::Down) => Some((State::Init, self.diagnostic)),
            (State::Down, State::Init) | (State::Init, State::Init | State::Up) => {
                // What the neighbour had sent before it could hear that we were not Up is no answer. Without this, forged or
                // late packets make the session flap as often as they come.
                self.has_said_down.then_some((State::Up, Diagnostic::NONE))
            }
            (State::Init, State::Down) | (State::Up, State::Init | State::Up) => None,
        }
    }

    /// When the next periodic packet is due: a change of the interval counts from the last packet on (section 6.8.3).
    fn schedule(&mut self, now: Instant) {
        let next = self.last_sent.map_or(now, |sent| sent + self.jitter.of(self.transmit_interval()));
        self.next_periodic = self.sends_periodically().then_some(next);
    }

    /// The packet that is due, if one is.
    pub(crate) fn transmit(&mut self, now: Instant, random: &mut Random) -> Option<Octets> {
        if !self.is_ready(now) {
            return None;
        }
        let desired_tx = time(self.timing.desired_tx);
        let is_final = self.is_final_due && self.budget.allows(now, desired_tx);
        if is_final || !self.is_periodic_due(now) {
            self.budget.take(now, desired_tx);
        }
        *(if is_final { &mut self.is_final_due } else { &mut self.is_due }) = false;
        let packet = self.packet(is_final);
        let key = self.profile.signing_key();
        let number = if key.is_some() { self.sequence.take() } else { 0 };
        let octets = packet.write(key.map(|key| (key, number)));
        self.counters.sent += 1;
        self.has_said_down |= self.state != State::Up;
        if !is_final {
            self.last_sent = Some(now);
            // Of a multiplier of 1 the neighbour would miss a packet that comes after its whole interval.
            let most = if self.profile.detect_multiplier <= 1 { 90 } else { 100 };
            self.jitter = random.jitter(75 + EARLY, most);
            self.schedule(now);
            if std::mem::take(&mut self.restarts) {
                self.change(now, State::Down, Diagnostic::NONE);
            }
        }
        Some(octets)
    }

    fn packet(&self, is_final: bool) -> Packet {
        Packet {
            diagnostic: self.diagnostic,
            state: self.state,
            flags: Flags {
                poll: !is_final && self.timing.poll == Poll::Active,
                is_final,
                // This process goes on when those die that depend on it.
                control_plane_independent: true,
                demand: false,
            },
            detect_multiplier: self.profile.detect_multiplier.max(1),
            my_discriminator: self.discriminator,
            your_discriminator: self.remote.discriminator,
            desired_min_tx: self.timing.desired_tx,
            required_min_rx: self.timing.required_rx,
            required_min_echo_rx: 0,
        }
    }
}

pub(crate) fn time(micros: u32) -> Duration {
    Duration::from_micros(micros.into())
}

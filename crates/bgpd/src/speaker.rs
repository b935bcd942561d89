//! The speaker: where sessions, sockets and the pipeline meet.
//!
//! [`Speaker`] owns all state, on one thread. What happens (bytes, timers, calls) enters through its methods; what it
//! wants done outside (dialling) leaves as [`Effect`]s. The tasks that feed it are in [`crate::tasks`].

mod awaited;
mod cost;
mod limits;
mod lines;
mod poison;
mod protection;
mod receiving;
mod refresh;
mod restart;
mod sending;
pub(crate) mod slot;
mod watching;

use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet, HashMap, VecDeque},
    io,
    net::{IpAddr, SocketAddr},
    rc::Rc,
    time::Instant,
};

use bytes::Bytes;
use holdfast_bgp_pipeline::{Direction, Event, PeerIndex, PeerKind, Pipeline, SessionFacts, TooManySessions};
use holdfast_bgp_session::{
    ConnId, Disposition, Input, Level, Negotiated, Output, Peer, State, StopReason, Timer,
};
use holdfast_bgp_wire::HEADER_LEN;
use holdfast_damping::Damping;
use holdfast_process::profile::Profile;
use holdfast_types::{Asn, Family};
use tokio::task::AbortHandle;
use tracing::{debug, info, warn};

use crate::{
    config::{Neighbor, Settings},
    connection::{Connection, Key, READ, verdict},
    location::Location,
    nonstop::{ReplicationLog, Unprotected},
    points::Points,
    ranges::Members,
    roster::{Present, Stopped},
    speaker::{
        awaited::Awaited,
        cost::Share,
        lines::{About, Lines},
        poison::Poison,
        restart::Restart,
        slot::{PolicyChange, Slot},
    },
    stream::Handed,
    watch::Watchers,
};

/// Octets that the pipeline hands over for one peer before they are written, with one system call.
pub(crate) const CHUNK: usize = 64 * 1024;
/// Chunks written to one peer before others have their turn.
const CHUNKS_PER_TURN: usize = 8;
/// Peers that are written to before others have their turn.
const WRITES_PER_TURN: usize = 32;
/// Sessions that one listen range may have.
pub(crate) const MOST_PER_RANGE: usize = 4096;
/// Peers, those of listen ranges included: one of a range is refused when there are so many.
pub(crate) const MOST_PEERS: usize = 32_768;

pub(crate) use awaited::Stale;

pub(crate) use cost::Cost;

/// Something to be done outside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    /// Have the door connect to this peer, by its configured name.
    Dial(Key, String),
    /// Give the keeper a copy of this connection's descriptor: its session is in the log.
    Keep(Key),
}

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
    pub(crate) slots: BTreeMap<PeerIndex, Slot>,
    locations: HashMap<Location, PeerIndex>,
    /// The peers of each listen range, by its name; those of ranges that are configured stay when nobody is there.
    pub(crate) ranges: HashMap<String, Members>,
    /// Peers that are gone while connections of theirs still say goodbye, and how many do. Nobody else gets their index.
    leaving: HashMap<PeerIndex, usize>,
    pub(crate) connections: HashMap<Key, Connection>,
    /// Peers whose sockets may hold octets that are not acknowledged.
    unacknowledged: BTreeSet<PeerIndex>,
    /// Where it is noted that routes pass; to be set to those of the process.
    pub(crate) points: Points,
    /// Who is told what happens.
    pub(crate) watchers: Watchers,
    /// Where sessions are protected.
    pub(crate) nonstop: Option<Rc<ReplicationLog>>,
    /// The stage that damps, if one is plugged into the pipeline.
    pub(crate) damping: Option<Rc<RefCell<Damping>>>,
    /// Octets behind the message that is being taken in, and where that begins in the stream.
    unparsed: (usize, u64),
    /// The connection that came into the log with that message.
    begun: Option<Key>,
    poison: Option<Poison>,
    deadlines: BTreeSet<(Instant, PeerIndex)>,
    effects: VecDeque<Effect>,
    next_hops: VecDeque<Event>,
    next_accepted: u32,
    buffer: Vec<u8>,
    started: Instant,
    synced: bool,
    /// Who may still announce again what the process before had of them.
    awaited: Awaited,
    /// Whose routes are here, for the next process.
    present: Option<Present>,
    /// Whom the operator keeps down, and the text that was given, also for the next process.
    pub(crate) stopped: Stopped,
    /// What is known of a restart of our own.
    restart: Restart,
    lines: Lines,
}

impl Speaker {
    pub(crate) fn new(settings: Settings, pipeline: Pipeline, stopped: Stopped, now: Instant) -> Self {
        Self {
            settings,
            pipeline,
            slots: BTreeMap::new(),
            locations: HashMap::new(),
            ranges: HashMap::new(),
            leaving: HashMap::new(),
            connections: HashMap::new(),
            unacknowledged: BTreeSet::new(),
            points: Points::of(&Profile::default()),
            watchers: Watchers::default(),
            nonstop: None,
            damping: None,
            unparsed: (0, 0),
            begun: None,
            poison: Poison::from_environment(),
            deadlines: BTreeSet::new(),
            effects: VecDeque::new(),
            next_hops: VecDeque::new(),
            next_accepted: 0,
            buffer: vec![0; READ],
            started: now,
            synced: false,
            awaited: Awaited::Everybody,
            present: None,
            stopped,
            restart: Restart::default(),
            lines: Lines::default(),
        }
    }

    /// Adds a peer and starts it, unless it is disabled or stopped.
    pub(crate) fn add_peer(
        &mut self,
        neighbor: Neighbor,
        dynamic: bool,
        seed: u64,
        now: Instant,
    ) -> PeerIndex {
        let index = self.pipeline.add_peer(neighbor.pipeline(&self.settings, None));
        let session = Peer::new(self.session_config(&neighbor), seed, now);
        let range = self.ranges.get(&neighbor.source.name).filter(|_| dynamic);
        let offences = range.map_or(0, |range| range.offenders.times(&neighbor.location));
        let slot = self.insert(index, Slot::new(neighbor, session, dynamic));
        if !slot.is_kept_down() {
            slot.session.handle(Input::Start, now);
        }
        slot.session.count_failures(offences);
        slot.offends = offences > 0;
        // What a dynamic peer does begins with the connection that it is born of.
        if !dynamic {
            self.drain(index, now);
        }
        index
    }

    fn insert(&mut self, index: PeerIndex, mut slot: Slot) -> &mut Slot {
        slot.stopped = self.stopped.noted(&slot.neighbor.location).is_some();
        self.locations.insert(slot.neighbor.location.clone(), index);
        if slot.dynamic {
            self.ranges.entry(slot.neighbor.source.name.clone()).or_default().present += 1;
        }
        self.slots.entry(index).insert_entry(slot).into_mut()
    }

    /// Ends a peer's session and forgets the peer.
    pub(crate) fn remove_peer(&mut self, index: PeerIndex, reason: StopReason, now: Instant) {
        self.input(index, Input::Stop(reason), now);
        self.forget(index);
    }

    /// Takes a stopped peer out. Connections that still say goodbye live on until they have.
    fn forget(&mut self, index: PeerIndex) {
        let Some(slot) = self.slots.remove(&index) else { return };
        self.locations.remove(&slot.neighbor.location);
        self.await_no_more(&slot);
        if slot.dynamic
            && let Some(members) = self.ranges.get_mut(&slot.neighbor.source.name)
        {
            members.present -= 1;
            let offences = if slot.offends { slot.session.failures() } else { 0 };
            members.offenders.note(&slot.neighbor.location, offences);
            slot.add_to(&mut members.gone, self.pipeline.drops(index));
        }
        if let Some(at) = slot.deadline {
            self.deadlines.remove(&(at, index));
        }
        for task in slot.dialing.into_values().flatten() {
            task.abort();
        }
        match self.connections.keys().filter(|key| key.0 == index).count() {
            0 => self.pipeline.remove_peer(index),
            open => {
                self.pipeline.peer_down(index);
                self.leaving.insert(index, open);
            }
        }
    }

    /// Something happened to a peer: tells its session, does what that asks for.
    pub(crate) fn input(&mut self, index: PeerIndex, input: Input<'_>, now: Instant) -> Disposition {
        let Some(slot) = self.slots.get_mut(&index) else { return Disposition::Done };
        let disposition = slot.session.handle(input, now);
        self.drain(index, now);
        disposition
    }

    /// Carries out what a session asks for.
    fn drain(&mut self, index: PeerIndex, now: Instant) {
        while let Some(slot) = self.slots.get_mut(&index)
            && let Some(output) = slot.session.poll_output()
        {
            match output {
                Output::Connect(id) => {
                    slot.dialing.insert(id, None);
                    self.effects.push_back(Effect::Dial((index, id), slot.neighbor.name.clone()));
                }
                Output::Close(id) => self.close(index, id),
                Output::Send(id, bytes) => {
                    if let Some(connection) = self.connections.get_mut(&(index, id)) {
                        if is_open(&bytes) {
                            connection.sent_open.clone_from(&bytes);
                        }
                        connection.verdict = verdict(&bytes).or(connection.verdict);
                        connection.queue(Bytes::from(bytes), None);
                        connection.count(&slot.session.counters().sent);
                        connection.wake.notify_one();
                    }
                }
                Output::Established(id, negotiated) => {
                    self.established(index, id, &negotiated, now);
                    self.watch_up(index);
                }
                Output::Down { retained, reason } => {
                    slot.end_of_rib.clear();
                    slot.announced.clear();
                    slot.policies.clear();
                    slot.limits.forget();
                    slot.octets = Level::Fine;
                    (slot.cost_level, slot.cost.waited_for) = (Level::Fine, Share::default());
                    slot.takeover = None;
                    if !retained.is_empty()
                        && self.lines.may(About::Sessions, &slot.neighbor.source.name, now)
                    {
                        let peer = &slot.neighbor.name;
                        info!(
                            event = "routes-kept",
                            peer, "its routes stay until it is back and has sent them again"
                        );
                    }
                    self.pipeline.peer_away(index, &retained);
                    self.watch_down(index, &reason);
                }
                Output::MarkStale(family) => self.mark_stale(index, family),
                Output::Sweep(family) => self.sweep(index, family),
                Output::LongLived(family) => self.pipeline.keep_long(index, family),
                Output::Forget(family) => self.pipeline.forget_stale(index, family),
                Output::Log(event) => self.lines.log(slot, &event, now),
            }
        }
        if !self.watchers.is_empty() {
            self.watch_state(index);
        }
        self.note_presence(index);
        self.arm(index);
        self.end_dynamic(index);
    }

    /// A peer of a listen range has no life beyond its connections: it does not dial, nor wait for others. One that is
    /// held back stays as long as it is: in its place a new one could come at once.
    fn end_dynamic(&mut self, index: PeerIndex) {
        let is_over = |slot: &Slot| {
            let is_gone = slot.session.connection().is_none() && slot.session.retained().next().is_none();
            slot.dynamic && is_gone && !slot.is_held_back()
        };
        if self.slots.get(&index).is_some_and(is_over) {
            self.forget(index);
        }
    }

    fn arm(&mut self, index: PeerIndex) {
        let Some(slot) = self.slots.get_mut(&index) else { return };
        let deadline = slot.session.poll_timeout();
        if slot.deadline != deadline {
            if let Some(at) = slot.deadline {
                self.deadlines.remove(&(at, index));
            }
            if let Some(at) = deadline {
                self.deadlines.insert((at, index));
            }
            slot.deadline = deadline;
        }
    }

    fn close(&mut self, index: PeerIndex, id: ConnId) {
        if let Some(connection) = self.connections.get_mut(&(index, id)) {
            connection.closing = true;
            connection.unprotect(Unprotected::Ending);
            connection.wake.notify_one();
        } else if let Some(slot) = self.slots.get_mut(&index)
            && let Some(Some(task)) = slot.dialing.remove(&id)
        {
            task.abort();
        }
    }

    fn established(&mut self, index: PeerIndex, id: ConnId, negotiated: &Negotiated, now: Instant) {
        self.protect(index, id, now);
        let Some(slot) = self.slots.get_mut(&index) else { return };
        slot.last_update = Some(now);
        slot.limited = false;
        slot.failed.clear();
        slot.unanswered = false;
        let Some(facts) = self.facts(index, id, negotiated) else { return };
        self.warn_of_next_hops(index, &facts, now);
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
        if let Some(slot) = self.slots.get(&index)
            && self.lines.may(About::Sessions, &slot.neighbor.source.name, now)
        {
            warn!(event = "too-many-sessions", peer = slot.neighbor.name, "{error}");
        }
        self.input(index, Input::Stop(StopReason::OutOfResources), now);
    }

    /// What the pipeline has to know of a session.
    fn facts(&self, index: PeerIndex, id: ConnId, negotiated: &Negotiated) -> Option<SessionFacts> {
        let (slot, connection) = (self.slots.get(&index)?, self.connections.get(&(index, id))?);
        let local = connection.local.ip();
        let link_local = match local {
            IpAddr::V6(local) if local.is_unicast_link_local() => Some(local),
            IpAddr::V4(_) | IpAddr::V6(_) => None,
        };
        let facts = SessionFacts {
            families: negotiated.families.clone(),
            four_octet_as: negotiated.four_octet_as,
            max_message_len: negotiated.max_sent,
            extended_next_hop: negotiated.extended_next_hop.contains(&Family::IPV4_UNICAST),
            enhanced_refresh: negotiated.enhanced_refresh,
            orf_received: negotiated.orf_received.clone(),
            long_lived: negotiated.long_lived.is_some(),
            identifiers_received: negotiated.identifiers_received.iter().copied().collect(),
            identifiers_sent: negotiated.identifiers_sent.iter().copied().collect(),
            router_id: negotiated.router_id,
            peer_address: connection.remote.ip(),
            next_hop_v4: slot.neighbor.next_hop_v4(local),
            next_hop_v6: slot.neighbor.next_hop_v6(local),
            link_local,
            interface: match connection.remote {
                SocketAddr::V6(remote) => remote.scope_id(),
                SocketAddr::V4(_) => 0,
            },
            number: slot.number,
            first_identifier: 0,
        };
        Some(facts)
    }

    fn warn_of_next_hops(&mut self, index: PeerIndex, facts: &SessionFacts, now: Instant) {
        let Some(slot) = self.slots.get(&index) else { return };
        let missing = facts.families.iter().filter(|family| !has_next_hop(facts, **family));
        for family in missing.filter(|_| self.lines.may(About::Sessions, &slot.neighbor.source.name, now)) {
            let peer = &slot.neighbor.name;
            warn!(event = "no-next-hop", peer, %family, "no own address of this family for the next hop: \
                set next-hop-ipv4 or next-hop-ipv6; only routes that keep their next hop are announced");
        }
    }

    /// Another configuration of a peer whose session stays.
    pub(crate) fn change_peer(&mut self, index: PeerIndex, neighbor: Neighbor, now: Instant) {
        if let Some(slot) = self.slots.get_mut(&index) {
            let before = std::mem::replace(&mut slot.neighbor, neighbor);
            if !slot.neighbor.source.nonstop
                && let Some((id, _)) = slot.session.connection()
                && let Some(connection) = self.connections.get_mut(&(index, id))
            {
                connection.unprotect(Unprotected::NotConfigured);
            }
            let asn = slot.session.negotiated().map(|negotiated| negotiated.asn);
            slot.session.change_local(&slot.neighbor.session(&self.settings), now);
            self.drain(index, now);
            self.configure_pipeline(index, asn);
            let Some(slot) = self.slots.get_mut(&index) else { return };
            for direction in [Direction::Import, Direction::Export] {
                if self.pipeline.policy_progress(index, direction).is_some() {
                    slot.policies.insert(direction, PolicyChange { started: now, ended: None });
                }
            }
            if slot.neighbor.orf != before.orf {
                self.send_filters(index);
            }
            self.change_limits(index, &before.limits, now);
            self.change_octets(index, before.source.rules.max_octets.octets(), now);
            self.change_disabled(index, before.disabled, now);
        }
    }

    /// Ends the session of a peer, which begins anew at once.
    pub(crate) fn begin_anew(&mut self, index: PeerIndex, now: Instant) {
        self.input(index, Input::Stop(StopReason::OtherConfigChange), now);
        self.input(index, Input::Start, now);
    }

    fn change_disabled(&mut self, index: PeerIndex, before: bool, now: Instant) {
        let Some(slot) = self.slots.get(&index) else { return };
        match (before, slot.neighbor.disabled) {
            (false, true) => {
                let text = slot.neighbor.source.rules.shutdown_text.clone().unwrap_or_default();
                self.input(index, Input::Stop(StopReason::AdminShutdown(text)), now);
            }
            (true, false) if !slot.stopped => _ = self.input(index, Input::Start, now),
            (true, _) | (false, false) => {}
        }
    }

    /// The operator has a peer stopped; the session stays down until [`Self::start_peer`], whatever becomes of this process.
    pub(crate) fn stop_peer(&mut self, index: PeerIndex, text: &str, now: Instant) {
        if let Some(slot) = self.slots.get_mut(&index) {
            (slot.stopped, slot.offends) = (true, false);
            self.stopped.enter(&slot.neighbor.location);
            self.stopped.note(&slot.neighbor.location, text);
            self.input(index, Input::Stop(StopReason::AdminShutdown(text.to_owned())), now);
        }
    }

    /// Ends the session of a peer that is stopped: the process before has died before it could.
    pub(crate) fn end_if_stopped(&mut self, index: PeerIndex, now: Instant) {
        let Some(slot) = self.slots.get(&index) else { return };
        if let Some(text) = self.stopped.noted(&slot.neighbor.location) {
            let text = text.to_owned();
            self.input(index, Input::Stop(StopReason::AdminShutdown(text)), now);
        }
    }

    /// The operator has a peer try at once; whether that may be: not where the configuration says `disabled`.
    pub(crate) fn start_peer(&mut self, index: PeerIndex, now: Instant) -> bool {
        let Some(slot) = self.slots.get_mut(&index).filter(|slot| !slot.neighbor.disabled) else {
            return false;
        };
        (slot.stopped, slot.limited, slot.offends) = (false, false, false);
        self.stopped.leave(&slot.neighbor.location);
        self.input(index, Input::Start, now);
        true
    }

    /// The operator has a session begin anew: one that is up, or held back. What stayed of an earlier one goes.
    pub(crate) fn clear_peer(&mut self, index: PeerIndex, text: &str, now: Instant) {
        let is_held = |slot: &Slot| {
            let leaves_nothing = slot.session.retained().next().is_none();
            slot.session.state() == State::Idle && !slot.is_kept_down() && leaves_nothing
        };
        match self.slots.get_mut(&index) {
            Some(slot) if is_held(slot) => {
                self.start_peer(index, now);
            }
            Some(slot) => {
                slot.offends = false;
                self.input(index, Input::Stop(StopReason::AdminReset(text.to_owned())), now);
            }
            None => {}
        }
    }

    /// Tells the pipeline, and the stage that damps, what is configured about a peer with this AS number.
    pub(crate) fn configure_pipeline(&mut self, index: PeerIndex, asn: Option<Asn>) {
        let Some(slot) = self.slots.get(&index) else { return };
        let config = slot.neighbor.pipeline(&self.settings, asn);
        if let Some(damping) = &self.damping {
            let damped = slot.neighbor.source.damping && config.kind == PeerKind::Ebgp;
            damping.borrow_mut().set_peer(index, damped);
        }
        self.pipeline.configure_peer(index, config);
    }

    /// The next thing to be done outside.
    pub(crate) fn poll_effect(&mut self) -> Option<Effect> {
        self.effects.pop_front()
    }

    /// The next change of interest in a next hop.
    pub(crate) fn poll_next_hop(&mut self) -> Option<Event> {
        self.next_hops.pop_front()
    }

    /// Whether [`Self::poll_next_hop`] has something.
    pub(crate) fn has_next_hop_events(&self) -> bool {
        !self.next_hops.is_empty()
    }

    /// When [`Self::expire`] has something to do.
    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        self.deadlines.first().map(|&(at, _)| at).into_iter().chain(self.restart.next_look()).min()
    }

    /// Runs the timers that are due.
    pub(crate) fn expire(&mut self, now: Instant) {
        while let Some(&(at, index)) = self.deadlines.first()
            && at <= now
        {
            if let Some(slot) = self.slots.get_mut(&index).filter(|slot| slot.is_replaying()) {
                slot.session.restart_hold(now);
            }
            self.excuse(index, now);
            self.input(index, Input::Timeout, now);
            // A session that leaves its deadline in the past would otherwise hold everybody up.
            if self.deadlines.first() == Some(&(at, index)) {
                debug!(peer = index.0, "timer did not move");
                self.deadlines.remove(&(at, index));
                if let Some(slot) = self.slots.get_mut(&index) {
                    slot.deadline = None;
                }
            }
        }
    }

    /// A peer whose hold timer is over, but whose octets wait here to be taken in, was not silent: we were late.
    fn excuse(&mut self, index: PeerIndex, now: Instant) {
        let Some(slot) = self.slots.get_mut(&index) else { return };
        let Some(at) = slot.session.deadline(Timer::Hold).filter(|at| *at <= now) else { return };
        let waits = |connection: &Connection| connection.is_behind || connection.stream.has_unread();
        let key = slot.session.connection().map(|(id, _)| (index, id));
        if key.and_then(|key| self.connections.get(&key)).is_some_and(waits) {
            slot.session.restart_hold(now);
            if self.lines.may(About::Sessions, &slot.neighbor.source.name, now) {
                let (peer, late_ms) = (&slot.neighbor.name, now.saturating_duration_since(at).as_millis());
                warn!(
                    event = "loop-late",
                    peer, late_ms, "messages of the peer waited here past its hold time"
                );
            }
        }
    }

    /// The task that dials, so that it can be given up.
    pub(crate) fn dialing(&mut self, (index, id): Key, task: AbortHandle) {
        match self.slots.get_mut(&index).and_then(|slot| slot.dialing.get_mut(&id)) {
            Some(place) => *place = Some(task),
            None => task.abort(),
        }
    }

    /// A connection that was asked for is there; whether it is still wanted.
    pub(crate) fn connected(&mut self, key: Key, handed: Handed, now: Instant) -> bool {
        let wanted = self.slots.get_mut(&key.0).is_some_and(|slot| slot.dialing.remove(&key.1).is_some());
        if wanted {
            self.connections.insert(key, Connection::new(handed, now));
            self.input(key.0, Input::Connected(key.1), now);
        }
        wanted
    }

    /// There is no connection, over whatever: that is one event (18 of RFC 4271).
    pub(crate) fn connect_failed(&mut self, key: Key, why: &str, now: Instant) {
        if let Some(slot) = self.slots.get_mut(&key.0) {
            slot.dialing.remove(&key.1);
            self.input(key.0, Input::ConnectFailed(key.1, why), now);
        }
    }

    /// A connection came in from a peer that is known: its key, or itself if it is not for this peer. Over those of the numbers in `replaced` the
    /// peer says nothing any more; as they end last, the peer has a connection all the time and need not wait for the next.
    pub(crate) fn accepted(
        &mut self,
        index: PeerIndex,
        handed: Handed,
        replaced: &[u64],
        now: Instant,
    ) -> Result<Key, Box<Handed>> {
        let key = self.accept(index, handed, now);
        let is_replaced = |(key, connection): &(&Key, &Connection)| {
            key.0 == index && replaced.contains(&connection.said.number)
        };
        let lost: Vec<Key> = self.connections.iter().filter(is_replaced).map(|(&key, _)| key).collect();
        for key in lost {
            self.lost(key, Some(io::ErrorKind::ConnectionReset), now);
        }
        self.end_dynamic(index);
        key
    }

    fn accept(&mut self, index: PeerIndex, handed: Handed, now: Instant) -> Result<Key, Box<Handed>> {
        let Some(slot) = self.slots.get(&index) else { return Err(Box::new(handed)) };
        if let Location::Neighbor(interface) = &slot.neighbor.location
            && let Some((_, session)) = self.session_connection(index)
            && session.remote_address() != handed.remote.ip().to_canonical()
        {
            // It would take the session over and over (RFC 4724 section 5), and the first one take it back.
            if self.lines.may(About::Connections, &slot.neighbor.source.name, now) {
                let (peer, address) = (&slot.neighbor.name, handed.remote.ip().to_canonical());
                warn!(
                    event = "connection-refused",
                    peer, %address, "the session is with another router on {interface}"
                );
            }
            return Err(Box::new(handed));
        }
        let id = ConnId(self.next_accepted);
        self.next_accepted = (self.next_accepted + 1) % ConnId::FIRST_DIALLED.0;
        self.connections.insert((index, id), Connection::new(handed, now));
        self.input(index, Input::Accepted(id), now);
        Ok((index, id))
    }

    /// The configured or dynamic peer at a place.
    pub(crate) fn peer_at(&self, location: &Location) -> Option<PeerIndex> {
        self.locations.get(location).copied()
    }

    /// The peer that somebody at this place is: the one that is configured there, or as the neighbour on that interface.
    pub(crate) fn peer_of(&self, location: &Location) -> Option<PeerIndex> {
        let neighbor = || match location {
            Location::OnLink(_, interface) => self.peer_at(&Location::Neighbor(interface.clone())),
            Location::Address(_) | Location::Neighbor(_) => None,
        };
        self.peer_at(location).or_else(neighbor)
    }

    /// A router is heard on an interface: the peer without address there need not wait to try.
    pub(crate) fn heard(&mut self, interface: &str, now: Instant) {
        if let Some(index) = self.peer_at(&Location::Neighbor(interface.into())) {
            self.input(index, Input::Heard, now);
        }
    }

    /// An interface has this number now, or 0 while it carries nothing: connections of its peers over another link are
    /// lost. Nobody waits for their hold timers. Of some the door does not know which link they are over.
    pub(crate) fn link_is(&mut self, interface: &str, link: u32, now: Instant) {
        let is_lost = |(key, connection): &(&Key, &Connection)| {
            let location = self.slots.get(&key.0).map(|slot| &slot.neighbor.location);
            location.is_some_and(|location| location.interface() == interface)
                && matches!(connection.remote, SocketAddr::V6(remote) if ![0, link].contains(&remote.scope_id()))
        };
        let lost: Vec<Key> = self.connections.iter().filter(is_lost).map(|(&key, _)| key).collect();
        for key in lost {
            self.lost(key, Some(io::ErrorKind::NetworkDown), now);
        }
    }

    /// Whether a listen range may have one more peer. Those that are saying goodbye count: they hold a connection.
    pub(crate) fn has_room(&self, range: &str) -> bool {
        self.slots.len() + self.leaving.len() < MOST_PEERS
            && self.leaving.len() < MOST_PER_RANGE
            && self.ranges.get(range).is_none_or(|members| members.present < MOST_PER_RANGE)
    }

    /// A peer by the name or address that an operator gave.
    pub(crate) fn peer_named(&self, text: &str) -> Option<PeerIndex> {
        let named = self.slots.iter().find(|(_, slot)| slot.neighbor.name == text).map(|(&index, _)| index);
        let Ok(location) = text.parse();
        named.or_else(|| self.peer_at(&location)).or_else(|| self.in_session_with(&location))
    }

    /// The peer without address whose session is with who is at this place.
    fn in_session_with(&self, location: &Location) -> Option<PeerIndex> {
        let Location::OnLink(address, interface) = location else { return None };
        let index = self.peer_at(&Location::Neighbor(interface.clone()))?;
        let (_, session) = self.session_connection(index)?;
        (session.remote_address() == *address).then_some(index)
    }

    pub(crate) fn connection(&self, key: Key) -> Option<&Connection> {
        self.connections.get(&key)
    }

    pub(crate) fn connection_mut(&mut self, key: Key) -> Option<&mut Connection> {
        self.connections.get_mut(&key)
    }

    /// The connection of an established session.
    pub(crate) fn session_connection(&self, index: PeerIndex) -> Option<(Key, &Connection)> {
        let slot = self.slots.get(&index)?;
        let (id, _) = slot.session.connection()?;
        let key = (index, id);
        (slot.session.state() == State::Established)
            .then(|| Some((key, self.connections.get(&key)?)))
            .flatten()
    }

    /// The socket is gone, whoever closed it.
    pub(crate) fn drop_connection(&mut self, key: Key) {
        if self.connections.remove(&key).is_some()
            && let Some(open) = self.leaving.get_mut(&key.0)
        {
            *open -= 1;
            if *open == 0 {
                self.leaving.remove(&key.0);
                self.pipeline.remove_peer(key.0);
            }
        }
    }

    /// The connection ended from outside.
    fn lost(&mut self, key: Key, error: Option<io::ErrorKind>, now: Instant) {
        let closing = self.connections.get(&key).is_some_and(|connection| connection.closing);
        self.drop_connection(key);
        if !closing {
            self.input(key.0, Input::Closed(key.1, error), now);
        }
    }

    /// Whether a line may be written about a peer or a range.
    pub(crate) fn may_log(&mut self, name: &str, now: Instant) -> bool {
        self.lines.may(About::Connections, name, now)
    }

    /// The pipeline is about to change.
    pub(crate) fn watch_changes(&mut self) {
        self.points.changing(&self.pipeline);
        self.watchers.changing(&self.pipeline);
    }

    /// It has changed.
    pub(crate) fn note_changes(&mut self) {
        self.points.changed(&self.pipeline);
        self.watchers.changed(&mut self.pipeline);
    }

    /// What the pipeline has to say since last time.
    pub(crate) fn drain_pipeline(&mut self, now: Instant) {
        while let Some(event) = self.pipeline.poll_event() {
            match event {
                Event::RegisterNextHop(_) | Event::UnregisterNextHop(_) => self.next_hops.push_back(event),
                Event::EndOfRib { peer, family } => {
                    if let Some(slot) = self.slots.get_mut(&peer) {
                        slot.end_of_rib.insert(family);
                    }
                    self.input(peer, Input::EndOfRib(family), now);
                }
                Event::Announced { peer, family } => {
                    if let Some(slot) = self.slots.get_mut(&peer) {
                        slot.announced.insert(family);
                    }
                }
                Event::PolicyApplied { peer, direction } => {
                    let slot = self.slots.get_mut(&peer);
                    if let Some(change) = slot.and_then(|slot| slot.policies.get_mut(&direction)) {
                        // Another change of what the peer is told may follow: its filter.
                        change.ended.get_or_insert(now);
                    }
                    self.check_limits(peer, now);
                }
                Event::TooSlow { peer } => {
                    if let Some(slot) = self.slots.get(&peer)
                        && self.lines.may(About::Sessions, &slot.neighbor.source.name, now)
                    {
                        warn!(
                            event = "peer-too-slow",
                            peer = slot.neighbor.name,
                            "reads too slowly for what it missed to be remembered: resetting"
                        );
                    }
                    self.input(peer, Input::Stop(StopReason::OutOfResources), now);
                }
            }
        }
        self.look_at_restart(now);
    }

    /// Ends every session, with a text for the operator on the other side (RFC 9003).
    pub(crate) fn shut_down(&mut self, text: &str, now: Instant) {
        let indexes: Vec<_> = self.slots.keys().copied().collect();
        for index in indexes {
            self.input(index, Input::Stop(StopReason::AdminShutdown(text.to_owned())), now);
        }
    }

    /// Whether every connection is closed.
    pub(crate) fn is_quiet(&self) -> bool {
        self.connections.is_empty()
    }

    /// Whether there is no route.
    pub(crate) fn is_empty(&self) -> bool {
        Family::ALL.into_iter().all(|family| self.pipeline.table_size(family) == (0, 0))
    }
}

/// Whether a message is an OPEN.
fn is_open(message: &[u8]) -> bool {
    message.get(HEADER_LEN - 1) == Some(&1)
}

/// Whether routes of a family can be announced with an address of ours.
fn has_next_hop(facts: &SessionFacts, family: Family) -> bool {
    let has_v6 = facts.next_hop_v6.is_some() || facts.link_local.is_some();
    match family {
        Family::IPV4_UNICAST => facts.next_hop_v4.is_some() || facts.extended_next_hop && has_v6,
        _ => has_v6,
    }
}

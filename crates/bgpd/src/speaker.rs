//! The speaker: where sessions, sockets and the pipeline meet.
//!
//! [`Speaker`] owns all state, on one thread. What happens (bytes, timers, calls) enters through its methods; what it
//! wants done outside (dialling) leaves as [`Effect`]s. The tasks that feed it are in [`crate::tasks`].

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque},
    io,
    net::IpAddr,
    rc::Rc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use holdfast_bgp_pipeline::{Event, PeerIndex, Pipeline, SessionFacts};
use holdfast_bgp_session::{
    ConnId, Disposition, Input, Negotiated, Output, Peer, SessionEvent, State, StopReason,
};
use holdfast_bgp_wire::{MessageType, Notification, RouteRefresh, next_message};
use holdfast_types::Family;
use tokio::{net::TcpStream, task::AbortHandle};
use tracing::{debug, info, warn};

use crate::{
    config::{Neighbor, Settings},
    connection::{Connection, Written},
};

/// Octets read at once; behind an unfinished message there is always room for this much.
pub(crate) const READ: usize = 64 * 1024;
/// Octets that the pipeline hands over for one peer before they are written, with one system call.
const CHUNK: usize = 64 * 1024;
/// Chunks written to one peer before others have their turn.
const CHUNKS_PER_TURN: usize = 8;
/// Peers that are written to before others have their turn.
const WRITES_PER_TURN: usize = 32;
/// After so long without an UPDATE a peer that does not offer End-of-RIB has sent its table.
const QUIET: Duration = Duration::from_secs(3);
/// The same for a peer that offers End-of-RIB and yet keeps it back, for one family say.
const QUIET_FOR_ALL: Duration = Duration::from_secs(15);
/// Sessions that one listen range may have.
pub(crate) const MOST_PER_RANGE: usize = 4096;
/// Peers, those of listen ranges included: one of a range is refused when there are so many.
pub(crate) const MOST_PEERS: usize = 32_768;

/// A connection of a peer.
pub(crate) type Key = (PeerIndex, ConnId);

/// Something to be done outside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    /// Dial this peer, by its configured name.
    Dial(Key, String),
    /// Give the keeper a copy of this connection's descriptor: its session is up.
    Keep(Key),
    /// The keeper closes its copy.
    Release(Key),
}

/// What a reader does next.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Read {
    /// There may be more at once.
    More,
    /// Wait for the socket.
    Wait,
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

/// One peer: configured, or born of a listen range.
#[derive(Debug)]
pub(crate) struct Slot {
    pub(crate) neighbor: Neighbor,
    pub(crate) session: Peer,
    /// Born of a listen range: it goes when its session does.
    pub(crate) dynamic: bool,
    pub(crate) end_of_rib: BTreeSet<Family>,
    pub(crate) announced: BTreeSet<Family>,
    /// When the session came up, or its last UPDATE came.
    last_update: Option<Instant>,
    dialing: HashMap<ConnId, Option<AbortHandle>>,
    deadline: Option<Instant>,
}

/// The whole state of the process.
pub(crate) struct Speaker {
    pub(crate) settings: Settings,
    pub(crate) pipeline: Pipeline,
    pub(crate) slots: BTreeMap<PeerIndex, Slot>,
    addresses: HashMap<IpAddr, PeerIndex>,
    /// How many peers each listen range has, by its name.
    range_sizes: HashMap<String, usize>,
    /// Peers that are gone while connections of theirs still say goodbye, and how many do. Nobody else gets their index.
    leaving: HashMap<PeerIndex, usize>,
    connections: HashMap<Key, Connection>,
    /// Peers whose sockets may hold octets that are not acknowledged.
    unacknowledged: BTreeSet<PeerIndex>,
    /// Connections of which the keeper has a copy.
    kept: HashSet<Key>,
    deadlines: BTreeSet<(Instant, PeerIndex)>,
    effects: VecDeque<Effect>,
    next_hops: VecDeque<Event>,
    next_accepted: u32,
    buffer: Vec<u8>,
    started: Instant,
    synced: bool,
    /// Connections refused because nobody is configured there.
    pub(crate) unknown_connections: u64,
}

impl Speaker {
    pub(crate) fn new(settings: Settings, pipeline: Pipeline, now: Instant) -> Self {
        Self {
            settings,
            pipeline,
            slots: BTreeMap::new(),
            addresses: HashMap::new(),
            range_sizes: HashMap::new(),
            leaving: HashMap::new(),
            connections: HashMap::new(),
            unacknowledged: BTreeSet::new(),
            kept: HashSet::new(),
            deadlines: BTreeSet::new(),
            effects: VecDeque::new(),
            next_hops: VecDeque::new(),
            next_accepted: 0,
            buffer: vec![0; READ],
            started: now,
            synced: false,
            unknown_connections: 0,
        }
    }

    /// Adds a peer and starts it, unless it is disabled.
    pub(crate) fn add_peer(
        &mut self,
        neighbor: Neighbor,
        dynamic: bool,
        seed: u64,
        now: Instant,
    ) -> PeerIndex {
        let index = self.pipeline.add_peer(neighbor.pipeline(&self.settings, None));
        let session = Peer::new(neighbor.session(&self.settings), seed, now);
        let disabled = neighbor.disabled;
        let mut slot = Slot {
            neighbor,
            session,
            dynamic,
            end_of_rib: BTreeSet::new(),
            announced: BTreeSet::new(),
            last_update: None,
            dialing: HashMap::new(),
            deadline: None,
        };
        if !disabled {
            slot.session.handle(Input::Start, now);
        }
        self.addresses.insert(slot.neighbor.address, index);
        if dynamic {
            *self.range_sizes.entry(slot.neighbor.source.name.clone()).or_default() += 1;
        }
        self.slots.insert(index, slot);
        // What a dynamic peer does begins with the connection that it is born of.
        if !dynamic {
            self.drain(index, now);
        }
        index
    }

    /// Ends a peer's session and forgets the peer.
    pub(crate) fn remove_peer(&mut self, index: PeerIndex, reason: StopReason, now: Instant) {
        self.input(index, Input::Stop(reason), now);
        self.forget(index);
    }

    /// Takes a stopped peer out. Connections that still say goodbye live on until they have.
    fn forget(&mut self, index: PeerIndex) {
        let Some(slot) = self.slots.remove(&index) else { return };
        self.addresses.remove(&slot.neighbor.address);
        if slot.dynamic
            && let Some(count) = self.range_sizes.get_mut(&slot.neighbor.source.name)
        {
            *count -= 1;
            if *count == 0 {
                self.range_sizes.remove(&slot.neighbor.source.name);
            }
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
                        connection.queue(Bytes::from(bytes));
                        connection.wake.notify_one();
                    }
                }
                Output::Established(id, negotiated) => self.established(index, id, &negotiated, now),
                Output::Down { .. } => {
                    slot.end_of_rib.clear();
                    slot.announced.clear();
                    self.pipeline.peer_down(index);
                }
                Output::Log(event) => log(&slot.neighbor.name, slot.neighbor.address, &event),
            }
        }
        self.arm(index);
        self.end_dynamic(index);
    }

    /// A peer of a listen range has no life beyond its connections: it does not dial, nor wait for others.
    fn end_dynamic(&mut self, index: PeerIndex) {
        let is_over = |slot: &Slot| slot.dynamic && slot.session.connection().is_none();
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
            connection.wake.notify_one();
        } else if let Some(slot) = self.slots.get_mut(&index)
            && let Some(Some(task)) = slot.dialing.remove(&id)
        {
            task.abort();
        }
    }

    fn established(&mut self, index: PeerIndex, id: ConnId, negotiated: &Negotiated, now: Instant) {
        let (Some(slot), Some(connection)) = (self.slots.get_mut(&index), self.connections.get(&(index, id)))
        else {
            return;
        };
        slot.last_update = Some(now);
        self.kept.insert((index, id));
        self.effects.push_back(Effect::Keep((index, id)));
        let local = connection.local.ip();
        let facts = SessionFacts {
            families: negotiated.families.clone(),
            four_octet_as: negotiated.four_octet_as,
            max_message_len: negotiated.max_sent,
            extended_next_hop: negotiated.extended_next_hop.contains(&Family::IPV4_UNICAST),
            router_id: negotiated.router_id,
            peer_address: connection.remote.ip(),
            next_hop_v4: slot.neighbor.next_hop_v4(local),
            next_hop_v6: slot.neighbor.next_hop_v6(local),
            link_local: None,
            interface: 0,
        };
        for family in facts.families.iter().filter(|family| !has_next_hop(&facts, **family)) {
            warn!(peer = slot.neighbor.name, %family, "no own address of this family for the next hop: \
                set next-hop-ipv4 or next-hop-ipv6; only routes that keep their next hop are announced");
        }
        // The peer of a range is known only now.
        self.pipeline.configure_peer(index, slot.neighbor.pipeline(&self.settings, Some(negotiated.asn)));
        if let Err(error) = self.pipeline.peer_up(index, facts) {
            warn!(peer = slot.neighbor.name, "{error}");
            self.input(index, Input::Stop(StopReason::OutOfResources), now);
        }
    }

    /// Another configuration of a peer whose session stays.
    pub(crate) fn change_peer(&mut self, index: PeerIndex, neighbor: Neighbor) {
        if let Some(slot) = self.slots.get_mut(&index) {
            slot.neighbor = neighbor;
            let asn = slot.session.negotiated().map(|negotiated| negotiated.asn);
            self.pipeline.configure_peer(index, slot.neighbor.pipeline(&self.settings, asn));
        }
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

    /// Whether the peers have sent everything they have since this process started, or have had their time: a peer
    /// without End-of-RIB is taken to be done when it has been quiet.
    pub(crate) fn is_synced(&mut self, now: Instant) -> bool {
        if !self.synced {
            let done = |slot: &Slot| {
                let Some(negotiated) = slot.session.negotiated() else { return slot.neighbor.disabled };
                let said = negotiated.families.iter().all(|family| slot.end_of_rib.contains(family));
                let quiet = if negotiated.graceful_restart.is_some() { QUIET_FOR_ALL } else { QUIET };
                said || slot.last_update.is_some_and(|at| now.saturating_duration_since(at) > quiet)
            };
            let over = now.saturating_duration_since(self.started) >= self.settings.sync;
            self.synced = over || self.slots.values().filter(|slot| !slot.dynamic).all(done);
        }
        self.synced
    }

    /// When [`Self::expire`] has something to do.
    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        self.deadlines.first().map(|&(at, _)| at)
    }

    /// Runs the timers that are due.
    pub(crate) fn expire(&mut self, now: Instant) {
        while let Some(&(at, index)) = self.deadlines.first()
            && at <= now
        {
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

    /// The task that dials, so that it can be given up.
    pub(crate) fn dialing(&mut self, (index, id): Key, task: AbortHandle) {
        match self.slots.get_mut(&index).and_then(|slot| slot.dialing.get_mut(&id)) {
            Some(place) => *place = Some(task),
            None => task.abort(),
        }
    }

    /// A dialled connection is there; whether it is still wanted.
    pub(crate) fn connected(&mut self, key: Key, stream: TcpStream, now: Instant) -> bool {
        let wanted = self.slots.get_mut(&key.0).is_some_and(|slot| slot.dialing.remove(&key.1).is_some());
        if !wanted {
            return false;
        }
        match Connection::new(stream, now) {
            Ok(connection) => {
                self.connections.insert(key, connection);
                self.input(key.0, Input::Connected(key.1), now);
                true
            }
            Err(error) => {
                self.input(key.0, Input::ConnectFailed(key.1, &error.to_string()), now);
                false
            }
        }
    }

    /// Dialling failed.
    pub(crate) fn connect_failed(&mut self, key: Key, error: &io::Error, now: Instant) {
        if let Some(slot) = self.slots.get_mut(&key.0) {
            slot.dialing.remove(&key.1);
            self.input(key.0, Input::ConnectFailed(key.1, &error.to_string()), now);
        }
    }

    /// A connection came in from a peer that is known: its key, if it was taken.
    pub(crate) fn accepted(&mut self, index: PeerIndex, stream: TcpStream, now: Instant) -> Option<Key> {
        let key = self.accept(index, stream, now);
        self.end_dynamic(index);
        key
    }

    fn accept(&mut self, index: PeerIndex, stream: TcpStream, now: Instant) -> Option<Key> {
        let slot = self.slots.get(&index)?;
        if slot.neighbor.source.ttl_security
            && let Err(error) = require_one_hop(&stream)
        {
            warn!(peer = slot.neighbor.name, "connection refused: GTSM cannot be switched on: {error}");
            return None;
        }
        let connection = Connection::new(stream, now).ok()?;
        let id = ConnId(self.next_accepted);
        self.next_accepted = (self.next_accepted + 1) % ConnId::FIRST_DIALLED.0;
        self.connections.insert((index, id), connection);
        self.input(index, Input::Accepted(id), now);
        Some((index, id))
    }

    /// The configured or dynamic peer at an address.
    pub(crate) fn peer_at(&self, address: IpAddr) -> Option<PeerIndex> {
        self.addresses.get(&address).copied()
    }

    /// Whether a listen range may have one more peer. Those that are saying goodbye count: they hold a connection.
    pub(crate) fn has_room(&self, range: &str) -> bool {
        self.slots.len() + self.leaving.len() < MOST_PEERS
            && self.leaving.len() < MOST_PER_RANGE
            && self.range_sizes.get(range).is_none_or(|&count| count < MOST_PER_RANGE)
    }

    /// A peer by the name or address that an operator gave.
    pub(crate) fn peer_named(&self, text: &str) -> Option<PeerIndex> {
        let named = self.slots.iter().find(|(_, slot)| slot.neighbor.name == text).map(|(&index, _)| index);
        named.or_else(|| text.parse().ok().and_then(|address| self.peer_at(address)))
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
        // Otherwise the keeper's copy would hold the connection open.
        if self.kept.remove(&key) {
            self.effects.push_back(Effect::Release(key));
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

    /// Reads once from a connection and takes in every whole message.
    pub(crate) fn receive(&mut self, key: Key, now: Instant) -> Read {
        let Some(connection) = self.connections.get_mut(&key) else { return Read::Gone };
        if connection.closing {
            return Read::Gone;
        }
        let mut buffer = std::mem::take(&mut self.buffer);
        let partial = connection.take_partial();
        let start = partial.len();
        buffer.resize(start + READ, 0);
        buffer[..start].copy_from_slice(&partial);
        let read = connection.stream.try_read(&mut buffer[start..]);
        let outcome = match read {
            Ok(0) => {
                self.lost(key, None, now);
                Read::Gone
            }
            Ok(count) => {
                connection.last_read = now;
                self.messages(key, &buffer[..start + count], now, count == READ)
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                connection.keep_partial(&partial);
                Read::Wait
            }
            Err(error) => {
                self.lost(key, Some(error.kind()), now);
                Read::Gone
            }
        };
        buffer.truncate(READ);
        self.buffer = buffer;
        outcome
    }

    fn messages(&mut self, key: Key, mut bytes: &[u8], now: Instant, full: bool) -> Read {
        let (index, id) = key;
        loop {
            let Some(slot) = self.slots.get_mut(&index) else { return Read::Gone };
            match next_message(bytes, slot.session.max_received(id)) {
                Ok(Some(message)) => {
                    bytes = &bytes[message.wire.len()..];
                    if slot.session.handle(Input::Message(id, message.kind, message.body), now)
                        == Disposition::Deliver
                        && let Err(refused) = self.deliver(index, message.kind, message.body, now)
                    {
                        self.input(index, Input::UpdateRefused(id, refused), now);
                    }
                    self.drain(index, now);
                }
                Ok(None) => break,
                Err(error) => {
                    self.input(index, Input::FramingError(id, error), now);
                    return Read::Gone;
                }
            }
            if self.connections.get(&key).is_none_or(|connection| connection.closing) {
                return Read::Gone;
            }
        }
        if let Some(connection) = self.connections.get_mut(&key)
            && !bytes.is_empty()
        {
            connection.keep_partial(bytes);
        }
        if full { Read::More } else { Read::Wait }
    }

    fn deliver(
        &mut self,
        index: PeerIndex,
        kind: MessageType,
        body: &[u8],
        now: Instant,
    ) -> Result<(), Notification> {
        match kind {
            MessageType::Update => {
                if let Some(slot) = self.slots.get_mut(&index) {
                    slot.last_update = Some(now);
                }
                self.pipeline.update(index, body)
            }
            MessageType::RouteRefresh => {
                let refresh = RouteRefresh::parse(body)?;
                // RFC 2918 section 4: a family that was not negotiated is ignored, as is what we did not offer.
                if refresh.subtype == 0 {
                    self.pipeline.route_refresh(index, refresh.family);
                }
                Ok(())
            }
            MessageType::Open | MessageType::Notification | MessageType::KeepAlive => Ok(()),
        }
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
                }
                Event::Announced { peer, family } => {
                    if let Some(slot) = self.slots.get_mut(&peer) {
                        slot.announced.insert(family);
                    }
                }
                Event::TooSlow { peer } => {
                    if let Some(slot) = self.slots.get(&peer) {
                        warn!(
                            peer = slot.neighbor.name,
                            "reads too slowly for what it missed to be remembered: resetting"
                        );
                    }
                    self.input(peer, Input::Stop(StopReason::OutOfResources), now);
                }
            }
        }
    }

    /// Writes to peers for which the pipeline has something new, at once: a route does not wait for a task to be woken.
    /// Whoever has more than one write takes, or a full socket, is left to the task of its connection. Returns
    /// whether there are more peers than one turn is for.
    pub(crate) fn write_ready(&mut self, now: Instant) -> bool {
        for _ in 0..WRITES_PER_TURN {
            let Some(index) = self.pipeline.poll_ready() else { return false };
            let Some((key, connection)) = self.session_connection(index) else { continue };
            let wake = Rc::clone(&connection.wake);
            if self.transmit_chunks(key, 1, now) != Write::Idle {
                wake.notify_one();
            }
        }
        true
    }

    /// Whether nothing should be read for a moment: the rib, or a peer that takes what it is sent, is far behind.
    pub(crate) fn is_pressed(&self) -> bool {
        self.pipeline.is_pressed(|index| {
            self.session_connection(index).is_some_and(|(_, connection)| connection.queued() == 0)
        })
    }

    /// Tells the pipeline how far the receivers have come, so that background work goes at their pace. Only those are
    /// asked for that something was written to since they had everything.
    pub(crate) fn pace(&mut self) {
        let mut peers = std::mem::take(&mut self.unacknowledged);
        peers.retain(|&index| {
            let Some((_, connection)) = self.session_connection(index) else { return false };
            let in_socket = holdfast_sys::tcp::unacknowledged(&*connection.stream).unwrap_or(0);
            let waiting = connection.queued() + in_socket as usize;
            self.pipeline.set_paced(index, waiting);
            waiting > 0
        });
        self.unacknowledged = peers;
    }

    /// Sends to a connection what is queued and what the pipeline has, as far as the socket takes it.
    pub(crate) fn transmit(&mut self, key: Key, now: Instant) -> Write {
        self.transmit_chunks(key, CHUNKS_PER_TURN, now)
    }

    fn transmit_chunks(&mut self, key: Key, chunks: usize, now: Instant) -> Write {
        // What is queued already goes first: behind a full socket nothing is taken out of the pipeline.
        for _ in 0..=chunks {
            let Some(connection) = self.connections.get_mut(&key) else { return Write::Gone };
            match connection.write(now) {
                Ok((written, progress)) => {
                    let closing = connection.closing;
                    if progress {
                        self.unacknowledged.insert(key.0);
                        self.input(key.0, Input::Sent(key.1), now);
                    }
                    match written {
                        Written::Blocked => return Write::Blocked,
                        Written::All if closing => return Write::Finish,
                        Written::All => {}
                    }
                }
                Err(error) => {
                    self.lost(key, Some(error.kind()), now);
                    return Write::Gone;
                }
            }
            if !self.pull(key) {
                return Write::Idle;
            }
        }
        Write::Yield
    }

    /// Moves messages from the pipeline to the connection of an established session, as many as one write is for.
    fn pull(&mut self, key: Key) -> bool {
        let Some(slot) = self.slots.get_mut(&key.0) else { return false };
        let on_this = slot.session.connection().is_some_and(|(id, _)| id == key.1);
        if !on_this || slot.session.state() != State::Established {
            return false;
        }
        let Some(connection) = self.connections.get_mut(&key) else { return false };
        while connection.queued() < CHUNK
            && let Some(messages) = self.pipeline.pull(key.0, CHUNK - connection.queued())
        {
            slot.session.count_sent(MessageType::Update, messages.count);
            connection.queue(messages.bytes);
        }
        connection.queued() > 0
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
}

/// Whether routes of a family can be announced with an address of ours.
fn has_next_hop(facts: &SessionFacts, family: Family) -> bool {
    match family {
        Family::IPV4_UNICAST => {
            facts.next_hop_v4.is_some() || facts.extended_next_hop && facts.next_hop_v6.is_some()
        }
        _ => facts.next_hop_v6.is_some(),
    }
}

/// GTSM (RFC 5082): a listener serves peers with and without it, so the least TTL is for us to set.
fn require_one_hop(stream: &TcpStream) -> io::Result<()> {
    let version = match stream.peer_addr()?.ip().to_canonical() {
        IpAddr::V4(_) => holdfast_sys::tcp::IpVersion::V4,
        IpAddr::V6(_) => holdfast_sys::tcp::IpVersion::V6,
    };
    holdfast_sys::tcp::set_min_ttl(stream, version, 255)
}

/// One line per change of adjacency; attempts that failed are for debugging.
fn log(peer: &str, address: IpAddr, event: &SessionEvent) {
    match event {
        SessionEvent::Established(_) => info!(peer, %address, "{event}"),
        SessionEvent::Down(_) => warn!(peer, %address, "{event}"),
        SessionEvent::OpenFailed(..) | SessionEvent::WithoutCapabilities => info!(peer, %address, "{event}"),
        SessionEvent::ConnectFailed(_)
        | SessionEvent::ConnectTimedOut
        | SessionEvent::CollisionLost(_)
        | SessionEvent::RefusedWhileIdle => debug!(peer, %address, "{event}"),
    }
}

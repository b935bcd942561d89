//! One table of `bgp`: its log, the sockets of its sessions, and how far each of them is.

use std::{
    collections::{BTreeMap, btree_map::Entry},
    io,
    net::Ipv6Addr,
    os::fd::{AsFd, OwnedFd},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use holdfast_api::{bgp::v1::HeldSession, stored::v1 as stored};
use holdfast_gate::{Claim, Connection, Gating, Marks, SlotState};
use holdfast_nsr::{Reader, SessionId, Shared};
use holdfast_sys::{memory::ForeignMemory, repair, tcp};
use prost::Message;
use rustix::net::{RecvFlags, recv, sockopt};

use crate::copier::{Copier, Mark};

/// Octets of a socket that are looked at at once.
pub(crate) const PEEKED: usize = 256 << 10;

/// The log of `bgp`, mapped beside its writer.
#[derive(Debug)]
pub(crate) struct LogMemory(ForeignMemory);

impl Shared for LogMemory {
    fn len(&self) -> usize {
        self.0.octets()
    }

    #[inline]
    fn load(&self, at: usize) -> u64 {
        self.0.load(at)
    }

    fn copy(&self, at: usize, into: &mut [u8]) {
        self.0.copy(at, into);
    }
}

/// The socket of a session.
#[derive(Debug)]
struct Socket {
    /// Of the descriptor at the keeper.
    number: u64,
    descriptor: OwnedFd,
    connection: Connection,
    /// We have dialled.
    dialled: bool,
    /// What it can be made again with was told to the copier.
    is_told: bool,
}

impl Socket {
    /// Octets that its count of what was sent has more than the stream, which begins at this offset: who has dialled has the SYN
    /// counted, but not in a socket that was made again.
    fn dialled(&self, origin: u64) -> u64 {
        u64::from(self.dialled && origin == 0)
    }
}

/// Why a session is not protected by the store.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Unprotected {
    /// Its socket is not known yet.
    NoSocket,
    /// The door carries its connection, which ends with the door.
    Carried,
    /// The gate has not seen it yet.
    Unseen,
    /// Its connection is older than the gate.
    Older,
    /// The store does not have it yet.
    NotCopied,
    /// There are more sessions than marks.
    NoSlot,
}

impl Unprotected {
    pub(crate) fn text(self) -> &'static str {
        match self {
            Self::NoSocket => "its socket is not known yet",
            Self::Carried => "its connection is carried by the process transport (TLS or QUIC)",
            Self::Unseen => "the gate has not seen its connection yet",
            Self::Older => "its connection is older than the gate: it is protected once it has begun anew",
            Self::NotCopied => "the store does not have it yet",
            Self::NoSlot => "there are too many sessions",
        }
    }
}

/// A log, and which it is.
#[derive(Debug)]
struct MappedLog {
    /// Of the descriptor at the keeper.
    number: u64,
    file: File,
    copier: Copier<LogMemory>,
}

/// What a descriptor is of, whoever has it, and whatever the keeper calls it.
type File = (u64, u64);

fn file(descriptor: &OwnedFd) -> Option<File> {
    rustix::fs::fstat(descriptor).ok().map(|stat| (stat.st_dev, stat.st_ino))
}

/// A table.
#[derive(Debug)]
pub(crate) struct Table {
    /// Empty: the default table.
    pub(crate) vrf: String,
    /// Its number in marks.
    number: u32,
    /// Where BGP listens.
    port: u16,
    /// What the keeper has of it, by key, each with its number.
    pub(crate) kept: BTreeMap<String, u64>,
    log: Option<MappedLog>,
    /// Why there is none.
    pub(crate) trouble: Option<String>,
    sockets: BTreeMap<SessionId, Socket>,
    /// Sessions whose connections the door carries.
    carried: BTreeMap<SessionId, u64>,
    slots: BTreeMap<SessionId, Claim>,
    confirmed: BTreeMap<SessionId, Mark>,
    /// Of each session the offsets at which its socket began to count.
    origins: BTreeMap<SessionId, (u64, u64)>,
    /// The hold times that were agreed on; none where there is none.
    hold_times: BTreeMap<SessionId, Duration>,
}

/// The words of a key of the keeper: which descriptor of which table.
fn split(key: &str) -> (&str, &str) {
    key.split_once('@').unwrap_or((key, ""))
}

fn session_of(name: &str) -> Option<SessionId> {
    name.strip_prefix("session-")?.parse().ok().map(SessionId)
}

impl Table {
    pub(crate) fn new(vrf: &str, number: u32, port: u16) -> Self {
        Self {
            vrf: vrf.to_owned(),
            number,
            port,
            kept: BTreeMap::new(),
            log: None,
            trouble: None,
            sockets: BTreeMap::new(),
            carried: BTreeMap::new(),
            slots: BTreeMap::new(),
            confirmed: BTreeMap::new(),
            origins: BTreeMap::new(),
            hold_times: BTreeMap::new(),
        }
    }

    /// Whether a key of the keeper is this table's.
    pub(crate) fn owns(&self, key: &str) -> bool {
        let (name, vrf) = split(key);
        vrf == self.vrf && (name == "log" || session_of(name).is_some())
    }

    /// What the keeper has under a key now; 0: nothing.
    pub(crate) fn noted(&mut self, key: String, number: u64) {
        let id = session_of(split(&key).0);
        if number != 0 {
            self.kept.insert(key, number);
            return;
        }
        self.kept.remove(&key);
        if let Some(id) = id {
            self.sockets.remove(&id);
            self.carried.remove(&id);
        }
    }

    /// Keys whose descriptors are not here yet, or are others by now.
    pub(crate) fn wanted(&self) -> Vec<(String, u64)> {
        let has = |key: &str, number: u64| match session_of(split(key).0) {
            Some(id) => {
                self.sockets.get(&id).is_some_and(|socket| socket.number == number)
                    || self.carried.get(&id) == Some(&number)
            }
            None => self.log.as_ref().is_some_and(|log| log.number == number),
        };
        let missing = self.kept.iter().filter(|(key, number)| !has(key, **number));
        missing.map(|(key, number)| (key.clone(), *number)).collect()
    }

    /// Takes a descriptor of the keeper. True: it is another log, and nothing of what the store has belongs to it.
    pub(crate) fn take(&mut self, key: &str, number: u64, descriptor: OwnedFd) -> bool {
        match session_of(split(key).0) {
            Some(id) => {
                self.take_socket(id, number, descriptor);
                false
            }
            None => {
                let Some(file) = file(&descriptor) else { return false };
                if let Some(log) = self.log.as_mut().filter(|log| log.file == file) {
                    // Another keeper counts anew.
                    log.number = number;
                    return false;
                }
                let reader = ForeignMemory::from_descriptor(&descriptor)
                    .map_err(|error| error.to_string())
                    .and_then(|memory| Reader::new(LogMemory(memory)).map_err(|error| error.to_string()));
                match reader {
                    Ok(reader) => {
                        self.trouble = None;
                        let copier = Copier::new(reader, self.number, &self.vrf);
                        self.log = Some(MappedLog { number, file, copier });
                    }
                    Err(error) => {
                        self.trouble = Some(format!("the log cannot be read: {error}"));
                        self.log = None;
                        // Not to be asked for again.
                        self.kept.remove(key);
                    }
                }
                self.origins.clear();
                // The copier of this log has been told nothing.
                self.sockets.values_mut().for_each(|socket| socket.is_told = false);
                self.leave_out();
                true
            }
        }
    }

    fn take_socket(&mut self, id: SessionId, number: u64, descriptor: OwnedFd) {
        self.origins.remove(&id);
        match connection(&descriptor, self.number) {
            Ok(connection) => {
                let dialled = connection.local_port != self.port;
                self.sockets.insert(id, Socket { number, descriptor, connection, dialled, is_told: false });
                self.carried.remove(&id);
            }
            // A pair, or a socket that has ended.
            Err(_) => {
                self.carried.insert(id, number);
                self.sockets.remove(&id);
            }
        }
        self.leave_out();
    }

    /// What the store cannot have is not copied.
    fn leave_out(&mut self) {
        let carried = self.carried.keys().copied().collect();
        if let Some(copier) = self.copier() {
            copier.leave_out(carried);
        }
    }

    /// Copies of the sockets that were made again and not released: whoever was to do so has died.
    pub(crate) fn unreleased(&self) -> Vec<OwnedFd> {
        let sockets = self.sockets.values().map(|socket| &socket.descriptor);
        let unreleased = sockets.filter(|socket| repair::is_under_way(socket).unwrap_or(false));
        unreleased.filter_map(|socket| socket.try_clone().ok()).collect()
    }

    /// Whether this is the log that is copied.
    pub(crate) fn has_log(&self, log: &OwnedFd) -> bool {
        self.log.as_ref().is_some_and(|mapped| Some(mapped.file) == file(log))
    }

    /// What copies the log.
    pub(crate) fn copier(&mut self) -> Option<&mut Copier<LogMemory>> {
        self.log.as_mut().map(|log| &mut log.copier)
    }

    /// The store has nothing of it.
    pub(crate) fn restart(&mut self) {
        self.copier().into_iter().for_each(Copier::restart);
        self.confirmed.clear();
    }

    /// The store has a session up to here.
    pub(crate) fn confirmed(&mut self, mark: Mark, marks: &Marks) {
        self.confirmed.insert(mark.id, mark);
        if let Some(claim) = self.slots.get(&mark.id).copied()
            && let Some((received, sent)) = self.offsets(mark)
        {
            marks.set_watermarks(claim, received, sent);
        }
    }

    /// Offsets of a mark as the gate counts: from the first octet behind the SYN of either side.
    fn offsets(&self, mark: Mark) -> Option<(u64, u64)> {
        let (received, sent) = *self.origins.get(&mark.id)?;
        let socket = self.sockets.get(&mark.id)?;
        let sent = mark.sent.saturating_sub(sent).saturating_sub(socket.dialled(sent));
        Some((mark.received.saturating_sub(received), sent))
    }

    /// What the socket of a session can be made again with, once the gate has seen where it began.
    fn tell_socket(&mut self, id: SessionId, claim: Claim, marks: &Marks) {
        let Some(socket) = self.sockets.get_mut(&id).filter(|socket| !socket.is_told) else { return };
        let Some((ours, theirs)) = marks.numbers(claim) else { return };
        let Some((received, sent)) = self.origins.get(&id).copied() else { return };
        let Ok(agreed) = repair::agreed(&socket.descriptor) else { return };
        // Behind the SYN is where the socket began to count.
        let behind = |number: u32, origin: u64| number.wrapping_add(1).wrapping_sub(origin as u32);
        let zeros = (behind(ours, sent + socket.dialled(sent)), behind(theirs, received));
        let stored = to_store(&socket.connection, zeros, &agreed).encode_to_vec();
        socket.is_told = true;
        if let Some(log) = &mut self.log {
            log.copier.set_socket(id, Some(stored));
        }
    }

    /// The shortest hold time of its sessions; `None`: none has one.
    pub(crate) fn shortest_hold_time(&self) -> Option<Duration> {
        self.hold_times.values().min().copied()
    }

    /// Whether no session has a slot.
    pub(crate) fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// Whether a slot is one of this table's sessions.
    pub(crate) fn has_slot(&self, claim: Claim) -> bool {
        self.slots.values().any(|own| *own == claim)
    }

    /// The sessions of the log before are no more: what they have still to say may leave.
    pub(crate) fn free_slots(&mut self, marks: &Marks) {
        for claim in std::mem::take(&mut self.slots).into_values() {
            marks.free(claim);
        }
        self.confirmed.clear();
    }

    /// Nothing of its log and sockets is of use any more. Slots stay as they are, and are nobody's.
    pub(crate) fn forget(&mut self) {
        let kept = std::mem::take(&mut self.kept);
        *self = Self { kept, ..Self::new(&self.vrf, self.number, self.port) };
    }

    /// Frees the slots of sessions that have left the log, and has one for each other that can be gated; then each slot says what
    /// `state` is for those that the store has. Whether anything has changed.
    pub(crate) fn gate(&mut self, marks: &Marks, state: SlotState) -> bool {
        let Some(MappedLog { copier, .. }) = &self.log else { return false };
        let mut has_changed = false;
        let present = copier.in_log();
        let gone: Vec<SessionId> = self.slots.keys().copied().filter(|id| !present.contains(id)).collect();
        for id in gone {
            // It has ended in order: what it has still to say, and its FIN, may leave.
            if let Some(claim) = self.slots.remove(&id) {
                has_changed |= marks.free(claim);
            }
            self.confirmed.remove(&id);
            self.origins.remove(&id);
            self.hold_times.remove(&id);
            if let Some(log) = &mut self.log {
                log.copier.set_socket(id, None);
            }
        }
        for id in present {
            let Some(connection) = self.sockets.get(&id).map(|socket| socket.connection) else { continue };
            if !self.origins.contains_key(&id)
                && let Some(MappedLog { copier, .. }) = &self.log
                && let Ok(record) = copier.record(id)
                && let Ok(held) = HeldSession::decode(&*record)
            {
                self.origins.insert(id, (held.received_origin, held.sent_origin));
                if held.hold_seconds > 0 {
                    self.hold_times.insert(id, Duration::from_secs(held.hold_seconds.into()));
                }
            }
            let claim = match self.slots.entry(id) {
                Entry::Occupied(entry) => *entry.get(),
                Entry::Vacant(entry) => {
                    // That of an earlier process, or a new one.
                    let is_its = |view: &holdfast_gate::View| view.connection == connection;
                    let before = (0..marks.slots() as u32).find_map(|slot| marks.view(slot).filter(is_its));
                    let new = || marks.claim(marks.free_slot()?, &connection, SlotState::Open, (0, 0));
                    let claim = before.map(|view| view.claim).or_else(new);
                    let Some(claim) = claim else { continue };
                    *entry.insert(claim)
                }
            };
            self.tell_socket(id, claim, marks);
            let offsets = self.confirmed.get(&id).and_then(|mark| self.offsets(*mark));
            // Of one that was made again the gate needs to have seen nothing.
            let is_restored = marks.view(claim.slot).is_some_and(|view| view.restored.is_some());
            let is_able = is_restored || marks.gating(claim) == Gating::Able;
            let Some((now, _, _)) = marks.watermarks(claim) else { continue };
            let wanted = match (offsets, state) {
                // Whoever must say nothing says nothing, whether the store has the session or not.
                (_, SlotState::Closed) => SlotState::Closed,
                _ if !is_able => SlotState::Open,
                (Some((received, sent)), state) => {
                    marks.set_watermarks(claim, received, sent);
                    state
                }
                // Of one that was gated the store has had something: it waits.
                (None, SlotState::Gated) if now != SlotState::Open => now,
                (None, _) => SlotState::Open,
            };
            if now != wanted {
                has_changed |= marks.set_state(claim, wanted);
            }
        }
        has_changed
    }

    /// Whether a session lacks octets that may be acknowledged: a copy that is begun anew has what `bgp` has read, and these lie
    /// in the socket.
    pub(crate) fn is_behind(&self, marks: &Marks) -> bool {
        let Some(MappedLog { copier, .. }) = &self.log else { return false };
        let present = copier.in_log();
        self.slots.iter().filter(|(id, _)| present.contains(id)).any(|(id, claim)| {
            let copied =
                copier.mark(*id).and_then(|mark| self.offsets(mark)).map_or(0, |(received, _)| received);
            marks.watermarks(*claim).is_some_and(|(_, received, _)| received > copied)
        })
    }

    /// Octets that lie in the socket of a session while `bgp` does not read: the gate waits for their acknowledgement, or has let
    /// it leave.
    pub(crate) fn peek(&mut self, marks: &Marks) -> Vec<(SessionId, u64, Vec<u8>)> {
        let Some(MappedLog { copier, .. }) = &self.log else { return Vec::new() };
        let waiting = self.slots.iter().filter_map(|(id, claim)| {
            let mark = copier.mark(*id)?;
            let (received, _) = self.offsets(mark)?;
            (acknowledged(marks, *claim) > received).then_some((*id, mark))
        });
        let waiting: Vec<_> = waiting.collect();
        waiting
            .into_iter()
            .filter_map(|(id, mark)| {
                let (socket, origin) = (self.sockets.get(&id)?, self.origins.get(&id)?.0);
                let (from, octets) = peek(&socket.descriptor, origin, mark.received).ok()?;
                Some((id, from, octets))
            })
            .collect()
    }

    /// The sessions of the log, each with what it lacks, and how far it is.
    pub(crate) fn sessions(&self, marks: &Marks) -> Vec<SessionStatus> {
        let Some(MappedLog { copier, .. }) = &self.log else { return Vec::new() };
        let status = |id| {
            let socket = self.sockets.get(&id);
            let claim = self.slots.get(&id).copied();
            let confirmed = self.confirmed.get(&id).copied();
            let lacks = match (socket, claim) {
                (None, _) if self.carried.contains_key(&id) => Some(Unprotected::Carried),
                (None, _) => Some(Unprotected::NoSocket),
                (Some(_), None) => Some(Unprotected::NoSlot),
                (Some(_), Some(claim)) => match marks.gating(claim) {
                    Gating::Older => Some(Unprotected::Older),
                    Gating::Unseen => Some(Unprotected::Unseen),
                    Gating::Able => {
                        let is_copied = confirmed.is_some() && copier.has_socket(id);
                        (!is_copied).then_some(Unprotected::NotCopied)
                    }
                },
            };
            let remote = socket.map(|socket| socket.connection.remote);
            let (received, sent) = confirmed.and_then(|mark| self.offsets(mark)).unwrap_or_default();
            let wanted = claim.and_then(|claim| marks.wanted(claim)).unwrap_or_default();
            let state = claim.and_then(|claim| marks.watermarks(claim)).map(|(state, _, _)| state);
            let waits_since = claim.and_then(|claim| marks.waits_since(claim));
            SessionStatus { id, remote, lacks, state, received, sent, wanted, waits_since }
        };
        copier.in_log().into_iter().map(status).collect()
    }
}

/// How far a session is.
#[derive(Clone, Debug)]
pub(crate) struct SessionStatus {
    pub(crate) id: SessionId,
    pub(crate) remote: Option<Ipv6Addr>,
    pub(crate) lacks: Option<Unprotected>,
    pub(crate) state: Option<SlotState>,
    pub(crate) received: u64,
    pub(crate) sent: u64,
    /// What waits at the gate.
    pub(crate) wanted: (u64, u64),
    /// Since when the first of it has: CLOCK_BOOTTIME in milliseconds.
    pub(crate) waits_since: Option<u64>,
}

/// The offset up to which a peer's octets are to be acknowledged, or may be.
fn acknowledged(marks: &Marks, claim: Claim) -> u64 {
    let (wanted, _) = marks.wanted(claim).unwrap_or_default();
    let (_, replicated, _) = marks.watermarks(claim).unwrap_or((SlotState::Open, 0, 0));
    wanted.max(replicated)
}

/// The ends of a TCP socket.
fn connection(socket: &OwnedFd, vrf: u32) -> io::Result<Connection> {
    let domain = sockopt::socket_domain(socket)?;
    if ![rustix::net::AddressFamily::INET, rustix::net::AddressFamily::INET6].contains(&domain) {
        return Err(io::ErrorKind::Unsupported.into());
    }
    let socket = std::net::TcpStream::from(socket.try_clone()?);
    let (local, remote) = (socket.local_addr()?, socket.peer_addr()?);
    Ok(Connection::new(local, remote, vrf))
}

/// An address as messages have it: 4 octets, or 16.
pub(crate) fn octets(address: Ipv6Addr) -> Vec<u8> {
    match address.to_ipv4_mapped() {
        Some(address) => address.octets().to_vec(),
        None => address.octets().to_vec(),
    }
}

/// A socket as the store has it.
fn to_store(connection: &Connection, zeros: (u32, u32), agreed: &repair::Agreed) -> stored::Socket {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
    stored::Socket {
        local_address: octets(connection.local),
        local_port: connection.local_port.into(),
        remote_address: octets(connection.remote),
        remote_port: connection.remote_port.into(),
        sent_zero: zeros.0,
        received_zero: zeros.1,
        segment: agreed.segment.into(),
        selective: agreed.selective,
        scale_theirs: agreed.scales.map(|(theirs, _)| theirs.into()),
        scale_ours: agreed.scales.map(|(_, ours)| ours.into()),
        timestamp: agreed.timestamp,
        unix_milliseconds: u64::try_from(now).unwrap_or(u64::MAX),
        window: agreed.window,
    }
}

/// Octets that nobody has read, from an offset of the stream on, and from which they are.
fn peek(socket: &OwnedFd, origin: u64, known: u64) -> io::Result<(u64, Vec<u8>)> {
    let before = origin + tcp::consumed(socket.as_fd())?;
    // What is known already is passed over by the kernel.
    let skipped = known.saturating_sub(before);
    tcp::set_peek_offset(socket.as_fd(), u32::try_from(skipped).map_err(io::Error::other)?)?;
    let mut octets = vec![0; PEEKED];
    let (count, _) = recv(socket, &mut octets, RecvFlags::PEEK | RecvFlags::DONTWAIT)?;
    octets.truncate(count);
    // Whoever has read meanwhile has moved the offset: what was seen is of no known place.
    if origin + tcp::consumed(socket.as_fd())? != before {
        return Err(io::ErrorKind::WouldBlock.into());
    }
    Ok((before + skipped, octets))
}

#[cfg(test)]
mod tests;

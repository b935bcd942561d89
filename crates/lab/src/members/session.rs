//! The thread of all members: their connections, OPENs, KEEPALIVEs, and the judge of what comes.

use std::{
    io::{self, Read, Write},
    net::{SocketAddr, TcpStream},
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use holdfast_bgp_wire::{
    Capability, CeaseSubcode, KEEPALIVE, MAX_LEN, MessageType, Notification, Open, UpdateEncoder,
    attribute::{code, flag, push},
    next_message, nlri, update,
};
use holdfast_types::{Family, Ipv4Prefix, RouterId};
use rustix::{
    buffer::spare_capacity,
    event::{Timespec, epoll},
    io::Errno,
    net::{self, AddressFamily, SocketFlags, SocketType, sockopt},
};

use super::{Command, Member, MembersConfig, PROBES, Shared, State, WRONG, address, asn, number, prefix};

/// Between two attempts to connect.
const RETRY: Duration = Duration::from_millis(100);
/// Octets read from a member before others have their turn.
const READ: usize = 128 * 1024;
/// How often timers are looked at.
const TICK: Duration = Duration::from_millis(20);
/// Connections under way at once: the router's port takes no more.
const DIALS: usize = 64;
/// The event of the handle, beside those of the members.
const WOKEN: u64 = u64::MAX;

/// A member's connection.
#[derive(Debug)]
pub(super) struct Session {
    phase: Phase,
    stream: Option<TcpStream>,
    buffer: Vec<u8>,
    outgoing: Vec<u8>,
    sent: usize,
    /// The readiness that is asked for.
    wants_out: bool,
    next_keepalive: Option<Instant>,
    /// When the router's last message had come, at the latest.
    heard: Instant,
    interval: Duration,
    hold: Duration,
}

#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Phase {
    Waiting(Instant),
    Connecting,
    Opening,
    Established,
}

pub(super) struct Hub<'a> {
    shared: &'a Shared,
    epoll: std::os::fd::OwnedFd,
    sessions: Vec<Session>,
    probes: [bool; PROBES],
    chunk: Vec<u8>,
}

impl Session {
    fn new(now: Instant) -> Self {
        Self {
            phase: Phase::Waiting(now),
            stream: None,
            buffer: Vec::new(),
            outgoing: Vec::new(),
            sent: 0,
            wants_out: false,
            next_keepalive: None,
            heard: now,
            interval: Duration::ZERO,
            hold: Duration::ZERO,
        }
    }

    /// Gives the kernel what it takes.
    fn write(&mut self) -> io::Result<()> {
        let Some(stream) = &mut self.stream else { return Ok(()) };
        while self.sent < self.outgoing.len() {
            match stream.write(&self.outgoing[self.sent..]) {
                Ok(count) => self.sent += count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        self.outgoing.clear();
        self.sent = 0;
        Ok(())
    }
}

impl<'a> Hub<'a> {
    pub(super) fn new(shared: &'a Shared) -> Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        epoll::add(&epoll, &shared.woken, epoll::EventData::new_u64(WOKEN), epoll::EventFlags::IN)?;
        let now = Instant::now();
        let sessions = (0..shared.config.members).map(|_| Session::new(now)).collect();
        Ok(Self { shared, epoll, sessions, probes: [false; PROBES], chunk: vec![0; READ] })
    }

    pub(super) fn run(mut self) -> Result<()> {
        let mut events = Vec::with_capacity(256);
        let (mut looked, mut ticked) = (Instant::now(), Instant::now());
        loop {
            let asked = Instant::now();
            let tick = Timespec { tv_sec: 0, tv_nsec: TICK.as_nanos() as i64 };
            events.clear();
            match epoll::wait(&self.epoll, spare_capacity(&mut events), Some(&tick)) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(error).context("waiting for members"),
            }
            let now = Instant::now();
            // What is ready at once may have been so since the last time that was asked.
            let since = if now - asked < Duration::from_millis(1) { looked } else { now };
            looked = now;
            let shared = self.shared;
            let mut state = shared.lock();
            for event in &events {
                match event.data.u64() {
                    WOKEN => drop(rustix::io::read(&shared.woken, &mut [0_u8; 8])),
                    member => self.ready(member as usize, &mut state, since, now),
                }
            }
            for command in std::mem::take(&mut state.commands) {
                match command {
                    Command::Stop => {
                        drop(state);
                        self.stop();
                        return Ok(());
                    }
                    Command::Flap(member) => self.end(member, &mut state, None, now),
                    Command::Probe { number, announced } => {
                        self.probes[number] = announced;
                        let mut octets = Vec::new();
                        let prefixes = [prefix(shared.config.members * shared.config.prefixes + number)];
                        if announced {
                            announce(0, prefixes, &mut octets);
                        } else {
                            UpdateEncoder::new(MAX_LEN).withdraw(prefixes, &mut octets);
                        }
                        // Otherwise it is announced when the session comes up.
                        if self.sessions[0].phase == Phase::Established {
                            self.send(0, &octets, &mut state, now);
                        }
                    }
                }
            }
            if now - ticked >= TICK {
                ticked = now;
                self.tick(&mut state, now);
            }
            drop(state);
            shared.changed.notify_all();
        }
    }

    fn stop(&mut self) {
        let goodbye = Notification::cease(CeaseSubcode::AdministrativeShutdown).encode();
        for stream in self.sessions.iter_mut().filter_map(|session| session.stream.as_mut()) {
            // The session is over whether the router hears why or not.
            let _ = stream.write(&goodbye);
        }
    }

    /// What time has brought.
    fn tick(&mut self, state: &mut State, now: Instant) {
        let mut dials = self.sessions.iter().filter(|session| session.phase == Phase::Connecting).count();
        for member in 0..self.sessions.len() {
            let session = &mut self.sessions[member];
            match session.phase {
                Phase::Waiting(until) if now >= until && dials < DIALS => {
                    dials += 1;
                    match self.connect(member) {
                        Ok(()) => {}
                        Err(_) => self.sessions[member].phase = Phase::Waiting(now + RETRY),
                    }
                }
                Phase::Established if session.next_keepalive.is_some_and(|due| now >= due) => {
                    session.next_keepalive = Some(now + session.interval);
                    self.send(member, &KEEPALIVE, state, now);
                }
                Phase::Established if !session.hold.is_zero() && now - session.heard > session.hold => {
                    let silent = format!("hold time: no message for {:?}", now - session.heard);
                    self.end(member, state, Some(silent), now);
                }
                Phase::Waiting(_) | Phase::Connecting | Phase::Opening | Phase::Established => {}
            }
        }
    }

    fn connect(&mut self, member: usize) -> Result<()> {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let socket = net::socket_with(AddressFamily::INET, SocketType::STREAM, flags, None)?;
        sockopt::set_tcp_nodelay(&socket, true)?;
        net::bind(&socket, &SocketAddr::new(address(member).into(), 0))?;
        match net::connect(&socket, &self.shared.config.router) {
            Ok(()) | Err(Errno::INPROGRESS) => {}
            Err(error) => return Err(error.into()),
        }
        let flags = epoll::EventFlags::IN | epoll::EventFlags::OUT;
        epoll::add(&self.epoll, &socket, epoll::EventData::new_u64(member as u64), flags)?;
        let session = &mut self.sessions[member];
        *session = Session::new(Instant::now());
        session.phase = Phase::Connecting;
        session.wants_out = true;
        session.stream = Some(socket.into());
        Ok(())
    }

    /// Its session ends, or could not begin; `why` if nobody here wanted that.
    fn end(&mut self, member: usize, state: &mut State, why: Option<String>, now: Instant) {
        let session = &mut self.sessions[member];
        let was = session.phase;
        // Closed, it is in the list of events no more.
        *session = Session::new(now);
        session.phase = Phase::Waiting(if was == Phase::Established { now } else { now + RETRY });
        let known = &mut state.members[member];
        known.established = false;
        known.forget();
        if let (Phase::Established, Some(why)) = (was, why) {
            known.lost += 1;
            known.why = Some(why);
        }
    }

    /// Puts octets behind those that wait.
    fn send(&mut self, member: usize, octets: &[u8], state: &mut State, now: Instant) {
        self.sessions[member].outgoing.extend_from_slice(octets);
        self.flush(member, state, now);
    }

    fn flush(&mut self, member: usize, state: &mut State, now: Instant) {
        let session = &mut self.sessions[member];
        if let Err(error) = session.write() {
            return self.end(member, state, Some(format!("writing: {error}")), now);
        }
        let (Some(stream), wants) = (&session.stream, !session.outgoing.is_empty()) else { return };
        if session.wants_out != wants {
            session.wants_out = wants;
            let mut flags = epoll::EventFlags::IN;
            flags.set(epoll::EventFlags::OUT, wants);
            // A descriptor of ours that is open can be asked about.
            let _ = epoll::modify(&self.epoll, stream, epoll::EventData::new_u64(member as u64), flags);
        }
    }

    fn ready(&mut self, member: usize, state: &mut State, since: Instant, now: Instant) {
        if self.sessions[member].phase == Phase::Connecting {
            let error = self.sessions[member].stream.as_ref().map(TcpStream::take_error);
            if !matches!(error, Some(Ok(None))) {
                return self.end(member, state, None, now);
            }
            self.sessions[member].phase = Phase::Opening;
            let open = open(member, &self.shared.config).encode();
            self.send(member, &open, state, now);
        }
        if let Err(error) = self.read(member, state, since, now) {
            return self.end(member, state, Some(error), now);
        }
        self.flush(member, state, now);
    }

    fn read(&mut self, member: usize, state: &mut State, since: Instant, now: Instant) -> Result<(), String> {
        let session = &mut self.sessions[member];
        let Some(stream) = &mut session.stream else { return Ok(()) };
        match stream.read(&mut self.chunk) {
            Ok(0) => return Err("end of the connection".to_owned()),
            Ok(count) => session.buffer.extend_from_slice(&self.chunk[..count]),
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {
                return Ok(());
            }
            Err(error) => return Err(error.to_string()),
        }
        self.take_messages(member, state, since, now)
    }

    fn take_messages(
        &mut self,
        member: usize,
        state: &mut State,
        since: Instant,
        now: Instant,
    ) -> Result<(), String> {
        let config = &self.shared.config;
        let session = &mut self.sessions[member];
        let (known, wrong) = (&mut state.members[member], &mut state.wrong);
        let (mut taken, mut replies) = (0, Vec::new());
        while let Some(message) =
            next_message(&session.buffer[taken..], MAX_LEN).map_err(|error| format!("refused: {error}"))?
        {
            taken += message.wire.len();
            match message.kind {
                MessageType::Open => {
                    let open = Open::parse(message.body).map_err(|error| format!("refused: {error}"))?;
                    let hold = config.hold_time.min(open.hold_time);
                    session.hold = Duration::from_secs(hold.into());
                    session.interval = session.hold / 3;
                    replies.extend_from_slice(&KEEPALIVE);
                }
                MessageType::KeepAlive if session.phase == Phase::Opening => {
                    session.phase = Phase::Established;
                    (known.established, known.sessions) = (true, known.sessions + 1);
                    session.heard = now;
                    session.next_keepalive = (!session.interval.is_zero()).then_some(now + session.interval);
                    let own = member * config.prefixes..(member + 1) * config.prefixes;
                    announce(member, own.map(prefix), &mut replies);
                    let probes = self.probes.iter().enumerate().filter(|(_, on)| **on && member == 0);
                    let probes = probes.map(|(probe, _)| prefix(config.members * config.prefixes + probe));
                    announce(member, probes, &mut replies);
                    holdfast_bgp_wire::encode::end_of_rib(Family::IPV4_UNICAST, &mut replies);
                }
                MessageType::KeepAlive => {}
                MessageType::Update => {
                    if let Err(error) = told(member, known, message.body, config)
                        && wrong.len() < WRONG
                    {
                        wrong.push(format!("member {member}: {error}"));
                    }
                }
                MessageType::Notification => {
                    let notification = Notification::parse(message.body);
                    return Err(match notification {
                        Some(notification) => format!("received {notification}"),
                        None => "received a NOTIFICATION that cannot be read".to_owned(),
                    });
                }
                MessageType::RouteRefresh => {}
            }
        }
        if taken > 0 {
            session.buffer.drain(..taken);
            if session.phase == Phase::Established && !session.interval.is_zero() {
                let late = since.saturating_duration_since(session.heard + session.interval);
                known.latest = known.latest.max(late);
            }
            session.heard = now;
        }
        session.outgoing.extend_from_slice(&replies);
        Ok(())
    }
}

fn open(member: usize, config: &MembersConfig) -> Open {
    let asn = asn(member);
    let capabilities = vec![
        Capability::Multiprotocol(Family::IPV4_UNICAST),
        Capability::RouteRefresh,
        Capability::FourOctetAs(asn),
    ];
    let router_id = RouterId::new(address(member).to_bits()).expect("no address is zero");
    Open { asn, hold_time: config.hold_time, router_id, capabilities }
}

/// Appends announcements of a member's prefixes.
fn announce(member: usize, prefixes: impl IntoIterator<Item = Ipv4Prefix>, octets: &mut Vec<u8>) {
    let mut attributes = Vec::new();
    push(&mut attributes, flag::TRANSITIVE, code::ORIGIN, &[0]);
    push(&mut attributes, flag::TRANSITIVE, code::AS_PATH, &path(member));
    push(&mut attributes, flag::TRANSITIVE, code::NEXT_HOP, &address(member).octets());
    let announced = UpdateEncoder::new(MAX_LEN).announce(&attributes, prefixes, octets);
    announced.expect("three attributes leave room");
}

/// The value of AS_PATH: one hop.
fn path(member: usize) -> [u8; 6] {
    let [a, b, c, d] = asn(member).0.to_be_bytes();
    [2, 1, a, b, c, d]
}

/// Takes what a member is told.
fn told(member: usize, known: &mut Member, body: &[u8], config: &MembersConfig) -> Result<()> {
    let sections = update::sections(body)?;
    for prefix in nlri::prefixes::<Ipv4Prefix>(sections.withdrawn) {
        let number = number(prefix?).filter(|number| *number < config.all()).context("a prefix of nobody")?;
        known.set(number, 0);
        known.withdrawn += 1;
    }
    if sections.nlri.is_empty() {
        return Ok(());
    }
    let (mut as_path, mut next_hop, mut version) = (None, None, 0);
    let mut attributes = sections.attributes;
    while let [flags, kind, rest @ ..] = attributes {
        let (length, rest) = match (flags & flag::EXTENDED_LENGTH, rest) {
            (0, [length, rest @ ..]) => (usize::from(*length), rest),
            (_, [high, low, rest @ ..]) => (usize::from(u16::from_be_bytes([*high, *low])), rest),
            _ => anyhow::bail!("an attribute without a length"),
        };
        let (value, rest) = rest.split_at_checked(length).context("an attribute that is cut off")?;
        match *kind {
            code::AS_PATH => as_path = Some(value),
            code::NEXT_HOP => next_hop = Some(value),
            code::LARGE_COMMUNITIES => version = version_of(member, value, config)?,
            _ => {}
        }
        attributes = rest;
    }
    anyhow::ensure!(version != 0, "no community of the policy towards it");
    for prefix in nlri::prefixes::<Ipv4Prefix>(sections.nlri) {
        let prefix = prefix?;
        let number = number(prefix).filter(|number| *number < config.all()).context("a prefix of nobody")?;
        let owner = config.owner(number);
        anyhow::ensure!(owner != member, "its own prefix {prefix}");
        let expected = (path(owner), address(owner).octets());
        anyhow::ensure!(
            as_path == Some(&expected.0) && next_hop == Some(&expected.1),
            "{prefix} with path {as_path:?} and next hop {next_hop:?}"
        );
        known.set(number, version);
        known.announced += 1;
    }
    Ok(())
}

/// The version in the only large community, which names the member.
fn version_of(member: usize, value: &[u8], config: &MembersConfig) -> Result<u8> {
    let (words, rest) = value.as_chunks::<4>();
    let words: Vec<u32> = words.iter().map(|word| u32::from_be_bytes(*word)).collect();
    match (&words[..], rest) {
        ([ours, version @ 1..=255, to], []) if *ours == config.router_as && *to == member as u32 => {
            Ok(*version as u8)
        }
        _ => anyhow::bail!("large communities {words:?}"),
    }
}

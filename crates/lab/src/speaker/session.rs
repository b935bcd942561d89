//! The thread: connect or accept, OPEN, KEEPALIVE, then routes both ways until one side ends it.

use std::{
    io::{self, Read, Write},
    net::{TcpListener, TcpStream},
    os::unix::net::UnixStream,
    sync::{
        Arc,
        mpsc::{Receiver, TryRecvError},
    },
    time::{Duration, Instant},
};

use holdfast_bgp_wire::{
    Capability, CeaseSubcode, KEEPALIVE, MAX_EXTENDED_LEN, MAX_LEN, Message, MessageType, Notification, Open,
    UpdateEncoder, next_message,
    update::{AsSets, PeerKind, Rules},
};
use holdfast_types::{Afi, Family};
use rustix::event::{PollFd, PollFlags};

use super::{
    Command, Side, SpeakerConfig,
    outgoing::{Encoding, Outgoing},
    received::Shared,
    socket,
};

/// Between two attempts to connect.
const RETRY: Duration = Duration::from_millis(100);
/// For a connection and both OPENs.
const OPENING: Duration = Duration::from_secs(5);
/// Octets read in one go.
const READ: usize = 256 * 1024;

/// The speaker on its thread.
pub(super) struct Peer {
    config: SpeakerConfig,
    inbox: Receiver<Command>,
    woken: UnixStream,
    listener: Option<TcpListener>,
    shared: Arc<Shared>,
    stopped: bool,
    /// Octets received and not yet taken as messages.
    buffer: Vec<u8>,
    chunk: Vec<u8>,
    allowance: Allowance,
}

/// Why a session ended.
enum End {
    Stop,
    Flap,
    Failed(io::Error),
    Refused(Notification),
    Notified(Notification),
}

impl From<io::Error> for End {
    fn from(error: io::Error) -> Self {
        Self::Failed(error)
    }
}

impl From<Notification> for End {
    fn from(notification: Notification) -> Self {
        Self::Refused(notification)
    }
}

impl std::fmt::Display for End {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Stop => f.write_str("stopped"),
            Self::Flap => f.write_str("flapped"),
            Self::Failed(error) => error.fmt(f),
            Self::Refused(notification) => write!(f, "sent {notification}"),
            Self::Notified(notification) => write!(f, "received {notification}"),
        }
    }
}

/// How many octets a slow speaker may read now.
struct Allowance {
    rate: Option<usize>,
    left: usize,
    since: Instant,
}

impl Allowance {
    /// Octets to read now, at most a chunk.
    fn take(&mut self) -> usize {
        let Some(rate) = self.rate else { return READ };
        let earned = rate as u128 * self.since.elapsed().as_millis() / 1000;
        if earned > 0 {
            self.left = self.left.saturating_add(earned as usize).min(rate);
            self.since = Instant::now();
        }
        self.left.min(READ)
    }

    fn spend(&mut self, octets: usize) {
        self.left = self.left.saturating_sub(octets);
    }
}

impl Peer {
    pub(super) fn new(
        config: SpeakerConfig,
        inbox: Receiver<Command>,
        woken: UnixStream,
        listener: Option<TcpListener>,
        shared: Arc<Shared>,
    ) -> Self {
        let allowance = Allowance { rate: config.read_rate, left: 0, since: Instant::now() };
        let (buffer, chunk) = (Vec::new(), vec![0; READ]);
        Self { config, inbox, woken, listener, shared, stopped: false, buffer, chunk, allowance }
    }

    /// Sessions, one after the other.
    pub(super) fn run(mut self) {
        while !self.stopped {
            let end = match self.connection() {
                Ok(mut stream) => {
                    let end = self.session(&mut stream).err().unwrap_or(End::Stop);
                    self.say_goodbye(&mut stream, &end);
                    end
                }
                Err(end) => end,
            };
            self.stopped |= matches!(end, End::Stop);
            self.ended(&end);
            if !self.stopped && !self.config.reconnect && self.shared.lock().status.sessions > 0 {
                break;
            }
            self.pause();
        }
    }

    fn ended(&mut self, end: &End) {
        self.buffer.clear();
        self.shared.change(|state| {
            state.clear();
            state.status.ended = Some(end.to_string());
            if let End::Notified(notification) = end {
                state.status.notification = Some(notification.clone());
            }
        });
    }

    fn say_goodbye(&self, stream: &mut TcpStream, end: &End) {
        let last = match end {
            End::Stop => Notification::cease(CeaseSubcode::AdministrativeShutdown),
            End::Refused(notification) => notification.clone(),
            End::Flap | End::Failed(_) | End::Notified(_) => return,
        };
        // The session is over whether the peer hears why or not.
        let _ = stream.write(&last.encode());
    }

    /// Waits before the next attempt, unless a command comes.
    fn pause(&mut self) {
        let mut fds = [PollFd::new(&self.woken, PollFlags::IN)];
        if !self.stopped && socket::wait(&mut fds, RETRY).is_ok() {
            self.stopped = self.take_commands(None).is_err_and(|end| matches!(end, End::Stop));
        }
    }

    /// A connection, by either side.
    fn connection(&mut self) -> Result<TcpStream, End> {
        match self.config.side {
            Side::Listen(_) => self.accept(),
            Side::Connect(remote) => {
                let stream = socket::connect(self.config.local, remote, self.config.receive_buffer)?;
                self.wait_for(&stream, PollFlags::OUT)?;
                match stream.take_error()? {
                    Some(error) => Err(error.into()),
                    None => Ok(stream),
                }
            }
        }
    }

    fn accept(&mut self) -> Result<TcpStream, End> {
        let Some(listener) = self.listener.take() else {
            return Err(io::Error::from(io::ErrorKind::NotConnected).into());
        };
        let ready = self.wait_for(&listener, PollFlags::IN);
        let accepted = ready.and_then(|()| Ok(listener.accept()?.0));
        self.listener = Some(listener);
        let stream = accepted?;
        stream.set_nonblocking(true)?;
        Ok(stream)
    }

    /// Waits for a descriptor, and obeys commands meanwhile.
    fn wait_for(&mut self, fd: &impl std::os::fd::AsFd, flags: PollFlags) -> Result<(), End> {
        let start = Instant::now();
        while start.elapsed() < OPENING {
            let mut fds = [PollFd::new(fd, flags), PollFd::new(&self.woken, PollFlags::IN)];
            socket::wait(&mut fds, OPENING)?;
            let ready = socket::readable(&fds[0]) || socket::writable(&fds[0]);
            self.take_commands(None)?;
            if ready {
                return Ok(());
            }
        }
        Err(io::Error::from(io::ErrorKind::TimedOut).into())
    }

    fn session(&mut self, stream: &mut TcpStream) -> Result<(), End> {
        stream.set_nodelay(true)?;
        stream.write_all(&self.open().encode())?;
        let open = self.opened(stream)?;
        let external = open.asn != self.config.asn;
        let mut outgoing = Outgoing::new(self.encoding(&open, external));
        for table in &self.config.tables {
            outgoing.announce(Arc::clone(table));
        }
        outgoing.end_of_rib();
        let hold = self.config.hold_time.min(open.hold_time);
        let rules = Rules {
            four_octet_as: self.config.four_octet_as && four_octet_as(&open),
            extended_next_hop: true,
            ..Rules::new(if external { PeerKind::Ebgp } else { PeerKind::Ibgp }, AsSets::Accept)
        };
        self.shared.change(|state| {
            state.status.established = true;
            state.status.idle = false;
            state.status.sessions += 1;
            state.status.open = Some(open);
        });
        self.exchange(stream, outgoing, &rules, hold)
    }

    fn open(&self) -> Open {
        let config = &self.config;
        let mut capabilities: Vec<Capability> =
            config.families.iter().map(|family| Capability::Multiprotocol(*family)).collect();
        capabilities.push(Capability::RouteRefresh);
        // RFC 4724 section 3: preserves nothing, but says when all has been sent.
        capabilities.push(Capability::GracefulRestart {
            restarting: false,
            notification: false,
            time: 0,
            families: Vec::new(),
        });
        if config.four_octet_as {
            capabilities.push(Capability::FourOctetAs(config.asn));
        }
        if config.extended_messages {
            capabilities.push(Capability::ExtendedMessage);
        }
        let directions = [(config.signs, true), (config.takes_signed, false)];
        for (_, send) in directions.into_iter().filter(|(is_on, _)| *is_on) {
            let families = config.families.iter();
            capabilities.extend(families.map(|family| Capability::Bgpsec {
                version: 0,
                send,
                afi: family.afi,
            }));
        }
        if config.next_hop_v4.is_ipv6() {
            capabilities.push(Capability::ExtendedNextHop(vec![(Family::IPV4_UNICAST, Afi::IPV6)]));
        }
        Open { asn: config.asn, hold_time: config.hold_time, router_id: config.router_id, capabilities }
    }

    fn encoding(&self, open: &Open, external: bool) -> Encoding {
        let extended =
            self.config.extended_messages && open.capabilities.contains(&Capability::ExtendedMessage);
        let families = self.config.families.iter().copied();
        let offered = |family: &Family| {
            // RFC 4760 section 8: without the capability there is IPv4 unicast.
            let all = || open.capabilities.iter().filter(|c| matches!(c, Capability::Multiprotocol(_)));
            all().any(|c| *c == Capability::Multiprotocol(*family))
                || all().next().is_none() && *family == Family::IPV4_UNICAST
        };
        Encoding {
            encoder: UpdateEncoder::new(if extended { MAX_EXTENDED_LEN } else { MAX_LEN }),
            external,
            four_octet_as: self.config.four_octet_as && four_octet_as(open),
            families: families.filter(offered).collect(),
        }
    }

    /// Waits for the peer's OPEN and KEEPALIVE and answers.
    fn opened(&mut self, stream: &mut TcpStream) -> Result<Open, End> {
        let mut open = None;
        let start = Instant::now();
        while start.elapsed() < OPENING {
            while let Some(message) = next_message(&self.buffer, MAX_LEN)? {
                let Message { kind, body, wire } = message;
                let length = wire.len();
                match kind {
                    MessageType::Open => {
                        open = Some(Open::parse(body)?);
                        stream.write_all(&KEEPALIVE)?;
                    }
                    MessageType::Notification => return Err(notified(body)),
                    _ => {}
                }
                let confirmed = kind == MessageType::KeepAlive;
                self.buffer.drain(..length);
                if let Some(open) = open.take_if(|_| confirmed) {
                    return Ok(open);
                }
            }
            self.wait_for(stream, PollFlags::IN)?;
            self.read(stream, READ)?;
        }
        Err(io::Error::from(io::ErrorKind::TimedOut).into())
    }

    /// Reads once, at most `most` octets.
    fn read(&mut self, stream: &mut TcpStream, most: usize) -> Result<(), End> {
        match stream.read(&mut self.chunk[..most]) {
            Ok(0) => Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
            Ok(count) => {
                self.buffer.extend_from_slice(&self.chunk[..count]);
                self.allowance.spend(count);
                Ok(())
            }
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {
                Ok(())
            }
            Err(error) => Err(error.into()),
        }
    }

    /// The established session.
    fn exchange(
        &mut self,
        stream: &mut TcpStream,
        mut outgoing: Outgoing,
        rules: &Rules,
        hold: u16,
    ) -> Result<(), End> {
        let keepalive = Duration::from_secs(u64::from(hold) / 3);
        let mut last_keepalive = Instant::now();
        loop {
            self.take_messages(rules)?;
            if hold > 0 && last_keepalive.elapsed() >= keepalive {
                outgoing.urgent(&KEEPALIVE);
                last_keepalive = Instant::now();
            }
            outgoing.write(stream, &self.config)?;
            let idle = outgoing.is_empty();
            if self.shared.lock().status.idle != idle {
                self.shared.change(|state| state.status.idle = idle);
            }
            let readable = self.allowance.take();
            let mut flags = PollFlags::empty();
            flags.set(PollFlags::IN, readable > 0);
            flags.set(PollFlags::OUT, !idle);
            let mut fds = [PollFd::new(&*stream, flags), PollFd::new(&self.woken, PollFlags::IN)];
            // A slow reader looks again when it has earned something.
            let nap = if readable > 0 { Duration::from_secs(1) } else { Duration::from_millis(5) };
            socket::wait(&mut fds, nap)?;
            let (ready, commands) = (socket::readable(&fds[0]), socket::readable(&fds[1]));
            if ready && readable > 0 {
                self.read(stream, readable)?;
            }
            if commands {
                self.take_commands(Some(&mut outgoing))?;
            }
        }
    }

    /// Applies all whole messages of the buffer.
    fn take_messages(&mut self, rules: &Rules) -> Result<(), End> {
        let mut taken = 0;
        let buffer = &self.buffer;
        let mut lock = (!buffer.is_empty()).then(|| self.shared.lock());
        while let (Some(state), Some(message)) =
            (lock.as_deref_mut(), next_message(&buffer[taken..], MAX_EXTENDED_LEN)?)
        {
            taken += message.wire.len();
            state.status.octets += message.wire.len() as u64;
            match message.kind {
                MessageType::Update => {
                    if self.config.records {
                        state.updates.push(message.wire.to_vec());
                    }
                    state.update(message.body, rules)?;
                }
                MessageType::Notification => return Err(notified(message.body)),
                MessageType::RouteRefresh => state.status.refreshes += 1,
                MessageType::KeepAlive | MessageType::Open => {}
            }
        }
        drop(lock);
        if taken > 0 {
            self.buffer.drain(..taken);
            self.shared.change(|_| ());
        }
        Ok(())
    }

    /// Obeys commands; without a session only tables are remembered.
    fn take_commands(&mut self, mut outgoing: Option<&mut Outgoing>) -> Result<(), End> {
        socket::drain(&self.woken);
        loop {
            let command = match self.inbox.try_recv() {
                Ok(command) => command,
                Err(TryRecvError::Empty) => return Ok(()),
                Err(TryRecvError::Disconnected) => return Err(End::Stop),
            };
            self.shared.change(|state| {
                state.taken += 1;
                state.status.idle = false;
            });
            match (command, &mut outgoing) {
                (Command::Stop, _) => return Err(End::Stop),
                (Command::Flap, Some(_)) => return Err(End::Flap),
                (Command::ReadRate(rate), _) => {
                    self.allowance = Allowance { rate, left: 0, since: Instant::now() };
                }
                (Command::Announce(table), outgoing) => {
                    self.config.tables.push(Arc::clone(&table));
                    if let Some(outgoing) = outgoing {
                        outgoing.announce(table);
                    }
                }
                (Command::Withdraw(table), outgoing) => {
                    self.config.tables.retain(|announced| !Arc::ptr_eq(announced, &table));
                    if let Some(outgoing) = outgoing {
                        outgoing.withdraw(table);
                    }
                }
                (Command::Replace { old, new }, outgoing) => {
                    if let Some(outgoing) = outgoing {
                        let (withdrawn, announced) = old.changes_to(&new);
                        outgoing.withdraw(Arc::new(withdrawn));
                        outgoing.announce(Arc::new(announced));
                    }
                    self.config.tables.retain(|announced| !Arc::ptr_eq(announced, &old));
                    self.config.tables.push(new);
                }
                (Command::EndOfRib, Some(outgoing)) => outgoing.end_of_rib(),
                (Command::Refresh(refresh), Some(outgoing)) => outgoing.raw(refresh.encode().to_vec()),
                (Command::Raw(octets), Some(outgoing)) => outgoing.raw(octets),
                (Command::Flap | Command::EndOfRib | Command::Refresh(_) | Command::Raw(_), None) => {}
            }
        }
    }
}

fn notified(body: &[u8]) -> End {
    match Notification::parse(body) {
        Some(notification) => End::Notified(notification),
        None => End::Failed(io::ErrorKind::InvalidData.into()),
    }
}

fn four_octet_as(open: &Open) -> bool {
    open.capabilities.iter().any(|capability| matches!(capability, Capability::FourOctetAs(_)))
}

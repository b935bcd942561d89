//! The far end of all sessions: one thread in the neighbours' host, with the sessions of `holdfast-bfd`, in real time.
//!
//! What it notes is the same for every router: how long a session heard nothing, and how often one was lost. A session that
//! the router has lost is lost here, too, because the router says Down.

use std::{
    collections::{BTreeMap, HashMap},
    net::{IpAddr, Ipv4Addr, UdpSocket},
    rc::Rc,
    sync::mpsc::{self, Receiver, Sender, TryRecvError},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};
use holdfast_bfd::{Datagram, Engine, Hops, Path, Profile, SessionId, State};
use holdfast_bfd_wire::Received as Packet;
use holdfast_lab::netns::Namespace;
use holdfast_sys::{
    packet::{self, Received, Way},
    process::run_in_real_time,
    tcp::{IpVersion, set_ttl},
};
use holdfast_types::HashKey;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::net::Place;

/// Before the routers, of which those that are given a priority have 50.
const PRIORITY: u8 = 60;
/// Where its packets come from: of the range of RFC 5881 section 4.
const SOURCE_PORT: u16 = 49_152;
const TTL: u8 = 255;
/// As everywhere here.
pub(super) const MULTIPLIER: u8 = 3;
/// Packets that are taken in before anything else is done.
const MOST_PACKETS: usize = 64;
/// Octets of a datagram that are looked at; no packet of BFD has more.
const ROOM: usize = 256;
/// Between two looks at what it is told.
const LOOK: Duration = Duration::from_millis(5);
/// Between two questions whether all sessions are up.
const ASK: Duration = Duration::from_millis(100);

/// A session of the far end.
#[derive(Copy, Clone, Debug)]
pub(super) struct End {
    pub(super) place: Place,
    /// Between two packets, in both directions.
    pub(super) interval: Duration,
}

/// What was seen since [`Far::begin`] of the sessions with one interval.
#[derive(Copy, Clone, Default, Debug)]
pub(super) struct Seen {
    /// Sessions that were lost, by whichever end.
    pub(super) losses: u64,
    /// The longest time in which a session heard nothing, one that lasts included.
    pub(super) silence: Duration,
}

/// What was seen of the session that has fallen silent.
#[derive(Copy, Clone, Debug)]
pub(super) struct Silenced {
    /// When its last packet was sent.
    pub(super) last_sent: Instant,
    /// When the router said that it is Down, if it has.
    pub(super) told_down: Option<Instant>,
}

enum Command {
    Ups(Sender<usize>),
    Begin,
    Report(Sender<BTreeMap<Duration, Seen>>),
    Silence(Ipv4Addr),
    Silenced(Sender<Option<Silenced>>),
}

/// The thread; it ends when this is dropped.
#[derive(Debug)]
pub(super) struct Far {
    commands: Option<Sender<Command>>,
    thread: Option<JoinHandle<Result<()>>>,
    sessions: usize,
}

impl Far {
    /// Begins with all sessions.
    pub(super) fn start(host: &Namespace, ends: Vec<End>) -> Result<Self> {
        let (commands, told) = mpsc::channel();
        let sessions = ends.len();
        let thread = host.spawn(move || Sessions::new(ends)?.run(&told))?;
        Ok(Self { commands: Some(commands), thread: Some(thread), sessions })
    }

    /// Waits until all are up.
    pub(super) fn until_up(&mut self, limit: Duration) -> Result<()> {
        let start = Instant::now();
        loop {
            let ups = self.ask(Command::Ups)?;
            if ups == self.sessions {
                return Ok(());
            }
            ensure!(start.elapsed() < limit, "{ups} of {} sessions are up after {limit:?}", self.sessions);
            thread::sleep(ASK);
        }
    }

    /// Forgets what was seen.
    pub(super) fn begin(&mut self) -> Result<()> {
        self.tell(Command::Begin)
    }

    /// What was seen, by interval.
    pub(super) fn report(&mut self) -> Result<BTreeMap<Duration, Seen>> {
        self.ask(Command::Report)
    }

    /// The neighbour with this address sends no packet of BFD from now on, and hears none.
    pub(super) fn silence(&mut self, address: Ipv4Addr) -> Result<()> {
        self.tell(Command::Silence(address))
    }

    /// What was seen of it since.
    pub(super) fn silenced(&mut self) -> Result<Silenced> {
        self.ask(Command::Silenced)?.context("nobody has fallen silent")
    }

    fn tell(&mut self, command: Command) -> Result<()> {
        let told = self.commands.as_ref().is_some_and(|commands| commands.send(command).is_ok());
        if told { Ok(()) } else { self.ended() }
    }

    fn ask<T>(&mut self, question: impl FnOnce(Sender<T>) -> Command) -> Result<T> {
        let (answer, answered) = mpsc::channel();
        self.tell(question(answer))?;
        match answered.recv() {
            Ok(answer) => Ok(answer),
            Err(_) => self.ended(),
        }
    }

    /// Why it has ended.
    fn ended<T>(&mut self) -> Result<T> {
        match self.thread.take().map(JoinHandle::join) {
            Some(Ok(Err(error))) => Err(error.context("the far end")),
            _ => bail!("the far end has ended"),
        }
    }
}

impl Drop for Far {
    fn drop(&mut self) {
        self.commands = None;
        if let Some(Ok(Err(error))) = self.thread.take().map(JoinHandle::join) {
            eprintln!("the far end: {error:#}");
        }
    }
}

/// What is noted of a session.
struct Notes {
    interval: Duration,
    losses: u64,
    last_heard: Instant,
    silence: Duration,
}

struct Sessions {
    engine: Engine,
    /// At the port of BFD.
    socket: UdpSocket,
    sender: UdpSocket,
    notes: HashMap<SessionId, Notes>,
    silent: Option<(Ipv4Addr, Silenced)>,
    /// When each address last sent something.
    last_sent: HashMap<IpAddr, Instant>,
}

impl Sessions {
    fn new(ends: Vec<End>) -> Result<Self> {
        // Where it is refused, figures say so: they are bad.
        if let Err(error) = run_in_real_time(PRIORITY) {
            eprintln!("the far end does not run in real time: {error}");
        }
        let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, Hops::Single.port()))?;
        packet::tell_ways(&socket, IpVersion::V4)?;
        let sender = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, SOURCE_PORT))?;
        set_ttl(&sender, IpVersion::V4, TTL)?;
        // The routers under test have no reason to guess it.
        let mut engine = Engine::new(HashKey::new([22, 5880]), ends.len());
        let now = Instant::now();
        let open = |End { place, interval }: End| -> Result<(SessionId, Notes)> {
            let profile = Profile {
                transmit_interval: interval,
                receive_interval: interval,
                detect_multiplier: MULTIPLIER,
                ..Profile::default()
            };
            let (remote, local) = (place.router, Some(place.peer));
            let path = Path { remote, local, interface: None, hops: Hops::Single };
            let id = engine.open(now, path, Rc::new(profile))?;
            Ok((id, Notes { interval, losses: 0, last_heard: now, silence: Duration::ZERO }))
        };
        let notes = ends.into_iter().map(open).collect::<Result<_>>()?;
        Ok(Self { engine, socket, sender, notes, silent: None, last_sent: HashMap::new() })
    }

    fn run(mut self, told: &Receiver<Command>) -> Result<()> {
        loop {
            match told.try_recv() {
                Ok(command) => self.obey(command),
                Err(TryRecvError::Empty) => {}
                Err(TryRecvError::Disconnected) => return Ok(()),
            }
            let now = Instant::now();
            self.engine.advance(now);
            self.transmit(now)?;
            self.note_losses();
            self.wait()?;
            self.receive()?;
        }
    }

    fn obey(&mut self, command: Command) {
        // Whoever asks waits for the answer, or has gone.
        match command {
            Command::Ups(answer) => drop(answer.send(self.ups())),
            Command::Begin => self.begin(Instant::now()),
            Command::Report(answer) => drop(answer.send(self.report(Instant::now()))),
            Command::Silence(address) => {
                let last_sent = self.last_sent.get(&address.into()).copied();
                let last_sent = last_sent.unwrap_or_else(Instant::now);
                self.silent = Some((address, Silenced { last_sent, told_down: None }));
            }
            Command::Silenced(answer) => drop(answer.send(self.silent.map(|(_, seen)| seen))),
        }
    }

    /// Sessions that are up at both ends.
    fn ups(&self) -> usize {
        let is_up = |(_, session): &(SessionId, &holdfast_bfd::Session)| {
            session.state() == State::Up && session.remote_state() == State::Up
        };
        self.engine.sessions().filter(is_up).count()
    }

    fn begin(&mut self, now: Instant) {
        for notes in self.notes.values_mut() {
            (notes.losses, notes.last_heard, notes.silence) = (0, now, Duration::ZERO);
        }
    }

    fn report(&self, now: Instant) -> BTreeMap<Duration, Seen> {
        let mut report: BTreeMap<Duration, Seen> = BTreeMap::new();
        for notes in self.notes.values() {
            let seen = report.entry(notes.interval).or_default();
            seen.losses += notes.losses;
            seen.silence = seen.silence.max(notes.silence).max(now - notes.last_heard);
        }
        report
    }

    fn transmit(&mut self, now: Instant) -> Result<()> {
        while let Some(transmit) = self.engine.poll_transmit(now) {
            let source = transmit.path.local.context("a session without an address")?;
            if self.is_silent(source) {
                continue;
            }
            let way = Way {
                interface: 0,
                source,
                destination: transmit.path.remote,
                port: transmit.path.hops.port(),
            };
            packet::send(&self.sender, transmit.octets.as_slice(), way).context("sending")?;
            self.last_sent.insert(source, Instant::now());
        }
        Ok(())
    }

    fn is_silent(&self, address: IpAddr) -> bool {
        self.silent.is_some_and(|(silent, _)| address == silent)
    }

    fn note_losses(&mut self) {
        while let Some(change) = self.engine.poll_change() {
            if let Some(notes) = self.notes.get_mut(&change.session) {
                notes.losses += u64::from(change.has_failed);
            }
        }
    }

    fn wait(&self) -> Result<()> {
        let due = self.engine.next_deadline();
        let wait = due.map_or(LOOK, |due| due.saturating_duration_since(Instant::now()).min(LOOK));
        let wait = Timespec { tv_sec: 0, tv_nsec: wait.subsec_nanos().into() };
        match poll(&mut [PollFd::new(&self.socket, PollFlags::IN)], Some(&wait)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn receive(&mut self) -> Result<()> {
        let mut room = [0; ROOM];
        for _ in 0..MOST_PACKETS {
            match packet::receive(&self.socket, &mut room) {
                Ok(received) => self.take(&received, &room[..received.octets.min(ROOM)]),
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error).context("receiving"),
            }
        }
        Ok(())
    }

    fn take(&mut self, received: &Received, octets: &[u8]) {
        let now = Instant::now();
        if let Some((silent, seen)) = &mut self.silent
            && received.destination == Some(IpAddr::V4(*silent))
        {
            let says_down = Packet::read(octets).is_ok_and(|read| read.packet.state == State::Down);
            if says_down {
                seen.told_down.get_or_insert(now);
            }
            return;
        }
        let Some(source) = received.source else { return };
        let datagram = Datagram {
            octets,
            source: source.ip(),
            destination: received.destination,
            interface: received.interface,
            ttl: received.hops,
            hops: Hops::Single,
        };
        if let Ok(id) = self.engine.receive(now, &datagram)
            && let Some(notes) = self.notes.get_mut(&id)
        {
            notes.silence = notes.silence.max(now - notes.last_heard);
            notes.last_heard = now;
        }
    }
}

//! Feeders and sinks: all sessions on one thread, as cheap as can be, so that the router is what is measured.
//!
//! What feeders say is made before ([`crate::feed`]). Of what sinks hear prefixes are counted, and what verification
//! needs is summed up ([`crate::hearing`]), which is compared after ([`crate::verify`]). KEEPALIVEs go out on time, and how
//! long the router was silent is noted.

use std::{
    io::{self, Read, Write},
    net::{SocketAddr, TcpStream},
    ops::Range,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};
use holdfast_bgp_wire::{
    Capability, HEADER_LEN, KEEPALIVE, MAX_LEN, MessageType, Notification, Open, next_message,
};
use holdfast_types::{Asn, RouterId};
use rustix::{
    event::{
        Timespec,
        epoll::{self, Event, EventData, EventFlags},
    },
    net::{AddressFamily, SocketFlags, SocketType},
};

use crate::{
    feed,
    hearing::{Digest, Hearing},
    net::Place,
};

/// TCP port of BGP.
const PORT: u16 = 179;
/// Octets read or written in one go.
const CHUNK: usize = 256 << 10;
/// Between two attempts to connect.
const RETRY: Duration = Duration::from_millis(20);

/// Sessions with the router.
#[derive(Debug)]
pub(crate) struct Load {
    epoll: rustix::fd::OwnedFd,
    pub(crate) sessions: Vec<Session>,
    next_keepalives: Instant,
    keepalive_interval: Duration,
    /// Room for one read.
    room: Box<[u8]>,
    digest: Digest,
    /// When it was looked for what comes, and the longest time in which it was not since [`Load::time`].
    watched: Instant,
    pub(crate) unwatched: Duration,
}

/// One of them.
#[derive(Debug)]
pub(crate) struct Session {
    stream: TcpStream,
    /// To be sent: what, and how far it is.
    outgoing: Vec<(Arc<[u8]>, usize)>,
    wants_out: bool,
    dropped: bool,
    /// The beginning of a message whose rest is to come.
    partial: Vec<u8>,
    /// What is made of UPDATEs, for verification.
    pub(crate) hearing: Hearing,
    /// Prefixes announced, counted again whenever they are.
    pub(crate) announced: u64,
    /// Prefixes withdrawn.
    pub(crate) withdrawn: u64,
    /// When the last UPDATE came.
    pub(crate) last_update: Instant,
    last_heard: Instant,
    /// The longest time in which the router said nothing.
    pub(crate) silence: Duration,
    /// The times from one message to the next, where they are noted.
    pauses: Option<Vec<Duration>>,
    /// NLRI octets of a prefix that is waited for, and when it was announced.
    watch: Option<Box<[u8]>>,
    pub(crate) seen: Option<Instant>,
}

impl Load {
    /// Connects all, one after the other, from within their host; each waits for the router to be there. `asn` says the AS
    /// number of each, `hold` is the hold time in seconds.
    pub(crate) fn establish(
        places: &[Place],
        asn: impl Fn(usize) -> Asn,
        hold: u16,
        limit: Duration,
    ) -> Result<Self> {
        Self::offering(places, asn, |_| Vec::new(), hold, limit)
    }

    /// The same, each with these capabilities beside those of any session.
    pub(crate) fn offering(
        places: &[Place],
        asn: impl Fn(usize) -> Asn,
        more: impl Fn(usize) -> Vec<Capability>,
        hold: u16,
        limit: Duration,
    ) -> Result<Self> {
        let mut load = Self {
            epoll: epoll::create(epoll::CreateFlags::CLOEXEC)?,
            sessions: Vec::new(),
            next_keepalives: Instant::now(),
            keepalive_interval: Duration::from_secs(u64::from(hold / 3).max(1)),
            room: vec![0; CHUNK].into(),
            digest: Digest::default(),
            watched: Instant::now(),
            unwatched: Duration::ZERO,
        };
        let start = Instant::now();
        for (number, place) in places.iter().enumerate() {
            let asn = asn(number);
            let session = loop {
                match Session::establish(place, asn, more(number), hold, Hearing::Count) {
                    Ok(session) => break session,
                    Err(error) if start.elapsed() > limit => {
                        bail!(error.context(format!("no session with {} in {limit:?}", place.router)))
                    }
                    Err(_) => load.turn(RETRY)?,
                }
            };
            load.add(session)?;
            // Those that are up must stay up.
            load.turn(Duration::ZERO)?;
        }
        Ok(load)
    }

    /// Takes in one more session, behind the others.
    pub(crate) fn add(&mut self, session: Session) -> Result<()> {
        session.stream.set_nonblocking(true)?;
        let data = EventData::new_u64(self.sessions.len() as u64);
        epoll::add(&self.epoll, &session.stream, data, EventFlags::IN)?;
        self.sessions.push(session);
        Ok(())
    }

    /// Lets sessions send and receive what they can, waiting at most so long for the first of it.
    pub(crate) fn turn(&mut self, wait: Duration) -> Result<()> {
        let now = Instant::now();
        if now >= self.next_keepalives {
            self.next_keepalives = now + self.keepalive_interval;
            let open = self.sessions.iter_mut().filter(|session| !session.dropped);
            open.for_each(|session| session.send(Arc::from(KEEPALIVE)));
        }
        for number in 0..self.sessions.len() {
            self.sessions[number].write()?;
            self.want_out(number)?;
        }
        let wait = Timespec { tv_sec: wait.as_secs() as i64, tv_nsec: wait.subsec_nanos().into() };
        let mut events = Vec::with_capacity(64);
        self.unwatched = self.unwatched.max(self.watched.elapsed());
        match epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut events), Some(&wait)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        self.watched = Instant::now();
        for Event { flags, data } in events {
            let number = data.u64() as usize;
            if flags.intersects(EventFlags::IN | EventFlags::HUP | EventFlags::ERR) {
                let read = self.sessions[number].read(&mut self.room, &mut self.digest);
                read.with_context(|| format!("session {number}"))?;
            }
        }
        Ok(())
    }

    /// Asks to be woken by room in the socket only while something waits for it.
    fn want_out(&mut self, number: usize) -> Result<()> {
        let session = &mut self.sessions[number];
        let wants = !session.outgoing.is_empty();
        if wants != session.wants_out {
            session.wants_out = wants;
            let flags = if wants { EventFlags::IN | EventFlags::OUT } else { EventFlags::IN };
            epoll::modify(&self.epoll, &session.stream, EventData::new_u64(number as u64), flags)?;
        }
        Ok(())
    }

    /// Turns until the condition holds.
    pub(crate) fn until(
        &mut self,
        what: &str,
        limit: Duration,
        mut done: impl FnMut(&mut Self) -> Result<bool>,
    ) -> Result<()> {
        let start = Instant::now();
        while !done(self)? {
            ensure!(start.elapsed() < limit, "{what}: not in {limit:?}");
            self.turn(Duration::from_millis(2))?;
        }
        Ok(())
    }

    /// Turns for some time.
    pub(crate) fn rest(&mut self, time: Duration) -> Result<()> {
        let start = Instant::now();
        while let Some(left) = time.checked_sub(start.elapsed()) {
            self.turn(left.min(Duration::from_millis(20)))?;
        }
        Ok(())
    }

    /// Whether everything is sent and these sessions have not heard of a route for some time.
    pub(crate) fn is_quiet(&self, sessions: Range<usize>, time: Duration) -> bool {
        let quiet = |session: &Session| session.last_update.elapsed() >= time;
        self.sessions.iter().all(|session| session.outgoing.is_empty())
            && self.sessions[sessions].iter().all(quiet)
    }

    /// When the last of these sessions heard of a route last.
    pub(crate) fn last_update(&self, sessions: Range<usize>) -> Option<Instant> {
        self.sessions[sessions].iter().map(|session| session.last_update).max()
    }

    /// Ends a session without a word.
    pub(crate) fn drop_session(&mut self, number: usize) -> Result<()> {
        let session = &mut self.sessions[number];
        session.outgoing.clear();
        session.dropped = true;
        epoll::delete(&self.epoll, &session.stream)?;
        Ok(session.stream.shutdown(std::net::Shutdown::Both)?)
    }

    /// From now on the times from one message of these sessions to the next are noted.
    pub(crate) fn time(&mut self, sessions: Range<usize>) {
        self.sessions[sessions].iter_mut().for_each(|session| session.pauses = Some(Vec::new()));
        self.unwatched = Duration::ZERO;
    }

    /// Those times, and how long it has been since the last message where that is longer than this.
    pub(crate) fn pauses(&self, sessions: Range<usize>, due: Duration) -> impl Iterator<Item = Duration> {
        self.sessions[sessions].iter().flat_map(move |session| {
            let lasting = Some(session.last_heard.elapsed()).filter(|pause| *pause > due);
            session.pauses.iter().flatten().copied().chain(lasting)
        })
    }

    /// The longest silence of the router towards anyone, one that lasts included.
    pub(crate) fn silence(&self, sessions: Range<usize>) -> Duration {
        let longest = |session: &Session| session.silence.max(session.last_heard.elapsed());
        self.sessions[sessions].iter().map(longest).max().unwrap_or_default()
    }
}

impl Session {
    /// Connects from within the host of a place.
    pub(crate) fn establish(
        place: &Place,
        asn: Asn,
        more: Vec<Capability>,
        hold: u16,
        hearing: Hearing,
    ) -> Result<Self> {
        let mut stream = connect(place)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(Duration::from_secs(2)))?;
        let router_id = match place.peer {
            std::net::IpAddr::V4(address) => address.to_bits(),
            std::net::IpAddr::V6(_) => 0x0a00_0000 + asn.0,
        };
        let mut capabilities = vec![
            Capability::Multiprotocol(feed::family(place.peer)),
            Capability::RouteRefresh,
            Capability::FourOctetAs(asn),
        ];
        capabilities.extend(more);
        let router_id = RouterId::new(router_id).context("router id")?;
        stream.write_all(&Open { asn, hold_time: hold, router_id, capabilities }.encode())?;
        let mut received = Vec::new();
        next(&mut stream, &mut received, MessageType::Open)?;
        stream.write_all(&KEEPALIVE)?;
        next(&mut stream, &mut received, MessageType::KeepAlive)?;
        let now = Instant::now();
        let mut session = Self {
            stream,
            outgoing: Vec::new(),
            wants_out: false,
            dropped: false,
            partial: Vec::new(),
            hearing,
            announced: 0,
            withdrawn: 0,
            last_update: now,
            last_heard: now,
            silence: Duration::ZERO,
            pauses: None,
            watch: None,
            seen: None,
        };
        // What came behind the KEEPALIVE.
        session.hear(&received, now, &mut Digest::default())?;
        Ok(session)
    }

    /// Sends this after what is being sent.
    pub(crate) fn send(&mut self, octets: Arc<[u8]>) {
        self.outgoing.push((octets, 0));
    }

    /// Whether all was sent.
    pub(crate) fn is_idle(&self) -> bool {
        self.outgoing.is_empty()
    }

    /// Octets that the router has not acknowledged, or that wait to be sent.
    pub(crate) fn unacknowledged(&self) -> Result<u64> {
        let waiting = self.outgoing.iter().map(|(octets, sent)| (octets.len() - sent) as u64).sum::<u64>();
        Ok(waiting + u64::from(holdfast_sys::tcp::unacknowledged(&self.stream)?))
    }

    /// Sends at once; there is nothing else to be sent.
    pub(crate) fn send_now(&mut self, octets: &[u8]) -> Result<Instant> {
        ensure!(self.outgoing.is_empty(), "something else is being sent");
        let now = Instant::now();
        ensure!(self.stream.write(octets)? == octets.len(), "the router does not read");
        Ok(now)
    }

    /// Whether what it hears is added up.
    pub(crate) fn is_summed(&self) -> bool {
        matches!(self.hearing, Hearing::Sum(_))
    }

    /// Notes when this prefix is announced (or withdrawn).
    pub(crate) fn watch(&mut self, nlri: Box<[u8]>) {
        (self.watch, self.seen) = (Some(nlri), None);
    }

    /// Forgets what came so far.
    pub(crate) fn forget(&mut self) {
        self.hearing = self.hearing.anew();
        (self.announced, self.withdrawn) = (0, 0);
    }

    fn write(&mut self) -> Result<()> {
        while let Some((octets, sent)) = self.outgoing.first_mut() {
            let end = octets.len().min(*sent + CHUNK);
            match self.stream.write(&octets[*sent..end]) {
                Ok(count) => *sent += count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error.into()),
            }
            if *sent == octets.len() {
                self.outgoing.remove(0);
            }
        }
        Ok(())
    }

    fn read(&mut self, room: &mut [u8], digest: &mut Digest) -> Result<()> {
        match self.stream.read(room) {
            Ok(0) => bail!("the router has closed it"),
            Ok(count) => self.hear(&room[..count], Instant::now(), digest),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn hear(&mut self, octets: &[u8], now: Instant, digest: &mut Digest) -> Result<()> {
        self.silence = self.silence.max(now - self.last_heard);
        if let Some(pauses) = &mut self.pauses {
            pauses.push(now - self.last_heard);
        }
        self.last_heard = now;
        if self.partial.is_empty() {
            let taken = self.take(octets, now, digest)?;
            self.partial.extend_from_slice(&octets[taken..]);
            return Ok(());
        }
        let mut all = std::mem::take(&mut self.partial);
        all.extend_from_slice(octets);
        let taken = self.take(&all, now, digest)?;
        all.drain(..taken);
        self.partial = all;
        Ok(())
    }

    /// Takes the whole messages; how many octets they were.
    fn take(&mut self, octets: &[u8], now: Instant, digest: &mut Digest) -> Result<usize> {
        let mut taken = 0;
        while let Some(message) = next_message(&octets[taken..], MAX_LEN)? {
            match message.kind {
                MessageType::Update => {
                    let counted = count(message.body, self.watch.as_deref()).context("a broken UPDATE")?;
                    self.announced += counted.announced;
                    self.withdrawn += counted.withdrawn;
                    self.last_update = now;
                    if counted.watched {
                        self.seen.get_or_insert(now);
                    }
                    self.hearing.take(message.wire, message.body, digest)?;
                }
                MessageType::Notification => bail!("NOTIFICATION {:?}", Notification::parse(message.body)),
                MessageType::Open | MessageType::KeepAlive | MessageType::RouteRefresh => {}
            }
            taken += message.wire.len();
        }
        Ok(taken)
    }
}

/// Waits for a message of a session that is coming up, and takes it.
fn next(stream: &mut TcpStream, received: &mut Vec<u8>, wanted: MessageType) -> Result<()> {
    loop {
        if let Some(message) = next_message(received, MAX_LEN)? {
            if message.kind == MessageType::Notification {
                bail!("NOTIFICATION {:?}", Notification::parse(message.body));
            }
            ensure!(message.kind == wanted, "{:?} instead of {wanted:?}", message.kind);
            let length = message.wire.len();
            received.drain(..length);
            return Ok(());
        }
        let mut chunk = [0; 4096];
        let count = stream.read(&mut chunk)?;
        ensure!(count > 0, "closed");
        received.extend_from_slice(&chunk[..count]);
    }
}

fn connect(place: &Place) -> Result<TcpStream> {
    let family = if place.peer.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let socket = rustix::net::socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    rustix::net::bind(&socket, &SocketAddr::new(place.peer, 0))?;
    rustix::net::connect(&socket, &SocketAddr::new(place.router, PORT))?;
    Ok(socket.into())
}

/// What an UPDATE has.
#[derive(Default)]
struct Counted {
    announced: u64,
    withdrawn: u64,
    watched: bool,
}

/// Counts without checking more than it needs: verification does that.
fn count(body: &[u8], watch: Option<&[u8]>) -> Option<Counted> {
    let mut counted = Counted::default();
    let (withdrawn, rest) = field(body)?;
    let (attributes, nlri) = field(rest)?;
    counted.withdrawn += prefixes(withdrawn, watch, &mut counted.watched)?;
    counted.announced += prefixes(nlri, watch, &mut counted.watched)?;
    if nlri.is_empty() {
        for (code, value) in attributes_of(attributes) {
            let value = value?;
            match code {
                // AFI, SAFI, length of the next hop, next hop, a reserved octet.
                14 => {
                    let nlri = value.get(5 + usize::from(*value.get(3)?)..)?;
                    counted.announced += prefixes(nlri, watch, &mut counted.watched)?;
                }
                15 => counted.withdrawn += prefixes(value.get(3..)?, watch, &mut counted.watched)?,
                _ => {}
            }
        }
    }
    Some(counted)
}

/// Codes and values of the attributes of an UPDATE in order; it ends with one whose value is not all there.
pub(crate) fn attributes_of(mut rest: &[u8]) -> impl Iterator<Item = (u8, Option<&[u8]>)> {
    std::iter::from_fn(move || {
        let (&[flags, code], after) = rest.split_first_chunk()?;
        let split = match flags & 0x10 {
            0 => after.split_first().and_then(|(&length, after)| after.split_at_checked(length.into())),
            _ => field(after),
        };
        rest = split.map_or(&[], |(_, rest)| rest);
        Some((code, split.map(|(value, _)| value)))
    })
}

/// A two-octet length, that many octets, and the rest.
pub(crate) fn field(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = bytes.split_first_chunk()?;
    rest.split_at_checked(usize::from(u16::from_be_bytes(*length)))
}

fn prefixes(mut nlri: &[u8], watch: Option<&[u8]>, watched: &mut bool) -> Option<u64> {
    let mut count = 0;
    while let Some(&length) = nlri.first() {
        let (prefix, rest) = nlri.split_at_checked(1 + usize::from(length.div_ceil(8)))?;
        *watched |= watch == Some(prefix);
        nlri = rest;
        count += 1;
    }
    Some(count)
}

/// The messages among these octets, without headers, in order.
pub(crate) fn updates(mut octets: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        loop {
            let message = next_message(octets, MAX_LEN).ok().flatten()?;
            octets = &octets[message.wire.len()..];
            if message.kind == MessageType::Update {
                return Some(&message.wire[HEADER_LEN..]);
            }
        }
    })
}

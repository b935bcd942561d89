//! A listening socket of TCP: who is let in there, and whether TLS or TCP comes.
//!
//! ```text
//!  connection ── first look ──┬── turned away ──────────────────────────────────────────> reset
//!                (address)    ├── may use TCP only ─────────────────────────────────────> Connection
//!                             └── may use TLS ── first flight ── second look ──┬────────> reset
//!                                                (SILENCE)       (ClientHello) ├── TLS ─> handshake ─> Connection
//!                                                                              └── TCP ─> Connection
//! ```
//! Nobody is asked to speak first: of a peer that may use both, silence is plain TCP, as BGP has it. For that the kernel must
//! not keep silent connections back either (`TCP_DEFER_ACCEPT`). What has not come within [`SILENCE`] is not waited for, and
//! nobody is turned away for it. Whoever may use TLS counts as a handshake from the first look on, so that who is silent is
//! bounded as well.

use std::{
    cell::Cell,
    io,
    net::SocketAddr,
    os::fd::OwnedFd,
    rc::Rc,
    time::{Duration, Instant},
};

use holdfast_admission::{Load, Verdict};
use holdfast_sys::tcp::{IpVersion, set_min_ttl};
use rustix::io::Errno;
use tokio::{
    net::{TcpListener as Socket, TcpStream},
    task::JoinSet,
    time::timeout,
};
use tracing::{error, warn};

use super::{Token, of_stream};
use crate::{
    Connection, Expected, Failure, Gate, HANDSHAKE_TIME, Listener, LocalFuture, Permit, Protocol,
    attempt::{FirstFlight, Look, TcpAttempt, canonical},
    failure, tls,
};

/// How long the first flight is waited for.
const SILENCE: Duration = Duration::from_secs(3);
/// A neighbour's packets have this TTL on the wire (RFC 5082 section 3).
const GTSM_TTL: u8 = 255;
/// Before the next attempt when the kernel or this process has no room for more connections.
const PAUSE: Duration = Duration::from_millis(100);
/// Between two lines in the log about that.
const SAID: Duration = Duration::from_secs(10);

/// Takes connections of TCP, and of TLS over it: from each peer what the gate expects of it.
pub struct TcpListener {
    socket: Socket,
    local: SocketAddr,
    gate: Rc<dyn Gate>,
    tally: Rc<Tally>,
    /// Of those that may use TLS, until they have shown what they are.
    attempts: JoinSet<Option<Connection>>,
    time: Duration,
    /// When it was last said that there is no room.
    said: Cell<Option<Instant>>,
}

/// What is under way at a listener, and what has come of it: held by each.
#[derive(Default)]
struct Tally {
    handshakes: Token,
    connections: Token,
}

impl Tally {
    fn load(&self) -> Load {
        // The first of each is our own.
        Load {
            handshakes: Rc::strong_count(&self.handshakes) - 1,
            connections: Rc::strong_count(&self.connections) - 1,
        }
    }
}

/// Who has passed the first look and may use TLS.
struct Guest {
    stream: TcpStream,
    remote: SocketAddr,
    local: SocketAddr,
    /// The stage that waits for its first flight.
    waiting: Option<&'static str>,
    /// Who is expected, if it may use TCP as well.
    tcp: Option<Expected>,
    tls: Expected,
    permit: Box<dyn Permit>,
}

impl TcpListener {
    /// At a socket that listens.
    ///
    /// # Errors
    /// Those of the kernel when a socket is made non-blocking and watched.
    pub fn new(socket: OwnedFd, gate: Rc<dyn Gate>) -> io::Result<Self> {
        let socket = std::net::TcpListener::from(socket);
        socket.set_nonblocking(true)?;
        let local = canonical(socket.local_addr()?);
        let socket = Socket::from_std(socket)?;
        let (tally, attempts, said) = (Rc::default(), JoinSet::new(), Cell::new(None));
        Ok(Self { socket, local, gate, tally, attempts, time: HANDSHAKE_TIME, said })
    }

    /// With another time for a handshake, as tests need it.
    #[must_use]
    pub fn with_handshake_time(mut self, time: Duration) -> Self {
        self.time = time;
        self
    }

    /// Somebody has come. What the gate calls ignoring comes too late once TCP's handshake is done, and asking for a proof
    /// of the address is done with it.
    fn arrived(&mut self, stream: TcpStream, remote: SocketAddr) -> Option<Connection> {
        let local = stream.local_addr().map_or(self.local, canonical);
        let look = Look::Address(&*self.gate);
        let mut attempt = TcpAttempt { remote, local, load: self.tally.load(), look };
        let waiting = match self.gate.judge(Protocol::Tcp, &mut attempt, Instant::now()) {
            Verdict::Accept => None,
            Verdict::Wait(stage) => Some(stage),
            Verdict::Ignore | Verdict::Refuse(_) | Verdict::Retry | Verdict::Next => return reset(&stream),
        };
        let permit = self.gate.begin(Protocol::Tcp);
        if waiting.is_none() {
            permit.pass();
        }
        let [tcp, tls] = [Protocol::Tcp, Protocol::Tls].map(|protocol| self.gate.expect(protocol, remote));
        match (tcp, tls) {
            (Some(expected), None) if self.holds_to_ttl(&stream, remote, &expected) => {
                plain(stream, &expected, &self.tally, permit)
            }
            (tcp, Some(tls)) if self.holds_to_ttl(&stream, remote, &tls) => {
                self.begin(Guest { stream, remote, local, waiting, tcp, tls, permit });
                None
            }
            _ => reset(&stream),
        }
    }

    /// GTSM (RFC 5082): the socket serves peers with and without it, so it is set on each connection.
    fn holds_to_ttl(&self, stream: &TcpStream, remote: SocketAddr, expected: &Expected) -> bool {
        if !expected.ttl_security {
            return true;
        }
        let held = set_min_ttl(stream, IpVersion::of(remote.ip()), GTSM_TTL);
        if let Err(error) = &held {
            let error = failure::words(error);
            let failure = Failure::Unsupported(format!("GTSM cannot be switched on: {error}"));
            self.gate.failed(Protocol::Tcp, remote, &failure);
        }
        held.is_ok()
    }

    fn begin(&mut self, guest: Guest) {
        let (gate, tally, time, remote) = (self.gate.clone(), self.tally.clone(), self.time, guest.remote);
        // From now on, not from when the task has its turn.
        let under_way = self.tally.handshakes.clone();
        self.attempts.spawn_local(async move {
            let _under_way = under_way;
            match timeout(time, let_in(guest, &*gate, &tally)).await.unwrap_or(Err(Failure::TimedOut)) {
                Ok(connection) => connection,
                Err(failure) => {
                    gate.failed(Protocol::Tls, remote, &failure);
                    None
                }
            }
        });
    }

    /// accept(2): what was wrong with one connection says nothing of the next.
    async fn outlast(&self, error: &io::Error) -> Result<(), Failure> {
        match Errno::from_io_error(error) {
            Some(
                Errno::CONNABORTED
                | Errno::INTR
                | Errno::PROTO
                | Errno::NOPROTOOPT
                | Errno::OPNOTSUPP
                | Errno::NETDOWN
                | Errno::NETUNREACH
                | Errno::HOSTDOWN
                | Errno::HOSTUNREACH
                | Errno::NONET,
            ) => return Ok(()),
            Some(Errno::INVAL) => {
                return Err(Failure::Unreachable("nobody listens at this socket any more".to_owned()));
            }
            Some(Errno::BADF | Errno::NOTSOCK) | None => return Err(failure::of_tcp(error)),
            Some(_) => {}
        }
        if self.said.get().is_none_or(|said| said.elapsed() >= SAID) {
            self.said.set(Some(Instant::now()));
            let (local, words) = (self.local, failure::words(error));
            warn!(event = "accept-failed", %local, "connections wait, since none can be taken: {words}");
        }
        tokio::time::sleep(PAUSE).await;
        Ok(())
    }
}

impl Listener for TcpListener {
    fn local(&self) -> SocketAddr {
        self.local
    }

    /// Fails when the socket listens no more.
    fn accept(&mut self) -> LocalFuture<'_, Result<Connection, Failure>> {
        Box::pin(async move {
            loop {
                let connection = tokio::select! {
                    biased;
                    Some(done) = self.attempts.join_next() => done.unwrap_or_else(|error| {
                        error!(event = "handshake-lost", "a handshake was lost: {error}");
                        None
                    }),
                    arrived = self.socket.accept() => match arrived {
                        Ok((stream, remote)) => self.arrived(stream, canonical(remote)),
                        Err(error) => {
                            self.outlast(&error).await?;
                            None
                        }
                    },
                };
                if let Some(connection) = connection {
                    return Ok(connection);
                }
            }
        })
    }
}

/// Finds out what comes, has it judged by that, and shakes hands. Nothing comes of who is turned away; the gate knows.
async fn let_in(guest: Guest, gate: &dyn Gate, tally: &Tally) -> Result<Option<Connection>, Failure> {
    let Guest { stream, remote, local, waiting, tcp, tls, permit } = guest;
    let mut flight = FirstFlight::default();
    if waiting.is_some() || tcp.is_some() {
        // What is here by then is what can be looked at.
        let _ = timeout(SILENCE, flight.arrives(&stream)).await;
    }
    // Of who may use nothing else TLS is to say what is wrong.
    let plainly = tcp.filter(|_| !flight.is_of_tls());
    if let Some(stage) = waiting {
        let Load { handshakes, connections } = tally.load();
        // It is one of them itself.
        let load = Load { handshakes: handshakes.saturating_sub(1), connections };
        let mut attempt = TcpAttempt { remote, local, load, look: Look::Flight(&mut flight) };
        let protocol = if plainly.is_some() { Protocol::Tcp } else { Protocol::Tls };
        match gate.resume(protocol, stage, &mut attempt, Instant::now()) {
            Verdict::Accept => permit.pass(),
            Verdict::Ignore | Verdict::Refuse(_) | Verdict::Retry | Verdict::Wait(_) | Verdict::Next => {
                return Ok(reset(&stream));
            }
        }
    }
    drop(flight);
    match plainly {
        Some(expected) => Ok(plain(stream, &expected, tally, permit)),
        None => {
            let connection = tls::accept(stream, &tls, &tally.connections).await?;
            Ok(Some(Connection { permit: Some(permit), ..connection }))
        }
    }
}

/// The kernel's own connection. One that has gone meanwhile has no address.
fn plain(
    stream: TcpStream,
    expected: &Expected,
    tally: &Tally,
    permit: Box<dyn Permit>,
) -> Option<Connection> {
    let connection = of_stream(stream, &expected.peer, Some(tally.connections.clone())).ok()?;
    Some(Connection { permit: Some(permit), ..connection })
}

/// The peer is told at once, and nothing of it stays in the kernel.
fn reset(stream: &TcpStream) -> Option<Connection> {
    // Without it the connection ends in order instead, which is no reason to keep it.
    let _ = stream.set_zero_linger();
    None
}

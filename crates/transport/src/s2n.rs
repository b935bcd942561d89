//! QUIC (RFC 9000) by the library s2n-quic: what [`noq`](crate::noq) does by another, for whoever wants two of them, each a
//! check of the other. One bidirectional stream, which the dialer opens; both sides prove who they are in the handshake.
//!
//! ```text
//!  Endpoint ── listen ──> S2nListener          Dialer ── connect ──> Connection
//!     │ socket, seeds        │ accept             │ a socket of its own
//!     └──────── the library's tasks: they read and write the sockets, on this thread ────────┘
//!                  asks: Door (verdict, who is expected)  Sessions (TLS of that peer)
//!                  tells: Events (confirmed, closed, figures)
//! ```
//!
//! What it cannot, compared with noq:
//!
//! - An attempt that has proven its address by a token can be let in or ignored, not refused; and nothing of its
//!   ClientHello can be seen before there is state ([`Hello::Unsupported`](holdfast_admission::Hello::Unsupported)). A token
//!   that is not, or no longer, valid is not answered.
//! - A dialer has a socket of its own, and its address does not move. A listener goes along when the peer's does.
//! - A close has a number and no text, and is sent once; not at all if this thread was busy for three probe timeouts since
//!   its reason came up. The other end then learns of it by its own patience. Keys change when the library sees fit.
//! - An address has no interface: there are no link-local peers.

mod close;
mod door;
mod events;
mod keys;
mod session;
mod sessions;
mod sift;
mod state;
mod stream;
mod task;
mod tokens;

use std::{
    cell::RefCell,
    error::Error,
    net::{IpAddr, SocketAddr, UdpSocket},
    rc::Rc,
    sync::Arc,
    time::Duration,
};

use holdfast_tls::Seeds;
use s2n_quic::{Client, Server, application, client::Connect};
use tokio::time::timeout;

use self::{
    close::Numbers,
    door::{Door, Unproven},
    events::{Context, Events, Making},
    keys::{Ids, Keys, Resets},
    sessions::{Sessions, Windows},
    sift::Sift,
    state::State,
    stream::{S2nControl, S2nStream},
    task::{Io, Task},
    tokens::Tokens,
};
use crate::{
    Connection, Expected, Failure, Gate, HANDSHAKE_TIME, Identity, Listener, LocalFuture, Protocol, Side,
    attempt::canonical, failure, stray::Strays,
};

/// A socket at which connections are accepted.
pub struct Endpoint {
    /// Until somebody listens.
    socket: RefCell<Option<UdpSocket>>,
    local: SocketAddr,
    keys: Keys,
    limit: Duration,
}

impl Endpoint {
    /// At a bound socket. Retry tokens and stateless resets are under keys of `seeds`.
    ///
    /// # Errors
    /// [`Failure::Unreachable`]: the kernel refuses the socket.
    pub fn new(udp: UdpSocket, seeds: &Seeds) -> Result<Self, Failure> {
        let local = prepared(&udp)?;
        let keys = Keys::new(seeds).ok_or_else(|| Failure::Unsupported("there is no seed".to_owned()))?;
        Ok(Self { socket: RefCell::new(Some(udp)), local, keys, limit: HANDSHAKE_TIME })
    }

    /// How long a handshake may take, for who listens later; 10 s without it.
    pub fn limit_handshakes(&mut self, to: Duration) {
        self.limit = to;
    }

    /// Where it is.
    pub fn local(&self) -> SocketAddr {
        self.local
    }

    /// Other seeds, of which the second are those that were first: tokens under those are still taken, connections of before
    /// are reset with those.
    pub fn set_seeds(&self, seeds: &Seeds) {
        self.keys.set(seeds);
    }

    /// Connection ids that are made from now on are of this side.
    pub fn take_side(&self, side: Side) {
        self.keys.take_side(side);
    }

    /// Begins to accept; once. Connections go on when the listener is dropped. It has to be called in a tokio runtime of one
    /// thread, which is where all of it happens.
    ///
    /// # Errors
    /// [`Failure::Unsupported`]: it listens already. [`Failure::Unreachable`]: the kernel or the library refuses.
    pub fn listen(&self, gate: Rc<dyn Gate>) -> Result<S2nListener, Failure> {
        let udp = self.socket.borrow_mut().take();
        let udp = udp.ok_or_else(|| Failure::Unsupported("it listens already".to_owned()))?;
        let strays = Arc::new(Strays::new(Protocol::QuicS2n));
        strays.decided_by(Some(Rc::clone(&gate)));
        let door = Door::new(gate);
        let task = Arc::<Task>::default();
        let server = serve(udp, &task, &door, &strays, &self.keys, self.limit).map_err(refused)?;
        Ok(S2nListener { server, door, local: self.local, _task: task })
    }
}

/// Makes the library listen.
fn serve(
    udp: UdpSocket,
    task: &Arc<Task>,
    door: &Arc<Door>,
    strays: &Arc<Strays>,
    keys: &Keys,
    limit: Duration,
) -> Result<Server, Box<dyn Error>> {
    let making = Arc::<Making>::default();
    let behind = || Some(Arc::clone(door));
    Ok(Server::builder()
        .with_io(Io::new(udp, task)?)?
        .with_tls(Sessions::new(Arc::clone(&making), behind())?)?
        .with_limits(Windows::new(Arc::clone(&making), behind(), limit)?)?
        .with_endpoint_limits(Unproven(Arc::clone(door)))?
        .with_address_token(Tokens::new(keys.clone(), Arc::clone(door)))?
        .with_connection_id(Ids::new(keys.clone()))?
        .with_stateless_reset_token(Resets(keys.clone()))?
        .with_connection_close_formatter(Numbers)?
        .with_packet_interceptor(Sift { keys: keys.clone(), strays: Arc::clone(strays) })?
        .with_event(Events {
            making,
            door: behind(),
            strays: Some(Arc::clone(strays)),
            task: Arc::downgrade(task),
        })?
        .start()?)
}

/// Takes connections of QUIC.
pub struct S2nListener {
    server: Server,
    door: Arc<Door>,
    local: SocketAddr,
    _task: Arc<Task>,
}

impl S2nListener {
    /// `None`: nothing proves who it is.
    fn enter(&self, connection: s2n_quic::Connection) -> Option<Connection> {
        let state = connection.query_event_context(|context: &Context| context.state()).ok().flatten();
        let permit = state.as_ref().and_then(|state| {
            self.door.established();
            state.take()
        });
        let Some((state, proof)) = state.as_ref().and_then(|state| Some((Arc::clone(state), state.proof()?)))
        else {
            connection.close(application::Error::UNKNOWN);
            if let Some(state) = state {
                let failure = Failure::Untrusted("it has shown no certificate".to_owned());
                self.door.failed(state.remote, &failure);
            }
            return None;
        };
        let local = connection.local_addr().map_or(self.local, canonical);
        let (handle, acceptor) = connection.split();
        if state.expected.ttl_security {
            tokio::spawn(stay(Arc::clone(&state), handle.clone()));
        }
        let stream = S2nStream::accepted(acceptor, handle.clone());
        Some(Connection { permit, ..connected(state, proof, local, stream, handle) })
    }
}

/// Ends a connection that leaves its address, if it does before it ends: the library follows whoever moves.
async fn stay(state: Arc<State>, handle: s2n_quic::connection::Handle) {
    tokio::select! {
        _ = state.ended() => {}
        () = state.moved() => handle.close(application::Error::UNKNOWN),
    }
}

impl Listener for S2nListener {
    fn local(&self) -> SocketAddr {
        self.local
    }

    fn accept(&mut self) -> LocalFuture<'_, Result<Connection, Failure>> {
        Box::pin(async {
            loop {
                let Some(connection) = self.server.accept().await else {
                    return Err(Failure::Unreachable("the endpoint of QUIC has ended".to_owned()));
                };
                if let Some(connection) = self.enter(connection) {
                    return Ok(connection);
                }
            }
        })
    }
}

/// A socket from which connections are made, to any number of peers.
pub struct Dialer {
    client: Client,
    local: SocketAddr,
    _task: Arc<Task>,
}

impl Dialer {
    /// From a bound socket. Connections go on when it is dropped. It has to be called in a tokio runtime of one thread.
    ///
    /// # Errors
    /// [`Failure::Unreachable`]: the kernel or the library refuses.
    pub fn new(udp: UdpSocket) -> Result<Self, Failure> {
        let local = prepared(&udp)?;
        let task = Arc::<Task>::default();
        Ok(Self { client: dial(udp, &task).map_err(refused)?, local, _task: task })
    }

    /// Where it is.
    pub fn local(&self) -> SocketAddr {
        self.local
    }

    /// Connects, and waits until both sides have found each other good; 10 s at most. Dropped, it lets go of the attempt.
    ///
    /// # Errors
    /// [`Failure`]; [`Failure::Unsupported`] for a peer without TLS.
    pub async fn connect(&self, remote: SocketAddr, expected: &Expected) -> Result<Connection, Failure> {
        let Some(tls) = &expected.tls else {
            return Err(Failure::Unsupported("QUIC needs a certificate or a key of the peer".to_owned()));
        };
        let name = tls.server_name().to_str().into_owned();
        let state = State::new(remote, expected.clone());
        let _dialing = Dialing(Arc::clone(&state));
        let mut attempt = self.client.connect(Connect::new(self.reached(remote)).with_server_name(name));
        attempt.set_application_context(Box::new(Arc::clone(&state)));
        let connected = async {
            let failed = |error| state.failure(Some(error));
            let mut connection = attempt.await.map_err(failed)?;
            state.confirmed().await?;
            let stream = connection.open_bidirectional_stream().await.map_err(failed)?;
            Ok((connection.handle(), stream))
        };
        let (handle, stream) = timeout(HANDSHAKE_TIME, connected).await.unwrap_or(Err(Failure::TimedOut))?;
        let Some(proof) = state.proof() else {
            handle.close(application::Error::UNKNOWN);
            return Err(Failure::Untrusted("it has shown no certificate".to_owned()));
        };
        let local = handle.local_addr().map_or(self.local, canonical);
        let stream = S2nStream::dialed(stream, handle.clone());
        Ok(self::connected(state, proof, local, stream, handle))
    }

    /// An address as the socket's family has it.
    fn reached(&self, remote: SocketAddr) -> SocketAddr {
        match (self.local.ip(), remote.ip()) {
            (IpAddr::V6(_), IpAddr::V4(ip)) => SocketAddr::new(ip.to_ipv6_mapped().into(), remote.port()),
            _ => remote,
        }
    }
}

/// An attempt to connect. Dropped before it has come to anything, it is given up.
struct Dialing(Arc<State>);

impl Drop for Dialing {
    fn drop(&mut self) {
        self.0.give_up();
    }
}

/// Makes the library dial.
fn dial(udp: UdpSocket, task: &Arc<Task>) -> Result<Client, Box<dyn Error>> {
    let making = Arc::<Making>::default();
    Ok(Client::builder()
        .with_io(Io::new(udp, task)?)?
        .with_tls(Sessions::new(Arc::clone(&making), None)?)?
        .with_limits(Windows::new(Arc::clone(&making), None, HANDSHAKE_TIME)?)?
        .with_connection_close_formatter(Numbers)?
        .with_event(Events { making, door: None, strays: None, task: Arc::downgrade(task) })?
        .start()?)
}

fn connected(
    state: Arc<State>,
    proof: String,
    local: SocketAddr,
    stream: S2nStream,
    mut handle: s2n_quic::connection::Handle,
) -> Connection {
    // It has ended already where that fails.
    let _ = handle.keep_alive(true);
    let (peer, remote) = (state.expected.peer.clone(), state.remote);
    Connection {
        identity: Identity { peer, protocol: Protocol::QuicS2n, remote, local, proof },
        stream: Box::new(stream),
        control: Rc::new(S2nControl::new(handle, state)),
        permit: None,
    }
}

/// As the library wants a socket; its address.
fn prepared(udp: &UdpSocket) -> Result<SocketAddr, Failure> {
    let local = udp.set_nonblocking(true).and_then(|()| udp.local_addr());
    local.map(canonical).map_err(|error| Failure::Unreachable(failure::words(&error)))
}

fn refused(error: Box<dyn Error>) -> Failure {
    Failure::Unreachable(error.to_string())
}

//! TLS 1.3 over TCP (draft-wirtgen-bgp-tls): the ClientHello comes first, ALPN `botls`, both sides prove who they are.
//!
//! Verdicts as in [`tcp`](crate::tcp), with one look more: what the ClientHello says, if all of it is here when the
//! connection is taken. [`TlsListener`] asks the kernel to hand connections out with their first octets for that.
//! A handshake has [`HANDSHAKE_TIME`], and each is a task of its own.
//!
//! By RFC 8446 the dialer is done before the other side has judged what it showed: that it was refused is what its first
//! read says.

use std::{io, net::SocketAddr, os::fd::OwnedFd, rc::Rc, time::Duration};

use holdfast_tls::{ALPN_TLS, PeerTls};
use rustix::net::{Shutdown, shutdown};
use tokio::{io::AsyncReadExt, net::TcpStream, task::JoinSet, time::timeout};
use tokio_rustls::{TlsAcceptor, TlsConnector, TlsStream};
use tracing::error;

use crate::{
    Connection, Expected, Failure, Gate, HANDSHAKE_TIME, Identity, Listener, LocalFuture, MOST_HANDSHAKES,
    Protocol,
    attempt::canonical,
    entrance::{Entrance, Guest, Token},
    failure, tcp,
};

mod stream;

/// For how long the kernel keeps a connection back that says nothing yet.
const DEFER: Duration = Duration::from_secs(3);
/// What a peer whom we refuse may take to read why.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// Takes connections of TLS.
pub struct TlsListener {
    entrance: Entrance,
    handshakes: JoinSet<Option<Connection>>,
    time: Duration,
}

impl TlsListener {
    /// At a socket that listens, of TCP.
    ///
    /// # Errors
    /// Those of the kernel when a socket is made non-blocking and watched.
    pub fn new(socket: OwnedFd, gate: Rc<dyn Gate>) -> io::Result<Self> {
        holdfast_sys::tcp::set_defer_accept(&socket, DEFER)?;
        let entrance = Entrance::new(socket, Protocol::Tls, gate)?;
        Ok(Self { entrance, handshakes: JoinSet::new(), time: HANDSHAKE_TIME })
    }

    /// With another time for a handshake, as tests need it.
    #[must_use]
    pub fn with_handshake_time(mut self, time: Duration) -> Self {
        self.time = time;
        self
    }

    fn begin(&mut self, guest: Guest) {
        let (gate, time) = (self.entrance.gate.clone(), self.time);
        let connection = self.entrance.connection();
        // From now on, not from when the task has its turn.
        let under_way = (self.entrance.handshake(), gate.begin(Protocol::Tls));
        self.handshakes.spawn_local(async move {
            let _under_way = under_way;
            let handshake = serve(guest.stream, &guest.expected, Some(connection));
            match timeout(time, handshake).await.unwrap_or(Err(Failure::TimedOut)) {
                Ok(connection) => Some(connection),
                Err(failure) => {
                    gate.failed(Protocol::Tls, guest.remote, &failure);
                    None
                }
            }
        });
    }
}

impl Listener for TlsListener {
    fn protocol(&self) -> Protocol {
        Protocol::Tls
    }

    fn local(&self) -> SocketAddr {
        self.entrance.local
    }

    fn accept(&mut self) -> LocalFuture<'_, Result<Connection, Failure>> {
        Box::pin(async move {
            loop {
                tokio::select! {
                    biased;
                    Some(done) = self.handshakes.join_next() => match done {
                        Ok(Some(connection)) => return Ok(connection),
                        Ok(None) => {}
                        Err(error) => error!(event = "handshake-lost", "a handshake was lost: {error}"),
                    },
                    guest = self.entrance.next(), if self.handshakes.len() < MOST_HANDSHAKES => {
                        let guest = guest?;
                        self.begin(guest);
                    }
                }
            }
        })
    }
}

/// Waits for a socket of TCP that is connecting, and shakes hands.
///
/// # Errors
/// Every [`Failure`]: the way of TCP, who is there, what they speak, and how long it took.
pub async fn connect(socket: OwnedFd, expected: &Expected) -> Result<Connection, Failure> {
    let tls = keys_for(expected)?;
    let stream = tcp::connected(socket).await?;
    let handshake = async {
        let addresses = prepare(&stream)?;
        let connector = TlsConnector::from(tls.client(ALPN_TLS));
        match connector.connect(tls.server_name(), stream).into_fallible().await {
            Ok(session) => identified(session.into(), addresses, expected, tls, None),
            Err((error, stream)) => Err(told(stream, &error).await),
        }
    };
    timeout(HANDSHAKE_TIME, handshake).await.unwrap_or(Err(Failure::TimedOut))
}

/// Shakes hands on a socket of TCP that was accepted elsewhere, from a peer who is to begin with a ClientHello.
///
/// # Errors
/// Every [`Failure`] but [`Failure::Unreachable`] before the socket was connected.
pub async fn accept(socket: OwnedFd, expected: &Expected) -> Result<Connection, Failure> {
    let stream = tcp::connected(socket).await?;
    let handshake = serve(stream, expected, None);
    timeout(HANDSHAKE_TIME, handshake).await.unwrap_or(Err(Failure::TimedOut))
}

async fn serve(
    stream: TcpStream,
    expected: &Expected,
    counted: Option<Token>,
) -> Result<Connection, Failure> {
    let tls = keys_for(expected)?;
    let addresses = prepare(&stream)?;
    let acceptor = TlsAcceptor::from(tls.server(ALPN_TLS));
    match acceptor.accept(stream).into_fallible().await {
        Ok(session) => identified(session.into(), addresses, expected, tls, counted),
        Err((error, stream)) => Err(told(stream, &error).await),
    }
}

fn keys_for(expected: &Expected) -> Result<&PeerTls, Failure> {
    expected.tls.as_ref().ok_or_else(|| {
        Failure::Unsupported(format!("nothing is configured that {} has to prove over TLS", expected.peer))
    })
}

/// Remote and local address; both are asked for while they are there.
fn prepare(stream: &TcpStream) -> Result<(SocketAddr, SocketAddr), Failure> {
    let addresses = || {
        stream.set_nodelay(true)?;
        Ok((canonical(stream.peer_addr()?), canonical(stream.local_addr()?)))
    };
    addresses().map_err(|error| failure::of_tcp(&error))
}

fn identified(
    session: TlsStream<TcpStream>,
    (remote, local): (SocketAddr, SocketAddr),
    expected: &Expected,
    tls: &PeerTls,
    counted: Option<Token>,
) -> Result<Connection, Failure> {
    let common = session.get_ref().1;
    // TLS lets a handshake pass in which one side names no protocol at all; the draft does not.
    if common.alpn_protocol() != Some(ALPN_TLS) {
        return Err(Failure::Refused(
            "the peer does not say that it speaks BGP over TLS (ALPN botls)".to_owned(),
        ));
    }
    let presented = common.peer_certificates().unwrap_or_default();
    if presented.is_empty() {
        return Err(Failure::Untrusted("the peer has shown nothing that proves who it is".to_owned()));
    }
    let identity = Identity {
        peer: expected.peer.clone(),
        protocol: Protocol::Tls,
        remote,
        local,
        proof: tls.proof(presented),
    };
    Ok(stream::connection(session, identity, counted))
}

/// Lets the peer read why: with octets of it unread the kernel would reset the connection, and the alert were lost.
async fn told(mut stream: TcpStream, error: &io::Error) -> Failure {
    let failure = failure::of_handshake(error);
    if failure::tls_error(error).is_some() && shutdown(&stream, Shutdown::Write).is_ok() {
        let mut rest = [0; 4096];
        let drained = async { while matches!(stream.read(&mut rest).await, Ok(1..)) {} };
        // Whoever goes on sending has had its time.
        let _ = timeout(LAST_WORDS, drained).await;
    }
    failure
}

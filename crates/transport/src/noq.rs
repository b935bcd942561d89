//! QUIC (RFC 9000) by the library noq.
//!
//! An [`Endpoint`] is one UDP socket, over which connections are dialed and, with [`Endpoint::listen`], taken. All four
//! verdicts of admission come before any state: noq hands out the first packet of an attempt, opened, and nothing more is
//! done with it until it is let in, with the configuration of the peer that is expected there.
//!
//! A connection has one bidirectional stream, opened by the dialer, and it begins with the dialer's first octets: until
//! then whoever was dialed neither reads nor writes. Nobody opens a second one. 0-RTT is neither offered nor taken: it can
//! be replayed.
//!
//! **Migration** (RFC 9000 section 9): a connection follows its dialer to another address. Its packets go from whichever
//! address the kernel chooses at the time, unless it was dialed from a fixed one, or over a socket that is bound to one:
//! such a connection ends with the address.

mod attempt;
mod config;
mod crypto;
mod failure;
mod keys;
mod listener;
mod socket;
mod stream;

use std::{
    io,
    net::{IpAddr, SocketAddr, UdpSocket},
    rc::Rc,
    sync::Arc,
    time::Duration,
};

use holdfast_tls::{PeerTls, Seeds, rustls::pki_types::CertificateDer};
use noq::{PathId, RecvStream, Runtime, SendStream, TokioRuntime};
use tokio::time::timeout;

use self::{
    crypto::{FirstFlight, Front, KeyUpdates},
    failure::{failure, not_tried},
    keys::Keys,
    listener::Latest,
    socket::{NextSource, Socket, Source},
    stream::{Handle, QuicStream},
};
use crate::{
    Connection, Expected, Failure, Gate, HANDSHAKE_TIME, Identity, Protocol, Side, attempt::canonical,
    stray::Strays,
};

pub use listener::NoqListener;

/// One UDP socket. Dropped, it makes no further connection; those that there are stay.
pub struct Endpoint {
    endpoint: noq::Endpoint,
    keys: Keys,
    source: NextSource,
    flight: FirstFlight,
    front: Front,
    strays: Arc<Strays>,
    limit: Duration,
    local: SocketAddr,
    latest: Rc<Latest>,
}

impl Endpoint {
    /// Over this socket, which is bound; resets and tokens derive from the seeds (RFC 9000 section 10.3, 8.1.2). Within a
    /// `LocalSet` of a runtime of tokio.
    ///
    /// # Errors
    /// The socket does not do, or there are no seeds.
    pub fn new(udp: UdpSocket, seeds: &Seeds) -> Result<Self, Failure> {
        let keys =
            Keys::new(seeds).ok_or_else(|| Failure::Unsupported("QUIC needs seeds for its keys".into()))?;
        let flight = FirstFlight::default();
        let front = Front::new(flight.clone()).map_err(|error| Failure::Unsupported(error.to_string()))?;
        let source = NextSource::new();
        let strays = Arc::new(Strays::new(Protocol::Quic));
        let (endpoint, local) = open(udp, &keys, source.clone(), &front, &strays)
            .map_err(|error| Failure::Unreachable(format!("the UDP socket for QUIC: {error}")))?;
        let latest = Rc::default();
        Ok(Self { endpoint, keys, source, flight, front, strays, limit: HANDSHAKE_TIME, local, latest })
    }

    /// Handshakes of listeners made from now on, and of connections dialed from now on, take no longer than this instead of
    /// [`HANDSHAKE_TIME`].
    pub fn limit_handshakes(&mut self, to: Duration) {
        self.limit = to;
    }

    /// Other seeds, of which the second are those that were first: tokens sealed with those are taken on, connections of
    /// before are reset with those.
    pub fn set_seeds(&self, seeds: &Seeds) {
        self.keys.set(seeds);
    }

    /// Connection ids that are made from now on are of this side.
    pub fn take_side(&self, side: Side) {
        self.keys.take_side(side);
    }

    /// Where it is bound.
    pub fn local(&self) -> SocketAddr {
        self.local
    }

    /// Takes connections of whoever the gate lets in. There is one listener at a time: an earlier one takes none any more.
    pub fn listen(&self, gate: Rc<dyn Gate>) -> NoqListener {
        NoqListener::new(self, gate)
    }

    /// Dials, and waits until the other end has judged what we show. `local` is the address to come from; `None`: whichever
    /// the kernel chooses, now and later.
    ///
    /// # Errors
    /// There is no connection, and why.
    pub async fn connect(
        &self,
        remote: SocketAddr,
        local: Option<IpAddr>,
        expected: &Expected,
    ) -> Result<Connection, Failure> {
        let source = self.source(local)?;
        let tls = config::tls(expected)?.clone();
        let updates = KeyUpdates::default();
        let client = config::dialing(expected, updates.clone())?;
        let name = tls.server_name();
        let connecting = self
            .source
            .during(source, || self.endpoint.connect_with(client, remote, &name.to_str()))
            .map_err(|error| not_tried(&error))?;
        let dial = async {
            let connection = connecting.await?;
            // Ours is judged after our own part of the handshake is done.
            connection.handshake_confirmed().await?;
            let stream = connection.open_bi().await?;
            Ok::<_, noq::ConnectionError>((connection, stream))
        };
        match timeout(self.limit, dial).await {
            Ok(Ok((established, stream))) => {
                let local = match source {
                    Source::Fixed(address) => SocketAddr::new(address, self.local.port()),
                    Source::Any | Source::Asked => self.local,
                };
                let ends =
                    Ends { peer: expected.peer.clone(), tls, remote: canonical(remote), local, updates };
                Ok(connection(established, ends, Some(stream)))
            }
            Ok(Err(error)) => Err(failure(&error)),
            Err(_) => Err(Failure::TimedOut),
        }
    }

    fn source(&self, local: Option<IpAddr>) -> Result<Source, Failure> {
        let bound = self.local.ip();
        match local {
            None => Ok(Source::Any),
            Some(address) if bound.is_unspecified() => Ok(Source::Fixed(address)),
            Some(address) if address == bound => Ok(Source::Any),
            Some(address) => Err(Failure::Unsupported(format!(
                "the socket is bound to {bound}, nothing comes from {address}"
            ))),
        }
    }
}

fn open(
    udp: UdpSocket,
    keys: &Keys,
    next: NextSource,
    front: &Front,
    strays: &Arc<Strays>,
) -> io::Result<(noq::Endpoint, SocketAddr)> {
    udp.set_nonblocking(true)?;
    let local = udp.local_addr()?;
    let runtime = Arc::new(TokioRuntime);
    let socket = runtime.wrap_udp_socket(udp)?;
    let socket = Box::new(Socket::new(socket, next, keys.clone(), Arc::clone(strays)));
    let server = config::front(front.clone(), keys, false);
    let endpoint =
        noq::Endpoint::new_with_abstract_socket(config::endpoint(keys), Some(server), socket, runtime)?;
    Ok((endpoint, local))
}

/// Who a connection is with, as was known when it began.
struct Ends {
    peer: String,
    tls: PeerTls,
    remote: SocketAddr,
    local: SocketAddr,
    updates: KeyUpdates,
}

/// With its stream, if we have opened it.
fn connection(
    established: noq::Connection,
    ends: Ends,
    stream: Option<(SendStream, RecvStream)>,
) -> Connection {
    let Ends { peer, tls, remote, mut local, updates } = ends;
    let ours = established.path(PathId::ZERO).and_then(|path| path.local_ip().ok().flatten());
    if let Some(ours) = ours {
        local.set_ip(ours.to_canonical());
    }
    let presented = established
        .peer_identity()
        .and_then(|presented| presented.downcast::<Vec<CertificateDer<'static>>>().ok());
    let presented = presented.map(|chain| *chain).unwrap_or_default();
    let identity = Identity { peer, protocol: Protocol::Quic, remote, local, proof: tls.proof(&presented) };
    let handle = Handle::new(established, remote, updates);
    let stream = match stream {
        Some(halves) => QuicStream::open(handle.clone(), halves),
        None => QuicStream::awaited(handle.clone()),
    };
    Connection { identity, stream: Box::new(stream), control: handle, permit: None }
}

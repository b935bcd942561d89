//! Listeners of TCP, over which TLS comes as well: who comes, and is let in.

use std::{
    io,
    net::{IpAddr, SocketAddr},
    os::fd::{AsFd, OwnedFd},
    rc::Rc,
    time::{Duration, Instant},
};

use holdfast_admission::{AddressProof, Attempt, Hello, Load, Verdict};
use holdfast_api::socket::v1::{ListenRequest, SocketClient};
use holdfast_sys::tcp::{IpVersion, set_min_ttl};
use holdfast_transport::{Expected, Failure, Gate, HANDSHAKE_TIME, MOST_HANDSHAKES, Protocol, tls};
use holdfast_xrl::{Client, XrlError};
use rustix::net::sockopt;
use tokio::{
    net::{TcpListener, TcpStream},
    time::timeout,
};
use tracing::{debug, info, warn};

use crate::{
    door::{Door, describe},
    entry::Entry,
    peers::{Peer, octets},
    watched::Watched,
};

/// Pause before a listener is asked for again that could not be had.
const RETRY: Duration = Duration::from_secs(1);
/// Pause after a connection could not be accepted: out of descriptors, most likely.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// A neighbour's packets have this TTL on the wire (RFC 5082 section 3).
const GTSM_TTL: u8 = 255;
/// How long a peer that may use TLS and TCP may be silent before it is taken for one that waits for our OPEN.
const SILENCE: Duration = Duration::from_secs(3);
/// The first octet of a record with a ClientHello (RFC 8446 section 5.1); that of a BGP message is 255.
const HANDSHAKE_RECORD: u8 = 22;

/// A connection that the kernel has completed. What it says is not looked at: the handshake does.
struct Accepted {
    remote: SocketAddr,
    local: IpAddr,
    load: Load,
}

impl Attempt for Accepted {
    fn remote(&self) -> SocketAddr {
        self.remote
    }

    fn local(&self) -> Option<IpAddr> {
        Some(self.local)
    }

    fn proof(&self) -> AddressProof {
        AddressProof::Handshake
    }

    fn can_retry(&self) -> bool {
        false
    }

    fn hello(&mut self) -> Hello<'_> {
        Hello::Unsupported
    }

    fn load(&self) -> Load {
        self.load
    }
}

/// Accepts connections at one address. When whoever opened the listening socket is gone, its successor opens another:
/// that one has the peers' keys from then on. So does the same one when the socket does not listen any more.
pub(crate) async fn listen(door: Rc<Door>, entry: Rc<Entry>) {
    let address = entry.address;
    loop {
        let (sockets, socket) = open(&door, &entry).await;
        info!(event = "listening", %address, protocol = entry.protocol.name(), "listening");
        let succeeded = async {
            sockets.channel().closed().await;
            door.wait_for_sockets().await
        };
        tokio::select! {
            _ = succeeded => {}
            () = accept(&door, &entry, &socket) => {}
        }
    }
}

/// Asks for the listening socket again and again until it is there.
async fn open(door: &Door, entry: &Entry) -> (SocketClient, TcpListener) {
    let address = entry.address;
    let request = ListenRequest {
        address: octets(address.ip()),
        afi: if address.is_ipv4() { 1 } else { 2 },
        port: address.port().into(),
        ..ListenRequest::default()
    };
    loop {
        let opened = async {
            let refused = |error: XrlError| io::Error::other(error.message().to_owned());
            let sockets = door.sockets().await.map_err(refused)?;
            let (_, fds) = sockets.listen(request.clone()).await.map_err(refused)?;
            let fd = fds.into_iter().next().ok_or_else(|| io::Error::other("no descriptor came"))?;
            entry.listens(Watched::new(fd.try_clone()?, address.ip()));
            Ok::<_, io::Error>((sockets, TcpListener::from_std(fd.into())?))
        };
        match opened.await {
            Ok(opened) => return opened,
            Err(error) => {
                let error = error.to_string();
                if entry.fails(error.clone()) {
                    let protocol = entry.protocol.name();
                    warn!(
                        event = "listen-failed",
                        %address,
                        protocol,
                        "cannot listen: {error}; trying again every second"
                    );
                }
            }
        }
        tokio::time::sleep(RETRY).await;
    }
}

/// Until the socket does not listen any more.
async fn accept(door: &Rc<Door>, entry: &Rc<Entry>, socket: &TcpListener) {
    let address = entry.address;
    loop {
        door.has_room().await;
        match socket.accept().await {
            Ok((stream, remote)) => accepted(door, entry, stream, remote),
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => {
                info!(event = "listener-ended", %address, "the listening socket was ended: asking for another");
                door.has_moved();
                return;
            }
            Err(error) => {
                // The connection stays in the backlog meanwhile.
                warn!(event = "accept-failed", %address, "accepting a connection: {error}");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// Somebody has come, and is let in or not.
fn accepted(door: &Rc<Door>, entry: &Rc<Entry>, stream: TcpStream, remote: SocketAddr) {
    let local = stream.local_addr().map_or(entry.address.ip(), |local| local.ip());
    let mut attempt = Accepted { remote, local, load: entry.load() };
    let verdict = entry.judge(Protocol::Tcp, &mut attempt, Instant::now());
    let (Verdict::Accept, Some(peer)) = (verdict, entry.peer(remote)) else { return refuse(&stream) };
    if peer.ttl_security
        && let Err(error) = require_one_hop(&stream, remote.ip())
    {
        if door.may_log(&peer.name) {
            let (peer, address) = (&peer.name, entry.source(remote));
            warn!(event = "connection-refused", peer, %address, "GTSM cannot be switched on: {error}");
        }
        return refuse(&stream);
    }
    match (peer.may_use(Protocol::Tls), peer.may_use(Protocol::Tcp)) {
        (false, _) => hand_over(door, entry, &peer, stream, remote),
        (true, _) if attempt.load.handshakes >= MOST_HANDSHAKES => refuse(&stream),
        (true, or_tcp) => {
            let expected = peer.expected();
            let under_way = entry.begin(Protocol::Tls);
            let (at, entry) = (Rc::clone(door), Rc::clone(entry));
            door.spawn(async move {
                let _under_way = under_way;
                if or_tcp && !begins_with_tls(&stream).await {
                    return hand_over(&at, &entry, &peer, stream, remote);
                }
                shake_hands(&at, &entry, stream, remote, &expected).await;
            });
        }
    }
}

/// Whether the first octet is one of TLS. Who says nothing waits for us to begin, as BGP does.
async fn begins_with_tls(stream: &TcpStream) -> bool {
    let mut first = [0];
    let length = timeout(SILENCE, stream.peek(&mut first)).await;
    matches!(length, Ok(Ok(1))) && first[0] == HANDSHAKE_RECORD
}

async fn shake_hands(
    door: &Rc<Door>,
    entry: &Rc<Entry>,
    stream: TcpStream,
    remote: SocketAddr,
    expected: &Expected,
) {
    let handshake = async {
        let descriptor: OwnedFd =
            stream.into_std().map_err(|error| Failure::Unreachable(error.to_string()))?.into();
        tls::accept(descriptor, expected).await
    };
    match timeout(HANDSHAKE_TIME, handshake).await.unwrap_or(Err(Failure::TimedOut)) {
        Ok(connection) => {
            door.has_room().await;
            door.let_in(entry, connection);
        }
        Err(failure) => entry.failed(Protocol::Tls, remote, &failure),
    }
}

/// GTSM (RFC 5082): a listener serves peers with and without it, so the least TTL is for us to set.
fn require_one_hop(stream: impl AsFd, remote: IpAddr) -> io::Result<()> {
    set_min_ttl(stream, IpVersion::of(remote.to_canonical()), GTSM_TTL)
}

/// The kernel's own socket is for the protocol.
fn hand_over(door: &Rc<Door>, entry: &Entry, peer: &Peer, stream: TcpStream, remote: SocketAddr) {
    let interface = entry.source(remote).interface;
    let handed = (|| {
        let local = stream.local_addr()?;
        let connection = describe(&peer.name, Protocol::Tcp, (remote, local), interface.as_deref());
        Ok::<_, io::Error>((connection, stream.into_std()?.into()))
    })();
    match handed {
        Ok((connection, descriptor)) => door.hand_over(entry, connection, descriptor),
        // It has been reset meanwhile.
        Err(error) => debug!(peer = peer.name, "a connection is gone: {error}"),
    }
}

/// Ends a connection with a reset: nothing of it stays here.
fn refuse(stream: &TcpStream) {
    // Without it, it ends in order.
    let _ = sockopt::set_socket_linger(stream, Some(Duration::ZERO));
}

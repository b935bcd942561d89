//! QUIC: listeners and dialers, of either library.

use std::{
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6, UdpSocket},
    rc::Rc,
    time::Duration,
};

use holdfast_api::socket::v1::UdpRequest;
use holdfast_tls::Seeds;
#[cfg(feature = "quic-s2n")]
use holdfast_transport::s2n;
use holdfast_transport::{Connection, Expected, Failure, Gate, Listener, Protocol, Side, noq};
use holdfast_xrl::XrlError;
use tracing::{info, warn};

use crate::{
    door::ConnectionBroker,
    entry::Entry,
    peers::{Peer, Peers, Place, octets},
    watched::Watched,
};

/// Pause before a socket is asked for again that could not be had.
const RETRY: Duration = Duration::from_secs(1);

/// What connections are made from, at one address.
pub(crate) struct Dialer {
    library: Library,
    socket: Watched,
}

impl Dialer {
    /// Has the kernel drop datagrams as follows from these peers; `false`: it cannot, and nothing may be dialed from it.
    pub(crate) fn filter(&self, peers: &Peers) -> bool {
        self.socket.follow(peers).is_ok()
    }

    /// Other seeds from now on, also for its connections of before.
    pub(crate) fn set_seeds(&self, seeds: &Seeds) {
        self.library.set_seeds(seeds);
    }
}

enum Library {
    Noq(noq::Endpoint),
    #[cfg(feature = "quic-s2n")]
    S2n(s2n::Dialer),
}

impl Library {
    fn new(protocol: Protocol, socket: UdpSocket, seeds: &Seeds) -> Result<Self, Failure> {
        match protocol {
            Protocol::Quic => noq::Endpoint::new(socket, seeds).map(Self::Noq),
            #[cfg(feature = "quic-s2n")]
            Protocol::QuicS2n => s2n::Dialer::new(socket).map(Self::S2n),
            other => Err(missing(other)),
        }
    }

    fn set_seeds(&self, seeds: &Seeds) {
        match self {
            Self::Noq(endpoint) => endpoint.set_seeds(seeds),
            // It has no ids or resets that anybody could come back to.
            #[cfg(feature = "quic-s2n")]
            Self::S2n(_) => {}
        }
    }

    async fn connect(
        &self,
        remote: SocketAddr,
        local: Option<IpAddr>,
        expected: &Expected,
    ) -> Result<Connection, Failure> {
        match self {
            Self::Noq(endpoint) => endpoint.connect(remote, local, expected).await,
            #[cfg(feature = "quic-s2n")]
            Self::S2n(dialer) => dialer.connect(remote, expected).await,
        }
    }
}

fn missing(protocol: Protocol) -> Failure {
    Failure::Unsupported(format!("this build has no {}", protocol.name()))
}

/// What takes connections at a socket, and how it is told other seeds.
type Listening = (Box<dyn Listener>, Box<dyn Fn(&Seeds)>);

fn begin(
    (protocol, side): (Protocol, Side),
    socket: UdpSocket,
    seeds: &Seeds,
    gate: Rc<dyn Gate>,
) -> Result<Listening, Failure> {
    match protocol {
        Protocol::Quic => {
            let endpoint = noq::Endpoint::new(socket, seeds)?;
            endpoint.take_side(side);
            let listener = endpoint.listen(gate);
            Ok((Box::new(listener), Box::new(move |seeds| endpoint.set_seeds(seeds))))
        }
        #[cfg(feature = "quic-s2n")]
        Protocol::QuicS2n => {
            let endpoint = s2n::Endpoint::new(socket, seeds)?;
            endpoint.take_side(side);
            let listener = endpoint.listen(gate)?;
            Ok((Box::new(listener), Box::new(move |seeds| endpoint.set_seeds(seeds))))
        }
        other => Err(missing(other)),
    }
}

/// Takes connections at one address, for ever.
pub(crate) async fn listen(door: Rc<ConnectionBroker>, entry: Rc<Entry>) {
    let address = entry.address;
    loop {
        let Err(error) = serve(&door, &entry).await;
        if entry.fails(error.clone()) {
            let protocol = entry.protocol.name();
            warn!(event = "listen-failed", %address, protocol, "cannot listen: {error}; trying again every second");
        }
        tokio::time::sleep(RETRY).await;
    }
}

async fn serve(door: &Rc<ConnectionBroker>, entry: &Rc<Entry>) -> Result<std::convert::Infallible, String> {
    let (socket, watched) = udp(door, entry.address).await.map_err(|error| error.message().to_owned())?;
    let mut seeds = door.seeds();
    let now = seeds.borrow_and_update().clone();
    let gate = Rc::clone(entry) as Rc<dyn Gate>;
    let begun = begin((entry.protocol, door.shared.side), socket, &now, gate);
    let (mut listener, set_seeds) = begun.map_err(|error| error.to_string())?;
    entry.listens(watched);
    info!(event = "listening", address = %entry.address, protocol = entry.protocol.name(), "listening");
    let mut moved = std::pin::pin!(door.moves());
    loop {
        door.has_room().await;
        tokio::select! {
            () = entry.retires() => break,
            () = &mut moved => return Err("what it was at is another one".to_owned()),
            accepted = listener.accept() => {
                let connection = accepted.map_err(|error| error.to_string())?;
                door.let_in(entry, connection);
            }
            Ok(()) = seeds.changed() => set_seeds(&seeds.borrow_and_update()),
        }
    }
    drop(listener);
    // Its connections go on: whoever has to answer for them after this process has to know their ids.
    while seeds.changed().await.is_ok() {
        set_seeds(&seeds.borrow_and_update());
    }
    Err("the process ends".to_owned())
}

/// A UDP socket from whoever opens sockets, at which the kernel drops what claims to be of a neighbour and is not.
async fn udp(door: &ConnectionBroker, address: SocketAddr) -> Result<(UdpSocket, Watched), XrlError> {
    let request = UdpRequest {
        address: octets(address.ip()),
        afi: if address.is_ipv4() { 1 } else { 2 },
        port: address.port().into(),
    };
    let (_, fds) = door.sockets().await?.udp(request).await?;
    let socket = fds.into_iter().next().ok_or_else(|| XrlError::internal("no descriptor came"))?;
    let socket = UdpSocket::from(socket);
    let watched = Watched::datagrams(&socket, door.shared.side, &door.peers());
    let refused = |error| XrlError::internal(format!("the kernel cannot sort out what comes: {error}"));
    Ok((socket, watched.map_err(refused)?))
}

/// Any address of a family, and a port of the kernel's choice.
fn anywhere(family_of: IpAddr) -> SocketAddr {
    match family_of {
        IpAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        IpAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
    }
}

/// A connection to a peer.
pub(crate) async fn connect(
    door: &Rc<ConnectionBroker>,
    peer: &Peer,
    protocol: Protocol,
) -> Result<Connection, Failure> {
    let Place::At(source) = &peer.place else {
        return Err(Failure::Unsupported("only a peer with an address is dialled over QUIC".to_owned()));
    };
    let unreachable = |text: &str| Failure::Unreachable(text.to_owned());
    // Unless it is said, the port of the other side is taken to be ours.
    let port = peer.quic_port.or_else(|| door.quic_port(protocol)).unwrap_or(peer.port);
    let place = match peer.local {
        // Its address does not move, so it may as well be bound to it.
        Some(local) if protocol == Protocol::QuicS2n => SocketAddr::new(local, 0),
        _ => anywhere(source.address),
    };
    let dialer = dialer(door, protocol, place).await.map_err(|error| unreachable(error.message()))?;
    let remote = scoped(&dialer, source.address, source.interface.as_deref(), port)
        .map_err(|error| unreachable(&error.to_string()))?;
    let connected = dialer.library.connect(remote, peer.local, &peer.expected()).await;
    let mut connection = match connected {
        Ok(connection) => connection,
        Err(failure) => {
            if let Failure::Unreachable(_) | Failure::TimedOut = failure {
                // It may be in a place that is not there any more: the next one is asked for anew.
                door.dialers.borrow_mut().retain(|_, known| !Rc::ptr_eq(known, &dialer));
            }
            return Err(failure);
        }
    };
    let identity = &mut connection.identity;
    if identity.local.ip().is_unspecified()
        && let Ok(local) = towards(door, identity.remote).await
    {
        identity.local.set_ip(local);
    }
    Ok(connection)
}

async fn dialer(
    door: &ConnectionBroker,
    protocol: Protocol,
    place: SocketAddr,
) -> Result<Rc<Dialer>, XrlError> {
    if let Some(dialer) = door.dialers.borrow().get(&(protocol, place)) {
        return Ok(Rc::clone(dialer));
    }
    let (udp, socket) = udp(door, place).await?;
    let seeds = door.seeds().borrow().clone();
    let library =
        Library::new(protocol, udp, &seeds).map_err(|error| XrlError::internal(error.to_string()))?;
    let dialer = Rc::new(Dialer { library, socket });
    door.dialers.borrow_mut().insert((protocol, place), Rc::clone(&dialer));
    Ok(dialer)
}

fn scoped(dialer: &Dialer, address: IpAddr, interface: Option<&str>, port: u16) -> io::Result<SocketAddr> {
    Ok(match (address, interface) {
        (IpAddr::V6(address), Some(name)) => {
            let scope = dialer.socket.interface_number(name)?;
            SocketAddrV6::new(address, port, 0, scope).into()
        }
        (address, _) => (address, port).into(),
    })
}

/// Our address towards another, as the kernel would choose it now.
async fn towards(door: &ConnectionBroker, remote: SocketAddr) -> io::Result<IpAddr> {
    let socket = udp(door, anywhere(remote.ip())).await;
    let (socket, _) = socket.map_err(|error| io::Error::other(error.message().to_owned()))?;
    socket.connect(remote)?;
    Ok(socket.local_addr()?.ip())
}

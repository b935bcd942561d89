//! The opener as `socket.v1`.

use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    os::fd::OwnedFd,
    rc::Rc,
};

use holdfast_api::socket::v1::{
    Configuration, DialRequest, Empty, GroupRequest, ListenRequest, Neighbor, PortRequest, RawRequest,
    ReceiveRequest, ReceivedPackets, RefitRequest, RestoreRequest, SendReply, SendRequest, SocketServer,
    UdpRequest,
};
use holdfast_sys::repair::{self, Agreed};
use holdfast_types::Prefix;
use holdfast_xrl::{CallContext, ReplySink, XrlError};
use tokio::sync::{Mutex, Notify, watch};

use crate::{
    Counts, FdStore, Link, Opener, Peer, Place, SocketError,
    custody::Listening,
    datagrams::{self, Grant},
    neighbors::Neighbors,
    peer,
    ports::Ports,
    raw::{self, RawGrant},
    relay::Relay,
};

/// The most that a window is shifted by (RFC 7323 section 2.3).
const MOST_SCALE: u8 = 14;
/// The least that the kernel takes as a segment's size.
const LEAST_SEGMENT: u16 = 88;

/// Serves `socket.v1`. Who may configure and who may ask is the interface's matter.
#[derive(Default)]
pub struct SocketService {
    opener: Rc<Mutex<Opener>>,
    /// Where it may be listened; `None` until the first configuration.
    places: RefCell<Option<BTreeSet<Listening>>>,
    grants: RefCell<Vec<Grant>>,
    ports: RefCell<Ports>,
    configured: Notify,
    neighbors: Rc<Neighbors>,
    relay: Relay,
}

impl SocketService {
    /// With an opener to this place, which knows no peers yet; what listens there is in this custody, if one is given.
    pub fn new(place: Place, custody: Option<FdStore>) -> Self {
        let neighbors = Rc::new(Neighbors::new(place.clone()));
        let relay = Relay::new(place.clone());
        Self { opener: Rc::new(Mutex::new(Opener::new(place, custody))), neighbors, relay, ..Self::default() }
    }

    /// Relays packets of protocols; without it none are. `find` gives an interface as it is now, and `changes` says when one
    /// may have changed.
    pub fn relay(&self, changes: watch::Receiver<u64>, find: impl Fn(&str) -> Option<Link> + 'static) {
        self.relay.follow(changes, find);
    }

    /// What has become of packets that were relayed.
    pub fn packets(&self) -> Rc<Counts> {
        self.relay.counts()
    }

    /// Hears which routers are on the interfaces of peers without address, and tells them of us, for ever; without it
    /// nobody is heard. Takes CAP_NET_RAW.
    pub fn discovery(&self) -> impl Future<Output = ()> + 'static {
        Rc::clone(&self.neighbors).run()
    }

    /// Ends listeners whose device has gone or been made again, for ever ([`Opener::follow`]); `changes` says when that may
    /// have happened. Without it that is noticed when somebody listens or dials.
    pub fn follow_place(&self, mut changes: watch::Receiver<u64>) -> impl Future<Output = ()> + 'static {
        let opener = Rc::clone(&self.opener);
        async move {
            while changes.changed().await.is_ok() {
                opener.lock().await.follow().await;
            }
        }
    }

    /// Follows the links of peers that have an interface, for ever; without it nobody is told of them. `find` gives those of
    /// these interfaces that can carry something, with the kernel's numbers, and `changes` says when that may have
    /// changed.
    pub fn follow_links(
        &self,
        changes: watch::Receiver<u64>,
        find: impl Fn(&BTreeSet<String>) -> BTreeMap<String, u32> + 'static,
    ) -> impl Future<Output = ()> + 'static {
        Rc::clone(&self.neighbors).follow_links(changes, find)
    }

    /// How many router advertisements and solicitations were ignored: they were not as they have to be, or from another
    /// link.
    pub fn malformed(&self) -> impl Fn() -> u64 + 'static {
        let neighbors = Rc::clone(&self.neighbors);
        move || neighbors.malformed()
    }

    fn allow(&self, places: BTreeSet<Listening>) {
        self.places.replace(Some(places));
        self.configured.notify_waiters();
    }

    async fn is_configured(&self) {
        while self.places.borrow().is_none() {
            self.configured.notified().await;
        }
    }

    /// Whether somebody may listen there, as soon as that is known: a door that has been broken into opens no other one.
    async fn admit(&self, wanted: impl Fn(&Listening) -> bool, address: SocketAddr) -> Result<(), XrlError> {
        self.is_configured().await;
        match self.places.borrow().iter().flatten().any(wanted) {
            true => Ok(()),
            false => Err(XrlError::denied(format!("nothing is configured to listen at {address}"))),
        }
    }
}

/// What a configuration says.
struct Wanted {
    peers: Vec<Peer>,
    heard: Vec<Prefix>,
    grants: Vec<Grant>,
    packets: Vec<RawGrant>,
    ports: Ports,
    places: BTreeSet<Listening>,
}

impl TryFrom<Configuration> for Wanted {
    type Error = XrlError;

    fn try_from(request: Configuration) -> Result<Self, XrlError> {
        let peers: Result<Vec<Peer>, _> = request.peers.into_iter().map(Peer::try_from).collect();
        let peers = peers.map_err(|error| XrlError::invalid_argument(error.to_string()))?;
        let heard = request.heard.iter().map(|prefix| {
            prefix.parse().map_err(|_| XrlError::invalid_argument(format!("{prefix:?} is no prefix")))
        });
        let heard = heard.collect::<Result<_, _>>()?;
        let grants = request.datagrams.into_iter().map(Grant::try_from).collect::<Result<_, _>>()?;
        let packets = raw::grants(request.raw)?;
        let ports = Ports::try_from(request.ports)?;
        let listen: Vec<_> = request.listen.iter().map(listen_address).collect::<Result<_, _>>()?;
        let plain = request.listen.iter().map(|request| request.plain);
        let places = listen.iter().copied().zip(plain).collect();
        Ok(Self { peers, heard, grants, packets, ports, places })
    }
}

impl SocketService {
    /// Whether a configuration could take effect: the kernel is shown the keys of its peers, on sockets that nobody uses.
    ///
    /// # Errors
    /// What it says makes no sense, or the kernel has no room for the keys.
    pub async fn try_out(&self, request: Configuration) -> Result<(), XrlError> {
        let Wanted { peers, heard, places, .. } = request.try_into()?;
        self.opener.lock().await.try_out(peers, heard, &places).await.map_err(refused)
    }
}

impl SocketServer for SocketService {
    async fn configure(&self, _cx: &CallContext, request: Configuration) -> Result<Empty, XrlError> {
        let Wanted { peers, heard, grants, packets, ports, places } = request.try_into()?;
        tracing::info!(event = "sockets-configured", peers = peers.len(), "peers configured");
        let mut opener = self.opener.lock().await;
        opener.configure(peers, heard, &places).await.map_err(refused)?;
        self.neighbors.watch(opener.links().map(str::to_owned).collect());
        self.neighbors.want(opener.unnumbered().map(str::to_owned).collect());
        drop(opener);
        self.grants.replace(grants);
        self.ports.replace(ports);
        self.relay.configure(packets);
        self.allow(places);
        Ok(Empty {})
    }

    async fn listen(
        &self,
        _cx: &CallContext,
        request: ListenRequest,
    ) -> Result<(Empty, Vec<OwnedFd>), XrlError> {
        let address = listen_address(&request)?;
        self.admit(|place| *place == (address, request.plain), address).await?;
        let socket = self.opener.lock().await.listen(address, request.plain).await.map_err(refused)?;
        tracing::info!(event = "socket-opened", %address, "listening");
        Ok((Empty {}, vec![socket]))
    }

    async fn dial(&self, _cx: &CallContext, request: DialRequest) -> Result<(Empty, Vec<OwnedFd>), XrlError> {
        let neighbor = |link: &str| self.neighbors.on(link);
        let mut opener = self.opener.lock().await;
        opener.follow().await;
        let socket = opener.dial(&request.peer, neighbor).await.map_err(refused)?;
        Ok((Empty {}, vec![socket]))
    }

    async fn udp(&self, _cx: &CallContext, request: UdpRequest) -> Result<(Empty, Vec<OwnedFd>), XrlError> {
        let address = udp_address(&request)?;
        // Without a port nobody is waited for.
        if address.port() != 0 {
            self.admit(|(at, plain)| at.ip() == address.ip() && !plain, address).await?;
        }
        let socket = self.opener.lock().await.udp(address).await.map_err(refused)?;
        Ok((Empty {}, vec![socket]))
    }

    async fn group(
        &self,
        cx: &CallContext,
        request: GroupRequest,
    ) -> Result<(Empty, Vec<OwnedFd>), XrlError> {
        self.is_configured().await;
        let datagrams = datagrams::granted(&self.grants.borrow(), cx.peer(), &request)?;
        let opener = self.opener.lock().await;
        let socket = opener.group(&request.interface, &datagrams).await.map_err(refused)?;
        Ok((Empty {}, vec![socket]))
    }

    async fn port(&self, cx: &CallContext, request: PortRequest) -> Result<(Empty, Vec<OwnedFd>), XrlError> {
        self.is_configured().await;
        let granted = self.ports.borrow().granted(cx.peer(), &request)?;
        let socket = self.opener.lock().await.port(granted).await.map_err(refused)?;
        tracing::info!(event = "socket-opened", port = request.port, afi = request.afi, "a UDP port");
        Ok((Empty {}, vec![socket]))
    }

    async fn send(&self, cx: &CallContext, request: SendRequest) -> Result<SendReply, XrlError> {
        self.is_configured().await;
        self.relay.send(cx.peer(), &request).await
    }

    async fn receive(
        &self,
        cx: &CallContext,
        request: ReceiveRequest,
        replies: ReplySink<ReceivedPackets>,
    ) -> Result<(), XrlError> {
        self.is_configured().await;
        self.relay.receive(cx.peer(), &request, replies).await
    }

    async fn raw(&self, cx: &CallContext, request: RawRequest) -> Result<(Empty, Vec<OwnedFd>), XrlError> {
        self.is_configured().await;
        Ok((Empty {}, vec![self.relay.raw(cx.peer(), &request).await?]))
    }

    async fn refit(
        &self,
        _cx: &CallContext,
        request: RefitRequest,
        fds: Vec<OwnedFd>,
    ) -> Result<Empty, XrlError> {
        self.is_configured().await;
        let socket = fds.into_iter().next();
        let socket = socket.ok_or_else(|| XrlError::invalid_argument("no descriptor came"))?;
        self.opener.lock().await.refit(&request.peer, &socket).map_err(refused)?;
        tracing::info!(event = "socket-refitted", peer = request.peer, "a connection has other options");
        Ok(Empty {})
    }

    async fn restore(
        &self,
        _cx: &CallContext,
        request: RestoreRequest,
    ) -> Result<(Empty, Vec<OwnedFd>), XrlError> {
        self.is_configured().await;
        let (at, agreed) = connection(&request)?;
        let socket = self.opener.lock().await.restore(&at, &agreed).await.map_err(refused)?;
        let (local, remote) = (at.local, at.remote);
        tracing::info!(event = "socket-restored", %local, %remote, "a connection was made again");
        Ok((Empty {}, vec![socket]))
    }

    async fn release(&self, _cx: &CallContext, _: Empty, fds: Vec<OwnedFd>) -> Result<Empty, XrlError> {
        for socket in &fds {
            repair::release(socket).map_err(|error| XrlError::unavailable(error.to_string()))?;
        }
        Ok(Empty {})
    }

    async fn neighbors(
        &self,
        _cx: &CallContext,
        _request: Empty,
        mut replies: ReplySink<Neighbor>,
    ) -> Result<(), XrlError> {
        let mut versions = self.neighbors.versions();
        let mut told = BTreeMap::new();
        loop {
            versions.mark_unchanged();
            for neighbor in self.neighbors.news(&mut told) {
                replies.send(neighbor).await?;
            }
            if versions.changed().await.is_err() {
                return Ok(());
            }
        }
    }
}

fn listen_address(request: &ListenRequest) -> Result<SocketAddr, XrlError> {
    let port = peer::port(request.port).ok_or_else(no_port)?;
    Ok(SocketAddr::new(address(&request.address, request.afi)?, port))
}

fn udp_address(request: &UdpRequest) -> Result<SocketAddr, XrlError> {
    let port = u16::try_from(request.port).map_err(|_| no_port())?;
    Ok(SocketAddr::new(address(&request.address, request.afi)?, port))
}

/// A connection, and what was agreed on.
fn connection(request: &RestoreRequest) -> Result<(repair::Place, Agreed), XrlError> {
    let end = |octets: &[u8], port: u32| {
        let port = u16::try_from(port).ok().filter(|port| *port != 0);
        Some(SocketAddr::new(peer::address(octets)?, port?))
    };
    let ends =
        (end(&request.local_address, request.local_port), end(&request.remote_address, request.remote_port));
    let (Some(local), Some(remote)) = ends else {
        return Err(XrlError::invalid_argument("an end of the connection has no address, or no port"));
    };
    if local.is_ipv4() != remote.is_ipv4() {
        return Err(XrlError::invalid_argument("the addresses are of different families"));
    }
    let scale =
        |scale: Option<u32>| scale.map(|scale| u8::try_from(scale).ok().filter(|scale| *scale <= MOST_SCALE));
    let scales = match (scale(request.scale_theirs), scale(request.scale_ours)) {
        (None, None) => None,
        (Some(Some(theirs)), Some(Some(ours))) => Some((theirs, ours)),
        _ => return Err(XrlError::invalid_argument("the windows' scales make no sense")),
    };
    let segment = u16::try_from(request.segment).ok().filter(|segment| *segment >= LEAST_SEGMENT);
    let segment =
        segment.ok_or_else(|| XrlError::invalid_argument("no connection has such a segment size"))?;
    let (selective, timestamp, window) = (request.selective, request.timestamp, request.window);
    let at = repair::Place { local, remote, send: request.send, receive: request.receive };
    Ok((at, Agreed { segment, selective, scales, timestamp, window }))
}

fn no_port() -> XrlError {
    XrlError::invalid_argument("the port is over 65535")
}

/// An address, or all of a family.
fn address(octets: &[u8], afi: u32) -> Result<IpAddr, XrlError> {
    let invalid = |text: &str| XrlError::invalid_argument(text);
    match (octets, afi) {
        ([], 1) => Ok(Ipv4Addr::UNSPECIFIED.into()),
        ([], 2) => Ok(Ipv6Addr::UNSPECIFIED.into()),
        ([], _) => Err(invalid("the address family is neither 1 (IPv4) nor 2 (IPv6)")),
        (octets, _) => {
            peer::address(octets).ok_or_else(|| invalid("the address has neither 4 nor 16 octets"))
        }
    }
}

fn refused(error: SocketError) -> XrlError {
    match error {
        SocketError::UnknownPeer(_) => XrlError::not_found(error.to_string()),
        SocketError::Range(_) | SocketError::LinkLocal(_) => XrlError::failed_precondition(error.to_string()),
        SocketError::Keeper(_)
        | SocketError::NoInterface { .. }
        | SocketError::NoNeighbor(_)
        | SocketError::PortInUse(_)
        | SocketError::NoFreePort(_)
        | SocketError::TooManyKeys { .. }
        | SocketError::Refused { .. } => XrlError::unavailable(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(address: &[u8], afi: u32, port: u32) -> ListenRequest {
        ListenRequest { address: address.to_vec(), afi, port, ..ListenRequest::default() }
    }

    #[test]
    fn a_family_or_an_address_says_where_to_listen() {
        let cases = [
            (request(&[], 1, 0), "0.0.0.0:179"),
            (request(&[], 2, 1179), "[::]:1179"),
            (request(&[127, 0, 0, 1], 0, 0), "127.0.0.1:179"),
        ];
        for (request, expected) in cases {
            assert_eq!(listen_address(&request).map(|address| address.to_string()), Ok(expected.to_owned()));
        }
        for request in [request(&[], 0, 0), request(&[1], 1, 0), request(&[], 1, 70_000)] {
            assert!(listen_address(&request).is_err(), "{request:?}");
        }
    }

    #[test]
    fn a_udp_socket_needs_no_port_of_its_own() {
        let request = |port| UdpRequest { afi: 2, port, ..UdpRequest::default() };
        let text = |port| udp_address(&request(port)).map(|address| address.to_string()).ok();
        assert_eq!([text(0), text(179)].map(Option::unwrap_or_default), ["[::]:0", "[::]:179"]);
        assert_eq!(text(70_000), None);
    }

    #[tokio::test]
    async fn it_listens_where_that_is_configured_and_nowhere_else() {
        let service = SocketService::new(Place::Here, None);
        let [bgp, metrics, other] = [179, 9100, 22].map(|port| SocketAddr::from(([127, 0, 0, 1], port)));
        let may = |address, plain| service.admit(move |place| *place == (address, plain), address);
        let configure = async { service.allow([(bgp, false), (metrics, true)].into()) };
        let (early, ()) = tokio::join!(may(bgp, false), configure);
        assert_eq!(early, Ok(()), "it waits for the configuration");
        assert_eq!(may(metrics, true).await, Ok(()));
        for (address, plain) in [(bgp, true), (metrics, false), (other, true)] {
            assert!(may(address, plain).await.is_err(), "{address} {plain}");
        }
    }
}

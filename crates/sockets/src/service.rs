//! The opener as `transport.v1`.

use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    os::fd::OwnedFd,
    rc::Rc,
};

use holdfast_api::transport::v1::{
    Configuration, DialRequest, Empty, ListenRequest, Neighbor, TransportServer,
};
use holdfast_xrl::{CallContext, ReplySink, XrlError};
use tokio::sync::{Mutex, Notify, watch};

use crate::{Opener, Peer, Place, SocketError, neighbors::Neighbors, peer};

/// Serves `transport.v1`. Who may configure and who may ask is the interface's matter.
#[derive(Debug, Default)]
pub struct TransportService {
    opener: Rc<Mutex<Opener>>,
    /// `None` until the first configuration.
    plain: RefCell<Option<Vec<Plain>>>,
    configured: Notify,
    neighbors: Rc<Neighbors>,
}

/// A plain listener, and the role it is for.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Plain {
    address: SocketAddr,
    role: String,
}

impl TransportService {
    /// With an opener to this place, which knows no peers yet.
    pub fn new(place: Place) -> Self {
        let neighbors = Rc::new(Neighbors::new(place.clone()));
        Self { opener: Rc::new(Mutex::new(Opener::new(place))), neighbors, ..Self::default() }
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
                opener.lock().await.follow();
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

    fn allow(&self, plain: Vec<Plain>) {
        self.plain.replace(Some(plain));
        self.configured.notify_waiters();
    }

    /// Whether a role may listen there. Where peers are expected is said by `bgp`, and the manager writes the
    /// configuration; all others get what is configured for them.
    async fn admit(&self, role: &str, address: SocketAddr, plain: bool) -> Result<(), XrlError> {
        match (role, plain) {
            ("bgp", false) | ("manager", true) => return Ok(()),
            (_, true) => {}
            (_, false) => {
                return Err(XrlError::denied(format!("the role {role} may only have plain listeners")));
            }
        }
        while self.plain.borrow().is_none() {
            self.configured.notified().await;
        }
        let wanted = Plain { address, role: role.to_owned() };
        match self.plain.borrow().iter().flatten().any(|plain| *plain == wanted) {
            true => Ok(()),
            false => Err(XrlError::denied(format!("nothing at {address} is for the role {role}"))),
        }
    }
}

impl TransportServer for TransportService {
    async fn configure(&self, _cx: &CallContext, request: Configuration) -> Result<Empty, XrlError> {
        let peers: Result<Vec<Peer>, _> = request.peers.into_iter().map(Peer::try_from).collect();
        let peers = peers.map_err(|error| XrlError::invalid_argument(error.to_string()))?;
        let listen: Vec<_> = request.listen.iter().map(listen_address).collect::<Result<_, _>>()?;
        let plain = request.listen.iter().zip(&listen).filter(|(request, _)| request.plain);
        let plain =
            plain.map(|(request, address)| Plain { address: *address, role: request.role.clone() }).collect();
        tracing::info!(event = "transport-configured", peers = peers.len(), "peers configured");
        let mut opener = self.opener.lock().await;
        opener.configure(peers, &listen).await.map_err(refused)?;
        self.neighbors.watch(opener.links().map(str::to_owned).collect());
        self.neighbors.want(opener.unnumbered().map(str::to_owned).collect());
        drop(opener);
        self.allow(plain);
        Ok(Empty {})
    }

    async fn listen(
        &self,
        cx: &CallContext,
        request: ListenRequest,
    ) -> Result<(Empty, Vec<OwnedFd>), XrlError> {
        let address = listen_address(&request)?;
        self.admit(&cx.peer().role, address, request.plain).await?;
        let socket = self.opener.lock().await.listen(address, request.plain).await.map_err(refused)?;
        tracing::info!(event = "socket-opened", %address, "listening");
        Ok((Empty {}, vec![socket]))
    }

    async fn dial(&self, _cx: &CallContext, request: DialRequest) -> Result<(Empty, Vec<OwnedFd>), XrlError> {
        let neighbor = |link: &str| self.neighbors.on(link);
        let mut opener = self.opener.lock().await;
        opener.follow();
        let socket = opener.dial(&request.peer, neighbor).await.map_err(refused)?;
        Ok((Empty {}, vec![socket]))
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
    let invalid = |text: &str| XrlError::invalid_argument(text);
    let port = peer::port(request.port).ok_or_else(|| invalid("the port is over 65535"))?;
    let address = match (request.address.as_slice(), request.afi) {
        ([], 1) => IpAddr::from(Ipv4Addr::UNSPECIFIED),
        ([], 2) => IpAddr::from(Ipv6Addr::UNSPECIFIED),
        ([], _) => return Err(invalid("the address family is neither 1 (IPv4) nor 2 (IPv6)")),
        (octets, _) => {
            peer::address(octets).ok_or_else(|| invalid("the address has neither 4 nor 16 octets"))?
        }
    };
    Ok(SocketAddr::new(address, port))
}

fn refused(error: SocketError) -> XrlError {
    match error {
        SocketError::UnknownPeer(_) => XrlError::not_found(error.to_string()),
        SocketError::Range(_) => XrlError::failed_precondition(error.to_string()),
        SocketError::Keeper(_)
        | SocketError::NoInterface { .. }
        | SocketError::NoNeighbor(_)
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

    #[tokio::test]
    async fn a_plain_listener_is_for_the_role_that_it_is_configured_for() {
        let service = TransportService::new(Place::Here);
        let [metrics, glass, other] = [9100, 29184, 22].map(|port| SocketAddr::from(([127, 0, 0, 1], port)));
        let plain = |address, role: &str| Plain { address, role: role.to_owned() };
        let early = service.admit("glass", glass, true);
        let configure = async { service.allow(vec![plain(metrics, "metrics"), plain(glass, "glass")]) };
        let (early, ()) = tokio::join!(early, configure);
        assert_eq!(early, Ok(()), "it waits for the configuration");
        for (role, address) in [("glass", metrics), ("glass", other), ("metrics", glass), ("bgp", glass)] {
            assert!(service.admit(role, address, true).await.is_err(), "{role} {address}");
        }
        assert!(service.admit("glass", glass, false).await.is_err(), "not with peers' keys");
        assert_eq!(service.admit("manager", other, true).await, Ok(()));
        assert_eq!(service.admit("bgp", other, false).await, Ok(()));
    }
}

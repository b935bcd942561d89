//! The door as `transport.v1`.

use std::{
    cell::RefCell,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    os::fd::OwnedFd,
};

use holdfast_api::transport::v1::{Configuration, DialRequest, Empty, ListenRequest, TransportServer};
use holdfast_xrl::{CallContext, XrlError};
use tokio::sync::Notify;

use crate::{Door, Peer, TransportError, peer};

/// Serves `transport.v1`. Who may configure and who may ask is the interface's matter.
#[derive(Debug, Default)]
pub struct TransportService {
    door: RefCell<Door>,
    /// `None` until the first configuration.
    plain: RefCell<Option<Vec<Plain>>>,
    configured: Notify,
}

/// A plain listener, and the role it is for.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Plain {
    address: SocketAddr,
    role: String,
}

impl TransportService {
    /// With a door that knows no peers yet.
    pub fn new() -> Self {
        Self::default()
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
        self.door.borrow_mut().configure(peers, &listen).map_err(refused)?;
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
        let socket = self.door.borrow_mut().listen(address, request.plain).map_err(refused)?;
        tracing::info!(event = "socket-opened", %address, "listening");
        Ok((Empty {}, vec![socket]))
    }

    async fn dial(&self, _cx: &CallContext, request: DialRequest) -> Result<(Empty, Vec<OwnedFd>), XrlError> {
        let socket = self.door.borrow().dial(&request.peer).map_err(refused)?;
        Ok((Empty {}, vec![socket]))
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

fn refused(error: TransportError) -> XrlError {
    match error {
        TransportError::UnknownPeer(_) => XrlError::not_found(error.to_string()),
        TransportError::Range(_) => XrlError::failed_precondition(error.to_string()),
        TransportError::NoInterface { .. }
        | TransportError::TooManyKeys { .. }
        | TransportError::Refused { .. } => XrlError::unavailable(error.to_string()),
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
        let service = TransportService::new();
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

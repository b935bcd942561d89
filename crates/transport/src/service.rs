//! The door as `transport.v1`.

use std::{
    cell::RefCell,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    os::fd::OwnedFd,
};

use holdfast_api::transport::v1::{Configuration, DialRequest, Empty, ListenRequest, TransportServer};
use holdfast_xrl::{CallContext, XrlError};

use crate::{Door, Peer, TransportError, peer};

/// Serves `transport.v1`. Who may configure and who may ask is the interface's matter.
#[derive(Debug, Default)]
pub struct TransportService {
    door: RefCell<Door>,
}

impl TransportService {
    /// With a door that knows no peers yet.
    pub fn new() -> Self {
        Self::default()
    }
}

impl TransportServer for TransportService {
    async fn configure(&self, _cx: &CallContext, request: Configuration) -> Result<Empty, XrlError> {
        let peers: Result<Vec<Peer>, _> = request.peers.into_iter().map(Peer::try_from).collect();
        let peers = peers.map_err(|error| XrlError::invalid_argument(error.to_string()))?;
        let listen: Vec<_> = request.listen.iter().map(listen_address).collect::<Result<_, _>>()?;
        tracing::info!(event = "transport-configured", peers = peers.len(), "peers configured");
        self.door.borrow_mut().configure(peers, &listen).map_err(refused)?;
        Ok(Empty {})
    }

    async fn listen(
        &self,
        cx: &CallContext,
        request: ListenRequest,
    ) -> Result<(Empty, Vec<OwnedFd>), XrlError> {
        let address = listen_address(&request)?;
        let role = &cx.peer().role;
        if role != "bgp" && !request.plain {
            return Err(XrlError::denied(format!("the role {role} may only have plain listeners")));
        }
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
        ListenRequest { address: address.to_vec(), afi, port, plain: false }
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
}

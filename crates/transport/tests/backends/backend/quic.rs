use std::{net::SocketAddr, net::UdpSocket, rc::Rc, time::Duration};

use holdfast_tls::Seeds;
use holdfast_transport::{
    Connection, Expected, Failure, Gate, Listener, LocalFuture, Protocol, noq::Endpoint,
};

use super::{Abilities, Backend};

/// By noq.
pub(crate) struct Quic;

fn endpoint() -> Endpoint {
    let udp = UdpSocket::bind("127.0.0.1:0").expect("bind");
    Endpoint::new(udp, &Seeds::random()).expect("an endpoint")
}

impl Backend for Quic {
    fn protocol(&self) -> Protocol {
        Protocol::Quic
    }

    fn abilities(&self) -> Abilities {
        Abilities {
            proves: true,
            judged_when_dialed: true,
            says_why: true,
            ignores: true,
            retries: true,
            updates_keys: true,
            datagrams: true,
        }
    }

    fn listen(&self, gate: Rc<dyn Gate>, handshake: Duration) -> Box<dyn Listener> {
        let mut endpoint = endpoint();
        endpoint.limit_handshakes(handshake);
        Box::new(endpoint.listen(gate))
    }

    fn dial<'a>(
        &'a self,
        to: SocketAddr,
        expected: &'a Expected,
    ) -> LocalFuture<'a, Result<Connection, Failure>> {
        Box::pin(async move { endpoint().connect(to, None, expected).await })
    }
}

use std::{
    net::{Ipv4Addr, SocketAddr, UdpSocket},
    rc::Rc,
    time::Duration,
};

use holdfast_tls::Seeds;
use holdfast_transport::{
    Connection, Expected, Failure, Gate, Listener, LocalFuture, Protocol,
    s2n::{Dialer, Endpoint},
};
use tokio::{task::spawn_local, time::sleep};

use super::{Abilities, Backend};

pub(crate) struct S2n;

fn socket() -> UdpSocket {
    UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("bind")
}

impl Backend for S2n {
    fn protocol(&self) -> Protocol {
        Protocol::QuicS2n
    }

    fn abilities(&self) -> Abilities {
        Abilities {
            proves: true,
            judged_when_dialed: true,
            says_why: true,
            ignores: true,
            retries: true,
            updates_keys: false,
            datagrams: true,
        }
    }

    fn listen(&self, gate: Rc<dyn Gate>, handshake: Duration) -> Box<dyn Listener> {
        let mut endpoint = Endpoint::new(socket(), &Seeds::random()).expect("an endpoint");
        endpoint.limit_handshakes(handshake);
        Box::new(endpoint.listen(gate).expect("a listener"))
    }

    fn dial<'a>(
        &'a self,
        to: SocketAddr,
        expected: &'a Expected,
    ) -> LocalFuture<'a, Result<Connection, Failure>> {
        Box::pin(async move {
            let dialer = Rc::new(Dialer::new(socket())?);
            // Others are dialed from it as well: it stays when this attempt is given up.
            let stays = Rc::clone(&dialer);
            spawn_local(async move {
                sleep(Duration::from_secs(1)).await;
                drop(stays);
            });
            dialer.connect(to, expected).await
        })
    }
}

use std::{cell::Cell, net::SocketAddr, rc::Rc, time::Duration};

use holdfast_transport::{
    Connection, Expected, Failure, Gate, Listener, LocalFuture, Protocol, memory::Network,
};

use super::{Abilities, Backend};

pub(crate) struct Memory {
    network: Network,
    next_port: Cell<u16>,
}

impl Default for Memory {
    fn default() -> Self {
        Self { network: Network::new(1), next_port: Cell::new(1000) }
    }
}

impl Memory {
    fn address(&self) -> SocketAddr {
        let port = self.next_port.get();
        self.next_port.set(port + 1);
        SocketAddr::from(([127, 0, 0, 1], port))
    }
}

impl Backend for Memory {
    fn protocol(&self) -> Protocol {
        Protocol::Memory
    }

    fn abilities(&self) -> Abilities {
        Abilities {
            says_why: true,
            ignores: true,
            retries: true,
            judged_when_dialed: true,
            ..Abilities::default()
        }
    }

    fn listen(&self, gate: Rc<dyn Gate>, _: Duration) -> Box<dyn Listener> {
        Box::new(self.network.listener(self.address(), gate))
    }

    fn dial<'a>(
        &'a self,
        to: SocketAddr,
        expected: &'a Expected,
    ) -> LocalFuture<'a, Result<Connection, Failure>> {
        Box::pin(self.network.connect(self.address(), to, expected))
    }
}

//! A middlebox for UDP: passes datagrams on, shows them to who wants to see, and can take another address on the way.

use std::{
    cell::{Cell, RefCell},
    net::SocketAddr,
    rc::Rc,
};

use tokio::{net::UdpSocket, select, sync::Notify, task::spawn_local};

/// Where a datagram goes.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Way {
    ToServer,
    ToClient,
}

/// Whether it goes on.
type Look = Box<dyn FnMut(Way, &[u8]) -> bool>;

pub(crate) struct Relay {
    front: UdpSocket,
    back: RefCell<Rc<UdpSocket>>,
    moved: Notify,
    client: Cell<Option<SocketAddr>>,
    server: Cell<SocketAddr>,
    look: RefCell<Look>,
}

impl Relay {
    /// Before this server; every datagram goes on.
    pub(crate) async fn new(server: SocketAddr) -> Rc<Self> {
        Self::looking(server, |_, _| true).await
    }

    /// Before this server; `look` says which datagrams go on.
    pub(crate) async fn looking(
        server: SocketAddr,
        look: impl FnMut(Way, &[u8]) -> bool + 'static,
    ) -> Rc<Self> {
        let relay = Rc::new(Self {
            front: socket().await,
            back: RefCell::new(Rc::new(socket().await)),
            moved: Notify::new(),
            client: Cell::new(None),
            server: Cell::new(server),
            look: RefCell::new(Box::new(look)),
        });
        spawn_local(relay.clone().to_server());
        spawn_local(relay.clone().to_client());
        relay
    }

    /// Where clients find the server.
    pub(crate) fn address(&self) -> SocketAddr {
        self.front.local_addr().expect("an address")
    }

    /// Where the server sees the client.
    pub(crate) fn outside(&self) -> SocketAddr {
        self.back.borrow().local_addr().expect("an address")
    }

    /// The client has another address from now on, and its earlier one is gone.
    pub(crate) async fn moves(&self) {
        let back = Rc::new(socket().await);
        self.back.replace(back);
        self.moved.notify_one();
    }

    /// What clients send goes to another server from now on.
    pub(crate) fn leads_to(&self, server: SocketAddr) {
        self.server.set(server);
    }

    async fn to_server(self: Rc<Self>) {
        let mut buffer = [0; 2048];
        loop {
            let (length, client) = self.front.recv_from(&mut buffer).await.expect("a datagram");
            self.client.set(Some(client));
            if self.passes(Way::ToServer, &buffer[..length]) {
                let back = self.back.borrow().clone();
                // A datagram may be lost.
                let _ = back.send_to(&buffer[..length], self.server.get()).await;
            }
        }
    }

    async fn to_client(self: Rc<Self>) {
        let mut buffer = [0; 2048];
        loop {
            let back = self.back.borrow().clone();
            let length = select! {
                received = back.recv_from(&mut buffer) => received.expect("a datagram").0,
                () = self.moved.notified() => continue,
            };
            if let Some(client) = self.client.get()
                && self.passes(Way::ToClient, &buffer[..length])
            {
                let _ = self.front.send_to(&buffer[..length], client).await;
            }
        }
    }

    fn passes(&self, way: Way, datagram: &[u8]) -> bool {
        (self.look.borrow_mut())(way, datagram)
    }
}

async fn socket() -> UdpSocket {
    UdpSocket::bind("127.0.0.1:0").await.expect("a socket")
}

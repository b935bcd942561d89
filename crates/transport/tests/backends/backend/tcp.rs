use std::{
    net::{Ipv4Addr, SocketAddr, TcpListener},
    os::fd::OwnedFd,
    rc::Rc,
    time::Duration,
};

use holdfast_transport::{Connection, Expected, Failure, Gate, Listener, LocalFuture, Protocol, tcp, tls};
use rustix::{
    io::Errno,
    net::{AddressFamily, SocketFlags, SocketType, connect, socket_with},
};

use super::{Abilities, Backend};

pub(crate) struct Tcp;

pub(crate) struct Tls;

/// The same for both: what comes is what the gate expects.
fn listen(gate: Rc<dyn Gate>, handshake: Duration) -> Box<dyn Listener> {
    let socket = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("bind");
    let listener = tcp::TcpListener::new(socket.into(), gate).expect("a listener");
    Box::new(listener.with_handshake_time(handshake))
}

/// As whoever may open sockets hands them out: non-blocking, and on its way.
fn connecting(to: SocketAddr) -> OwnedFd {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::INET, SocketType::STREAM, flags, None).expect("a socket");
    match connect(&socket, &to) {
        Ok(()) | Err(Errno::INPROGRESS) => socket,
        Err(error) => panic!("connecting: {error}"),
    }
}

impl Backend for Tcp {
    fn protocol(&self) -> Protocol {
        Protocol::Tcp
    }

    fn abilities(&self) -> Abilities {
        Abilities::default()
    }

    fn listen(&self, gate: Rc<dyn Gate>, handshake: Duration) -> Box<dyn Listener> {
        listen(gate, handshake)
    }

    fn dial<'a>(
        &'a self,
        to: SocketAddr,
        expected: &'a Expected,
    ) -> LocalFuture<'a, Result<Connection, Failure>> {
        Box::pin(tcp::connect(connecting(to), &expected.peer))
    }
}

impl Backend for Tls {
    fn protocol(&self) -> Protocol {
        Protocol::Tls
    }

    fn abilities(&self) -> Abilities {
        Abilities { proves: true, updates_keys: true, ..Abilities::default() }
    }

    fn listen(&self, gate: Rc<dyn Gate>, handshake: Duration) -> Box<dyn Listener> {
        listen(gate, handshake)
    }

    fn dial<'a>(
        &'a self,
        to: SocketAddr,
        expected: &'a Expected,
    ) -> LocalFuture<'a, Result<Connection, Failure>> {
        Box::pin(tls::connect(connecting(to), expected))
    }
}

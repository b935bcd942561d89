//! Connections that we make.

use std::{
    net::SocketAddr,
    os::fd::{AsFd, OwnedFd},
    rc::Rc,
};

use holdfast_api::{socket::v1::DialRequest, transport::v1 as api};
use holdfast_transport::{Connection, Failure, Protocol, tcp, tls};
use holdfast_xrl::XrlError;
use rustix::net::netdevice;

use crate::{
    carried::carry,
    door::ConnectionBroker,
    peers::{Peer, Source, describe},
    quic,
};

/// A connection to a peer over the first of its transports that comes about, and over no other. Where the last call was
/// given up while one of them was tried, this one begins with the next: one that never answers must not keep the others
/// from being tried.
///
/// A peer of another role than the caller's is none.
pub(crate) async fn connect(
    door: &Rc<ConnectionBroker>,
    name: &str,
    role: &str,
) -> Result<(api::Connection, OwnedFd), XrlError> {
    door.is_configured().await;
    let peer = door.peers().named(name).filter(|peer| peer.role == role).cloned();
    let peer = peer.ok_or_else(|| XrlError::not_found(format!("no peer `{name}` is configured")))?;
    let first = door.next.borrow_mut().remove(name).filter(|next| *next < peer.transports.len()).unwrap_or(0);
    let mut reasons = Vec::new();
    for (number, protocol) in peer.transports.iter().enumerate().skip(first) {
        door.next.borrow_mut().insert(name.to_owned(), number + 1);
        match connect_over(door, &peer, *protocol).await {
            Ok(connection) => {
                door.next.borrow_mut().remove(name);
                return Ok(connection);
            }
            Err(reason) if peer.transports.len() == 1 => reasons.push(reason.to_string()),
            Err(reason) => reasons.push(format!("{}: {reason}", protocol.name())),
        }
    }
    door.next.borrow_mut().remove(name);
    Err(XrlError::unavailable(reasons.join("; ")))
}

async fn connect_over(
    door: &Rc<ConnectionBroker>,
    peer: &Peer,
    protocol: Protocol,
) -> Result<(api::Connection, OwnedFd), Failure> {
    let unreachable = |text: &str| Failure::Unreachable(text.to_owned());
    let (connection, interface) = match protocol {
        Protocol::Tcp | Protocol::Tls => {
            let socket = dial(door, &peer.name).await.map_err(|error| unreachable(error.message()))?;
            // To learn names of interfaces, when the connection has taken the socket.
            let copy = socket.try_clone().map_err(|error| unreachable(&error.to_string()))?;
            let connection = match protocol {
                Protocol::Tcp => tcp::connect(socket, &peer.name).await?,
                _ if peer.may_come() => tls::connect(socket, &peer.expected()).await?,
                _ => tls::connect_unnamed(socket, &peer.expected()).await?,
            };
            let interface = interface(&copy, connection.identity.remote);
            (connection, interface)
        }
        Protocol::Quic | Protocol::QuicS2n => {
            let interface = peer.interface().map(Into::into);
            (quic::connect(door, peer, protocol).await?, interface)
        }
        Protocol::Memory => return Err(Failure::Unsupported("memory is for tests".to_owned())),
    };
    hand_out(door, connection, interface.as_deref()).map_err(|error| unreachable(&error.to_string()))
}

/// The kernel's own socket, or one end of a pair that is carried.
pub(crate) fn hand_out(
    door: &Rc<ConnectionBroker>,
    connection: Connection,
    interface: Option<&str>,
) -> std::io::Result<(api::Connection, OwnedFd)> {
    let Connection { identity, stream, control, permit } = connection;
    match stream.into_socket() {
        Ok(socket) => {
            let addresses = (identity.remote, identity.local);
            Ok((describe(&identity.peer, identity.protocol, addresses, interface), socket))
        }
        Err(stream) => carry(door, Connection { identity, stream, control, permit }, interface),
    }
}

/// The interface of a link-local address.
fn interface(socket: impl AsFd, remote: SocketAddr) -> Option<Box<str>> {
    let name = |number| netdevice::index_to_name(&socket, number).ok().map(String::into_boxed_str);
    Source::of(remote, name).interface
}

/// A socket that is connecting to a peer, from whoever opens sockets.
pub(crate) async fn dial(door: &ConnectionBroker, name: &str) -> Result<OwnedFd, XrlError> {
    let sockets = door.sockets().await?;
    let (_, fds) = sockets.dial(DialRequest { peer: name.to_owned() }).await?;
    fds.into_iter().next().ok_or_else(|| XrlError::internal("no descriptor came"))
}

//! Listeners of TCP, over which TLS comes as well.

use std::{io, os::fd::OwnedFd, rc::Rc, time::Duration};

use holdfast_api::socket::v1::{ListenRequest, SocketClient};
use holdfast_transport::{Gate, Listener, tcp::TcpListener};
use holdfast_xrl::{Client, XrlError};
use rustix::net::sockopt::socket_cookie;
use tracing::{info, warn};

use crate::{door::ConnectionBroker, entry::Entry, peers::octets, watched::Watched};

/// Pause before a listener is asked for again that could not be had.
const RETRY: Duration = Duration::from_secs(1);

/// A listening socket in use.
struct Opened {
    /// Who has opened it, or knows its peers since.
    sockets: SocketClient,
    listener: TcpListener,
    /// The kernel's number of the socket, of which all copies have the same.
    cookie: u64,
}

/// Takes connections at one address. When whoever opened the listening socket is gone, its successor is asked for it: that
/// one has the peers' keys from then on. With the same socket it goes on as if nothing had been; another one takes its place.
/// So it does when the socket does not listen any more.
pub(crate) async fn listen(door: Rc<ConnectionBroker>, entry: Rc<Entry>) {
    let address = entry.address;
    loop {
        let Opened { mut sockets, mut listener, cookie } = open(&door, &entry).await;
        info!(event = "listening", %address, protocol = entry.protocol.name(), "listening");
        loop {
            tokio::select! {
                successor = succeed(&door, &entry, &sockets, cookie) => match successor {
                    Some(successor) => sockets = successor,
                    None => break,
                },
                () = serve(&door, &entry, &mut listener) => break,
            }
        }
        // The address is free for another one when no copy is left.
        entry.listens_no_more();
    }
}

/// Waits for a successor of whoever has opened the listening socket; `None`: that has another one, or none.
async fn succeed(
    door: &ConnectionBroker,
    entry: &Entry,
    sockets: &SocketClient,
    cookie: u64,
) -> Option<SocketClient> {
    sockets.channel().closed().await;
    loop {
        let successor = door.wait_for_sockets().await.ok()?;
        match ask(entry, &successor).await {
            Ok(socket) => return (socket_cookie(&socket) == Ok(cookie)).then_some(successor),
            Err(_) if successor.channel().is_closed() => {}
            Err(_) => return None,
        }
    }
}

/// Asks for the listening socket again and again until it is there.
async fn open(door: &ConnectionBroker, entry: &Rc<Entry>) -> Opened {
    let address = entry.address;
    loop {
        match try_open(door, entry).await {
            Ok(opened) => return opened,
            Err(error) => {
                if entry.fails(error.clone()) {
                    let protocol = entry.protocol.name();
                    warn!(
                        event = "listen-failed",
                        %address,
                        protocol,
                        "cannot listen: {error}; trying again every second"
                    );
                }
            }
        }
        tokio::time::sleep(RETRY).await;
    }
}

async fn try_open(door: &ConnectionBroker, entry: &Rc<Entry>) -> Result<Opened, String> {
    let sockets = door.sockets().await.map_err(|error| error.message().to_owned())?;
    let socket = ask(entry, &sockets).await?;
    let failed = |error: io::Error| error.to_string();
    let cookie = socket_cookie(&socket).map_err(|error| failed(error.into()))?;
    let watched = Watched::new(socket.try_clone().map_err(failed)?, entry.address.ip());
    let gate = Rc::clone(entry) as Rc<dyn Gate>;
    let listener = TcpListener::new(socket, gate).map_err(failed)?;
    entry.listens(watched);
    Ok(Opened { sockets, listener, cookie })
}

/// The listening socket, of who opens it.
async fn ask(entry: &Entry, sockets: &SocketClient) -> Result<OwnedFd, String> {
    let address = entry.address;
    let request = ListenRequest {
        address: octets(address.ip()),
        afi: if address.is_ipv4() { 1 } else { 2 },
        port: address.port().into(),
        ..ListenRequest::default()
    };
    let refused = |error: XrlError| error.message().to_owned();
    let (_, descriptors) = sockets.listen(request).await.map_err(refused)?;
    descriptors.into_iter().next().ok_or_else(|| "no descriptor came".to_owned())
}

/// Until the socket does not listen any more.
async fn serve(door: &Rc<ConnectionBroker>, entry: &Rc<Entry>, listener: &mut TcpListener) {
    loop {
        door.has_room().await;
        match listener.accept().await {
            Ok(connection) => door.let_in(entry, connection),
            Err(failure) => {
                let address = entry.address;
                info!(event = "listener-ended", %address, "the listening socket was ended: asking for another: {failure}");
                door.has_moved();
                return;
            }
        }
    }
}

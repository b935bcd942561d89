//! Listeners of TCP, over which TLS comes as well.

use std::{rc::Rc, time::Duration};

use holdfast_api::socket::v1::{ListenRequest, SocketClient};
use holdfast_transport::{Gate, Listener, tcp::TcpListener};
use holdfast_xrl::{Client, XrlError};
use tracing::{info, warn};

use crate::{door::Door, entry::Entry, peers::octets, watched::Watched};

/// Pause before a listener is asked for again that could not be had.
const RETRY: Duration = Duration::from_secs(1);

/// Takes connections at one address. When whoever opened the listening socket is gone, its successor opens another:
/// that one has the peers' keys from then on. So does the same one when the socket does not listen any more.
pub(crate) async fn listen(door: Rc<Door>, entry: Rc<Entry>) {
    let address = entry.address;
    loop {
        let (sockets, mut listener) = open(&door, &entry).await;
        info!(event = "listening", %address, protocol = entry.protocol.name(), "listening");
        let succeeded = async {
            sockets.channel().closed().await;
            door.wait_for_sockets().await
        };
        tokio::select! {
            _ = succeeded => {}
            () = serve(&door, &entry, &mut listener) => {}
        }
    }
}

/// Asks for the listening socket again and again until it is there.
async fn open(door: &Door, entry: &Rc<Entry>) -> (SocketClient, TcpListener) {
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

async fn try_open(door: &Door, entry: &Rc<Entry>) -> Result<(SocketClient, TcpListener), String> {
    let address = entry.address;
    let request = ListenRequest {
        address: octets(address.ip()),
        afi: if address.is_ipv4() { 1 } else { 2 },
        port: address.port().into(),
        ..ListenRequest::default()
    };
    let refused = |error: XrlError| error.message().to_owned();
    let sockets = door.sockets().await.map_err(refused)?;
    let (_, descriptors) = sockets.listen(request).await.map_err(refused)?;
    let socket = descriptors.into_iter().next().ok_or("no descriptor came")?;
    let failed = |error: std::io::Error| error.to_string();
    let watched = Watched::new(socket.try_clone().map_err(failed)?, address.ip());
    let gate = Rc::clone(entry) as Rc<dyn Gate>;
    let listener = TcpListener::new(socket, gate).map_err(failed)?;
    entry.listens(watched);
    Ok((sockets, listener))
}

/// Until the socket does not listen any more.
async fn serve(door: &Rc<Door>, entry: &Rc<Entry>, listener: &mut TcpListener) {
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

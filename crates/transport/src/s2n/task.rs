//! The library's task of a socket. By itself it ends when nobody needs it any more and then something happens, which may be
//! never: until then nobody else can have the address.

use std::{
    io,
    sync::{Arc, OnceLock},
};

use s2n_quic::provider::io::{Provider, tokio as sockets};
use s2n_quic_core::{endpoint::Endpoint, inet::SocketAddress};
use tokio::task::AbortHandle;

/// Held by whoever listens or dials and by each connection; ends with the last of them.
#[derive(Debug, Default)]
pub(super) struct Task(OnceLock<AbortHandle>);

impl Drop for Task {
    fn drop(&mut self) {
        if let Some(task) = self.0.get() {
            task.abort();
        }
    }
}

/// What the library starts its task with.
pub(super) struct Io {
    sockets: sockets::Provider,
    task: Arc<Task>,
}

impl Io {
    /// At a socket.
    pub(super) fn new(udp: std::net::UdpSocket, task: &Arc<Task>) -> io::Result<Self> {
        let sockets = sockets::Builder::default().with_rx_socket(udp)?.build()?;
        Ok(Self { sockets, task: Arc::clone(task) })
    }
}

impl Provider for Io {
    type PathHandle = <sockets::Provider as Provider>::PathHandle;
    type Error = io::Error;

    fn start<E: Endpoint<PathHandle = Self::PathHandle>>(self, endpoint: E) -> io::Result<SocketAddress> {
        let (task, local) = sockets::Provider::start(self.sockets, endpoint)?;
        // It is started once.
        let _ = self.task.0.set(task.abort_handle());
        Ok(local)
    }
}

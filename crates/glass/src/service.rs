//! Configured by the manager: where to listen.

use std::{
    cell::RefCell,
    net::{IpAddr, SocketAddr},
    rc::Rc,
};

use holdfast_api::{
    glass::v1::{Configuration, Empty, GlassServer},
    transport::v1::{ListenRequest, TransportClient},
};
use holdfast_process::{Resolver, spawn_task};
use holdfast_xrl::{CallContext, XrlError};
use tokio::{net::TcpListener, task::AbortHandle};
use tracing::info;

use crate::{answer::Answerer, server};

/// Serves `glass.v1`.
pub(crate) struct Glass {
    resolver: Resolver,
    answerer: Rc<Answerer>,
    listening: RefCell<Option<Listening>>,
}

struct Listening {
    address: SocketAddr,
    task: AbortHandle,
}

impl Drop for Listening {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Glass {
    pub(crate) fn new(resolver: Resolver, answerer: Rc<Answerer>) -> Self {
        Self { resolver, answerer, listening: RefCell::default() }
    }

    async fn open(&self, address: SocketAddr) -> Result<TcpListener, XrlError> {
        let transport: TransportClient = self.resolver.wait_for("transport").await?;
        let request = ListenRequest {
            address: octets(address.ip()),
            afi: if address.is_ipv4() { 1 } else { 2 },
            port: address.port().into(),
            plain: true,
            ..ListenRequest::default()
        };
        let (_, fds) = transport.listen(request).await?;
        let fd = fds.into_iter().next().ok_or_else(|| XrlError::internal("no descriptor came"))?;
        TcpListener::from_std(fd.into()).map_err(|error| XrlError::internal(error.to_string()))
    }
}

impl GlassServer for Glass {
    async fn configure(&self, _: &CallContext, request: Configuration) -> Result<Empty, XrlError> {
        let address = address(&request)?;
        if self.listening.borrow().as_ref().is_some_and(|listening| listening.address == address) {
            return Ok(Empty {});
        }
        // Two sockets of one port may not overlap, as 0.0.0.0 and 127.0.0.1 would.
        self.listening.borrow_mut().take_if(|listening| listening.address.port() == address.port());
        let listener = self.open(address).await?;
        let task = spawn_task(server::serve(listener, Rc::clone(&self.answerer))).abort_handle();
        self.listening.replace(Some(Listening { address, task }));
        info!(event = "listening", %address, "answering looking glasses");
        Ok(Empty {})
    }
}

fn address(request: &Configuration) -> Result<SocketAddr, XrlError> {
    let octets = request.address.as_slice();
    let v4 = <[u8; 4]>::try_from(octets).map(IpAddr::from);
    let address = v4.or_else(|_| <[u8; 16]>::try_from(octets).map(IpAddr::from)).ok();
    let port = u16::try_from(request.port).ok().filter(|&port| port != 0);
    let address = address.zip(port).map(SocketAddr::from);
    address.ok_or_else(|| XrlError::invalid_argument("an address and a port are needed"))
}

fn octets(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    }
}

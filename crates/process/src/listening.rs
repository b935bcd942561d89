//! Where a process that answers others than peers listens: one address, that of the configuration.

use std::{
    cell::RefCell,
    net::{IpAddr, SocketAddr},
};

use holdfast_api::transport::v1::{ListenRequest, TransportClient};
use holdfast_xrl::{Resolver, XrlError};
use tokio::{net::TcpListener, task::AbortHandle};
use tracing::info;

use crate::spawn_task;

/// The listening socket and the task that serves it.
pub struct Listening {
    resolver: Resolver,
    served: RefCell<Option<Served>>,
}

struct Served {
    address: SocketAddr,
    task: AbortHandle,
}

impl Drop for Served {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Listening {
    /// Not yet. The socket will come from the class `transport`.
    pub fn new(resolver: Resolver) -> Self {
        Self { resolver, served: RefCell::default() }
    }

    /// Serves at this address, of 4 or 16 octets, and at no other any more; `whom` is for the log. Where it is served
    /// already nothing changes.
    ///
    /// # Errors
    /// `InvalidArgument` for what is no address or port; what `transport` says. Then only what is in the way is closed.
    pub async fn serve<F: Future<Output = ()> + 'static>(
        &self,
        (address, port): (&[u8], u32),
        whom: &str,
        serve: impl FnOnce(TcpListener) -> F,
    ) -> Result<(), XrlError> {
        let address = socket_address(address, port)?;
        if self.served.borrow().as_ref().is_some_and(|served| served.address == address) {
            return Ok(());
        }
        // Two sockets of one port may not overlap, as 0.0.0.0 and 127.0.0.1 would.
        self.served.borrow_mut().take_if(|served| served.address.port() == address.port());
        let listener = self.open(address).await?;
        let task = spawn_task(serve(listener)).abort_handle();
        self.served.replace(Some(Served { address, task }));
        info!(event = "listening", %address, "answering {whom}");
        Ok(())
    }

    /// Whether it could be served at this address, as far as that says.
    ///
    /// # Errors
    /// `InvalidArgument` for what is no address or port.
    pub fn check((address, port): (&[u8], u32)) -> Result<(), XrlError> {
        socket_address(address, port).map(drop)
    }

    async fn open(&self, address: SocketAddr) -> Result<TcpListener, XrlError> {
        let transport: TransportClient = self.resolver.wait_for("transport").await?;
        let request = ListenRequest {
            address: match address.ip() {
                IpAddr::V4(address) => address.octets().to_vec(),
                IpAddr::V6(address) => address.octets().to_vec(),
            },
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

fn socket_address(octets: &[u8], port: u32) -> Result<SocketAddr, XrlError> {
    let v4 = <[u8; 4]>::try_from(octets).map(IpAddr::from);
    let address = v4.or_else(|_| <[u8; 16]>::try_from(octets).map(IpAddr::from)).ok();
    let port = u16::try_from(port).ok().filter(|&port| port != 0);
    let address = address.zip(port).map(SocketAddr::from);
    address.ok_or_else(|| XrlError::invalid_argument("an address and a port are needed"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_4_or_16_octets_and_a_port() {
        let text = |octets: &[u8], port| socket_address(octets, port).map(|it| it.to_string()).ok();
        assert_eq!(text(&[127, 0, 0, 1], 80).as_deref(), Some("127.0.0.1:80"));
        assert_eq!(text(&[0; 16], 65535).as_deref(), Some("[::]:65535"));
        assert_eq!([text(&[127, 0, 1], 80), text(&[0; 4], 0), text(&[0; 4], 65536)], [None, None, None]);
    }
}

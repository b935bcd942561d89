//! Datagrams of a protocol on one interface.

use std::{
    io,
    net::{IpAddr, SocketAddr, UdpSocket as StdSocket},
};

use holdfast_api::socket::v1::{GroupRequest, SocketClient};
use holdfast_process::Boot;
use holdfast_sys::packet::{self, Way};
use holdfast_xrl::XrlError;
use tokio::{io::Interest, net::UdpSocket};

use crate::client;

/// A socket on one interface, at a port and in a group of the process's descriptor.
#[derive(Debug)]
pub struct Datagrams {
    socket: UdpSocket,
}

/// A datagram that was received.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Datagram {
    /// Its octets, from the start of the buffer. What did not fit is lost.
    pub octets: usize,
    /// Who sent it.
    pub source: SocketAddr,
    /// The TTL or hop limit it came with, if the socket tells.
    pub hop_limit: Option<u8>,
    /// It was sent to a group.
    pub is_multicast: bool,
}

impl Datagrams {
    /// Opens one.
    ///
    /// # Errors
    /// What `fea` says: the interface is not there, or not named in the process's section.
    pub async fn open(boot: &Boot, interface: &str, port: u16, is_ipv6: bool) -> Result<Self, XrlError> {
        let client: SocketClient = client(boot, "socket").await?;
        let afi = if is_ipv6 { 2 } else { 1 };
        let request = GroupRequest { interface: interface.to_owned(), port: port.into(), afi };
        let (_, descriptors) = client.group(request).await?;
        let socket = descriptors.into_iter().next();
        let socket = socket.ok_or_else(|| XrlError::internal("no descriptor came"))?;
        let socket = UdpSocket::from_std(StdSocket::from(socket));
        let failed = |error: io::Error| XrlError::internal(format!("the socket: {error}"));
        let socket = socket.map_err(failed)?;
        // Until then nothing is sent: the runtime does not know yet that there is room.
        socket.writable().await.map_err(failed)?;
        Ok(Self { socket })
    }

    /// Waits for datagrams.
    ///
    /// # Errors
    /// Those of the socket.
    pub async fn readable(&self) -> io::Result<()> {
        self.socket.readable().await
    }

    /// The next datagram that has come; `None`: it was no datagram of this protocol's family.
    ///
    /// # Errors
    /// `WouldBlock` when there is none; else those of the socket.
    pub fn receive(&self, buffer: &mut [u8]) -> io::Result<Option<Datagram>> {
        let received = self.socket.try_io(Interest::READABLE, || packet::receive(&self.socket, buffer))?;
        Ok(received.source.map(|source| Datagram {
            octets: received.octets,
            source,
            hop_limit: received.hops,
            is_multicast: received.destination.is_some_and(|to| to.is_multicast()),
        }))
    }

    /// Sends a datagram from an address of the interface of this number.
    ///
    /// # Errors
    /// `WouldBlock` when there is no room; else those of the socket.
    pub fn send_from(&self, octets: &[u8], interface: u32, source: IpAddr, to: SocketAddr) -> io::Result<()> {
        let way = Way { interface, source, destination: to.ip(), port: to.port() };
        self.socket.try_io(Interest::WRITABLE, || packet::send(&self.socket, octets, way))
    }

    /// Sends a datagram.
    ///
    /// # Errors
    /// `WouldBlock` when there is no room; else those of the socket.
    pub fn send(&self, octets: &[u8], to: SocketAddr) -> io::Result<()> {
        self.socket.try_send_to(octets, to).map(drop)
    }
}

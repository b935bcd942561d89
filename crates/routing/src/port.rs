//! A UDP port of the process, at all addresses of its table.

use std::{
    io,
    net::UdpSocket as StdSocket,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
};

use holdfast_api::socket::v1::{PortRequest, SocketClient};
use holdfast_process::Boot;
use holdfast_sys::{
    kernel_drops,
    packet::{self, Received, Way},
};
use holdfast_xrl::XrlError;
use tokio::{io::Interest, net::UdpSocket};

use crate::client;

/// A socket at a port of the process's descriptor, of one family. What it sends goes by a [`Way`] of its own each time.
#[derive(Debug)]
pub struct Port {
    socket: UdpSocket,
}

impl Port {
    /// Opens one; of port 0, at a free port from 49152 on (RFC 5881 section 4). Each call opens another socket.
    ///
    /// # Errors
    /// What whoever opens sockets says: the port is not in the process's descriptor (`Denied`), or somebody else has it, or
    /// its table is not there now (`Unavailable`).
    pub async fn open(boot: &Boot, port: u16, is_ipv6: bool) -> Result<Self, XrlError> {
        let client: SocketClient = client(boot, "socket").await?;
        let request = PortRequest { afi: if is_ipv6 { 2 } else { 1 }, port: port.into() };
        let (_, descriptors) = client.port(request).await?;
        let socket = descriptors.into_iter().next();
        let socket = socket.ok_or_else(|| XrlError::internal("no descriptor came"))?;
        let opened = Self::from_fd(socket).await;
        opened.map_err(|error| XrlError::internal(format!("the socket: {error}")))
    }

    /// One that the process before has opened and the keeper has kept.
    ///
    /// # Errors
    /// When the descriptor is no socket, and those of the runtime.
    pub async fn from_fd(socket: OwnedFd) -> io::Result<Self> {
        let socket = UdpSocket::from_std(StdSocket::from(socket))?;
        // Until then nothing is sent: the runtime does not know yet that there is room.
        socket.writable().await?;
        Ok(Self { socket })
    }

    /// Its descriptor, for the keeper.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// The port that it is bound to.
    ///
    /// # Errors
    /// Those of `getsockname`.
    pub fn number(&self) -> io::Result<u16> {
        Ok(self.socket.local_addr()?.port())
    }

    /// Waits for packets.
    ///
    /// # Errors
    /// Those of the socket.
    pub async fn readable(&self) -> io::Result<()> {
        self.socket.readable().await
    }

    /// The next packet that has come. What does not fit into the buffer is lost.
    ///
    /// # Errors
    /// `WouldBlock` when there is none; else those of the socket.
    pub fn receive(&self, buffer: &mut [u8]) -> io::Result<Received> {
        self.socket.try_io(Interest::READABLE, || packet::receive(&self.socket, buffer))
    }

    /// Sends a packet this way, with TTL 255.
    ///
    /// # Errors
    /// `WouldBlock` when there is no room; else those of the socket: the source is not ours, there is no route.
    pub fn send(&self, octets: &[u8], way: Way) -> io::Result<()> {
        self.socket.try_io(Interest::WRITABLE, || packet::send(&self.socket, octets, way))
    }

    /// How many packets the kernel has dropped here since the socket was opened, modulo 2³²: there was no room.
    ///
    /// # Errors
    /// `ENOPROTOOPT` before Linux 4.12.
    pub fn drops(&self) -> io::Result<u32> {
        kernel_drops(&self.socket)
    }
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};

    use holdfast_sys::tcp::IpVersion;

    use super::*;

    const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

    /// As whoever opens sockets gives it.
    fn socket() -> OwnedFd {
        let socket = StdSocket::bind((HERE, 0)).expect("bound");
        socket.set_nonblocking(true).expect("set");
        packet::tell_ways(&socket, IpVersion::V4).expect("told");
        socket.into()
    }

    async fn story() {
        let at = Port::from_fd(socket()).await.expect("a port");
        let from = Port::from_fd(socket()).await.expect("a port");
        let none = at.receive(&mut [0; 8]).expect_err("nothing has come");
        assert_eq!(none.kind(), io::ErrorKind::WouldBlock);
        let port = at.number().expect("a number");
        let way = Way { interface: 0, source: HERE, destination: HERE, port };
        from.send(b"hello", way).expect("sent");
        at.readable().await.expect("it came");
        let mut buffer = [0; 8];
        let received = at.receive(&mut buffer).expect("it came");
        let source = received.source.map(|source| (source.ip(), source.port()));
        assert_eq!(source, Some((HERE, from.number().expect("a number"))));
        assert_eq!((received.destination, &buffer[..received.octets]), (Some(HERE), &b"hello"[..]));
        assert_eq!(at.drops().expect("a count"), 0);

        // The next process goes on where this one was.
        let kept = at.fd().try_clone_to_owned().expect("a copy");
        drop(at);
        from.send(b"again", way).expect("sent");
        let at = Port::from_fd(kept).await.expect("the same port");
        at.readable().await.expect("it came");
        assert_eq!((at.receive(&mut buffer).expect("it came").octets, at.number().ok()), (5, Some(port)));
    }

    #[test]
    fn a_port_goes_on_in_the_next_process_with_what_has_come_meanwhile() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(story());
    }
}

//! Netlink sockets (netlink(7)): their options, and those to netfilter and to the list of sockets.

use std::{
    io,
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd},
};

use rustix::{
    io::Errno,
    net::{
        AddressFamily, Protocol, RecvFlags, SendFlags, SocketFlags, SocketType, netlink::SocketAddrNetlink,
        sockopt,
    },
};

use crate::option::set_option;

/// Refusals repeat only the header of the request (`NETLINK_CAP_ACK`) and say why in words (`NETLINK_EXT_ACK`);
/// dumps are filtered by what the request asks for (`NETLINK_GET_STRICT_CHK`).
///
/// # Errors
/// Those of `setsockopt`: a kernel before 4.20, another sort of socket.
pub fn set_strict(socket: impl AsFd) -> io::Result<()> {
    [libc::NETLINK_CAP_ACK, libc::NETLINK_EXT_ACK, libc::NETLINK_GET_STRICT_CHK]
        .into_iter()
        .try_for_each(|option| set_option(&socket, libc::SOL_NETLINK, option, &1_i32))
}

/// Subscribes to a multicast group by its number.
///
/// # Errors
/// Those of `setsockopt`.
pub fn join_group(socket: impl AsFd, group: u32) -> io::Result<()> {
    set_option(socket, libc::SOL_NETLINK, libc::NETLINK_ADD_MEMBERSHIP, &group)
}

/// Which part of the kernel a netlink socket talks with.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Family {
    /// Packet queues and nf_tables.
    Netfilter,
    /// Which sockets there are.
    SockDiag,
}

impl Family {
    fn protocol(self) -> Protocol {
        match self {
            Self::Netfilter => rustix::net::netlink::NETFILTER,
            Self::SockDiag => rustix::net::netlink::SOCK_DIAG,
        }
    }
}

/// A socket that talks with the kernel and with nobody else, and never waits.
#[derive(Debug)]
pub struct Socket {
    socket: OwnedFd,
    port: u32,
}

impl Socket {
    /// A socket of the network namespace in which the calling thread is, with room for so many octets that
    /// nobody has read yet.
    ///
    /// # Errors
    /// Those of `socket` and of [`Self::over`].
    pub fn open(family: Family, room: usize) -> io::Result<Self> {
        let protocol = Some(family.protocol());
        let socket = rustix::net::socket_with(
            AddressFamily::NETLINK,
            SocketType::RAW,
            SocketFlags::CLOEXEC | SocketFlags::NONBLOCK,
            protocol,
        )?;
        Self::over(socket, room)
    }

    /// The same over a socket that another process has opened in another namespace. The kernel asks for
    /// CAP_NET_ADMIN of both: who opened it, and who uses it.
    ///
    /// # Errors
    /// Those of `fcntl`, `bind`, `connect`, `getsockname` and `setsockopt`.
    pub fn over(socket: OwnedFd, room: usize) -> io::Result<Self> {
        rustix::io::ioctl_fionbio(&socket, true)?;
        // The kernel chooses our port, and its own is 0.
        let nobody = SocketAddrNetlink::new(0, 0);
        rustix::net::bind(&socket, &nobody)?;
        rustix::net::connect(&socket, &nobody)?;
        match sockopt::set_socket_recv_buffer_size_force(&socket, room) {
            Err(Errno::PERM) => sockopt::set_socket_recv_buffer_size(&socket, room)?,
            result => result?,
        }
        let own = SocketAddrNetlink::try_from(rustix::net::getsockname(&socket)?)?;
        Ok(Self { port: own.pid(), socket })
    }

    /// Our address: what the kernel tells others of what we have asked for has it.
    pub fn port(&self) -> u32 {
        self.port
    }

    /// Sends messages. The kernel has acted on them when this returns.
    ///
    /// # Errors
    /// Those of `send`. What the kernel says of a message is an answer.
    pub fn send(&self, messages: &[u8]) -> io::Result<()> {
        rustix::io::retry_on_intr(|| rustix::net::send(&self.socket, messages, SendFlags::empty()))?;
        Ok(())
    }

    /// The next datagram. One that is longer than the buffer is cut.
    ///
    /// # Errors
    /// Those of `recv`: `EAGAIN` for none; `ENOBUFS` when the kernel has lost some because there was no room.
    pub fn receive<'a>(&self, buffer: &'a mut [u8]) -> io::Result<&'a [u8]> {
        let (length, _) =
            rustix::io::retry_on_intr(|| rustix::net::recv(&self.socket, &mut *buffer, RecvFlags::empty()))?;
        Ok(&buffer[..length])
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl AsRawFd for Socket {
    fn as_raw_fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_has_a_port_of_its_own_and_does_not_wait() {
        let [one, other] = [Family::Netfilter, Family::SockDiag]
            .map(|family| Socket::open(family, 1 << 20).expect("a socket"));
        assert!(one.port() != 0 && other.port() != 0);
        let none = one.receive(&mut [0; 64]).expect_err("nobody has sent anything");
        assert_eq!(none.kind(), io::ErrorKind::WouldBlock);
        assert!(Socket::over(std::net::UdpSocket::bind("127.0.0.1:0").expect("bind").into(), 1).is_err());
    }
}

//! Sockets to the kernel's routing tables.

use std::{
    hash::{BuildHasher, RandomState},
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::{
        LazyLock,
        atomic::{AtomicU32, Ordering},
    },
};

use rustix::{
    io::Errno,
    net::{
        AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netlink::SocketAddrNetlink, sockopt,
    },
};

/// A socket of the network namespace in which the calling thread is, for [`LinuxFib::over`](crate::LinuxFib::over) and
/// [`Monitor::over`](crate::Monitor::over). One that another process has opened in another namespace does as well: it
/// stays in that one, whoever uses it. Both who opens it and who uses it need CAP_NET_ADMIN for changes.
///
/// # Errors
/// Those of `socket`.
pub fn socket() -> io::Result<OwnedFd> {
    let (family, flags) = (AddressFamily::NETLINK, SocketFlags::CLOEXEC);
    // Without a number the protocol is NETLINK_ROUTE, 0.
    Ok(rustix::net::socket_with(family, SocketType::RAW, flags, None)?)
}

/// Of a port: the part that all sockets of this process have, and nobody else's. The kernel tells in each notice from whose
/// port the change was asked for, so a filter knows ours by this part.
pub(crate) const PORTS_MASK: u32 = !0xfff;

/// The common part. Numbers of processes, which the kernel takes for ports, end far below, and those that it chooses when a
/// process has several sockets begin above.
static PORTS: LazyLock<u32> = LazyLock::new(|| common(RandomState::new().hash_one(0_u8) as u32));

fn common(random: u32) -> u32 {
    (1 << 30) | (random & PORTS_MASK & ((1 << 30) - 1))
}

/// The next port's own part.
static NEXT_PORT: AtomicU32 = AtomicU32::new(0);

/// The part of their ports that all sockets of this process have.
pub(crate) fn ports() -> u32 {
    *PORTS
}

fn bind(socket: &OwnedFd) -> io::Result<()> {
    for _ in 0..=!PORTS_MASK {
        let own = NEXT_PORT.fetch_add(1, Ordering::Relaxed) & !PORTS_MASK;
        match rustix::net::bind(socket, &SocketAddrNetlink::new(ports() | own, 0)) {
            Err(Errno::ADDRINUSE) => {}
            result => return Ok(result?),
        }
    }
    Err(Errno::ADDRINUSE.into())
}

/// A socket that talks with the kernel and with nobody else.
pub(crate) struct Socket(OwnedFd);

impl Socket {
    /// Gives it a port of its own, and room for so many octets that nobody has read yet.
    pub(crate) fn new(socket: OwnedFd, receive_buffer: usize) -> io::Result<Self> {
        bind(&socket)?;
        let kernel = SocketAddrNetlink::new(0, 0);
        rustix::net::connect(&socket, &kernel)?;
        set_receive_buffer(&socket, receive_buffer)?;
        Ok(Self(socket))
    }

    pub(crate) fn send(&self, octets: &[u8]) -> io::Result<()> {
        rustix::io::retry_on_intr(|| rustix::net::send(&self.0, octets, SendFlags::empty()))?;
        Ok(())
    }

    /// One datagram.
    pub(crate) fn receive<'a>(&self, buffer: &'a mut [u8]) -> Result<&'a [u8], Errno> {
        let (length, _) =
            rustix::io::retry_on_intr(|| rustix::net::recv(&self.0, &mut *buffer, RecvFlags::empty()))?;
        Ok(&buffer[..length])
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Without CAP_NET_ADMIN, which only reading needs not, the system's limit holds.
fn set_receive_buffer(socket: &OwnedFd, octets: usize) -> io::Result<()> {
    match sockopt::set_socket_recv_buffer_size_force(socket, octets) {
        Err(Errno::PERM) => Ok(sockopt::set_socket_recv_buffer_size(socket, octets)?),
        result => Ok(result?),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_common_part_of_ports_has_no_bit_of_their_own_parts() {
        for random in [0, 0xfff, 0xc00, 0x1234_5678, u32::MAX] {
            let common = common(random);
            assert_eq!(common & PORTS_MASK, common);
            assert!((1 << 30..1 << 31).contains(&common));
        }
    }
}

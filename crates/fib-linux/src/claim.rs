//! Which router has a table of the kernel: a netlink port of the namespace, which follows from the number of the table and
//! which only one socket can have.
//!
//! The port is one of NETLINK_ROUTE, where the kernel hands messages from one program with CAP_NET_ADMIN to another. Who
//! finds the port taken asks the owner, who says in text who that is.

use std::{
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
};

use holdfast_fib::TableId;
use rustix::{
    io::Errno,
    net::{RecvFlags, SendFlags, netlink::SocketAddrNetlink},
};

/// Ports of claims begin here: above all numbers of processes, which the kernel takes for ports, and below those of our
/// requests.
const FIRST: u32 = 1 << 29;
/// Tables whose numbers have the same rest by this are claimed together.
const TABLES: u32 = 1 << 28;
/// Octets of a question and of an answer at most.
const LONGEST: usize = 1024;
/// Questions that are answered in one go.
const QUESTIONS: usize = 16;

fn port(table: TableId) -> SocketAddrNetlink {
    SocketAddrNetlink::new(FIRST | (table.0 % TABLES), 0)
}

/// A table that is ours, as long as this or a copy of its socket is open.
pub struct Claim(OwnedFd);

impl Claim {
    /// Claims a table in the namespace of a socket that nobody has used; `None`: another program has it.
    ///
    /// # Errors
    /// Those of `bind`.
    pub fn take(socket: OwnedFd, table: TableId) -> io::Result<Option<Self>> {
        rustix::io::ioctl_fionbio(&socket, true)?;
        match rustix::net::bind(&socket, &port(table)) {
            Ok(()) => Ok(Some(Self(socket))),
            Err(Errno::ADDRINUSE) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// One that was taken before, by its socket.
    pub fn again(socket: OwnedFd) -> Self {
        Self(socket)
    }

    /// Tells those who have asked since who has the table. Never waits.
    ///
    /// # Errors
    /// Those of the socket, except that it has nothing.
    pub fn answer(&self, text: &str) -> io::Result<()> {
        let text = &text.as_bytes()[..text.len().min(LONGEST)];
        for _ in 0..QUESTIONS {
            let mut question = [0; LONGEST];
            let asked = rustix::net::recvfrom(&self.0, &mut question, RecvFlags::empty());
            let from = match asked {
                Ok((_, _, from)) => from.map(SocketAddrNetlink::try_from),
                Err(Errno::AGAIN) => return Ok(()),
                Err(error) => return Err(error.into()),
            };
            // The kernel asks nothing, and who has gone needs no answer.
            if let Some(Ok(from)) = from
                && from.pid() != 0
            {
                let _ = rustix::net::sendto(&self.0, text, SendFlags::DONTWAIT, &from);
            }
        }
        Ok(())
    }
}

impl AsFd for Claim {
    /// Readable when somebody asks.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Asks who has a table.
pub struct Question(OwnedFd);

impl Question {
    /// Asks over a socket that nobody has used; `None`: nobody has it now.
    ///
    /// # Errors
    /// Those of the socket.
    pub fn ask(socket: OwnedFd, table: TableId) -> io::Result<Option<Self>> {
        rustix::io::ioctl_fionbio(&socket, true)?;
        rustix::net::bind(&socket, &SocketAddrNetlink::new(0, 0))?;
        match rustix::net::sendto(&socket, b"who?", SendFlags::DONTWAIT, &port(table)) {
            Ok(_) => Ok(Some(Self(socket))),
            Err(Errno::CONNREFUSED) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// The answer, if it is there.
    ///
    /// # Errors
    /// Those of the socket, except that it has nothing.
    pub fn answer(&self) -> io::Result<Option<String>> {
        let mut text = [0; LONGEST];
        match rustix::net::recv(&self.0, &mut text, RecvFlags::empty()) {
            Ok((length, _)) => Ok(Some(String::from_utf8_lossy(&text[..length]).into_owned())),
            Err(Errno::AGAIN) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

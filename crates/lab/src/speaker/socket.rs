//! Sockets that do not block, and a way to wake a thread that waits for them.

use std::{
    io::{self, Read, Write},
    net::{IpAddr, SocketAddr, TcpListener, TcpStream},
    os::{fd::OwnedFd, unix::net::UnixStream},
    time::Duration,
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    net::{self, AddressFamily, SocketFlags, SocketType, sockopt},
};

/// Wakes the thread that holds the other end.
#[derive(Debug)]
pub(super) struct Waker(UnixStream);

impl Waker {
    pub(super) fn wake(&self) {
        // A full pipe wakes as well.
        let _ = (&self.0).write(&[1]);
    }
}

/// A waker and the end that becomes readable.
pub(super) fn waker() -> io::Result<(Waker, UnixStream)> {
    let (waker, woken) = UnixStream::pair()?;
    waker.set_nonblocking(true)?;
    woken.set_nonblocking(true)?;
    Ok((Waker(waker), woken))
}

/// Takes all wake-ups.
pub(super) fn drain(woken: &UnixStream) {
    let mut octets = [0; 64];
    while matches!((&mut &*woken).read(&mut octets), Ok(1..)) {}
}

fn socket(address: IpAddr, receive_buffer: Option<usize>) -> io::Result<OwnedFd> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = net::socket_with(family, SocketType::STREAM, flags, None)?;
    sockopt::set_socket_reuseaddr(&socket, true)?;
    if let Some(size) = receive_buffer {
        sockopt::set_socket_recv_buffer_size(&socket, size)?;
    }
    Ok(socket)
}

pub(super) fn listen(local: SocketAddr, receive_buffer: Option<usize>) -> io::Result<TcpListener> {
    let socket = socket(local.ip(), receive_buffer)?;
    net::bind(&socket, &local)?;
    net::listen(&socket, 4)?;
    Ok(socket.into())
}

/// Begins a connection; it is there when the socket becomes writable without an error.
pub(super) fn connect(
    local: IpAddr,
    remote: SocketAddr,
    receive_buffer: Option<usize>,
) -> io::Result<TcpStream> {
    let socket = socket(local, receive_buffer)?;
    net::bind(&socket, &SocketAddr::new(local, 0))?;
    match net::connect(&socket, &remote) {
        Ok(()) | Err(rustix::io::Errno::INPROGRESS) => Ok(socket.into()),
        Err(error) => Err(error.into()),
    }
}

/// Waits for one of the descriptors, at most so long. An interruption counts as the end of the wait.
pub(super) fn wait(fds: &mut [PollFd<'_>], limit: Duration) -> io::Result<()> {
    let limit = Timespec { tv_sec: limit.as_secs() as i64, tv_nsec: limit.subsec_nanos().into() };
    match poll(fds, Some(&limit)) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Whether the descriptor can be read, or has an error that reading will show.
pub(super) fn readable(fd: &PollFd<'_>) -> bool {
    fd.revents().intersects(PollFlags::IN | PollFlags::HUP | PollFlags::ERR)
}

/// Whether the descriptor can be written, or has an error that writing will show.
pub(super) fn writable(fd: &PollFd<'_>) -> bool {
    fd.revents().intersects(PollFlags::OUT | PollFlags::HUP | PollFlags::ERR)
}

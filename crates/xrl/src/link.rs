//! Families: what carries the bytes and descriptors of a channel.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io::{self, IoSlice, IoSliceMut, Read};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::rc::Rc;
use std::task::{Context, Poll, Waker, ready};

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags,
};
use tokio::io::Interest;
use tokio::net::{TcpStream, UnixStream};

use crate::frame::MAX_FDS;

/// What carries a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// Memory of one process.
    Local,
    /// A Unix stream socket.
    Unix,
    /// A TCP connection: no descriptors travel.
    Tcp,
}

impl Family {
    /// As in interface files and resolved names.
    pub fn name(self) -> &'static str {
        match self {
            Self::Local => "local",
            Self::Unix => "unix",
            Self::Tcp => "tcp",
        }
    }
}

/// One end of something that carries a channel.
#[derive(Debug)]
pub struct Link(Carrier);

#[derive(Debug)]
enum Carrier {
    /// A connected Unix stream socket.
    Unix(UnixStream),
    /// A TCP connection.
    Tcp(TcpStream),
    /// Memory of this process.
    Local(LocalEnd),
}

impl Link {
    /// Over a connected Unix stream socket. Makes it non-blocking. Needs a running tokio runtime.
    ///
    /// # Errors
    /// When the descriptor cannot be polled.
    pub fn unix(fd: OwnedFd) -> io::Result<Self> {
        let socket = std::os::unix::net::UnixStream::from(fd);
        socket.set_nonblocking(true)?;
        Ok(Self(Carrier::Unix(UnixStream::from_std(socket)?)))
    }

    /// Over a TCP connection on which both sides know who the other is. Makes it non-blocking. Needs a running tokio
    /// runtime.
    ///
    /// # Errors
    /// When the descriptor cannot be polled.
    pub fn tcp(fd: OwnedFd) -> io::Result<Self> {
        let socket = std::net::TcpStream::from(fd);
        socket.set_nonblocking(true)?;
        Ok(Self(Carrier::Tcp(TcpStream::from_std(socket)?)))
    }

    /// Two ends joined in memory, for components of one process. They carry the same frames as a socket, with the
    /// same back-pressure; no system call is made.
    pub fn pair() -> (Self, Self) {
        let (there, back) = (Rc::<RefCell<Pipe>>::default(), Rc::<RefCell<Pipe>>::default());
        let near = LocalEnd { incoming: Rc::clone(&back), outgoing: Rc::clone(&there) };
        let far = LocalEnd { incoming: there, outgoing: back };
        (Self(Carrier::Local(near)), Self(Carrier::Local(far)))
    }

    /// What carries it.
    pub fn family(&self) -> Family {
        match self.0 {
            Carrier::Unix(_) => Family::Unix,
            Carrier::Tcp(_) => Family::Tcp,
            Carrier::Local(_) => Family::Local,
        }
    }

    /// Number of the socket; 0 in memory.
    pub(crate) fn inode(&self) -> u64 {
        let inode = |fd: BorrowedFd<'_>| rustix::fs::fstat(fd).map_or(0, |stat| stat.st_ino);
        match &self.0 {
            Carrier::Unix(socket) => inode(socket.as_fd()),
            Carrier::Tcp(socket) => inode(socket.as_fd()),
            Carrier::Local(_) => 0,
        }
    }

    /// Another descriptor of the same socket.
    ///
    /// # Errors
    /// When there is none left; `Unsupported` in memory.
    pub(crate) fn socket(&self) -> io::Result<OwnedFd> {
        match &self.0 {
            Carrier::Unix(socket) => socket.as_fd().try_clone_to_owned(),
            Carrier::Tcp(socket) => socket.as_fd().try_clone_to_owned(),
            Carrier::Local(_) => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    /// Reads into `space`, descriptors to the end of `fds`. 0 is the end of the stream.
    pub(crate) fn poll_recv(
        &mut self,
        cx: &mut Context<'_>,
        space: &mut [u8],
        fds: &mut VecDeque<OwnedFd>,
    ) -> Poll<io::Result<usize>> {
        match &mut self.0 {
            Carrier::Unix(socket) => loop {
                ready!(socket.poll_read_ready(cx))?;
                let result = socket.try_io(Interest::READABLE, || recv(socket, space, fds));
                if !is_would_block(&result) {
                    return Poll::Ready(result);
                }
            },
            Carrier::Tcp(socket) => loop {
                ready!(socket.poll_read_ready(cx))?;
                let result = socket.try_io(Interest::READABLE, || recv(socket, space, fds));
                if !is_would_block(&result) {
                    return Poll::Ready(result);
                }
            },
            Carrier::Local(end) => end.incoming.borrow_mut().poll_read(cx, space, fds),
        }
    }

    /// Writes some of `bytes`, and the descriptors if it wrote any.
    pub(crate) fn poll_send(
        &mut self,
        cx: &mut Context<'_>,
        bytes: &[u8],
        fds: &[OwnedFd],
    ) -> Poll<io::Result<usize>> {
        match &mut self.0 {
            Carrier::Unix(socket) => loop {
                ready!(socket.poll_write_ready(cx))?;
                let result = socket.try_io(Interest::WRITABLE, || send(socket, bytes, fds));
                if !is_would_block(&result) {
                    return Poll::Ready(result);
                }
            },
            // Nothing with descriptors gets this far: see `Shared::carries`.
            Carrier::Tcp(socket) => loop {
                ready!(socket.poll_write_ready(cx))?;
                let result = socket.try_io(Interest::WRITABLE, || send(socket, bytes, &[]));
                if !is_would_block(&result) {
                    return Poll::Ready(result);
                }
            },
            Carrier::Local(end) => end.outgoing.borrow_mut().poll_write(cx, bytes, fds),
        }
    }
}

/// Readiness was stale; `try_io` has taken note.
fn is_would_block(result: &io::Result<usize>) -> bool {
    matches!(result, Err(error) if error.kind() == io::ErrorKind::WouldBlock)
}

fn recv(socket: &impl AsFd, space: &mut [u8], fds: &mut VecDeque<OwnedFd>) -> io::Result<usize> {
    let mut control = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FDS))];
    let mut control = RecvAncillaryBuffer::new(&mut control);
    let flags = RecvFlags::CMSG_CLOEXEC;
    let received = rustix::net::recvmsg(socket, &mut [IoSliceMut::new(space)], &mut control, flags)?;
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(arrived) = message {
            fds.extend(arrived);
        }
    }
    if received.flags.contains(ReturnFlags::CTRUNC) {
        return Err(io::Error::other(
            "descriptors were lost: too many at once, or the process has too many open",
        ));
    }
    Ok(received.bytes)
}

fn send(socket: &impl AsFd, bytes: &[u8], fds: &[OwnedFd]) -> io::Result<usize> {
    let mut control = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FDS))];
    let mut control = SendAncillaryBuffer::new(&mut control);
    let fds: Vec<_> = fds.iter().map(AsFd::as_fd).collect();
    if !fds.is_empty() {
        control.push(SendAncillaryMessage::ScmRights(&fds));
    }
    Ok(rustix::net::sendmsg(socket, &[IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL)?)
}

/// Most octets in a [`Pipe`].
const PIPE_SIZE: usize = 256 << 10;

/// One direction of a pair in memory.
#[derive(Debug, Default)]
struct Pipe {
    bytes: VecDeque<u8>,
    fds: VecDeque<OwnedFd>,
    closed: bool,
    reader: Option<Waker>,
    writer: Option<Waker>,
}

impl Pipe {
    fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        space: &mut [u8],
        fds: &mut VecDeque<OwnedFd>,
    ) -> Poll<io::Result<usize>> {
        if self.bytes.is_empty() && !self.closed {
            self.reader = Some(cx.waker().clone());
            return Poll::Pending;
        }
        fds.append(&mut self.fds);
        if let Some(writer) = self.writer.take() {
            writer.wake();
        }
        Poll::Ready(self.bytes.read(space))
    }

    fn poll_write(&mut self, cx: &mut Context<'_>, bytes: &[u8], fds: &[OwnedFd]) -> Poll<io::Result<usize>> {
        if self.closed {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        // A reader takes all descriptors at once, as many as a frame may have: not two such frames at a time.
        let room = PIPE_SIZE - self.bytes.len();
        if room == 0 || !(fds.is_empty() || self.fds.is_empty()) {
            self.writer = Some(cx.waker().clone());
            return Poll::Pending;
        }
        for fd in fds {
            self.fds.push_back(fd.try_clone()?);
        }
        let len = room.min(bytes.len());
        self.bytes.extend(&bytes[..len]);
        if let Some(reader) = self.reader.take() {
            reader.wake();
        }
        Poll::Ready(Ok(len))
    }

    fn close(&mut self) {
        self.closed = true;
        [self.reader.take(), self.writer.take()].into_iter().flatten().for_each(Waker::wake);
    }
}

/// One end of a pair in memory.
#[derive(Debug)]
struct LocalEnd {
    incoming: Rc<RefCell<Pipe>>,
    outgoing: Rc<RefCell<Pipe>>,
}

impl Drop for LocalEnd {
    fn drop(&mut self) {
        self.incoming.borrow_mut().close();
        self.outgoing.borrow_mut().close();
    }
}

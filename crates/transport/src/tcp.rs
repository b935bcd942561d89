//! The kernel's TCP. Nothing proves who is at the other end but the address, and a key of TCP-MD5 if one was set on the
//! socket; whoever dials or accepts gets the kernel's own socket.
//!
//! Verdicts: refusing is a reset. Ignoring is one too, as TCP's handshake is done when an attempt is seen here: before
//! it, only a filter on the listening socket can. There is no retry. TLS comes to the same port, so [`TcpListener`] takes
//! both; what the ClientHello says is a second look, for peers that may use TLS.

use std::{
    future, io,
    net::SocketAddr,
    os::fd::{AsFd, OwnedFd},
    pin::Pin,
    rc::{Rc, Weak},
    task::{Context, Poll, ready},
};

use holdfast_sys::tcp;
use rustix::{
    io::Errno,
    net::{Shutdown, shutdown},
};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
};

use crate::{
    Closed, Connection, Control, Failure, Identity, LocalFuture, Protocol, Stats, Stream,
    attempt::canonical,
    end::{End, Ending},
    failure,
    ready::poll_io,
};

mod listener;

pub use listener::TcpListener;

/// Counts as long as it lives.
pub(crate) type Token = Rc<()>;

/// Waits for a socket that is connecting.
///
/// # Errors
/// [`Failure::Unreachable`] and [`Failure::TimedOut`]: what the kernel says.
pub async fn connect(socket: OwnedFd, peer: &str) -> Result<Connection, Failure> {
    let stream = connected(socket).await?;
    of_stream(stream, peer, None).map_err(|error| failure::of_tcp(&error))
}

pub(crate) async fn connected(socket: OwnedFd) -> Result<TcpStream, Failure> {
    let socket = std::net::TcpStream::from(socket);
    let stream = socket.set_nonblocking(true).and_then(|()| TcpStream::from_std(socket));
    let outcome = match stream {
        Ok(stream) => writable(stream).await,
        Err(error) => Err(error),
    };
    outcome.map_err(|error| failure::of_tcp(&error))
}

async fn writable(stream: TcpStream) -> io::Result<TcpStream> {
    stream.writable().await?;
    match stream.take_error()? {
        Some(error) => Err(error),
        None => stream.peer_addr().map(|_| stream),
    }
}

fn of_stream(stream: TcpStream, peer: &str, counted: Option<Token>) -> io::Result<Connection> {
    let remote = canonical(stream.peer_addr()?);
    let local = canonical(stream.local_addr()?);
    let identity =
        Identity { peer: peer.to_owned(), protocol: Protocol::Tcp, remote, local, proof: String::new() };
    let socket = Rc::new(stream);
    let end = Rc::new(End::default());
    let control = Rc::new(TcpControl { socket: Rc::downgrade(&socket), remote, end: end.clone() });
    Ok(Connection {
        identity,
        stream: Box::new(TcpOctets { socket, ending: Ending(end), _counted: counted }),
        control,
        permit: None,
    })
}

struct TcpOctets {
    /// Nobody else holds it for longer than a call.
    socket: Rc<TcpStream>,
    ending: Ending,
    _counted: Option<Token>,
}

impl TcpOctets {
    fn failed(&self, error: io::Error) -> io::Error {
        self.ending.0.failed(&error);
        error
    }
}

impl AsyncRead for TcpOctets {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if buf.remaining() == 0 {
            return Poll::Ready(Ok(()));
        }
        let octets = buf.initialize_unfilled();
        let read = poll_io(|| self.socket.poll_read_ready(cx), || self.socket.try_read(octets));
        let length = ready!(read).map_err(|error| self.failed(error))?;
        if length == 0 {
            self.ending.0.set(Closed::Peer(0, String::new()));
        }
        buf.advance(length);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for TcpOctets {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, octets: &[u8]) -> Poll<io::Result<usize>> {
        let written = poll_io(|| self.socket.poll_write_ready(cx), || self.socket.try_write(octets));
        Poll::Ready(ready!(written).map_err(|error| self.failed(error)))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(match shutdown(&*self.socket, Shutdown::Write) {
            Ok(()) | Err(Errno::NOTCONN) => Ok(()),
            Err(error) => Err(self.failed(error.into())),
        })
    }
}

impl Stream for TcpOctets {
    fn into_socket(self: Box<Self>) -> Result<OwnedFd, Box<dyn Stream>> {
        match self.socket.as_fd().try_clone_to_owned() {
            Ok(socket) => Ok(socket),
            // There is no room for another descriptor: it can still be carried.
            Err(_) => Err(self),
        }
    }
}

struct TcpControl {
    /// Does not keep it open.
    socket: Weak<TcpStream>,
    remote: SocketAddr,
    end: Rc<End>,
}

impl Control for TcpControl {
    fn remote(&self) -> SocketAddr {
        self.remote
    }

    fn stats(&self) -> Stats {
        self.socket.upgrade().map_or_else(Stats::default, |socket| stats_of(&socket))
    }

    fn update_keys(&self) -> bool {
        false
    }

    fn answers(&self) -> LocalFuture<'_, bool> {
        Box::pin(future::ready(self.end.get().is_none()))
    }

    /// TCP tells neither number nor text.
    fn close(&self, _: u32, _: &str) {
        self.end.set(Closed::Here);
        if let Some(socket) = self.socket.upgrade() {
            // It may have gone already.
            let _ = shutdown(&*socket, Shutdown::Both);
        }
    }

    fn closed(&self) -> LocalFuture<'_, Closed> {
        Box::pin(self.end.wait())
    }
}

/// What the kernel knows; nothing of a socket that has gone.
pub(crate) fn stats_of(socket: &TcpStream) -> Stats {
    tcp::info(socket).map_or_else(
        |_| Stats::default(),
        |info| Stats {
            lost_packets: info.retransmits.into(),
            smoothed_rtt_us: u32::try_from(info.round_trip.as_micros()).unwrap_or(u32::MAX),
            ..Stats::default()
        },
    )
}

//! An established connection of TLS.

use std::{
    cell::{Cell, RefCell},
    future, io,
    net::SocketAddr,
    os::fd::{AsFd, OwnedFd},
    pin::Pin,
    rc::{Rc, Weak},
    task::{Context, Poll, ready},
};

use holdfast_tls::rustls::ConnectionCommon;
use rustix::net::{Shutdown, shutdown};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
};
use tokio_rustls::TlsStream;

use crate::{
    Closed, Connection, Control, Identity, LocalFuture, Stats, Stream,
    end::{End, Ending},
    failure,
    tcp::{self, Token},
};

type Session = TlsStream<TcpStream>;

pub(super) fn connection(session: Session, identity: Identity, counted: Option<Token>) -> Connection {
    let session = Rc::new(RefCell::new(session));
    let end = Rc::new(End::default());
    let control = TlsControl {
        session: Rc::downgrade(&session),
        remote: identity.remote,
        end: end.clone(),
        key_updates: Cell::new(0),
    };
    let stream = TlsOctets { session, ending: Ending(end), _counted: counted };
    Connection { identity, stream: Box::new(stream), control: Rc::new(control), permit: None }
}

struct TlsOctets {
    /// Borrowed for no longer than a call, by this and the control.
    session: Rc<RefCell<Session>>,
    ending: Ending,
    _counted: Option<Token>,
}

impl TlsOctets {
    fn with<T>(&self, call: impl FnOnce(Pin<&mut Session>) -> Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        let result = ready!(call(Pin::new(&mut *self.session.borrow_mut())));
        Poll::Ready(result.map_err(|error| self.failed(error)))
    }

    fn failed(&self, error: io::Error) -> io::Error {
        let text = match failure::tls_error(&error) {
            Some(cause) => holdfast_tls::explain(cause),
            // Without an end of TLS whoever is on the way could have cut it off (RFC 8446 section 6.1).
            None if error.kind() == io::ErrorKind::UnexpectedEof => {
                "TCP has ended without an end of TLS".to_owned()
            }
            None => {
                self.ending.0.failed(&error);
                return error;
            }
        };
        self.ending.0.set(Closed::Failed(text.clone()));
        io::Error::new(error.kind(), text)
    }
}

impl AsyncRead for TlsOctets {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let (room, before) = (buf.remaining(), buf.filled().len());
        ready!(self.with(|session| session.poll_read(cx, buf)))?;
        if room > 0 && buf.filled().len() == before {
            self.ending.0.set(Closed::Peer(0, String::new()));
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for TlsOctets {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, octets: &[u8]) -> Poll<io::Result<usize>> {
        self.with(|session| session.poll_write(cx, octets))
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.with(|session| session.poll_flush(cx))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.with(|session| session.poll_shutdown(cx))
    }
}

impl Stream for TlsOctets {
    fn into_socket(self: Box<Self>) -> Result<OwnedFd, Box<dyn Stream>> {
        Err(self)
    }
}

struct TlsControl {
    /// Does not keep it open.
    session: Weak<RefCell<Session>>,
    remote: SocketAddr,
    end: Rc<End>,
    key_updates: Cell<u32>,
}

impl Control for TlsControl {
    fn remote(&self) -> SocketAddr {
        self.remote
    }

    fn stats(&self) -> Stats {
        let stats = self.session.upgrade().map(|session| tcp::stats_of(session.borrow().get_ref().0));
        Stats { key_updates: self.key_updates.get(), ..stats.unwrap_or_default() }
    }

    /// Sent with the next octets, and asks the peer to change its keys as well (RFC 8446 section 4.6.3).
    fn update_keys(&self) -> bool {
        let Some(session) = self.session.upgrade() else { return false };
        let updated = match &mut *session.borrow_mut() {
            TlsStream::Client(stream) => stream.get_mut().1.refresh_traffic_keys(),
            TlsStream::Server(stream) => stream.get_mut().1.refresh_traffic_keys(),
        };
        self.key_updates.set(self.key_updates.get() + u32::from(updated.is_ok()));
        updated.is_ok()
    }

    fn socket(&self) -> Option<OwnedFd> {
        let session = self.session.upgrade()?;
        session.borrow().get_ref().0.as_fd().try_clone_to_owned().ok()
    }

    fn answers(&self) -> LocalFuture<'_, bool> {
        Box::pin(future::ready(self.end.get().is_none()))
    }

    /// TLS tells that it was in order, neither number nor text.
    fn close(&self, _: u32, _: &str) {
        // Whoever reads or writes is woken by what happens to the socket.
        self.end.set(Closed::Here);
        if let Some(session) = self.session.upgrade() {
            let mut session = session.borrow_mut();
            match &mut *session {
                TlsStream::Client(stream) => {
                    let (socket, tls) = stream.get_mut();
                    leave(socket, tls);
                }
                TlsStream::Server(stream) => {
                    let (socket, tls) = stream.get_mut();
                    leave(socket, tls);
                }
            }
            let _ = shutdown(session.get_ref().0, Shutdown::Both);
        }
    }

    fn closed(&self) -> LocalFuture<'_, Closed> {
        Box::pin(self.end.wait())
    }
}

/// Says that it ends in order. What does not fit into the kernel now has to be left out; whoever waits to write goes on
/// waiting, and is not forgotten by it.
fn leave<D>(socket: &TcpStream, tls: &mut ConnectionCommon<D>) {
    tls.send_close_notify();
    while tls.wants_write() && matches!(tls.write_tls(&mut Now(socket)), Ok(1..)) {}
}

/// Writes what the kernel takes at once.
struct Now<'a>(&'a TcpStream);

impl io::Write for Now<'_> {
    fn write(&mut self, octets: &[u8]) -> io::Result<usize> {
        self.0.try_write(octets)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

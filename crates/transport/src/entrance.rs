//! A listening socket of TCP, and who is let in there.

use std::{
    cell::Cell,
    io,
    net::SocketAddr,
    os::fd::OwnedFd,
    rc::Rc,
    time::{Duration, Instant},
};

use holdfast_admission::{Load, Verdict};
use rustix::io::Errno;
use tokio::net::{TcpListener, TcpStream};
use tracing::warn;

use crate::{
    Expected, Failure, Gate, Protocol,
    attempt::{TcpAttempt, canonical},
    failure,
};

/// Before the next attempt when the kernel or this process has no room for more connections.
const PAUSE: Duration = Duration::from_millis(100);
/// Between two lines in the log about that.
const SAID: Duration = Duration::from_secs(10);

/// Under the listeners of TCP and TLS.
pub(crate) struct Entrance {
    socket: TcpListener,
    pub(crate) local: SocketAddr,
    pub(crate) protocol: Protocol,
    pub(crate) gate: Rc<dyn Gate>,
    /// Held by each handshake.
    handshakes: Rc<()>,
    /// Held by each connection.
    connections: Rc<()>,
    /// When it was last said that there is no room.
    said: Cell<Option<Instant>>,
}

/// Who was let in.
pub(crate) struct Guest {
    pub(crate) stream: TcpStream,
    pub(crate) remote: SocketAddr,
    pub(crate) expected: Expected,
}

/// Counts as long as it lives.
pub(crate) type Token = Rc<()>;

impl Entrance {
    pub(crate) fn new(socket: OwnedFd, protocol: Protocol, gate: Rc<dyn Gate>) -> io::Result<Self> {
        let socket = std::net::TcpListener::from(socket);
        socket.set_nonblocking(true)?;
        let local = canonical(socket.local_addr()?);
        let socket = TcpListener::from_std(socket)?;
        let (handshakes, connections, said) = (Rc::default(), Rc::default(), Cell::new(None));
        Ok(Self { socket, local, protocol, gate, handshakes, connections, said })
    }

    pub(crate) fn handshake(&self) -> Token {
        self.handshakes.clone()
    }

    pub(crate) fn connection(&self) -> Token {
        self.connections.clone()
    }

    /// What is under way here; the first of each is our own.
    pub(crate) fn load(&self) -> Load {
        Load {
            handshakes: Rc::strong_count(&self.handshakes) - 1,
            connections: Rc::strong_count(&self.connections) - 1,
        }
    }

    /// The next one who is let in. Everybody else is reset: what the gate calls ignoring comes too late once TCP's
    /// handshake is done, and asking for a proof of the address is done with it.
    ///
    /// # Errors
    /// The socket listens no more.
    pub(crate) async fn next(&self) -> Result<Guest, Failure> {
        loop {
            let (stream, remote) = match self.socket.accept().await {
                Ok((stream, remote)) => (stream, canonical(remote)),
                Err(error) => {
                    self.outlast(&error).await?;
                    continue;
                }
            };
            match self.judge(&stream, remote) {
                Some(expected) => return Ok(Guest { stream, remote, expected }),
                None => reset(&stream),
            }
        }
    }

    fn judge(&self, stream: &TcpStream, remote: SocketAddr) -> Option<Expected> {
        let local = stream.local_addr().map_or(self.local, canonical);
        let socket = (self.protocol == Protocol::Tls).then_some(stream);
        let mut attempt = TcpAttempt::new(remote, local, self.load(), socket);
        match self.gate.judge(self.protocol, &mut attempt, Instant::now()) {
            Verdict::Accept => self.gate.expect(self.protocol, remote),
            Verdict::Ignore | Verdict::Refuse(_) | Verdict::Retry | Verdict::Next => None,
        }
    }

    /// accept(2): what was wrong with one connection says nothing of the next.
    async fn outlast(&self, error: &io::Error) -> Result<(), Failure> {
        match Errno::from_io_error(error) {
            Some(
                Errno::CONNABORTED
                | Errno::INTR
                | Errno::PROTO
                | Errno::NOPROTOOPT
                | Errno::OPNOTSUPP
                | Errno::NETDOWN
                | Errno::NETUNREACH
                | Errno::HOSTDOWN
                | Errno::HOSTUNREACH
                | Errno::NONET,
            ) => return Ok(()),
            Some(Errno::INVAL) => {
                return Err(Failure::Unreachable("nobody listens at this socket any more".to_owned()));
            }
            Some(Errno::BADF | Errno::NOTSOCK) | None => return Err(failure::of_tcp(error)),
            Some(_) => {}
        }
        if self.said.get().is_none_or(|said| said.elapsed() >= SAID) {
            self.said.set(Some(Instant::now()));
            let (local, words) = (self.local, failure::words(error));
            warn!(event = "accept-failed", %local, "connections wait, since none can be taken: {words}");
        }
        tokio::time::sleep(PAUSE).await;
        Ok(())
    }
}

/// Drops a connection so that the peer is told at once, and nothing of it stays in the kernel.
pub(crate) fn reset(stream: &TcpStream) {
    // Without it the connection ends in order instead, which is no reason to keep it.
    let _ = stream.set_zero_linger();
}

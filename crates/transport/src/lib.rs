//! One interface for listeners, dialers and connections under every protocol that needs a reliable channel.
//!
//! A [`Connection`] is a stream of octets both ways, an [`Identity`] that was proven before it was handed out, and a
//! [`Control`] with what only some transports can do. Which library carries it is known to its backend alone: [`tcp`],
//! [`tls`] and QUIC take bare sockets from whoever may open them; [`memory`] needs none. A [`Gate`] decides at every
//! [`Listener`] who is let in, before there is any state of the attempt. Where whoever speaks the protocol needs a
//! descriptor and the octets come about here, [`carry()`] moves them.
//!
//! Nothing here opens sockets, reads configuration or speaks a protocol of routing. All of it runs on one thread: what
//! listens with a handshake spawns local tasks, so it has to be polled in a `LocalSet`.
//!
//! ```
//! use std::{net::SocketAddr, rc::Rc, time::{Duration, Instant}};
//!
//! use holdfast_admission::{Attempt, Verdict};
//! use holdfast_transport::{Expected, Failure, Gate, Listener, Permit, Protocol, memory::Network};
//! use tokio::io::{AsyncReadExt, AsyncWriteExt};
//!
//! /// Lets everybody in.
//! struct Open;
//!
//! fn peer(name: &str) -> Expected {
//!     Expected { peer: name.to_owned(), tls: None, idle: Duration::from_secs(90), ttl_security: false }
//! }
//!
//! impl Gate for Open {
//!     fn judge(&self, _: Protocol, _: &mut dyn Attempt, _: Instant) -> Verdict {
//!         Verdict::Accept
//!     }
//!     fn expect(&self, _: Protocol, _: SocketAddr) -> Option<Expected> {
//!         Some(peer("r1"))
//!     }
//!     fn begin(&self, _: Protocol) -> Box<dyn Permit> {
//!         Box::new(())
//!     }
//!     fn failed(&self, _: Protocol, _: SocketAddr, _: &Failure) {}
//! }
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
//! runtime.block_on(async {
//!     let network = Network::new(7);
//!     network.set_delay(Duration::from_millis(1));
//!     let (r1, r2) = ("192.0.2.1:40000".parse()?, "192.0.2.2:179".parse()?);
//!     let mut listener = network.listener(r2, Rc::new(Open));
//!     let to_r2 = peer("r2");
//!     let (dialed, accepted) = tokio::join!(network.connect(r1, r2, &to_r2), listener.accept());
//!     let (mut dialed, mut accepted) = (dialed?, accepted?);
//!     assert_eq!(accepted.identity.peer, "r1");
//!
//!     dialed.stream.write_all(b"octets").await?;
//!     let mut octets = [0; 6];
//!     accepted.stream.read_exact(&mut octets).await?;
//!     assert_eq!(&octets, b"octets");
//!     Ok(())
//! })
//! # }
//! ```

mod attempt;
mod carry;
mod end;
mod failure;
mod kept;
mod life;
pub mod memory;
pub mod noq;
mod ready;
#[cfg(feature = "quic-s2n")]
pub mod s2n;
mod side;
mod spent;
mod stray;
pub mod tcp;
pub mod tls;

// Tests of what the crate offers, in the executable of its unit tests.
#[cfg(test)]
extern crate self as holdfast_transport;
#[cfg(test)]
#[path = "../tests/mod.rs"]
mod tests;

pub use carry::{ByteCounters, Parting, carry, hung_up};
pub use side::Side;

use std::{
    fmt,
    net::SocketAddr,
    os::fd::OwnedFd,
    pin::Pin,
    rc::Rc,
    time::{Duration, Instant},
};

use holdfast_admission::{Attempt, Verdict};
use holdfast_tls::PeerTls;
use tokio::io::{AsyncRead, AsyncWrite};

/// How long a handshake may take, on either side.
pub const HANDSHAKE_TIME: Duration = Duration::from_secs(10);

/// A future of this thread.
pub type LocalFuture<'a, T> = Pin<Box<dyn Future<Output = T> + 'a>>;

/// What carries a connection.
#[derive(Copy, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Protocol {
    /// The kernel's TCP.
    Tcp,
    /// TLS 1.3 over TCP.
    Tls,
    /// QUIC (RFC 9000), one bidirectional stream; library noq.
    Quic,
    /// The same; library s2n-quic.
    QuicS2n,
    /// Memory, for tests: with seeded loss, delay and a cut switch.
    Memory,
}

impl Protocol {
    /// The word of the configuration.
    pub fn name(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Tls => "tls",
            Self::Quic => "quic",
            Self::QuicS2n => "quic-s2n",
            Self::Memory => "memory",
        }
    }
}

/// Who is at the other end.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Identity {
    /// The peer as configured; empty where peers are not configured.
    pub peer: String,
    /// What carries the connection.
    pub protocol: Protocol,
    /// Its address when the connection came about.
    pub remote: SocketAddr,
    /// Ours.
    pub local: SocketAddr,
    /// What proves who it is, in words of the operator; empty: nothing.
    pub proof: String,
}

/// Octets both ways. Shutting down says that no more are to be sent, and is done when the other end's transport has all of
/// them, or for TCP when the kernel has: then [`Control::close`] loses nothing. Dropped, the connection ends.
pub trait Stream: AsyncRead + AsyncWrite + Unpin {
    /// The kernel's own socket, which whoever reads and writes can do without us.
    ///
    /// # Errors
    /// Itself, where the octets come about here: it has to be carried ([`carry()`]).
    fn into_socket(self: Box<Self>) -> Result<OwnedFd, Box<dyn Stream>>;
}

/// A connection whose other end has proven who it is.
pub struct Connection {
    /// Who that is.
    pub identity: Identity,
    /// Octets both ways.
    pub stream: Box<dyn Stream>,
    /// What else can be done with it.
    pub control: Rc<dyn Control>,
    /// Of a listener's: to be settled by whoever takes it. `None`: it was dialed.
    pub permit: Option<Box<dyn Permit>>,
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection").field("identity", &self.identity).finish_non_exhaustive()
    }
}

/// Figures of a connection.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct Stats {
    /// Packets taken for lost.
    pub lost_packets: u64,
    /// Smoothed round-trip time in microseconds; 0: not known.
    pub smoothed_rtt_us: u32,
    /// How often the peer's address has changed.
    pub migrations: u32,
    /// How often we have changed keys; over QUIC, which changes those of both ends at once, how often anybody has.
    pub key_updates: u32,
}

/// Why a connection has ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Closed {
    /// Here, in order.
    Here,
    /// By the peer, with a number and text of its own.
    Peer(u64, String),
    /// Nothing was heard for too long.
    TimedOut,
    /// The peer has forgotten the connection (a reset).
    Reset,
    /// Anything else, in words of the operator.
    Failed(String),
}

/// What can be done with a connection beside reading and writing.
pub trait Control {
    /// Where the peer is now.
    fn remote(&self) -> SocketAddr;
    /// How it goes.
    fn stats(&self) -> Stats;
    /// The next octets are under new keys; `false`: this transport cannot.
    fn update_keys(&self) -> bool;
    /// A copy of the kernel's socket below a connection that has one for itself, for its options.
    fn socket(&self) -> Option<OwnedFd> {
        None
    }
    /// Asks the other end for a sign of life. `false`: the connection has ended, or nothing was heard over it for three
    /// probe timeouts (RFC 9002 section 6.2.1), which here are 500 ms at least and 5 s at most. TCP and TLS cannot ask, the
    /// kernel of a dead end answers for it: whose end is not known is alive.
    fn answers(&self) -> LocalFuture<'_, bool>;
    /// Ends it; the peer is told the number and the text where the transport can.
    fn close(&self, code: u32, reason: &str);
    /// Waits for its end. TCP and TLS know of it only while somebody reads or writes. A connection whose stream was dropped
    /// or taken ([`Stream::into_socket`]) has ended here.
    fn closed(&self) -> LocalFuture<'_, Closed>;
}

/// Why there is no connection.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Failure {
    /// Nobody answers, or the kernel refuses.
    #[error("{0}")]
    Unreachable(String),
    /// The other end is not who it has to be, or we are not for it. The reason is for the operator.
    #[error("{0}")]
    Untrusted(String),
    /// The other end does not want us, or speaks something else.
    #[error("{0}")]
    Refused(String),
    /// The other end has gone before it was done, and names no fault: whoever dials does when it has come to a connection
    /// otherwise, or only wanted to see whether somebody is there.
    #[error("{0}")]
    GivenUp(String),
    /// It took too long.
    #[error("no answer in time")]
    TimedOut,
    /// This transport cannot, or is not compiled in.
    #[error("{0}")]
    Unsupported(String),
}

/// Whoever is expected at the other end.
#[derive(Clone, Debug)]
pub struct Expected {
    /// The peer as configured.
    pub peer: String,
    /// What it has to prove over TLS and QUIC, and what we show it; without it there is no handshake with it.
    pub tls: Option<PeerTls>,
    /// How long QUIC waits for a sign of life.
    pub idle: Duration,
    /// GTSM (RFC 5082): nothing of it may have passed a router. So it has to stay where it is: at another address it is nobody
    /// whose packets the kernel looks at for that. Who dials has it set on the socket.
    pub ttl_security: bool,
}

/// What has become of somebody who was let in, if it is not a failure.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// A connection, which is the protocol's from now on.
    LetIn,
    /// It has proven who it is, and is not wanted.
    Refused,
}

/// Held for somebody who is attended to. Each that has passed ends in one way: settled, or dropped, which is a failure.
pub trait Permit {
    /// It was let in: [`Verdict::Accept`].
    fn pass(&self);
    /// What has become of it.
    fn settle(self: Box<Self>, outcome: Outcome);
}

/// Counts nothing.
impl Permit for () {
    fn pass(&self) {}

    fn settle(self: Box<Self>, _: Outcome) {}
}

/// What is no attempt, and of no connection, at a listener of QUIC.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Stray {
    /// A datagram without meaning.
    Garbage,
    /// One of a version of QUIC that is not spoken here.
    UnknownVersion,
    /// A stateless reset (RFC 9000 section 10.3), with which one was answered.
    Reset,
}

/// Who decides at a listener.
pub trait Gate {
    /// Whether an attempt goes on, before there is any state of it; counts. Never [`Verdict::Next`]. Listeners have no bound
    /// of their own on handshakes under way: what is let in is, by the load that the attempt tells.
    fn judge(&self, protocol: Protocol, attempt: &mut dyn Attempt, now: Instant) -> Verdict;
    /// The same for an attempt that the stage of this name had wait ([`Verdict::Wait`]): its first flight is here, or has
    /// not come in time. A gate that has nobody wait is never asked.
    fn resume(
        &self,
        protocol: Protocol,
        _stage: &'static str,
        attempt: &mut dyn Attempt,
        now: Instant,
    ) -> Verdict {
        self.judge(protocol, attempt, now)
    }
    /// Who is expected from there over this. Nobody over any that the listener has: the attempt is refused.
    fn expect(&self, protocol: Protocol, remote: SocketAddr) -> Option<Expected>;
    /// Somebody is attended to: who was let in, or is waited for ([`Verdict::Wait`]). Asked once for each.
    fn begin(&self, protocol: Protocol) -> Box<dyn Permit>;
    /// Why somebody who was let in has come to nothing, for the log; the [`Permit`] counts.
    fn failed(&self, protocol: Protocol, remote: SocketAddr, failure: &Failure);
    /// One more of what is no attempt.
    fn stray(&self, _protocol: Protocol, _stray: Stray) {}
    /// Whether somebody who speaks another version of QUIC is told which one is spoken here (RFC 9000 section 6.1). It
    /// counts as nothing.
    fn tells_version(&self, _protocol: Protocol, _attempt: &mut dyn Attempt, _now: Instant) -> bool {
        false
    }
}

/// Takes connections that have been let in and have proven who they are.
pub trait Listener {
    /// Where.
    fn local(&self) -> SocketAddr;
    /// The next one. Handshakes that fail are counted and said, and are not seen here.
    fn accept(&mut self) -> LocalFuture<'_, Result<Connection, Failure>>;
}

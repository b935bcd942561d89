//! The descriptor of a connection, and what the door says of it.
//!
//! Either it is the kernel's own TCP socket, or one end of a pair of sockets: then the door carries octets between the
//! other end and the peer, whatever the transport. Both are read and written in the same way. How far they were read and
//! written the kernel says of the one; of the other it is counted here, and by the door for who comes after us.

use std::{
    cell::Cell,
    io::{self, IoSlice, IoSliceMut},
    net::{IpAddr, SocketAddr, SocketAddrV6},
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    time::Duration,
};

use holdfast_api::transport::v1 as transport;
use holdfast_sys::{pair, tcp};
use rustix::net::{AddressFamily, sockopt};
use tokio::{
    io::Interest,
    net::{TcpStream, UnixStream},
};

/// How long a connection that says goodbye may take to take it.
pub(crate) const LINGER: Duration = Duration::from_secs(2);

/// Octets of what the door says as proof; what is longer is cut, as it goes into the log with the session.
const MOST_PROOF: usize = 512;

/// How many octets of a connection were read, and how many written, since it began.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Offsets {
    pub(crate) read: u64,
    pub(crate) written: u64,
}

/// What a connection is read from and written to, without waiting.
#[derive(Debug)]
pub(crate) enum Stream {
    /// The kernel's own socket.
    Tcp(Tcp),
    /// Our end of a pair.
    Pair(Pair),
}

/// A socket, and the offsets at which it began to count: not 0 where it was made anew in the middle of a connection.
#[derive(Debug)]
pub(crate) struct Tcp {
    socket: TcpStream,
    pub(crate) origin: Offsets,
}

/// One end of a pair, with what went through it here.
#[derive(Debug)]
pub(crate) struct Pair {
    socket: UnixStream,
    read: Cell<u64>,
    written: Cell<u64>,
}

impl Stream {
    /// Whatever the descriptor is; a pair that nobody has read or written yet.
    pub(crate) fn new(descriptor: OwnedFd) -> io::Result<Self> {
        Self::at(descriptor, Offsets::default(), Offsets::default())
    }

    /// The same; a pair that another process has read and written so far, or a socket that counts from an origin.
    pub(crate) fn at(
        descriptor: OwnedFd,
        Offsets { read, written }: Offsets,
        origin: Offsets,
    ) -> io::Result<Self> {
        if is_pair(&descriptor) {
            let socket = std::os::unix::net::UnixStream::from(descriptor);
            socket.set_nonblocking(true)?;
            let socket = UnixStream::from_std(socket)?;
            return Ok(Self::Pair(Pair { socket, read: Cell::new(read), written: Cell::new(written) }));
        }
        let socket = std::net::TcpStream::from(descriptor);
        socket.set_nonblocking(true)?;
        socket.set_nodelay(true)?;
        Ok(Self::Tcp(Tcp { socket: TcpStream::from_std(socket)?, origin }))
    }

    /// Whether the door carries it.
    pub(crate) fn is_carried(&self) -> bool {
        matches!(self, Self::Pair(_))
    }

    /// Waits until there may be something to read.
    pub(crate) async fn readable(&self) -> io::Result<()> {
        match self {
            Self::Tcp(tcp) => tcp.socket.readable().await,
            Self::Pair(pair) => pair.socket.readable().await,
        }
    }

    /// Waits until there may be room to write.
    pub(crate) async fn writable(&self) -> io::Result<()> {
        match self {
            Self::Tcp(tcp) => tcp.socket.writable().await,
            Self::Pair(pair) => pair.socket.writable().await,
        }
    }

    /// Reads what is there; 0 at the end.
    pub(crate) fn try_read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(tcp) => tcp.socket.try_read(buffer),
            Self::Pair(pair) => counted(&pair.read, pair.socket.try_read(buffer)),
        }
    }

    /// The same into several places.
    pub(crate) fn try_read_vectored(&self, slices: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        match self {
            Self::Tcp(tcp) => tcp.socket.try_read_vectored(slices),
            Self::Pair(pair) => counted(&pair.read, pair.socket.try_read_vectored(slices)),
        }
    }

    /// Fewer octets were read than asked for: of TCP there are no more then (epoll(7)), and [`Self::readable`] waits for the
    /// next, without another read that finds nothing.
    pub(crate) fn drained(&self) {
        if let Self::Tcp(tcp) = self {
            let none = || io::Result::<()>::Err(io::ErrorKind::WouldBlock.into());
            // The error is what clears the readiness. What arrives later is another event, and so is the end.
            let _ = tcp.socket.try_io(Interest::READABLE, none);
        }
    }

    /// Writes what there is room for.
    pub(crate) fn try_write(&self, octets: &[u8]) -> io::Result<usize> {
        self.try_write_vectored(&[IoSlice::new(octets)])
    }

    /// The same from several places.
    pub(crate) fn try_write_vectored(&self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        match self {
            Self::Tcp(tcp) => tcp.socket.try_write_vectored(slices),
            Self::Pair(pair) => counted(&pair.written, pair.socket.try_write_vectored(slices)),
        }
    }

    /// How far it was read and written, from beginnings that stay the same for the connection.
    pub(crate) fn offsets(&self) -> io::Result<Offsets> {
        match self {
            Self::Tcp(tcp) => tcp_offsets(&tcp.socket, tcp.origin),
            Self::Pair(pair) => Ok(Offsets { read: pair.read.get(), written: pair.written.get() }),
        }
    }

    /// Whether there are octets that nobody has read yet.
    pub(crate) fn has_unread(&self) -> bool {
        rustix::io::ioctl_fionread(self).is_ok_and(|octets| octets > 0)
    }

    /// What was written and has not arrived: of TCP at the peer, in octets; of a pair at the door, in memory that it takes.
    pub(crate) fn unacknowledged(&self) -> io::Result<u32> {
        match self {
            Self::Tcp(Tcp { socket, .. }) => tcp::unacknowledged(socket),
            Self::Pair(pair) => pair::occupied(&pair.socket),
        }
    }

    /// Closes our direction and waits for the peer's: closing with unread bytes would reset the connection, and the
    /// reset may overtake our NOTIFICATION.
    pub(crate) async fn goodbye(&self) {
        if rustix::net::shutdown(self, rustix::net::Shutdown::Write).is_err() {
            return;
        }
        let mut ignored = [0; 4096];
        while self.readable().await.is_ok() {
            match self.try_read(&mut ignored) {
                Ok(0) => return,
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(_) => return,
            }
        }
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Tcp(tcp) => tcp.socket.as_fd(),
            Self::Pair(pair) => pair.socket.as_fd(),
        }
    }
}

fn counted(count: &Cell<u64>, moved: io::Result<usize>) -> io::Result<usize> {
    if let Ok(octets) = moved {
        count.set(count.get() + octets as u64);
    }
    moved
}

/// Whether a descriptor is an end of a pair.
pub(crate) fn is_pair(descriptor: impl AsFd) -> bool {
    sockopt::socket_domain(descriptor) == Ok(AddressFamily::UNIX)
}

/// What the kernel says of its own socket, whoever has read and written it, from where that began to count.
pub(crate) fn tcp_offsets(socket: impl AsFd, origin: Offsets) -> io::Result<Offsets> {
    let (read, written) = (tcp::consumed(&socket)?, tcp::written(&socket)?);
    let beyond = || io::Error::other("the connection began at an offset that cannot be");
    Ok(Offsets {
        read: origin.read.checked_add(read).ok_or_else(beyond)?,
        written: origin.written.checked_add(written).ok_or_else(beyond)?,
    })
}

/// A connection as the door hands it over.
#[derive(Debug)]
pub(crate) struct AcceptedConnection {
    pub(crate) stream: Stream,
    pub(crate) local: SocketAddr,
    pub(crate) remote: SocketAddr,
    /// As the door says it; empty of TCP's sockets that an earlier process had.
    pub(crate) said: transport::Connection,
}

impl AcceptedConnection {
    /// The connection that the door says this of.
    ///
    /// # Errors
    /// When the descriptor is of no use, or the door does not say where the ends are.
    pub(crate) fn new(mut said: transport::Connection, stream: Stream) -> io::Result<Self> {
        said.proof.truncate(said.proof.floor_char_boundary(MOST_PROOF));
        let (local, remote) = match &stream {
            // Its own word is the same, and is there also after a takeover.
            Stream::Tcp(tcp) => (tcp.socket.local_addr()?, tcp.socket.peer_addr()?),
            Stream::Pair(_) => {
                let place = |octets: &[u8], port| {
                    let missing = || io::Error::other("the door does not say where both ends are");
                    end(octets, port, said.link).ok_or_else(missing)
                };
                (place(&said.local_address, said.local_port)?, place(&said.remote_address, said.remote_port)?)
            }
        };
        Ok(Self { stream, local, remote, said })
    }
}

/// One end of a connection; `link` is the scope of link-local addresses.
fn end(octets: &[u8], port: u32, link: u32) -> Option<SocketAddr> {
    let port = u16::try_from(port).ok()?;
    Some(match holdfast_types::address(octets)?.to_canonical() {
        IpAddr::V6(address) if address.is_unicast_link_local() => {
            SocketAddrV6::new(address, port, 0, link).into()
        }
        address => SocketAddr::new(address, port),
    })
}

/// The word of the configuration for what carries a connection.
pub(crate) fn transport_name(said: &transport::Connection) -> &'static str {
    match said.protocol() {
        transport::Protocol::Unspecified | transport::Protocol::Tcp => "tcp",
        transport::Protocol::Tls => "tls",
        transport::Protocol::Quic => "quic",
        transport::Protocol::QuicS2n => "quic-s2n",
    }
}

#[cfg(test)]
mod tests {
    use std::{
        io::{Read, Write},
        task::Poll,
    };

    use super::*;

    fn pair() -> (Stream, std::os::unix::net::UnixStream) {
        let (ours, theirs) = std::os::unix::net::UnixStream::pair().expect("sockets");
        (Stream::new(ours.into()).expect("a stream"), theirs)
    }

    /// Whether there may be something to read, as far as is known.
    async fn is_readable(stream: &Stream) -> bool {
        let mut readable = std::pin::pin!(stream.readable());
        std::future::poll_fn(|context| Poll::Ready(readable.as_mut().poll(context).is_ready())).await
    }

    #[tokio::test]
    async fn after_a_short_read_nothing_is_readable_until_more_comes_or_the_end() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let mut theirs = std::net::TcpStream::connect(address).expect("a connection");
        let ours = Stream::new(listener.accept().expect("a connection").0.into()).expect("a stream");
        for octets in [5, 10] {
            theirs.write_all(&[7; 10][..octets]).expect("room");
            ours.readable().await.expect("a socket");
            assert_eq!(ours.try_read(&mut [0; 20]).expect("octets"), octets);
            assert!(is_readable(&ours).await, "nobody has said that this was all");
            ours.drained();
            assert!(!is_readable(&ours).await);
        }
        theirs.write_all(&[7; 10]).expect("room");
        drop(theirs);
        ours.readable().await.expect("a socket");
        assert_eq!(ours.try_read(&mut [0; 20]).expect("octets"), 10);
        ours.drained();
        ours.readable().await.expect("the end is there, or comes");
        assert_eq!(ours.try_read(&mut [0; 20]).expect("the end"), 0);
    }

    #[tokio::test]
    async fn a_socket_that_was_made_anew_is_counted_from_its_origin() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let mut theirs =
            std::net::TcpStream::connect(listener.local_addr().expect("one")).expect("connected");
        let accepted = listener.accept().expect("a connection").0;
        let origin = Offsets { read: 1 << 40, written: 77 };
        let ours = Stream::at(accepted.into(), Offsets { read: 5, written: 5 }, origin).expect("a stream");
        theirs.write_all(&[7; 10]).expect("room");
        ours.readable().await.expect("a socket");
        assert_eq!(ours.try_read(&mut [0; 20]).expect("octets"), 10);
        assert_eq!(ours.try_write(&[1; 3]).expect("room"), 3);
        assert_eq!(ours.offsets().expect("counts"), Offsets { read: (1 << 40) + 10, written: 80 });
        let beyond = Offsets { read: u64::MAX, written: 0 };
        assert!(tcp_offsets(&ours, beyond).is_err());
    }

    #[tokio::test]
    async fn a_pair_is_counted_as_it_is_read_and_written() {
        let (ours, mut theirs) = pair();
        assert!(ours.is_carried() && is_pair(&ours));
        theirs.write_all(&[7; 100]).expect("room");
        ours.readable().await.expect("a socket");
        assert_eq!(ours.try_read(&mut [0; 40]).expect("octets"), 40);
        let (mut first, mut second) = ([0; 10], [0; 20]);
        let slices = &mut [IoSliceMut::new(&mut first), IoSliceMut::new(&mut second)];
        assert_eq!(ours.try_read_vectored(slices).expect("octets"), 30);
        ours.writable().await.expect("a socket");
        assert_eq!(ours.try_write(&[1; 5]).expect("room"), 5);
        assert_eq!(ours.offsets().expect("counts"), Offsets { read: 70, written: 5 });
        assert_eq!(pair::unread(&ours).expect("FIONREAD"), 30, "these were not read");
        assert!(ours.unacknowledged().expect("SIOCOUTQ") > 0);
        theirs.read_exact(&mut [0; 5]).expect("octets");
        assert_eq!(ours.unacknowledged().expect("SIOCOUTQ"), 0);
    }

    #[tokio::test]
    async fn a_pair_that_another_process_had_is_counted_on() {
        let (ours, mut theirs) = std::os::unix::net::UnixStream::pair().expect("sockets");
        let so_far = Offsets { read: 1 << 40, written: 19 };
        let ours = Stream::at(ours.into(), so_far, Offsets::default()).expect("a stream");
        theirs.write_all(&[7; 3]).expect("room");
        ours.readable().await.expect("a socket");
        assert_eq!(ours.try_read(&mut [0; 40]).expect("octets"), 3);
        assert_eq!(ours.offsets().expect("counts"), Offsets { read: (1 << 40) + 3, written: 19 });
    }

    #[tokio::test]
    async fn where_the_ends_of_a_carried_connection_are_is_the_doors_to_say() {
        let said = transport::Connection {
            protocol: transport::Protocol::Quic.into(),
            remote_address: [&[0xfe, 0x80][..], &[0; 13], &[2]].concat(),
            remote_port: 4433,
            local_address: [&[0xfe, 0x80][..], &[0; 13], &[1]].concat(),
            local_port: 179,
            link: 3,
            proof: "ü".repeat(MOST_PROOF),
            ..transport::Connection::default()
        };
        let handed = AcceptedConnection::new(said.clone(), pair().0).expect("complete");
        assert_eq!(handed.remote.to_string(), "[fe80::2%3]:4433");
        assert_eq!(handed.local.to_string(), "[fe80::1%3]:179");
        assert_eq!((transport_name(&handed.said), handed.said.proof.len()), ("quic", MOST_PROOF));
        for broken in [
            transport::Connection { local_address: Vec::new(), ..said.clone() },
            transport::Connection { remote_address: vec![1, 2, 3], ..said.clone() },
            transport::Connection { remote_port: 65_536, ..said.clone() },
        ] {
            assert!(AcceptedConnection::new(broken, pair().0).is_err());
        }
    }
}

//! Sockets that are in use elsewhere: what the kernel has dropped at them, and what it is to drop.

use std::{
    cell::{Cell, RefCell},
    io,
    net::{IpAddr, UdpSocket},
    os::fd::OwnedFd,
};

use holdfast_sockets::filter::{Filter, FilteredPeer};
use holdfast_sys::{kernel_drops, tcp::IpVersion};
use holdfast_transport::{Protocol, Side};
use rustix::net::{RecvFlags, netdevice, recv, sockopt};

use crate::peers::Peers;

/// So many datagrams may have come in before there was a filter, and no more: there is no room for them.
const MOST_EARLY: usize = 1 << 16;

/// A copy of a socket.
#[derive(Debug)]
pub(crate) struct Watched {
    socket: OwnedFd,
    version: IpVersion,
    /// What the kernel was told to drop of datagrams.
    filter: RefCell<Filter>,
    /// What it has dropped, as far as that was asked for.
    dropped: Cell<u32>,
}

impl Watched {
    /// What is dropped before this is not counted.
    pub(crate) fn new(socket: impl Into<OwnedFd>, family_of: IpAddr) -> Self {
        let (socket, version) = (socket.into(), IpVersion::of(family_of));
        let dropped = Cell::new(kernel_drops(&socket).unwrap_or(0));
        Self { socket, version, filter: RefCell::new(Filter::datagrams(version, [])), dropped }
    }

    /// A UDP socket that nobody has read from; the kernel drops at it what claims to be of a neighbour and is not.
    /// Where it is bound beside that of a process that has retired, it has what is of this side.
    ///
    /// # Errors
    /// The kernel refuses. Then the socket is not to be used.
    pub(crate) fn datagrams(socket: &UdpSocket, side: Side, peers: &Peers) -> io::Result<Self> {
        let watched = Self::new(socket.try_clone()?, socket.local_addr()?.ip());
        let is_beside = sockopt::socket_reuseport(socket)?;
        if is_beside {
            side.steer(socket)?;
        }
        if watched.follow(peers)? || is_beside {
            // What was there before has not passed it.
            let early = || recv(&watched.socket, &mut [0; 1][..], RecvFlags::DONTWAIT | RecvFlags::TRUNC);
            let _ = (0..MOST_EARLY).find(|_| early().is_err());
        }
        Ok(watched)
    }

    /// Others may be bound to its port beside it.
    ///
    /// # Errors
    /// The kernel refuses.
    pub(crate) fn share(&self) -> io::Result<()> {
        Ok(sockopt::set_socket_reuseport(&self.socket, true)?)
    }

    /// Has the kernel drop what follows from these peers; whether it had to be told.
    ///
    /// # Errors
    /// The kernel refuses. Then the socket is not to be used any more.
    pub(crate) fn follow(&self, peers: &Peers) -> io::Result<bool> {
        let filtered =
            peers.coming().filter(|peer| peer.may_use(Protocol::Quic) || peer.may_use(Protocol::QuicS2n));
        let filtered =
            filtered.map(|peer| FilteredPeer { network: peer.network(), ttl_security: peer.ttl_security });
        let filter = Filter::datagrams(self.version, filtered);
        let before = self.filter.borrow().clone();
        // One that takes everything is as good as none.
        let is_news = filter != before && !(filter.is_open() && before.is_open());
        if is_news {
            filter.attach(&self.socket)?;
            self.filter.replace(filter);
        }
        Ok(is_news)
    }

    /// How many packets it has dropped since this was asked last.
    pub(crate) fn dropped(&self) -> u64 {
        let before = self.dropped.get();
        let now = kernel_drops(&self.socket).unwrap_or(before);
        self.dropped.set(now);
        now.wrapping_sub(before).into()
    }

    /// The name of the interface of this number.
    pub(crate) fn interface(&self, number: u32) -> Option<Box<str>> {
        netdevice::index_to_name(&self.socket, number).ok().map(String::into_boxed_str)
    }

    /// The number of the interface of this name.
    ///
    /// # Errors
    /// There is none.
    pub(crate) fn interface_number(&self, name: &str) -> io::Result<u32> {
        Ok(netdevice::name_to_index(&self.socket, name)?)
    }
}

#[cfg(test)]
mod tests {
    use holdfast_api::transport::v1 as api;

    use super::*;
    use crate::peers::Peer;

    fn neighbour(ttl_security: bool, transport: api::Protocol) -> Peers {
        let peer = api::Peer {
            name: "a".into(),
            address: vec![127, 0, 0, 7],
            transports: vec![transport.into()],
            ttl_security,
            ..api::Peer::default()
        };
        Peers::new([Peer::try_from(peer).expect("fine")])
    }

    #[test]
    fn a_socket_follows_the_configuration_and_its_drops_are_counted_once() {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("bound");
        socket.set_nonblocking(true).expect("set");
        let at = socket.local_addr().expect("an address");
        let send = |ttl: u8| {
            let socket = UdpSocket::bind("127.0.0.7:0").expect("bound");
            socket.set_ttl(ttl.into()).expect("set");
            socket.send_to(&[ttl], at).expect("sent");
        };
        let received = || {
            let mut octet = [0];
            std::iter::from_fn(|| socket.recv(&mut octet).ok().map(|_| octet[0])).collect::<Vec<_>>()
        };
        send(64);
        let watched =
            Watched::datagrams(&socket, Side::Low, &neighbour(true, api::Protocol::Quic)).expect("filtered");
        assert!(received().is_empty(), "it came before");
        send(64);
        send(255);
        assert_eq!((received(), watched.dropped(), watched.dropped()), (vec![255], 1, 0));
        assert!(!watched.follow(&neighbour(true, api::Protocol::QuicS2n)).expect("the same"));
        assert!(watched.follow(&neighbour(true, api::Protocol::Tcp)).expect("told"), "no datagram is its");
        send(64);
        assert_eq!((received(), watched.dropped()), (vec![64], 0));
        assert!(!watched.follow(&neighbour(false, api::Protocol::Quic)).expect("nothing to tell"));
    }

    #[test]
    fn without_neighbours_nothing_is_lost() {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("bound");
        socket.set_read_timeout(Some(std::time::Duration::from_secs(5))).expect("set");
        let sender = UdpSocket::bind("127.0.0.7:0").expect("bound");
        sender.send_to(b"early", socket.local_addr().expect("an address")).expect("sent");
        Watched::datagrams(&socket, Side::Low, &neighbour(false, api::Protocol::Quic))
            .expect("nothing to filter");
        assert_eq!(socket.recv(&mut [0; 9]).expect("it is here"), 5);
    }
}

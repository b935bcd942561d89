//! Raw sockets for ICMPv6 (RFC 3542): which messages come in, and with which hop limit.

use std::{
    io,
    net::{IpAddr, Ipv6Addr, SocketAddr, SocketAddrV6},
    os::fd::AsFd,
};

use crate::{option::set_option, packet};

/// `ICMP6_FILTER` of linux/icmpv6.h, an option of level `IPPROTO_ICMPV6`.
const FILTER: libc::c_int = 1;

/// A message as it came in.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Received {
    /// Whose it is; the scope is the interface that it came in by, for a link-local address.
    pub source: SocketAddrV6,
    /// Of the packet: 255 proves that no router has passed it on (RFC 4861 section 3.1).
    pub hop_limit: u8,
    /// Where it was sent to, if the socket tells ([`tell_destinations`]).
    pub destination: Option<Ipv6Addr>,
    /// How much of the buffer it takes; of ICMPv6, from the type on.
    pub octets: usize,
}

/// Lets only messages of these types in (RFC 3542 section 3.2).
///
/// # Errors
/// Those of `setsockopt`.
pub fn set_types(socket: impl AsFd, types: &[u8]) -> io::Result<()> {
    // A bit for each type; set ones are blocked.
    let mut blocked = [u32::MAX; 8];
    for kind in types {
        blocked[usize::from(kind / 32)] &= !(1 << (kind % 32));
    }
    set_option(socket, libc::IPPROTO_ICMPV6, FILTER, &blocked)
}

/// Has [`receive`] told the hop limit of each packet.
///
/// # Errors
/// Those of `setsockopt`.
pub fn tell_hop_limits(socket: impl AsFd) -> io::Result<()> {
    set_option(socket, libc::IPPROTO_IPV6, libc::IPV6_RECVHOPLIMIT, &(1 as libc::c_int))
}

/// Has [`receive`] told where each packet was sent to.
///
/// # Errors
/// Those of `setsockopt`.
pub fn tell_destinations(socket: impl AsFd) -> io::Result<()> {
    set_option(socket, libc::IPPROTO_IPV6, libc::IPV6_RECVPKTINFO, &(1 as libc::c_int))
}

/// Takes one message in. What does not fit into the buffer is lost. `None`: it came without a hop limit, or from
/// no IPv6 address.
///
/// # Errors
/// `EAGAIN` when there is none, and those of `recvmsg`.
pub fn receive(socket: impl AsFd, buffer: &mut [u8]) -> io::Result<Option<Received>> {
    let packet::Received { source, hops, destination, octets, .. } = packet::receive(socket, buffer)?;
    let destination = destination.and_then(|destination| match destination {
        IpAddr::V6(destination) => Some(destination),
        IpAddr::V4(_) => None,
    });
    Ok(match (source, hops) {
        (Some(SocketAddr::V6(source)), Some(hop_limit)) => {
            Some(Received { source, hop_limit, destination, octets })
        }
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::UdpSocket;

    #[test]
    fn the_hop_limit_and_the_source_come_with_the_packet() {
        let (ours, theirs) = (UdpSocket::bind("[::1]:0"), UdpSocket::bind("[::1]:0"));
        let (ours, theirs) = (ours.expect("bind"), theirs.expect("bind"));
        let address = |socket: &UdpSocket| socket.local_addr().expect("an address");
        tell_hop_limits(&ours).expect("IPV6_RECVHOPLIMIT");
        tell_destinations(&ours).expect("IPV6_RECVPKTINFO");
        crate::tcp::set_ttl(&theirs, crate::tcp::IpVersion::V6, 255).expect("IPV6_UNICAST_HOPS");
        let mut buffer = [0; 16];
        let none = receive(&ours, &mut buffer).expect_err("nothing has come");
        assert_eq!(none.kind(), io::ErrorKind::WouldBlock);
        theirs.send_to(b"hello", address(&ours)).expect("sent");
        let received = receive(&ours, &mut buffer).expect("read").expect("with its hop limit");
        assert_eq!(SocketAddr::from(received.source), address(&theirs));
        assert_eq!((received.hop_limit, &buffer[..received.octets]), (255, b"hello".as_slice()));
        assert_eq!(received.source.ip(), &Ipv6Addr::LOCALHOST);
        assert_eq!(received.destination, Some(Ipv6Addr::LOCALHOST));
    }
}

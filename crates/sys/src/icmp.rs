//! Raw sockets for ICMPv6 (RFC 3542): which messages come in, and with which hop limit.

use std::{
    io,
    mem::{MaybeUninit, size_of},
    net::{Ipv6Addr, SocketAddrV6},
    os::fd::{AsFd, AsRawFd},
};

use crate::option::set_option;

/// `ICMP6_FILTER` of linux/icmpv6.h, an option of level `IPPROTO_ICMPV6`.
const FILTER: libc::c_int = 1;
/// Room for the control messages of one packet: the hop limit takes 20 octets.
const CONTROL: usize = 64;

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
    // Aligned as control messages are.
    let mut control = [0_u64; CONTROL / 8];
    let mut source = MaybeUninit::<libc::sockaddr_in6>::zeroed();
    let mut part = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
    // SAFETY: a struct of integers and pointers, for which zeros are values.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_name = source.as_mut_ptr().cast();
    message.msg_namelen = size_of::<libc::sockaddr_in6>() as libc::socklen_t;
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    message.msg_control = control.as_mut_ptr().cast();
    message.msg_controllen = CONTROL as _;
    // SAFETY: name, buffer and control are ours until it returns, and as long as the message says.
    let octets = unsafe {
        libc::recvmsg(
            socket.as_fd().as_raw_fd(),
            &raw mut message,
            libc::MSG_DONTWAIT | libc::MSG_CMSG_CLOEXEC,
        )
    };
    let Ok(octets) = usize::try_from(octets) else { return Err(io::Error::last_os_error()) };
    // SAFETY: integers only, zeroed before and perhaps filled since.
    let source = unsafe { source.assume_init() };
    let source = (i32::from(source.sin6_family) == libc::AF_INET6).then(|| {
        SocketAddrV6::new(
            source.sin6_addr.s6_addr.into(),
            u16::from_be(source.sin6_port),
            0,
            source.sin6_scope_id,
        )
    });
    let Told { hop_limit, destination } = told(&message);
    let received = |(source, hop_limit)| Received { source, hop_limit, destination, octets };
    Ok(source.zip(hop_limit).map(received))
}

/// What the control messages of a packet say.
#[derive(Default)]
struct Told {
    hop_limit: Option<u8>,
    destination: Option<Ipv6Addr>,
}

fn told(message: &libc::msghdr) -> Told {
    let mut told = Told::default();
    // SAFETY: the kernel has filled the control buffer as far as `msg_controllen` says, with whole headers; the macros
    // stay inside of it, and behind a header of these types are one int and one `in6_pktinfo`.
    unsafe {
        let mut header = libc::CMSG_FIRSTHDR(message);
        while let Some(known) = header.as_ref() {
            match (known.cmsg_level, known.cmsg_type) {
                (libc::IPPROTO_IPV6, libc::IPV6_HOPLIMIT) => {
                    let value = libc::CMSG_DATA(header).cast::<libc::c_int>().read_unaligned();
                    told.hop_limit = u8::try_from(value).ok();
                }
                (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO) => {
                    let value = libc::CMSG_DATA(header).cast::<libc::in6_pktinfo>().read_unaligned();
                    told.destination = Some(value.ipi6_addr.s6_addr.into());
                }
                _ => {}
            }
            header = libc::CMSG_NXTHDR(message, header);
        }
    }
    told
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{SocketAddr, UdpSocket};

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

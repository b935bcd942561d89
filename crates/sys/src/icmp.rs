//! Raw sockets for ICMPv6 (RFC 3542): which messages come in, and with which hop limit.

use std::{
    io,
    mem::{MaybeUninit, size_of},
    net::SocketAddrV6,
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
    /// How much of the buffer it takes, from the ICMPv6 type on.
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
    let hop_limit = hop_limit(&message);
    Ok(source.zip(hop_limit).map(|(source, hop_limit)| Received { source, hop_limit, octets }))
}

/// The value of the control message `IPV6_HOPLIMIT`.
fn hop_limit(message: &libc::msghdr) -> Option<u8> {
    // SAFETY: the kernel has filled the control buffer as far as `msg_controllen` says, with whole headers; the macros
    // stay inside of it, and the value behind a header of this type is one int.
    unsafe {
        let mut header = libc::CMSG_FIRSTHDR(message);
        while let Some(known) = header.as_ref() {
            let (level, kind) = (known.cmsg_level, known.cmsg_type);
            if (level, kind) == (libc::IPPROTO_IPV6, libc::IPV6_HOPLIMIT) {
                let value = libc::CMSG_DATA(header).cast::<libc::c_int>().read_unaligned();
                return u8::try_from(value).ok();
            }
            header = libc::CMSG_NXTHDR(message, header);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{Ipv6Addr, SocketAddr, UdpSocket};

    #[test]
    fn the_hop_limit_and_the_source_come_with_the_packet() {
        let (ours, theirs) = (UdpSocket::bind("[::1]:0"), UdpSocket::bind("[::1]:0"));
        let (ours, theirs) = (ours.expect("bind"), theirs.expect("bind"));
        let address = |socket: &UdpSocket| socket.local_addr().expect("an address");
        tell_hop_limits(&ours).expect("IPV6_RECVHOPLIMIT");
        crate::tcp::set_ttl(&theirs, crate::tcp::IpVersion::V6, 255).expect("IPV6_UNICAST_HOPS");
        let mut buffer = [0; 16];
        let none = receive(&ours, &mut buffer).expect_err("nothing has come");
        assert_eq!(none.kind(), io::ErrorKind::WouldBlock);
        theirs.send_to(b"hello", address(&ours)).expect("sent");
        let received = receive(&ours, &mut buffer).expect("read").expect("with its hop limit");
        assert_eq!(SocketAddr::from(received.source), address(&theirs));
        assert_eq!((received.hop_limit, &buffer[..received.octets]), (255, b"hello".as_slice()));
        assert_eq!(received.source.ip(), &Ipv6Addr::LOCALHOST);
    }
}

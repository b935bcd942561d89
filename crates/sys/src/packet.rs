//! Packets of IP at sockets for datagrams and raw ones: what the kernel tells of those that come, and by which way one leaves.

use std::{
    io,
    mem::{MaybeUninit, size_of, zeroed},
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6},
    os::fd::{AsFd, AsRawFd},
};

use crate::{icmp, option::set_option, tcp::IpVersion};

/// Not in libc for Linux: an option of linux/in6.h.
const IPV6_MULTICAST_ALL: libc::c_int = 29;
/// Room for the control messages of one packet: with its way come 64 octets at most, and it leaves with fewer.
const CONTROL: usize = 128;
const ON: libc::c_int = 1;
const OFF: libc::c_int = 0;

/// Which way a packet leaves.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Way {
    /// The kernel's number of the interface, whatever the socket is bound to; 0: by the table. An address of a link needs one.
    pub interface: u32,
    /// An address of this host. An unspecified one has the kernel choose.
    pub source: IpAddr,
    /// Of the same family.
    pub destination: IpAddr,
    /// The port there; 0 from a raw socket.
    pub port: u16,
}

/// A packet as it came in.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Received {
    /// Whose it is, if that is an address of IP.
    pub source: Option<SocketAddr>,
    /// Where it was sent to, if the socket tells ([`tell_ways`]).
    pub destination: Option<IpAddr>,
    /// The number of the interface by which it came, likewise.
    pub interface: Option<u32>,
    /// Its TTL or hop limit, likewise.
    pub hops: Option<u8>,
    /// How much of the buffer it takes: of a raw socket of IPv4 with the header, of others without.
    pub octets: usize,
}

/// Has control messages tell of each packet where it was sent to, by which interface it came, and its TTL or hop limit
/// (`IP_PKTINFO` and `IP_RECVTTL`, for IPv6 RFC 3542).
///
/// # Errors
/// Those of `setsockopt`.
pub fn tell_ways(socket: impl AsFd, version: IpVersion) -> io::Result<()> {
    match version {
        IpVersion::V4 => {
            set_option(&socket, libc::IPPROTO_IP, libc::IP_PKTINFO, &ON)?;
            set_option(&socket, libc::IPPROTO_IP, libc::IP_RECVTTL, &ON)
        }
        IpVersion::V6 => {
            icmp::tell_hop_limits(&socket)?;
            icmp::tell_destinations(&socket)
        }
    }
}

/// Leaves out what was sent to groups that others on this host have joined, and this socket has not.
///
/// # Errors
/// `ENOPROTOOPT` for IPv6 before Linux 4.20.
pub fn hear_own_groups(socket: impl AsFd, version: IpVersion) -> io::Result<()> {
    match version {
        IpVersion::V4 => set_option(socket, libc::IPPROTO_IP, libc::IP_MULTICAST_ALL, &OFF),
        IpVersion::V6 => set_option(socket, libc::IPPROTO_IPV6, IPV6_MULTICAST_ALL, &OFF),
    }
}

/// Takes one packet in. What does not fit into the buffer is lost.
///
/// # Errors
/// `EAGAIN` when there is none, and those of `recvmsg`.
pub fn receive(socket: impl AsFd, buffer: &mut [u8]) -> io::Result<Received> {
    // Aligned as control messages are.
    let mut control = [0_u64; CONTROL / 8];
    let mut name = MaybeUninit::<libc::sockaddr_storage>::zeroed();
    let mut part = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
    // SAFETY: a struct of integers and pointers, for which zeros are values.
    let mut message: libc::msghdr = unsafe { zeroed() };
    message.msg_name = name.as_mut_ptr().cast();
    message.msg_namelen = size_of::<libc::sockaddr_storage>() as libc::socklen_t;
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
    let source = source(unsafe { name.assume_init_ref() });
    Ok(Received { source, octets, ..told(&message) })
}

fn source(name: &libc::sockaddr_storage) -> Option<SocketAddr> {
    let name = std::ptr::from_ref(name);
    // SAFETY: the kernel's structs for the two families are no larger than the one for all, nor stricter about alignment, and
    // are integers only.
    unsafe {
        match libc::c_int::from((*name).ss_family) {
            libc::AF_INET => {
                let name = &*name.cast::<libc::sockaddr_in>();
                let address = Ipv4Addr::from(name.sin_addr.s_addr.to_ne_bytes());
                Some(SocketAddr::new(address.into(), u16::from_be(name.sin_port)))
            }
            libc::AF_INET6 => {
                let name = &*name.cast::<libc::sockaddr_in6>();
                let (address, port) = (name.sin6_addr.s6_addr.into(), u16::from_be(name.sin6_port));
                Some(SocketAddrV6::new(address, port, 0, name.sin6_scope_id).into())
            }
            _ => None,
        }
    }
}

/// What the control messages of a packet say.
fn told(message: &libc::msghdr) -> Received {
    let mut told = Received { source: None, destination: None, interface: None, hops: None, octets: 0 };
    // SAFETY: the kernel has filled the control buffer as far as `msg_controllen` says, with whole headers; the macros
    // stay inside of it, and behind a header of these types is one int, one `in_pktinfo` or one `in6_pktinfo`.
    unsafe {
        let mut header = libc::CMSG_FIRSTHDR(message);
        while let Some(known) = header.as_ref() {
            let data = libc::CMSG_DATA(header);
            match (known.cmsg_level, known.cmsg_type) {
                (libc::IPPROTO_IP, libc::IP_TTL) | (libc::IPPROTO_IPV6, libc::IPV6_HOPLIMIT) => {
                    told.hops = u8::try_from(data.cast::<libc::c_int>().read_unaligned()).ok();
                }
                (libc::IPPROTO_IP, libc::IP_PKTINFO) => {
                    let info = data.cast::<libc::in_pktinfo>().read_unaligned();
                    told.destination = Some(Ipv4Addr::from(info.ipi_addr.s_addr.to_ne_bytes()).into());
                    told.interface = u32::try_from(info.ipi_ifindex).ok();
                }
                (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO) => {
                    let info = data.cast::<libc::in6_pktinfo>().read_unaligned();
                    told.destination = Some(Ipv6Addr::from(info.ipi6_addr.s6_addr).into());
                    told.interface = Some(info.ipi6_ifindex);
                }
                _ => {}
            }
            header = libc::CMSG_NXTHDR(message, header);
        }
    }
    told
}

/// Sends a packet this way, from a raw socket what is behind its IP header.
///
/// # Errors
/// `EAFNOSUPPORT` for addresses of two families, `EAGAIN` when there is no room, and those of `sendmsg`.
pub fn send(socket: impl AsFd, octets: &[u8], way: Way) -> io::Result<()> {
    match (way.source, way.destination) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            send_v4(socket, octets, way.interface, source, (destination, way.port))
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            send_v6(socket, octets, way.interface, source, (destination, way.port))
        }
        _ => Err(io::Error::from_raw_os_error(libc::EAFNOSUPPORT)),
    }
}

fn send_v4(
    socket: impl AsFd,
    octets: &[u8],
    interface: u32,
    source: Ipv4Addr,
    (destination, port): (Ipv4Addr, u16),
) -> io::Result<()> {
    let in_addr = |address: Ipv4Addr| libc::in_addr { s_addr: u32::from_ne_bytes(address.octets()) };
    let name = libc::sockaddr_in {
        sin_family: libc::AF_INET as libc::sa_family_t,
        sin_port: port.to_be(),
        sin_addr: in_addr(destination),
        sin_zero: [0; 8],
    };
    let info = libc::in_pktinfo {
        ipi_ifindex: interface.cast_signed(),
        ipi_spec_dst: in_addr(source),
        ipi_addr: in_addr(Ipv4Addr::UNSPECIFIED),
    };
    send_with(socket, octets, &name, (libc::IPPROTO_IP, libc::IP_PKTINFO), info)
}

fn send_v6(
    socket: impl AsFd,
    octets: &[u8],
    interface: u32,
    source: Ipv6Addr,
    (destination, port): (Ipv6Addr, u16),
) -> io::Result<()> {
    let in6_addr = |address: Ipv6Addr| libc::in6_addr { s6_addr: address.octets() };
    let name = libc::sockaddr_in6 {
        sin6_family: libc::AF_INET6 as libc::sa_family_t,
        sin6_port: port.to_be(),
        sin6_flowinfo: 0,
        sin6_addr: in6_addr(destination),
        // Looked at for addresses of a link only.
        sin6_scope_id: interface,
    };
    let info = libc::in6_pktinfo { ipi6_addr: in6_addr(source), ipi6_ifindex: interface };
    send_with(socket, octets, &name, (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO), info)
}

/// Sends to an address of the kernel's form, with one control message of this level and type. Both are structs without
/// padding.
fn send_with<N: Copy, C: Copy>(
    socket: impl AsFd,
    octets: &[u8],
    name: &N,
    (level, kind): (libc::c_int, libc::c_int),
    control: C,
) -> io::Result<()> {
    const { assert!(size_of::<C>() + size_of::<libc::cmsghdr>() <= CONTROL) };
    let size = size_of::<C>() as libc::c_uint;
    // Aligned as control messages are.
    let mut room = [0_u64; CONTROL / 8];
    let mut part = libc::iovec { iov_base: octets.as_ptr().cast_mut().cast(), iov_len: octets.len() };
    // SAFETY: a struct of integers and pointers, for which zeros are values.
    let mut message: libc::msghdr = unsafe { zeroed() };
    message.msg_name = std::ptr::from_ref(name).cast_mut().cast();
    message.msg_namelen = size_of::<N>() as libc::socklen_t;
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    message.msg_control = room.as_mut_ptr().cast();
    // SAFETY: arithmetic on sizes.
    message.msg_controllen = unsafe { libc::CMSG_SPACE(size) } as _;
    // SAFETY: name, octets and control message are ours until it returns, as long as the message says, and only read. The
    // room holds a header with the control message behind it, so there is a first header.
    let sent = unsafe {
        let header = libc::CMSG_FIRSTHDR(&raw const message);
        (*header).cmsg_level = level;
        (*header).cmsg_type = kind;
        (*header).cmsg_len = libc::CMSG_LEN(size) as _;
        libc::CMSG_DATA(header).cast::<C>().write_unaligned(control);
        libc::sendmsg(socket.as_fd().as_raw_fd(), &raw const message, libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL)
    };
    if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{net::UdpSocket, os::fd::OwnedFd, process::Command};

    use rustix::{
        event::{PollFd, PollFlags, Timespec, poll},
        net::{AddressFamily, Protocol, RecvFlags, SocketType, recv, socket},
    };

    /// For experiments (RFC 3692).
    const NUMBER: u32 = 253;

    fn raw(family: AddressFamily) -> OwnedFd {
        let protocol = Protocol::from_raw(NUMBER.try_into().expect("not 0"));
        socket(family, SocketType::RAW, Some(protocol)).expect("this test needs root")
    }

    fn ip(arguments: &str) {
        let status = Command::new("ip").args(arguments.split(' ')).status().expect("ip runs");
        assert!(status.success(), "ip {arguments}");
    }

    /// In a network namespace of its own: a raw socket hears what other tests send beside it.
    fn alone(story: impl FnOnce() + Send + 'static) {
        let inside = || {
            crate::process::enter_new_network().expect("this test needs root");
            ip("link set lo up");
            story();
        };
        std::thread::spawn(inside).join().expect("the story holds");
    }

    /// A kernel under load delivers a packet to its own host after the call that sent it.
    fn awaited(at: impl AsFd, packet: &mut [u8]) -> Received {
        let limit = Timespec { tv_sec: 10, tv_nsec: 0 };
        poll(&mut [PollFd::new(&at, PollFlags::IN)], Some(&limit)).expect("polled");
        receive(at, packet).expect("it came")
    }

    #[test]
    fn a_packet_leaves_with_the_source_of_its_way_and_with_no_other() {
        alone(|| {
            let [from, at] = [raw(AddressFamily::INET), raw(AddressFamily::INET)];
            let [source, destination] = [5, 1].map(|last| IpAddr::from([127, 0, 0, last]));
            send(&from, b"hello", Way { interface: 1, source, destination, port: 0 }).expect("sent");
            let mut packet = [0; 64];
            let (_, octets) = recv(&at, &mut packet, RecvFlags::empty()).expect("it came");
            let parts = (octets, &packet[12..16], &packet[20..octets]);
            assert_eq!(parts, (25, &[127, 0, 0, 5][..], &b"hello"[..]));
            let foreign = Way { interface: 1, source: [192, 0, 2, 1].into(), destination, port: 0 };
            send(&from, b"hello", foreign).expect_err("no address of ours");
        });
    }

    #[test]
    fn of_a_packet_is_told_where_it_was_sent_to_by_which_interface_and_its_hop_limit() {
        alone(|| {
            let cases = [
                (AddressFamily::INET, IpVersion::V4, IpAddr::from([127, 0, 0, 7]), 25),
                (AddressFamily::INET6, IpVersion::V6, Ipv6Addr::LOCALHOST.into(), 5),
            ];
            for (family, version, here, expected) in cases {
                let [from, at] = [raw(family), raw(family)];
                let mut packet = [0; 64];
                let none = receive(&at, &mut packet).expect_err("nothing has come");
                assert_eq!(none.kind(), io::ErrorKind::WouldBlock);
                tell_ways(&at, version).expect("told");
                crate::tcp::set_ttl(&from, version, 77).expect("set");
                send(&from, b"hello", Way { interface: 1, source: here, destination: here, port: 0 })
                    .expect("sent");
                let received = awaited(&at, &mut packet);
                let told = (received.destination, received.interface, received.hops, received.octets);
                assert_eq!(told, (Some(here), Some(1), Some(77), expected));
                assert_eq!(received.source.map(|source| source.ip()), Some(here));
            }
        });
    }

    #[test]
    fn a_datagram_goes_to_its_port_and_the_kernel_chooses_what_its_way_leaves_open() {
        for here in [IpAddr::from([127, 0, 0, 1]), Ipv6Addr::LOCALHOST.into()] {
            let (from, at) = (UdpSocket::bind((here, 0)).expect("bound"), UdpSocket::bind((here, 0)));
            let at = at.expect("bound");
            let port = at.local_addr().expect("an address").port();
            let source = if here.is_ipv4() { [0; 4].into() } else { Ipv6Addr::UNSPECIFIED.into() };
            send(&from, b"hello", Way { interface: 0, source, destination: here, port }).expect("sent");
            let mut packet = [0; 64];
            let received = awaited(&at, &mut packet);
            assert_eq!((received.source, received.octets), (from.local_addr().ok(), 5));
        }
    }

    #[test]
    fn an_address_of_a_link_is_reached_by_the_interface_of_the_way() {
        alone(|| {
            let address = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1);
            ip("link add eth0 type veth peer name peer0");
            ip("link set peer0 up");
            ip("link set eth0 up");
            ip("address add fe80::1/64 dev eth0 nodad");
            holdfast_testing::addresses::until_delivered(&[], &[address]);
            let at = UdpSocket::bind("[::]:0").expect("bound");
            tell_ways(&at, IpVersion::V6).expect("told");
            let interface = rustix::net::netdevice::name_to_index(&at, "eth0").expect("it is there");
            let port = at.local_addr().expect("an address").port();
            let destination = IpAddr::from(address);
            let way = Way { interface, source: Ipv6Addr::UNSPECIFIED.into(), destination, port };
            for source in [way.source, destination] {
                send(&at, b"hello", Way { source, ..way }).expect("sent");
                let received = awaited(&at, &mut [0; 64]);
                let source = SocketAddrV6::new(address, port, 0, interface);
                assert_eq!((received.source, received.destination), (Some(source.into()), Some(destination)));
            }
        });
    }

    #[test]
    fn addresses_of_two_families_are_no_way() {
        let (source, destination) = (Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into());
        let way = Way { interface: 1, source, destination, port: 0 };
        let error = send(raw(AddressFamily::INET), b"hello", way).expect_err("no way");
        assert_eq!(error.raw_os_error(), Some(libc::EAFNOSUPPORT));
    }
}

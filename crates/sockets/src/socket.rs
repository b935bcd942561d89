//! Sockets with their options.

use std::{
    hash::{BuildHasher, RandomState},
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6},
    num::NonZeroU8,
    ops::RangeInclusive,
    os::fd::OwnedFd,
    time::Duration,
};

use holdfast_sys::{
    bind_to_device,
    filter::{Instruction, lock_filter, set_filter},
    packet,
    repair::{self, Agreed},
    set_priority,
    tcp::{IpVersion, Md5Peer, set_default_ttl, set_md5, set_min_ttl, set_ttl},
};
use rustix::{
    io::Errno,
    net::{RecvFlags, netdevice, sockopt},
};
use tracing::warn;

use crate::{
    SocketError,
    datagrams::Datagrams,
    error::Step,
    filter::{GTSM_TTL, destinations},
    peer::{Peer, Secret, md5_peer},
    place::Place,
    ports::Granted,
    raw::RawIp,
};
use holdfast_types::Prefix;

/// Octets that may wait in a UDP socket: without any loss at the full rate of one sender on a loaded machine.
pub(crate) const RECEIVE_BUFFER: usize = 4 << 20;

/// Class selector 6 (RFC 4594 section 3.2): what routers do with traffic of the control plane.
const NETWORK_CONTROL: u8 = 0xc0;

/// The highest priority that takes no rights (TC_PRIO_INTERACTIVE): queues let it pass before what is forwarded.
const PRIORITY: u8 = 6;

/// After so long without a segment the kernel asks the other end of a connection to a collector, cache or store whether it is
/// there, and so often again.
const IDLE: Duration = Duration::from_secs(20);
const PROBES: Duration = Duration::from_secs(10);
/// After so long without an acknowledgement of data or probes that connection ends: with the idle time before, within a minute.
const SILENCE: Duration = Duration::from_secs(40);

/// Ports that nobody is expected at (RFC 6335 section 6): the sources of BFD (RFC 5881 section 4).
const FREE_PORTS: RangeInclusive<u16> = 49_152..=65_535;

/// So many of them are tried: where a tenth is free, all but one of 800 calls find one.
const MOST_ATTEMPTS: u32 = 64;

/// A socket bound to the address, non-blocking. It listens when it has its keys.
pub(crate) async fn bind(place: &Place, address: SocketAddr) -> Result<OwnedFd, SocketError> {
    let socket = open(place, address.ip()).await?;
    sockopt::set_socket_reuseaddr(&socket, true).step("setting SO_REUSEADDR")?;
    rustix::net::bind(&socket, &address).step("binding")?;
    Ok(socket)
}

/// A socket that is connecting to the peer, non-blocking.
pub(crate) async fn dial(place: &Place, peer: &Peer, address: IpAddr) -> Result<OwnedFd, SocketError> {
    let socket = open(place, address).await?;
    let version = IpVersion::of(address);
    if let Some(key) = &peer.md5 {
        key_for(&socket, md5_peer(peer.network), key)?;
    }
    if peer.ttl_security {
        set_ttl(&socket, version, GTSM_TTL).step("setting the TTL")?;
        set_min_ttl(&socket, version, GTSM_TTL).step("setting the minimum TTL")?;
    } else if let Some(ttl) = peer.ttl {
        set_ttl(&socket, version, ttl.get()).step("setting the TTL")?;
    }
    if peer.only_dialled {
        end_when_silent(&socket)?;
    }
    let scope = scope(&socket, peer)?;
    if let Some(local) = peer.local {
        rustix::net::bind(&socket, &scoped(local, 0, scope)).step("binding to the local address")?;
    }
    match rustix::net::connect(&socket, &scoped(address, peer.port, scope)) {
        Ok(()) | Err(Errno::INPROGRESS) => Ok(socket),
        Err(error) => Err(error).step("connecting"),
    }
}

/// Has the kernel end a connection whose other end does not answer. Collectors and caches say little or nothing by themselves, and
/// have no hold timer: one that died without a word would stay connected for ever.
fn end_when_silent(socket: &OwnedFd) -> Result<(), SocketError> {
    sockopt::set_socket_keepalive(socket, true).step("setting SO_KEEPALIVE")?;
    sockopt::set_tcp_keepidle(socket, IDLE).step("setting TCP_KEEPIDLE")?;
    sockopt::set_tcp_keepintvl(socket, PROBES).step("setting TCP_KEEPINTVL")?;
    let silence = SILENCE.as_millis() as u32;
    sockopt::set_tcp_user_timeout(socket, silence).step("setting TCP_USER_TIMEOUT")
}

/// Gives the socket of a connection with the peer the key and the TTLs of [`dial`], whoever has dialled: in place, so that
/// what is in flight is not lost. The other end has another key a moment before or after: until then neither takes the
/// other's segments, which TCP sends again.
pub(crate) fn refit(peer: &Peer, socket: &OwnedFd) -> Result<(), SocketError> {
    let remote = rustix::net::getpeername(socket);
    let remote = remote.and_then(|remote| SocketAddr::try_from(remote.ok_or(Errno::NOTCONN)?));
    fit(peer, socket, remote.step("asking for the other end")?.ip())
}

/// A connection with the peer as another router has left it. It says nothing before it is [released](repair::release).
pub(crate) async fn restore(
    place: &Place,
    peer: &Peer,
    at: &repair::Place,
    agreed: &Agreed,
) -> Result<OwnedFd, SocketError> {
    let address = at.remote.ip();
    let socket = open(place, address).await?;
    fit(peer, &socket, address)?;
    repair::restore(&socket, at, agreed).step("restoring the connection")?;
    Ok(socket)
}

/// Gives a socket what it needs for a connection with the peer, who is at this address.
fn fit(peer: &Peer, socket: &OwnedFd, address: IpAddr) -> Result<(), SocketError> {
    // The kernel has the key of one that has come in under its address, also where a range had it.
    let whose = md5_peer(Prefix::host(address));
    match &peer.md5 {
        Some(key) => key_for(socket, whose, key)?,
        None => match set_md5(socket, whose, &[]) {
            Err(error) if Errno::from_io_error(&error) != Some(Errno::NOENT) => {
                return Err(error).step("taking the MD5 key away");
            }
            Ok(()) | Err(_) => {}
        },
    }
    let version = IpVersion::of(address);
    let (ttl, least) = match peer.ttl_security {
        true => (NonZeroU8::new(GTSM_TTL), GTSM_TTL),
        false => (peer.ttl, 0),
    };
    match ttl {
        Some(ttl) => set_ttl(socket, version, ttl.get()),
        None => set_default_ttl(socket, version),
    }
    .step("setting the TTL")?;
    set_min_ttl(socket, version, least).step("setting the minimum TTL")
}

/// A UDP socket bound to the address, non-blocking, with room for [`RECEIVE_BUFFER`] octets that nobody has read, or
/// as many as the kernel gives. It sends with TTL 255, since peers with GTSM and others share it. Where the one that
/// has the address lets others in beside it, which is said at that socket (`SO_REUSEPORT`), it is bound there, and
/// this one says it as well.
pub(crate) async fn udp(place: &Place, address: SocketAddr) -> Result<OwnedFd, SocketError> {
    let socket = place.udp(address.ip()).await?;
    let version = IpVersion::of(address.ip());
    one_family(&socket, version)?;
    class(&socket, version)?;
    set_ttl(&socket, version, GTSM_TTL).step("setting the TTL")?;
    room(&socket, RECEIVE_BUFFER)?;
    bind_beside(&socket, address).step("binding")?;
    // The kernel says twice as much, for what it needs itself.
    let octets = sockopt::socket_recv_buffer_size(&socket).step("asking for SO_RCVBUF")? / 2;
    if octets < RECEIVE_BUFFER {
        warn!(
            event = "buffer-clipped",
            %address,
            octets,
            "QUIC may lose datagrams: the kernel gives less room than {RECEIVE_BUFFER} octets, see the sysctl net.core.rmem_max"
        );
    }
    Ok(socket)
}

/// A UDP socket at a port of all addresses, non-blocking, with room for [`RECEIVE_BUFFER`] octets, or as many as the kernel
/// gives. It sends with TTL 255, as urgent as what the router sends otherwise; of what it receives it tells the way.
pub(crate) async fn port(place: &Place, granted: Granted) -> Result<OwnedFd, SocketError> {
    let Granted { version, port } = granted;
    let any = any(version);
    let socket = place.udp(any).await?;
    one_family(&socket, version)?;
    class(&socket, version)?;
    set_priority(&socket, PRIORITY).step("setting SO_PRIORITY")?;
    set_ttl(&socket, version, GTSM_TTL).step("setting the TTL")?;
    room(&socket, RECEIVE_BUFFER)?;
    packet::tell_ways(&socket, version).step("asking for packet info")?;
    let Some(port) = port else { return bind_to_free(&socket, any).map(|()| socket) };
    match bind_beside(&socket, SocketAddr::new(any, port)) {
        Err(Errno::ADDRINUSE) => return Err(SocketError::PortInUse(port)),
        bound => bound.step("binding")?,
    }
    // Sockets of the router in other tables have this port, too: to the kernel one that is bound to a VRF device and one that
    // is bound to none are in each other's way. Of other users it lets none in.
    sockopt::set_socket_reuseport(&socket, true).step("setting SO_REUSEPORT")?;
    Ok(socket)
}

/// Binds to an address; where whoever has it lets others in beside it (`SO_REUSEPORT`), as one of them.
fn bind_beside(socket: &OwnedFd, address: SocketAddr) -> Result<(), Errno> {
    match rustix::net::bind(socket, &address) {
        Err(Errno::ADDRINUSE) => {
            sockopt::set_socket_reuseport(socket, true)?;
            rustix::net::bind(socket, &address)
        }
        bound => bound,
    }
}

/// Binds to one of [`FREE_PORTS`], which nobody outside can guess.
fn bind_to_free(socket: &OwnedFd, any: IpAddr) -> Result<(), SocketError> {
    let key = RandomState::new();
    let count = u64::from(FREE_PORTS.end() - FREE_PORTS.start()) + 1;
    for attempt in 0..MOST_ATTEMPTS {
        let port = FREE_PORTS.start() + (key.hash_one(attempt) % count) as u16;
        match rustix::net::bind(socket, &SocketAddr::new(any, port)) {
            Err(Errno::ADDRINUSE) => {}
            bound => return bound.step("binding"),
        }
    }
    Err(SocketError::NoFreePort(MOST_ATTEMPTS))
}

/// All addresses of a family.
fn any(version: IpVersion) -> IpAddr {
    match version {
        IpVersion::V4 => Ipv4Addr::UNSPECIFIED.into(),
        IpVersion::V6 => Ipv6Addr::UNSPECIFIED.into(),
    }
}

/// A UDP socket of a routing protocol on an interface, non-blocking: bound to the device and the port of its datagrams, and
/// in their groups. What it sends is not looped back; of what it receives it tells the way.
pub(crate) async fn group(
    place: &Place,
    interface: &str,
    datagrams: &Datagrams,
) -> Result<OwnedFd, SocketError> {
    let version = datagrams.version;
    let any = any(version);
    let socket = place.udp(any).await?;
    one_family(&socket, version)?;
    stand_on(&socket, interface, version, datagrams.hops, &datagrams.groups)?;
    room(&socket, RECEIVE_BUFFER)?;
    packet::tell_ways(&socket, version).step("asking for packet info")?;
    // One socket an interface, each on its own device.
    sockopt::set_socket_reuseaddr(&socket, true).step("setting SO_REUSEADDR")?;
    rustix::net::bind(&socket, &SocketAddr::new(any, datagrams.port)).step("binding")?;
    Ok(socket)
}

/// A raw socket of a routing protocol on an interface, non-blocking: bound to the device, in the groups, and closed for good
/// to what was sent to other ones. What it sends is not looped back. It has room for so many octets.
pub(crate) async fn raw(
    place: &Place,
    interface: &str,
    packets: &RawIp,
    octets: usize,
) -> Result<OwnedFd, SocketError> {
    let version = packets.version;
    let socket = place.raw(version, packets.protocol).await?;
    empty(&socket)?;
    stand_on(&socket, interface, version, packets.hops, &packets.groups)?;
    room(&socket, octets)?;
    if version == IpVersion::V6 {
        // Of IPv4 there is the header.
        packet::tell_ways(&socket, version).step("asking for packet info")?;
    }
    let program = destinations::program(version, &packets.groups);
    set_filter(&socket, &program).step("setting the filter")?;
    lock_filter(&socket).step("locking the filter")?;
    Ok(socket)
}

/// A raw socket that sends on any interface, each packet by a way of its own, and receives nothing.
pub(crate) async fn raw_sender(place: &Place, packets: &RawIp) -> Result<OwnedFd, SocketError> {
    let socket = place.raw(packets.version, packets.protocol).await?;
    empty(&socket)?;
    class(&socket, packets.version)?;
    hops(&socket, packets.version, packets.hops)?;
    Ok(socket)
}

/// Closes a raw socket to all packets, and forgets those that have come: from any interface, since it is bound to none yet.
fn empty(socket: &OwnedFd) -> Result<(), SocketError> {
    set_filter(socket, &[Instruction::Drop]).step("setting the filter")?;
    while rustix::net::recv(socket, &mut [0_u8; 1], RecvFlags::DONTWAIT).is_ok() {}
    Ok(())
}

/// Binds a socket to an interface, and has it join groups there, and hear no others.
fn stand_on(
    socket: &OwnedFd,
    interface: &str,
    version: IpVersion,
    ttl: u8,
    groups: &[IpAddr],
) -> Result<(), SocketError> {
    let index = netdevice::name_to_index(socket, interface)
        .map_err(|error| SocketError::NoInterface { name: interface.to_owned(), source: error.into() })?;
    bind_to_device(socket, interface).step("binding to the interface")?;
    class(socket, version)?;
    hops(socket, version, ttl)?;
    packet::hear_own_groups(socket, version).step("setting IP_MULTICAST_ALL")?;
    let any = Ipv4Addr::UNSPECIFIED;
    match version {
        IpVersion::V4 => sockopt::set_ip_multicast_if_with_ifindex(socket, &any, &any, index),
        IpVersion::V6 => sockopt::set_ipv6_multicast_if(socket, index),
    }
    .step("setting the interface of groups")?;
    for group in groups {
        match group {
            IpAddr::V4(group) => sockopt::set_ip_add_membership_with_ifindex(socket, group, &any, index),
            IpAddr::V6(group) => sockopt::set_ipv6_add_membership(socket, group, index),
        }
        .step("joining the group")?;
    }
    Ok(())
}

/// The TTL of what is sent, also to groups; that is not looped back.
fn hops(socket: &OwnedFd, version: IpVersion, hops: u8) -> Result<(), SocketError> {
    set_ttl(socket, version, hops).step("setting the TTL")?;
    match version {
        IpVersion::V4 => {
            sockopt::set_ip_multicast_ttl(socket, hops.into()).step("setting the TTL for groups")?;
            sockopt::set_ip_multicast_loop(socket, false).step("setting IP_MULTICAST_LOOP")
        }
        IpVersion::V6 => {
            sockopt::set_ipv6_multicast_hops(socket, hops.into()).step("setting the hop limit")?;
            sockopt::set_ipv6_multicast_loop(socket, false).step("setting IPV6_MULTICAST_LOOP")
        }
    }
}

/// Sets a peer's TCP-MD5 key.
pub(crate) fn key_for(socket: &OwnedFd, peer: Md5Peer, key: &Secret) -> Result<(), SocketError> {
    set_md5(socket, peer, key.octets()).step("setting the MD5 key")
}

/// A socket without an address.
pub(crate) async fn open(place: &Place, address: IpAddr) -> Result<OwnedFd, SocketError> {
    let socket = place.tcp(address).await?;
    sockopt::set_tcp_nodelay(&socket, true).step("setting TCP_NODELAY")?;
    let version = IpVersion::of(address);
    one_family(&socket, version)?;
    class(&socket, version)?;
    Ok(socket)
}

/// Room for so many octets, or as many as the kernel gives.
fn room(socket: &OwnedFd, octets: usize) -> Result<(), SocketError> {
    // Beyond net.core.rmem_max only for who administers the network.
    let forced = sockopt::set_socket_recv_buffer_size_force(socket, octets);
    forced.or_else(|_| sockopt::set_socket_recv_buffer_size(socket, octets)).step("setting SO_RCVBUF")
}

/// IPv6 only, of a socket of IPv6 that is not raw: those are so.
fn one_family(socket: &OwnedFd, version: IpVersion) -> Result<(), SocketError> {
    match version {
        IpVersion::V4 => Ok(()),
        IpVersion::V6 => sockopt::set_ipv6_v6only(socket, true).step("setting IPV6_V6ONLY"),
    }
}

/// The class of what is sent.
fn class(socket: &OwnedFd, version: IpVersion) -> Result<(), SocketError> {
    match version {
        IpVersion::V4 => sockopt::set_ip_tos(socket, NETWORK_CONTROL),
        IpVersion::V6 => sockopt::set_ipv6_tclass(socket, NETWORK_CONTROL.into()),
    }
    .step("setting the class")
}

/// The number of the peer's interface; 0 when none is named.
fn scope(socket: &OwnedFd, peer: &Peer) -> Result<u32, SocketError> {
    let Some(name) = &peer.interface else { return Ok(0) };
    netdevice::name_to_index(socket, name)
        .map_err(|error| SocketError::NoInterface { name: name.clone(), source: error.into() })
}

fn scoped(address: IpAddr, port: u16, scope: u32) -> SocketAddr {
    match address {
        IpAddr::V6(address) if is_link_local(address) => SocketAddrV6::new(address, port, 0, scope).into(),
        address => (address, port).into(),
    }
}

fn is_link_local(address: Ipv6Addr) -> bool {
    address.segments()[0] & 0xffc0 == 0xfe80
}

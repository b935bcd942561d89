//! Options of TCP sockets: keys (RFC 2385), hop limits (RFC 5082); how far both ends have read and written.

use std::{
    io,
    mem::{MaybeUninit, size_of},
    net::IpAddr,
    os::fd::{AsFd, AsRawFd},
    time::Duration,
};

use crate::option::{check, set_option};

/// Longest TCP-MD5 key the kernel takes, in octets.
pub const MD5_KEY_MAX: usize = libc::TCP_MD5SIG_MAXKEYLEN;

/// Whose segments a TCP-MD5 key signs and checks.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Md5Peer {
    /// The peer, or the network of a range of peers.
    pub address: IpAddr,
    /// Length of that network; 32 or 128 for a single peer.
    pub length: u8,
}

/// Sets the TCP-MD5 key (RFC 2385) for a peer, in place of the one it had; an empty key takes it away.
/// The address must be of the socket's family.
///
/// # Errors
/// `EINVAL` for a key over [`MD5_KEY_MAX`] or a length that does not fit the address, `ENOENT` when an
/// empty key finds none to take away, and those of `setsockopt`.
pub fn set_md5(socket: impl AsFd, peer: Md5Peer, key: &[u8]) -> io::Result<()> {
    if key.len() > MD5_KEY_MAX {
        return Err(io::Error::from_raw_os_error(libc::EINVAL));
    }
    let request = md5_request(peer, key);
    set_option(socket, libc::IPPROTO_TCP, libc::TCP_MD5SIG_EXT, &request)
}

/// `TCP_MD5SIG_FLAG_PREFIX` of linux/tcp.h: the length is given.
const MD5_FLAG_PREFIX: u8 = 1;

/// `struct tcp_md5sig` of linux/tcp.h:
/// `sockaddr_storage address (128), u8 flags, u8 prefix length, u16 key length, int interface, u8 key[80]`.
fn md5_request(peer: Md5Peer, key: &[u8]) -> [u8; 136 + MD5_KEY_MAX] {
    let mut request = [0; 136 + MD5_KEY_MAX];
    let family = match peer.address {
        IpAddr::V4(address) => {
            request[4..8].copy_from_slice(&address.octets());
            libc::AF_INET
        }
        IpAddr::V6(address) => {
            request[8..24].copy_from_slice(&address.octets());
            libc::AF_INET6
        }
    };
    request[..2].copy_from_slice(&(family as u16).to_ne_bytes());
    request[128] = MD5_FLAG_PREFIX;
    request[129] = peer.length;
    request[130..132].copy_from_slice(&(key.len() as u16).to_ne_bytes());
    request[136..136 + key.len()].copy_from_slice(key);
    request
}

/// Family of a socket, for options that exist once for each.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum IpVersion {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

impl IpVersion {
    /// That of the address.
    pub fn of(address: IpAddr) -> Self {
        match address {
            IpAddr::V4(_) => Self::V4,
            IpAddr::V6(_) => Self::V6,
        }
    }
}

/// TTL or hop limit of the packets sent.
///
/// # Errors
/// `EINVAL` for zero, and those of `setsockopt`.
pub fn set_ttl(socket: impl AsFd, version: IpVersion, ttl: u8) -> io::Result<()> {
    match version {
        IpVersion::V4 => Ok(rustix::net::sockopt::set_ip_ttl(socket, ttl.into())?),
        IpVersion::V6 => Ok(rustix::net::sockopt::set_ipv6_unicast_hops(socket, Some(ttl))?),
    }
}

/// The TTL or hop limit that a socket has to which nobody has given one.
///
/// # Errors
/// Those of `setsockopt`.
pub fn set_default_ttl(socket: impl AsFd, version: IpVersion) -> io::Result<()> {
    let default: libc::c_int = -1;
    match version {
        IpVersion::V4 => set_option(socket, libc::IPPROTO_IP, libc::IP_TTL, &default),
        IpVersion::V6 => set_option(socket, libc::IPPROTO_IPV6, libc::IPV6_UNICAST_HOPS, &default),
    }
}

/// Drops received packets with a lower TTL or hop limit (RFC 5082 section 3); with 0 none any more.
///
/// # Errors
/// Those of `setsockopt`.
pub fn set_min_ttl(socket: impl AsFd, version: IpVersion, ttl: u8) -> io::Result<()> {
    let (level, name) = match version {
        IpVersion::V4 => (libc::IPPROTO_IP, libc::IP_MINTTL),
        IpVersion::V6 => (libc::IPPROTO_IPV6, libc::IPV6_MINHOPCOUNT),
    };
    set_option(socket, level, name, &libc::c_int::from(ttl))
}

/// Octets written to the socket that the peer has not acknowledged yet.
///
/// # Errors
/// `EINVAL` for a listening socket.
pub fn unacknowledged(socket: impl AsFd) -> io::Result<u32> {
    queue(socket, libc::TIOCOUTQ)
}

/// Octets received that nobody has read yet.
///
/// # Errors
/// `EINVAL` for a listening socket.
pub fn unread(socket: impl AsFd) -> io::Result<u32> {
    queue(socket, libc::FIONREAD)
}

fn queue(socket: impl AsFd, request: libc::Ioctl) -> io::Result<u32> {
    let mut octets: libc::c_int = 0;
    // SAFETY: both requests write one int, and `octets` is one.
    let result = unsafe { libc::ioctl(socket.as_fd().as_raw_fd(), request, &raw mut octets) };
    check(result)?;
    Ok(octets.try_into().unwrap_or(0))
}

/// How many octets in front of the next one that is read `recv` with `MSG_PEEK` passes over, and moves on by what it has given.
/// Others that read take the octets all the same. Linux 6.9 and later.
///
/// # Errors
/// `EINVAL` beyond 2^31, and those of `setsockopt`.
pub fn set_peek_offset(socket: impl AsFd, octets: u32) -> io::Result<()> {
    let octets = libc::c_int::try_from(octets).map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))?;
    set_option(socket, libc::SOL_SOCKET, libc::SO_PEEK_OFF, &octets)
}

/// Octets that were handed over to whoever reads the socket, since the connection began.
///
/// Exact also when the reader died in the middle of a system call. A FIN that came in does not count.
///
/// # Errors
/// `EINVAL` for a listening socket, and those of `getsockopt`.
pub fn consumed(socket: impl AsFd) -> io::Result<u64> {
    loop {
        let before = read_info(&socket)?;
        let unread = unread(&socket)?;
        // Octets that came in between may be in one number and not in the other.
        if read_info(&socket)?.tcpi_bytes_received == before.tcpi_bytes_received {
            return Ok(before.tcpi_bytes_received - u64::from(has_received_fin(&before)) - u64::from(unread));
        }
    }
}

/// Octets that the kernel has taken from whoever writes to the socket, sent or not, from a beginning that stays the
/// same for the connection: callers take differences.
///
/// Exact also when the writer died in the middle of a system call. Who dialled has the SYN counted, who accepted has
/// not; a FIN that was sent counts.
///
/// # Errors
/// `EINVAL` for a listening socket, and those of `getsockopt`.
pub fn written(socket: impl AsFd) -> io::Result<u64> {
    loop {
        let before = read_info(&socket)?;
        let unacknowledged = unacknowledged(&socket)?;
        // What was acknowledged in between is in neither number.
        if read_info(&socket)?.tcpi_bytes_acked == before.tcpi_bytes_acked {
            return Ok(before.tcpi_bytes_acked + u64::from(unacknowledged));
        }
    }
}

/// What the kernel knows of a connection.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct TcpInfo {
    /// Smoothed round trip time.
    pub round_trip: Duration,
    /// Segments sent again since the connection began.
    pub retransmits: u32,
    /// Largest segment sent, in octets.
    pub segment_size: u32,
    /// Time since data last came in.
    pub last_received: Duration,
}

/// Reads what the kernel knows of a connection.
///
/// # Errors
/// Those of `getsockopt`.
pub fn info(socket: impl AsFd) -> io::Result<TcpInfo> {
    let info = read_info(socket)?;
    Ok(TcpInfo {
        round_trip: Duration::from_micros(info.tcpi_rtt.into()),
        retransmits: info.tcpi_total_retrans,
        segment_size: info.tcpi_snd_mss,
        last_received: Duration::from_millis(info.tcpi_last_data_recv.into()),
    })
}

/// The kernel counts a FIN as an octet received, and never as one that can be read.
fn has_received_fin(info: &libc::tcp_info) -> bool {
    const CLOSE_WAIT: u8 = 8;
    const LAST_ACK: u8 = 9;
    const CLOSING: u8 = 11;
    matches!(info.tcpi_state, CLOSE_WAIT | LAST_ACK | CLOSING)
}

pub(crate) fn read_info(socket: impl AsFd) -> io::Result<libc::tcp_info> {
    let mut info = MaybeUninit::<libc::tcp_info>::zeroed();
    let mut length = size_of::<libc::tcp_info>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `length` octets, the size of the struct.
    let result = unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            info.as_mut_ptr().cast(),
            &raw mut length,
        )
    };
    check(result)?;
    // SAFETY: integers only, zeroed before and perhaps filled since.
    Ok(unsafe { info.assume_init() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{
        io::{Read, Write},
        net::{Ipv4Addr, Ipv6Addr, TcpListener, TcpStream},
    };

    fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("bind");
        let client = TcpStream::connect(listener.local_addr().expect("address")).expect("connect");
        (client, listener.accept().expect("accept").0)
    }

    #[test]
    fn queues_are_counted_in_octets() {
        let (mut client, mut server) = pair();
        client.write_all(b"hello").expect("write");
        let mut one = [0; 1];
        server.read_exact(&mut one).expect("read");
        assert_eq!(unread(&server).expect("FIONREAD"), 4);
        assert_eq!(unread(&client).expect("FIONREAD"), 0);
        assert!(unacknowledged(&client).expect("SIOCOUTQ") <= 5);
    }

    #[test]
    fn a_connection_tells_its_segment_size() {
        let (client, _server) = pair();
        assert!(info(&client).expect("TCP_INFO").segment_size > 500);
    }

    /// Both ends of a connection, each once as ours.
    fn both_ways() -> [(TcpStream, TcpStream); 2] {
        let (client, server) = pair();
        let (other_client, other_server) = pair();
        [(client, server), (other_server, other_client)]
    }

    /// Waits until the kernel has moved what was written on loopback.
    fn wait_until(condition: impl Fn() -> bool) {
        let start = std::time::Instant::now();
        while !condition() {
            assert!(start.elapsed() < Duration::from_secs(10), "it does not come to pass");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn what_was_read_counts_and_a_fin_does_not() {
        for (mut ours, mut theirs) in both_ways() {
            assert_eq!(consumed(&ours).expect("nothing"), 0);
            theirs.write_all(&[7; 1000]).expect("write");
            wait_until(|| unread(&ours).expect("FIONREAD") == 1000);
            assert_eq!(consumed(&ours).expect("unread"), 0);
            ours.read_exact(&mut [0; 400]).expect("read");
            assert_eq!(consumed(&ours).expect("read"), 400);
            theirs.shutdown(std::net::Shutdown::Write).expect("FIN");
            wait_until(|| has_received_fin(&read_info(&ours).expect("TCP_INFO")));
            assert_eq!(consumed(&ours).expect("with a FIN behind it"), 400);
            ours.read_exact(&mut [0; 600]).expect("read");
            assert_eq!(consumed(&ours).expect("up to the FIN"), 1000);
            assert_eq!(ours.read(&mut [0; 1]).expect("end"), 0);
            assert_eq!(consumed(&ours).expect("and it"), 1000);
        }
    }

    #[test]
    fn a_lone_fin_is_nothing_read() {
        for (mut ours, theirs) in both_ways() {
            theirs.shutdown(std::net::Shutdown::Write).expect("FIN");
            wait_until(|| has_received_fin(&read_info(&ours).expect("TCP_INFO")));
            assert_eq!(consumed(&ours).expect("unread"), 0);
            assert_eq!(ours.read(&mut [0; 1]).expect("end"), 0);
            assert_eq!(consumed(&ours).expect("read"), 0);
        }
    }

    #[test]
    fn what_was_written_counts_sent_or_not_and_acknowledged_or_not() {
        for (mut ours, mut theirs) in both_ways() {
            let base = written(&ours).expect("nothing");
            ours.set_nonblocking(true).expect("O_NONBLOCK");
            let mut count = 0;
            // Until the windows and buffers of both ends are full.
            while let Ok(octets) = ours.write(&[7; 50_000]) {
                count += octets;
                assert_eq!(written(&ours).expect("some") - base, count as u64);
            }
            assert!(unacknowledged(&ours).expect("SIOCOUTQ") > 0, "some of it waits");
            let mut buffer = vec![0; 100_000];
            let mut read = 0;
            while read < count {
                read += theirs.read(&mut buffer).expect("read");
                assert_eq!(written(&ours).expect("moving") - base, count as u64);
            }
            wait_until(|| unacknowledged(&ours).expect("SIOCOUTQ") == 0);
            assert_eq!(written(&ours).expect("all") - base, count as u64);
        }
    }

    #[test]
    fn ttl_and_its_minimum_are_set_for_both_families() {
        let v4 = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("bind");
        set_ttl(&v4, IpVersion::V4, 255).expect("IP_TTL");
        set_min_ttl(&v4, IpVersion::V4, 255).expect("IP_MINTTL");
        assert_eq!(rustix::net::sockopt::ip_ttl(&v4), Ok(255));
        let v6 = TcpListener::bind((Ipv6Addr::LOCALHOST, 0)).expect("bind");
        set_ttl(&v6, IpVersion::V6, 255).expect("IPV6_UNICAST_HOPS");
        set_min_ttl(&v6, IpVersion::V6, 255).expect("IPV6_MINHOPCOUNT");
        assert_eq!(rustix::net::sockopt::ipv6_unicast_hops(&v6), Ok(255));
        for (socket, version) in [(&v4, IpVersion::V4), (&v6, IpVersion::V6)] {
            set_default_ttl(socket, version).expect("the kernel's");
            set_min_ttl(socket, version, 0).expect("none");
        }
        assert_ne!(rustix::net::sockopt::ip_ttl(&v4), Ok(255));
        assert_ne!(rustix::net::sockopt::ipv6_unicast_hops(&v6), Ok(255));
    }

    #[test]
    fn a_key_is_replaced_taken_away_and_limited() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("bind");
        let peer = Md5Peer { address: Ipv4Addr::new(192, 0, 2, 0).into(), length: 24 };
        set_md5(&listener, peer, b"first").expect("set");
        set_md5(&listener, peer, b"second").expect("replace");
        set_md5(&listener, peer, b"").expect("take away");
        assert_eq!(set_md5(&listener, peer, b"").expect_err("none").raw_os_error(), Some(libc::ENOENT));
        let long = set_md5(&listener, peer, &[b'x'; MD5_KEY_MAX + 1]);
        assert_eq!(long.expect_err("too long").raw_os_error(), Some(libc::EINVAL));
    }

    #[test]
    fn a_length_over_the_address_is_refused() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("bind");
        let peer = Md5Peer { address: Ipv4Addr::new(192, 0, 2, 0).into(), length: 33 };
        assert_eq!(set_md5(&listener, peer, b"key").expect_err("33").raw_os_error(), Some(libc::EINVAL));
    }
}

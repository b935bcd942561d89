//! Making a connection of TCP again in another socket (`TCP_REPAIR`), so that its peer does not notice.
//!
//! What has to be known of it beforehand is said by any socket of it ([`agreed`]), without a privilege; how far both sides have come
//! is for the caller to know. A socket that is restored sends nothing before [`release`]. Until then the kernel must not
//! receive segments for it: it would answer them, or refuse what is left to set.

use std::{io, net::SocketAddr, os::fd::AsFd};

use rustix::{
    io::Errno,
    net::{SendFlags, SocketAddrAny, bind, connect, getpeername, getsockname, send, sockopt},
};

use crate::{
    option::{get_option, set_option},
    tcp::read_info,
};

/// What both sides of a connection have agreed on when it began.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Agreed {
    /// The largest segment that the peer takes, in octets of data and options (RFC 9293 section 3.7.1).
    pub segment: u16,
    /// Selective acknowledgements (RFC 2018).
    pub selective: bool,
    /// By how much the windows of the peer, and ours, are shifted (RFC 7323 section 2).
    pub scales: Option<(u8, u8)>,
    /// Timestamps (RFC 7323 section 3): the one that would be sent now. They count milliseconds.
    pub timestamp: Option<u32>,
    /// The window of the peer, in octets.
    pub window: u32,
}

/// Where a connection is.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Place {
    /// Our end.
    pub local: SocketAddr,
    /// The peer's.
    pub remote: SocketAddr,
    /// The sequence number of the next octet that we send.
    pub send: u32,
    /// That of the next octet that we expect.
    pub receive: u32,
}

/// Bits of `tcpi_options`.
const HAS_TIMESTAMPS: u8 = 1;
const HAS_SELECTIVE: u8 = 2;
const HAS_SCALES: u8 = 4;
/// What timestamps take of each segment: 10 octets, and 2 that fill the word.
const TIMESTAMPS_LENGTH: u32 = 12;

/// Octets of our window to begin with. The kernel opens it as octets are read.
const OUR_WINDOW: u32 = 64 << 10;

/// Room for what the peer has not acknowledged, in octets: as much as the kernel gives a socket by default at most.
const SEND_ROOM: usize = 4 << 20;

/// The most that `TCP_MAXSEG` takes, and `TCP_KEEPIDLE`.
const MOST_SEGMENT: u16 = 32_767;

/// Has `recvmsg` say how much is left, to who asks for such words: nobody here. A socket that was made again has it, and the largest
/// segment of its peer in `TCP_KEEPIDLE`, which counts only with keepalives. The kernel tells what it subtracts from that for
/// options as if the connection had those that it would ask for: each time that it is made again that would be less.
const MADE_AGAIN: libc::c_int = libc::TCP_INQ;

/// Values of `TCP_REPAIR`.
const ON: libc::c_int = 1;
/// With a probe of the peer's window: its answer says how far the peer is.
const OFF: libc::c_int = 0;
/// Values of `TCP_REPAIR_QUEUE`.
const NO_QUEUE: libc::c_int = 0;
const RECEIVE_QUEUE: libc::c_int = 1;
const SEND_QUEUE: libc::c_int = 2;

/// `struct tcp_repair_opt` of linux/tcp.h.
#[repr(C)]
#[derive(Copy, Clone)]
struct Negotiated {
    code: u32,
    value: u32,
}

/// `struct tcp_repair_window` of linux/tcp.h.
#[repr(C)]
#[derive(Copy, Clone)]
struct Windows {
    updated_by: u32,
    theirs: u32,
    largest: u32,
    ours: u32,
    announced_at: u32,
}

/// Kinds of options of TCP.
const SEGMENT: u32 = 2;
const SCALES: u32 = 3;
const SELECTIVE: u32 = 4;
const TIMESTAMPS: u32 = 8;

/// Whether a socket is being made again: nobody can read it before it is released.
///
/// # Errors
/// Those of `getsockopt`, as of a socket that is none of TCP.
pub fn is_under_way(socket: impl AsFd) -> io::Result<bool> {
    let mut state = 0_u32;
    get_option(socket, libc::IPPROTO_TCP, libc::TCP_REPAIR, &mut state)?;
    Ok(state != 0)
}

/// What both sides of a connection have agreed on. Of a socket without one it means nothing.
///
/// # Errors
/// Those of `getsockopt`.
pub fn agreed(socket: impl AsFd) -> io::Result<Agreed> {
    let info = read_info(&socket)?;
    let has = |bit| info.tcpi_options & bit != 0;
    let timestamp = if has(HAS_TIMESTAMPS) { Some(timestamp(&socket)?) } else { None };
    let taken = if timestamp.is_some() { TIMESTAMPS_LENGTH } else { 0 };
    let scales = info.tcpi_snd_rcv_wscale;
    let segment = noted_segment(&socket)?.unwrap_or(info.tcpi_snd_mss + taken);
    Ok(Agreed {
        segment: u16::try_from(segment).unwrap_or(u16::MAX),
        selective: has(HAS_SELECTIVE),
        scales: has(HAS_SCALES).then_some((scales & 0xf, scales >> 4)),
        timestamp,
        window: info.tcpi_snd_wnd,
    })
}

/// The largest segment of the peer, if the socket was made again.
fn noted_segment(socket: impl AsFd) -> io::Result<Option<u32>> {
    let (mut is_made_again, mut segment) = (0_u32, 0_u32);
    get_option(&socket, libc::IPPROTO_TCP, MADE_AGAIN, &mut is_made_again)?;
    get_option(&socket, libc::IPPROTO_TCP, libc::TCP_KEEPIDLE, &mut segment)?;
    Ok((is_made_again != 0).then_some(segment))
}

fn timestamp(socket: impl AsFd) -> io::Result<u32> {
    let mut now = 0_u32;
    get_option(socket, libc::IPPROTO_TCP, libc::TCP_TIMESTAMP, &mut now)?;
    Ok(now)
}

/// Makes a connection in a socket that is neither bound nor connected, and has its TCP-MD5 key already. Both ends' addresses
/// may be in use by nobody else. Of `agreed` the timestamp is the one that is to be sent next: never behind what was sent before, or the
/// peer drops everything (RFC 7323 section 5.3).
///
/// # Errors
/// `EPERM` without CAP_NET_ADMIN, or when a segment has come in between; `EADDRNOTAVAIL` and `EADDRINUSE`; `EISCONN`; those of
/// `setsockopt`.
pub fn restore(socket: impl AsFd, place: &Place, agreed: &Agreed) -> io::Result<()> {
    set(&socket, libc::TCP_REPAIR, ON)?;
    // What was unacknowledged at the router before has room here.
    sockopt::set_socket_send_buffer_size_force(&socket, SEND_ROOM)?;
    for (queue, number) in [(SEND_QUEUE, place.send), (RECEIVE_QUEUE, place.receive)] {
        set(&socket, libc::TCP_REPAIR_QUEUE, queue)?;
        set_option(&socket, libc::IPPROTO_TCP, libc::TCP_QUEUE_SEQ, &number)?;
    }
    set(&socket, libc::TCP_REPAIR_QUEUE, NO_QUEUE)?;
    // What is set behind `connect` counts only once the path has changed.
    let segment = agreed.segment.min(MOST_SEGMENT).into();
    set(&socket, libc::TCP_MAXSEG, segment)?;
    set(&socket, libc::TCP_KEEPIDLE, segment)?;
    set(&socket, MADE_AGAIN, ON)?;
    // No segment leaves.
    bind(&socket, &place.local)?;
    connect(&socket, &place.remote)?;
    let option = |code, value| Negotiated { code, value };
    let mut options = vec![option(SEGMENT, agreed.segment.into())];
    options.extend(agreed.selective.then(|| option(SELECTIVE, 0)));
    options.extend(
        agreed.scales.map(|(theirs, ours)| option(SCALES, u32::from(theirs) | u32::from(ours) << 16)),
    );
    options.extend(agreed.timestamp.map(|_| option(TIMESTAMPS, 0)));
    for one in &options {
        set_option(&socket, libc::IPPROTO_TCP, libc::TCP_REPAIR_OPTIONS, one)?;
    }
    if let Some(timestamp) = agreed.timestamp {
        // The lowest bit would have it count microseconds (Linux 6.7).
        set_option(&socket, libc::IPPROTO_TCP, libc::TCP_TIMESTAMP, &(timestamp & !1))?;
    }
    // Without it the peer's window is looked at only behind sequence number 0.
    let windows = Windows {
        updated_by: place.receive,
        theirs: agreed.window,
        largest: agreed.window,
        ours: OUR_WINDOW,
        announced_at: place.receive,
    };
    set_option(&socket, libc::IPPROTO_TCP, libc::TCP_REPAIR_WINDOW, &windows)
}

/// Octets that the peer may have, and may lack, in a socket that is not released: they count as sent, and are sent again unless
/// the peer acknowledges them. How many of them there was room for.
///
/// What the peer has acknowledged beyond what counts as sent would be refused (RFC 9293 section 3.10.7.4), together with its data:
/// neither side could go on.
///
/// # Errors
/// Those of `setsockopt` and `send`, but not that there is no more room.
pub fn send_again(socket: impl AsFd, mut octets: &[u8]) -> io::Result<usize> {
    set(&socket, libc::TCP_REPAIR_QUEUE, SEND_QUEUE)?;
    let all = octets.len();
    while !octets.is_empty() {
        match send(&socket, octets, SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
            Ok(count) => octets = octets.get(count..).unwrap_or_default(),
            Err(Errno::AGAIN) => break,
            Err(error) => return Err(error.into()),
        }
    }
    set(&socket, libc::TCP_REPAIR_QUEUE, NO_QUEUE)?;
    Ok(all - octets.len())
}

/// From now on a socket that was restored is like any other. Others may listen at its port, with `SO_REUSEADDR`.
///
/// # Errors
/// Those of `setsockopt`.
pub fn release(socket: impl AsFd) -> io::Result<()> {
    set(&socket, libc::TCP_REPAIR, OFF)?;
    // With repair the kernel takes that away, too.
    Ok(sockopt::set_socket_reuseaddr(socket, true)?)
}

/// Takes a connection out of its socket: where it is. The socket is only to be closed: that says nothing to the peer.
///
/// # Errors
/// `EPERM` without CAP_NET_ADMIN, `ENOTCONN`, and those of `setsockopt`.
pub fn take_out(socket: impl AsFd) -> io::Result<Place> {
    let end = |name: Option<SocketAddrAny>| {
        name.ok_or(Errno::NOTCONN).and_then(SocketAddr::try_from).map_err(io::Error::from)
    };
    let local = end(Some(getsockname(&socket)?))?;
    let remote = end(getpeername(&socket)?)?;
    set(&socket, libc::TCP_REPAIR, ON)?;
    let number = |queue| {
        set(&socket, libc::TCP_REPAIR_QUEUE, queue)?;
        let mut number = 0_u32;
        get_option(&socket, libc::IPPROTO_TCP, libc::TCP_QUEUE_SEQ, &mut number)?;
        Ok::<_, io::Error>(number)
    };
    Ok(Place { local, remote, send: number(SEND_QUEUE)?, receive: number(RECEIVE_QUEUE)? })
}

fn set(socket: impl AsFd, name: libc::c_int, value: libc::c_int) -> io::Result<()> {
    set_option(socket, libc::IPPROTO_TCP, name, &value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{
        io::{Read, Write},
        net::{TcpListener, TcpStream},
    };

    use rustix::net::{AddressFamily, SocketType, socket};

    use crate::tcp::{Md5Peer, set_md5};

    fn pair(address: &str, key: &[u8]) -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind(address).expect("bind");
        let to = listener.local_addr().expect("an address");
        let length = if to.is_ipv4() { 32 } else { 128 };
        let dialler = closed(to);
        if !key.is_empty() {
            let peer = Md5Peer { address: to.ip(), length };
            set_md5(&listener, peer, key).expect("a key");
            set_md5(&dialler, peer, key).expect("a key");
        }
        connect(&dialler, &to).expect("connect");
        (dialler, listener.accept().expect("accept").0)
    }

    fn closed(like: SocketAddr) -> TcpStream {
        let family = if like.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        socket(family, SocketType::STREAM, None).expect("a socket").into()
    }

    /// Octets go both ways, in one write and in many segments.
    fn talk(one: &mut TcpStream, other: &mut TcpStream) {
        let text: Vec<u8> = (0..200_000_u32).flat_map(u32::to_le_bytes).collect();
        for _ in 0..2 {
            std::thread::scope(|scope| {
                scope.spawn(|| one.write_all(&text).expect("written"));
                let mut read = vec![0; text.len()];
                other.read_exact(&mut read).expect("read");
                assert!(read == text, "as it was written");
            });
            std::mem::swap(one, other);
        }
    }

    fn goes_on(address: &str, key: &[u8], dialled: bool) {
        let (dialler, accepter) = pair(address, key);
        let (mut ours, mut theirs) = if dialled { (dialler, accepter) } else { (accepter, dialler) };
        talk(&mut ours, &mut theirs);
        for _ in 0..3 {
            let agreed = agreed(&ours).expect("a connection");
            assert_eq!(agreed.timestamp.is_some(), key.is_empty(), "none with keys: {agreed:?}");
            assert!(agreed.selective && agreed.scales.is_some() && agreed.segment > 500, "{agreed:?}");
            let place = take_out(&ours).expect("this test needs root");
            drop(ours);
            ours = closed(place.local);
            if !key.is_empty() {
                let length = if place.remote.is_ipv4() { 32 } else { 128 };
                set_md5(&ours, Md5Peer { address: place.remote.ip(), length }, key).expect("a key");
            }
            // As if it had taken a second.
            let later = Agreed { timestamp: agreed.timestamp.map(|now| now.wrapping_add(1001)), ..agreed };
            restore(&ours, &place, &later).expect("restored");
            assert!(is_under_way(&ours).expect("a socket"));
            release(&ours).expect("released");
            assert!(!is_under_way(&ours).expect("a socket"));
            if !dialled {
                TcpListener::bind(place.local).expect("a listener beside it");
            }
            talk(&mut ours, &mut theirs);
            let now = super::agreed(&ours).expect("a connection");
            assert_eq!((now.selective, now.scales), (agreed.selective, agreed.scales));
            let wanted = agreed.segment.min(MOST_SEGMENT);
            assert_eq!(now.segment, wanted, "it never shrinks: {now:?} {agreed:?}");
            if let (Some(before), Some(after)) = (later.timestamp, now.timestamp) {
                let passed = after.wrapping_sub(before & !1);
                assert!(passed < 60_000, "it counts milliseconds: {passed}");
            }
        }
        drop(ours);
        assert_eq!(theirs.read(&mut [0; 1]).expect("an end like any other"), 0);
    }

    #[test]
    fn a_connection_goes_on_in_another_socket() {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            for dialled in [false, true] {
                goes_on(address, b"", dialled);
                goes_on(address, b"secret", dialled);
            }
        }
    }

    /// More than a new connection may send at once: what the peer acknowledges is always what counts as sent.
    #[test]
    fn what_the_peer_has_already_counts_as_sent() {
        const LACKED: usize = 300_000;
        let (mut ours, mut theirs) = pair("127.0.0.1:0", b"");
        let text: Vec<u8> = (0..200_000_u32).flat_map(u32::to_le_bytes).collect();
        std::thread::scope(|scope| {
            scope.spawn(|| ours.write_all(&text).expect("written"));
            theirs.read_exact(&mut vec![0; text.len()]).expect("read");
        });
        let agreed = agreed(&ours).expect("a connection");
        let place = take_out(&ours).expect("this test needs root");
        drop(ours);
        let mut ours = closed(place.local);
        let earlier = Place { send: place.send.wrapping_sub(LACKED as u32), ..place };
        restore(&ours, &earlier, &agreed).expect("restored");
        let again = send_again(&ours, &text[text.len() - LACKED..]).expect("room");
        assert_eq!(again, LACKED);
        release(&ours).expect("released");
        talk(&mut theirs, &mut ours);
    }

    #[test]
    fn a_socket_that_is_connected_is_not_restored() {
        let (ours, theirs) = pair("127.0.0.1:0", b"");
        let agreed = agreed(&ours).expect("a connection");
        let place = take_out(&theirs).expect("this test needs root");
        restore(&ours, &place, &agreed).expect_err("it is another connection");
    }
}

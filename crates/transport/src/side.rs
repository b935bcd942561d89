//! Two processes at one port of QUIC: whose a datagram is.
//!
//! Connection ids of a process begin with a bit of its own, and the kernel gives each datagram to the one whose id it
//! has. An earlier process is there for its connections only; all long headers are the later one's: those of the
//! earlier one are past their handshakes.

use std::{io, os::fd::AsFd};

use holdfast_sys::filter::{Instruction, set_steering};

/// Which of two processes.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub enum Side {
    /// The first bit of its ids is 0.
    #[default]
    Low,
    /// It is 1.
    High,
}

/// The first bit of an id, and Header Form.
const FIRST: u8 = 0x80;
/// Where the kernel has the sockets of one port, in the order in which they were bound.
const EARLIER: u32 = 0;
const LATER: u32 = 1;

impl Side {
    /// That of the process that comes before or after.
    pub fn other(self) -> Self {
        match self {
            Self::Low => Self::High,
            Self::High => Self::Low,
        }
    }

    /// Makes an id one of this side.
    pub(crate) fn mark(self, id: &mut [u8]) {
        if let Some(first) = id.first_mut() {
            *first = match self {
                Self::Low => *first & !FIRST,
                Self::High => *first | FIRST,
            };
        }
    }

    /// Whether an id is of this side.
    pub(crate) fn has(self, id: &[u8]) -> bool {
        id.first().is_some_and(|first| (first & FIRST != 0) == (self == Self::High))
    }

    /// Has the kernel share what comes to the port of this socket, which is of this side and was bound beside an
    /// earlier one. When one of both is closed the other has everything.
    ///
    /// # Errors
    /// What the kernel says: `EINVAL` where there is no such other socket.
    pub fn steer(self, socket: impl AsFd) -> io::Result<()> {
        set_steering(socket, &self.program())
    }

    fn program(self) -> [Instruction; 6] {
        use Instruction as I;
        let first = u32::from(FIRST);
        let (yes, no) = match self {
            Self::Low => (0, 1),
            Self::High => (1, 0),
        };
        [
            I::Payload(0),
            I::AtLeast { value: first, yes: 3, no: 0 },
            I::Payload(1),
            I::AtLeast { value: first, yes, no },
            I::Select(EARLIER),
            I::Select(LATER),
        ]
    }
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;

    use rustix::net::{
        AddressFamily, SocketAddrAny, SocketType, bind, getsockname, socket, sockopt::set_socket_reuseport,
    };

    use super::*;

    fn bound(at: &SocketAddrAny, shared: bool) -> io::Result<UdpSocket> {
        let socket = socket(AddressFamily::INET, SocketType::DGRAM, None)?;
        set_socket_reuseport(&socket, shared)?;
        bind(&socket, at)?;
        let socket = UdpSocket::from(socket);
        socket.set_nonblocking(true)?;
        Ok(socket)
    }

    /// What has come, by its last octet.
    fn came(socket: &UdpSocket) -> Vec<u8> {
        let mut octets = [0; 9];
        std::iter::from_fn(|| socket.recv(&mut octets).ok().map(|length| octets[length - 1])).collect()
    }

    #[test]
    fn each_side_gets_its_own_short_headers_and_the_later_one_what_is_new() {
        for side in [Side::Low, Side::High] {
            let anywhere = "127.0.0.1:0".parse::<std::net::SocketAddr>().expect("an address").into();
            let earlier = bound(&anywhere, false).expect("bound");
            let at = getsockname(&earlier).expect("an address");
            bound(&at, true).expect_err("the earlier one shares nothing");
            set_socket_reuseport(&earlier, true).expect("set");
            bound(&at, false).expect_err("the later one shares nothing");
            let later = bound(&at, true).expect("both share");
            side.steer(&later).expect("steered");
            let to = earlier.local_addr().expect("an address");
            let send = |octets: &[u8]| {
                // Each of another port: it is not the kernel's own choice.
                UdpSocket::bind("127.0.0.1:0").expect("bound").send_to(octets, to).expect("sent");
            };
            let mut ids = [[0x7f], [0x80]];
            assert!(ids.iter().filter(|id| side.has(&id[..])).count() == 1);
            ids.sort_by_key(|id| !side.has(&id[..]));
            let [[ours], [theirs]] = ids;
            let all = |sender: &dyn Fn()| (0..8).for_each(|_| sender());
            all(&|| send(&[0x40, theirs, 1]));
            all(&|| send(&[0x40, ours, 2]));
            all(&|| send(&[0xc0, theirs, 3]));
            assert_eq!(came(&earlier), [1; 8]);
            assert_eq!(came(&later), [[2; 8], [3; 8]].concat());
            drop(earlier);
            all(&|| send(&[0x40, theirs, 4]));
            all(&|| send(&[0x40, ours, 5]));
            assert_eq!(came(&later), [[4; 8], [5; 8]].concat(), "it has everything");
        }
    }

    #[test]
    fn an_id_is_of_the_side_that_has_marked_it() {
        for side in [Side::Low, Side::High] {
            let mut ids = [[0x12, 0], [0x92, 0]];
            ids.iter_mut().for_each(|id| side.mark(id));
            assert!(ids.iter().all(|id| side.has(id) && !side.other().has(id) && id[0] & 0x7f == 0x12));
        }
    }
}

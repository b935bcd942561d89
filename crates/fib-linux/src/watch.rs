//! What other programs do to routes and next hops, as the kernel tells.

use std::{
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
};

use holdfast_sys::{
    filter::{Instruction, set_filter},
    netlink,
};
use rustix::io::Errno;

use crate::{
    message::{AF_INET6, HEADER, Message, kind, messages},
    route::{self, Ownership, PROTOCOL},
    socket::{PORTS_MASK, Socket, ports},
};

/// `RTNLGRP_IPV4_ROUTE`, `RTNLGRP_IPV6_ROUTE`, `RTNLGRP_NEXTHOP`.
const GROUPS: [u32; 3] = [7, 11, 32];

/// Room for notices that nobody has read yet. When it is full, the table is compared with the kernel's.
const RECEIVE_BUFFER: usize = 8 << 20;

/// Hears of the changes that concern us and that we have not asked for.
pub(crate) struct Watch {
    socket: Socket,
    buffer: Vec<u8>,
}

/// What was read.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Read {
    Nothing,
    Notices,
    /// The kernel had more to say than there was room for.
    Overrun,
}

impl Watch {
    /// Over a socket that nobody has used.
    pub(crate) fn over(socket: OwnedFd, ours: Ownership) -> io::Result<Self> {
        let socket = Socket::new(socket, RECEIVE_BUFFER)?;
        rustix::io::ioctl_fionbio(&socket, true)?;
        // Before the groups: not even the first notice is to get by.
        set_filter(&socket, &filter(ours))?;
        for group in GROUPS {
            netlink::join_group(&socket, group)?;
        }
        Ok(Self { socket, buffer: vec![0; 16 << 10] })
    }

    /// Reads one datagram; never waits.
    pub(crate) fn read(&mut self, each: impl FnMut(Message<'_>)) -> io::Result<Read> {
        match self.socket.receive(&mut self.buffer) {
            Ok(datagram) => {
                messages(datagram).for_each(each);
                Ok(Read::Notices)
            }
            Err(Errno::AGAIN) => Ok(Read::Nothing),
            Err(Errno::NOBUFS) => Ok(Read::Overrun),
            Err(error) => Err(error.into()),
        }
    }
}

impl AsFd for Watch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Lets pass:
///
/// - of nexthop objects what others have changed;
/// - of routes in our table what others have changed, if the route has our protocol or our metric.
///
/// What the kernel does to IPv6 routes by itself (port 0) follows from links and next hops, which it also tells of; it may
/// be the whole table. Of IPv4 routes it tells nothing then, so port 0 is a program that uses the old `ioctl`.
fn filter(ours: Ownership) -> Vec<Instruction> {
    use Instruction as I;
    /// Places that the jumps below lead to.
    const ROUTE: u8 = 6;
    const OTHERS: u8 = 10;
    const PLACE: u8 = 12;
    const OUR_TABLE: u8 = 21;
    const NEXT_HOP: u8 = 28;
    const TAKE: u8 = 31;
    const DROP: u8 = 32;
    let attributes = (HEADER + route::HEADER) as u32;
    let kind = |kind: u16| u32::from(u16::from_be_bytes(kind.to_ne_bytes()));
    let find = |attribute: u16| [I::Value(attributes), I::Index(attribute.into()), I::FindAttribute];
    // A jump at the place that is given.
    let equal = |at: u8, value: u32, yes: u8, no: u8| I::Equal { value, yes: yes - at - 1, no: no - at - 1 };
    let [find_metric, find_table] = [find(route::PRIORITY), find(route::TABLE)];
    vec![
        I::MessageHalf(4),
        equal(1, kind(kind::NEW_ROUTE), ROUTE, 2),
        equal(2, kind(kind::DEL_ROUTE), ROUTE, 3),
        equal(3, kind(kind::NEW_NEXTHOP), NEXT_HOP, 4),
        equal(4, kind(kind::DEL_NEXTHOP), NEXT_HOP, 5),
        I::Drop,
        // ROUTE: by whom?
        I::MessageWord(12),
        equal(7, 0, 8, OTHERS),
        I::Payload(HEADER as u16),
        equal(9, AF_INET6.into(), DROP, PLACE),
        // OTHERS
        I::And(loaded(PORTS_MASK)),
        equal(11, loaded(ports()), DROP, PLACE),
        // PLACE: a route of ours, or one in the place of ours?
        I::Payload(HEADER as u16 + 5),
        equal(13, PROTOCOL.into(), OUR_TABLE, 14),
        find_metric[0],
        find_metric[1],
        find_metric[2],
        equal(17, 0, DROP, 18),
        I::ToIndex,
        I::WordAtIndex(4),
        equal(20, loaded(ours.metric), OUR_TABLE, DROP),
        // OUR_TABLE
        find_table[0],
        find_table[1],
        find_table[2],
        equal(24, 0, TAKE, 25),
        I::ToIndex,
        I::WordAtIndex(4),
        equal(27, loaded(ours.table.0), TAKE, DROP),
        // NEXT_HOP
        I::MessageWord(12),
        I::And(loaded(PORTS_MASK)),
        equal(30, loaded(ports()), DROP, TAKE),
        I::Take,
        I::Drop,
    ]
}

/// A number of a message as the program loads it: most significant octet first, which the kernel's order need not be.
fn loaded(number: u32) -> u32 {
    u32::from_be_bytes(number.to_ne_bytes())
}

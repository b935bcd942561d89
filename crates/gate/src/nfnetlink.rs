//! Messages between us and the kernel's netfilter: its queue of packets, our table in nf_tables, and which sockets of TCP
//! there are (sock_diag). Octets only.
//!
//! Sources: linux/netfilter/nfnetlink_queue.h, nf_tables.h, nf_tables_compat.h, xt_NFQUEUE.h, linux/inet_diag.h. Lengths and
//! types of netlink are in the order of the machine, values of netfilter in network order.
//!
//! Our table is called [`TABLE`], once for IPv4 and once for IPv6. Its chain at the hook OUTPUT sends each segment from and to
//! our ports to the queue, by the target NFQUEUE of xt, since kernels may lack the statement `queue` of nft. It says
//! neither `bypass` nor fail-open: while nobody reads the queue, nothing leaves. While the gate is closed a chain at the hook INPUT
//! drops each segment from and to these ports.
//!
//! Behind the queue a second chain at OUTPUT is the *fence*: it drops each such segment unless a set has an element, which the
//! kernel removes by itself when its time is over. So a verdict that comes late lets nothing out.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// The name of our tables.
pub const TABLE: &str = "holdfast-gate";
/// The name of the tables of a moment in which it is tried whether all this works.
pub const TRIAL: &str = "holdfast-gate-trial";
const CHAIN: &str = "output";
const INPUT_CHAIN: &str = "input";
const FENCE_CHAIN: &str = "fence";
/// The set that has an element as long as the fence lets segments pass.
const PASS: &str = "pass";
/// What the set is called while it is made: the only one of its batch and family.
const PASS_ID: u32 = 1;
/// Most ports that the gate stands at.
pub const MOST_PORTS: usize = 64;
/// The multicast group that tells of changes to nf_tables (NFNLGRP_NFTABLES).
pub const TABLE_CHANGES: u32 = 7;
/// Where our chain stands among those at the hook: behind filters, before connections are confirmed.
const PRIORITY: i32 = 300;
/// Where the fence stands: segments come there from the queue.
const FENCE_PRIORITY: i32 = PRIORITY + 10;

const HEADER: usize = 16;
const ATTRIBUTE: usize = 4;

const REQUEST: u16 = 1;
const ACKNOWLEDGE: u16 = 4;
const DUMP: u16 = 0x300;
const CREATE: u16 = 0x400;
const APPEND: u16 = 0x800;

const NOOP: u16 = 1;
const ERROR: u16 = 2;
const DONE: u16 = 3;
const BATCH_BEGIN: u16 = 16;
const BATCH_END: u16 = 17;

const QUEUE: u16 = 3 << 8;
const NF_TABLES: u16 = 10 << 8;

const QUEUE_PACKET: u16 = QUEUE;
const QUEUE_VERDICT: u16 = QUEUE | 1;
const QUEUE_CONFIG: u16 = QUEUE | 2;

const NEW_TABLE: u16 = NF_TABLES;
const GET_TABLE: u16 = NF_TABLES | 1;
const DELETE_TABLE: u16 = NF_TABLES | 2;
const NEW_CHAIN: u16 = NF_TABLES | 3;
const DELETE_CHAIN: u16 = NF_TABLES | 5;
const NEW_RULE: u16 = NF_TABLES | 6;
const DELETE_RULE: u16 = NF_TABLES | 8;
const NEW_SET: u16 = NF_TABLES | 9;
const NEW_ELEMENT: u16 = NF_TABLES | 12;
const DELETE_ELEMENT: u16 = NF_TABLES | 14;

const SOCK_DIAG: u16 = 20;
const SOCK_DESTROY: u16 = 21;

const IPV4: u8 = 2;
const IPV6: u8 = 10;
const TCP: u8 = 6;

/// Hooks of netfilter.
const LOCAL_IN: u32 = 1;
const LOCAL_OUT: u32 = 3;

const NESTED: u16 = 0x8000;

/// What becomes of a packet.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Verdict {
    /// It leaves.
    Accept,
    /// It does not.
    Drop,
}

/// A packet that waits for a verdict.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Packet<'a> {
    /// Its number in the queue.
    pub id: u32,
    /// Its first octets.
    pub octets: &'a [u8],
    /// How many it has.
    pub length: u32,
}

/// A message of the kernel.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Received<'a> {
    /// A packet of the queue.
    Packet(Packet<'a>),
    /// The outcome of the request with this number: 0, or an `errno`.
    Outcome {
        /// The number of the request.
        sequence: u32,
        /// What went wrong; 0: nothing.
        errno: i32,
    },
    /// The end of a dump.
    Done,
    /// Something of nf_tables is gone.
    Removed {
        /// It was in a table of our name.
        ours: bool,
        /// It was a table or a chain: the kernel may have dropped what waits in queues.
        has_dropped: bool,
        /// The netlink address of who asked for it.
        by: u32,
    },
    /// A socket of TCP: its own address, and its peer's.
    Socket(ListedSocket),
    /// Something else.
    Other,
}

/// Netlink messages, one behind the other.
#[derive(Clone, Default, Debug)]
pub struct Messages {
    octets: Vec<u8>,
}

impl Messages {
    /// What is to be sent.
    pub fn octets(&self) -> &[u8] {
        &self.octets
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.octets.is_empty()
    }

    /// Forgets all, and keeps the memory.
    pub fn clear(&mut self) {
        self.octets.clear();
    }

    /// Asks for a queue of this number for packets of up to [`COPIED`](crate::COPIED) octets, with room for so many. Packets that
    /// are cut later come uncut. The kernel answers with an outcome.
    pub fn bind_queue(&mut self, queue: u16, room: u32, sequence: u32) {
        const BIND: u8 = 1;
        const COPY_PACKET: u8 = 2;
        const GSO: u32 = 4;
        self.message(QUEUE_CONFIG, REQUEST, 0, queue, sequence, |message| {
            // The family counts for nothing any more.
            message.attribute(1, &[BIND, 0, 0, IPV4]);
        });
        self.message(QUEUE_CONFIG, REQUEST | ACKNOWLEDGE, 0, queue, sequence, |message| {
            let [a, b, c, d] = crate::COPIED.to_be_bytes();
            message.attribute(2, &[a, b, c, d, COPY_PACKET]);
            message.attribute(3, &room.to_be_bytes());
            message.attribute(4, &GSO.to_be_bytes());
            message.attribute(5, &GSO.to_be_bytes());
        });
    }

    /// What becomes of a packet. There is an answer only if that fails.
    #[inline]
    pub fn verdict(&mut self, queue: u16, packet: u32, verdict: Verdict) {
        let verdict: u32 = match verdict {
            Verdict::Drop => 0,
            Verdict::Accept => 1,
        };
        let mut message = [0; 32];
        message[..4].copy_from_slice(&32_u32.to_ne_bytes());
        message[4..6].copy_from_slice(&QUEUE_VERDICT.to_ne_bytes());
        message[6..8].copy_from_slice(&REQUEST.to_ne_bytes());
        message[18..20].copy_from_slice(&queue.to_be_bytes());
        message[20..22].copy_from_slice(&12_u16.to_ne_bytes());
        message[22..24].copy_from_slice(&2_u16.to_ne_bytes());
        message[24..28].copy_from_slice(&verdict.to_be_bytes());
        message[28..].copy_from_slice(&packet.to_be_bytes());
        self.octets.extend_from_slice(&message);
    }

    /// Puts tables in place of what is there under this name, for these ports: all of it at once. The fence, if there is one,
    /// lets nothing pass yet ([`Self::open_fence`]). The outcome has the number of the sequence.
    pub fn install_tables(&mut self, name: &str, ports: &[u16], queue: u16, shape: Shape, sequence: u32) {
        self.batch(sequence, |messages| {
            for family in [IPV4, IPV6] {
                messages.remove_table(name, family, sequence);
                messages.name_table(name, NEW_TABLE, CREATE, family, sequence);
                if shape.has_fence {
                    messages.pass_set((name, family), sequence);
                }
                let mut chain = |chain, at, fate| {
                    messages.chain((name, family), chain, at, sequence);
                    for port in ports.iter().take(MOST_PORTS) {
                        for offset in [0, 2] {
                            messages.rule((name, family, chain), *port, offset, fate, sequence);
                        }
                    }
                };
                chain(CHAIN, (LOCAL_OUT, PRIORITY), Fate::Queue(queue));
                if shape.has_fence {
                    chain(FENCE_CHAIN, (LOCAL_OUT, FENCE_PRIORITY), Fate::Fence);
                }
                if shape.is_closed {
                    chain(INPUT_CHAIN, (LOCAL_IN, PRIORITY), Fate::Drop);
                }
            }
        });
    }

    /// Has the fence of the tables of this name let segments pass for so many milliseconds from now on, and no longer. The outcome
    /// has the number of the sequence.
    pub fn open_fence(&mut self, name: &str, milliseconds: u64, sequence: u32) {
        self.batch(sequence, |messages| {
            for family in [IPV4, IPV6] {
                // Whatever it has; that it has nothing is no error.
                messages.message(DELETE_ELEMENT, REQUEST, family, 0, sequence, |message| {
                    message.text(1, name);
                    message.text(2, PASS);
                });
                messages.message(NEW_ELEMENT, REQUEST | CREATE, family, 0, sequence, |message| {
                    message.text(1, name);
                    message.text(2, PASS);
                    message.nested(3, |list| {
                        list.nested(1, |element| {
                            element.nested(1, |key| key.attribute(1, &[TCP]));
                            element.attribute(4, &milliseconds.to_be_bytes());
                        });
                    });
                });
            }
        });
    }

    /// A set of protocol numbers, whose elements have their times.
    fn pass_set(&mut self, (table, family): (&str, u8), sequence: u32) {
        const TIMEOUT: u32 = 0x10;
        self.message(NEW_SET, REQUEST | CREATE, family, 0, sequence, |message| {
            message.text(1, table);
            message.text(2, PASS);
            message.number(3, TIMEOUT);
            // The type is for people: nft calls this one inet_proto.
            message.number(4, 12);
            message.number(5, 1);
            message.number(10, PASS_ID);
        });
    }

    fn chain(
        &mut self,
        (table, family): (&str, u8),
        chain: &str,
        (hook, priority): (u32, i32),
        sequence: u32,
    ) {
        self.message(NEW_CHAIN, REQUEST | CREATE, family, 0, sequence, |message| {
            message.text(1, table);
            message.text(3, chain);
            message.nested(4, |at| {
                at.number(1, hook);
                at.number(2, priority.cast_unsigned());
            });
            message.number(5, 1);
            message.text(7, "filter");
        });
    }

    /// Asks whether there is a table of this name, of IPv4: the outcome is `ENOENT` if not.
    pub fn ask_for_table(&mut self, name: &str, sequence: u32) {
        self.name_table(name, GET_TABLE, ACKNOWLEDGE, IPV4, sequence);
    }

    /// Destroys a socket. Whoever has it is told ECONNABORTED.
    pub fn destroy_socket(&mut self, socket: &SocketId, sequence: u32) {
        let at = self.octets.len();
        self.header(SOCK_DESTROY, REQUEST | ACKNOWLEDGE, sequence);
        self.octets.extend([socket.family, TCP, 0, 0]);
        self.octets.extend(u32::MAX.to_ne_bytes());
        self.octets.extend(socket.id);
        self.end(at);
    }

    /// Removes the tables of this name; that there is none is no error.
    pub fn remove_tables(&mut self, name: &str, sequence: u32) {
        self.batch(sequence, |messages| {
            for family in [IPV4, IPV6] {
                messages.remove_table(name, family, sequence);
            }
        });
    }

    /// Asks a socket of sock_diag for the sockets of TCP that have begun and do not listen, of IPv4 or of IPv6.
    pub fn ask_for_sockets(&mut self, is_v6: bool, sequence: u32) {
        // All states but SYN_SENT (2), SYN_RECV (3), CLOSE (7), LISTEN (10), NEW_SYN_RECV (12).
        const STATES: u32 = 0xfff & !(1 << 2 | 1 << 3 | 1 << 7 | 1 << 10);
        let at = self.octets.len();
        self.header(SOCK_DIAG, REQUEST | DUMP, sequence);
        self.octets.extend([if is_v6 { IPV6 } else { IPV4 }, TCP, 0, 0]);
        self.octets.extend(STATES.to_ne_bytes());
        self.octets.extend([0; 48]);
        self.end(at);
    }

    /// A new table and its end: so that there is one to be ended.
    fn remove_table(&mut self, name: &str, family: u8, sequence: u32) {
        self.name_table(name, NEW_TABLE, CREATE, family, sequence);
        self.name_table(name, DELETE_TABLE, 0, family, sequence);
    }

    fn name_table(&mut self, name: &str, kind: u16, flags: u16, family: u8, sequence: u32) {
        self.message(kind, REQUEST | flags, family, 0, sequence, |message| message.text(1, name));
    }

    /// What becomes of TCP with this port at this offset of its header (0: source, 2: destination).
    fn rule(
        &mut self,
        (table, family, chain): (&str, u8, &str),
        port: u16,
        offset: u32,
        fate: Fate,
        sequence: u32,
    ) {
        const REGISTER: u32 = 1;
        const EQUAL: u32 = 0;
        const PROTOCOL: u32 = 16;
        const TRANSPORT_HEADER: u32 = 2;
        self.message(NEW_RULE, REQUEST | CREATE | APPEND, family, 0, sequence, |message| {
            message.text(1, table);
            message.text(2, chain);
            message.nested(4, |list| {
                list.expression("meta", |data| {
                    data.number(1, REGISTER);
                    data.number(2, PROTOCOL);
                });
                list.expression("cmp", |data| {
                    data.number(1, REGISTER);
                    data.number(2, EQUAL);
                    data.nested(3, |value| value.attribute(1, &[TCP]));
                });
                list.expression("payload", |data| {
                    data.number(1, REGISTER);
                    data.number(2, TRANSPORT_HEADER);
                    data.number(3, offset);
                    data.number(4, 2);
                });
                list.expression("cmp", |data| {
                    data.number(1, REGISTER);
                    data.number(2, EQUAL);
                    data.nested(3, |value| value.attribute(1, &port.to_be_bytes()));
                });
                if matches!(fate, Fate::Fence) {
                    const INVERTED: u32 = 1;
                    list.expression("meta", |data| {
                        data.number(1, REGISTER);
                        data.number(2, PROTOCOL);
                    });
                    list.expression("lookup", |data| {
                        data.text(1, PASS);
                        data.number(2, REGISTER);
                        data.number(4, PASS_ID);
                        data.number(5, INVERTED);
                    });
                }
                match fate {
                    Fate::Queue(queue) => list.expression("target", |data| {
                        data.text(1, "NFQUEUE");
                        data.number(2, 3);
                        // The first queue, how many, and flags: no bypass. Aligned as structures of xt are.
                        let mut info = [0; 8];
                        info[..2].copy_from_slice(&queue.to_ne_bytes());
                        info[2..4].copy_from_slice(&1_u16.to_ne_bytes());
                        data.attribute(3, &info);
                    }),
                    Fate::Drop | Fate::Fence => list.expression("immediate", |data| {
                        // The register of verdicts, and NF_DROP.
                        data.number(1, 0);
                        data.nested(2, |value| value.nested(2, |verdict| verdict.number(1, 0)));
                    }),
                }
            });
        });
    }

    fn batch(&mut self, sequence: u32, inside: impl FnOnce(&mut Self)) {
        let nf_tables = NF_TABLES >> 8;
        self.message(BATCH_BEGIN, REQUEST, 0, nf_tables, sequence, |_| ());
        inside(self);
        // The one message of a batch that asks: it is answered when the whole is done. Earlier kernels answer only for
        // messages inside, so that is what asks: the last one.
        self.acknowledge_last();
        self.message(BATCH_END, REQUEST, 0, nf_tables, sequence, |_| ());
    }

    fn acknowledge_last(&mut self) {
        let mut at = 0;
        while let Some(length) = u32_at(&self.octets, at).map(|length| align(length as usize)) {
            if length < HEADER || at + length >= self.octets.len() {
                break;
            }
            at += length;
        }
        if let Some([low, high]) = self.octets.get_mut(at + 6..).and_then(<[u8]>::first_chunk_mut::<2>) {
            [*low, *high] = (u16::from_ne_bytes([*low, *high]) | ACKNOWLEDGE).to_ne_bytes();
        }
    }

    fn header(&mut self, kind: u16, flags: u16, sequence: u32) {
        self.octets.extend([0; 4]);
        self.octets.extend(kind.to_ne_bytes());
        self.octets.extend(flags.to_ne_bytes());
        self.octets.extend(sequence.to_ne_bytes());
        self.octets.extend([0; 4]);
    }

    fn end(&mut self, at: usize) {
        let length = (self.octets.len() - at) as u32;
        self.octets[at..at + 4].copy_from_slice(&length.to_ne_bytes());
    }

    fn message(
        &mut self,
        kind: u16,
        flags: u16,
        family: u8,
        resource: u16,
        sequence: u32,
        body: impl FnOnce(&mut Self),
    ) {
        let at = self.octets.len();
        self.header(kind, flags, sequence);
        let [high, low] = resource.to_be_bytes();
        self.octets.extend([family, 0, high, low]);
        body(self);
        self.end(at);
    }

    fn attribute(&mut self, kind: u16, value: &[u8]) {
        let length = (ATTRIBUTE + value.len()) as u16;
        self.octets.extend(length.to_ne_bytes());
        self.octets.extend(kind.to_ne_bytes());
        self.octets.extend_from_slice(value);
        self.octets.resize(align(self.octets.len()), 0);
    }

    fn number(&mut self, kind: u16, value: u32) {
        self.attribute(kind, &value.to_be_bytes());
    }

    fn text(&mut self, kind: u16, value: &str) {
        self.attribute(kind, &[value.as_bytes(), &[0]].concat());
    }

    fn nested(&mut self, kind: u16, body: impl FnOnce(&mut Self)) {
        let at = self.octets.len();
        self.attribute(kind | NESTED, &[]);
        body(self);
        let length = (self.octets.len() - at) as u16;
        self.octets[at..at + 2].copy_from_slice(&length.to_ne_bytes());
    }

    fn expression(&mut self, name: &str, data: impl FnOnce(&mut Self)) {
        self.nested(1, |element| {
            element.text(1, name);
            element.nested(2, data);
        });
    }
}

/// What becomes of a segment.
#[derive(Copy, Clone)]
enum Fate {
    /// It goes to this queue.
    Queue(u16),
    Drop,
    /// It is dropped unless the set of the fence has an element.
    Fence,
}

/// Which chains there are besides the one that sends segments to the queue.
#[derive(Copy, Clone, PartialEq, Eq, Default, Debug)]
pub struct Shape {
    /// Nothing comes in.
    pub is_closed: bool,
    /// What leaves the queue has to pass a fence.
    pub has_fence: bool,
}

/// What the kernel calls a socket.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct SocketId {
    family: u8,
    /// `struct inet_diag_sockid`.
    id: [u8; 48],
}

/// A socket of TCP that the kernel has.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct ListedSocket {
    /// Its end.
    pub local: SocketAddr,
    /// That of the peer.
    pub remote: SocketAddr,
    /// What the kernel calls it.
    pub id: SocketId,
}

/// Calls back for each message of a datagram of the kernel. What is cut short ends it.
pub fn read<'a>(datagram: &'a [u8], mut each: impl FnMut(Received<'a>)) {
    let mut rest = datagram;
    while let Some(length) = u32_at(rest, 0).map(|length| length as usize) {
        let Some(message) = rest.get(..length).filter(|_| length >= HEADER) else { return };
        each(read_message(message));
        let Some(next) = rest.get(align(length)..) else { return };
        rest = next;
    }
}

fn read_message(message: &[u8]) -> Received<'_> {
    let (kind, sequence) = (u16_at(message, 4).unwrap_or(0), u32_at(message, 8).unwrap_or(0));
    let body = message.get(HEADER..).unwrap_or_default();
    match kind {
        ERROR => match u32_at(body, 0) {
            Some(errno) => Received::Outcome { sequence, errno: errno.cast_signed().wrapping_neg() },
            None => Received::Other,
        },
        DONE => Received::Done,
        QUEUE_PACKET => packet(body).map_or(Received::Other, Received::Packet),
        DELETE_TABLE | DELETE_CHAIN | DELETE_RULE => Received::Removed {
            ours: is_ours(body),
            has_dropped: kind != DELETE_RULE,
            by: u32_at(message, 12).unwrap_or(0),
        },
        SOCK_DIAG => socket(body).map_or(Received::Other, Received::Socket),
        // NOOP and whatever comes.
        NOOP.. => Received::Other,
        0 => Received::Other,
    }
}

fn packet(body: &[u8]) -> Option<Packet<'_>> {
    let (mut id, mut octets, mut length) = (None, None, None);
    for (kind, value) in attributes(body.get(4..)?) {
        match kind {
            1 => id = value.first_chunk().copied().map(u32::from_be_bytes),
            10 => octets = Some(value),
            13 => length = value.first_chunk().copied().map(u32::from_be_bytes),
            _ => {}
        }
    }
    let octets = octets.unwrap_or_default();
    Some(Packet { id: id?, octets, length: length.unwrap_or(octets.len() as u32) })
}

/// Whether a message of nf_tables is about a table of our name, which is its first attribute in all of them.
fn is_ours(body: &[u8]) -> bool {
    let name = attributes(body.get(4..).unwrap_or_default()).find(|(kind, _)| *kind == 1);
    name.is_some_and(|(_, name)| name.strip_suffix(&[0]) == Some(TABLE.as_bytes()))
}

fn socket(body: &[u8]) -> Option<ListedSocket> {
    let body: &[u8; 52] = body.first_chunk()?;
    let port = |at: usize| u16::from_be_bytes([body[at], body[at + 1]]);
    let address = |at: usize| {
        let octets = body[at..].first_chunk::<16>().copied().unwrap_or_default();
        let [a, b, c, d, ..] = octets;
        if body[0] == IPV4 {
            IpAddr::V4(Ipv4Addr::new(a, b, c, d))
        } else {
            IpAddr::V6(Ipv6Addr::from(octets))
        }
    };
    let known = body[0] == IPV4 || body[0] == IPV6;
    let id = SocketId { family: body[0], id: body[4..].first_chunk().copied()? };
    let (local, remote) = (SocketAddr::new(address(8), port(4)), SocketAddr::new(address(24), port(6)));
    known.then_some(ListedSocket { local, remote, id })
}

/// Kind and value of each; what is cut short ends it.
fn attributes(octets: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    let mut rest = octets;
    std::iter::from_fn(move || {
        let (length, kind) = (usize::from(u16_at(rest, 0)?), u16_at(rest, 2)?);
        let value = rest.get(ATTRIBUTE..length)?;
        rest = rest.get(align(length)..).unwrap_or_default();
        Some((kind & !(NESTED | 0x4000), value))
    })
}

fn align(length: usize) -> usize {
    length.next_multiple_of(4)
}

fn u16_at(octets: &[u8], at: usize) -> Option<u16> {
    octets.get(at..)?.first_chunk().copied().map(u16::from_ne_bytes)
}

fn u32_at(octets: &[u8], at: usize) -> Option<u32> {
    octets.get(at..)?.first_chunk().copied().map(u32::from_ne_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A message as the kernel would send it.
    fn message(kind: u16, sequence: u32, body: impl FnOnce(&mut Messages)) -> Vec<u8> {
        let mut messages = Messages::default();
        messages.message(kind, 0, IPV4, 0, sequence, body);
        messages.octets
    }

    fn received(datagram: &[u8]) -> Vec<Received<'_>> {
        let mut all = Vec::new();
        read(datagram, |message| all.push(message));
        all
    }

    #[test]
    fn packets_are_read_with_the_length_that_they_have() {
        let packet = |with_length: bool| {
            message(QUEUE_PACKET, 0, |message| {
                message.attribute(1, &[0, 0, 0, 9, 8, 0, 3]);
                message.attribute(10, b"abcde");
                if with_length {
                    message.number(13, 70_000);
                }
            })
        };
        let datagram = [packet(true), packet(false)].concat();
        let read = received(&datagram);
        let expected = |length| Received::Packet(Packet { id: 9, octets: b"abcde", length });
        assert_eq!(read, [expected(70_000), expected(5)]);
    }

    #[test]
    fn outcomes_and_changes_are_told_apart() {
        let mut error = message(ERROR, 7, |_| ());
        error[HEADER..HEADER + 4].copy_from_slice(&(-2_i32).to_ne_bytes());
        let ours = message(DELETE_TABLE, 0, |message| message.text(1, TABLE));
        let other = message(DELETE_CHAIN, 0, |message| message.text(1, "filter"));
        let datagram = [error, ours, other, message(DONE, 0, |_| ())].concat();
        let expected = [
            Received::Outcome { sequence: 7, errno: 2 },
            Received::Removed { ours: true, has_dropped: true, by: 0 },
            Received::Removed { ours: false, has_dropped: true, by: 0 },
            Received::Done,
        ];
        assert_eq!(received(&datagram), expected);
    }

    #[test]
    fn sockets_of_both_families_are_read() {
        let mut body = vec![IPV4, 1, 0, 0, 0, 179, 0x10, 0];
        body.extend([10, 0, 0, 1]);
        body.extend([0; 12]);
        body.extend([10, 0, 0, 2]);
        body.extend([0; 12]);
        // An interface and a cookie.
        body.extend([7; 12]);
        let (local, remote) = ("10.0.0.1:179".parse().unwrap(), "10.0.0.2:4096".parse().unwrap());
        let ends = |body: &[u8]| socket(body).map(|socket| (socket.local, socket.remote));
        assert_eq!(ends(&body), Some((local, remote)));
        body[0] = IPV6;
        body[8..24].copy_from_slice(&"2001:db8::1".parse::<Ipv6Addr>().unwrap().octets());
        assert_eq!(ends(&body).map(|(local, _)| local), Some("[2001:db8::1]:179".parse().unwrap()));
        body[0] = 1;
        assert_eq!(socket(&body), None);
        assert_eq!(socket(&body[..51]), None);
    }

    #[test]
    fn a_socket_is_destroyed_under_the_name_that_the_kernel_gave_it() {
        let body: Vec<u8> = [IPV6, 1, 0, 0].into_iter().chain(1..=48).collect();
        let listed = socket(&body).expect("a socket");
        let mut messages = Messages::default();
        messages.destroy_socket(&listed.id, 9);
        let octets = messages.octets();
        assert_eq!((u16_at(octets, 4), u32_at(octets, 8)), (Some(SOCK_DESTROY), Some(9)));
        assert_eq!(octets[HEADER..HEADER + 8], [IPV6, TCP, 0, 0, 255, 255, 255, 255]);
        assert_eq!(octets[HEADER + 8..], body[4..]);
    }

    #[test]
    fn a_closed_gate_has_a_chain_more() {
        let mut messages = Messages::default();
        messages.install_tables(TABLE, &[179], 7, Shape { is_closed: true, has_fence: false }, 5);
        let mut kinds = Vec::new();
        let mut at = 0;
        while let Some(length) = u32_at(messages.octets(), at) {
            kinds.push(u16_at(messages.octets(), at + 4).unwrap_or(0));
            at += align(length as usize);
        }
        let count = |kind| kinds.iter().filter(|one| **one == kind).count();
        assert_eq!((count(NEW_CHAIN), count(NEW_RULE)), (4, 8), "both families, both directions, both ports");
    }

    #[test]
    fn a_fence_is_a_set_and_a_chain_behind_the_queue() {
        let mut messages = Messages::default();
        messages.install_tables(TABLE, &[179], 7, Shape { is_closed: false, has_fence: true }, 5);
        let (mut kinds, mut at) = (Vec::new(), 0);
        while let Some(length) = u32_at(messages.octets(), at) {
            kinds.push(u16_at(messages.octets(), at + 4).unwrap_or(0));
            at += align(length as usize);
        }
        let family = [
            NEW_TABLE,
            DELETE_TABLE,
            NEW_TABLE,
            NEW_SET,
            NEW_CHAIN,
            NEW_RULE,
            NEW_RULE,
            NEW_CHAIN,
            NEW_RULE,
            NEW_RULE,
        ];
        assert_eq!(kinds, [&[BATCH_BEGIN][..], &family, &family, &[BATCH_END]].concat());
        messages.clear();
        messages.open_fence(TABLE, 2900, 6);
        let octets = messages.octets();
        assert!(octets.windows(8).any(|eight| eight == 2900_u64.to_be_bytes()), "in network order");
    }

    #[test]
    fn a_verdict_has_the_form_of_every_message() {
        let (mut short, mut long) = (Messages::default(), Messages::default());
        short.verdict(513, 0x0102_0304, Verdict::Accept);
        long.message(QUEUE_VERDICT, REQUEST, 0, 513, 0, |message| {
            message.attribute(2, &[0, 0, 0, 1, 1, 2, 3, 4]);
        });
        assert_eq!(short.octets(), long.octets());
    }

    #[test]
    fn a_batch_is_whole_messages_of_which_the_last_inside_asks() {
        let mut messages = Messages::default();
        messages.verdict(1, 1, Verdict::Drop);
        messages.install_tables(TABLE, &[179, 1179], 7, Shape::default(), 5);
        let (mut rest, mut kinds) = (messages.octets(), Vec::new());
        while let Some(length) = u32_at(rest, 0) {
            kinds.push((u16_at(rest, 4).unwrap(), u16_at(rest, 6).unwrap() & ACKNOWLEDGE != 0));
            rest = &rest[align(length as usize)..];
        }
        assert!(rest.is_empty());
        let family = [NEW_TABLE, DELETE_TABLE, NEW_TABLE, NEW_CHAIN, NEW_RULE, NEW_RULE, NEW_RULE, NEW_RULE];
        let inside = family.iter().chain(&family).map(|kind| (*kind, false));
        let mut expected: Vec<_> =
            [(QUEUE_VERDICT, false), (BATCH_BEGIN, false)].into_iter().chain(inside).collect();
        expected.last_mut().unwrap().1 = true;
        expected.push((BATCH_END, false));
        assert_eq!(kinds, expected);
    }

    proptest::proptest! {
        #![proptest_config(holdfast_testing::cases(256))]

        #[test]
        fn any_octets_are_read_to_an_end(octets: Vec<u8>, kind in 0_usize..8) {
            let kinds = [ERROR, QUEUE_PACKET, NEW_TABLE, DELETE_RULE, SOCK_DIAG, DONE, 0, 77];
            let mut datagram = message(kinds[kind], 1, |message| message.octets.extend(&octets));
            read(&datagram, |_| ());
            datagram.extend(&octets);
            read(&datagram, |_| ());
            read(&octets, |_| ());
        }
    }
}

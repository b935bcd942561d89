//! The sockets that hear the packets of one grant, one on each interface.

use std::{collections::BTreeMap, future::poll_fn, io, net::UdpSocket as StdUdpSocket, task::Poll};

use holdfast_api::socket::v1::{Packet, ReceivedPackets};
use holdfast_sys::{icmp, kernel_drops, tcp::IpVersion};
use tokio::{io::Interest, net::UdpSocket};

use crate::{
    SocketError,
    error::Step,
    place::Place,
    raw::{LONGEST_PACKET, Link, MOST_OCTETS, MOST_PACKETS, RawGrant, RawIp},
    socket,
};

/// Octets that may wait on one interface: what comes while its reader is busy. Beyond them the kernel drops.
pub const ROOM: usize = 256 << 10;
/// Octets of the longest packet, with its header.
const BUFFER: usize = 65_535;
/// Octets of an IP header of version 4 without options.
const HEADER: usize = 20;

/// They may lag behind the grant and the interfaces, until [`Ears::follow`] is called.
pub(crate) struct Ears {
    packets: RawIp,
    by_name: BTreeMap<String, Ear>,
    buffer: Vec<u8>,
    /// Which of them is read first: after each turn the next one.
    first: usize,
}

/// One on an interface.
struct Ear {
    /// The interface's number when it was opened.
    index: u32,
    socket: UdpSocket,
    /// What the kernel has dropped so far.
    dropped: u32,
}

impl Ears {
    /// None yet.
    pub(crate) fn new(packets: RawIp) -> Self {
        Self { packets, by_name: BTreeMap::new(), buffer: vec![0; BUFFER], first: 0 }
    }

    /// Opens those that are missing, and closes those of interfaces that have gone, or are not granted any more.
    ///
    /// # Errors
    /// Why one is missing still; all others are there.
    pub(crate) async fn follow(
        &mut self,
        place: &Place,
        grant: &RawGrant,
        find: impl Fn(&str) -> Option<Link>,
    ) -> Result<(), SocketError> {
        if self.packets != grant.packets {
            self.by_name.clear();
            self.packets = grant.packets.clone();
        }
        let link = |name: &String| Some((name.clone(), find(name)?.index));
        let wanted: BTreeMap<_, _> = grant.interfaces.iter().filter_map(link).collect();
        self.by_name.retain(|name, ear| wanted.get(name) == Some(&ear.index) && !place.is_left(&ear.socket));
        let mut result = Ok(());
        for (name, index) in wanted {
            if !self.by_name.contains_key(&name) {
                match Ear::open(place, &name, index, &self.packets).await {
                    Ok(ear) => drop(self.by_name.insert(name, ear)),
                    Err(error) => result = Err(error),
                }
            }
        }
        result
    }

    /// Waits until a packet has come.
    pub(crate) async fn readable(&self) {
        poll_fn(|cx| {
            // Each is asked, so that each wakes.
            let ready = self.by_name.values().filter(|ear| ear.socket.poll_recv_ready(cx).is_ready()).count();
            if ready > 0 { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }

    /// Takes what has come, as much as one message has room for.
    pub(crate) fn take(&mut self) -> ReceivedPackets {
        let mut taken = ReceivedPackets::default();
        let (mut reads, mut octets) = (MOST_PACKETS, 0);
        self.first = (self.first + 1) % self.by_name.len().max(1);
        let (before, after): (Vec<_>, Vec<_>) =
            self.by_name.iter_mut().enumerate().partition(|(number, _)| *number < self.first);
        for (_, (name, ear)) in after.into_iter().chain(before) {
            while reads > 0 && octets + LONGEST_PACKET <= MOST_OCTETS {
                reads -= 1;
                match ear.receive(self.packets.version, &mut self.buffer) {
                    Ok(Some(packet)) => {
                        octets += packet.payload.len();
                        taken.packets.push(Packet { interface: name.clone(), ..packet });
                    }
                    Ok(None) => {}
                    // Nothing more now; or the interface went down, which it says once.
                    Err(_) => break,
                }
            }
            taken.dropped += ear.newly_dropped();
        }
        taken
    }
}

impl Ear {
    async fn open(place: &Place, name: &str, index: u32, packets: &RawIp) -> Result<Self, SocketError> {
        let socket = socket::raw(place, name, packets, ROOM).await?;
        // For tokio a socket is a socket: it has no safe way to wait for one of another kind.
        let socket = UdpSocket::from_std(StdUdpSocket::from(socket)).step("polling")?;
        let dropped = kernel_drops(&socket).step("asking for SO_MEMINFO")?;
        Ok(Self { index, socket, dropped })
    }

    /// The next packet; `None`: there was none that can be told of.
    fn receive(&self, version: IpVersion, buffer: &mut [u8]) -> io::Result<Option<Packet>> {
        match version {
            IpVersion::V4 => {
                let octets = self.socket.try_recv(buffer)?;
                Ok(with_header(&buffer[..octets]))
            }
            IpVersion::V6 => {
                let received =
                    self.socket.try_io(Interest::READABLE, || icmp::receive(&self.socket, buffer))?;
                Ok(received.and_then(|received| {
                    Some(Packet {
                        source: received.source.ip().octets().into(),
                        destination: received.destination?.octets().into(),
                        hops: received.hop_limit.into(),
                        payload: buffer.get(..received.octets)?.into(),
                        ..Packet::default()
                    })
                }))
            }
        }
    }

    fn newly_dropped(&mut self) -> u64 {
        // What cannot be asked for is told the next time.
        let now = kernel_drops(&self.socket).unwrap_or(self.dropped);
        now.wrapping_sub(std::mem::replace(&mut self.dropped, now)).into()
    }
}

/// A packet of IPv4 as the kernel gives it, with its header.
fn with_header(octets: &[u8]) -> Option<Packet> {
    let header: &[u8; HEADER] = octets.first_chunk()?;
    let length = usize::from(header[0] & 0xf) * 4;
    let is_header = header[0] >> 4 == 4 && length >= HEADER;
    Some(Packet {
        source: header[12..16].into(),
        destination: header[16..].into(),
        hops: header[8].into(),
        payload: octets.get(length..).filter(|_| is_header)?.into(),
        ..Packet::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_is_read_with_its_options_and_a_cut_one_is_not() {
        let header = |first: u8| {
            let mut header = [&[0_u8; 12][..], &[10, 0, 0, 2], &[224, 0, 0, 5], &[0; 4], b"hello"].concat();
            (header[0], header[8]) = (first, 7);
            header
        };
        let packet = with_header(&header(0x46)).expect("with 4 octets of options");
        assert_eq!((packet.source, packet.destination), (vec![10, 0, 0, 2], vec![224, 0, 0, 5]));
        assert_eq!((packet.hops, packet.payload), (7, b"hello".to_vec()));
        for wrong in [0x44, 0x66, 0x4f, 0] {
            assert_eq!(with_header(&header(wrong)), None, "{wrong:x}");
        }
        assert_eq!(with_header(&header(0x46)[..23]), None);
        assert_eq!(with_header(&[0x45; 19]), None);
    }
}

//! TCP segments and UDP datagrams over IPv4, read from frames and written as packets.

use std::net::SocketAddrV4;

const TCP: u8 = 6;
const UDP: u8 = 17;
/// Octets of an IPv4 header without options.
const IP_HEADER: usize = 20;
const TCP_HEADER: usize = 20;
const UDP_HEADER: usize = 8;
/// Linux' default, which the real ones may have too.
const TTL: u8 = 64;

/// Flags of a TCP header (RFC 9293 section 3.1).
pub mod flag {
    /// No more octets will follow.
    pub const FIN: u8 = 1;
    /// A connection begins.
    pub const SYN: u8 = 2;
    /// There is no such connection.
    pub const RST: u8 = 4;
    /// What has come is to be given to the application now.
    pub const PSH: u8 = 8;
    /// The acknowledgment number means something.
    pub const ACK: u8 = 16;
}

/// One packet.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Packet {
    /// Who sent it, or seems to have.
    pub from: SocketAddrV4,
    /// To whom.
    pub to: SocketAddrV4,
    /// What is in it.
    pub body: Body,
}

/// What is behind the IPv4 header.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Body {
    /// A segment of TCP.
    Tcp(Tcp),
    /// The data of a UDP datagram.
    Udp(Vec<u8>),
}

/// A segment of TCP (RFC 9293 section 3.1), without its ports.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Tcp {
    /// Sequence number of the first octet, or of SYN.
    pub sequence: u32,
    /// What is expected from the other end.
    pub acknowledgment: u32,
    /// See [`flag`].
    pub flags: u8,
    /// As it stands there: unscaled.
    pub window: u16,
    /// Options, a multiple of four octets.
    pub options: Vec<u8>,
    /// Data.
    pub payload: Vec<u8>,
}

impl Tcp {
    /// The sequence number that follows this segment.
    pub fn end(&self) -> u32 {
        let flags = u32::from(self.flags & flag::SYN != 0) + u32::from(self.flags & flag::FIN != 0);
        self.sequence.wrapping_add(self.payload.len() as u32).wrapping_add(flags)
    }

    fn parse(tcp: &[u8]) -> Option<Self> {
        let word = |at: usize| Some(u32::from_be_bytes(tcp.get(at..at + 4)?.try_into().ok()?));
        let data = usize::from(tcp.get(12)? >> 4) * 4;
        Some(Self {
            sequence: word(4)?,
            acknowledgment: word(8)?,
            flags: *tcp.get(13)?,
            window: u16::from_be_bytes(tcp.get(14..16)?.try_into().ok()?),
            options: tcp.get(TCP_HEADER..data)?.to_vec(),
            payload: tcp.get(data..)?.to_vec(),
        })
    }
}

impl Packet {
    /// Reads an Ethernet frame; `None` if it is neither TCP nor UDP over IPv4, or not whole.
    pub fn parse(frame: &[u8]) -> Option<Self> {
        let packet = frame.get(12..)?.strip_prefix(&[8, 0])?;
        let header = usize::from(packet.first()? & 0xf) * 4;
        let length = usize::from(u16::from_be_bytes(packet.get(2..4)?.try_into().ok()?));
        let fragment = u16::from_be_bytes(packet.get(6..8)?.try_into().ok()?) & 0x3fff != 0;
        if packet[0] >> 4 != 4 || fragment {
            return None;
        }
        let segment = packet.get(header..length)?;
        let end = |address: usize, port: usize| {
            let address: [u8; 4] = packet.get(address..address + 4)?.try_into().ok()?;
            let port = u16::from_be_bytes(segment.get(port..port + 2)?.try_into().ok()?);
            Some(SocketAddrV4::new(address.into(), port))
        };
        let body = match *packet.get(9)? {
            TCP => Body::Tcp(Tcp::parse(segment)?),
            UDP => Body::Udp(segment.get(UDP_HEADER..)?.to_vec()),
            _ => return None,
        };
        Some(Self { from: end(12, 0)?, to: end(16, 2)?, body })
    }

    /// The packet from the IPv4 header on. Linux puts identification and checksum of that header in.
    ///
    /// # Panics
    /// It is longer than an IPv4 packet may be.
    pub fn to_octets(&self) -> Vec<u8> {
        let ports = [self.from.port().to_be_bytes(), self.to.port().to_be_bytes()];
        let mut segment = ports.as_flattened().to_vec();
        let (protocol, checksum_at) = match &self.body {
            Body::Tcp(tcp) => {
                segment.extend(tcp.sequence.to_be_bytes());
                segment.extend(tcp.acknowledgment.to_be_bytes());
                segment.extend([(((TCP_HEADER + tcp.options.len()) / 4) << 4) as u8, tcp.flags]);
                segment.extend(tcp.window.to_be_bytes());
                segment.extend([0; 4]);
                segment.extend(&tcp.options);
                segment.extend(&tcp.payload);
                (TCP, 16)
            }
            Body::Udp(data) => {
                segment.extend(length(UDP_HEADER + data.len()));
                segment.extend([0; 2]);
                segment.extend(data);
                (UDP, 6)
            }
        };
        let sum = checksum(&self.pseudo_header(protocol, segment.len()), &segment);
        segment[checksum_at..checksum_at + 2].copy_from_slice(&sum.to_be_bytes());
        let mut packet = vec![0x45, 0];
        packet.extend(length(IP_HEADER + segment.len()));
        packet.extend([0, 0, 0, 0, TTL, protocol, 0, 0]);
        packet.extend(self.from.ip().octets());
        packet.extend(self.to.ip().octets());
        packet.extend(segment);
        packet
    }

    /// RFC 9293 section 3.1: what the checksum covers beside the segment.
    fn pseudo_header(&self, protocol: u8, segment: usize) -> Vec<u8> {
        let addresses = [self.from.ip().octets(), self.to.ip().octets()];
        [addresses.as_flattened(), &[0, protocol], &length(segment)].concat()
    }
}

fn length(octets: usize) -> [u8; 2] {
    u16::try_from(octets).expect("no packet is longer than 65,535 octets").to_be_bytes()
}

/// RFC 1071. The pseudo header has an even number of octets.
fn checksum(pseudo_header: &[u8], segment: &[u8]) -> u16 {
    let words = pseudo_header.chunks(2).chain(segment.chunks(2));
    let sum: u32 = words.map(|word| u32::from(word[0]) << 8 | u32::from(*word.get(1).unwrap_or(&0))).sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    let folded = !((folded & 0xffff) + (folded >> 16)) as u16;
    // RFC 768: 0 says that there is none; for TCP both stand for the same.
    if folded == 0 { 0xffff } else { folded }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ends() -> [SocketAddrV4; 2] {
        [SocketAddrV4::new([10, 0, 0, 1].into(), 40_000), SocketAddrV4::new([10, 0, 0, 2].into(), 179)]
    }

    fn frame(packet: &Packet) -> Vec<u8> {
        [&[0; 12][..], &[8, 0], &packet.to_octets()].concat()
    }

    #[test]
    fn what_is_written_is_read() {
        let [from, to] = ends();
        let tcp = Tcp {
            sequence: u32::MAX,
            acknowledgment: 7,
            flags: flag::ACK | flag::FIN,
            window: 500,
            options: vec![1, 1, 1, 0],
            payload: b"abc".to_vec(),
        };
        assert_eq!(tcp.end(), 3);
        for body in [Body::Tcp(tcp), Body::Udp(b"datagram".to_vec()), Body::Udp(Vec::new())] {
            let packet = Packet { from, to, body };
            let frame = frame(&packet);
            assert_eq!(Packet::parse(&frame).as_ref(), Some(&packet));
            for short in 0..frame.len() {
                assert_eq!(Packet::parse(&frame[..short]), None);
            }
        }
    }

    #[test]
    fn a_receiver_finds_the_checksum_right() {
        let [from, to] = ends();
        for data in [&b"ab"[..], b"abc", &[0xff; 1200]] {
            let packet = Packet { from, to, body: Body::Udp(data.to_vec()) };
            let segment = &packet.to_octets()[IP_HEADER..];
            // Over everything with the checksum in its place, the sum is 0, written as [`checksum`] does.
            assert_eq!(checksum(&packet.pseudo_header(UDP, segment.len()), segment), 0xffff);
        }
    }
}

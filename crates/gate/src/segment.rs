//! What the headers of one of our own packets say, as the kernel's queue hands them over: the first octets, and how long the
//! whole packet is.
//!
//! The packet may be longer than any that travels: the kernel cuts it into segments later (GSO). IPv4 and IPv6 then have
//! either the whole length or 0 in their header.

use std::net::{Ipv4Addr, Ipv6Addr};

use crate::Connection;

/// Octets that are asked of each packet: IPv6, some extension headers, and the longest header of TCP.
pub const COPIED: u32 = 128;
/// Extension headers of IPv6 that are walked over.
const MOST_EXTENSIONS: usize = 4;

const TCP: u8 = 6;
const TCP_HEADER: usize = 20;

const FIN: u8 = 1;
const SYN: u8 = 2;
const RST: u8 = 4;
const ACK: u8 = 16;

/// Why a packet cannot be read. It is dropped.
#[derive(Copy, Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Unreadable {
    /// It ends before its headers do.
    #[error("the packet is cut short")]
    Short,
    /// It is neither IPv4 nor IPv6, or carries no TCP.
    #[error("the packet is not TCP")]
    Foreign,
    /// It is a fragment.
    #[error("the packet is a fragment")]
    Fragment,
    /// Its lengths contradict each other.
    #[error("the packet's lengths contradict each other")]
    Length,
}

/// A segment of TCP that we send.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Segment {
    /// From which of our addresses to which peer; its VRF is 0, as no packet says it.
    pub connection: Connection,
    /// Number of the first octet.
    pub seq: u32,
    /// Number of the octet that is expected next, if [`Self::acknowledges`].
    pub ack: u32,
    /// The window as it stands in the header, not scaled.
    pub window: u16,
    /// Octets of data.
    pub payload: u32,
    flags: u8,
}

impl Segment {
    /// Reads the headers at the start of a packet of `length` octets, of which `octets` may be the first only.
    ///
    /// # Errors
    /// As [`Unreadable`] says.
    pub fn read(octets: &[u8], length: u32) -> Result<Self, Unreadable> {
        match octets.first().ok_or(Unreadable::Short)? >> 4 {
            4 => Self::read_v4(octets, length),
            6 => Self::read_v6(octets, length),
            _ => Err(Unreadable::Foreign),
        }
    }

    fn read_v4(octets: &[u8], length: u32) -> Result<Self, Unreadable> {
        let header: &[u8; 20] = octets.first_chunk().ok_or(Unreadable::Short)?;
        let header_octets = usize::from(header[0] & 15) * 4;
        if header_octets < header.len() {
            return Err(Unreadable::Length);
        }
        // More fragments, or not the first.
        if be16(header, 6) & 0x3fff != 0 {
            return Err(Unreadable::Fragment);
        }
        if header[9] != TCP {
            return Err(Unreadable::Foreign);
        }
        let total = match be16(header, 2) {
            0 => length,
            total => u32::from(total),
        };
        let address = |at: usize| {
            let [a, b, c, d] = [header[at], header[at + 1], header[at + 2], header[at + 3]];
            Ipv4Addr::new(a, b, c, d).to_ipv6_mapped()
        };
        Self::read_tcp(octets, header_octets, total, length, [address(12), address(16)])
    }

    fn read_v6(octets: &[u8], length: u32) -> Result<Self, Unreadable> {
        let header: &[u8; 40] = octets.first_chunk().ok_or(Unreadable::Short)?;
        let total = match be16(header, 4) {
            0 => length,
            payload => u32::from(payload) + 40,
        };
        let (mut next, mut at) = (header[6], header.len());
        for _ in 0..=MOST_EXTENSIONS {
            match next {
                TCP => {
                    let address = |at: usize| {
                        let octets = header[at..].first_chunk::<16>().copied().unwrap_or_default();
                        Ipv6Addr::from(octets)
                    };
                    return Self::read_tcp(octets, at, total, length, [address(8), address(24)]);
                }
                44 => return Err(Unreadable::Fragment),
                // Hop-by-hop, routing, destination options; the authentication header counts in other units.
                0 | 43 | 60 | 51 => {
                    let [following, units] = octets
                        .get(at..)
                        .and_then(<[u8]>::first_chunk::<2>)
                        .copied()
                        .ok_or(Unreadable::Short)?;
                    at +=
                        if next == 51 { (usize::from(units) + 2) * 4 } else { (usize::from(units) + 1) * 8 };
                    next = following;
                }
                _ => return Err(Unreadable::Foreign),
            }
        }
        Err(Unreadable::Foreign)
    }

    fn read_tcp(
        octets: &[u8],
        at: usize,
        total: u32,
        length: u32,
        [local, remote]: [Ipv6Addr; 2],
    ) -> Result<Self, Unreadable> {
        let header: &[u8; TCP_HEADER] =
            octets.get(at..).and_then(<[u8]>::first_chunk).ok_or(Unreadable::Short)?;
        let header_octets = usize::from(header[12] >> 4) * 4;
        let headers = u32::try_from(at + header_octets).map_err(|_| Unreadable::Length)?;
        if header_octets < TCP_HEADER || total > length {
            return Err(Unreadable::Length);
        }
        let payload = total.checked_sub(headers).ok_or(Unreadable::Length)?;
        let connection =
            Connection { local, remote, local_port: be16(header, 0), remote_port: be16(header, 2), vrf: 0 };
        Ok(Self {
            connection,
            seq: be32(header, 4),
            ack: be32(header, 8),
            window: be16(header, 14),
            payload,
            flags: header[13],
        })
    }

    /// It begins a connection.
    pub fn is_syn(&self) -> bool {
        self.flags & SYN != 0
    }

    /// It ends our side of a connection.
    pub fn is_fin(&self) -> bool {
        self.flags & FIN != 0
    }

    /// It resets a connection.
    pub fn is_rst(&self) -> bool {
        self.flags & RST != 0
    }

    /// Its acknowledgment counts.
    pub fn acknowledges(&self) -> bool {
        self.flags & ACK != 0
    }

    /// It only acknowledges.
    pub fn is_pure_ack(&self) -> bool {
        self.payload == 0 && self.flags & (SYN | FIN | RST | ACK) == ACK
    }

    /// Number of the octet behind its data. SYN and FIN do not count.
    pub fn end(&self) -> u32 {
        self.seq.wrapping_add(self.payload)
    }

    /// A segment as it would have been read. For tests.
    #[doc(hidden)]
    pub fn made(connection: Connection, flags: &str, seq: u32, ack: u32, window: u16, payload: u32) -> Self {
        let bit = |letter: char| match letter {
            'F' => FIN,
            'S' => SYN,
            'R' => RST,
            'A' => ACK,
            _ => 0,
        };
        let flags = flags.chars().map(bit).fold(0, |all, one| all | one);
        Self { connection, seq, ack, window, payload, flags }
    }
}

fn be16(octets: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([octets[at], octets[at + 1]])
}

fn be32(octets: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([octets[at], octets[at + 1], octets[at + 2], octets[at + 3]])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tcp(flags: u8, words: u8) -> Vec<u8> {
        let mut header = vec![0; usize::from(words) * 4];
        header[..14].copy_from_slice(&[0, 179, 0x10, 0, 0, 0, 0, 7, 0, 0, 0, 9, words << 4, flags]);
        header[14] = 2;
        header
    }

    fn v4(total: u16, protocol: u8, words: u8) -> Vec<u8> {
        let mut header = vec![0; usize::from(words) * 4];
        header[0] = 0x40 | words;
        header[2..4].copy_from_slice(&total.to_be_bytes());
        header[9] = protocol;
        header[12..20].copy_from_slice(&[10, 0, 0, 1, 10, 0, 0, 2]);
        header
    }

    fn v6(payload: u16, next: u8) -> Vec<u8> {
        let mut header = vec![0; 40];
        header[0] = 0x60;
        header[4..6].copy_from_slice(&payload.to_be_bytes());
        header[6] = next;
        header[23] = 1;
        header[39] = 2;
        header
    }

    #[test]
    fn a_segment_of_either_family_is_read() {
        let octets = [v4(60, TCP, 6), tcp(ACK | 8, 8)].concat();
        let segment = Segment::read(&octets, 60).expect("TCP");
        let (local, remote) = ("10.0.0.1:179".parse().unwrap(), "10.0.0.2:4096".parse().unwrap());
        assert_eq!(segment.connection, Connection::new(local, remote, 0));
        assert_eq!((segment.seq, segment.ack, segment.payload, segment.window), (7, 9, 4, 512));
        assert!(segment.acknowledges() && !segment.is_pure_ack() && !segment.is_syn());
        assert_eq!(segment.end(), 11);
        let octets = [v6(20, TCP), tcp(ACK, 5)].concat();
        let segment = Segment::read(&octets, 60).expect("TCP");
        let (local, remote) = ("[::1]:179".parse().unwrap(), "[::2]:4096".parse().unwrap());
        assert_eq!(segment.connection, Connection::new(local, remote, 0));
        assert!(segment.is_pure_ack());
    }

    #[test]
    fn a_packet_that_is_cut_later_has_the_length_that_the_kernel_says() {
        let octets = [v4(0, TCP, 5), tcp(ACK, 5)].concat();
        assert_eq!(Segment::read(&octets, 200_000).map(|segment| segment.payload), Ok(199_960));
        let octets = [v6(0, TCP), tcp(ACK, 5)].concat();
        assert_eq!(Segment::read(&octets, 200_000).map(|segment| segment.payload), Ok(199_940));
        let octets = [v4(65_535, TCP, 5), tcp(ACK, 5)].concat();
        assert_eq!(Segment::read(&octets, 65_535).map(|segment| segment.payload), Ok(65_495));
        assert_eq!(Segment::read(&octets, 65_534), Err(Unreadable::Length), "longer than the packet");
    }

    #[test]
    fn extension_headers_are_walked_over_up_to_a_bound() {
        let jumbo = [TCP, 0, 0xc2, 4, 0, 1, 0, 0];
        let octets = [v6(0, 0), jumbo.to_vec(), tcp(ACK, 5)].concat();
        assert_eq!(Segment::read(&octets, 70_000).map(|segment| segment.payload), Ok(69_932));
        for (count, expected) in [(4, Ok(0)), (5, Err(Unreadable::Foreign))] {
            let mut octets = v6(count * 8 + 20, 60);
            for number in 1..=count {
                octets.extend([if number == count { TCP } else { 60 }, 0, 0, 0, 0, 0, 0, 0]);
            }
            octets.extend(tcp(ACK, 5));
            let length = octets.len() as u32;
            assert_eq!(Segment::read(&octets, length).map(|segment| segment.payload), expected, "{count}");
        }
        let long = [v6(0, 60), vec![TCP, 255, 0, 0, 0, 0, 0, 0]].concat();
        assert_eq!(Segment::read(&long, 9000), Err(Unreadable::Short));
        assert_eq!(Segment::read(&v6(8, 44), 60), Err(Unreadable::Fragment));
    }

    #[test]
    fn what_cannot_be_read_is_told_and_no_octets_do_harm() {
        let whole = [v4(40, TCP, 5), tcp(ACK, 5)].concat();
        for length in 0..whole.len() {
            assert_eq!(Segment::read(&whole[..length], 40), Err(Unreadable::Short));
        }
        assert_eq!(Segment::read(&[v4(40, 17, 5), tcp(ACK, 5)].concat(), 40), Err(Unreadable::Foreign));
        assert_eq!(Segment::read(&[v4(39, TCP, 5), tcp(ACK, 5)].concat(), 40), Err(Unreadable::Length));
        assert_eq!(
            Segment::read(&[v4(40, TCP, 5), tcp(ACK, 5)[..19].to_vec()].concat(), 40),
            Err(Unreadable::Short)
        );
        let mut fragment = whole.clone();
        fragment[6] = 0x20;
        assert_eq!(Segment::read(&fragment, 40), Err(Unreadable::Fragment));
        let mut short_header = whole;
        short_header[0] = 0x44;
        assert_eq!(Segment::read(&short_header, 40), Err(Unreadable::Length));
    }

    proptest::proptest! {
        #![proptest_config(holdfast_testing::cases(256))]

        #[test]
        fn any_octets_are_read_or_refused(octets: Vec<u8>, first in 0..255_u8, length: u32) {
            let mut octets = octets;
            if let Some(start) = octets.first_mut() {
                *start = first;
            }
            let _ = Segment::read(&octets, length);
        }
    }
}

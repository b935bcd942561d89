//! What was on the wire: frames of tcpdump as TCP segments, and TCP's octets in their order.

use std::{collections::BTreeMap, io, io::Read, net::SocketAddrV4};

use anyhow::{Result, ensure};

/// Flags of a TCP header (RFC 9293 section 3.1).
pub mod flag {
    /// No more octets will follow.
    pub const FIN: u8 = 1;
    /// A connection begins.
    pub const SYN: u8 = 2;
    /// There is no such connection.
    pub const RST: u8 = 4;
    /// The acknowledgment number means something.
    pub const ACK: u8 = 16;
}

/// A TCP segment over IPv4.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Segment {
    /// When it was seen: microseconds since 1970.
    pub at: u64,
    /// Who sent it.
    pub from: SocketAddrV4,
    /// To whom.
    pub to: SocketAddrV4,
    /// Sequence number of the first octet, or of SYN.
    pub sequence: u32,
    /// See [`flag`].
    pub flags: u8,
    /// Data.
    pub payload: Vec<u8>,
}

impl Segment {
    /// Reads an Ethernet frame; `None` if it is not TCP over IPv4, or not whole.
    pub fn parse(at: u64, frame: &[u8]) -> Option<Self> {
        let packet = frame.get(12..)?.strip_prefix(&[8, 0])?;
        let header = usize::from(packet.first()? & 0xf) * 4;
        let length = usize::from(u16::from_be_bytes(packet.get(2..4)?.try_into().ok()?));
        let fragment = u16::from_be_bytes(packet.get(6..8)?.try_into().ok()?) & 0x3fff != 0;
        if packet[0] >> 4 != 4 || *packet.get(9)? != 6 || fragment {
            return None;
        }
        let address = |at: usize| <[u8; 4]>::try_from(packet.get(at..at + 4)?).ok();
        let (source, destination) = (address(12)?, address(16)?);
        let tcp = packet.get(header..length)?;
        let port = |at: usize| Some(u16::from_be_bytes(tcp.get(at..at + 2)?.try_into().ok()?));
        Some(Self {
            at,
            from: SocketAddrV4::new(source.into(), port(0)?),
            to: SocketAddrV4::new(destination.into(), port(2)?),
            sequence: u32::from_be_bytes(tcp.get(4..8)?.try_into().ok()?),
            flags: *tcp.get(13)?,
            payload: tcp.get(usize::from(tcp.get(12)? >> 4) * 4..)?.to_vec(),
        })
    }

    /// Whether all of these flags are set.
    pub fn has(&self, flags: u8) -> bool {
        self.flags & flags == flags
    }
}

/// Reads what `tcpdump -w -` writes, packet by packet.
#[derive(Debug)]
pub struct Pcap<R>(R);

/// Of a file with microseconds, in the byte order of the machine that writes it: this one.
const MAGIC: u32 = 0xa1b2_c3d4;
const ETHERNET: u32 = 1;
/// No packet is longer.
const LONGEST: usize = 1 << 20;

impl<R: Read> Pcap<R> {
    /// Reads the header of the file.
    ///
    /// # Errors
    /// It is not that of a capture of Ethernet frames.
    pub fn new(mut reader: R) -> Result<Self> {
        let mut header = [0; 24];
        reader.read_exact(&mut header)?;
        ensure!((word(&header, 0), word(&header, 20)) == (MAGIC, ETHERNET), "not a capture of Ethernet");
        Ok(Self(reader))
    }

    /// The next frame and when it was seen, in microseconds since 1970; `None` at the end.
    ///
    /// # Errors
    /// The file cannot be read, or the frame is not whole.
    pub fn frame(&mut self) -> Result<Option<(u64, Vec<u8>)>> {
        let mut header = [0; 16];
        match self.0.read_exact(&mut header) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
            result => result?,
        }
        let length = word(&header, 8) as usize;
        ensure!(length == word(&header, 12) as usize && length < LONGEST, "a frame is not whole");
        let mut frame = vec![0; length];
        self.0.read_exact(&mut frame)?;
        Ok(Some((u64::from(word(&header, 0)) * 1_000_000 + u64::from(word(&header, 4)), frame)))
    }
}

fn word(header: &[u8], at: usize) -> u32 {
    u32::from_ne_bytes(header[at..at + 4].try_into().expect("four octets of a header"))
}

/// One direction of a connection: gives the octets in order, each once.
#[derive(Clone, Debug, Default)]
pub struct Stream {
    /// Sequence number of the octet that comes next; `None` before SYN.
    next: Option<u32>,
    /// Segments that came before those in front of them, by sequence number.
    early: BTreeMap<u32, Vec<u8>>,
}

impl Stream {
    /// Takes a segment; what can be read on now is put behind `out`.
    pub fn take(&mut self, segment: &Segment, out: &mut Vec<u8>) {
        match segment.has(flag::SYN) {
            true => self.begin(segment.sequence),
            false => self.place(segment.sequence, &segment.payload, out),
        }
    }

    /// SYN has this sequence number: a connection begins.
    pub fn begin(&mut self, sequence: u32) {
        *self = Self { next: Some(sequence.wrapping_add(1)), early: BTreeMap::new() };
    }

    /// Sequence number of the octet that comes next; `None` before SYN.
    pub fn next(&self) -> Option<u32> {
        self.next
    }

    /// Takes octets of a segment that is no SYN; what can be read on now is put behind `out`.
    pub fn place(&mut self, sequence: u32, payload: &[u8], out: &mut Vec<u8>) {
        // Of a connection whose beginning was not seen, nothing can be said.
        let Some(next) = &mut self.next else { return };
        if payload.is_empty() {
            return;
        }
        if self.early.get(&sequence).is_none_or(|early| early.len() < payload.len()) {
            self.early.insert(sequence, payload.to_vec());
        }
        while let Some((sequence, payload)) = take_due(&mut self.early, *next) {
            // What was there before comes again in a retransmission.
            let again = next.wrapping_sub(sequence) as usize;
            if let Some(fresh) = payload.get(again..) {
                out.extend_from_slice(fresh);
                *next = next.wrapping_add(fresh.len() as u32);
            }
        }
    }

    /// Whether octets are missing in front of others.
    pub fn has_hole(&self) -> bool {
        !self.early.is_empty()
    }
}

/// A segment that begins at this number or before; what is "before" goes around at 2^32.
fn take_due(early: &mut BTreeMap<u32, Vec<u8>>, next: u32) -> Option<(u32, Vec<u8>)> {
    let due = early.keys().copied().find(|sequence| next.wrapping_sub(*sequence) as i32 >= 0)?;
    early.remove_entry(&due)
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    fn segment(sequence: u32, flags: u8, payload: &[u8]) -> Segment {
        let end = |last| SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, last), 179);
        Segment { at: 0, from: end(1), to: end(2), sequence, flags, payload: payload.to_vec() }
    }

    fn read(segments: &[Segment]) -> (Vec<u8>, bool) {
        let (mut stream, mut out) = (Stream::default(), Vec::new());
        segments.iter().for_each(|segment| stream.take(segment, &mut out));
        (out, stream.has_hole())
    }

    #[test]
    fn octets_come_in_order_and_once_whatever_tcp_does() {
        let start = u32::MAX - 3;
        let at = |offset: u32| start.wrapping_add(1).wrapping_add(offset);
        let (syn, ack) = (segment(start, flag::SYN, b""), flag::ACK);
        let all = [
            syn.clone(),
            segment(at(0), ack, b"ab"),
            // Too early, and beyond the wrap of sequence numbers.
            segment(at(4), ack, b"ef"),
            // The same again, then a retransmission that brings more.
            segment(at(0), ack, b"ab"),
            segment(at(1), ack, b"bcd"),
            segment(at(3), ack, b"defgh"),
        ];
        assert_eq!(read(&all), (b"abcdefgh".to_vec(), false));
        assert_eq!(read(&[syn, segment(at(1), ack, b"b")]), (Vec::new(), true));
        assert_eq!(read(&all[1..]), (Vec::new(), false));
    }

    #[test]
    fn a_frame_is_read_and_a_short_one_refused() {
        let mut frame = vec![0; 12];
        frame.extend([8, 0, 0x45, 0, 0, 43, 0, 0, 0x40, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
        frame.extend([0, 179, 0x80, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0x50, 0x18, 0, 0, 0, 0, 0, 0]);
        frame.extend(b"abc");
        // Ethernet's own padding is no data.
        frame.extend([0; 3]);
        let read = Segment::parse(5, &frame).expect("a segment");
        assert_eq!(
            (read.from.to_string(), read.to.to_string()),
            ("10.0.0.1:179".into(), "10.0.0.2:32769".into())
        );
        assert_eq!((read.at, read.sequence, read.flags, &read.payload[..]), (5, 256, 0x18, &b"abc"[..]));
        for length in 0..frame.len() - 3 {
            assert_eq!(Segment::parse(0, &frame[..length]), None);
        }
    }

    #[test]
    fn a_file_is_read_to_its_end() {
        let mut file: Vec<u8> =
            [MAGIC, 0, 0, 0, 1 << 16, ETHERNET, 3, 7, 2, 2].map(u32::to_ne_bytes).concat();
        file.extend(b"xy");
        let mut pcap = Pcap::new(&file[..]).expect("a header");
        assert_eq!(pcap.frame().expect("a frame"), Some((3_000_007, b"xy".to_vec())));
        assert_eq!(pcap.frame().expect("the end"), None);
    }
}

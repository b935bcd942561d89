//! Headers of QUIC packets, as far as they are not protected (RFC 9000 section 17.2, RFC 9369 section 3.2).

use thiserror::Error;

use crate::reader::Reader;

/// QUIC version 1 (RFC 9000).
pub const VERSION_1: u32 = 1;
/// QUIC version 2 (RFC 9369 section 3.1).
pub const VERSION_2: u32 = 0x6b33_43cf;
/// Octets of a connection id in these versions, at most (RFC 9000 section 17.2).
pub const MOST_CONNECTION_ID: usize = 20;
/// Header Form: the header is long.
const LONG: u8 = 0x80;
/// Fixed Bit.
const FIXED: u8 = 0x40;

/// What a datagram begins with.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Packet<'a> {
    /// The packet that opens a connection.
    Initial(Initial<'a>),
    /// Another one with a long header, of a version that is known here.
    Long(LongType),
    /// One with a short header: of a connection that there is, or was.
    Short,
    /// A list of versions; servers send it.
    VersionNegotiation,
    /// A version that is not known here. What its packets hold cannot be told.
    UnknownVersion(u32),
}

/// Types of packets with long headers beside the Initial.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum LongType {
    /// Data before the handshake's end (RFC 9000 section 17.2.3).
    ZeroRtt,
    /// The rest of the handshake (section 17.2.4).
    Handshake,
    /// A server asks for a proof of the address (section 17.2.5).
    Retry,
}

/// An Initial packet (RFC 9000 section 17.2.2). Its packet number and what comes after that are protected still.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Initial<'a> {
    /// [`VERSION_1`] or [`VERSION_2`].
    pub version: u32,
    /// Destination Connection ID; the keys of the protection derive from the client's first one.
    pub destination: &'a [u8],
    /// Source Connection ID.
    pub source: &'a [u8],
    /// Token of a Retry or of an earlier connection; empty: none.
    pub token: &'a [u8],
    /// Where in the datagram the packet number begins.
    pub number_at: usize,
    /// Where in the datagram the packet ends. Another one may follow.
    pub end: usize,
}

/// Reads the header of the first packet of a datagram.
///
/// # Errors
/// It is no packet of QUIC: RFC 9000 has it discarded without an answer.
pub fn packet(datagram: &[u8]) -> Result<Packet<'_>, BadPacket> {
    let mut reader = Reader::new(datagram);
    let first = reader.u8().ok_or(BadPacket::CutOff("first octet"))?;
    if first & LONG == 0 {
        return fixed(first).map(|()| Packet::Short);
    }
    let version = reader.u32().ok_or(BadPacket::CutOff("version"))?;
    let kind = match (version, (first >> 4) & 0b11) {
        (0, _) => return Ok(Packet::VersionNegotiation),
        (VERSION_1, 0) | (VERSION_2, 1) => None,
        (VERSION_1, 1) | (VERSION_2, 2) => Some(LongType::ZeroRtt),
        (VERSION_1, 2) | (VERSION_2, 3) => Some(LongType::Handshake),
        (VERSION_1, 3) | (VERSION_2, 0) => Some(LongType::Retry),
        _ => return Ok(Packet::UnknownVersion(version)),
    };
    fixed(first)?;
    let destination = connection_id(&mut reader, "Destination Connection ID")?;
    let source = connection_id(&mut reader, "Source Connection ID")?;
    if let Some(kind) = kind {
        return Ok(Packet::Long(kind));
    }
    let token = reader.vector().ok_or(BadPacket::CutOff("token"))?;
    let length = reader.varint().ok_or(BadPacket::CutOff("length"))?;
    let number_at = datagram.len() - reader.len();
    let protected = usize::try_from(length).ok().and_then(|length| reader.take(length));
    let end = number_at + protected.ok_or(BadPacket::CutOff("payload"))?.len();
    Ok(Packet::Initial(Initial { version, destination, source, token, number_at, end }))
}

/// RFC 9000 section 17.2 and 17.3.1: a packet without the bit is not valid. (RFC 9287 would have to be negotiated.)
fn fixed(first: u8) -> Result<(), BadPacket> {
    if first & FIXED == 0 { Err(BadPacket::FixedBit) } else { Ok(()) }
}

fn connection_id<'a>(reader: &mut Reader<'a>, name: &'static str) -> Result<&'a [u8], BadPacket> {
    let id = reader.vector8().ok_or(BadPacket::CutOff(name))?;
    if id.len() > MOST_CONNECTION_ID { Err(BadPacket::ConnectionId(id.len())) } else { Ok(id) }
}

/// Why octets are no packet.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Error)]
pub enum BadPacket {
    /// The datagram is shorter than it says.
    #[error("the datagram ends within the {0} of its packet")]
    CutOff(&'static str),
    /// A bit is 0 that is 1 in each packet.
    #[error("the Fixed Bit of the packet is 0: it is not QUIC")]
    FixedBit,
    /// A connection id is longer than its version allows.
    #[error("the packet has a connection id of {0} octets")]
    ConnectionId(usize),
}

//! The one call of GoBGP's interface that the lab needs: routes are announced and withdrawn, many at a time.
//!
//! It is gRPC: a message of Protocol Buffers in each direction, in frames of HTTP/2 (RFC 9113), without TLS. Headers are sent as
//! they are (RFC 7541 section 6.2.2), and none is read: an answer has a message if the call went well, and has none otherwise.

use std::{
    io::{Read, Write},
    net::{Ipv4Addr, SocketAddr, TcpStream},
    time::Duration,
};

use anyhow::{Context, Result, bail, ensure};
use holdfast_types::Prefix;

/// Where GoBGP listens for calls, in its own host.
pub(super) const API: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 50051);
const CALL: &str = "/apipb.GobgpApi/AddPathStream";
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// Routes in one call: it fits into a frame, and into what may be sent unasked (RFC 9113 sections 4.2 and 6.9.2).
const AT_ONCE: usize = 50;
const LONGEST_FRAME: usize = 1 << 14;
const LIMIT: Duration = Duration::from_secs(20);

mod kind {
    pub(super) const DATA: u8 = 0;
    pub(super) const HEADERS: u8 = 1;
    pub(super) const RST_STREAM: u8 = 3;
    pub(super) const SETTINGS: u8 = 4;
    pub(super) const PING: u8 = 6;
    pub(super) const GOAWAY: u8 = 7;
}

mod flag {
    /// Of SETTINGS and PING.
    pub(super) const ACK: u8 = 1;
    /// Of DATA and HEADERS.
    pub(super) const END_STREAM: u8 = 1;
    pub(super) const END_HEADERS: u8 = 4;
}

/// Announces prefixes with our own address as next hop, and withdraws others. In the network namespace of GoBGP.
pub(super) fn change(announced: &[Prefix], withdrawn: &[Prefix]) -> Result<()> {
    let old = withdrawn.iter().map(|prefix| path(*prefix, true));
    let all: Vec<_> = old.chain(announced.iter().map(|prefix| path(*prefix, false))).collect();
    let mut connection = TcpStream::connect(API)?;
    connection.set_read_timeout(Some(LIMIT))?;
    connection.set_nodelay(true)?;
    connection.write_all(PREFACE)?;
    connection.write_all(&frame(kind::SETTINGS, 0, 0, &[]))?;
    for (at, paths) in all.chunks(AT_ONCE).enumerate() {
        // Streams of a client have odd numbers (RFC 9113 section 5.1.1).
        let stream = 2 * u32::try_from(at)? + 1;
        let mut octets = frame(kind::HEADERS, flag::END_HEADERS, stream, &headers());
        let message: Vec<u8> = paths.iter().flat_map(|path| field(3, path)).collect();
        let mut data = vec![0];
        data.extend(u32::try_from(message.len())?.to_be_bytes());
        data.extend(message);
        ensure!(data.len() <= LONGEST_FRAME, "a call of {} octets", data.len());
        octets.extend(frame(kind::DATA, flag::END_STREAM, stream, &data));
        connection.write_all(&octets)?;
        until_answered(&mut connection, stream)?;
    }
    Ok(())
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut octets = (payload.len() as u32).to_be_bytes()[1..].to_vec();
    octets.extend([kind, flags]);
    octets.extend(stream.to_be_bytes());
    octets.extend(payload);
    octets
}

fn headers() -> Vec<u8> {
    let mut octets = Vec::new();
    for (name, value) in [
        (":method", "POST"),
        (":scheme", "http"),
        (":path", CALL),
        (":authority", "localhost"),
        ("content-type", "application/grpc"),
        ("te", "trailers"),
    ] {
        octets.push(0);
        for text in [name, value] {
            octets.push(text.len() as u8);
            octets.extend(text.as_bytes());
        }
    }
    octets
}

fn until_answered(connection: &mut TcpStream, stream: u32) -> Result<()> {
    let mut has_message = false;
    loop {
        let mut header = [0; 9];
        connection.read_exact(&mut header).context("an answer of GoBGP")?;
        let [a, b, c, kind, flags, ref number @ ..] = header;
        let length = u32::from_be_bytes([0, a, b, c]) as usize;
        ensure!(length <= LONGEST_FRAME, "a frame of {length} octets");
        let mut payload = vec![0; length];
        connection.read_exact(&mut payload)?;
        let is_ours = u32::from_be_bytes(*number) == stream;
        match kind {
            kind::DATA if is_ours => has_message |= !payload.is_empty(),
            kind::HEADERS if is_ours && flags & flag::END_STREAM != 0 => {
                ensure!(has_message, "GoBGP refuses: {}", String::from_utf8_lossy(&payload));
                return Ok(());
            }
            kind::SETTINGS if flags & flag::ACK == 0 => {
                connection.write_all(&frame(kind::SETTINGS, flag::ACK, 0, &[]))?;
            }
            kind::PING if flags & flag::ACK == 0 => {
                connection.write_all(&frame(kind::PING, flag::ACK, 0, &payload))?;
            }
            kind::RST_STREAM | kind::GOAWAY => bail!("GoBGP ends the call: {payload:?}"),
            // Windows, which we do not fill, and the beginning of an answer.
            _ => {}
        }
    }
}

/// A number of Protocol Buffers, in groups of seven bits.
fn number(mut value: u64) -> Vec<u8> {
    let mut octets = Vec::new();
    while value > 0x7f {
        octets.push(value as u8 | 0x80);
        value >>= 7;
    }
    octets.push(value as u8);
    octets
}

fn field(at: u64, value: &[u8]) -> Vec<u8> {
    [number(at << 3 | 2), number(value.len() as u64), value.to_vec()].concat()
}

fn field_of(at: u64, value: u64) -> Vec<u8> {
    [number(at << 3), number(value)].concat()
}

/// A message with its name.
fn any(name: &str, message: &[u8]) -> Vec<u8> {
    [field(1, format!("type.googleapis.com/apipb.{name}").as_bytes()), field(2, message)].concat()
}

/// A `Path` of GoBGP.
fn path(prefix: Prefix, is_withdrawal: bool) -> Vec<u8> {
    let (address, afi) = match prefix {
        Prefix::V4(prefix) => (prefix.address().to_string(), 1),
        Prefix::V6(prefix) => (prefix.address().to_string(), 2),
    };
    let family = [field_of(1, afi), field_of(2, 1)].concat();
    let nlri =
        any("IPAddressPrefix", &[field_of(1, prefix.length().into()), field(2, address.as_bytes())].concat());
    // Without an address of its own GoBGP puts that of the session.
    let next_hop = match prefix {
        Prefix::V4(_) => any("NextHopAttribute", &field(1, b"0.0.0.0")),
        Prefix::V6(_) => {
            any("MpReachNLRIAttribute", &[field(1, &family), field(2, b"::"), field(3, &nlri)].concat())
        }
    };
    let origin = any("OriginAttribute", &[]);
    let withdrawal = if is_withdrawal { field_of(5, 1) } else { Vec::new() };
    [field(1, &nlri), field(2, &origin), field(2, &next_hop), withdrawal, field(9, &family)].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_fields_are_as_protocol_buffers_have_them() {
        // The examples of the encoding's own page.
        assert_eq!(number(150), [0x96, 0x01]);
        assert_eq!(field_of(1, 150), [0x08, 0x96, 0x01]);
        assert_eq!(field(2, b"testing"), [b"\x12\x07", &b"testing"[..]].concat());
    }

    #[test]
    fn a_frame_has_its_length_kind_flags_and_stream() {
        assert_eq!(frame(kind::DATA, flag::END_STREAM, 3, b"ab"), [0, 0, 2, 0, 1, 0, 0, 0, 3, b'a', b'b']);
    }

    #[test]
    fn as_many_routes_as_a_call_has_fit_into_a_frame() {
        let longest = "2001:db9:ffff:ffff:ffff:ffff:ffff:ffff/128".parse().expect("a prefix");
        assert!(AT_ONCE * (path(longest, true).len() + 3) < LONGEST_FRAME);
    }
}

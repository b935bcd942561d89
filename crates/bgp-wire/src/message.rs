//! The message header and the framing of the stream (RFC 4271 sections 4.1 and 6.1, RFC 8654).

use crate::Notification;

/// Octets of the fixed header: marker, length, type.
pub const HEADER_LEN: usize = 19;
/// Longest message without the Extended Message capability, header included.
pub const MAX_LEN: usize = 4096;
/// Longest message with the Extended Message capability (RFC 8654).
pub const MAX_EXTENDED_LEN: usize = 65535;

const MARKER: [u8; 16] = [0xff; 16];

/// A whole KEEPALIVE.
pub const KEEPALIVE: [u8; HEADER_LEN] =
    [255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 0, 19, 4];

/// The type octet of the header.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub enum MessageType {
    /// RFC 4271 section 4.2.
    Open = 1,
    /// RFC 4271 section 4.3.
    Update,
    /// RFC 4271 section 4.5.
    Notification,
    /// RFC 4271 section 4.4.
    KeepAlive,
    /// RFC 2918.
    RouteRefresh,
}

impl MessageType {
    /// The type that an octet of a header means.
    pub fn from_octet(octet: u8) -> Option<Self> {
        Some(match octet {
            1 => Self::Open,
            2 => Self::Update,
            3 => Self::Notification,
            4 => Self::KeepAlive,
            5 => Self::RouteRefresh,
            _ => return None,
        })
    }

    /// The lengths that a message of this type may have, given the session's limit. A longer
    /// ROUTE-REFRESH passes here: [`crate::RouteRefresh::parse`] knows which error it is.
    fn allows(self, length: usize, max_len: usize) -> bool {
        match self {
            // RFC 8654 section 4: OPEN and KEEPALIVE are never extended.
            Self::Open => (29..=MAX_LEN).contains(&length),
            Self::Update => (23..=max_len).contains(&length),
            Self::Notification => (21..=max_len).contains(&length),
            Self::KeepAlive => length == HEADER_LEN,
            Self::RouteRefresh => (23..=max_len).contains(&length),
        }
    }
}

/// One framed message: its header is sound, its body not looked at.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Message<'a> {
    /// The type octet.
    pub kind: MessageType,
    /// What follows the header.
    pub body: &'a [u8],
    /// Header and body.
    pub wire: &'a [u8],
}

/// The first message of a buffer; `None` if more bytes are needed. `max_len` is [`MAX_LEN`] or, once both
/// sides have sent the Extended Message capability, [`MAX_EXTENDED_LEN`]: no more than that is ever waited for.
///
/// # Errors
/// What is wrong with the header (RFC 4271 section 6.1); the stream cannot be read on.
pub fn next_message(buffer: &[u8], max_len: usize) -> Result<Option<Message<'_>>, Notification> {
    let Some((header, _)) = buffer.split_first_chunk::<HEADER_LEN>() else { return Ok(None) };
    let (marker, rest) = header.split_at(MARKER.len());
    if marker != MARKER {
        return Err(Notification::connection_not_synchronized());
    }
    let length = u16::from_be_bytes([rest[0], rest[1]]);
    let bad_length = || Notification::bad_message_length(length);
    let len = usize::from(length);
    if len < HEADER_LEN || len > max_len {
        return Err(bad_length());
    }
    let kind = MessageType::from_octet(rest[2]).ok_or_else(|| Notification::bad_message_type(rest[2]))?;
    if !kind.allows(len, max_len) {
        return Err(bad_length());
    }
    let message = buffer.get(..len).map(|wire| Message { kind, body: &wire[HEADER_LEN..], wire });
    Ok(message)
}

/// Appends a header whose length [`finish`] fills in; returns where the message starts.
pub(crate) fn begin(out: &mut Vec<u8>, kind: MessageType) -> usize {
    let start = out.len();
    out.extend_from_slice(&MARKER);
    out.extend_from_slice(&[0, 0, kind as u8]);
    start
}

/// Writes the length of the message that began at `start` and ends with `out`: at most [`MAX_EXTENDED_LEN`].
pub(crate) fn finish(out: &mut [u8], start: usize) {
    let length = out.len() - start;
    debug_assert!(length <= MAX_EXTENDED_LEN);
    out[start + 16..start + 18].copy_from_slice(&(length as u16).to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(length: u16, kind: u8) -> Vec<u8> {
        let mut bytes = MARKER.to_vec();
        bytes.extend_from_slice(&length.to_be_bytes());
        bytes.push(kind);
        bytes
    }

    fn error(length: u16, kind: u8, max_len: usize) -> (u8, u8, Vec<u8>) {
        let error = next_message(&header(length, kind), max_len).expect_err("a bad header");
        (error.code, error.subcode, error.data)
    }

    #[test]
    fn lengths_are_checked_per_type_with_the_length_as_data() {
        let rows = [
            (18u16, 4, MAX_LEN),
            (20, 4, MAX_EXTENDED_LEN),
            (28, 1, MAX_LEN),
            (4097, 1, MAX_EXTENDED_LEN),
            (22, 2, MAX_LEN),
            (4097, 2, MAX_LEN),
            (20, 3, MAX_LEN),
            (22, 5, MAX_LEN),
        ];
        for (length, kind, max_len) in rows {
            let expected = (1, 2, length.to_be_bytes().to_vec());
            assert_eq!(error(length, kind, max_len), expected, "length {length} type {kind}");
        }
    }

    #[test]
    fn an_extended_update_passes_once_negotiated() {
        let mut bytes = header(4097, 2);
        assert_eq!(next_message(&bytes, MAX_EXTENDED_LEN), Ok(None));
        bytes.resize(4097, 0);
        let message = next_message(&bytes, MAX_EXTENDED_LEN).expect("sound").expect("whole");
        assert_eq!((message.kind, message.body.len()), (MessageType::Update, 4097 - HEADER_LEN));
    }

    #[test]
    fn an_unknown_type_and_a_broken_marker_are_named() {
        assert_eq!(error(19, 0, MAX_LEN), (1, 3, vec![0]));
        assert_eq!(error(19, 6, MAX_LEN), (1, 3, vec![6]));
        let mut bytes = KEEPALIVE;
        bytes[15] = 0xfe;
        let error = next_message(&bytes, MAX_LEN).expect_err("a broken marker");
        assert_eq!((error.code, error.subcode), (1, 1));
    }

    #[test]
    fn messages_come_out_of_a_stream_one_by_one() {
        let mut stream = KEEPALIVE.to_vec();
        stream.extend_from_slice(&KEEPALIVE[..10]);
        let first = next_message(&stream, MAX_LEN).expect("sound").expect("whole");
        assert_eq!((first.kind, first.wire), (MessageType::KeepAlive, &KEEPALIVE[..]));
        assert_eq!(next_message(&stream[first.wire.len()..], MAX_LEN), Ok(None));
    }
}

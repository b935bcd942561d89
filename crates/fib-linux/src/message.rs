//! Netlink messages: a writer of many into one buffer, and iterators over what was received.
//!
//! Layout (linux/netlink.h, host byte order, everything aligned to 4 octets):
//! `u32 length, u16 type, u16 flags, u32 sequence, u32 port`, a fixed header of the type, then attributes
//! `u16 length, u16 type, value`.

/// Message types.
pub(crate) mod kind {
    pub(crate) const ERROR: u16 = 2;
    pub(crate) const DONE: u16 = 3;
    pub(crate) const NEW_LINK: u16 = 16;
    pub(crate) const DEL_LINK: u16 = 17;
    pub(crate) const GET_LINK: u16 = 18;
    pub(crate) const NEW_ADDRESS: u16 = 20;
    pub(crate) const DEL_ADDRESS: u16 = 21;
    pub(crate) const GET_ADDRESS: u16 = 22;
    pub(crate) const NEW_ROUTE: u16 = 24;
    pub(crate) const DEL_ROUTE: u16 = 25;
    pub(crate) const GET_ROUTE: u16 = 26;
    pub(crate) const NEW_NEXTHOP: u16 = 104;
    pub(crate) const DEL_NEXTHOP: u16 = 105;
    pub(crate) const GET_NEXTHOP: u16 = 106;
}

/// Message flags.
pub(crate) mod flag {
    pub(crate) const REQUEST: u16 = 0x1;
    pub(crate) const ACK: u16 = 0x4;
    pub(crate) const DUMP_INTERRUPTED: u16 = 0x10;
    pub(crate) const REPLACE: u16 = 0x100;
    pub(crate) const EXCLUSIVE: u16 = 0x200;
    pub(crate) const DUMP: u16 = 0x300;
    pub(crate) const CREATE: u16 = 0x400;
    /// On an error: attributes follow.
    pub(crate) const ACK_TLVS: u16 = 0x200;
}

/// Address families.
pub(crate) const AF_UNSPEC: u8 = 0;
pub(crate) const AF_INET: u8 = 2;
pub(crate) const AF_INET6: u8 = 10;

/// Octets of the header.
pub(crate) const HEADER: usize = 16;

/// Requests one after the other, for one write to the socket.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    bytes: Vec<u8>,
    /// Where the last message begins.
    last: usize,
}

impl Batch {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Adds a message; `write` puts what follows the netlink header.
    pub(crate) fn message(
        &mut self,
        kind: u16,
        flags: u16,
        sequence: u32,
        write: impl FnOnce(&mut Body<'_>),
    ) {
        self.last = self.bytes.len();
        self.bytes.extend_from_slice(&[0; 4]);
        self.bytes.extend_from_slice(&kind.to_ne_bytes());
        self.bytes.extend_from_slice(&(flags | flag::REQUEST).to_ne_bytes());
        self.bytes.extend_from_slice(&sequence.to_ne_bytes());
        self.bytes.extend_from_slice(&[0; 4]);
        write(&mut Body(&mut self.bytes));
        let length = (self.bytes.len() - self.last) as u32;
        self.bytes[self.last..self.last + 4].copy_from_slice(&length.to_ne_bytes());
    }

    /// Has the kernel answer the last message also when it succeeds.
    pub(crate) fn acknowledge_last(&mut self) {
        let at = self.last + 6;
        if let Some(flags) = self.bytes.get_mut(at..at + 2) {
            flags.copy_from_slice(&(u16_at(flags, 0) | flag::ACK).to_ne_bytes());
        }
    }
}

/// The rest of a message that is being written.
pub(crate) struct Body<'a>(&'a mut Vec<u8>);

impl Body<'_> {
    /// The fixed header of the message type; its length is a multiple of 4.
    pub(crate) fn header(&mut self, bytes: &[u8]) {
        debug_assert!(bytes.len().is_multiple_of(4));
        self.0.extend_from_slice(bytes);
    }

    pub(crate) fn attribute(&mut self, kind: u16, value: &[u8]) {
        self.0.extend_from_slice(&((4 + value.len()) as u16).to_ne_bytes());
        self.0.extend_from_slice(&kind.to_ne_bytes());
        self.0.extend_from_slice(value);
        self.0.resize(self.0.len().next_multiple_of(4), 0);
    }

    pub(crate) fn attribute_u32(&mut self, kind: u16, value: u32) {
        self.attribute(kind, &value.to_ne_bytes());
    }
}

/// A received message.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) struct Message<'a> {
    pub(crate) kind: u16,
    pub(crate) flags: u16,
    pub(crate) sequence: u32,
    /// Whose request the message answers or follows from; 0 is the kernel.
    pub(crate) port: u32,
    /// After the netlink header.
    pub(crate) body: &'a [u8],
}

/// The messages of a datagram. Ends at the first that does not fit.
pub(crate) fn messages(mut datagram: &[u8]) -> impl Iterator<Item = Message<'_>> {
    std::iter::from_fn(move || {
        let length = u32::from_ne_bytes(*datagram.first_chunk()?) as usize;
        let message = datagram.get(..length).filter(|_| length >= HEADER)?;
        datagram = datagram.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some(Message {
            kind: u16_at(message, 4),
            flags: u16_at(message, 6),
            sequence: u32_at(message, 8),
            port: u32_at(message, 12),
            body: &message[HEADER..],
        })
    })
}

/// The attributes after a fixed header of `header` octets, as (type, value). Ends at the first that does
/// not fit.
pub(crate) fn attributes(body: &[u8], header: usize) -> impl Iterator<Item = (u16, &[u8])> {
    /// `NLA_F_NESTED` and `NLA_F_NET_BYTEORDER`: not part of the type.
    const FLAGS: u16 = 0xc000;
    let mut rest = body.get(header..).unwrap_or_default();
    std::iter::from_fn(move || {
        let length = usize::from(u16::from_ne_bytes(*rest.first_chunk()?));
        let attribute = rest.get(..length).filter(|_| length >= 4)?;
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some((u16_at(attribute, 2) & !FLAGS, &attribute[4..]))
    })
}

/// 0 when the bytes end before.
pub(crate) fn u16_at(bytes: &[u8], at: usize) -> u16 {
    bytes.get(at..).and_then(<[u8]>::first_chunk).map_or(0, |chunk| u16::from_ne_bytes(*chunk))
}

/// 0 when the bytes end before.
pub(crate) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..).and_then(<[u8]>::first_chunk).map_or(0, |chunk| u32::from_ne_bytes(*chunk))
}

/// 0 when the bytes end before.
pub(crate) fn u8_at(bytes: &[u8], at: usize) -> u8 {
    bytes.get(at).copied().unwrap_or(0)
}

/// An address of 4 or 16 octets.
pub(crate) fn address(value: &[u8]) -> Option<std::net::IpAddr> {
    match value.len() {
        4 => <[u8; 4]>::try_from(value).ok().map(Into::into),
        16 => <[u8; 16]>::try_from(value).ok().map(Into::into),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_again() {
        let mut batch = Batch::new();
        batch.message(kind::NEW_ROUTE, flag::CREATE, 7, |body| {
            body.header(&[1, 2, 3, 4]);
            body.attribute(9, b"abcde");
            body.attribute_u32(10, 0x0102_0304);
        });
        batch.message(kind::DEL_ROUTE, 0, 8, |body| body.header(&[0; 4]));
        batch.acknowledge_last();
        let read: Vec<_> = messages(batch.bytes()).collect();
        assert_eq!(read.len(), 2);
        assert_eq!((read[0].kind, read[0].flags, read[0].sequence), (24, 0x401, 7));
        assert_eq!((read[1].kind, read[1].flags, read[1].sequence), (25, 0x5, 8));
        let read: Vec<_> = attributes(read[0].body, 4).collect();
        assert_eq!(read, [(9, &b"abcde"[..]), (10, &0x0102_0304_u32.to_ne_bytes()[..])]);
    }

    #[test]
    fn lengths_that_do_not_fit_end_the_reading() {
        let mut batch = Batch::new();
        batch.message(kind::NEW_LINK, 0, 1, |body| body.attribute(3, b"eth0"));
        let whole = batch.bytes();
        for cut in 0..whole.len() {
            assert_eq!(messages(&whole[..cut]).count(), 0, "{cut}");
        }
        for length in [0, 1, 15, 4096] {
            let mut wrong = whole.to_vec();
            wrong[0..4].copy_from_slice(&u32::to_ne_bytes(length));
            assert_eq!(messages(&wrong).count(), 0, "{length}");
        }
        for length in [0, 3, 9, 4096] {
            let mut wrong = whole[HEADER..].to_vec();
            wrong[0..2].copy_from_slice(&u16::to_ne_bytes(length));
            assert_eq!(attributes(&wrong, 0).count(), 0, "{length}");
        }
    }
}

//! Control packets (RFC 5880 section 4.1), written here once more: every field may be wrong.

/// States, as packets have them.
pub const ADMIN_DOWN: u8 = 0;
/// No packets arrive.
pub const DOWN: u8 = 1;
/// Packets of the other end arrive.
pub const INIT: u8 = 2;
/// Packets arrive at both ends.
pub const UP: u8 = 3;

/// Bits of the second octet.
pub const POLL: u8 = 0x20;
/// The answer to Poll.
pub const FINAL: u8 = 0x10;
/// The sender's BFD goes on when its control plane does not.
pub const CONTROL_PLANE_INDEPENDENT: u8 = 0x08;
/// There is an authentication section.
pub const AUTHENTICATION: u8 = 0x04;
/// The sender wants no periodic packets.
pub const DEMAND: u8 = 0x02;
/// Reserved.
pub const MULTIPOINT: u8 = 0x01;

/// A packet.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Control {
    /// 1.
    pub version: u8,
    /// Why the state was changed last.
    pub diagnostic: u8,
    /// The sender's state.
    pub state: u8,
    /// Bits.
    pub flags: u8,
    /// Detect Mult.
    pub multiplier: u8,
    /// What the packet says of its length; `None`: the truth.
    pub length: Option<u8>,
    /// My Discriminator.
    pub mine: u32,
    /// Your Discriminator.
    pub yours: u32,
    /// Desired Min TX, Required Min RX, Required Min Echo RX, in microseconds.
    pub intervals: [u32; 3],
    /// What is behind the mandatory section.
    pub rest: Vec<u8>,
}

impl Control {
    /// A packet of a session that is Down, every 100 ms.
    pub fn new(mine: u32) -> Self {
        Self {
            version: 1,
            diagnostic: 0,
            state: DOWN,
            flags: 0,
            multiplier: 3,
            length: None,
            mine,
            yours: 0,
            intervals: [100_000, 100_000, 0],
            rest: Vec::new(),
        }
    }

    /// Its octets.
    pub fn octets(&self) -> Vec<u8> {
        let length = self.length.unwrap_or(24 + self.rest.len() as u8);
        let mut octets = vec![
            self.version << 5 | self.diagnostic & 31,
            self.state << 6 | self.flags & 63,
            self.multiplier,
            length,
        ];
        let words = [self.mine, self.yours].into_iter().chain(self.intervals);
        octets.extend(words.flat_map(u32::to_be_bytes));
        octets.extend(&self.rest);
        octets
    }

    /// Reads one.
    pub fn read(octets: &[u8]) -> Option<Self> {
        let (head, rest) = octets.split_first_chunk::<24>()?;
        let word = |at: usize| u32::from_be_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        Some(Self {
            version: head[0] >> 5,
            diagnostic: head[0] & 31,
            state: head[1] >> 6,
            flags: head[1] & 63,
            multiplier: head[2],
            length: Some(head[3]),
            mine: word(4),
            yours: word(8),
            intervals: [word(12), word(16), word(20)],
            rest: rest.to_vec(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packet_is_read_as_it_was_written() {
        let written = Control {
            diagnostic: 7,
            state: UP,
            flags: FINAL,
            yours: 9,
            length: Some(27),
            rest: vec![1, 2, 3],
            ..Control::new(0x01020304)
        };
        let octets = written.octets();
        assert_eq!(octets[..8], [0x27, 0xd0, 3, 27, 1, 2, 3, 4]);
        assert_eq!(Control::read(&octets), Some(written));
        assert_eq!(Control::read(&octets[..23]), None);
    }
}

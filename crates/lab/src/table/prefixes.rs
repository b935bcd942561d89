//! Prefixes in allocation blocks, with the lengths of the Internet's tables.

use std::collections::HashSet;

use holdfast_types::{IpPrefix, Ipv4Prefix, Ipv6Prefix, Prefix};

use super::random::Random;

/// Weights of lengths in the IPv4 table of June 2026.
const IPV4_LENGTHS: [(u32, u8); 17] = [
    (6000, 24),
    (960, 23),
    (1080, 22),
    (500, 21),
    (460, 20),
    (270, 19),
    (150, 18),
    (90, 17),
    (140, 16),
    (22, 15),
    (13, 14),
    (6, 13),
    (4, 12),
    (2, 11),
    (1, 10),
    (1, 9),
    (1, 8),
];

/// Weights of lengths in the IPv6 table of June 2026.
const IPV6_LENGTHS: [(u32, u8); 18] = [
    (4700, 48),
    (1150, 32),
    (1050, 44),
    (650, 40),
    (450, 36),
    (350, 46),
    (420, 47),
    (240, 33),
    (240, 29),
    (220, 42),
    (170, 45),
    (130, 34),
    (110, 38),
    (70, 35),
    (60, 30),
    (50, 31),
    (30, 28),
    (15, 24),
];

/// Draws prefixes of one family, none twice.
#[derive(Debug)]
pub(crate) struct Prefixes<P> {
    seen: HashSet<P>,
    /// The present allocation.
    block: P,
    /// Last address of the prefix drawn last.
    last: u128,
    /// Prefixes still to be drawn from it.
    left: u32,
}

/// What differs between the families.
pub(crate) trait Space: IpPrefix {
    const LENGTHS: &'static [(u32, u8)];
    /// Bits of an allocation; longer prefixes are drawn from inside the present one.
    const ALLOCATION: u8;
    /// An allocation that may be announced.
    fn allocation(random: &mut Random) -> u128;
    /// Whether a prefix shorter than an allocation lies where it may be announced.
    fn usable(self) -> bool;
}

impl Space for Ipv4Prefix {
    const LENGTHS: &'static [(u32, u8)] = &IPV4_LENGTHS;
    const ALLOCATION: u8 = 17;

    fn allocation(random: &mut Random) -> u128 {
        u128::from(random.bits() >> 32) << 96
    }

    /// Unicast, without the blocks of RFC 6890 and without the 10/8 and 198.18/15 that laboratories use.
    fn usable(self) -> bool {
        let special = [(0, 8), (0x0a, 8), (0x7f, 8)].map(|(bits, len)| Self::from_bits(bits << 120, len));
        let longer = [
            (0x6440, 10),
            (0xa9fe, 16),
            (0xac10, 12),
            (0xc000, 16),
            (0xc0a8, 16),
            (0xc612, 15),
            (0xc633, 16),
            (0xcb00, 16),
        ]
        .map(|(bits, len)| Self::from_bits(bits << 112, len));
        let unicast = self.bits() >> 120 < 224;
        unicast && !special.iter().chain(&longer).any(|block| block.contains(self) || self.contains(*block))
    }
}

impl Space for Ipv6Prefix {
    const LENGTHS: &'static [(u32, u8)] = &IPV6_LENGTHS;
    const ALLOCATION: u8 = 32;

    /// Inside the blocks that registries allocate from.
    fn allocation(random: &mut Random) -> u128 {
        let registry = random.weighted(&[
            (10, 0x2001_u128),
            (25, 0x2400),
            (20, 0x2600),
            (15, 0x2800),
            (25, 0x2a00),
            (5, 0x2c00),
        ]);
        let spread = if registry == 0x2001 { 0 } else { u128::from(random.below(16)) };
        (registry + spread) << 112 | u128::from(random.below(0x10000)) << 96
    }

    /// Not Teredo, documentation and others of 2001::/23 and 2001:db8::/32.
    fn usable(self) -> bool {
        let special =
            [(0x2001_0000, 23), (0x2001_0db8, 32)].map(|(bits, len)| Self::from_bits(bits << 96, len));
        !special.iter().any(|block| block.contains(self) || self.contains(*block))
    }
}

impl<P: Space> Prefixes<P> {
    pub(crate) fn new() -> Self {
        Self { seen: HashSet::new(), block: P::from_bits(0, P::ALLOCATION), last: 0, left: 0 }
    }

    /// A prefix not drawn before: near the last one, or in another allocation.
    pub(crate) fn draw(&mut self, random: &mut Random) -> Prefix {
        loop {
            if self.left == 0 {
                self.block = P::from_bits(P::allocation(random), P::ALLOCATION);
                self.last = self.block.bits();
                let most = random.weighted(&[(12, 2), (6, 12), (2, 240)]);
                self.left = 1 + random.below(most);
            }
            self.left -= 1;
            let prefix = self.candidate(random);
            if prefix.usable() && self.seen.insert(prefix) {
                return prefix.into();
            }
        }
    }

    fn candidate(&mut self, random: &mut Random) -> P {
        let length = random.weighted(P::LENGTHS);
        let near = P::from_bits(self.following(random, length), length);
        let prefix = if length <= P::ALLOCATION {
            P::from_bits(self.block.bits(), length)
        } else if self.block.contains(near) && random.chance(8_500) {
            near
        } else {
            let inside = u128::from(random.bits()) << 64 >> P::ALLOCATION;
            P::from_bits(self.block.bits() | inside, length)
        };
        self.last = prefix.bits() | u128::MAX >> length;
        prefix
    }

    /// Networks number their subnets in sequence, with gaps: an address a little after the last one.
    fn following(&self, random: &mut Random, length: u8) -> u128 {
        let gap = random.weighted(&[(6, 0), (2, 1), (1, 3), (1, 7)]);
        self.last.saturating_add(1).saturating_add(gap << (128 - length))
    }
}

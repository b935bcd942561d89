//! Where a prefix lives: in which block, and at which position of it.
//!
//! A block of level k stands for the first 8k bits of addresses and holds the prefixes of 8k+1 to 8k+8 bits
//! below them (level 0 also the default route). Inside a block the position of a prefix is its number in a
//! walk of the complete binary tree, parents before children, so positions are in address order:
//!
//! ```text
//! length  bits     position
//! 0       -        0          the default route
//! 1       0        1
//! 2       00       2
//! …
//! 8       00000000 8
//! 8       00000001 9
//! 7       0000001  10
//! …
//! 8       11111111 510
//! ```
//!
//! What a block lists is *marks*: twice the position, plus one for the block that lies below a prefix of eight
//! bits. A mark of a child therefore follows that of the prefix itself and precedes all that comes after.

use holdfast_types::IpPrefix;

/// The bits that all prefixes of a block begin with.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct Region {
    /// Number of bytes: 0 to 15.
    pub(crate) level: u8,
    /// The bytes, left-aligned; zero after them.
    pub(crate) bits: u128,
}

impl Region {
    /// The region of the first `level` bytes of an address.
    #[inline]
    pub(crate) fn of(bits: u128, level: u8) -> Self {
        Self { level, bits: bits & MASKS[usize::from(level)] }
    }

    /// The enclosing region of a lower level.
    #[inline]
    pub(crate) fn enclosing(self, level: u8) -> Self {
        Self::of(self.bits, level)
    }

    /// Whether `other` is this region or a part of it.
    #[inline]
    pub(crate) fn contains(self, other: Self) -> bool {
        self.level <= other.level && other.enclosing(self.level) == self
    }

    /// The largest level at which both lie in the same region.
    #[inline]
    pub(crate) fn common_level(self, other: Self) -> u8 {
        let equal_bytes = ((self.bits ^ other.bits).leading_zeros() / 8) as u8;
        equal_bytes.min(self.level).min(other.level)
    }

    /// In a block of `level`, the mark under which this region (of a higher level) is found.
    #[inline]
    pub(crate) fn mark_in(self, level: u8) -> u16 {
        2 * position(8, byte(self.bits, level)) + 1
    }
}

/// The bits of a region by level: a load is cheaper than a shift of 128 bits.
static MASKS: [u128; 16] = {
    let mut masks = [0; 16];
    let mut level = 1;
    while level < 16 {
        masks[level] = u128::MAX << (128 - 8 * level);
        level += 1;
    }
    masks
};

/// The byte of an address that decides in a block of this level.
#[inline]
fn byte(bits: u128, level: u8) -> u8 {
    (bits >> (120 - 8 * u32::from(level))) as u8
}

/// The place of a prefix.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Place {
    pub(crate) region: Region,
    /// The mark in the region's block.
    pub(crate) mark: u16,
}

impl Place {
    #[inline]
    pub(crate) fn of<P: IpPrefix>(prefix: P) -> Self {
        let length = prefix.length();
        let level = length.saturating_sub(1) / 8;
        let mark = mark_of_length(prefix.bits(), level, length - 8 * level);
        Self { region: Region::of(prefix.bits(), level), mark }
    }
}

/// The mark in a block of `level` of the prefix that takes `length` (0 to 8) more bits of the address.
#[inline]
pub(crate) fn mark_of_length(bits: u128, level: u8, length: u8) -> u16 {
    mark_of(byte(bits, level), length)
}

/// The same of the byte that decides.
#[inline]
pub(crate) fn mark_of(byte: u8, length: u8) -> u16 {
    let value = u16::from(byte) >> (8 - length);
    2 * position(length, value as u8)
}

/// How many bits the node that a mark is of, or is below, has in common with a byte.
#[inline]
pub(crate) fn common_length(mark: u16, byte: u8) -> u8 {
    let (length, bits) = NODES[usize::from(mark / 2)];
    length.min((bits ^ byte).leading_zeros() as u8)
}

/// The byte that decides in a block of this level, and how many bits of it a prefix of this length has.
#[inline]
pub(crate) fn byte_and_length(bits: u128, length: u8, level: u8) -> (u8, u8) {
    (byte(bits, level), (length - 8 * level).min(8))
}

/// Number in the walk of the prefix with `length` bits `value`: the length for the ancestors and itself, and
/// all complete subtrees to the left.
#[inline]
const fn position(length: u8, value: u8) -> u16 {
    length as u16 + ((value as u16) << (9 - length)) - value.count_ones() as u16
}

/// Whether a mark stands for a block below rather than for a prefix.
#[inline]
pub(crate) fn is_child(mark: u16) -> bool {
    mark & 1 == 1
}

/// The prefix for which a mark stands.
#[inline]
pub(crate) fn prefix_at<P: IpPrefix>(region: Region, mark: u16) -> P {
    let (length, byte) = NODES[usize::from(mark / 2)];
    let shift = 120 - 8 * u32::from(region.level);
    P::from_bits(region.bits | u128::from(byte) << shift, 8 * region.level + length)
}

/// Length and left-aligned bits by position.
static NODES: [(u8, u8); 511] = nodes();

const fn nodes() -> [(u8, u8); 511] {
    let mut nodes = [(0, 0); 511];
    let mut length = 1;
    while length <= 8 {
        let mut value: u16 = 0;
        while value < 1 << length {
            nodes[position(length, value as u8) as usize] = (length, (value << (8 - length)) as u8);
            value += 1;
        }
        length += 1;
    }
    nodes
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_types::{Ipv4Prefix, Ipv6Prefix};

    fn round_trip<P: IpPrefix>(prefix: P) {
        let place = Place::of(prefix);
        assert_eq!(prefix_at::<P>(place.region, place.mark), prefix);
        assert!(!is_child(place.mark));
    }

    #[test]
    fn every_length_has_a_place_from_which_the_prefix_is_found_again() {
        for length in 0..=32 {
            round_trip(Ipv4Prefix::from_bits(0xC633_64A5 << 96, length));
        }
        for length in 0..=128 {
            round_trip(Ipv6Prefix::from_bits(0x2001_0db8_ffff_0000_1234_5678_9abc_def0, length));
        }
    }

    #[test]
    fn marks_of_a_block_are_in_address_order_without_gaps() {
        let mut all = Vec::new();
        for length in 1..=8 {
            all.extend(
                (0..1 << length).map(|v| Ipv4Prefix::from_bits(v << (128 - u32::from(length)), length)),
            );
        }
        all.sort();
        let marks: Vec<u16> = all.iter().map(|prefix| Place::of(*prefix).mark).collect();
        assert_eq!(marks, (1..=510).map(|position| 2 * position).collect::<Vec<u16>>());
    }

    #[test]
    fn a_child_comes_right_after_its_prefix() {
        let prefix: Ipv4Prefix = "10.1.0.0/16".parse().expect("a prefix");
        let below: Ipv4Prefix = "10.1.2.0/24".parse().expect("a prefix");
        let (prefix, below) = (Place::of(prefix), Place::of(below));
        assert_eq!(below.region.mark_in(1), prefix.mark + 1);
        assert!(prefix.region.contains(below.region) && !below.region.contains(prefix.region));
        assert_eq!(prefix.region.common_level(below.region), 1);
    }
}

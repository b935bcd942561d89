//! Sets of prefixes, each with the lengths it stands for.

use std::{fmt, ops::Range, str::FromStr};

use holdfast_types::{Afi, IpPrefix, Ipv4Prefix, Ipv6Prefix, ParsePrefixError, Prefix};

use crate::text::as_text;

/// A prefix and which lengths inside it are meant. Written `10.0.0.0/8` (just this one),
/// `10.0.0.0/8 le 24` (this one and its parts up to /24), `10.0.0.0/8 ge 16 le 24`,
/// `10.0.0.0/8 ge 24` (its parts of /24 and longer).
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub struct PrefixRange {
    prefix: Prefix,
    shortest: u8,
    longest: u8,
}

impl PrefixRange {
    /// `None` unless `prefix length <= shortest <= longest <= address width`.
    pub fn new(prefix: Prefix, shortest: u8, longest: u8) -> Option<Self> {
        let ordered = prefix.length() <= shortest && shortest <= longest && longest <= width(prefix);
        ordered.then_some(Self { prefix, shortest, longest })
    }

    /// Just this prefix.
    pub fn exactly(prefix: Prefix) -> Self {
        Self { prefix, shortest: prefix.length(), longest: prefix.length() }
    }

    /// The prefix and everything inside it.
    pub fn or_longer(prefix: Prefix) -> Self {
        Self { prefix, shortest: prefix.length(), longest: width(prefix) }
    }

    /// The prefix without its lengths.
    pub fn prefix(self) -> Prefix {
        self.prefix
    }

    /// The least and the greatest length that are meant.
    pub fn lengths(self) -> (u8, u8) {
        (self.shortest, self.longest)
    }

    /// Whether `prefix` is one of those that are meant.
    pub fn contains(self, prefix: Prefix) -> bool {
        self.prefix.contains(prefix) && (self.shortest..=self.longest).contains(&prefix.length())
    }
}

fn width(prefix: Prefix) -> u8 {
    match prefix {
        Prefix::V4(_) => Ipv4Prefix::WIDTH,
        Prefix::V6(_) => Ipv6Prefix::WIDTH,
    }
}

impl fmt::Display for PrefixRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.prefix.fmt(f)?;
        if self.shortest != self.prefix.length() {
            write!(f, " ge {}", self.shortest)?;
        }
        if self.longest != self.shortest || self.shortest != self.prefix.length() {
            write!(f, " le {}", self.longest)?;
        }
        Ok(())
    }
}

/// Why a text is no prefix range.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParsePrefixRangeError {
    /// The prefix is none.
    #[error(transparent)]
    Prefix(#[from] ParsePrefixError),
    /// What follows the prefix is not `ge LENGTH` or `le LENGTH`.
    #[error("`{0}` is no prefix with lengths: expected as in `10.0.0.0/8 ge 16 le 24`")]
    Syntax(String),
    /// The lengths are not in order.
    #[error("`{0}`: lengths must rise from the prefix's own over ge and le to the address's width")]
    Order(String),
}

impl FromStr for PrefixRange {
    type Err = ParsePrefixRangeError;

    fn from_str(text: &str) -> Result<Self, ParsePrefixRangeError> {
        let syntax = || ParsePrefixRangeError::Syntax(text.to_owned());
        let mut words = text.split_ascii_whitespace();
        let prefix: Prefix = words.next().ok_or_else(syntax)?.parse()?;
        let (mut ge, mut le) = (None, None);
        while let Some(word) = words.next() {
            let bound = match word {
                "ge" => &mut ge,
                "le" => &mut le,
                _ => return Err(syntax()),
            };
            let length: Option<u8> = words.next().and_then(|word| word.parse().ok());
            if bound.replace(length.ok_or_else(syntax)?).is_some() {
                return Err(syntax());
            }
        }
        let longest = le.unwrap_or(ge.map_or(prefix.length(), |_| width(prefix)));
        Self::new(prefix, ge.unwrap_or(prefix.length()), longest)
            .ok_or_else(|| ParsePrefixRangeError::Order(text.to_owned()))
    }
}

as_text!(PrefixRange);

/// A compiled set: a question costs a search among a handful of entries, whatever their number.
///
/// Prefixes nest or are disjoint, and a range asks for no length shorter than its own prefix. So whether
/// a prefix is in the set depends only on the interval between two entries' borders that its address
/// falls into, and on its length: each interval carries the lengths that are in the set as a bit mask.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct PrefixMatcher {
    v4: Intervals<u32>,
    v6: Intervals<u128>,
}

/// Intervals of one family's addresses. Bit `n - 1` of a mask is length `n`; K serves as both, for an
/// address has as many bits as a prefix has lengths above 0.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct Intervals<K> {
    /// First address of each interval, ascending; the last one ends with the address space.
    starts: Box<[K]>,
    masks: Box<[K]>,
    index: Index,
    /// Whether the prefix of length 0 is in the set.
    default_route: bool,
}

impl FromIterator<PrefixRange> for PrefixMatcher {
    fn from_iter<I: IntoIterator<Item = PrefixRange>>(ranges: I) -> Self {
        let (v4, v6): (Vec<_>, Vec<_>) =
            ranges.into_iter().partition(|range| range.prefix.afi() == Afi::IPV4);
        Self { v4: intervals(v4, |bits| (bits >> 96) as u32), v6: intervals(v6, |bits| bits) }
    }
}

/// Builds the intervals; `narrow` takes an address left-aligned in 128 bits to the key. Masks are made
/// left-aligned the same way: bit `127 - (WIDTH - n)` is length `n`.
fn intervals<K: Copy + Into<u128>>(mut ranges: Vec<PrefixRange>, narrow: impl Fn(u128) -> K) -> Intervals<K> {
    ranges.sort_unstable_by_key(|range| range.prefix);
    let mut borders: Vec<(u128, u128)> = Vec::new();
    let mut enclosing: Vec<(u128, u128)> = Vec::new();
    for range in &ranges {
        let (first, last) = bounds(range.prefix);
        close(&mut enclosing, &mut borders, Some(first));
        let mask = lengths(range) | enclosing.last().map_or(0, |&(_, mask)| mask);
        enclosing.push((last, mask));
        border(&mut borders, first, mask);
    }
    close(&mut enclosing, &mut borders, None);
    let starts: Box<[K]> = borders.iter().map(|&(start, _)| narrow(start)).collect();
    Intervals {
        index: Index::new(&starts),
        starts,
        masks: borders.iter().map(|&(_, mask)| narrow(mask)).collect(),
        default_route: ranges.iter().any(|range| range.shortest == 0),
    }
}

/// Ends the enclosing prefixes that lie wholly before `next`, or all of them.
fn close(enclosing: &mut Vec<(u128, u128)>, borders: &mut Vec<(u128, u128)>, next: Option<u128>) {
    while let Some((last, _)) = enclosing.pop_if(|(last, _)| next.is_none_or(|next| *last < next)) {
        let mask = enclosing.last().map_or(0, |&(_, mask)| mask);
        if let Some(start) = last.checked_add(1) {
            border(borders, start, mask);
        }
    }
}

/// Starts an interval; the latest word about an address counts.
fn border(borders: &mut Vec<(u128, u128)>, start: u128, mask: u128) {
    borders.pop_if(|(last, _)| *last == start);
    if borders.last().map_or(0, |&(_, before)| before) != mask {
        borders.push((start, mask));
    }
}

/// First and last address, left-aligned.
fn bounds(prefix: Prefix) -> (u128, u128) {
    let (bits, length) = match prefix {
        Prefix::V4(prefix) => (prefix.bits(), prefix.length()),
        Prefix::V6(prefix) => (prefix.bits(), prefix.length()),
    };
    (bits, bits | u128::MAX.checked_shr(u32::from(length)).unwrap_or(0))
}

/// The lengths of a range as a left-aligned mask; length 0 has no bit.
fn lengths(range: &PrefixRange) -> u128 {
    let aligned = 128 - u32::from(width(range.prefix));
    let below = |length: u8| match length {
        0 => 0,
        length => u128::MAX >> (128 - u32::from(length)),
    };
    let mask = below(range.longest) & !below(range.shortest.saturating_sub(1));
    mask << aligned
}

impl PrefixMatcher {
    #[inline]
    pub(crate) fn contains(&self, prefix: Prefix) -> bool {
        match prefix {
            Prefix::V4(prefix) => {
                let mask = self.v4.mask((prefix.bits() >> 96) as u32).unwrap_or(0);
                in_mask(u128::from(mask), prefix.length(), self.v4.default_route)
            }
            Prefix::V6(prefix) => {
                let mask = self.v6.mask(prefix.bits()).unwrap_or(0);
                in_mask(mask, prefix.length(), self.v6.default_route)
            }
        }
    }
}

impl<K: Copy + Ord + Into<u128>> Intervals<K> {
    #[inline]
    fn mask(&self, address: K) -> Option<K> {
        let near = self.index.near(address.into(), self.starts.len());
        let after = near.start + self.starts[near].partition_point(|start| *start <= address);
        after.checked_sub(1).map(|at| self.masks[at])
    }
}

/// Cuts the way of a search short: the addresses from the first start to the last are divided evenly,
/// with about one part for each interval. Twice as many are hardly faster, and a large set's index would be larger than
/// its starts.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct Index {
    first: u128,
    shift: u32,
    /// How many starts lie before each part.
    before: Box<[u32]>,
}

impl Index {
    /// More parts would not stay in a cache.
    const MOST_PARTS: usize = 1 << 16;

    fn new<K: Copy + Into<u128>>(starts: &[K]) -> Self {
        let (Some(&first), Some(&last)) = (starts.first(), starts.last()) else { return Self::default() };
        let (first, span) = (first.into(), last.into() - first.into());
        let parts = starts.len().next_power_of_two().min(Self::MOST_PARTS);
        let shift = (128 - span.leading_zeros()).saturating_sub(parts.ilog2());
        let part = |start: K| (start.into() - first) >> shift;
        let before = (0..=span >> shift).map(|i| starts.partition_point(|&start| part(start) < i) as u32);
        Self { first, shift, before: before.collect() }
    }

    /// Where in `len` starts the first one after the address is.
    #[inline]
    fn near(&self, address: u128, len: usize) -> Range<usize> {
        let Some(offset) = address.checked_sub(self.first) else { return 0..0 };
        let part = usize::try_from(offset >> self.shift).unwrap_or(usize::MAX);
        match self.before.get(part) {
            Some(&before) => {
                let end = self.before.get(part + 1).map_or(len, |&next| next as usize);
                before as usize..end
            }
            None => len..len,
        }
    }
}

fn in_mask(mask: u128, length: u8, default_route: bool) -> bool {
    match length {
        0 => default_route,
        length => mask >> (length - 1) & 1 == 1,
    }
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

    use proptest::prelude::*;

    use super::*;

    fn range(text: &str) -> PrefixRange {
        text.parse().expect("a range")
    }

    #[test]
    fn ranges_are_printed_as_they_are_read() {
        for text in
            ["10.0.0.0/8", "10.0.0.0/8 le 24", "10.0.0.0/8 ge 16 le 24", "::/0 le 128", "::/0 ge 8 le 8"]
        {
            assert_eq!(range(text).to_string(), text);
        }
        assert_eq!(range("10.0.0.0/8 ge 24").to_string(), "10.0.0.0/8 ge 24 le 32");
        assert_eq!(range(" 10.0.0.0/8  le 9 "), range("10.0.0.0/8 le 9"));
    }

    #[test]
    fn bad_ranges_say_what_is_wrong() {
        use ParsePrefixRangeError::{Order, Prefix, Syntax};
        for text in ["10.0.0.0/8 ge", "10.0.0.0/8 lt 9", "10.0.0.0/8 le 9 le 9", "10.0.0.0/8 ge -1", ""] {
            assert!(matches!(text.parse::<PrefixRange>(), Err(Syntax(_))), "{text}");
        }
        for text in ["10.0.0.0/8 ge 7", "10.0.0.0/8 le 33", "10.0.0.0/8 ge 24 le 16"] {
            assert!(matches!(text.parse::<PrefixRange>(), Err(Order(_))), "{text}");
        }
        assert!(matches!("10.1.0.0/8 le 9".parse::<PrefixRange>(), Err(Prefix(_))));
    }

    #[test]
    fn the_default_route_and_the_last_address_are_ordinary_members() {
        let set: PrefixMatcher =
            ["0.0.0.0/0", "255.255.255.255/32", "::/0 ge 128"].map(range).into_iter().collect();
        for text in ["0.0.0.0/0", "255.255.255.255/32", "::1/128"] {
            assert!(set.contains(text.parse().expect("a prefix")), "{text}");
        }
        for text in ["0.0.0.0/1", "255.255.255.254/32", "::/0", "::/127"] {
            assert!(!set.contains(text.parse().expect("a prefix")), "{text}");
        }
    }

    /// Few distinct bits, so that prefixes nest and touch.
    fn prefix() -> impl Strategy<Value = Prefix> {
        let v4 = (0u32..8, 0u8..=32).prop_map(|(bits, length)| {
            Prefix::new(IpAddr::V4(Ipv4Addr::from_bits((bits << 29) | bits)), length)
        });
        let v6 = (0u128..8, 0u8..=128).prop_map(|(bits, length)| {
            Prefix::new(IpAddr::V6(Ipv6Addr::from_bits((bits << 125) | bits)), length)
        });
        prop_oneof![v4, v6].prop_map(|prefix| prefix.expect("length fits"))
    }

    fn any_range() -> impl Strategy<Value = PrefixRange> {
        (prefix(), 0u8..=128, 0u8..=128).prop_map(|(prefix, shortest, longest)| {
            let shortest = shortest.clamp(prefix.length(), width(prefix));
            PrefixRange::new(prefix, shortest, longest.clamp(shortest, width(prefix))).expect("ordered")
        })
    }

    proptest! {
        #![proptest_config(holdfast_testing::cases(4096))]

        #[test]
        fn a_set_holds_what_one_of_its_ranges_holds(
            ranges in prop::collection::vec(any_range(), 0..12),
            prefix in prefix(),
        ) {
            let set: PrefixMatcher = ranges.iter().copied().collect();
            prop_assert_eq!(set.contains(prefix), ranges.iter().any(|range| range.contains(prefix)));
        }

        #[test]
        fn every_range_survives_its_text(range in any_range()) {
            prop_assert_eq!(range.to_string().parse(), Ok(range));
        }
    }
}

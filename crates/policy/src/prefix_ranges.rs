//! Many prefix ranges in little memory.

use std::{fmt, net::IpAddr};

use holdfast_types::{Afi, Prefix};
use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{SeqAccess, Visitor},
};

use crate::PrefixRange;

/// Added to the length of a prefix of IPv6, in the first octet of an entry.
const V6: u8 = 64;

/// Prefix ranges in the order in which they were written. In memory, and where it [travels](Self::octets), an entry has the
/// length of the prefix, the shortest and the longest length, and the octets of the address that the length covers: 6 octets
/// for a /24.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct PrefixRanges {
    octets: Vec<u8>,
    count: usize,
}

impl PrefixRanges {
    /// How many.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Adds one behind the others.
    pub fn push(&mut self, range: PrefixRange) {
        let (prefix, (shortest, longest)) = (range.prefix(), range.lengths());
        let length = prefix.length();
        let head = if prefix.afi() == Afi::IPV4 { length } else { V6 + length };
        self.octets.extend([head, shortest, longest]);
        let covered = usize::from(length.div_ceil(8));
        match prefix.address() {
            IpAddr::V4(address) => self.octets.extend(&address.octets()[..covered]),
            IpAddr::V6(address) => self.octets.extend(&address.octets()[..covered]),
        }
        self.count += 1;
    }

    /// One after the other.
    pub fn iter(&self) -> Iter<'_> {
        Iter(&self.octets)
    }

    /// All of them as octets.
    pub fn octets(&self) -> &[u8] {
        &self.octets
    }

    /// Reads [octets](Self::octets); `None` if they are no such entries.
    pub fn from_octets(octets: Vec<u8>) -> Option<Self> {
        let (mut rest, mut count) = (&*octets, 0);
        while !rest.is_empty() {
            rest = split(rest)?.1;
            count += 1;
        }
        Some(Self { octets, count })
    }

    /// Gives back the memory that further entries would take.
    pub fn shrink(&mut self) {
        self.octets.shrink_to_fit();
    }
}

/// The first entry, and what follows.
fn split(octets: &[u8]) -> Option<(PrefixRange, &[u8])> {
    let (&[head, shortest, longest], rest) = octets.split_first_chunk()?;
    let (length, is_v6) = if head >= V6 { (head - V6, true) } else { (head, false) };
    let (covered, rest) = rest.split_at_checked(length.div_ceil(8).into())?;
    let mut address = [0; 16];
    address.get_mut(..covered.len())?.copy_from_slice(covered);
    let address = match is_v6 {
        true => IpAddr::from(address),
        false => IpAddr::from([address[0], address[1], address[2], address[3]]),
    };
    Some((PrefixRange::new(Prefix::new(address, length)?, shortest, longest)?, rest))
}

/// The ranges one after the other.
#[derive(Clone, Debug)]
pub struct Iter<'a>(&'a [u8]);

impl Iterator for Iter<'_> {
    type Item = PrefixRange;

    fn next(&mut self) -> Option<PrefixRange> {
        let (range, rest) = split(self.0)?;
        self.0 = rest;
        Some(range)
    }
}

impl<'a> IntoIterator for &'a PrefixRanges {
    type Item = PrefixRange;
    type IntoIter = Iter<'a>;

    fn into_iter(self) -> Iter<'a> {
        self.iter()
    }
}

impl FromIterator<PrefixRange> for PrefixRanges {
    fn from_iter<I: IntoIterator<Item = PrefixRange>>(ranges: I) -> Self {
        let mut all = Self::default();
        ranges.into_iter().for_each(|range| all.push(range));
        all.shrink();
        all
    }
}

impl fmt::Debug for PrefixRanges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self).finish()
    }
}

impl Serialize for PrefixRanges {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_seq(self)
    }
}

impl<'de> Deserialize<'de> for PrefixRanges {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Reader;

        impl<'de> Visitor<'de> for Reader {
            type Value = PrefixRanges;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list of prefixes")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<PrefixRanges, A::Error> {
                let mut all = PrefixRanges::default();
                while let Some(range) = list.next_element()? {
                    all.push(range);
                }
                all.shrink();
                Ok(all)
            }
        }

        from.deserialize_seq(Reader)
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr};

    use holdfast_types::{IpPrefix, Ipv4Prefix, Ipv6Prefix};
    use proptest::prelude::*;

    use super::*;

    fn range() -> impl Strategy<Value = PrefixRange> {
        let v4 = (any::<u32>(), 0..=Ipv4Prefix::WIDTH).prop_filter_map("a prefix", |(bits, length)| {
            Prefix::new(IpAddr::V4(Ipv4Addr::from_bits(bits)), length)
        });
        let v6 = (any::<u128>(), 0..=Ipv6Prefix::WIDTH).prop_filter_map("a prefix", |(bits, length)| {
            Prefix::new(IpAddr::V6(Ipv6Addr::from_bits(bits)), length)
        });
        let lengths = (any::<u8>(), any::<u8>());
        (prop_oneof![v4, v6], lengths).prop_map(|(prefix, (one, other))| {
            let longest = if prefix.afi() == Afi::IPV4 { Ipv4Prefix::WIDTH } else { Ipv6Prefix::WIDTH };
            let within = |length: u8| length.clamp(prefix.length(), longest);
            PrefixRange::new(prefix, within(one.min(other)), within(one.max(other))).expect("in order")
        })
    }

    proptest! {
        #![proptest_config(holdfast_testing::cases(256))]

        #[test]
        fn ranges_come_out_as_they_went_in(ranges in proptest::collection::vec(range(), 0..50)) {
            let all: PrefixRanges = ranges.iter().copied().collect();
            prop_assert_eq!(all.iter().collect::<Vec<_>>(), ranges.clone());
            prop_assert_eq!((all.len(), all.is_empty()), (ranges.len(), ranges.is_empty()));
            prop_assert_eq!(PrefixRanges::from_octets(all.octets().to_vec()), Some(all.clone()));
            let json = serde_json::to_string(&all).expect("JSON");
            prop_assert_eq!(&json, &serde_json::to_string(&ranges).expect("JSON"));
            prop_assert_eq!(serde_json::from_str::<PrefixRanges>(&json).expect("read"), all);
        }

        #[test]
        fn any_octets_are_ranges_or_none(octets in proptest::collection::vec(any::<u8>(), 0..60)) {
            if let Some(all) = PrefixRanges::from_octets(octets) {
                prop_assert_eq!(all.iter().count(), all.len());
            }
        }
    }

    #[test]
    fn an_entry_takes_as_many_octets_as_its_prefix() {
        let octets = |text: &str| {
            [text.parse().expect("a range")].into_iter().collect::<PrefixRanges>().octets().len()
        };
        assert_eq!(octets("0.0.0.0/0 le 32"), 3);
        assert_eq!(octets("192.0.2.0/24 le 29"), 6);
        assert_eq!(octets("2001:db8::/29"), 7);
        assert_eq!(octets("2001:db8::1/128"), 19);
    }
}

//! IPv6 prefixes far from each other: nearly every one is alone in its block of eight bits.

use std::collections::HashSet;

use holdfast_lab::table::{Synthetic, Table, random::Random};
use holdfast_types::{IpPrefix, Ipv6Prefix};

/// Weights of lengths, about those of the Internet's IPv6 table.
const LENGTHS: [(u32, u8); 5] = [(60, 48), (15, 44), (10, 40), (5, 36), (10, 32)];
/// Networks of the registries, 2400::/16 to 2bff::/16, are all that is drawn from.
const FIRST: u128 = 0x2400 << 112;
const ALL: u128 = 0x0800 << 112;

/// So many routes, with attributes as [`Synthetic`] makes them.
pub(super) fn table(seed: u64, count: usize) -> Table {
    let mut table = Synthetic::ipv6(seed, count).build();
    let mut random = Random::new(seed);
    let mut seen = HashSet::new();
    for (prefix, _) in &mut table.routes {
        *prefix = loop {
            let bits = FIRST + u128::from(random.bits()).rotate_left(64) % ALL;
            let drawn = Ipv6Prefix::from_bits(bits, random.weighted(&LENGTHS));
            if seen.insert(drawn) {
                break drawn.into();
            }
        };
    }
    table
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use holdfast_types::Prefix;

    use super::*;

    #[test]
    fn nearly_all_prefixes_are_alone() {
        let table = table(1, 20_000);
        let block = |prefix: Prefix| (prefix.length() - 1) / 8 * 8;
        let mut blocks: HashMap<_, usize> = HashMap::new();
        for (prefix, _) in &table.routes {
            *blocks.entry(Prefix::new(prefix.address(), block(*prefix))).or_default() += 1;
        }
        let alone = blocks.values().filter(|count| **count == 1).count();
        assert!(alone > 19_500, "{alone} of 20,000");
    }
}

//! Many prefixes, and whether an address is in any of them.

use std::net::{IpAddr, Ipv6Addr};

use holdfast_types::Prefix;

/// A set of addresses, given by prefixes. Which one an address is in is not kept: a table of ranges, and a binary search.
/// Only hosts of IPv6 are, since what counts for a /64 need not for them.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct PrefixTable {
    ipv4: Vec<(u32, u32)>,
    ipv6: Vec<(u128, u128)>,
    ipv6_hosts: Vec<u128>,
}

impl PrefixTable {
    /// Whether the address is in one of the prefixes. An IPv4 address may be mapped into IPv6, as on sockets for both.
    pub fn contains(&self, address: IpAddr) -> bool {
        match address.to_canonical() {
            IpAddr::V4(address) => within(&self.ipv4, address.to_bits()),
            IpAddr::V6(address) => within(&self.ipv6, address.to_bits()),
        }
    }

    /// Ranges of IPv4 addresses: first and last of each, in order, with gaps between them.
    pub fn ipv4(&self) -> &[(u32, u32)] {
        &self.ipv4
    }

    /// Ranges of IPv6 addresses.
    pub fn ipv6(&self) -> &[(u128, u128)] {
        &self.ipv6
    }

    /// Those of the prefixes that are a /128, though they may be within others.
    pub fn ipv6_hosts(&self) -> &[u128] {
        &self.ipv6_hosts
    }
}

impl FromIterator<Prefix> for PrefixTable {
    fn from_iter<I: IntoIterator<Item = Prefix>>(prefixes: I) -> Self {
        let (mut ipv4, mut ipv6, mut ipv6_hosts) = (Vec::new(), Vec::new(), Vec::new());
        for prefix in prefixes {
            let length = prefix.length().into();
            match prefix.address() {
                IpAddr::V4(address) => {
                    let first = address.to_bits();
                    ipv4.push((first, first | u32::MAX.checked_shr(length).unwrap_or(0)));
                }
                IpAddr::V6(address) => {
                    let first = address.to_bits();
                    ipv6.push((first, first | u128::MAX.checked_shr(length).unwrap_or(0)));
                    if length == Ipv6Addr::BITS {
                        ipv6_hosts.push(first);
                    }
                }
            }
        }
        Self {
            ipv6_hosts,
            ipv4: joined(ipv4, |last| last.checked_add(1)),
            ipv6: joined(ipv6, |last| last.checked_add(1)),
        }
    }
}

/// Those that overlap or are beside each other become one.
fn joined<T: Copy + Ord>(mut ranges: Vec<(T, T)>, next: impl Fn(T) -> Option<T>) -> Vec<(T, T)> {
    ranges.sort_unstable();
    let mut apart: Vec<(T, T)> = Vec::with_capacity(ranges.len());
    for (first, last) in ranges {
        match apart.last_mut() {
            Some(before) if next(before.1).is_none_or(|next| first <= next) => before.1 = before.1.max(last),
            _ => apart.push((first, last)),
        }
    }
    apart
}

fn within<T: Copy + Ord>(ranges: &[(T, T)], address: T) -> bool {
    let behind = ranges.partition_point(|range| range.0 <= address);
    ranges[..behind].last().is_some_and(|range| address <= range.1)
}

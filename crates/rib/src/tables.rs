//! The tables of both families, and how generic code finds the one it is about.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use holdfast_types::{HashKey, IpPrefix, Ipv4Prefix, Ipv6Prefix, Prefix};
use smallvec::SmallVec;

use crate::family::Family;

#[derive(Debug)]
pub(crate) struct Tables {
    pub(crate) v4: Family<Ipv4Prefix>,
    pub(crate) v6: Family<Ipv6Prefix>,
}

/// A family that has tables.
pub(crate) trait Routed: IpPrefix {
    fn tables(tables: &Tables) -> &Family<Self>;
    fn tables_mut(tables: &mut Tables) -> &mut Family<Self>;
}

impl Routed for Ipv4Prefix {
    fn tables(tables: &Tables) -> &Family<Self> {
        &tables.v4
    }

    fn tables_mut(tables: &mut Tables) -> &mut Family<Self> {
        &mut tables.v4
    }
}

impl Routed for Ipv6Prefix {
    fn tables(tables: &Tables) -> &Family<Self> {
        &tables.v6
    }

    fn tables_mut(tables: &mut Tables) -> &mut Family<Self> {
        &mut tables.v6
    }
}

impl Tables {
    pub(crate) fn new(key: HashKey, log_capacity: usize) -> Self {
        Self { v4: Family::new(key, log_capacity), v6: Family::new(key, log_capacity) }
    }

    /// The internal rows whose prefixes contain the address, shortest first.
    pub(crate) fn internal_rows(&self, address: IpAddr) -> SmallVec<[(Prefix, u32); 4]> {
        fn rows<P: IpPrefix>(family: &Family<P>, host: P) -> SmallVec<[(Prefix, u32); 4]> {
            family.internal.covering(host).map(|(prefix, row)| (prefix.into(), row)).collect()
        }
        match Prefix::host(address) {
            Prefix::V4(host) => rows(&self.v4, host),
            Prefix::V6(host) => rows(&self.v6, host),
        }
    }

    /// Whether an internal route is more specific than this prefix.
    pub(crate) fn is_overlaid(&self, prefix: Prefix) -> bool {
        match prefix {
            Prefix::V4(prefix) => self.v4.internal.has_more_specific(prefix),
            Prefix::V6(prefix) => self.v6.internal.has_more_specific(prefix),
        }
    }

    pub(crate) fn memory(&self) -> usize {
        self.v4.memory() + self.v6.memory()
    }
}

/// The last address of a prefix.
pub(crate) fn last_address(prefix: Prefix) -> IpAddr {
    match prefix {
        Prefix::V4(prefix) => {
            let host = u32::MAX.checked_shr(prefix.length().into()).unwrap_or(0);
            (prefix.address() | Ipv4Addr::from_bits(host)).into()
        }
        Prefix::V6(prefix) => {
            let host = u128::MAX.checked_shr(prefix.length().into()).unwrap_or(0);
            (prefix.address() | Ipv6Addr::from_bits(host)).into()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn last_addresses() {
        for (prefix, last) in [
            ("0.0.0.0/0", "255.255.255.255"),
            ("10.1.0.0/16", "10.1.255.255"),
            ("10.1.2.3/32", "10.1.2.3"),
            ("2001:db8::/127", "2001:db8::1"),
            ("::1/128", "::1"),
        ] {
            let prefix: Prefix = prefix.parse().expect("prefix");
            assert_eq!(last_address(prefix), last.parse::<IpAddr>().expect("address"));
        }
    }
}

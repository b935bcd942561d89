//! Buckets of addresses.

use std::{
    collections::{HashMap, HashSet},
    mem,
    net::{IpAddr, SocketAddr},
    time::Instant,
};

use crate::{Bucket, Rate};

/// Addresses that are remembered at most.
pub const MOST_ADDRESSES: usize = 4096;

/// A bucket for each address of IPv4, and for each /64 of IPv6, where a host has that many.
///
/// Neighbours on a link share a /64, and none of them must use up what is another's: link-local addresses have one each, and so
/// do those of peers.
///
/// Addresses are forgotten that have not come while half of [`MOST_ADDRESSES`] others did: one that comes again then has a
/// full bucket. Who owns so many can do without.
#[derive(Clone, Debug)]
pub(crate) struct PerAddress {
    rate: Rate,
    peers: HashSet<u128>,
    young: HashMap<u128, Bucket>,
    old: HashMap<u128, Bucket>,
}

impl PerAddress {
    /// With so much for each; `peers` are addresses of IPv6 that have their own.
    pub(crate) fn new(rate: Rate, peers: &[u128]) -> Self {
        Self { rate, peers: peers.iter().copied().collect(), young: HashMap::new(), old: HashMap::new() }
    }

    /// How many addresses are remembered.
    pub(crate) fn remembered(&self) -> usize {
        self.young.len() + self.old.len()
    }

    /// Takes a token of an address, if it has one.
    pub(crate) fn take(&mut self, address: SocketAddr, now: Instant) -> bool {
        let (key, rate) = (key(address, &self.peers), self.rate);
        self.bucket(key).take(rate, now)
    }

    fn bucket(&mut self, key: u128) -> &mut Bucket {
        if !self.young.contains_key(&key) {
            let bucket = self.old.remove(&key).unwrap_or_default();
            if self.young.len() == MOST_ADDRESSES / 2 {
                mem::swap(&mut self.young, &mut self.old);
                self.young.clear();
            }
            self.young.insert(key, bucket);
        }
        self.young.entry(key).or_default()
    }
}

/// IPv4 addresses are where no /64 begins: mapped into IPv6. Link-local ones all have the same 64 bits, so each counts for
/// itself, and on each link: the scope fits where they are zero (RFC 4291 section 2.5.6).
fn key(address: SocketAddr, peers: &HashSet<u128>) -> u128 {
    match address.ip().to_canonical() {
        IpAddr::V4(address) => address.to_ipv6_mapped().to_bits(),
        IpAddr::V6(ip) if ip.is_unicast_link_local() => {
            let scope = if let SocketAddr::V6(address) = address { address.scope_id() } else { 0 };
            ip.to_bits() | u128::from(scope) << 64
        }
        IpAddr::V6(ip) if peers.contains(&ip.to_bits()) => ip.to_bits(),
        IpAddr::V6(ip) => ip.to_bits() & !u128::from(u64::MAX),
    }
}

use std::{
    collections::{HashMap, HashSet},
    mem,
    net::{IpAddr, SocketAddr},
    time::Instant,
};

use crate::{AddressProof, Attempt, Bucket, Rate, Stage, Verdict};

/// Addresses that are remembered at most.
pub const MOST_ADDRESSES: usize = 4096;

/// Refuses more than so many attempts of one address (IPv4) or of one /64 (IPv6, where a host has that many) once it is proven
/// that they come from there. While nothing proves it, others could use up what is an address's own.
///
/// Neighbours on a link share a /64, and none of them must use up what is another's: link-local addresses count each, and so do
/// those of configured peers.
///
/// Addresses are forgotten that have not come while half of [`MOST_ADDRESSES`] others did: one that comes again then has a
/// full bucket. Who owns so many can do without.
#[derive(Clone, Debug)]
pub struct ByAddress {
    rate: Rate,
    peers: HashSet<u128>,
    young: HashMap<u128, Bucket>,
    old: HashMap<u128, Bucket>,
}

impl ByAddress {
    /// Lets through so many of each. IPv6 addresses of peers count each for itself.
    pub fn new(rate: Rate, peers: &[u128]) -> Self {
        Self { rate, peers: peers.iter().copied().collect(), young: HashMap::new(), old: HashMap::new() }
    }

    /// How many addresses are remembered.
    pub fn remembered(&self) -> usize {
        self.young.len() + self.old.len()
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

impl Stage for ByAddress {
    fn name(&self) -> &'static str {
        "by-address"
    }

    fn judge(&mut self, attempt: &mut dyn Attempt, now: Instant) -> Verdict {
        if attempt.proof() == AddressProof::None {
            return Verdict::Next;
        }
        let (key, rate) = (key(attempt.remote(), &self.peers), self.rate);
        match self.bucket(key).take(rate, now) {
            true => Verdict::Next,
            false => Verdict::Refuse("too many attempts from its address"),
        }
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

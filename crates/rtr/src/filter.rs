//! What local exceptions leave out (RFC 8416 section 3.3).

use std::collections::{BTreeSet, HashMap, HashSet};

use holdfast_types::{Asn, IpPrefix, Ipv4Prefix, Ipv6Prefix, Prefix, Ski, Vrp};

use crate::key::Stored;

/// Filters of all files. A record that any of them matches is left out.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Filters {
    /// For an AS, wherever.
    asns: HashSet<Asn>,
    /// By prefix: for these ASes, or for all if there is `None`.
    prefixes: HashMap<Prefix, HashSet<Option<Asn>>>,
    /// Lengths that are in `prefixes`, of both families: what has to be looked up.
    lengths: BTreeSet<u8>,
    keys: HashSet<(Option<Asn>, Option<Ski>)>,
    customers: HashSet<Asn>,
}

impl Filters {
    pub(crate) fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    pub(crate) fn add_vrps(&mut self, prefix: Option<Prefix>, asn: Option<Asn>) {
        match (prefix, asn) {
            (Some(prefix), asn) => {
                self.lengths.insert(prefix.length());
                self.prefixes.entry(prefix).or_default().insert(asn)
            }
            (None, Some(asn)) => self.asns.insert(asn),
            (None, None) => false,
        };
    }

    pub(crate) fn add_router_keys(&mut self, asn: Option<Asn>, ski: Option<Ski>) {
        self.keys.insert((asn, ski));
    }

    pub(crate) fn add_aspa(&mut self, customer: Asn) {
        self.customers.insert(customer);
    }

    /// A filter with a prefix matches what is equal to it or in it.
    pub(crate) fn vrp(&self, vrp: Vrp) -> bool {
        let covering =
            self.lengths.range(..=vrp.prefix().length()).map(|length| shortened(vrp.prefix(), *length));
        let asn = Some(vrp.asn());
        self.asns.contains(&vrp.asn())
            || covering
                .filter_map(|prefix| self.prefixes.get(&prefix))
                .any(|asns| asns.contains(&None) || asns.contains(&asn))
    }

    /// The name of a key is made from its point: that is asked only where there are filters.
    pub(crate) fn stored_key(&self, key: &Stored) -> bool {
        !self.keys.is_empty() && self.router_key(key.asn(), key.ski())
    }

    pub(crate) fn router_key(&self, asn: Asn, ski: Ski) -> bool {
        let (asn, ski) = (Some(asn), Some(ski));
        [(asn, None), (None, ski), (asn, ski)].iter().any(|filter| self.keys.contains(filter))
    }

    pub(crate) fn aspa(&self, customer: Asn) -> bool {
        self.customers.contains(&customer)
    }
}

/// The length is not longer than the prefix's.
fn shortened(prefix: Prefix, length: u8) -> Prefix {
    match prefix {
        Prefix::V4(prefix) => Prefix::V4(Ipv4Prefix::from_bits(prefix.bits(), length)),
        Prefix::V6(prefix) => Prefix::V6(Ipv6Prefix::from_bits(prefix.bits(), length)),
    }
}

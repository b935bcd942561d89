//! Provider authorizations, and whether a path can be what it says (draft-ietf-sidrops-aspa-verification-28).

use std::collections::HashMap;

use holdfast_policy::{PathElement, PathValidity};
use holdfast_types::{Asn, Aspa, BgpRole, HashKey};
use smallvec::SmallVec;

/// Which paths are possible, by what the neighbour is that a route came from.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub enum Procedure {
    /// It is a customer, a lateral peer, or our client as a route server: every hop must lead up (section 5.5).
    Upstream,
    /// It is a route server, which need not be in the path; else the same.
    UpstreamOfServer,
    /// It is a provider: hops lead up, then down (section 5.6).
    Downstream,
}

impl Procedure {
    /// By what we are to the neighbour (section 6.3).
    pub fn of(role: BgpRole) -> Self {
        match role {
            BgpRole::Provider | BgpRole::Peer | BgpRole::RsServer => Self::Upstream,
            BgpRole::RsClient => Self::UpstreamOfServer,
            BgpRole::Customer => Self::Downstream,
        }
    }
}

/// What a customer has attested of a neighbour of its (section 5.3).
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Hop {
    NoAttestation,
    Provider,
    NotProvider,
}

/// Who provides for whom.
#[derive(Debug)]
pub struct AspaTable {
    /// By customer: its providers, ascending.
    providers: HashMap<Asn, Box<[Asn]>, HashKey>,
}

impl AspaTable {
    /// An empty table. `key` is that of its hashes.
    pub fn new(key: HashKey) -> Self {
        Self { providers: HashMap::with_hasher(key) }
    }

    /// How many customers have said anything.
    pub fn len(&self) -> usize {
        self.providers.len()
    }

    /// Whether nobody has.
    pub fn is_empty(&self) -> bool {
        self.providers.is_empty()
    }

    /// Bytes held, about.
    pub fn memory(&self) -> usize {
        let lists: usize = self.providers.values().map(|list| size_of_val(&**list)).sum();
        lists + self.providers.capacity() * (size_of::<(Asn, Box<[Asn]>)>() + 1)
    }

    /// Takes the place of the customer's one before; whether it says anything else.
    pub fn insert(&mut self, aspa: &Aspa) -> bool {
        let old = self.providers.insert(aspa.customer(), aspa.providers().into());
        old.is_none_or(|old| *old != *aspa.providers())
    }

    /// Whether the customer had one.
    pub fn remove(&mut self, customer: Asn) -> bool {
        self.providers.remove(&customer).is_some()
    }

    /// The customers with their providers, in no order.
    pub fn iter(&self) -> impl Iterator<Item = (Asn, &[Asn])> {
        self.providers.iter().map(|(customer, providers)| (*customer, &**providers))
    }

    fn authorized(&self, customer: Asn, provider: Asn) -> Hop {
        match self.providers.get(&customer) {
            None => Hop::NoAttestation,
            Some(providers) if providers.binary_search(&provider).is_ok() => Hop::Provider,
            Some(_) => Hop::NotProvider,
        }
    }

    /// Whether a path, nearest AS first, can have come from a neighbour with this AS. Segments of confederations are no
    /// part of it.
    pub fn verify(
        &self,
        path: impl Iterator<Item = PathElement>,
        neighbor: Asn,
        procedure: Procedure,
    ) -> PathValidity {
        // AS(N) to AS(1), prepends collapsed (section 5.2).
        let mut hops: SmallVec<[Asn; 16]> = SmallVec::new();
        for element in path {
            match element {
                PathElement::Sequence(asn) if hops.last() != Some(&asn) => hops.push(asn),
                PathElement::Set(_) => return PathValidity::Invalid,
                PathElement::Sequence(_) | PathElement::ConfedSequence(_) | PathElement::ConfedSet(_) => {}
            }
        }
        match hops.first() {
            None => return PathValidity::Invalid,
            Some(first) if *first != neighbor && procedure != Procedure::UpstreamOfServer => {
                return PathValidity::Invalid;
            }
            Some(_) => {}
        }
        let (most_up, least_up) = self.ramp(hops.iter().rev().copied());
        let (most_down, least_down) = match procedure {
            Procedure::Upstream | Procedure::UpstreamOfServer => (0, 0),
            Procedure::Downstream => self.ramp(hops.iter().copied()),
        };
        match hops.len() {
            length if most_up + most_down < length => PathValidity::Invalid,
            length if least_up + least_down < length => PathValidity::Unknown,
            _ => PathValidity::Valid,
        }
    }

    /// How many ASes from one end on can lead up, each to a provider of its, and how many do for certain (section 5.4).
    fn ramp(&self, hops: impl Iterator<Item = Asn> + Clone) -> (usize, usize) {
        let (mut most, mut least) = (1, None);
        for (customer, provider) in hops.clone().zip(hops.skip(1)) {
            match self.authorized(customer, provider) {
                Hop::Provider => {}
                Hop::NoAttestation => _ = least.get_or_insert(most),
                Hop::NotProvider => break,
            }
            most += 1;
        }
        (most, least.unwrap_or(most))
    }
}

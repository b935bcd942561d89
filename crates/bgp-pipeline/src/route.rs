//! A route as policies see it.

use std::net::IpAddr;

use holdfast_bgp_wire::{
    as_path::{AsPath, Segment, SegmentType},
    attributes::Attributes,
};
use holdfast_policy::{Origin, PathElement, PathSecurity, PathValidity, Protocol, Route, Validity};
use holdfast_types::{Asn, Prefix};

use crate::{class::Classes, next_hop::NextHops, path::SetId, sets::AttributeSets, validity::States};

/// A prefix with an interned set.
#[derive(Copy, Clone, Debug)]
pub(crate) struct RouteView<'a> {
    prefix: Prefix,
    attributes: Attributes<'a>,
    local_pref: u32,
    next_hop: Option<IpAddr>,
    peer_asn: Asn,
    protocol: Protocol,
    tag: u32,
    states: States,
}

impl<'a> RouteView<'a> {
    /// As it came from its sender.
    #[inline]
    pub(crate) fn new(
        sets: &'a AttributeSets,
        classes: &Classes,
        next_hops: &NextHops,
        prefix: Prefix,
        set: SetId,
    ) -> Self {
        let class = classes.get(sets.class(set));
        Self {
            prefix,
            attributes: sets.attributes(set),
            local_pref: sets.preference(set).local_pref,
            next_hop: next_hops.gateway(sets.next_hop(set)).map(|gateway| gateway.address),
            peer_asn: class.peer_asn,
            protocol: class.protocol,
            tag: class.tag,
            states: class.states.unwrap_or_default(),
        }
    }

    /// As it would go to a peer of this AS.
    #[inline]
    pub(crate) fn to(self, receiver: Asn) -> Self {
        Self { peer_asn: receiver, ..self }
    }
}

/// A path as policies see it.
pub(crate) fn elements(path: AsPath<'_>) -> impl Iterator<Item = PathElement> {
    path.segments().flat_map(|segment| segment.asns().map(move |asn| element(segment.kind, asn)))
}

/// The last of them, without going through all.
pub(crate) fn last_element(path: AsPath<'_>) -> Option<PathElement> {
    let last_of = |segment: Segment<'_>| Some(element(segment.kind, segment.asns().next_back()?));
    path.segments().filter_map(last_of).last()
}

#[inline]
fn element(kind: SegmentType, asn: Asn) -> PathElement {
    match kind {
        SegmentType::Sequence => PathElement::Sequence(asn),
        SegmentType::Set => PathElement::Set(asn),
        SegmentType::ConfedSequence => PathElement::ConfedSequence(asn),
        SegmentType::ConfedSet => PathElement::ConfedSet(asn),
    }
}

impl Route for RouteView<'_> {
    fn prefix(&self) -> Prefix {
        self.prefix
    }

    fn as_path(&self) -> impl Iterator<Item = PathElement> {
        elements(self.attributes.as_path())
    }

    fn as_path_length(&self) -> u32 {
        self.attributes.as_path().hops() as u32
    }

    fn origin(&self) -> Origin {
        use holdfast_bgp_wire::attributes::Origin as Wire;
        match self.attributes.origin() {
            Some(Wire::Igp) => Origin::Igp,
            Some(Wire::Egp) => Origin::Egp,
            Some(Wire::Incomplete) | None => Origin::Incomplete,
        }
    }

    fn med(&self) -> Option<u32> {
        self.attributes.med()
    }

    fn local_pref(&self) -> Option<u32> {
        Some(self.local_pref)
    }

    fn next_hop(&self) -> Option<IpAddr> {
        self.next_hop
    }

    fn communities(&self) -> impl Iterator<Item = u32> {
        self.attributes.communities()
    }

    fn large_communities(&self) -> impl Iterator<Item = (u32, u32, u32)> {
        self.attributes.large_communities()
    }

    fn ext_communities(&self) -> impl Iterator<Item = u64> {
        self.attributes.ext_communities().map(u64::from_be_bytes)
    }

    fn peer_asn(&self) -> Option<Asn> {
        (self.peer_asn != Asn(0)).then_some(self.peer_asn)
    }

    fn protocol(&self) -> Protocol {
        self.protocol
    }

    fn tag(&self) -> Option<u32> {
        (self.tag != 0).then_some(self.tag)
    }

    fn validity(&self) -> Validity {
        self.states.validity
    }

    fn aspa(&self) -> PathValidity {
        self.states.path
    }

    fn bgpsec(&self) -> PathSecurity {
        self.states.signatures
    }

    /// That of another protocol's route, which its MED is; what the way to a BGP next hop costs may change at any time.
    fn metric(&self) -> Option<u32> {
        (self.protocol != Protocol::Bgp).then(|| self.med().unwrap_or(0))
    }
}

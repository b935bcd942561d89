//! Compiled conditions.

use std::{net::IpAddr, ops::RangeInclusive, sync::Arc};

use holdfast_types::Prefix;

use crate::{
    Edits, MedEdit, NextHopEdit, Origin, PathSecurity, PathValidity, Protocol, Route, Validity,
    asn_set::AsnSet, community::CommunityMatcher, path::PathMatcher, prefix_set::PrefixMatcher,
    program::Code,
};

/// A condition with its sets resolved.
#[derive(PartialEq, Eq, Debug)]
pub(crate) enum Test {
    Prefix(Arc<PrefixMatcher>),
    PrefixLength(RangeInclusive<u8>),
    Community(Arc<CommunityMatcher>),
    AsPath(Arc<PathMatcher>),
    AsPathLength(RangeInclusive<u32>),
    PeerAs(AsnSet),
    Origin(Box<[Origin]>),
    LocalPref(RangeInclusive<u32>),
    Med(RangeInclusive<u32>),
    NextHop(PrefixMatcher),
    Protocol(Box<[Protocol]>),
    Tag(Box<[u32]>),
    Interface(Box<[String]>),
    Metric(RangeInclusive<u32>),
    Validity(Box<[Validity]>),
    Aspa(Box<[PathValidity]>),
    Bgpsec(Box<[PathSecurity]>),
    Accepted(Box<[Arc<Code>]>),
    Not(Box<[Self]>),
}

impl Test {
    #[inline]
    pub(crate) fn holds<R: Route>(&self, view: &View<'_, R>) -> bool {
        let route = view.route;
        match self {
            Self::Prefix(set) => set.contains(route.prefix()),
            Self::PrefixLength(range) => range.contains(&route.prefix().length()),
            Self::Community(set) => view.has_community(set),
            Self::AsPath(set) => set.matches(|| route.as_path()),
            Self::AsPathLength(range) => range.contains(&route.as_path_length()),
            Self::PeerAs(set) => route.peer_asn().is_some_and(|asn| set.contains(asn)),
            Self::Origin(origins) => origins.contains(&view.origin()),
            Self::LocalPref(range) => view.local_pref().is_some_and(|value| range.contains(&value)),
            Self::Med(range) => view.med().is_some_and(|value| range.contains(&value)),
            Self::NextHop(set) => view.next_hop().is_some_and(|hop| set.contains(Prefix::host(hop))),
            Self::Protocol(protocols) => protocols.contains(&route.protocol()),
            Self::Tag(tags) => view.tag().is_some_and(|tag| tags.contains(&tag)),
            Self::Interface(names) => {
                route.interface().is_some_and(|one| names.iter().any(|name| name == one))
            }
            Self::Metric(range) => route.metric().is_some_and(|value| range.contains(&value)),
            Self::Validity(states) => states.contains(&route.validity()),
            Self::Aspa(states) => states.contains(&route.aspa()),
            Self::Bgpsec(states) => states.contains(&route.bgpsec()),
            Self::Accepted(policies) => policies.iter().any(|policy| policy.accepts(view)),
            Self::Not(tests) => !tests.iter().all(|test| test.holds(view)),
        }
    }

    /// Whether the answer depends on more than attribute set and next hop.
    pub(crate) fn reads_prefix(&self) -> bool {
        match self {
            Self::Prefix(_)
            | Self::PrefixLength(_)
            | Self::PeerAs(_)
            | Self::Protocol(_)
            | Self::Tag(_)
            | Self::Interface(_)
            | Self::Metric(_) => true,
            Self::Accepted(policies) => policies.iter().any(|policy| policy.reads_prefix),
            Self::Not(tests) => tests.iter().any(Self::reads_prefix),
            Self::Community(_)
            | Self::AsPath(_)
            | Self::AsPathLength(_)
            | Self::Origin(_)
            | Self::LocalPref(_)
            | Self::Med(_)
            | Self::NextHop(_)
            | Self::Validity(_)
            | Self::Aspa(_)
            | Self::Bgpsec(_) => false,
        }
    }

    /// Whether the answer depends on what is known of the signatures of paths.
    pub(crate) fn reads_bgpsec(&self) -> bool {
        match self {
            Self::Bgpsec(_) => true,
            Self::Accepted(policies) => policies.iter().any(|policy| policy.reads_bgpsec),
            Self::Not(tests) => tests.iter().any(Self::reads_bgpsec),
            Self::Prefix(_)
            | Self::PrefixLength(_)
            | Self::PeerAs(_)
            | Self::Protocol(_)
            | Self::Tag(_)
            | Self::Interface(_)
            | Self::Metric(_)
            | Self::Community(_)
            | Self::AsPath(_)
            | Self::AsPathLength(_)
            | Self::Origin(_)
            | Self::LocalPref(_)
            | Self::Med(_)
            | Self::NextHop(_)
            | Self::Validity(_)
            | Self::Aspa(_) => false,
        }
    }

    /// What it compares one by one, at most; what a policy asked costs is counted where it is asked.
    pub(crate) fn steps(&self) -> usize {
        1 + match self {
            Self::Community(set) => set.steps(),
            Self::AsPath(set) => set.steps(),
            Self::Origin(entries) => entries.len(),
            Self::Protocol(entries) => entries.len(),
            Self::Tag(entries) => entries.len(),
            Self::Interface(entries) => entries.len(),
            Self::Validity(entries) => entries.len(),
            Self::Aspa(entries) => entries.len(),
            Self::Bgpsec(entries) => entries.len(),
            Self::Not(tests) => tests.iter().map(Self::steps).sum(),
            Self::Prefix(_)
            | Self::PrefixLength(_)
            | Self::AsPathLength(_)
            | Self::PeerAs(_)
            | Self::LocalPref(_)
            | Self::Med(_)
            | Self::NextHop(_)
            | Self::Metric(_)
            | Self::Accepted(_) => 0,
        }
    }
}

/// A route as the terms so far have changed it.
pub(crate) struct View<'a, R> {
    pub(crate) route: &'a R,
    pub(crate) edits: &'a Edits,
}

impl<R: Route> View<'_, R> {
    pub(crate) fn local_pref(&self) -> Option<u32> {
        self.edits.local_pref.or_else(|| self.route.local_pref())
    }

    /// `None` also when it will be the metric to a next hop, as far as that is not known here.
    pub(crate) fn med(&self) -> Option<u32> {
        match self.edits.med {
            Some(MedEdit::Set(value)) => Some(value),
            Some(MedEdit::Remove | MedEdit::Metric(_)) => None,
            None => self.route.med(),
        }
    }

    pub(crate) fn origin(&self) -> Origin {
        self.edits.origin.unwrap_or_else(|| self.route.origin())
    }

    /// `None` also when it will be our own address, which policy does not know.
    pub(crate) fn next_hop(&self) -> Option<IpAddr> {
        match self.edits.next_hop {
            Some(NextHopEdit::Address(address)) => Some(address),
            Some(NextHopEdit::SelfAddress) => None,
            None => self.route.next_hop(),
        }
    }

    pub(crate) fn tag(&self) -> Option<u32> {
        self.edits.tag.or_else(|| self.route.tag())
    }

    pub(crate) fn communities(&self) -> impl Iterator<Item = u32> {
        self.edits.communities.apply(self.route.communities())
    }

    pub(crate) fn large_communities(&self) -> impl Iterator<Item = (u32, u32, u32)> {
        self.edits.large_communities.apply(self.route.large_communities())
    }

    pub(crate) fn ext_communities(&self) -> impl Iterator<Item = u64> {
        self.edits.ext_communities.apply(self.route.ext_communities())
    }

    fn has_community(&self, set: &CommunityMatcher) -> bool {
        (set.wants_standard() && self.communities().any(|value| set.standard(value)))
            || (set.wants_large() && self.large_communities().any(|value| set.large(value)))
            || (set.wants_extended() && self.ext_communities().any(|value| set.extended(value)))
    }
}

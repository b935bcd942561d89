//! Policies as the operator wrote them: the form that configuration produces and that travels.

use std::ops::RangeInclusive;

use serde::{Deserialize, Serialize};

use crate::{
    AsnRange, Community, CommunityPattern, MedEdit, NextHopEdit, Origin, PathPattern, PrefixRange, Prepend,
    Protocol,
};

/// The name of the built-in policy that lets everything pass unchanged.
pub const ACCEPT_ALL: &str = "accept-all";
/// The name of the built-in policy that lets nothing pass.
pub const REJECT_ALL: &str = "reject-all";

/// All policies of a router, with the sets they name.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct PolicySource {
    /// Named prefix sets.
    pub prefix_sets: Vec<PrefixSet>,
    /// Named sets of communities.
    pub community_sets: Vec<CommunitySet>,
    /// Named sets of AS path patterns.
    pub as_path_sets: Vec<AsPathSet>,
    /// The policies; [`ACCEPT_ALL`] and [`REJECT_ALL`] are always there besides.
    pub policies: Vec<Policy>,
}

/// Prefixes under a name.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PrefixSet {
    /// Unique among prefix sets.
    pub name: String,
    /// In any order; overlaps are no fault.
    pub prefixes: Vec<PrefixRange>,
}

/// Communities under a name.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CommunitySet {
    /// Unique among community sets.
    pub name: String,
    /// A route is in the set when it has one of these.
    pub communities: Vec<CommunityPattern>,
}

/// AS path patterns under a name.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AsPathSet {
    /// Unique among AS path sets.
    pub name: String,
    /// A route is in the set when its path matches one of these.
    pub paths: Vec<PathPattern>,
}

/// Ordered terms under a name. A route that no term decides is rejected.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Policy {
    /// Unique among policies.
    pub name: String,
    /// Tried in this order.
    pub terms: Vec<Term>,
}

/// One step of a policy.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Term {
    /// Unique in its policy: what is shown when the term refuses a route.
    pub name: String,
    /// All must hold; none: always.
    pub from: Vec<Condition>,
    /// Changes to make, in this order.
    pub then: Vec<Action>,
    /// What follows.
    pub outcome: Outcome,
}

/// A condition on a route. Where there is a list, one entry has to hold; an empty list never does.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Condition {
    /// The prefix is in one of these named sets.
    PrefixSet(Vec<String>),
    /// The prefix is one of these.
    Prefix(Vec<PrefixRange>),
    /// The route has a community of one of these named sets.
    CommunitySet(Vec<String>),
    /// The route has one of these communities.
    Community(Vec<CommunityPattern>),
    /// The AS path is in one of these named sets.
    AsPathSet(Vec<String>),
    /// The AS path matches one of these.
    AsPath(Vec<PathPattern>),
    /// The length of the AS path, as the decision counts it.
    AsPathLength(RangeInclusive<u32>),
    /// The first AS of the path.
    NeighborAs(Vec<AsnRange>),
    /// The last AS of the path.
    OriginAs(Vec<AsnRange>),
    /// The AS of the peer: who sends on import, who receives on export.
    PeerAs(Vec<AsnRange>),
    /// ORIGIN.
    Origin(Vec<Origin>),
    /// LOCAL_PREF; a route without one does not match.
    LocalPreference(RangeInclusive<u32>),
    /// MULTI_EXIT_DISC; a route without one does not match.
    Med(RangeInclusive<u32>),
    /// The next hop is in one of these prefixes (their lengths are not looked at).
    NextHop(Vec<PrefixRange>),
    /// Who brought the route.
    Protocol(Vec<Protocol>),
    /// The tag is one of these.
    Tag(Vec<u32>),
    /// One of these policies would accept the route.
    Policy(Vec<String>),
}

/// A change to a route.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Action {
    /// Sets LOCAL_PREF.
    LocalPreference(u32),
    /// Sets or removes MULTI_EXIT_DISC.
    Med(MedEdit),
    /// Sets ORIGIN.
    Origin(Origin),
    /// Puts AS numbers before the path.
    Prepend(Prepend),
    /// Drops all communities and large communities and puts these in their place.
    SetCommunities(Vec<Community>),
    /// Removes communities; patterns for extended communities have no effect.
    RemoveCommunities(Vec<CommunityPattern>),
    /// Adds communities.
    AddCommunities(Vec<Community>),
    /// Sets the next hop.
    NextHop(NextHopEdit),
    /// Sets the tag.
    Tag(u32),
}

/// What follows a matching term.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// The route passes; no later term is asked.
    Accept,
    /// The route is refused; no later term is asked.
    Reject,
    /// The next term is asked.
    Next,
}

//! Policies as the operator wrote them: the form that configuration produces and that travels.

use std::{collections::HashSet, ops::RangeInclusive};

use serde::{Deserialize, Serialize};

use crate::{
    AsnRange, Community, CommunityPattern, NextHopEdit, Origin, PathPattern, PathSecurity, PathValidity,
    PrefixRange, PrefixRanges, Prepend, Protocol, Regex, Validity,
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

impl PolicySource {
    /// Whether a policy has a condition of this kind, or one that it asks or applies has.
    pub fn has(&self, policy: &str, is_meant: impl Fn(&Condition) -> bool) -> bool {
        let mut seen = HashSet::new();
        let mut open = vec![policy];
        while let Some(name) = open.pop() {
            // Who asks itself is refused when policies are compiled, and ends here all the same.
            let Some(policy) = self.policies.iter().find(|policy| policy.name == name) else { continue };
            if !seen.insert(name) {
                continue;
            }
            let terms = || policy.terms.iter();
            let mut conditions: Vec<_> = terms().flat_map(|term| &term.from).collect();
            while let Some(condition) = conditions.pop() {
                match condition {
                    condition if is_meant(condition) => return true,
                    Condition::Not(inner) => conditions.extend(inner),
                    Condition::Policy(names) => open.extend(names.iter().map(String::as_str)),
                    _ => {}
                }
            }
            let last = policy.last.iter().flat_map(|last| &last.then);
            let actions = policy.first.iter().chain(terms().flat_map(|term| &term.then)).chain(last);
            open.extend(actions.filter_map(|action| match action {
                Action::Apply(name) => Some(name.as_str()),
                _ => None,
            }));
        }
        false
    }
}

/// Prefixes under a name.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PrefixSet {
    /// Unique among prefix sets.
    pub name: String,
    /// In any order; overlaps are no fault.
    pub prefixes: PrefixRanges,
}

/// Communities of all kinds under a name.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CommunitySet {
    /// Unique among community sets.
    pub name: String,
    /// A route is in the set when it has one of these,
    pub communities: Vec<CommunityPattern>,
    /// or one in which one of these is found.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub regexes: Vec<Regex>,
}

/// AS path patterns under a name.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AsPathSet {
    /// Unique among AS path sets.
    pub name: String,
    /// A route is in the set when its path matches one of these,
    pub paths: Vec<PathPattern>,
    /// or when one of these is found in it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub regexes: Vec<Regex>,
}

/// Ordered terms under a name. A route that no term decides, nor `last`, is rejected.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Policy {
    /// Unique among policies.
    pub name: String,
    /// Changes to make before the first term is asked.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub first: Vec<Action>,
    /// Tried in this order.
    pub terms: Vec<Term>,
    /// What becomes of a route that no term decides.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last: Option<Last>,
}

/// What follows the terms.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Last {
    /// Changes to make, in this order.
    pub then: Vec<Action>,
    /// [`Outcome::Next`] decides nothing, as if there were no `last`.
    pub outcome: Outcome,
}

/// One step of a policy.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Term {
    /// Unique in its policy: what is shown when the term refuses a route.
    pub name: String,
    /// All must hold; no condition: always.
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
    /// One of these is found in the AS path as it is printed.
    AsPathRegex(Vec<Regex>),
    /// One of these is found in a community as it is printed.
    CommunityRegex(Vec<Regex>),
    /// The length of the prefix.
    PrefixLength(RangeInclusive<u8>),
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
    /// The interface that the route names is one of these.
    Interface(Vec<String>),
    /// The metric in the routing table; a route without one does not match.
    Metric(RangeInclusive<u32>),
    /// What origin validation says.
    Validity(Vec<Validity>),
    /// What is known of the path by who provides for whom.
    Aspa(Vec<PathValidity>),
    /// What its signatures say.
    Bgpsec(Vec<PathSecurity>),
    /// One of these policies would accept the route.
    Policy(Vec<String>),
    /// Not all of these hold.
    Not(Vec<Self>),
}

/// A change to a route, or the terms of another policy.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Action {
    /// Sets LOCAL_PREF.
    LocalPreference(u32),
    /// Sets the weight, which the decision asks before everything else and nobody is told.
    Weight(u32),
    /// Changes MULTI_EXIT_DISC.
    Med(MedAction),
    /// Sets ORIGIN.
    Origin(Origin),
    /// Puts AS numbers before the path.
    Prepend(Prepend),
    /// Drops the communities of all kinds and puts these in their place.
    SetCommunities(Vec<Community>),
    /// Removes communities.
    RemoveCommunities(Vec<CommunityPattern>),
    /// Adds communities.
    AddCommunities(Vec<Community>),
    /// Removes communities, and adds others if one was removed.
    ReplaceCommunities(Replacement),
    /// Sets the next hop.
    NextHop(NextHopEdit),
    /// Sets the tag.
    Tag(u32),
    /// Runs the terms of this policy, its changes included. Where one of them decides, or its `last` does, that
    /// decides here; else the next action follows.
    Apply(String),
}

/// What a policy does to MULTI_EXIT_DISC. A route without one counts as 0.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MedAction {
    /// It gets this value.
    Set(u32),
    /// It becomes so much more, and no more than fits.
    Add(u32),
    /// It becomes so much less, and no less than 0.
    Subtract(u32),
    /// It is removed.
    Remove,
    /// It becomes the metric of the way to the next hop.
    Metric,
}

/// Communities in the place of others.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Replacement {
    /// What goes.
    pub these: Vec<CommunityPattern>,
    /// What comes, where something has gone.
    pub by: Vec<Community>,
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

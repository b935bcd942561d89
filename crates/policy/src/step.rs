//! Compiled actions.

use std::sync::Arc;

use crate::{
    Community, Edits, MedAction, MedEdit, NextHopEdit, Origin, Prepend, Route, Verdict,
    community::CommunityMatcher,
    program::{Code, Watch},
    test::View,
};

/// An action with its patterns resolved.
#[derive(PartialEq, Eq, Debug)]
pub(crate) enum Step {
    Change(Change),
    /// Runs another policy. Its terms have numbers from `base` on.
    Apply {
        code: Arc<Code>,
        base: u16,
    },
}

#[derive(PartialEq, Eq, Debug)]
pub(crate) enum Change {
    LocalPref(u32),
    Weight(u32),
    Med(MedAction),
    Origin(Origin),
    Prepend(Prepend),
    SetCommunities(Box<[Community]>),
    RemoveCommunities(CommunityMatcher),
    AddCommunities(Box<[Community]>),
    ReplaceCommunities(CommunityMatcher, Box<[Community]>),
    NextHop(NextHopEdit),
    Tag(u32),
}

/// Carries out steps up to the first that decides.
#[inline]
pub(crate) fn perform<R: Route, W: Watch>(
    steps: &[Step],
    route: &R,
    edits: &mut Edits,
    watch: &mut W,
) -> Option<Verdict> {
    for step in steps {
        match step {
            Step::Change(change) => change.make(route, edits),
            Step::Apply { code, base } => {
                watch.changed(edits);
                if let Some(verdict) = code.apply(route, edits, watch) {
                    return Some(verdict.numbered_from(*base));
                }
            }
        }
    }
    None
}

impl Step {
    /// Whether what it does depends on more than attribute set and next hop.
    pub(crate) fn reads_prefix(&self) -> bool {
        match self {
            // A metric that is known to policies is that of a route without a set that it could share.
            Self::Change(_) => false,
            Self::Apply { code, .. } => code.reads_prefix,
        }
    }

    /// Whether it asks what is known of the signatures of paths.
    pub(crate) fn reads_bgpsec(&self) -> bool {
        match self {
            Self::Change(_) => false,
            Self::Apply { code, .. } => code.reads_bgpsec,
        }
    }

    /// What it costs at most; what a policy costs is counted where it is applied.
    pub(crate) fn steps(&self) -> usize {
        1 + match self {
            Self::Change(Change::SetCommunities(list) | Change::AddCommunities(list)) => list.len(),
            Self::Change(Change::RemoveCommunities(set)) => set.steps(),
            Self::Change(Change::ReplaceCommunities(set, list)) => set.steps() + list.len(),
            Self::Change(_) | Self::Apply { .. } => 0,
        }
    }
}

impl Change {
    fn make(&self, route: &impl Route, edits: &mut Edits) {
        match self {
            Self::LocalPref(value) => edits.local_pref = Some(*value),
            Self::Weight(value) => edits.weight = Some(*value),
            Self::Med(action) => edits.med = Some(med(*action, route, edits)),
            Self::Origin(origin) => edits.origin = Some(*origin),
            Self::Prepend(prepend) => edits.prepend = Some(*prepend),
            Self::SetCommunities(communities) => {
                edits.communities.replace();
                edits.large_communities.replace();
                edits.ext_communities.replace();
                add(communities, route, edits);
            }
            Self::RemoveCommunities(set) => {
                remove(set, route, edits);
            }
            Self::AddCommunities(communities) => add(communities, route, edits),
            Self::ReplaceCommunities(set, communities) => {
                if remove(set, route, edits) {
                    add(communities, route, edits);
                }
            }
            Self::NextHop(edit) => edits.next_hop = Some(*edit),
            Self::Tag(value) => edits.tag = Some(*value),
        }
    }
}

fn med(action: MedAction, route: &impl Route, edits: &Edits) -> MedEdit {
    let now =
        || edits.med.unwrap_or_else(|| View { route, edits }.med().map_or(MedEdit::Remove, MedEdit::Set));
    match action {
        MedAction::Set(value) => MedEdit::Set(value),
        MedAction::Remove => MedEdit::Remove,
        MedAction::Add(more) => now().plus(more.into()),
        MedAction::Subtract(less) => now().plus(-i64::from(less)),
        MedAction::Metric => route.metric().map_or(MedEdit::Metric(0), MedEdit::Set),
    }
}

fn add(communities: &[Community], route: &impl Route, edits: &mut Edits) {
    for community in communities {
        match *community {
            Community::Standard(value) => {
                edits.communities.add(value, route.communities().any(|received| received == value));
            }
            Community::Large(global, first, second) => {
                let value = (global, first, second);
                let received = route.large_communities().any(|received| received == value);
                edits.large_communities.add(value, received);
            }
            Community::Extended(value) => {
                edits.ext_communities.add(value, route.ext_communities().any(|received| received == value));
            }
        }
    }
}

/// Whether there was anything to remove.
fn remove(set: &CommunityMatcher, route: &impl Route, edits: &mut Edits) -> bool {
    let mut removed = false;
    if set.wants_standard() {
        removed |= edits.communities.remove(route.communities(), |value| set.standard(value));
    }
    if set.wants_large() {
        removed |= edits.large_communities.remove(route.large_communities(), |value| set.large(value));
    }
    if set.wants_extended() {
        removed |= edits.ext_communities.remove(route.ext_communities(), |value| set.extended(value));
    }
    removed
}

//! Compiled policies.

use std::{net::IpAddr, ops::RangeInclusive, sync::Arc};

use holdfast_types::Prefix;

use crate::{
    ACCEPT_ALL, Action, Community, CommunityPattern, Edits, MedEdit, NextHopEdit, Origin, Outcome, Protocol,
    REJECT_ALL, Route, asn_set::AsnSet, community::CommunityMatcher, path::PathMatcher,
    prefix_set::PrefixMatcher,
};

/// A compiled policy. Immutable and cheap to clone. Equal programs decide alike: compare the old with the
/// new one after a configuration change to see whether anything has to be evaluated again. The id is no
/// part of that.
#[derive(Clone, Debug)]
pub struct Program {
    id: ProgramId,
    code: Arc<Code>,
}

/// Names one compilation of one policy; a key for cached verdicts.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ProgramId {
    /// Which policy: 0 is [`ACCEPT_ALL`], 1 is [`REJECT_ALL`], then in the order of the source.
    pub index: u32,
    /// Which compilation: what was given to [`crate::Library::compile`].
    pub generation: u32,
}

/// What a program says of a route.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub enum Verdict {
    /// It passes, with the edits.
    Accept,
    /// It does not, because of this term.
    Reject(TermRef),
}

/// A term of a program, or the rejection at its end; [`Program::term_name`] tells.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct TermRef(u16);

impl TermRef {
    /// Terms of one policy; the number after the last is the rejection at its end.
    pub(crate) const MAX_TERMS: usize = u16::MAX as usize;
}

#[derive(PartialEq, Eq, Debug)]
pub(crate) struct Code {
    pub(crate) name: String,
    pub(crate) terms: Box<[CompiledTerm]>,
    pub(crate) reads_prefix: bool,
}

#[derive(PartialEq, Eq, Debug)]
pub(crate) struct CompiledTerm {
    pub(crate) tests: Box<[Test]>,
    pub(crate) actions: Box<[Action]>,
    pub(crate) outcome: Outcome,
    pub(crate) name: String,
}

/// A condition with its sets resolved.
#[derive(PartialEq, Eq, Debug)]
pub(crate) enum Test {
    Prefix(Arc<PrefixMatcher>),
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
    Accepted(Box<[Arc<Code>]>),
}

impl PartialEq for Program {
    fn eq(&self, other: &Self) -> bool {
        // Peers share programs, and sets may be long.
        Arc::ptr_eq(&self.code, &other.code) || self.code == other.code
    }
}

impl Eq for Program {}

impl Program {
    pub(crate) fn new(id: ProgramId, code: Arc<Code>) -> Self {
        Self { id, code }
    }

    pub(crate) fn into_code(self) -> Arc<Code> {
        self.code
    }

    /// The built-in policy that lets everything pass unchanged.
    pub fn accept_all() -> Self {
        Self::built_in(0, ACCEPT_ALL, Outcome::Accept)
    }

    /// The built-in policy that lets nothing pass.
    pub fn reject_all() -> Self {
        Self::built_in(1, REJECT_ALL, Outcome::Reject)
    }

    fn built_in(index: u32, name: &str, outcome: Outcome) -> Self {
        let (tests, actions) = (Box::default(), Box::default());
        let term = CompiledTerm { tests, actions, outcome, name: name.to_owned() };
        let code = Code { name: name.to_owned(), terms: Box::new([term]), reads_prefix: false };
        Self::new(ProgramId { index, generation: 0 }, Arc::new(code))
    }

    /// Which compilation this is.
    pub fn id(&self) -> ProgramId {
        self.id
    }

    /// The policy's name.
    pub fn name(&self) -> &str {
        &self.code.name
    }

    /// Whether the verdict may differ between two routes that share attribute set and next hop: whether
    /// the program looks at the prefix, the peer, the protocol or the tag. If not, verdict and edits may
    /// be kept with the attribute set.
    pub fn reads_prefix(&self) -> bool {
        self.code.reads_prefix
    }

    /// The name of the term that refused a route; `default` for the rejection after the last term.
    pub fn term_name(&self, term: TermRef) -> &str {
        self.code.terms.get(usize::from(term.0)).map_or("default", |term| &term.name)
    }

    /// Decides about a route. `edits` is cleared first, and holds what to change if the route is
    /// accepted; after a rejection it is empty.
    pub fn evaluate(&self, route: &impl Route, edits: &mut Edits) -> Verdict {
        edits.clear();
        let rejected = self.run(route, edits);
        match rejected {
            None => Verdict::Accept,
            Some(term) => {
                edits.clear();
                Verdict::Reject(term)
            }
        }
    }

    fn run(&self, route: &impl Route, edits: &mut Edits) -> Option<TermRef> {
        for (index, term) in self.code.terms.iter().enumerate() {
            if !term.matches(&View { route, edits }) {
                continue;
            }
            match term.outcome {
                Outcome::Reject => return Some(TermRef(index as u16)),
                Outcome::Accept => {
                    term.actions.iter().for_each(|action| apply(action, route, edits));
                    return None;
                }
                Outcome::Next => term.actions.iter().for_each(|action| apply(action, route, edits)),
            }
        }
        Some(TermRef(self.code.terms.len() as u16))
    }
}

impl Code {
    /// Whether the policy lets the route pass; makes no changes.
    fn accepts<R: Route>(&self, view: &View<'_, R>) -> bool {
        let decides = |term: &&CompiledTerm| term.outcome != Outcome::Next && term.matches(view);
        self.terms.iter().find(decides).is_some_and(|term| term.outcome == Outcome::Accept)
    }
}

impl CompiledTerm {
    #[inline]
    fn matches<R: Route>(&self, view: &View<'_, R>) -> bool {
        self.tests.iter().all(|test| test.holds(view))
    }
}

impl Test {
    #[inline]
    fn holds<R: Route>(&self, view: &View<'_, R>) -> bool {
        let route = view.route;
        match self {
            Self::Prefix(set) => set.contains(route.prefix()),
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
            Self::Accepted(policies) => policies.iter().any(|policy| policy.accepts(view)),
        }
    }

    /// Whether the answer depends on more than attribute set and next hop.
    pub(crate) fn reads_prefix(&self) -> bool {
        match self {
            Self::Prefix(_) | Self::PeerAs(_) | Self::Protocol(_) | Self::Tag(_) => true,
            Self::Accepted(policies) => policies.iter().any(|policy| policy.reads_prefix),
            Self::Community(_)
            | Self::AsPath(_)
            | Self::AsPathLength(_)
            | Self::Origin(_)
            | Self::LocalPref(_)
            | Self::Med(_)
            | Self::NextHop(_) => false,
        }
    }
}

/// A route as the terms so far have changed it.
struct View<'a, R> {
    route: &'a R,
    edits: &'a Edits,
}

impl<R: Route> View<'_, R> {
    fn local_pref(&self) -> Option<u32> {
        self.edits.local_pref.or_else(|| self.route.local_pref())
    }

    fn med(&self) -> Option<u32> {
        match self.edits.med {
            Some(MedEdit::Set(value)) => Some(value),
            Some(MedEdit::Remove) => None,
            None => self.route.med(),
        }
    }

    fn origin(&self) -> Origin {
        self.edits.origin.unwrap_or_else(|| self.route.origin())
    }

    /// `None` also when it will be our own address, which policy does not know.
    fn next_hop(&self) -> Option<IpAddr> {
        match self.edits.next_hop {
            Some(NextHopEdit::Address(address)) => Some(address),
            Some(NextHopEdit::SelfAddress) => None,
            None => self.route.next_hop(),
        }
    }

    fn tag(&self) -> Option<u32> {
        self.edits.tag.or_else(|| self.route.tag())
    }

    fn has_community(&self, set: &CommunityMatcher) -> bool {
        let Self { route, edits } = self;
        (set.wants_standard()
            && edits.communities.apply(route.communities()).any(|value| set.standard(value)))
            || (set.wants_large()
                && edits.large_communities.apply(route.large_communities()).any(|value| set.large(value)))
            || (set.wants_extended() && route.ext_communities().any(|value| set.extended(value)))
    }
}

fn apply(action: &Action, route: &impl Route, edits: &mut Edits) {
    match action {
        Action::LocalPreference(value) => edits.local_pref = Some(*value),
        Action::Med(edit) => edits.med = Some(*edit),
        Action::Origin(origin) => edits.origin = Some(*origin),
        Action::Prepend(prepend) => edits.prepend = Some(*prepend),
        Action::SetCommunities(communities) => {
            edits.communities.replace();
            edits.large_communities.replace();
            add(communities, route, edits);
        }
        Action::RemoveCommunities(patterns) => remove(patterns, route, edits),
        Action::AddCommunities(communities) => add(communities, route, edits),
        Action::NextHop(edit) => edits.next_hop = Some(*edit),
        Action::Tag(value) => edits.tag = Some(*value),
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
        }
    }
}

fn remove(patterns: &[CommunityPattern], route: &impl Route, edits: &mut Edits) {
    for pattern in patterns {
        edits.communities.remove(route.communities(), |value| pattern.matches_standard(value));
        edits.large_communities.remove(route.large_communities(), |value| pattern.matches_large(value));
    }
}

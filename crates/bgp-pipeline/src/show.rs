//! What an operator may ask: all paths of a prefix, and why each one is or is not used.

use std::{borrow::Cow, fmt};

use holdfast_bgp_wire::Attributes;
use holdfast_policy::{Edits, Protocol, Verdict};
use holdfast_types::{Asn, IpPrefix, Prefix};

use crate::{
    Gateway, PeerIndex, PeerKind,
    class::Policy,
    core::Core,
    decision::{Decision, Step},
    export::rules::Withheld,
    path::{Flags, Path, SourceId},
    sets::SetFlags,
    signatures::SignatureView,
    stage::Stages,
    table::Table,
    validity::States,
};

/// What became of a path.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum PathState {
    /// Chosen.
    Best,
    /// Used beside the best; it would have lost at this step.
    Multipath(Step),
    /// Another was better at this step.
    Lost(Step),
    /// Our AS number is in its path (RFC 4271 section 9.1.2).
    AsLoop,
    /// We are its originator or in its cluster list (RFC 4456 section 8).
    ReflectionLoop,
    /// Its path does not begin with the peer's AS.
    WrongFirstAs,
    /// The peer must not tell us of it (RFC 9234 section 5).
    RouteLeak,
    /// Only routes with good signatures are used, and its are not known to be.
    NotValid,
    /// No import policy is configured (RFC 8212).
    NoPolicy,
    /// A term of the import policy refuses it.
    Rejected {
        /// The policy's name.
        policy: String,
        /// The term's name.
        term: String,
    },
    /// A stage behind import policy refuses it.
    RefusedByStage,
    /// Import policy took it, but what it makes of it cannot be stored.
    NotStored,
    /// The next hop cannot be reached, or the RIB has not answered yet.
    UnreachableNextHop,
    /// A stage, such as damping, holds it back, and says why.
    Suppressed(Cow<'static, str>),
    /// The session that brought it has ended; it is being swept.
    Stale,
    /// It is best, but a peer is not told of it.
    Withheld(Withheld),
}

impl fmt::Display for PathState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Best => f.write_str("best"),
            Self::Multipath(step) => write!(f, "multipath; not best: {step}"),
            Self::Lost(step) => step.fmt(f),
            Self::AsLoop => f.write_str("our AS is in the path"),
            Self::ReflectionLoop => f.write_str("we are its originator or in its cluster list"),
            Self::WrongFirstAs => f.write_str("the path does not begin with the peer's AS"),
            Self::RouteLeak => f.write_str("a route leak (RFC 9234)"),
            Self::NotValid => f.write_str("not valid by BGPsec, which is required"),
            Self::NoPolicy => f.write_str("no import policy is configured (RFC 8212)"),
            Self::Rejected { policy, term } => write!(f, "refused by policy {policy}, term {term}"),
            Self::RefusedByStage => f.write_str("refused by a stage"),
            Self::NotStored => f.write_str("no room for what import policy makes of it"),
            Self::UnreachableNextHop => f.write_str("the next hop cannot be reached"),
            Self::Suppressed(why) => f.write_str(why),
            Self::Stale => f.write_str("the session has ended"),
            Self::Withheld(why) => why.fmt(f),
        }
    }
}

/// One path, for output.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PathView {
    /// Who sent it; `None` for our own routes.
    pub peer: Option<PeerIndex>,
    /// Its path identifier (RFC 7911), if it came with one; where it is shown as a peer is told it, that which it goes under.
    pub identifier: Option<u32>,
    /// Which of its session's paths it is.
    pub(crate) place: u8,
    /// Inside or outside our AS.
    pub kind: PeerKind,
    /// The sender's AS.
    pub peer_asn: Asn,
    /// The sender's BGP identifier, as a number.
    pub peer_router_id: u32,
    /// Attributes after import policy (as received if it was refused), in canonical bytes.
    pub bytes: Vec<u8>,
    /// LOCAL_PREF, or the default in its place.
    pub local_pref: u32,
    /// Asked before everything else, and told to nobody.
    pub weight: u32,
    /// Where packets go; `None` for our own routes.
    pub next_hop: Option<Gateway>,
    /// Interior cost; `None` if the next hop cannot be reached.
    pub metric: Option<u32>,
    /// The protocol of a route that was originated here.
    pub protocol: Protocol,
    /// Another protocol's route, as [`crate::Pipeline::redistribute`] had it.
    pub is_redistributed: bool,
    /// An aggregate.
    pub is_aggregate: bool,
    /// The tag it carries between protocols; 0 is none.
    pub tag: u32,
    /// The session that brought it has ended, and it stays until the peer has sent it again (RFC 4724).
    pub is_stale: bool,
    /// It was chosen, also where [`Self::state`] says why a peer is not told of it.
    pub is_best: bool,
    /// Import policy took it, and it is no loop.
    pub is_accepted: bool,
    /// What validation says of it; `None` where it is not asked.
    pub states: Option<States>,
    /// What is known of its signatures, where it has some that are looked at.
    pub signatures: Option<SignatureView>,
    /// Whether it is best, used, or why not.
    pub state: PathState,
}

impl PathView {
    /// The attributes.
    pub fn attributes(&self) -> Attributes<'_> {
        Attributes(&self.bytes)
    }

    /// Whether it takes part in the decision.
    pub fn is_valid(&self) -> bool {
        use PathState::{Best, Lost, Multipath, Withheld};
        matches!(self.state, Best | Multipath(_) | Lost(_) | Withheld(_))
    }
}

/// Paths that are looked at for each prefix that may be asked for at once, on average: what takes time is them.
pub(crate) const PATHS_A_PREFIX: usize = 16;

impl<P: IpPrefix> Table<P> {
    /// All paths of a prefix, the best first.
    pub(crate) fn explain(&mut self, core: &mut Core, stages: &Stages, prefix: P) -> Vec<PathView> {
        let paths = self.rib.paths(prefix);
        let lost = core.lost(prefix.into(), &paths);
        let views = paths.iter().zip(lost);
        views.map(|(path, lost)| core.view(stages, prefix.into(), *path, lost)).collect()
    }

    /// Up to `limit` prefixes after one (or from the first) in address order, with their paths; fewer, but at least one,
    /// where they have many paths.
    pub(crate) fn show(
        &mut self,
        core: &mut Core,
        stages: &Stages,
        after: Option<P>,
        limit: usize,
    ) -> Vec<(Prefix, Vec<PathView>)> {
        let mut shown = Vec::new();
        let mut left = limit * PATHS_A_PREFIX;
        for (prefix, _) in self.rib.page(after, limit) {
            let views = self.explain(core, stages, prefix);
            left = left.saturating_sub(views.len());
            shown.push((prefix.into(), views));
            if left == 0 {
                break;
            }
        }
        shown
    }
}

impl Core {
    /// At which step each of a prefix's paths has lost; `None` for the best, and for those that take no part.
    pub(crate) fn lost(&mut self, prefix: Prefix, paths: &[Path]) -> Vec<Option<Step>> {
        let mut decision = Decision::default();
        decision.choose(self, prefix, paths);
        let mut lost = vec![None; paths.len()];
        for candidate in &decision.candidates {
            lost[candidate.index] = candidate.lost;
        }
        lost
    }

    pub(crate) fn view(
        &mut self,
        stages: &Stages,
        prefix: Prefix,
        path: Path,
        lost: Option<Step>,
    ) -> PathView {
        let state = self.state(stages, prefix, path, lost);
        let is_accepted = self.imported(prefix, path).is_some();
        let shown = self.effective(prefix, path.set).unwrap_or(path.set);
        let hop = self.sets.next_hop(shown);
        let source = self.sources.get(path.source);
        PathView {
            peer: source.peer,
            identifier: None,
            place: source.place,
            kind: source.kind,
            peer_asn: source.asn,
            peer_router_id: source.router_id,
            bytes: self.sets.bytes(shown).to_vec(),
            local_pref: self.sets.preference(shown).local_pref,
            weight: self.weight(shown, path.source),
            next_hop: self.next_hops.gateway(hop),
            metric: self.next_hops.metric(hop),
            protocol: self.classes.get(self.sets.class(path.set)).protocol,
            is_redistributed: path.source == SourceId::REDISTRIBUTED,
            is_aggregate: path.source == SourceId::AGGREGATED,
            tag: self.classes.get(self.sets.class(shown)).tag,
            is_stale: !source.is_alive(),
            is_accepted,
            states: self.classes.get(self.sets.class(path.set)).states,
            signatures: self.signature_view(path.source, prefix, path.set),
            is_best: path.is_best(),
            state,
        }
    }

    fn state(&mut self, stages: &Stages, prefix: Prefix, path: Path, lost: Option<Step>) -> PathState {
        if self.sources.get(path.source).drops(usize::from(matches!(prefix, Prefix::V6(_))), path) {
            return PathState::Stale;
        }
        let flags = self.sets.flags(path.set);
        if flags.has(SetFlags::AS_LOOP) {
            return PathState::AsLoop;
        }
        if flags.has(SetFlags::REFLECTION_LOOP) {
            return PathState::ReflectionLoop;
        }
        if flags.has(SetFlags::WRONG_FIRST_AS) {
            return PathState::WrongFirstAs;
        }
        if flags.has(SetFlags::ROUTE_LEAK) {
            return PathState::RouteLeak;
        }
        let Some(set) = self.effective(prefix, path.set) else { return self.refusal(prefix, path) };
        if path.flags.has(Flags::SUPPRESSED) {
            let peer = self.sources.get(path.source).peer;
            let why = peer.and_then(|peer| stages.holds(peer, prefix));
            return PathState::Suppressed(why.unwrap_or(Cow::Borrowed("to be released")));
        }
        if self.next_hops.metric(self.sets.next_hop(set)).is_none() {
            return PathState::UnreachableNextHop;
        }
        match lost {
            None => PathState::Best,
            Some(step) if path.flags.has(Flags::MULTIPATH) => PathState::Multipath(step),
            Some(step) => PathState::Lost(step),
        }
    }

    fn refusal(&self, prefix: Prefix, path: Path) -> PathState {
        let class = self.classes.get(self.sets.class(path.set));
        if class.lacks_signatures() {
            return PathState::NotValid;
        }
        let program = match &class.import {
            Policy::Program(program) => program,
            Policy::AcceptAll if self.is_rewritten(path.set) => return PathState::RefusedByStage,
            Policy::AcceptAll | Policy::Missing => return PathState::NoPolicy,
        };
        let route = self.route(prefix, path.set);
        match program.evaluate(&route, &mut Edits::default()) {
            Verdict::Accept if self.is_rewritten(path.set) => PathState::RefusedByStage,
            Verdict::Accept => PathState::NotStored,
            Verdict::Reject(term) => PathState::Rejected {
                policy: program.name().to_owned(),
                term: program.term_name(term).to_owned(),
            },
        }
    }
}

//! The ExportPolicy stage: which best paths a group of peers is told of.

pub(crate) mod outcomes;
pub(crate) mod rules;

use std::cell::{Ref, RefCell};

use holdfast_policy::{Edits, Verdict};
use holdfast_types::{IpPrefix, Prefix, RouterId};

use self::{
    outcomes::{Last, Outcome, Outcomes, REFUSED, UNCHANGED},
    rules::{Export, ExportDecision, Withheld},
};
use crate::{
    PeerKind,
    class::Policy,
    core::Core,
    path::{Path, SetId, SourceId},
    rewrite,
    sets::Verdict as Imported,
    summary::Summaries,
    verdicts::GroupNumber,
};

/// Peers for which the [`Export`] is equal, and what it has made of sets so far.
#[derive(Debug)]
pub(crate) struct Group {
    pub(crate) export: Export,
    pub(crate) number: GroupNumber,
    outcomes: RefCell<Outcomes>,
}

impl Group {
    pub(crate) fn new(export: Export, number: GroupNumber) -> Self {
        let outcomes = RefCell::new(Outcomes::new(export.offered.is_some()));
        Self { export, number, outcomes }
    }

    /// Leaves of all paths of a prefix those that are told, if export policy lets them pass: the best, or several, or those
    /// of a view.
    pub(crate) fn select<P: IpPrefix>(&self, core: &mut Core, prefix: P, paths: &mut Vec<Path>) {
        if !self.export.families[usize::from(P::WIDTH != 32)] {
            return paths.clear();
        }
        match (self.export.viewer, self.export.paths::<P>()) {
            (Some(_), _) => self.choose(core, prefix, paths),
            (None, 0) => paths.retain(|path| path.is_best()),
            (None, most) => paths.retain(|path| path.within(most).is_some()),
        }
    }

    /// Whether the path is announced to this group, and how.
    #[inline]
    pub(crate) fn judge<P: IpPrefix>(
        &self,
        core: &mut Core,
        prefix: P,
        path: Path,
    ) -> Option<ExportDecision> {
        if path.is_some() { self.judge_path(core, prefix, path) } else { None }
    }

    /// The same where routes are announced: in place, as it is asked twice for each.
    #[inline(always)]
    pub(crate) fn judge_here<P: IpPrefix>(
        &self,
        core: &mut Core,
        prefix: P,
        path: Path,
    ) -> Option<ExportDecision> {
        if path.is_some() { self.judge_in_place(core, prefix, path) } else { None }
    }

    fn judge_path<P: IpPrefix>(&self, core: &mut Core, prefix: P, path: Path) -> Option<ExportDecision> {
        self.judge_in_place(core, prefix, path)
    }

    #[inline(always)]
    fn judge_in_place<P: IpPrefix>(&self, core: &mut Core, prefix: P, path: Path) -> Option<ExportDecision> {
        core.effort.judged += 1;
        if !self.export.wants(prefix) {
            return None;
        }
        if path.source == SourceId::DEFAULT {
            return self.judge_default::<P>(core, path);
        }
        if self.is_summarised(core, prefix.into(), path) {
            return None;
        }
        let originator = self.originator_of(core, path)?;
        match core.sets.exported.get(path.set, self.number) {
            Some(REFUSED) => None,
            Some(UNCHANGED) if self.export.has_own_next_hop(P::WIDTH == 32) => {
                let set = core.sets.accepted(path.set)?;
                Some(ExportDecision { set, outcome: Outcome(UNCHANGED.into()), originator })
            }
            answer => self.judge_closely(core, prefix, (path.set, originator), answer),
        }
    }

    /// The default route of ours is told by the peer's own configuration: policy is not asked.
    fn judge_default<P: IpPrefix>(&self, core: &mut Core, path: Path) -> Option<ExportDecision> {
        let set = core.effective(P::from_bits(0, 0).into(), path.set)?;
        let judged = ExportDecision { set, outcome: Outcome(UNCHANGED.into()), originator: None };
        self.export.has_own_next_hop(P::WIDTH == 32).then_some(judged)
    }

    /// Whether an aggregate stands for it. Where there is a view that is for the best path to say, which alone counts: the
    /// others go with it ([`Self::choose`]).
    #[inline]
    pub(crate) fn is_summarised(&self, core: &mut Core, prefix: Prefix, path: Path) -> bool {
        let Some(summaries) = &self.export.summaries else { return false };
        let is_asked = self.export.viewer.is_none() || path.standing() == 1;
        is_asked && summaries.keep_back(core, prefix, path)
    }

    /// By whom a path to these peers came if it is reflected. `None` if it is not for them.
    #[inline]
    pub(crate) fn originator_of(&self, core: &Core, path: Path) -> Option<Option<RouterId>> {
        match self.export.kind {
            PeerKind::Ibgp => self.originator(core, path),
            PeerKind::Ebgp | PeerKind::ConfedEbgp => Some(None),
        }
    }

    /// Of a path to internal peers: by whom it came if it is reflected. `None` if it is not for them.
    fn originator(&self, core: &Core, path: Path) -> Option<Option<RouterId>> {
        let source = core.sources.get(path.source);
        if source.kind != PeerKind::Ibgp || source.peer.is_none() {
            return Some(None);
        }
        // RFC 4456 section 6: from a client to all, from others to clients; without clients RFC 4271 section 9.2.
        (source.client || self.export.client).then(|| RouterId::new(source.router_id))
    }

    fn judge_closely<P: IpPrefix>(
        &self,
        core: &mut Core,
        prefix: P,
        (received, originator): (SetId, Option<RouterId>),
        answer: Option<u8>,
    ) -> Option<ExportDecision> {
        let known = answer.and_then(|answer| {
            let set = core.sets.accepted(received)?;
            Some((self.offered(core, set)?, Outcome(answer.into())))
        });
        let (set, outcome) = match known {
            Some(known) => known,
            None => self.ask(core, prefix.into(), received)?,
        };
        let judged = ExportDecision { set, outcome, originator };
        let edits = self.edits(outcome);
        let next_hop = rewrite::export::next_hop(core, &self.export, P::WIDTH == 32, judged, &edits);
        next_hop.map(|_| judged)
    }

    /// Why a path that [`Self::judge`] does not let pass is kept back.
    pub(crate) fn refusal(&self, core: &mut Core, prefix: Prefix, path: Path) -> Withheld {
        if self.export.kind == PeerKind::Ibgp && self.originator(core, path).is_none() {
            return Withheld::Internal;
        }
        let is_wanted = match prefix {
            Prefix::V4(prefix) => self.export.wants(prefix),
            Prefix::V6(prefix) => self.export.wants(prefix),
        };
        if !is_wanted {
            return Withheld::Unwanted;
        }
        if self.is_summarised(core, prefix, path) {
            return Withheld::Summarised;
        }
        let Some(set) = core.effective(prefix, path.set) else { return Withheld::NoNextHop };
        let Some(set) = self.offered(core, set) else { return Withheld::ByStage };
        if let Some(why) = self.export.keeps(core.sets.flags(set)) {
            return why;
        }
        if self.export.would_loop(core, set) {
            return Withheld::Loop;
        }
        match &self.export.policy {
            Policy::Missing => Withheld::NoPolicy,
            Policy::AcceptAll => Withheld::NoNextHop,
            Policy::Program(program) => {
                let route = core.route(prefix, set).to(self.export.receiver);
                match program.evaluate(&route, &mut Edits::default()) {
                    Verdict::Accept => Withheld::NoNextHop,
                    Verdict::Reject(term) => Withheld::Rejected {
                        policy: program.name().to_owned(),
                        term: program.term_name(term).to_owned(),
                    },
                }
            }
        }
    }

    /// Whether what was said of a path holds for every prefix.
    pub(crate) fn remembers<P: IpPrefix>(&self, core: &Core, path: Path) -> bool {
        !self.looks_at_prefixes::<P>() && core.sets.exported.get(path.set, self.number).is_some()
    }

    /// Whether something besides policies does.
    fn looks_at_prefixes<P: IpPrefix>(&self) -> bool {
        let summaries = self.export.summaries.as_ref();
        summaries.is_some_and(Summaries::has_any::<P>)
            || self.export.wanted[usize::from(P::WIDTH != 32)].is_some()
    }

    /// Whether what it makes of a set that [it remembers](Self::remembers) is the same for every prefix as long as the set
    /// lives: no stage is asked, which may contradict itself.
    pub(crate) fn keeps_hashes<P: IpPrefix>(&self) -> bool {
        self.export.offered.is_none() && !self.looks_at_prefixes::<P>()
    }

    /// What the policies are asked about in the place of a set after import: what stages make of it.
    #[inline]
    fn offered(&self, core: &mut Core, set: SetId) -> Option<SetId> {
        match self.export.offered {
            Some(receiver) => core.before_export(set, receiver),
            None => Some(set),
        }
    }

    /// Asks the policies, and remembers what they say if it is the same for all prefixes.
    fn ask(&self, core: &mut Core, prefix: Prefix, received: SetId) -> Option<(SetId, Outcome)> {
        let effective = core.effective(prefix, received);
        let is_per_route = core.sets.verdict(received) == Imported::PerRoute;
        // Whether what export policy says is that of the set after import, whatever prefixes import policy has looked at.
        let of_imported = effective.filter(|_| is_per_route && self.is_of_sets());
        if let Some(set) = of_imported
            && let Some(answer) = core.sets.exported_after.get(set, self.number)
        {
            return (answer != REFUSED).then_some((set, Outcome(answer.into())));
        }
        let outcomes = &mut *self.outcomes.borrow_mut();
        if let Some(said) = outcomes.said_of((prefix, received)) {
            return said;
        }
        let offered = effective.and_then(|set| self.offered(core, set));
        core.effort.exported += 1;
        let judged = offered.and_then(|set| {
            let accepted = self.export.accepts(core, prefix, set, &mut outcomes.edits);
            accepted.then(|| (set, outcomes.number()))
        });
        let answer = judged.map_or(Some(REFUSED), |(_, outcome)| outcome.to_keep());
        match (answer, of_imported) {
            (Some(answer), Some(set)) => core.sets.exported_after.put(set, self.number, answer),
            (Some(answer), None) if !is_per_route && !self.export.policy.reads_prefix() => {
                core.sets.exported.put(received, self.number, answer);
            }
            (_, _) => outcomes.say((prefix, received), judged),
        }
        judged
    }

    /// Whether what it makes of a set after import is the same for all prefixes: neither its policy nor a stage looks at
    /// more.
    fn is_of_sets(&self) -> bool {
        self.export.offered.is_none() && !self.export.policy.reads_prefix()
    }

    /// Whether it remembers what it makes of a set after an import policy that looks at prefixes.
    pub(crate) fn remembers_imported(&self, core: &Core, set: SetId) -> bool {
        core.sets.exported_after.get(set, self.number).is_some()
    }

    /// What an outcome changes.
    pub(crate) fn edits(&self, outcome: Outcome) -> Ref<'_, Edits> {
        Ref::map(self.outcomes.borrow(), |outcomes| &outcomes.known[outcome.0 as usize])
    }

    /// How many outcomes are kept.
    #[cfg(test)]
    pub(crate) fn outcomes(&self) -> usize {
        self.outcomes.borrow().known.len()
    }

    /// Forgets the outcomes of the window before that will not be met again by their number.
    pub(crate) fn begin_window(&self) {
        self.outcomes.borrow_mut().begin_window();
    }

    /// The window is encoded: what was asked may be another from now on.
    pub(crate) fn end_window(&self) {
        self.outcomes.borrow_mut().last = Last::NoWindow;
    }
}

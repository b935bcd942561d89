//! The Decision stage: which candidate is best (RFC 4271 section 9.1, RFC 4456 section 9).
//!
//! [`Decision::choose`] is the procedure of the RFC, step by step, over all candidates; it also serves
//! `show`, since it leaves behind at which step each one lost. [`Core::compare`] is the short way for the
//! usual event, one more candidate: it knows when the answer cannot depend on the others. [`Decision::rank`] puts
//! all candidates in order at once, for who is told of several.

use std::{
    cmp::{Ordering, Reverse},
    fmt,
    net::IpAddr,
};

use holdfast_bgp_wire::Attributes;
use holdfast_types::{Asn, Prefix, RouterId};
use smallvec::SmallVec;

use crate::{
    PeerKind,
    core::Core,
    next_hop::NextHopId,
    path::{Flags, Path, SetId, SourceId},
    sets::{Preference, SetFlags},
};

/// The weight of routes of our own; received ones have 0 unless import policy says otherwise.
pub const LOCAL_WEIGHT: u32 = 32_768;

/// Why a candidate lost: the first step at which another was better.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Step {
    /// It is the last resort: its peer has been away for long (RFC 9494 section 4.3).
    LongLivedStale,
    /// The weight that import policy gave; a route of our own has [`LOCAL_WEIGHT`].
    Weight,
    /// The other is a route of our own.
    LocalRoute,
    /// Degree of preference (RFC 4271 section 9.1.1).
    LocalPref,
    /// RFC 4271 section 9.1.2.2 a).
    AsPathLength,
    /// Section 9.1.2.2 b).
    Origin,
    /// Section 9.1.2.2 c).
    Med,
    /// Section 9.1.2.2 d).
    Ebgp,
    /// Section 9.1.2.2 e).
    InteriorCost,
    /// It would be best, but the other one is already (RFC 5004 section 3).
    Oldest,
    /// Section 9.1.2.2 f), by ORIGINATOR_ID where there is one (RFC 4456 section 9).
    RouterId,
    /// RFC 4456 section 9.
    ClusterList,
    /// RFC 4271 section 9.1.2.2 g).
    PeerAddress,
    /// Of several paths of one session (RFC 7911) that are equal up to here, the one at the lowest place. A new path takes
    /// the first that is free: that may be one which an older path has left.
    Path,
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::LongLivedStale => "stale for long, another is not",
            Self::Weight => "lower weight",
            Self::LocalRoute => "another is our own route",
            Self::LocalPref => "lower local preference",
            Self::AsPathLength => "a) longer AS path",
            Self::Origin => "b) higher origin",
            Self::Med => "c) higher MED from the same neighbour AS",
            Self::Ebgp => "d) internal, another is external",
            Self::InteriorCost => "e) higher metric to the next hop",
            Self::Oldest => "another was best before, and only router ids speak against it",
            Self::RouterId => "f) higher router id",
            Self::ClusterList => "longer cluster list",
            Self::PeerAddress => "g) higher peer address",
            Self::Path => "another path of the same peer has a lower place",
        })
    }
}

/// A path that takes part.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Candidate {
    /// Where it stands in the list of paths.
    pub(crate) index: usize,
    /// The attributes after import policy.
    pub(crate) set: SetId,
    source: SourceId,
    /// The best so far.
    is_present: bool,
    /// Not the last resort (RFC 9494 section 4.3).
    is_fresh: bool,
    weight: u32,
    preference: Preference,
    metric: u32,
    /// `None` as long as it may be best.
    pub(crate) lost: Option<Step>,
}

impl Candidate {
    /// Configured networks come before routes of other protocols, those before aggregates, and these before received ones.
    fn precedence(&self) -> u8 {
        match self.source {
            SourceId::LOCAL => 3,
            SourceId::REDISTRIBUTED => 2,
            SourceId::AGGREGATED => 1,
            _ => 0,
        }
    }

    fn rank(&self) -> (bool, u32, u8, Preference) {
        (self.is_fresh, self.weight, self.precedence(), self.preference)
    }

    /// [`Self::rank`] as a number, of which the least is the best.
    fn place(&self) -> u128 {
        let above =
            u64::from(self.is_fresh) << 40 | u64::from(self.weight) << 8 | u64::from(self.precedence());
        !(u128::from(above) << 64 | u128::from(self.preference.to_bits()))
    }

    /// Whether it may be used beside the best: everything up to step e) was equal.
    fn is_equal_cost(&self) -> bool {
        use Step::{ClusterList, Oldest, PeerAddress, RouterId};
        matches!(self.lost, None | Some(Oldest | RouterId | ClusterList | PeerAddress | Step::Path))
    }
}

/// Whether one more candidate changes the choice.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Comparison {
    /// It is the new best.
    Better,
    /// The best stays.
    Worse,
    /// That depends on the MEDs of others.
    AskAll,
}

impl Core {
    /// What the path is as a candidate; `None` if it takes no part.
    #[inline]
    pub(crate) fn candidate(&mut self, prefix: Prefix, index: usize, path: Path) -> Option<Candidate> {
        let (set, metric) = self.usable(prefix, path)?;
        let (preference, flags) = self.sets.merits(set);
        let weight = self.weight_of(set, flags, path.source);
        let is_fresh = !flags.has(SetFlags::LLGR_STALE);
        let (source, is_present) = (path.source, path.is_best());
        Some(Candidate { index, set, source, is_present, is_fresh, weight, preference, metric, lost: None })
    }

    /// The weight of a route with this set after import policy.
    pub(crate) fn weight(&self, set: SetId, source: SourceId) -> u32 {
        self.weight_of(set, self.sets.flags(set), source)
    }

    #[inline]
    fn weight_of(&self, set: SetId, flags: SetFlags, source: SourceId) -> u32 {
        match source {
            source if source.is_ours() => LOCAL_WEIGHT,
            _ if flags.has(SetFlags::WEIGHTED) => self.classes.get(self.sets.class(set)).weight,
            _ => 0,
        }
    }

    /// One more candidate against the one that won over all others.
    ///
    /// MED makes the order of candidates no order: who is better may depend on a third. Not here, as long
    /// as the new one removes nobody who removed others, and is not removed by one that we do not look at.
    pub(crate) fn compare(&self, new: &Candidate, best: &Candidate) -> Comparison {
        match new.rank().cmp(&best.rank()) {
            Ordering::Greater => return Comparison::Better,
            Ordering::Less => return Comparison::Worse,
            Ordering::Equal => {}
        }
        let (new_med, best_med) = (self.med(new), self.med(best));
        let same_neighbor = new_med.0 == best_med.0;
        if same_neighbor && new_med.1 != best_med.1 {
            return if new_med.1 > best_med.1 { Comparison::Worse } else { Comparison::AskAll };
        }
        if self.stays(best, new) {
            return Comparison::Worse;
        }
        match (self.break_tie(new, best).is_lt(), same_neighbor) {
            (false, _) => Comparison::Worse,
            (true, true) => Comparison::Better,
            (true, false) => Comparison::AskAll,
        }
    }

    /// Whether removing the candidate leaves the choice as it is, whatever its MED did to others.
    pub(crate) fn is_beneath(&self, lost: &Candidate, best: &Candidate) -> bool {
        lost.rank() < best.rank()
    }

    /// Neighbouring AS and MED (section 9.1.2.2 c): those with equal numbers are compared by their MEDs.
    fn med(&self, candidate: &Candidate) -> (Asn, u32) {
        let rules = self.speaker.decision;
        let missing = if rules.med_missing_as_worst { u32::MAX } else { 0 };
        let neighbor = if rules.always_compare_med { Asn(0) } else { self.neighbor_as(candidate) };
        (neighbor, self.sets.attributes(candidate.set).med().unwrap_or(missing))
    }

    /// Our own AS stands for none (RFC 5065 section 5.3).
    fn neighbor_as(&self, candidate: &Candidate) -> Asn {
        self.sets.attributes(candidate.set).as_path().neighbor_as().unwrap_or(self.speaker.asn)
    }

    /// RFC 5065 section 5.3: another member of our confederation counts as internal.
    fn is_internal(&self, candidate: &Candidate) -> bool {
        self.sources.get(candidate.source).kind != PeerKind::Ebgp
    }

    fn router_id(&self, candidate: &Candidate) -> u32 {
        let originator = self.reflected(candidate).and_then(Attributes::originator_id);
        originator.map_or(self.sources.get(candidate.source).router_id, RouterId::bits)
    }

    fn cluster_list(&self, candidate: &Candidate) -> usize {
        self.reflected(candidate).map_or(0, |attributes| attributes.cluster_list().len())
    }

    /// Its attributes if they are those of a reflected route.
    fn reflected(&self, candidate: &Candidate) -> Option<Attributes<'_>> {
        let reflected = self.sets.flags(candidate.set).has(SetFlags::REFLECTED);
        reflected.then(|| self.sets.attributes(candidate.set))
    }

    /// RFC 5004 section 3: whether the best so far stays although the other has the lower BGP identifier. Up to step c) both
    /// are equal.
    fn stays(&self, best: &Candidate, other: &Candidate) -> bool {
        self.speaker.decision.prefer_oldest
            && best.is_present
            && best.metric == other.metric
            && !self.is_internal(best)
            && !self.is_internal(other)
            && self.router_id(best) != self.router_id(other)
    }

    /// The peer's address, and on which interface.
    fn peer_place(&self, candidate: &Candidate) -> (IpAddr, u32) {
        let source = self.sources.get(candidate.source);
        (source.address, source.interface)
    }

    /// Steps d) to g) and what follows; the less wins. Nearly always the router id decides at the latest.
    fn break_tie(&self, a: &Candidate, b: &Candidate) -> Ordering {
        self.first_of_tie(a)
            .cmp(&self.first_of_tie(b))
            .then_with(|| self.rest_of_tie(a).cmp(&self.rest_of_tie(b)))
    }

    fn first_of_tie(&self, of: &Candidate) -> (bool, u32, u32) {
        (self.is_internal(of), of.metric, self.router_id(of))
    }

    fn rest_of_tie(&self, of: &Candidate) -> (usize, (IpAddr, u32), u8) {
        (self.cluster_list(of), self.peer_place(of), self.sources.get(of.source).place)
    }

    /// What [`Self::break_tie`] compares, as numbers.
    fn tie(&self, of: &Candidate) -> Tie {
        let (is_internal, metric, router_id) = self.first_of_tie(of);
        let (clusters, (address, interface), place) = self.rest_of_tie(of);
        let address = match address {
            IpAddr::V4(address) => (false, address.to_bits().into()),
            IpAddr::V6(address) => (true, address.to_bits()),
        };
        let first = u128::from(is_internal) << 64 | u128::from(metric) << 32 | u128::from(router_id);
        (first, clusters, address, interface, place)
    }
}

/// What steps d) to g) look at, in their order.
type Tie = (u128, usize, (bool, u128), u32, u8);

/// A candidate in [`Decision::rank`].
#[derive(Debug)]
struct Contender {
    index: usize,
    /// The less, the better.
    rank: u128,
    /// Neighbouring AS and MED.
    med: u64,
    tie: Tie,
}

impl Contender {
    fn neighbor(&self) -> u64 {
        self.med >> 32
    }
}

/// The candidates of one prefix, and room to choose among them.
#[derive(Debug, Default)]
pub(crate) struct Decision {
    pub(crate) candidates: Vec<Candidate>,
    contenders: Vec<Contender>,
    ranked: Vec<usize>,
}

impl Decision {
    /// Looks at all paths; returns where the best stands.
    pub(crate) fn choose(&mut self, core: &mut Core, prefix: Prefix, paths: &[Path]) -> Option<usize> {
        self.candidates.clear();
        for (index, path) in paths.iter().enumerate() {
            self.candidates.extend(core.candidate(prefix, index, *path));
        }
        self.eliminate(core);
        self.candidates.iter().find(|candidate| candidate.lost.is_none()).map(|best| best.index)
    }

    /// All that take part, in the order in which they would be chosen if each went away that is chosen: where they stand.
    ///
    /// MED takes a path out as long as another of the same neighbouring AS with a lower MED is there. So each AS has its
    /// paths chosen by MED first, and one that would win against other ASes comes right after the last of its own AS that goes
    /// before it: at the highest tie of them.
    pub(crate) fn rank(&mut self, core: &mut Core, prefix: Prefix, paths: &[Path]) -> &[usize] {
        // Only this one may be chosen for what it was before (RFC 5004).
        let oldest =
            if core.speaker.decision.prefer_oldest { self.choose(core, prefix, paths) } else { None };
        self.contenders.clear();
        let mut last = None;
        for (index, path) in paths.iter().enumerate().filter(|(index, _)| Some(*index) != oldest) {
            let Some(candidate) = core.candidate(prefix, index, *path) else { continue };
            // Many paths of one session may have the same attributes.
            let med = match last {
                Some((set, med)) if set == candidate.set => med,
                Some(_) | None => {
                    let (neighbor, med) = core.med(&candidate);
                    u64::from(neighbor.0) << 32 | u64::from(med)
                }
            };
            last = Some((candidate.set, med));
            self.contenders.push(Contender {
                index,
                rank: candidate.place(),
                med,
                tie: core.tie(&candidate),
            });
        }
        self.contenders.sort_unstable_by(|a, b| {
            (a.rank.cmp(&b.rank)).then_with(|| a.med.cmp(&b.med)).then_with(|| a.tie.cmp(&b.tie))
        });
        for of_one_rank in self.contenders.chunk_by_mut(|a, b| a.rank == b.rank) {
            let [first, .., last] = &*of_one_rank else { continue };
            if first.neighbor() == last.neighbor() {
                continue;
            }
            for of_one_as in of_one_rank.chunk_by_mut(|a, b| a.neighbor() == b.neighbor()) {
                let mut highest = of_one_as[0].tie;
                for contender in of_one_as {
                    highest = highest.max(contender.tie);
                    contender.tie = highest;
                }
            }
            of_one_rank.sort_by_key(|contender| contender.tie);
        }
        self.ranked.clear();
        self.ranked.extend(oldest.into_iter().chain(self.contenders.iter().map(|contender| contender.index)));
        &self.ranked
    }

    /// The path that would be chosen if the next hops of the best and of those used beside it were gone: where it stands.
    pub(crate) fn backup(&mut self, core: &mut Core, prefix: Prefix, paths: &[Path]) -> Option<usize> {
        self.candidates.clear();
        for (index, path) in paths.iter().enumerate() {
            self.candidates.extend(core.candidate(prefix, index, *path));
        }
        let is_used = |path: Path| path.is_best() || path.flags.has(Flags::MULTIPATH);
        let next_hop = |candidate: &Candidate| core.sets.next_hop(candidate.set);
        let used = self.candidates.iter().filter(|candidate| is_used(paths[candidate.index]));
        let used: SmallVec<[NextHopId; 4]> = used.map(next_hop).collect();
        self.candidates.retain(|candidate| !used.contains(&next_hop(candidate)));
        self.eliminate(core);
        self.candidates.iter().find(|candidate| candidate.lost.is_none()).map(|best| best.index)
    }

    fn eliminate(&mut self, core: &Core) {
        if self.candidates.iter().any(|candidate| !candidate.is_fresh) {
            self.keep_least(Step::LongLivedStale, |c| !c.is_fresh);
        }
        // Said of most routes that lose to our own, and more telling than their weights.
        if self.candidates.iter().all(|candidate| candidate.weight <= LOCAL_WEIGHT) {
            self.keep_least(Step::LocalRoute, |c| Reverse(c.precedence()));
        }
        self.keep_least(Step::Weight, |c| Reverse(c.weight));
        self.keep_least(Step::LocalPref, |c| u32::MAX - c.preference.local_pref);
        self.keep_least(Step::AsPathLength, |c| u16::MAX - c.preference.path_rank());
        self.keep_least(Step::Origin, |c| Reverse(c.preference));
        if self.left() < 2 {
            return;
        }
        self.compare_meds(core);
        self.keep_least(Step::Ebgp, |c| core.is_internal(c));
        self.keep_least(Step::InteriorCost, |c| c.metric);
        if core.speaker.decision.prefer_oldest {
            self.keep_oldest(core);
        }
        self.keep_least(Step::RouterId, |c| core.router_id(c));
        self.keep_least(Step::ClusterList, |c| core.cluster_list(c));
        self.keep_least(Step::PeerAddress, |c| core.peer_place(c));
        self.keep_least(Step::Path, |c| core.sources.get(c.source).place);
    }

    fn left(&self) -> usize {
        self.candidates.iter().filter(|candidate| candidate.lost.is_none()).count()
    }

    /// Those above the least `key` lose at `step`.
    fn keep_least<K: Ord>(&mut self, step: Step, key: impl Fn(&Candidate) -> K) {
        let left = || self.candidates.iter().filter(|candidate| candidate.lost.is_none());
        let Some(least) = left().map(&key).min() else { return };
        for candidate in self.candidates.iter_mut().filter(|candidate| candidate.lost.is_none()) {
            candidate.lost = (key(candidate) > least).then_some(step);
        }
    }

    /// RFC 5004 section 3: the best so far stays where one with a lower BGP identifier would take its place. One with the
    /// same does, if it has the lower address: that is for the later steps.
    fn keep_oldest(&mut self, core: &Core) {
        let left = || self.candidates.iter().filter(|candidate| candidate.lost.is_none());
        let Some(best) = left().find(|candidate| candidate.is_present).copied() else { return };
        let is_lower = |other: &Candidate| core.router_id(other) < core.router_id(&best);
        if !left().any(|other| is_lower(other) && core.stays(&best, other)) {
            return;
        }
        let others = self.candidates.iter_mut().filter(|other| other.lost.is_none());
        others.filter(|other| core.stays(&best, other)).for_each(|other| other.lost = Some(Step::Oldest));
    }

    /// Step c): of each neighbouring AS only those with its lowest MED stay.
    fn compare_meds(&mut self, core: &Core) {
        let left = self.candidates.iter().enumerate().filter(|(_, candidate)| candidate.lost.is_none());
        let mut meds: SmallVec<[((Asn, u32), usize); 16]> =
            left.map(|(at, candidate)| (core.med(candidate), at)).collect();
        meds.sort_unstable();
        let mut lowest = None;
        for ((neighbor, med), at) in meds {
            match lowest {
                Some((asn, least)) if asn == neighbor => {
                    self.candidates[at].lost = (med > least).then_some(Step::Med);
                }
                Some(_) | None => lowest = Some((neighbor, med)),
            }
        }
    }

    /// Which paths share the traffic: the best and those equal to it up to the metric, the best first and the others in the
    /// order of the remaining steps, at most `max`.
    pub(crate) fn equal_cost(&self, core: &Core, max: usize) -> Vec<usize> {
        let equal = self.candidates.iter().filter(|candidate| candidate.is_equal_cost());
        let mut equal: Vec<&Candidate> = equal.collect();
        equal.sort_by(|a, b| a.lost.is_some().cmp(&b.lost.is_some()).then_with(|| core.break_tie(a, b)));
        if !core.speaker.decision.multipath_relax {
            let best = equal.first().map(|best| core.neighbor_as(best));
            equal.retain(|candidate| Some(core.neighbor_as(candidate)) == best);
        }
        equal.iter().take(max).map(|candidate| candidate.index).collect()
    }
}

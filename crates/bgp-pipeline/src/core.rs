//! What all families share: sets, classes, next hops, sources; and the ImportPolicy stage.
//!
//! Import policy is asked once for each attribute set, when its first route arrives, and the verdict stays
//! with the set. Policies that look at the prefix are asked for each route.

use std::{cell::RefCell, rc::Rc};

use holdfast_bgp_wire::{
    Attributes,
    attributes::community,
    update::{AsSets, Rules},
};
use holdfast_origin_validation::Authorizations;
use holdfast_policy::{Edits, Program, Verdict as PolicyVerdict};
use holdfast_types::{Asn, Family, Prefix};

use crate::{
    PeerIndex, SpeakerConfig,
    class::{Class, ClassId, Classes, Policy},
    effort::Effort,
    next_hop::{NextHopId, NextHops},
    path::{Flags, Path, PathCounts, SetId, SourceId},
    question::Asked,
    rewrite,
    rewriter::Rewriters,
    route::RouteView,
    seam::{Old, RouteNumber, Seam, Seams, StreamKey},
    sets::{Absent, AttributeSets, Identity, Owner, SetFlags, Verdict},
    signatures::SignatureTable,
    signing::SigningTable,
    source::Sources,
};

/// Index of a family into per-family tables; `None` for those we do not route.
pub(crate) fn family_index(family: Family) -> Option<usize> {
    Family::ALL.iter().position(|known| *known == family)
}

/// The shared state.
#[derive(Debug)]
pub(crate) struct Core {
    pub(crate) speaker: SpeakerConfig,
    pub(crate) sets: AttributeSets,
    pub(crate) classes: Classes,
    pub(crate) next_hops: NextHops,
    pub(crate) sources: Sources,
    /// Number of the walk over the tables that is under way, or was the last.
    pub(crate) walk: u64,
    /// Whether it has changed next hops to settle.
    pub(crate) next_hops_moving: bool,
    /// By family, what groups are sent that are sent several paths of a prefix: changes of each are told.
    pub(crate) mosts: [PathCounts; 2],
    /// Whether it has every choice made anew.
    pub(crate) deciding_anew: bool,
    pub(crate) seams: Seams,
    /// Paths of sessions that live which a walk has swept: whose, and at which of its places.
    pub(crate) swept: Vec<(PeerIndex, Prefix, u8)>,
    /// What the RPKI says, where somebody asks it.
    pub(crate) authorizations: Option<Rc<RefCell<Authorizations>>>,
    /// What was asked about the UPDATE that is being taken in.
    pub(crate) asked: Option<Asked>,
    /// Whether the walk under way finds out again what validation says of routes.
    pub(crate) validating_anew: bool,
    /// Whether routes of our own that an earlier process has told peers of may still come.
    pub(crate) ours_are_awaited: bool,
    pub(crate) rewriters: Rewriters,
    pub(crate) signatures: SignatureTable,
    pub(crate) signing: SigningTable,
    /// Changes and prefixes that readers have passed for good, each once for each reader.
    pub(crate) finished: u64,
    pub(crate) effort: Effort,
    edits: Edits,
    bytes: Vec<u8>,
}

impl Core {
    pub(crate) fn new(speaker: SpeakerConfig) -> Self {
        let identity = Identity {
            asn: speaker.asn,
            router_id: speaker.router_id,
            cluster_id: speaker.cluster_id,
            confederation: speaker.confederation,
            local_pref: speaker.local_pref,
        };
        Self {
            sets: AttributeSets::new(identity, speaker.hash_key),
            classes: Classes::new(),
            next_hops: NextHops::new(speaker.next_hops, speaker.hash_key),
            sources: Sources::new(speaker.asn, speaker.router_id),
            walk: 0,
            next_hops_moving: false,
            mosts: Default::default(),
            deciding_anew: false,
            seams: Seams::default(),
            swept: Vec::new(),
            authorizations: None,
            asked: None,
            validating_anew: false,
            ours_are_awaited: false,
            rewriters: Rewriters::default(),
            signatures: SignatureTable::new(speaker.hash_key),
            signing: SigningTable::new(speaker.hash_key),
            finished: 0,
            effort: Effort::default(),
            edits: Edits::default(),
            bytes: Vec::new(),
            speaker,
        }
    }

    /// The set with these canonical bytes, with one more user; `owner` brought it if it is new.
    pub(crate) fn acquire(
        &mut self,
        owner: Owner,
        class: ClassId,
        next_hop: NextHopId,
        bytes: &[u8],
    ) -> Option<SetId> {
        self.sets.acquire(owner, class, next_hop, bytes, &mut self.classes, &mut self.next_hops)
    }

    /// The same where it is known that there is none yet.
    pub(crate) fn add(&mut self, owner: Owner, absent: Absent, bytes: &[u8]) -> Option<SetId> {
        self.sets.add(owner, absent, bytes, &mut self.classes, &mut self.next_hops)
    }

    /// The route with this set as policies see it.
    #[inline]
    pub(crate) fn route(&self, prefix: Prefix, set: SetId) -> RouteView<'_> {
        RouteView::new(&self.sets, &self.classes, &self.next_hops, prefix, set)
    }

    /// What import policy makes of a set for a prefix; `None` if it is refused or a loop.
    #[inline]
    pub(crate) fn effective(&mut self, prefix: Prefix, set: SetId) -> Option<SetId> {
        match self.sets.verdict(set) {
            Verdict::Accepted(derived) => Some(derived),
            Verdict::Rejected => None,
            Verdict::PerRoute | Verdict::Unknown => self.evaluate(prefix, set),
        }
    }

    fn evaluate(&mut self, prefix: Prefix, set: SetId) -> Option<SetId> {
        if self.sets.verdict(set) == Verdict::Unknown {
            let verdict = self.evaluate_set(prefix, set);
            self.sets.set_verdict(set, verdict);
        }
        match self.sets.verdict(set) {
            Verdict::Accepted(derived) => Some(derived),
            Verdict::PerRoute => {
                if let Some(known) = self.sets.of_routes.get(prefix, set) {
                    return known;
                }
                let effective = self.evaluate_route(prefix, set);
                let numbers = self.sets.numbers();
                self.sets.of_routes.put(prefix, set, effective, numbers);
                effective
            }
            Verdict::Rejected | Verdict::Unknown => None,
        }
    }

    /// What [`Self::effective`] says, if that is the same for all prefixes.
    #[inline]
    pub(crate) fn effective_for_all(&mut self, prefix: Prefix, set: SetId) -> Option<Option<SetId>> {
        let effective = self.effective(prefix, set);
        (self.sets.verdict(set) != Verdict::PerRoute).then_some(effective)
    }

    /// The path's set after import policy; `None` if it was refused or is a loop, or there is no path.
    #[inline]
    pub(crate) fn imported(&mut self, prefix: Prefix, path: Path) -> Option<SetId> {
        if path.is_accepted() { self.effective(prefix, path.set) } else { None }
    }

    /// The path's set after import policy if it takes part in the decision; `None` if it was refused, is a
    /// loop, is held back, of a dead session, swept, or without a reachable next hop.
    #[inline]
    pub(crate) fn usable(&mut self, prefix: Prefix, path: Path) -> Option<(SetId, u32)> {
        let family = usize::from(matches!(prefix, Prefix::V6(_)));
        if path.is_suppressed() || self.sources.get(path.source).drops(family, path) {
            return None;
        }
        let set = self.imported(prefix, path)?;
        Some((set, self.next_hops.metric(self.sets.next_hop(set))?))
    }

    /// The next hop of a set after import policy, if the RIB has not said yet where it is.
    #[inline]
    pub(crate) fn unanswered(&self, effective: SetId) -> Option<NextHopId> {
        let hop = self.sets.next_hop(effective);
        self.next_hops.is_unanswered(hop).then_some(hop)
    }

    /// The path with the decision's marks where there is no other.
    #[inline]
    pub(crate) fn lone(&mut self, prefix: Prefix, mut path: Path) -> Path {
        let best = self.usable(prefix, path).is_some();
        path.flags.set(Flags::BEST, best);
        path.flags.set(Flags::MULTIPATH, best && self.speaker.max_paths > 1);
        path
    }

    /// Whether the decision marks paths beside the best, or has just ceased to.
    pub(crate) fn marks_others(&self) -> bool {
        self.speaker.max_paths > 1 || self.sources.protecting || self.deciding_anew
    }

    fn evaluate_set(&mut self, prefix: Prefix, set: SetId) -> Verdict {
        if self.sets.flags(set).has(SetFlags::INVALID) {
            return Verdict::Rejected;
        }
        let Self { sets, classes, next_hops, edits, .. } = self;
        let class = classes.get(sets.class(set));
        if class.lacks_signatures() {
            return Verdict::Rejected;
        }
        match &class.import {
            Policy::AcceptAll => edits.clear(),
            Policy::Missing => return Verdict::Rejected,
            Policy::Program(program) if program.reads_prefix() => return Verdict::PerRoute,
            Policy::Program(program) => {
                if !accepts(program, &RouteView::new(sets, classes, next_hops, prefix, set), edits) {
                    return Verdict::Rejected;
                }
            }
        }
        self.derive(set).map_or(Verdict::Rejected, Verdict::Accepted)
    }

    fn evaluate_route(&mut self, prefix: Prefix, set: SetId) -> Option<SetId> {
        self.effort.imported += 1;
        let Self { sets, classes, next_hops, edits, .. } = self;
        let Policy::Program(program) = &classes.get(sets.class(set)).import else { return Some(set) };
        let accepted = accepts(program, &RouteView::new(sets, classes, next_hops, prefix, set), edits);
        if !accepted {
            return None;
        }
        if !self.grow_old(set) {
            return None;
        }
        let is_rewritten = self.is_rewritten(set);
        if self.is_unchanged(set) && !is_rewritten {
            return Some(set);
        }
        if let Some(derived) = self.sets.variant(set, &self.edits) {
            return (derived != SetId::NONE).then_some(derived);
        }
        let derived = self.derive(set);
        if derived.is_some() || is_rewritten {
            self.sets.add_variant(set, self.edits.clone(), derived.unwrap_or(SetId::NONE));
        }
        derived
    }

    /// Whether neither policy, which has left what it would change in `self.edits`, nor the session changes the set.
    #[inline]
    fn is_unchanged(&self, set: SetId) -> bool {
        self.edits.is_empty() && !self.sets.flags(set).has(SetFlags::AMENDED)
    }

    /// Adds to `self.edits` what RFC 9494 section 4.3 asks for where the routes are the last resort; whether they may be.
    fn grow_old(&mut self, set: SetId) -> bool {
        if !self.classes.get(self.sets.class(set)).long_lived {
            return true;
        }
        let received = self.sets.attributes(set);
        let has = |wanted| received.communities().any(|value| value == wanted);
        let (may_stay, marked) = (!has(community::NO_LLGR), has(community::LLGR_STALE));
        let edits = &mut self.edits.communities;
        let add = (!marked || edits.replace) && !edits.add.contains(&community::LLGR_STALE);
        edits.remove.retain(|value| *value != community::LLGR_STALE);
        edits.add.extend(add.then_some(community::LLGR_STALE));
        may_stay
    }

    /// The set after `self.edits`, and behind the stages that follow, with one more user unless it is the same. `None` if the
    /// result is no route that could be sent or stored.
    fn derive(&mut self, set: SetId) -> Option<SetId> {
        if !self.grow_old(set) {
            return None;
        }
        let derived = self.edited(set)?;
        self.after_import(set, derived)
    }

    fn edited(&mut self, set: SetId) -> Option<SetId> {
        if self.is_unchanged(set) {
            return Some(set);
        }
        let mut bytes = std::mem::take(&mut self.bytes);
        bytes.clear();
        rewrite::import::attributes(&self.speaker, &self.classes, &self.sets, set, &self.edits, &mut bytes);
        let derived = self.place_derived(set, &bytes);
        self.bytes = bytes;
        derived
    }

    fn place_derived(&mut self, set: SetId, bytes: &[u8]) -> Option<SetId> {
        let class = self.derived_class(set)?;
        let received = self.sets.next_hop(set);
        let next_hop = match rewrite::import::next_hop(&self.edits) {
            _ if self.sets.flags(set).has(SetFlags::BLACKHOLE) => self.next_hops.retain(NextHopId::DISCARD),
            Some(gateway) => self.next_hops.acquire(gateway),
            None => self.next_hops.retain(received),
        };
        let derived = self.acquire(self.sets.owner(set), class, next_hop, bytes);
        self.classes.release(class);
        self.next_hops.release(next_hop);
        derived
    }

    /// The class of what policy makes of a set: who brought it stays, and the tag unless policy says another; the weight
    /// is what policy says.
    fn derived_class(&mut self, set: SetId) -> Option<ClassId> {
        let (ours, from) = (self.classes.get(ClassId::OURS), self.classes.get(self.sets.class(set)));
        let (tag, weight) = (self.edits.tag.unwrap_or(from.tag), self.edits.weight.unwrap_or(0));
        let class = Class { protocol: from.protocol, tag, weight, states: from.states, ..ours.clone() };
        if class == *ours {
            self.classes.retain(ClassId::OURS);
            return Some(ClassId::OURS);
        }
        self.classes.acquire(&class)
    }

    /// Whether a policy that says yes or no lets a route with this set after import policy pass. The set does not say any
    /// more who sent it where import policy has changed something.
    pub(crate) fn passes(&self, program: &Program, prefix: Prefix, source: SourceId, set: SetId) -> bool {
        let source = self.sources.get(source);
        let sender = if source.peer.is_some() { source.asn } else { Asn(0) };
        accepts(program, &self.route(prefix, set).to(sender), &mut Edits::default())
    }

    /// Whether a set has an AS_SET that its source takes no more. What comes from now on is withdrawn as it is read.
    #[cold]
    pub(crate) fn refuses(&self, source: SourceId, set: SetId) -> bool {
        let [class, _] = self.sources.get(source).classes;
        let rules = self.classes.get(class).rules;
        rules.is_some_and(|rules| refuses(&rules, self.sets.attributes(set)))
    }

    /// The path's set under its source's present class, and with what validation says of it now, with one more user; `None`
    /// if it is that already.
    pub(crate) fn reclass(&mut self, prefix: Prefix, path: Path) -> Option<SetId> {
        if path.source.is_ours() {
            // They have classes of their own, one by one.
            return self.revalidated_own(prefix, path);
        }
        let wanted = self.class_of(path.source, prefix, path.set, self.own_class(path.source, path.set));
        if wanted == self.sets.class(path.set) { None } else { self.under_class(path.set, wanted) }
    }

    /// The set with the same attributes in another class, with one more user.
    pub(crate) fn under_class(&mut self, set: SetId, class: ClassId) -> Option<SetId> {
        self.in_class(set, class, |core, absent, bytes| core.add(core.sets.owner(set), absent, bytes))
    }

    /// The same where the classes differ in nothing but what validation says: what was found out about one set holds for the
    /// other.
    pub(crate) fn with_states(&mut self, set: SetId, class: ClassId) -> Option<SetId> {
        // What is known of signatures may say how good a set is.
        if self.classes.get(class).ingress.validation.is_some_and(|rule| rule.signatures.is_some()) {
            return self.under_class(set, class);
        }
        self.in_class(set, class, |core, absent, bytes| {
            let Self { sets, classes, next_hops, .. } = core;
            sets.add_like(set, absent, bytes, classes, next_hops)
        })
    }

    fn in_class(
        &mut self,
        set: SetId,
        class: ClassId,
        add: impl FnOnce(&mut Self, Absent, &[u8]) -> Option<SetId>,
    ) -> Option<SetId> {
        let absent = match self.sets.find_in(class, set) {
            Ok(found) => return Some(found),
            Err(absent) => absent,
        };
        let mut bytes = std::mem::take(&mut self.bytes);
        bytes.clear();
        bytes.extend_from_slice(self.sets.bytes(set));
        let moved = add(self, absent, &bytes);
        self.bytes = bytes;
        moved
    }

    /// A source's path has become another (or none): passes the seams up to the decision.
    #[cold]
    pub(crate) fn pass_in(&mut self, prefix: Prefix, old: Path, new: Path) {
        let lane = StreamKey::Session(if new.is_some() { new.source.0 } else { old.source.0 });
        let (was, is) = (self.passing(prefix, old), self.passing(prefix, new));
        for (seam, (was, is)) in Self::BEFORE_DECISION.into_iter().zip(was.into_iter().zip(is)) {
            if was != is {
                self.seams.pass(seam, lane, prefix, Old::Is(was), is);
            }
        }
    }

    /// The seams before the decision.
    pub(crate) const BEFORE_DECISION: [Seam; 3] =
        [Seam::PeerInToImport, Seam::ImportToSlot, Seam::SlotToDecision];

    /// What a path is there.
    pub(crate) fn passing(&mut self, prefix: Prefix, path: Path) -> [Option<RouteNumber>; 3] {
        let number = |set| RouteNumber::new(path.source, set);
        let imported = self.imported(prefix, path).map(number);
        [RouteNumber::of(path), imported, imported.filter(|_| !path.is_suppressed())]
    }
}

/// Whether attributes have an AS_SET that these rules do not take (RFC 9774).
pub(crate) fn refuses(rules: &Rules, attributes: Attributes<'_>) -> bool {
    rules.as_sets == AsSets::Reject && attributes.as_path().has_set()
}

/// Asks a policy about a route; what it would change is left in `edits`.
fn accepts(program: &Program, route: &RouteView<'_>, edits: &mut Edits) -> bool {
    program.evaluate(route, edits) == PolicyVerdict::Accept
}

#[cfg(test)]
mod tests {
    use holdfast_types::{HashKey, RouterId};

    use super::*;
    use crate::{hashes::Asked, verdicts::GroupNumber};

    #[test]
    fn nothing_that_was_said_of_a_set_is_said_of_the_next_one_with_its_number() {
        let router_id = RouterId::new(1).expect("not zero");
        let mut core = Core::new(SpeakerConfig::new(Asn(65_500), router_id, HashKey::new([7, 0])));
        let prefix: Prefix = "10.0.0.0/8".parse().expect("a prefix");
        let asked = Asked { group: GroupNumber::FIRST, family: 0, originator: None, is_imported: false };
        let acquire = |core: &mut Core, origin: u8| {
            let set = core.acquire(Owner::OURS, ClassId::OURS, NextHopId::LOCAL, &[0x40, 1, 1, origin]);
            set.expect("room")
        };
        let one = acquire(&mut core, 0);
        let numbers = core.sets.numbers();
        core.sets.of_routes.put(prefix, one, None, numbers);
        core.sets.hashes.put(one, asked, 7, numbers);
        assert_eq!(
            (core.sets.of_routes.get(prefix, one), core.sets.hashes.get(one, asked)),
            (Some(None), Some(7))
        );
        core.sets.release(one);
        let Core { sets, classes, next_hops, .. } = &mut core;
        sets.collect([0; 2], [0; 2], 10, classes, next_hops);
        assert_eq!(sets.len(), 0);
        let other = acquire(&mut core, 1);
        assert_eq!(other, one, "the number is given again");
        assert_eq!((core.sets.of_routes.get(prefix, one), core.sets.hashes.get(one, asked)), (None, None));
    }
}

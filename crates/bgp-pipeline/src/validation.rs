//! The OriginValidation stage: what the RPKI says of routes, before import policy is asked.
//!
//! What it says is a part of the *class* of a set: equal attributes that are valid for one prefix and not found for
//! another are two sets. So policies ask it like any attribute, a verdict remains one of the set alone, and when VRPs
//! change, paths move from set to set as they do when import policy changes: at the prefixes that are concerned, or in a
//! walk where that is most.

use std::{cell::RefCell, collections::BTreeSet, ops::Bound, rc::Rc};

use holdfast_bgp_wire::{Attributes, attribute::code, edit::validation_state};
use holdfast_origin_validation::{Affected, Authorizations, origin};
use holdfast_policy::{PathSecurity, Validity};
use holdfast_types::{IpPrefix, Ipv4Prefix, Ipv6Prefix, Prefix};

use crate::{
    PeerConfig, PeerIndex, Pipeline,
    class::{Class, ClassId, Ingress},
    core::Core,
    path::{Path, SetId, SourceId},
    question::{Asked, Question},
    rewriter::Slot,
    route::{elements, last_element},
    secure_path::has_secure_path,
    validity::{Rule, States},
};

impl Core {
    /// What is to be asked about routes of a source with this set; `None`: nothing.
    pub(crate) fn question(&self, source: SourceId, set: SetId) -> Option<Question> {
        if let Some(asked) = self.asked.as_ref().filter(|_| !source.is_ours())
            && asked.own == self.own_class(source, set)
        {
            return Some(asked.question.clone());
        }
        let class = self.classes.get(self.sets.class(set));
        let rule = match source {
            SourceId::LOCAL | SourceId::REDISTRIBUTED => {
                self.authorizations.as_ref().map(|_| Rule { origins: true, ..Rule::default() })
            }
            _ => class.ingress.validation,
        };
        rule.map(|rule| self.question_by(rule, class, self.sets.attributes(set)))
    }

    /// The class of what has just come from a source whose own class this is, with these attributes: by what validation says
    /// of its first prefix. That is most often what it says of all, and no set is made to be left at once.
    #[inline]
    pub(crate) fn class_on_arrival(
        &mut self,
        own: ClassId,
        attributes: &[u8],
        first: impl FnOnce() -> Option<Prefix>,
    ) -> ClassId {
        match self.classes.get(own).ingress.validation {
            // A stage may make other attributes of these.
            Some(rule) if !self.rewriters.are_in(Slot::BeforeImport) => match first() {
                Some(first) => self.class_by_first(rule, own, attributes, first),
                None => own,
            },
            Some(_) | None => own,
        }
    }

    fn class_by_first(&mut self, rule: Rule, own: ClassId, attributes: &[u8], first: Prefix) -> ClassId {
        let mut question = self.question_by(rule, self.classes.get(own), Attributes(attributes));
        let validity = question.ask(first);
        question.first = Some((first, validity));
        let mut states = question.states(validity);
        if rule.signatures.is_some() && has_secure_path(Attributes(attributes)) {
            // Most often that is so; what is known of the route is asked when its source is known.
            states.signatures = PathSecurity::Unverified;
        }
        self.asked = Some(Asked { own, question });
        self.classes.variant(own, states)
    }

    /// The same by a rule, of a peer whose class this is.
    fn question_by(&self, rule: Rule, class: &Class, attributes: Attributes<'_>) -> Question {
        let mut question = Question { origin: None, known: States::default(), first: None };
        let Some(shared) = self.authorizations.as_ref().filter(|_| rule.origins) else {
            question.known.validity = conveyed(rule, attributes);
            return question;
        };
        let authorizations = shared.borrow();
        if let Some(procedure) = rule.paths.filter(|_| !authorizations.aspas.is_empty()) {
            question.known.path =
                authorizations.aspas.verify(elements(attributes.as_path()), class.peer_asn, procedure);
        }
        if authorizations.vrps.is_empty() {
            question.known.validity = conveyed(rule, attributes);
        } else {
            let path = attributes.as_path();
            let from = origin(last_element(path).into_iter(), self.speaker.outer_asn());
            // What comes from outside without any AS is not ours for that (RFC 6811 section 2 means our own routes).
            let from = from.filter(|_| !class.ingress.external || path.hops() > 0);
            question.origin = Some((shared.clone(), from));
        }
        question
    }

    /// The set with these states, with one more user.
    pub(crate) fn validated(&mut self, source: SourceId, set: SetId, states: States) -> Option<SetId> {
        let class = self.sets.class(set);
        if self.classes.get(class).states == Some(states) {
            self.sets.retain(set, 1);
            return Some(set);
        }
        if source.is_ours() {
            // Where there is no room for another one, nothing is known of it: that is better than to lose it.
            return self.under_own_class(set, Some(states)).or_else(|| {
                self.sets.retain(set, 1);
                Some(set)
            });
        }
        let wanted = self.classes.variant(self.own_class(source, set), states);
        if wanted == class {
            self.sets.retain(set, 1);
            return Some(set);
        }
        self.with_states(set, wanted)
    }

    /// The class of a source's sets before anybody says what is known of their routes, of those that come as this one.
    pub(crate) fn own_class(&self, source: SourceId, set: SetId) -> ClassId {
        let multiprotocol = self.classes.get(self.sets.class(set)).multiprotocol;
        self.sources.get(source).classes[usize::from(multiprotocol)]
    }

    /// The class that sets of a source whose present class this is have, with the attributes of this one, for a prefix.
    pub(crate) fn class_of(
        &mut self,
        source: SourceId,
        prefix: Prefix,
        set: SetId,
        present: ClassId,
    ) -> ClassId {
        let class = self.classes.get(present);
        let Some(rule) = class.ingress.validation else { return present };
        let attributes = self.sets.attributes(set);
        let question = self.question_by(rule, class, attributes);
        let mut states = question.states(question.ask(prefix));
        if rule.signatures.is_some() && has_secure_path(attributes) {
            states.signatures = self.signatures.state(source, prefix);
        }
        self.classes.variant(present, states)
    }

    /// A route of our own with what validation says of it now; `None` if that is what it says already.
    pub(crate) fn revalidated_own(&mut self, prefix: Prefix, path: Path) -> Option<SetId> {
        let states =
            self.question(path.source, path.set).map(|question| question.states(question.ask(prefix)));
        let is_same = self.classes.get(self.sets.class(path.set)).states == states;
        if is_same { None } else { self.under_own_class(path.set, states) }
    }

    /// Our own routes have classes by what they are: there are few.
    fn under_own_class(&mut self, set: SetId, states: Option<States>) -> Option<SetId> {
        let class = Class { states, ..self.classes.get(self.sets.class(set)).clone() };
        let class = self.classes.acquire(&class)?;
        let moved = self.under_class(set, class);
        self.classes.release(class);
        moved
    }

    /// Whether two sets are the same but for their signatures, and what validation says.
    #[cold]
    pub(crate) fn differ_in_signatures_only(&self, one: SetId, other: SetId) -> bool {
        let [of_one, of_other] = [one, other].map(|set| self.sets.attributes(set));
        let class = |set| self.classes.get(self.sets.class(set));
        [of_one, of_other].into_iter().all(has_secure_path)
            && self.sets.next_hop(one) == self.sets.next_hop(other)
            && *class(one) == Class { states: class(one).states, ..class(other).clone() }
            && without_signatures(of_one).eq(without_signatures(of_other))
    }

    /// Whether two sets are the same but for what validation says of them: nobody can see the difference.
    pub(crate) fn differ_in_states_only(&self, one: SetId, other: SetId) -> bool {
        let class = |set| self.sets.class(set);
        if one == other || class(one) == class(other) || self.sets.next_hop(one) != self.sets.next_hop(other)
        {
            return false;
        }
        let (of_one, of_other) = (self.classes.get(class(one)), self.classes.get(class(other)));
        self.sets.bytes(one) == self.sets.bytes(other)
            && *of_one == Class { states: of_one.states, ..of_other.clone() }
    }
}

fn without_signatures(attributes: Attributes<'_>) -> impl Iterator<Item = &[u8]> {
    let others = attributes.iter().filter(|attribute| attribute.code != code::BGPSEC_PATH);
    others.map(|attribute| attribute.wire)
}

/// What the sender says, if it may: of several the worst by number, and nothing by others than are defined (RFC 8097
/// section 2).
fn conveyed(rule: Rule, attributes: Attributes<'_>) -> Validity {
    let said = || attributes.ext_communities().filter_map(validation_state);
    match said().filter(|state| rule.conveyed && *state <= 2).max() {
        Some(0) => Validity::Valid,
        Some(2) => Validity::Invalid,
        Some(_) | None => Validity::NotFound,
    }
}

/// Prefixes whose routes are to be looked at again, beyond which a walk over the tables is less work.
const MOST_AFFECTED: usize = 4096;

/// What has changed in the RPKI and not been applied yet.
#[derive(Debug, Default)]
pub(crate) struct Unapplied {
    /// Routes to these prefixes and what lies inside: each once, however often it changes meanwhile.
    prefixes: BTreeSet<Prefix>,
    /// The one that is being looked at, and the last one inside of it that was.
    current: Option<(Prefix, Option<Prefix>)>,
    /// The one before. Its successor in the order of prefixes comes next, so that none waits for others twice.
    last: Option<Prefix>,
}

impl Unapplied {
    pub(crate) fn is_empty(&self) -> bool {
        self.prefixes.is_empty() && self.current.is_none()
    }

    /// Where to go on.
    fn current(&mut self) -> Option<(Prefix, Option<Prefix>)> {
        if self.current.is_none() {
            let behind = |last| self.prefixes.range((Bound::Excluded(last), Bound::Unbounded)).next();
            let next = *self.last.and_then(behind).or_else(|| self.prefixes.first())?;
            self.prefixes.remove(&next);
            (self.last, self.current) = (Some(next), Some((next, None)));
        }
        self.current
    }
}

impl Pipeline {
    /// Has routes validated by what the RPKI says, or not any more. The tables may be shared; who changes them says so by
    /// [`Self::authorizations_changed`]. Nothing may be borrowed while the pipeline is called.
    ///
    /// With it a route has a state of its own ([`PathView::states`](crate::PathView::states)) that policies can ask; without, no memory and no time is spent.
    pub fn set_authorizations(&mut self, authorizations: Option<Rc<RefCell<Authorizations>>>) {
        self.core.authorizations = authorizations;
        for number in 0..self.peers.len() {
            self.revalidate_peer(PeerIndex(number as u16));
        }
        self.background.want_validation();
    }

    /// What is learned from the peer is read as is configured now.
    fn revalidate_peer(&mut self, index: PeerIndex) {
        let Some(peer) = self.peers.get(index.index()).and_then(Option::as_ref) else { return };
        let (config, mut sources) = (peer.config.clone(), peer.stale.clone());
        if let Some(session) = self.session(index) {
            sources.extend(session.sources());
        }
        for source in sources {
            self.change_validation(source, &config);
        }
    }

    fn change_validation(&mut self, source: SourceId, config: &PeerConfig) {
        let classes = self.core.sources.get(source).classes.map(|id| self.core.classes.get(id).clone());
        let is_signed = classes[0].rules.is_some_and(|rules| rules.bgpsec.is_some());
        let validation = Rule::new(config, self.core.authorizations.is_some(), is_signed);
        let changed = classes.map(|class| Class {
            ingress: Ingress { validation, ..class.ingress },
            states: validation.map(|_| States::default()),
            ..class
        });
        self.change_import(source, &changed);
    }

    /// What the RPKI says has changed. New routes are validated by it from now on; those that are there are looked at again
    /// as [`Self::work`] comes by.
    pub fn authorizations_changed(&mut self, affected: &Affected) {
        let unapplied = &mut self.background.unapplied;
        let affects_most = unapplied.prefixes.len() + affected.prefixes.len() > MOST_AFFECTED;
        // Without VRPs it is other peers' word that counts, of all prefixes.
        if affected.paths || affected.all || affects_most {
            return self.revalidate();
        }
        unapplied.prefixes.extend(&affected.prefixes);
    }

    /// The same where nobody knows what has changed, or too much: all routes are looked at again.
    pub fn revalidate(&mut self) {
        self.background.unapplied = Unapplied::default();
        self.background.want_validation();
    }

    /// Whether routes have yet to be looked at again.
    pub fn is_revalidating(&self) -> bool {
        !self.background.unapplied.is_empty()
            || self.core.validating_anew
            || self.background.wants_validation()
    }

    /// Looks at up to `budget` prefixes that a change in the RPKI concerns; whether there are more.
    pub(crate) fn validation_slice(&mut self, budget: usize) -> bool {
        if self.background.unapplied.is_empty() || self.background.waiting {
            return false;
        }
        let mut left = budget.max(1);
        while left > 0
            && let Some((inside, after)) = self.background.unapplied.current()
        {
            let (core, stages) = (&mut self.core, &mut self.stages);
            let (next, visited): (Option<Prefix>, usize) = match inside {
                Prefix::V4(inside) => {
                    let after = after.and_then(Ipv4Prefix::from_prefix);
                    let (next, visited) = self.v4.rib.validate_again(core, stages, inside, after, left);
                    (next.map(Into::into), visited)
                }
                Prefix::V6(inside) => {
                    let after = after.and_then(Ipv6Prefix::from_prefix);
                    let (next, visited) = self.v6.rib.validate_again(core, stages, inside, after, left);
                    (next.map(Into::into), visited)
                }
            };
            self.background.unapplied.current = next.map(|next| (inside, Some(next)));
            // To find nothing is work as well.
            left = left.saturating_sub(visited.max(1));
        }
        self.free_swept_places();
        !self.background.unapplied.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use holdfast_bgp_wire::{Origin, edit::AttributesBuilder};
    use holdfast_types::{Asn, HashKey, RouterId};

    use super::*;
    use crate::{SpeakerConfig, next_hop::NextHopId, source::Source};

    #[test]
    fn where_classes_have_run_out_nothing_is_known_of_routes_and_none_is_lost() {
        let mut core = Core::new(SpeakerConfig::new(
            Asn(65000),
            RouterId::new(1).expect("not zero"),
            HashKey::new([42, 0]),
        ));
        let ours = core.classes.get(ClassId::OURS).clone();
        let class = Class { states: Some(States::default()), peer_asn: Asn(65100), ..ours };
        let class = core.classes.acquire(&class).expect("room");
        let bytes = AttributesBuilder::new(Origin::Igp).build();
        let set = core.acquire(crate::sets::Owner::OURS, class, NextHopId::DISCARD, &bytes).expect("room");
        let ours = core.sources.get(SourceId::LOCAL).clone();
        let peer = core.sources.add(Source { classes: [class; 2], ..ours }).expect("room");
        core.classes.fill();
        let invalid = States { validity: Validity::Invalid, ..States::default() };
        for source in [SourceId::LOCAL, peer] {
            assert_eq!(core.validated(source, set, invalid), Some(set), "{source:?}");
        }
    }
}

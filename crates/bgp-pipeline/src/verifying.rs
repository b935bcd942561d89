//! The signatures of received paths (RFC 8205 section 5): which are to be verified, and what is made of the verdicts.
//!
//! The pipeline verifies nothing. It hands out jobs ([`Pipeline::poll_signatures`]) and takes verdicts
//! ([`Pipeline::verified`]). What is known of a route's signatures is a part of the class of its set, as what the RPKI says of
//! its origin is: policies ask it, and a verdict moves the path from set to set.
//!
//! ```text
//! UPDATE ──> PeerIn: form, RFC 8205 section 5.2 ──> unverified ──> ticket ──> job ──> verdict ──> valid, not valid
//!                    └── the same octets for the same prefix: what was known
//! ```

use std::time::{Duration, Instant};

use holdfast_bgp_wire::attribute::code;
use holdfast_bgpsec_wire::Ski;
use holdfast_policy::PathSecurity;
use holdfast_types::{Asn, Family, IpPrefix, Prefix};

use crate::{
    Event, PeerIndex, Pipeline,
    core::Core,
    path::{Epoch, Path, SetId, SourceId},
    pipeline::Session,
    secure_path::{hops, secure_path, secure_path_value},
    signatures::{
        Asked, Fault, HOLD, Look, Next, Place, Priority, RouteKey, SLOTS, SignatureCost, SignatureCounts,
        SignatureJob, SignatureTable, SignatureVerdict, SignatureView, SignedRoute, Ticket, Work, due,
    },
    stage::Stages,
    table::Table,
    validity::{SignatureRule, States},
};

/// Tickets that are passed over in one go, as they do not count any more.
const MOST_PASSED_OVER: usize = 1024;
/// Names of keys that have changed and are to be looked for; beyond, all routes are looked at again.
const MOST_CHANGED: usize = 4096;

/// What is known of a route.
struct Known {
    state: PathSecurity,
    /// When that was found.
    at: Option<Instant>,
    /// Why it is not valid.
    fault: Option<Box<Fault>>,
    /// It is to be verified once more.
    is_doubted: bool,
}

/// What is to be done with a route that has just come.
pub(crate) enum Arriving {
    /// It is in the table from now on, with this known of it.
    As(PathSecurity),
    /// The one before stays until there is a verdict.
    Later,
    /// So does this one, of this source, from the peer's earlier session.
    LaterThan(SourceId, SetId),
}

impl Core {
    /// How the signatures of routes with this set are judged; `None`: it has none, or they are not.
    #[inline]
    pub(crate) fn signature_rule(&self, set: SetId) -> Option<SignatureRule> {
        if !self.signatures.is_used {
            return None;
        }
        let class = self.classes.get(self.sets.class(set));
        let rule = class.ingress.validation.and_then(|rule| rule.signatures);
        rule.filter(|_| class.rules.is_some() && secure_path(self.sets.attributes(set)).is_some())
    }

    /// The attributes of a set, without the AS_PATH that its BGPsec_PATH stands for. Of a route that starts in our AS without
    /// the BGPsec_PATH that it has not: others want to find an AS_PATH.
    pub(crate) fn attributes_as_received(&self, set: SetId) -> Vec<u8> {
        let attributes = self.sets.attributes(set);
        let left_out = match secure_path_value(attributes) {
            None => return self.sets.bytes(set).to_vec(),
            Some([]) => code::BGPSEC_PATH,
            Some(_) => code::AS_PATH,
        };
        let received = attributes.iter().filter(|attribute| attribute.code != left_out);
        received.flat_map(|attribute| attribute.wire).copied().collect()
    }

    /// What is known of the signatures of a source's route, before any policy is asked.
    pub(crate) fn signatures(&self, source: SourceId, prefix: Prefix, set: SetId) -> PathSecurity {
        match self.signature_rule(set) {
            Some(_) => self.signatures.state(source, prefix),
            None => PathSecurity::Unsigned,
        }
    }

    /// What becomes of a route with signatures that has just come.
    pub(crate) fn signed_arrives(
        &mut self,
        source: SourceId,
        prefix: Prefix,
        set: SetId,
        rule: SignatureRule,
    ) -> Arriving {
        let key = RouteKey::new(source, prefix);
        let bytes = self.sets.bytes(set);
        let Some(route) = self.signatures.routes.get(key) else {
            let known = self.known(prefix, set);
            let before =
                || self.valid_before(prefix, set).filter(|_| rule.holds && self.signatures.now.is_some());
            return match known {
                Some(known) => Arriving::As(known.state),
                None => before().map_or(Arriving::As(PathSecurity::Unverified), |(source, set)| {
                    Arriving::LaterThan(source, set)
                }),
            };
        };
        if self.sets.bytes(route.set) == bytes {
            let state = route.state();
            self.forget_next(key);
            return Arriving::As(state);
        }
        let waits_for_verdict = rule.holds && route.state() == PathSecurity::Valid;
        let paced = self.signatures.paced(route).filter(|_| self.differ_in_signatures_only(route.set, set));
        if !waits_for_verdict && paced.is_none() {
            return Arriving::As(PathSecurity::Unverified);
        }
        let next = route.next.as_deref().copied();
        if next.is_some_and(|next| self.sets.bytes(next.set) == bytes) {
            return Arriving::Later;
        }
        let Some(now) = self.signatures.now else { return Arriving::As(PathSecurity::Unverified) };
        let until = match waits_for_verdict {
            // However often it is replaced meanwhile: a peer does not choose how long.
            true => next.map_or(now + HOLD, |next| next.until.min(now + HOLD)),
            false => paced.unwrap_or(now),
        };
        self.forget_next(key);
        self.sets.retain(set, 1);
        self.signatures.set_next(key, Next { set, until, verdict: None });
        if let Some(route) = self.signatures.routes.get_mut(key) {
            route.is_doubted = route.work() != Work::Done;
        }
        self.want_verdict(key, Priority::First);
        Arriving::Later
    }

    /// The valid route of the peer's earlier session, while that is kept.
    fn valid_before(&self, prefix: Prefix, set: SetId) -> Option<(SourceId, SetId)> {
        let mut routes = self.earlier_routes(prefix, set);
        let route = routes.find(|route| route.state() == PathSecurity::Valid)?;
        Some((route.key.source(), route.set))
    }

    /// What the peer's earlier session, while that is kept, has brought for a prefix: what is looked at before any signature,
    /// and whom it is for, is the same for a set of this session.
    fn earlier_routes(&self, prefix: Prefix, set: SetId) -> impl Iterator<Item = &SignedRoute> {
        let rules = |set| self.classes.get(self.sets.class(set)).rules.and_then(|rules| rules.bgpsec);
        let ingress = rules(set).map(|secured| secured.ingress);
        let of = move |source: &SourceId| self.signatures.routes.get(RouteKey::new(*source, prefix));
        let is_alike = move |route: &&SignedRoute| rules(route.set).map(|secured| secured.ingress) == ingress;
        self.signatures.earlier.iter().filter_map(of).filter(is_alike)
    }

    /// What is known of a route that comes for the first time: from the process before, or from the peer's earlier session
    /// while its routes are kept.
    fn known(&self, prefix: Prefix, set: SetId) -> Option<Known> {
        let thawing = self.signatures.thawing;
        if thawing != PathSecurity::Unverified {
            let is_doubted = thawing == PathSecurity::NotValid;
            return Some(Known { state: thawing, at: None, fault: None, is_doubted });
        }
        let mut routes = self.earlier_routes(prefix, set);
        let route = routes.find(|route| self.sets.bytes(route.set) == self.sets.bytes(set))?;
        let is_known = route.state() != PathSecurity::Unverified;
        is_known.then(|| Known {
            state: route.state(),
            at: self.signatures.found_at(route),
            fault: route.fault.clone(),
            is_doubted: route.is_doubted || route.work() != Work::Done,
        })
    }

    /// What was to replace a route is not to any more.
    fn forget_next(&mut self, key: RouteKey) {
        if let Some(place) = self.signatures.routes.place(key) {
            self.forget_next_at(place);
        }
    }

    fn forget_next_at(&mut self, place: Place) {
        let Some(next) = self.signatures.take_next(place) else { return };
        let route = self.signatures.routes.change(place, |route| route.work = Work::Done);
        let doubted = route.and_then(|route| std::mem::take(&mut route.is_doubted).then(|| route.state()));
        self.sets.release(next.set);
        match doubted {
            None => {}
            Some(PathSecurity::Unverified) => self.want_verdict_at(place, Priority::First),
            Some(_) => self.want_verdict_at(place, Priority::Later),
        }
    }

    /// When the waiting path of a route, which has got this verdict, may replace the path in the table; `None`: at once.
    fn put_off_until(&self, place: Place, state: PathSecurity) -> Option<Instant> {
        let route = self.signatures.routes.at(place)?;
        let next = route.next.as_deref()?;
        // What is doubted of the path in the table may be otherwise than its state says.
        let is_same = route.state() == state && !route.is_doubted;
        let until = self.signatures.paced(route).filter(|_| is_same)?;
        self.differ_in_signatures_only(route.set, next.set).then_some(until)
    }

    fn want_verdict(&mut self, key: RouteKey, priority: Priority) {
        if let Some(place) = self.signatures.routes.place(key) {
            self.want_verdict_at(place, priority);
        }
    }

    fn want_verdict_at(&mut self, place: Place, priority: Priority) {
        let Some(route) = self.signatures.routes.at(place) else { return };
        let hops = hops(self.sets.attributes(route.wanted()));
        let Some(peer) = self.sources.get(route.key.source()).peer else { return };
        self.signatures.enqueue(peer, priority, place, hops);
    }

    /// A source's path has become another (or none).
    #[cold]
    pub(crate) fn signed_exchanged(&mut self, prefix: Prefix, old: Path, new: Path) {
        if new.is_some() && self.signature_rule(new.set).is_some() {
            let key = RouteKey::new(new.source, prefix);
            if let Some(place) = self.signatures.routes.place(key) {
                let bytes = self.sets.bytes(new.set);
                let route = self.signatures.routes.at_mut(place);
                if let Some(route) = route.filter(|route| self.sets.bytes(route.set) == bytes) {
                    route.set = new.set;
                    return;
                }
                self.forget_next_at(place);
                self.signatures.routes.remove(key);
            }
            let known = self.known(prefix, new.set);
            let SignatureTable { routes, now, first, .. } = &mut self.signatures;
            *first = first.or(*now);
            let (place, now) = (routes.add(key, new.set), *now);
            self.signatures.judge(place, PathSecurity::Unverified, now, None);
            match known {
                Some(Known { state, at, fault, is_doubted }) => {
                    self.signatures.judge(place, state, at, fault);
                    if is_doubted {
                        self.want_verdict_at(place, Priority::Later);
                    }
                }
                None => self.want_verdict_at(place, Priority::First),
            }
        } else if old.is_some() {
            let key = RouteKey::new(old.source, prefix);
            self.forget_next(key);
            self.signatures.routes.remove(key);
        }
    }
}

impl<P: IpPrefix> Table<P> {
    /// A route with signatures has come. What validation says of its origin and of its path is known.
    pub(crate) fn arrive_signed(
        &mut self,
        core: &mut Core,
        stages: &mut Stages,
        (source, prefix): (SourceId, P),
        set: SetId,
        (rule, states): (SignatureRule, States),
    ) {
        let mut arriving = core.signed_arrives(source, prefix.into(), set, rule);
        if let Arriving::LaterThan(earlier, valid) = arriving {
            let path = self.rib.path_of(prefix, earlier);
            if path.is_some() && !core.sources.get(earlier).drops(self.rib.family, path) {
                // As if the new session had brought it first. What was asked about the UPDATE says nothing of it.
                let asked = core.asked.take();
                self.arrive_known(core, stages, (source, prefix), valid, PathSecurity::Valid);
                core.asked = asked;
            }
            arriving = core.signed_arrives(source, prefix.into(), set, rule);
        }
        match arriving {
            Arriving::LaterThan(..) => {
                self.arrive_known(core, stages, (source, prefix), set, PathSecurity::Unverified);
            }
            Arriving::As(signatures) => {
                let set = core.validated(source, set, States { signatures, ..states });
                self.arrive_as(core, stages, source, &[prefix], set);
                set.into_iter().for_each(|set| core.sets.release(set));
            }
            Arriving::Later => {
                // It has been announced again, as far as refreshes are concerned.
                let present = self.rib.path_of(prefix, source);
                if present.is_some() {
                    self.arrive_as(core, stages, source, &[prefix], Some(present.set));
                }
            }
        }
    }

    /// Whether the path that a source's next one is to replace is about to be swept, or is not there.
    fn is_going(&self, core: &Core, source: SourceId, prefix: P) -> bool {
        let present = self.rib.path_of(prefix, source);
        !present.is_some() || core.sources.get(source).drops(self.rib.family, present)
    }

    /// What was to wait for a verdict is in the table from now on, with what is known of its signatures. It was announced
    /// when the path that it replaces was last: no refresh counts it as announced again.
    fn replace_signed(
        &mut self,
        core: &mut Core,
        stages: &mut Stages,
        source: SourceId,
        prefix: P,
        set: SetId,
    ) {
        let signatures = core.signatures(source, prefix.into(), set);
        let epoch = self.rib.path_of(prefix, source).epoch();
        self.arrive_known_at(core, stages, (source, prefix, epoch), set, signatures);
    }

    /// A path comes with this known of its signatures, whatever is known of its origin.
    fn arrive_known(
        &mut self,
        core: &mut Core,
        stages: &mut Stages,
        (source, prefix): (SourceId, P),
        set: SetId,
        signatures: PathSecurity,
    ) {
        let epoch = core.sources.get(source).epochs[self.rib.family].current;
        self.arrive_known_at(core, stages, (source, prefix, epoch), set, signatures);
    }

    fn arrive_known_at(
        &mut self,
        core: &mut Core,
        stages: &mut Stages,
        (source, prefix, epoch): (SourceId, P, Epoch),
        set: SetId,
        signatures: PathSecurity,
    ) {
        let states = core.question(source, set).map(|question| question.states(question.ask(prefix.into())));
        let set = match states {
            Some(states) => core.validated(source, set, States { signatures, ..states }),
            None => {
                core.sets.retain(set, 1);
                Some(set)
            }
        };
        self.arrive_at(core, stages, (source, epoch), &[prefix], set);
        set.into_iter().for_each(|set| core.sets.release(set));
    }

    /// Whether a path with this set might be the best one, if policy takes it.
    fn might_be_best(&self, core: &Core, prefix: P, set: SetId) -> bool {
        let best = self.rib.best(prefix);
        !best.is_some() || core.sets.preference(set).to_bits() >= core.sets.preference(best.set).to_bits()
    }
}

impl Core {
    /// The route of a ticket and the set that is to be verified, if it counts.
    fn due(&self, ticket: &Ticket) -> Option<(Place, SetId)> {
        let routes = &self.signatures.routes;
        let place = due(routes, ticket).filter(|_| self.sources.get(ticket.key.source()).counts())?;
        routes.at(place).map(|route| (place, route.wanted()))
    }

    fn ask(
        &mut self,
        (priority, peer): (Priority, PeerIndex),
        place: Place,
        set: SetId,
    ) -> Option<SignatureJob> {
        let target = self.classes.get(self.sets.class(set)).rules?.bgpsec?.ingress.own;
        let path = secure_path(self.sets.attributes(set))?.to_vec();
        let SignatureTable { routes, queues, asked, .. } = &mut self.signatures;
        let route = routes.at(place)?;
        let (key, hops) = (route.key, route.hops());
        let number = asked.add(Asked { key, peer, priority, hops: hops as u32 });
        routes.change(place, |route| route.work = Work::Asked(number as u32));
        queues.charge(priority, peer, hops);
        Some(SignatureJob { number, path, prefix: key.prefix(), target, hops })
    }
}

impl Pipeline {
    /// The next path whose signatures are to be verified; the driver decides how many are under way. Each is answered by
    /// [`Self::verified`], or given back with all others by [`Self::signatures_lost`].
    pub fn poll_signatures(&mut self, now: Instant) -> Option<SignatureJob> {
        for _ in 0..MOST_PASSED_OVER {
            let (priority, peer, ticket) = self.core.signatures.queues.pop(now)?;
            let due = self.core.due(&ticket);
            let is_later = |set| priority == Priority::First && !self.might_be_best(ticket.key.prefix(), set);
            let Some((place, set)) = due.filter(|(_, set)| !is_later(*set)) else {
                // Otherwise a peer that replaces its routes all the time would have every turn.
                self.core.signatures.queues.charge(priority, peer, 1);
                if let Some((place, _)) = due {
                    self.core.want_verdict_at(place, Priority::Later);
                }
                continue;
            };
            let job = self.core.ask((priority, peer), place, set);
            if job.is_some() {
                return job;
            }
        }
        // Others have a turn first.
        self.core.signatures.goes_on = true;
        None
    }

    /// Whether [`Self::poll_signatures`] has something.
    pub fn has_signatures_to_verify(&self, now: Instant) -> bool {
        self.core.signatures.queues.is_ready(now)
    }

    /// Whether routes wait for the first verdicts after the process has begun: for [`HOLD`] at most.
    pub fn awaits_signatures(&self) -> bool {
        self.core.signatures.are_awaited()
    }

    fn might_be_best(&self, prefix: Prefix, set: SetId) -> bool {
        match prefix {
            Prefix::V4(prefix) => self.v4.might_be_best(&self.core, prefix, set),
            Prefix::V6(prefix) => self.v6.might_be_best(&self.core, prefix, set),
        }
    }

    /// The verdict on a job, and what it has cost: the peer's turn, and its budget where signatures were bad. `is_current`: it was
    /// judged by the keys that [`Self::keys_changed`] was told of last; else it is asked for once more. A job that is not awaited
    /// any more is ignored.
    pub fn verified(
        &mut self,
        number: u64,
        verdict: SignatureVerdict,
        cost: SignatureCost,
        is_current: bool,
        now: Instant,
    ) {
        let SignatureTable { routes, queues, asked, .. } = &mut self.core.signatures;
        let Some(Asked { key, peer, priority, hops }) = asked.take(number) else { return };
        // Also where the peer has replaced or withdrawn the route meanwhile: that would be a way around the budget.
        let in_vain = match verdict {
            SignatureVerdict::NotValid(_) => cost.verified,
            SignatureVerdict::Valid | SignatureVerdict::Unsupported => cost.failed,
        };
        // Several keys may have been tried for a hop: its turn was one of hops.
        queues.charge(priority, peer, cost.verified.saturating_sub(hops) as usize);
        if in_vain > 0 && queues.failed(peer, in_vain, now) {
            self.events.push_back(Event::TooManyBadSignatures { peer });
        }
        let Some(place) = routes.place(key) else { return };
        if self.is_going(key, place) {
            return self.core.forget_next_at(place);
        }
        let routes = &mut self.core.signatures.routes;
        let is_asked = |route: &&mut SignedRoute| route.work() == Work::Asked(number as u32);
        let Some(route) = routes.at_mut(place).filter(is_asked) else { return };
        let (state, fault) = match verdict {
            SignatureVerdict::Valid => (PathSecurity::Valid, None),
            SignatureVerdict::NotValid(fault) => (PathSecurity::NotValid, Some(fault)),
            SignatureVerdict::Unsupported => (PathSecurity::Unsigned, None),
        };
        let is_same = route.next.is_none() && route.state() == state;
        if let Some(until) = self.core.put_off_until(place, state) {
            let signatures = &mut self.core.signatures;
            signatures.routes.change(place, |route| route.work = Work::Done);
            signatures.put_off_next(place, until, (state, fault));
            if !is_current {
                self.core.want_verdict(key, Priority::Later);
            }
            return;
        }
        let Some(route) = self.core.signatures.routes.at_mut(place) else { return };
        route.is_doubted = false;
        route.set = route.wanted();
        self.core.signatures.routes.change(place, |route| route.work = Work::Done);
        let next = self.core.signatures.take_next(place);
        self.core.signatures.judge(place, state, Some(now), fault.map(Box::new));
        match next {
            Some(next) => self.replace_signed(key, next.set),
            None if is_same => {}
            None => self.look_again(key.prefix()),
        }
        if !is_current {
            self.core.want_verdict(key, Priority::Later);
        }
        self.trim_if_long();
    }

    /// The pace of new signatures: a path that differs from the route's path in its signatures alone replaces that path at most
    /// once in this time, the last such path wins. Other attributes, withdrawals and other verdicts do not wait. 0: no pace.
    pub fn set_bgpsec_pace(&mut self, pace: Duration) {
        self.core.signatures.pace = pace;
    }

    /// All jobs that are under way are lost: they are handed out again.
    pub fn signatures_lost(&mut self) {
        for (number, Asked { key, .. }) in self.core.signatures.asked.take_all() {
            let route = self.core.signatures.routes.get(key);
            if let Some(route) = route.filter(|route| route.work() == Work::Asked(number as u32)) {
                let is_new = route.state() == PathSecurity::Unverified || route.next.is_some();
                self.core.want_verdict(key, if is_new { Priority::First } else { Priority::Later });
            }
        }
    }

    /// Routers' keys have changed. Valid routes that name a removed key are verified again, and those that are not valid and
    /// name an added one; `all`: nobody knows which, so all are. Their states stay until there is another verdict.
    pub fn keys_changed(
        &mut self,
        added: impl IntoIterator<Item = (Asn, Ski)>,
        removed: impl IntoIterator<Item = (Asn, Ski)>,
        all: bool,
    ) {
        let changed = &mut self.core.signatures.changed;
        changed.added.extend(added);
        changed.removed.extend(removed);
        changed.all |= all || changed.added.len() + changed.removed.len() > MOST_CHANGED;
        if changed.all {
            // Their names say nothing more, and would stay for as long as an earlier look goes on.
            (changed.added, changed.removed) = Default::default();
        }
    }

    /// Routers' keys have expired; `all`: nobody knows which. Valid routes that name them are verified again as after
    /// [`Self::keys_changed`], but not all at once: over a minute, by their prefixes.
    pub fn keys_lapsed(&mut self, lapsed: impl IntoIterator<Item = (Asn, Ski)>, all: bool) {
        match self.core.signatures.now {
            Some(now) => self.core.signatures.lapsed.add(lapsed, all, (MOST_CHANGED, now)),
            None => self.keys_changed([], lapsed, all),
        }
    }

    /// Background work: looks for routes that a change of keys concerns, and ends the waiting of those that wait for a verdict
    /// for too long. Whether there is more.
    pub(crate) fn signatures_slice(&mut self, budget: usize) -> bool {
        if !self.core.signatures.is_used {
            return false;
        }
        self.release_held(budget);
        let goes_on = std::mem::take(&mut self.core.signatures.goes_on);
        self.look_for_keys(budget) || goes_on
    }

    fn look_for_keys(&mut self, budget: usize) -> bool {
        let signatures = &mut self.core.signatures;
        let Some(look) = signatures.looking.take().or_else(|| signatures.next_look()) else { return false };
        let Look { keys, slot, place } = look;
        let routes = &signatures.routes;
        // Downwards: a route that takes the place of one that left was looked at already, or is new.
        let down = place.saturating_sub(budget.max(1));
        let places = (down..place).rev().filter_map(|at| routes.nth(at));
        let is_in_slot = |route: &&SignedRoute| slot.is_none_or(|slot| routes.slot(route.key, SLOTS) == slot);
        let concerned = places.filter(is_in_slot).filter(|route| keys.concerns(route, &self.core.sets));
        let concerned: Vec<_> = concerned.map(|route| route.key).collect();
        for key in concerned {
            let Some(route) = self.core.signatures.routes.get_mut(key) else { continue };
            route.is_doubted = route.next.is_some();
            // What is asked for later is judged by these keys; a verdict that is under way says by which it was.
            if route.work() == Work::Done {
                self.core.want_verdict(key, Priority::Later);
            }
        }
        let signatures = &mut self.core.signatures;
        signatures.looking = (down > 0).then_some(Look { keys, slot, place: down });
        signatures.looking.is_some() || !signatures.changed.is_empty()
    }

    /// Routes that were to wait for a verdict, and have waited long enough, replace those before them.
    fn release_held(&mut self, budget: usize) {
        for _ in 0..budget.max(1) {
            let SignatureTable { held, now, .. } = &mut self.core.signatures;
            let is_due = |(deadline, _): &(Instant, _)| now.is_some_and(|now| *deadline <= now);
            if !held.first().is_some_and(is_due) {
                return;
            }
            let Some((_, key)) = held.pop_first() else { return };
            let Some(place) = self.core.signatures.routes.place(key) else { continue };
            if self.is_going(key, place) {
                self.core.forget_next_at(place);
                continue;
            }
            let signatures = &mut self.core.signatures;
            let Some(Next { set, verdict, .. }) = signatures.take_next(place) else { continue };
            signatures.routes.change(place, |route| (route.set, route.is_doubted) = (set, false));
            let (state, fault) = verdict.unwrap_or((PathSecurity::Unverified, None));
            signatures.judge(place, state, signatures.now, fault.map(Box::new));
            self.replace_signed(key, set);
            self.trim_if_long();
        }
    }

    /// Whether background work removes a route, as its session has ended, or the path that is to be replaced was not announced
    /// again in a refresh: nothing takes its place any more.
    fn is_going(&self, key: RouteKey, place: Place) -> bool {
        let core = &self.core;
        if !core.sources.get(key.source()).counts() {
            return true;
        }
        let is_held = core.signatures.routes.at(place).is_some_and(|route| route.next.is_some());
        is_held
            && match key.prefix() {
                Prefix::V4(prefix) => self.v4.is_going(core, key.source(), prefix),
                Prefix::V6(prefix) => self.v6.is_going(core, key.source(), prefix),
            }
    }

    /// The path with this set, which loses a user, is in the table from now on.
    fn replace_signed(&mut self, key: RouteKey, set: SetId) {
        let (source, prefix) = (key.source(), key.prefix());
        if self.core.sources.get(source).counts() {
            let (core, stages) = (&mut self.core, &mut self.stages);
            match prefix {
                Prefix::V4(prefix) => self.v4.replace_signed(core, stages, source, prefix, set),
                Prefix::V6(prefix) => self.v6.replace_signed(core, stages, source, prefix, set),
            }
        }
        self.core.sets.release(set);
    }

    /// The path of a prefix is moved to the set that says what is known of its signatures now.
    fn look_again(&mut self, prefix: Prefix) {
        let (core, stages) = (&mut self.core, &mut self.stages);
        match prefix {
            Prefix::V4(prefix) => self.v4.rib.validate_one(core, stages, prefix),
            Prefix::V6(prefix) => self.v6.rib.validate_one(core, stages, prefix),
        }
        self.free_swept_places();
    }

    /// When [`Self::work`] or [`Self::poll_signatures`] has something to do without anything else happening.
    pub(crate) fn signatures_timeout(&self) -> Option<Instant> {
        let signatures = &self.core.signatures;
        let held = signatures.held.first().map(|(deadline, _)| *deadline);
        let lapsed = signatures.lapsed.poll_timeout().filter(|_| signatures.is_used);
        [held, signatures.queues.poll_timeout(), lapsed].into_iter().flatten().min()
    }

    /// What is known of the signatures of a peer's routes, those of its earlier session included while they are kept.
    pub fn signature_counts(&self, index: PeerIndex) -> SignatureCounts {
        let Some(peer) = self.peers.get(index.index()).and_then(Option::as_ref) else {
            return SignatureCounts::default();
        };
        let sources = peer.session.iter().flat_map(Session::sources).chain(&peer.stale);
        sources.map(|source| self.core.signatures.routes.counts(*source)).sum()
    }
}

impl Core {
    /// Whether the session that brought a set has agreed on signatures, which are verified.
    fn may_be_signed(&self, prefix: Prefix, set: SetId) -> bool {
        let class = self.classes.get(self.sets.class(set));
        let is_verified = class.ingress.validation.is_some_and(|rule| rule.signatures.is_some());
        let family = match prefix {
            Prefix::V4(_) => Family::IPV4_UNICAST,
            Prefix::V6(_) => Family::IPV6_UNICAST,
        };
        let secured = class.rules.and_then(|rules| rules.bgpsec);
        is_verified && secured.is_some_and(|secured| secured.families.of(family))
    }

    /// What is known of the signatures of a path, for display; [`PathSecurity::Unsigned`] where it came without, and might have
    /// had some.
    pub(crate) fn signature_view(
        &self,
        source: SourceId,
        prefix: Prefix,
        set: SetId,
    ) -> Option<SignatureView> {
        let Some(route) = self.signatures.routes.get(RouteKey::new(source, prefix)) else {
            let unsigned =
                SignatureView { state: PathSecurity::Unsigned, fault: None, at: None, is_pending: false };
            return self.may_be_signed(prefix, set).then_some(unsigned);
        };
        let fault = route.fault.as_deref().copied();
        Some(SignatureView {
            state: route.state(),
            fault,
            at: self.signatures.found_at(route),
            is_pending: route.work() != Work::Done,
        })
    }
}

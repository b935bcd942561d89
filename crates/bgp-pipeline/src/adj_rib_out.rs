//! The AdjRibOut stage: a window of changes becomes messages for one update group.
//!
//! Nothing is stored of what was announced: a change names the old path too, and whether that one was
//! announced is found out again. Changes of one prefix in a window are merged, keeping the first `old`;
//! prefixes announced with the same attributes share messages.
//!
//! A group that is sent several paths of a prefix (RFC 7911) has a route for each source, under the source's number.

mod chain;
mod complete;
mod merge;
mod outgoing;
mod recipients;
mod secure;
mod signed;
mod too_long;

use holdfast_bgp_wire::{UpdateEncoder, nlri::Identified};
use holdfast_types::{HashKey, IpPrefix, Prefix};

pub(crate) use self::{
    chain::SetIndex,
    outgoing::{Outgoing, Run, Target},
    recipients::{Before, Recipients, Side},
    secure::{goes_on, is_signable},
    too_long::TooLong,
};
use self::{
    chain::{Announced, Chain, END, Signable, attributes, encode_chain},
    merge::Merge,
    outgoing::{withdraw, withdraw_paths},
    secure::{Sending, ToSign},
};
use crate::{
    PeerIndex,
    core::Core,
    export::rules::ExportDecision,
    fanout::Change,
    hashes::Asked,
    journal::format::{Announced as ToldAs, OURS_AGAIN, PeerNumber},
    path::{Path, SetId, SourceId},
    peer_set::PeerSet,
    seam::{Old, RouteNumber, Seam},
    sets::Verdict as Imported,
    signing::{Had, Pending},
    told::Known,
};

/// How many prefixes are announced, counted on the way.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    /// Counting starts again from nothing.
    pub(crate) restarted: bool,
    /// Change of what the group is told.
    pub(crate) announced: i64,
    /// The first route that fits no message.
    pub(crate) too_long: Option<Prefix>,
    /// Change of what single members are not told, being the sources; by number, for those in `touched`.
    withheld: Vec<i64>,
    touched: Vec<PeerIndex>,
}

impl Tally {
    #[inline]
    fn withhold(&mut self, peer: PeerIndex, by: i64) {
        if self.withheld.len() <= peer.index() {
            self.withheld.resize(peer.index() + 1, 0);
        }
        let count = &mut self.withheld[peer.index()];
        if *count == 0 {
            self.touched.push(peer);
        }
        *count += by;
    }

    /// So many routes are announced (or not any more), but not to the member that they come from.
    #[inline]
    fn announce(&mut self, source: Option<PeerIndex>, by: i64) {
        self.announced += by;
        if let Some(peer) = source {
            self.withhold(peer, by);
        }
    }

    /// Takes what was counted of single members.
    pub(crate) fn take_withheld(&mut self) -> impl Iterator<Item = (PeerIndex, i64)> {
        let withheld = &mut self.withheld;
        self.touched.drain(..).map(|peer| (peer, std::mem::take(&mut withheld[peer.index()])))
    }

    fn restart(&mut self) {
        (self.restarted, self.announced, self.too_long) = (false, 0, None);
        self.take_withheld().for_each(drop);
    }
}

/// Where a route belongs in a window.
#[derive(Copy, Clone, Debug)]
struct Place {
    chain: u32,
    /// That of the chain.
    member: Option<PeerIndex>,
}

/// The latest path of a window, if all paths with its set and source belong where it does.
#[derive(Copy, Clone, Debug)]
struct Latest {
    set: SetId,
    source: SourceId,
    side: Side,
    place: Place,
}

/// Room for one window.
#[derive(Debug)]
pub(crate) struct Window<P> {
    merge: Merge<P>,
    chains: Vec<Chain>,
    latest: Option<Latest>,
    announced: Announced<P>,
    withdrawn: Vec<P>,
    withdrawn_from: Vec<(Target, P)>,
    /// Withdrawn from each member that had them; under the identifier 0 those that are told without.
    forgotten: Vec<Identified<P>>,
    /// Where several paths are told: the one under this identifier.
    withdrawn_paths: Vec<(Target, Identified<P>)>,
    attributes: Vec<u8>,
    to_sign: Vec<ToSign<P>>,
    /// Attributes with BGPsec_PATH.
    secured: Vec<u8>,
    /// What the reader has put off, while the window is its.
    pending: Option<Box<Pending<P>>>,
    /// The routes that fit no message, lent in the same way.
    too_long: Option<Box<TooLong<P>>>,
    pub(crate) tally: Tally,
}

impl<P: IpPrefix> Window<P> {
    pub(crate) fn new(key: HashKey) -> Self {
        Self {
            merge: Merge::new(key),
            chains: Vec::new(),
            latest: None,
            announced: Announced::new(),
            withdrawn: Vec::new(),
            withdrawn_from: Vec::new(),
            forgotten: Vec::new(),
            withdrawn_paths: Vec::new(),
            attributes: Vec::new(),
            to_sign: Vec::new(),
            secured: Vec::new(),
            pending: None,
            too_long: None,
            tally: Tally::default(),
        }
    }

    /// Starts a window; what the one before left is dropped.
    pub(crate) fn begin(&mut self, core: &Core, marks: &mut SetIndex, recipients: &Recipients<'_>) {
        marks.begin(core.sets.numbers());
        recipients.current.begin_window();
        recipients.previous.begin_window();
        self.chains.clear();
        self.latest = None;
        self.announced.clear();
        self.withdrawn.clear();
        self.withdrawn_from.clear();
        self.forgotten.clear();
        self.withdrawn_paths.clear();
        self.to_sign.clear();
        self.tally.restart();
    }

    /// One change for each prefix, from the first `old` to the last `new`.
    ///
    /// `only`: there may be changes of both kinds, wanted are those of [each path](Change::is_each), or the others.
    pub(crate) fn merge(
        &mut self,
        changes: impl ExactSizeIterator<Item = Change<P>>,
        only: Option<bool>,
    ) -> Vec<Change<P>> {
        self.merge.run(changes, only)
    }

    /// Gives a merged list back, for its memory.
    pub(crate) fn recycle(&mut self, changes: Vec<Change<P>>) {
        self.merge.changes = changes;
    }

    /// Prefixes of which [all is alike](Change::is_like), before and now: most often those of one UPDATE. What holds for
    /// the first holds for all, unless policy looks at prefixes.
    pub(crate) fn add(
        &mut self,
        core: &mut Core,
        marks: &mut SetIndex,
        recipients: &Recipients<'_>,
        alike: &[Change<P>],
        before: Before,
        side: Side,
    ) {
        match self.puts_off() || self.too_long.is_some() {
            false => self.add_known(core, marks, recipients, alike, before, side),
            true => self.add_one_by_one(core, marks, recipients, alike, before, side),
        }
    }

    /// The same where nothing is put off, and all were told alike.
    fn add_known(
        &mut self,
        core: &mut Core,
        marks: &mut SetIndex,
        recipients: &Recipients<'_>,
        alike: &[Change<P>],
        before: Before,
        side: Side,
    ) {
        let Some(&Change { prefix, old, new }) = alike.first() else { return };
        let was = before.side().and_then(|side| recipients.group(side).judge_here(core, prefix, old));
        let now = self.place(core, marks, recipients, prefix, (new, side));
        let one_by_one = alike.len() > 1 && !recipients.holds_for_all::<P>(core, (before, old), (new, side));
        let (alike, others) = alike.split_at(if one_by_one { 1 } else { alike.len() });
        if core.seams.are_watched() {
            alike.iter().for_each(|change| self.pass(core, recipients, change, (before, was), now));
        }
        // What fitted no message was not announced.
        let was =
            match self.too_long.is_some() && self.was_too_long(recipients.route(core, prefix, new.source)) {
                true => None,
                false => was,
            };
        match (was, now) {
            (None, None) if before == Before::Unknown => {
                self.retire(core, recipients, Target::All, new.source, alike);
            }
            (None, None) => {}
            (None, Some(place)) => {
                self.announce(place, alike, || match before {
                    // They may have it.
                    Before::Unknown => Had::all_but(place.member),
                    Before::Announced(_) | Before::Asked => Had::Nobody,
                });
                if let (Some(peer), Before::Unknown) = (place.member, before) {
                    self.retire(core, recipients, Target::Only(peer), new.source, alike);
                }
            }
            (Some(_), None) => match self.retract(core, recipients, old, alike.len()) {
                Some(_) if recipients.is_alone_and_silent() => {}
                Some(peer) => self.retire(core, recipients, Target::Except(peer), old.source, alike),
                None => self.retire(core, recipients, Target::All, old.source, alike),
            },
            (Some(was), Some(place))
                if self.is_renewed(core, recipients, (before, old, was), (new, side), place) => {}
            (Some(_), Some(place)) => {
                let had_none = self.retract(core, recipients, old, alike.len());
                self.announce(place, alike, || Had::all_but(place.member.or(had_none)));
                if let Some(peer) = place.member.filter(|peer| had_none != Some(*peer)) {
                    self.retire(core, recipients, Target::Only(peer), new.source, alike);
                }
            }
        }
        for change in others {
            self.add_known(core, marks, recipients, std::slice::from_ref(change), before, side);
        }
    }

    /// The same where announcements are put off, or fitted no message, maybe these.
    #[cold]
    fn add_one_by_one(
        &mut self,
        core: &mut Core,
        marks: &mut SetIndex,
        recipients: &Recipients<'_>,
        changes: &[Change<P>],
        before: Before,
        side: Side,
    ) {
        for change in changes {
            let Change { prefix, old, new } = *change;
            let waiting = self.take_waiting(recipients.route(core, prefix, new.source));
            let (Some(waiting), Some(side_before)) = (waiting, before.side()) else {
                self.add_known(core, marks, recipients, std::slice::from_ref(change), before, side);
                continue;
            };
            let now = self.place(core, marks, recipients, prefix, (new, side));
            if core.seams.are_watched() {
                let was = recipients.group(side_before).judge(core, prefix, old);
                self.pass(core, recipients, change, (before, was), now);
            }
            self.settle(core, recipients, (new.source, prefix), waiting, now);
        }
    }

    /// An announcement that was put off is looked at again: the path is the present one.
    pub(crate) fn look_again(
        &mut self,
        core: &mut Core,
        marks: &mut SetIndex,
        recipients: &Recipients<'_>,
        route: Identified<P>,
        (path, side): (Path, Side),
    ) {
        let Some(waiting) = self.take_waiting(route) else { return };
        let now = self.place(core, marks, recipients, route.prefix, (path, side));
        self.settle(core, recipients, (waiting.source, route.prefix), waiting, now);
    }

    /// Of what fitted no message nothing is known any more: counting starts again.
    pub(crate) fn forget_too_long(&mut self) {
        self.too_long = None;
    }

    /// Whether a route fitted no message. That is found out again now.
    #[inline]
    fn was_too_long(&mut self, route: Identified<P>) -> bool {
        self.too_long.as_mut().is_some_and(|too_long| too_long.forget(route))
    }

    /// One prefix is withdrawn; where several paths are told, that of the source.
    fn retire_one(
        &mut self,
        core: &Core,
        recipients: &Recipients<'_>,
        target: Target,
        (source, prefix): (SourceId, P),
    ) {
        let none = Path { source, ..Path::NONE };
        self.retire(core, recipients, target, source, &[Change { prefix, old: none, new: none }]);
    }

    /// Whether a peer that was away has brought the same again, or all that has changed is what validation says, which the
    /// group is not told: nobody needs to be told. Who has [asked for everything](Before::Asked) is told all the same.
    #[inline]
    fn is_renewed(
        &self,
        core: &Core,
        recipients: &Recipients<'_>,
        (before, old, was): (Before, Path, ExportDecision),
        (new, side): (Path, Side),
        place: Place,
    ) -> bool {
        let now = self.chains[place.chain as usize].judged;
        let is_same_peer = || core.sources.get(old.source).peer == core.sources.get(new.source).peer;
        before == Before::Announced(side)
            && match old.source == new.source {
                false => now == was && is_same_peer(),
                true => {
                    (now.outcome, now.originator) == (was.outcome, was.originator)
                        && !recipients.group(side).export.announces_validity
                        && (core.differ_in_states_only(was.set, now.set)
                            // Whoever is not sent signatures has nothing of others that a neighbour makes.
                            || core.signatures.is_used
                                && recipients.group(side).export.signs::<P>().is_none()
                                && core.differ_in_signatures_only(was.set, now.set))
                }
            }
    }

    /// Prefixes are withdrawn; where several paths are told, those of the source.
    #[inline]
    fn retire(
        &mut self,
        core: &Core,
        recipients: &Recipients<'_>,
        target: Target,
        source: SourceId,
        changes: &[Change<P>],
    ) {
        let prefixes = changes.iter().map(|change| change.prefix);
        match target {
            _ if recipients.tells_each::<P>() => {
                let identifier = core.sources.get(source).identifier;
                let path = |prefix| (target, Identified { identifier, prefix });
                self.withdrawn_paths.extend(prefixes.map(path));
            }
            Target::All => self.withdrawn.extend(prefixes),
            Target::Except(_) | Target::Only(_) | Target::Nobody => {
                self.withdrawn_from.extend(prefixes.map(|prefix| (target, prefix)));
            }
        }
    }

    /// Some have it no more.
    fn take_back(&mut self, target: Target, route: Identified<P>) {
        match (route.identifier, target) {
            (0, Target::All) => self.withdrawn.push(route.prefix),
            (0, _) => self.withdrawn_from.push((target, route.prefix)),
            _ => self.withdrawn_paths.push((target, route)),
        }
    }

    /// One route of sessions that go on after another process: what they were told under its identifier (0: without), and
    /// what they are to be told now.
    pub(crate) fn resume(
        &mut self,
        core: &mut Core,
        marks: &mut SetIndex,
        recipients: &Recipients<'_>,
        route: Identified<P>,
        told: Option<Known>,
        best: Path,
    ) {
        let prefix = route.prefix;
        let waiting = self.take_waiting(route);
        if let Some((told, also_except)) = &told
            && also_except.is_empty()
            && recipients.keep_hashes::<P>(core)
            && self.is_as_told(core, recipients, (prefix, best), *told)
        {
            return;
        }
        let change = Change { prefix, old: Path::NONE, new: best };
        let now = self.place(core, marks, recipients, prefix, (best, Side::Current));
        if core.seams.are_watched() {
            self.pass(core, recipients, &change, (Before::Unknown, None), now);
        }
        if let (None, Some(waiting)) = (&told, waiting) {
            return self.settle(core, recipients, (best.source, prefix), waiting, now);
        }
        let (told, place) = match (told, now) {
            (None, None) => return,
            (None, Some(place)) => return self.announce(place, &[change], || Had::Nobody),
            (Some(told), None) => return self.withdraw_known(recipients, &told, route),
            (Some(told), Some(place)) => (told, place),
        };
        let (ToldAs { hash, source }, also_except) = told;
        // The journal has to name the present source: one that it names beyond its session would count as not told
        // when it is up anew.
        let is_same = also_except.is_empty()
            && is_same_source(source, self.chains[place.chain as usize].source)
            && self.hash(core, recipients, place.chain, prefix) == Some(hash);
        if is_same {
            self.tally.announce(place.member, 1);
            return;
        }
        // The one that was not told, if it is among those who are told now.
        let except = recipients.named(source);
        self.announce(place, &[change], || Had::all_but(place.member.or(except)));
        let had_it = |peer: &PeerIndex| {
            except != Some(*peer) && also_except.iter().all(|other| recipients.named(*other) != Some(*peer))
        };
        if let Some(peer) = place.member.filter(had_it) {
            self.take_back(Target::Only(peer), route);
        }
    }

    /// Whether a route is what was told of it, where [hashes are kept](Recipients::keep_hashes): most often nothing has
    /// changed. Counts it then.
    #[inline]
    pub(crate) fn is_as_told(
        &mut self,
        core: &mut Core,
        recipients: &Recipients<'_>,
        (prefix, best): (P, Path),
        ToldAs { hash, source }: ToldAs,
    ) -> bool {
        if !best.is_some() || best.source == SourceId::DEFAULT {
            return false;
        }
        let Some(asked) = recipients.asked::<P>(core, best) else { return false };
        let (set, asked) = match core.sets.verdict(best.set) {
            Imported::PerRoute => match core.effective(prefix.into(), best.set) {
                Some(set) => (set, Asked { is_imported: true, ..asked }),
                None => return false,
            },
            Imported::Accepted(_) | Imported::Rejected | Imported::Unknown => (best.set, asked),
        };
        let known = core.sets.hashes.get(set, asked);
        let now = known.or_else(|| self.hash_set(core, recipients, (prefix, best), (set, asked)));
        let is_same =
            now == Some(hash) && is_same_source(source, recipients.source_number(core, best.source));
        if is_same {
            self.count_as_told(core, recipients, best.source);
        }
        is_same
    }

    /// Whether other routes with the set and from the source of one that [is as told](Self::is_as_told) are, too, if the same
    /// was said of them.
    pub(crate) fn holds_for_set(core: &Core, path: Path) -> bool {
        core.sets.verdict(path.set) != Imported::PerRoute
    }

    /// Counts such a route.
    #[inline]
    pub(crate) fn count_as_told(&mut self, core: &Core, recipients: &Recipients<'_>, source: SourceId) {
        self.tally.announce(recipients.member(core, source), 1);
    }

    /// What stands for the attributes of a set as announced, which is kept; `None` where it is not announced, or not in the
    /// same way for all prefixes.
    #[inline(never)]
    fn hash_set(
        &mut self,
        core: &mut Core,
        recipients: &Recipients<'_>,
        (prefix, best): (P, Path),
        (set, asked): (SetId, Asked),
    ) -> Option<u64> {
        let judged = recipients.current.judge(core, prefix, best)?;
        let remembers = match asked.is_imported {
            true => recipients.current.remembers_imported(core, set),
            false => recipients.current.remembers::<P>(core, best),
        };
        if !remembers {
            return None;
        }
        let (hasher, _) = recipients.journal?;
        let (named, _) =
            attributes::<P>(core, recipients, (judged, Side::Current), false, &mut self.attributes)?;
        let hash = hasher.hash(&self.attributes, named);
        let numbers = core.sets.numbers();
        core.sets.hashes.put(set, asked, hash, numbers);
        Some(hash)
    }

    /// A route that nobody may have any more, of which is known who was told.
    pub(crate) fn withdraw_known(
        &mut self,
        recipients: &Recipients<'_>,
        (told, also_except): &Known,
        route: Identified<P>,
    ) {
        self.take_waiting(route);
        match recipients.named(told.source) {
            _ if !also_except.is_empty() => {
                let except =
                    also_except.iter().chain([&told.source]).filter_map(|who| recipients.named(*who));
                let except = PeerSet::from_iter(except);
                for peer in recipients.members.iter().filter(|peer| !except.contains(*peer)) {
                    self.take_back(Target::Only(peer), route);
                }
                // Those who join later do not have it either.
                self.forgotten.push(route);
            }
            None => self.take_back(Target::All, route),
            Some(_) if recipients.is_alone_and_silent() => {}
            Some(peer) => self.take_back(Target::Except(peer), route),
        }
    }

    /// Stands for what a prefix of a chain is announced with.
    fn hash(&mut self, core: &Core, recipients: &Recipients<'_>, chain: u32, prefix: P) -> Option<u64> {
        if self.chains[chain as usize].signable.is_some() {
            return self.hash_signable(core, recipients, chain, prefix);
        }
        let chain = &mut self.chains[chain as usize];
        if chain.hash.is_none() {
            let made = (chain.judged, chain.side);
            let (named, _) = attributes::<P>(core, recipients, made, false, &mut self.attributes)?;
            chain.hash = recipients.journal.map(|(hasher, _)| hasher.hash(&self.attributes, named));
        }
        chain.hash
    }

    /// Shows a change at the seams before and behind export.
    #[cold]
    fn pass(
        &self,
        core: &Core,
        recipients: &Recipients<'_>,
        &Change { prefix, old, new }: &Change<P>,
        (before, was): (Before, Option<ExportDecision>),
        now: Option<Place>,
    ) {
        let lane = recipients.lane::<P>(new.source);
        let number = |path: Path, judged: ExportDecision| RouteNumber::new(path.source, judged.set);
        let (known, was) = match before {
            Before::Announced(_) | Before::Asked => {
                (Old::Is(RouteNumber::of(old)), Old::Is(was.map(|judged| number(old, judged))))
            }
            Before::Unknown => (Old::Unknown, Old::Unknown),
        };
        let now = now.map(|place| number(new, self.chains[place.chain as usize].judged));
        core.seams.pass(Seam::FanoutToExport, lane, prefix, known, RouteNumber::of(new));
        core.seams.pass(Seam::ExportToAdjRibOut, lane, prefix, was, now);
    }

    /// The path is not announced any more, for so many prefixes. Returns the member that was not told of it, being its
    /// source.
    #[inline(always)]
    fn retract(
        &mut self,
        core: &Core,
        recipients: &Recipients<'_>,
        path: Path,
        prefixes: usize,
    ) -> Option<PeerIndex> {
        let member = recipients.member(core, path.source);
        self.tally.announce(member, -(prefixes as i64));
        member
    }

    /// The prefixes are announced like the others of a chain; `had` says who was told of them before.
    #[inline]
    fn announce(&mut self, place: Place, changes: &[Change<P>], had: impl FnOnce() -> Had) {
        let prefixes = changes.iter().map(|change| change.prefix);
        let chain = &mut self.chains[place.chain as usize];
        if chain.signable.is_some() {
            return self.announce_signable(place.chain, changes[0].new.source, prefixes, had());
        }
        self.tally.announce(place.member, changes.len() as i64);
        self.announced.extend(chain, prefixes);
    }

    /// Where a path belongs; `None` if it is not announced. Often it is where the one before it belonged: they came
    /// in one UPDATE. A withdrawal has none: to call for that costs 4 % of a sweep.
    #[inline(always)]
    fn place(
        &mut self,
        core: &mut Core,
        marks: &mut SetIndex,
        recipients: &Recipients<'_>,
        prefix: P,
        (path, side): (Path, Side),
    ) -> Option<Place> {
        if !path.is_some() {
            return None;
        }
        match self.latest {
            Some(latest) if (latest.set, latest.source, latest.side) == (path.set, path.source, side) => {
                Some(latest.place)
            }
            Some(_) | None => self.find_place(core, marks, recipients, prefix, (path, side)),
        }
    }

    #[inline(never)]
    fn find_place(
        &mut self,
        core: &mut Core,
        marks: &mut SetIndex,
        recipients: &Recipients<'_>,
        prefix: P,
        (path, side): (Path, Side),
    ) -> Option<Place> {
        let group = recipients.group(side);
        let judged = group.judge_here(core, prefix, path)?;
        let member = recipients.member(core, path.source);
        let source = recipients.source_number(core, path.source);
        let identifier = recipients.tells_each::<P>().then(|| core.sources.get(path.source).identifier);
        let signable = || {
            group.export.signs::<P>()?;
            let is_aggregate = path.source == SourceId::AGGREGATED;
            let signable = Signable { received: path.set, is_aggregate };
            is_signable(core, &group.export, path, judged.set).then_some(signable)
        };
        let chain = self.chain(marks.chain(path.set), (member, source, identifier, side, judged), signable);
        let place = Place { chain, member };
        self.latest = group.remembers::<P>(core, path).then_some(Latest {
            set: path.set,
            source: path.source,
            side,
            place,
        });
        Some(place)
    }

    /// A prefix that nobody may have any more, whatever was announced; not counted. Where several paths are told, that
    /// of the source.
    pub(crate) fn withdraw(&mut self, core: &Core, recipients: &Recipients<'_>, source: SourceId, prefix: P) {
        let identifier = core.sources.get(source).identifier;
        self.withdraw_told(core, recipients, source, Identified { identifier, prefix });
    }

    /// The same of a path under the identifier that it was told under, which its source has no more if it is buried.
    pub(crate) fn withdraw_told(
        &mut self,
        core: &Core,
        recipients: &Recipients<'_>,
        source: SourceId,
        route: Identified<P>,
    ) {
        for seam in [Seam::FanoutToExport, Seam::ExportToAdjRibOut] {
            core.seams.pass(seam, recipients.lane::<P>(source), route.prefix, Old::Unknown, None);
        }
        let identifier = if recipients.tells_each::<P>() { route.identifier } else { 0 };
        self.take_waiting(Identified { identifier, ..route });
        self.was_too_long(Identified { identifier, ..route });
        match recipients.tells_each::<P>() {
            true => self.withdrawn_paths.push((Target::All, route)),
            false => self.withdrawn.push(route.prefix),
        }
    }

    /// The chain of routes that are announced in this way.
    fn chain(
        &mut self,
        head: &mut u32,
        (member, source, identifier, side, judged): (
            Option<PeerIndex>,
            PeerNumber,
            Option<u32>,
            Side,
            ExportDecision,
        ),
        signable: impl FnOnce() -> Option<Signable>,
    ) -> u32 {
        let mut at = *head;
        while let Some(chain) = self.chains.get(at as usize) {
            let known = (chain.member, chain.source, chain.identifier, chain.side, chain.judged);
            if known == (member, source, identifier, side, judged) {
                return at;
            }
            at = chain.next;
        }
        let number = self.chains.len() as u32;
        self.chains.push(Chain {
            member,
            source,
            identifier,
            side,
            judged,
            signable: signable(),
            stays_inside: false,
            hash: None,
            first: END,
            last: END,
            next: *head,
        });
        *head = number;
        number
    }

    /// Encodes the window: withdrawals first, then each chain. What is not signed yet is put off.
    pub(crate) fn encode(&mut self, core: &mut Core, recipients: &Recipients<'_>, out: &mut Outgoing) {
        let encoder = UpdateEncoder::new(recipients.current.export.max_message_len);
        withdraw(encoder, self.withdrawn.iter().copied(), out);
        out.close(Target::All);
        self.withdrawn_from.sort_unstable();
        for part in self.withdrawn_from.chunk_by(|a, b| a.0 == b.0) {
            withdraw(encoder, part.iter().map(|(_, prefix)| *prefix), out);
            out.close(part[0].0);
        }
        if let Some(recorder) = out.recorder.as_mut().filter(|_| !self.forgotten.is_empty()) {
            match recipients.tells_each::<P>() {
                true => recorder.paths_withdrawn(self.forgotten.iter().copied()),
                false => recorder.withdrawn(self.forgotten.iter().map(|route| route.prefix)),
            }
            out.close(Target::Nobody);
        }
        self.withdrawn_paths.sort_unstable();
        for part in self.withdrawn_paths.chunk_by(|a, b| a.0 == b.0) {
            withdraw_paths(encoder, part.iter().map(|(_, path)| *path), out);
            out.close(part[0].0);
        }
        for chain in &self.chains {
            if let Err(too_long) =
                encode_chain(core, recipients, encoder, chain, &self.announced, &mut self.attributes, out)
            {
                let unfit = Unfit { too_long: &mut self.too_long, tally: &mut self.tally };
                unfit.take_back(core, chain, too_long.of(chain, self.announced.of(chain)));
            }
        }
        if !self.to_sign.is_empty() {
            self.encode_signable(&mut Sending { core, recipients, encoder, out });
        }
    }

    pub(crate) fn memory(&self) -> usize {
        self.announced.memory()
            + self.chains.capacity() * size_of::<Chain>()
            + self.merge.changes.capacity() * size_of::<Change<P>>()
    }
}

/// Where routes are noted that fit no message.
struct Unfit<'a, P> {
    too_long: &'a mut Option<Box<TooLong<P>>>,
    tally: &'a mut Tally,
}

impl<P: IpPrefix> Unfit<'_, P> {
    fn note(&mut self, core: &Core, chain: &Chain, prefix: P) {
        let (key, identifier) = (core.speaker.hash_key, chain.identifier.unwrap_or(0));
        let too_long = self.too_long.get_or_insert_with(|| Box::new(TooLong::new(key)));
        too_long.add(Identified { identifier, prefix });
        self.tally.too_long.get_or_insert(prefix.into());
    }

    /// The same of routes that were counted as announced.
    #[cold]
    fn take_back(mut self, core: &Core, chain: &Chain, routes: impl Iterator<Item = P>) {
        for prefix in routes {
            self.note(core, chain, prefix);
            self.tally.announce(chain.member, -1);
        }
    }
}

/// Whether the journal says the same of two sources. Earlier versions did not tell routes of our own apart.
fn is_same_source(told: PeerNumber, now: PeerNumber) -> bool {
    told == now || [told, now].iter().all(|number| [0, OURS_AGAIN].contains(number))
}

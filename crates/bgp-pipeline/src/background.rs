//! Work that takes long, in slices: walks over the tables, and giving memory back.
//!
//! One walk serves all reasons at once: paths of ended sessions go, paths under changed import policy move
//! to their new sets, prefixes that use changed next hops are decided again. What comes up behind its back
//! is left to the next walk, which starts as soon as this one ends.
//!
//! A walk makes changes faster than receivers take them. So it waits as long as a receiver has unread bytes
//! of the last slice: other routes must not queue behind it.

use std::{
    collections::{BTreeSet, VecDeque},
    time::Instant,
};

use holdfast_types::{IpPrefix, Ipv4Prefix, Ipv6Prefix};

use crate::{
    Direction, Event, PeerIndex, Pipeline, cursor::Cursor, fanout::Change, path::SourceId, places::Remains,
    sets::Stamp, source::Sources, stage::Release, table::Table, update_group::stream::Stream,
    validation::Unapplied,
};

/// How many times in a row a receiver that makes no progress may hold up a walk.
const PATIENCE: u32 = 64;
/// The same for a RIB that is half the way to losing its place and reads nothing: it may be a process that waits for
/// a processor, and to tell it everything again would help nobody.
const RIB_PATIENCE: u32 = 1024;
/// The logs are not trimmed below this length: that would cost more than it frees.
const TRIM_ABOVE: usize = 1024;

/// Where the walk over the tables is.
#[derive(Copy, Clone, Debug)]
enum Place {
    Ipv4(Option<Ipv4Prefix>),
    Ipv6(Option<Ipv6Prefix>),
}

/// The state of background work.
#[derive(Debug, Default)]
pub(crate) struct Background {
    place: Option<Place>,
    /// Prefixes that the walk has behind it.
    walked: u64,
    /// The number of the last walk that has ended.
    ended: u64,
    /// Another walk is to follow.
    wanted: bool,
    /// And that one has changed next hops to look at.
    next_hops: bool,
    /// And it has every choice to make anew.
    decision: bool,
    /// And it finds out again what validation says of every route.
    validation: bool,
    /// Changes in the RPKI that are few enough to look at what they concern.
    pub(crate) unapplied: Unapplied,
    /// Swept sources, with the place in the logs that readers have to pass.
    graves: VecDeque<(SourceId, Stamp)>,
    pub(crate) waiting: bool,
    /// How often in a row the RIB held up the walk.
    rib_patience: u32,
    /// The same while it read nothing, and up to where it had read.
    rib_stuck: (u32, u64),
    trim_at: usize,
    released: Vec<Release>,
    /// Peers that have asked for another filter of theirs to take effect.
    pub(crate) filters: BTreeSet<PeerIndex>,
    /// Which path identifiers were where, of sessions that have ended.
    pub(crate) remains: Remains,
}

impl Background {
    /// Prefixes that the walk under way has behind it.
    pub(crate) fn walked(&self) -> u64 {
        self.walked
    }

    /// The number of the last walk that has come to its end.
    pub(crate) fn ended(&self) -> u64 {
        self.ended
    }

    /// A walk over the tables has to follow, for dead sources or moving ones.
    pub(crate) fn want_walk(&mut self) {
        self.wanted = true;
    }

    /// One that looks at next hops, too.
    pub(crate) fn want_next_hops(&mut self) {
        (self.wanted, self.next_hops) = (true, true);
    }

    /// One that finds out again what validation says.
    pub(crate) fn want_validation(&mut self) {
        (self.wanted, self.validation) = (true, true);
    }

    /// Whether such a one has yet to begin.
    pub(crate) fn wants_validation(&self) -> bool {
        self.validation
    }

    /// One that makes every choice anew.
    pub(crate) fn want_decision(&mut self) {
        (self.wanted, self.decision) = (true, true);
    }
}

/// How far readers of the log are behind.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Pressure {
    /// Less than half the way to losing their place.
    Low,
    /// More than that: nothing more should be taken in of a peer that sends much.
    High,
    /// Three quarters of the way: nothing more should be taken in of anybody.
    Full,
}

impl Pressure {
    fn of(backlog: u64, limit: u64) -> Self {
        match backlog {
            _ if backlog > limit / 4 * 3 => Self::Full,
            _ if backlog > limit / 2 => Self::High,
            _ => Self::Low,
        }
    }
}

impl Pipeline {
    /// One slice of background work; call it again while it returns true, after everything urgent. `budget`
    /// counts prefixes, each 0.1 to 0.2 us here and as much again when its change is encoded.
    ///
    /// It returns false when there is nothing to do, and also when receivers have to read first: then
    /// [`Self::is_waiting`] is true, and calling again after [`Self::set_paced`] or [`Self::pull`] goes on.
    pub fn work(&mut self, budget: usize) -> bool {
        self.background.waiting = false;
        self.trim();
        let filtering = self.apply_filters();
        let now = self.ends();
        let is_waited_for = self.core.sets.has_dropped() || !self.background.graves.is_empty();
        let passed = if is_waited_for { self.passed() } else { now };
        let core = &mut self.core;
        let more = core.sets.collect(now, passed, budget, &mut core.classes, &mut core.next_hops);
        self.marks.fit(core.sets.numbers());
        self.bury(passed);
        self.forget_hashes();
        let released = self.release_suppressed(budget);
        let left = self.background.remains.free(budget);
        // Receivers are asked once for both: each time takes of their patience.
        self.background.waiting = self.is_walking() && self.is_held_up();
        let walking = self.walk_slice(budget);
        let validating = self.validation_slice(budget);
        let verifying = self.signatures_slice(budget);
        self.signing_slice();
        self.aggregate();
        let counting = self.count_aggregates(budget);
        let checking = self.check_slice(budget);
        self.background.waiting |= self.retire_aggregates();
        // What has been withdrawn may count for others.
        more || filtering
            || released
            || left
            || walking
            || validating
            || verifying
            || counting
            || checking
            || self.has_aggregates_to_count()
    }

    /// When [`Self::work`] has something to do without anything else happening: [`Self::set_now`] and call it then.
    pub fn poll_timeout(&self) -> Option<Instant> {
        let timeouts = [self.stages.poll_timeout(), self.signatures_timeout(), self.signing_timeout()];
        timeouts.into_iter().flatten().min()
    }

    /// Whether background work is held up by receivers that have not acknowledged what they were sent.
    pub fn is_waiting(&self) -> bool {
        self.background.waiting
    }

    /// How far the reader that is furthest behind has come to losing its place, of those that could go on: what the RIB or
    /// a peer would be told then is everything. `takes_more` says whether a peer's socket has room; one without is as slow
    /// as it likes, and nobody waits for it.
    pub fn pressure(&self, takes_more: impl Fn(PeerIndex) -> bool) -> Pressure {
        let (ends, limit) = (self.ends(), self.core.speaker.limits.log as u64);
        let counts = |stream: &Stream| {
            let backlog = stream.backlog(ends);
            (backlog > limit / 2 && stream.members.iter().any(&takes_more)).then_some(backlog)
        };
        let streams = self.streams.iter().filter_map(|(_, stream)| counts(stream));
        let rib = self.rib.as_ref().map(|rib| rib.backlog(ends));
        Pressure::of(streams.chain(rib).max().unwrap_or(0), limit)
    }

    /// Whether routes wait for the RIB to say where their next hops are. What is taken in meanwhile waits as well, and
    /// has to be looked at twice.
    pub fn awaits_next_hops(&self) -> bool {
        !self.core.next_hops.are_answered()
    }

    /// Whether what the RIB and the peers are told will stay as it is until something happens outside: every next hop
    /// has its answer, the first routes with signatures have their verdicts, and no walk over the tables is under way or has to follow.
    pub fn is_settled(&self) -> bool {
        let is_idle = !self.is_walking() && self.background.filters.is_empty();
        is_idle
            && !self.is_aggregating()
            && self.core.next_hops.are_answered()
            && !self.core.signatures.are_awaited()
    }

    /// Whether routes have yet to be looked at again, all or some.
    fn is_walking(&self) -> bool {
        let Background { place, wanted, unapplied, .. } = &self.background;
        place.is_some() || *wanted || !unapplied.is_empty()
    }

    fn walk_slice(&mut self, budget: usize) -> bool {
        let place = match self.background.place {
            Some(place) => place,
            None if self.background.wanted => self.start_walk(),
            None => return false,
        };
        if self.background.waiting {
            self.background.place = Some(place);
            return false;
        }
        let budget = budget.max(1);
        self.background.walked += budget as u64;
        self.background.place = match place {
            Place::Ipv4(from) => match self.v4.rib.visit(&mut self.core, &mut self.stages, from, budget) {
                None => {
                    self.background.walked = self.v4.rib.table.len() as u64;
                    Some(Place::Ipv6(None))
                }
                next => Some(Place::Ipv4(next)),
            },
            Place::Ipv6(from) => self
                .v6
                .rib
                .visit(&mut self.core, &mut self.stages, from, budget)
                .map(|next| Place::Ipv6(Some(next))),
        };
        self.free_swept_places();
        if self.background.place.is_none() {
            self.end_walk();
        }
        self.background.place.is_some() || self.background.wanted
    }

    fn start_walk(&mut self) -> Place {
        self.core.walk += 1;
        self.core.next_hops_moving = std::mem::take(&mut self.background.next_hops);
        self.core.deciding_anew = std::mem::take(&mut self.background.decision);
        self.core.validating_anew = std::mem::take(&mut self.background.validation);
        self.background.wanted = false;
        self.background.walked = 0;
        Place::Ipv4(None)
    }

    fn end_walk(&mut self) {
        let moved = self.background.ended + 1..=self.core.walk;
        self.background.ended = self.core.walk;
        self.core.deciding_anew = false;
        self.core.validating_anew = false;
        self.core.sources.end_sweeps(self.core.walk);
        let moved =
            self.core.sources.iter().filter(|source| source.is_alive() && moved.contains(&source.moving));
        let applied = |peer| Event::PolicyApplied { peer, direction: Direction::Import };
        // Of those of a session, one.
        let moved = moved.filter(|source| source.place == 0);
        self.events.extend(moved.filter_map(|source| source.peer).map(applied));
        let now = self.ends();
        let swept = self.core.sources.take_swept();
        self.background.graves.extend(swept.into_iter().map(|source| (source, now)));
        self.background.wanted |= self.core.sources.any_dead();
    }

    /// Frees the numbers of swept sources that no reader can meet any more.
    fn bury(&mut self, passed: Stamp) {
        while let Some((source, stamp)) = self.background.graves.front() {
            if !stamp.iter().zip(passed).all(|(at, passed)| *at <= passed) {
                return;
            }
            let classes = self.core.sources.bury(*source);
            classes.into_iter().for_each(|class| self.core.classes.release(class));
            self.background.graves.pop_front();
        }
    }

    /// Hashes of what is announced are kept while something is compared with what was told by another process.
    fn forget_hashes(&mut self) {
        let hashes = &mut self.core.sets.hashes;
        if hashes.memory() > 0 && !self.streams.iter().any(|(_, stream)| stream.resumes()) {
            hashes.clear();
        }
    }

    fn release_suppressed(&mut self, budget: usize) -> bool {
        let mut released = std::mem::take(&mut self.background.released);
        let more = self.stages.work(budget, &mut released);
        for Release { peer, prefix } in released.drain(..) {
            self.set_suppressed(peer, prefix, false);
        }
        self.background.released = released;
        more
    }

    /// Whether a peer that makes progress has not been told of everything that a change of exports changes.
    pub(crate) fn is_telling_changes(&mut self) -> bool {
        let mut is_telling = false;
        for (peer, member) in self.peers.iter_mut().zip(&self.members) {
            let session = peer.as_mut().and_then(|peer| peer.session.as_mut());
            let (Some(session), Some(member)) = (session, member) else { continue };
            if self.streams.is_changing(member) && session.patience < PATIENCE {
                session.patience += 1;
                is_telling = true;
            }
        }
        is_telling
    }

    /// Whether a receiver that makes progress has not yet read what earlier slices caused.
    pub(crate) fn is_held_up(&mut self) -> bool {
        let (ends, limits) = (self.ends(), self.core.speaker.limits);
        let mut held_up = false;
        for (number, peer) in self.peers.iter_mut().enumerate() {
            let session = peer.as_mut().and_then(|peer| peer.session.as_mut());
            let (Some(session), Some(member)) = (session, &self.members[number]) else { continue };
            let index = PeerIndex(number as u16);
            let behind = self.streams.get(member.stream).is_some_and(|stream| stream.backlog(ends) > 0);
            let loaded = session.unacknowledged > limits.unacknowledged
                || behind
                || self.streams.queued(index, member) > 0;
            if loaded && session.patience < PATIENCE {
                session.patience += 1;
                held_up = true;
            }
        }
        held_up || self.is_held_up_by_rib(ends)
    }

    fn is_held_up_by_rib(&mut self, ends: Stamp) -> bool {
        let Some(rib) = &self.rib else { return false };
        let (backlog, limits) = (rib.backlog(ends), self.core.speaker.limits);
        let loaded = backlog > 4 * limits.window as u64;
        let Background { rib_patience, rib_stuck, .. } = &mut self.background;
        *rib_patience = if loaded { rib_patience.saturating_add(1) } else { 0 };
        // Half the way to losing its place, only a RIB that reads nothing at all is not waited for.
        let pressed = backlog > limits.log as u64 / 2;
        let read = rib.v4.position + rib.v6.position;
        let stuck = if pressed && read == rib_stuck.1 { rib_stuck.0.saturating_add(1) } else { 0 };
        *rib_stuck = (stuck, read);
        loaded && *rib_patience < PATIENCE || pressed && stuck < RIB_PATIENCE
    }

    /// The ends of both logs.
    pub(crate) fn ends(&self) -> Stamp {
        [self.v4.rib.log.end(), self.v6.rib.log.end()]
    }

    /// Up to where all readers have come.
    fn passed(&self) -> Stamp {
        let mut passed = self.ends();
        let mut at = |v4: Option<u64>, v6: Option<u64>| {
            passed[0] = passed[0].min(v4.unwrap_or(u64::MAX));
            passed[1] = passed[1].min(v6.unwrap_or(u64::MAX));
        };
        for (_, stream) in self.streams.iter() {
            let [v4, v6] = stream.group.export.families;
            at(v4.then(|| place(&stream.v4)).flatten(), v6.then(|| place(&stream.v6)).flatten());
        }
        if let Some(rib) = &self.rib {
            at(place(&rib.v4), place(&rib.v6));
        }
        passed
    }

    /// Counts for aggregates what has changed, and trims the logs when they have grown; called after every change.
    pub(crate) fn trim_if_long(&mut self) {
        self.aggregate();
        if self.v4.rib.log.len() + self.v6.rib.log.len() > self.background.trim_at {
            self.trim();
        }
    }

    /// Forgets changes that all readers have passed, or that are too many.
    fn trim(&mut self) {
        if self.v4.is_short() && self.v6.is_short() {
            // However many readers there are.
            return;
        }
        let limit = self.core.speaker.limits.log as u64;
        let ends = self.ends();
        let [v4, v6] = self.passed();
        if ends[0] - v4 > limit || ends[1] - v6 > limit {
            self.lose_readers(ends.map(|end| end.saturating_sub(limit)));
        }
        let [v4, v6] = self.passed();
        let [lost_v4, lost_v6] = self.lost();
        self.v4.shorten(&self.core.sources, v4, lost_v4);
        self.v6.shorten(&self.core.sources, v6, lost_v6);
        self.give_up_slow_peers();
        let length = self.v4.rib.log.len() + self.v6.rib.log.len();
        self.background.trim_at = TRIM_ABOVE.max(2 * length).min(self.core.speaker.limits.log);
    }

    /// Readers that have not come to these positions lose their place.
    fn lose_readers(&mut self, least: Stamp) {
        for stream in self.streams.iter_mut() {
            let Stream { v4, v6, group, .. } = stream;
            let export = &group.export;
            v4.lost |= export.families[0] && v4.position < least[0];
            v6.lost |= export.families[1] && v6.position < least[1];
        }
        if let Some(rib) = &mut self.rib {
            rib.v4.lost |= rib.v4.position < least[0];
            rib.v6.lost |= rib.v6.position < least[1];
        }
    }

    /// By family, whether some stream has lost its place: one that is told of the best paths, one that is told of each.
    fn lost(&self) -> [[bool; 2]; 2] {
        let mut lost = [[false; 2]; 2];
        for (_, stream) in self.streams.iter() {
            for (family, is_lost) in stream.is_lost().into_iter().enumerate() {
                lost[family][stream.kind(family)] |= is_lost;
            }
        }
        lost
    }

    /// Sessions of which more was lost than can be remembered end.
    fn give_up_slow_peers(&mut self) {
        let limit = self.core.speaker.limits.withdrawn;
        let too_many = [self.v4.forgets_too_much(limit), self.v6.forgets_too_much(limit)];
        if too_many == [[false; 2]; 2] {
            return;
        }
        let lost = self.streams.iter().filter(|(_, stream)| {
            let mut families = stream.is_lost().into_iter().enumerate();
            families.any(|(family, is_lost)| is_lost && too_many[family][stream.kind(family)])
        });
        for peer in lost.flat_map(|(_, stream)| stream.members.iter()).collect::<Vec<_>>() {
            if let Some(member) = self.members[peer.index()].take() {
                self.streams.leave(peer, &member);
                self.events.push_back(Event::TooSlow { peer });
            }
        }
        self.v4.forget_gone(too_many[0]);
        self.v6.forget_gone(too_many[1]);
        self.count_paths();
    }
}

/// Where a reader is; `None` if it has lost its place.
fn place<P>(cursor: &Cursor<P>) -> Option<u64> {
    (!cursor.lost).then_some(cursor.position)
}

impl<P: IpPrefix> Table<P> {
    /// Drops changes before a position. Readers that have lost them have to withdraw what is not there any
    /// more: `lost` says whether there are any of the best paths, and of each.
    fn shorten(&mut self, sources: &Sources, to: u64, lost: [bool; 2]) {
        self.forget_gone(lost.map(|some_lost| !some_lost));
        let [some_best, some_each] = lost;
        if !some_best && !some_each {
            return self.rib.log.trim(to);
        }
        while self.rib.log.start() < to {
            let Some(Change { prefix, new, .. }) = self.rib.log.pop() else { return };
            match new.is_each() {
                _ if new.is_some() => {}
                true if some_each => {
                    let identifier = sources.get(new.source).identifier;
                    self.gone_paths.insert((prefix, new.source, identifier));
                }
                false if some_best => _ = self.gone.insert(prefix),
                true | false => {}
            }
        }
    }

    /// Whether there is nothing that readers have not passed, and nothing that they have lost.
    fn is_short(&self) -> bool {
        self.rib.log.len() == 0 && self.gone.is_empty() && self.gone_paths.is_empty()
    }

    /// Of prefixes, and of paths.
    fn forgets_too_much(&self, limit: usize) -> [bool; 2] {
        [self.gone.len() > limit, self.gone_paths.len() > limit]
    }

    fn forget_gone(&mut self, [prefixes, paths]: [bool; 2]) {
        if prefixes {
            self.gone.clear();
        }
        if paths {
            self.gone_paths.clear();
        }
    }
}

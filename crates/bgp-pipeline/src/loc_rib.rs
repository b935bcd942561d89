//! The table of one family: every path of every prefix, and which one is best.
//!
//! It is Adj-RIB-In of all peers and Loc-RIB at once. Each event on a prefix changes its paths, decides, and
//! logs the change of the best; background work does the same for whole blocks. Most prefixes have one path,
//! and most events concern no other: then there is nothing to load and to compare.

use holdfast_prefix_table::PrefixTable;
use holdfast_types::{HashKey, IpPrefix, Prefix};

use crate::{
    core::Core,
    decision::{Candidate, Comparison, Decision},
    fanout::{Change, Log},
    path::{Flags, Path, PathCounts, PathLists, SourceId},
    seam::{Old, RouteNumber, Seam, StreamKey},
    source::RouteCounts,
    stage::{Cause, Stages},
};

/// What happens to the paths of a prefix.
#[derive(Copy, Clone, Debug)]
enum Edit {
    /// The source's path becomes this one, which bears the marks that it has beside no other
    /// ([`Core::lone`]). The set comes with a user that passes to the table.
    Put(Path),
    /// The source has none any more.
    Remove(SourceId),
    /// A stage holds the source's path back, or lets it go.
    Suppress(SourceId, bool),
    /// Something about the paths may have changed: the session died, import policy, a next hop.
    Visit,
}

/// The paths of one family, and the log of what changed.
#[derive(Debug)]
pub(crate) struct LocRib<P> {
    /// Index into per-family tables: 0 IPv4, 1 IPv6.
    pub(crate) family: usize,
    pub(crate) table: PrefixTable<P, u64>,
    pub(crate) lists: PathLists,
    pub(crate) log: Log<P>,
    /// Edits that wait for others of the same prefix, from [`Self::gather`] to [`Self::settle`].
    gathered: Option<Vec<(P, Edit)>>,
    room: Scratch,
}

/// Room for one prefix at a time.
#[derive(Debug, Default)]
struct Scratch {
    paths: Vec<Path>,
    before: Vec<Path>,
    visited: Vec<Path>,
    decision: Decision,
    each: Each,
}

/// The same for telling of each path.
#[derive(Debug, Default)]
struct Each {
    before: Vec<Path>,
    /// Each path in the place that it had, and behind them those that were not there. What is gone leaves its source.
    after: Vec<Path>,
    /// Those that are there, in the order of their standings.
    ordered: Vec<Path>,
    decision: Decision,
}

impl<P: IpPrefix> LocRib<P> {
    pub(crate) fn new(family: usize, key: HashKey) -> Self {
        Self {
            family,
            table: PrefixTable::new(key),
            lists: PathLists::default(),
            log: Log::new(),
            gathered: None,
            room: Scratch::default(),
        }
    }

    /// The source's path to each of the prefixes is now this one, marked by [`Core::lone`].
    pub(crate) fn put(&mut self, core: &mut Core, prefixes: &[P], path: Path) {
        core.sets.retain(path.set, prefixes.len() as u32);
        self.edit(core, prefixes, Edit::Put(path));
    }

    /// The source has no path to any of the prefixes.
    pub(crate) fn remove(&mut self, core: &mut Core, prefixes: &[P], source: SourceId) {
        self.edit(core, prefixes, Edit::Remove(source));
    }

    /// Holds the source's path back from the decision, or lets it take part again.
    pub(crate) fn suppress(&mut self, core: &mut Core, prefix: P, source: SourceId, on: bool) {
        self.edit(core, &[prefix], Edit::Suppress(source, on));
    }

    /// From here on what is said of paths waits for [`Self::settle`].
    ///
    /// Each path of a prefix may be another in one UPDATE (RFC 7911): comparing all of them for each would cost the square of
    /// what is sent. The same path must not be put, or removed, twice meanwhile.
    pub(crate) fn gather(&mut self) {
        self.gathered = Some(Vec::new());
    }

    /// What was said since [`Self::gather`] holds now: each prefix is decided about once.
    pub(crate) fn settle(&mut self, core: &mut Core) {
        let mut edits = self.gathered.take().unwrap_or_default();
        edits.sort_by_key(|(prefix, _)| *prefix);
        let (table, mut desk) = self.open(core, None);
        let mosts = desk.mosts();
        for of_one in edits.chunk_by(|a, b| a.0 == b.0) {
            let prefix = of_one[0].0;
            table.update(prefix, |word| match mosts.is_empty() {
                false => desk.revise_each(prefix, word, of_one, mosts),
                true => desk.revise_by(prefix, word, of_one),
            });
        }
    }

    #[inline]
    fn edit(&mut self, core: &mut Core, prefixes: &[P], edit: Edit) {
        if let Some(gathered) = &mut self.gathered {
            gathered.extend(prefixes.iter().map(|prefix| (*prefix, edit)));
            return;
        }
        if !core.mosts[self.family].is_empty() {
            return self.edit_each(core, prefixes, edit);
        }
        let (table, mut desk) = self.open(core, None);
        for prefix in prefixes {
            table.update(*prefix, |word| desk.revise(*prefix, word, edit));
        }
        desk.count_added(edit);
    }

    /// The same while groups are sent several paths.
    #[inline(never)]
    fn edit_each(&mut self, core: &mut Core, prefixes: &[P], edit: Edit) {
        let (table, mut desk) = self.open(core, None);
        let mosts = desk.mosts();
        for prefix in prefixes {
            table.update(*prefix, |word| desk.revise_each(*prefix, word, &[(*prefix, edit)], mosts));
        }
    }

    /// The table, and what else an event on a prefix needs.
    fn open<'a>(
        &'a mut self,
        core: &'a mut Core,
        stages: Option<&'a mut Stages>,
    ) -> (&'a mut PrefixTable<P, u64>, PrefixUpdate<'a, P>) {
        let Self { family, table, lists, log, room, gathered: _ } = self;
        (table, PrefixUpdate { family: *family, lists, log, room, core, stages, offered: None, added: 0 })
    }

    /// Looks at up to `budget` prefixes after `from` again; returns where to go on.
    pub(crate) fn visit(
        &mut self,
        core: &mut Core,
        stages: &mut Stages,
        from: Option<P>,
        budget: usize,
    ) -> Option<P> {
        let (table, mut desk) = self.open(core, Some(stages));
        let mosts = desk.mosts();
        if !mosts.is_empty() {
            return table.retain(from, budget, |prefix, word| {
                desk.revise_each(prefix, Some(word), &[(prefix, Edit::Visit)], mosts)
            });
        }
        table.retain(from, budget, |prefix, word| desk.revise(prefix, Some(word), Edit::Visit))
    }

    /// Looks at one prefix again, for one of whose paths the RIB has just said where the next hop is.
    pub(crate) fn decide_again(&mut self, core: &mut Core, stages: &mut Stages, prefix: P) {
        let moving = std::mem::replace(&mut core.next_hops_moving, true);
        self.visit_one(core, stages, prefix);
        core.next_hops_moving = moving;
    }

    fn visit_one(&mut self, core: &mut Core, stages: &mut Stages, prefix: P) {
        let (table, mut desk) = self.open(core, Some(stages));
        let mosts = desk.mosts();
        table.update(prefix, |word| match mosts.is_empty() {
            false => desk.revise_each(prefix, word, &[(prefix, Edit::Visit)], mosts),
            true => desk.revise_apart(prefix, word, Edit::Visit),
        });
    }

    /// Looks at up to `budget` prefixes inside of one again, after `after` or from that one itself on, for what validation says
    /// now; returns where to go on, and how many there were.
    pub(crate) fn validate_again(
        &mut self,
        core: &mut Core,
        stages: &mut Stages,
        inside: P,
        after: Option<P>,
        budget: usize,
    ) -> (Option<P>, usize) {
        let from = self.table.iter_from(after.unwrap_or(inside), after.is_none());
        let found = from.map(|(prefix, _)| prefix).take_while(|prefix| inside.contains(*prefix)).take(budget);
        let found: Vec<P> = found.collect();
        let before = std::mem::replace(&mut core.validating_anew, true);
        for prefix in &found {
            self.visit_one(core, stages, *prefix);
        }
        core.validating_anew = before;
        (found.last().copied().filter(|_| found.len() == budget), found.len())
    }

    /// The source's path to the prefix; [`Path::NONE`] if it has none.
    pub(crate) fn path_of(&self, prefix: P, source: SourceId) -> Path {
        self.table.get(prefix).map_or(Path::NONE, |word| self.lists.find(word, source).1)
    }

    /// The best path; [`Path::NONE`] where there is none.
    pub(crate) fn best(&self, prefix: P) -> Path {
        self.table.get(prefix).map_or(Path::NONE, |word| self.lists.best(word))
    }

    /// All paths, the best first.
    pub(crate) fn paths(&self, prefix: P) -> Vec<Path> {
        let mut paths = Vec::new();
        if let Some(word) = self.table.get(prefix) {
            self.lists.load(word, &mut paths);
        }
        paths
    }

    /// Up to `max` prefixes after one (or from the first) in address order, with their best paths.
    pub(crate) fn page(&self, after: Option<P>, max: usize) -> Vec<(P, Path)> {
        let best = |(prefix, word)| (prefix, self.lists.best(word));
        match after {
            Some(after) => self.table.iter_from(after, false).take(max).map(best).collect(),
            None => self.table.iter().take(max).map(best).collect(),
        }
    }

    /// Prefixes after one (or from the first) until they have `max` paths, with each as it was told and as it is to be told
    /// now; and the last of them. Changes come into the log for `others`, who were told of these prefixes before.
    pub(crate) fn page_of_each(
        &mut self,
        core: &mut Core,
        after: Option<P>,
        max: usize,
        others: PathCounts,
    ) -> EachPage<P> {
        let prefixes: Vec<P> = match after {
            Some(after) => self.table.iter_from(after, false).take(max).map(|(prefix, _)| prefix).collect(),
            None => self.table.iter().take(max).map(|(prefix, _)| prefix).collect(),
        };
        let (table, mut desk) = self.open(core, None);
        let mut page = EachPage { paths: Vec::new(), prefixes: Vec::new() };
        for prefix in prefixes {
            if page.paths.len() >= max {
                break;
            }
            table.update(prefix, |word| {
                let word = desk.revise_each(prefix, word, &[], others);
                desk.room.each.for_each_told(|old, new| page.paths.push(Change::each(prefix, old, new)));
                word
            });
            page.prefixes.push((prefix, page.paths.len()));
        }
        page
    }

    pub(crate) fn memory(&self) -> usize {
        self.table.memory() + self.lists.memory() + self.log.memory()
    }
}

/// What [`LocRib::page_of_each`] finds.
pub(crate) struct EachPage<P> {
    pub(crate) paths: Vec<Change<P>>,
    /// Each with the place in `paths` after its own.
    prefixes: Vec<(P, usize)>,
}

impl<P: Copy> EachPage<P> {
    /// The last prefix, and how many there are.
    pub(crate) fn extent(&self) -> (Option<P>, usize) {
        (self.prefixes.last().map(|(prefix, _)| *prefix), self.prefixes.len())
    }

    /// Each prefix with its paths, also where there are none to be told.
    pub(crate) fn by_prefix(&self) -> impl Iterator<Item = (P, &[Change<P>])> {
        let starts = std::iter::once(0).chain(self.prefixes.iter().map(|(_, end)| *end));
        self.prefixes.iter().zip(starts).map(|((prefix, end), start)| (*prefix, &self.paths[start..*end]))
    }
}

/// The parts of a [`LocRib`] beside its table, and what else an event on a prefix needs.
struct PrefixUpdate<'a, P> {
    family: usize,
    lists: &'a mut PathLists,
    log: &'a mut Log<P>,
    room: &'a mut Scratch,
    core: &'a mut Core,
    stages: Option<&'a mut Stages>,
    /// What an [`Edit::Put`] is as a candidate, from its first prefix on where that matters: the same for all.
    offered: Option<Option<Candidate>>,
    /// Prefixes that had no path, and are not in the counts of an [`Edit::Put`]'s source yet.
    added: u64,
}

impl<P: IpPrefix> PrefixUpdate<'_, P> {
    /// What groups are sent of this family that are sent several paths of a prefix.
    fn mosts(&self) -> PathCounts {
        self.core.mosts[self.family]
    }

    /// One event on one prefix: from the table's word before to the one after.
    #[inline(always)]
    fn revise(&mut self, prefix: P, word: Option<u64>, edit: Edit) -> Option<u64> {
        match word {
            None => match edit {
                Edit::Put(path) => self.add(prefix, path),
                Edit::Remove(_) | Edit::Suppress(..) | Edit::Visit => None,
            },
            Some(word) => match PathLists::only(word) {
                Some(only) if self.goes(only, edit) => self.delete(prefix, only, edit),
                Some(only) if edit.source().is_none_or(|source| source == only.source) => {
                    self.revise_only(prefix, only, edit)
                }
                Some(_) | None => self.revise_among(prefix, word, edit),
            },
        }
    }

    /// The same where it is not worth having it in place.
    #[inline(never)]
    fn revise_apart(&mut self, prefix: P, word: Option<u64>, edit: Edit) -> Option<u64> {
        self.revise(prefix, word, edit)
    }

    /// Any number of events on one prefix: with more than one, its paths are compared after the last.
    fn revise_by(&mut self, prefix: P, mut word: Option<u64>, edits: &[(P, Edit)]) -> Option<u64> {
        let mut edits = edits;
        while let [(_, edit), rest @ ..] = edits {
            if let Some(word) = word.filter(|_| !rest.is_empty()) {
                return self.revise_paths(prefix, word, edits);
            }
            word = self.revise_apart(prefix, word, *edit);
            self.count_added(*edit);
            edits = rest;
        }
        word
    }

    /// The same, or no event at all, while groups are sent several paths: all that take part are looked at again, and
    /// what has changed about each is told to those whom it concerns.
    fn revise_each(
        &mut self,
        prefix: P,
        word: Option<u64>,
        edits: &[(P, Edit)],
        readers: PathCounts,
    ) -> Option<u64> {
        let mut room = std::mem::take(&mut self.room.each);
        room.before.clear();
        word.iter().for_each(|word| self.lists.load(*word, &mut room.before));
        room.after.clone_from(&room.before);
        // Most often a walk finds nothing, and some peers say the same again: comparing all paths is dear.
        let mut is_new = edits.is_empty() || self.core.next_hops_moving || self.core.deciding_anew;
        for (_, edit) in edits {
            is_new |= self.change(prefix.into(), &mut room.after, *edit);
        }
        let word = if is_new { self.order(prefix, word, !edits.is_empty(), &mut room) } else { word };
        self.room.each = room;
        if !is_new {
            return word;
        }
        let log = &mut *self.log;
        let for_views = readers.has_view() && self.room.each.is_other();
        self.room.each.for_each_told(|old, new| {
            if for_views || readers.concerns(old, new) {
                log.push_each(Change::each(prefix, old, new));
            }
        });
        word
    }

    /// Finds out how the paths stand, and decides with that which is the best, unless no event asks for it.
    fn order(&mut self, prefix: P, word: Option<u64>, decides: bool, room: &mut Each) -> Option<u64> {
        let Each { before, after, ordered, decision } = room;
        let most = if decides { usize::from(self.core.speaker.max_paths) } else { 1 };
        let mut shares = Vec::new();
        if most > 1 {
            decision.choose(self.core, prefix.into(), after);
            shares = decision.equal_cost(self.core, most);
        }
        let ranked = usize::from(self.mosts().ranked());
        let standings = decision.rank(self.core, prefix.into(), after);
        debug_assert!(standings.eq(&Self::ranked_by_choice(self.core, prefix.into(), after)));
        after.iter_mut().for_each(|path| path.set_standing(0));
        for (place, index) in standings.iter().enumerate() {
            after[*index].set_standing(if place < ranked { place as u8 + 1 } else { Path::BEYOND });
        }
        if decides {
            after.iter_mut().for_each(|path| *path = path.unchosen());
            standings.iter().take(1).for_each(|best| after[*best] = after[*best].chosen());
            shares.iter().for_each(|index| after[*index].flags.set(Flags::MULTIPATH, true));
            ordered.clear();
            ordered.extend(standings.iter().map(|index| after[*index]));
            ordered.extend(after.iter().filter(|path| path.is_some() && path.standing() == 0));
            let best = |paths: &[Path]| paths.first().map_or(Path::NONE, |path| path.if_best());
            let (old, new) = (best(before), best(ordered));
            self.count_best(old, new);
            self.announce(prefix, old, new, most > 1 && differ(before, ordered));
        } else {
            ordered.clone_from(after);
        }
        match (word, ordered.first()) {
            (None, None) => None,
            _ if before == ordered => word,
            (Some(word), _) => self.lists.store(word, ordered),
            (None, Some(first)) => self.lists.store(first.alone()?, ordered),
        }
    }

    /// What [`Decision::rank`] says, by the RFC's procedure alone: each is chosen from those that are left.
    fn ranked_by_choice(core: &mut Core, prefix: Prefix, paths: &[Path]) -> Vec<usize> {
        let (mut left, mut decision) = (paths.to_vec(), Decision::default());
        std::iter::from_fn(|| {
            let best = decision.choose(core, prefix, &left)?;
            left[best] = Path::NONE;
            Some(best)
        })
        .collect()
    }

    /// The shortest way: the first path to the prefix.
    #[inline]
    fn add(&mut self, prefix: P, path: Path) -> Option<u64> {
        self.added += 1;
        if self.core.seams.are_watched() {
            self.core.pass_in(prefix.into(), Path::NONE, path);
        }
        if path.is_best() {
            self.tell(prefix, Path::NONE, path);
        }
        path.alone()
    }

    /// Enters what an edit has [added](Self::add): the same path to each prefix.
    #[inline]
    fn count_added(&mut self, edit: Edit) {
        let added = std::mem::take(&mut self.added);
        if let Edit::Put(path) = edit {
            let counts = &mut self.core.sources.get_mut(path.source).counts[self.family];
            counts.received += added;
            counts.accepted += if path.is_accepted() { added } else { 0 };
            counts.best += if path.is_best() { added } else { 0 };
        }
    }

    /// Whether that is the path's end.
    #[inline]
    fn goes(&self, path: Path, edit: Edit) -> bool {
        match edit {
            Edit::Put(_) | Edit::Suppress(..) => false,
            Edit::Remove(source) => path.source == source,
            Edit::Visit => self.core.sources.get(path.source).drops(self.family, path),
        }
    }

    /// As short: the only path to the prefix goes.
    #[inline]
    fn delete(&mut self, prefix: P, path: Path, edit: Edit) -> Option<u64> {
        if matches!(edit, Edit::Visit) {
            self.tell_swept(prefix.into(), path);
        }
        self.core.sets.release(path.set);
        self.exchange(prefix.into(), path, Path::NONE);
        if path.is_best() {
            self.tell(prefix, path, Path::NONE);
        }
        None
    }

    /// The short way: the prefix has no other path, so this one is best if it can be.
    fn revise_only(&mut self, prefix: P, old: Path, edit: Edit) -> Option<u64> {
        let Some(mut new) = self.edited(prefix.into(), old, edit) else { return old.alone() };
        if new.is_some() && !matches!(edit, Edit::Put(_)) {
            new = self.core.lone(prefix.into(), new);
        }
        self.exchange(prefix.into(), old, new);
        self.announce(prefix, old.if_best(), new.if_best(), false);
        new.alone()
    }

    /// The path is one of several.
    fn revise_among(&mut self, prefix: P, word: u64, edit: Edit) -> Option<u64> {
        let Some(source) = edit.source() else { return self.revise_paths(prefix, word, &[(prefix, edit)]) };
        let (at, old) = self.lists.find(word, source);
        let Some(new) = self.edited(prefix.into(), old, edit) else { return Some(word) };
        let new = new.unchosen();
        self.exchange(prefix.into(), old.unchosen(), new);
        let best = self.lists.best(word);
        let outcome = self.challenge(prefix.into(), old, new, edit, best);
        match outcome {
            Comparison::AskAll => self.choose_again(prefix, word, |paths| {
                if let Some(at) = at {
                    paths.swap_remove(at);
                }
                paths.extend(new.is_some().then_some(new));
            }),
            Comparison::Worse => self.lists.replace(word, at, new),
            Comparison::Better => {
                let new = new.chosen();
                self.count_best(best, new);
                self.announce(prefix, best, new, false);
                self.lists.replace(word, at, new)
            }
        }
    }

    /// Something has happened to several paths, or may have happened to each: they are compared once.
    fn revise_paths(&mut self, prefix: P, word: u64, edits: &[(P, Edit)]) -> Option<u64> {
        let mut paths = std::mem::take(&mut self.room.visited);
        self.lists.load(word, &mut paths);
        let mut changed = self.core.deciding_anew;
        for (_, edit) in edits {
            changed |= self.change(prefix.into(), &mut paths, *edit);
        }
        paths.retain(|path| path.is_some());
        let word =
            if changed { self.choose_again(prefix, word, |now| now.clone_from(&paths)) } else { Some(word) };
        self.room.visited = paths;
        word
    }

    /// What an edit makes of the paths it concerns; whether that is anything. What is gone leaves its source in its place.
    fn change(&mut self, prefix: Prefix, paths: &mut Vec<Path>, edit: Edit) -> bool {
        let Some(source) = edit.source() else {
            let mut changed = false;
            for path in paths.iter_mut().filter(|path| path.is_some()) {
                if let Some(new) = self.edited(prefix, *path, edit) {
                    self.exchange(prefix, path.unchosen(), new.unchosen());
                    *path = if new.is_some() { new } else { path.absent() };
                    changed = true;
                }
            }
            return changed;
        };
        let at = paths.iter().position(|path| path.source == source);
        let old = at.map_or(Path::NONE, |at| paths[at]);
        let Some(new) = self.edited(prefix, old, edit) else { return false };
        let new = new.unchosen();
        self.exchange(prefix, old.unchosen(), new);
        match at {
            Some(at) if new.is_some() => paths[at] = new,
            Some(at) => paths[at] = old.absent(),
            None => paths.push(new),
        }
        true
    }

    /// The long way: changes the paths and has all of them compared.
    fn choose_again(&mut self, prefix: P, word: u64, change: impl FnOnce(&mut Vec<Path>)) -> Option<u64> {
        let mut room = std::mem::take(self.room);
        self.lists.load(word, &mut room.paths);
        let old = room.paths[0].if_best();
        let multipath = self.core.speaker.max_paths > 1;
        if multipath {
            room.before.clone_from(&room.paths);
        }
        change(&mut room.paths);
        let new = self.decide(prefix.into(), &mut room);
        self.count_best(old, new);
        self.announce(prefix, old, new, multipath && differ(&room.before, &room.paths));
        let word = self.lists.store(word, &room.paths);
        *self.room = room;
        word
    }

    /// Hands the change of the best path to the fanout, if it is one.
    #[inline]
    fn announce(&mut self, prefix: P, old: Path, new: Path, others: bool) {
        if !new.same_route(old) || others {
            self.tell(prefix, old, new);
        }
    }

    #[inline]
    fn tell(&mut self, prefix: P, old: Path, new: Path) {
        if self.core.seams.are_watched() {
            let (was, is) = (RouteNumber::of(old), RouteNumber::of(new));
            self.core.seams.pass(Seam::DecisionToFanout, StreamKey::LocRib, prefix, Old::Is(was), is);
        }
        self.log.push(Change { prefix, old, new });
    }

    /// What an edit makes of the path it concerns ([`Path::NONE`]: of a path that is not there, or is no
    /// more); `None` if nothing. The users of sets are settled with that.
    #[inline]
    fn edited(&mut self, prefix: Prefix, old: Path, edit: Edit) -> Option<Path> {
        match edit {
            Edit::Put(new) => {
                let same = old.is_repeated_by(new);
                if old.is_some() {
                    self.core.sets.release(old.set);
                }
                (!same).then_some(new)
            }
            Edit::Remove(_) => old.is_some().then(|| self.gone(old)),
            Edit::Suppress(_, on) => {
                let mut new = old;
                new.flags.set(Flags::SUPPRESSED, on);
                (old.is_some() && old != new).then_some(new)
            }
            Edit::Visit => self.visited(prefix, old),
        }
    }

    fn gone(&mut self, path: Path) -> Path {
        self.core.sets.release(path.set);
        Path::NONE
    }

    /// A path is swept: of a session that lives (RFC 7313 section 4), those are told who know of it.
    fn tell_swept(&mut self, prefix: Prefix, path: Path) {
        let source = self.core.sources.get(path.source);
        let Some(peer) = source.peer.filter(|_| source.is_alive()) else { return };
        self.core.swept.push((peer, prefix, source.place));
        if let Some(stages) = self.stages.as_deref_mut().filter(|stages| !stages.is_empty()) {
            stages.push_one(self.core, (Cause::Refresh, peer), prefix, path, Path::NONE);
        }
    }

    /// Drops a path of a dead session, or that was not announced again, moves one whose import policy changed, and has the decision look at one
    /// whose next hop has changed.
    fn visited(&mut self, prefix: Prefix, path: Path) -> Option<Path> {
        let source = self.core.sources.get(path.source);
        if source.drops(self.family, path) {
            self.tell_swept(prefix, path);
            return Some(self.gone(path));
        }
        if (source.moving >= self.core.walk || self.core.validating_anew)
            && let Some(moved) = self.moved(prefix, path)
        {
            return Some(moved);
        }
        self.next_hop_changed(prefix, path).then_some(path)
    }

    /// The path under its source's present import policy, and with what validation says of it now; `None` if it is that already.
    fn moved(&mut self, prefix: Prefix, old: Path) -> Option<Path> {
        let set = self.core.reclass(prefix, old)?;
        let mut new = Path { set, ..old };
        let effective = self.core.effective(prefix, set);
        new.flags.set(Flags::ACCEPTED, effective.is_some());
        if let Some(hop) = effective.and_then(|set| self.core.unanswered(set)) {
            self.core.next_hops.wait_unnamed(hop);
        }
        if let Some(peer) = self.core.sources.get(new.source).peer
            && let Some(stages) = self.stages.as_deref_mut().filter(|stages| !stages.is_empty())
        {
            let suppress = stages.push_one(self.core, (Cause::Policy, peer), prefix, old, new);
            new.flags.set(Flags::SUPPRESSED, suppress);
        }
        self.core.sets.release(old.set);
        Some(new)
    }

    fn next_hop_changed(&mut self, prefix: Prefix, path: Path) -> bool {
        if !self.core.next_hops_moving {
            return false;
        }
        let (walk, set) = (self.core.walk, self.core.imported(prefix, path));
        set.is_some_and(|set| self.core.next_hops.has_changed(self.core.sets.next_hop(set), walk))
    }

    /// What becomes of the choice when a path (or none) is another (or gone): the new one is best, the best
    /// stays, or all have to be compared.
    fn challenge(&mut self, prefix: Prefix, old: Path, new: Path, edit: Edit, best: Path) -> Comparison {
        if self.core.speaker.max_paths > 1 || old.is_some() && !self.is_beneath(prefix, old, best) {
            return Comparison::AskAll;
        }
        let new = match edit {
            Edit::Put(_) => *self.offered.get_or_insert_with(|| self.core.candidate(prefix, 0, new)),
            Edit::Remove(_) | Edit::Suppress(..) | Edit::Visit => self.core.candidate(prefix, 0, new),
        };
        let Some(new) = new else { return Comparison::Worse };
        match self.core.candidate(prefix, 0, best) {
            Some(best) => self.core.compare(&new, &best),
            None => Comparison::AskAll,
        }
    }

    /// Whether the choice among the others cannot be another without this path.
    fn is_beneath(&mut self, prefix: Prefix, path: Path, best: Path) -> bool {
        if path.is_best() {
            return false;
        }
        if !path.is_accepted() || path.is_suppressed() {
            return true;
        }
        // Its next hop may have become unreachable a moment ago: then it did take part.
        let Some(lost) = self.core.candidate(prefix, 0, path) else { return false };
        let best = self.core.candidate(prefix, 0, best);
        best.is_some_and(|best| self.core.is_beneath(&lost, &best))
    }

    /// Chooses among all.
    fn decide(&mut self, prefix: Prefix, room: &mut Scratch) -> Path {
        let Scratch { paths, decision, .. } = room;
        let best = decision.choose(self.core, prefix, paths);
        let max_paths = usize::from(self.core.speaker.max_paths);
        if max_paths > 1 {
            paths.iter_mut().for_each(|path| path.flags.set(Flags::MULTIPATH, false));
            for index in decision.equal_cost(self.core, max_paths) {
                paths[index].flags.set(Flags::MULTIPATH, true);
            }
        }
        mark(paths, best)
    }

    fn counts(&mut self, source: SourceId) -> &mut RouteCounts {
        &mut self.core.sources.get_mut(source).counts[self.family]
    }

    /// The source's path is another one (either may be [`Path::NONE`]): counts, and shows it to who looks.
    #[inline]
    fn exchange(&mut self, prefix: Prefix, old: Path, new: Path) {
        let counts = self.counts(if new.is_some() { new.source } else { old.source });
        let change = |count: &mut u64, was: bool, is: bool| *count = *count + u64::from(is) - u64::from(was);
        change(&mut counts.received, old.is_some(), new.is_some());
        change(&mut counts.accepted, old.is_accepted(), new.is_accepted());
        change(&mut counts.best, old.is_best(), new.is_best());
        if self.core.seams.are_watched() {
            self.core.pass_in(prefix, old, new);
        }
    }

    fn count_best(&mut self, old: Path, new: Path) {
        if old.source == new.source && old.is_some() == new.is_some() {
            return;
        }
        if old.is_some() {
            self.counts(old.source).best -= 1;
        }
        if new.is_some() {
            self.counts(new.source).best += 1;
        }
    }
}

impl Each {
    /// Whether anything is to be told that was not.
    fn is_other(&self) -> bool {
        let mut is_other = false;
        self.for_each_told(|old, new| {
            is_other |= old.standing() != new.standing() || old.set != new.set;
        });
        is_other
    }

    /// What was told of each path of the prefix that was looked at last, and what is to be told now.
    fn for_each_told(&self, mut show: impl FnMut(Path, Path)) {
        for (at, new) in self.after.iter().enumerate() {
            let old = self.before.get(at).map_or(new.absent(), |old| *old);
            if old.standing() != 0 || new.standing() != 0 {
                show(old, *new);
            }
        }
    }
}

impl Edit {
    /// Whose path it concerns; `None`: all.
    fn source(self) -> Option<SourceId> {
        match self {
            Self::Put(path) => Some(path.source),
            Self::Remove(source) | Self::Suppress(source, _) => Some(source),
            Self::Visit => None,
        }
    }
}

/// Puts the best in front and marks it, and no other.
fn mark(paths: &mut [Path], best: Option<usize>) -> Path {
    paths.iter_mut().for_each(|path| path.flags.set(Flags::BEST, false));
    let Some(best) = best else { return Path::NONE };
    paths.swap(0, best);
    paths[0].flags.set(Flags::BEST, true);
    paths[0]
}

/// Whether another set of paths shares the traffic.
fn differ(before: &[Path], after: &[Path]) -> bool {
    let used = |paths: &[Path]| {
        let mut used: Vec<(u16, u32)> = Vec::new();
        let shares = paths.iter().filter(|path| path.flags.has(Flags::MULTIPATH));
        used.extend(shares.map(|path| (path.source.0, path.set.0)));
        used.sort_unstable();
        used
    };
    used(before) != used(after)
}

//! One event on one prefix: its paths before and after, the counts, and what is told of the best.
//!
//! Most prefixes have one path, and most events concern no other: then there is nothing to load and to compare.

use holdfast_types::IpPrefix;

use super::{edit::Edit, scratch::Scratch};
use crate::{
    core::Core,
    decision::{Candidate, Comparison},
    fanout::{Change, Log},
    path::{Flags, Path, PathCounts, PathLists, SourceId},
    seam::{Old, RouteNumber, Seam, StreamKey},
    source::RouteCounts,
    stage::Stages,
};

/// The parts of a [`LocRib`](super::LocRib) beside its table, and what else an event on a prefix needs.
pub(super) struct PrefixUpdate<'a, P> {
    pub(super) family: usize,
    pub(super) lists: &'a mut PathLists,
    pub(super) log: &'a mut Log<P>,
    pub(super) room: &'a mut Scratch,
    pub(super) core: &'a mut Core,
    pub(super) stages: Option<&'a mut Stages>,
    /// What an [`Edit::Put`] is as a candidate, from its first prefix on where that matters: the same for all.
    pub(super) offered: Option<Option<Candidate>>,
    /// Prefixes that had no path, and are not in the counts of an [`Edit::Put`]'s source yet.
    pub(super) added: u64,
}

impl<P: IpPrefix> PrefixUpdate<'_, P> {
    /// What groups are sent of this family that are sent several paths of a prefix.
    pub(super) fn mosts(&self) -> PathCounts {
        self.core.mosts[self.family]
    }

    /// One event on one prefix: from the table's word before to the one after.
    #[inline(always)]
    pub(super) fn revise(&mut self, prefix: P, word: Option<u64>, edit: Edit) -> Option<u64> {
        match word {
            None => match edit {
                Edit::Put(path) => self.add(prefix, path),
                Edit::Remove(_) | Edit::Suppress(..) | Edit::Visit => None,
            },
            Some(word) => match PathLists::only(word) {
                Some(only) if self.goes(only, edit) => self.delete(prefix, only),
                Some(only) if edit.repeats(only) => {
                    self.core.sets.release(only.set);
                    Some(word)
                }
                Some(only) if edit.source().is_none_or(|source| source == only.source) => {
                    self.revise_only(prefix, only, edit)
                }
                Some(_) | None => self.revise_among(prefix, word, edit),
            },
        }
    }

    /// The same where it is not worth having it in place.
    #[inline(never)]
    pub(super) fn revise_apart(&mut self, prefix: P, word: Option<u64>, edit: Edit) -> Option<u64> {
        self.revise(prefix, word, edit)
    }

    /// Any number of events on one prefix: with more than one, its paths are compared after the last.
    pub(super) fn revise_by(&mut self, prefix: P, mut word: Option<u64>, edits: &[(P, Edit)]) -> Option<u64> {
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

    /// The shortest way: the first path to the prefix.
    #[inline]
    pub(super) fn add(&mut self, prefix: P, path: Path) -> Option<u64> {
        self.added += 1;
        if self.core.seams.are_watched() {
            self.core.pass_in(prefix.into(), Path::NONE, path);
        }
        if self.core.signatures.is_used {
            self.core.signed_exchanged(prefix.into(), Path::NONE, path);
        }
        if path.is_best() {
            self.tell(prefix, Path::NONE, path);
        }
        path.alone()
    }

    /// Enters what an edit has [added](Self::add): the same path to each prefix.
    #[inline]
    pub(super) fn count_added(&mut self, edit: Edit) {
        let added = std::mem::take(&mut self.added);
        if let Edit::Put(path) = edit {
            let counts = &mut self.core.sources.get_mut(path.source).counts[self.family];
            counts.received += added;
            counts.accepted += if path.is_accepted() { added } else { 0 };
            counts.best += if path.is_best() { added } else { 0 };
        }
    }

    /// Whether that is the path's end, of which nobody is told but those to whom it was announced.
    #[inline]
    pub(super) fn goes(&self, path: Path, edit: Edit) -> bool {
        match edit {
            Edit::Put(_) | Edit::Suppress(..) => false,
            Edit::Remove(source) => path.source == source,
            Edit::Visit => {
                let source = self.core.sources.get(path.source);
                !source.is_alive() && source.drops(self.family, path)
            }
        }
    }

    /// As short: the only path to the prefix goes.
    // Apart from its caller it costs a walk over a dead peer's routes 10 %.
    #[inline(always)]
    pub(super) fn delete(&mut self, prefix: P, path: Path) -> Option<u64> {
        self.core.sets.release(path.set);
        self.exchange(prefix, path, Path::NONE);
        if path.is_best() {
            self.tell(prefix, path, Path::NONE);
        }
        None
    }

    /// The short way: the prefix has no other path, so this one is best if it can be.
    pub(super) fn revise_only(&mut self, prefix: P, old: Path, edit: Edit) -> Option<u64> {
        let Some(mut new) = self.edited(prefix, old, edit) else { return old.alone() };
        if new.is_some() && !matches!(edit, Edit::Put(_)) {
            new = self.core.lone(prefix.into(), new);
        }
        self.exchange(prefix, old, new);
        self.announce(prefix, old.if_best(), new.if_best(), false);
        new.alone()
    }

    /// The path is one of several.
    pub(super) fn revise_among(&mut self, prefix: P, word: u64, edit: Edit) -> Option<u64> {
        let Some(source) = edit.source() else { return self.revise_paths(prefix, word, &[(prefix, edit)]) };
        let (at, old) = self.lists.find(word, source);
        let Some(new) = self.edited(prefix, old, edit) else { return Some(word) };
        let new = new.unchosen();
        self.exchange(prefix, old.unchosen(), new);
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
    pub(super) fn revise_paths(&mut self, prefix: P, word: u64, edits: &[(P, Edit)]) -> Option<u64> {
        let mut paths = std::mem::take(&mut self.room.visited);
        self.lists.load(word, &mut paths);
        let mut changed = self.core.deciding_anew;
        for (_, edit) in edits {
            changed |= self.change(prefix, &mut paths, *edit);
        }
        paths.retain(|path| path.is_some());
        let word =
            if changed { self.choose_again(prefix, word, |now| now.clone_from(&paths)) } else { Some(word) };
        self.room.visited = paths;
        word
    }

    /// What an edit makes of the paths it concerns; whether that is anything. What is gone leaves its source in its place.
    pub(super) fn change(&mut self, prefix: P, paths: &mut Vec<Path>, edit: Edit) -> bool {
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

    /// Hands the change of the best path to the fanout, if it is one.
    #[inline]
    pub(super) fn announce(&mut self, prefix: P, old: Path, new: Path, others: bool) {
        if !new.same_route(old) || others {
            self.tell(prefix, old, new);
        }
    }

    #[inline]
    pub(super) fn tell(&mut self, prefix: P, old: Path, new: Path) {
        if self.core.seams.are_watched() {
            let (was, is) = (RouteNumber::of(old), RouteNumber::of(new));
            self.core.seams.pass(Seam::DecisionToFanout, StreamKey::LocRib, prefix, Old::Is(was), is);
        }
        self.log.push(Change { prefix, old, new });
    }

    /// What an edit makes of the path it concerns ([`Path::NONE`]: of a path that is not there, or is no
    /// more); `None` if nothing. The users of sets are settled with that.
    #[inline(always)]
    pub(super) fn edited(&mut self, prefix: P, old: Path, edit: Edit) -> Option<Path> {
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
            Edit::Visit => self.visited(prefix.into(), old),
        }
    }

    pub(super) fn gone(&mut self, path: Path) -> Path {
        self.core.sets.release(path.set);
        Path::NONE
    }

    pub(super) fn counts(&mut self, source: SourceId) -> &mut RouteCounts {
        &mut self.core.sources.get_mut(source).counts[self.family]
    }

    /// The source's path is another one (either may be [`Path::NONE`]): counts, and shows it to who looks.
    #[inline(always)]
    pub(super) fn exchange(&mut self, prefix: P, old: Path, new: Path) {
        let counts = self.counts(if new.is_some() { new.source } else { old.source });
        let change = |count: &mut u64, was: bool, is: bool| *count = *count + u64::from(is) - u64::from(was);
        change(&mut counts.received, old.is_some(), new.is_some());
        change(&mut counts.accepted, old.is_accepted(), new.is_accepted());
        change(&mut counts.best, old.is_best(), new.is_best());
        if self.core.seams.are_watched() {
            self.core.pass_in(prefix.into(), old, new);
        }
        if self.core.signatures.is_used {
            self.core.signed_exchanged(prefix.into(), old, new);
        }
    }

    pub(super) fn count_best(&mut self, old: Path, new: Path) {
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

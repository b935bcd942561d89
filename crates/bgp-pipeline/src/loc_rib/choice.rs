//! Which path of a prefix is the best one now.

use holdfast_types::{IpPrefix, Prefix};

use super::{edit::Edit, scratch::Scratch, update::PrefixUpdate};
use crate::{
    decision::{Comparison, Decision},
    path::{Flags, Path},
};

impl<P: IpPrefix> PrefixUpdate<'_, P> {
    /// The long way: changes the paths and has all of them compared.
    pub(super) fn choose_again(
        &mut self,
        prefix: P,
        word: u64,
        change: impl FnOnce(&mut Vec<Path>),
    ) -> Option<u64> {
        let mut room = std::mem::take(self.room);
        self.lists.load(word, &mut room.paths);
        let old = room.paths[0].if_best();
        let marks = self.has_others(&room.paths);
        if marks {
            room.before.clone_from(&room.paths);
        }
        change(&mut room.paths);
        let new = self.decide(prefix.into(), &mut room);
        self.count_best(old, new);
        self.announce(prefix, old, new, marks && self.uses_others(&room.before, &room.paths));
        let word = self.lists.store(word, &room.paths);
        *self.room = room;
        word
    }

    /// What becomes of the choice when a path (or none) is another (or gone): the new one is best, the best
    /// stays, or all have to be compared.
    pub(super) fn challenge(
        &mut self,
        prefix: Prefix,
        old: Path,
        new: Path,
        edit: Edit,
        best: Path,
    ) -> Comparison {
        let sources = &self.core.sources;
        // What the RIB was told of a backup goes with it, also where the best is protected no more and no walk has come by.
        if self.core.speaker.max_paths > 1
            || old.flags.has(Flags::BACKUP)
            || sources.protecting && (sources.protects(best) || sources.protects(new))
            || old.is_some() && !self.is_beneath(prefix, old, best)
        {
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
    pub(super) fn is_beneath(&mut self, prefix: Prefix, path: Path, best: Path) -> bool {
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
    pub(super) fn decide(&mut self, prefix: Prefix, room: &mut Scratch) -> Path {
        let Scratch { paths, decision, .. } = room;
        let best = decision.choose(self.core, prefix, paths);
        let max_paths = usize::from(self.core.speaker.max_paths);
        if max_paths > 1 {
            paths.iter_mut().for_each(|path| path.flags.set(Flags::MULTIPATH, false));
            for index in decision.equal_cost(self.core, max_paths) {
                paths[index].flags.set(Flags::MULTIPATH, true);
            }
        }
        let best = mark(paths, best);
        self.mark_backup(prefix, paths, best, decision);
        best
    }

    /// Whether paths beside the best are marked, or a walk has yet to take the mark away.
    pub(super) fn has_others(&self, paths: &[Path]) -> bool {
        self.core.marks_others() || paths.iter().any(|path| path.flags.has(Flags::BACKUP))
    }

    /// Whether the RIB has to look again at a prefix whose best path is the same: others are used beside it, or in its place.
    ///
    /// A mark is older than what the RIB was told if the best was not protected for a while that no walk has seen.
    pub(super) fn uses_others(&self, before: &[Path], after: &[Path]) -> bool {
        let has_backup = || after.iter().any(|path| path.flags.has(Flags::BACKUP));
        differ(before, after) || self.core.deciding_anew && has_backup()
    }

    /// Marks the path that would be best without the next hops in use, and no other, if the best is protected.
    #[inline]
    pub(super) fn mark_backup(
        &mut self,
        prefix: Prefix,
        paths: &mut [Path],
        best: Path,
        decision: &mut Decision,
    ) {
        if !self.core.sources.protecting && !self.core.deciding_anew {
            return;
        }
        paths.iter_mut().for_each(|path| path.flags.set(Flags::BACKUP, false));
        if self.core.sources.protects(best)
            && let Some(index) = decision.backup(self.core, prefix, paths)
        {
            paths[index].flags.set(Flags::BACKUP, true);
        }
    }
}

/// Puts the best in front and marks it, and no other.
pub(super) fn mark(paths: &mut [Path], best: Option<usize>) -> Path {
    paths.iter_mut().for_each(|path| path.flags.set(Flags::BEST, false));
    let Some(best) = best else { return Path::NONE };
    paths.swap(0, best);
    paths[0].flags.set(Flags::BEST, true);
    paths[0]
}

/// Whether another set of paths shares the traffic, or another path would take it over.
fn differ(before: &[Path], after: &[Path]) -> bool {
    let used = |paths: &[Path]| {
        let mut used: Vec<(bool, u16, u32)> = Vec::new();
        let with = |flag| paths.iter().filter(move |path| path.flags.has(flag));
        used.extend(with(Flags::MULTIPATH).map(|path| (false, path.source.0, path.set.0)));
        used.extend(with(Flags::BACKUP).map(|path| (true, path.source.0, path.set.0)));
        used.sort_unstable();
        used
    };
    used(before) != used(after)
}

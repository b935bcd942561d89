//! The table of one family: every path of every prefix, and which one is best.
//!
//! It is Adj-RIB-In of all peers and Loc-RIB at once. Each event on a prefix loads its paths, changes
//! them, decides, and logs the change of the best; background work does the same for whole blocks.

use holdfast_prefix_table::PrefixTable;
use holdfast_types::{IpPrefix, Prefix};

use crate::{
    core::Core,
    decision::{Comparison, Decision},
    fanout::{Change, Log},
    path::{Flags, Path, PathLists, SetId, SourceId},
    source::RouteCounts,
};

/// What happens to the paths of a prefix.
#[derive(Copy, Clone, Debug)]
enum Edit {
    /// The source's path becomes this one. The set comes with a user that passes to the table.
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
    family: usize,
    pub(crate) table: PrefixTable<P, u64>,
    pub(crate) lists: PathLists,
    pub(crate) log: Log<P>,
    room: Room,
}

/// Room for one prefix at a time.
#[derive(Debug, Default)]
struct Room {
    paths: Vec<Path>,
    before: Vec<Path>,
    decision: Decision,
}

impl<P: IpPrefix> LocRib<P> {
    pub(crate) fn new(family: usize, seed: u64) -> Self {
        Self {
            family,
            table: PrefixTable::new(seed),
            lists: PathLists::default(),
            log: Log::new(),
            room: Room::default(),
        }
    }

    /// The source's path to the prefix is now this one. Takes over one user of the set.
    pub(crate) fn put(&mut self, core: &mut Core, prefix: P, path: Path) {
        self.edit(core, prefix, Edit::Put(path));
    }

    /// The source has no path to the prefix.
    pub(crate) fn remove(&mut self, core: &mut Core, prefix: P, source: SourceId) {
        self.edit(core, prefix, Edit::Remove(source));
    }

    /// Holds the source's path back from the decision, or lets it take part again.
    pub(crate) fn suppress(&mut self, core: &mut Core, prefix: P, source: SourceId, on: bool) {
        self.edit(core, prefix, Edit::Suppress(source, on));
    }

    fn edit(&mut self, core: &mut Core, prefix: P, edit: Edit) {
        let Self { family, table, lists, log, room } = self;
        table.update(prefix, |word| revise(*family, lists, log, room, core, prefix, word, edit));
    }

    /// Looks at up to `budget` prefixes after `from` again; returns where to go on.
    pub(crate) fn visit(&mut self, core: &mut Core, from: Option<P>, budget: usize) -> Option<P> {
        let Self { family, table, lists, log, room } = self;
        table.retain(from, budget, |prefix, word| {
            revise(*family, lists, log, room, core, prefix, Some(word), Edit::Visit)
        })
    }

    /// The set the source has for the prefix, as received.
    pub(crate) fn set_of(&mut self, prefix: P, source: SourceId) -> Option<SetId> {
        self.lists.load(self.table.get(prefix), &mut self.room.paths);
        self.room.paths.iter().find(|path| path.source == source).map(|path| path.set)
    }

    /// The best path; [`Path::NONE`] where there is none.
    pub(crate) fn best(&self, prefix: P) -> Path {
        self.table.get(prefix).map_or(Path::NONE, |word| self.lists.best(word))
    }

    /// All paths, the best first.
    pub(crate) fn paths(&self, prefix: P) -> Vec<Path> {
        let mut paths = Vec::new();
        self.lists.load(self.table.get(prefix), &mut paths);
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

    pub(crate) fn memory(&self) -> usize {
        self.table.memory() + self.lists.memory() + self.log.memory()
    }
}

/// One event on one prefix: from the table's word before to the one after.
#[expect(clippy::too_many_arguments, reason = "the parts of a LocRib that the table's closure may borrow")]
fn revise<P: IpPrefix>(
    family: usize,
    lists: &mut PathLists,
    log: &mut Log<P>,
    room: &mut Room,
    core: &mut Core,
    prefix: P,
    word: Option<u64>,
    edit: Edit,
) -> Option<u64> {
    let Room { paths, before, decision } = room;
    lists.load(word, paths);
    let multipath = core.speaker.max_paths > 1;
    if multipath {
        before.clone_from(paths);
    }
    let old = paths.first().copied().filter(|path| path.flags.has(Flags::BEST)).unwrap_or(Path::NONE);
    let mut revision = Revision { family, core, prefix: prefix.into(), paths, decision };
    let Some(effect) = revision.apply(edit, old) else { return word };
    let new = match effect {
        Effect::Best(at) => revision.mark(at),
        Effect::AskAll => revision.decide(multipath),
    };
    revision.count_best(old, new);
    if !new.same_route(old) || multipath && differ(before, paths) {
        log.push(Change { prefix, old, new });
    }
    lists.store(word, paths)
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

/// What an edit means for the choice.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Effect {
    /// This path is best; `None`: no path is.
    Best(Option<usize>),
    /// All have to be compared.
    AskAll,
}

struct Revision<'a> {
    family: usize,
    core: &'a mut Core,
    prefix: Prefix,
    paths: &'a mut Vec<Path>,
    decision: &'a mut Decision,
}

impl Revision<'_> {
    /// Changes the paths. `None` if nothing has changed.
    fn apply(&mut self, edit: Edit, old: Path) -> Option<Effect> {
        match edit {
            Edit::Put(path) => self.put(path, old),
            Edit::Remove(source) => {
                let at = self.paths.iter().position(|path| path.source == source)?;
                Some(if self.take(at, old) { self.keep(old) } else { Effect::AskAll })
            }
            Edit::Suppress(source, on) => {
                let path = self.paths.iter_mut().find(|path| path.source == source)?;
                path.flags.set(Flags::SUPPRESSED, on);
                Some(Effect::AskAll)
            }
            Edit::Visit => self.visit(),
        }
    }

    fn put(&mut self, mut path: Path, old: Path) -> Option<Effect> {
        let accepted = self.core.effective(self.prefix, path.set).is_some();
        path.flags.set(Flags::ACCEPTED, accepted);
        let mut undisturbed = true;
        if let Some(at) = self.paths.iter().position(|other| other.source == path.source) {
            let other = self.paths[at];
            let suppressed = |path: Path| path.flags.has(Flags::SUPPRESSED);
            if other.set == path.set && suppressed(other) == suppressed(path) {
                self.core.sets.release(path.set);
                return None;
            }
            undisturbed = self.take(at, old);
        }
        self.count_added(path);
        self.paths.push(path);
        if !undisturbed || self.core.speaker.max_paths > 1 {
            return Some(Effect::AskAll);
        }
        Some(self.challenge(old))
    }

    /// The last path against the best of the others.
    fn challenge(&mut self, old: Path) -> Effect {
        let last = self.paths.len() - 1;
        let Some(new) = self.core.candidate(self.prefix, last, self.paths[last]) else {
            return self.keep(old);
        };
        if last == 0 {
            return Effect::Best(Some(0));
        }
        if !old.is_some() {
            return Effect::AskAll;
        }
        let Some(best) = self.core.candidate(self.prefix, 0, self.paths[0]) else { return Effect::AskAll };
        match self.core.compare(&new, &best) {
            Comparison::Better => Effect::Best(Some(last)),
            Comparison::Worse => Effect::Best(Some(0)),
            Comparison::AskAll => Effect::AskAll,
        }
    }

    fn keep(&self, old: Path) -> Effect {
        Effect::Best(old.is_some().then_some(0))
    }

    /// Takes a path out; returns whether the choice among the others cannot be another for that.
    fn take(&mut self, at: usize, old: Path) -> bool {
        let path = self.paths[at];
        let undisturbed = !path.flags.has(Flags::BEST) && self.is_beneath(at, old);
        self.paths.swap_remove(at);
        self.count_removed(path);
        self.core.sets.release(path.set);
        undisturbed
    }

    fn is_beneath(&mut self, at: usize, old: Path) -> bool {
        let path = self.paths[at];
        if !path.flags.has(Flags::ACCEPTED) || path.flags.has(Flags::SUPPRESSED) {
            return true;
        }
        // Its next hop may have become unreachable a moment ago: then it did take part.
        let Some(lost) = self.core.candidate(self.prefix, at, path) else { return false };
        let best = old.is_some().then(|| self.core.candidate(self.prefix, 0, self.paths[0])).flatten();
        best.is_some_and(|best| self.core.is_beneath(&lost, &best))
    }

    /// Drops paths of dead sessions, moves those whose import policy changed, and finds out whether a next
    /// hop has changed.
    fn visit(&mut self) -> Option<Effect> {
        let (mut effect, mut at) = (None, 0);
        while at < self.paths.len() {
            let path = self.paths[at];
            let source = self.core.sources.get(path.source);
            if !source.is_alive() {
                self.paths.remove(at);
                self.count_removed(path);
                self.core.sets.release(path.set);
                effect = Some(Effect::AskAll);
                continue;
            }
            let moving = source.moving;
            if moving >= self.core.walk && self.move_path(at) {
                effect = Some(Effect::AskAll);
            }
            if self.next_hop_changed(self.paths[at]) {
                effect = Some(Effect::AskAll);
            }
            at += 1;
        }
        effect
    }

    /// Puts a path under its source's present import policy.
    fn move_path(&mut self, at: usize) -> bool {
        let mut path = self.paths[at];
        let Some(set) = self.core.reclass(path) else { return false };
        self.count_removed(path);
        self.core.sets.release(path.set);
        path.set = set;
        path.flags.set(Flags::ACCEPTED, self.core.effective(self.prefix, set).is_some());
        self.count_added(path);
        self.paths[at] = path;
        true
    }

    fn next_hop_changed(&mut self, path: Path) -> bool {
        if !path.flags.has(Flags::ACCEPTED) || !self.core.next_hops_moving {
            return false;
        }
        let (walk, set) = (self.core.walk, self.core.effective(self.prefix, path.set));
        set.is_some_and(|set| self.core.next_hops.has_changed(self.core.sets.next_hop(set), walk))
    }

    /// Chooses among all.
    fn decide(&mut self, multipath: bool) -> Path {
        let best = self.decision.choose(self.core, self.prefix, self.paths);
        if multipath {
            self.paths.iter_mut().for_each(|path| path.flags.set(Flags::MULTIPATH, false));
            for index in self.decision.equal_cost(self.core, usize::from(self.core.speaker.max_paths)) {
                self.paths[index].flags.set(Flags::MULTIPATH, true);
            }
        }
        self.mark(best)
    }

    /// Puts the best in front and marks it.
    fn mark(&mut self, best: Option<usize>) -> Path {
        if let Some(first) = self.paths.first_mut() {
            first.flags.set(Flags::BEST, false);
        }
        let Some(best) = best else { return Path::NONE };
        self.paths.swap(0, best);
        // After removals the mark may have been elsewhere; there is never more than one.
        self.paths[1..].iter_mut().for_each(|path| path.flags.set(Flags::BEST, false));
        self.paths[0].flags.set(Flags::BEST, true);
        self.paths[0]
    }

    fn counts(&mut self, source: SourceId) -> &mut RouteCounts {
        &mut self.core.sources.get_mut(source).counts[self.family]
    }

    fn count_added(&mut self, path: Path) {
        let counts = self.counts(path.source);
        counts.received += 1;
        counts.accepted += u64::from(path.flags.has(Flags::ACCEPTED));
    }

    fn count_removed(&mut self, path: Path) {
        let counts = self.counts(path.source);
        counts.received -= 1;
        counts.accepted -= u64::from(path.flags.has(Flags::ACCEPTED));
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

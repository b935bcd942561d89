//! The table of one family: every path of every prefix, and which one is best.
//!
//! It is Adj-RIB-In of all peers and Loc-RIB at once. Each event on a prefix changes its paths, decides, and
//! logs the change of the best ([`update`]); background work does the same for whole blocks.

mod choice;
mod each;
mod edit;
mod order;
mod page;
mod scratch;
mod update;
mod visit;

use holdfast_prefix_table::PrefixTable;
use holdfast_types::{HashKey, IpPrefix};

pub(crate) use self::page::Extent;
use self::{edit::Edit, order::InOrder, page::EachPage, scratch::Scratch, update::PrefixUpdate};
use crate::{
    core::Core,
    fanout::{Change, Log},
    path::{Path, PathCounts, PathLists, SourceId},
    stage::Stages,
};

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
    /// Of which prefixes the paths are known to have their standings.
    in_order: InOrder<P>,
    room: Scratch,
}

impl<P: IpPrefix> LocRib<P> {
    pub(crate) fn new(family: usize, key: HashKey) -> Self {
        Self {
            family,
            table: PrefixTable::new(key),
            lists: PathLists::default(),
            log: Log::new(),
            gathered: None,
            in_order: InOrder::default(),
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
        let Self { family, table, lists, log, room, gathered: _, in_order: _ } = self;
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

    /// Looks at one prefix again, of one of whose paths something else is known now.
    pub(crate) fn validate_one(&mut self, core: &mut Core, stages: &mut Stages, prefix: P) {
        let before = std::mem::replace(&mut core.validating_anew, true);
        self.visit_one(core, stages, prefix);
        core.validating_anew = before;
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
        self.page_up_to(None, after, max)
    }

    /// The same of those up to `last`.
    pub(crate) fn page_up_to(&self, last: Option<P>, after: Option<P>, max: usize) -> Vec<(P, Path)> {
        let mut page = Vec::new();
        self.table.scan(after, |prefix, word| {
            let is_wanted = page.len() < max && last.is_none_or(|last| prefix <= last);
            if is_wanted {
                page.push((prefix, self.lists.best(word)));
            }
            is_wanted
        });
        page
    }

    /// For these readers paths of a prefix are put in order from now on, in each event.
    pub(crate) fn rank_for(&mut self, readers: PathCounts) {
        let ranked = (!readers.is_empty()).then(|| readers.ranked());
        self.in_order.rank(ranked, self.table.is_empty());
    }

    /// Whether the paths of all prefixes have their standings: then no walk finds anything that is to be told.
    pub(crate) fn is_in_order(&self) -> bool {
        self.in_order.is_whole()
    }

    /// Prefixes after one (or from the first), and up to `last`, until they have `max` paths, with each as it was told and as
    /// it is to be told now. Where they have not been put in order since somebody reads each, changes come into the log
    /// for `others`, who were told of these prefixes before.
    pub(crate) fn page_of_each(
        &mut self,
        core: &mut Core,
        (after, last): (Option<P>, Option<P>),
        max: usize,
        others: PathCounts,
    ) -> EachPage<P> {
        let page = self.page_in_order((after, last), max);
        if !page.prefixes.is_empty() || self.is_in_order() {
            return page;
        }
        let prefixes = self.page_up_to(last, after, max);
        let (table, mut desk) = self.open(core, None);
        let mut page = EachPage { paths: Vec::new(), prefixes: Vec::new() };
        for (prefix, _) in prefixes {
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
        let is_end = page.prefixes.is_empty() && last.is_none();
        self.in_order.came_by(after, page.extent().last, is_end);
        page
    }

    /// The same of those that are in order: what was told of them is what is to be told.
    fn page_in_order(&self, (after, last): (Option<P>, Option<P>), max: usize) -> EachPage<P> {
        let mut page = EachPage { paths: Vec::new(), prefixes: Vec::new() };
        if !self.in_order.goes_beyond(after) {
            return page;
        }
        page.paths.reserve(max);
        page.prefixes.reserve(max);
        self.table.scan(after, |prefix, word| {
            let is_wanted = page.paths.len() < max
                && page.prefixes.len() < max
                && last.is_none_or(|last| prefix <= last)
                && self.in_order.has(prefix);
            if is_wanted {
                self.lists.for_each(word, |path| {
                    if path.standing() != 0 {
                        page.paths.push(Change::each(prefix, path, path));
                    }
                });
                page.prefixes.push((prefix, page.paths.len()));
            }
            is_wanted
        });
        page
    }

    pub(crate) fn memory(&self) -> usize {
        self.table.memory() + self.lists.memory() + self.log.memory()
    }
}

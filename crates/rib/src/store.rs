//! What table rows mean: origins, paths and sets of next hops, kept together because each counts on the others.

use holdfast_types::HashKey;

use crate::{
    nexthops::{NexthopSetId, Sets},
    origin::{Origin, OriginId},
    path::{Lists, Path, PathId, Paths},
};

/// What an origin's sweep removes.
#[derive(Debug)]
pub(crate) struct Outdated {
    /// What lives before this one have left.
    pub(crate) generation: u32,
    /// But for routes of these sources. Sorted.
    pub(crate) awaited: Vec<u32>,
}

impl Outdated {
    pub(crate) fn holds(&self, path: &Path) -> bool {
        path.generation < self.generation && self.awaited.binary_search(&path.source).is_err()
    }

    /// Whether this one removes all that the other removes.
    pub(crate) fn covers(&self, other: &Self) -> bool {
        let is_awaited = |source: &u32| other.awaited.binary_search(source).is_ok();
        self.generation >= other.generation && self.awaited.iter().all(is_awaited)
    }
}

/// A distance that keeps a route from ever being used.
const NEVER: u8 = 255;

#[derive(Debug)]
pub(crate) struct Store {
    pub(crate) origins: Vec<Origin>,
    pub(crate) sets: Sets,
    /// Sets that lost their last user; they are removed at the end of the event.
    pub(crate) unused: Vec<NexthopSetId>,
    paths: Paths,
    lists: Lists,
}

/// What putting a path into a row has done.
#[derive(Debug)]
pub(crate) struct Put {
    /// The row from now on.
    pub(crate) row: Option<u32>,
    /// The origins that had a path there before, as bits.
    pub(crate) origins_before: u32,
    /// Whether anyone downstream could see a difference.
    pub(crate) changed: bool,
}

impl Store {
    pub(crate) fn new(key: HashKey) -> Self {
        Self {
            origins: Vec::new(),
            sets: Sets::new(key),
            unused: Vec::new(),
            paths: Paths::new(key),
            lists: Lists::default(),
        }
    }

    pub(crate) fn path(&self, id: PathId) -> &Path {
        self.paths.get(id)
    }

    pub(crate) fn origin(&self, id: OriginId) -> Option<&Origin> {
        self.origins.get(usize::from(id.0))
    }

    pub(crate) fn origin_mut(&mut self, id: OriginId) -> Option<&mut Origin> {
        self.origins.get_mut(usize::from(id.0))
    }

    /// The number of a path that is about to be put into rows.
    pub(crate) fn intern(&mut self, path: Path) -> PathId {
        self.paths.find(&path).unwrap_or_else(|| {
            self.sets.retain(path.nexthops);
            self.paths.add(path)
        })
    }

    /// The paths of a row, best first.
    pub(crate) fn paths<'a>(&'a self, row: &'a Option<u32>) -> &'a [PathId] {
        row.as_ref().map_or(&[], |row| self.lists.paths(row))
    }

    /// The origins that have a path in a row, as bits.
    pub(crate) fn origins_of(&self, row: &Option<u32>) -> u32 {
        self.paths(row).iter().fold(0, |bits, &id| bits | self.path(id).origin.bit())
    }

    /// Puts an origin's path (`None`: nothing) in the place of the one it had in this row.
    pub(crate) fn put(&mut self, row: Option<u32>, origin: OriginId, new: Option<PathId>) -> Put {
        if let (None, Some(new)) = (row, new) {
            // A prefix that nobody knew: a path's number is its row.
            self.count(None, Some(new));
            return Put { row: Some(new), origins_before: 0, changed: true };
        }
        let old = self.paths(&row).iter().copied().find(|&id| self.path(id).origin == origin);
        let origins_before = self.origins_of(&row);
        let changed = !self.says_the_same(old, new);
        let row = if old == new { row } else { self.replace(row, old, new) };
        Put { row, origins_before, changed }
    }

    fn says_the_same(&self, old: Option<PathId>, new: Option<PathId>) -> bool {
        match (old, new) {
            (Some(old), Some(new)) => self.path(old).says_the_same(self.path(new)),
            (None, None) => true,
            _ => false,
        }
    }

    fn replace(&mut self, row: Option<u32>, old: Option<PathId>, new: Option<PathId>) -> Option<u32> {
        let paths = self.paths(&row);
        let row = if paths.len() == usize::from(old.is_some()) {
            // Nobody else knows the prefix: the usual case.
            self.lists.store(row, new.as_slice())
        } else {
            let mut paths: Vec<PathId> = paths.iter().copied().filter(|&id| Some(id) != old).collect();
            if let Some(new) = new {
                paths.insert(paths.partition_point(|&other| self.is_preferred(other, new)), new);
            }
            self.lists.store(row, &paths)
        };
        self.count(old, new);
        row
    }

    fn count(&mut self, old: Option<PathId>, new: Option<PathId>) {
        if let Some(new) = new {
            self.paths.retain(new);
            self.count_route(new, 1);
        }
        if let Some(old) = old {
            self.count_route(old, -1);
            let last = self.paths.release(old);
            if let Some(path) = last.filter(|path| self.sets.release(path.nexthops)) {
                self.unused.push(path.nexthops);
            }
        }
    }

    fn count_route(&mut self, id: PathId, difference: i64) {
        let origin = self.path(id).origin;
        if let Some(origin) = self.origin_mut(origin) {
            origin.routes = origin.routes.saturating_add_signed(difference);
        }
    }

    /// Drops the path of an origin if it is outdated. `None`: nothing to drop.
    pub(crate) fn without(&mut self, row: u32, origin: OriginId, outdated: &[Outdated]) -> Option<Put> {
        let old = |&&id: &&PathId| {
            let path = self.path(id);
            path.origin == origin && outdated.iter().any(|outdated| outdated.holds(path))
        };
        self.lists.paths(&row).iter().find(old)?;
        Some(self.put(Some(row), origin, None))
    }

    /// The merge: lower distance, then lower metric, then the origin's name, so that there is always an order.
    fn is_preferred(&self, a: PathId, b: PathId) -> bool {
        let key = |id| {
            let path = self.path(id);
            (path.distance, path.metric, self.origin(path.origin).map(|origin| &origin.name))
        };
        key(a) < key(b)
    }

    pub(crate) fn is_usable(&self, id: PathId) -> bool {
        let path = self.path(id);
        path.distance != NEVER && self.sets.is_usable(path.nexthops)
    }

    /// The path that wins a prefix: the most preferred of those that lead somewhere.
    pub(crate) fn winner(&self, internal: &Option<u32>, external: &Option<u32>) -> Option<PathId> {
        let best = |row| self.paths(row).iter().copied().find(|&id| self.is_usable(id));
        match (best(internal), best(external)) {
            (Some(internal), Some(external)) if self.is_preferred(external, internal) => Some(external),
            (internal, external) => internal.or(external),
        }
    }

    pub(crate) fn memory(&self) -> usize {
        self.paths.memory() + self.lists.memory() + self.sets.memory()
    }

    /// Whether routes with this distance can be used at all.
    pub(crate) fn may_use(&self, id: PathId) -> bool {
        self.path(id).distance != NEVER
    }
}

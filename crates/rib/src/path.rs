//! What an origin says of a prefix, stored once for all prefixes of which it says the same.
//!
//! A table row is a `u32`: the number of a [`Path`], or, where several origins know the prefix, the number of a
//! list of paths, best first. A full table has few different paths, so a route costs its row and nothing else.

use hashbrown::HashTable;
use holdfast_types::HashKey;
use std::hash::BuildHasher;

use crate::{nexthops::NexthopSetId, origin::OriginId};

/// A route but for its prefix.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Path {
    pub(crate) origin: OriginId,
    /// Which life of the origin said so: what an earlier one said is stale.
    pub(crate) generation: u32,
    pub(crate) nexthops: NexthopSetId,
    pub(crate) metric: u32,
    pub(crate) distance: u8,
    pub(crate) tag: u32,
    /// Of whom the origin has it: the origin's own number, which only sweeps ask for.
    pub(crate) source: u32,
}

impl Path {
    /// Whether nobody downstream can tell the two apart.
    pub(crate) fn says_the_same(&self, other: &Self) -> bool {
        Self { generation: 0, source: 0, ..*self } == Self { generation: 0, source: 0, ..*other }
    }
}

/// Number of a path.
pub(crate) type PathId = u32;

#[derive(Debug)]
struct Slot {
    path: Path,
    /// Rows that name it; 0 means the slot is free.
    rows: u32,
}

/// All different paths, counted.
#[derive(Debug)]
pub(crate) struct Paths {
    slots: Vec<Slot>,
    free: Vec<PathId>,
    index: HashTable<PathId>,
    key: HashKey,
}

impl Paths {
    pub(crate) fn new(key: HashKey) -> Self {
        Self { slots: Vec::new(), free: Vec::new(), index: HashTable::new(), key }
    }

    pub(crate) fn get(&self, id: PathId) -> &Path {
        &self.slots[id as usize].path
    }

    pub(crate) fn find(&self, path: &Path) -> Option<PathId> {
        let equal = |&id: &PathId| self.get(id) == path;
        self.index.find(self.key.hash_one(path), equal).copied()
    }

    /// Stores a path that [`Self::find`] did not find. No row names it yet.
    pub(crate) fn add(&mut self, path: Path) -> PathId {
        let slot = Slot { path, rows: 0 };
        let id = match self.free.pop() {
            Some(id) => {
                self.slots[id as usize] = slot;
                id
            }
            None => {
                self.slots.push(slot);
                self.slots.len() as PathId - 1
            }
        };
        let (slots, hasher) = (&self.slots, &self.key);
        let hash = |&id: &PathId| hasher.hash_one(slots[id as usize].path);
        self.index.insert_unique(hash(&id), id, hash);
        id
    }

    /// One more row names the path.
    pub(crate) fn retain(&mut self, id: PathId) {
        self.slots[id as usize].rows += 1;
    }

    /// One row less names the path. Returns it when that was the last.
    pub(crate) fn release(&mut self, id: PathId) -> Option<Path> {
        let slot = &mut self.slots[id as usize];
        slot.rows = slot.rows.saturating_sub(1);
        if slot.rows > 0 {
            return None;
        }
        let path = slot.path;
        if let Ok(entry) = self.index.find_entry(self.key.hash_one(path), |&other| other == id) {
            entry.remove();
            self.free.push(id);
        }
        Some(path)
    }

    pub(crate) fn memory(&self) -> usize {
        self.slots.capacity() * size_of::<Slot>() + (self.free.capacity() + self.index.capacity()) * 4
    }
}

/// Marks a row that is the number of a list. Paths and lists are numbered below it.
const LIST: u32 = 1 << 31;

/// The rows of prefixes that several origins know.
#[derive(Debug, Default)]
pub(crate) struct Lists {
    lists: Vec<Vec<PathId>>,
    free: Vec<u32>,
}

impl Lists {
    /// The paths of a row, best first.
    pub(crate) fn paths<'a>(&'a self, row: &'a u32) -> &'a [PathId] {
        if row & LIST == 0 { std::slice::from_ref(row) } else { &self.lists[(row & !LIST) as usize] }
    }

    /// The row for these paths, in the place of an old one.
    pub(crate) fn store(&mut self, old: Option<u32>, paths: &[PathId]) -> Option<u32> {
        let list = old.filter(|row| row & LIST != 0).map(|row| row & !LIST);
        if let &[] | &[_] = paths {
            if let Some(list) = list {
                self.lists[list as usize] = Vec::new();
                self.free.push(list);
            }
            return paths.first().copied();
        }
        let list = list.or_else(|| self.free.pop()).unwrap_or_else(|| {
            self.lists.push(Vec::new());
            self.lists.len() as u32 - 1
        });
        let stored = &mut self.lists[list as usize];
        stored.clear();
        stored.extend_from_slice(paths);
        Some(list | LIST)
    }

    pub(crate) fn memory(&self) -> usize {
        let rows: usize = self.lists.iter().map(|list| list.capacity() * 4).sum();
        rows + self.lists.capacity() * size_of::<Vec<PathId>>() + self.free.capacity() * 4
    }
}

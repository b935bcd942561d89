//! The path record: eight bytes for one path of one prefix.
//!
//! The table keeps it inline where a prefix has one path. Several paths lie in a run of the list pool, the
//! best one first, the others in no order; the table's word then holds the run's handle and the number of paths.

use holdfast_prefix_table::{Handle, Pool};

/// An interned attribute set; 0 is none.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct SetId(pub(crate) u32);

impl SetId {
    pub(crate) const NONE: Self = Self(0);

    pub(crate) fn index(self) -> usize {
        self.0 as usize
    }
}

/// A peer's session, or ourselves: a peer that comes back is another source, so that what is left of the
/// session before can be swept meanwhile.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct SourceId(pub(crate) u16);

impl SourceId {
    /// Routes of our own.
    pub(crate) const LOCAL: Self = Self(0);

    pub(crate) fn index(self) -> usize {
        usize::from(self.0)
    }
}

/// What is known of a path beside its attributes.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Flags(u16);

impl Flags {
    /// The decision chose it; at most one of a prefix, and then the first.
    pub(crate) const BEST: Self = Self(1);
    /// Used beside the best.
    pub(crate) const MULTIPATH: Self = Self(2);
    /// Import policy takes it, and it is free of loops.
    pub(crate) const ACCEPTED: Self = Self(4);
    /// A plugged-in stage holds it back.
    pub(crate) const SUPPRESSED: Self = Self(8);
    /// In the table's word only: not a path but a list.
    const LIST: Self = Self(1 << 15);

    pub(crate) fn has(self, flag: Self) -> bool {
        self.0 & flag.0 != 0
    }

    pub(crate) fn set(&mut self, flag: Self, on: bool) {
        self.0 = if on { self.0 | flag.0 } else { self.0 & !flag.0 };
    }
}

/// One path.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct Path {
    /// The attributes as received.
    pub(crate) set: SetId,
    pub(crate) source: SourceId,
    pub(crate) flags: Flags,
}

impl Path {
    /// In the place of a path that is not there.
    pub(crate) const NONE: Self = Self { set: SetId::NONE, source: SourceId::LOCAL, flags: Flags(0) };

    pub(crate) fn is_some(self) -> bool {
        self.set != SetId::NONE
    }

    pub(crate) fn is_best(self) -> bool {
        self.flags.has(Flags::BEST)
    }

    pub(crate) fn is_accepted(self) -> bool {
        self.flags.has(Flags::ACCEPTED)
    }

    pub(crate) fn is_suppressed(self) -> bool {
        self.flags.has(Flags::SUPPRESSED)
    }

    /// The path itself if it is the best, else [`Self::NONE`].
    pub(crate) fn if_best(self) -> Self {
        if self.is_best() { self } else { Self::NONE }
    }

    /// The path without the decision's mark.
    pub(crate) fn unchosen(mut self) -> Self {
        self.flags.set(Flags::BEST, false);
        self
    }

    /// Whether both are the same route, whatever the decision made of it.
    pub(crate) fn same_route(self, other: Self) -> bool {
        (self.set, self.source) == (other.set, other.source)
    }

    /// The table's word of a prefix with no other path; `None` for [`Self::NONE`].
    pub(crate) fn alone(self) -> Option<u64> {
        self.is_some().then(|| self.to_word())
    }

    fn to_word(self) -> u64 {
        u64::from(self.set.0) | u64::from(self.source.0) << 32 | u64::from(self.flags.0) << 48
    }

    fn from_word(word: u64) -> Self {
        Self {
            set: SetId(word as u32),
            source: SourceId((word >> 32) as u16),
            flags: Flags((word >> 48) as u16),
        }
    }
}

/// The lists of prefixes with several paths.
#[derive(Debug, Default)]
pub(crate) struct PathLists {
    pool: Pool,
}

impl PathLists {
    /// The best path of a table's word, [`Path::NONE`] where none is chosen.
    pub(crate) fn best(&self, word: u64) -> Path {
        let first = match list(word) {
            Some((handle, _)) => read(&self.pool.get(handle)[..2]),
            None => Path::from_word(word),
        };
        first.if_best()
    }

    /// The only path of a word, [`Path::NONE`] where there is none; `None` if there are several.
    pub(crate) fn only(word: Option<u64>) -> Option<Path> {
        let path = word.map_or(Path::NONE, Path::from_word);
        (!path.flags.has(Flags::LIST)).then_some(path)
    }

    /// All paths of a word, in front of nothing else: `into` is emptied first.
    pub(crate) fn load(&self, word: Option<u64>, into: &mut Vec<Path>) {
        into.clear();
        let Some(word) = word else { return };
        match list(word) {
            Some((handle, count)) => {
                into.extend(self.pool.get(handle)[..2 * count].chunks_exact(2).map(read));
            }
            None => into.push(Path::from_word(word)),
        }
    }

    /// The word for these paths, in the place of `old`, whose list is reused or freed.
    ///
    /// When the pool is full (16 GiB of lists) or a prefix has over 65,535 paths, only the best is kept.
    pub(crate) fn store(&mut self, old: Option<u64>, paths: &[Path]) -> Option<u64> {
        let old = old.and_then(list);
        if paths.len() < 2 {
            if let Some((handle, _)) = old {
                self.pool.free(handle);
            }
            return paths.first().map(|path| path.to_word());
        }
        let Some(handle) = self.room(old.map(|(handle, _)| handle), 2 * paths.len()) else {
            return Some(paths[0].to_word());
        };
        for (words, path) in self.pool.get_mut(handle).chunks_exact_mut(2).zip(paths) {
            let word = path.to_word();
            (words[0], words[1]) = (word as u32, (word >> 32) as u32);
        }
        let count = SourceId(paths.len() as u16);
        Some(Path { set: SetId(handle.bits()), source: count, flags: Flags::LIST }.to_word())
    }

    /// A run of `words`: the one at hand if it fits and is not much too large.
    fn room(&mut self, old: Option<Handle>, words: usize) -> Option<Handle> {
        if let Some(handle) = old {
            let size = self.pool.get(handle).len();
            if words <= size && size <= words + words / 2 {
                return old;
            }
            self.pool.free(handle);
        }
        if words > 2 * usize::from(u16::MAX) { None } else { self.pool.try_alloc(words) }
    }

    pub(crate) fn memory(&self) -> usize {
        self.pool.memory()
    }
}

fn list(word: u64) -> Option<(Handle, usize)> {
    let Path { set, source, flags } = Path::from_word(word);
    flags.has(Flags::LIST).then(|| (Handle::from_bits(set.0), source.index()))
}

fn read(words: &[u32]) -> Path {
    Path::from_word(u64::from(words[0]) | u64::from(words[1]) << 32)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(set: u32) -> Path {
        Path { set: SetId(set), source: SourceId(set as u16), flags: Flags::ACCEPTED }
    }

    #[test]
    fn paths_come_back_from_their_word_however_many_there_are() {
        let (mut lists, mut found, mut word) = (PathLists::default(), Vec::new(), None);
        for count in [1, 2, 3, 40, 5, 1, 0, 2] {
            let paths: Vec<Path> = (1..=count).map(path).collect();
            word = lists.store(word, &paths);
            lists.load(word, &mut found);
            assert_eq!(found, paths);
        }
    }

    #[test]
    fn the_best_is_the_first_that_is_marked_so() {
        let mut lists = PathLists::default();
        let mut paths = [path(1), path(2)];
        let word = lists.store(None, &paths);
        assert_eq!(word.map(|word| lists.best(word)), Some(Path::NONE));
        paths[0].flags.set(Flags::BEST, true);
        let word = lists.store(word, &paths);
        assert_eq!(word.map(|word| lists.best(word)), Some(paths[0]));
    }
}

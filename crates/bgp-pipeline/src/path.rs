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
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct SourceId(pub(crate) u16);

impl SourceId {
    /// Networks of our own.
    pub(crate) const LOCAL: Self = Self(0);
    /// Routes of other protocols that we originate.
    pub(crate) const REDISTRIBUTED: Self = Self(1);
    /// Aggregates of what is in the table.
    pub(crate) const AGGREGATED: Self = Self(2);
    /// The default routes of peers that get one of ours: in no table.
    pub(crate) const DEFAULT: Self = Self(3);

    /// Those that are no peers'.
    pub(crate) const OURS: usize = 4;

    /// After all others.
    pub(crate) const LAST: Self = Self(u16::MAX);

    /// Whether the route begins here.
    #[inline]
    pub(crate) fn is_ours(self) -> bool {
        self.index() < Self::OURS
    }

    /// Whether the RIB is told: it knows by itself of what we originate, but not of aggregates.
    #[inline]
    pub(crate) fn is_for_rib(self) -> bool {
        self == Self::AGGREGATED || !self.is_ours()
    }

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
    /// Five bits for [`Path::standing`].
    const STANDING: u16 = 4;
    /// In a log only: the change is that of one path, best or not.
    const EACH: Self = Self(1 << 9);
    /// Three bits for [`Path::epoch`].
    const EPOCH: u16 = 10;
    /// It would be best if the next hops in use were gone. Only beside a best path of a source that is protected.
    pub(crate) const BACKUP: Self = Self(1 << 13);
    /// In the table's word only: not a path but a list.
    const LIST: Self = Self(1 << 15);

    pub(crate) fn has(self, flag: Self) -> bool {
        self.0 & flag.0 != 0
    }

    pub(crate) fn set(&mut self, flag: Self, on: bool) {
        self.0 = if on { self.0 | flag.0 } else { self.0 & !flag.0 };
    }

    /// Whether what the sender or a stage said last is the same in both: the epoch, and whether it is held back.
    fn agrees(self, other: Self) -> bool {
        (self.0 ^ other.0) & (Epoch::MASK << Self::EPOCH | Self::SUPPRESSED.0) == 0
    }
}

/// Between which refreshes of its sender (RFC 7313) a path was announced last.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Epoch(u8);

impl Epoch {
    const MASK: u16 = 7;
    /// All there are.
    const ALL: std::ops::RangeInclusive<u8> = 0..=Self::MASK as u8;
}

/// Some epochs.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Epochs(u8);

impl Epochs {
    /// Every one.
    pub(crate) const ALL: Self = Self(u8::MAX);

    pub(crate) fn is_empty(self) -> bool {
        self == Self::default()
    }

    #[inline]
    pub(crate) fn has(self, epoch: Epoch) -> bool {
        self.0 >> epoch.0 & 1 != 0
    }

    pub(crate) fn insert(&mut self, epoch: Epoch) {
        self.0 |= 1 << epoch.0;
    }

    /// One that is not among these; `None` if all are.
    pub(crate) fn free(self) -> Option<Epoch> {
        Epoch::ALL.map(Epoch).find(|epoch| !self.has(*epoch))
    }
}

impl std::ops::BitOr for Epochs {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
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

    /// The default route with this set that some peers are told of.
    pub(crate) fn default_route(set: SetId) -> Self {
        let mut path = Self::arriving(SourceId::DEFAULT, Epoch::default(), set, true).chosen();
        path.set_standing(1);
        path
    }

    /// As import policy leaves it.
    pub(crate) fn arriving(source: SourceId, epoch: Epoch, set: SetId, accepted: bool) -> Self {
        let mut path = Self { set, source, flags: Flags(u16::from(epoch.0) << Flags::EPOCH) };
        path.flags.set(Flags::ACCEPTED, accepted);
        path
    }

    /// When its sender announced it last.
    #[inline]
    pub(crate) fn epoch(self) -> Epoch {
        Epoch((self.flags.0 >> Flags::EPOCH & Epoch::MASK) as u8)
    }

    /// Whether the sender has said the same again, and stages have: nothing is to be done then.
    #[inline]
    pub(crate) fn is_repeated_by(self, new: Self) -> bool {
        self.set == new.set && self.flags.agrees(new.flags)
    }

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

    /// The path without the decision's marks.
    pub(crate) fn unchosen(mut self) -> Self {
        self.flags.set(Flags::BEST, false);
        self.flags.set(Flags::MULTIPATH, false);
        self.flags.set(Flags::BACKUP, false);
        self
    }

    /// The path with that mark.
    pub(crate) fn chosen(mut self) -> Self {
        self.flags.set(Flags::BEST, true);
        self
    }

    /// Where it stands among the paths of its prefix that take part in the decision, as those were told who are sent
    /// several: 0 for none of them, 1 for the best, up to [`Self::BEYOND`]. Stale where nobody is.
    pub(crate) fn standing(self) -> u8 {
        (self.flags.0 >> Flags::STANDING) as u8 & Self::BEYOND
    }

    /// The standing of all that were not put in order.
    pub(crate) const BEYOND: u8 = 31;

    pub(crate) fn set_standing(&mut self, standing: u8) {
        let bits = u16::from(Self::BEYOND) << Flags::STANDING;
        self.flags.0 = self.flags.0 & !bits | u16::from(standing) << Flags::STANDING & bits;
    }

    /// As one of several paths that are told, if it stands so high; else what is in its place when it is not there.
    pub(crate) fn within(mut self, most: u8) -> Self {
        if self.standing() == 0 || self.standing() > most {
            self.set = SetId::NONE;
        }
        self
    }

    /// For a log: one of several.
    pub(crate) fn as_each(self) -> Self {
        let mut path = self.within(Self::BEYOND);
        path.flags.set(Flags::EACH, true);
        path
    }

    pub(crate) fn is_each(self) -> bool {
        self.flags.has(Flags::EACH)
    }

    /// The path itself, as if no stage and no decision had marked it.
    pub(crate) fn absent(self) -> Self {
        Self { set: SetId::NONE, flags: Flags::default(), ..self }
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

    fn to_words(self) -> [u32; 2] {
        let word = self.to_word();
        [word as u32, (word >> 32) as u32]
    }

    fn from_words(&[low, high]: &[u32; 2]) -> Self {
        Self::from_word(u64::from(low) | u64::from(high) << 32)
    }
}

/// How many of the best paths of a prefix groups are told, as for [`Path::within`]: a bit for each number. And whether
/// some group has a view of its own.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct PathCounts(u32);

impl PathCounts {
    /// A view of one's own: each change of a prefix is to be told with all its paths.
    pub(crate) const VIEW: Self = Self(1);

    /// Only this; 0 is none.
    pub(crate) fn one(most: u8) -> Self {
        Self(1 << most & !1)
    }

    pub(crate) fn is_empty(self) -> bool {
        self == Self::default()
    }

    pub(crate) fn has_view(self) -> bool {
        self.0 & Self::VIEW.0 != 0
    }

    /// The numbers of its bits.
    pub(crate) fn bits(self) -> impl Iterator<Item = usize> {
        (0..u32::BITS as usize).filter(move |bit| self.0 >> bit & 1 != 0)
    }

    /// The one with these bits.
    pub(crate) fn of_bits(bits: impl Iterator<Item = usize>) -> Self {
        Self(bits.fold(0, |all, bit| all | 1 << bit))
    }

    /// How many paths have to be put in order.
    pub(crate) fn ranked(self) -> u8 {
        if self.has_view() {
            return Path::BEYOND - 1;
        }
        (self.0 & !Self::one(Path::BEYOND).0).checked_ilog2().unwrap_or(0) as u8
    }

    /// Those that are told of a path.
    fn told(self, path: Path) -> Self {
        match path.standing() {
            0 => Self::default(),
            standing => Self(self.0 & u32::MAX << standing),
        }
    }

    /// Whether the change of a path is to be logged for any of them. That it comes and goes always is: who has lost
    /// its place must not miss the end of a path that it was told before that one fell back.
    pub(crate) fn concerns(self, old: Path, new: Path) -> bool {
        let (was, is) = (self.told(old), self.told(new));
        let comes_or_goes = (old.standing() == 0) != (new.standing() == 0);
        !self.is_empty() && (comes_or_goes || was != is || old.set != new.set && !is.is_empty())
    }
}

impl std::ops::BitOr for PathCounts {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// The lists of prefixes with several paths.
#[derive(Debug, Default)]
pub(crate) struct PathLists {
    pool: Pool,
    /// Room for one list on its way to another run.
    moving: Vec<Path>,
}

impl PathLists {
    /// The best path of a table's word, [`Path::NONE`] where none is chosen.
    pub(crate) fn best(&self, word: u64) -> Path {
        let first = match list(word) {
            Some((handle, _)) => Path::from_words(&self.words(handle)[0]),
            None => Path::from_word(word),
        };
        first.if_best()
    }

    /// The only path of a word; `None` if there are several.
    #[inline]
    pub(crate) fn only(word: u64) -> Option<Path> {
        let path = Path::from_word(word);
        (!path.flags.has(Flags::LIST)).then_some(path)
    }

    /// The source's path and where it stands; [`Path::NONE`] if it has none.
    pub(crate) fn find(&self, word: u64, source: SourceId) -> (Option<usize>, Path) {
        let Some((handle, count)) = list(word) else {
            let only = Path::from_word(word);
            return if only.source == source { (Some(0), only) } else { (None, Path::NONE) };
        };
        let paths = &self.words(handle)[..count];
        let at = paths.iter().position(|words| Path::from_words(words).source == source);
        (at, at.map_or(Path::NONE, |at| Path::from_words(&paths[at])))
    }

    /// All paths of a word, in front of nothing else: `into` is emptied first.
    pub(crate) fn load(&self, word: u64, into: &mut Vec<Path>) {
        into.clear();
        match list(word) {
            Some((handle, count)) => {
                into.extend(self.words(handle)[..count].iter().map(Path::from_words));
            }
            None => into.push(Path::from_word(word)),
        }
    }

    /// Shows all paths of a word, in the same order.
    #[inline]
    pub(crate) fn for_each(&self, word: u64, mut show: impl FnMut(Path)) {
        match list(word) {
            Some((handle, count)) => {
                self.words(handle)[..count].iter().for_each(|words| show(Path::from_words(words)));
            }
            None => show(Path::from_word(word)),
        }
    }

    fn words(&self, handle: Handle) -> &[[u32; 2]] {
        self.pool.get(handle).as_chunks().0
    }

    fn words_mut(&mut self, handle: Handle) -> &mut [[u32; 2]] {
        self.pool.get_mut(handle).as_chunks_mut().0
    }

    /// The word after one path, or none, has become another (or none): what `at` says where it stands. If the
    /// new one is the best, it takes the place of the best.
    pub(crate) fn replace(&mut self, word: u64, at: Option<usize>, new: Path) -> Option<u64> {
        let count = list(word).map_or(1, |(_, count)| count);
        let at = at.unwrap_or(count);
        if !new.is_some() || at == usize::from(u16::MAX) {
            return self.store_replaced(word, at, new);
        }
        let Some(handle) = self.with_room(word, at + 1) else { return self.store_replaced(word, at, new) };
        let words = self.words_mut(handle);
        words[at] = new.to_words();
        if new.is_best() {
            bring_forward(words, at);
        }
        Some(list_word(handle, count.max(at + 1)))
    }

    /// A list with the paths of a word and room for `count`; `None` when the pool is full.
    #[inline]
    fn with_room(&mut self, word: u64, count: usize) -> Option<Handle> {
        let Some((handle, before)) = list(word) else {
            let handle = self.pool.try_alloc(2 * count)?;
            self.words_mut(handle)[0] = Path::from_word(word).to_words();
            return Some(handle);
        };
        if self.words(handle).len() >= count {
            return Some(handle);
        }
        let larger = self.pool.try_alloc(2 * count)?;
        let Some((from, to)) = self.pool.get_pair(handle, larger) else {
            self.pool.free(larger);
            return None;
        };
        to[..2 * before].copy_from_slice(&from[..2 * before]);
        self.pool.free(handle);
        Some(larger)
    }

    /// The same where a list becomes shorter, or cannot become longer.
    fn store_replaced(&mut self, word: u64, at: usize, new: Path) -> Option<u64> {
        let mut paths = std::mem::take(&mut self.moving);
        self.load(word, &mut paths);
        if at < paths.len() {
            paths.swap_remove(at);
        }
        if new.is_some() {
            paths.push(new);
        }
        if new.is_best() {
            let at = paths.len() - 1;
            paths[0] = paths[0].unchosen();
            paths[at] = new;
            paths.swap(0, at);
        }
        let word = self.store(word, &paths);
        self.moving = paths;
        word
    }

    /// The word for these paths, in the place of `old`, whose list is reused or freed.
    ///
    /// When the pool is full (16 GiB of lists) or a prefix has over 65,535 paths, only the best is kept.
    pub(crate) fn store(&mut self, old: u64, paths: &[Path]) -> Option<u64> {
        let old = list(old);
        if paths.len() < 2 {
            if let Some((handle, _)) = old {
                self.pool.free(handle);
            }
            return paths.first().map(|path| path.to_word());
        }
        let Some(handle) = self.room(old.map(|(handle, _)| handle), 2 * paths.len()) else {
            return Some(paths[0].to_word());
        };
        for (words, path) in self.words_mut(handle).iter_mut().zip(paths) {
            *words = path.to_words();
        }
        Some(list_word(handle, paths.len()))
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

/// At most 65,535 paths.
fn list_word(handle: Handle, count: usize) -> u64 {
    Path { set: SetId(handle.bits()), source: SourceId(count as u16), flags: Flags::LIST }.to_word()
}

/// Lets the path at an index change places with the first, which is not the best any more.
fn bring_forward(words: &mut [[u32; 2]], at: usize) {
    if at > 0 {
        words[0] = Path::from_words(&words[0]).unchosen().to_words();
        words.swap(0, at);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(set: u32) -> Path {
        Path { set: SetId(set), source: SourceId(set as u16), flags: Flags::ACCEPTED }
    }

    #[test]
    fn paths_come_back_from_their_word_however_many_there_are() {
        let (mut lists, mut found) = (PathLists::default(), Vec::new());
        let mut word = path(9).to_word();
        for count in [1, 2, 3, 40, 5, 1, 2] {
            let paths: Vec<Path> = (1..=count).map(path).collect();
            word = lists.store(word, &paths).expect("paths");
            lists.load(word, &mut found);
            assert_eq!(found, paths);
        }
        assert_eq!(lists.store(word, &[]), None);
    }

    #[test]
    fn the_best_is_the_first_that_is_marked_so() {
        let mut lists = PathLists::default();
        let mut paths = [path(1), path(2)];
        let word = lists.store(path(1).to_word(), &paths).expect("paths");
        assert_eq!(lists.best(word), Path::NONE);
        paths[0] = paths[0].chosen();
        let word = lists.store(word, &paths).expect("paths");
        assert_eq!(lists.best(word), paths[0]);
    }

    #[test]
    fn paths_come_and_go_in_place_and_a_new_best_goes_in_front() {
        let (mut lists, mut found) = (PathLists::default(), Vec::new());
        let mut word = path(1).chosen().to_word();
        for set in 2..=30 {
            let new = if set % 7 == 0 { path(set).chosen() } else { path(set) };
            word = lists.replace(word, None, new).expect("paths");
            assert_eq!(lists.find(word, SourceId(set as u16)).1, new);
            assert_eq!(lists.best(word).set.0, (set / 7 * 7).max(1));
        }
        for set in 1..=29 {
            let (at, _) = lists.find(word, SourceId(set));
            word = lists.replace(word, at, Path::NONE).expect("paths");
            lists.load(word, &mut found);
            let mut left: Vec<u32> = found.iter().map(|path| path.set.0).collect();
            left.sort_unstable();
            assert_eq!(left, (u32::from(set) + 1..=30).collect::<Vec<_>>());
        }
        assert_eq!(PathLists::only(word), Some(path(30)));
    }
}

//! The table and what can be asked of it.

use std::{collections::BTreeMap, ops::Bound};

use holdfast_types::IpPrefix;

/// What a table keeps for a prefix: a few words in the pool.
pub trait Value: Copy + Eq {
    /// Size in words of 32 bits: 1 or 2.
    const WORDS: usize;
    /// The value in its words (exactly [`Self::WORDS`]).
    fn read(words: &[u32]) -> Self;
    /// Puts the value into its words (exactly [`Self::WORDS`]).
    fn write(self, words: &mut [u32]);
}

impl Value for u32 {
    const WORDS: usize = 1;

    fn read(words: &[u32]) -> Self {
        words[0]
    }

    fn write(self, words: &mut [u32]) {
        words[0] = self;
    }
}

impl Value for u64 {
    const WORDS: usize = 2;

    fn read(words: &[u32]) -> Self {
        Self::from(words[1]) << 32 | Self::from(words[0])
    }

    fn write(self, words: &mut [u32]) {
        words[0] = self as u32;
        words[1] = (self >> 32) as u32;
    }
}

/// Prefixes of one family, each with a value.
#[derive(Debug)]
pub struct PrefixTable<P, V> {
    map: BTreeMap<P, V>,
}

impl<P: IpPrefix, V: Value> PrefixTable<P, V> {
    /// An empty table. `seed` goes into the hash of block keys: prefixes come from the network, so it has
    /// to be unpredictable for a peer (random for each process).
    pub fn new(_seed: u64) -> Self {
        Self { map: BTreeMap::new() }
    }

    /// How many prefixes have a value.
    pub fn len(&self) -> usize {
        self.map.len()
    }

    /// Whether no prefix has a value.
    pub fn is_empty(&self) -> bool {
        self.map.is_empty()
    }

    /// Bytes held, slack included.
    pub fn memory(&self) -> usize {
        self.map.len() * 16
    }

    /// The value of exactly this prefix.
    pub fn get(&self, prefix: P) -> Option<V> {
        self.map.get(&prefix).copied()
    }

    /// Sets the value; returns the one before.
    pub fn insert(&mut self, prefix: P, value: V) -> Option<V> {
        self.map.insert(prefix, value)
    }

    /// Takes the prefix out; returns its value.
    pub fn remove(&mut self, prefix: P) -> Option<V> {
        self.map.remove(&prefix)
    }

    /// Gives the present value to `change` and puts what it returns in its place (`None` takes the prefix
    /// out), with one search. Returns the value before.
    pub fn update(&mut self, prefix: P, change: impl FnOnce(Option<V>) -> Option<V>) -> Option<V> {
        let old = self.get(prefix);
        match change(old) {
            Some(value) => self.map.insert(prefix, value),
            None => self.map.remove(&prefix),
        };
        old
    }

    /// The most specific entry that contains `prefix`; that may be `prefix` itself.
    pub fn longest_match(&self, prefix: P) -> Option<(P, V)> {
        self.covering(prefix).last()
    }

    /// All entries that contain `prefix`, itself included, shortest first.
    pub fn covering(&self, prefix: P) -> impl Iterator<Item = (P, V)> + '_ {
        self.iter().filter(move |(p, _)| p.contains(prefix))
    }

    /// Whether an entry other than `prefix` itself lies inside it.
    pub fn has_more_specific(&self, prefix: P) -> bool {
        self.within(prefix).any(|(p, _)| p != prefix)
    }

    /// All entries in address order, shorter first.
    pub fn iter(&self) -> impl Iterator<Item = (P, V)> + '_ {
        self.map.iter().map(|(p, v)| (*p, *v))
    }

    /// The entries from `from` on in address order; `from` itself only when `inclusive`. It need not be in
    /// the table: a paused walk keeps the last prefix it saw and goes on here.
    pub fn iter_from(&self, from: P, inclusive: bool) -> impl Iterator<Item = (P, V)> + '_ {
        let start = if inclusive { Bound::Included(from) } else { Bound::Excluded(from) };
        self.map.range((start, Bound::Unbounded)).map(|(p, v)| (*p, *v))
    }

    /// The first entry after `after` (or of all) in address order.
    pub fn next(&self, after: Option<P>) -> Option<(P, V)> {
        match after {
            Some(prefix) => self.iter_from(prefix, false).next(),
            None => self.iter().next(),
        }
    }

    /// The entries inside `prefix`, itself included, in address order.
    pub fn within(&self, prefix: P) -> impl Iterator<Item = (P, V)> + '_ {
        self.iter_from(prefix, true).take_while(move |(p, _)| prefix.contains(*p))
    }

    /// Gives at most `budget` entries after `from` (from the start on `None`) to `keep` and puts what it
    /// returns in the place of the value; `None` drops the entry. Returns where to go on, `None` at the
    /// end. Whole blocks are changed in place, which is several times cheaper than one by one.
    ///
    /// The order is stable, but not address order: an entry that is present from the first to the last of
    /// the calls that make up one pass is seen exactly once; one that comes or goes between may be seen or not.
    pub fn retain(
        &mut self,
        from: Option<P>,
        budget: usize,
        mut keep: impl FnMut(P, V) -> Option<V>,
    ) -> Option<P> {
        let start = from.map_or(Bound::Unbounded, Bound::Excluded);
        let some: Vec<P> = self.map.range((start, Bound::Unbounded)).take(budget).map(|(p, _)| *p).collect();
        for prefix in &some {
            self.update(*prefix, |value| value.and_then(|value| keep(*prefix, value)));
        }
        some.last().copied().filter(|_| some.len() == budget)
    }

    /// Touches the memory that work on these prefixes will need, so that the cache misses overlap. Worth
    /// it before a batch of about 64 that lie far apart.
    pub fn prefetch(&self, _prefixes: &[P]) {}
}

//! Prefixes of one family, each with a word, laid out for one question: what covers a prefix?
//!
//! A *region* is the prefixes of sixteen successive lengths whose addresses begin alike: those of up to 16 bits, those of
//! 17 to 32 bits in the same /16, those of 33 to 48 bits in the same /32, and so on. Its prefixes are one run in the
//! pool:
//!
//! ```text
//! run      entries of two words, ascending | NOTHING up to the size of the run
//! entry    16 bits of address behind the region's | 5 bits of length behind the region's | COVERED | 42 bits: the word
//! ```
//!
//! That is the order of addresses, shorter first. All that covers a prefix also covers what stands in front of it in that
//! order, or is that. So one search finds a prefix or all that there is to know: most entries are not [`COVERED`].
//!
//! A region has at most 131,071 prefixes. So whoever makes VRPs chooses neither the steps of a question, which are 17
//! searches of 17 steps a region at most, nor what a change writes again: a run of a mebioctet.

use std::{collections::BTreeMap, iter};

use holdfast_prefix_table::{Handle, Pool};
use holdfast_types::IpPrefix;
use smallvec::SmallVec;

/// Bits of address that a region's own prefixes have.
const STRIDE: u8 = 16;
/// Where the length begins in an entry.
const LENGTH: u32 = 43;
/// In an entry: another one of the run covers it.
const COVERED: u64 = 1 << 42;
/// The bits of a word.
const WORD: u64 = COVERED - 1;
/// In the place of an entry; greater than all. No address of 16 bits has a length of 31.
const NOTHING: u64 = u64::MAX;

/// What there is of a prefix in its region: address and length, in the order of entries.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Mark(u32);

impl Mark {
    #[inline]
    fn new(address: u16, length: u8) -> Self {
        Self(u32::from(address & mask(length)) << 5 | u32::from(length))
    }

    #[inline]
    fn of(entry: u64) -> Self {
        Self((entry >> LENGTH) as u32)
    }

    #[inline]
    fn address(self) -> u16 {
        (self.0 >> 5) as u16
    }

    #[inline]
    fn length(self) -> u8 {
        (self.0 & 31) as u8
    }

    #[inline]
    fn with(self, word: u64) -> u64 {
        u64::from(self.0) << LENGTH | word
    }

    /// The greatest entry that it can have.
    #[inline]
    fn last(self) -> u64 {
        self.with(WORD | COVERED)
    }

    #[inline]
    fn covers(self, other: Self) -> bool {
        self.length() <= other.length() && self.length() <= self.common(other.address())
    }

    /// How many bits of an address are the same.
    #[inline]
    fn common(self, address: u16) -> u8 {
        (self.address() ^ address).leading_zeros() as u8
    }
}

/// The first so many of 16 bits.
#[inline]
fn mask(length: u8) -> u16 {
    !(u32::from(u16::MAX) >> length) as u16
}

#[inline]
fn read([low, high]: [u32; 2]) -> u64 {
    u64::from(high) << 32 | u64::from(low)
}

/// A region: the address that its prefixes begin with, and the number of its bits in sixteens.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Region {
    level: u8,
    bits: u128,
}

impl Region {
    /// The one that a prefix belongs to.
    #[inline]
    pub(crate) fn of<P: IpPrefix>(prefix: P) -> Self {
        Self::at(prefix, level_of(prefix))
    }

    /// The one of a level that encloses it.
    #[inline]
    fn at<P: IpPrefix>(prefix: P, level: u8) -> Self {
        Self::with(level, prefix.bits())
    }

    /// The one of a level that an address is in.
    #[inline]
    pub(crate) fn with(level: u8, bits: u128) -> Self {
        Self { level, bits: bits & !Self::inside(level) }
    }

    /// Whether an address is in it.
    pub(crate) fn has(self, bits: u128) -> bool {
        (self.bits ^ bits) & !Self::inside(self.level) == 0
    }

    pub(crate) fn level(self) -> u8 {
        self.level
    }

    /// The bits of an address that tell prefixes of a region apart.
    #[inline]
    fn inside(level: u8) -> u128 {
        u128::MAX >> (level * STRIDE)
    }

    /// The first bits of the address, where there are regions below the first level.
    #[inline]
    fn first(self) -> usize {
        (self.bits >> 112) as usize
    }

    /// The last bits of an address are no region's: there is the level.
    #[inline]
    fn key(self) -> u128 {
        self.bits | u128::from(self.level)
    }

    fn of_key(key: u128) -> Self {
        let level = key as u8;
        Self { level, bits: key ^ u128::from(level) }
    }

    fn prefix<P: IpPrefix>(self, mark: Mark) -> P {
        let own = u128::from(mark.address()) << (128 - STRIDE);
        P::from_bits(self.bits | own >> (self.level * STRIDE), self.level * STRIDE + mark.length())
    }
}

/// The level of the region that a prefix belongs to.
#[inline]
fn level_of<P: IpPrefix>(prefix: P) -> u8 {
    prefix.length().saturating_sub(1) / STRIDE
}

/// How a prefix is marked in a region of this level that it lies in; one that is longer than the region's as the longest
/// there that encloses it.
#[inline]
fn mark_at<P: IpPrefix>(prefix: P, level: u8) -> Mark {
    let shift = u32::from(level * STRIDE);
    Mark::new((prefix.bits() << shift >> 112) as u16, (prefix.length() - level * STRIDE).min(STRIDE))
}

/// A run, read.
#[derive(Copy, Clone)]
struct View<'a>(&'a [[u32; 2]]);

impl<'a> View<'a> {
    /// Shows the words of what covers a prefix, itself included, the longest first, until `show` has seen enough; whether
    /// it has.
    #[inline]
    fn any_covering(self, prefix: Mark, mut show: impl FnMut(Mark, u64) -> bool) -> bool {
        let (mut wanted, Self(mut entries)) = (prefix, self);
        loop {
            let last = wanted.last();
            let behind = entries.partition_point(|entry| read(*entry) <= last);
            let Some(at) = behind.checked_sub(1) else { return false };
            let entry = read(entries[at]);
            let found = Mark::of(entry);
            let common = found.common(wanted.address());
            let covers = found.length() <= common;
            if covers && show(found, entry & WORD) {
                return true;
            }
            if entry & COVERED == 0 {
                return false;
            }
            // It is covered, so it has a length.
            let within = if covers { found.length() - 1 } else { common };
            (wanted, entries) = (Mark::new(wanted.address(), within), &entries[..at]);
        }
    }

    /// The entries, whatever covers them.
    fn iter(self) -> impl Iterator<Item = u64> + 'a {
        let entries = self.0.iter().map(|entry| read(*entry));
        entries.take_while(|entry| *entry != NOTHING).map(|entry| entry & !COVERED)
    }
}

/// Handles of the runs of regions in the same /8, by the eight bits behind.
type Regions = [u32; 256];
/// In the place of a handle.
const NO_RUN: u32 = u32::MAX;

/// The memory is used up.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct NoRoom;

/// Prefixes with their words.
///
/// The runs are in a pool of the owner's, as most of its pages have room left.
#[derive(Debug, Default)]
pub(crate) struct Runs {
    /// The first level: one region.
    top: Option<Handle>,
    /// By /16, how many prefixes of the first level cover it; empty as long as there was none.
    above: Vec<u8>,
    /// The second level, by /8; empty as long as there was none.
    second: Vec<Option<Box<Regions>>>,
    /// The others, which IPv6 has, by their keys.
    deep: BTreeMap<u128, Handle>,
}

impl Runs {
    /// Bytes held beside the pool.
    pub(crate) fn memory(&self) -> usize {
        // Nodes have room for eleven, and are two thirds full as a rule.
        let deep = self.deep.len() * size_of::<(u128, u32)>() * 3 / 2;
        let second = self.second.iter().flatten().count() * size_of::<Regions>();
        let tops = self.above.capacity() + self.second.capacity() * size_of::<Option<Box<Regions>>>();
        tops + second + deep
    }

    /// Shows the words of what covers a prefix, itself included, the longest first, until `show` has seen enough; whether
    /// it has.
    #[inline]
    pub(crate) fn any_covering<P: IpPrefix>(
        &self,
        pool: &Pool,
        prefix: P,
        mut show: impl FnMut(u64) -> bool,
    ) -> bool {
        self.visit_covering(pool, prefix, |_, _, word| show(word))
    }

    /// What covers a prefix, the longest first.
    pub(crate) fn covering<P: IpPrefix>(&self, pool: &Pool, prefix: P) -> Vec<(P, u64)> {
        let mut found = Vec::new();
        self.visit_covering(pool, prefix, |level, mark, word| {
            found.push((Region::at(prefix, level).prefix(mark), word));
            false
        });
        found
    }

    #[inline]
    fn visit_covering<P: IpPrefix>(
        &self,
        pool: &Pool,
        prefix: P,
        mut show: impl FnMut(u8, Mark, u64) -> bool,
    ) -> bool {
        let deepest = level_of(prefix);
        if P::WIDTH > 32 && deepest > 1 && self.visit_deep(pool, prefix, deepest, &mut show) {
            return true;
        }
        // What is no longer than the prefixes of the top has no count, and is rare.
        let mut left = u8::MAX;
        if deepest > 0 {
            let first = Region::at(prefix, 1).first();
            if let Some(run) = self.run_of_second(first)
                && view(pool, run).any_covering(mark_at(prefix, 1), |mark, word| show(1, mark, word))
            {
                return true;
            }
            left = self.above.get(first).copied().unwrap_or(0);
        }
        let Some(top) = self.top.filter(|_| left > 0) else { return false };
        let mut is_enough = false;
        view(pool, top).any_covering(mark_at(prefix, 0), |mark, word| {
            is_enough = show(0, mark, word);
            left -= 1;
            is_enough || left == 0
        });
        is_enough
    }

    #[inline(never)]
    fn visit_deep<P: IpPrefix>(
        &self,
        pool: &Pool,
        prefix: P,
        deepest: u8,
        show: &mut impl FnMut(u8, Mark, u64) -> bool,
    ) -> bool {
        (2..=deepest).rev().any(|level| {
            let Some(run) = self.deep.get(&Region::at(prefix, level).key()) else { return false };
            view(pool, *run).any_covering(mark_at(prefix, level), |mark, word| show(level, mark, word))
        })
    }

    /// All prefixes with their words: level by level, each in the order of addresses.
    pub(crate) fn iter<P: IpPrefix>(&self, pool: &Pool) -> impl Iterator<Item = (P, u64)> {
        let top = self.top.map(|run| (Region { level: 0, bits: 0 }, run));
        let second = self.second.iter().enumerate().flat_map(|(high, regions)| {
            let regions = regions.iter().flat_map(|regions| regions.iter().enumerate());
            regions.filter(|(_, run)| **run != NO_RUN).map(move |(low, run)| {
                let bits = ((high << 8 | low) as u128) << 112;
                (Region { level: 1, bits }, Handle::from_bits(*run))
            })
        });
        let deep = self.deep.iter().map(|(key, run)| (Region::of_key(*key), *run));
        top.into_iter().chain(second).chain(deep).flat_map(|(region, run)| {
            let entries = view(pool, run).iter();
            entries.map(move |entry| (region.prefix(Mark::of(entry)), entry & WORD))
        })
    }

    /// Gives the words of some prefixes of one region, ascending, to `change`, and puts what it returns in their place; `None`
    /// takes a prefix out. Where that fails, all stays as it was; it does not for want of room in the run if there are no more
    /// prefixes than before.
    pub(crate) fn update<P: IpPrefix>(
        &mut self,
        pool: &mut Pool,
        region: Region,
        prefixes: impl Iterator<Item = P>,
        mut change: impl FnMut(&mut Pool, P, Option<u64>) -> Result<Option<u64>, NoRoom>,
    ) -> Result<(), NoRoom> {
        let old: Vec<u64> = self.run(region).into_iter().flat_map(|run| view(pool, run).iter()).collect();
        let (mut new, mut rest) = (Vec::with_capacity(old.len() + 1), old.as_slice());
        let (mut gone, mut come) = (Vec::new(), Vec::new());
        for prefix in prefixes {
            let mark = mark_at(prefix, region.level);
            let (before, others) = rest.split_at(rest.partition_point(|entry| Mark::of(*entry) < mark));
            new.extend_from_slice(before);
            rest = others;
            let was = rest.first().copied().filter(|entry| Mark::of(*entry) == mark);
            rest = &rest[usize::from(was.is_some())..];
            let is = change(pool, prefix, was.map(|entry| entry & WORD))?;
            new.extend(is.map(|word| mark.with(word)));
            match (was, is) {
                (None, Some(_)) => come.push(mark),
                (Some(_), None) => gone.push(mark),
                (None, None) | (Some(_), Some(_)) => {}
            }
        }
        new.extend_from_slice(rest);
        if new != old {
            self.store(pool, region, &new, new.len() <= old.len())?;
        }
        if region.level == 0 {
            self.count_above(&gone, u8::MAX);
            self.count_above(&come, 1);
        }
        Ok(())
    }

    /// Makes these the entries of a region. If they `fit` where others are, there is room.
    fn store(&mut self, pool: &mut Pool, region: Region, entries: &[u64], fit: bool) -> Result<(), NoRoom> {
        let old = self.run(region);
        let new = match entries {
            [] => None,
            _ => Some(room(pool, old, entries.len(), fit)?),
        };
        if let Some(run) = new {
            // Those that cover the entry.
            let mut above = SmallVec::<[Mark; 1 + STRIDE as usize]>::new();
            let entries = entries.iter().map(|entry| {
                let mark = Mark::of(*entry);
                above.truncate(above.iter().take_while(|other| other.covers(mark)).count());
                let covered = if above.is_empty() { 0 } else { COVERED };
                above.push(mark);
                entry | covered
            });
            let padded = entries.chain(iter::repeat(NOTHING));
            let pairs = pool.get_mut(run).as_chunks_mut().0.iter_mut();
            pairs.zip(padded).for_each(|(pair, entry)| *pair = [entry as u32, (entry >> 32) as u32]);
        }
        if new != old {
            old.into_iter().for_each(|run| pool.free(run));
            self.set_run(region, new);
        }
        Ok(())
    }

    /// Prefixes of the first level have come, or gone: `by` is 1, or 255.
    fn count_above(&mut self, marks: &[Mark], by: u8) {
        if self.above.is_empty() && !marks.is_empty() {
            self.above = vec![0; 1 << STRIDE];
        }
        for mark in marks {
            let covered = 1 << (STRIDE - mark.length());
            let counts = &mut self.above[usize::from(mark.address())..][..covered];
            counts.iter_mut().for_each(|count| *count = count.wrapping_add(by));
        }
    }

    fn run(&self, region: Region) -> Option<Handle> {
        match region.level {
            0 => self.top,
            1 => self.run_of_second(region.first()),
            _ => self.deep.get(&region.key()).copied(),
        }
    }

    #[inline]
    fn run_of_second(&self, first: usize) -> Option<Handle> {
        let run = self.second.get(first >> 8)?.as_ref()?[first & 255];
        (run != NO_RUN).then_some(Handle::from_bits(run))
    }

    fn set_run(&mut self, region: Region, run: Option<Handle>) {
        match (region.level, run) {
            (0, _) => self.top = run,
            (1, _) => {
                if self.second.is_empty() {
                    self.second.resize_with(256, || None);
                }
                let regions = &mut self.second[region.first() >> 8];
                let of_eight = regions.get_or_insert_with(|| Box::new([NO_RUN; 256]));
                of_eight[region.first() & 255] = run.map_or(NO_RUN, Handle::bits);
                if run.is_none() {
                    regions.take_if(|regions| regions.iter().all(|run| *run == NO_RUN));
                }
            }
            (_, Some(run)) => _ = self.deep.insert(region.key(), run),
            (_, None) => _ = self.deep.remove(&region.key()),
        }
    }
}

#[inline]
fn view(pool: &Pool, run: Handle) -> View<'_> {
    View(pool.get(run).as_chunks().0)
}

/// Where so many entries of a region go: where others are, if that is about as large, or if they `fit` and there is no
/// other room.
fn room(pool: &mut Pool, run: Option<Handle>, entries: usize, fit: bool) -> Result<Handle, NoRoom> {
    let words = 2 * entries;
    if let Some(run) = run {
        let size = pool.get(run).len();
        if (words..=words + size / 5).contains(&size) {
            return Ok(run);
        }
    }
    pool.try_alloc(words).or(run.filter(|_| fit)).ok_or(NoRoom)
}

#[cfg(test)]
mod tests {
    use holdfast_types::{Ipv4Prefix, Ipv6Prefix};

    use super::*;

    fn v4(address: u32, length: u8) -> Ipv4Prefix {
        Ipv4Prefix::new(address.into(), length).unwrap()
    }

    fn put<P: IpPrefix>(
        (runs, pool): &mut (Runs, Pool),
        prefixes: &[P],
        word: Option<u64>,
    ) -> Result<(), NoRoom> {
        let mut prefixes = prefixes.to_vec();
        prefixes.sort_unstable_by_key(|prefix| (Region::of(*prefix), *prefix));
        prefixes.chunk_by(|one, other| Region::of(*one) == Region::of(*other)).try_for_each(|some| {
            runs.update(pool, Region::of(some[0]), some.iter().copied(), |_, _, _| Ok(word))
        })
    }

    fn covering<P: IpPrefix>((runs, pool): &(Runs, Pool), prefix: P) -> Vec<P> {
        runs.covering(pool, prefix).into_iter().map(|(prefix, _)| prefix).collect()
    }

    fn memory((runs, pool): &(Runs, Pool)) -> usize {
        runs.memory() + pool.memory()
    }

    #[test]
    fn a_prefix_of_every_length_is_found_from_the_longest_one_on() {
        let mut runs = <(Runs, Pool)>::default();
        let all: Vec<_> =
            (0..=128).map(|length| Ipv6Prefix::new(u128::MAX.into(), length).unwrap()).collect();
        put(&mut runs, &all, Some(7)).unwrap();
        for length in 0..=128 {
            let found = covering(&runs, all[length]);
            assert_eq!(found, all[..=length].iter().rev().copied().collect::<Vec<_>>());
        }
        assert_eq!(covering(&runs, Ipv6Prefix::new(0.into(), 48).unwrap()), all[..1]);
        assert_eq!(runs.0.iter::<Ipv6Prefix>(&runs.1).count(), all.len());
    }

    /// All prefixes of 17 to 32 bits in a /16, and what is asked of the last one.
    #[test]
    fn a_whole_region_costs_no_more_than_a_search_a_length() {
        let mut runs = <(Runs, Pool)>::default();
        let of = |length: u8| (0..1u32 << (length - 16)).map(move |at| v4(at << (32 - length), length));
        let all: Vec<_> = (17..=32).flat_map(of).collect();
        put(&mut runs, &all, Some(7)).unwrap();
        let asked = v4(0xffff, 32);
        assert_eq!(
            covering(&runs, asked),
            (17..=32).rev().map(|length| v4(0xffff, length)).collect::<Vec<_>>()
        );
        assert_eq!(runs.0.iter::<Ipv4Prefix>(&runs.1).count(), (1 << 17) - 2);
        assert!(covering(&runs, v4(0x1_0000, 32)).is_empty());
        let full = memory(&runs);
        put(&mut runs, &all, None).unwrap();
        assert!(runs.0.run(Region::of(asked)).is_none() && memory(&runs) < full / 8, "{}", memory(&runs));
        assert!(runs.0.second.iter().all(Option::is_none), "the last of a /8 takes its regions with it");
    }

    #[test]
    fn short_prefixes_are_counted_where_they_cover() {
        let mut runs = <(Runs, Pool)>::default();
        let short = [v4(0, 0), v4(0x0a00_0000, 8), v4(0x0a01_0000, 16)];
        put(&mut runs, &short, Some(7)).unwrap();
        let counts = |(runs, _): &(Runs, Pool)| [0x0a01, 0x0a02, 0x0b00].map(|first| runs.above[first]);
        assert_eq!(counts(&runs), [3, 2, 1]);
        assert_eq!(covering(&runs, v4(0x0a02_0300, 24)), [short[1], short[0]]);
        put(&mut runs, &short[..2], None).unwrap();
        assert_eq!(counts(&runs), [1, 0, 0]);
        assert_eq!(covering(&runs, v4(0x0a01_0300, 24)), short[2..]);
        assert!(covering(&runs, v4(0x0a02_0300, 24)).is_empty());
    }

    #[test]
    fn without_memory_all_stays_as_it_was_and_what_goes_can_go() {
        let mut runs = (Runs::default(), Pool::with_limit(1 << 16));
        let all: Vec<_> = (0..1 << 16).map(|at| v4(at << 8, 24)).collect();
        let of_16: Vec<_> = all.chunks(256).collect();
        let fitted = of_16.iter().take_while(|some| put(&mut runs, some, Some(7)).is_ok()).count();
        assert!(fitted > 10 && fitted < of_16.len(), "{fitted}");
        assert_eq!(runs.0.iter::<Ipv4Prefix>(&runs.1).count(), fitted * 256);
        // One more in a run that is there, which would have to be larger.
        let more: Vec<_> = (0..20).map(|at| v4(at << 7, 25)).collect();
        assert_eq!(put(&mut runs, &more, Some(7)), Err(NoRoom));
        assert_eq!(covering(&runs, all[0]), all[..1]);
        put(&mut runs, &of_16[0][1..], None).unwrap();
        assert_eq!(runs.0.iter::<Ipv4Prefix>(&runs.1).count(), fitted * 256 - 255);
        assert_eq!(covering(&runs, all[0]), all[..1]);
    }

    #[test]
    fn a_prefix_takes_little_more_than_its_entry() {
        let mut runs = <(Runs, Pool)>::default();
        // 40 in each of 5,000 regions, which is fewer than the Internet has.
        let all: Vec<_> =
            (0..5000u32).flat_map(|high| (0..40).map(move |low| v4(high << 16 | low << 10, 24))).collect();
        put(&mut runs, &all, Some(7)).unwrap();
        assert!(memory(&runs) < 10 * all.len(), "{} octets each", memory(&runs) as f64 / all.len() as f64);
        // A few at a time they take no more.
        let mut others = <(Runs, Pool)>::default();
        all.chunks(3).for_each(|some| put(&mut others, some, Some(7)).unwrap());
        assert!(
            memory(&others) < 11 * all.len(),
            "{} octets each",
            memory(&others) as f64 / all.len() as f64
        );
    }
}

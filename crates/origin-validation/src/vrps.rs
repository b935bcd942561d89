//! Validated ROA payloads, and what they say of an origin (RFC 6811).

use holdfast_policy::{PathElement, Validity};
use holdfast_prefix_table::{Handle, Pool, PrefixTable};
use holdfast_types::{Asn, HashKey, IpPrefix, Ipv4Prefix, Ipv6Prefix, Prefix, Vrp};

/// Who originates a route with this path, nearest AS first; `None` where nobody can be named (RFC 6811 section 2).
///
/// `ours` originates what has no path, or one inside our confederation only.
pub fn origin(path: impl Iterator<Item = PathElement>, ours: Asn) -> Option<Asn> {
    match path.last() {
        Some(PathElement::Sequence(asn)) => Some(asn),
        Some(PathElement::Set(_)) => None,
        Some(PathElement::ConfedSequence(_) | PathElement::ConfedSet(_)) | None => Some(ours),
    }
}

/// VRPs of both families, each once.
#[derive(Debug)]
pub struct VrpTable {
    v4: PrefixTable<Ipv4Prefix, u64>,
    v6: PrefixTable<Ipv6Prefix, u64>,
    /// Those of prefixes that have several.
    lists: Pool,
    len: usize,
    left_out: usize,
}

/// Who may originate a prefix up to a length: the AS above the length, so that those of one AS lie beside each other.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Grant(u64);

impl Grant {
    fn new(asn: Asn, max_length: u8) -> Self {
        Self(u64::from(asn.0) << 8 | u64::from(max_length))
    }

    fn max_length(self) -> u8 {
        self.0 as u8
    }

    fn asn(self) -> Asn {
        Asn((self.0 >> 8) as u32)
    }

    #[inline]
    fn allows(self, length: u8, origin: Asn) -> bool {
        self.asn() == origin && length <= self.max_length()
    }

    #[inline]
    fn read(words: [u32; 2]) -> Self {
        #[cfg(test)]
        tests::READ.set(tests::READ.get() + 1);
        Self(u64::from(words[1]) << 32 | u64::from(words[0]))
    }
}

impl From<Vrp> for Grant {
    fn from(vrp: Vrp) -> Self {
        Self::new(vrp.asn(), vrp.max_length())
    }
}

/// What is to become of a grant.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Edit {
    prefix: Prefix,
    grant: Grant,
    holds: bool,
}

impl Edit {
    fn new(vrp: Vrp, holds: bool) -> Self {
        Self { prefix: vrp.prefix(), grant: vrp.into(), holds }
    }
}

/// Grants after these edits; both are ascending, each grant once.
fn merge(old: &[Grant], edits: &[Edit]) -> Vec<Grant> {
    let mut new = Vec::with_capacity(old.len() + edits.len());
    let mut old = old.iter().copied().peekable();
    for edit in edits {
        new.extend(std::iter::from_fn(|| old.next_if(|grant| *grant < edit.grant)));
        old.next_if_eq(&edit.grant);
        new.extend(edit.holds.then_some(edit.grant));
    }
    new.extend(old);
    new
}

/// In a table's word: there are several, and where.
const SEVERAL: u64 = 1 << 63;

/// What a table's word says.
enum Grants<'a> {
    One(Grant),
    /// Ascending, two words each.
    Several(&'a [[u32; 2]]),
}

impl<'a> Grants<'a> {
    #[inline]
    fn of(word: u64, lists: &'a Pool) -> Self {
        if word & SEVERAL == 0 {
            return Self::One(Grant(word));
        }
        let (handle, count) = list(word);
        Self::Several(&lists.get(handle).as_chunks().0[..count])
    }

    /// Whether one of them allows it. Of several of one AS the last has the greatest length.
    #[inline]
    fn allow(self, length: u8, origin: Asn) -> bool {
        let most = match self {
            Self::One(grant) => Some(grant),
            Self::Several(pairs) => {
                let last = Grant::new(origin, u8::MAX);
                let up_to = pairs.partition_point(|pair| Grant::read(*pair) <= last);
                pairs[..up_to].last().copied().map(Grant::read)
            }
        };
        most.is_some_and(|grant| grant.allows(length, origin))
    }

    fn iter(self) -> impl Iterator<Item = Grant> + 'a {
        let (one, several) = match self {
            Self::One(grant) => (Some(grant), [].as_slice()),
            Self::Several(pairs) => (None, pairs),
        };
        one.into_iter().chain(several.iter().copied().map(Grant::read))
    }
}

/// Where a list is, and how long.
fn list(word: u64) -> (Handle, usize) {
    (Handle::from_bits(word as u32), (word & !SEVERAL) as usize >> 32)
}

/// The word for these grants, of which there is one at least; `None` if the pool has no room.
fn store(grants: &[Grant], lists: &mut Pool) -> Option<u64> {
    if let [only] = grants {
        return Some(only.0);
    }
    let handle = lists.try_alloc(2 * grants.len())?;
    for (pair, grant) in lists.get_mut(handle).as_chunks_mut().0.iter_mut().zip(grants) {
        *pair = [grant.0 as u32, (grant.0 >> 32) as u32];
    }
    Some(SEVERAL | (grants.len() as u64) << 32 | u64::from(handle.bits()))
}

fn free(word: u64, lists: &mut Pool) {
    if word & SEVERAL != 0 {
        lists.free(list(word).0);
    }
}

impl VrpTable {
    /// So many VRPs of one prefix hold; of more those of the lowest AS numbers do.
    pub const MOST_OF_A_PREFIX: usize = 1 << 16;

    /// An empty table. `key` is that of its hashes.
    pub fn new(key: HashKey) -> Self {
        Self { v4: PrefixTable::new(key), v6: PrefixTable::new(key), lists: Pool::new(), len: 0, left_out: 0 }
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Bytes held.
    pub fn memory(&self) -> usize {
        self.v4.memory() + self.v6.memory() + self.lists.memory()
    }

    /// How many had no room since the table was made: their prefix had [`Self::MOST_OF_A_PREFIX`], or there was no memory.
    /// They do not hold until they are announced again and there is room.
    pub fn left_out(&self) -> usize {
        self.left_out
    }

    /// Whether it is new, and holds.
    pub fn insert(&mut self, vrp: Vrp) -> bool {
        self.revise(&[Edit::new(vrp, true)])
    }

    /// Whether it was there.
    pub fn remove(&mut self, vrp: Vrp) -> bool {
        self.revise(&[Edit::new(vrp, false)])
    }

    /// Applies a difference; what is in both holds. Returns the prefixes of which others hold now, each once, in order.
    ///
    /// The work is that of sorting it, and of writing the lists of its prefixes once.
    pub fn apply(&mut self, withdrawn: &[Vrp], announced: &[Vrp]) -> Vec<Prefix> {
        let withdrawn = withdrawn.iter().map(|vrp| Edit::new(*vrp, false));
        let mut edits: Vec<_> = withdrawn.chain(announced.iter().map(|vrp| Edit::new(*vrp, true))).collect();
        // Announcements first: of edits of one grant the first stays.
        edits.sort_unstable_by_key(|edit| (edit.prefix, edit.grant, !edit.holds));
        edits.dedup_by_key(|edit| (edit.prefix, edit.grant));
        let of_prefixes = edits.chunk_by(|one, other| one.prefix == other.prefix);
        of_prefixes.filter(|edits| self.revise(edits)).map(|edits| edits[0].prefix).collect()
    }

    /// Makes edits of one prefix, ascending, each grant once; whether others hold now.
    fn revise(&mut self, edits: &[Edit]) -> bool {
        let Some(prefix) = edits.first().map(|edit| edit.prefix) else { return false };
        let Self { v4, v6, lists, len, left_out } = self;
        let mut is_revised = false;
        let revise = |word: Option<u64>| {
            let old: Vec<_> = word.into_iter().flat_map(|word| Grants::of(word, lists).iter()).collect();
            let mut new = merge(&old, edits);
            *left_out += new.len().saturating_sub(Self::MOST_OF_A_PREFIX);
            new.truncate(Self::MOST_OF_A_PREFIX);
            if new == old {
                return word;
            }
            let stored = if new.is_empty() { None } else { store(&new, lists) };
            if stored.is_none() && !new.is_empty() {
                *left_out += edits.iter().filter(|edit| edit.holds).count();
                return word;
            }
            word.iter().for_each(|word| free(*word, lists));
            *len = *len - old.len() + new.len();
            is_revised = true;
            stored
        };
        match prefix {
            Prefix::V4(prefix) => _ = v4.update(prefix, revise),
            Prefix::V6(prefix) => _ = v6.update(prefix, revise),
        }
        is_revised
    }

    /// What VRPs say of a route to `prefix` that comes from `origin` (RFC 6811 section 2).
    #[inline]
    pub fn validate(&self, prefix: Prefix, origin: Option<Asn>) -> Validity {
        match prefix {
            Prefix::V4(prefix) => self.validate_in(&self.v4, prefix, origin),
            Prefix::V6(prefix) => self.validate_in(&self.v6, prefix, origin),
        }
    }

    #[inline]
    fn validate_in<P: IpPrefix>(
        &self,
        table: &PrefixTable<P, u64>,
        prefix: P,
        origin: Option<Asn>,
    ) -> Validity {
        let (length, mut verdict) = (prefix.length(), Validity::NotFound);
        // AS 0 stands for nobody, whoever calls itself so (RFC 6483 section 4, RFC 7607).
        let origin = origin.filter(|origin| *origin != Asn(0));
        let is_valid = table.any_covering(prefix, |word| {
            verdict = Validity::Invalid;
            origin.is_some_and(|origin| Grants::of(word, &self.lists).allow(length, origin))
        });
        if is_valid { Validity::Valid } else { verdict }
    }

    /// The VRPs that cover a prefix, those of the shortest prefix first.
    pub fn covering(&self, prefix: Prefix) -> Vec<Vrp> {
        fn of<P: IpPrefix>(table: &PrefixTable<P, u64>, lists: &Pool, prefix: P) -> Vec<Vrp> {
            let grants =
                |(prefix, word)| Grants::of(word, lists).iter().filter_map(move |grant| vrp(prefix, grant));
            table.covering(prefix).flat_map(grants).collect()
        }
        match prefix {
            Prefix::V4(prefix) => of(&self.v4, &self.lists, prefix),
            Prefix::V6(prefix) => of(&self.v6, &self.lists, prefix),
        }
    }

    /// All, in the order of prefixes, IPv4 first.
    pub fn iter(&self) -> impl Iterator<Item = Vrp> {
        let lists = &self.lists;
        let v4 = self.v4.iter().map(|(prefix, word)| (Prefix::from(prefix), word));
        let v6 = self.v6.iter().map(|(prefix, word)| (Prefix::from(prefix), word));
        v4.chain(v6).flat_map(move |(prefix, word)| {
            Grants::of(word, lists).iter().filter_map(move |grant| vrp(prefix, grant))
        })
    }
}

/// It fits, as it was one when it was taken in.
fn vrp(prefix: impl Into<Prefix>, grant: Grant) -> Option<Vrp> {
    Vrp::new(prefix.into(), grant.max_length(), grant.asn()).ok()
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    thread_local! {
        /// Grants that have been read from lists.
        pub(super) static READ: Cell<usize> = const { Cell::new(0) };
    }

    fn prefix() -> Prefix {
        "192.0.2.0/24".parse().unwrap()
    }

    fn vrps(asns: impl Iterator<Item = u32>) -> Vec<Vrp> {
        asns.map(|asn| Vrp::new(prefix(), 24, Asn(asn)).unwrap()).collect()
    }

    #[test]
    fn many_at_one_prefix_are_read_once_a_difference_and_looked_up_in_few_steps() {
        let read = |count: u32| {
            let (even, odd) = (vrps((0..count).map(|n| 2 * n)), vrps((0..count).map(|n| 2 * n + 1)));
            let mut table = VrpTable::new(HashKey::new([1, 0]));
            table.apply(&[], &even);
            let before = READ.get();
            assert_eq!(table.apply(&even[..even.len() / 2], &odd), [prefix()]);
            assert_eq!(table.len(), even.len() / 2 + odd.len());
            let applied = READ.replace(0) - before;
            assert_eq!(table.validate(prefix(), Some(Asn(count + 1))), Validity::Valid);
            (applied, READ.get())
        };
        let ((applied, looked_up), (applied_twice, _)) = (read(10_000), read(20_000));
        assert!(applied > 0 && applied_twice <= 2 * applied, "{applied_twice} for twice, {applied} for once");
        assert!(looked_up < 20, "{looked_up}");
    }

    #[test]
    fn a_prefix_has_so_many_and_what_is_left_out_is_counted() {
        let most = VrpTable::MOST_OF_A_PREFIX as u32;
        let all = vrps(1..most + 4);
        let mut table = VrpTable::new(HashKey::new([1, 0]));
        assert_eq!(table.apply(&[], &all), [prefix()]);
        assert_eq!((table.len(), table.left_out()), (VrpTable::MOST_OF_A_PREFIX, 3));
        let validate = |table: &VrpTable, asn| table.validate(prefix(), Some(Asn(asn)));
        assert_eq!([most, most + 1].map(|asn| validate(&table, asn)), [Validity::Valid, Validity::Invalid]);
        // One more is not new, and counts again; where one goes there is room.
        let last = all[all.len() - 1];
        assert!(!table.insert(last));
        assert_eq!(table.left_out(), 4);
        assert!(table.remove(all[0]) && table.insert(last));
        assert_eq!((table.len(), table.left_out()), (VrpTable::MOST_OF_A_PREFIX, 4));
        assert_eq!([1, most + 3].map(|asn| validate(&table, asn)), [Validity::Invalid, Validity::Valid]);
    }
}

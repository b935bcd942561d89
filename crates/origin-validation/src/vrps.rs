//! Validated ROA payloads, and what they say of an origin (RFC 6811).

use holdfast_policy::{PathElement, Validity};
use holdfast_prefix_table::{Handle, Pool};
use holdfast_types::{Asn, IpPrefix, Ipv4Prefix, Ipv6Prefix, Prefix, Vrp};

use crate::runs::{NoRoom, Region, Runs};

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
#[derive(Debug, Default)]
pub struct VrpTable {
    v4: Runs,
    v6: Runs,
    /// The runs, and the lists of prefixes that have several.
    pool: Pool,
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

/// What is to become of a grant. In the order of levels, families and prefixes; of edits of one grant announcements come
/// first.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Edit {
    /// The level of its region, and the family in the last bit.
    place: u8,
    bits: u128,
    length: u8,
    grant: Grant,
    is_withdrawn: bool,
}

impl Edit {
    fn new(vrp: Vrp, is_withdrawn: bool) -> Self {
        fn of<P: IpPrefix>(prefix: P, vrp: Vrp, is_withdrawn: bool) -> Edit {
            let place = Region::of(prefix).level() << 1 | u8::from(P::WIDTH != Ipv4Prefix::WIDTH);
            Edit { place, bits: prefix.bits(), length: prefix.length(), grant: vrp.into(), is_withdrawn }
        }
        match vrp.prefix() {
            Prefix::V4(prefix) => of(prefix, vrp, is_withdrawn),
            Prefix::V6(prefix) => of(prefix, vrp, is_withdrawn),
        }
    }

    fn is_v6(&self) -> bool {
        self.place & 1 == 1
    }

    fn prefix<P: IpPrefix>(&self) -> P {
        P::from_bits(self.bits, self.length)
    }

    /// Whether both are for prefixes of one region.
    fn is_beside(&self, other: &Self) -> bool {
        self.place == other.place && Region::with(self.place >> 1, self.bits).has(other.bits)
    }

    /// Whether both are for one prefix.
    fn is_of_prefix(&self, other: &Self) -> bool {
        (self.place, self.bits, self.length) == (other.place, other.bits, other.length)
    }
}

/// Grants after these edits; both are ascending, each grant once.
fn merge(old: &[Grant], edits: &[Edit]) -> Vec<Grant> {
    let mut new = Vec::with_capacity(old.len() + edits.len());
    let mut old = old.iter().copied().peekable();
    for edit in edits {
        new.extend(std::iter::from_fn(|| old.next_if(|grant| *grant < edit.grant)));
        old.next_if_eq(&edit.grant);
        new.extend((!edit.is_withdrawn).then_some(edit.grant));
    }
    new.extend(old);
    new
}

/// In the word of a prefix: there are several, and where. Below are the 40 bits of a grant.
const SEVERAL: u64 = 1 << 41;
/// Behind the last grant of a list; greater than all.
const NOTHING: u64 = u64::MAX;

/// What the word of a prefix says.
enum Grants<'a> {
    One(Grant),
    /// Ascending, two words each.
    Several(&'a [[u32; 2]]),
}

impl<'a> Grants<'a> {
    #[inline]
    fn of(word: u64, lists: &'a Pool) -> Self {
        match list(word) {
            None => Self::One(Grant(word)),
            Some(list) => Self::Several(lists.get(list).as_chunks().0),
        }
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
        let several = several.iter().copied().map(Grant::read);
        one.into_iter().chain(several.take_while(|grant| grant.0 != NOTHING))
    }
}

/// Where the list is, if the word does not say all itself.
#[inline]
fn list(word: u64) -> Option<Handle> {
    (word & SEVERAL != 0).then(|| Handle::from_bits(word as u32))
}

/// The word for these grants, of which there is one at least; `None` if the pool has no room.
fn store(grants: &[Grant], lists: &mut Pool) -> Option<u64> {
    if let [only] = grants {
        return Some(only.0);
    }
    let handle = lists.try_alloc(2 * grants.len())?;
    let padded = grants.iter().map(|grant| grant.0).chain(std::iter::repeat(NOTHING));
    for (pair, grant) in lists.get_mut(handle).as_chunks_mut().0.iter_mut().zip(padded) {
        *pair = [grant as u32, (grant >> 32) as u32];
    }
    Some(SEVERAL | u64::from(handle.bits()))
}

impl VrpTable {
    /// So many VRPs of one prefix hold; of more those of the lowest AS numbers do.
    pub const MOST_OF_A_PREFIX: usize = 1 << 16;

    /// An empty table.
    pub fn new() -> Self {
        Self::default()
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
        self.v4.memory() + self.v6.memory() + self.pool.memory()
    }

    /// How many had no room since the table was made: their prefix had [`Self::MOST_OF_A_PREFIX`], or there was no memory.
    /// They do not hold until they are announced again and there is room.
    pub fn left_out(&self) -> usize {
        self.left_out
    }

    /// Whether it is new, and holds.
    pub fn insert(&mut self, vrp: Vrp) -> bool {
        !self.apply(&[], &[vrp]).is_empty()
    }

    /// Whether it was there.
    pub fn remove(&mut self, vrp: Vrp) -> bool {
        !self.apply(&[vrp], &[]).is_empty()
    }

    /// Applies a difference; what is in both holds. Returns the prefixes of which others hold now, each once, in order.
    ///
    /// The work is that of sorting it, and of writing the runs and lists of its prefixes once.
    pub fn apply(&mut self, withdrawn: &[Vrp], announced: &[Vrp]) -> Vec<Prefix> {
        let withdrawn = withdrawn.iter().map(|vrp| Edit::new(*vrp, true));
        let mut edits: Vec<_> = withdrawn.chain(announced.iter().map(|vrp| Edit::new(*vrp, false))).collect();
        edits.sort_unstable();
        // Of edits of one grant the first stays.
        edits.dedup_by(|edit, first| edit.is_of_prefix(first) && edit.grant == first.grant);
        let mut revised = Vec::new();
        for edits in edits.chunk_by(Edit::is_beside) {
            if self.revise_region(edits, &mut revised).is_err() {
                self.left_out += edits.iter().filter(|edit| !edit.is_withdrawn).count();
                // What is withdrawn may do without more memory.
                let withdrawn: Vec<_> = edits.iter().copied().filter(|edit| edit.is_withdrawn).collect();
                _ = self.revise_region(&withdrawn, &mut revised);
            }
        }
        // They are in order already but for levels.
        revised.sort();
        revised
    }

    /// Makes edits of one region, ascending, each grant once. Prefixes of which others hold now come to `revised`. Without
    /// memory for it all stays as it was.
    fn revise_region(&mut self, edits: &[Edit], revised: &mut Vec<Prefix>) -> Result<(), NoRoom> {
        match edits.first() {
            None => Ok(()),
            Some(first) if first.is_v6() => self.revise_in::<Ipv6Prefix>(edits, revised),
            Some(_) => self.revise_in::<Ipv4Prefix>(edits, revised),
        }
    }

    fn revise_in<P: IpPrefix>(&mut self, edits: &[Edit], revised: &mut Vec<Prefix>) -> Result<(), NoRoom> {
        let Self { v4, v6, pool, len, left_out } = self;
        let runs = if P::WIDTH == Ipv4Prefix::WIDTH { v4 } else { v6 };
        let mut of_prefixes = edits.chunk_by(Edit::is_of_prefix);
        let mut prefixes = of_prefixes.clone().map(|edits| edits[0].prefix::<P>()).peekable();
        let Some(region) = prefixes.peek().map(|prefix| Region::of(*prefix)) else { return Ok(()) };
        let (counts, count) = ((*len, *left_out), revised.len());
        let (mut added, mut dropped) = (Vec::new(), Vec::new());
        let updated = runs.update(pool, region, prefixes, |pool, prefix, word| {
            let edits = of_prefixes.next().unwrap_or_default();
            if let (None, [only]) = (word, edits) {
                let holds = !only.is_withdrawn;
                *len += usize::from(holds);
                revised.extend(holds.then(|| prefix.into()));
                return Ok(holds.then_some(only.grant.0));
            }
            let old: Vec<_> = word.into_iter().flat_map(|word| Grants::of(word, pool).iter()).collect();
            let mut new = merge(&old, edits);
            *left_out += new.len().saturating_sub(Self::MOST_OF_A_PREFIX);
            new.truncate(Self::MOST_OF_A_PREFIX);
            if new == old {
                return Ok(word);
            }
            let stored = if new.is_empty() { None } else { Some(store(&new, pool).ok_or(NoRoom)?) };
            added.extend(stored.and_then(list));
            dropped.extend(word.and_then(list));
            *len = *len - old.len() + new.len();
            revised.push(prefix.into());
            Ok(stored)
        });
        let unused = if updated.is_ok() { dropped } else { added };
        unused.into_iter().for_each(|list| pool.free(list));
        if updated.is_err() {
            (*len, *left_out) = counts;
            revised.truncate(count);
        }
        updated
    }

    /// What VRPs say of a route to `prefix` that comes from `origin` (RFC 6811 section 2).
    #[inline]
    pub fn validate(&self, prefix: Prefix, origin: Option<Asn>) -> Validity {
        match prefix {
            Prefix::V4(prefix) => self.validate_in(prefix, origin),
            Prefix::V6(prefix) => self.validate_in(prefix, origin),
        }
    }

    /// The same where the family is known.
    #[inline]
    pub fn validate_in<P: IpPrefix>(&self, prefix: P, origin: Option<Asn>) -> Validity {
        let (length, mut verdict) = (prefix.length(), Validity::NotFound);
        // AS 0 stands for nobody, whoever calls itself so (RFC 6483 section 4, RFC 7607).
        let origin = origin.filter(|origin| *origin != Asn(0));
        let is_valid = self.runs::<P>().any_covering(&self.pool, prefix, |word| {
            verdict = Validity::Invalid;
            origin.is_some_and(|origin| Grants::of(word, &self.pool).allow(length, origin))
        });
        if is_valid { Validity::Valid } else { verdict }
    }

    /// The VRPs that cover a prefix, those of the shortest prefix first.
    pub fn covering(&self, prefix: Prefix) -> Vec<Vrp> {
        match prefix {
            Prefix::V4(prefix) => self.covering_in(prefix),
            Prefix::V6(prefix) => self.covering_in(prefix),
        }
    }

    fn covering_in<P: IpPrefix>(&self, prefix: P) -> Vec<Vrp> {
        let covering = self.runs::<P>().covering(&self.pool, prefix).into_iter().rev();
        covering.flat_map(|(prefix, word)| self.vrps(prefix, word)).collect()
    }

    /// All: IPv4 first, and of the prefixes of a family those of up to 16 bits first, and so on in steps of 16 bits, each in
    /// order.
    pub fn iter(&self) -> impl Iterator<Item = Vrp> {
        let v4 = self.v4.iter::<Ipv4Prefix>(&self.pool).flat_map(|(prefix, word)| self.vrps(prefix, word));
        v4.chain(self.v6.iter::<Ipv6Prefix>(&self.pool).flat_map(|(prefix, word)| self.vrps(prefix, word)))
    }

    #[inline]
    fn runs<P: IpPrefix>(&self) -> &Runs {
        if P::WIDTH == Ipv4Prefix::WIDTH { &self.v4 } else { &self.v6 }
    }

    fn vrps(&self, prefix: impl Into<Prefix>, word: u64) -> impl Iterator<Item = Vrp> {
        let prefix = prefix.into();
        Grants::of(word, &self.pool).iter().filter_map(move |grant| vrp(prefix, grant))
    }
}

/// It fits, as it was one when it was taken in.
fn vrp(prefix: Prefix, grant: Grant) -> Option<Vrp> {
    Vrp::new(prefix, grant.max_length(), grant.asn()).ok()
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
            let mut table = VrpTable::new();
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
        let mut table = VrpTable::new();
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

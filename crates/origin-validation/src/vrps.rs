//! Validated ROA payloads, and what they say of an origin (RFC 6811).

use holdfast_policy::{PathElement, Validity};
use holdfast_prefix_table::{Handle, Pool, PrefixTable};
use holdfast_types::{Asn, IpPrefix, Ipv4Prefix, Ipv6Prefix, Prefix, Vrp};

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
}

/// Who may originate a prefix up to a length: the length above the AS, so that they fit beside each other in a word.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Grant(u64);

impl Grant {
    fn new(vrp: Vrp) -> Self {
        Self(u64::from(vrp.max_length()) << 32 | u64::from(vrp.asn().0))
    }

    fn max_length(self) -> u8 {
        (self.0 >> 32) as u8
    }

    fn asn(self) -> Asn {
        Asn(self.0 as u32)
    }

    /// AS 0 stands for nobody, whoever calls itself so (RFC 6483 section 4, RFC 7607).
    #[inline]
    fn allows(self, length: u8, origin: Asn) -> bool {
        self.asn() == origin && origin != Asn(0) && length <= self.max_length()
    }

    fn read(words: &[u32]) -> Self {
        Self(u64::from(words[1]) << 32 | u64::from(words[0]))
    }
}

/// In a table's word: there are several, and where.
const SEVERAL: u64 = 1 << 63;

/// What a table's word says.
enum Grants<'a> {
    One(Grant),
    /// Two words each.
    Several(&'a [u32]),
}

impl<'a> Grants<'a> {
    #[inline]
    fn of(word: u64, lists: &'a Pool) -> Self {
        if word & SEVERAL == 0 {
            return Self::One(Grant(word));
        }
        let (_, count) = list(word);
        Self::Several(&lists.get(list(word).0)[..2 * count])
    }

    fn iter(self) -> impl Iterator<Item = Grant> + 'a {
        let (one, several) = match self {
            Self::One(grant) => (Some(grant), [].as_slice()),
            Self::Several(words) => (None, words),
        };
        one.into_iter().chain(several.chunks_exact(2).map(Grant::read))
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
    for (words, grant) in lists.get_mut(handle).chunks_exact_mut(2).zip(grants) {
        (words[0], words[1]) = (grant.0 as u32, (grant.0 >> 32) as u32);
    }
    Some(SEVERAL | (grants.len() as u64) << 32 | u64::from(handle.bits()))
}

fn free(word: u64, lists: &mut Pool) {
    if word & SEVERAL != 0 {
        lists.free(list(word).0);
    }
}

impl VrpTable {
    /// An empty table. `seed` goes into its hashes.
    pub fn new(seed: u64) -> Self {
        Self { v4: PrefixTable::new(seed), v6: PrefixTable::new(seed), lists: Pool::new(), len: 0 }
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

    /// Whether it is new. (Neither is one for which no memory is left: 16 GiB.)
    pub fn insert(&mut self, vrp: Vrp) -> bool {
        self.edit(vrp, |grants, grant| match grants.binary_search(&grant) {
            Ok(_) => false,
            Err(at) => {
                grants.insert(at, grant);
                true
            }
        })
    }

    /// Whether it was there.
    pub fn remove(&mut self, vrp: Vrp) -> bool {
        self.edit(vrp, |grants, grant| {
            let found = grants.binary_search(&grant);
            found.iter().for_each(|at| {
                grants.remove(*at);
            });
            found.is_ok()
        })
    }

    /// Has the grants of a prefix changed; returns what `change` says: whether they are others.
    fn edit(&mut self, vrp: Vrp, change: impl FnOnce(&mut Vec<Grant>, Grant) -> bool) -> bool {
        let lists = &mut self.lists;
        let mut by = 0;
        let revise = |word: Option<u64>| {
            let mut grants: Vec<_> =
                word.map(|word| Grants::of(word, lists).iter().collect()).unwrap_or_default();
            let before = grants.len();
            if !change(&mut grants, Grant::new(vrp)) {
                return word;
            }
            let new = if grants.is_empty() { None } else { Some(store(&grants, lists)) };
            let Some(new) = new.map_or(Some(None), |stored| stored.map(Some)) else { return word };
            word.iter().for_each(|word| free(*word, lists));
            by = grants.len() as isize - before as isize;
            new
        };
        match vrp.prefix() {
            Prefix::V4(prefix) => _ = self.v4.update(prefix, revise),
            Prefix::V6(prefix) => _ = self.v6.update(prefix, revise),
        }
        self.len = self.len.saturating_add_signed(by);
        by != 0
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
        let allows = |grant: Grant| origin.is_some_and(|origin| grant.allows(length, origin));
        let is_valid = table.any_covering(prefix, |word| {
            verdict = Validity::Invalid;
            match Grants::of(word, &self.lists) {
                Grants::One(grant) => allows(grant),
                several @ Grants::Several(_) => several.iter().any(allows),
            }
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

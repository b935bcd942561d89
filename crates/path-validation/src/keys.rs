//! Routers' public keys (RFC 8205 section 5.2, RFC 8210 section 5.10).
//!
//! A key of suite 1 has 91 octets as they come, of which 27 are always the same, and its SKI is the SHA-1 of the others: what is
//! stored is 68 octets, AS and the point. Keys of other forms, points that are on no curve, and keys with another SKI are stored
//! whole beside them: what a cache withdraws is what it has announced.

use std::{
    borrow::Cow,
    collections::BTreeSet,
    hash::{Hash, Hasher},
    sync::{Arc, Mutex, PoisonError, RwLock},
};

use hashbrown::HashTable;
use holdfast_bgpsec_wire::Ski;
use holdfast_types::{Asn, RouterKey};
use siphasher::sip::SipHasher13;

use crate::{
    p256,
    records::{Point, Record, Records},
};

/// What has become of a key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Change {
    /// It is there from now on.
    Announce(RouterKey),
    /// It is not any more.
    Withdraw(RouterKey),
}

/// What changes have come to.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Applied {
    /// AS and SKI for which keys have come or gone: paths with signatures of them may have another verdict now.
    pub changed: BTreeSet<(Asn, Ski)>,
    /// How many were announced that were there already.
    pub duplicates: usize,
    /// How many were withdrawn that were not there.
    pub unknown: usize,
    /// How many were not taken, as there are as many of their AS and SKI as may be.
    pub refused: usize,
}

/// Keys of an AS and SKI at most, if [`KeyTable::set_most_of_a_name`] says nothing else: each of them may have to be tried for a
/// signature that names them. There is no reason for a second one, as an SKI is a hash of the key.
pub const MOST_OF_A_NAME: usize = 8;

/// Routers' keys, which change. Shared by reference between threads.
#[derive(Debug)]
pub struct KeyTable {
    now: RwLock<Arc<Keys>>,
    /// Held by whoever changes it, from what is there to what comes in its place.
    writer: Mutex<()>,
}

impl KeyTable {
    /// Without keys. The seed is to be random: who chooses keys must not choose where they are in the table.
    pub fn new(seed: [u64; 2]) -> Self {
        Self { now: RwLock::new(Arc::new(Keys::new(seed))), writer: Mutex::new(()) }
    }

    /// Has as many keys of an AS and SKI, at most. Keys that are there stay, also if there are more.
    pub fn set_most_of_a_name(&self, most: usize) {
        let _turn = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        let keys = Arc::new(Keys { most_of_a_name: most, ..Keys::clone(&self.keys()) });
        let _before = std::mem::replace(&mut *self.now.write().unwrap_or_else(PoisonError::into_inner), keys);
    }

    /// As it is now. Waits for nobody: a change is made beside it.
    pub fn keys(&self) -> Arc<Keys> {
        Arc::clone(&self.now.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Changes it, in this order; whoever looks meanwhile sees none of the changes, and all of them afterwards. Who else changes it
    /// waits for its turn, so `changes` must not do so themselves.
    pub fn apply(&self, changes: impl IntoIterator<Item = Change>) -> Applied {
        let _turn = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        let mut applied = Applied::default();
        let mut keys = Keys::clone(&self.keys());
        for change in changes {
            keys.change(change, &mut applied);
        }
        if !applied.changed.is_empty() {
            keys.epoch += 1;
            keys.shrink();
            let keys = Arc::new(keys);
            // What was there is dropped behind the lock.
            let _before =
                std::mem::replace(&mut *self.now.write().unwrap_or_else(PoisonError::into_inner), keys);
        }
        applied
    }
}

/// Routers' keys as they were at one time.
#[derive(Clone, Debug)]
pub struct Keys {
    seed: [u64; 2],
    epoch: u64,
    /// Keys of P-256, in no order.
    records: Records,
    /// Where in `records` the keys of an AS and SKI are.
    index: HashTable<u32>,
    /// All others, which are none or a handful.
    others: BTreeSet<RouterKey>,
    sum: u128,
    most_of_a_name: usize,
}

impl Keys {
    fn new(seed: [u64; 2]) -> Self {
        let (records, index, others) = (Records::default(), HashTable::new(), BTreeSet::new());
        Self { seed, epoch: 0, records, index, others, sum: 0, most_of_a_name: MOST_OF_A_NAME }
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.records.len() + self.others.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Grows with each change of the table.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// The same for the same keys, whatever the seed, and how they came to be there: two processes compare their tables by
    /// it. It is a sum of hashes, so whoever chooses many keys can find others with the same sum.
    pub fn sum(&self) -> u128 {
        self.sum
    }

    /// All keys of an AS and SKI, of which there are [a few at most](MOST_OF_A_NAME): an SKI is a hash of 160 bits that anybody can claim.
    pub fn of(&self, asn: Asn, ski: Ski) -> impl Iterator<Item = StoredKey<'_>> {
        let points = self
            .index
            .iter_hash(hash(self.seed, asn, ski))
            .map(|at| self.records.at(*at))
            .filter(move |record| record.asn == asn && ski_of(record) == ski)
            .map(|record| StoredKey(Form::Point(&record.point)));
        let first = RouterKey { asn, ski, spki: Vec::new() };
        let others = self.others.range(first..).take_while(move |key| (key.asn, key.ski) == (asn, ski));
        points.chain(others.map(|key| StoredKey(Form::Whole(&key.spki))))
    }

    /// Whether this key is among them.
    pub fn contains(&self, key: &RouterKey) -> bool {
        self.of(key.asn, key.ski).any(|stored| *stored.spki() == *key.spki)
    }

    /// All of them, in no order.
    pub fn iter(&self) -> impl Iterator<Item = RouterKey> {
        let points = self.records.iter().map(|record| RouterKey {
            asn: record.asn,
            ski: ski_of(record),
            spki: StoredKey(Form::Point(&record.point)).spki().into_owned(),
        });
        points.chain(self.others.iter().cloned())
    }

    /// Octets of memory, without those of the allocator: at most 80 for each key of P-256, and a few hundred. What this shares
    /// with the table as it was at other times counts here as well.
    pub fn memory(&self) -> usize {
        let other = |key: &RouterKey| size_of::<RouterKey>() + key.spki.capacity();
        let others = self.others.iter().map(other).sum::<usize>();
        size_of::<Self>() + self.records.memory() + self.index.allocation_size() + others
    }

    fn change(&mut self, change: Change, applied: &mut Applied) {
        let (Change::Announce(key) | Change::Withdraw(key)) = &change;
        let (name, hash) = ((key.asn, key.ski), p256::hash_of_key(key));
        if let Change::Announce(key) = &change
            && self.of(key.asn, key.ski).count() >= self.most_of_a_name
            && !self.contains(key)
        {
            applied.refused += 1;
            return;
        }
        let (is_done, sum, otherwise) = match change {
            Change::Announce(key) => {
                (self.announce(key), self.sum.wrapping_add(hash), &mut applied.duplicates)
            }
            Change::Withdraw(key) => (self.withdraw(&key), self.sum.wrapping_sub(hash), &mut applied.unknown),
        };
        if is_done {
            self.sum = sum;
            applied.changed.insert(name);
        } else {
            *otherwise += 1;
        }
    }

    /// Gives back what is reserved.
    fn shrink(&mut self) {
        let (seed, records) = (self.seed, &self.records);
        let hash_of = |at: &u32| hash(seed, records.at(*at).asn, ski_of(records.at(*at)));
        self.index.shrink_to_fit(hash_of);
        self.records.shrink();
    }

    /// Whether it is new.
    fn announce(&mut self, key: RouterKey) -> bool {
        let Some(record) = record_of(&key) else { return self.others.insert(key) };
        let seed = self.seed;
        let hash_of = |record: &Record| hash(seed, record.asn, ski_of(record));
        if self.index.find(hash_of(&record), |at| *self.records.at(*at) == record).is_some() {
            return false;
        }
        let at = self.records.len() as u32;
        self.records.push(record);
        let records = &self.records;
        self.index.insert_unique(hash_of(&record), at, |at| hash_of(records.at(*at)));
        true
    }

    /// Whether it was there.
    fn withdraw(&mut self, key: &RouterKey) -> bool {
        let Some(record) = record_of(key) else { return self.others.remove(key) };
        let hash_of = |record: &Record| hash(self.seed, record.asn, ski_of(record));
        let found = self.index.find_entry(hash_of(&record), |at| *self.records.at(*at) == record);
        let Ok(entry) = found else { return false };
        let (at, _) = entry.remove();
        let last = self.records.len() as u32 - 1;
        if at != last {
            let moved = hash_of(self.records.at(last));
            if let Some(place) = self.index.find_mut(moved, |place| *place == last) {
                *place = at;
            }
        }
        self.records.swap_remove(at);
        true
    }
}

/// What a record is called, which is not stored.
fn ski_of(record: &Record) -> Ski {
    p256::ski(&record.point)
}

/// `None`: it is stored whole.
fn record_of(key: &RouterKey) -> Option<Record> {
    let point =
        p256::point(&key.spki).filter(|point| p256::ski(point) == key.ski && p256::is_on_curve(point))?;
    Some(Record { asn: key.asn, point })
}

fn hash(seed: [u64; 2], asn: Asn, ski: Ski) -> u64 {
    let mut hasher = SipHasher13::new_with_keys(seed[0], seed[1]);
    (asn.0, ski.0).hash(&mut hasher);
    hasher.finish()
}

/// A key in the table.
#[derive(Copy, Clone, Debug)]
pub struct StoredKey<'a>(pub(crate) Form<'a>);

#[derive(Copy, Clone, Debug)]
pub(crate) enum Form<'a> {
    /// On P-256, with its own name.
    Point(&'a Point),
    /// Anything else.
    Whole(&'a [u8]),
}

impl<'a> StoredKey<'a> {
    /// The subjectPublicKeyInfo, as it was announced.
    pub fn spki(self) -> Cow<'a, [u8]> {
        match self.0 {
            Form::Point(point) => Cow::Owned(p256::spki(point)),
            Form::Whole(spki) => Cow::Borrowed(spki),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::P256Signer;

    #[test]
    fn tables_with_the_same_keys_have_the_same_sum_whatever_has_been_there() {
        let signers = [7, 7, 9].map(|asn| P256Signer::generate(Asn(asn)).expect("randomness"));
        let [one, two, three] = signers.map(|signer| signer.router_key());
        let odd = RouterKey { asn: Asn(7), ski: one.ski, spki: vec![1, 2, 3] };
        let (table, other) = (KeyTable::new([1, 2]), KeyTable::new([3, 4]));
        assert_eq!(table.keys().sum(), 0);
        let announce =
            |keys: &[&RouterKey]| keys.iter().map(|key| Change::Announce((*key).clone())).collect::<Vec<_>>();
        table.apply(announce(&[&one, &two, &odd, &one]));
        other.apply(announce(&[&odd, &three, &two]));
        assert_ne!(table.keys().sum(), other.keys().sum());
        let gone = [Change::Withdraw(three.clone()), Change::Withdraw(three), Change::Announce(one)];
        other.apply(gone);
        assert_eq!(table.keys().sum(), other.keys().sum());
    }
}

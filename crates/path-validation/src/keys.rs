//! Routers' public keys (RFC 8205 section 5.2, RFC 8210 section 5.10).
//!
//! A key of suite 1 has 91 octets as they come, of which 27 are always the same: what is stored is 88 octets, AS, SKI and the
//! point. Keys of other forms, and points that are on no curve, are stored whole beside them: what a cache withdraws is what it
//! has announced.

use std::{
    borrow::Cow,
    collections::BTreeSet,
    hash::{Hash, Hasher},
    sync::{Arc, PoisonError, RwLock},
};

use hashbrown::HashTable;
use holdfast_bgpsec_wire::Ski;
use holdfast_types::{Asn, RouterKey};
use siphasher::sip::SipHasher13;

use crate::p256;

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
}

/// Routers' keys, which change. Shared by reference between threads.
#[derive(Debug)]
pub struct KeyTable(RwLock<Arc<Keys>>);

impl KeyTable {
    /// Without keys. The seed is to be random: who chooses keys must not choose where they are in the table.
    pub fn new(seed: [u64; 2]) -> Self {
        Self(RwLock::new(Arc::new(Keys::new(seed))))
    }

    /// As it is now.
    pub fn keys(&self) -> Arc<Keys> {
        Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Changes it, in this order; whoever looks meanwhile sees all of the changes or none.
    pub fn apply(&self, changes: impl IntoIterator<Item = Change>) -> Applied {
        // What somebody holds is left as it is, and a copy changed. Who asks for the keys meanwhile waits for all of it.
        let mut applied = Applied::default();
        let mut keys = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let changed = Arc::make_mut(&mut keys);
        for change in changes {
            changed.change(change, &mut applied);
        }
        changed.epoch += u64::from(!applied.changed.is_empty());
        applied
    }
}

/// Octets of a point on a curve of 256 bits: x and y.
pub(crate) type Point = [u8; 64];

#[derive(Copy, Clone, PartialEq, Eq, Debug)]
struct Record {
    asn: Asn,
    ski: Ski,
    point: Point,
}

/// Routers' keys as they were at one time.
#[derive(Clone, Debug)]
pub struct Keys {
    seed: [u64; 2],
    epoch: u64,
    /// Keys of P-256, in no order.
    records: Vec<Record>,
    /// Where in `records` the keys of an AS and SKI are.
    index: HashTable<u32>,
    /// All others, which are none or a handful.
    others: BTreeSet<RouterKey>,
}

impl Keys {
    fn new(seed: [u64; 2]) -> Self {
        Self { seed, epoch: 0, records: Vec::new(), index: HashTable::new(), others: BTreeSet::new() }
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

    /// All keys of an AS and SKI. There may be several: an SKI is a hash of 160 bits that anybody can claim.
    pub fn of(&self, asn: Asn, ski: Ski) -> impl Iterator<Item = StoredKey<'_>> {
        let points = self
            .index
            .iter_hash(hash(self.seed, asn, ski))
            .map(|at| &self.records[*at as usize])
            .filter(move |record| (record.asn, record.ski) == (asn, ski))
            .map(|record| StoredKey(Form::Point(&record.point)));
        let first = RouterKey { asn, ski, spki: Vec::new() };
        let others = self.others.range(first..).take_while(move |key| (key.asn, key.ski) == (asn, ski));
        points.chain(others.map(|key| StoredKey(Form::Whole(&key.spki))))
    }

    /// All of them, in no order.
    pub fn iter(&self) -> impl Iterator<Item = RouterKey> {
        let points = self.records.iter().map(|record| RouterKey {
            asn: record.asn,
            ski: record.ski,
            spki: StoredKey(Form::Point(&record.point)).spki().into_owned(),
        });
        points.chain(self.others.iter().cloned())
    }

    fn change(&mut self, change: Change, applied: &mut Applied) {
        let (key, is_done) = match change {
            Change::Announce(key) => ((key.asn, key.ski), self.announce(key)),
            Change::Withdraw(key) => {
                let name = (key.asn, key.ski);
                let is_done = self.withdraw(&key);
                applied.unknown += usize::from(!is_done);
                if is_done {
                    applied.changed.insert(name);
                }
                return;
            }
        };
        applied.duplicates += usize::from(!is_done);
        if is_done {
            applied.changed.insert(key);
        }
    }

    /// Whether it is new.
    fn announce(&mut self, key: RouterKey) -> bool {
        let Some(point) = p256::point(&key.spki).filter(p256::is_on_curve) else {
            return self.others.insert(key);
        };
        let (seed, record) = (self.seed, Record { asn: key.asn, ski: key.ski, point });
        let hash_of = |record: &Record| hash(seed, record.asn, record.ski);
        if self.index.find(hash_of(&record), |at| self.records[*at as usize] == record).is_some() {
            return false;
        }
        // Half as much again as doubling would waste: keys are what fills this table.
        if self.records.len() == self.records.capacity() {
            self.records.reserve_exact(self.records.len() / 8 + 16);
        }
        let at = self.records.len() as u32;
        self.records.push(record);
        let records = &self.records;
        self.index.insert_unique(hash_of(&record), at, |at| hash_of(&records[*at as usize]));
        true
    }

    /// Whether it was there.
    fn withdraw(&mut self, key: &RouterKey) -> bool {
        let Some(point) = p256::point(&key.spki).filter(p256::is_on_curve) else {
            return self.others.remove(key);
        };
        let record = Record { asn: key.asn, ski: key.ski, point };
        let hash_of = |record: &Record| hash(self.seed, record.asn, record.ski);
        let found = self.index.find_entry(hash_of(&record), |at| self.records[*at as usize] == record);
        let Ok(entry) = found else { return false };
        let (at, _) = entry.remove();
        let last = self.records.len() as u32 - 1;
        if at != last {
            let moved = hash_of(&self.records[last as usize]);
            if let Some(place) = self.index.find_mut(moved, |place| *place == last) {
                *place = at;
            }
        }
        self.records.swap_remove(at as usize);
        true
    }
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
    /// On P-256.
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

//! Signatures that were found good.
//!
//! The older part of a path is the same in many UPDATEs: routes that flap, refreshes, paths that come by several peers. What is
//! kept of a signature is 16 octets of a keyed hash over suite, key, digest and signature, so nobody without the seed can make another
//! one that is taken for it. Only good ones are kept: who sends bad ones fills nothing.

use std::{
    hash::Hasher,
    mem::take,
    sync::{Mutex, MutexGuard, PoisonError},
};

use hashbrown::HashTable;
use siphasher::sip128::{Hasher128, SipHasher13};

use crate::{keys::StoredKey, suite::Digest};

/// Parts that are locked by themselves.
const SHARDS: usize = 16;

/// A memory of good signatures, of bounded size. Shared by reference between threads.
pub struct VerifiedSignatures {
    seed: [u64; 2],
    /// Of a generation in a shard.
    most: usize,
    shards: [Mutex<Shard>; SHARDS],
}

/// Two generations: what is asked for again moves to the young one, and when that is full, the old one goes.
#[derive(Default)]
struct Shard {
    young: HashTable<u128>,
    old: HashTable<u128>,
}

impl Shard {
    fn keep(&mut self, fingerprint: u128, most: usize) {
        if self.young.len() >= most {
            self.old = take(&mut self.young);
        }
        self.young.insert_unique(place(fingerprint), fingerprint, |other| place(*other));
    }

    fn has(&mut self, fingerprint: u128, most: usize) -> bool {
        let is_it = |other: &u128| *other == fingerprint;
        if self.young.find(place(fingerprint), is_it).is_some() {
            return true;
        }
        let Ok(known) = self.old.find_entry(place(fingerprint), is_it) else { return false };
        known.remove();
        self.keep(fingerprint, most);
        true
    }
}

/// A fingerprint is a keyed hash.
fn place(fingerprint: u128) -> u64 {
    fingerprint as u64
}

impl VerifiedSignatures {
    /// For so many signatures at most; half of them, those that were used last, are remembered in any case. Memory comes with the
    /// signatures: 20 to 40 octets each. The seed is to be random.
    pub fn new(signatures: usize, seed: [u64; 2]) -> Self {
        let most = (signatures / (2 * SHARDS)).max(1);
        Self { seed, most, shards: Default::default() }
    }

    /// Octets that it takes now, without those of the allocator.
    pub fn memory(&self) -> usize {
        let of_shard = |shard: &Mutex<Shard>| {
            let shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
            shard.young.allocation_size() + shard.old.allocation_size()
        };
        size_of::<Self>() + self.shards.iter().map(of_shard).sum::<usize>()
    }

    pub(crate) fn fingerprint(
        &self,
        suite: u8,
        key: StoredKey<'_>,
        digest: &Digest,
        signature: &[u8],
    ) -> u128 {
        let mut hasher = SipHasher13::new_with_keys(self.seed[0], self.seed[1]);
        hasher.write_u8(suite);
        for part in [&key.spki()[..], digest.as_ref(), signature] {
            hasher.write_u64(part.len() as u64);
            hasher.write(part);
        }
        hasher.finish128().as_u128()
    }

    pub(crate) fn has(&self, fingerprint: u128) -> bool {
        self.shard(fingerprint).has(fingerprint, self.most)
    }

    pub(crate) fn insert(&self, fingerprint: u128) {
        let mut shard = self.shard(fingerprint);
        // Another thread may have found it good meanwhile.
        if !shard.has(fingerprint, self.most) {
            shard.keep(fingerprint, self.most);
        }
    }

    fn shard(&self, fingerprint: u128) -> MutexGuard<'_, Shard> {
        let shard = &self.shards[(fingerprint >> 64) as usize % SHARDS];
        shard.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for VerifiedSignatures {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("VerifiedSignatures").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As a hash would be.
    fn fingerprints(count: u64) -> impl Iterator<Item = u128> {
        (0..count).map(|number| {
            let mut hasher = SipHasher13::new_with_keys(7, 8);
            hasher.write_u64(number);
            hasher.finish128().as_u128()
        })
    }

    #[test]
    fn memory_comes_with_the_signatures() {
        let memory = VerifiedSignatures::new(1_000_000, [1, 2]);
        assert!(memory.memory() < 4096);
        for count in [5_000, 25_000, 100_000] {
            fingerprints(count).for_each(|fingerprint| memory.insert(fingerprint));
            assert!(fingerprints(count).all(|fingerprint| memory.has(fingerprint)));
            let each = memory.memory() as u64 / count;
            assert!((17..=42).contains(&each), "{each} octets for each of {count}");
        }
    }

    #[test]
    fn what_was_used_last_is_remembered_and_there_is_a_bound() {
        const MOST: usize = 16_000;
        let memory = VerifiedSignatures::new(MOST, [1, 2]);
        let all: Vec<_> = fingerprints(10 * MOST as u64).collect();
        let (often, once) = all.split_at(100);
        often.iter().for_each(|fingerprint| memory.insert(*fingerprint));
        for part in once.chunks(1_000) {
            part.iter().for_each(|fingerprint| memory.insert(*fingerprint));
            assert!(often.iter().all(|fingerprint| memory.has(*fingerprint)));
            assert!(memory.memory() <= 42 * MOST, "{}", memory.memory());
        }
        assert!(once.iter().rev().take(MOST / 4).all(|fingerprint| memory.has(*fingerprint)));
        assert!(
            !once.iter().take(MOST).any(|fingerprint| memory.has(*fingerprint)),
            "what was used long ago"
        );
    }
}

//! Signatures that were found good.
//!
//! The older part of a path is the same in many UPDATEs: routes that flap, refreshes, paths that come by several peers. What is
//! kept of a signature is 16 octets of a keyed hash over suite, key, digest and signature, so nobody without the seed can make another
//! one that is taken for it. Only good ones are kept: who sends bad ones fills nothing.

use std::{
    hash::Hasher,
    sync::{Mutex, PoisonError},
};

use siphasher::sip128::{Hasher128, SipHasher13};

use crate::{keys::StoredKey, suite::Digest};

/// Places where one signature may be.
const WAYS: usize = 4;
/// Parts that are locked by themselves.
const SHARDS: usize = 16;

/// A memory of good signatures, of fixed size. Shared by reference between threads.
pub struct VerifiedSignatures {
    seed: [u64; 2],
    shards: [Mutex<Shard>; SHARDS],
}

struct Shard {
    /// 0: nothing there.
    sets: Box<[[u128; WAYS]]>,
    /// Which way the next one that finds all four taken goes.
    next: usize,
}

impl VerifiedSignatures {
    /// For about so many signatures, 16 octets each. The seed is to be random. The kernel gives a page of memory only when a
    /// signature is kept there.
    pub fn new(signatures: usize, seed: [u64; 2]) -> Self {
        let sets = signatures.div_ceil(WAYS * SHARDS).max(1);
        let shard = || Mutex::new(Shard { sets: vec![[0; WAYS]; sets].into(), next: 0 });
        Self { seed, shards: std::array::from_fn(|_| shard()) }
    }

    /// Octets that it takes when it is full, without those of the allocator.
    pub fn memory(&self) -> usize {
        let sets = |shard: &Mutex<Shard>| shard.lock().unwrap_or_else(PoisonError::into_inner).sets.len();
        size_of::<Self>() + self.shards.iter().map(sets).sum::<usize>() * size_of::<[u128; WAYS]>()
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
        let (shard, at) = self.place(fingerprint);
        let shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
        shard.sets[at % shard.sets.len()].contains(&fingerprint)
    }

    pub(crate) fn insert(&self, fingerprint: u128) {
        let (shard, at) = self.place(fingerprint);
        let mut shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
        let next = shard.next;
        let at = at % shard.sets.len();
        let set = &mut shard.sets[at];
        if set.contains(&fingerprint) {
            return;
        }
        match set.iter_mut().find(|way| **way == 0) {
            Some(free) => *free = fingerprint,
            None => {
                set[next % WAYS] = fingerprint;
                shard.next = next.wrapping_add(1);
            }
        }
    }

    fn place(&self, fingerprint: u128) -> (&Mutex<Shard>, usize) {
        (&self.shards[(fingerprint >> 64) as usize % SHARDS], fingerprint as u64 as usize)
    }
}

impl std::fmt::Debug for VerifiedSignatures {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("VerifiedSignatures").finish_non_exhaustive()
    }
}

//! Keyed hashes for tables whose keys come from the network.

use std::{
    fmt,
    hash::{BuildHasher, Hasher},
};

use siphasher::sip::SipHasher13;

/// The secret of a hash table. Hashes are SipHash-1-3: who does not know the key cannot make values that collide, though the
/// function is public. That is not so for a fast hash with a secret seed.
#[derive(Copy, Clone, PartialEq, Eq)]
pub struct HashKey([u64; 2]);

impl HashKey {
    /// From two words that nobody outside can guess.
    pub fn new(words: [u64; 2]) -> Self {
        Self(words)
    }
}

impl fmt::Debug for HashKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HashKey")
    }
}

impl BuildHasher for HashKey {
    type Hasher = KeyedHasher;

    #[inline]
    fn build_hasher(&self) -> KeyedHasher {
        let [first, second] = self.0;
        KeyedHasher(SipHasher13::new_with_keys(first, second))
    }
}

/// Hashes one value with a [`HashKey`].
#[derive(Clone, Debug)]
pub struct KeyedHasher(SipHasher13);

impl Hasher for KeyedHasher {
    #[inline]
    fn write(&mut self, octets: &[u8]) {
        self.0.write(octets);
    }

    #[inline]
    fn write_u8(&mut self, value: u8) {
        self.0.write_u8(value);
    }

    #[inline]
    fn write_u16(&mut self, value: u16) {
        self.0.write_u16(value);
    }

    #[inline]
    fn write_u32(&mut self, value: u32) {
        self.0.write_u32(value);
    }

    #[inline]
    fn write_u64(&mut self, value: u64) {
        self.0.write_u64(value);
    }

    // An address: two whole words, which `SipHasher13` takes as octets otherwise.
    #[inline]
    fn write_u128(&mut self, value: u128) {
        self.0.write_u64(value as u64);
        self.0.write_u64((value >> 64) as u64);
    }

    #[inline]
    fn write_usize(&mut self, value: usize) {
        self.0.write_usize(value);
    }

    #[inline]
    fn finish(&self) -> u64 {
        self.0.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_key_is_another_hash() {
        let [one, other] = [[1, 2], [1, 3]].map(HashKey::new);
        for value in [0_u128, 1, u128::MAX] {
            assert_eq!(one.hash_one(value), one.hash_one(value));
            assert_ne!(one.hash_one(value), other.hash_one(value), "{value:x}");
        }
    }

    /// Where a factor is zero, a hash that multiplies gives the same for whatever the other is.
    #[test]
    fn an_address_with_a_public_constant_in_it_is_like_any_other() {
        const FOLDED: u128 = 0xc0ac_29b7_c97c_50dd;
        let key = HashKey::new([7, 8]);
        let mut hashes: Vec<u64> = (0..1000).map(|host| key.hash_one(FOLDED << 64 | host)).collect();
        hashes.sort_unstable();
        hashes.dedup();
        assert_eq!(hashes.len(), 1000);
    }

    #[test]
    fn a_key_is_not_printed() {
        assert_eq!(format!("{:?}", HashKey::new([0x1234, 0x5678])), "HashKey");
    }
}

//! A router's key as the data of caches have it: once in memory, whichever sets it is in.
//!
//! Nearly all keys are of P-256, whose subjectPublicKeyInfo is the same 27 octets and a point. Such a key takes 128 octets of
//! the heap, and a pointer in each set that has it: in the data of each cache which says it, and in deltas.

use std::{borrow::Borrow, sync::Arc};

use holdfast_types::{Asn, RouterKey, SPKI_P256, Ski};

/// A key that several sets share. Ordered by AS and SKI.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Key(Arc<Stored>);

/// What it is.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Stored {
    pub(crate) asn: Asn,
    pub(crate) ski: Ski,
    spki: Spki,
}

/// A subjectPublicKeyInfo.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Spki {
    /// What follows [`SPKI_P256`].
    P256([u8; 64]),
    /// All of any other.
    Other(Box<[u8]>),
}

impl Stored {
    /// Octets of the subjectPublicKeyInfo.
    pub(crate) fn spki_len(&self) -> usize {
        match &self.spki {
            Spki::P256(point) => SPKI_P256.len() + point.len(),
            Spki::Other(spki) => spki.len(),
        }
    }
}

impl From<&RouterKey> for Stored {
    fn from(RouterKey { asn, ski, spki }: &RouterKey) -> Self {
        let point = spki.strip_prefix(&SPKI_P256).and_then(|point| point.try_into().ok());
        let spki = point.map_or_else(|| Spki::Other(spki.as_slice().into()), Spki::P256);
        Self { asn: *asn, ski: *ski, spki }
    }
}

impl From<Stored> for Key {
    fn from(stored: Stored) -> Self {
        Self(Arc::new(stored))
    }
}

impl From<&Key> for RouterKey {
    fn from(Key(stored): &Key) -> Self {
        let spki = match &stored.spki {
            Spki::P256(point) => [&SPKI_P256[..], point].concat(),
            Spki::Other(spki) => spki.to_vec(),
        };
        Self { asn: stored.asn, ski: stored.ski, spki }
    }
}

impl Borrow<Stored> for Key {
    fn borrow(&self) -> &Stored {
        &self.0
    }
}

impl std::ops::Deref for Key {
    type Target = Stored;

    fn deref(&self) -> &Stored {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_small_and_what_it_was() {
        assert_eq!((size_of::<Key>(), size_of::<Stored>()), (8, 96));
        let point = [7; 64];
        let whole = [&SPKI_P256[..], &point].concat();
        for spki in [whole.clone(), whole[..90].to_vec(), [&whole[..], &[0]].concat(), vec![], vec![1; 91]] {
            let key = RouterKey { asn: Asn(64496), ski: Ski([1; 20]), spki };
            let stored = Stored::from(&key);
            assert_eq!(matches!(stored.spki, Spki::P256(_)), key.spki == whole);
            assert_eq!(stored.spki_len(), key.spki.len());
            assert_eq!(RouterKey::from(&Key::from(stored)), key);
        }
    }
}

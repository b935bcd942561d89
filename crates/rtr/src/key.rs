//! A router's key as the data of caches have it: once in memory, whichever sets it is in.
//!
//! Nearly all keys are of P-256, whose subjectPublicKeyInfo is the same 27 octets and a point, and are called by the SHA-1 of
//! that point. Of such a key the AS and the point are stored: it takes 96 octets of the heap, and a pointer in each set that has
//! it: in the data of each cache which says it, and in deltas.

use std::{borrow::Borrow, sync::Arc};

use aws_lc_rs::digest::{Context, SHA1_FOR_LEGACY_USE_ONLY};
use holdfast_types::{Asn, RouterKey, SPKI_P256, Ski};

/// A key that several sets share. Of keys that have their own name, as of the others, the order is that of their ASes.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Key(Arc<Stored>);

/// What it is.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Stored {
    /// What follows [`SPKI_P256`], called by its own name.
    P256(Asn, [u8; 64]),
    /// What any other is called, and all of it.
    Other(Asn, Box<(Ski, Box<[u8]>)>),
}

/// The SHA-1 of a point's octets (RFC 6487 section 4.8.2).
fn own_name(point: &[u8; 64]) -> Ski {
    // It is not compressed (SEC 1 section 2.3.3).
    let mut digest = Context::new(&SHA1_FOR_LEGACY_USE_ONLY);
    digest.update(&[4]);
    digest.update(point);
    let mut ski = Ski([0; 20]);
    ski.0.copy_from_slice(digest.finish().as_ref());
    ski
}

impl Stored {
    pub(crate) fn asn(&self) -> Asn {
        let (Self::P256(asn, _) | Self::Other(asn, _)) = self;
        *asn
    }

    pub(crate) fn ski(&self) -> Ski {
        match self {
            Self::P256(_, point) => own_name(point),
            Self::Other(_, other) => other.0,
        }
    }

    /// Octets of the subjectPublicKeyInfo.
    pub(crate) fn spki_len(&self) -> usize {
        match self {
            Self::P256(_, point) => SPKI_P256.len() + point.len(),
            Self::Other(_, other) => other.1.len(),
        }
    }
}

impl From<&RouterKey> for Stored {
    fn from(RouterKey { asn, ski, spki }: &RouterKey) -> Self {
        let point = spki.strip_prefix(&SPKI_P256).and_then(|point| point.try_into().ok());
        match point.filter(|point| own_name(point) == *ski) {
            Some(point) => Self::P256(*asn, point),
            None => Self::Other(*asn, Box::new((*ski, spki.as_slice().into()))),
        }
    }
}

impl From<Stored> for Key {
    fn from(stored: Stored) -> Self {
        Self(Arc::new(stored))
    }
}

impl From<&Key> for RouterKey {
    fn from(Key(stored): &Key) -> Self {
        let spki = match &**stored {
            Stored::P256(_, point) => [&SPKI_P256[..], point].concat(),
            Stored::Other(_, other) => other.1.to_vec(),
        };
        Self { asn: stored.asn(), ski: stored.ski(), spki }
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
        assert_eq!((size_of::<Key>(), size_of::<Stored>()), (8, 72));
        let point = [7; 64];
        let (whole, own) = ([&SPKI_P256[..], &point].concat(), own_name(&point));
        for spki in [whole.clone(), whole[..90].to_vec(), [&whole[..], &[0]].concat(), vec![], vec![1; 91]] {
            for ski in [own, Ski([1; 20])] {
                let key = RouterKey { asn: Asn(64496), ski, spki: spki.clone() };
                let stored = Stored::from(&key);
                assert_eq!(matches!(stored, Stored::P256(..)), key.spki == whole && ski == own);
                assert_eq!(stored.spki_len(), key.spki.len());
                assert_eq!(RouterKey::from(&Key::from(stored)), key);
            }
        }
    }
}

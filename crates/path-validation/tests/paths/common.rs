//! The examples of RFC 8608, and paths made of keys of our own.

pub(crate) mod independent;

use holdfast_path_validation::{Change, KeyTable, P256Signer, RouterKey};
use holdfast_types::Asn;
use num_bigint::BigUint;
use serde::Deserialize;

#[derive(Deserialize)]
pub(crate) struct Vectors {
    pub(crate) keys: Vec<Key>,
    pub(crate) updates: Vec<Example>,
}

#[derive(Deserialize)]
pub(crate) struct Key {
    pub(crate) asn: u32,
    pub(crate) ski: String,
    pub(crate) spki_der: String,
    pub(crate) private_sec1_der: String,
    pub(crate) private_pkcs8_der: String,
}

#[derive(Deserialize)]
pub(crate) struct Example {
    pub(crate) receiver_asn: u32,
    pub(crate) afi: u16,
    pub(crate) safi: u8,
    pub(crate) prefix: String,
    pub(crate) nlri: String,
    pub(crate) bgpsec_path: String,
}

pub(crate) fn vectors() -> Vectors {
    let text = include_str!("../../../bgpsec-wire/tests/rfc8608.json");
    serde_json::from_str(text).expect("vectors")
}

pub(crate) fn unhex(text: &str) -> Vec<u8> {
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).expect("digits")).collect()
}

impl Key {
    pub(crate) fn router_key(&self) -> RouterKey {
        RouterKey { asn: Asn(self.asn), ski: self.ski.parse().expect("an SKI"), spki: unhex(&self.spki_der) }
    }
}

/// A table with these keys.
pub(crate) fn table(keys: impl IntoIterator<Item = RouterKey>) -> KeyTable {
    let table = KeyTable::new([3, 4]);
    table.apply(keys.into_iter().map(Change::Announce));
    table
}

/// The same for the second opinion.
pub(crate) fn independent_keys(keys: impl IntoIterator<Item = RouterKey>) -> independent::PublicKeys {
    let mut all = independent::PublicKeys::new();
    for key in keys {
        let point = &key.spki[27..];
        let point = (BigUint::from_bytes_be(&point[..32]), BigUint::from_bytes_be(&point[32..]));
        all.entry((key.asn.0, key.ski.0)).or_default().push(point);
    }
    all
}

/// A key for each of these ASs.
pub(crate) fn signers(ases: impl IntoIterator<Item = u32>) -> Vec<P256Signer> {
    ases.into_iter().map(|asn| P256Signer::generate(Asn(asn)).expect("a key")).collect()
}

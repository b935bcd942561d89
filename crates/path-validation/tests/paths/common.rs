//! The examples of RFC 8608, and paths made of keys of our own.

use holdfast_bgpsec_wire::{Nlri, Path, Segment};
use holdfast_path_validation::{
    Change, Failure, KeyTable, P256Signer, Reason, RouterKey, Validator, Verdict, sign,
};
use holdfast_types::{Afi, Asn, Family, Safi};
use num_bigint::BigUint;
use serde::Deserialize;

use crate::tests::paths::independent;

pub(crate) const TARGET: Asn = Asn(65000);

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

pub(crate) fn nlri() -> Nlri {
    Nlri::unicast("192.0.2.0/24".parse().expect("a prefix"))
}

impl Example {
    pub(crate) fn told(&self) -> Nlri {
        Nlri {
            family: Family { afi: Afi(self.afi), safi: Safi(self.safi) },
            prefix: self.prefix.parse().expect("a prefix"),
        }
    }
}

pub(crate) fn plain(asn: u32) -> Segment {
    Segment { pcount: 1, flags: 0, asn: Asn(asn) }
}

/// A path signed by each in turn, the first is the origin.
pub(crate) fn path_by(segments: &[Segment], signers: &[P256Signer], target: Asn) -> Vec<u8> {
    let mut octets: Option<Vec<u8>> = None;
    for (number, segment) in segments.iter().enumerate() {
        let to = segments.get(number + 1).map_or(target, |next| next.asn);
        let before = octets.as_deref().map(|octets| Path::parse(octets).expect("what we built"));
        octets = Some(sign(before.as_ref(), *segment, to, &nlri(), &[&signers[number]]).expect("signed"));
    }
    octets.expect("a segment")
}

pub(crate) fn judge(
    validator: &Validator,
    octets: &[u8],
    target: Asn,
    nlri: &Nlri,
    keys: &[RouterKey],
) -> Verdict {
    validator.validate(&Path::parse(octets).expect("well-formed"), target, nlri, &table(keys.to_vec()).keys())
}

pub(crate) fn keys_of(signers: &[P256Signer]) -> Vec<RouterKey> {
    signers.iter().map(P256Signer::router_key).collect()
}

pub(crate) fn failure(octets: &[u8], hop: usize, reason: Reason) -> Verdict {
    let path = Path::parse(octets).expect("well-formed");
    let block = path.blocks().next().expect("a block");
    let signature = block.signatures().nth(hop).expect("a hop");
    let asn = path.segments().nth(hop).expect("a hop").asn;
    Verdict::NotValid(Failure { suite: block.suite, hop, asn, ski: signature.ski, reason })
}

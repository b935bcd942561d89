//! The octets of a signature and of what it was made for.
//!
//! ```text
//! state:u32  target:u32  slot:u32  mark:u64  address:16  signature:72 (zeros behind it)
//! ```
//! The state is 0 in a void record; from the lowest bit on: octets of the signature (7 bits), whether the prefix is
//! IPv6 (1), its length (8), and a sum over the rest of the record (16).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use holdfast_types::{Asn, Prefix};

use super::SignatureName;
use crate::layout::checksum;

/// Octets of a record: of which four are its state.
pub(crate) const RECORD: usize = 108;
pub(crate) const STATE: usize = 4;
/// Longest signature: ECDSA over P-256 in DER (RFC 8608) has no more.
const LONGEST: usize = 72;
const MARK: usize = 12;
const ADDRESS: usize = 20;
const SIGNATURE: usize = RECORD - LONGEST;
/// The bit of the state for IPv6.
const IPV6: u32 = 1 << 7;

pub(crate) type Octets = [u8; RECORD];

/// A record.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct Record<'a> {
    pub(crate) name: SignatureName,
    pub(crate) mark: u64,
    pub(crate) signature: &'a [u8],
}

impl<'a> Record<'a> {
    /// `None` for a signature that does not fit.
    pub(crate) fn encode(&self) -> Option<Octets> {
        let length = Some(self.signature.len()).filter(|length| (1..=LONGEST).contains(length))?;
        let SignatureName { prefix, target, slot } = self.name;
        let (family, address) = match prefix.address() {
            IpAddr::V4(address) => (0, address.to_ipv6_compatible()),
            IpAddr::V6(address) => (IPV6, address),
        };
        let mut octets = [0; RECORD];
        octets[STATE..][..4].copy_from_slice(&target.0.to_le_bytes());
        octets[STATE + 4..][..4].copy_from_slice(&slot.to_le_bytes());
        octets[MARK..][..8].copy_from_slice(&self.mark.to_le_bytes());
        octets[ADDRESS..SIGNATURE].copy_from_slice(&address.octets());
        octets[SIGNATURE..][..length].copy_from_slice(self.signature);
        let state = length as u32 | family | u32::from(prefix.length()) << 8;
        let sum = sum(state, &octets);
        octets[..STATE].copy_from_slice(&(state | sum).to_le_bytes());
        Some(octets)
    }

    /// `None` for a record that is void, or not whole.
    pub(crate) fn decode(octets: &'a Octets) -> Option<Self> {
        let state = word(octets, 0);
        let is_whole = state >> 16 << 16 == sum(state & 0xffff, octets) && !signature(octets).is_empty();
        is_whole.then_some(())?;
        Some(Self { name: name(octets)?, mark: mark(octets), signature: signature(octets) })
    }
}

/// What a record is for; `None` if it is void.
#[inline]
pub(crate) fn name(octets: &Octets) -> Option<SignatureName> {
    let state = word(octets, 0);
    let address: [u8; 16] = *octets[ADDRESS..].first_chunk()?;
    let address = match state & IPV6 {
        0 => Ipv4Addr::from(*address.last_chunk()?).into(),
        _ => IpAddr::from(Ipv6Addr::from(address)),
    };
    let prefix = Prefix::new(address, (state >> 8) as u8)?;
    let (target, slot) = (Asn(word(octets, STATE)), word(octets, STATE + 4));
    (state != 0).then_some(SignatureName { prefix, target, slot })
}

/// What the signature was made for.
#[inline]
pub(crate) fn mark(octets: &Octets) -> u64 {
    crate::store::word(octets, MARK)
}

/// The signature; none if it is longer than can be.
#[inline]
pub(crate) fn signature(octets: &Octets) -> &[u8] {
    let length = word(octets, 0) % IPV6;
    octets[SIGNATURE..].get(..length as usize).unwrap_or_default()
}

#[inline]
fn word(octets: &Octets, at: usize) -> u32 {
    octets[at..].first_chunk().copied().map_or(0, u32::from_le_bytes)
}

/// The upper half of the state, of which the lower one is given.
#[inline]
fn sum(state: u32, octets: &Octets) -> u32 {
    let words = octets[STATE..].as_chunks().0.iter().copied().map(u64::from_le_bytes);
    (checksum(state.into(), words) >> 48 << 16) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(prefix: &str, signature: &'static [u8]) -> Record<'static> {
        let prefix = prefix.parse().expect("a prefix");
        let name = SignatureName { prefix, target: Asn(4_200_000_001), slot: 7 };
        Record { name, mark: 0x1234_5678_9abc_def0, signature }
    }

    #[test]
    fn a_record_is_read_as_it_was_written() {
        for prefix in ["0.0.0.0/0", "192.0.2.0/24", "203.0.113.9/32", "::/0", "2001:db8::/32", "::1/128"] {
            for length in [1, 70, LONGEST] {
                let record = record(prefix, &[0x5a; LONGEST][..length]);
                let octets = record.encode().expect("it fits");
                assert_eq!(Record::decode(&octets), Some(record));
                assert_eq!((name(&octets), mark(&octets)), (Some(record.name), record.mark));
            }
        }
    }

    #[test]
    fn a_signature_without_octets_or_with_too_many_does_not_fit() {
        assert_eq!(record("::/0", &[]).encode(), None);
        assert_eq!(record("::/0", &[1; LONGEST + 1]).encode(), None);
    }

    #[test]
    fn a_record_with_another_octet_anywhere_is_not_whole() {
        let octets = record("192.0.2.0/24", &[9; 70]).encode().expect("it fits");
        assert_eq!(Record::decode(&[0; RECORD]), None);
        for at in 0..RECORD {
            for bit in 0..8 {
                let mut damaged = octets;
                damaged[at] ^= 1 << bit;
                assert_eq!(Record::decode(&damaged), None, "octet {at}");
            }
        }
    }
}

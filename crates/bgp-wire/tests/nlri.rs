//! Prefix lists against a reader that takes one bit at a time.

use super::hex::hex;
use holdfast_bgp_wire::nlri::{NlriError, count, prefixes, push_prefix};
use holdfast_types::{IpPrefix, Ipv4Prefix, Ipv6Prefix};
use proptest::{collection::vec, prelude::*};

fn naive<P: IpPrefix>(bytes: &[u8]) -> Result<Vec<P>, NlriError> {
    let mut list = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        let length = bytes[at];
        if length > P::WIDTH {
            return Err(NlriError::PrefixLength(length));
        }
        let end = at + 1 + usize::from(length).div_ceil(8);
        let octets = bytes.get(at + 1..end).ok_or(NlriError::Truncated)?;
        let bit = |index: u8| octets[usize::from(index / 8)] >> (7 - index % 8) & 1;
        let bits = (0..length).fold(0u128, |bits, index| bits | u128::from(bit(index)) << (127 - index));
        list.push(P::from_bits(bits, length));
        at = end;
    }
    Ok(list)
}

fn agrees<P: IpPrefix>(bytes: &[u8]) -> Result<(), TestCaseError> {
    let read: Result<Vec<P>, _> = prefixes(bytes).collect();
    prop_assert_eq!(&read, &naive(bytes));
    prop_assert_eq!(count::<P>(bytes), read.as_ref().map(Vec::len).map_err(|error| *error));
    let (least, most) = prefixes::<P>(bytes).size_hint();
    if let Ok(read) = read {
        prop_assert!(least <= read.len() && most.is_some_and(|most| read.len() <= most));
    }
    Ok(())
}

proptest! {
    #![proptest_config(holdfast_testing::cases(256))]

    #[test]
    fn any_octets_are_read_like_bit_by_bit(bytes in vec(prop_oneof![0..33u8, any::<u8>()], 0..60)) {
        agrees::<Ipv4Prefix>(&bytes)?;
        agrees::<Ipv6Prefix>(&bytes)?;
    }

    #[test]
    fn what_is_written_is_read(list in vec((any::<u128>(), 0..=128u8), 0..50)) {
        let list: Vec<_> = list.into_iter().map(|(bits, len)| Ipv6Prefix::from_bits(bits, len)).collect();
        let mut out = Vec::new();
        list.iter().for_each(|prefix| push_prefix(&mut out, *prefix));
        prop_assert_eq!(prefixes(&out).collect::<Result<Vec<Ipv6Prefix>, _>>(), Ok(list));
    }
}

#[test]
fn bits_after_the_length_are_ignored() {
    let bytes = hex("14 c6336f");
    let read: Vec<_> =
        prefixes::<Ipv4Prefix>(&bytes).map(|prefix| prefix.expect("sound").to_string()).collect();
    assert_eq!(read, ["198.51.96.0/20"]);
}

#[test]
fn prefixes_before_an_error_are_read_and_then_it_ends() {
    let bytes = hex("08 0a 21 0102030405 08 0b");
    let read: Vec<_> = prefixes::<Ipv4Prefix>(&bytes).collect();
    assert_eq!(read, [Ok("10.0.0.0/8".parse().expect("a prefix")), Err(NlriError::PrefixLength(33))]);
}

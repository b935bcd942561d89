//! Which paths are valid, and why others are not.

use holdfast_bgpsec_wire::{Malformed, Nlri, Path, Segment, SignatureBlock, extend};
use holdfast_path_validation::{CannotSign, P256Signer, Reason, RouterKey, Signer, Validator, Verdict, sign};
use holdfast_types::{Afi, Asn, Family, Safi};
use proptest::prelude::*;

use crate::tests::paths::{
    common::{
        Key, TARGET, failure, independent_keys, judge, keys_of, nlri, path_by, plain, signers, table, unhex,
        vectors,
    },
    independent,
};

#[test]
fn the_examples_of_rfc_8608_are_valid() {
    let vectors = vectors();
    let keys: Vec<_> = vectors.keys.iter().map(Key::router_key).collect();
    for example in &vectors.updates {
        let octets = unhex(&example.bgpsec_path);
        let target = Asn(example.receiver_asn);
        assert_eq!(judge(&Validator::default(), &octets, target, &example.told(), &keys), Verdict::Valid);
        let family = (example.afi, example.safi);
        let nlri = unhex(&example.nlri);
        assert!(independent::is_valid(&octets, target.0, family, &nlri, &independent_keys(keys.clone())));
    }
}

#[test]
fn the_keys_of_rfc_8608_sign_in_both_forms() {
    for key in vectors().keys {
        for private in [&key.private_sec1_der, &key.private_pkcs8_der] {
            let signer = P256Signer::from_der(Asn(key.asn), &unhex(private)).expect("a key");
            assert_eq!(signer.router_key(), key.router_key());
        }
    }
    assert!(P256Signer::from_der(Asn(1), &[0x30, 0]).is_err());
}

#[test]
fn a_second_opinion_agrees_with_what_we_sign() {
    let signers = signers([64496, 64497, 64498]);
    // pCount 0 and more than 1, flags that nobody knows and those of a confederation: all of it is signed.
    let segments = [
        Segment { pcount: 3, ..plain(64496) },
        Segment { flags: 0x80, pcount: 0, ..plain(64497) },
        Segment { flags: 0x5a, ..plain(64498) },
    ];
    let octets = path_by(&segments, &signers, TARGET);
    let keys = keys_of(&signers);
    assert_eq!(judge(&Validator::default(), &octets, TARGET, &nlri(), &keys), Verdict::Valid);
    let theirs = independent_keys(keys.clone());
    assert!(independent::is_valid(&octets, TARGET.0, (1, 1), &[24, 192, 0, 2], &theirs));
    assert!(!independent::is_valid(&octets, TARGET.0 + 1, (1, 1), &[24, 192, 0, 2], &theirs));
    assert!(!independent::is_valid(&octets, TARGET.0, (1, 1), &[24, 192, 0, 3], &theirs));
}

#[test]
fn each_way_to_be_not_valid_has_its_name() {
    let routers = signers([64496, 64497]);
    let segments = [plain(64496), plain(64497)];
    let octets = path_by(&segments, &routers, TARGET);
    let keys = keys_of(&routers);
    let validator = Validator::default();
    let verdict = |target, nlri: &Nlri, keys: &[RouterKey]| judge(&validator, &octets, target, nlri, keys);
    assert_eq!(verdict(TARGET, &nlri(), &keys), Verdict::Valid);
    // It was for another AS, of another prefix, of another length of it, or of another family.
    for (target, route) in [
        (Asn(65009), nlri()),
        (TARGET, Nlri::unicast("192.0.3.0/24".parse().expect("a prefix"))),
        (TARGET, Nlri::unicast("192.0.2.0/25".parse().expect("a prefix"))),
        (TARGET, Nlri { family: Family { afi: Afi::IPV4, safi: Safi(2) }, ..nlri() }),
    ] {
        assert_eq!(verdict(target, &route, &keys), failure(&octets, 0, Reason::BadSignature));
    }
    assert_eq!(verdict(TARGET, &nlri(), &keys[1..]), failure(&octets, 1, Reason::NoKey));
    assert_eq!(verdict(TARGET, &nlri(), &keys[..1]), failure(&octets, 0, Reason::NoKey));
    // The key is another AS's: the signature verifies, and yet it is not valid.
    let foreign = RouterKey { asn: Asn(64999), ..keys[0].clone() };
    assert_eq!(verdict(TARGET, &nlri(), &[foreign, keys[1].clone()]), failure(&octets, 1, Reason::NoKey));
    // The AS has a key of that name, which is another one; with both, each is tried.
    let namesake = RouterKey { spki: keys[1].spki.clone(), ..keys[0].clone() };
    let with = |first: &[RouterKey]| verdict(TARGET, &nlri(), &[first, &keys[1..]].concat());
    assert_eq!(with(std::slice::from_ref(&namesake)), failure(&octets, 1, Reason::BadSignature));
    assert_eq!(with(&[namesake, keys[0].clone()]), Verdict::Valid);
    // A key that is none.
    let mut off_curve = keys[0].clone();
    off_curve.spki[60] ^= 1;
    for spki in [off_curve.spki, vec![], vec![0x30; 91]] {
        let unusable = RouterKey { spki, ..keys[0].clone() };
        assert_eq!(with(std::slice::from_ref(&unusable)), failure(&octets, 1, Reason::UnusableKey));
        assert_eq!(with(&[unusable, keys[0].clone()]), Verdict::Valid);
    }
}

#[test]
fn no_signature_is_none_and_a_signature_of_nothing_is_bad() {
    let routers = signers([64496]);
    let ski = routers[0].ski();
    let long = [0x30; 200];
    for signature in [&[][..], &[0x30, 0], &[0x30, 6, 2, 1, 0, 2, 1, 0], &long] {
        let octets =
            extend(None, plain(64496), &[SignatureBlock { suite: 1, ski, signature }]).expect("it fits");
        let verdict = judge(&Validator::default(), &octets, TARGET, &nlri(), &keys_of(&routers));
        assert_eq!(verdict, failure(&octets, 0, Reason::BadSignature));
    }
}

#[test]
fn nobody_signs_for_another_as() {
    let signer = P256Signer::generate(Asn(64496)).expect("a key");
    let error = sign(None, plain(64497), TARGET, &nlri(), &[&signer]);
    assert_eq!(error, Err(CannotSign::OtherAs { key: Asn(64496), segment: Asn(64497) }));
}

#[test]
fn forty_hops_and_more() {
    let routers = signers((0..45).map(|hop| 65100 + hop));
    let segments: Vec<_> = (0..45).map(|hop| plain(65100 + hop)).collect();
    let octets = path_by(&segments, &routers, TARGET);
    assert!(octets.len() > 4096, "{}", octets.len());
    assert_eq!(judge(&Validator::default(), &octets, TARGET, &nlri(), &keys_of(&routers)), Verdict::Valid);
}

proptest! {
    #![proptest_config(holdfast_testing::cases(64))]

    /// Whatever bit of what is signed is flipped: the path is malformed, or not valid.
    #[test]
    fn a_flipped_bit_is_noticed(hops in 1..5_usize, at in any::<proptest::sample::Index>(), bit in 0..8_u8) {
        let routers = signers((0..hops as u32).map(|hop| 65100 + hop));
        let segments: Vec<_> = (0..hops as u32).map(|hop| plain(65100 + hop)).collect();
        let octets = path_by(&segments, &routers, TARGET);
        let keys = keys_of(&routers);
        prop_assert_eq!(judge(&Validator::default(), &octets, TARGET, &nlri(), &keys), Verdict::Valid);
        let mut flipped = octets.clone();
        flipped[at.index(octets.len())] ^= 1 << bit;
        let verdict: Result<Verdict, Malformed> = Path::parse(&flipped)
            .map(|path| Validator::default().validate(&path, TARGET, &nlri(), &table(keys.clone()).keys()));
        prop_assert_ne!(verdict, Ok(Verdict::Valid));
    }
}

//! Which paths are valid, and why others are not.

mod common;

use common::{Example, independent, independent_keys, signers, table, unhex, vectors};
use holdfast_bgpsec_wire::{Block, Malformed, Nlri, Path, Segment, SignatureBlock, Ski, extend};
use holdfast_path_validation::{
    BadSignature, CannotSign, Change, Digest, Failure, P256Signer, Reason, RouterKey, Signer, StoredKey,
    Suite, Validator, Verdict, VerifiedSignatures, sign,
};
use holdfast_types::{Afi, Asn, Family, Safi};
use proptest::prelude::*;

const TARGET: Asn = Asn(65000);

fn nlri() -> Nlri {
    Nlri::unicast("192.0.2.0/24".parse().expect("a prefix"))
}

impl Example {
    fn told(&self) -> Nlri {
        Nlri {
            family: Family { afi: Afi(self.afi), safi: Safi(self.safi) },
            prefix: self.prefix.parse().expect("a prefix"),
        }
    }
}

fn plain(asn: u32) -> Segment {
    Segment { pcount: 1, flags: 0, asn: Asn(asn) }
}

/// A path signed by each in turn, the first is the origin.
fn path_by(segments: &[Segment], signers: &[P256Signer], target: Asn) -> Vec<u8> {
    let mut octets: Option<Vec<u8>> = None;
    for (number, segment) in segments.iter().enumerate() {
        let to = segments.get(number + 1).map_or(target, |next| next.asn);
        let before = octets.as_deref().map(|octets| Path::parse(octets).expect("what we built"));
        octets = Some(sign(before.as_ref(), *segment, to, &nlri(), &[&signers[number]]).expect("signed"));
    }
    octets.expect("a segment")
}

fn judge(validator: &Validator, octets: &[u8], target: Asn, nlri: &Nlri, keys: &[RouterKey]) -> Verdict {
    validator.validate(&Path::parse(octets).expect("well-formed"), target, nlri, &table(keys.to_vec()).keys())
}

fn keys_of(signers: &[P256Signer]) -> Vec<RouterKey> {
    signers.iter().map(P256Signer::router_key).collect()
}

fn failure(octets: &[u8], hop: usize, reason: Reason) -> Verdict {
    let path = Path::parse(octets).expect("well-formed");
    let block = path.blocks().next().expect("a block");
    let signature = block.signatures().nth(hop).expect("a hop");
    let asn = path.segments().nth(hop).expect("a hop").asn;
    Verdict::NotValid(Failure { suite: block.suite, hop, asn, ski: signature.ski, reason })
}

#[test]
fn the_examples_of_rfc_8608_are_valid() {
    let vectors = vectors();
    let keys: Vec<_> = vectors.keys.iter().map(common::Key::router_key).collect();
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

/// A suite whose signatures are the first octets of the key and a checksum: enough to prove that suites can be plugged in.
struct Toy(u8);

impl Suite for Toy {
    fn id(&self) -> u8 {
        self.0
    }

    fn digest(&self, octets: &[u8]) -> Digest {
        let sum = octets.iter().fold(0_u32, |sum, octet| sum.rotate_left(5) ^ u32::from(*octet));
        Digest::new(&sum.to_be_bytes())
    }

    fn takes(&self, key: StoredKey<'_>) -> bool {
        key.spki().starts_with(b"toy")
    }

    fn verify(&self, key: StoredKey<'_>, digest: &Digest, signature: &[u8]) -> Result<(), BadSignature> {
        match [&key.spki()[..], digest.as_ref()].concat() == signature {
            true => Ok(()),
            false => Err(BadSignature),
        }
    }
}

struct ToySigner(Asn);

impl ToySigner {
    fn router_key(&self) -> RouterKey {
        RouterKey { asn: self.0, ski: self.ski(), spki: b"toy key".to_vec() }
    }
}

impl Signer for ToySigner {
    fn suite(&self) -> u8 {
        0xfb
    }

    fn asn(&self) -> Asn {
        self.0
    }

    fn ski(&self) -> Ski {
        Ski([0xfb; 20])
    }

    fn sign(&self, octets: &[u8]) -> Result<Vec<u8>, CannotSign> {
        Ok([&self.router_key().spki[..], Toy(0xfb).digest(octets).as_ref()].concat())
    }
}

#[test]
fn one_good_block_of_two_is_enough() {
    let (p256, toy) = (P256Signer::generate(Asn(64496)).expect("a key"), ToySigner(Asn(64496)));
    let octets = sign(None, plain(64496), TARGET, &nlri(), &[&toy, &p256]).expect("signed");
    let both = Path::parse(&octets).expect("well-formed");
    let suites = |path: &Path<'_>| path.blocks().map(|block: Block<'_>| block.suite).collect::<Vec<_>>();
    assert_eq!(suites(&both), [0xfb, 1]);
    let (p256_key, toy_key) = (p256.router_key(), toy.router_key());
    let knows_toy = || Validator::default().with_suite(Toy(0xfb));
    let verdict =
        |validator: Validator, keys: &[RouterKey]| judge(&validator, &octets, TARGET, &nlri(), keys);
    assert_eq!(verdict(knows_toy(), std::slice::from_ref(&toy_key)), Verdict::Valid);
    assert_eq!(verdict(knows_toy(), std::slice::from_ref(&p256_key)), Verdict::Valid);
    assert_eq!(verdict(Validator::default(), std::slice::from_ref(&p256_key)), Verdict::Valid);
    assert_eq!(verdict(knows_toy(), &[]), failure(&octets, 0, Reason::NoKey));
    // A suite that is not known is no reason for "Not Valid".
    let only_toy = sign(None, plain(64496), TARGET, &nlri(), &[&toy]).expect("signed");
    assert_eq!(
        judge(&Validator::default(), &only_toy, TARGET, &nlri(), std::slice::from_ref(&toy_key)),
        Verdict::Unsupported
    );
    // Both go on, or the one that the next AS can sign.
    let (next, next_toy) = (P256Signer::generate(Asn(64497)).expect("a key"), ToySigner(Asn(64497)));
    let target = Asn(64497);
    let octets = sign(None, plain(64496), target, &nlri(), &[&toy, &p256]).expect("signed");
    let both = Path::parse(&octets).expect("well-formed");
    let on =
        |signers: &[&dyn Signer]| sign(Some(&both), plain(64497), TARGET, &nlri(), signers).expect("signed");
    assert_eq!(suites(&Path::parse(&on(&[&next_toy, &next])).expect("well-formed")), [0xfb, 1]);
    let one = on(&[&next]);
    assert_eq!(suites(&Path::parse(&one).expect("well-formed")), [1]);
    let keys = [p256_key, next.router_key(), toy_key, next_toy.router_key()];
    assert_eq!(judge(&knows_toy(), &one, TARGET, &nlri(), &keys), Verdict::Valid);
    assert_eq!(judge(&knows_toy(), &on(&[&next_toy, &next]), TARGET, &nlri(), &keys), Verdict::Valid);
}

#[test]
fn nobody_signs_for_another_as() {
    let signer = P256Signer::generate(Asn(64496)).expect("a key");
    let error = sign(None, plain(64497), TARGET, &nlri(), &[&signer]);
    assert_eq!(error, Err(CannotSign::OtherAs { key: Asn(64496), segment: Asn(64497) }));
}

#[test]
fn a_memory_of_good_signatures_changes_no_verdict() {
    let routers = signers([64496, 64497]);
    let octets = path_by(&[plain(64496), plain(64497)], &routers, TARGET);
    let keys = keys_of(&routers);
    // Room for a handful: most of what is kept goes again.
    let validator = Validator::default().with_memory(VerifiedSignatures::new(8, [5, 6]));
    for _ in 0..3 {
        assert_eq!(judge(&validator, &octets, TARGET, &nlri(), &keys), Verdict::Valid);
        assert_eq!(
            judge(&validator, &octets, Asn(65009), &nlri(), &keys),
            failure(&octets, 0, Reason::BadSignature)
        );
        // A key that has been withdrawn is not made up for by a signature of it that was good.
        assert_eq!(
            judge(&validator, &octets, TARGET, &nlri(), &keys[1..]),
            failure(&octets, 1, Reason::NoKey)
        );
    }
}

#[test]
fn forty_hops_and_more() {
    let routers = signers((0..45).map(|hop| 65100 + hop));
    let segments: Vec<_> = (0..45).map(|hop| plain(65100 + hop)).collect();
    let octets = path_by(&segments, &routers, TARGET);
    assert!(octets.len() > 4096, "{}", octets.len());
    assert_eq!(judge(&Validator::default(), &octets, TARGET, &nlri(), &keys_of(&routers)), Verdict::Valid);
}

#[test]
fn tables_change_and_what_was_taken_does_not() {
    let routers = signers([64496, 64496, 64497]);
    let keys = keys_of(&routers);
    let table = table([]);
    let before = table.keys();
    assert!(before.is_empty());
    let names = |keys: &[RouterKey]| keys.iter().map(|key| (key.asn, key.ski)).collect();
    let odd = RouterKey { spki: b"none".to_vec(), ..keys[0].clone() };
    let all = [&keys[..], std::slice::from_ref(&odd)].concat();
    let applied = table.apply(all.iter().cloned().map(Change::Announce));
    assert_eq!((applied.changed, applied.duplicates, applied.unknown), (names(&keys), 0, 0));
    let held = table.keys();
    let again = table.apply(all.iter().cloned().map(Change::Announce));
    assert_eq!((again.changed.len(), again.duplicates), (0, 4));
    assert_eq!((before.len(), held.len(), held.epoch(), table.keys().epoch()), (0, 4, 1, 1));
    let mut listed: Vec<_> = held.iter().collect();
    listed.sort();
    let mut expected = all.clone();
    expected.sort();
    assert_eq!(listed, expected);
    assert_eq!(held.of(keys[0].asn, keys[0].ski).count(), 2);
    let withdrawn = table.apply([
        Change::Withdraw(keys[0].clone()),
        Change::Withdraw(odd),
        Change::Withdraw(keys[0].clone()),
    ]);
    assert_eq!((withdrawn.changed, withdrawn.duplicates, withdrawn.unknown), (names(&keys[..1]), 0, 1));
    assert_eq!((held.len(), table.keys().len()), (4, 2));
    assert_eq!(table.keys().of(keys[2].asn, keys[2].ski).count(), 1);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

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

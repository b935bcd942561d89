//! Suites that are plugged in, and what is remembered of signatures.

use holdfast_bgpsec_wire::{Block, Path, SignatureBlock, Ski, extend};
use holdfast_path_validation::{
    BadSignature, CannotSign, Digest, KeyTable, Keys, P256Signer, Reason, RouterKey, Signer, StoredKey,
    Suite, Validator, Verdict, VerifiedSignatures, Work, sign,
};
use holdfast_types::Asn;

use crate::tests::paths::common::{TARGET, failure, judge, keys_of, nlri, path_by, plain, signers, table};

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
    // A key of the other suite may have the same name, and comes first.
    let namesake = RouterKey { spki: p256_key.spki.clone(), ..toy_key.clone() };
    assert_eq!(verdict(knows_toy(), &[namesake, toy_key.clone()]), Verdict::Valid);
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
fn what_a_verdict_has_cost_is_said_beside_it() {
    let routers = signers([64496, 64497]);
    let octets = path_by(&[plain(64496), plain(64497)], &routers, TARGET);
    let path = Path::parse(&octets).expect("well-formed");
    let keys = keys_of(&routers);
    // A namesake of the newest key, which is tried before or after it.
    let namesake = RouterKey { spki: keys[0].spki.clone(), ..keys[1].clone() };
    let (alone, both) = (table(keys.clone()).keys(), table([keys, vec![namesake]].concat()).keys());
    let validator = Validator::default().with_memory(VerifiedSignatures::new(64, [5, 6]));
    let judge = |target, keys: &Keys| validator.judge(&path, target, &nlri(), keys);
    let work = |verified, remembered, failed| Work { verified, remembered, failed };
    let mut sum = Work::default();
    for (target, keys, expected) in [
        (Asn(65009), &alone, work(1, 0, 1)),
        (Asn(65009), &both, work(2, 0, 2)),
        (TARGET, &alone, work(2, 0, 0)),
        (TARGET, &alone, work(0, 2, 0)),
    ] {
        let (verdict, work) = judge(target, keys);
        assert_eq!((work, verdict == Verdict::Valid), (expected, target == TARGET));
        sum += work;
    }
    assert_eq!(sum, work(5, 2, 3));
    let no_keys = KeyTable::new([3, 4]).keys();
    assert_eq!(judge(TARGET, &no_keys).1, Work::default(), "a key that is not there costs no signature");
}

/// Suites that digest and take all alike, and of which one has no good signatures at all.
struct Same {
    id: u8,
    is_lax: bool,
}

impl Suite for Same {
    fn id(&self) -> u8 {
        self.id
    }

    fn digest(&self, _: &[u8]) -> Digest {
        Digest::new(b"the same")
    }

    fn takes(&self, _: StoredKey<'_>) -> bool {
        true
    }

    fn verify(&self, _: StoredKey<'_>, _: &Digest, _: &[u8]) -> Result<(), BadSignature> {
        if self.is_lax { Ok(()) } else { Err(BadSignature) }
    }
}

#[test]
fn a_signature_that_is_good_in_one_suite_is_not_remembered_for_another() {
    let key = RouterKey { asn: Asn(64496), ski: Ski([1; 20]), spki: b"key".to_vec() };
    let validator = Validator::default()
        .with_suite(Same { id: 0xfb, is_lax: true })
        .with_suite(Same { id: 0xfc, is_lax: false })
        .with_memory(VerifiedSignatures::new(64, [5, 6]));
    let verdict = |suite| {
        let block = SignatureBlock { suite, ski: key.ski, signature: b"signature" };
        let octets = extend(None, plain(64496), &[block]).expect("it fits");
        let verdict = judge(&validator, &octets, TARGET, &nlri(), std::slice::from_ref(&key));
        (verdict, failure(&octets, 0, Reason::BadSignature))
    };
    assert_eq!(verdict(0xfb).0, Verdict::Valid);
    let (strict, bad) = verdict(0xfc);
    assert_eq!(strict, bad);
}

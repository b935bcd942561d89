//! What others get wrong, or try: each ends as the RFC says, by its own reason.

use holdfast_bgpsec_wire::{
    CONFED_SEGMENT, Ingress, Nlri, Path, Refused, Segment, Session, SignatureBlock, Signed, Ski, Update,
    extend, leave_confederation,
};
use holdfast_path_validation::{P256Signer, Reason, RouterKey, Signer, Validator, Verdict, sign};
use holdfast_types::{Asn, Ipv4Prefix, Prefix};
use num_bigint::BigUint;

use crate::tests::paths::{
    common::{TARGET, failure, independent_keys, judge, keys_of, nlri, path_by, plain, signers},
    independent,
};

fn is_valid(octets: &[u8], keys: &[RouterKey]) -> bool {
    judge(&Validator::default(), octets, TARGET, &nlri(), keys) == Verdict::Valid
}

/// The only signature of a path of one hop.
fn signature_of(octets: &[u8]) -> Vec<u8> {
    let block = Path::parse(octets).expect("well-formed").blocks().next().expect("a block");
    block.signatures().next().expect("a signature").octets.to_vec()
}

/// A path of one hop with this signature.
fn one_hop(ski: Ski, signature: &[u8]) -> Vec<u8> {
    extend(None, plain(64496), &[SignatureBlock { suite: 1, ski, signature }]).expect("it fits")
}

#[test]
fn what_a_segment_says_is_signed_by_whoever_added_it() {
    let routers = signers([64496, 64497, 64498]);
    let segments = [
        Segment { pcount: 3, ..plain(64496) },
        Segment { pcount: 0, ..plain(64497) },
        Segment { flags: 0x7f, ..plain(64498) },
    ];
    let octets = path_by(&segments, &routers, TARGET);
    assert!(is_valid(&octets, &keys_of(&routers)));
    // The newest is first: pCount and flags of each, and what somebody else would like them to be. The two octets before are a
    // length. Whoever signed later has signed that as well, so the first signature that is looked at is bad.
    for (hop, octet, value) in [(2, 0, 1), (2, 0, 255), (1, 0, 1), (0, 1, 0), (0, 1, 0x80), (2, 1, 1)] {
        let mut changed = octets.clone();
        changed[2 + 6 * hop + octet] = value;
        let verdict = judge(&Validator::default(), &changed, TARGET, &nlri(), &keys_of(&routers));
        assert_eq!(verdict, failure(&changed, 0, Reason::BadSignature), "{octet} of hop {hop}");
    }
}

#[test]
fn a_bad_signature_is_the_one_that_is_named() {
    let routers = signers([64496, 64497, 64498]);
    let octets = path_by(&[plain(64496), plain(64497), plain(64498)], &routers, TARGET);
    let (keys, others) = (keys_of(&routers), keys_of(&signers([64496, 64497, 64498])));
    for hop in 0..3 {
        // Keys are the oldest first. The AS has another one of that name instead.
        let mut keys = keys.clone();
        keys[2 - hop].spki = others[2 - hop].spki.clone();
        let verdict = judge(&Validator::default(), &octets, TARGET, &nlri(), &keys);
        assert_eq!(verdict, failure(&octets, hop, Reason::BadSignature));
    }
}

/// RFC 8205 section 4.3: AS 65100 is a confederation of 65101 and 65102.
#[test]
fn a_path_goes_through_a_confederation() {
    let [origin, public, first, second] =
        [64496, 65100, 65101, 65102].map(|asn| P256Signer::generate(Asn(asn)).expect("a key"));
    let go_on = |before: Option<&[u8]>, segment: Segment, target: u32, signer: &P256Signer| {
        let before = before.map(|octets| Path::parse(octets).expect("what we built"));
        sign(before.as_ref(), segment, Asn(target), &nlri(), &[signer]).expect("signed")
    };
    let confed = |segment: Segment| Segment { flags: CONFED_SEGMENT, ..segment };
    let received = go_on(None, plain(64496), 65100, &origin);
    let entry = Segment { pcount: 0, ..confed(plain(65100)) };
    let inside = go_on(Some(&received), entry, 65101, &public);
    let between = go_on(Some(&inside), confed(plain(65101)), 65102, &first);
    let keys = [&origin, &public, &first, &second].map(P256Signer::router_key);
    let verdict = |octets: &[u8], target| judge(&Validator::default(), octets, Asn(target), &nlri(), &keys);
    assert_eq!(verdict(&between, 65102), Verdict::Valid);
    let check = |ingress: Ingress, octets: &[u8]| {
        ingress.check(&Path::parse(octets).expect("well-formed"), Update::PROPER)
    };
    let member = Ingress { session: Session::Confederation, ..Ingress::external(Asn(65101), Asn(65102)) };
    assert_eq!(check(member, &between), Ok(()));
    assert_eq!(
        check(Ingress { session: Session::External, ..member }, &between),
        Err(Refused::ConfedSegment)
    );

    // The second member is at the other border: what members added is taken away, the public AS signs.
    let outside = leave_confederation(&Path::parse(&between).expect("well-formed")).expect("a path");
    assert_eq!(outside, received);
    let left = go_on(Some(&outside), plain(65100), TARGET.0, &public);
    assert_eq!(verdict(&left, TARGET.0), Verdict::Valid);
    assert_eq!(check(Ingress::external(Asn(65100), TARGET), &left), Ok(()));
    // One that is forgotten is seen outside, however well it is signed.
    let leaked = go_on(Some(&between), plain(65102), TARGET.0, &second);
    assert_eq!(verdict(&leaked, TARGET.0), Verdict::Valid);
    assert_eq!(check(Ingress::external(Asn(65102), TARGET), &leaked), Err(Refused::ConfedSegment));
}

#[test]
fn what_is_behind_the_length_of_a_prefix_is_not_signed() {
    let routers = signers([64496]);
    let octets = path_by(&[plain(64496)], &routers, TARGET);
    let dirty = Ipv4Prefix::new([192, 0, 2, 99].into(), 24).expect("a length that fits");
    let dirty = Nlri::unicast(Prefix::V4(dirty));
    assert_eq!(judge(&Validator::default(), &octets, TARGET, &dirty, &keys_of(&routers)), Verdict::Valid);
}

#[test]
fn a_path_of_64_hops_is_looked_at_and_one_of_65_is_not() {
    let octets = |hops: u32| {
        (0..hops).fold(None, |octets: Option<Vec<u8>>, hop| {
            let before = octets.as_deref().map(|octets| Path::parse(octets).expect("what we built"));
            let block = SignatureBlock { suite: 1, ski: Ski([0; 20]), signature: &[0; 72] };
            Some(extend(before.as_ref(), plain(65100 + hop), &[block]).expect("it fits"))
        })
    };
    let check = |hops: u32| {
        let octets = octets(hops).expect("a hop");
        let path = Path::parse(&octets).expect("well-formed");
        Ingress::external(Asn(65100 + hops - 1), TARGET).check(&path, Update::PROPER)
    };
    assert_eq!(check(64), Ok(()));
    assert_eq!(check(65), Err(Refused::TooManyHops { hops: 65, most: 64 }));
}

/// DER of an INTEGER.
fn integer(value: &BigUint) -> Vec<u8> {
    let mut octets = value.to_bytes_be();
    if octets[0] & 0x80 != 0 {
        octets.insert(0, 0);
    }
    [&[2, octets.len() as u8][..], &octets].concat()
}

fn sequence(parts: &[&[u8]]) -> Vec<u8> {
    let inside = parts.concat();
    [&[0x30, inside.len() as u8][..], &inside].concat()
}

/// Signatures are not always 70 to 72 octets: 8 are the least that there are (r and s of one octet each).
#[test]
fn short_signatures_are_as_good_as_others() {
    let ski = Ski([9; 20]);
    let empty = one_hop(ski, &[]);
    let path = Path::parse(&empty).expect("well-formed");
    let signed = Signed::new(&path, path.blocks().next().expect("a block"), TARGET, &nlri());
    let digest = hmac_sha256::Hash::hash(signed.of(0));
    for (octets, length) in [(1, 8), (31, 68)] {
        let least: BigUint = BigUint::from(1_u8) << (8 * octets - 2_u32);
        let key = (0..64_u32).find_map(|more| {
            let (r, s) = (&least + more, least.clone());
            Some((independent::key_with(&digest, &r, &s)?, sequence(&[&integer(&r), &integer(&s)])))
        });
        let ((x, y), signature) = key.expect("every other number is an x");
        assert_eq!(signature.len(), length);
        let point: Vec<u8> = [x, y]
            .iter()
            .flat_map(|value| {
                let octets = value.to_bytes_be();
                [vec![0; 32 - octets.len()], octets].concat()
            })
            .collect();
        let head = &signers([1])[0].router_key().spki[..27];
        let key = RouterKey { asn: Asn(64496), ski, spki: [head, &point].concat() };
        let octets = one_hop(ski, &signature);
        assert!(is_valid(&octets, std::slice::from_ref(&key)), "{length} octets");
        let keys = independent_keys([key.clone()]);
        assert!(independent::is_valid(&octets, TARGET.0, (1, 1), &[24, 192, 0, 2], &keys));
        let elsewhere = judge(&Validator::default(), &octets, Asn(65009), &nlri(), &[key]);
        assert_eq!(elsewhere, failure(&octets, 0, Reason::BadSignature));
    }
}

/// RFC 8608 asks for no low s, so whoever has a signature can make another one of the same octets. It proves the same.
#[test]
fn a_high_s_is_as_good_as_a_low_one() {
    let routers = signers([64496]);
    let (r, s) =
        independent::signature(&signature_of(&path_by(&[plain(64496)], &routers, TARGET))).expect("DER");
    let other = sequence(&[&integer(&r), &integer(&(independent::order() - s))]);
    let octets = one_hop(routers[0].ski(), &other);
    assert!(is_valid(&octets, &keys_of(&routers)));
    let keys = independent_keys(keys_of(&routers));
    assert!(independent::is_valid(&octets, TARGET.0, (1, 1), &[24, 192, 0, 2], &keys));
}

#[test]
fn a_signature_is_der_and_nothing_else() {
    let routers = signers([64496]);
    let signature = signature_of(&path_by(&[plain(64496)], &routers, TARGET));
    let (r, s) = independent::signature(&signature).expect("DER");
    let (r_der, s_der) = (integer(&r), integer(&s));
    let body = [&r_der[..], &s_der].concat();
    assert!(is_valid(&one_hop(routers[0].ski(), &sequence(&[&body])), &keys_of(&routers)), "as it was");
    let order = independent::order();
    let padded = |der: &[u8]| [&[2, der[1] + 1, 0][..], &der[2..]].concat();
    let zero = integer(&BigUint::ZERO);
    let table = [
        ("a zero before r", sequence(&[&padded(&r_der), &s_der])),
        ("a zero before s", sequence(&[&r_der, &padded(&s_der)])),
        ("a long form of the length", [&[0x30, 0x81, body.len() as u8][..], &body].concat()),
        ("an indefinite length", [&[0x30, 0x80][..], &body, &[0, 0]].concat()),
        ("an octet behind the sequence", [&sequence(&[&body])[..], &[0]].concat()),
        ("an octet inside it", sequence(&[&body, &[0]])),
        ("an octet too few", signature[..signature.len() - 1].to_vec()),
        ("a set", [&[0x31, body.len() as u8][..], &body].concat()),
        ("r alone", sequence(&[&r_der])),
        ("an integer without octets", sequence(&[&[2, 0], &s_der])),
        ("r = 0", sequence(&[&zero, &s_der])),
        ("s = 0", sequence(&[&r_der, &zero])),
        ("r + n", sequence(&[&integer(&(&r + &order)), &s_der])),
        ("s + n", sequence(&[&r_der, &integer(&(&s + &order))])),
        ("s and r", sequence(&[&s_der, &r_der])),
        ("a negative s", sequence(&[&r_der, &[&[2, 32, 0x80][..], &[1; 31]].concat()])),
        // As other protocols have them: two numbers of 32 octets.
        ("no DER", [r.to_bytes_be(), s.to_bytes_be()].concat()),
    ];
    for (what, signature) in table {
        let octets = one_hop(routers[0].ski(), &signature);
        let verdict = judge(&Validator::default(), &octets, TARGET, &nlri(), &keys_of(&routers));
        assert_eq!(verdict, failure(&octets, 0, Reason::BadSignature), "{what}");
    }
}

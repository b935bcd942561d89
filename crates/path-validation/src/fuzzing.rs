//! The body of the fuzz target, also run by a test over mutated inputs.

use holdfast_bgpsec_wire::{
    Ingress, Nlri, Path, Segment, Session, SignatureBlock, Signed, Ski, Update, extend, leave_confederation,
    octets_to_sign,
};
use holdfast_types::{Asn, Ipv4Prefix, Prefix, RouterKey};

use crate::{
    BadSignature, Change, Digest, KeyTable, Keys, Reason, StoredKey, Suite, Validator, Verdict,
    VerifiedSignatures,
};

/// For experiments (RFC 8608 section 2.1).
const SUITE: u8 = 0xfb;
/// ASs that have keys: this one and those up to the next.
const ASES: std::ops::Range<u32> = 1..5;
const OWN: Asn = Asn(100);

/// A suite whose signatures are a sum of octets, which a fuzzer finds.
struct Sum;

impl Suite for Sum {
    fn id(&self) -> u8 {
        SUITE
    }

    fn digest(&self, octets: &[u8]) -> Digest {
        Digest::new(&[octets.iter().fold(0, |sum: u8, octet| sum.wrapping_add(*octet))])
    }

    fn takes(&self, key: StoredKey<'_>) -> bool {
        !key.spki().is_empty()
    }

    fn verify(&self, _: StoredKey<'_>, digest: &Digest, signature: &[u8]) -> Result<(), BadSignature> {
        if digest.as_ref() == signature { Ok(()) } else { Err(BadSignature) }
    }
}

/// Knows a suite whose signatures a fuzzer finds, beside that of RFC 8608.
pub fn validator() -> Validator {
    Validator::default().with_suite(Sum)
}

/// The key of an AS is called by its number; one of them is of no suite.
pub fn table() -> KeyTable {
    let table = KeyTable::new([0, 0]);
    table.apply(ASES.map(|asn| {
        let spki = if asn + 1 == ASES.end { vec![] } else { vec![asn as u8] };
        Change::Announce(RouterKey { asn: Asn(asn), ski: Ski([asn as u8; 20]), spki })
    }));
    table
}

/// Octets of a path behind one that says who has sent it: whatever is read is read again from what is built of it, and a
/// verdict is the same twice and says no more than is so.
pub fn path(octets: &[u8]) {
    let Some((options, octets)) = octets.split_first() else { return };
    let Ok(path) = Path::parse(octets) else { return };
    assert!(path.blocks().all(|block| block.signatures().count() == path.hops()));
    let nlri =
        Nlri::unicast(Prefix::V4(Ipv4Prefix::new([192, 0, 2, 0].into(), options >> 3).expect("31 at most")));

    check(&path, *options);
    as_path(&path);
    go_on(&path, &nlri);
    judge(&path, &nlri);
}

fn check(path: &Path<'_>, options: u8) {
    let external = Ingress::external(path.newest().asn, OWN);
    let session = if options & 1 == 0 { Session::External } else { Session::Confederation };
    let ingress = Ingress { session, pcount_zero: options & 2 != 0, ..external };
    if ingress.check(path, Update::PROPER).is_ok() {
        assert!(path.hops() <= ingress.most_hops);
        assert_eq!(path.newest().is_confed(), session == Session::Confederation);
        assert!(path.segments().all(|segment| segment.asn != OWN || segment.pcount == 0));
    }
}

/// As many ASs as count, in segments that are full but for the newest of their kind.
fn as_path(path: &Path<'_>) {
    let octets = path.as_path();
    let (mut rest, mut counted) = (&octets[..], 0);
    while let [kind, count, behind @ ..] = rest {
        assert!(*count > 0);
        counted += if *kind == 2 { u32::from(*count) } else { 0 };
        rest = &behind[4 * usize::from(*count)..];
    }
    assert!(rest.is_empty());
    assert_eq!(counted, path.length());
}

fn go_on(path: &Path<'_>, nlri: &Nlri) {
    let segment = Segment { pcount: 1, flags: 0, asn: Asn(1) };
    let new: Vec<_> = path
        .blocks()
        .map(|block| SignatureBlock { suite: block.suite, ski: Ski([1; 20]), signature: &[1, 2, 3] })
        .collect();
    // Only the length of two octets stands in the way.
    let Ok(longer) = extend(Some(path), segment, &new) else { return };
    let longer = Path::parse(&longer).expect("what we built");
    assert!(longer.segments().skip(1).eq(path.segments()));
    for (block, before) in longer.blocks().zip(path.blocks()) {
        assert!(block.suite == before.suite && block.signatures().skip(1).eq(before.signatures()));
        // What is verified of a hop is what was signed for it, whoever has come since.
        let signed = Signed::new(&longer, block, OWN, nlri);
        assert_eq!(signed.of(0), octets_to_sign(Some((path, before)), block.suite, segment, OWN, nlri));
        assert_eq!(signed.of(1), Signed::new(path, before, segment.asn, nlri).of(0));
    }
    if let Some(left) = leave_confederation(path) {
        let left = Path::parse(&left).expect("what we built");
        assert!(!left.newest().is_confed() && left.hops() <= path.hops());
    }
}

fn judge(path: &Path<'_>, nlri: &Nlri) {
    let keys = table().keys();
    let verdict = validator().validate(path, OWN, nlri, &keys);
    let remembering = validator().with_memory(VerifiedSignatures::new(64, [1, 2]));
    for _ in 0..2 {
        assert_eq!(remembering.validate(path, OWN, nlri, &keys), verdict);
    }
    let known: Vec<_> = path.blocks().filter(|block| [1, SUITE].contains(&block.suite)).collect();
    match verdict {
        Verdict::Unsupported => assert!(known.is_empty()),
        // There are no keys of suite 1.
        Verdict::Valid => assert!(known.iter().any(|block| block.suite == SUITE)),
        Verdict::NotValid(failure) => {
            let block = known.first().expect("one that was looked at");
            let signature = block.signatures().nth(failure.hop).expect("a hop");
            let segment = path.segments().nth(failure.hop).expect("a hop");
            assert_eq!((failure.suite, failure.asn, failure.ski), (block.suite, segment.asn, signature.ski));
            let has_key = |keys: &Keys| keys.of(failure.asn, failure.ski).next().is_some();
            assert_eq!(has_key(&keys), failure.reason != Reason::NoKey);
        }
    }
}

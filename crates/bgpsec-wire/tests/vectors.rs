//! The worked examples of RFC 8608 appendix A, and everything that is no path.

use holdfast_bgpsec_wire::{
    CannotExtend, Malformed, Nlri, Path, Segment, SignatureBlock, Signed, Ski, extend, leave_confederation,
    octets_to_sign,
};
use holdfast_types::{Asn, Prefix};
use proptest::prelude::*;
use serde::Deserialize;

#[derive(Deserialize)]
struct Vectors {
    updates: Vec<Example>,
}

#[derive(Deserialize)]
struct Example {
    receiver_asn: u32,
    prefix: String,
    bgpsec_path: String,
    equivalent_as_path: Vec<u32>,
    hops_wire_order_most_recent_first: Vec<Hop>,
}

#[derive(Deserialize)]
struct Hop {
    signer_asn: u32,
    target_asn: u32,
    pcount: u8,
    flags: u8,
    ski: String,
    octets_hashed: String,
    signature_on_wire: String,
}

fn examples() -> Vec<Example> {
    let vectors: Vectors = serde_json::from_str(include_str!("rfc8608.json")).expect("vectors");
    vectors.updates
}

fn unhex(text: &str) -> Vec<u8> {
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).expect("digits")).collect()
}

impl Hop {
    fn segment(&self) -> Segment {
        Segment { pcount: self.pcount, flags: self.flags, asn: Asn(self.signer_asn) }
    }
}

impl Example {
    fn nlri(&self) -> Nlri {
        Nlri::unicast(self.prefix.parse::<Prefix>().expect("a prefix"))
    }
}

#[test]
fn the_examples_of_the_rfc_are_read() {
    for example in examples() {
        let octets = unhex(&example.bgpsec_path);
        let path = Path::parse(&octets).expect("well-formed");
        let hops = &example.hops_wire_order_most_recent_first;
        assert!(path.segments().eq(hops.iter().map(Hop::segment)));
        assert_eq!((path.hops(), path.length(), path.newest()), (2, 2, hops[0].segment()));
        let [block] = path.blocks().collect::<Vec<_>>()[..] else { panic!("one block") };
        assert_eq!(block.suite, 1);
        for (signature, hop) in block.signatures().zip(hops) {
            assert_eq!(
                (signature.ski.to_string(), signature.octets),
                (hop.ski.clone(), &unhex(&hop.signature_on_wire)[..])
            );
        }
        let ases = example.equivalent_as_path.iter().flat_map(|asn| asn.to_be_bytes());
        assert_eq!(path.as_path(), [2, 2].into_iter().chain(ases).collect::<Vec<_>>());
    }
}

#[test]
fn what_the_examples_sign_is_what_the_rfc_says() {
    for example in examples() {
        let octets = unhex(&example.bgpsec_path);
        let path = Path::parse(&octets).expect("well-formed");
        let block = path.blocks().next().expect("a block");
        let signed = Signed::new(&path, block, Asn(example.receiver_asn), &example.nlri());
        for (number, hop) in example.hops_wire_order_most_recent_first.iter().enumerate() {
            assert_eq!(signed.of(number), unhex(&hop.octets_hashed), "hop {number}");
        }
    }
}

#[test]
fn the_examples_are_built_again_hop_by_hop() {
    for example in examples() {
        let mut built: Option<Vec<u8>> = None;
        for hop in example.hops_wire_order_most_recent_first.iter().rev() {
            let before = built.as_deref().map(|octets| Path::parse(octets).expect("what we built"));
            let block = before.as_ref().map(|path| (path, path.blocks().next().expect("a block")));
            let to_sign = octets_to_sign(block, 1, hop.segment(), Asn(hop.target_asn), &example.nlri());
            assert_eq!(to_sign, unhex(&hop.octets_hashed));
            let signature = unhex(&hop.signature_on_wire);
            let block =
                SignatureBlock { suite: 1, ski: hop.ski.parse().expect("an SKI"), signature: &signature };
            built = Some(extend(before.as_ref(), hop.segment(), &[block]).expect("it fits"));
        }
        assert_eq!(built, Some(unhex(&example.bgpsec_path)));
    }
}

fn segment(pcount: u8, flags: u8, asn: u32) -> Segment {
    Segment { pcount, flags, asn: Asn(asn) }
}

/// A path of these segments, the oldest first, with signatures of so many suites.
fn path_of(segments: &[Segment], suites: &[u8]) -> Vec<u8> {
    let mut octets: Option<Vec<u8>> = None;
    for (number, segment) in segments.iter().enumerate() {
        let signature = vec![number as u8; 8 + number % 60];
        let blocks = suites.iter().map(|suite| SignatureBlock {
            suite: *suite,
            ski: Ski([*suite; 20]),
            signature: &signature,
        });
        let before = octets.as_deref().map(|octets| Path::parse(octets).expect("what we built"));
        octets = Some(extend(before.as_ref(), *segment, &blocks.collect::<Vec<_>>()).expect("it fits"));
    }
    octets.expect("a segment")
}

#[test]
fn as_paths_have_what_counts() {
    let as_path = |segments: &[Segment]| {
        let octets = path_of(segments, &[1]);
        let path = Path::parse(&octets).expect("well-formed");
        (path.as_path(), path.length())
    };
    let long = |kind: u8, ases: &[u32]| {
        let ases: Vec<u8> = ases.iter().flat_map(|asn| asn.to_be_bytes()).collect();
        [&[kind, (ases.len() / 4) as u8][..], &ases].concat()
    };
    assert_eq!(as_path(&[segment(3, 0, 1), segment(0, 0, 2), segment(1, 0, 3)]), (long(2, &[3, 1, 1, 1]), 4));
    // Unknown flags mean nothing; Confed_Segment is another type.
    let confed = [segment(1, 0x7f, 1), segment(0, 0x80, 9), segment(1, 0x80, 8), segment(2, 0x80, 7)];
    assert_eq!(as_path(&confed), ([long(3, &[7, 7, 8]), long(2, &[1])].concat(), 1));
    // The newest segment of AS_PATH is the one that is not full.
    let (octets, length) = as_path(&[segment(255, 0, 1), segment(2, 0, 2)]);
    assert_eq!((octets, length), ([long(2, &[2, 2]), long(2, &[1; 255])].concat(), 257));
    assert_eq!(as_path(&[segment(0, 0, 1)]), (vec![], 0));
}

#[test]
fn two_blocks_go_on_together_or_one_alone() {
    let octets = path_of(&[segment(1, 0, 1), segment(1, 0, 2)], &[1, 0xfb]);
    let path = Path::parse(&octets).expect("well-formed");
    assert_eq!(path.blocks().map(|block| block.suite).collect::<Vec<_>>(), [1, 0xfb]);
    let new = |suite| SignatureBlock { suite, ski: Ski([9; 20]), signature: &[1, 2, 3] };
    let one = extend(Some(&path), segment(1, 0, 3), &[new(0xfb), new(7)]).expect("it fits");
    let one = Path::parse(&one).expect("well-formed");
    assert_eq!(one.blocks().map(|block| block.suite).collect::<Vec<_>>(), [0xfb]);
    assert_eq!(extend(Some(&path), segment(1, 0, 3), &[new(7)]), Err(CannotExtend::NoBlock));
    assert_eq!(extend(None, segment(1, 0, 3), &[]), Err(CannotExtend::NoBlock));
    // Nobody would read what has them.
    assert_eq!(extend(None, segment(1, 0, 3), &[new(1), new(1)]), Err(CannotExtend::SameSuite(1)));
    assert_eq!(extend(None, segment(1, 0, 3), &[1, 2, 3].map(new)), Err(CannotExtend::TooManyBlocks(3)));
    let huge = vec![0; 65_500];
    let huge = SignatureBlock { suite: 1, ski: Ski([0; 20]), signature: &huge };
    assert_eq!(extend(Some(&path), segment(1, 0, 3), &[huge]), Err(CannotExtend::TooLong));
}

#[test]
fn what_was_added_inside_a_confederation_does_not_leave_it() {
    let outside = [segment(1, 0, 1), segment(1, 0, 2)];
    let inside = [segment(0, 0x80, 100), segment(1, 0x80, 101)];
    let octets = path_of(&[outside, inside].concat(), &[1, 0xfb]);
    let left = leave_confederation(&Path::parse(&octets).expect("well-formed"));
    assert_eq!(left, Some(path_of(&outside, &[1, 0xfb])));
    let octets = path_of(&inside, &[1]);
    assert_eq!(leave_confederation(&Path::parse(&octets).expect("well-formed")), None);
}

#[test]
fn each_way_to_be_malformed_has_its_name() {
    let octets = path_of(&[segment(1, 0, 1), segment(1, 0, 2)], &[1]);
    let with = |at: usize, value: u8| {
        let mut octets = octets.clone();
        octets[at] = value;
        octets
    };
    let block = 2 + 2 * 6;
    let second = |suite: u8| [&octets[..], &with(block + 2, suite)[block..]].concat();
    let table = [
        (vec![], Malformed::SecurePathLength),
        (vec![0], Malformed::SecurePathLength),
        (with(1, 1), Malformed::SecurePathLength),
        (with(1, 13), Malformed::SecurePathLength),
        (with(0, 255), Malformed::SecurePathLength),
        ([&[0, 2], &octets[block..]].concat(), Malformed::NoSegment),
        (octets[..block].to_vec(), Malformed::NoBlock),
        (with(block, 255), Malformed::BlockLength),
        (with(block + 1, 2), Malformed::BlockLength),
        (octets[..octets.len() - 1].to_vec(), Malformed::BlockLength),
        (with(block + 2, 0), Malformed::ReservedSuite(0)),
        (with(block + 2, 255), Malformed::ReservedSuite(255)),
        (with(block + 3 + 20, 1), Malformed::SignatureLength),
        (
            [&[0, 8, 1, 0, 0, 0, 0, 1], &octets[block..]].concat(),
            Malformed::SignatureCount { segments: 1, signatures: 2 },
        ),
        ([&octets[..block], &[0, 3, 1]].concat(), Malformed::SignatureCount { segments: 2, signatures: 0 }),
        (second(1), Malformed::SameSuite(1)),
        ([&second(2)[..], &octets[block..]].concat(), Malformed::TooMuch(octets.len() - block)),
        ([&second(2)[..], &[0]].concat(), Malformed::TooMuch(1)),
        // The second block is looked at to its end as well.
        ([&octets[..], &[0]].concat(), Malformed::BlockLength),
        (second(255), Malformed::ReservedSuite(255)),
    ];
    for (octets, malformed) in table {
        assert_eq!(Path::parse(&octets), Err(malformed));
    }
}

proptest! {
    #![proptest_config(holdfast_testing::cases(64))]

    #[test]
    fn octets_are_a_path_or_not(octets in proptest::collection::vec(any::<u8>(), 0..200)) {
        if let Ok(path) = Path::parse(&octets) {
            prop_assert!(path.blocks().all(|block| block.signatures().count() == path.hops()));
        }
    }

    #[test]
    fn what_is_built_is_read(
        segments in proptest::collection::vec((any::<u8>(), any::<u8>(), any::<u32>()), 1..30),
        suites in proptest::sample::subsequence(vec![1, 2, 0xfb], 1..=2),
    ) {
        let segments: Vec<_> = segments.into_iter().map(|(pcount, flags, asn)| segment(pcount, flags, asn)).collect();
        let octets = path_of(&segments, &suites);
        let path = Path::parse(&octets).expect("well-formed");
        prop_assert!(path.segments().rev().eq(segments.iter().copied()));
        prop_assert!(path.blocks().map(|block| block.suite).eq(suites.iter().copied()));
        for length in 0..octets.len() {
            let cut = Path::parse(&octets[..length]);
            // Of two blocks the first may be a path of its own.
            let is_first = cut.is_ok_and(|cut| cut.blocks().count() == 1 && suites.len() == 2);
            prop_assert!(cut.is_err() || is_first);
        }
    }

    #[test]
    fn every_octet_of_a_path_is_signed_by_someone(
        hops in 1..8_usize, at in any::<proptest::sample::Index>(), bit in 0..8_u8,
    ) {
        let segments: Vec<_> = (0..hops as u32).map(|asn| segment(1, 0, asn + 1)).collect();
        let octets = path_of(&segments, &[1]);
        let nlri = Nlri::unicast("192.0.2.0/24".parse().expect("a prefix"));
        let signed = |octets: &[u8]| Path::parse(octets).map(|path| {
            let block = path.blocks().next().expect("a block");
            let signed = Signed::new(&path, block, Asn(65000), &nlri);
            let covered: Vec<Vec<u8>> = (0..path.hops()).map(|hop| signed.of(hop).to_vec()).collect();
            let signatures: Vec<_> = block.signatures().map(|s| (s.ski, s.octets.to_vec())).collect();
            (covered, signatures)
        });
        let mut flipped = octets.clone();
        flipped[at.index(octets.len())] ^= 1 << bit;
        // What is covered differs, or a signature or its key does, or it cannot be read.
        prop_assert_ne!(signed(&octets), signed(&flipped));
    }
}

//! Sessions with two-octet speakers (RFC 6793): paths that are joined, and paths that are split again.

use super::hex::hex;
use holdfast_bgp_wire::{
    AsPath, Attributes, FaultReason, Origin,
    edit::{AttributesBuilder, Edit, rewrite},
    update::{AsSets, Checked, PeerKind, Rules, Verdict, check},
};
use holdfast_types::Asn;
use proptest::{collection::vec, prelude::*};

const OLD: Rules = Rules { four_octet_as: false, ..Rules::new(PeerKind::Ebgp, AsSets::Accept) };

fn received(attributes: &str, rules: &Rules) -> Checked {
    let mut checked = Checked::default();
    check(&hex(&["40010100 400304c0000201", attributes].concat()), true, rules, &mut checked);
    checked
}

fn path(attributes: &str) -> String {
    let checked = received(attributes, &OLD);
    assert_eq!(checked.verdict, Verdict::Ok, "{attributes}");
    Attributes(&checked.canonical).as_path().to_string()
}

#[test]
fn as_path_and_as4_path_are_joined() {
    let rows = [
        // nothing to join
        ("40 02 06 0202 fde9 fdea", "", "65001 65002"),
        ("40 02 00", "", ""),
        // the new speaker's part at the end is replaced
        ("40 02 08 0203 fde9 5ba0 fdea", "c0 11 0a 0202 fa56ea00 0000fdea", "65001 4200000000 65002"),
        // as long as each other
        ("40 02 06 0202 5ba0 fdea", "c0 11 0a 0202 fa56ea00 0000fdea", "4200000000 65002"),
        // shorter than AS4_PATH: that is not of this route
        ("40 02 04 0201 5ba0", "c0 11 0a 0202 fa56ea00 0000fdea", "23456"),
        // a set counts one
        ("40 02 0a 0201 fde9 0102 5ba0 fdea", "c0 11 0a 0102 fa56ea00 0000fdea", "65001 {4200000000,65002}"),
        // RFC 6793 section 6: confederation segments of AS4_PATH are dropped, the attribute is used
        ("40 02 06 0202 fde9 5ba0", "c0 11 0c 0301 00000001 0201 fa56ea00", "65001 4200000000"),
    ];
    for (as_path, as4_path, expected) in rows {
        assert_eq!(path(&[as_path, as4_path].concat()), expected, "{as_path} {as4_path}");
    }
}

#[test]
fn confederation_segments_beside_what_is_taken_stay() {
    // RFC 6793 section 4.2.3, last paragraph
    let confed = Rules { kind: PeerKind::ConfedEbgp, ..OLD };
    let attributes = "40 02 0c 0301 0001 0201 5ba0 0301 0002 40 05 04 00000064 c0 11 06 0201 fa56ea00";
    let checked = received(attributes, &confed);
    assert_eq!(checked.verdict, Verdict::Ok);
    assert_eq!(Attributes(&checked.canonical).as_path().to_string(), "(1) 4200000000");
}

#[test]
fn an_aggregator_that_is_not_as_trans_makes_the_as4_attributes_stale() {
    let paths = "40 02 06 0202 fde9 5ba0 c0 11 06 0201 fa56ea00";
    let rows = [
        ("c0 07 06 5ba0 c0000201 c0 12 08 fa56ea00 c0000202", "65001 4200000000", (4_200_000_000, 2)),
        ("c0 07 06 fdea c0000201 c0 12 08 fa56ea00 c0000202", "65001 23456", (65002, 1)),
        ("c0 07 06 5ba0 c0000201", "65001 4200000000", (23456, 1)),
    ];
    for (aggregators, path, (asn, host)) in rows {
        let checked = received(&[paths, aggregators].concat(), &OLD);
        let attributes = Attributes(&checked.canonical);
        assert_eq!(attributes.as_path().to_string(), path, "{aggregators}");
        assert_eq!(attributes.aggregator(), Some((Asn(asn), [192, 0, 2, host].into())), "{aggregators}");
    }
}

#[test]
fn malformed_as4_attributes_are_discarded_and_the_route_is_used() {
    let rows = [
        ("c0 11 04 0200 0201", 17, FaultReason::Length),
        ("c0 11 06 0202 fa56ea00", 17, FaultReason::MalformedSegment),
        ("c0 11 06 0901 fa56ea00", 17, FaultReason::MalformedSegment),
        ("c0 11 06 0201 00000000", 17, FaultReason::AsZero),
        ("80 11 06 0201 fa56ea00", 17, FaultReason::Flags),
        ("c0 12 06 fde9 c0000201", 18, FaultReason::Length),
    ];
    for (attribute, code, reason) in rows {
        let checked = received(&["40 02 06 0202 fde9 5ba0", attribute].concat(), &OLD);
        assert_eq!(checked.verdict, Verdict::Ok, "{attribute}");
        assert_eq!((checked.discarded[0].attribute, checked.discarded[0].reason), (code, reason));
        assert_eq!(Attributes(&checked.canonical).as_path().to_string(), "65001 23456");
    }
}

#[test]
fn an_as_set_in_as4_path_costs_the_routes() {
    let strict = Rules { as_sets: AsSets::Reject, ..OLD };
    let checked = received("40 02 06 0202 fde9 5ba0 c0 11 06 0101 fa56ea00", &strict);
    let Verdict::TreatAsWithdraw(fault) = checked.verdict else { panic!("{:?}", checked.verdict) };
    assert_eq!((fault.attribute, fault.reason), (17, FaultReason::AsSet));
}

#[test]
fn a_path_that_outgrows_the_attribute_when_widened_costs_the_routes() {
    let mut attributes = hex("40010100 400304c0000201 5002");
    let segment = [&[2, 255][..], &[0xfd, 0xe9].repeat(255)].concat();
    attributes.extend_from_slice(&(100 * segment.len() as u16).to_be_bytes());
    (0..100).for_each(|_| attributes.extend_from_slice(&segment));
    let mut checked = Checked::default();
    check(&attributes, true, &OLD, &mut checked);
    let Verdict::TreatAsWithdraw(fault) = checked.verdict else { panic!("{:?}", checked.verdict) };
    assert_eq!((fault.attribute, fault.reason), (2, FaultReason::Length));
}

fn asn() -> impl Strategy<Value = u32> {
    prop_oneof![1..65536u32, 65536..=u32::MAX]
}

proptest! {
    #![proptest_config(holdfast_testing::cases(256))]

    /// Whatever path we send to an old speaker, a new one behind it reads the same path.
    #[test]
    fn what_is_sent_to_an_old_speaker_is_whole_for_the_next_new_one(
        asns in vec(asn(), 0..600),
        prepend in (asn(), 0..5u8),
    ) {
        let builder = AttributesBuilder {
            as_path: asns.iter().copied().map(Asn).collect(),
            next_hop: Some([192, 0, 2, 1].into()),
            ..AttributesBuilder::new(Origin::Igp)
        };
        let edit = Edit { prepend: &[(Asn(prepend.0), prepend.1)], external: true, ..Edit::default() };
        let (mut old, mut new) = (Vec::new(), Vec::new());
        rewrite(&builder.build(), &Edit { four_octet_as: false, ..edit }, &mut old);
        rewrite(&builder.build(), &edit, &mut new);
        let mut checked = Checked::default();
        check(&old, true, &OLD, &mut checked);
        prop_assert_eq!(&checked.verdict, &Verdict::Ok);
        let asns = |bytes| Attributes(bytes).as_path().asns().collect::<Vec<_>>();
        prop_assert_eq!(asns(&checked.canonical), asns(&new));
        let path: AsPath<'_> = Attributes(&new).as_path();
        prop_assert_eq!(path.hops(), builder.as_path.len() + usize::from(prepend.1));
    }
}

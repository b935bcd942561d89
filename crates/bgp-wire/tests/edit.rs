//! Attributes as sent, change by change.

use super::hex::hex;
use holdfast_bgp_wire::{
    Attributes, Origin,
    as_path::SegmentType,
    edit::{AttributesBuilder, Change, Edit, PathEdit, PrivateAsns, Values, rewrite},
};
use holdfast_types::{Asn, RouterId};
use proptest::{collection::vec, prelude::*};

const BASE: &str = "40 01 01 00  40 02 06 0201 0000fde9  40 03 04 c0000201";

fn rewritten(attributes: &str, edit: &Edit<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    rewrite(&hex(attributes), edit, &mut out);
    out
}

/// A sentence, attributes before, the edit, attributes after.
type Row = (&'static str, String, Edit<'static>, String);

fn rows() -> Vec<Row> {
    let base = |more: &str| format!("{BASE} {more}");
    let edit = Edit::default();
    let path = PathEdit::default();
    let id = RouterId::new(0x0a00_0001).expect("not zero");
    vec![
        ("nothing to change", base("c0 08 04 fde90001"), edit, base("c0 08 04 fde90001")),
        (
            "the origin is another",
            BASE.into(),
            Edit { origin: Some(Origin::Incomplete), ..edit },
            BASE.replacen("40 01 01 00", "40 01 01 02", 1),
        ),
        (
            "our number goes into the first sequence",
            BASE.into(),
            Edit { prepend: &[(Asn(65000), 2)], ..edit },
            "40 01 01 00  40 02 0e 0203 0000fde8 0000fde8 0000fde9  40 03 04 c0000201".into(),
        ),
        (
            "before a set it is a segment of its own",
            "40 02 06 0101 0000fde9".into(),
            Edit { prepend: &[(Asn(65000), 1)], ..edit },
            "40 02 0c 0201 0000fde8 0101 0000fde9".into(),
        ),
        (
            "an empty path becomes one segment",
            "40 01 01 00 40 02 00".into(),
            Edit { prepend: &[(Asn(65000), 1)], ..edit },
            "40 01 01 00 40 02 06 0201 0000fde8".into(),
        ),
        (
            "values are set where they belong",
            BASE.into(),
            Edit {
                next_hop: Change::Set([192, 0, 2, 9].into()),
                med: Change::Set(5),
                local_pref: Change::Set(7),
                ..edit
            },
            "40 01 01 00  40 02 06 0201 0000fde9  40 03 04 c0000209  80 04 04 00000005  40 05 04 00000007"
                .into(),
        ),
        (
            "what is not there is set once, and before what follows it",
            base("40 06 00 c0 20 0c 000000010000000200000003"),
            Edit { med: Change::Set(5), communities: Values { add: &[1], ..Values::default() }, ..edit },
            base("80 04 04 00000005 40 06 00 c0 08 04 00000001 c0 20 0c 000000010000000200000003"),
        ),
        (
            "values are removed",
            base("80 04 04 00000005 40 05 04 00000007"),
            Edit { next_hop: Change::Remove, med: Change::Remove, local_pref: Change::Remove, ..edit },
            "40 01 01 00  40 02 06 0201 0000fde9".into(),
        ),
        (
            "what belongs to our AS stays inside it",
            base("40 05 04 00000007 80 09 04 0a000009 80 0a 04 0a000008"),
            Edit { external: true, local_pref: Change::Set(1), reflection: Change::Remove, ..edit },
            BASE.into(),
        ),
        (
            "private numbers are left out, but for the receiver's, and with them a segment that had no other",
            "40 02 18 0102 0000fde9 0000fde8 0203 0000fde9 00000007 0000fde8".into(),
            Edit { path: PathEdit { private: PrivateAsns::Remove(Asn(0)), ..path }, ..edit },
            "40 02 06 0201 00000007".into(),
        ),
        (
            "private numbers are replaced, but for the receiver's",
            "40 02 0e 0203 0000fde9 00000007 0000fde8".into(),
            Edit { path: PathEdit { private: PrivateAsns::Replace(Asn(65000), Asn(9)), ..path }, ..edit },
            "40 02 0e 0203 00000009 00000007 0000fde8".into(),
        ),
        (
            "the receiver's number is replaced by ours, and ours goes in front",
            "40 02 0e 0203 00000005 00000007 00000005".into(),
            Edit {
                path: PathEdit { replace: Some((Asn(5), Asn(9))), ..path },
                prepend: &[(Asn(9), 1)],
                ..edit
            },
            "40 02 12 0204 00000009 00000009 00000007 00000009".into(),
        ),
        (
            "two numbers go in front, the first outermost",
            BASE.into(),
            Edit { prepend: &[(Asn(1), 1), (Asn(2), 2)], ..edit },
            "40 01 01 00  40 02 12 0204 00000001 00000002 00000002 0000fde9  40 03 04 c0000201".into(),
        ),
        (
            "a member AS goes into the confederation sequence",
            "40 02 0c 0301 00000002 0201 0000fde9".into(),
            Edit { prepend: &[(Asn(1), 1)], prepend_into: SegmentType::ConfedSequence, ..edit },
            "40 02 10 0302 00000001 00000002 0201 0000fde9".into(),
        ),
        (
            "a member AS begins a confederation sequence",
            "40 02 06 0201 0000fde9".into(),
            Edit { prepend: &[(Asn(1), 1)], prepend_into: SegmentType::ConfedSequence, ..edit },
            "40 02 0c 0301 00000001 0201 0000fde9".into(),
        ),
        (
            "to the outside the confederation is one number",
            "40 02 12 0301 00000001 0401 00000002 0201 0000fde9".into(),
            Edit { path: PathEdit { strip_confederation: true, ..path }, prepend: &[(Asn(9), 1)], ..edit },
            "40 02 0a 0202 00000009 0000fde9".into(),
        ),
        (
            "what is told to customers only says so once",
            BASE.into(),
            Edit { only_to_customer: Some(Asn(7)), ..edit },
            base("c0 23 04 00000007"),
        ),
        (
            "and the first to say so is not contradicted",
            base("e0 23 04 00000005"),
            Edit { only_to_customer: Some(Asn(7)), ..edit },
            base("e0 23 04 00000005"),
        ),
        (
            "a reflected route names its originator and the cluster",
            BASE.into(),
            Edit { reflection: Change::Set((id, 7)), ..edit },
            base("80 09 04 0a000001 80 0a 04 00000007"),
        ),
        (
            "a route reflected twice keeps its originator",
            base("80 09 04 0a000009 80 0a 04 00000008"),
            Edit { reflection: Change::Set((id, 7)), ..edit },
            base("80 09 04 0a000009 80 0a 08 00000007 00000008"),
        ),
        (
            "communities are removed, then added, none twice",
            base("e0 08 08 00000001 00000002"),
            Edit { communities: Values { replace: false, remove: &[1], add: &[3, 2, 3] }, ..edit },
            base("e0 08 08 00000002 00000003"),
        ),
        (
            "the last community takes its attribute along",
            base("c0 08 04 00000001"),
            Edit { communities: Values { remove: &[1], ..Values::default() }, ..edit },
            BASE.into(),
        ),
        (
            "communities are replaced",
            base("c0 08 04 00000001"),
            Edit { communities: Values { replace: true, remove: &[], add: &[9] }, ..edit },
            base("c0 08 04 00000009"),
        ),
        (
            "extended and large communities likewise",
            base("c0 10 08 0000000000000001"),
            Edit {
                ext_communities: Values { add: &[[2; 8]], ..Values::default() },
                large_communities: Values { add: &[(1, 2, 3)], ..Values::default() },
                ..edit
            },
            base("c0 10 10 0000000000000001 0202020202020202 c0 20 0c 000000010000000200000003"),
        ),
        (
            "what others say of validity is left out, and all else stays",
            base("c0 10 18 4300000000000000 0000000000000001 4300000000000002"),
            Edit { validation_state: Change::Remove, ..edit },
            base("c0 10 08 0000000000000001"),
        ),
        (
            "where nobody says anything the attribute stays as it is",
            base("e0 10 08 0000000000000001"),
            Edit { validation_state: Change::Remove, ..edit },
            base("e0 10 08 0000000000000001"),
        ),
        (
            "and where there is none, none comes",
            BASE.into(),
            Edit { validation_state: Change::Remove, ..edit },
            BASE.into(),
        ),
        (
            "what is found out here takes the place of what was said",
            base("c0 10 10 4300000000000000 0000000000000001"),
            Edit { validation_state: Change::Set(2), ..edit },
            base("c0 10 10 0000000000000001 4300000000000002"),
        ),
        (
            "unknown attributes: transitive ones get Partial, others end here",
            base("80 1a 01 00  c0 63 02 0102 80 64 00 d0 f0 0001 00"),
            edit,
            base("e0 63 02 0102 f0 f0 0001 00"),
        ),
        (
            "an old speaker gets two octets and the rest beside them",
            base("c0 07 08 fa56ea00 c0000201"),
            Edit { prepend: &[(Asn(4_200_000_000), 1)], four_octet_as: false, ..edit },
            "40 01 01 00  40 02 06 0202 5ba0 fde9  40 03 04 c0000201  c0 07 06 5ba0 c0000201
             c0 11 0a 0202 fa56ea00 0000fde9  c0 12 08 fa56ea00 c0000201"
                .into(),
        ),
        (
            "an old speaker gets no AS4 attributes where two octets do",
            base("c0 07 08 0000fde9 c0000201"),
            Edit { four_octet_as: false, ..edit },
            "40 01 01 00  40 02 04 0201 fde9  40 03 04 c0000201  c0 07 06 fde9 c0000201".into(),
        ),
    ]
}

#[test]
fn each_change_does_what_its_name_says() {
    for (sentence, before, edit, after) in rows() {
        assert_eq!(rewritten(&before, &edit), hex(&after), "{sentence}");
    }
}

#[test]
fn a_full_sequence_is_not_overfilled() {
    let builder = AttributesBuilder { as_path: vec![Asn(7); 255], ..AttributesBuilder::new(Origin::Igp) };
    let mut out = Vec::new();
    rewrite(&builder.build(), &Edit { prepend: &[(Asn(8), 1)], ..Edit::default() }, &mut out);
    let lengths: Vec<_> = Attributes(&out).as_path().segments().map(|segment| segment.asns().len()).collect();
    assert_eq!(lengths, [1, 255]);
}

#[test]
fn a_list_that_shrinks_below_256_octets_gets_the_short_length() {
    let builder = AttributesBuilder { communities: (0..70).collect(), ..AttributesBuilder::new(Origin::Igp) };
    let remove: Vec<u32> = (0..40).collect();
    let communities = Values { remove: &remove, ..Values::default() };
    let mut out = Vec::new();
    rewrite(&builder.build(), &Edit { communities, ..Edit::default() }, &mut out);
    let left = Attributes(&out).get(8).expect("communities");
    assert_eq!((left.flags, left.value.len(), left.wire.len()), (0xc0, 120, 123));
}

#[test]
fn attributes_of_a_route_that_starts_here_are_canonical() {
    let builder = AttributesBuilder {
        as_path: vec![Asn(65001)],
        next_hop: Some([192, 0, 2, 1].into()),
        med: Some(5),
        local_pref: Some(100),
        communities: vec![0xffff_ff01],
        large_communities: vec![(1, 2, 3)],
        ..AttributesBuilder::new(Origin::Incomplete)
    };
    let expected = "40 01 01 02 40 02 06 0201 0000fde9 40 03 04 c0000201 80 04 04 00000005 40 05 04 00000064
                    c0 08 04 ffffff01 c0 20 0c 000000010000000200000003";
    assert_eq!(builder.build(), hex(expected));
}

#[test]
fn a_path_is_read_as_an_operator_knows_it() {
    let path = hex("0201 0000fc00 0102 00000001 00000002 0201 00000007 0302 00000003 00000004 0401 00000005");
    let path = holdfast_bgp_wire::AsPath::new(&path);
    assert_eq!(path.to_string(), "64512 {1,2} 7 (3 4) [5]");
    assert_eq!((path.hops(), path.first_as(), path.origin_as()), (3, Some(Asn(64512)), None));
    assert!(path.contains(Asn(2)) && path.contains(Asn(5)) && !path.contains(Asn(6)));
    let confed = hex("0301 00000009 0202 00000001 00000002");
    let confed = holdfast_bgp_wire::AsPath::new(&confed);
    assert_eq!((confed.first_as(), confed.neighbor_as()), (None, Some(Asn(1))));
    assert_eq!(confed.origin_as(), Some(Asn(2)));
}

proptest! {
    #![proptest_config(holdfast_testing::cases(256))]

    /// The community edit against sets of its own.
    #[test]
    fn communities_after_an_edit_are_those_of_a_plain_list(
        old in vec(0..90u32, 0..90), remove in vec(0..90u32, 0..70), add in vec(0..90u32, 0..70), replace: bool,
    ) {
        let builder = AttributesBuilder { communities: old.clone(), ..AttributesBuilder::new(Origin::Igp) };
        let communities = Values { replace, remove: &remove, add: &add };
        let mut out = Vec::new();
        rewrite(&builder.build(), &Edit { communities, ..Edit::default() }, &mut out);

        let mut expected: Vec<u32> = Vec::new();
        // The builder, too, adds nothing twice.
        for value in old.iter().filter(|value| !replace && !remove.contains(value)).chain(&add) {
            if !expected.contains(value) {
                expected.push(*value);
            }
        }
        prop_assert_eq!(Attributes(&out).communities().collect::<Vec<_>>(), expected);
        let in_order = Attributes(&out).iter().map(|attribute| attribute.code).is_sorted();
        prop_assert!(in_order && Attributes(&out).iter().map(|a| a.wire.len()).sum::<usize>() == out.len());
    }
}

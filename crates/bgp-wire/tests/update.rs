//! RFC 7606 row by row: a list of attributes, and what becomes of the UPDATE.

use super::hex::hex;
use holdfast_bgp_wire::{
    FaultReason, MpUnreach, NextHop, nlri,
    update::{
        AsSets, Checked, MAX_DISCARDED, Mp, PeerKind, Rules, Verdict, check, cut, sections,
        sections_identified,
    },
};
use holdfast_types::{Family, Ipv4Prefix};

const EBGP: Rules = Rules::new(PeerKind::Ebgp, AsSets::Reject);
const IBGP: Rules = Rules { kind: PeerKind::Ibgp, ..EBGP };

const ORIGIN: &str = "40 01 01 00";
const AS_PATH: &str = "40 02 0a 02 02 0000fde9 0000fdea";
const NEXT_HOP: &str = "40 03 04 c0000201";
const LOCAL_PREF: &str = "40 05 04 00000064";
const MP_REACH: &str = "80 0e 1a 0002 01 10 20010db8000000000000000000000001 00 20 20010db8";

/// What is expected, short enough for a table.
#[derive(Debug, PartialEq)]
enum Outcome {
    Fine,
    /// Attributes left out.
    Discard(Vec<(u8, FaultReason)>),
    Withdraw(u8, FaultReason),
    /// Subcode of the UPDATE Message Error.
    Reset(u8),
}
use FaultReason as Why;
use Outcome::{Discard, Fine, Reset, Withdraw};

fn outcome(attributes: &str, has_nlri: bool, rules: &Rules) -> Outcome {
    let mut checked = Checked::default();
    check(&hex(attributes), has_nlri, rules, &mut checked);
    match checked.verdict {
        Verdict::Ok if checked.discarded.is_empty() => Fine,
        Verdict::Ok => {
            Discard(checked.discarded.iter().map(|fault| (fault.attribute, fault.reason)).collect())
        }
        Verdict::TreatAsWithdraw(fault) => Withdraw(fault.attribute, fault.reason),
        Verdict::SessionReset(error) => {
            assert_eq!(error.code, 3);
            Reset(error.subcode)
        }
    }
}

fn with_nlri(attributes: &[&str], rules: &Rules) -> Outcome {
    outcome(&attributes.concat(), true, rules)
}

#[test]
fn each_attribute_has_the_treatment_of_its_rfc() {
    let discard = |code, why| Discard(vec![(code, why)]);
    // An attribute beside the three mandatory ones, from an external neighbour.
    let rows = [
        // RFC 7606 section 7.4
        ("80 04 04 00000001", Fine),
        ("80 04 03 000001", Withdraw(4, Why::Length)),
        ("c0 04 04 00000001", Withdraw(4, Why::Flags)),
        // 7.5, 7.9, 7.10: not from outside, whatever they look like
        (LOCAL_PREF, discard(5, Why::ExternalNeighbor)),
        ("40 05 02 0000", discard(5, Why::ExternalNeighbor)),
        ("80 09 04 0a000001", discard(9, Why::ExternalNeighbor)),
        ("80 0a 03 0a0000", discard(10, Why::ExternalNeighbor)),
        // 7.6
        ("40 06 00", Fine),
        ("40 06 01 00", discard(6, Why::Length)),
        ("c0 06 00", discard(6, Why::Flags)),
        // 7.7, RFC 7607
        ("c0 07 08 0000fde9 c0000201", Fine),
        ("c0 07 06 fde9 c0000201", discard(7, Why::Length)),
        ("c0 07 08 00000000 c0000201", discard(7, Why::AsZero)),
        // 7.8
        ("c0 08 08 fde90001 fde90002", Fine),
        ("c0 08 00", Withdraw(8, Why::Length)),
        ("c0 08 03 000001", Withdraw(8, Why::Length)),
        ("80 08 04 00000001", Withdraw(8, Why::Flags)),
        // 7.14, 7.15
        ("c0 10 08 0002fde900000001", Fine),
        ("c0 10 07 0002fde9000000", Withdraw(16, Why::Length)),
        ("c0 19 13 00000000000000000000000000000000000000", Withdraw(25, Why::Length)),
        // RFC 6793 section 6: not between four-octet speakers
        ("c0 11 06 0201 0000fde9", discard(17, Why::FourOctetNeighbor)),
        ("c0 12 08 0000fde9 c0000201", discard(18, Why::FourOctetNeighbor)),
        // RFC 8092 section 6
        ("c0 20 0c 0000fde9 00000001 00000002", Fine),
        ("c0 20 0b 0000fde9 00000001 000000", Withdraw(32, Why::Length)),
        // RFC 9234 section 5
        ("c0 23 04 0000fde9", Fine),
        ("c0 23 03 00fde9", Withdraw(35, Why::Length)),
        // RFC 4271 sections 5 and 6.3
        ("c0 63 02 0102", Fine),
        ("80 63 00", Fine),
        ("40 63 01 00", Reset(2)),
        // Those that others implement are known to be optional (RFC 7606 section 3 c)
        ("40 16 01 00", Withdraw(22, Why::Flags)),
        ("00 1a 00", Withdraw(26, Why::Flags)),
        ("40 1d 00", Withdraw(29, Why::Flags)),
        ("40 28 02 0102", Withdraw(40, Why::Flags)),
        ("40 80 00", Withdraw(128, Why::Flags)),
        ("c0 28 02 0102", Fine),
        // Deprecated ones are unknown ones
        ("40 1c 00", Reset(2)),
        ("c0 1c 03 010203", Fine),
        ("c0 81 00", Fine),
        // RFC 7606 section 4
        ("c0 08 05 fde90001", Withdraw(8, Why::Truncated)),
        ("c0 08", Withdraw(8, Why::Truncated)),
        ("c0", Withdraw(0, Why::Truncated)),
        ("d0 08 00", Withdraw(8, Why::Truncated)),
        // Section 3 g
        (ORIGIN, discard(1, Why::Duplicate)),
        ("40 01 07", Withdraw(1, Why::Truncated)),
    ];
    for (attribute, expected) in rows {
        let found = with_nlri(&[ORIGIN, AS_PATH, NEXT_HOP, attribute], &EBGP);
        assert_eq!(found, expected, "{attribute}");
    }
}

#[test]
fn mandatory_attributes_are_checked_and_missed() {
    let rows: [(&[&str], Outcome); 13] = [
        (&[ORIGIN, AS_PATH, NEXT_HOP], Fine),
        (&[AS_PATH, NEXT_HOP], Withdraw(1, Why::Missing)),
        (&[ORIGIN, NEXT_HOP], Withdraw(2, Why::Missing)),
        (&[ORIGIN, AS_PATH], Withdraw(3, Why::Missing)),
        (&["40 01 01 03", AS_PATH, NEXT_HOP], Withdraw(1, Why::UndefinedOrigin)),
        (&["40 01 02 0000", AS_PATH, NEXT_HOP], Withdraw(1, Why::Length)),
        (&["c0 01 01 00", AS_PATH, NEXT_HOP], Withdraw(1, Why::Flags)),
        (&[ORIGIN, AS_PATH, "40 03 03 c00002"], Withdraw(3, Why::Length)),
        (&[ORIGIN, AS_PATH, "40 03 04 00000000"], Withdraw(3, Why::UnusableNextHop)),
        (&[ORIGIN, AS_PATH, "40 03 04 e0000001"], Withdraw(3, Why::UnusableNextHop)),
        (&[ORIGIN, AS_PATH, "40 03 04 7f000001"], Withdraw(3, Why::UnusableNextHop)),
        // Partial is no conflict (section 3 c), nor is an extended length that is not needed.
        (&["60 01 01 00", AS_PATH, NEXT_HOP], Fine),
        (&["50 01 0001 00", AS_PATH, NEXT_HOP], Fine),
    ];
    for (attributes, expected) in rows {
        assert_eq!(with_nlri(attributes, &EBGP), expected, "{attributes:?}");
    }
}

#[test]
fn paths_are_checked_segment_by_segment() {
    let rows = [
        ("40 02 00", Fine),
        ("40 02 06 0201 0000fde9", Fine),
        ("40 02 07 0201 0000fde9 02", Withdraw(2, Why::MalformedSegment)),
        ("40 02 02 0200", Withdraw(2, Why::MalformedSegment)),
        ("40 02 06 0202 0000fde9", Withdraw(2, Why::MalformedSegment)),
        ("40 02 06 0901 0000fde9", Withdraw(2, Why::MalformedSegment)),
        ("40 02 06 0201 00000000", Withdraw(2, Why::AsZero)),
        ("40 02 06 0301 0000fde9", Withdraw(2, Why::ConfedSegment)),
        ("40 02 06 0101 0000fde9", Withdraw(2, Why::AsSet)),
    ];
    for (path, expected) in rows {
        assert_eq!(with_nlri(&[ORIGIN, path, NEXT_HOP], &EBGP), expected, "{path}");
    }
    let accepting = Rules { as_sets: AsSets::Accept, ..EBGP };
    assert_eq!(with_nlri(&[ORIGIN, "40 02 06 0101 0000fde9", NEXT_HOP], &accepting), Fine);
}

#[test]
fn confederation_segments_are_inside_a_confederation_only_and_another_member_has_to_send_one() {
    let (member, ours) =
        (Rules { kind: PeerKind::ConfedEbgp, ..EBGP }, Rules { kind: PeerKind::ConfedIbgp, ..EBGP });
    // RFC 5065 section 5: the path, and what becomes of it from another member AS and from inside our own.
    let rows = [
        ("40 02 06 0301 0000fde9", Fine, Fine),
        ("40 02 0c 0301 0000fde9 0201 00000007", Fine, Fine),
        ("40 02 06 0201 00000007", Withdraw(2, Why::NoConfedSequence), Fine),
        ("40 02 00", Withdraw(2, Why::NoConfedSequence), Fine),
        ("40 02 06 0202 0000fde9", Withdraw(2, Why::MalformedSegment), Withdraw(2, Why::MalformedSegment)),
        ("40 02 06 0401 0000fde9", Withdraw(2, Why::AsSet), Withdraw(2, Why::AsSet)),
    ];
    for (path, from_member, from_ours) in rows {
        assert_eq!(with_nlri(&[ORIGIN, path, NEXT_HOP, LOCAL_PREF], &member), from_member, "{path}");
        assert_eq!(with_nlri(&[ORIGIN, path, NEXT_HOP, LOCAL_PREF], &ours), from_ours, "{path}");
    }
}

#[test]
fn inside_the_as_its_own_attributes_are_read_and_local_pref_is_mandatory() {
    let base = [ORIGIN, AS_PATH, NEXT_HOP].concat();
    let rows = [
        ("", Withdraw(5, Why::Missing)),
        ("40 05 02 0000", Withdraw(5, Why::Length)),
        (LOCAL_PREF, Fine),
        (&[LOCAL_PREF, "80 09 04 0a000001"].concat(), Fine),
        (&[LOCAL_PREF, "80 09 03 0a0000"].concat(), Withdraw(9, Why::Length)),
        (&[LOCAL_PREF, "80 0a 08 0a0000010a000002"].concat(), Fine),
        (&[LOCAL_PREF, "80 0a 00"].concat(), Withdraw(10, Why::Length)),
    ];
    for (attributes, expected) in rows {
        assert_eq!(with_nlri(&[&base, attributes], &IBGP), expected, "{attributes}");
    }
}

#[test]
fn mp_attributes_that_cannot_be_read_end_the_session() {
    let base = [ORIGIN, AS_PATH].concat();
    let rows = [
        (MP_REACH, Fine),
        ("80 0f 08 0002 01 20 20010db8", Fine),
        // RFC 7606 section 5.3
        ("c0 0e 1a 0002 01 10 20010db8000000000000000000000001 00 20 20010db8", Reset(9)),
        ("80 0e 04 0002 01 00", Reset(9)),
        ("80 0f 02 0002", Reset(9)),
        ("80 0e 16 0002 01 10 20010db8000000000000000000000001 00 81", Reset(9)),
        ("80 0f 05 0002 01 20 20", Reset(9)),
        // 7.11
        ("80 0e 0a 0002 01 04 c0000201 00 00", Reset(9)),
        ("80 0e 06 0002 01 20 2001", Reset(9)),
        ("80 0e 1d 0002 01 18 20010db8000000000000000000000001 0000000000000000 00", Reset(9)),
        ("80 0e 19 0001 01 10 20010db8000000000000000000000001 00 18 c63364", Reset(9)),
        // 3 g
        (&[MP_REACH, MP_REACH].concat(), Reset(1)),
        // 3 j: the cut may have gone through prefixes
        ("80 0e 1a 0002", Reset(1)),
        // A family we do not know is for others to ignore.
        ("80 0e 06 4004 47 00 00 ff", Fine),
        // Next hop ::
        (
            "80 0e 1a 0002 01 10 00000000000000000000000000000000 00 20 20010db8",
            Withdraw(14, Why::UnusableNextHop),
        ),
    ];
    for (attribute, expected) in rows {
        assert_eq!(outcome(&[&base, attribute].concat(), false, &EBGP), expected, "{attribute}");
    }
}

#[test]
fn an_error_without_routes_to_withdraw_ends_the_session() {
    // RFC 7606 section 5.2
    let bad_origin = "40 01 01 07";
    let unreach = "80 0f 08 0002 01 20 20010db8";
    assert_eq!(outcome(bad_origin, false, &EBGP), Reset(6));
    assert_eq!(outcome(&[unreach, bad_origin].concat(), false, &EBGP), Reset(6));
    assert_eq!(
        outcome(&[MP_REACH, AS_PATH, bad_origin].concat(), false, &EBGP),
        Withdraw(1, Why::UndefinedOrigin)
    );
    assert_eq!(outcome("40 06 01 00", false, &EBGP), Discard(vec![(6, Why::Length)]));
}

#[test]
fn the_data_of_the_notification_is_the_erroneous_attribute() {
    // RFC 4271 section 6.3; without routes to withdraw, each of these ends the session (RFC 7606 section 5.2).
    let rows = [
        ("40 63 02 0102", 2),
        ("c0 01 01 00", 4),
        ("40 01 02 0000", 5),
        ("40 01 01 07", 6),
        ("c0 0f 03 0002 01", 9),
        ("80 0f 02 0002", 9),
        ("80 0e 04 0002 01 00", 9),
    ];
    for (attribute, subcode) in rows {
        let mut checked = Checked::default();
        check(&hex(attribute), false, &EBGP, &mut checked);
        let Verdict::SessionReset(error) = checked.verdict else { panic!("{attribute}") };
        assert_eq!((error.code, error.subcode, error.data), (3, subcode, hex(attribute)), "{attribute}");
    }
}

#[test]
fn the_strongest_treatment_wins() {
    // RFC 7606 section 3 h
    let discard_then_withdraw = [ORIGIN, AS_PATH, NEXT_HOP, LOCAL_PREF, "c0 08 00"];
    assert_eq!(with_nlri(&discard_then_withdraw, &EBGP), Withdraw(8, Why::Length));
    let withdraw_then_reset = [ORIGIN, AS_PATH, NEXT_HOP, "c0 08 00", "40 63 00"];
    assert_eq!(with_nlri(&withdraw_then_reset, &EBGP), Reset(2));
}

#[test]
fn canonical_bytes_are_sorted_short_and_clean() {
    let rows = [
        // order, Partial on a well-known attribute, unused flag bits
        (&[NEXT_HOP, "67 01 01 00", AS_PATH][..], [ORIGIN, AS_PATH, NEXT_HOP].concat()),
        // a length of two octets that need not be; Partial of an optional transitive one stays
        (
            &[ORIGIN, AS_PATH, NEXT_HOP, "f0 08 0004 fde90001"],
            [ORIGIN, AS_PATH, NEXT_HOP, "e0 08 04 fde90001"].concat(),
        ),
        // discarded ones are gone
        (&[ORIGIN, AS_PATH, NEXT_HOP, LOCAL_PREF, ORIGIN], [ORIGIN, AS_PATH, NEXT_HOP].concat()),
        // MP attributes too
        (&[MP_REACH, ORIGIN, AS_PATH, NEXT_HOP], [ORIGIN, AS_PATH, NEXT_HOP].concat()),
    ];
    for (attributes, expected) in rows {
        let mut checked = Checked::default();
        check(&hex(&attributes.concat()), true, &EBGP, &mut checked);
        assert_eq!(checked.verdict, Verdict::Ok);
        assert_eq!(checked.canonical, hex(&expected), "{attributes:?}");
    }
}

#[test]
fn next_hop_without_nlri_means_nothing() {
    // RFC 4760 section 3
    let mut checked = Checked::default();
    let unusable = "40 03 04 00000000";
    check(&hex(&[MP_REACH, ORIGIN, AS_PATH, unusable].concat()), false, &EBGP, &mut checked);
    assert_eq!((checked.verdict, checked.canonical), (Verdict::Ok, hex(&[ORIGIN, AS_PATH].concat())));
}

#[test]
fn the_report_of_discarded_attributes_is_bounded() {
    let mut attributes = [ORIGIN, AS_PATH, NEXT_HOP].concat();
    (0..100).for_each(|_| attributes.push_str(ORIGIN));
    let mut checked = Checked::default();
    check(&hex(&attributes), true, &EBGP, &mut checked);
    assert_eq!((checked.verdict, checked.discarded.len()), (Verdict::Ok, MAX_DISCARDED));
}

#[test]
fn buffers_of_an_earlier_update_leave_no_trace() {
    let mut checked = Checked::default();
    check(&hex("40 63 00"), true, &EBGP, &mut checked);
    let good = hex(&[ORIGIN, AS_PATH, NEXT_HOP].concat());
    check(&good, true, &EBGP, &mut checked);
    assert_eq!((&checked.verdict, &checked.canonical), (&Verdict::Ok, &good));
}

#[test]
fn next_hops_are_read_in_all_their_lengths() {
    let extended = Rules { extended_next_hop: true, ..EBGP };
    let rows = [
        ("80 0e 0e 0001 01 04 c0000201 00 18 c63364 00", "192.0.2.1"),
        ("80 0e 1a 0001 01 10 20010db8000000000000000000000001 00 18 c63364 00", "2001:db8::1"),
        (
            "80 0e 26 0002 01 20 20010db8000000000000000000000001 fe800000000000000000000000000001 00 00",
            "2001:db8::1 (fe80::1)",
        ),
        // Something else than a link-local address in the second place is no second address.
        (
            "80 0e 26 0002 01 20 20010db8000000000000000000000001 20010db8000000000000000000000002 00 00",
            "2001:db8::1",
        ),
        // Only the link-local one.
        (
            "80 0e 26 0002 01 20 00000000000000000000000000000000 fe800000000000000000000000000001 00 00",
            ":: (fe80::1)",
        ),
    ];
    for (attribute, expected) in rows {
        let attributes = hex(&[ORIGIN, AS_PATH, attribute].concat());
        let mp = check(&attributes, false, &extended, &mut Checked::default());
        let next_hop = mp.reach.and_then(|reach| reach.next_hop).expect(attribute);
        assert_eq!(next_hop.to_string(), expected);
        assert!(next_hop.is_usable() && !next_hop.address().is_unspecified());
    }
}

#[test]
fn the_quick_way_finds_what_the_full_way_finds() {
    let attributes = hex(&[MP_REACH, "50 01 0001 00", AS_PATH, "c0 08 04 fde90001"].concat());
    let (mut rest, mut checked) = (Vec::new(), Checked::default());
    let cut = cut(&attributes, &mut rest).expect("regular headers");
    let mp = check(&attributes, false, &EBGP, &mut checked);
    assert_eq!((cut.parse(&EBGP), &rest), (Ok(mp), &checked.canonical));
    let NextHop::V6 { global, .. } = mp.reach.and_then(|reach| reach.next_hop).expect("a next hop") else {
        panic!("an IPv6 next hop");
    };
    assert_eq!(global.to_string(), "2001:db8::1");
}

#[test]
fn irregular_headers_are_not_for_the_quick_way() {
    let doubled = [MP_REACH, MP_REACH].concat();
    for attributes in ["40 01 02 00", "40", &doubled, "c0 0f 03 000201"] {
        assert_eq!(cut(&hex(attributes), &mut Vec::new()), None, "{attributes}");
    }
    assert_eq!(cut(&[], &mut vec![1]).and_then(|cut| cut.parse(&EBGP).ok()), Some(Mp::default()));
}

#[test]
fn an_update_is_split_by_its_lengths() {
    let body = hex("0004 18 c00002 0004 40010100 18 c63364");
    let split = sections(&body).expect("sound");
    assert_eq!((split.withdrawn, split.nlri), (&hex("18c00002")[..], &hex("18c63364")[..]));
    let rows = [
        ("", 1),
        ("00", 1),
        ("0001", 1),
        ("0000 00", 1),
        ("0000 0001", 1),
        ("0000 0000 21 0102030405", 10),
        ("0000 0000 18 c633", 10),
        ("0002 2100 0000", 10),
    ];
    for (body, subcode) in rows {
        let error = sections(&hex(body)).expect_err(body);
        assert_eq!((error.code, error.subcode), (3, subcode), "{body}");
    }
}

#[test]
fn where_prefixes_have_path_identifiers_they_are_read_with_them_or_not_at_all() {
    let body = hex("0008 00000007 18 c00002 0004 40010100 ffffffff 18 c63364 00000000 00");
    let split = sections_identified(&body).expect("sound");
    let read = |bytes| {
        let paths = nlri::identified::<Ipv4Prefix>(bytes).map(|path| path.expect("sound"));
        paths.map(|path| (path.identifier, path.prefix.to_string())).collect::<Vec<_>>()
    };
    assert_eq!(read(split.withdrawn), [(7, "192.0.2.0/24".into())]);
    assert_eq!(read(split.nlri), [(u32::MAX, "198.51.100.0/24".into()), (0, "0.0.0.0/0".into())]);
    for nlri in ["00", "000000", "00000001", "00000001 21 0102030405", "00000001 18 c633"] {
        let error = sections_identified(&hex(&["0000 0000", nlri].concat())).expect_err(nlri);
        assert_eq!((error.code, error.subcode), (3, 10), "{nlri}");
    }
    let rules = Rules { identifiers: [Family::IPV6_UNICAST].into_iter().collect(), ..EBGP };
    for (nlri, sound) in [("00000001 20 20010db8", true), ("20 20010db8", false), ("00000001", false)] {
        let unreach = hex(&["0002 01", nlri].concat());
        assert_eq!(MpUnreach::parse(&unreach, &rules).is_ok(), sound, "{nlri}");
    }
    assert!(MpUnreach::parse(&hex("0001 01 18 c00002"), &rules).is_ok(), "the other family has none");
}

#[test]
fn end_of_rib_is_an_update_with_nothing_in_it() {
    let rows = [
        ("0000 0000", Some(Family::IPV4_UNICAST)),
        ("0000 0006 80 0f 03 0002 01", Some(Family::IPV6_UNICAST)),
        ("0000 0007 90 0f 0003 0002 01", Some(Family::IPV6_UNICAST)),
        ("0000 000b 80 0f 08 0002 01 20 20010db8", None),
        ("0004 18 c00002 0000", None),
        ("0000 0004 40010100", None),
    ];
    for (body, family) in rows {
        assert_eq!(sections(&hex(body)).expect("sound").end_of_rib(), family, "{body}");
    }
}

#[test]
fn a_fault_reads_as_what_is_wrong_and_where_it_says_so() {
    let mut checked = Checked::default();
    check(&hex(&[ORIGIN, NEXT_HOP, "40 02 06 0201 00000000"].concat()), true, &EBGP, &mut checked);
    let Verdict::TreatAsWithdraw(fault) = checked.verdict else { panic!("{:?}", checked.verdict) };
    assert_eq!(fault.to_string(), "AS_PATH: AS number 0 (RFC 7607 section 2)");
}

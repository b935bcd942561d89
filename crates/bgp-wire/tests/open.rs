//! OPEN, octet by octet (RFC 4271 section 6.2, RFC 5492, RFC 9072).

use super::hex::hex;
use holdfast_bgp_wire::{Capability, HEADER_LEN, MAX_LEN, Open, next_message};
use holdfast_types::{Asn, Family, RouterId};
use proptest::{collection::vec, prelude::*};

/// Version 4, AS 65001, hold time 180, identifier 10.0.0.1.
const FIXED: &str = "04 fde9 00b4 0a000001";

fn open(asn: u32, capabilities: Vec<Capability>) -> Open {
    let router_id = RouterId::new(0x0a00_0001).expect("not zero");
    Open { asn: Asn(asn), hold_time: 180, router_id, capabilities }
}

#[test]
fn an_open_is_read_and_written_as_the_rfc_draws_it() {
    let v4 = Capability::Multiprotocol(Family::IPV4_UNICAST);
    let rows = [
        (open(65001, vec![]), [FIXED, "00"].concat()),
        (open(65001, vec![v4.clone()]), [FIXED, "08 02 06 0104 0001 00 01"].concat()),
        (
            open(4_200_000_000, vec![Capability::FourOctetAs(Asn(4_200_000_000)), Capability::RouteRefresh]),
            "04 5ba0 00b4 0a000001 0a 02 08 4104 fa56ea00 0200".into(),
        ),
    ];
    for (open, body) in rows {
        assert_eq!(open.encode()[HEADER_LEN..], hex(&body));
        assert_eq!(Open::parse(&hex(&body)), Ok(open));
    }
}

#[test]
fn capabilities_may_come_in_many_parameters_and_in_the_long_form() {
    let expected =
        open(65001, vec![Capability::Multiprotocol(Family::IPV4_UNICAST), Capability::RouteRefresh]);
    let forms = [
        "0c 02 06 0104 0001 00 01 02 02 0200",
        // RFC 9072: the first length says nothing.
        "ff ff 000e 02 0006 0104 0001 00 01 02 0002 0200",
        "01 ff 000b 02 0008 0104 0001 00 01 0200",
    ];
    for form in forms {
        assert_eq!(Open::parse(&hex(&[FIXED, form].concat())).as_ref(), Ok(&expected), "{form}");
    }
}

#[test]
fn each_fault_has_its_subcode() {
    let rows = [
        ("03 fde9 00b4 0a000001 00", 1),
        ("04 0000 00b4 0a000001 00", 2),
        // AS 0, and a fixed field that contradicts the capability
        ("04 5ba0 00b4 0a000001 08 02 06 4104 00000000", 2),
        ("04 fde9 00b4 0a000001 08 02 06 4104 0000fdea", 2),
        ("04 fde9 00b4 00000000 00", 3),
        // a parameter that is no capability, one of RFC 9072 in the wrong place
        ("04 fde9 00b4 0a000001 04 01 02 0000", 4),
        ("04 fde9 00b4 0a000001 06 02 02 0200 ff 00", 4),
        ("04 fde9 0001 0a000001 00", 6),
        ("04 fde9 0002 0a000001 00", 6),
        // lengths that do not add up
        ("04 fde9 00b4 0a000001 01", 0),
        ("04 fde9 00b4 0a000001 00 00", 0),
        ("04 fde9 00b4 0a000001 02 02 01", 0),
        ("04 fde9 00b4 0a000001 04 02 02 0201", 0),
        ("04 fde9 00b4 0a000001 05 02 03 010100", 0),
        ("04 fde9 00b4 0a000001 ff ff 0001", 0),
        ("04 fde9 00b4 0a000001 ff ff 0003 02 0001", 0),
        // RFC 9234 section 4.2
        ("04 fde9 00b4 0a000001 08 02 06 0901 00 0901 03", 11),
    ];
    for (body, subcode) in rows {
        let error = Open::parse(&hex(body)).expect_err(body);
        assert_eq!((error.code, error.subcode), (2, subcode), "{body}");
    }
    assert_eq!(Open::parse(&hex(rows[0].0)).expect_err("version 3").data, [0, 4]);
}

#[test]
fn hold_time_zero_and_a_repeated_role_are_fine() {
    let body = hex("04 fde9 0000 0a000001 08 02 06 0901 03 0901 03");
    let open = Open::parse(&body).expect("sound");
    assert_eq!((open.hold_time, open.capabilities.len()), (0, 2));
}

#[test]
fn as_trans_without_the_capability_is_taken_at_its_word() {
    assert_eq!(Open::parse(&hex("04 5ba0 00b4 0a000001 00")).map(|open| open.asn), Ok(Asn(23456)));
}

#[test]
fn capabilities_beyond_a_message_are_left_out() {
    let capability = Capability::Unknown { code: 200, value: vec![1; 255] };
    let wire = open(65001, vec![capability; 20]).encode();
    assert!(wire.len() <= MAX_LEN);
    let message = next_message(&wire, MAX_LEN).expect("sound").expect("whole");
    assert_eq!(Open::parse(message.body).map(|open| open.capabilities.len()), Ok(15));
}

#[test]
fn the_long_form_begins_where_one_octet_cannot_count() {
    // RFC 9072 section 2; the parameter and the capability have two octets of header each.
    for (value, parameters) in [(251, "ff 02 fd c8 fb"), (252, "ff ff 0101 02 00fe c8 fc")] {
        let wire = open(65001, vec![Capability::Unknown { code: 200, value: vec![7; value] }]).encode();
        let parameters = hex(parameters);
        assert_eq!(wire[28..][..parameters.len()], parameters);
    }
}

proptest! {
    #![proptest_config(holdfast_testing::cases(256))]

    /// Across the border between the two forms of parameters, at 255 octets.
    #[test]
    fn any_number_of_capabilities_survives(bodies in vec((128..=255u8, vec(any::<u8>(), 0..40)), 0..40)) {
        let capabilities = bodies.into_iter().map(|(code, value)| Capability::Unknown { code, value });
        let open = open(65001, capabilities.collect());
        let wire = open.encode();
        let message = next_message(&wire, MAX_LEN).expect("sound").expect("whole");
        prop_assert_eq!(Open::parse(message.body), Ok(open));
    }
}

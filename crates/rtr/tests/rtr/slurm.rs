//! SLURM files: those of the documents, and what is wrong with others.

use holdfast_rtr::{Exceptions, SlurmError};
use holdfast_types::{Asn, RouterKey, Ski, Vrp};

use crate::tests::rtr::script::{aspa, key, set, vrp};

/// RFC 8416 section 3.5, with SKIs that are some, and the draft's ASPAs.
const FULL: &str = r#"{
  "slurmVersion": 2,
  "validationOutputFilters": {
    "prefixFilters": [
      {"prefix": "192.0.2.0/24", "comment": "All VRPs encompassed by prefix"},
      {"asn": 64496, "comment": "All VRPs matching ASN"},
      {"prefix": "198.51.100.0/24", "asn": 64497, "comment": "All VRPs encompassed by prefix, matching ASN"}
    ],
    "bgpsecFilters": [
      {"asn": 64496, "comment": "All keys for ASN"},
      {"SKI": "MTIzNDU2Nzg5MDEyMzQ1Njc4OTA", "comment": "Key matching Router SKI"},
      {"asn": 64497, "SKI": "ZGVhZGJlYXRkZWFkYmVhdGRlYWQ=", "comment": "Key for ASN 64497 matching Router SKI"}
    ],
    "aspaFilters": [{"customerAsid": 64496}, {"customerAsn": 64500}]
  },
  "locallyAddedAssertions": {
    "prefixAssertions": [
      {"asn": 64496, "prefix": "198.51.100.0/24", "comment": "My other important route"},
      {"asn": 64496, "prefix": "2001:DB8::/32", "maxPrefixLength": 48, "comment": "My de-aggregated routes"}
    ],
    "bgpsecAssertions": [
      {"asn": 64496, "SKI": "CQkJCQkJCQkJCQkJCQkJCQkJCQk", "routerPublicKey": "-_8", "comment": "URL, not padded"}
    ],
    "aspaAssertions": [{"customerAsn": 64496, "providerAsns": [64498, 64497]}]
  }
}"#;

fn parse(text: &str) -> Result<Exceptions, String> {
    Exceptions::parse([("a.json", text)]).map_err(|error| error.to_string())
}

#[test]
fn the_example_of_the_documents_means_what_it_says() {
    let exceptions = parse(FULL).unwrap();
    let mut expected =
        set([vrp("198.51.100.0/24 AS64496"), vrp("2001:db8::/32-48 AS64496"), aspa(64496, &[64497, 64498])]);
    let asserted = RouterKey { asn: Asn(64496), ski: Ski([9; 20]), spki: vec![0xfb, 0xff] };
    expected.extend([holdfast_rtr_wire::Record::RouterKey(asserted)]);
    assert_eq!(exceptions.assertions(), &expected);
    for (text, filtered) in [
        ("192.0.2.0/24 AS1", true),
        ("192.0.2.128/25 AS1", true),
        ("192.0.0.0/16 AS1", false),
        ("10.0.0.0/8 AS64496", true),
        ("198.51.100.0/25 AS64497", true),
        ("198.51.100.0/25 AS64498", false),
        ("2001:db8::/32 AS64497", false),
    ] {
        let holdfast_rtr_wire::Record::Vrp(vrp): holdfast_rtr_wire::Record = vrp(text) else {
            unreachable!()
        };
        assert_eq!(exceptions.filters_vrp(vrp), filtered, "{text}");
    }
    let router = |asn, ski: &[u8; 20]| RouterKey { asn: Asn(asn), ski: Ski(*ski), spki: Vec::new() };
    let (one, two) = (b"12345678901234567890", b"deadbeatdeadbeatdead");
    for (asn, ski, filtered) in [(64496, two, true), (1, one, true), (64497, two, true), (64498, two, false)]
    {
        assert_eq!(exceptions.filters_router_key(&router(asn, ski)), filtered, "{asn}");
    }
    assert!(exceptions.filters_aspa(Asn(64496)) && exceptions.filters_aspa(Asn(64500)));
    assert!(!exceptions.filters_aspa(Asn(64497)));
}

#[test]
fn what_is_wrong_is_named_with_its_place() {
    let filters = "validationOutputFilters";
    let assertions = "locallyAddedAssertions";
    for (from, to, told) in [
        (
            "\"slurmVersion\": 2",
            "\"slurmVersion\": 3",
            "slurmVersion: a number from 0 to 2 is expected".to_owned(),
        ),
        ("\"slurmVersion\": 2", "\"slurmVersion\": 0", "slurmVersion: version 0; 1 and 2 are known".into()),
        // Version 1 has no ASPAs.
        ("\"slurmVersion\": 2", "\"slurmVersion\": 1", format!("{filters}: `aspaFilters` is not defined")),
        ("\"slurmVersion\": 2,", "\"slurmVersion\": 2, \"x\": 1,", "the file: `x` is not defined".into()),
        ("\"slurmVersion\": 2,", "", "the file: `slurmVersion` is missing".into()),
        ("\"prefixFilters\"", "\"prefixFilter\"", format!("{filters}: `prefixFilters` is missing")),
        (
            "{\"asn\": 64496, \"comment\": \"All VRPs matching ASN\"}",
            "{}",
            format!("{filters}.prefixFilters[1]: neither `prefix` nor `asn`"),
        ),
        (
            "{\"asn\": 64496, \"comment\": \"All VRPs",
            "{\"asn\": \"64496\", \"comment\": \"All VRPs",
            format!("{filters}.prefixFilters[1].asn: a number from 0 to 4294967295 is expected"),
        ),
        (
            "\"192.0.2.0/24\"",
            "\"192.0.2.0\"",
            format!("{filters}.prefixFilters[0].prefix: `192.0.2.0` is no prefix"),
        ),
        (
            "\"comment\": \"All keys for ASN\"",
            "\"comment\": 3",
            format!("{filters}.bgpsecFilters[0].comment: a string is expected"),
        ),
        (
            "MTIzNDU2Nzg5MDEyMzQ1Njc4OTA",
            "MTIz",
            format!("{filters}.bgpsecFilters[1].SKI: 3 octets, not the 20 of a SKI"),
        ),
        ("-_8", "-_*", format!("{assertions}.bgpsecAssertions[0].routerPublicKey: no base64")),
        (
            "\"maxPrefixLength\": 48",
            "\"maxPrefixLength\": 24",
            format!("{assertions}.prefixAssertions[1]: 2001:db8::/32 cannot go with"),
        ),
        (
            "\"maxPrefixLength\"",
            "\"maxLength\"",
            format!("{assertions}.prefixAssertions[1]: `maxLength` is not defined"),
        ),
        ("[64498, 64497]", "[]", format!("{assertions}.aspaAssertions[0].providerAsns: no provider")),
        ("[64498, 64497]", "[0, 64497]", format!("{assertions}.aspaAssertions[0].providerAsns: no provider")),
        ("[64498, 64497]", "[\"AS1\"]", format!("{assertions}.aspaAssertions[0].providerAsns[0]: a number")),
    ] {
        assert!(FULL.contains(from), "{from}");
        let error = parse(&FULL.replacen(from, to, 1)).expect_err(to);
        assert!(error.starts_with(&format!("a.json: {told}")), "{error}\nnot: {told}");
    }
    assert!(parse("{").unwrap_err().starts_with("a.json: EOF"));
    assert_eq!(parse("[]").unwrap_err(), "a.json: the file: an object is expected");
}

/// The last one would hold, and what the first one filters would come in.
#[test]
fn a_member_that_is_there_twice_is_refused_at_any_depth() {
    for (from, to, told) in [
        (
            "\"bgpsecFilters\"",
            "\"prefixFilters\": [],\n\"bgpsecFilters\"",
            "`prefixFilters` is there twice at line 9 ",
        ),
        (
            "\"aspaFilters\"",
            "\"bgpsecFilt\\u0065rs\": [],\n\"aspaFilters\"",
            "`bgpsecFilters` is there twice at line 14 ",
        ),
        (
            "\"slurmVersion\": 2,",
            "\"slurmVersion\": 2, \"slurmVersion\": 2,",
            "`slurmVersion` is there twice at line 2 ",
        ),
        (
            "{\"asn\": 64496, \"comment\"",
            "{\"asn\": 64496, \"asn\": 1, \"comment\"",
            "`asn` is there twice at line 6 ",
        ),
    ] {
        assert!(FULL.contains(from), "{from}");
        let error = parse(&FULL.replacen(from, to, 1)).expect_err(to);
        assert!(error.starts_with(&format!("a.json: {told}")), "{error}\nnot: {told}");
    }
}

fn file(filter: &str, assertion: &str, router: u32, customer: u32) -> String {
    format!(
        r#"{{"slurmVersion": 2,
        "validationOutputFilters": {{"prefixFilters": [{{"prefix": "{filter}"}}], "bgpsecFilters": [{{"asn": {router}}}], "aspaFilters": [{{"customerAsn": {customer}}}]}},
        "locallyAddedAssertions": {{"prefixAssertions": [{{"prefix": "{assertion}", "asn": 1}}], "bgpsecAssertions": [], "aspaAssertions": []}}}}"#
    )
}

/// RFC 8416 section 4.2: the whole set is refused.
#[test]
fn files_that_overlap_are_refused_together() {
    let one = file("10.0.0.0/8", "10.1.0.0/16", 1, 1);
    for (other, what) in [
        (file("10.2.0.0/16", "192.0.2.0/24", 2, 2), "10.2.0.0/16"),
        (file("192.0.2.0/24", "10.0.0.0/7", 2, 2), "10.0.0.0/8"),
        (file("192.0.2.0/24", "10.1.0.0/16", 2, 2), "10.1.0.0/16"),
        (file("192.0.2.0/24", "::/0", 1, 2), "router keys of AS1"),
        (file("192.0.2.0/24", "::/0", 2, 1), "the ASPA of AS1"),
    ] {
        let error = Exceptions::parse([("a", one.as_str()), ("b", other.as_str())]).unwrap_err();
        let SlurmError::Overlap { file, other, what: told } = error else { panic!("{error}") };
        assert_eq!(told, what);
        assert!(
            [file.as_str(), other.as_str()].iter().all(|name| ["a", "b"].contains(name)) && file != other
        );
    }
    let apart = file("192.0.2.0/24", "11.0.0.0/8", 2, 2);
    let both = Exceptions::parse([("a", one.as_str()), ("b", apart.as_str())]).unwrap();
    assert_eq!(both.assertions(), &set([vrp("10.1.0.0/16 AS1"), vrp("11.0.0.0/8 AS1")]));
    let holdfast_rtr_wire::Record::RouterKey(router) = key(2, 1) else { unreachable!() };
    let inside = Vrp::new("10.9.0.0/16".parse().unwrap(), 16, Asn(5)).unwrap();
    assert!(both.filters_router_key(&router) && both.filters_vrp(inside));
}

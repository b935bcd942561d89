//! PDUs as the documents draw them, what is wrong with others, and anything at all.

use holdfast_rtr_wire::{
    ErrorCode, ErrorReport, Frame, LONGEST, Malformed, Pdu, Record, Serial, Timing, Unwritable, Version,
};
use holdfast_types::{Asn, Aspa, RouterKey, Ski, Vrp};
use proptest::prelude::*;

fn octets(hex: &str) -> Vec<u8> {
    let digits: Vec<u32> = hex.chars().filter_map(|digit| digit.to_digit(16)).collect();
    digits.chunks(2).map(|pair| (pair[0] << 4 | pair[1]) as u8).collect()
}

fn read(octets: &[u8]) -> Result<Pdu, Malformed> {
    let (frame, rest) = Frame::split(octets)?.expect("a whole PDU");
    assert!(rest.is_empty());
    frame.pdu(Version::from_octet(frame.version()).ok_or(Malformed::Version(frame.version()))?)
}

fn vrp(prefix: &str, max_length: u8, asn: u32) -> Record {
    Record::Vrp(Vrp::new(prefix.parse().unwrap(), max_length, Asn(asn)).unwrap())
}

fn aspa(providers: &[u32]) -> Record {
    Record::Aspa(Aspa::new(Asn(64496), providers.iter().copied().map(Asn).collect()))
}

#[test]
fn pdus_are_as_they_are_drawn() {
    let timing = Some(Timing { refresh: 3600, retry: 600, expire: 7200 });
    let key =
        Record::RouterKey(RouterKey { asn: Asn(64496), ski: Ski([0xab; 20]), spki: vec![0x30, 0x01, 0xff] });
    let text = "no".to_owned();
    let report = ErrorReport { code: ErrorCode::UnsupportedPduType, pdu: vec![1, 2, 3], text };
    let ski = "ab".repeat(20);
    for (version, hex, pdu) in [
        (1, "0100 dead 0000000c 00000007", Pdu::SerialNotify { session: 0xdead, serial: Serial(7) }),
        (0, "0001 dead 0000000c 00000007", Pdu::SerialQuery { session: 0xdead, serial: Serial(7) }),
        (2, "0202 0000 00000008", Pdu::ResetQuery),
        (1, "0103 dead 00000008", Pdu::CacheResponse { session: 0xdead }),
        (1, "0104 0000 00000014 01181a00 c0000200 0000fbf0", Pdu::Announce(vrp("192.0.2.0/24", 26, 64496))),
        (
            0,
            "0006 0000 00000020 00203000 20010db8000000000000000000000000 0000fbf0",
            Pdu::Withdraw(vrp("2001:db8::/32", 48, 64496)),
        ),
        (
            0,
            "0007 dead 0000000c 00000007",
            Pdu::EndOfData { session: 0xdead, serial: Serial(7), timing: None },
        ),
        (
            1,
            "0107 dead 00000018 00000007 00000e10 00000258 00001c20",
            Pdu::EndOfData { session: 0xdead, serial: Serial(7), timing },
        ),
        (1, "0108 0000 00000008", Pdu::CacheReset),
        (1, &format!("0109 0100 00000023 {ski} 0000fbf0 3001ff"), Pdu::Announce(key.clone())),
        (1, &format!("0109 0000 00000023 {ski} 0000fbf0 3001ff"), Pdu::Withdraw(key)),
        (1, "010a 0005 00000015 00000003 010203 00000002 6e6f", Pdu::ErrorReport(report)),
        (2, "020b 0100 00000014 0000fbf0 0000fbf1 0000fbf2", Pdu::Announce(aspa(&[64498, 64497]))),
        (2, "020b 0100 00000010 0000fbf0 00000000", Pdu::Announce(aspa(&[0]))),
        (2, "020b 0000 0000000c 0000fbf0", Pdu::Withdraw(aspa(&[]))),
    ] {
        assert_eq!(read(&octets(hex)).as_ref(), Ok(&pdu), "{hex}");
        let mut written = Vec::new();
        pdu.write(Version::from_octet(version).unwrap(), &mut written).unwrap();
        assert_eq!(written, octets(hex), "{pdu:?}");
    }
}

/// Senders may set what is reserved (section 5), which changes nothing.
#[test]
fn what_is_reserved_is_not_looked_at() {
    let drawn = "0104 0000 00000014 01181800 c0000200 0000fbf0";
    assert_eq!(read(&octets("0104 beef 00000014 ff1818ff c0000200 0000fbf0")), read(&octets(drawn)));
    // The bits after the length are none of the prefix's.
    assert_eq!(read(&octets("0104 0000 00000014 01181800 c00002aa 0000fbf0")), read(&octets(drawn)));
}

#[test]
fn each_fault_has_its_name_and_its_code() {
    use ErrorCode::*;
    for (hex, told, code) in [
        ("0102 0000 00000007", "a PDU of 7 octets", CorruptData),
        ("010a 0000 00010000", "a PDU of 65536 octets", CorruptData),
        ("0104 0000 ffffffff", "a PDU of 4294967295 octets", CorruptData),
        ("0102 0000 00000009 00", "Reset Query of 9 octets", CorruptData),
        ("0107 0000 0000000c 00000000", "End of Data of 12 octets", CorruptData),
        ("0109 0000 0000001f", "Router Key of 31 octets", CorruptData),
        ("020b 0100 00000012 00000001 00000002 0000", "ASPA of 18 octets", CorruptData),
        ("0302 0000 00000008", "protocol version 3", UnsupportedProtocolVersion),
        ("0105 0000 00000008", "PDU type 5", UnsupportedPduType),
        (
            "0009 0000 00000020 0000000000000000000000000000000000000000 00000000",
            "Router Key in protocol version 0",
            UnsupportedPduType,
        ),
        ("010b 0100 00000010 00000001 00000002", "ASPA in protocol version 1", UnsupportedPduType),
        ("0104 0000 00000014 01211800 c0000200 0000fbf0", "a prefix of 33 bits", CorruptData),
        (
            "0104 0000 00000014 01181700 c0000200 0000fbf0",
            "192.0.2.0/24 cannot go with a maximal length of 23",
            CorruptData,
        ),
        (
            "0104 0000 00000014 01182100 c0000200 0000fbf0",
            "192.0.2.0/24 cannot go with a maximal length of 33",
            CorruptData,
        ),
        ("020b 0100 0000000c 00000001", "an ASPA that announces no provider", AspaProviderListError),
        (
            "020b 0000 00000010 00000001 00000002",
            "an ASPA that is withdrawn and names providers",
            AspaProviderListError,
        ),
        (
            "020b 0100 00000014 00000001 00000000 00000002",
            "an ASPA with AS 0 beside other providers",
            AspaProviderListError,
        ),
        (
            "020b 0100 00000014 00000001 00000002 00000002",
            "providers of an ASPA that do not ascend",
            AspaProviderListError,
        ),
        (
            "020b 0100 00000014 00000001 00000003 00000002",
            "providers of an ASPA that do not ascend",
            AspaProviderListError,
        ),
        (
            "010a 0005 00000010 00000001 00000000",
            "an Error Report whose parts are longer than itself",
            CorruptData,
        ),
        (
            "010a 0005 00000011 00000000 00000000 00",
            "an Error Report whose parts are longer than itself",
            CorruptData,
        ),
    ] {
        let fault = read(&octets(hex)).expect_err(hex);
        assert_eq!((fault.to_string().as_str(), fault.code()), (told, code), "{hex}");
        assert_eq!(ErrorCode::from_number(code.number()), code);
    }
    assert_eq!(Unknown(77).number(), 77);
}

/// Nobody waits for four gigabytes: a length is refused with the header that tells it.
#[test]
fn a_length_is_refused_before_the_rest_comes() {
    assert!(Frame::split(&octets("0104 0000 0000")).unwrap().is_none());
    assert!(Frame::split(&octets("0104 0000 00000014")).unwrap().is_none());
    assert!(Frame::split(&octets("0104 0000 00000015")).is_err());
    assert!(Frame::split(&octets("0109 0000 0000ffff")).unwrap().is_none());
    assert!(Frame::split(&octets("0109 0000 00010000")).is_err());
}

#[test]
fn what_a_version_cannot_say_is_not_written() {
    let key = Record::RouterKey(RouterKey { asn: Asn(1), ski: Ski([0; 20]), spki: vec![0; LONGEST - 32] });
    let mut out = vec![7];
    assert_eq!(
        Pdu::Announce(key.clone()).write(Version::V0, &mut out),
        Err(Unwritable::Version(Version::V0))
    );
    assert_eq!(Pdu::Announce(aspa(&[1])).write(Version::V1, &mut out), Err(Unwritable::Version(Version::V1)));
    assert_eq!(out, [7]);
    assert_eq!(Pdu::Announce(key.clone()).write(Version::V1, &mut out), Ok(()));
    let Record::RouterKey(mut key) = key else { unreachable!() };
    key.spki.push(0);
    let length = out.len();
    assert_eq!(Pdu::Announce(Record::RouterKey(key)).write(Version::V1, &mut out), Err(Unwritable::TooLong));
    assert_eq!(out.len(), length);
    let report =
        ErrorReport { code: ErrorCode::CorruptData, pdu: vec![1; LONGEST], text: "ü".repeat(LONGEST) };
    out.clear();
    Pdu::ErrorReport(report).write(Version::V1, &mut out).unwrap();
    assert!(out.len() <= LONGEST && matches!(read(&out), Ok(Pdu::ErrorReport(_))), "cut, and in order");
}

/// The payload of the one capture that tcpdump has of the protocol: an attempt on its reader of Error Reports.
#[test]
fn a_capture_of_tcpdump_is_refused() {
    let payload = octets("ab06 03ab 0000 0003 e8");
    assert_eq!(Frame::split(&payload).unwrap_err(), Malformed::Length(3));
}

proptest! {
    #![proptest_config(holdfast_testing::cases(256))]

    #[test]
    fn what_is_written_is_read((version, pdu) in pdus(), cut in any::<usize>()) {
        let mut octets = Vec::new();
        pdu.write(version, &mut octets).unwrap();
        prop_assert_eq!(octets[0], version.octet());
        prop_assert_eq!(read(&octets), Ok(pdu));
        prop_assert!(Frame::split(&octets[..cut % octets.len()]).unwrap().is_none());
    }

    #[test]
    fn nothing_makes_the_reader_stumble(octets in proptest::collection::vec(any::<u8>(), 0..200)) {
        holdfast_rtr_wire::fuzzing::pdus(&octets);
    }
}

fn pdus() -> impl Strategy<Value = (Version, Pdu)> {
    let session = any::<u16>();
    let serial = any::<u32>().prop_map(Serial);
    let code = any::<u16>().prop_map(ErrorCode::from_number);
    let report = (code, proptest::collection::vec(any::<u8>(), 0..100), ".{0,50}");
    let timing = any::<[u32; 3]>().prop_map(|[refresh, retry, expire]| Timing { refresh, retry, expire });
    let pdu = prop_oneof![
        (session, serial.clone()).prop_map(|(session, serial)| Pdu::SerialNotify { session, serial }),
        (session, serial.clone()).prop_map(|(session, serial)| Pdu::SerialQuery { session, serial }),
        Just(Pdu::ResetQuery),
        session.prop_map(|session| Pdu::CacheResponse { session }),
        records().prop_map(Pdu::Announce),
        records().prop_map(|record| Pdu::Withdraw(match record {
            Record::Aspa(aspa) => Record::Aspa(Aspa::new(aspa.customer(), Vec::new())),
            other => other,
        })),
        (session, serial, timing).prop_map(|(session, serial, timing)| Pdu::EndOfData {
            session,
            serial,
            timing: Some(timing)
        }),
        Just(Pdu::CacheReset),
        report.prop_map(|(code, pdu, text)| Pdu::ErrorReport(ErrorReport { code, pdu, text })),
    ];
    (any::<u8>(), pdu).prop_map(|(version, mut pdu)| {
        let version = Version::from_octet(version % 3).unwrap().max(pdu.pdu_type().since());
        if let (Pdu::EndOfData { timing, .. }, Version::V0) = (&mut pdu, version) {
            *timing = None;
        }
        (version, pdu)
    })
}

fn records() -> impl Strategy<Value = Record> {
    let asn = any::<u32>().prop_map(Asn);
    let prefix = (any::<std::net::IpAddr>(), any::<u8>(), any::<u8>());
    prop_oneof![
        (prefix, asn.clone()).prop_map(|((address, length, more), asn)| {
            let width = if address.is_ipv4() { 32 } else { 128 };
            let length = length % (width + 1);
            let prefix = holdfast_types::Prefix::new(address, length).unwrap();
            Record::Vrp(Vrp::new(prefix, length + more % (width - length + 1), asn).unwrap())
        }),
        (asn.clone(), any::<[u8; 20]>(), proptest::collection::vec(any::<u8>(), 0..150))
            .prop_map(|(asn, ski, spki)| Record::RouterKey(RouterKey { asn, ski: Ski(ski), spki })),
        (asn, proptest::collection::vec((1..=u32::MAX).prop_map(Asn), 1..40))
            .prop_map(|(customer, providers)| Record::Aspa(Aspa::new(customer, providers))),
    ]
}

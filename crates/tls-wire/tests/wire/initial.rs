use holdfast_tls_wire::{
    BadFrame, BadHello, BadInitial, BadPacket, Frame, Frames, Initial, LongType, Packet, Peek, Reassembly,
    VERSION_1, VERSION_2, fuzzing, packet, peek, peek_initial,
};
use proptest::prelude::*;

use crate::tests::wire::{
    build::{RFC_9001, alpn, crypto, extension, hello, hex, server_name},
    client_hello::any_hello,
};

/// A datagram of 1,200 octets that begins so.
fn datagram(start: &str) -> Vec<u8> {
    let mut octets = hex(start);
    octets.resize(1200, 0xaa);
    octets
}

#[test]
fn the_headers_of_the_rfcs_are_read() {
    let destination = hex("8394c8f03e515708");
    // RFC 9001 appendix A.2, RFC 9369 appendix A.2.
    for (start, version) in [
        ("c000000001088394c8f03e5157080000449e7b9aec34", VERSION_1),
        ("d76b3343cf088394c8f03e5157080000449ea0c95e82", VERSION_2),
    ] {
        let octets = datagram(start);
        let initial =
            Initial { version, destination: &destination, source: &[], token: &[], number_at: 18, end: 1200 };
        assert_eq!(packet(&octets), Ok(Packet::Initial(initial)));
        for cut in 0..octets.len() {
            assert!(matches!(packet(&octets[..cut]), Err(BadPacket::CutOff(_))), "the first {cut} octets");
        }
    }
}

#[test]
fn tokens_and_what_follows_are_told_apart() {
    let octets = hex("c0 00000001 01d1 02e1e2 03 a1a2a3 04 01020304 c0ffee");
    let Ok(Packet::Initial(initial)) = packet(&octets) else { panic!("an Initial") };
    assert_eq!((initial.destination, initial.source), (&[0xd1][..], &[0xe1, 0xe2][..]));
    assert_eq!(initial.token, [0xa1, 0xa2, 0xa3]);
    assert_eq!(octets[initial.number_at..initial.end], [1, 2, 3, 4]);
    assert_eq!(octets[initial.end..], [0xc0, 0xff, 0xee]);
}

#[test]
fn each_version_has_its_own_codes_of_types() {
    // RFC 9000 section 17.2, RFC 9369 section 3.2.
    let types = [LongType::ZeroRtt, LongType::Handshake, LongType::Retry];
    for (kind, (first, second)) in types.into_iter().zip([("d0", "e0"), ("e0", "f0"), ("f0", "c0")]) {
        assert_eq!(packet(&datagram(&format!("{first}000000010000"))), Ok(Packet::Long(kind)));
        assert_eq!(packet(&datagram(&format!("{second}6b3343cf0000"))), Ok(Packet::Long(kind)));
    }
    assert_eq!(packet(&datagram("8000000000")), Ok(Packet::VersionNegotiation));
    assert_eq!(packet(&datagram("801a2a3a4aff")), Ok(Packet::UnknownVersion(0x1a2a_3a4a)));
    assert_eq!(packet(&datagram("40")), Ok(Packet::Short));
}

#[test]
fn what_is_no_packet_says_why() {
    assert_eq!(packet(&[]), Err(BadPacket::CutOff("first octet")));
    assert_eq!(packet(&datagram("00")), Err(BadPacket::FixedBit));
    assert_eq!(packet(&datagram("8000000001")), Err(BadPacket::FixedBit));
    assert_eq!(packet(&datagram("c00000000115")), Err(BadPacket::ConnectionId(21)));
    assert_eq!(packet(&datagram("c0000000010000 00 7fff")), Err(BadPacket::CutOff("payload")));
    assert_eq!(packet(&datagram("c0000000010000 ffffffffffffffff")), Err(BadPacket::CutOff("token")));
}

#[test]
fn frames_of_an_initial_are_read() {
    // PADDING, PING, ACK with two ranges, ACK with ECN, CRYPTO, CONNECTION_CLOSE.
    let octets =
        hex("000000 01 02 09 00 01 02 0304 03 07 00 00 01 010203 06 4005 02 abcd 1c 0a 06 03 627965");
    let frames: Result<Vec<_>, _> = Frames::new(&octets).collect();
    let expected = [
        Frame::Padding,
        Frame::Ping,
        Frame::Ack,
        Frame::Ack,
        Frame::Crypto { offset: 5, octets: &[0xab, 0xcd] },
        Frame::Close(10),
    ];
    assert_eq!(frames.as_deref(), Ok(&expected[..]));
}

#[test]
fn an_error_ends_the_frames() {
    let rows = [
        // STREAM, HANDSHAKE_DONE, CONNECTION_CLOSE by the application: none of them in an Initial.
        ("01 08 00 00", BadFrame::NotInInitial(8)),
        ("01 1e 01", BadFrame::NotInInitial(0x1e)),
        ("01 1d 00 00", BadFrame::NotInInitial(0x1d)),
        ("01 06 00 05 01", BadFrame::CutOff("CRYPTO")),
        ("01 06 ffffffffffffffff 01 01", BadFrame::Offset),
        // 2^62 ranges.
        ("01 02 00 00 ffffffffffffffff 00 00", BadFrame::CutOff("ACK")),
        ("01 1c 00 00 05 00", BadFrame::CutOff("CONNECTION_CLOSE")),
        ("01 40", BadFrame::CutOff("type")),
    ];
    for (octets, error) in rows {
        let octets = hex(octets);
        assert_eq!(Frames::new(&octets).collect::<Vec<_>>(), [Ok(Frame::Ping), Err(error)]);
        assert_eq!(peek_initial(&octets, &mut Reassembly::default()), Err(BadInitial::Frame(error)));
    }
}

#[test]
fn the_hello_of_one_frame_is_read_without_a_copy() {
    let whole = hex(RFC_9001);
    let mut payload = [&hex("060040f1")[..], &whole].concat();
    payload.resize(1162, 0);
    let mut pieces = Reassembly::default();
    assert_eq!(peek_initial(&payload, &mut pieces), Ok(peek(&whole).expect("well formed")));
    assert!(pieces.is_empty());
}

#[test]
fn a_hello_over_two_datagrams_is_incomplete_and_then_known() {
    // A key share of X25519MLKEM768 is 1,216 octets.
    let octets =
        hello(&[extension(51, &[5; 1222]), alpn(&[b"qbgp".to_vec()]), server_name(b"r1.example.net")]);
    let (first, second) = octets.split_at(1100);
    for order in [[crypto(0, first), crypto(1100, second)], [crypto(1100, second), crypto(0, first)]] {
        let mut pieces = Reassembly::default();
        assert_eq!(peek_initial(&order[0], &mut pieces), Ok(Peek::Incomplete));
        let Ok(Peek::Known(hello)) = peek_initial(&order[1], &mut pieces) else { panic!("it is all here") };
        assert_eq!(hello.alpn(), b"\x04qbgp");
        assert_eq!(hello.server_name(), Some("r1.example.net"));
    }
}

#[test]
fn a_malformed_hello_is_the_clients_fault() {
    let payload = crypto(0, &hello(&[server_name(b"")]));
    let fault = BadInitial::Hello(BadHello::Length("server name"));
    assert_eq!(peek_initial(&payload, &mut Reassembly::default()), Err(fault));
    assert_eq!(fault.to_string(), "the server name of the ClientHello has a length that is not allowed");
    assert_eq!(peek_initial(&crypto(0, &[2, 0]), &mut Reassembly::default()), Ok(Peek::Other));
}

proptest! {
    #![proptest_config(holdfast_testing::cases(256))]

    #[test]
    fn frames_in_any_order_show_the_same(
        (octets, ..) in any_hello(),
        order in Just((0..20).collect::<Vec<usize>>()).prop_shuffle(),
    ) {
        let size = octets.len().div_ceil(order.len());
        let frame = |index: usize| octets.chunks(size).nth(index).map(|piece| crypto(index * size, piece));
        // Each between PINGs.
        let frames = order.into_iter().filter_map(frame);
        let payload: Vec<u8> = frames.flat_map(|frame| [vec![1], frame].concat()).collect();
        let mut pieces = Reassembly::default();
        prop_assert_eq!(peek_initial(&payload, &mut pieces), Ok(peek(&octets).expect("well formed")));
    }

    #[test]
    fn any_octets_are_packets_or_an_error(octets in proptest::collection::vec(any::<u8>(), 0..600)) {
        fuzzing::initial_packet(&octets);
    }

    #[test]
    fn any_long_header_is_an_initial_or_an_error(rest in proptest::collection::vec(any::<u8>(), 0..200)) {
        fuzzing::initial_packet(&[&[0xc0, 0, 0, 0, 1][..], &rest].concat());
    }
}

use holdfast_tls_wire::{BadHello, ClientHello, LeftOut, Peek, Protocols, Reassembly, fuzzing, peek};
use proptest::{prelude::*, sample::Index};

use crate::tests::wire::build::{
    OPENSSL, RFC_9001, START, alpn, extension, hello, hex, message, server_name, vector8, vector16,
};

fn known(octets: &[u8]) -> ClientHello<'_> {
    match peek(octets) {
        Ok(Peek::Known(hello)) => hello,
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_libraries_send_is_read() {
    let octets = hex(OPENSSL);
    let openssl = known(&octets[5..]);
    assert_eq!(openssl.protocols().collect::<Vec<_>>(), [b"botls"]);
    assert_eq!(openssl.alpn(), b"\x05botls");
    assert_eq!(openssl.server_name(), Some("r1.example.net"));

    let octets = hex(RFC_9001);
    let rfc = known(&octets);
    assert_eq!(rfc.protocols().collect::<Vec<_>>(), [b"alpn"]);
    assert_eq!(rfc.server_name(), Some("example.com"));
}

#[test]
fn a_part_of_it_is_incomplete_and_more_than_it_does_not_matter() {
    let mut octets = hex(RFC_9001);
    for cut in 0..octets.len() {
        assert_eq!(peek(&octets[..cut]), Ok(Peek::Incomplete), "the first {cut} octets");
    }
    octets.push(77);
    assert_eq!(known(&octets).server_name(), Some("example.com"));
}

#[test]
fn who_says_nothing_asks_for_nothing() {
    // Extensions may be missing altogether in what is not TLS 1.3.
    for octets in [message(START), hello(&[]), hello(&[extension(43, &[2, 3, 4])])] {
        assert_eq!(known(&octets), ClientHello::default());
        assert_eq!(known(&octets).protocols().count(), 0);
    }
    // No type of name but a host's has ever been defined; what such a name looks like is not known.
    assert_eq!(known(&hello(&[extension(0, &vector16(&[1, 9, 9]))])).server_name(), None);
}

#[test]
fn other_beginnings_are_not_taken_for_it() {
    // ServerHello, alert, the marker of BGP (RFC 4271 section 4.1), HTTP.
    for octets in [&[2, 0, 0, 1, 0][..], &[21], &[0xff; 19], b"GET / HTTP/1.1"] {
        assert_eq!(peek(octets), Ok(Peek::Other));
    }
}

#[test]
fn whatever_is_malformed_is_named() {
    let long_session = [&START[..34], &vector8(&[7; 33]), &START[35..]].concat();
    let with_suites = |suites: &[u8]| [&START[..35], &vector16(suites), &[1, 0]].concat();
    let botls = alpn(&[b"botls".to_vec()]);
    let rows = [
        (message(&START[..33]), BadHello::CutOff("random")),
        (message(&START[..34]), BadHello::CutOff("session id")),
        (message(&long_session), BadHello::Length("session id")),
        (message(&START[..38]), BadHello::CutOff("cipher suites")),
        (message(&with_suites(&[])), BadHello::Length("cipher suites")),
        (message(&with_suites(&[1, 2, 3])), BadHello::Length("cipher suites")),
        (message(&START[..39]), BadHello::CutOff("compression methods")),
        (message(&[&START[..39], &[0]].concat()), BadHello::Length("compression methods")),
        (message(&[START, &[0]].concat()), BadHello::CutOff("extensions")),
        (message(&[START, &[0, 0, 9]].concat()), BadHello::Trailing("extensions")),
        (hello(&[vec![0, 43, 0]]), BadHello::CutOff("extensions")),
        (hello(&[vec![0, 43, 0, 1]]), BadHello::CutOff("extensions")),
        (hello(&[botls.clone(), botls]), BadHello::Twice("ALPN")),
        (hello(&[server_name(b"a"), server_name(b"a")]), BadHello::Twice("server name")),
        (hello(&[alpn(&[])]), BadHello::Length("ALPN")),
        (hello(&[alpn(&[b"a".to_vec(), vec![]])]), BadHello::Length("ALPN")),
        (hello(&[extension(16, &vector16(&[2, b'a']))]), BadHello::CutOff("ALPN")),
        (hello(&[extension(16, &[0, 2, 1, b'a', 0])]), BadHello::Trailing("ALPN")),
        (hello(&[extension(0, &vector16(&[]))]), BadHello::Length("server name")),
        (hello(&[extension(0, &vector16(&[0, 0, 2, b'a']))]), BadHello::CutOff("server name")),
        (hello(&[extension(0, &[0, 1, 1, 0])]), BadHello::Trailing("server name")),
        (hello(&[server_name(b"")]), BadHello::Length("server name")),
        (hello(&[server_name("ä".as_bytes())]), BadHello::NotAscii),
        (hello(&[server_name(&[0xff])]), BadHello::NotAscii),
    ];
    for (octets, error) in rows {
        assert_eq!(peek(&octets), Err(error), "{octets:?}");
    }
}

#[test]
fn a_list_that_is_cut_off_ends_before_the_name_that_is() {
    assert_eq!(Protocols::new(b"\x02h2\x05bo").collect::<Vec<_>>(), [b"h2"]);
}

#[test]
fn an_endless_one_stays_incomplete() {
    let octets = hello(&[extension(21, &[0; 20_000])]);
    let mut pieces = Reassembly::default();
    for (index, piece) in octets.chunks(1000).enumerate() {
        let left_out = pieces.insert(index as u64 * 1000, piece);
        assert_eq!(left_out, if index < 16 { Ok(()) } else { Err(LeftOut::TooLong) });
    }
    assert_eq!(pieces.peek(), Ok(Peek::Incomplete));
    assert_eq!(pieces.contiguous().len(), 16_000);
}

prop_compose! {
    /// A ClientHello of plausible parts in any order, with what it asks for.
    pub(crate) fn any_hello()(
        session in proptest::collection::vec(any::<u8>(), 0..=32),
        suites in proptest::collection::vec(any::<[u8; 2]>(), 1..30),
        names in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 1..40), 0..6),
        server in proptest::option::of("[a-zA-Z0-9.-]{1,60}"),
        others in proptest::collection::vec((100u16.., proptest::collection::vec(any::<u8>(), 0..1300)), 0..5),
        order in any::<u64>(),
    ) -> (Vec<u8>, Vec<Vec<u8>>, Option<String>) {
        let mut extensions: Vec<_> = others.iter().map(|(kind, data)| extension(*kind, data)).collect();
        extensions.extend((!names.is_empty()).then(|| alpn(&names)));
        extensions.extend(server.as_ref().map(|name| server_name(name.as_bytes())));
        if !extensions.is_empty() {
            let places = extensions.len();
            extensions.rotate_left((order % places as u64) as usize);
        }
        let body = [
            &START[..34],
            &vector8(&session),
            &vector16(&suites.concat()),
            &[1, 0],
            &vector16(&extensions.concat()),
        ];
        (message(&body.concat()), names, server)
    }
}

proptest! {
    #![proptest_config(holdfast_testing::cases(256))]

    #[test]
    fn what_is_asked_for_is_what_was_written((octets, names, server) in any_hello()) {
        let hello = known(&octets);
        prop_assert_eq!(hello.protocols().collect::<Vec<_>>(), names);
        prop_assert_eq!(hello.server_name(), server.as_deref());
    }

    #[test]
    fn a_part_of_any_is_incomplete((octets, ..) in any_hello(), cut in any::<Index>()) {
        prop_assert_eq!(peek(&octets[..cut.index(octets.len())]), Ok(Peek::Incomplete));
    }

    #[test]
    fn pieces_in_any_order_are_the_whole(
        (octets, ..) in any_hello(),
        cuts in proptest::collection::vec(any::<Index>(), 0..25),
        order in Just((0..26).collect::<Vec<usize>>()).prop_shuffle(),
    ) {
        let mut cuts: Vec<_> = cuts.iter().map(|cut| cut.index(octets.len())).collect();
        cuts.extend([0, octets.len()]);
        cuts.sort_unstable();
        let mut pieces = Reassembly::default();
        for index in order {
            let Some(&[start, end]) = cuts.get(index..index + 2) else { continue };
            // Each reaches into the one before, if there is one.
            let start = start.saturating_sub(3);
            prop_assert_eq!(pieces.insert(start as u64, &octets[start..end]), Ok(()));
            prop_assert!(octets.starts_with(pieces.contiguous()));
        }
        prop_assert_eq!(pieces.contiguous(), octets.as_slice());
        prop_assert_eq!(pieces.peek(), peek(&octets));
    }

    #[test]
    fn any_octets_are_told_what_they_are(octets in proptest::collection::vec(any::<u8>(), 0..600)) {
        fuzzing::client_hello(&octets);
    }
}

//! ClientHellos, octet by octet.

/// By OpenSSL 3.0, in one record: "botls" of r1.example.net.
pub(crate) const OPENSSL: &str = "
    16030100ff010000fb0303d0d7a561f3620f96e7af932e88f3e983270686090e030251d4d6a86fb749ab472050d32dcda88ab447
    ae060cf13ffab470a81ce13d0dff7457e5aeb9625e26b70a000813021303130100ff010000aa00000013001100000e72312e6578
    616d706c652e6e6574000b000403000102000a00160014001d0017001e0019001801000101010201030104002300000010000800
    0605626f746c730016000000170000000d001e001c040305030603080708080809080a080b080408050806040105010601002b00
    03020304002d00020101003300260024001d0020ac5f50ac07ee4a462a42ac5a7e128a71551a146f39c49f56f983d4eef6660d73";

/// RFC 9001 appendix A.2, without the frame around it: "alpn" of example.com.
pub(crate) const RFC_9001: &str = "
    010000ed0303ebf8fa56f129 39b9584a3896472ec40bb863cfd3e868
    04fe3a47f06a2b69484c000004130113 02010000c000000010000e00000b6578
    616d706c652e636f6dff01000100000a 00080006001d00170018001000070005
    04616c706e0005000501000000000033 00260024001d00209370b2c9caa47fba
    baf4559fedba753de171fa71f50f1ce1 5d43e994ec74d748002b000302030400
    0d0010000e0403050306030203080408 050806002d00020101001c0002400100
    3900320408ffffffffffffffff050480 00ffff07048000ffff08011001048000
    75300901100f088394c8f03e51570806 048000ffff";

pub(crate) fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(|digit| !digit.is_ascii_whitespace()).collect();
    let octet = |pair: &[u8; 2]| u8::from_str_radix(str::from_utf8(pair).expect("digits"), 16).expect("hex");
    let (pairs, rest) = digits.as_chunks();
    assert!(rest.is_empty(), "half an octet");
    pairs.iter().map(octet).collect()
}

pub(crate) fn vector8(data: &[u8]) -> Vec<u8> {
    [&[u8::try_from(data.len()).expect("short")][..], data].concat()
}

pub(crate) fn vector16(data: &[u8]) -> Vec<u8> {
    [&u16::try_from(data.len()).expect("short").to_be_bytes()[..], data].concat()
}

pub(crate) fn extension(kind: u16, data: &[u8]) -> Vec<u8> {
    [&kind.to_be_bytes()[..], &vector16(data)].concat()
}

pub(crate) fn alpn(names: &[Vec<u8>]) -> Vec<u8> {
    extension(16, &vector16(&names.iter().flat_map(|name| vector8(name)).collect::<Vec<_>>()))
}

pub(crate) fn server_name(name: &[u8]) -> Vec<u8> {
    extension(0, &vector16(&[&[0][..], &vector16(name)].concat()))
}

/// A handshake message of type 1.
pub(crate) fn message(body: &[u8]) -> Vec<u8> {
    let [_, high, middle, low] = u32::try_from(body.len()).expect("short").to_be_bytes();
    [&[1, high, middle, low][..], body].concat()
}

/// Version, random, no session id, one suite, no compression.
pub(crate) const START: &[u8] = &[
    3, 3, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 0,
    0, 2, 0x13, 1, 1, 0,
];

pub(crate) fn hello(extensions: &[Vec<u8>]) -> Vec<u8> {
    message(&[START, &vector16(&extensions.concat())].concat())
}

pub(crate) fn record(kind: u8, fragment: &[u8]) -> Vec<u8> {
    [&[kind, 3, 1][..], &vector16(fragment)].concat()
}

pub(crate) fn crypto(offset: usize, octets: &[u8]) -> Vec<u8> {
    let varint = |value: usize| (0x8000_0000 | u32::try_from(value).expect("small")).to_be_bytes();
    [&[6][..], &varint(offset), &varint(octets.len()), octets].concat()
}

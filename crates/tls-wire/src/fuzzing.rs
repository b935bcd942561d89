//! Bodies of the fuzz targets, also run by tests over mutated inputs.

use crate::{
    BadInitial, Frame, Frames, MOST_OCTETS, Packet, Peek, Reassembly, VERSION_1, VERSION_2, packet, peek,
    peek_initial, peek_records,
};

/// Octets as a handshake and as records: a look at one piece, at records and at pieces in any order shows the same, and a
/// part of what is known is incomplete.
pub fn client_hello(octets: &[u8]) {
    let _ = peek_records(octets, &mut Reassembly::default());
    let whole = peek(octets);
    if let Ok(Peek::Known(hello)) = whole {
        assert_eq!(hello.protocols().map(|name| 1 + name.len()).sum::<usize>(), hello.alpn().len());
        assert!(hello.protocols().all(|name| !name.is_empty()));
        let length = 4 + u32::from_be_bytes([0, octets[1], octets[2], octets[3]]) as usize;
        for cut in (0..length).step_by(1 + length / 32) {
            assert_eq!(peek(&octets[..cut]), Ok(Peek::Incomplete), "the first {cut} octets");
        }
    }
    let Some(&last) = octets.last() else { return };
    if octets.len() > MOST_OCTETS {
        return;
    }
    let size = 1 + usize::from(last);
    let records: Vec<u8> = octets.chunks(size).flat_map(record).collect();
    assert_eq!(peek_records(&records, &mut Reassembly::default()), whole, "in records of {size}");

    // From behind in so few pieces that all have a place.
    let size = size.max(octets.len().div_ceil(16));
    let mut pieces = Reassembly::default();
    for (index, piece) in octets.chunks(size).enumerate().rev() {
        pieces.insert((index * size) as u64, piece).expect("within the bounds");
    }
    assert_eq!(pieces.contiguous(), octets);
    assert_eq!(pieces.peek(), whole);
}

fn record(fragment: &[u8]) -> Vec<u8> {
    let [high, low] = (fragment.len() as u16).to_be_bytes();
    [&[22, 3, 1, high, low][..], fragment].concat()
}

/// Octets as a datagram and as a decrypted payload: what is read lies inside, and pieces stay within their bounds.
pub fn initial_packet(octets: &[u8]) {
    if let Ok(Packet::Initial(initial)) = packet(octets) {
        assert!(matches!(initial.version, VERSION_1 | VERSION_2));
        // The first octet, the version, and four lengths.
        let before = 9 + initial.destination.len() + initial.source.len() + initial.token.len();
        assert!(before <= initial.number_at && initial.number_at <= initial.end);
        payload(&octets[initial.number_at..initial.end]);
    }
    payload(octets);
}

fn payload(octets: &[u8]) {
    let mut malformed = 0;
    let mut handshake = 0;
    for frame in Frames::new(octets) {
        match frame {
            Ok(Frame::Crypto { octets, .. }) => handshake += octets.len(),
            Ok(_) => {}
            Err(_) => malformed += 1,
        }
    }
    assert!(malformed <= 1 && handshake <= octets.len());

    let mut pieces = Reassembly::default();
    let first = peek_initial(octets, &mut pieces).map(|peek| peek != Peek::Incomplete);
    assert!(pieces.contiguous().len() <= handshake.min(MOST_OCTETS));
    // The same once more: what was left out may have a place now, what is known stays so.
    let mut again = pieces.clone();
    let second = peek_initial(octets, &mut again).map(|peek| peek != Peek::Incomplete);
    assert!(again.contiguous().starts_with(pieces.contiguous()));
    match first {
        Ok(true) => assert_eq!(second, first),
        Err(BadInitial::Frame(_)) => assert_eq!(malformed, 1),
        _ => {}
    }
}

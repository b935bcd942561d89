//! Records written by hand from RFC 6396 and RFC 8050, and what must be read from them.

use holdfast_mrt::{Body, Error, Fault, Message, PeerIndex, Record, Rib, fuzzing, records};
use holdfast_types::{Asn, Family};

/// A dump in hex with blanks.
fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<char> = text.chars().filter(|c| !c.is_whitespace()).collect();
    digits.chunks(2).map(|pair| u8::from_str_radix(&String::from_iter(pair), 16).expect("hex")).collect()
}

const PEER_INDEX: &str = "6553f100 000d 0001 00000030  c0000201 0004 76696577 0002
    02 c6336401 c0000202 0000fde9
    01 c6336402 20010db8000000000000000000000001 fde8";
/// 10.1.0.0/16 from two peers.
const RIB_IPV4: &str = "6553f101 000d 0002 0000001d  00000007 10 0a01 0002
    0000 6553f000 0004 40010100  0001 6553f001 0000";
/// 2001:db8::/32 with a path identifier.
const RIB_IPV6_ADD_PATH: &str = "6553f102 000d 000a 0000001b  00000008 20 20010db8 0001
    0001 6553f000 00000005 0004 40010100";
/// The same without identifier, as RIB_GENERIC; and one of a family with other NLRI.
const RIB_GENERIC: &str = "6553f102 000d 0006 0000001a  00000009 0002 01 20 20010db8 0001
    0001 6553f000 0004 40010100
    6553f102 000d 0006 00000009  00000009 0019 46 0000";
/// A KEEPALIVE with a microsecond stamp, four-octet AS numbers.
const MESSAGE_ET: &str = "6553f103 0011 0004 0000002b  0003d090
    0000fde9 0000fdea 0003 0001 c0000202 c0000201
    ffffffffffffffffffffffffffffffff 0013 04";
const STATE_CHANGE: &str = "6553f104 0010 0000 00000014
    fde9 fdea 0000 0001 c0000202 c0000201 0005 0006";

fn one(dump: &[u8]) -> Record<'_> {
    records(dump).next().expect("a record").expect("a whole record")
}

fn rib(dump: &[u8]) -> Rib<'_> {
    match one(dump).body() {
        Ok(Body::Rib(rib)) => rib,
        other => panic!("no RIB: {other:?}"),
    }
}

#[test]
fn the_peer_index_names_peers_of_both_families_and_as_sizes() {
    let dump = hex(PEER_INDEX);
    let Ok(Body::PeerIndex(index)) = one(&dump).body() else { panic!("no peer index") };
    let PeerIndex { collector, view, count, .. } = index;
    assert_eq!((collector, view, count), (0xc000_0201, &b"view"[..], 2));
    let peers: Vec<_> = index.peers().map(|peer| peer.expect("a peer")).collect();
    assert_eq!((peers[0].asn, peers[0].address.to_string()), (Asn(65001), "192.0.2.2".into()));
    assert_eq!((peers[1].asn, peers[1].address.to_string()), (Asn(65000), "2001:db8::1".into()));
    assert_eq!(peers[1].router_id, 0xc633_6402);
}

#[test]
fn a_prefix_comes_with_the_routes_of_several_peers() {
    let dump = hex(RIB_IPV4);
    let rib = rib(&dump);
    assert_eq!(
        (rib.sequence, rib.family, rib.prefix.to_string()),
        (7, Family::IPV4_UNICAST, "10.1.0.0/16".into())
    );
    let entries: Vec<_> = rib.entries().map(|entry| entry.expect("an entry")).collect();
    assert_eq!((entries[0].peer, entries[0].originated), (0, 0x6553_f000));
    assert_eq!(entries[0].attributes, hex("40010100"));
    assert_eq!((entries[1].peer, entries[1].attributes, entries[1].path_id), (1, &[][..], None));
}

#[test]
fn path_identifiers_are_read_where_the_subtype_has_them() {
    let dump = hex(RIB_IPV6_ADD_PATH);
    let rib = rib(&dump);
    assert_eq!((rib.prefix.to_string(), rib.family), ("2001:db8::/32".into(), Family::IPV6_UNICAST));
    let entry = rib.entries().next().expect("an entry").expect("a whole entry");
    assert_eq!((entry.path_id, entry.attributes), (Some(5), &hex("40010100")[..]));
}

#[test]
fn generic_records_are_read_for_plain_prefixes_and_passed_over_for_others() {
    let dump = hex(RIB_GENERIC);
    assert_eq!(rib(&dump).prefix.to_string(), "2001:db8::/32");
    let second = records(&dump).nth(1).expect("a record").expect("a whole record");
    assert!(matches!(second.body(), Ok(Body::Other)));
}

#[test]
fn messages_and_state_changes_name_their_session() {
    let dump = hex(MESSAGE_ET);
    let record = one(&dump);
    assert_eq!((record.timestamp, record.microseconds), (0x6553_f103, 250_000));
    let Ok(Body::Message(Message { session, four_octet_as, add_path, bytes })) = record.body() else {
        panic!("no message")
    };
    assert_eq!((session.peer_as, session.local_as, session.interface), (Asn(65001), Asn(65002), 3));
    assert_eq!((four_octet_as, add_path, bytes.len(), bytes[18]), (true, false, 19, 4));
    let dump = hex(STATE_CHANGE);
    let Ok(Body::StateChange(change)) = one(&dump).body() else { panic!("no state change") };
    assert_eq!((change.old, change.new, change.session.peer.to_string()), (5, 6, "192.0.2.2".into()));
}

#[test]
fn faults_are_reported_with_their_offset() {
    let cases = [
        // The header ends early; the record is longer than the dump.
        ("6553f101 000d", 6, Fault::Truncated { missing: 2 }),
        ("6553f101 000d 0002 00000005 00000007", 12, Fault::Truncated { missing: 1 }),
        // Inside the second record: a prefix of 33 bits.
        ("6553f101 0063 0000 00000000 6553f101 000d 0002 00000005 00000007 21", 28, Fault::PrefixLength(33)),
        // A session over a family without addresses; something after a state change.
        ("6553f104 0010 0000 00000008 fde9 fdea 0000 0003", 20, Fault::Family(3)),
        (
            "6553f104 0010 0000 00000015 fde9 fdea 0000 0001 c0000202 c0000201 0005 0006 00",
            32,
            Fault::Excess(1),
        ),
    ];
    for (text, offset, fault) in cases {
        let dump = hex(text);
        let error = records(&dump).find_map(|record| record.and_then(|record| record.body()).err());
        assert_eq!(error, Some(Error { offset, fault }), "{text}");
    }
}

#[test]
fn no_mutation_of_a_dump_makes_it_panic() {
    let dump =
        hex(&[PEER_INDEX, RIB_IPV4, RIB_IPV6_ADD_PATH, RIB_GENERIC, MESSAGE_ET, STATE_CHANGE].concat());
    assert_eq!(fuzzing::dump(&dump), 7);
    let mut state = 1_u32;
    let mut random = |below: usize| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) as usize % below
    };
    let mut damaged = 0;
    for _ in 0..5_000 {
        let mut mutant = dump.clone();
        (0..1 + random(4)).for_each(|_| mutant[random(dump.len())] ^= 1 << random(8));
        mutant.truncate(random(dump.len() * 2));
        damaged += usize::from(fuzzing::dump(&mutant) < 7);
    }
    assert!(damaged > 2_000, "{damaged}");
}

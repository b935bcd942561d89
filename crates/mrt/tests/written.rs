//! What is written is read again as it was.

use holdfast_mrt::{Body, Message, Peer, RibEntry, Session, Stamp, StateChange, TooLong, records, write};
use holdfast_types::{Asn, Prefix};

fn session(v6: bool) -> Session {
    let (peer, local) = if v6 { ("2001:db8::2", "2001:db8::1") } else { ("192.0.2.2", "192.0.2.1") };
    Session {
        peer_as: Asn(4_200_000_001),
        local_as: Asn(65000),
        interface: 0,
        peer: peer.parse().expect("an address"),
        local: local.parse().expect("an address"),
    }
}

#[test]
fn a_table_is_read_as_it_was_written() {
    let peers = ["192.0.2.2", "2001:db8::2"].map(|address| Peer {
        router_id: 7,
        address: address.parse().expect("an address"),
        asn: Asn(4_200_000_001),
    });
    let prefixes = ["0.0.0.0/0", "192.0.2.128/25", "2001:db8::/33"]
        .map(|text| text.parse::<Prefix>().expect("a prefix"));
    let entry = |peer, path_id| RibEntry { peer, originated: 5, path_id, attributes: &[0x40, 1, 1, 0] };
    let mut dump = Vec::new();
    write::peer_index(9, 1, b"master", &peers, &mut dump).expect("room");
    for (sequence, prefix) in prefixes.into_iter().enumerate() {
        let id = (sequence == 2).then_some(3);
        write::rib(9, sequence as u32, prefix, &[entry(0, id), entry(1, id)], &mut dump).expect("room");
    }
    let bodies: Vec<_> = records(&dump).map(|record| record.expect("whole").body().expect("read")).collect();
    let Body::PeerIndex(index) = &bodies[0] else { panic!("{:?}", bodies[0]) };
    assert_eq!((index.collector, index.view), (1, &b"master"[..]));
    assert_eq!(index.peers().map(|peer| peer.expect("a peer")).collect::<Vec<_>>(), peers);
    for (sequence, prefix) in prefixes.into_iter().enumerate() {
        let Body::Rib(rib) = &bodies[sequence + 1] else { panic!("no RIB") };
        assert_eq!((rib.sequence, rib.prefix), (sequence as u32, prefix));
        let entries: Vec<_> = rib.entries().map(|entry| entry.expect("an entry")).collect();
        let id = (sequence == 2).then_some(3);
        assert_eq!(entries, [entry(0, id), entry(1, id)]);
    }
}

#[test]
fn messages_and_state_changes_are_read_as_they_were_written() {
    let keepalive = [&[0xff; 16][..], &[0, 19, 4]].concat();
    for microseconds in [None, Some(250_000)] {
        let at = Stamp { seconds: 9, microseconds };
        let mut dump = Vec::new();
        let forms = [(true, false), (false, false), (true, true), (false, true)];
        for (four_octet_as, add_path) in forms {
            let message = Message { session: session(true), four_octet_as, add_path, bytes: &keepalive };
            write::message(at, &message, &mut dump);
        }
        let change = StateChange { session: session(false), old: 6, new: 1 };
        write::state_change(at, &change, &mut dump);
        let records: Vec<_> = records(&dump).map(|record| record.expect("whole")).collect();
        assert!(records.iter().all(|it| (it.timestamp, it.microseconds) == (9, microseconds.unwrap_or(0))));
        for (record, form) in records.iter().zip(forms) {
            let Ok(Body::Message(message)) = record.body() else { panic!("no message") };
            assert_eq!((message.bytes, (message.four_octet_as, message.add_path)), (&keepalive[..], form));
            let asn = if form.0 { session(true).peer_as } else { Asn(23456) };
            assert_eq!(message.session.peer_as, asn, "AS_TRANS where there is no room");
        }
        let Ok(Body::StateChange(read)) = records[4].body() else { panic!("no state change") };
        assert_eq!(read, change);
    }
}

#[test]
fn what_no_field_can_hold_is_not_written() {
    let attributes = vec![0; 65_536];
    let entry = RibEntry { peer: 0, originated: 0, path_id: None, attributes: &attributes };
    let mut dump = Vec::new();
    assert_eq!(write::rib(0, 0, "::/0".parse().expect("a prefix"), &[entry], &mut dump), Err(TooLong));
    assert_eq!(write::peer_index(0, 0, &attributes, &[], &mut dump), Err(TooLong));
    assert!(dump.is_empty());
}

//! Packets that belong to nobody, or come from elsewhere: counted, and nothing else.

use std::net::IpAddr;

use holdfast_bfd::{Datagram, Engine, Hops, Path, Profile, Rejected, Session, State};
use holdfast_types::HashKey;

use crate::tests::pair::{Pair, address, ms, profile};

#[test]
fn a_packet_from_elsewhere_changes_nothing() {
    let mut pair = Pair::up([profile(50, 50, 3), profile(50, 50, 3)]);
    let octets = pair.sent[1].last().expect("packets").1;
    let right = Datagram {
        octets: octets.as_slice(),
        source: address(1),
        destination: Some(address(0)),
        interface: Some(7),
        ttl: Some(255),
        hops: Hops::Single,
    };
    let before = pair.session(0).freeze();
    let mut unknown = octets.as_slice().to_vec();
    unknown[8] ^= 1;
    let wrong = [
        (Datagram { ttl: Some(254), ..right }, Rejected::Misdirected),
        (Datagram { ttl: None, ..right }, Rejected::Misdirected),
        (Datagram { interface: Some(8), ..right }, Rejected::Misdirected),
        (Datagram { hops: Hops::Multiple, ..right }, Rejected::Misdirected),
        (Datagram { octets: &unknown, ..right }, Rejected::NoSession),
    ];
    for (datagram, reason) in wrong {
        assert_eq!(pair.engines[0].receive(pair.now, &datagram), Err(reason), "{datagram:?}");
        assert_eq!(pair.session(0).freeze(), before);
    }
    assert_eq!(pair.session(0).counters().misdirected, 4);
    // Only the discriminator counts, once it is known: the neighbour's address may change (RFC 5881 section 6).
    let moved = Datagram { source: IpAddr::from([198, 51, 100, 1]), ..right };
    assert!(pair.engines[0].receive(pair.now, &moved).is_ok());
    assert_eq!(pair.session(0).path().remote, address(1));
}

#[test]
fn without_our_discriminator_the_session_is_that_of_address_interface_and_port() {
    let now = std::time::Instant::now();
    let mut engine = Engine::new(HashKey::new([1, 2]), 16);
    let path = |interface, hops| Path { remote: address(1), local: None, interface, hops };
    let paths = [
        path(Some(1), Hops::Single),
        path(Some(2), Hops::Single),
        path(None, Hops::Multiple),
        Path { remote: "fe80::1".parse().expect("an address"), ..path(Some(1), Hops::Single) },
        Path { remote: "fe80::1".parse().expect("an address"), ..path(Some(2), Hops::Single) },
    ];
    let ids = paths.map(|path| engine.open(now, path, Profile::default().into()).expect("room"));
    let mut other = Engine::new(HashKey::new([3, 4]), 16);
    other.open(now, path(Some(9), Hops::Single), Profile::default().into()).expect("room");
    let first = other.poll_transmit(now).expect("a packet").octets;
    for (path, id) in paths.iter().zip(ids) {
        let datagram = Datagram {
            octets: first.as_slice(),
            source: path.remote,
            destination: None,
            interface: path.interface.or(Some(77)),
            ttl: Some(255),
            hops: path.hops,
        };
        assert_eq!(engine.receive(now, &datagram), Ok(id));
        assert_eq!(engine.session(id).map(Session::state), Some(State::Init));
        let nobody = Datagram { interface: Some(3), ..datagram };
        let expected = if path.interface.is_some() { Err(Rejected::NoSession) } else { Ok(id) };
        assert_eq!(engine.receive(now, &nobody), expected);
    }
    let far = Datagram {
        octets: first.as_slice(),
        source: address(1),
        destination: None,
        interface: None,
        ttl: Some(253),
        hops: Hops::Multiple,
    };
    assert_eq!(engine.receive(now, &far), Err(Rejected::Misdirected), "254 is the least, unless configured");
}

#[test]
fn a_flood_of_strangers_leaves_no_state() {
    let mut pair = Pair::up([profile(50, 50, 3), profile(50, 50, 3)]);
    let octets = pair.sent[1].last().expect("packets").1.as_slice().to_vec();
    for number in 0..10_000_u32 {
        let mut octets = octets.clone();
        octets[8..12].copy_from_slice(&number.to_be_bytes());
        octets[1] = if number == 0 { 0x40 } else { octets[1] };
        let datagram = Datagram {
            octets: &octets,
            source: IpAddr::from([10, 0, (number >> 8) as u8, number as u8]),
            destination: Some(address(0)),
            interface: Some(7),
            ttl: Some(255),
            hops: Hops::Single,
        };
        assert_eq!(pair.engines[0].receive(pair.now, &datagram), Err(Rejected::NoSession));
    }
    assert_eq!(pair.engines[0].len(), 1);
    pair.run(ms(1000));
    assert_eq!(pair.states(), [State::Up; 2]);
}

/// What is sent while this octet stands for state and bits in each packet in the name of a neighbour, 2,000 a second.
fn sent_in_a_flood(state: u8, ours: bool) -> (usize, usize) {
    let mut pair = Pair::up([profile(50, 50, 3), profile(50, 50, 3)]);
    let mut octets = pair.sent[1].last().expect("packets").1.as_slice().to_vec();
    octets[1] = state;
    if !ours {
        octets[8..12].fill(0);
    }
    pair.run(ms(2000));
    let before = [0, 1].map(|end| pair.sent[end].len());
    for _ in 0..10_000 {
        pair.hand(0, &octets).expect("taken");
        pair.run(std::time::Duration::from_micros(500));
    }
    (pair.sent[0].len() - before[0], pair.sent[1].len() - before[1])
}

#[test]
fn who_sends_in_the_name_of_a_neighbour_does_not_choose_how_much_we_send() {
    // In 5 s: periodic packets, at most one each 37 ms, and besides them one each 50 ms.
    let most = 5000 / 37 + 5000 / 50 + 10;
    for (state, ours) in
        [(0x40, false), (0x60, false), (0xe0, true), (0xd0, true), (0x40, true), (0x80, true)]
    {
        let (sent, of_neighbour) = sent_in_a_flood(state, ours);
        assert!(sent <= most && of_neighbour <= most, "{state:x} {ours}: {sent} {of_neighbour}");
    }
}

#[test]
fn a_session_does_not_flap_as_often_as_forged_packets_come() {
    let mut pair = Pair::up([profile(50, 50, 3), profile(50, 50, 3)]);
    let up = pair.sent[1].last().expect("packets").1.as_slice().to_vec();
    let before = pair.session(0).counters().ups;
    for round in 0..10_000 {
        let mut octets = up.clone();
        octets[1] = if round % 2 == 0 { 0x40 } else { 0x80 };
        pair.hand(0, &octets).expect("taken");
        pair.run(std::time::Duration::from_micros(500));
    }
    let flaps = pair.session(0).counters().ups - before;
    assert!(flaps <= 5000 / 50 + 5000 / 37 + 10, "{flaps} in 5 s");
    pair.run(ms(3000));
    assert_eq!(pair.states(), [State::Up; 2]);
}

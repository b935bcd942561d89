//! A first packet that is a last one.

use std::{
    net::{SocketAddr, UdpSocket},
    time::Duration,
};

use holdfast_tls::rustls::{
    Side, Tls13CipherSuite, crypto::aws_lc_rs::cipher_suite::TLS13_AES_128_GCM_SHA256, quic::Version,
};

use crate::tests::quic::{endpoint, gate::TestGate, peers::pair, run, until};

/// An Initial in which there is nothing but CONNECTION_CLOSE (RFC 9000 section 19.19), as the last packet of a handshake
/// that has failed at the other end.
fn goodbye() -> Vec<u8> {
    const DESTINATION: [u8; 8] = *b"nobody's";
    let suite =
        TLS13_AES_128_GCM_SHA256.tls13().and_then(Tls13CipherSuite::quic_suite).expect("it is for QUIC");
    let keys = suite.keys(&DESTINATION, Side::Client, Version::V1).local;
    // Of 1200 octets: without token, with a packet number of one octet, which is 0.
    let mut payload = vec![0; 1200 - 27 - 16];
    payload[..4].copy_from_slice(&[0x1c, 0x0a, 0, 0]);
    let length = u16::try_from(1 + payload.len() + 16).expect("a short one") | 0x4000;
    let mut packet = vec![0xc0, 0, 0, 0, 1, 8];
    packet.extend(DESTINATION);
    packet.push(8);
    packet.extend(*b"somebody");
    packet.push(0);
    packet.extend(length.to_be_bytes());
    packet.push(0);
    let tag = keys.packet.encrypt_in_place(0, &packet, &mut payload).expect("encrypted");
    let number = packet.len() - 1;
    packet.extend(payload);
    packet.extend(tag.as_ref());
    let sample = packet[number + 4..number + 20].to_vec();
    let (before, after) = packet.split_at_mut(number);
    keys.header.encrypt_in_place(&sample, &mut before[0], &mut after[..1]).expect("protected");
    packet
}

/// Whether the address is free, sooner or later.
async fn is_freed(address: SocketAddr) -> bool {
    for _ in 0..1000 {
        match UdpSocket::bind(address) {
            Ok(_) => return true,
            Err(_) => tokio::time::sleep(Duration::from_millis(5)).await,
        }
    }
    false
}

#[test]
fn a_connection_that_begins_with_its_end_is_none() {
    run(async {
        let (r1, r2) = pair();
        let gate = TestGate::open(r2.expects(&r1));
        let endpoint = endpoint();
        let address = endpoint.local();
        let mut listener = endpoint.listen(gate.clone());
        let stranger = UdpSocket::bind("127.0.0.1:0").expect("a socket");
        stranger.send_to(&goodbye(), address).expect("sent");
        until(&mut listener, || gate.proofs().len() == 1).await;
        assert_eq!(gate.under_way(), 0, "no handshake begins");
        drop((listener, endpoint));
        assert!(is_freed(address).await, "nothing of it keeps the socket");
    });
}

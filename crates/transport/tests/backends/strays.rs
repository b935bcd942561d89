//! What comes to a listener of QUIC and is no attempt: counted, and answered as little as may be.

use std::{net::SocketAddr, time::Duration};

use holdfast_transport::Stray;
use tokio::{net::UdpSocket, time::timeout};

use crate::tests::backends::{
    backend::Backend,
    door::{Door, TestGate},
    for_every_backend,
    people::{greet, routers},
};

for_every_backend! {
    another_version_is_answered_where_it_may_be_and_not_otherwise,
    what_has_no_meaning_is_counted_and_not_answered,
}

/// The first octets of a long packet of a version, with connection ids.
fn probe(version: u32, length: usize) -> Vec<u8> {
    let mut probe = vec![0xe5];
    probe.extend(version.to_be_bytes());
    probe.extend(b"\x08to-someb\x05me-me");
    probe.resize(length, 0x77);
    probe
}

/// Sends this, and says what came back.
async fn ask(socket: &UdpSocket, to: SocketAddr, datagram: &[u8]) -> Option<Vec<u8>> {
    socket.send_to(datagram, to).await.expect("sent");
    answer(socket).await
}

async fn answer(socket: &UdpSocket) -> Option<Vec<u8>> {
    let mut octets = [0; 2048];
    let received = timeout(Duration::from_millis(100), socket.recv(&mut octets)).await.ok()?;
    Some(octets[..received.expect("a datagram")].to_vec())
}

async fn another_version_is_answered_where_it_may_be_and_not_otherwise(backend: &dyn Backend) {
    /// More than are answered at once.
    const MANY: usize = 150;
    if !backend.abilities().datagrams {
        return;
    }
    let (r1, r2) = routers();
    let mut door = Door::open(backend, TestGate::expecting(r2.expects(&r1)));
    let stranger = UdpSocket::bind("127.0.0.1:0").await.expect("a socket");
    let unknown = probe(0xbaba_baba, 1200);

    assert_eq!(ask(&stranger, door.local, &unknown).await, None, "nobody is let in from there");
    door.gate.tells_version.set(true);
    for length in [7, 21, 600, 1199] {
        assert_eq!(ask(&stranger, door.local, &unknown[..length]).await, None, "{length} octets");
    }
    let told = ask(&stranger, door.local, &unknown).await.expect("an answer");
    // RFC 9000 section 17.2.1: no version, and both connection ids in each other's place.
    assert!(told[0] & 0x80 != 0 && told[1..5] == [0; 4], "{told:02x?}");
    assert_eq!(told[5..20], *b"\x05me-me\x08to-someb");
    assert!(told[20..].chunks(4).any(|version| version == [0, 0, 0, 1]), "{told:02x?}");
    assert_eq!(ask(&stranger, door.local, &probe(0, 1200)).await, None, "an answer to an answer");
    assert_eq!(door.gate.strays.borrow().iter().filter(|stray| **stray == Stray::UnknownVersion).count(), 6);

    for _ in 0..MANY {
        stranger.send_to(&unknown, door.local).await.expect("sent");
        // Not more than a buffer of the kernel's holds.
        tokio::task::yield_now().await;
    }
    let mut answers = 0;
    while answer(&stranger).await.is_some() {
        answers += 1;
    }
    assert!((20..=100).contains(&answers), "{answers} answers");
    assert_eq!(door.gate.judged(), 0, "none of it is an attempt");
    let mut dialed = backend.dial(door.local, &r1.expects(&r2)).await.expect("it is let in");
    greet(&mut dialed, &mut door.next().await).await;
}

async fn what_has_no_meaning_is_counted_and_not_answered(backend: &dyn Backend) {
    if !backend.abilities().datagrams {
        return;
    }
    let (r1, r2) = routers();
    let mut door = Door::open(backend, TestGate::expecting(r2.expects(&r1)));
    let stranger = UdpSocket::bind("127.0.0.1:0").await.expect("a socket");
    let short = [&[0x40][..], &[0x33; 60]].concat();
    let garbage = [vec![0xc0; 3], short, probe(1, 1200), vec![0; 1200]];
    for datagram in &garbage {
        assert_eq!(ask(&stranger, door.local, datagram).await, None, "{:02x?}", &datagram[..3]);
    }
    assert_eq!(*door.gate.strays.borrow(), [Stray::Garbage; 4]);
    let mut dialed = backend.dial(door.local, &r1.expects(&r2)).await.expect("it is let in");
    greet(&mut dialed, &mut door.next().await).await;
    assert_eq!(door.gate.strays.borrow().len(), garbage.len(), "nothing of a connection is taken for it");
}

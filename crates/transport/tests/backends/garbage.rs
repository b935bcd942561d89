//! What no honest peer sends: it is turned away, and nobody else notices.

use std::{
    io::Write,
    net::{Ipv4Addr, TcpStream, UdpSocket},
};

use holdfast_transport::Protocol;

use crate::tests::backends::{
    backend::Backend,
    bounds::first_flight,
    door::Door,
    for_every_backend,
    people::{Pair, greet, routers},
};

for_every_backend! {
    others_do_not_notice_garbage,
    an_initial_that_was_cut_off_or_changed_is_nobody,
}

/// Octets without any meaning, of which the same seed makes the same.
fn noise(seed: u64, length: usize) -> Vec<u8> {
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    };
    (0..length).map(|_| next()).collect()
}

/// What somebody might begin with who means something else.
fn beginnings() -> Vec<Vec<u8>> {
    let mut open = vec![0xff; 16];
    open.extend([0, 29, 1, 4, 0xfd, 0xe8, 0, 90, 192, 0, 2, 1, 0]);
    let mut beginnings = vec![
        open,
        b"GET / HTTP/1.1\r\nHost: r2\r\n\r\n".to_vec(),
        // TLS: an alert, a record without octets, one that is too long, a ClientHello of TLS 1.2's lengths and no content.
        vec![21, 3, 3, 0, 2, 2, 40],
        vec![22, 3, 1, 0, 0],
        vec![22, 3, 1, 0xff, 0xff, 1, 0, 0, 4],
        vec![22, 3, 1, 0, 4, 1, 0, 0, 0],
        vec![22, 3, 1, 0, 8, 1, 0xff, 0xff, 0xff, 3, 3, 0, 0],
    ];
    beginnings.extend((0..20).map(|seed| noise(seed, 1 + 97 * seed as usize)));
    beginnings
}

async fn others_do_not_notice_garbage(backend: &dyn Backend) {
    let Pair { mut dialed, mut accepted, mut door } = Pair::new(backend).await;
    match backend.protocol() {
        // There is nobody who could send any.
        Protocol::Memory => {}
        // Octets of the protocol above may be anything.
        Protocol::Tcp => {}
        Protocol::Tls => {
            for beginning in beginnings() {
                throw(&door, &beginning).await;
            }
            assert!(door.is_quiet());
            door.gate.until(|gate| gate.under_way().get() == 0).await;
        }
        Protocol::Quic | Protocol::QuicS2n => {
            let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("bind");
            for mut datagram in beginnings() {
                socket.send_to(&datagram, door.local).expect("send");
                // And as what could be an Initial, by its first octet, its version and its length.
                datagram.resize(1200, 0x5a);
                datagram[..6].copy_from_slice(&[0xc3, 0, 0, 0, 1, 8]);
                socket.send_to(&datagram, door.local).expect("send");
                greet(&mut dialed, &mut accepted).await;
            }
            assert!(door.is_quiet());
        }
    }
    greet(&mut dialed, &mut accepted).await;
    let (r1, r2) = routers();
    door.gate.expected.replace(Some(r2.expects(&r1)));
    let mut dialed = backend.dial(door.local, &r1.expects(&r2)).await.expect("it is let in");
    greet(&mut dialed, &mut door.next().await).await;
}

/// Sends it over TCP, and waits until that has ended.
async fn throw(door: &Door, beginning: &[u8]) {
    let before = door.gate.judged();
    let mut stream = TcpStream::connect(door.local).expect("connect");
    stream.write_all(beginning).expect("write");
    // What is only a beginning is given up at its end.
    stream.shutdown(std::net::Shutdown::Write).expect("FIN");
    door.gate.until(|gate| gate.judged() > before).await;
    stream.set_nonblocking(true).expect("O_NONBLOCK");
    let stream = tokio::net::TcpStream::from_std(stream).expect("watched");
    loop {
        stream.readable().await.expect("readable");
        match stream.try_read(&mut [0; 256]) {
            Ok(1..) => {}
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            Ok(0) | Err(_) => return,
        }
    }
}

async fn an_initial_that_was_cut_off_or_changed_is_nobody(backend: &dyn Backend) {
    if !backend.abilities().datagrams {
        return;
    }
    let Pair { mut dialed, mut accepted, mut door } = Pair::new(backend).await;
    let (r1, r2) = routers();
    let initial = first_flight(backend, &r1, &r2).await;
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("bind");
    for length in (0..initial.len()).step_by(23) {
        socket.send_to(&initial[..length], door.local).expect("send");
    }
    greet(&mut dialed, &mut accepted).await;
    // Behind what is not protected: version and connection ids.
    for octet in (40..initial.len()).step_by(31) {
        let mut changed = initial.clone();
        changed[octet] ^= 0x10;
        socket.send_to(&changed, door.local).expect("send");
        greet(&mut dialed, &mut accepted).await;
    }
    assert!(door.is_quiet());
    door.gate.expected.replace(Some(r2.expects(&r1)));
    let mut dialed = backend.dial(door.local, &r1.expects(&r2)).await.expect("it is let in");
    greet(&mut dialed, &mut door.next().await).await;
}

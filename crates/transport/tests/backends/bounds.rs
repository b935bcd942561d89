//! What somebody can make us keep is bounded, in octets, in number and in time.

use std::{
    io::{ErrorKind, Read, Write},
    net::{Ipv4Addr, TcpStream, UdpSocket},
    time::Duration,
};

use holdfast_admission::Verdict;
use holdfast_transport::{Failure, HANDSHAKE_TIME};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, split},
    join,
    time::timeout,
};

use crate::tests::backends::{
    backend::Backend,
    door::{Door, TestGate},
    for_every_backend,
    people::{Pair, Router, greet, routers},
};

for_every_backend! {
    a_peer_that_does_not_read_stops_whoever_writes,
    a_handshake_that_is_never_finished_is_dropped_in_time,
    handshakes_under_way_are_as_many_as_the_gate_lets,
}

/// More than what kernels and windows hold between two ends.
const MOST: usize = 64 << 20;

async fn a_peer_that_does_not_read_stops_whoever_writes(backend: &dyn Backend) {
    let Pair { dialed, accepted, .. } = Pair::new(backend).await;
    let (_from, mut to) = split(dialed.stream);
    let (mut from, _to) = split(accepted.stream);
    let chunk = vec![3; 64 * 1024];
    let mut written = 0;
    tokio::time::pause();
    // Five seconds pass at once when nobody has anything to do.
    while let Ok(octets) = timeout(Duration::from_secs(5), to.write(&chunk)).await {
        written += octets.expect("it is open");
        assert!(written < MOST, "it takes whatever comes");
    }
    tokio::time::resume();
    // All that it took arrives, once somebody reads.
    let mut heard = vec![0; written];
    let ((), read) = join!(async { to.flush().await.expect("it is open") }, from.read_exact(&mut heard));
    read.expect("it arrives");
    assert!(heard.iter().all(|&octet| octet == 3));
}

/// Whoever begins a handshake and never goes on.
enum Half {
    Tls(TcpStream),
    Quic,
}

impl Half {
    /// Begins one. In memory and over plain TCP there is none to be finished.
    async fn begin(backend: &dyn Backend, door: &Door, r1: &Router, r2: &Router) -> Option<Self> {
        if backend.abilities().datagrams {
            let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("bind");
            socket.connect(door.local).expect("connect");
            socket.send(&first_flight(backend, r1, r2).await).expect("send");
            return Some(Self::Quic);
        }
        if !backend.abilities().proves {
            return None;
        }
        let mut stream = TcpStream::connect(door.local).expect("connect");
        // A record of a handshake, and in it the first octets of a ClientHello of 512.
        stream.write_all(&[22, 3, 1, 2, 4, 1, 0, 2, 0]).expect("write");
        Some(Self::Tls(stream))
    }

    /// It was given up.
    fn is_over(&mut self) -> bool {
        match self {
            Self::Tls(stream) => {
                stream.set_read_timeout(Some(Duration::from_secs(10))).expect("a bound");
                match stream.read(&mut [0; 16]) {
                    Ok(length) => length == 0,
                    Err(error) => error.kind() == ErrorKind::ConnectionReset,
                }
            }
            // QUIC says nothing to one that may have been forged.
            Self::Quic => true,
        }
    }
}

/// The first datagram of somebody who dials.
pub(crate) async fn first_flight(backend: &dyn Backend, r1: &Router, r2: &Router) -> Vec<u8> {
    let socket = tokio::net::UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("bind");
    let to = socket.local_addr().expect("an address");
    let expected = r1.expects(r2);
    let mut datagram = vec![0; 2048];
    tokio::select! {
        dialed = backend.dial(to, &expected) => panic!("there is nobody: {dialed:?}"),
        length = socket.recv(&mut datagram) => datagram.truncate(length.expect("a datagram")),
    }
    datagram
}

async fn a_handshake_that_is_never_finished_is_dropped_in_time(backend: &dyn Backend) {
    let (r1, r2) = routers();
    let mut door = Door::open_for(backend, TestGate::expecting(r2.expects(&r1)), HANDSHAKE_TIME);
    if let Some(mut half) = Half::begin(backend, &door, &r1, &r2).await {
        door.gate.until(|gate| gate.under_way().get() == 1).await;
        // Ten seconds pass at once when nobody has anything to do.
        tokio::time::pause();
        assert_eq!(door.gate.failures(1).await, [Failure::TimedOut]);
        tokio::time::resume();
        door.gate.until(|gate| gate.under_way().get() == 0).await;
        assert!(half.is_over());
        assert!(door.is_quiet());
    }
    let mut dialed = backend.dial(door.local, &r1.expects(&r2)).await.expect("it is let in");
    greet(&mut dialed, &mut door.next().await).await;
}

async fn handshakes_under_way_are_as_many_as_the_gate_lets(backend: &dyn Backend) {
    const LET: usize = 3;
    let (r1, r2) = routers();
    let mut door = Door::open(backend, TestGate::expecting(r2.expects(&r1)));
    let under_way = door.gate.under_way();
    door.gate.judge_by(move |_| match under_way.get() {
        LET.. => Verdict::Refuse("there are enough"),
        _ => Verdict::Accept,
    });
    let mut halves = Vec::new();
    for _ in 0..LET + 2 {
        halves.extend(Half::begin(backend, &door, &r1, &r2).await);
        let begun = halves.len();
        door.gate.until(|gate| gate.judged() >= begun).await;
    }
    if !halves.is_empty() {
        door.gate.until(|gate| gate.under_way().get() == LET).await;
        tokio::time::pause();
        door.gate.failures(LET).await;
        tokio::time::resume();
        door.gate.until(|gate| gate.under_way().get() == 0).await;
    }
    let mut dialed = backend.dial(door.local, &r1.expects(&r2)).await.expect("it is let in");
    greet(&mut dialed, &mut door.next().await).await;
    assert!(door.gate.most_under_way.get() <= LET);
}

//! Peers, and others, that do what they should not.

use std::{
    cell::Cell,
    future::poll_fn,
    net::UdpSocket,
    pin::Pin,
    rc::Rc,
    task::{Context, Poll, Waker},
    time::Duration,
};

use holdfast_tls::ALPN_QUIC;
use holdfast_transport::{Closed, Connection, Expected, Failure, Listener, Stray, s2n::Endpoint};
use s2n_quic::{Client, client::Connect, provider::tls::rustls};
use tokio::io::{AsyncReadExt, AsyncWrite, AsyncWriteExt};

use crate::tests::quic::relay::Relay;
use crate::tests::s2n::support::{
    Router, Told, connect, dialer, echo, endpoint, first_datagram, listener, run, seeds, socket,
};

#[test]
fn a_handshake_that_is_never_finished_ends() {
    run(async {
        let (r1, r2) = (Router::new("r1"), Router::new("r2"));
        let gate = Told::new(Some(r2.expects(&r1)));
        let mut endpoint = endpoint();
        endpoint.limit_handshakes(Duration::from_millis(300));
        let mut listener = endpoint.listen(gate.clone()).expect("a listener");
        let to_r2 = r1.expects(&r2);
        let half_open = 20;
        for _ in 0..half_open {
            socket().send_to(&first_datagram(&to_r2).await, listener.local()).expect("it is sent");
        }
        for _ in 0..half_open {
            assert_eq!(gate.failure().await, Failure::TimedOut);
        }
        assert_eq!((gate.under_way.get(), gate.judged.borrow().len()), (0, half_open));
        let (mut dialed, mut accepted) = connect(&dialer(), &mut listener, &to_r2).await;
        echo(&mut dialed, &mut accepted).await;
    });
}

#[test]
fn a_handshake_that_stands_still_keeps_nobody_else_out() {
    run(async {
        let (r1, r2) = (Router::new("r1"), Router::new("r2"));
        let gate = Told::new(Some(r2.expects(&r1)));
        let mut listener = listener(&gate);
        let to_r2 = r1.expects(&r2);
        socket().send_to(&first_datagram(&to_r2).await, listener.local()).expect("it is sent");
        gate.has_under_way(1).await;
        let (mut dialed, mut accepted) = connect(&dialer(), &mut listener, &to_r2).await;
        echo(&mut dialed, &mut accepted).await;
        assert_eq!(gate.under_way.get(), 1);
    });
}

#[test]
fn there_is_no_second_stream() {
    run(async {
        let (r1, r2) = (Router::new("r1"), Router::new("r2"));
        let mut listener = listener(&Told::new(Some(r2.expects(&r1))));
        let config = r1.expects(&r2).tls.expect("TLS").client(ALPN_QUIC);
        let client = Client::builder()
            .with_tls(rustls::Client::from(config))
            .expect("TLS")
            .with_io("127.0.0.1:0")
            .expect("a socket")
            .start()
            .expect("a client");
        let to = Connect::new(listener.local()).with_server_name("r2");
        let (connection, accepted) = tokio::join!(client.connect(to), listener.accept());
        let (mut connection, mut accepted) =
            (connection.expect("a connection"), accepted.expect("a connection"));

        let mut first = connection.open_bidirectional_stream().await.expect("one stream");
        first.write_all(b"open").await.expect("it writes");
        let mut octets = [0; 4];
        accepted.stream.read_exact(&mut octets).await.expect("it reads");
        let second =
            poll_fn(|cx| Poll::Ready(connection.poll_open_bidirectional_stream(cx).is_pending())).await;
        let one_way = poll_fn(|cx| Poll::Ready(connection.poll_open_send_stream(cx).is_pending())).await;
        assert!(second && one_way, "nobody may open more");
    });
}

#[test]
fn a_peer_that_does_not_read_costs_a_bounded_number_of_octets() {
    /// Windows of both sides, 1 MiB each, and what one write may be over.
    const MOST: usize = (2 << 20) + (64 << 10);
    run(async {
        let (r1, r2) = (Router::new("r1"), Router::new("r2"));
        let mut listener = listener(&Told::new(Some(r2.expects(&r1))));
        let (dialer, to_r2) = (dialer(), r1.expects(&r2));
        let (mut stuck, mut silent) = connect(&dialer, &mut listener, &to_r2).await;
        let mut written = 0;
        // Everybody else has their turns meanwhile.
        for _ in 0..20 {
            written += write_until_full(&mut stuck);
            let (mut dialed, mut accepted) = connect(&dialer, &mut listener, &to_r2).await;
            echo(&mut dialed, &mut accepted).await;
        }
        assert!((1 << 20..=MOST).contains(&written), "{written}");
        assert_eq!(write_until_full(&mut stuck), 0);

        // When it reads, all of it is there.
        let last = async { stuck.stream.shutdown().await.expect("it is acknowledged") };
        let mut octets = Vec::new();
        let (read, ()) = tokio::join!(silent.stream.read_to_end(&mut octets), last);
        assert_eq!(read.expect("it reads"), written);
    });
}

fn write_until_full(connection: &mut Connection) -> usize {
    let (octets, mut written) = ([7; 64 << 10], 0);
    let mut cx = Context::from_waker(Waker::noop());
    while let Poll::Ready(length) = Pin::new(&mut connection.stream).poll_write(&mut cx, &octets) {
        written += length.expect("it writes");
    }
    written
}

#[test]
fn garbage_is_no_attempt_and_leaves_nothing() {
    run(async {
        let (r1, r2) = (Router::new("r1"), Router::new("r2"));
        let gate = Told::new(Some(r2.expects(&r1)));
        let mut listener = listener(&gate);
        let to_r2 = r1.expects(&r2);
        let first = first_datagram(&to_r2).await;
        let mut garbage: Vec<Vec<u8>> = [0, 1, 7, 21, 600, 1200, 1452].map(noise).into();
        // Cut, of another version, and with an octet changed at the beginning, in the middle and at the end.
        garbage.push(first[..600].to_vec());
        garbage.extend([4, 300, first.len() - 1].map(|position| changed(&first, position)));
        // 0-RTT, Handshake and Retry of nobody.
        garbage.extend([0x10, 0x20, 0x30].map(|kind| {
            let mut packet = first.clone();
            packet[0] ^= kind;
            packet
        }));
        let attacker = socket();
        for datagram in &garbage {
            attacker.send_to(datagram, listener.local()).expect("it is sent");
        }
        let (mut dialed, mut accepted) = connect(&dialer(), &mut listener, &to_r2).await;
        echo(&mut dialed, &mut accepted).await;
        assert_eq!(gate.under_way.get(), 0, "nothing is left of it");
    });
}

fn changed(datagram: &[u8], position: usize) -> Vec<u8> {
    let mut changed = datagram.to_vec();
    changed[position] ^= 0xff;
    changed
}

/// Octets without a meaning, the same in each run (xorshift).
fn noise(length: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64 ^ length as u64;
    let next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    };
    std::iter::repeat_with(next).take(length).collect()
}

/// So long who accepts is patient; who dials is for longer.
const IDLE: Duration = Duration::from_secs(3);

#[test]
fn a_peer_that_is_not_heard_for_too_long_is_gone() {
    run(async {
        let (r1, r2) = (Router::new("r1"), Router::new("r2"));
        let from_r1 = Expected { idle: IDLE, ..r2.expects(&r1) };
        let mut listener = listener(&Told::new(Some(from_r1)));
        let cut = Rc::new(Cell::new(false));
        let is_cut = cut.clone();
        let relay = Relay::looking(listener.local(), move |_, _| !is_cut.get()).await;
        let (dialer, to_r2) = (dialer(), r1.expects(&r2));
        let (dialed, accepted) = tokio::join!(dialer.connect(relay.address(), &to_r2), listener.accept());
        let (mut dialed, mut accepted) = (dialed.expect("a connection"), accepted.expect("a connection"));
        echo(&mut dialed, &mut accepted).await;
        cut.set(true);
        // Seconds pass at once when nobody has anything to do.
        tokio::time::pause();
        let ended = tokio::join!(dialed.control.closed(), accepted.control.closed());
        assert_eq!(ended, (Closed::TimedOut, Closed::TimedOut));
    });
}

#[test]
fn a_connection_on_which_nothing_is_said_stays() {
    run(async {
        let (r1, r2) = (Router::new("r1"), Router::new("r2"));
        let from_r1 = Expected { idle: IDLE, ..r2.expects(&r1) };
        let mut listener = listener(&Told::new(Some(from_r1)));
        let (mut dialed, mut accepted) = connect(&dialer(), &mut listener, &r1.expects(&r2)).await;
        tokio::time::pause();
        tokio::time::sleep(10 * IDLE).await;
        tokio::time::resume();
        echo(&mut dialed, &mut accepted).await;
    });
}

#[test]
fn a_listener_that_was_killed_tells_its_peers_after_its_restart() {
    reset_after_restart(&[1]);
}

#[test]
fn also_when_the_seeds_have_rotated() {
    reset_after_restart(&[2, 1]);
}

/// The dialer learns it with the first packet that it sends.
fn reset_after_restart(successor: &[u8]) {
    let (r1, r2) = (Router::new("r1"), Router::new("r2"));
    let (from_r1, to_r2) = (r2.expects(&r1), r1.expects(&r2));
    let udp = socket();
    let remote = udp.local_addr().expect("an address");
    run(async {
        let gate = Told::new(Some(from_r1.clone()));
        let dialer = dialer();
        let (ready, started) = tokio::sync::oneshot::channel();
        // Its process: a thread, all of which ends without a word.
        let (kill, killed) = tokio::sync::oneshot::channel::<()>();
        let process = std::thread::spawn(move || {
            run(async {
                let mut listener = Endpoint::new(udp, &seeds(&[1]))
                    .and_then(|endpoint| endpoint.listen(Told::new(Some(from_r1))))
                    .expect("a listener");
                ready.send(()).expect("somebody waits");
                let mut accepted = listener.accept().await.expect("a connection");
                let mut octets = [0; 4];
                accepted.stream.read_exact(&mut octets).await.expect("it reads");
                accepted.stream.write_all(b"open").await.expect("it writes");
                killed.await.expect("it is killed");
                // No destructor says goodbye.
                std::mem::forget((accepted, listener));
            });
        });
        started.await.expect("it has started");
        let mut dialed = dialer.connect(remote, &to_r2).await.expect("a connection");
        let mut octets = [0; 4];
        dialed.stream.write_all(b"open").await.expect("it writes");
        dialed.stream.read_exact(&mut octets).await.expect("it reads");
        kill.send(()).expect("it lives");
        process.join().expect("no panic");

        let udp = UdpSocket::bind(remote).expect("the port is free again");
        let mut listener = Endpoint::new(udp, &seeds(successor))
            .and_then(|endpoint| endpoint.listen(gate.clone()))
            .expect("a listener");
        dialed.stream.write_all(b"more").await.expect("it does not know yet");
        assert_eq!(dialed.control.closed().await, Closed::Reset);
        assert!(gate.strays.borrow().contains(&Stray::Reset), "it is counted");
        // And comes again.
        let (mut dialed, mut accepted) = connect(&dialer, &mut listener, &to_r2).await;
        echo(&mut dialed, &mut accepted).await;
    });
}

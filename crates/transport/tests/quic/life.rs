//! What happens to connections.

use std::{cell::Cell, rc::Rc, time::Duration};

use holdfast_tls::ALPN_QUIC;
use holdfast_transport::{Closed, Expected, Failure, Listener};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    join,
    time::{sleep, timeout},
};

use crate::tests::quic::{
    admission::{KeyShare, bare},
    endpoint, endpoint_at,
    gate::TestGate,
    meet,
    peers::pair,
    relay::{Relay, Way},
    run, talk,
};

#[test]
fn both_ends_know_whom_they_have() {
    run(async {
        let (r1, r2) = pair();
        let (server, client) = (endpoint(), endpoint());
        let mut listener = server.listen(TestGate::open(r2.expects(&r1)));
        assert_eq!(listener.local(), server.local());
        let (dialed, accepted) = meet(&client, server.local(), &r1.expects(&r2), &mut listener).await;
        let (here, there) = (&dialed.identity, &accepted.identity);
        assert_eq!((&here.peer[..], &there.peer[..]), ("r2.example", "r1.example"));
        assert_eq!((here.local, here.remote), (client.local(), server.local()));
        assert_eq!((there.local, there.remote), (server.local(), client.local()));
        assert!(here.proof.contains("CN=r2.example"), "{}", here.proof);
        assert!(there.proof.contains("CN=r1.example"), "{}", there.proof);
    });
}

#[test]
fn a_connection_follows_its_dialer_to_another_address() {
    run(async {
        let (r1, r2) = pair();
        let (server, client) = (endpoint(), endpoint());
        let mut listener = server.listen(TestGate::open(r2.expects(&r1)));
        let relay = Relay::new(server.local()).await;
        let (mut dialed, mut accepted) =
            meet(&client, relay.address(), &r1.expects(&r2), &mut listener).await;
        talk(&mut dialed, &mut accepted).await;
        assert_eq!((accepted.control.remote(), accepted.control.stats().migrations), (relay.outside(), 0));

        relay.moves().await;
        talk(&mut dialed, &mut accepted).await;
        assert_eq!((accepted.control.remote(), accepted.control.stats().migrations), (relay.outside(), 1));
        // Whoever asks for the identity is told where it began.
        assert_ne!(accepted.identity.remote, relay.outside());
        talk(&mut dialed, &mut accepted).await;
        assert_eq!(accepted.control.stats().migrations, 1);
        assert_eq!(dialed.control.stats().migrations, 0);
    });
}

#[test]
fn a_neighbour_with_gtsm_is_not_heard_from_another_address() {
    run(async {
        let (r1, r2) = pair();
        let (server, client) = (endpoint(), endpoint());
        let from_r1 = Expected { ttl_security: true, idle: Duration::from_secs(1), ..r2.expects(&r1) };
        let mut listener = server.listen(TestGate::open(from_r1));
        let relay = Relay::new(server.local()).await;
        let (mut dialed, mut accepted) =
            meet(&client, relay.address(), &r1.expects(&r2), &mut listener).await;
        talk(&mut dialed, &mut accepted).await;
        relay.moves().await;
        dialed.stream.write_all(b"from elsewhere").await.expect("there is room");
        assert_eq!(accepted.control.closed().await, Closed::TimedOut);
        assert_eq!(accepted.control.stats().migrations, 0);
    });
}

#[test]
fn whoever_is_not_heard_any_more_does_not_answer() {
    run(async {
        let (r1, r2) = pair();
        let (server, client) = (endpoint(), endpoint());
        let mut listener = server.listen(TestGate::open(r2.expects(&r1)));
        let silent = Rc::new(Cell::new(false));
        let hears = silent.clone();
        // Only one way is cut: what is sent from here is as good as lost, too.
        let relay = Relay::looking(server.local(), move |way, _| way == Way::ToServer || !hears.get()).await;
        let (mut dialed, mut accepted) =
            meet(&client, relay.address(), &r1.expects(&r2), &mut listener).await;
        talk(&mut dialed, &mut accepted).await;
        assert!(dialed.control.answers().await && accepted.control.answers().await);
        silent.set(true);
        assert!(!dialed.control.answers().await);
        silent.set(false);
        assert!(dialed.control.answers().await, "it is for the caller to end it");
    });
}

#[test]
fn either_end_changes_the_keys_of_both() {
    run(async {
        let (r1, r2) = pair();
        let (server, client) = (endpoint(), endpoint());
        let mut listener = server.listen(TestGate::open(r2.expects(&r1)));
        let (mut dialed, mut accepted) = meet(&client, server.local(), &r1.expects(&r2), &mut listener).await;
        talk(&mut dialed, &mut accepted).await;
        // noq itself changes them first after some packets, so the count is not ours alone.
        let before = accepted.control.stats().key_updates;
        assert!(dialed.control.update_keys());
        talk(&mut dialed, &mut accepted).await;
        let between = accepted.control.stats().key_updates;
        assert!(between > before, "{before} {between}");

        // Nobody changes keys again before the others have seen the last change.
        while dialed.control.stats().key_updates <= between {
            assert!(accepted.control.update_keys());
            talk(&mut dialed, &mut accepted).await;
        }
    });
}

#[test]
fn what_was_sent_before_the_end_arrives() {
    run(async {
        let (r1, r2) = pair();
        let (server, client) = (endpoint(), endpoint());
        let mut listener = server.listen(TestGate::open(r2.expects(&r1)));
        let (mut dialed, mut accepted) = meet(&client, server.local(), &r1.expects(&r2), &mut listener).await;
        let octets: Vec<u8> = (0..1_000_000_u32).map(|n| n as u8).collect();
        let (sender, receiver) = (dialed.control.clone(), accepted.control.clone());
        let mut received = Vec::new();
        let send = async {
            dialed.stream.write_all(&octets).await.expect("written");
            dialed.stream.shutdown().await.expect("acknowledged");
            sender.close(6, "done");
        };
        let ((), read) = join!(send, accepted.stream.read_to_end(&mut received));
        read.expect("read");
        assert!(received == octets);
        assert_eq!(receiver.closed().await, Closed::Peer(6, "done".to_owned()));
        assert_eq!(sender.closed().await, Closed::Here);
        // The reason stays what it was.
        receiver.close(7, "too late");
        assert_eq!(receiver.closed().await, Closed::Peer(6, "done".to_owned()));
    });
}

#[test]
fn a_stream_that_is_dropped_ends_the_connection() {
    run(async {
        let (r1, r2) = pair();
        let (server, client) = (endpoint(), endpoint());
        let mut listener = server.listen(TestGate::open(r2.expects(&r1)));
        let (dialed, mut accepted) = meet(&client, server.local(), &r1.expects(&r2), &mut listener).await;
        let control = dialed.control.clone();
        drop(dialed.stream);
        assert_eq!(control.closed().await, Closed::Here);
        assert_eq!(accepted.control.closed().await, Closed::Peer(0, String::new()));
        // It had no octets yet.
        assert!(accepted.stream.read_u8().await.is_err());
    });
}

#[test]
fn nobody_opens_a_second_stream() {
    run(async {
        let (r1, r2) = pair();
        let server = endpoint();
        let mut listener = server.listen(TestGate::open(r2.expects(&r1)));
        let expected = r1.expects(&r2);
        let (dialed, accepted) =
            join!(bare(&expected, server.local(), ALPN_QUIC, KeyShare::Classical), listener.accept());
        let (dialed, mut accepted) = (dialed.expect("dialed"), accepted.expect("accepted"));
        let (mut send, mut receive) = dialed.open_bi().await.expect("a stream");
        let mut octets = [0; 2];
        let (sent, read) = join!(send.write_all(b"ab"), accepted.stream.read_exact(&mut octets));
        sent.expect("sent");
        read.expect("read");

        // Nor when the first has ended.
        send.finish().expect("finished");
        assert_eq!(accepted.stream.read(&mut octets).await.expect("the end"), 0);
        let (ended, rest) = join!(accepted.stream.shutdown(), receive.read_to_end(0));
        ended.expect("acknowledged");
        rest.expect("the end");
        // Time for the server to say that there may be another one: three more packets from it.
        let path = dialed.path(noq::PathId::ZERO).expect("a path");
        let heard = dialed.stats().frame_rx.acks;
        while dialed.stats().frame_rx.acks < heard + 3 {
            path.ping().expect("a ping");
            sleep(Duration::from_millis(1)).await;
        }
        assert_eq!(dialed.stats().frame_rx.max_streams_bidi, 0);
        assert!(timeout(Duration::ZERO, dialed.open_bi()).await.is_err());
        assert!(timeout(Duration::ZERO, dialed.open_uni()).await.is_err());
        assert!(dialed.close_reason().is_none());
    });
}

#[test]
fn connections_outlive_their_listener() {
    run(async {
        let (r1, r2) = pair();
        let (server, mut client) = (endpoint(), endpoint());
        let gate = TestGate::open(r2.expects(&r1));
        let mut listener = server.listen(gate.clone());
        let expected = r1.expects(&r2);
        let (mut dialed, mut accepted) = meet(&client, server.local(), &expected, &mut listener).await;
        drop(listener);
        assert_eq!(Rc::strong_count(&gate), 1);
        talk(&mut dialed, &mut accepted).await;

        // Nobody else gets in.
        client.limit_handshakes(Duration::from_millis(100));
        let failure = client.connect(server.local(), None, &expected).await.expect_err("nobody listens");
        assert_eq!(failure, Failure::TimedOut);
        assert_eq!(gate.seen.borrow().len(), 1);

        // Until somebody listens again.
        let client = endpoint();
        let mut listener = server.listen(gate.clone());
        meet(&client, server.local(), &expected, &mut listener).await;
        talk(&mut dialed, &mut accepted).await;
    });
}

#[test]
fn attempts_that_wait_when_the_listener_goes_are_refused() {
    run(async {
        let (r1, r2) = pair();
        let (server, client) = (endpoint(), endpoint());
        let gate = TestGate::open(r2.expects(&r1));
        let listener = server.listen(gate.clone());
        let expected = r1.expects(&r2);
        // Nobody waits in `accept`, so nobody is judged; the dialer's first packet is answered when the listener goes.
        let sent = Rc::new(Cell::new(false));
        let seen = sent.clone();
        let relay = Relay::looking(server.local(), move |_, _| {
            seen.set(true);
            true
        })
        .await;
        let leaves = async {
            // Until it is sent, and a few turns of noq's.
            let mut turns = 0;
            while turns < 5 {
                turns += usize::from(sent.get());
                sleep(Duration::from_millis(1)).await;
            }
            drop(listener);
        };
        let (dialed, ()) = join!(client.connect(relay.address(), None, &expected), leaves);
        assert!(matches!(&dialed, Err(Failure::Refused(_))), "{dialed:?}");
        assert!(gate.seen.borrow().is_empty());
    });
}

#[test]
fn the_latest_listener_takes_connections() {
    run(async {
        let (r1, r2) = pair();
        let (server, client) = (endpoint(), endpoint());
        let (before, after) = (TestGate::open(r2.expects(&r1)), TestGate::open(r2.expects(&r1)));
        let mut earlier = server.listen(before.clone());
        let expected = r1.expects(&r2);
        let waiting = tokio::task::spawn_local(async move { earlier.accept().await.map(drop) });
        tokio::task::yield_now().await;
        let mut later = server.listen(after.clone());
        meet(&client, server.local(), &expected, &mut later).await;
        // The end of the earlier one changes nothing.
        waiting.abort();
        assert!(waiting.await.expect_err("it waits for ever").is_cancelled());
        meet(&client, server.local(), &expected, &mut later).await;
        assert_eq!((before.seen.borrow().len(), after.seen.borrow().len()), (0, 2));
    });
}

#[test]
fn a_dialer_comes_from_where_it_is_told_to() {
    run(async {
        let (r1, r2) = pair();
        let (server, client) = (endpoint(), endpoint_at("0.0.0.0:0"));
        let mut listener = server.listen(TestGate::open(r2.expects(&r1)));
        let expected = r1.expects(&r2);
        let from = "127.0.0.9".parse().expect("an address");
        let (dialed, accepted) =
            join!(client.connect(server.local(), Some(from), &expected), listener.accept());
        let (mut dialed, mut accepted) = (dialed.expect("dialed"), accepted.expect("accepted"));
        assert_eq!((dialed.identity.local.ip(), accepted.identity.remote.ip()), (from, from));
        talk(&mut dialed, &mut accepted).await;
        // The next one comes from wherever the kernel says.
        let (_, accepted) = meet(&client, server.local(), &expected, &mut listener).await;
        assert_eq!(accepted.identity.remote.ip(), server.local().ip());

        let bound = endpoint();
        let failure =
            bound.connect(server.local(), Some(from), &expected).await.expect_err("bound elsewhere");
        assert!(matches!(&failure, Failure::Unsupported(text) if text.contains("127.0.0.9")), "{failure}");
    });
}

#[test]
fn ipv4_is_itself_at_a_socket_for_both_families() {
    run(async {
        let (r1, r2) = pair();
        let (server, client) = (endpoint_at("[::]:0"), endpoint());
        let gate = TestGate::open(r2.expects(&r1));
        let mut listener = server.listen(gate.clone());
        let to = (std::net::Ipv4Addr::LOCALHOST, server.local().port()).into();
        let (_, accepted) = meet(&client, to, &r1.expects(&r2), &mut listener).await;
        assert_eq!((accepted.identity.remote, accepted.identity.local), (client.local(), to));
        assert_eq!(gate.seen.borrow()[0].remote, client.local());
    });
}

#[test]
fn ipv6_is_out_of_reach_of_a_socket_for_ipv4() {
    run(async {
        let (r1, r2) = pair();
        let to = "[::1]:179".parse().expect("an address");
        let failure = endpoint().connect(to, None, &r1.expects(&r2)).await;
        assert!(matches!(&failure, Err(Failure::Unsupported(_))), "{failure:?}");
    });
}

//! With the other library at the other end, and with a peer whose address moves.

use std::{cell::Cell, rc::Rc, time::Duration};

use holdfast_tls::Seeds;
use holdfast_transport::{Closed, Connection, Expected, Gate, Listener, Protocol, noq, s2n::Endpoint};
use tokio::io::AsyncWriteExt;

use crate::tests::quic::relay::{Relay, Way};
use crate::tests::s2n::support::{
    Router, Told, dialer, echo, endpoint, listener, run, run_for, seeds, socket,
};

fn other() -> noq::Endpoint {
    noq::Endpoint::new(socket(), &Seeds::random()).expect("an endpoint")
}

async fn talk(mut dialed: Connection, mut accepted: Connection, closed: Closed) {
    assert_eq!((&*dialed.identity.peer, &*accepted.identity.peer), ("r2", "r1"));
    for _ in 0..3 {
        echo(&mut dialed, &mut accepted).await;
    }
    dialed.control.close(6, "Cease");
    assert_eq!(accepted.control.closed().await, closed);
}

#[test]
fn noq_dials_and_s2n_accepts() {
    run(async {
        let (r1, r2) = (Router::new("r1"), Router::new("r2"));
        let mut listener = listener(&Told::new(Some(r2.expects(&r1))));
        let (client, to_r2) = (other(), r1.expects(&r2));
        let remote = listener.local();
        let (dialed, accepted) = tokio::join!(client.connect(remote, None, &to_r2), listener.accept());
        let (dialed, accepted) = (dialed.expect("a connection"), accepted.expect("a connection"));
        assert_eq!(dialed.identity.protocol, Protocol::Quic);
        talk(dialed, accepted, Closed::Peer(6, String::new())).await;
    });
}

#[test]
fn s2n_dials_and_noq_accepts() {
    run(async {
        let (r1, r2) = (Router::new("r1"), Router::new("r2"));
        let server = other();
        let gate: Rc<dyn Gate> = Told::of(Protocol::Quic, Some(r2.expects(&r1)));
        let mut listener = server.listen(gate);
        let (dialer, to_r2, remote) = (dialer(), r1.expects(&r2), listener.local());
        let (dialed, accepted) = tokio::join!(dialer.connect(remote, &to_r2), listener.accept());
        let (dialed, accepted) = (dialed.expect("a connection"), accepted.expect("a connection"));
        assert_eq!(dialed.identity.protocol, Protocol::QuicS2n);
        talk(dialed, accepted, Closed::Peer(6, String::new())).await;
    });
}

#[test]
fn the_other_library_is_told_what_is_wrong_with_its_key() {
    run(async {
        let (r1, r2, thief) = (Router::new("r1"), Router::new("r2"), Router::new("r1"));
        let gate = Told::new(Some(r2.expects(&r1)));
        let listener = listener(&gate);
        let (client, to_r2) = (other(), thief.expects(&r2));
        // See `identity`.
        tokio::time::pause();
        let failed = client.connect(listener.local(), None, &to_r2).await.expect_err("refused");
        assert!(failed.to_string().contains("the peer refuses our certificate"), "{failed}");
        assert!(
            failed.to_string().contains("certificate_unknown"),
            "the alert is the one that it was: {failed}"
        );
    });
}

/// A session lives for months, and a generation of seeds for two days.
#[test]
fn a_connection_that_is_older_than_both_generations_is_reset_by_the_successor() {
    run_for(5 * Seeds::LIFETIME, async {
        let (r1, r2) = (Router::new("r1"), Router::new("r2"));
        let server = endpoint();
        server.set_seeds(&seeds(&[1]));
        // Whoever says nothing is not looked for meanwhile.
        let patient = |expected: Expected| Expected { idle: Seeds::LIFETIME, ..expected };
        let gate = Told::new(Some(patient(r2.expects(&r1))));
        let mut listener = server.listen(gate).expect("a listener");
        let relay = Relay::new(server.local()).await;
        let (client, to_r2) = (other(), patient(r1.expects(&r2)));
        let (dialed, accepted) =
            tokio::join!(client.connect(relay.address(), None, &to_r2), listener.accept());
        let (mut dialed, mut accepted) = (dialed.expect("a connection"), accepted.expect("a connection"));
        echo(&mut dialed, &mut accepted).await;
        tokio::time::pause();
        for generations in [[2, 1], [3, 2]] {
            server.set_seeds(&seeds(&generations));
            // A jump: nobody has to say twelve hours long that it lives.
            tokio::time::advance(Seeds::LIFETIME / 2 + Duration::from_secs(60)).await;
            for _ in 0..3 {
                echo(&mut dialed, &mut accepted).await;
            }
        }
        tokio::time::resume();

        let successor = Endpoint::new(socket(), &seeds(&[4, 3])).expect("an endpoint");
        let _listener = successor.listen(Told::new(Some(r2.expects(&r1)))).expect("a listener");
        relay.leads_to(successor.local());
        dialed.stream.write_all(&[0; 100]).await.expect("it writes");
        assert_eq!(dialed.control.closed().await, Closed::Reset);
    });
}

#[test]
fn whoever_is_not_heard_any_more_does_not_answer() {
    run(async {
        let (r1, r2) = (Router::new("r1"), Router::new("r2"));
        let mut listener = listener(&Told::new(Some(r2.expects(&r1))));
        let silent = Rc::new(Cell::new(false));
        let hears = silent.clone();
        let relay =
            Relay::looking(listener.local(), move |way, _| way == Way::ToClient || !hears.get()).await;
        let (dialer, to_r2) = (dialer(), r1.expects(&r2));
        let (dialed, accepted) = tokio::join!(dialer.connect(relay.address(), &to_r2), listener.accept());
        let (mut dialed, mut accepted) = (dialed.expect("a connection"), accepted.expect("a connection"));
        echo(&mut dialed, &mut accepted).await;
        assert!(dialed.control.answers().await && accepted.control.answers().await);
        silent.set(true);
        assert!(!accepted.control.answers().await);
        silent.set(false);
        assert!(accepted.control.answers().await, "it is for the caller to end it");
    });
}

#[test]
fn a_connection_follows_its_dialer_to_another_address() {
    run(async {
        let (r1, r2) = (Router::new("r1"), Router::new("r2"));
        let mut listener = listener(&Told::new(Some(r2.expects(&r1))));
        let relay = Relay::new(listener.local()).await;
        let (client, to_r2) = (other(), r1.expects(&r2));
        let (dialed, accepted) =
            tokio::join!(client.connect(relay.address(), None, &to_r2), listener.accept());
        let (mut dialed, mut accepted) = (dialed.expect("a connection"), accepted.expect("a connection"));
        echo(&mut dialed, &mut accepted).await;
        let before = relay.outside();
        assert_eq!((accepted.control.remote(), accepted.control.stats().migrations), (before, 0));
        relay.moves().await;
        while accepted.control.stats().migrations == 0 {
            echo(&mut dialed, &mut accepted).await;
        }
        assert_eq!((accepted.control.remote(), accepted.control.stats().migrations), (relay.outside(), 1));
        assert_eq!(accepted.identity.remote, before, "where it began");
    });
}

#[test]
fn a_neighbour_with_gtsm_that_moves_loses_its_connection() {
    run(async {
        let (r1, r2) = (Router::new("r1"), Router::new("r2"));
        let from_r1 = Expected { ttl_security: true, ..r2.expects(&r1) };
        let mut listener = listener(&Told::new(Some(from_r1)));
        let relay = Relay::new(listener.local()).await;
        let (client, to_r2) = (other(), r1.expects(&r2));
        let (dialed, accepted) =
            tokio::join!(client.connect(relay.address(), None, &to_r2), listener.accept());
        let (mut dialed, mut accepted) = (dialed.expect("a connection"), accepted.expect("a connection"));
        echo(&mut dialed, &mut accepted).await;
        relay.moves().await;
        dialed.stream.write_all(b"from elsewhere").await.expect("there is room");
        assert_eq!(accepted.control.closed().await, Closed::Here);
        assert_eq!(dialed.control.closed().await, Closed::Peer(0, String::new()));
    });
}

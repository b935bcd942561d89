//! Each verdict, and what it does.

use std::{net::SocketAddr, rc::Rc, time::Duration};

use holdfast_admission::{AddressProof, Verdict};
use holdfast_transport::{Closed, Failure, Gate, Listener, Protocol};
use tokio::{net::UdpSocket, time::sleep};

use crate::tests::s2n::support::{
    Router, Told, connect, dialer, echo, endpoint, first_datagram, listener, run, socket,
};

#[test]
fn who_is_let_in_and_proves_who_it_is_has_a_connection() {
    run(async {
        let (r1, r2) = (Router::new("r1"), Router::new("r2"));
        let gate = Told::new(Some(r2.expects(&r1)));
        let mut listener = listener(&gate);
        let dialer = dialer();
        let (mut dialed, mut accepted) = connect(&dialer, &mut listener, &r1.expects(&r2)).await;

        assert_eq!((dialed.identity.peer.as_str(), accepted.identity.peer.as_str()), ("r2", "r1"));
        assert_eq!(accepted.identity.protocol, Protocol::QuicS2n);
        assert_eq!(accepted.identity.remote, dialer.local());
        assert_eq!((accepted.identity.local, dialed.identity.remote), (listener.local(), listener.local()));
        assert!(dialed.identity.proof.starts_with("certificate CN=r2"), "{}", dialed.identity.proof);
        assert!(accepted.identity.proof.starts_with("certificate CN=r1"), "{}", accepted.identity.proof);
        assert_eq!(*gate.judged.borrow(), [AddressProof::None]);
        assert_eq!(gate.under_way.get(), 0, "its handshake is over");

        echo(&mut dialed, &mut accepted).await;
        assert!(dialed.control.stats().smoothed_rtt_us > 0);
        assert_eq!(accepted.control.remote(), dialer.local());
        assert!(!dialed.control.update_keys(), "the library has no such call");
    });
}

#[test]
fn whoever_was_not_taken_yet_counts_as_a_handshake() {
    run(async {
        let (r1, r2) = (Router::new("r1"), Router::new("r2"));
        let gate = Told::new(Some(r2.expects(&r1)));
        let mut listener = listener(&gate);
        let dialed = dialer().connect(listener.local(), &r1.expects(&r2)).await.expect("a connection");
        assert_eq!(gate.under_way.get(), 1);
        let mut accepted = listener.accept().await.expect("a connection");
        drop(accepted.permit.take());
        assert_eq!(gate.under_way.get(), 0);
        drop((dialed, accepted));
    });
}

#[test]
fn a_close_has_its_number_at_the_other_end() {
    run(async {
        let (r1, r2) = (Router::new("r1"), Router::new("r2"));
        let mut listener = listener(&Told::new(Some(r2.expects(&r1))));
        let dialer = dialer();
        let to_r2 = r1.expects(&r2);
        for dialer_closes in [true, false] {
            let (dialed, accepted) = connect(&dialer, &mut listener, &to_r2).await;
            let (here, there) = if dialer_closes { (dialed, accepted) } else { (accepted, dialed) };
            here.control.close(6, "Cease");
            assert_eq!(here.control.closed().await, Closed::Here);
            assert_eq!(there.control.closed().await, Closed::Peer(6, String::new()));
        }
    });
}

#[test]
fn a_stream_that_is_dropped_ends_its_connection() {
    run(async {
        let (r1, r2) = (Router::new("r1"), Router::new("r2"));
        let mut listener = listener(&Told::new(Some(r2.expects(&r1))));
        let (dialed, accepted) = connect(&dialer(), &mut listener, &r1.expects(&r2)).await;
        drop(dialed.stream);
        assert_eq!(accepted.control.closed().await, Closed::Peer(0, String::new()));
    });
}

#[test]
fn who_has_to_prove_its_address_comes_back_with_a_token() {
    run(async {
        let (r1, r2) = (Router::new("r1"), Router::new("r2"));
        let gate = Told::new(Some(r2.expects(&r1))).says(&[Verdict::Retry, Verdict::Accept]);
        let mut listener = listener(&gate);
        let (mut dialed, mut accepted) = connect(&dialer(), &mut listener, &r1.expects(&r2)).await;
        assert_eq!(*gate.judged.borrow(), [AddressProof::None, AddressProof::Token]);
        echo(&mut dialed, &mut accepted).await;
    });
}

#[test]
fn a_token_lets_nobody_in_whom_the_gate_does_not_want() {
    run(async {
        let (r1, r2) = (Router::new("r1"), Router::new("r2"));
        let refused = Verdict::Refuse("the peer is busy");
        let ignored = [Verdict::Ignore; 8];
        let gate =
            Told::new(Some(r2.expects(&r1))).says(&[&[Verdict::Retry, refused], &ignored[..]].concat());
        let listener = listener(&gate);
        let (dialer, to_r2) = (dialer(), r1.expects(&r2));
        // It is not answered, and tries again with the same token.
        tokio::select! {
            answered = dialer.connect(listener.local(), &to_r2) => panic!("it was answered: {answered:?}"),
            () = gate.has_judged(3) => {}
        }
        let judged = gate.judged.borrow();
        assert_eq!(judged[0], AddressProof::None);
        assert!(judged[1..].iter().all(|proof| *proof == AddressProof::Token), "{judged:?}");
        assert_eq!(gate.under_way.get(), 0);
    });
}

#[test]
fn who_is_refused_is_told_at_once() {
    run(async {
        let (r1, r2) = (Router::new("r1"), Router::new("r2"));
        let gate = Told::new(Some(r2.expects(&r1))).says(&[Verdict::Refuse("the peer is up already")]);
        let listener = listener(&gate);
        let failed = dialer().connect(listener.local(), &r1.expects(&r2)).await.expect_err("refused");
        assert!(
            matches!(&failed, Failure::Refused(text) if text.contains("CONNECTION_REFUSED")),
            "{failed:?}"
        );
        assert_eq!(gate.under_way.get(), 0);
    });
}

#[test]
fn who_is_not_expected_is_refused() {
    run(async {
        let (r1, r2) = (Router::new("r1"), Router::new("r2"));
        let listener = listener(&Told::new(None));
        let failed = dialer().connect(listener.local(), &r1.expects(&r2)).await.expect_err("refused");
        assert!(matches!(&failed, Failure::Refused(_)), "{failed:?}");
    });
}

#[test]
fn who_is_ignored_gets_no_answer() {
    run(async {
        let (r1, r2) = (Router::new("r1"), Router::new("r2"));
        let gate = Told::new(Some(r2.expects(&r1))).says(&[Verdict::Ignore, Verdict::Refuse("busy")]);
        let listener = listener(&gate);
        let to_r2 = r1.expects(&r2);
        let (ignored, refused) = (own(), own());
        ignored.send_to(&first_datagram(&to_r2).await, listener.local()).await.expect("it is sent");
        gate.has_judged(1).await;
        refused.send_to(&first_datagram(&to_r2).await, listener.local()).await.expect("it is sent");
        // The second is answered; of the first, which was seen before, nobody hears.
        let mut datagram = [0; 2048];
        refused.recv(&mut datagram).await.expect("an answer");
        let nothing = ignored.try_recv(&mut datagram).expect_err("no answer");
        assert_eq!(nothing.kind(), std::io::ErrorKind::WouldBlock);
        assert_eq!(gate.judged.borrow().len(), 2);
    });
}

/// Waits until somebody else can have an address.
async fn is_free(address: SocketAddr) {
    while std::net::UdpSocket::bind(address).is_err() {
        sleep(Duration::from_millis(1)).await;
    }
}

#[test]
fn a_listener_that_is_dropped_gives_its_address_back() {
    run(async {
        let listener = listener(&Told::new(None));
        let address = listener.local();
        // The library looks after itself in its first second, and not later while nothing comes.
        tokio::time::pause();
        sleep(Duration::from_secs(10)).await;
        tokio::time::resume();
        drop(listener);
        is_free(address).await;
    });
}

#[test]
fn a_dialer_that_is_dropped_gives_its_address_back() {
    run(async {
        let dialer = dialer();
        let address = dialer.local();
        tokio::time::pause();
        sleep(Duration::from_secs(10)).await;
        tokio::time::resume();
        drop(dialer);
        is_free(address).await;
    });
}

#[test]
fn the_last_connection_gives_the_address_back() {
    run(async {
        let (r1, r2) = (Router::new("r1"), Router::new("r2"));
        let mut listener = listener(&Told::new(Some(r2.expects(&r1))));
        let dialer = dialer();
        let (mut dialed, mut accepted) = connect(&dialer, &mut listener, &r1.expects(&r2)).await;
        let (here, there) = (dialer.local(), listener.local());
        drop((listener, dialer));
        echo(&mut dialed, &mut accepted).await;
        dialed.control.close(0, "");
        accepted.control.closed().await;
        drop((dialed, accepted));
        is_free(there).await;
        is_free(here).await;
    });
}

#[test]
fn it_listens_once() {
    run(async {
        let endpoint = endpoint();
        let gate = || -> Rc<dyn Gate> { Told::new(None) };
        let listener = endpoint.listen(gate()).expect("the first");
        let second = endpoint.listen(gate()).err().expect("no second");
        assert_eq!(second, Failure::Unsupported("it listens already".to_owned()));
        assert_eq!(listener.local(), endpoint.local());
    });
}

fn own() -> UdpSocket {
    let socket = socket();
    socket.set_nonblocking(true).expect("non-blocking");
    UdpSocket::from_std(socket).expect("a socket")
}

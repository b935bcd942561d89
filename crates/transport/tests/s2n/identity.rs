//! Who is not who it has to be, in whose words.

use std::{future::pending, sync::Arc, time::Duration};

use holdfast_tls::{
    ALPN_QUIC, Trust,
    keys::{Algorithm, Authority, PrivateKey, Validity},
    rustls::ClientConfig,
};
use holdfast_transport::{Expected, Failure, Listener, s2n::Dialer};
use s2n_quic::{Client, client::Connect, provider::tls::rustls};

use crate::tests::{
    nothing::Nothing,
    s2n::support::{Router, Told, connect, dialer, listener, run, socket},
};

/// What both sides say of a handshake that fails.
async fn both(
    listener: &mut impl Listener,
    gate: &Told,
    dialer: &Dialer,
    to: &Expected,
) -> (Failure, Failure) {
    steady();
    let remote = listener.local();
    let failures = async { tokio::join!(dialer.connect(remote, to), gate.failure()) };
    tokio::select! {
        accepted = listener.accept() => panic!("it was let in: {accepted:?}"),
        (dialed, failed) = failures => (dialed.expect_err("it does not connect"), failed),
    }
}

/// The library does not send the close of a handshake that is older than three probe timeouts, which are a few milliseconds
/// here: a machine that is busy must not decide what the other end hears. Time stands still while there is something to do.
fn steady() {
    tokio::time::pause();
}

#[test]
fn a_dialer_with_another_key_is_refused_and_both_sides_say_why() {
    run(async {
        let (r1, r2, other) = (Router::new("r1"), Router::new("r2"), Router::new("other"));
        let gate = Told::new(Some(r2.expects(&r1)));
        let mut listener = listener(&gate);
        let (dialed, failed) = both(&mut listener, &gate, &dialer(), &other.expects(&r2)).await;
        assert!(
            matches!(&dialed, Failure::Untrusted(text) if text.contains("refuses our certificate")),
            "{dialed:?}"
        );
        assert!(
            matches!(&failed, Failure::Untrusted(text) if text.contains("not the pinned one")),
            "{failed:?}"
        );
        assert_eq!(gate.under_way.get(), 0);
    });
}

#[test]
fn a_listener_with_another_key_is_not_believed_and_both_sides_say_why() {
    run(async {
        let (r1, r2, other) = (Router::new("r1"), Router::new("r2"), Router::new("other"));
        let gate = Told::new(Some(other.expects(&r1)));
        let mut listener = listener(&gate);
        let (dialed, failed) = both(&mut listener, &gate, &dialer(), &r1.expects(&r2)).await;
        assert!(
            matches!(&dialed, Failure::Untrusted(text) if text.contains("not the pinned one")),
            "{dialed:?}"
        );
        assert!(
            matches!(&failed, Failure::Untrusted(text) if text.contains("refuses our certificate")),
            "{failed:?}"
        );
    });
}

#[test]
fn each_handshake_is_judged_by_the_peer_of_its_own_address() {
    run(async {
        let (r1, r2, other) = (Router::new("r1"), Router::new("r2"), Router::new("other"));
        let gate = Told::new(Some(r2.expects(&r1)));
        let mut listener = listener(&gate);
        let (dialer, to_r2) = (dialer(), r1.expects(&r2));
        connect(&dialer, &mut listener, &to_r2).await;
        // The same address is another peer's from now on.
        gate.expect_from_now_on(r2.expects(&other));
        let (_, failed) = both(&mut listener, &gate, &dialer, &to_r2).await;
        tokio::time::resume();
        assert!(matches!(&failed, Failure::Untrusted(_)), "{failed:?}");
        let (_, accepted) = connect(&dialer, &mut listener, &other.expects(&r2)).await;
        assert_eq!(accepted.identity.peer, "other");
    });
}

#[test]
fn bare_keys_prove_who_is_there() {
    run(async {
        let (r1, r2, thief) = (Router::new("r1"), Router::new("r2"), Router::new("r1"));
        let gate = Told::new(Some(r2.expects_bare(&r1)));
        let mut listener = listener(&gate);
        let dialer = dialer();
        let (dialed, accepted) = connect(&dialer, &mut listener, &r1.expects_bare(&r2)).await;
        assert!(dialed.identity.proof.starts_with("public key, SHA-256 "), "{}", dialed.identity.proof);
        assert!(accepted.identity.proof.starts_with("public key, SHA-256 "), "{}", accepted.identity.proof);
        let (_, failed) = both(&mut listener, &gate, &dialer, &thief.expects_bare(&r2)).await;
        assert!(
            matches!(&failed, Failure::Untrusted(text) if text.contains("not the pinned one")),
            "{failed:?}"
        );
    });
}

#[test]
fn a_certificate_for_another_name_is_told_with_both_names() {
    run(async {
        let key = PrivateKey::generate(Algorithm::P256).expect("a key");
        let lab = Authority::new("Lab CA", key, Validity::days(1)).expect("an authority");
        let (r1, r2) = (Router::of(&lab, "r1.example"), Router::of(&lab, "r2.example"));
        let named = |name: &str| Trust {
            authorities: vec![lab.certificate().to_vec()],
            name: name.to_owned(),
            ..Trust::default()
        };
        let gate = Told::new(Some(r2.trusts(&r1, named("r1.example"))));
        let mut listener = listener(&gate);
        let dialer = dialer();
        let (dialed, _) = connect(&dialer, &mut listener, &r1.trusts(&r2, named("r2.example"))).await;
        assert!(dialed.identity.proof.contains("issued by CN=Lab CA"), "{}", dialed.identity.proof);
        // It dials r3, and finds r2.
        let (dialed, failed) =
            both(&mut listener, &gate, &dialer, &r1.trusts(&r2, named("r3.example"))).await;
        let text = "its certificate is for r2.example, not for r3.example";
        assert_eq!(dialed, Failure::Untrusted(text.to_owned()));
        assert!(failed.to_string().contains("bad_certificate"), "{failed}");
    });
}

#[test]
fn a_peer_without_tls_is_not_dialed() {
    run(async {
        let (r1, r2) = (Router::new("r1"), Router::new("r2"));
        let listener = listener(&Told::new(None));
        let plain = Expected { tls: None, ..r1.expects(&r2) };
        let failed = dialer().connect(listener.local(), &plain).await.expect_err("unsupported");
        assert!(matches!(failed, Failure::Unsupported(_)));
    });
}

/// Somebody with a TLS of their own.
fn stranger(config: Arc<ClientConfig>) -> Client {
    let builder = Client::builder().with_tls(rustls::Client::from(config)).expect("TLS");
    builder.with_io("127.0.0.1:0").expect("a socket").start().expect("a client")
}

async fn refused(change: impl FnOnce(&mut ClientConfig)) -> Failure {
    let (r1, r2) = (Router::new("r1"), Router::new("r2"));
    let gate = Told::new(Some(r2.expects(&r1)));
    let mut listener = listener(&gate);
    let mut config = ClientConfig::clone(&r1.expects(&r2).tls.expect("TLS").client(ALPN_QUIC));
    change(&mut config);
    let client = stranger(Arc::new(config));
    let attempt = client.connect(Connect::new(listener.local()).with_server_name("r2"));
    tokio::select! {
        // What becomes of it there is another story.
        never = async {
            let _there = attempt.await;
            pending().await
        } => never,
        accepted = listener.accept() => panic!("it was let in: {accepted:?}"),
        failed = gate.failure() => failed,
    }
}

#[test]
fn who_shows_nothing_is_refused() {
    run(async {
        let failed = refused(|config| config.client_auth_cert_resolver = Arc::new(Nothing)).await;
        assert_eq!(failed, Failure::Untrusted("it shows no certificate".to_owned()));
    });
}

#[test]
fn who_speaks_something_else_is_refused() {
    run(async {
        let failed = refused(|config| config.alpn_protocols = vec![b"h3".to_vec()]).await;
        assert!(matches!(&failed, Failure::Refused(text) if text.contains("(ALPN)")), "{failed:?}");
    });
}

#[test]
fn an_attempt_that_was_given_up_is_not_repeated() {
    run(async {
        let (r1, r2) = (Router::new("r1"), Router::new("r2"));
        // Somebody who never answers.
        let silent = socket();
        silent.set_nonblocking(true).expect("non-blocking");
        let silent = tokio::net::UdpSocket::from_std(silent).expect("a socket");
        let to = silent.local_addr().expect("an address");
        let (dialer, to_r2) = (dialer(), r1.expects(&r2));
        let mut datagram = [0; 2048];
        tokio::select! {
            received = silent.recv(&mut datagram) => drop(received.expect("a datagram")),
            failed = dialer.connect(to, &to_r2) => panic!("nobody answers: {failed:?}"),
        }
        tokio::time::pause();
        // What was on its way, and the end of it.
        tokio::time::sleep(Duration::from_millis(200)).await;
        while silent.try_recv(&mut datagram).is_ok() {}
        let more = tokio::time::timeout(Duration::from_secs(30), silent.recv(&mut datagram)).await;
        assert!(more.is_err(), "it goes on");
    });
}

//! What becomes of attempts, beside what holds for every transport (`tests/backends`).

use std::{cell::RefCell, net::SocketAddr, rc::Rc, sync::Arc, time::Duration};

use holdfast_admission::{AddressProof, Verdict};
use holdfast_tls::{
    ALPN_QUIC,
    rustls::{
        self, DigitallySignedStruct, SignatureScheme,
        client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
        crypto::aws_lc_rs::{self, kx_group},
        pki_types::{CertificateDer, ServerName, UnixTime},
    },
};
use holdfast_transport::{Expected, Failure, Listener};
use noq::crypto::rustls::QuicClientConfig;
use tokio::{net::UdpSocket, select, sync::oneshot};

use crate::tests::quic::{
    endpoint, fails,
    gate::{Said, TestGate},
    meet,
    peers::pair,
    relay::{Relay, Way},
    run, seeds, talk, until,
};

/// The ALPN extension of who speaks BGP over QUIC.
const OFFER: &[u8] = b"\x04qbgp";

#[test]
fn what_an_attempt_says_is_known_before_it_is_let_in() {
    run(async {
        let (r1, r2) = pair();
        let (server, client) = (endpoint(), endpoint());
        let gate = TestGate::open(r2.expects(&r1));
        let mut listener = server.listen(gate.clone());
        let (mut dialed, mut accepted) = meet(&client, server.local(), &r1.expects(&r2), &mut listener).await;
        let seen = gate.seen.borrow().clone();
        assert_eq!(seen.len(), 1);
        assert_eq!(seen[0].remote, client.local());
        assert_eq!((seen[0].proof, seen[0].can_retry), (AddressProof::None, true));
        assert_eq!(seen[0].hello, Said::Known(OFFER.to_vec(), Some("r2.example".to_owned())));
        assert_eq!((gate.begun.get(), gate.under_way()), (1, 0));
        talk(&mut dialed, &mut accepted).await;
    });
}

#[test]
fn who_is_ignored_asks_again() {
    run(async {
        let (r1, r2) = pair();
        let (server, client) = (endpoint(), endpoint());
        let gate = TestGate::new(Some(r2.expects(&r1)), |_, earlier| match earlier {
            0 => Verdict::Ignore,
            _ => Verdict::Accept,
        });
        let mut listener = server.listen(gate.clone());
        meet(&client, server.local(), &r1.expects(&r2), &mut listener).await;
        assert_eq!(gate.seen.borrow().len(), 2);
        assert_eq!(gate.begun.get(), 1);
    });
}

#[test]
fn a_peer_without_a_key_is_no_peer_over_quic() {
    run(async {
        let (r1, r2) = pair();
        let (server, client) = (endpoint(), endpoint());
        let bare = Expected { tls: None, ..r2.expects(&r1) };
        let gate = TestGate::open(bare.clone());
        let mut listener = server.listen(gate.clone());
        let failure = fails(&client, server.local(), &r1.expects(&r2), &mut listener).await;
        assert!(matches!(failure, Failure::Refused(_)), "{failure}");
        let failures = gate.failures.borrow().clone();
        assert!(
            matches!(&failures[..], [Failure::Untrusted(text)] if text.contains("r1.example")),
            "{failures:?}"
        );
        // Nor is one dialed.
        let failure = fails(&client, server.local(), &bare, &mut listener).await;
        assert!(matches!(failure, Failure::Untrusted(_)), "{failure}");
    });
}

#[test]
fn who_has_to_prove_its_address_does() {
    run(async {
        let (r1, r2) = pair();
        let (server, client) = (endpoint(), endpoint());
        let gate = TestGate::wants_proof(r2.expects(&r1));
        let mut listener = server.listen(gate.clone());
        let (mut dialed, mut accepted) = meet(&client, server.local(), &r1.expects(&r2), &mut listener).await;
        assert_eq!(gate.proofs(), [AddressProof::None, AddressProof::Token]);
        assert!(!gate.seen.borrow()[1].can_retry);
        talk(&mut dialed, &mut accepted).await;
    });
}

#[test]
fn nobody_is_asked_twice_for_a_proof() {
    run(async {
        let (r1, r2) = pair();
        let (server, client) = (endpoint(), endpoint());
        let gate = TestGate::new(Some(r2.expects(&r1)), |_, _| Verdict::Retry);
        let mut listener = server.listen(gate.clone());
        let failure = fails(&client, server.local(), &r1.expects(&r2), &mut listener).await;
        assert!(matches!(failure, Failure::Refused(_)), "{failure}");
        assert_eq!(gate.proofs(), [AddressProof::None, AddressProof::Token]);
    });
}

/// Seeds change between Retry and its answer.
fn rotate_after_retry(to: &'static [u8]) -> (Vec<AddressProof>, Result<(), Failure>) {
    let (proofs, outcome) = (Rc::new(RefCell::new(Vec::new())), Rc::new(RefCell::new(None)));
    let (seen, done) = (proofs.clone(), outcome.clone());
    run(async move {
        let (r1, r2) = pair();
        let (server, client) = (Rc::new(endpoint()), endpoint());
        let gate = TestGate::new(Some(r2.expects(&r1)), |_, earlier| match earlier {
            0 => Verdict::Retry,
            _ => Verdict::Accept,
        });
        let mut listener = server.listen(gate.clone());
        let mut rotated = false;
        let rotating = server.clone();
        let relay = Relay::looking(server.local(), move |way, _| {
            if way == Way::ToClient && !rotated {
                rotating.set_seeds(&seeds(to));
                rotated = true;
            }
            true
        })
        .await;
        let expected = r1.expects(&r2);
        let dial = client.connect(relay.address(), None, &expected);
        tokio::pin!(dial);
        let dialed = loop {
            select! {
                dialed = &mut dial => break dialed,
                accepted = listener.accept() => std::mem::forget(accepted),
            }
        };
        *seen.borrow_mut() = gate.proofs();
        *done.borrow_mut() = Some(dialed.map(drop));
    });
    let outcome = outcome.borrow_mut().take().expect("an outcome");
    (proofs.take(), outcome)
}

#[test]
fn tokens_of_the_earlier_seeds_are_taken() {
    let (proofs, dialed) = rotate_after_retry(&[2, 1]);
    assert_eq!(proofs, [AddressProof::None, AddressProof::Token]);
    assert_eq!(dialed, Ok(()));
}

#[test]
fn tokens_of_seeds_that_are_gone_prove_nothing() {
    let (proofs, dialed) = rotate_after_retry(&[3, 2]);
    assert_eq!(proofs, [AddressProof::None, AddressProof::None]);
    // We know nothing of a Retry then, and say so in the handshake: the dialer does not believe it (RFC 9000 section 7.3).
    assert!(dialed.is_err());
}

#[test]
fn a_token_that_was_given_to_another_address_is_refused_unseen() {
    run(async {
        let (r1, r2) = pair();
        let (server, client) = (endpoint(), endpoint());
        let gate = TestGate::wants_proof(r2.expects(&r1));
        let mut listener = server.listen(gate.clone());
        let (steal, stolen) = oneshot::channel();
        let (mut steal, mut sent) = (Some(steal), 0);
        // The second datagram is the first with the token. Whoever has taken it comes before the dialer sends it again.
        let relay = Relay::looking(server.local(), move |way, datagram| {
            sent += usize::from(way == Way::ToServer);
            if way == Way::ToServer && sent == 2 {
                steal.take().expect("the second once").send(datagram.to_vec()).expect("a thief");
                return false;
            }
            true
        })
        .await;
        let theft = async {
            let thief = UdpSocket::bind("127.0.0.1:0").await.expect("a socket");
            let datagram = stolen.await.expect("a datagram");
            thief.send_to(&datagram, server.local()).await.expect("sent");
            let mut answer = [0; 2048];
            thief.recv(&mut answer).await.expect("an answer");
            answer[0]
        };
        let expected = r1.expects(&r2);
        let meeting = meet(&client, relay.address(), &expected, &mut listener);
        let ((mut dialed, mut accepted), answer) = tokio::join!(meeting, theft);
        // An Initial, which closes.
        assert_eq!(answer & 0xf0, 0xc0);
        // The gate has seen the dialer only.
        assert_eq!(gate.proofs(), [AddressProof::None, AddressProof::Token]);
        assert!(gate.seen.borrow().iter().all(|seen| seen.remote == relay.outside()));
        talk(&mut dialed, &mut accepted).await;
    });
}

#[test]
fn a_token_serves_once() {
    run(async {
        let (r1, r2) = pair();
        let (server, client) = (endpoint(), endpoint());
        let gate = TestGate::new(Some(r2.expects(&r1)), |_, earlier| match earlier {
            0 => Verdict::Retry,
            _ => Verdict::Accept,
        });
        let mut listener = server.listen(gate.clone());
        let heard = Rc::new(RefCell::new(Vec::new()));
        let hears = heard.clone();
        let relay = Relay::looking(server.local(), move |way, datagram| {
            if way == Way::ToServer {
                hears.borrow_mut().push(datagram.to_vec());
            }
            true
        })
        .await;
        let (mut dialed, mut accepted) =
            meet(&client, relay.address(), &r1.expects(&r2), &mut listener).await;
        talk(&mut dialed, &mut accepted).await;
        drop((dialed, accepted));
        // Three probe timeouts later (RFC 9000 section 10.2) the connection is forgotten, and its token is still good.
        tokio::time::pause();
        tokio::time::sleep(Duration::from_secs(5)).await;
        tokio::time::resume();
        let with_token = heard.borrow()[1].clone();
        // As the relay passes it on, it comes from the same address.
        let somebody = UdpSocket::bind("127.0.0.1:0").await.expect("a socket");
        somebody.send_to(&with_token, relay.address()).await.expect("sent");
        until(&mut listener, || gate.seen.borrow().len() == 3).await;
        assert_eq!(gate.proofs(), [AddressProof::None, AddressProof::Token, AddressProof::None]);
        assert_eq!((gate.begun.get(), gate.under_way()), (2, 0), "it is let in, and nothing comes of it");
    });
}

/// Takes any certificate: what the client believes is not what is tested.
#[derive(Debug)]
struct Gullible;

impl ServerCertVerifier for Gullible {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        aws_lc_rs::default_provider().signature_verification_algorithms.supported_schemes()
    }
}

/// What a client offers first; with it the ClientHello has one datagram, or two.
#[derive(Copy, Clone)]
pub(crate) enum KeyShare {
    Classical,
    PostQuantum,
}

/// A client of noq's alone.
pub(crate) async fn bare(
    from: &Expected,
    to: SocketAddr,
    alpn: &[u8],
    first: KeyShare,
) -> Result<noq::Connection, noq::ConnectionError> {
    let mut provider = aws_lc_rs::default_provider();
    provider.kx_groups = match first {
        KeyShare::Classical => vec![kx_group::X25519],
        KeyShare::PostQuantum => vec![kx_group::X25519MLKEM768, kx_group::X25519],
    };
    let ours = from.tls.as_ref().expect("TLS").client(alpn);
    let mut config = rustls::ClientConfig::builder_with_provider(Arc::new(provider))
        .with_protocol_versions(&[&rustls::version::TLS13])
        .expect("TLS 1.3")
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Gullible))
        .with_client_cert_resolver(ours.client_auth_cert_resolver.clone());
    config.alpn_protocols = vec![alpn.to_vec()];
    let tls = QuicClientConfig::try_from(config).expect("TLS for QUIC");
    let udp = std::net::UdpSocket::bind("127.0.0.1:0").expect("a socket");
    let runtime = Arc::new(noq::TokioRuntime);
    let endpoint =
        noq::Endpoint::new(noq::EndpointConfig::default(), None, udp, runtime).expect("an endpoint");
    let config = noq::ClientConfig::new(Arc::new(tls));
    let connection = endpoint.connect_with(config, to, "r2.example").expect("dialed").await?;
    connection.handshake_confirmed().await?;
    Ok(connection)
}

#[test]
fn a_client_hello_in_two_datagrams_is_let_on() {
    run(async {
        let (r1, r2) = pair();
        let server = endpoint();
        let gate = TestGate::wants_proof(r2.expects(&r1));
        let mut listener = server.listen(gate.clone());
        let expected = r1.expects(&r2);
        let (dialed, accepted) = tokio::join!(
            bare(&expected, server.local(), ALPN_QUIC, KeyShare::PostQuantum),
            listener.accept()
        );
        dialed.expect("dialed");
        assert_eq!(accepted.expect("accepted").identity.peer, "r1.example");
        let seen = gate.seen.borrow();
        assert!(seen.len() >= 2 && seen.iter().all(|seen| seen.hello == Said::Incomplete), "{seen:?}");
    });
}

#[test]
fn who_speaks_something_else_is_told_so() {
    run(async {
        let (r1, r2) = pair();
        let server = endpoint();
        let gate = TestGate::open(r2.expects(&r1));
        let mut listener = server.listen(gate.clone());
        let expected = r1.expects(&r2);
        let error = select! {
            dialed = bare(&expected, server.local(), b"doq", KeyShare::Classical) => dialed.expect_err("nothing in common"),
            accepted = listener.accept() => panic!("accepted: {accepted:?}"),
        };
        assert_eq!(
            gate.seen.borrow()[0].hello,
            Said::Known(b"\x03doq".to_vec(), Some("r2.example".to_owned()))
        );
        // no_application_protocol is 120 (RFC 7301 section 3.2).
        let noq::ConnectionError::ConnectionClosed(close) = error else { panic!("{error}") };
        assert_eq!(close.error_code, noq::TransportErrorCode::crypto(120));
        let failures = gate.failures.borrow().clone();
        assert!(matches!(&failures[..], [Failure::Refused(_)]), "{failures:?}");
        assert_eq!((gate.begun.get(), gate.under_way()), (1, 0));
    });
}

/// Its dialer learns it in its own time only: once there is a connection, noq 1.4.0 closes it without a word if the address
/// is not proven. Here it is not: there was no Retry, and no second flight either.
#[test]
fn who_speaks_something_else_in_two_datagrams_is_refused() {
    run(async {
        let (r1, r2) = pair();
        let server = endpoint();
        let gate = TestGate::open(r2.expects(&r1));
        let mut listener = server.listen(gate.clone());
        let expected = r1.expects(&r2);
        select! {
            dialed = bare(&expected, server.local(), b"doq", KeyShare::PostQuantum) => {
                dialed.expect_err("nothing in common");
            }
            () = until(&mut listener, || !gate.failures.borrow().is_empty()) => {}
        }
        let failures = gate.failures.borrow().clone();
        assert!(matches!(&failures[..], [Failure::Refused(_)]), "{failures:?}");
        assert_eq!((gate.begun.get(), gate.under_way()), (1, 0));
    });
}

//! What somebody is told whose handshake is refused: the number of an alert, and not a word, whichever library says it.

use std::{net::SocketAddr, net::UdpSocket, sync::Arc};

use holdfast_tls::{
    Identity, PeerTls, Trust,
    keys::{Algorithm, Authority, PrivateKey, Validity, request},
    rustls::{AlertDescription, ClientConfig, Error},
};
use holdfast_transport::{Expected, Protocol};
use noq::{ConnectionError, EndpointConfig, TokioRuntime, crypto::rustls::QuicClientConfig};
use tokio::{io::AsyncReadExt, net::TcpStream};
use tokio_rustls::TlsConnector;

use crate::tests::{
    backends::{
        backend::Backend,
        door::{Door, TestGate},
        for_every_backend,
    },
    nothing::Nothing,
};

for_every_backend! {
    who_is_refused_is_told_a_number_and_not_a_word,
}

/// An authority, and what it signs.
struct Lab(Authority);

impl Lab {
    fn new() -> Self {
        let key = PrivateKey::generate(Algorithm::P256).expect("a key");
        Self(Authority::new("Lab CA", key, Validity::days(2)).expect("an authority"))
    }

    /// Whoever this name is for, by a certificate that is good at this time.
    fn identity(&self, name: &str, validity: Validity) -> Identity {
        let key = PrivateKey::generate(Algorithm::P256).expect("a key");
        let request = request(&key, &[name.to_owned()]).expect("a request");
        let certificate = self.0.sign(&request, validity).expect("a certificate");
        Identity::new(&[certificate], key.der()).expect("they belong together")
    }

    fn trust(&self, name: &str) -> Trust {
        Trust { authorities: vec![self.0.certificate().to_vec()], name: name.to_owned(), ..Trust::default() }
    }
}

/// What somebody shows, and how that is answered.
type Case = (&'static str, ClientConfig, AlertDescription);

fn cases(lab: &Lab, alpn: &[u8]) -> Vec<Case> {
    let long_ago = Validity { from: 1_000_000_000, until: 1_100_000_000 };
    let client = |identity: &Identity| {
        let tls = PeerTls::new(identity, &lab.trust("r2.example"), None).expect("a configuration");
        ClientConfig::clone(&tls.client(alpn))
    };
    let ours = client(&lab.identity("r1.example", Validity::days(2)));
    let mut silent = ours.clone();
    silent.client_auth_cert_resolver = Arc::new(Nothing);
    let mut other_protocol = ours;
    other_protocol.alpn_protocols = vec![b"h3".to_vec()];
    let mut stranger = client(&Lab::new().identity("r1.example", Validity::days(2)));
    stranger.alpn_protocols = vec![alpn.to_vec()];
    vec![
        (
            "a name that is not expected",
            client(&lab.identity("r3.example", Validity::days(2))),
            AlertDescription::BadCertificate,
        ),
        (
            "a certificate of former times",
            client(&lab.identity("r1.example", long_ago)),
            AlertDescription::CertificateExpired,
        ),
        ("a certificate of another authority", stranger, AlertDescription::CertificateUnknown),
        ("nothing", silent, AlertDescription::CertificateRequired),
        ("another protocol", other_protocol, AlertDescription::NoApplicationProtocol),
    ]
}

async fn who_is_refused_is_told_a_number_and_not_a_word(backend: &dyn Backend) {
    let protocol = backend.protocol();
    let alpn = match protocol {
        Protocol::Tls => holdfast_tls::ALPN_TLS,
        Protocol::Quic | Protocol::QuicS2n => holdfast_tls::ALPN_QUIC,
        // There is no handshake.
        Protocol::Tcp | Protocol::Memory => return,
    };
    let lab = Lab::new();
    let r2 = lab.identity("r2.example", Validity::days(2));
    let tls = PeerTls::new(&r2, &lab.trust("r1.example"), None).expect("a configuration");
    let expected = Expected {
        peer: "r1".to_owned(),
        tls: Some(tls),
        idle: std::time::Duration::from_secs(3600),
        ttl_security: false,
    };
    if protocol == Protocol::QuicS2n {
        // Its close of a handshake must not come too late on a machine that is busy.
        tokio::time::pause();
    }
    for (shown, config, alert) in cases(&lab, alpn) {
        let door = Door::open(backend, TestGate::expecting(expected.clone()));
        let told = match protocol {
            Protocol::Tls => over_tcp(door.local, config).await,
            _ => over_quic(door.local, config).await,
        };
        assert_eq!(told, (alert, String::new()), "{shown}");
        assert!(door.is_quiet());
        // Here it is known in full.
        let failure = door.gate.failures(1).await[0].to_string();
        assert!(failure.starts_with("it"), "{shown}: {failure}");
    }
}

/// The alert, and the words beside it.
async fn over_quic(to: SocketAddr, config: ClientConfig) -> (AlertDescription, String) {
    let udp = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    let endpoint = noq::Endpoint::new(EndpointConfig::default(), None, udp, Arc::new(TokioRuntime));
    let endpoint = endpoint.expect("an endpoint");
    let config = QuicClientConfig::try_from(config).expect("it is for QUIC");
    let config = noq::ClientConfig::new(Arc::new(config));
    let connecting = endpoint.connect_with(config, to, "r2.example").expect("it may try");
    let error = match connecting.await {
        Ok(connection) => connection.closed().await,
        Err(error) => error,
    };
    let ConnectionError::ConnectionClosed(close) = error else { panic!("it is told nothing: {error}") };
    let number = u64::from(close.error_code).checked_sub(0x100).expect("an alert");
    let alert = AlertDescription::from(u8::try_from(number).expect("an alert"));
    (alert, String::from_utf8_lossy(&close.reason).into_owned())
}

/// The same; over TCP there is no place for words.
async fn over_tcp(to: SocketAddr, config: ClientConfig) -> (AlertDescription, String) {
    let stream = TcpStream::connect(to).await.expect("TCP");
    let name = "r2.example".try_into().expect("a name");
    let read = async {
        let mut session = TlsConnector::from(Arc::new(config)).connect(name, stream).await?;
        session.read(&mut [0]).await
    };
    let error = read.await.expect_err("it is refused");
    match error.get_ref().and_then(|error| error.downcast_ref()) {
        Some(Error::AlertReceived(alert)) => (*alert, String::new()),
        _ => panic!("it is told nothing: {error}"),
    }
}

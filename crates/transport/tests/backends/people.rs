//! Who takes part in a story: routers with keys, and connections between them.

use std::time::Duration;

use holdfast_tls::{
    Identity, PeerTls, Trust, fingerprint_words,
    keys::{Algorithm, PrivateKey, Validity, self_signed},
};
use holdfast_transport::{Connection, Expected};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::tests::backends::{
    backend::Backend,
    door::{Door, TestGate},
};

/// A router with a key of its own, whose peers pin it.
pub(crate) struct Router {
    pub(crate) name: &'static str,
    identity: Identity,
}

impl Router {
    pub(crate) fn new(name: &'static str) -> Self {
        let key = PrivateKey::generate(Algorithm::P256).expect("a key");
        let certificate =
            self_signed(&key, &[format!("{name}.example")], Validity::days(2)).expect("a certificate");
        let identity = Identity::new(&[certificate], key.der()).expect("they belong together");
        Self { name, identity }
    }

    /// Whom we expect when we expect that router.
    pub(crate) fn expects(&self, other: &Self) -> Expected {
        let trust = Trust { pins: vec![other.identity.fingerprint()], ..Trust::default() };
        let tls = PeerTls::new(&self.identity, &trust, None).expect("a configuration");
        Expected {
            peer: other.name.to_owned(),
            tls: Some(tls),
            idle: Duration::from_secs(3600),
            ttl_security: false,
        }
    }

    /// As it is in a proof.
    pub(crate) fn fingerprint(&self) -> String {
        fingerprint_words(&self.identity.fingerprint())
    }
}

/// r1, who dials, and r2, who listens.
pub(crate) fn routers() -> (Router, Router) {
    (Router::new("r1"), Router::new("r2"))
}

/// Two who are connected.
pub(crate) struct Pair {
    pub(crate) dialed: Connection,
    pub(crate) accepted: Connection,
    pub(crate) door: Door,
}

impl Pair {
    pub(crate) async fn new(backend: &dyn Backend) -> Self {
        let (r1, r2) = routers();
        let mut door = Door::open(backend, TestGate::expecting(r2.expects(&r1)));
        let mut dialed = backend.dial(door.local, &r1.expects(&r2)).await.expect("it is let in");
        let mut accepted = door.next().await;
        greet(&mut dialed, &mut accepted).await;
        Self { dialed, accepted, door }
    }
}

/// A few octets each way. The dialer begins, as a stream of QUIC comes to be with its first octets.
pub(crate) async fn greet(dialed: &mut Connection, accepted: &mut Connection) {
    say(dialed, b"hello").await;
    hear(accepted, b"hello").await;
    say(accepted, b"welcome").await;
    hear(dialed, b"welcome").await;
}

pub(crate) async fn say(from: &mut Connection, words: &[u8]) {
    from.stream.write_all(words).await.expect("it takes them");
    from.stream.flush().await.expect("and sends them");
}

pub(crate) async fn hear(to: &mut Connection, words: &[u8]) {
    let mut heard = vec![0; words.len()];
    to.stream.read_exact(&mut heard).await.expect("they arrive");
    assert_eq!(heard, words);
}

/// All that still comes; whether it ends in order.
pub(crate) async fn rest(of: &mut Connection) -> (Vec<u8>, bool) {
    let mut rest = Vec::new();
    let ended = of.stream.read_to_end(&mut rest).await;
    (rest, ended.is_ok())
}

//! Two routers that know each other's keys.

use std::time::Duration;

use holdfast_tls::{
    Identity, PeerTls, Trust,
    keys::{Algorithm, PrivateKey, Validity, self_signed},
};
use holdfast_transport::Expected;

/// A key, and a certificate for its name that it has signed itself.
pub(crate) struct Router {
    pub(crate) name: &'static str,
    pub(crate) identity: Identity,
    pin: [u8; 32],
}

impl Router {
    pub(crate) fn new(name: &'static str) -> Self {
        let key = PrivateKey::generate(Algorithm::P256).expect("a key");
        let certificate = self_signed(&key, &[name.to_owned()], Validity::days(1)).expect("a certificate");
        let identity = Identity::new(&[certificate], key.der()).expect("an identity");
        Self { name, identity, pin: key.fingerprint() }
    }

    /// What this one expects of `other`, whose key it knows.
    pub(crate) fn expects(&self, other: &Self) -> Expected {
        let trust = Trust { name: other.name.to_owned(), pins: vec![other.pin], ..Trust::default() };
        let tls = PeerTls::new(&self.identity, &trust, None).expect("TLS");
        Expected {
            peer: other.name.to_owned(),
            tls: Some(tls),
            idle: Duration::from_secs(600),
            ttl_security: false,
        }
    }
}

/// Both.
pub(crate) fn pair() -> (Router, Router) {
    (Router::new("r1.example"), Router::new("r2.example"))
}

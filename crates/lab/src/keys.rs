//! Keys and certificates of routers: what `holdfast keys` makes, and what it does not (certificates of the past).

use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::Result;
use holdfast_tls::{
    Identity, PeerTls, Trust, fingerprint_words,
    keys::{Algorithm, Authority, Item, PrivateKey, Validity, pem, request},
};

use crate::router::Files;

/// Who signs for routers.
#[derive(Debug)]
pub struct Signer(Authority);

/// What a router shows.
#[derive(Debug)]
pub struct Shown {
    key: PrivateKey,
    certificate: Vec<u8>,
}

/// Seconds since 1970.
pub fn now() -> Result<i64> {
    Ok(i64::try_from(SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs())?)
}

impl Signer {
    /// A new authority.
    pub fn new(name: &str) -> Result<Self> {
        Ok(Self(Authority::new(name, PrivateKey::generate(Algorithm::P256)?, Validity::days(30))?))
    }

    /// Its certificate, PEM.
    pub fn certificate(&self) -> String {
        pem(&Item::Certificate(self.0.certificate().to_vec()))
    }

    /// A new key, and a certificate of it for this name, good for a month.
    pub fn sign(&self, name: &str) -> Result<Shown> {
        self.sign_until(name, now()? + 30 * 86_400)
    }

    /// The same, good until then (seconds since 1970).
    pub fn sign_until(&self, name: &str, until: i64) -> Result<Shown> {
        let key = PrivateKey::generate(Algorithm::P256)?;
        let request = request(&key, &[name.to_owned()])?;
        let certificate = self.0.sign(&request, Validity { from: now()? - 86_400, until })?;
        Ok(Shown { key, certificate })
    }

    /// The files of a router that shows this, and trusts this authority: `certificate.pem`, `key.pem` and `authority.pem`.
    pub fn files_of(&self, shown: &Shown) -> Files {
        let mut files = shown.files();
        files.insert("authority.pem".to_owned(), self.certificate());
        files
    }

    /// The same of a router with a new key, and a certificate for `NAME.example`.
    pub fn files(&self, name: &str) -> Result<Files> {
        Ok(self.files_of(&self.sign(&format!("{name}.example"))?))
    }

    /// A list that revokes a certificate, PEM.
    pub fn revoke(&self, shown: &Shown) -> Result<String> {
        let list = self.0.revoke(None, &shown.certificate, Validity::days(30))?;
        Ok(pem(&Item::Revocations(list)))
    }
}

impl Shown {
    /// What somebody who shows this is told of a peer that this authority has signed for under this name.
    pub fn towards(&self, signer: &Signer, name: &str) -> Result<PeerTls> {
        let identity = Identity::new(std::slice::from_ref(&self.certificate), self.key.der())?;
        let authorities = vec![signer.0.certificate().to_vec()];
        let trust = Trust { authorities, name: name.to_owned(), ..Trust::default() };
        Ok(PeerTls::new(&identity, &trust, None)?)
    }

    /// Certificate and private key, DER.
    pub fn der(&self) -> (&[u8], &[u8]) {
        (&self.certificate, self.key.der())
    }

    /// `certificate.pem` and `key.pem`.
    pub fn files(&self) -> Files {
        let certificate = pem(&Item::Certificate(self.certificate.clone()));
        let key = pem(&Item::PrivateKey(self.key.der().to_vec()));
        [("certificate.pem", certificate), ("key.pem", key)].map(|(name, pem)| (name.to_owned(), pem)).into()
    }

    /// What peers pin.
    pub fn pin(&self) -> String {
        fingerprint_words(&self.key.fingerprint())
    }
}

//! What we show.

use std::{fmt, sync::Arc};

use rustls::{
    SignatureScheme,
    client::ResolvesClientCert,
    crypto::{
        CryptoProvider, SupportedKxGroup,
        aws_lc_rs::{
            default_provider,
            kx_group::{SECP256R1, SECP384R1, X25519, X25519MLKEM768},
        },
    },
    pki_types::{CertificateDer, PrivateKeyDer},
    server::{ClientHello, ResolvesServerCert},
    sign::CertifiedKey,
};
use webpki::EndEntityCert;

use crate::{TlsError, certificates, words};

/// X25519 first, since its ClientHello fits in one datagram; whoever speaks the post-quantum X25519MLKEM768 alone gets that.
pub(crate) fn provider() -> CryptoProvider {
    let kx_groups: Vec<&'static dyn SupportedKxGroup> = vec![X25519, X25519MLKEM768, SECP256R1, SECP384R1];
    CryptoProvider { kx_groups, ..default_provider() }
}

/// Our certificate and key, or the key alone. Cheap to clone; `Debug` shows the fingerprint only.
#[derive(Clone)]
pub struct Identity {
    /// None: there is a bare key only.
    certified: Option<Arc<CertifiedKey>>,
    bare: Arc<CertifiedKey>,
    fingerprint: [u8; 32],
}

impl Identity {
    /// Certificates (DER, ours first, then those that lead to an authority; none where we only ever show a bare key) and
    /// the private key of ours (DER: PKCS#8 or SEC1).
    ///
    /// # Errors
    /// What cannot be read, or that they do not belong together.
    pub fn new(certificates: &[Vec<u8>], private_key: &[u8]) -> Result<Self, TlsError> {
        let key = PrivateKeyDer::try_from(private_key)
            .map_err(|_| TlsError::PrivateKey("it is neither PKCS#8 nor SEC1".to_owned()))?;
        let key = provider().key_provider.load_private_key(key.clone_key());
        let key = key.map_err(|error| TlsError::PrivateKey(error.to_string()))?;
        let public = key.public_key().map(|key| key.as_ref().to_vec());
        let public = public.ok_or_else(|| TlsError::PrivateKey("it has no public key".to_owned()))?;

        let chain: Vec<_> = certificates.iter().cloned().map(CertificateDer::from).collect();
        for (number, certificate) in chain.iter().enumerate() {
            let read = EndEntityCert::try_from(certificate)
                .map_err(|error| TlsError::Certificate(number + 1, certificates::unreadable(&error)))?;
            if number == 0 && public != *read.subject_public_key_info() {
                return Err(TlsError::Mismatch);
            }
        }
        let fingerprint = words::fingerprint(&public);
        let bare = CertifiedKey::new(vec![CertificateDer::from(public)], Arc::clone(&key));
        let certified = (!chain.is_empty()).then(|| Arc::new(CertifiedKey::new(chain, key)));
        Ok(Self { certified, bare: Arc::new(bare), fingerprint })
    }

    /// SHA-256 of our SubjectPublicKeyInfo: what others pin.
    pub fn fingerprint(&self) -> [u8; 32] {
        self.fingerprint
    }

    /// What a peer is shown.
    pub(crate) fn shown(&self, bare: bool) -> Result<Arc<Shown>, TlsError> {
        let key = if bare { Some(&self.bare) } else { self.certified.as_ref() };
        let key = key.ok_or(TlsError::NoCertificate)?;
        Ok(Arc::new(Shown { key: Arc::clone(key), bare }))
    }
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Identity({})", words::fingerprint_words(&self.fingerprint))
    }
}

/// The same for every handshake, whichever side begins it.
pub(crate) struct Shown {
    key: Arc<CertifiedKey>,
    bare: bool,
}

impl fmt::Debug for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shown").field("bare", &self.bare).finish_non_exhaustive()
    }
}

impl ResolvesClientCert for Shown {
    fn resolve(&self, _authorities: &[&[u8]], _schemes: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.key))
    }

    fn only_raw_public_keys(&self) -> bool {
        self.bare
    }

    fn has_certs(&self) -> bool {
        true
    }
}

impl ResolvesServerCert for Shown {
    fn resolve(&self, _hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.key))
    }

    fn only_raw_public_keys(&self) -> bool {
        self.bare
    }
}

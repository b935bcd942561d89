//! What a peer has to show.

use std::{fmt, sync::Arc};

use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, Error, PeerIncompatible, SignatureScheme,
    client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    crypto::{
        CryptoProvider, WebPkiSupportedAlgorithms, verify_tls13_signature,
        verify_tls13_signature_with_raw_key,
    },
    pki_types::{CertificateDer, ServerName, SubjectPublicKeyInfoDer, UnixTime},
    server::danger::{ClientCertVerified, ClientCertVerifier},
};
use webpki::EndEntityCert;
use x509_parser::parse_x509_certificate;

use crate::{Refusal, TlsError, certificates::Authorities, words};

/// What a peer has to show, and how we show ourselves to it.
///
/// With authorities its certificate has to lead to one of them, be valid now, be unrevoked, and be for `name` if there is
/// one; with pins its key has to be one of them; with both, both. With pins alone nothing of its certificate counts but
/// the key: neither issuer, name nor expiry. An extended key usage has to name serverAuth or clientAuth, whichever side the
/// peer is of: a router is both.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Trust {
    /// Certificates of authorities, DER. None: only what is pinned counts.
    pub authorities: Vec<Vec<u8>>,
    /// The DNS name or IP address that its certificate is for (subjectAltName, RFC 9525). Empty: any that they sign for.
    pub name: String,
    /// SHA-256 of SubjectPublicKeyInfos (DER), one of which its key has to have. None: any.
    pub pins: Vec<[u8; 32]>,
    /// It shows a bare key (RFC 7250), which has to be pinned; authorities do not count.
    pub raw_public_key: bool,
    /// Revocation lists, DER; of each issuer the newest counts. An issuer without a list has revoked nothing.
    pub revocations: Vec<Vec<u8>>,
    /// We show our own bare key, not our certificate.
    pub present_raw_public_key: bool,
}

/// A trust that has been read: judges what is shown in a handshake, on either side of it.
pub(crate) struct Verifier {
    authorities: Authorities,
    name: Option<ServerName<'static>>,
    pins: Vec<[u8; 32]>,
    bare: bool,
    algorithms: WebPkiSupportedAlgorithms,
}

impl Verifier {
    pub(crate) fn new(trust: &Trust, provider: &CryptoProvider) -> Result<Arc<Self>, TlsError> {
        let authorities = Authorities::new(&trust.authorities, &trust.revocations)?;
        if trust.raw_public_key && trust.pins.is_empty() {
            return Err(TlsError::NothingPinned);
        }
        if authorities.is_empty() && trust.pins.is_empty() {
            return Err(TlsError::NothingTrusted);
        }
        let name = match trust.name.as_str() {
            "" => None,
            name => Some(ServerName::try_from(name.to_owned()).map_err(|_| TlsError::Name(name.to_owned()))?),
        };
        let (pins, bare) = (trust.pins.clone(), trust.raw_public_key);
        let algorithms = provider.signature_verification_algorithms;
        Ok(Arc::new(Self { authorities, name, pins, bare, algorithms }))
    }

    /// The name that its certificate has to be for.
    pub(crate) fn name(&self) -> Option<&ServerName<'static>> {
        self.name.as_ref()
    }

    /// Whether it shows a bare key.
    pub(crate) fn is_bare(&self) -> bool {
        self.bare
    }

    /// Everything but the signature of the handshake.
    fn judge(
        &self,
        shown: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<(), Error> {
        if self.bare {
            return self.is_pinned(shown, || "public key".to_owned());
        }
        let unreadable = |_| Error::from(CertificateError::BadEncoding);
        let certificate = EndEntityCert::try_from(shown).map_err(unreadable)?;
        if !self.authorities.is_empty() {
            self.authorities.verify(shown, intermediates, now, self.algorithms.all)?;
            self.is_named(&certificate, shown)?;
        }
        self.is_pinned(certificate.subject_public_key_info().as_ref(), || {
            format!("certificate {}", subject(shown))
        })
    }

    fn is_named(&self, certificate: &EndEntityCert<'_>, shown: &CertificateDer<'_>) -> Result<(), Error> {
        let Some(name) = &self.name else { return Ok(()) };
        certificate.verify_is_valid_for_subject_name(name).map_err(|_| {
            let read = parse_x509_certificate(shown).ok();
            let presented = read.map(|(_, read)| words::alternative_names(&read)).unwrap_or_default();
            CertificateError::NotValidForNameContext { expected: name.clone(), presented }.into()
        })
    }

    fn is_pinned(&self, public_key: &[u8], shown: impl FnOnce() -> String) -> Result<(), Error> {
        let found = words::fingerprint(public_key);
        if self.pins.is_empty() || self.pins.contains(&found) {
            return Ok(());
        }
        let expected: Vec<_> = self.pins.iter().map(words::fingerprint_words).collect();
        let (expected, found) = (expected.join(" or "), words::fingerprint_words(&found));
        Err(Refusal::Pin { expected, found, shown: shown() }.into())
    }

    /// Whether who shows a key also has the private one.
    fn is_signed(
        &self,
        message: &[u8],
        shown: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        match self.bare {
            true => {
                let key = SubjectPublicKeyInfoDer::from(shown.as_ref());
                verify_tls13_signature_with_raw_key(message, &key, signature, &self.algorithms)
            }
            false => verify_tls13_signature(message, shown, signature, &self.algorithms),
        }
    }
}

/// Whose a certificate is, for the operator.
pub(crate) fn subject(shown: &CertificateDer<'_>) -> String {
    let read = parse_x509_certificate(shown);
    read.map_or_else(|_| "(unreadable)".to_owned(), |(_, read)| words::distinguished(read.subject()))
}

impl fmt::Debug for Verifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Verifier").field("name", &self.name).field("bare", &self.bare).finish_non_exhaustive()
    }
}

/// Of who has dialed. Its name is checked here, which rustls does for servers only.
impl ClientCertVerifier for Verifier {
    /// None: who has one certificate for us does not have to look for it.
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        self.judge(end_entity, intermediates, now).map(|()| ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(only_tls13())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.is_signed(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }

    fn requires_raw_public_keys(&self) -> bool {
        self.bare
    }
}

/// Of who was dialed. The name that counts is that of the trust, not that of the SNI.
impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        self.judge(end_entity, intermediates, now).map(|()| ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(only_tls13())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.is_signed(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }

    fn requires_raw_public_keys(&self) -> bool {
        self.bare
    }
}

fn only_tls13() -> Error {
    PeerIncompatible::SupportedVersionsExtensionRequired.into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        explain,
        identity::provider,
        keys::{Algorithm, Authority, PrivateKey, Validity, request},
    };

    fn authority(name: &str) -> Authority {
        let key = PrivateKey::generate(Algorithm::P256).expect("a key");
        Authority::new(name, key, Validity::days(1)).expect("an authority")
    }

    /// Who takes a certificate, and the certificate.
    fn trusted() -> (Arc<Verifier>, Vec<u8>) {
        let lab = authority("Lab CA");
        let key = PrivateKey::generate(Algorithm::P256).expect("a key");
        let request = request(&key, &["r2.example".to_owned()]).expect("a request");
        let certificate = lab.sign(&request, Validity::days(1)).expect("a certificate");
        let authorities = vec![lab.certificate().to_vec()];
        let trust = Trust { authorities, name: "r2.example".to_owned(), ..Trust::default() };
        (Verifier::new(&trust, &provider()).expect("a trust"), certificate)
    }

    #[test]
    fn few_of_what_comes_with_a_certificate_are_looked_at() {
        let (verifier, certificate) = trusted();
        let other = CertificateDer::from(authority("Other CA").certificate().to_vec());
        let judge = |others: usize| {
            let others = vec![other.clone(); others];
            verifier.judge(&CertificateDer::from(certificate.as_slice()), &others, UnixTime::now())
        };
        assert_eq!(judge(6), Ok(()));
        let why = explain(&judge(7).expect_err("too many"));
        assert!(why.contains("7 others come with it, and at most 6 are looked at"), "{why}");
    }

    #[test]
    fn no_octet_of_a_certificate_can_be_another() {
        let (verifier, certificate) = trusted();
        let judge = |shown: &[u8]| verifier.judge(&CertificateDer::from(shown), &[], UnixTime::now());
        assert_eq!(judge(&certificate), Ok(()));
        for place in 0..certificate.len() {
            for bit in 0..8 {
                let mut changed = certificate.clone();
                changed[place] ^= 1 << bit;
                let why = explain(&judge(&changed).expect_err(&format!("bit {bit} of octet {place}")));
                assert!(!why.contains(char::is_control) && why.len() < 1000, "{why}");
            }
        }
    }
}

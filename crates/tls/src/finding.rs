//! What was found wrong with a peer, for who is told only that something was.

use std::sync::{Arc, OnceLock};

use rustls::{
    DigitallySignedStruct, DistinguishedName, Error, SignatureScheme,
    client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    pki_types::{CertificateDer, ServerName, UnixTime},
    server::danger::{ClientCertVerified, ClientCertVerifier},
};

use crate::trust::Verifier;

/// Why a peer was not believed in one handshake. Libraries of QUIC hand up the number of an alert and no more; with
/// [`PeerTls::client_finding`](crate::PeerTls::client_finding) or
/// [`PeerTls::server_finding`](crate::PeerTls::server_finding) the error is kept here, for [`explain`](crate::explain).
#[derive(Clone, Debug, Default)]
pub struct Finding(Arc<OnceLock<Error>>);

impl Finding {
    /// The first error of the handshake, if what the peer has shown was refused.
    pub fn get(&self) -> Option<&Error> {
        self.0.get()
    }

    fn note<T>(&self, judged: Result<T, Error>) -> Result<T, Error> {
        judged.inspect_err(|error| {
            // The first one counts: it ends the handshake.
            let _ = self.0.set(error.clone());
        })
    }
}

/// Judges as the verifier does, and takes note.
#[derive(Debug)]
pub(crate) struct Noting {
    verifier: Arc<Verifier>,
    finding: Finding,
}

impl Noting {
    pub(crate) fn new(verifier: &Arc<Verifier>, finding: &Finding) -> Arc<Self> {
        Arc::new(Self { verifier: Arc::clone(verifier), finding: finding.clone() })
    }

    fn client(&self) -> &dyn ClientCertVerifier {
        &*self.verifier
    }

    fn server(&self) -> &dyn ServerCertVerifier {
        &*self.verifier
    }
}

impl ClientCertVerifier for Noting {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.client().root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        self.finding.note(self.client().verify_client_cert(end_entity, intermediates, now))
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.finding.note(self.client().verify_tls12_signature(message, cert, dss))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.finding.note(self.client().verify_tls13_signature(message, cert, dss))
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.client().supported_verify_schemes()
    }

    fn requires_raw_public_keys(&self) -> bool {
        self.client().requires_raw_public_keys()
    }
}

impl ServerCertVerifier for Noting {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let judged =
            self.server().verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now);
        self.finding.note(judged)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.finding.note(self.server().verify_tls12_signature(message, cert, dss))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.finding.note(self.server().verify_tls13_signature(message, cert, dss))
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.server().supported_verify_schemes()
    }

    fn requires_raw_public_keys(&self) -> bool {
        self.server().requires_raw_public_keys()
    }
}

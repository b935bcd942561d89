//! Why there is no handshake, in words of the operator.

use std::fmt;

use rustls::{
    AlertDescription, CertificateError, Error, InvalidMessage, OtherError, PeerIncompatible,
    pki_types::UnixTime,
};

use crate::words;

/// What is wrong with what a peer shows, where rustls has no word with all there is to say. Carried in its errors; the peer
/// is told `certificate_unknown` and no more. `Debug`, which QUIC libraries send to the peer, says the kind only.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// It leads to an authority that is not the peer's.
    #[error("its certificate, {subject}, is signed by {issuer}, which is none of the peer's authorities")]
    Authority {
        /// Of its certificate.
        subject: String,
        /// The last issuer that what it shows leads to.
        issuer: String,
    },
    /// It leads to nobody.
    #[error(
        "its certificate, {subject}, is signed by nobody but itself, and it is none of the peer's authorities"
    )]
    SelfSigned {
        /// Of its certificate.
        subject: String,
    },
    /// Somebody else with the name of an authority, or the authority with a new key.
    #[error(
        "its certificate, {subject}, names {issuer} as its authority, but is not signed with the key of that authority as it is known here"
    )]
    AuthorityKey {
        /// Of its certificate.
        subject: String,
        /// The authority.
        issuer: String,
    },
    /// The key is another than those that are pinned.
    #[error("its key is not the pinned one: expected SHA-256 {expected}, got {found} ({shown})")]
    Pin {
        /// Fingerprints, with `or`.
        expected: String,
        /// The fingerprint of what it shows.
        found: String,
        /// What that is.
        shown: String,
    },
    /// A revocation list is not that of the authority whose name it has.
    #[error("the revocation list of {issuer} is not signed by it: ask that authority for its list")]
    RevocationList {
        /// The authority.
        issuer: String,
    },
    /// It leads to an authority, and is good for nothing here.
    #[error("its certificate, {subject}, cannot be used: {why}")]
    Unusable {
        /// Of its certificate.
        subject: String,
        /// What is wrong.
        why: String,
    },
}

impl fmt::Debug for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Authority { .. } | Self::SelfSigned { .. } => "unknown authority",
            Self::AuthorityKey { .. } => "another key of its authority",
            Self::Pin { .. } => "another key",
            Self::RevocationList { .. } => "revocation list",
            Self::Unusable { .. } => "unusable",
        })
    }
}

/// What an operator reads of an error of a handshake: whose fault it is, what was expected and what came. "It" and "its" are
/// the peer's. An alert that came by QUIC is `Error::AlertReceived` of its number (the low octet of 0x1xx).
pub fn explain(error: &Error) -> String {
    match error {
        Error::InvalidCertificate(wrong) => certificate(wrong),
        Error::InvalidCertRevocationList(wrong) => {
            format!("a revocation list of its authority cannot be used: {wrong:?}")
        }
        Error::NoCertificatesPresented => "it shows no certificate".to_owned(),
        Error::AlertReceived(alert) => told(*alert),
        Error::NoApplicationProtocol => {
            "it speaks none of the protocols that are spoken here (ALPN)".to_owned()
        }
        Error::PeerIncompatible(
            PeerIncompatible::IncorrectCertificateTypeExtension
            | PeerIncompatible::UnsolicitedCertificateTypeExtension,
        ) => "one side shows a bare key (RFC 7250) where the other expects a certificate, or the other way round"
            .to_owned(),
        Error::PeerIncompatible(
            PeerIncompatible::SupportedVersionsExtensionRequired
            | PeerIncompatible::ServerDoesNotSupportTls12Or13
            | PeerIncompatible::ServerTlsVersionIsDisabledByOurConfig,
        ) => "it does not speak TLS 1.3".to_owned(),
        Error::PeerIncompatible(what) => format!("it and we have nothing in common: {what:?}"),
        Error::PeerMisbehaved(what) => format!("it breaks the rules of TLS: {what:?}"),
        Error::InvalidMessage(
            what @ (InvalidMessage::InvalidContentType
            | InvalidMessage::UnknownProtocolVersion
            | InvalidMessage::MessageTooLarge),
        ) => format!("what it sends is not TLS ({what:?}); does it speak plain TCP?"),
        Error::InvalidMessage(what) => format!("it sends TLS that cannot be read: {what:?}"),
        Error::Other(OtherError(inner)) => inner.to_string(),
        other => other.to_string(),
    }
}

/// What is wrong with what it shows.
fn certificate(wrong: &CertificateError) -> String {
    match wrong {
        CertificateError::ExpiredContext { not_after, .. } => {
            format!("its certificate has expired: it was valid until {}", date(*not_after))
        }
        CertificateError::NotValidYetContext { time, not_before } => format!(
            "its certificate is not valid yet: it will be from {}, and here it is {}",
            date(*not_before),
            date(*time)
        ),
        CertificateError::NotValidForNameContext { expected, presented } => {
            format!("its certificate is for {}, not for {}", words::listed(presented), expected.to_str())
        }
        CertificateError::Revoked => "its certificate is revoked by its authority".to_owned(),
        CertificateError::BadEncoding => "what it shows is no certificate that can be read".to_owned(),
        CertificateError::BadSignature => "it does not have the private key of what it shows".to_owned(),
        CertificateError::Other(OtherError(inner)) => inner.to_string(),
        other => format!("its certificate is refused: {other}"),
    }
}

/// What an alert of the peer means; those about certificates are about ours.
fn told(alert: AlertDescription) -> String {
    use AlertDescription as A;
    let (why, name) = match alert {
        A::BadCertificate => {
            ("it is not for the name that the peer expects, or unreadable", "bad_certificate")
        }
        A::UnsupportedCertificate => {
            ("it is of a kind that the peer does not take", "unsupported_certificate")
        }
        A::CertificateRevoked => ("it is revoked", "certificate_revoked"),
        A::CertificateExpired => {
            ("it has expired, or is not valid yet by the peer's clock", "certificate_expired")
        }
        A::CertificateUnknown => ("the peer's log says why", "certificate_unknown"),
        A::UnknownCA => ("the peer does not know the authority that has signed it", "unknown_ca"),
        A::AccessDenied => ("it is good, and not wanted there", "access_denied"),
        A::CertificateRequired => {
            return "the peer wants a certificate, and we have shown none (alert certificate_required)"
                .to_owned();
        }
        A::NoApplicationProtocol => {
            return "it speaks none of the protocols that we offer (alert no_application_protocol)"
                .to_owned();
        }
        A::HandshakeFailure => {
            return "the peer finds no way to talk to us (alert handshake_failure): perhaps one side shows a bare \
                    key where the other expects a certificate"
                .to_owned();
        }
        A::ProtocolVersion => return "the peer does not speak TLS 1.3 (alert protocol_version)".to_owned(),
        other => return format!("the peer ends the handshake (alert {}, {other:?})", u8::from(other)),
    };
    format!("the peer refuses our certificate: {why} (alert {name})")
}

fn date(time: UnixTime) -> String {
    words::date(i64::try_from(time.as_secs()).unwrap_or(i64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn octets_of_plain_bgp_are_told_from_tls() {
        let said = explain(&InvalidMessage::InvalidContentType.into());
        assert_eq!(said, "what it sends is not TLS (InvalidContentType); does it speak plain TCP?");
    }

    #[test]
    fn alerts_about_certificates_are_about_ours() {
        let said = |alert: u8| explain(&Error::AlertReceived(AlertDescription::from(alert)));
        assert_eq!(
            said(48),
            "the peer refuses our certificate: the peer does not know the authority that has signed it (alert unknown_ca)"
        );
        assert_eq!(
            said(116),
            "the peer wants a certificate, and we have shown none (alert certificate_required)"
        );
        assert_eq!(said(80), "the peer ends the handshake (alert 80, InternalError)");
    }

    #[test]
    fn what_goes_to_the_peer_in_a_quic_close_names_nobody() {
        let refusal = Refusal::Authority { subject: "CN=r2".into(), issuer: "CN=Lab CA".into() };
        let error = Error::from(refusal);
        assert!(!error.to_string().contains("CN="), "{error}");
        assert!(explain(&error).contains("CN=r2"), "{}", explain(&error));
    }
}

//! Certificates of a peer: whether they lead to one of its authorities, and whether they are still good.

use std::sync::Arc;

use rustls::{
    CertificateError, Error, OtherError,
    pki_types::{CertificateDer, SignatureVerificationAlgorithm, TrustAnchor, UnixTime},
};
use webpki::{
    CertRevocationList, EndEntityCert, ExpirationPolicy, ExtendedKeyUsageValidator, KeyPurposeId,
    KeyPurposeIdIter, KeyUsage, OwnedCertRevocationList, RequiredEkuNotFoundContext, RevocationCheckDepth,
    RevocationOptionsBuilder, UnknownStatusPolicy, anchor_from_trusted_cert,
};
use x509_parser::{parse_x509_certificate, parse_x509_crl, prelude::X509Certificate};

use crate::{Refusal, TlsError, words};

/// id-kp-serverAuth and id-kp-clientAuth (RFC 5280 section 4.2.1.12).
const SERVER_AUTH: KeyPurposeId<'static> = KeyPurposeId::new(&[0x2b, 6, 1, 5, 5, 7, 3, 1]);
const CLIENT_AUTH: KeyPurposeId<'static> = KeyPurposeId::new(&[0x2b, 6, 1, 5, 5, 7, 3, 2]);
/// Certificates beside a peer's own that are looked at: no path that webpki follows has more between it and an authority.
/// Of many that have one name it would try each order, a tenth of a second for whoever has made them up.
const MOST_BETWEEN: usize = 6;

/// The authorities of a peer, with what they have revoked.
pub(crate) struct Authorities {
    anchors: Vec<TrustAnchor<'static>>,
    /// One of each issuer.
    revoked: Vec<CertRevocationList<'static>>,
}

impl Authorities {
    /// Of certificates and revocation lists in DER.
    pub(crate) fn new(authorities: &[Vec<u8>], revocations: &[Vec<u8>]) -> Result<Self, TlsError> {
        let anchor = |(number, der): (usize, &Vec<u8>)| {
            let der = CertificateDer::from(der.as_slice());
            let anchor = anchor_from_trusted_cert(&der).map(|anchor| anchor.to_owned());
            anchor.map_err(|error| TlsError::Authority(number + 1, unreadable(&error)))
        };
        let anchors = authorities.iter().enumerate().map(anchor).collect::<Result<_, _>>()?;
        Ok(Self { anchors, revoked: newest(revocations)? })
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.anchors.is_empty()
    }

    /// Whether a certificate leads to an authority, is valid now, and neither it nor one between is revoked. A list that
    /// is past its next update still counts: what it revokes stays so, and a session does not hang on its renewal.
    pub(crate) fn verify(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
        algorithms: &[&dyn SignatureVerificationAlgorithm],
    ) -> Result<(), Error> {
        let certificate =
            EndEntityCert::try_from(end_entity).map_err(|error| refused(&error, end_entity, &[]))?;
        if intermediates.len() > MOST_BETWEEN {
            let Signed { subject, .. } = signed(end_entity, &[]);
            let why = format!(
                "{} others come with it, and at most {MOST_BETWEEN} are looked at",
                intermediates.len()
            );
            return Err(Refusal::Unusable { subject, why }.into());
        }
        let lists: Vec<_> = self.revoked.iter().collect();
        let revocation = RevocationOptionsBuilder::new(&lists).ok().map(|options| {
            options
                .with_depth(RevocationCheckDepth::Chain)
                .with_status_policy(UnknownStatusPolicy::Allow)
                .with_expiration_policy(ExpirationPolicy::Ignore)
                .build()
        });
        let verified = certificate.verify_for_usage(
            algorithms,
            &self.anchors,
            intermediates,
            now,
            EitherSide,
            revocation,
            None,
        );
        verified.map(drop).map_err(|error| refused(&error, end_entity, intermediates))
    }
}

/// The same certificate is shown by who dials and by who accepts, and either may happen: an extended key usage, if there is
/// one, has to name one of both.
struct EitherSide;

impl ExtendedKeyUsageValidator for EitherSide {
    fn validate(&self, purposes: KeyPurposeIdIter<'_, '_>) -> Result<(), webpki::Error> {
        let mut present = Vec::new();
        for purpose in purposes {
            let purpose = purpose?;
            if purpose == SERVER_AUTH || purpose == CLIENT_AUTH {
                return Ok(());
            }
            present.push(purpose.to_decoded_oid());
        }
        match present.is_empty() {
            true => Ok(()),
            false => Err(webpki::Error::RequiredEkuNotFoundContext(RequiredEkuNotFoundContext {
                required: KeyUsage::client_auth(),
                present,
            })),
        }
    }
}

/// The newest list of each issuer: an older one revokes nothing that the newest does not.
fn newest(revocations: &[Vec<u8>]) -> Result<Vec<CertRevocationList<'static>>, TlsError> {
    // Issuer and date beside the list.
    let mut kept: Vec<(Vec<u8>, i64, CertRevocationList<'static>)> = Vec::new();
    for (number, der) in revocations.iter().enumerate() {
        let fault = |reason: String| TlsError::Revocations(number + 1, reason);
        let (_, read) =
            parse_x509_crl(der).map_err(|_| fault("it is no revocation list (DER)".to_owned()))?;
        let (issuer, since) = (read.issuer().as_raw().to_vec(), read.last_update().timestamp());
        let list = OwnedCertRevocationList::from_der(der).map_err(|error| fault(format!("{error:?}")))?;
        match kept.iter_mut().find(|(known, ..)| *known == issuer) {
            Some(known) if known.1 <= since => *known = (issuer, since, list.into()),
            Some(_) => {}
            None => kept.push((issuer, since, list.into())),
        }
    }
    Ok(kept.into_iter().map(|(_, _, list)| list).collect())
}

/// Why a certificate cannot even be read.
pub(crate) fn unreadable(error: &webpki::Error) -> String {
    use webpki::Error as E;
    match error {
        E::BadDer | E::BadDerTime | E::TrailingData(_) => "it is no certificate (DER)".to_owned(),
        E::UnsupportedCertVersion => "it is not of X.509 version 3".to_owned(),
        E::UnsupportedCriticalExtension => "it has a critical extension that is not known here".to_owned(),
        other => format!("{other:?}"),
    }
}

/// Who a certificate is for, the last issuer that the certificates beside it lead to, and the seconds in which it is valid.
struct Signed {
    subject: String,
    issuer: String,
    by_itself: bool,
    validity: [i64; 2],
}

fn signed(end_entity: &CertificateDer<'_>, intermediates: &[CertificateDer<'_>]) -> Signed {
    let Ok((_, leaf)) = parse_x509_certificate(end_entity) else {
        let unknown = "(unreadable)".to_owned();
        return Signed { subject: unknown.clone(), issuer: unknown, by_itself: false, validity: [0, 0] };
    };
    let between: Vec<X509Certificate<'_>> =
        intermediates.iter().filter_map(|der| Some(parse_x509_certificate(der).ok()?.1)).collect();
    let mut top = &leaf;
    for _ in 0..between.len() {
        let above = between.iter().find(|above| above.subject().as_raw() == top.issuer().as_raw());
        top = above.unwrap_or(top);
    }
    Signed {
        subject: words::distinguished(leaf.subject()),
        issuer: words::distinguished(top.issuer()),
        by_itself: leaf.subject().as_raw() == leaf.issuer().as_raw(),
        validity: [leaf.validity().not_before.timestamp(), leaf.validity().not_after.timestamp()],
    }
}

/// For rustls: where it has a kind with all there is to say, that kind, since the peer is sent the alert of it; else our own.
fn refused(
    error: &webpki::Error,
    end_entity: &CertificateDer<'_>,
    intermediates: &[CertificateDer<'_>],
) -> Error {
    use webpki::Error as E;
    let Signed { subject, issuer, by_itself, validity } = signed(end_entity, intermediates);
    // Otherwise it is a certificate between it and its authority that is too old or too new.
    let is_its = |end: usize, time: &UnixTime| i64::try_from(time.as_secs()) == Ok(validity[end]);
    let refusal = match error {
        E::BadDer | E::BadDerTime | E::TrailingData(_) => return CertificateError::BadEncoding.into(),
        E::CertExpired { time, not_after } if is_its(1, not_after) => {
            return CertificateError::ExpiredContext { time: *time, not_after: *not_after }.into();
        }
        E::CertNotValidYet { time, not_before } if is_its(0, not_before) => {
            return CertificateError::NotValidYetContext { time: *time, not_before: *not_before }.into();
        }
        E::CertExpired { .. } | E::CertNotValidYet { .. } => Refusal::Unusable {
            subject,
            why: "one that has signed it has expired, or is not valid yet".to_owned(),
        },
        E::CertRevoked => return CertificateError::Revoked.into(),
        E::UnknownIssuer if by_itself => Refusal::SelfSigned { subject },
        E::UnknownIssuer => Refusal::Authority { subject, issuer },
        E::InvalidSignatureForPublicKey | E::UnsupportedSignatureAlgorithmForPublicKeyContext(_) => {
            Refusal::AuthorityKey { subject, issuer }
        }
        E::InvalidCrlSignatureForPublicKey | E::UnsupportedCrlSignatureAlgorithmForPublicKeyContext(_) => {
            Refusal::RevocationList { issuer }
        }
        E::CaUsedAsEndEntity => {
            Refusal::Unusable { subject, why: "it is that of an authority, not of a router".to_owned() }
        }
        E::EndEntityUsedAsCa | E::PathLenConstraintViolated => {
            Refusal::Unusable { subject, why: "one that has signed it may not sign others".to_owned() }
        }
        E::RequiredEkuNotFoundContext(_) | E::EmptyEkuExtension => {
            Refusal::Unusable { subject, why: "it may be used for neither side of TLS".to_owned() }
        }
        E::NameConstraintViolation => {
            Refusal::Unusable { subject, why: "its authority may not sign for its names".to_owned() }
        }
        other => Refusal::Unusable { subject, why: unreadable(other) },
    };
    refusal.into()
}

impl From<Refusal> for Error {
    fn from(refusal: Refusal) -> Self {
        Self::InvalidCertificate(CertificateError::Other(OtherError(Arc::new(refusal))))
    }
}

//! Making keys and certificates.

use std::{
    fmt,
    net::IpAddr,
    time::{SystemTime, UNIX_EPOCH},
};

use aws_lc_rs::rand;
use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, CertificateSigningRequestParams,
    DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyIdMethod, KeyPair, KeyUsagePurpose,
    PKCS_ECDSA_P256_SHA256, PKCS_ED25519, PublicKeyData, RevokedCertParams, SanType, SerialNumber,
    SubjectPublicKeyInfo,
};
use rustls::pki_types::{CertificateDer, CertificateSigningRequestDer, DnsName};
use x509_parser::{
    certification_request::X509CertificationRequest, parse_x509_certificate, parse_x509_crl,
    prelude::FromDer, time::ASN1Time,
};

use super::KeysError;
use crate::words;

/// Clocks of two routers may differ by so many seconds when a certificate is new.
const EARLIER: i64 = 300;
const DAY: i64 = 86_400;

/// What signs.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub enum Algorithm {
    /// ECDSA with P-256 and SHA-256: everybody has it.
    #[default]
    P256,
    /// Ed25519 (RFC 8410).
    Ed25519,
}

/// From when until when a certificate or a revocation list is good, in seconds since 1970.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Validity {
    /// The first second.
    pub from: i64,
    /// The last one.
    pub until: i64,
}

impl Validity {
    /// So many days from now on by the system's clock, and a few minutes before, since clocks differ.
    pub fn days(days: u32) -> Self {
        let now = now();
        Self { from: now - EARLIER, until: now + i64::from(days) * DAY }
    }
}

/// Seconds since 1970: certificates are of the calendar.
fn now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
}

/// A private key. `Debug` shows its fingerprint.
pub struct PrivateKey(pub(super) KeyPair);

impl PrivateKey {
    /// A new one.
    ///
    /// # Errors
    /// The system has no random numbers.
    pub fn generate(algorithm: Algorithm) -> Result<Self, KeysError> {
        let algorithm = match algorithm {
            Algorithm::P256 => &PKCS_ECDSA_P256_SHA256,
            Algorithm::Ed25519 => &PKCS_ED25519,
        };
        Ok(Self(KeyPair::generate_for(algorithm)?))
    }

    /// Of DER: PKCS#8, SEC1 or PKCS#1.
    ///
    /// # Errors
    /// [`KeysError::Missing`] if it is none.
    pub fn read(der: &[u8]) -> Result<Self, KeysError> {
        Ok(Self(KeyPair::try_from(der)?))
    }

    /// DER, in the form in which it was made or read.
    pub fn der(&self) -> &[u8] {
        self.0.serialized_der()
    }

    /// SubjectPublicKeyInfo, DER.
    pub fn public_key(&self) -> Vec<u8> {
        self.0.subject_public_key_info()
    }

    /// SHA-256 of [`PrivateKey::public_key`].
    pub fn fingerprint(&self) -> [u8; 32] {
        words::fingerprint(&self.public_key())
    }
}

impl fmt::Debug for PrivateKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PrivateKey({})", words::fingerprint_words(&self.fingerprint()))
    }
}

/// A certificate for names, DNS or IP, that the key itself has signed. It is no authority.
///
/// # Errors
/// Wrong names, or none.
pub fn self_signed(key: &PrivateKey, names: &[String], validity: Validity) -> Result<Vec<u8>, KeysError> {
    let mut params = router(names)?;
    certify(&mut params, validity)?;
    Ok(params.self_signed(&key.0)?.der().to_vec())
}

/// A request to an authority for a certificate for names, DNS or IP (PKCS#10).
///
/// # Errors
/// Wrong names, or none.
pub fn request(key: &PrivateKey, names: &[String]) -> Result<Vec<u8>, KeysError> {
    Ok(router(names)?.serialize_request(&key.0)?.der().to_vec())
}

/// What the certificate of a router is for: names, and both sides of TLS.
fn router(names: &[String]) -> Result<CertificateParams, KeysError> {
    for name in names {
        if name.parse::<IpAddr>().is_err() && DnsName::try_from(name.as_str()).is_err() {
            return Err(KeysError::Name(name.clone()));
        }
    }
    let mut params = CertificateParams::new(names)?;
    params.distinguished_name = common_name(names.first().ok_or(KeysError::Nameless)?);
    purposes(&mut params);
    Ok(params)
}

fn common_name(name: &str) -> DistinguishedName {
    let mut distinguished = DistinguishedName::new();
    distinguished.push(DnType::CommonName, name);
    distinguished
}

fn purposes(params: &mut CertificateParams) {
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages =
        vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
}

/// What whoever signs decides: validity, number, and that it is no authority.
fn certify(params: &mut CertificateParams, validity: Validity) -> Result<(), KeysError> {
    params.is_ca = IsCa::ExplicitNoCa;
    date(params, validity)
}

/// Validity and number.
pub(super) fn date(params: &mut CertificateParams, validity: Validity) -> Result<(), KeysError> {
    params.not_before = at(validity.from)?.to_datetime();
    params.not_after = at(validity.until)?.to_datetime();
    params.serial_number = Some(serial()?);
    Ok(())
}

/// Random: a revocation list names certificates by number, so two of one key need two.
fn serial() -> Result<SerialNumber, KeysError> {
    let mut serial = [0; 16];
    rand::fill(&mut serial).map_err(|_| KeysError::Library("the system has no random numbers".to_owned()))?;
    // Positive, and always of the same length (RFC 5280 section 4.1.2.2).
    serial[0] = serial[0] & 0x3f | 0x40;
    Ok(SerialNumber::from_slice(&serial))
}

fn at(seconds: i64) -> Result<ASN1Time, KeysError> {
    ASN1Time::from_timestamp(seconds).map_err(|_| KeysError::Library(format!("there is no date {seconds}")))
}

/// Who signs the certificates of routers, and revokes them.
#[derive(Debug)]
pub struct Authority {
    certificate: Vec<u8>,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    /// A new one, which signs itself.
    ///
    /// # Errors
    /// No name, or a date that is none.
    pub fn new(name: &str, key: PrivateKey, validity: Validity) -> Result<Self, KeysError> {
        if name.trim().is_empty() {
            return Err(KeysError::Unnamed);
        }
        let mut params = CertificateParams::new(Vec::<String>::new())?;
        certify(&mut params, validity)?;
        params.distinguished_name = common_name(name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let certificate = params.self_signed(&key.0)?.der().to_vec();
        Self::read(&certificate, key)
    }

    /// Of its certificate (DER) and key.
    ///
    /// # Errors
    /// It may not sign, or both do not belong together.
    pub fn read(certificate: &[u8], key: PrivateKey) -> Result<Self, KeysError> {
        let (_, read) = parse_x509_certificate(certificate).map_err(|_| KeysError::Missing("certificate"))?;
        let name = words::distinguished(read.subject());
        if !read.is_ca() {
            return Err(KeysError::NotAnAuthority(name));
        }
        if read.public_key().raw != key.public_key() {
            return Err(KeysError::Mismatch(name));
        }
        let issuer = Issuer::from_ca_cert_der(&CertificateDer::from(certificate), key.0)?;
        Ok(Self { certificate: certificate.to_vec(), issuer })
    }

    /// Its certificate: what the peers of its routers need.
    pub fn certificate(&self) -> &[u8] {
        &self.certificate
    }

    /// A certificate for who has made a request. Of what it asks for, its subject and its names are granted, for both sides
    /// of TLS; never to be an authority itself.
    ///
    /// # Errors
    /// It is no request, or not signed by its key, or has no name.
    pub fn sign(&self, request: &[u8], validity: Validity) -> Result<Vec<u8>, KeysError> {
        let missing = |_| KeysError::Missing("request");
        let (_, read) = X509CertificationRequest::from_der(request).map_err(missing)?;
        // The key as it is written there: rcgen takes its kind from the signature, which does not tell P-256 from P-384.
        let key = SubjectPublicKeyInfo::from_der(read.certification_request_info.subject_pki.raw)?;
        let request = CertificateSigningRequestDer::from(request.to_vec());
        let mut params = CertificateSigningRequestParams::from_der(&request)?.params;
        params.subject_alt_names.retain(|name| matches!(name, SanType::DnsName(_) | SanType::IpAddress(_)));
        if params.subject_alt_names.is_empty() {
            return Err(KeysError::Nameless);
        }
        certify(&mut params, validity)?;
        purposes(&mut params);
        params.use_authority_key_identifier_extension = true;
        Ok(params.signed_by(&key, &self.issuer)?.der().to_vec())
    }

    /// A revocation list with what was revoked before, `before`, and a certificate. Its number is the next one.
    ///
    /// # Errors
    /// The certificate or the list before is of somebody else, or it is revoked already.
    pub fn revoke(
        &self,
        before: Option<&[u8]>,
        certificate: &[u8],
        validity: Validity,
    ) -> Result<Vec<u8>, KeysError> {
        let missing = |what| move |_| KeysError::Missing(what);
        let (_, own) = parse_x509_certificate(&self.certificate).map_err(missing("certificate"))?;
        let (_, read) = parse_x509_certificate(certificate).map_err(missing("certificate"))?;
        let (subject, authority) =
            (words::distinguished(read.subject()), words::distinguished(own.subject()));
        if read.issuer().as_raw() != own.subject().as_raw() {
            let issuer = words::distinguished(read.issuer());
            return Err(KeysError::OfAnother { subject, issuer, authority });
        }

        let (mut revoked_certs, mut number) = (Vec::new(), vec![1]);
        if let Some(before) = before {
            let (_, list) = parse_x509_crl(before).map_err(missing("revocation list"))?;
            if list.issuer().as_raw() != own.subject().as_raw() {
                let (subject, issuer) =
                    ("the revocation list".to_owned(), words::distinguished(list.issuer()));
                return Err(KeysError::OfAnother { subject, issuer, authority });
            }
            if list.iter_revoked_certificates().any(|revoked| *revoked.serial() == read.serial) {
                return Err(KeysError::RevokedAlready(subject));
            }
            let old = list.iter_revoked_certificates();
            revoked_certs.extend(old.map(|old| revoked(old.serial().to_bytes_be(), old.revocation_date)));
            number = list.crl_number().map_or(number, |number| (number + 1_u32).to_bytes_be());
        }
        revoked_certs.push(revoked(read.serial.to_bytes_be(), at(now())?));
        let params = CertificateRevocationListParams {
            this_update: at(validity.from)?.to_datetime(),
            next_update: at(validity.until)?.to_datetime(),
            crl_number: SerialNumber::from(number),
            issuing_distribution_point: None,
            revoked_certs,
            key_identifier_method: KeyIdMethod::Sha256,
        };
        Ok(params.signed_by(&self.issuer)?.der().to_vec())
    }
}

fn revoked(serial: Vec<u8>, time: ASN1Time) -> RevokedCertParams {
    RevokedCertParams {
        serial_number: SerialNumber::from(serial),
        revocation_time: time.to_datetime(),
        reason_code: None,
        invalidity_date: None,
    }
}

//! What something is, for people.

use x509_parser::{
    certification_request::X509CertificationRequest,
    extensions::ParsedExtension,
    parse_x509_certificate, parse_x509_crl,
    prelude::FromDer,
    public_key::PublicKey,
    x509::{SubjectPublicKeyInfo, X509Name},
};

use super::{Item, KeysError, PrivateKey};
use crate::words;

/// What something is; what does not apply is empty.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Description {
    /// `certificate`, `certificate of an authority`, `request`, `private key`, `public key` or `revocation list`.
    pub kind: &'static str,
    /// Whose it is, as in `CN=r1.example`.
    pub subject: Option<String>,
    /// What a certificate is for: DNS names and addresses.
    pub names: Vec<String>,
    /// Who has signed it.
    pub issuer: Option<String>,
    /// Number of a certificate, hexadecimal octets with colons.
    pub serial: Option<String>,
    /// From when it is good, in seconds since 1970; of a revocation list: when it was made.
    pub not_before: Option<i64>,
    /// Until when; of a revocation list: when there will be another one.
    pub not_after: Option<i64>,
    /// Of what kind the key is, as in `P-256`.
    pub algorithm: Option<String>,
    /// SHA-256 of the key: what is pinned.
    pub fingerprint: Option<[u8; 32]>,
    /// Numbers of the certificates that a list revokes.
    pub revoked: Vec<String>,
}

/// Says what something is.
///
/// # Errors
/// It is not what its PEM says.
pub fn describe(item: &Item) -> Result<Description, KeysError> {
    match item {
        Item::Certificate(der) => certificate(der),
        Item::Request(der) => request(der),
        Item::Revocations(der) => revocations(der),
        Item::PublicKey(der) => {
            let (_, key) =
                SubjectPublicKeyInfo::from_der(der).map_err(|_| KeysError::Missing("public key"))?;
            Ok(keyed("public key", &key))
        }
        Item::PrivateKey(der) => {
            let public = PrivateKey::read(der)?.public_key();
            let (_, key) =
                SubjectPublicKeyInfo::from_der(&public).map_err(|_| KeysError::Missing("private key"))?;
            Ok(keyed("private key", &key))
        }
    }
}

fn certificate(der: &[u8]) -> Result<Description, KeysError> {
    let (_, read) = parse_x509_certificate(der).map_err(|_| KeysError::Missing("certificate"))?;
    let kind = if read.is_ca() { "certificate of an authority" } else { "certificate" };
    Ok(Description {
        subject: name(read.subject()),
        names: words::alternative_names(&read),
        issuer: name(read.issuer()),
        serial: Some(words::colons(&read.serial.to_bytes_be())),
        not_before: Some(read.validity().not_before.timestamp()),
        not_after: Some(read.validity().not_after.timestamp()),
        ..keyed(kind, read.public_key())
    })
}

fn request(der: &[u8]) -> Result<Description, KeysError> {
    let (_, read) = X509CertificationRequest::from_der(der).map_err(|_| KeysError::Missing("request"))?;
    let mut names = Vec::new();
    for extension in read.requested_extensions().into_iter().flatten() {
        if let ParsedExtension::SubjectAlternativeName(alternative) = extension {
            names.extend(alternative.general_names.iter().filter_map(words::general));
        }
    }
    let info = &read.certification_request_info;
    Ok(Description { subject: name(&info.subject), names, ..keyed("request", &info.subject_pki) })
}

fn revocations(der: &[u8]) -> Result<Description, KeysError> {
    let (_, read) = parse_x509_crl(der).map_err(|_| KeysError::Missing("revocation list"))?;
    let serials =
        read.iter_revoked_certificates().map(|revoked| words::colons(&revoked.serial().to_bytes_be()));
    Ok(Description {
        kind: "revocation list",
        issuer: name(read.issuer()),
        not_before: Some(read.last_update().timestamp()),
        not_after: read.next_update().map(|time| time.timestamp()),
        revoked: serials.collect(),
        ..Description::default()
    })
}

fn keyed(kind: &'static str, key: &SubjectPublicKeyInfo<'_>) -> Description {
    let fingerprint = Some(words::fingerprint(key.raw));
    Description { kind, algorithm: Some(algorithm(key)), fingerprint, ..Description::default() }
}

fn name(name: &X509Name<'_>) -> Option<String> {
    Some(words::distinguished(name))
}

fn algorithm(key: &SubjectPublicKeyInfo<'_>) -> String {
    let oid = key.algorithm.algorithm.to_id_string();
    match key.parsed() {
        // Octets of a coordinate are whole.
        Ok(PublicKey::EC(point)) => {
            format!("P-{}", if point.key_size() == 528 { 521 } else { point.key_size() })
        }
        Ok(PublicKey::RSA(key)) => format!("RSA {}", key.key_size()),
        // RFC 8410.
        _ if oid == "1.3.101.112" => "Ed25519".to_owned(),
        _ => oid,
    }
}

//! Reading PEM and DER, writing PEM.

use std::fmt;

use ::pem::{EncodeConfig, LineEnding, Pem, encode_config};
use rustls::pki_types::{
    PrivateKeyDer,
    pem::{self as read_pem, PemObject, SectionKind},
};
use x509_parser::{
    certification_request::X509CertificationRequest, parse_x509_certificate, parse_x509_crl,
    prelude::FromDer, x509::SubjectPublicKeyInfo,
};

use super::{KeysError, PrivateKey};

/// What some editors put in front of a text.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";
/// What only a password opens: PKCS#8 (RFC 7468 section 11), and before it SEC1 or PKCS#1 with headers of RFC 1421.
const LOCKED: [&[u8]; 2] = [b"-----BEGIN ENCRYPTED PRIVATE KEY-----", b"Proc-Type: 4,ENCRYPTED"];

/// Something that a file can hold, in DER.
#[derive(Clone, PartialEq, Eq)]
pub enum Item {
    /// X.509.
    Certificate(Vec<u8>),
    /// PKCS#8, SEC1 or PKCS#1.
    PrivateKey(Vec<u8>),
    /// SubjectPublicKeyInfo.
    PublicKey(Vec<u8>),
    /// PKCS#10.
    Request(Vec<u8>),
    /// A revocation list (RFC 5280 section 5).
    Revocations(Vec<u8>),
}

impl Item {
    /// Its octets.
    pub fn der(&self) -> &[u8] {
        match self {
            Self::Certificate(der)
            | Self::PrivateKey(der)
            | Self::PublicKey(der)
            | Self::Request(der)
            | Self::Revocations(der) => der,
        }
    }
}

impl fmt::Debug for Item {
    /// What it is, and nothing of what is in it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Certificate(_) => "Certificate",
            Self::PrivateKey(_) => "PrivateKey",
            Self::PublicKey(_) => "PublicKey",
            Self::Request(_) => "Request",
            Self::Revocations(_) => "Revocations",
        })
    }
}

/// All that a file holds, in its order: PEM, in which text and unknown parts are passed over, or one piece of DER.
///
/// # Errors
/// There is nothing that is known, or only a password opens it, or the PEM is damaged.
pub fn read(contents: &[u8]) -> Result<Vec<Item>, KeysError> {
    let contents = contents.strip_prefix(BYTE_ORDER_MARK).unwrap_or(contents);
    if !has(contents, b"-----BEGIN ") {
        return Ok(vec![of_der(contents)?]);
    }
    let mut items = Vec::new();
    for section in <(SectionKind, Vec<u8>)>::pem_slice_iter(contents) {
        let (kind, der) = section.map_err(|error| match is_locked(contents) {
            true => KeysError::Locked,
            false => KeysError::Pem(damage(error)),
        })?;
        items.extend(match kind {
            SectionKind::Certificate => Some(Item::Certificate(der)),
            SectionKind::PublicKey => Some(Item::PublicKey(der)),
            SectionKind::RsaPrivateKey | SectionKind::PrivateKey | SectionKind::EcPrivateKey => {
                Some(Item::PrivateKey(der))
            }
            SectionKind::Crl => Some(Item::Revocations(der)),
            SectionKind::Csr => Some(Item::Request(der)),
            _ => None,
        });
    }
    match items.is_empty() {
        true if is_locked(contents) => Err(KeysError::Locked),
        true => Err(KeysError::Unreadable),
        false => Ok(items),
    }
}

fn has(contents: &[u8], mark: &[u8]) -> bool {
    contents.windows(mark.len()).any(|window| window == mark)
}

fn is_locked(contents: &[u8]) -> bool {
    LOCKED.iter().any(|mark| has(contents, mark))
}

/// In words, where the library has numbers of octets.
fn damage(error: read_pem::Error) -> String {
    let text = |octets: &[u8]| String::from_utf8_lossy(octets).into_owned();
    match error {
        read_pem::Error::MissingSectionEnd { end_marker } => {
            format!("it has no line `-----END {}-----`", text(&end_marker))
        }
        read_pem::Error::IllegalSectionStart { line } => format!("`{}` begins nothing", text(&line)),
        other => other.to_string(),
    }
}

/// Certificates of a file, in its order.
///
/// # Errors
/// There is none.
pub fn certificates(contents: &[u8]) -> Result<Vec<Vec<u8>>, KeysError> {
    all(contents, "certificate", |item| match item {
        Item::Certificate(der) => Some(der),
        _ => None,
    })
}

/// The first private key of a file.
///
/// # Errors
/// There is none, or only a password opens it.
pub fn private_key(contents: &[u8]) -> Result<Vec<u8>, KeysError> {
    let keys = all(contents, "private key", |item| match item {
        Item::PrivateKey(der) => Some(der),
        _ => None,
    });
    let missing = KeysError::Missing("private key");
    match keys {
        Err(KeysError::Missing(_)) if is_locked(contents) => Err(KeysError::Locked),
        keys => keys?.into_iter().next().ok_or(missing),
    }
}

/// Revocation lists of a file.
///
/// # Errors
/// There is none.
pub fn revocations(contents: &[u8]) -> Result<Vec<Vec<u8>>, KeysError> {
    all(contents, "revocation list", |item| match item {
        Item::Revocations(der) => Some(der),
        _ => None,
    })
}

fn all(
    contents: &[u8],
    what: &'static str,
    wanted: impl Fn(Item) -> Option<Vec<u8>>,
) -> Result<Vec<Vec<u8>>, KeysError> {
    let found: Vec<_> = read(contents)?.into_iter().filter_map(wanted).collect();
    match found.is_empty() {
        true => Err(KeysError::Missing(what)),
        false => Ok(found),
    }
}

/// What one piece of DER is, by what can be read in it to the end.
fn of_der(der: &[u8]) -> Result<Item, KeysError> {
    let owned = der.to_vec();
    if parse_x509_certificate(der).is_ok_and(|(rest, _)| rest.is_empty()) {
        Ok(Item::Certificate(owned))
    } else if parse_x509_crl(der).is_ok_and(|(rest, _)| rest.is_empty()) {
        Ok(Item::Revocations(owned))
    } else if X509CertificationRequest::from_der(der).is_ok_and(|(rest, _)| rest.is_empty()) {
        Ok(Item::Request(owned))
    } else if SubjectPublicKeyInfo::from_der(der).is_ok_and(|(rest, _)| rest.is_empty()) {
        Ok(Item::PublicKey(owned))
    } else if PrivateKey::read(der).is_ok() {
        Ok(Item::PrivateKey(owned))
    } else {
        Err(KeysError::Unreadable)
    }
}

/// An item as PEM (RFC 7468).
pub fn pem(item: &Item) -> String {
    let (tag, der) = match item {
        Item::Certificate(der) => ("CERTIFICATE", der),
        Item::PublicKey(der) => ("PUBLIC KEY", der),
        Item::Request(der) => ("CERTIFICATE REQUEST", der),
        Item::Revocations(der) => ("X509 CRL", der),
        Item::PrivateKey(der) => match PrivateKeyDer::try_from(der.as_slice()) {
            Ok(PrivateKeyDer::Sec1(_)) => ("EC PRIVATE KEY", der),
            Ok(PrivateKeyDer::Pkcs1(_)) => ("RSA PRIVATE KEY", der),
            _ => ("PRIVATE KEY", der),
        },
    };
    encode_config(&Pem::new(tag, der.clone()), EncodeConfig::new().set_line_ending(LineEnding::LF))
}

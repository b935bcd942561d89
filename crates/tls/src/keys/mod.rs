//! Keys, certificates, requests and revocation lists: making, reading, describing and keeping them (`holdfast keys`).
//!
//! A router has a [`PrivateKey`] and a certificate of it, either by itself ([`self_signed`], for peers that pin the key) or by
//! an [`Authority`] that takes its [`request`]. [`read`] takes PEM and DER alike; [`describe`] says what something is.
//! Everything here is DER but for files, which are PEM.

mod bgpsec;
mod describe;
mod make;
mod read;
mod router;
mod store;

use std::{io, path::PathBuf};

pub use bgpsec::{bgpsec_certificate, bgpsec_public_key, bgpsec_request, sec1};
pub use describe::{Description, describe};
pub use make::{Algorithm, Authority, PrivateKey, Validity, request, self_signed};
pub use read::{Item, certificates, pem, private_key, read, revocations};
pub use router::router_keys;
pub use store::{Access, create, sync, write};

/// Why a key, certificate, request or list cannot be made, read or kept.
#[derive(Debug, thiserror::Error)]
pub enum KeysError {
    /// The file system refuses.
    #[error("{}: {error}", path.display())]
    File {
        /// The file or directory.
        path: PathBuf,
        /// What the system says.
        error: io::Error,
    },
    /// What is there is not replaced unasked.
    #[error("{} is there already, and is replaced with --force only", .0.display())]
    Exists(PathBuf),
    /// Neither PEM nor DER of what is known here.
    #[error("this is neither a certificate nor a key, a request or a revocation list (PEM or DER)")]
    Unreadable,
    /// A private key that nobody is there to open.
    #[error(
        "a password protects the private key in it, and nobody is there to type it: write it without one, as by `openssl pkey`"
    )]
    Locked,
    /// PEM that is damaged.
    #[error("this PEM is damaged: {0}")]
    Pem(String),
    /// It is something else than was asked for.
    #[error("there is no {0} in it")]
    Missing(&'static str),
    /// Names of certificates.
    #[error("`{0}` is neither a DNS name nor an IP address")]
    Name(String),
    /// A certificate has at least one.
    #[error("there is no DNS name and no IP address that the certificate would be for")]
    Nameless,
    /// An authority is known by its name, which is in all that it signs.
    #[error("an authority needs a name")]
    Unnamed,
    /// A router's certificate signs nobody.
    #[error("{0} is no authority: its certificate does not allow it to sign others")]
    NotAnAuthority(String),
    /// Key and certificate of an authority are of different pairs.
    #[error("the key of {0} does not belong to its certificate")]
    Mismatch(String),
    /// Who has made a request does not have the key in it.
    #[error("the request is not signed with the key that is in it")]
    RequestSignature,
    /// More is asked for than is known here; leaving it out might not be what was meant.
    #[error(
        "the request asks for an extension that is not known here; names, key usages and basic constraints are"
    )]
    RequestExtension,
    /// Only who has signed can revoke.
    #[error("{subject} was signed by {issuer}, not by {authority}, which cannot revoke it")]
    OfAnother {
        /// Of the certificate.
        subject: String,
        /// Who has signed it.
        issuer: String,
        /// Who was to revoke it.
        authority: String,
    },
    /// Nothing changes.
    #[error("{0} is revoked already")]
    RevokedAlready(String),
    /// The library of certificates refuses.
    #[error("{0}")]
    Library(String),
}

impl From<rcgen::Error> for KeysError {
    fn from(error: rcgen::Error) -> Self {
        match error {
            rcgen::Error::InvalidCertificationRequestSignature => Self::RequestSignature,
            rcgen::Error::CouldNotParseCertificationRequest => Self::Missing("request"),
            rcgen::Error::CouldNotParseKeyPair => Self::Missing("private key"),
            rcgen::Error::UnsupportedExtension => Self::RequestExtension,
            error => Self::Library(error.to_string()),
        }
    }
}

//! Keys and certificates, and whom they prove.
//!
//! An [`Identity`] is what we show; a [`Trust`] is what a configured peer has to show: a certificate of an authority for
//! its name (RFC 5280, RFC 9525), a pinned key, or a bare key (RFC 7250). Both become configurations of TLS 1.3 for one
//! peer ([`PeerTls`]), used alike by TLS over TCP and by both QUIC libraries. Every refusal has a reason that an operator
//! understands ([`explain`]).
//!
//! Validity in time is a matter of the handshake: a session that stands outlives the expiry of its certificates. There is
//! no resumption and no early data, so each connection proves itself anew.
//!
//! This crate alone names rustls and the library of cryptography; keys are made here too ([`keys`], `holdfast keys`).

mod certificates;
pub mod files;
mod finding;
mod identity;
pub mod keys;
mod peer;
mod refusal;
mod sealing;
mod seeds;
mod trust;
mod words;

// Tests of what the crate offers, in the executable of its unit tests.
#[cfg(test)]
extern crate self as holdfast_tls;
#[cfg(test)]
#[path = "../tests/mod.rs"]
mod tests;

pub use finding::Finding;
pub use identity::Identity;
pub use peer::{KeyLog, PeerTls};
pub use refusal::{Refusal, explain};
pub use rustls;
pub use sealing::Sealing;
pub use seeds::Seeds;
pub use trust::Trust;
pub use words::{fingerprint, fingerprint_words};

/// BGP over QUIC: one bidirectional stream, BGP's octets unchanged, as the BIRD of the authors of "Routing over QUIC".
pub const ALPN_QUIC: &[u8] = b"qbgp";
/// BGP over TLS over TCP (draft-wirtgen-bgp-tls).
pub const ALPN_TLS: &[u8] = b"botls";

/// Why there is no configuration of TLS for a peer. What is wrong is the configuration, never the peer.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum TlsError {
    /// One of our own certificates is none, counted from 1.
    #[error("our certificate {0} cannot be read: {1}")]
    Certificate(usize, String),
    /// Our private key is none, or of a kind that there is no signing with.
    #[error("our private key cannot be used: {0}")]
    PrivateKey(String),
    /// Key and certificate are of different pairs.
    #[error("our private key does not belong to our certificate")]
    Mismatch,
    /// A certificate is to be shown, and there is none.
    #[error("there is no certificate of ours to show to it")]
    NoCertificate,
    /// Anybody would be trusted.
    #[error("it has neither authorities nor pinned keys: nothing would prove who it is")]
    NothingTrusted,
    /// Nothing but a pin says whose a bare key is.
    #[error("it shows a bare key, and none is pinned")]
    NothingPinned,
    /// The certificate of an authority is none, counted from 1.
    #[error("the certificate of its authority {0} cannot be read: {1}")]
    Authority(usize, String),
    /// A name that no certificate can be for.
    #[error("`{0}` is neither a DNS name nor an IP address")]
    Name(String),
    /// A revocation list is none, counted from 1.
    #[error("its revocation list {0} cannot be read: {1}")]
    Revocations(usize, String),
    /// There is one seed, or the current one and that before.
    #[error("there are one or two seeds, not {0}")]
    Seeds(usize),
    /// A seed of another length.
    #[error("a seed has 64 octets, not {0}")]
    SeedLength(usize),
    /// The library of TLS does not take it.
    #[error("the TLS library refuses: {0}")]
    Library(String),
}

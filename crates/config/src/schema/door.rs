//! Who is let in, over which transport, and with which proof.

use std::{fmt, marker::PhantomData, str::FromStr, sync::Arc};

use holdfast_types::Prefix;

use crate::keyed::{OneOf, keys, number, words};

/// What we show over TLS and QUIC.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Tls {
    /// Our certificate, and behind it those that lead to an authority. Never `None` where a peer is to be shown it.
    pub certificate: Option<DerFile>,
    /// Our private key, that of our certificate if there is one.
    pub key: KeyFile,
    /// Where the secrets of sessions are written (NSS key log format); `None`: nowhere.
    pub key_log: Option<String>,
}

/// A file that the configuration names, and what it holds.
#[derive(Clone, PartialEq, Eq)]
pub struct DerFile {
    /// As in the configuration.
    pub file: String,
    /// Certificates or revocation lists as DER, in the order of the file. Empty where nobody has read it ([`crate::parse`]).
    pub contents: Arc<[Vec<u8>]>,
}

impl fmt::Debug for DerFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("DerFile").field(&self.file).finish()
    }
}

/// A file with a private key or a password, which is not shown in debug output.
#[derive(Clone, PartialEq, Eq)]
pub struct KeyFile {
    /// As in the configuration.
    pub file: String,
    /// PKCS#8 or SEC1 as DER, or the password. Empty where nobody has read it ([`crate::parse`]).
    pub contents: Arc<[u8]>,
}

impl fmt::Debug for KeyFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("KeyFile").field(&self.file).finish()
    }
}

words! {
    /// What carries a session.
    pub enum Transport = Tcp "tcp" {
        /// The kernel's TCP.
        Tcp = "tcp",
        /// TLS 1.3 over TCP.
        Tls = "tls",
        /// QUIC; library noq.
        Quic = "quic",
        /// QUIC; library s2n-quic.
        QuicS2n = "quic-s2n",
    }
}

impl Transport {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Tcp, Self::Tls, Self::Quic, Self::QuicS2n];

    /// Whether both ends prove who they are.
    pub fn proves(self) -> bool {
        self != Self::Tcp
    }

    /// Whether it is over UDP.
    pub fn is_quic(self) -> bool {
        match self {
            Self::Quic | Self::QuicS2n => true,
            Self::Tcp | Self::Tls => false,
        }
    }
}

/// What a peer has to prove over TLS and QUIC.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Trust {
    /// `tls-authorities`
    pub authorities: Vec<DerFile>,
    /// `tls-name`; `None`: any that the authorities sign.
    pub name: Option<String>,
    /// `tls-pins`: the public keys one of which it has to have; none: any.
    pub pins: Vec<Pin>,
    /// `tls-raw-public-key`: both ends show bare keys (RFC 7250). Never without pins.
    pub raw_public_key: bool,
    /// `tls-revocations`
    pub revocations: Vec<DerFile>,
}

impl Trust {
    /// Whether whoever the authorities have signed for proves as much.
    pub(super) fn could_be_several(&self) -> bool {
        !self.authorities.is_empty() && self.name.is_none() && self.pins.is_empty()
    }
}

/// SHA-256 of a public key (SubjectPublicKeyInfo, DER).
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub struct Pin(pub [u8; 32]);

impl FromStr for Pin {
    type Err = String;

    /// 64 hexadecimal digits, in pairs with colons between them or without.
    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!(
                "`{text}` is no fingerprint: expected 32 octets in hexadecimal as in 2b:05:…, which is what \
                 `holdfast keys fingerprint FILE` prints"
            )
        };
        let pairs: Vec<&str> = match text.contains(':') {
            true => text.split(':').collect(),
            false if text.is_ascii() => {
                (0..text.len()).step_by(2).filter_map(|at| text.get(at..at + 2)).collect()
            }
            false => Vec::new(),
        };
        // `from_str_radix` alone would take a sign.
        let octet = |pair: &&str| match pair.len() == 2 && pair.bytes().all(|digit| digit.is_ascii_hexdigit())
        {
            true => u8::from_str_radix(pair, 16).ok(),
            false => None,
        };
        let octets: Option<Vec<u8>> = pairs.iter().map(octet).collect();
        let is_whole = text.contains(':') || text.len() == 64;
        octets.filter(|_| is_whole).and_then(|octets| octets.try_into().ok()).map(Self).ok_or_else(wrong)
    }
}

keys! {
    /// What stands before every listener where peers are expected.
    pub struct Admission {
        "retry" retry: Retry = OneOf::<Retry>(PhantomData), Reload, "when a source has to prove its address first (QUIC)";
        "load-handshakes" load_handshakes: u32 = number!(1..=16384, 64), Reload, "handshakes under way from which on there is load; up to `most-handshakes`";
        "load-attempts" load_attempts: u32 = number!(1..=10000000, 500), Reload, "attempts in a second from which on there is load";
        // As many as there are descriptors and memory for at each listener: one over TLS is a connection of the kernel's.
        "most-handshakes" most_handshakes: u32 = number!(1..=16384, 1024), Reload, "handshakes under way at most";
        "log-per-second" log_per_second: u32 = number!(1..=1000, 5), Reload, "lines in the log about refusals";
        + /// Attempts that are looked at while nothing is proven of their address.
        unvalidated: Rate = Rate { per_second: 2000, burst: 4000 };
        + /// Attempts from one address, or one /64, that is proven.
        by_address: Rate = Rate { per_second: 20, burst: 40 };
        + /// ALPN names that go first under load.
        priority_alpn: Vec<String> = Vec::new();
        + /// `[[admission.set]]`: who may try besides the configured peers; names are unique.
        sets: Vec<AdmissionSet> = Vec::new();
    }
}

words! {
    /// When a source has to prove its address before anything else (RFC 9000 section 8.1.2).
    pub enum Retry = UnderLoad "under-load" {
        /// While there is load.
        UnderLoad = "under-load",
        /// Each.
        Always = "always",
        /// None.
        Never = "never",
    }
}

/// A bucket of tokens.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Rate {
    /// Tokens that come in a second.
    pub per_second: u32,
    /// Tokens that there are at most.
    pub burst: u32,
}

/// Prefixes under a name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AdmissionSet {
    /// For the operator.
    pub name: String,
    /// Sources.
    pub prefixes: Vec<Prefix>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fingerprint_is_thirty_two_octets_with_colons_or_without() {
        let colons = vec!["2b"; 32].join(":");
        for text in [colons.clone(), "2b".repeat(32), colons.to_uppercase()] {
            assert_eq!(text.parse(), Ok(Pin([0x2b; 32])), "{text}");
        }
        let long = "2b".repeat(33);
        let signs = "+2".repeat(32);
        let umlauts = "ä".repeat(32);
        let triple = format!("2bb:{}", vec!["2b"; 31].join(":"));
        for text in
            ["", ":", "2b", &colons[3..], &long[..], &long[1..], &signs[..], &umlauts[..], &triple[..]]
        {
            assert!(text.parse::<Pin>().is_err(), "{text}");
        }
    }
}

//! What is said.

use std::{fmt, ops::RangeInclusive};

use holdfast_types::{Aspa, RouterKey, Vrp};

use crate::{ErrorCode, HEADER, LONGEST, Serial};

/// A version of the protocol.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Version {
    /// RFC 6810: prefixes.
    V0,
    /// RFC 8210: routers' keys and times as well.
    V1,
    /// draft-ietf-sidrops-8210bis: ASPAs as well.
    V2,
}

impl Version {
    /// The highest.
    pub const LATEST: Self = Self::V2;

    /// As on the wire.
    pub fn octet(self) -> u8 {
        self as u8
    }

    /// From the wire.
    pub fn from_octet(octet: u8) -> Option<Self> {
        [Self::V0, Self::V1, Self::V2].get(usize::from(octet)).copied()
    }

    /// The one before it.
    pub fn lower(self) -> Option<Self> {
        Self::from_octet(self.octet().checked_sub(1)?)
    }

    /// Whether it has a PDU for such a record.
    pub fn can_say(self, record: &Record) -> bool {
        self >= record.pdu_type().since()
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.octet().fmt(f)
    }
}

/// What a PDU is (RFC 8210 section 14).
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub enum PduType {
    /// Of a cache: there is something new.
    SerialNotify,
    /// Of a router: what has changed?
    SerialQuery,
    /// Of a router: what is there?
    ResetQuery,
    /// Of a cache: an answer begins.
    CacheResponse,
    /// A record.
    Ipv4Prefix,
    /// A record.
    Ipv6Prefix,
    /// Of a cache: an answer ends.
    EndOfData,
    /// Of a cache: ask for all.
    CacheReset,
    /// A record.
    RouterKey,
    /// Of either.
    ErrorReport,
    /// A record.
    Aspa,
}

impl PduType {
    const ALL: [(u8, Self, &str); 11] = [
        (0, Self::SerialNotify, "Serial Notify"),
        (1, Self::SerialQuery, "Serial Query"),
        (2, Self::ResetQuery, "Reset Query"),
        (3, Self::CacheResponse, "Cache Response"),
        (4, Self::Ipv4Prefix, "IPv4 Prefix"),
        (6, Self::Ipv6Prefix, "IPv6 Prefix"),
        (7, Self::EndOfData, "End of Data"),
        (8, Self::CacheReset, "Cache Reset"),
        (9, Self::RouterKey, "Router Key"),
        (10, Self::ErrorReport, "Error Report"),
        (11, Self::Aspa, "ASPA"),
    ];

    fn row(self) -> (u8, &'static str) {
        let row = Self::ALL.iter().find(|(_, kind, _)| *kind == self).expect("each has a row");
        (row.0, row.2)
    }

    /// As on the wire.
    pub fn octet(self) -> u8 {
        self.row().0
    }

    /// From the wire.
    pub fn from_octet(octet: u8) -> Option<Self> {
        Self::ALL.iter().find(|(number, ..)| *number == octet).map(|(_, kind, _)| *kind)
    }

    /// The first version that has it.
    pub fn since(self) -> Version {
        match self {
            Self::RouterKey => Version::V1,
            Self::Aspa => Version::V2,
            _ => Version::V0,
        }
    }

    /// Octets that one can have, with the header.
    pub(crate) fn lengths(self, version: Version) -> RangeInclusive<usize> {
        let exactly = |length| length..=length;
        match self {
            Self::SerialNotify | Self::SerialQuery => exactly(12),
            Self::ResetQuery | Self::CacheResponse | Self::CacheReset => exactly(HEADER),
            Self::Ipv4Prefix => exactly(20),
            Self::Ipv6Prefix => exactly(32),
            Self::EndOfData if version == Version::V0 => exactly(12),
            Self::EndOfData => exactly(24),
            Self::RouterKey => 32..=LONGEST,
            Self::ErrorReport => 16..=LONGEST,
            Self::Aspa => 12..=LONGEST,
        }
    }
}

impl fmt::Display for PduType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.row().1)
    }
}

/// Something that a cache says (RFC 8210 sections 5.6, 5.7, 5.10; 8210bis section 5.12).
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Record {
    /// IPv4 Prefix or IPv6 Prefix.
    Vrp(Vrp),
    /// Router Key.
    RouterKey(RouterKey),
    /// ASPA. Announced, it takes the place of what the customer had; withdrawn, it names no providers.
    Aspa(Aspa),
}

impl Record {
    /// Which PDU carries it.
    pub fn pdu_type(&self) -> PduType {
        match self {
            Self::Vrp(vrp) if vrp.prefix().afi() == holdfast_types::Afi::IPV4 => PduType::Ipv4Prefix,
            Self::Vrp(_) => PduType::Ipv6Prefix,
            Self::RouterKey(_) => PduType::RouterKey,
            Self::Aspa(_) => PduType::Aspa,
        }
    }
}

/// Providers that one ASPA PDU can carry.
pub const MOST_PROVIDERS: usize = (LONGEST - 12) / 4;

/// When to ask again, in seconds as the cache says them (RFC 8210 section 6).
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Timing {
    /// Between polls.
    pub refresh: u32,
    /// After a poll that failed.
    pub retry: u32,
    /// For how long data hold without a poll that succeeds.
    pub expire: u32,
}

/// Something went wrong (RFC 8210 section 5.11).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ErrorReport {
    /// What.
    pub code: ErrorCode,
    /// The PDU that it is about, or its beginning; empty if it is about none.
    pub pdu: Vec<u8>,
    /// For people.
    pub text: String,
}

/// A PDU.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Pdu {
    /// Section 5.2.
    SerialNotify {
        /// Session ID.
        session: u16,
        /// What the cache has.
        serial: Serial,
    },
    /// Section 5.3.
    SerialQuery {
        /// Session ID.
        session: u16,
        /// What the router has.
        serial: Serial,
    },
    /// Section 5.4.
    ResetQuery,
    /// Section 5.5.
    CacheResponse {
        /// Session ID.
        session: u16,
    },
    /// It holds from now on.
    Announce(Record),
    /// It holds no longer.
    Withdraw(Record),
    /// Section 5.8.
    EndOfData {
        /// Session ID.
        session: u16,
        /// What the router has now.
        serial: Serial,
        /// Version 0 has none; others are written with the recommended values if it is missing.
        timing: Option<Timing>,
    },
    /// Section 5.9.
    CacheReset,
    /// Section 5.11.
    ErrorReport(ErrorReport),
}

impl Pdu {
    /// What it is.
    pub fn pdu_type(&self) -> PduType {
        match self {
            Self::SerialNotify { .. } => PduType::SerialNotify,
            Self::SerialQuery { .. } => PduType::SerialQuery,
            Self::ResetQuery => PduType::ResetQuery,
            Self::CacheResponse { .. } => PduType::CacheResponse,
            Self::Announce(record) | Self::Withdraw(record) => record.pdu_type(),
            Self::EndOfData { .. } => PduType::EndOfData,
            Self::CacheReset => PduType::CacheReset,
            Self::ErrorReport(_) => PduType::ErrorReport,
        }
    }
}

impl Timing {
    /// What RFC 8210 section 6 recommends: an hour, ten minutes, two hours.
    pub const RECOMMENDED: Self = Self { refresh: 3600, retry: 600, expire: 7200 };
}

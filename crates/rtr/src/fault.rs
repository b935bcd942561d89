//! What can go wrong with a cache, and what follows from it.

use holdfast_rtr_wire::{ErrorCode, Malformed, PduType, Record, Version};

/// Why a session with a cache has ended.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Fault {
    /// No connection came about, or it was lost.
    #[error("not connected")]
    Closed,
    /// It said nothing for too long in the middle of an answer, or instead of one.
    #[error("the cache fell silent before its answer was whole")]
    Stalled,
    /// What was held expired while the difference to it came in.
    #[error("data expired during an answer")]
    Expired,
    /// A PDU cannot be read.
    #[error(transparent)]
    Malformed(#[from] Malformed),
    /// A PDU that cannot come now, or not from a cache.
    #[error("an unexpected {0}")]
    Unexpected(PduType),
    /// Another version than was agreed upon.
    #[error("a PDU of version {0} in the middle of a session of another")]
    Version(u8),
    /// It speaks a lower one only.
    #[error("the cache does not speak version {0}")]
    Downgrade(Version),
    /// It is another one than it was.
    #[error("session ID {theirs} instead of {ours}")]
    Session {
        /// So far.
        ours: u16,
        /// Now.
        theirs: u16,
    },
    /// A record that it had announced already.
    #[error("{0} was announced twice")]
    Duplicate(String),
    /// A record that it had not announced.
    #[error("{0} was withdrawn, and not there")]
    Unknown(String),
    /// In an answer to a Reset Query.
    #[error("a withdrawal in an answer to a Reset Query")]
    WithdrawnInFull,
    /// More than the configuration permits.
    #[error("more than {0} records")]
    TooMany(usize),
    /// The cache has reported an error where it was asked for a difference: it may be able to say all.
    #[error("the cache cannot go on from what it has said: {code}: {text:?}")]
    Desynchronized {
        /// Which.
        code: ErrorCode,
        /// What it says of it, the beginning.
        text: String,
    },
    /// The cache has reported an error.
    #[error("the cache reports {code}: {text:?}")]
    Reported {
        /// Which.
        code: ErrorCode,
        /// What it says of it, the beginning.
        text: String,
    },
}

/// When another attempt is made.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Again {
    /// Nothing was wrong but the version (RFC 8210 section 6: no need to wait).
    AtOnce,
    /// Soon, and later with every failure.
    Soon,
    /// After the Retry Interval.
    AfterRetry,
}

impl Fault {
    pub(crate) fn duplicate(record: &Record) -> Self {
        Self::Duplicate(named(record))
    }

    pub(crate) fn unknown(record: &Record) -> Self {
        Self::Unknown(named(record))
    }

    /// What the cache is told; it is told nothing of its own reports, and of what no PDU of it was about.
    pub(crate) fn code(&self) -> Option<ErrorCode> {
        match self {
            Self::Closed
            | Self::Stalled
            | Self::Expired
            | Self::Downgrade(_)
            | Self::Desynchronized { .. }
            | Self::Reported { .. } => None,
            Self::Malformed(malformed) => Some(malformed.code()),
            Self::Unexpected(_) | Self::Session { .. } | Self::WithdrawnInFull => {
                Some(ErrorCode::CorruptData)
            }
            Self::Version(_) => Some(ErrorCode::UnexpectedProtocolVersion),
            Self::Duplicate(_) => Some(ErrorCode::DuplicateAnnouncementReceived),
            Self::Unknown(_) => Some(ErrorCode::WithdrawalOfUnknownRecord),
            Self::TooMany(_) => Some(ErrorCode::InternalError),
        }
    }

    pub(crate) fn again(&self) -> Again {
        match self {
            Self::Downgrade(_) => Again::AtOnce,
            // What a new start mends: section 5.1 has the router begin anew.
            Self::Closed
            | Self::Stalled
            | Self::Expired
            | Self::Session { .. }
            | Self::Desynchronized { .. }
            | Self::Duplicate(_)
            | Self::Unknown(_) => Again::Soon,
            Self::Malformed(_)
            | Self::Unexpected(_)
            | Self::Version(_)
            | Self::WithdrawnInFull
            | Self::TooMany(_)
            | Self::Reported { .. } => Again::AfterRetry,
        }
    }

    /// Whether what is held may go on from where it is, with a Serial Query.
    pub(crate) fn leaves_serial(&self) -> bool {
        matches!(self, Self::Closed | Self::Stalled | Self::Downgrade(_))
    }
}

fn named(record: &Record) -> String {
    match record {
        Record::Vrp(vrp) => vrp.to_string(),
        Record::RouterKey(key) => format!("the key {} of AS{}", key.ski, key.asn),
        Record::Aspa(aspa) => format!("the ASPA of AS{}", aspa.customer()),
    }
}

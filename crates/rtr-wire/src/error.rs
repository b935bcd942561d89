//! What is wrong with a PDU, and how the other side is told.

use std::fmt;

use holdfast_types::BadMaxLength;

use crate::{PduType, Version};

/// The code of an Error Report (RFC 8210 section 12). Only [`ErrorCode::NoDataAvailable`] leaves the session alive.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub enum ErrorCode {
    /// Corrupt in a way that no other code says.
    CorruptData,
    /// A fault of the reporter itself.
    InternalError,
    /// The cache works, and has nothing to give at this time.
    NoDataAvailable,
    /// The cache takes the request for invalid.
    InvalidRequest,
    /// The version is not known.
    UnsupportedProtocolVersion,
    /// The type is not known, in this version at least.
    UnsupportedPduType,
    /// Withdrawn what was not there.
    WithdrawalOfUnknownRecord,
    /// Announced what was there already.
    DuplicateAnnouncementReceived,
    /// Another version than was agreed upon.
    UnexpectedProtocolVersion,
    /// An ASPA whose providers cannot be (8210bis section 12).
    AspaProviderListError,
    /// Any other.
    Unknown(u16),
}

impl ErrorCode {
    const KNOWN: [(Self, &str); 10] = [
        (Self::CorruptData, "Corrupt Data"),
        (Self::InternalError, "Internal Error"),
        (Self::NoDataAvailable, "No Data Available"),
        (Self::InvalidRequest, "Invalid Request"),
        (Self::UnsupportedProtocolVersion, "Unsupported Protocol Version"),
        (Self::UnsupportedPduType, "Unsupported PDU Type"),
        (Self::WithdrawalOfUnknownRecord, "Withdrawal of Unknown Record"),
        (Self::DuplicateAnnouncementReceived, "Duplicate Announcement Received"),
        (Self::UnexpectedProtocolVersion, "Unexpected Protocol Version"),
        (Self::AspaProviderListError, "ASPA Provider List Error"),
    ];

    /// As on the wire.
    pub fn number(self) -> u16 {
        match self {
            Self::Unknown(number) => number,
            known => Self::KNOWN.iter().position(|(code, _)| *code == known).unwrap_or_default() as u16,
        }
    }

    /// From the wire.
    pub fn from_number(number: u16) -> Self {
        Self::KNOWN.get(usize::from(number)).map_or(Self::Unknown(number), |(code, _)| *code)
    }
}

/// `Corrupt Data (0)`
impl fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let number = self.number();
        let name = Self::KNOWN.get(usize::from(number)).map_or("unknown error", |(_, name)| name);
        write!(f, "{name} ({number})")
    }
}

/// A PDU that cannot be read.
#[derive(Copy, Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Malformed {
    /// Shorter than a header, or longer than any PDU may be.
    #[error("a PDU of {0} octets")]
    Length(u32),
    /// Not as long as its type is.
    #[error("{kind} of {length} octets")]
    LengthOfType {
        /// What it says it is.
        kind: PduType,
        /// What it says of its length.
        length: u32,
    },
    /// Of no version that is known here.
    #[error("protocol version {0}")]
    Version(u8),
    /// Of a type that is not known.
    #[error("PDU type {0}")]
    Type(u8),
    /// Of a type that the version does not have.
    #[error("{0} in protocol version {1}")]
    TypeInVersion(PduType, Version),
    /// Longer than an address of its family.
    #[error("a prefix of {0} bits")]
    PrefixLength(u8),
    /// Outside of what its prefix permits.
    #[error(transparent)]
    MaxLength(#[from] BadMaxLength),
    /// Announced without a provider.
    #[error("an ASPA that announces no provider")]
    NoProviders,
    /// Withdrawn with providers.
    #[error("an ASPA that is withdrawn and names providers")]
    ProvidersWithdrawn,
    /// AS 0, which says that there is no provider, beside others.
    #[error("an ASPA with AS 0 beside other providers")]
    ZeroAmongProviders,
    /// Not ascending, or one of them twice.
    #[error("providers of an ASPA that do not ascend")]
    ProvidersOutOfOrder,
    /// The lengths in an Error Report do not fit into it.
    #[error("an Error Report whose parts are longer than itself")]
    ErrorReport,
}

impl Malformed {
    /// What the other side is told (RFC 8210 section 12).
    pub fn code(self) -> ErrorCode {
        match self {
            Self::Length(_)
            | Self::LengthOfType { .. }
            | Self::PrefixLength(_)
            | Self::MaxLength(_)
            | Self::ErrorReport => ErrorCode::CorruptData,
            Self::Version(_) => ErrorCode::UnsupportedProtocolVersion,
            Self::Type(_) | Self::TypeInVersion(..) => ErrorCode::UnsupportedPduType,
            Self::NoProviders
            | Self::ProvidersWithdrawn
            | Self::ZeroAmongProviders
            | Self::ProvidersOutOfOrder => ErrorCode::AspaProviderListError,
        }
    }
}

/// A PDU that cannot be written.
#[derive(Copy, Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Unwritable {
    /// The version has none of the kind.
    #[error("protocol version {0} cannot say this")]
    Version(Version),
    /// It would be longer than a PDU may be.
    #[error("longer than a PDU can be")]
    TooLong,
}

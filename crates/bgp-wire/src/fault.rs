//! What can be wrong with a path attribute, as counted, logged and shown.

use std::fmt;

use crate::{
    attribute::{code, name},
    notification::UpdateSubcode,
};

/// An error in one attribute of an UPDATE.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub struct Fault {
    /// Type code; 0 if the list broke off before one could be read.
    pub attribute: u8,
    /// What is wrong.
    pub reason: FaultReason,
}

/// What is wrong with an attribute.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub enum FaultReason {
    /// The Optional or Transitive bit is not as the attribute's RFC says.
    Flags,
    /// The length is not one that the attribute can have.
    Length,
    /// The attribute runs past the end of the list.
    Truncated,
    /// A second occurrence; the first one counts.
    Duplicate,
    /// A mandatory attribute is not there.
    Missing,
    /// ORIGIN is none of 0, 1, 2.
    UndefinedOrigin,
    /// A segment of the path is cut off, empty or of unknown type.
    MalformedSegment,
    /// AS number 0.
    AsZero,
    /// Confederation segments from a neighbour outside our confederation.
    ConfedSegment,
    /// The path from another member of our confederation does not begin with AS_CONFED_SEQUENCE.
    NoConfedSequence,
    /// AS_SET or AS_CONFED_SET, which no one may send any more.
    AsSet,
    /// The next hop can be no host's address.
    UnusableNextHop,
    /// Only for sessions inside the AS.
    ExternalNeighbor,
    /// Only from speakers with two-octet AS numbers.
    FourOctetNeighbor,
    /// Not optional, yet unknown.
    UnrecognizedWellKnown,
}

impl Fault {
    /// The subcode of RFC 4271 section 6.3, for the cases that still end the session.
    pub(crate) fn subcode(self) -> UpdateSubcode {
        match self.reason {
            FaultReason::Flags => UpdateSubcode::AttributeFlagsError,
            FaultReason::Length => UpdateSubcode::AttributeLengthError,
            FaultReason::Truncated | FaultReason::Duplicate => UpdateSubcode::MalformedAttributeList,
            FaultReason::Missing => UpdateSubcode::MissingWellKnownAttribute,
            FaultReason::UndefinedOrigin => UpdateSubcode::InvalidOriginAttribute,
            FaultReason::MalformedSegment
            | FaultReason::AsZero
            | FaultReason::ConfedSegment
            | FaultReason::NoConfedSequence
            | FaultReason::AsSet => UpdateSubcode::MalformedAsPath,
            FaultReason::UnusableNextHop => UpdateSubcode::InvalidNextHopAttribute,
            FaultReason::ExternalNeighbor | FaultReason::FourOctetNeighbor => {
                UpdateSubcode::OptionalAttributeError
            }
            FaultReason::UnrecognizedWellKnown => UpdateSubcode::UnrecognizedWellKnownAttribute,
        }
    }

    /// Where the treatment is written down.
    pub fn reference(self) -> &'static str {
        match self.reason {
            FaultReason::Flags => "RFC 7606 section 3 c",
            FaultReason::Length => length_reference(self.attribute),
            FaultReason::Truncated => "RFC 7606 section 4",
            FaultReason::Duplicate => "RFC 7606 section 3 g",
            FaultReason::Missing => "RFC 7606 section 3 d",
            FaultReason::UndefinedOrigin => "RFC 7606 section 7.1",
            FaultReason::MalformedSegment if self.attribute == code::AS4_PATH => "RFC 6793 section 6",
            FaultReason::MalformedSegment => "RFC 7606 section 7.2",
            FaultReason::AsZero => "RFC 7607 section 2",
            FaultReason::ConfedSegment if self.attribute == code::AS4_PATH => "RFC 6793 section 6",
            FaultReason::ConfedSegment | FaultReason::NoConfedSequence => "RFC 5065 section 5",
            FaultReason::AsSet => "RFC 9774",
            FaultReason::UnusableNextHop => "RFC 4271 section 6.3",
            FaultReason::ExternalNeighbor => external_reference(self.attribute),
            FaultReason::FourOctetNeighbor => "RFC 6793 section 6",
            FaultReason::UnrecognizedWellKnown => "RFC 4271 section 6.3",
        }
    }
}

fn length_reference(attribute: u8) -> &'static str {
    match attribute {
        code::ORIGIN => "RFC 7606 section 7.1",
        code::NEXT_HOP => "RFC 7606 section 7.3",
        code::MULTI_EXIT_DISC => "RFC 7606 section 7.4",
        code::LOCAL_PREF => "RFC 7606 section 7.5",
        code::ATOMIC_AGGREGATE => "RFC 7606 section 7.6",
        code::AGGREGATOR => "RFC 7606 section 7.7",
        code::COMMUNITIES => "RFC 7606 section 7.8",
        code::ORIGINATOR_ID => "RFC 7606 section 7.9",
        code::CLUSTER_LIST => "RFC 7606 section 7.10",
        code::EXTENDED_COMMUNITIES => "RFC 7606 section 7.14",
        code::IPV6_EXTENDED_COMMUNITIES => "RFC 7606 section 7.15",
        code::AS4_PATH | code::AS4_AGGREGATOR => "RFC 6793 section 6",
        code::LARGE_COMMUNITIES => "RFC 8092 section 6",
        code::ONLY_TO_CUSTOMER => "RFC 9234 section 5",
        _ => "RFC 7606 section 4",
    }
}

fn external_reference(attribute: u8) -> &'static str {
    match attribute {
        code::ORIGINATOR_ID => "RFC 7606 section 7.9",
        code::CLUSTER_LIST => "RFC 7606 section 7.10",
        _ => "RFC 7606 section 7.5",
    }
}

impl fmt::Display for FaultReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Flags => "wrong Optional or Transitive flag",
            Self::Length => "wrong length",
            Self::Truncated => "runs past the end of the attributes",
            Self::Duplicate => "appears more than once",
            Self::Missing => "is missing",
            Self::UndefinedOrigin => "undefined value",
            Self::MalformedSegment => "malformed segment",
            Self::AsZero => "AS number 0",
            Self::ConfedSegment => "confederation segment from outside the confederation",
            Self::NoConfedSequence => "does not begin with AS_CONFED_SEQUENCE",
            Self::AsSet => "contains an AS_SET",
            Self::UnusableNextHop => "next hop is not the address of a host",
            Self::ExternalNeighbor => "not allowed from an external neighbor",
            Self::FourOctetNeighbor => "not allowed from a neighbor with four-octet AS numbers",
            Self::UnrecognizedWellKnown => "well-known but not recognized",
        })
    }
}

/// `AS_PATH: AS number 0 (RFC 7607 section 2)`.
impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match name(self.attribute) {
            Some(name) => f.write_str(name)?,
            None if self.attribute == 0 => f.write_str("attribute list")?,
            None => write!(f, "attribute {}", self.attribute)?,
        }
        write!(f, ": {} ({})", self.reason, self.reference())
    }
}

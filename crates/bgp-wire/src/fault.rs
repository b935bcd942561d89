//! What can be wrong with a path attribute, as counted, logged and shown.

use std::fmt;

use holdfast_bgpsec_wire::Refused;

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
    /// The session has not agreed on it for the family.
    NotNegotiated,
    /// BGPsec_PATH is not taken.
    Bgpsec(PathFault),
}

/// Why a BGPsec_PATH is not taken, before any signature is looked at (RFC 8205 section 5.2).
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub enum PathFault {
    /// It cannot be read.
    Malformed,
    /// It has AS number 0.
    AsZero,
    /// Its newest segment is of another AS than the peer.
    NotThePeer,
    /// There is an AS_PATH beside it.
    AsPath,
    /// It has a segment of a confederation, and the peer is in none of ours.
    ConfedSegment,
    /// The peer is in our confederation, and its segment does not say so.
    NoConfedSegment,
    /// The peer leaves itself out of the path, which it may not.
    PcountZero,
    /// Our AS is in it.
    Loop,
    /// A route outside MP_REACH_NLRI.
    OutsideMpReach,
    /// Not exactly one route.
    Routes,
    /// More segments than are looked at.
    TooManyHops,
    /// It stands for a longer AS_PATH than is taken.
    TooLong,
}

impl From<Refused> for PathFault {
    fn from(refused: Refused) -> Self {
        match refused {
            Refused::NotThePeer { .. } => Self::NotThePeer,
            Refused::AsPath => Self::AsPath,
            Refused::ConfedSegment => Self::ConfedSegment,
            Refused::NoConfedSegment => Self::NoConfedSegment,
            Refused::PcountZero => Self::PcountZero,
            Refused::Loop(_) => Self::Loop,
            Refused::OutsideMpReach => Self::OutsideMpReach,
            Refused::Routes(_) => Self::Routes,
            Refused::TooManyHops { .. } => Self::TooManyHops,
            Refused::TooLong { .. } => Self::TooLong,
        }
    }
}

impl fmt::Display for PathFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Malformed => "malformed",
            Self::AsZero => "AS number 0",
            Self::NotThePeer => "the newest segment is not of the neighbor's AS",
            Self::AsPath => "there is an AS_PATH as well",
            Self::ConfedSegment => "confederation segment from outside the confederation",
            Self::NoConfedSegment => "the newest segment has no Confed_Segment flag",
            Self::PcountZero => "pCount 0 from a neighbor that is not configured to send it",
            Self::Loop => "contains our AS",
            Self::OutsideMpReach => "a route outside MP_REACH_NLRI",
            Self::Routes => "not exactly one route",
            Self::TooManyHops => "more segments than are allowed",
            Self::TooLong => "a higher sum of pCounts than is allowed",
        })
    }
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
            FaultReason::ExternalNeighbor
            | FaultReason::FourOctetNeighbor
            | FaultReason::NotNegotiated
            | FaultReason::Bgpsec(_) => UpdateSubcode::OptionalAttributeError,
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
            FaultReason::NotNegotiated => "RFC 8205 section 2.2",
            FaultReason::Bgpsec(PathFault::AsZero) => "RFC 7607 section 2",
            FaultReason::Bgpsec(PathFault::OutsideMpReach | PathFault::Routes) => "RFC 8205 section 4.1",
            FaultReason::Bgpsec(_) => "RFC 8205 section 5.2",
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
            Self::Bgpsec(fault) => return fault.fmt(f),
            Self::NotNegotiated => "not negotiated",
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

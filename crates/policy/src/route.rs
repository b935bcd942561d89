//! What a program may ask about a route.

use std::{fmt, net::IpAddr, str::FromStr};

use holdfast_types::{Asn, Prefix};
use serde::{Deserialize, Serialize};

use crate::text::as_text;

/// A route as policy sees it. Implemented by each protocol for its own routes; everything is borrowed,
/// so that evaluating a program allocates nothing.
pub trait Route {
    /// Where the route leads.
    fn prefix(&self) -> Prefix;
    /// The AS path from the nearest AS to the origin; empty for a route of our own AS.
    fn as_path(&self) -> impl Iterator<Item = PathElement>;
    /// Length of the AS path as the decision counts it: a set is one, confederation segments are none.
    fn as_path_length(&self) -> u32;
    /// ORIGIN.
    fn origin(&self) -> Origin;
    /// MULTI_EXIT_DISC.
    fn med(&self) -> Option<u32>;
    /// LOCAL_PREF.
    fn local_pref(&self) -> Option<u32>;
    /// The next hop; `None` where the route names only an interface or is our own.
    fn next_hop(&self) -> Option<IpAddr>;
    /// Communities (RFC 1997).
    fn communities(&self) -> impl Iterator<Item = u32>;
    /// Large communities (RFC 8092).
    fn large_communities(&self) -> impl Iterator<Item = (u32, u32, u32)>;
    /// Extended communities (RFC 4360), type octet first.
    fn ext_communities(&self) -> impl Iterator<Item = u64>;
    /// The AS of the peer: the sender on import, the receiver on export.
    fn peer_asn(&self) -> Option<Asn>;
    /// Who brought the route.
    fn protocol(&self) -> Protocol;
    /// The tag that the route carries between protocols.
    fn tag(&self) -> Option<u32>;
    /// The interface that the route names, with or without a next hop.
    fn interface(&self) -> Option<&str> {
        None
    }
    /// The metric that the route has in the routing table. `None` for what has none there, and always for routes
    /// whose metric may change without anything being evaluated again.
    fn metric(&self) -> Option<u32> {
        None
    }
    /// What origin validation says (RFC 6811).
    fn validity(&self) -> Validity {
        Validity::NotFound
    }
    /// What the providers of the ASes in the path say of it (ASPA).
    fn aspa(&self) -> PathValidity {
        PathValidity::Unknown
    }
    /// What the signatures of the path say of it (RFC 8205).
    fn bgpsec(&self) -> PathSecurity {
        PathSecurity::Unsigned
    }
}

/// One AS number of an AS path, with the kind of segment it stands in (RFC 4271 section 4.3, RFC 5065).
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum PathElement {
    /// Of an AS_SEQUENCE.
    Sequence(Asn),
    /// Of an AS_SET.
    Set(Asn),
    /// Of an AS_CONFED_SEQUENCE: no part of the path that policy sees.
    ConfedSequence(Asn),
    /// Of an AS_CONFED_SET: no part of the path that policy sees.
    ConfedSet(Asn),
}

/// ORIGIN (RFC 4271 section 5.1.1), best first.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Origin {
    /// Interior to the originating AS.
    Igp,
    /// Learned by EGP.
    Egp,
    /// By other means.
    Incomplete,
}

/// Who brought a route. Written `bgp`, `static`, `connected`, or as the protocol calls itself.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub enum Protocol {
    /// A BGP peer.
    Bgp,
    /// Configuration.
    Static,
    /// An interface's address.
    Connected,
    /// A protocol this crate does not know.
    Other(ProtocolName),
}

/// The name of a protocol: 1 to 15 of `a` to `z`, `0` to `9`, `-` and `_`.
#[derive(Copy, Clone, PartialEq, Eq, Hash)]
pub struct ProtocolName([u8; 15]);

/// The text is no name of a protocol.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no name of a protocol: expected 1 to 15 of a-z, 0-9, - and _")]
pub struct ParseProtocolError(String);

impl FromStr for ProtocolName {
    type Err = ParseProtocolError;

    fn from_str(text: &str) -> Result<Self, ParseProtocolError> {
        let mut name = [0; 15];
        let fits = |octet: &u8| matches!(octet, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_');
        match name.get_mut(..text.len()) {
            Some(place) if !text.is_empty() && text.bytes().all(|octet| fits(&octet)) => {
                place.copy_from_slice(text.as_bytes());
                Ok(Self(name))
            }
            Some(_) | None => Err(ParseProtocolError(text.to_owned())),
        }
    }
}

impl fmt::Display for ProtocolName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().take_while(|octet| **octet != 0).try_for_each(|octet| write!(f, "{}", *octet as char))
    }
}

impl fmt::Debug for ProtocolName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ProtocolName({self})")
    }
}

/// What is known of a route's right to its origin AS (RFC 6811 section 2).
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Validity {
    /// An authorization covers it.
    Valid,
    /// Authorizations cover its prefix, and none of them this route.
    Invalid,
    /// No authorization covers its prefix; also where nobody validates.
    NotFound,
}

/// What is known of a path by who provides for whom (draft-ietf-sidrops-aspa-verification).
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PathValidity {
    /// Every AS in it has said so.
    Valid,
    /// An AS in it has said otherwise, or it is no path that can be verified.
    Invalid,
    /// Not all have said anything; also where nobody verifies.
    Unknown,
}

/// What is known of the signatures of a path (RFC 8205 section 5).
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PathSecurity {
    /// There are none, or none of an algorithm suite that is known; also where nobody looks at them.
    #[default]
    Unsigned,
    /// They have not been verified yet.
    Unverified,
    /// All signatures of a block are good.
    Valid,
    /// In each block of a suite that is known, one is not.
    NotValid,
}

/// A word that is none of those allowed in its place.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not one of {expected}")]
pub struct UnknownWordError {
    text: String,
    expected: &'static str,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Igp => "igp",
            Self::Egp => "egp",
            Self::Incomplete => "incomplete",
        })
    }
}

impl FromStr for Origin {
    type Err = UnknownWordError;

    fn from_str(text: &str) -> Result<Self, UnknownWordError> {
        match text {
            "igp" => Ok(Self::Igp),
            "egp" => Ok(Self::Egp),
            "incomplete" => Ok(Self::Incomplete),
            _ => Err(UnknownWordError { text: text.to_owned(), expected: "igp, egp, incomplete" }),
        }
    }
}

impl FromStr for Protocol {
    type Err = ParseProtocolError;

    fn from_str(text: &str) -> Result<Self, ParseProtocolError> {
        match text {
            "bgp" => Ok(Self::Bgp),
            "static" => Ok(Self::Static),
            "connected" => Ok(Self::Connected),
            _ => text.parse().map(Self::Other),
        }
    }
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bgp => f.write_str("bgp"),
            Self::Static => f.write_str("static"),
            Self::Connected => f.write_str("connected"),
            Self::Other(name) => name.fmt(f),
        }
    }
}

as_text!(Protocol);

impl fmt::Display for Validity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Valid => "valid",
            Self::Invalid => "invalid",
            Self::NotFound => "not-found",
        })
    }
}

impl FromStr for Validity {
    type Err = UnknownWordError;

    fn from_str(text: &str) -> Result<Self, UnknownWordError> {
        match text {
            "valid" => Ok(Self::Valid),
            "invalid" => Ok(Self::Invalid),
            "not-found" => Ok(Self::NotFound),
            _ => Err(UnknownWordError { text: text.to_owned(), expected: "valid, invalid, not-found" }),
        }
    }
}

impl fmt::Display for PathValidity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Valid => "valid",
            Self::Invalid => "invalid",
            Self::Unknown => "unknown",
        })
    }
}

impl FromStr for PathValidity {
    type Err = UnknownWordError;

    fn from_str(text: &str) -> Result<Self, UnknownWordError> {
        match text {
            "valid" => Ok(Self::Valid),
            "invalid" => Ok(Self::Invalid),
            "unknown" => Ok(Self::Unknown),
            _ => Err(UnknownWordError { text: text.to_owned(), expected: "valid, invalid, unknown" }),
        }
    }
}

impl fmt::Display for PathSecurity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Unsigned => "unsigned",
            Self::Unverified => "unverified",
            Self::Valid => "valid",
            Self::NotValid => "not-valid",
        })
    }
}

impl FromStr for PathSecurity {
    type Err = UnknownWordError;

    fn from_str(text: &str) -> Result<Self, UnknownWordError> {
        match text {
            "unsigned" => Ok(Self::Unsigned),
            "unverified" => Ok(Self::Unverified),
            "valid" => Ok(Self::Valid),
            "not-valid" => Ok(Self::NotValid),
            _ => Err(UnknownWordError {
                text: text.to_owned(),
                expected: "valid, not-valid, unverified, unsigned",
            }),
        }
    }
}

/// The path as it is printed, without confederation segments: `65001 65002 {65003,65004}`.
///
/// # Errors
/// Those of the writer.
pub fn write_path(path: impl Iterator<Item = PathElement>, out: &mut impl fmt::Write) -> fmt::Result {
    let (mut begun, mut in_set) = (false, false);
    for element in path {
        let (asn, set) = match element {
            PathElement::Sequence(asn) => (asn, false),
            PathElement::Set(asn) => (asn, true),
            PathElement::ConfedSequence(_) | PathElement::ConfedSet(_) => continue,
        };
        out.write_str(match (begun, in_set, set) {
            (false, _, false) => "",
            (false, _, true) => "{",
            (true, false, false) => " ",
            (true, false, true) => " {",
            (true, true, false) => "} ",
            (true, true, true) => ",",
        })?;
        (begun, in_set) = (true, set);
        write!(out, "{asn}")?;
    }
    out.write_str(if in_set { "}" } else { "" })
}

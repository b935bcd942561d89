//! What a program may ask about a route.

use std::{fmt, net::IpAddr, str::FromStr};

use holdfast_types::{Asn, Prefix};
use serde::{Deserialize, Serialize};

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

/// Who brought a route.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Protocol {
    /// A BGP peer.
    Bgp,
    /// Configuration.
    Static,
    /// An interface's address.
    Connected,
    /// A protocol this crate has no name for, by the number its process chose.
    Other(u32),
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
    type Err = UnknownWordError;

    fn from_str(text: &str) -> Result<Self, UnknownWordError> {
        match text {
            "bgp" => Ok(Self::Bgp),
            "static" => Ok(Self::Static),
            "connected" => Ok(Self::Connected),
            _ => Err(UnknownWordError { text: text.to_owned(), expected: "bgp, static, connected" }),
        }
    }
}

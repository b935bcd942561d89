//! Address families (RFC 4760).

use std::{fmt, str::FromStr};

/// Address family identifier, as numbered by IANA.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Afi(pub u16);

impl Afi {
    /// IPv4.
    pub const IPV4: Self = Self(1);
    /// IPv6.
    pub const IPV6: Self = Self(2);
}

/// Subsequent address family identifier, as numbered by IANA.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Safi(pub u8);

impl Safi {
    /// Unicast forwarding.
    pub const UNICAST: Self = Self(1);
}

/// A pair of AFI and SAFI: what a session negotiates and a table holds.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Family {
    /// Address family.
    pub afi: Afi,
    /// Subsequent address family.
    pub safi: Safi,
}

impl Family {
    /// IPv4 unicast.
    pub const IPV4_UNICAST: Self = Self { afi: Afi::IPV4, safi: Safi::UNICAST };
    /// IPv6 unicast.
    pub const IPV6_UNICAST: Self = Self { afi: Afi::IPV6, safi: Safi::UNICAST };
    /// Every family that this version routes.
    pub const ALL: [Self; 2] = [Self::IPV4_UNICAST, Self::IPV6_UNICAST];

    /// The name used in configuration and output; `None` for a family we only know by number.
    pub fn name(self) -> Option<&'static str> {
        match self {
            Self::IPV4_UNICAST => Some("ipv4-unicast"),
            Self::IPV6_UNICAST => Some("ipv6-unicast"),
            _ => None,
        }
    }
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.pad(name),
            None => write!(f, "afi-{}-safi-{}", self.afi.0, self.safi.0),
        }
    }
}

/// The text names no family.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no address family: expected ipv4-unicast or ipv6-unicast")]
pub struct ParseFamilyError(String);

impl FromStr for Family {
    type Err = ParseFamilyError;

    fn from_str(text: &str) -> Result<Self, ParseFamilyError> {
        let found = Self::ALL.into_iter().find(|family| family.name() == Some(text));
        found.ok_or_else(|| ParseFamilyError(text.to_owned()))
    }
}

//! MP_REACH_NLRI and MP_UNREACH_NLRI (RFC 4760), with the next hops of RFC 2545 and RFC 8950.

use std::{
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

use holdfast_types::{Afi, Family, Ipv4Prefix, Ipv6Prefix, Safi};

use crate::{
    Notification,
    attribute::{code, flag, push},
    nlri,
    notification::UpdateSubcode,
    update::{FamilySet, Rules},
};

/// A next hop as carried.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum NextHop {
    /// IPv4.
    V4(Ipv4Addr),
    /// IPv6 (RFC 2545 section 3).
    V6 {
        /// Of global scope; some speakers put the link-local one here.
        global: Ipv6Addr,
        /// Present if both speakers and the next hop share a link.
        link_local: Option<Ipv6Addr>,
    },
}

impl NextHop {
    /// The address that the route is resolved by.
    pub fn address(self) -> IpAddr {
        match self {
            Self::V4(address) => address.into(),
            Self::V6 { global, link_local } if global.is_unspecified() => link_local.unwrap_or(global).into(),
            Self::V6 { global, .. } => global.into(),
        }
    }

    /// Whether it can be the address of a host at all (RFC 4271 section 6.3).
    pub fn is_usable(self) -> bool {
        match self.address() {
            IpAddr::V4(address) => usable_v4(address),
            IpAddr::V6(address) => {
                !(address.is_unspecified() || address.is_loopback() || address.is_multicast())
            }
        }
    }

    fn parse(octets: &[u8]) -> Option<Self> {
        match octets.len() {
            4 => Some(Self::V4(Ipv4Addr::from(*octets.first_chunk::<4>()?))),
            16 | 32 => {
                let address = |octets: &[u8; 16]| Ipv6Addr::from(*octets);
                let (global, rest) = octets.split_first_chunk()?;
                let link_local = rest.first_chunk().map(address).filter(Ipv6Addr::is_unicast_link_local);
                Some(Self::V6 { global: address(global), link_local })
            }
            _ => None,
        }
    }

    /// Appends it, without a length.
    pub fn push(self, out: &mut Vec<u8>) {
        match self {
            Self::V4(address) => out.extend_from_slice(&address.octets()),
            Self::V6 { global, link_local } => {
                out.extend_from_slice(&global.octets());
                if let Some(address) = link_local {
                    out.extend_from_slice(&address.octets());
                }
            }
        }
    }

    /// Puts it in the place of another of the same length, at the front of these octets.
    ///
    /// # Panics
    /// There are fewer octets than it takes.
    pub fn put(self, octets: &mut [u8]) {
        match self {
            Self::V4(address) => octets[..4].copy_from_slice(&address.octets()),
            Self::V6 { global, link_local } => {
                octets[..16].copy_from_slice(&global.octets());
                if let Some(address) = link_local {
                    octets[16..32].copy_from_slice(&address.octets());
                }
            }
        }
    }

    /// How many octets it takes.
    pub fn octets(self) -> u8 {
        match self {
            Self::V4(_) => 4,
            Self::V6 { link_local: None, .. } => 16,
            Self::V6 { link_local: Some(_), .. } => 32,
        }
    }
}

impl fmt::Display for NextHop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::V6 { global, link_local: Some(address) } => write!(f, "{global} ({address})"),
            Self::V4(_) | Self::V6 { link_local: None, .. } => self.address().fmt(f),
        }
    }
}

/// This network, loopback, multicast and the reserved end of the space name no host.
pub(crate) fn usable_v4(address: Ipv4Addr) -> bool {
    let first = address.octets()[0];
    first != 0 && first != 127 && first < 224
}

/// The value of an MP_REACH_NLRI.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct MpReach<'a> {
    /// Whose routes these are; maybe a family that the session has not negotiated: ignore it then.
    pub family: Family,
    /// `None` if the next hop can be no host's address, or the family is none of [`Family::ALL`]: the routes
    /// are to be treated as withdrawn.
    pub next_hop: Option<NextHop>,
    /// Prefixes, checked for the families of [`Family::ALL`]: [`nlri::prefixes`] reads them to their end, or
    /// [`nlri::identified`] where the rules say that they have path identifiers.
    pub nlri: &'a [u8],
}

/// The value of an MP_UNREACH_NLRI.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct MpUnreach<'a> {
    /// Whose routes these are; maybe a family that the session has not negotiated: ignore it then.
    pub family: Family,
    /// Prefixes, checked as in [`MpReach::nlri`]. None at all is the family's End-of-RIB if the UPDATE has
    /// nothing else (RFC 4724 section 2).
    pub nlri: &'a [u8],
}

impl<'a> MpReach<'a> {
    /// Reads a value.
    ///
    /// # Errors
    /// The prefixes cannot be located, so the session must end (RFC 7606 sections 5.3 and 7.11).
    pub fn parse(value: &'a [u8], rules: &Rules) -> Result<Self, Notification> {
        let error = || malformed(code::MP_REACH_NLRI, value);
        let (family, rest) = split_family(value).ok_or_else(error)?;
        let (&len, rest) = rest.split_first().ok_or_else(error)?;
        let (next_hop, rest) = rest.split_at_checked(usize::from(len)).ok_or_else(error)?;
        // A reserved octet follows, which is ignored.
        let (_, nlri) = rest.split_first().ok_or_else(error)?;
        if !expected_length(family, len, rules) || !sound(family, nlri, rules) {
            return Err(error());
        }
        let next_hop = known(family).then(|| NextHop::parse(next_hop)).flatten();
        Ok(Self { family, next_hop: next_hop.filter(|next_hop| next_hop.is_usable()), nlri })
    }

    /// How many routes there are, in the families of [`Family::ALL`]; 0 in others.
    pub(crate) fn routes(&self, identifiers: FamilySet) -> usize {
        let count = match (self.family, identifiers.of(self.family)) {
            (Family::IPV4_UNICAST, false) => nlri::count::<Ipv4Prefix>,
            (Family::IPV4_UNICAST, true) => nlri::count_identified::<Ipv4Prefix>,
            (Family::IPV6_UNICAST, false) => nlri::count::<Ipv6Prefix>,
            (Family::IPV6_UNICAST, true) => nlri::count_identified::<Ipv6Prefix>,
            _ => return 0,
        };
        count(self.nlri).unwrap_or(0)
    }
}

impl<'a> MpUnreach<'a> {
    /// Reads a value.
    ///
    /// # Errors
    /// The prefixes cannot be read, so the session must end (RFC 7606 section 5.3).
    pub fn parse(value: &'a [u8], rules: &Rules) -> Result<Self, Notification> {
        let read = split_family(value).filter(|(family, nlri)| sound(*family, nlri, rules));
        let (family, nlri) = read.ok_or_else(|| malformed(code::MP_UNREACH_NLRI, value))?;
        Ok(Self { family, nlri })
    }
}

/// RFC 4271 section 6.3: the data are the attribute, with its header.
fn malformed(code: u8, value: &[u8]) -> Notification {
    let mut attribute = Vec::new();
    push(&mut attribute, flag::OPTIONAL, code, value);
    Notification::update(UpdateSubcode::OptionalAttributeError, &attribute)
}

fn split_family(value: &[u8]) -> Option<(Family, &[u8])> {
    let (&[high, low, safi], rest) = value.split_first_chunk()?;
    Some((Family { afi: Afi(u16::from_be_bytes([high, low])), safi: Safi(safi) }, rest))
}

fn known(family: Family) -> bool {
    Family::ALL.contains(&family)
}

/// RFC 7606 section 7.11: the next hop length decides where the prefixes begin.
fn expected_length(family: Family, len: u8, rules: &Rules) -> bool {
    match family {
        Family::IPV4_UNICAST => len == 4 || rules.extended_next_hop && matches!(len, 16 | 32),
        Family::IPV6_UNICAST => matches!(len, 16 | 32),
        _ => true,
    }
}

/// Whether the prefixes can be read; those of a family we do not know are not looked at.
fn sound(family: Family, nlri: &[u8], rules: &Rules) -> bool {
    match (family, rules.identifiers.of(family)) {
        (Family::IPV4_UNICAST, false) => nlri::count::<Ipv4Prefix>(nlri).is_ok(),
        (Family::IPV4_UNICAST, true) => nlri::count_identified::<Ipv4Prefix>(nlri).is_ok(),
        (Family::IPV6_UNICAST, false) => nlri::count::<Ipv6Prefix>(nlri).is_ok(),
        (Family::IPV6_UNICAST, true) => nlri::count_identified::<Ipv6Prefix>(nlri).is_ok(),
        _ => true,
    }
}

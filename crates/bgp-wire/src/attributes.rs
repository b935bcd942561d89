//! Read views over attribute bytes, meant for canonical ones: ascending, four-octet AS numbers, checked.
//! Over other bytes they find less, but never panic.

use std::{fmt, net::Ipv4Addr};

use holdfast_types::{Asn, RouterId};

use crate::{
    as_path::AsPath,
    attribute::{Attribute, Walk, class, code},
};

/// ORIGIN (RFC 4271 section 5.1.1). Lower is preferred.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[allow(missing_docs, reason = "the names are the RFC's")]
pub enum Origin {
    Igp,
    Egp,
    Incomplete,
}

impl fmt::Display for Origin {
    /// As configuration and FRR write it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Igp => "IGP",
            Self::Egp => "EGP",
            Self::Incomplete => "incomplete",
        })
    }
}

impl Origin {
    pub(crate) fn from_octet(octet: u8) -> Option<Self> {
        match octet {
            0 => Some(Self::Igp),
            1 => Some(Self::Egp),
            2 => Some(Self::Incomplete),
            _ => None,
        }
    }
}

/// Values of COMMUNITIES that every speaker obeys (RFC 1997, RFC 3765, RFC 7999, RFC 8326, RFC 9494).
#[allow(missing_docs, reason = "the names are the RFCs'")]
pub mod community {
    pub const GRACEFUL_SHUTDOWN: u32 = 0xffff_0000;
    pub const LLGR_STALE: u32 = 0xffff_0006;
    pub const NO_LLGR: u32 = 0xffff_0007;
    pub const BLACKHOLE: u32 = 0xffff_029a;
    pub const NO_EXPORT: u32 = 0xffff_ff01;
    pub const NO_ADVERTISE: u32 = 0xffff_ff02;
    pub const NO_EXPORT_SUBCONFED: u32 = 0xffff_ff03;
    pub const NO_PEER: u32 = 0xffff_ff04;
}

/// A list of attributes in canonical form ([`crate::update::Checked::canonical`]).
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Attributes<'a>(pub &'a [u8]);

impl<'a> Attributes<'a> {
    /// All attributes in order.
    pub fn iter(self) -> impl Iterator<Item = Attribute<'a>> + Clone {
        Walk(self.0).map_while(Result::ok)
    }

    /// The attribute of a type code. The search ends at the first greater code.
    #[inline]
    pub fn get(self, code: u8) -> Option<Attribute<'a>> {
        self.iter().find(|attribute| attribute.code >= code).filter(|attribute| attribute.code == code)
    }

    fn value(self, code: u8) -> Option<&'a [u8]> {
        self.get(code).map(|attribute| attribute.value)
    }

    fn number(self, code: u8) -> Option<u32> {
        self.value(code)?.try_into().ok().map(u32::from_be_bytes)
    }

    /// The values of a list attribute; an incomplete last one is left out.
    fn values<const N: usize>(self, code: u8) -> &'a [[u8; N]] {
        self.value(code).unwrap_or_default().as_chunks().0
    }

    /// ORIGIN.
    pub fn origin(self) -> Option<Origin> {
        Origin::from_octet(*self.value(code::ORIGIN)?.first()?)
    }

    /// AS_PATH; empty if there is none.
    pub fn as_path(self) -> AsPath<'a> {
        AsPath(self.value(code::AS_PATH).unwrap_or_default())
    }

    /// NEXT_HOP: that of the NLRI field, not of MP_REACH_NLRI.
    pub fn next_hop(self) -> Option<Ipv4Addr> {
        self.number(code::NEXT_HOP).map(Ipv4Addr::from_bits)
    }

    /// MULTI_EXIT_DISC.
    pub fn med(self) -> Option<u32> {
        self.number(code::MULTI_EXIT_DISC)
    }

    /// LOCAL_PREF.
    pub fn local_pref(self) -> Option<u32> {
        self.number(code::LOCAL_PREF)
    }

    /// Whether ATOMIC_AGGREGATE is there.
    pub fn atomic_aggregate(self) -> bool {
        self.get(code::ATOMIC_AGGREGATE).is_some()
    }

    /// AGGREGATOR: the AS that aggregated and the speaker that did.
    pub fn aggregator(self) -> Option<(Asn, Ipv4Addr)> {
        let value: [u8; 8] = self.value(code::AGGREGATOR)?.try_into().ok()?;
        let [asn, address] = *value.as_chunks::<4>().0 else { return None };
        Some((Asn(u32::from_be_bytes(asn)), Ipv4Addr::from(address)))
    }

    /// COMMUNITIES (RFC 1997).
    pub fn communities(self) -> impl ExactSizeIterator<Item = u32> + Clone {
        self.values::<4>(code::COMMUNITIES).iter().map(|octets| u32::from_be_bytes(*octets))
    }

    /// EXTENDED_COMMUNITIES (RFC 4360).
    pub fn ext_communities(self) -> impl ExactSizeIterator<Item = [u8; 8]> + Clone {
        self.values::<8>(code::EXTENDED_COMMUNITIES).iter().copied()
    }

    /// LARGE_COMMUNITIES (RFC 8092): Global Administrator and the two Local Data Parts.
    pub fn large_communities(self) -> impl ExactSizeIterator<Item = (u32, u32, u32)> + Clone {
        let part = |octets: &[u8; 12], at: usize| {
            u32::from_be_bytes([octets[at], octets[at + 1], octets[at + 2], octets[at + 3]])
        };
        let values = self.values::<12>(code::LARGE_COMMUNITIES).iter();
        values.map(move |octets| (part(octets, 0), part(octets, 4), part(octets, 8)))
    }

    /// ORIGINATOR_ID (RFC 4456).
    pub fn originator_id(self) -> Option<RouterId> {
        self.number(code::ORIGINATOR_ID).and_then(RouterId::new)
    }

    /// CLUSTER_LIST (RFC 4456), the nearest cluster first.
    pub fn cluster_list(self) -> impl ExactSizeIterator<Item = u32> + Clone {
        self.values::<4>(code::CLUSTER_LIST).iter().map(|octets| u32::from_be_bytes(*octets))
    }

    /// ONLY_TO_CUSTOMER (RFC 9234): the AS after which the route goes to customers only.
    pub fn only_to_customer(self) -> Option<Asn> {
        self.number(code::ONLY_TO_CUSTOMER).map(Asn)
    }

    /// Attributes that this crate does not read.
    pub fn unknown(self) -> impl Iterator<Item = Attribute<'a>> + Clone {
        self.iter().filter(|attribute| class(attribute.code).is_none())
    }
}

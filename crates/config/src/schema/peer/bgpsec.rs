//! BGPsec on a session, and what the signatures of paths mean.

use std::marker::PhantomData;

use holdfast_types::Family;

use crate::keyed::{Flag, SomeOf, keys, number, words};

keys! {
    /// BGPsec with a peer (RFC 8205): what is offered in the OPEN, and what is looked at before any signature.
    pub struct Bgpsec {
        "send" send: bool = Flag(false), Session, "send signed paths to the neighbour, if it takes them";
        "receive" receive: bool = Flag(false), Session, "take signed paths from the neighbour, if it sends them";
        "families" families: Vec<BgpsecFamily> = SomeOf::<BgpsecFamily>(PhantomData, "those of the session"), Session, "in which";
        "require-session" require_session: bool = Flag(false), Session, "no session with a neighbour that does not agree on all that is switched on here";
        "pcount-zero" pcount_zero: bool = Flag(false), Session, "it may leave itself out of the path (pCount 0): a route server, or an AS that migrates (RFC 8206)";
        "repeated-prefix" repeated_prefix: bool = Flag(false), Session, "it may repeat the prefix of a signed path in the field of IPv4 prefixes, as BIRD with patches for BGPsec does";
        "most-hops" most_hops: u16 = number!(1..=654, 64), Session, "signatures of a path; a longer one is treated as withdrawn";
        "most-pcount" most_pcount: u16 = number!(1..=16000, 1000), Session, "AS numbers that a path may stand for; a longer one is treated as withdrawn";
    }
}

words! {
    /// A family that BGPsec is for: unicast (RFC 8205 section 2.1).
    pub enum BgpsecFamily = Ipv4 "ipv4" {
        /// IPv4.
        Ipv4 = "ipv4",
        /// IPv6.
        Ipv6 = "ipv6",
    }
}

impl BgpsecFamily {
    /// The family.
    pub fn family(self) -> Family {
        match self {
            Self::Ipv4 => Family::IPV4_UNICAST,
            Self::Ipv6 => Family::IPV6_UNICAST,
        }
    }
}

impl Bgpsec {
    /// Whether it is switched on, in some direction.
    pub fn is_on(&self) -> bool {
        self.send || self.receive
    }

    /// Whether it is meant for a family of the session.
    pub fn has(&self, family: Family) -> bool {
        self.families.is_empty() || self.families.iter().any(|of| of.family() == family)
    }
}

//! RIPv2 and RIPng, as far as they differ for the process.

use std::net::IpAddr;

use holdfast_rip::{InterfaceAddress, Protocol, Ripng, Ripv2};
use holdfast_rip_wire::Credentials;
use holdfast_routing::LinkAddress;
use holdfast_types::{Ipv4Prefix, Ipv6Prefix, Prefix};

use crate::section::Family;

/// One of the two.
pub(crate) trait Version: Protocol<Prefix: Into<Prefix>> {
    const FAMILY: Family;
    const IS_IPV6: bool;
    /// As operators call it.
    const VERSION_NAME: &'static str;

    /// An address, if it is of this version.
    fn address(address: IpAddr) -> Option<Self::Address>;

    /// A prefix, if it is of this version.
    fn prefix(prefix: Prefix) -> Option<Self::Prefix>;

    /// What authenticates its messages, of what authenticates those of RIPv2.
    fn credentials(of_ripv2: Option<Credentials>) -> Option<Self::Credentials>;

    /// The address of an interface, and its network.
    fn own(own: LinkAddress) -> Option<InterfaceAddress<Self>> {
        Some(InterfaceAddress { address: Self::address(own.address)?, network: Self::prefix(own.network)? })
    }
}

impl Version for Ripv2 {
    const FAMILY: Family = Family::Ipv4;
    const IS_IPV6: bool = false;
    const VERSION_NAME: &'static str = "RIPv2";

    fn address(address: IpAddr) -> Option<Self::Address> {
        match address {
            IpAddr::V4(address) => Some(address),
            IpAddr::V6(_) => None,
        }
    }

    fn prefix(prefix: Prefix) -> Option<Ipv4Prefix> {
        match prefix {
            Prefix::V4(prefix) => Some(prefix),
            Prefix::V6(_) => None,
        }
    }

    fn credentials(of_ripv2: Option<Credentials>) -> Option<Credentials> {
        of_ripv2
    }
}

impl Version for Ripng {
    const FAMILY: Family = Family::Ipv6;
    const IS_IPV6: bool = true;
    const VERSION_NAME: &'static str = "RIPng";

    fn address(address: IpAddr) -> Option<Self::Address> {
        match address {
            IpAddr::V4(_) => None,
            IpAddr::V6(address) => Some(address),
        }
    }

    fn prefix(prefix: Prefix) -> Option<Ipv6Prefix> {
        match prefix {
            Prefix::V4(_) => None,
            Prefix::V6(prefix) => Some(prefix),
        }
    }

    fn credentials(_: Option<Credentials>) -> Option<Self::Credentials> {
        None
    }
}

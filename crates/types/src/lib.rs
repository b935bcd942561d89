//! Vocabulary of routing: prefixes, AS numbers, router identifiers, families.
//!
//! Values only: parse, print, order, hash. Nothing here knows a protocol, a socket or a clock. Start with
//! [`Prefix`] and its two typed forms [`Ipv4Prefix`] and [`Ipv6Prefix`]; tables are generic over
//! [`IpPrefix`].

mod address;
mod asn;
mod family;
mod hash;
mod ip_protocol;
mod prefix;
mod role;
mod rpki;
mod text;

pub use address::{address, octets};
pub use asn::{AS_TRANS, Asn, ParseAsnError, ParseRouterIdError, RouterId};
pub use family::{Afi, Family, ParseFamilyError, Safi};
pub use hash::{HashKey, KeyedHasher};
pub use ip_protocol::is_for_routing;
pub use prefix::{IpPrefix, Ipv4Prefix, Ipv6Prefix, ParsePrefixError, Prefix};
pub use role::BgpRole;
pub use rpki::{Aspa, BadMaxLength, ParseSkiError, RouterKey, SPKI_P256, Ski, Vrp};

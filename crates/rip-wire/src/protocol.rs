//! The two protocols, as far as they differ.

use std::{
    fmt::{Debug, Display},
    hash::Hash,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

use holdfast_types::{IpPrefix, Ipv4Prefix, Ipv6Prefix};

use crate::{BadEntry, Command, Credentials, ENTRY, Entry, Malformed, Proof, Unauthentic, message::Frame};

/// One of [`Ripv2`] and [`Ripng`].
pub trait Protocol: Layout + Copy + Ord + Hash + Debug + 'static {
    /// The UDP port of routers.
    const PORT: u16;
    /// The multicast group of routers.
    const GROUP: Self::Address;
    /// Whether a router may only accept a Response from a link-local address, and multicasts only with a hop limit of 255
    /// (RFC 2080 section 2.4.2).
    const LINK_LOCAL: bool;

    /// The prefix of one address.
    fn host(address: Self::Address) -> Self::Prefix;

    /// Whether it is a link-local address of IPv6. Always false of IPv4.
    fn is_link_local(address: Self::Address) -> bool;

    /// Whether a route to it may be told: a unicast destination that is not local to a host or a link (RFC 2453 section
    /// 3.9.2, RFC 2080 section 2.4.2). The default route is one.
    fn is_destination(prefix: Self::Prefix) -> bool;
}

/// What the messages of a protocol look like. Only this crate implements it.
pub trait Layout: Sized {
    /// Destinations.
    type Prefix: IpPrefix;
    /// Routers.
    type Address: Copy + Ord + Hash + Debug + Display + Into<IpAddr>;
    /// What authenticates messages; uninhabited of RIPng.
    type Credentials: Clone + Debug;

    #[doc(hidden)]
    const VERSION: u8;

    #[doc(hidden)]
    fn frame(octets: &[u8]) -> Result<Frame<'_>, Malformed>;

    #[doc(hidden)]
    fn authenticate(
        frame: &Frame<'_>,
        ours: Option<&Self::Credentials>,
    ) -> Result<Option<Proof>, Unauthentic>;

    /// Whether the only entry of a Request asks for the whole table.
    #[doc(hidden)]
    fn is_everything(entry: &[u8; ENTRY]) -> bool;

    #[doc(hidden)]
    fn everything() -> [u8; ENTRY];

    /// The destination of an entry; `None` if the entry is a next hop.
    #[doc(hidden)]
    fn queried(entry: &[u8; ENTRY]) -> Option<Result<Self::Prefix, BadEntry>>;

    /// Reads an entry; `None` if it is a next hop, which is kept for the entries after it.
    #[doc(hidden)]
    fn entry(
        entry: &[u8; ENTRY],
        next_hop: &mut Option<Self::Address>,
    ) -> Option<Result<Entry<Self>, BadEntry>>
    where
        Self: Protocol;

    /// How many entries a message has room for.
    #[doc(hidden)]
    fn room(ours: Option<&Self::Credentials>, mtu: u32) -> usize;

    /// Header, and a place for the authentication.
    #[doc(hidden)]
    fn begin(command: Command, ours: Option<&Self::Credentials>) -> Vec<u8>;

    /// Puts an entry at the end, if it fits; `next_hop` is that of the entry before it.
    #[doc(hidden)]
    fn put(
        entry: &Entry<Self>,
        next_hop: &mut Option<Self::Address>,
        room: &mut usize,
        out: &mut Vec<u8>,
    ) -> bool
    where
        Self: Protocol;

    #[doc(hidden)]
    fn sign(octets: &mut Vec<u8>, ours: Option<&Self::Credentials>, sequence: u32);
}

/// RIP version 2, for IPv4 (RFC 2453).
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Ripv2 {}

/// RIPng, for IPv6 (RFC 2080).
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Ripng {}

/// Net 0, loopback; link-local (RFC 3927 section 2.7); multicast and what is reserved above it. The default route is in none
/// of them.
const NOT_IPV4: [(u128, u8); 4] = [(0, 8), (127 << 120, 8), (0xa9fe << 112, 16), (0b111 << 125, 3)];

impl Protocol for Ripv2 {
    const PORT: u16 = 520;
    const GROUP: Ipv4Addr = Ipv4Addr::new(224, 0, 0, 9);
    const LINK_LOCAL: bool = false;

    fn host(address: Ipv4Addr) -> Ipv4Prefix {
        Ipv4Prefix::from_bits(u128::from(address.to_bits()) << 96, Ipv4Prefix::WIDTH)
    }

    fn is_link_local(_: Ipv4Addr) -> bool {
        false
    }

    fn is_destination(prefix: Ipv4Prefix) -> bool {
        !NOT_IPV4.iter().any(|&(bits, length)| Ipv4Prefix::from_bits(bits, length).contains(prefix))
    }
}

/// The unspecified address and loopback; addresses of IPv4 (RFC 4291 section 2.5.5.2), which are on no wire; link-local;
/// multicast.
const NOT_IPV6: [(u128, u8); 4] = [(0, 127), (0xffff << 32, 96), (0xfe80 << 112, 10), (0xff << 120, 8)];

impl Protocol for Ripng {
    const PORT: u16 = 521;
    const GROUP: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 9);
    const LINK_LOCAL: bool = true;

    fn host(address: Ipv6Addr) -> Ipv6Prefix {
        Ipv6Prefix::from_bits(address.to_bits(), Ipv6Prefix::WIDTH)
    }

    fn is_link_local(address: Ipv6Addr) -> bool {
        address.is_unicast_link_local()
    }

    fn is_destination(prefix: Ipv6Prefix) -> bool {
        !NOT_IPV6.iter().any(|&(bits, length)| Ipv6Prefix::from_bits(bits, length).contains(prefix))
    }
}

/// So that the type of the keys of RIPv2 has its name in one place.
pub(crate) type Ours<'a> = Option<&'a Credentials>;

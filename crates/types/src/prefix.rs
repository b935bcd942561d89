//! Address prefixes. A value is always canonical: the bits after the length are zero.

use std::{
    cmp::Ordering,
    fmt,
    hash::Hash,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    str::FromStr,
};

use crate::{Afi, Family};

/// What a prefix table needs of an address family. Ordered by address, then shorter first.
pub trait IpPrefix: Copy + Ord + Hash + fmt::Debug + fmt::Display + Into<Prefix> + 'static {
    /// Bits of an address: 32 or 128.
    const WIDTH: u8;
    /// The unicast family.
    const UNICAST: Family;

    /// The prefix of `len` bits (at most [`Self::WIDTH`]) whose address starts with the high bits of
    /// `bits`; the rest is cleared.
    fn from_bits(bits: u128, len: u8) -> Self;

    /// The address, left-aligned in 128 bits.
    fn bits(self) -> u128;

    /// Length in bits.
    fn length(self) -> u8;

    /// `None` when the prefix is of the other family.
    fn from_prefix(prefix: Prefix) -> Option<Self>;

    /// Whether `other` is this prefix or a part of it.
    fn contains(self, other: Self) -> bool {
        other.length() >= self.length() && (self.bits() ^ other.bits()) & mask(self.length()) == 0
    }
}

/// The first `len` of 128 bits set.
#[inline]
fn mask(len: u8) -> u128 {
    u128::MAX.checked_shl(128 - u32::from(len)).unwrap_or(0)
}

/// An IPv4 prefix.
#[derive(Copy, Clone, PartialEq, Eq, Hash)]
pub struct Ipv4Prefix {
    address: u32,
    length: u8,
}

/// An IPv6 prefix.
#[derive(Copy, Clone, PartialEq, Eq, Hash)]
pub struct Ipv6Prefix {
    address: u128,
    length: u8,
}

impl IpPrefix for Ipv4Prefix {
    const WIDTH: u8 = 32;
    const UNICAST: Family = Family::IPV4_UNICAST;

    #[inline]
    fn from_bits(bits: u128, len: u8) -> Self {
        debug_assert!(len <= Self::WIDTH);
        // The shift is 0 to 32, on 64 bits: that of 128 bits takes several instructions.
        let mask = (u64::MAX << (32 - u32::from(len))) as u32;
        Self { address: (bits >> 96) as u32 & mask, length: len }
    }

    #[inline]
    fn bits(self) -> u128 {
        u128::from(self.address) << 96
    }

    #[inline]
    fn length(self) -> u8 {
        self.length
    }

    fn from_prefix(prefix: Prefix) -> Option<Self> {
        match prefix {
            Prefix::V4(prefix) => Some(prefix),
            Prefix::V6(_) => None,
        }
    }
}

impl IpPrefix for Ipv6Prefix {
    const WIDTH: u8 = 128;
    const UNICAST: Family = Family::IPV6_UNICAST;

    #[inline]
    fn from_bits(bits: u128, len: u8) -> Self {
        debug_assert!(len <= Self::WIDTH);
        Self { address: bits & mask(len), length: len }
    }

    #[inline]
    fn bits(self) -> u128 {
        self.address
    }

    #[inline]
    fn length(self) -> u8 {
        self.length
    }

    fn from_prefix(prefix: Prefix) -> Option<Self> {
        match prefix {
            Prefix::V4(_) => None,
            Prefix::V6(prefix) => Some(prefix),
        }
    }
}

impl Ipv4Prefix {
    /// Clears the bits after `len`; `None` if it is over 32.
    pub fn new(address: Ipv4Addr, len: u8) -> Option<Self> {
        (len <= 32).then(|| Self::from_bits(u128::from(address.to_bits()) << 96, len))
    }

    /// The network address.
    pub fn address(self) -> Ipv4Addr {
        Ipv4Addr::from_bits(self.address)
    }
}

impl Ipv6Prefix {
    /// Clears the bits after `len`; `None` if it is over 128.
    pub fn new(address: Ipv6Addr, len: u8) -> Option<Self> {
        (len <= 128).then(|| Self::from_bits(address.to_bits(), len))
    }

    /// The network address.
    pub fn address(self) -> Ipv6Addr {
        Ipv6Addr::from_bits(self.address)
    }
}

macro_rules! typed_prefix {
    ($name:ident, $variant:ident) => {
        impl Ord for $name {
            fn cmp(&self, other: &Self) -> Ordering {
                (self.address, self.length).cmp(&(other.address, other.length))
            }
        }

        impl PartialOrd for $name {
            fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
                Some(self.cmp(other))
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(&format!("{}/{}", self.address(), self.length))
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{self}")
            }
        }

        impl From<$name> for Prefix {
            fn from(prefix: $name) -> Self {
                Self::$variant(prefix)
            }
        }

        impl FromStr for $name {
            type Err = ParsePrefixError;

            fn from_str(text: &str) -> Result<Self, ParsePrefixError> {
                let prefix: Prefix = text.parse()?;
                Self::from_prefix(prefix).ok_or_else(|| ParsePrefixError::Syntax(text.to_owned()))
            }
        }
    };
}

typed_prefix!(Ipv4Prefix, V4);
typed_prefix!(Ipv6Prefix, V6);

/// A prefix of either family. IPv4 sorts before IPv6.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Prefix {
    /// IPv4.
    V4(Ipv4Prefix),
    /// IPv6.
    V6(Ipv6Prefix),
}

impl Prefix {
    /// Clears the bits after `len`; `None` if it is longer than the address.
    pub fn new(address: IpAddr, len: u8) -> Option<Self> {
        match address {
            IpAddr::V4(address) => Ipv4Prefix::new(address, len).map(Self::V4),
            IpAddr::V6(address) => Ipv6Prefix::new(address, len).map(Self::V6),
        }
    }

    /// The prefix that holds one address only.
    pub fn host(address: IpAddr) -> Self {
        match address {
            IpAddr::V4(address) => Self::V4(Ipv4Prefix { address: address.to_bits(), length: 32 }),
            IpAddr::V6(address) => Self::V6(Ipv6Prefix { address: address.to_bits(), length: 128 }),
        }
    }

    /// The network address.
    pub fn address(self) -> IpAddr {
        match self {
            Self::V4(prefix) => prefix.address().into(),
            Self::V6(prefix) => prefix.address().into(),
        }
    }

    /// Length in bits.
    pub fn length(self) -> u8 {
        match self {
            Self::V4(prefix) => prefix.length,
            Self::V6(prefix) => prefix.length,
        }
    }

    /// IPv4 or IPv6.
    pub fn afi(self) -> Afi {
        match self {
            Self::V4(_) => Afi::IPV4,
            Self::V6(_) => Afi::IPV6,
        }
    }

    /// Whether `other` is this prefix or a part of it.
    pub fn contains(self, other: Self) -> bool {
        match (self, other) {
            (Self::V4(a), Self::V4(b)) => a.contains(b),
            (Self::V6(a), Self::V6(b)) => a.contains(b),
            (Self::V4(_), Self::V6(_)) | (Self::V6(_), Self::V4(_)) => false,
        }
    }

    /// Whether the address lies inside.
    pub fn contains_address(self, address: IpAddr) -> bool {
        self.contains(Self::host(address))
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::V4(prefix) => prefix.fmt(f),
            Self::V6(prefix) => prefix.fmt(f),
        }
    }
}

impl fmt::Debug for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

/// Why a text is no prefix.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParsePrefixError {
    /// Not `address/length`.
    #[error("`{0}` is no prefix: expected address/length, as in 192.0.2.0/24 or 2001:db8::/32")]
    Syntax(String),
    /// Address bits after the length are set.
    #[error("`{text}` has bits set after its length; the prefix is {meant}")]
    HostBits {
        /// As written.
        text: String,
        /// What it would be with those bits cleared.
        meant: Prefix,
    },
}

impl FromStr for Prefix {
    type Err = ParsePrefixError;

    fn from_str(text: &str) -> Result<Self, ParsePrefixError> {
        let syntax = || ParsePrefixError::Syntax(text.to_owned());
        let (address, length) = text.split_once('/').ok_or_else(syntax)?;
        let address: IpAddr = address.parse().map_err(|_| syntax())?;
        if length.is_empty() || !length.bytes().all(|b| b.is_ascii_digit()) {
            return Err(syntax());
        }
        let length = length.parse().map_err(|_| syntax())?;
        let prefix = Self::new(address, length).ok_or_else(syntax)?;
        if prefix.address() != address {
            return Err(ParsePrefixError::HostBits { text: text.to_owned(), meant: prefix });
        }
        Ok(prefix)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prefix(text: &str) -> Prefix {
        text.parse().expect("a prefix")
    }

    #[test]
    fn prints_what_it_reads() {
        for text in ["0.0.0.0/0", "10.0.0.0/8", "192.0.2.1/32", "::/0", "2001:db8::/32", "2001:db8::1/128"] {
            assert_eq!(prefix(text).to_string(), text);
        }
    }

    #[test]
    fn bad_text_is_refused_with_its_reason() {
        for text in ["10.0.0.0", "10.0.0.0/33", "::/129", "/8", "10.0.0.0/", "10.0.0.0/+8", "10.0.0/8", "x/8"]
        {
            assert_eq!(text.parse::<Prefix>(), Err(ParsePrefixError::Syntax(text.into())));
        }
        let error = "10.1.2.3/8".parse::<Prefix>().expect_err("host bits");
        assert_eq!(error.to_string(), "`10.1.2.3/8` has bits set after its length; the prefix is 10.0.0.0/8");
    }

    #[test]
    fn order_is_by_address_then_shorter_first() {
        let sorted = ["0.0.0.0/0", "10.0.0.0/8", "10.0.0.0/24", "10.0.1.0/24", "::/0", "2001:db8::/32"];
        assert!(sorted.windows(2).all(|pair| prefix(pair[0]) < prefix(pair[1])));
    }

    #[test]
    fn containment_includes_itself_and_stays_in_the_family() {
        let (all, ten, part) = (prefix("0.0.0.0/0"), prefix("10.0.0.0/8"), prefix("10.1.0.0/16"));
        assert!(all.contains(part) && ten.contains(ten) && ten.contains(part) && !part.contains(ten));
        assert!(!all.contains(prefix("::/0")) && !ten.contains(prefix("11.0.0.0/16")));
        assert!(ten.contains_address("10.255.0.1".parse().expect("address")));
        assert!(prefix("::/0").contains(prefix("2001:db8::/32")));
    }
}

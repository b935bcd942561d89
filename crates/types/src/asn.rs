//! AS numbers (RFC 6793, RFC 5396) and router identifiers (RFC 6286).

use std::{fmt, net::Ipv4Addr, str::FromStr};

/// An autonomous system number, four octets (RFC 6793).
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Asn(pub u32);

/// What a two-octet speaker sees in the place of a larger number (RFC 6793 section 9).
pub const AS_TRANS: Asn = Asn(23456);

impl Asn {
    /// Whether the number may name a neighbour: 0 (RFC 7607), AS_TRANS and the last numbers of both
    /// ranges (RFC 7300) may not.
    pub fn is_usable(self) -> bool {
        !matches!(self.0, 0 | 65535 | u32::MAX) && self != AS_TRANS
    }

    /// Whether the number is for private use (RFC 6996).
    pub fn is_private(self) -> bool {
        matches!(self.0, 64512..=65534 | 4_200_000_000..=4_294_967_294)
    }

    /// The number as a two-octet speaker sees it.
    pub fn two_octets(self) -> u16 {
        u16::try_from(self.0).unwrap_or(23456)
    }
}

impl fmt::Display for Asn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The text is no AS number.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no AS number: expected 0 to 4294967295, or asdot as in 1.10")]
pub struct ParseAsnError(String);

impl FromStr for Asn {
    type Err = ParseAsnError;

    /// Reads asplain and asdot (RFC 5396), with or without a leading `AS`.
    fn from_str(text: &str) -> Result<Self, ParseAsnError> {
        let error = || ParseAsnError(text.to_owned());
        let digits = text.strip_prefix("AS").or(text.strip_prefix("as")).unwrap_or(text);
        let number = match digits.split_once('.') {
            Some((high, low)) => {
                let (high, low) = (decimal::<u16>(high), decimal::<u16>(low));
                u32::from(high.ok_or_else(error)?) << 16 | u32::from(low.ok_or_else(error)?)
            }
            None => decimal(digits).ok_or_else(error)?,
        };
        Ok(Self(number))
    }
}

/// Digits only: `u32::from_str` would also take a sign.
fn decimal<T: FromStr>(text: &str) -> Option<T> {
    (!text.is_empty() && text.bytes().all(|b| b.is_ascii_digit())).then(|| text.parse().ok()).flatten()
}

/// A BGP identifier: any non-zero number (RFC 6286), written like an IPv4 address.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct RouterId(u32);

impl RouterId {
    /// `None` for zero.
    pub fn new(bits: u32) -> Option<Self> {
        (bits != 0).then_some(Self(bits))
    }

    /// The number, as it is compared in decisions and collisions (host order).
    pub fn bits(self) -> u32 {
        self.0
    }
}

impl fmt::Display for RouterId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Ipv4Addr::from_bits(self.0).fmt(f)
    }
}

/// The text is no router id.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no router id: expected a non-zero number written as in 10.0.0.1")]
pub struct ParseRouterIdError(String);

impl FromStr for RouterId {
    type Err = ParseRouterIdError;

    fn from_str(text: &str) -> Result<Self, ParseRouterIdError> {
        let address: Option<Ipv4Addr> = text.parse().ok();
        address.and_then(|a| Self::new(a.to_bits())).ok_or_else(|| ParseRouterIdError(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_numbers_are_read_in_both_notations() {
        for (text, number) in
            [("65001", 65001), ("AS65001", 65001), ("1.10", 65546), ("4294967295", u32::MAX)]
        {
            assert_eq!(text.parse(), Ok(Asn(number)), "{text}");
        }
        for text in ["", "AS", "+1", "-1", "4294967296", "1.65536", "1.2.3", "x"] {
            assert!(text.parse::<Asn>().is_err(), "{text}");
        }
    }

    #[test]
    fn numbers_a_neighbour_may_not_have() {
        for number in [0, 23456, 65535, u32::MAX] {
            assert!(!Asn(number).is_usable(), "{number}");
        }
        assert!(Asn(64512).is_usable() && Asn(64512).is_private() && !Asn(65535).is_private());
        assert_eq!((Asn(65536).two_octets(), Asn(7).two_octets()), (23456, 7));
    }

    #[test]
    fn router_id_zero_is_refused() {
        assert!("0.0.0.0".parse::<RouterId>().is_err());
        assert_eq!("0.0.0.7".parse::<RouterId>().map(RouterId::bits), Ok(7));
        assert_eq!(RouterId::new(0x0a00_0001).map(|id| id.to_string()), Some("10.0.0.1".into()));
    }
}

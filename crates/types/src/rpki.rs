//! What an RPKI cache says (RFC 8210): who may originate what, who provides for whom, which keys routers have.

use std::{fmt, str::FromStr};

use crate::{Asn, Prefix};

/// A validated ROA payload: the AS may originate the prefix and what is in it up to a length (RFC 6811 section 2).
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Vrp {
    prefix: Prefix,
    max_length: u8,
    asn: Asn,
}

/// The maximal length of a [`Vrp`] is shorter than its prefix, or longer than an address.
#[derive(Copy, Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{prefix} cannot go with a maximal length of {max_length}")]
pub struct BadMaxLength {
    prefix: Prefix,
    max_length: u8,
}

impl Vrp {
    /// # Errors
    /// The length is not between that of the prefix and that of an address.
    pub fn new(prefix: Prefix, max_length: u8, asn: Asn) -> Result<Self, BadMaxLength> {
        let longest = match prefix {
            Prefix::V4(_) => 32,
            Prefix::V6(_) => 128,
        };
        let fits = (prefix.length()..=longest).contains(&max_length);
        if fits { Ok(Self { prefix, max_length, asn }) } else { Err(BadMaxLength { prefix, max_length }) }
    }

    /// What it is about.
    pub fn prefix(self) -> Prefix {
        self.prefix
    }

    /// The longest prefix in it that it is about.
    pub fn max_length(self) -> u8 {
        self.max_length
    }

    /// Who may originate; AS 0: nobody may (RFC 6483 section 4).
    pub fn asn(self) -> Asn {
        self.asn
    }
}

/// `192.0.2.0/24-26 AS64496`; the length is left out where it is the prefix's own.
impl fmt::Display for Vrp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.prefix.fmt(f)?;
        if self.max_length != self.prefix.length() {
            write!(f, "-{}", self.max_length)?;
        }
        write!(f, " AS{}", self.asn)
    }
}

/// An Autonomous System Provider Authorization: all ASes that an AS has for a provider (draft-ietf-sidrops-aspa-profile).
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Aspa {
    customer: Asn,
    providers: Box<[Asn]>,
}

impl Aspa {
    /// In whatever order they come, and how often. None at all: the customer has no provider, which caches do not send.
    pub fn new(customer: Asn, mut providers: Vec<Asn>) -> Self {
        providers.sort_unstable();
        providers.dedup();
        Self { customer, providers: providers.into() }
    }

    /// Whose it is.
    pub fn customer(&self) -> Asn {
        self.customer
    }

    /// Ascending, each once; AS 0 alone: none.
    pub fn providers(&self) -> &[Asn] {
        &self.providers
    }
}

/// Subject Key Identifier: names a router's key, together with its AS (RFC 8205 section 3.2).
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ski(pub [u8; 20]);

impl fmt::Display for Ski {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|octet| write!(f, "{octet:02X}"))
    }
}

impl fmt::Debug for Ski {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

/// It is not 40 hexadecimal digits.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0:?} is no subject key identifier: 40 hexadecimal digits")]
pub struct ParseSkiError(String);

impl FromStr for Ski {
    type Err = ParseSkiError;

    fn from_str(text: &str) -> Result<Self, ParseSkiError> {
        let wrong = || ParseSkiError(text.to_owned());
        if text.len() != 40 || !text.bytes().all(|octet| octet.is_ascii_hexdigit()) {
            return Err(wrong());
        }
        let mut ski = [0; 20];
        for (number, octet) in ski.iter_mut().enumerate() {
            *octet = u8::from_str_radix(&text[2 * number..2 * number + 2], 16).map_err(|_| wrong())?;
        }
        Ok(Self(ski))
    }
}

/// What a subjectPublicKeyInfo of an uncompressed point on P-256 begins with (RFC 5480): the algorithm, and the octet that says
/// uncompressed. The 64 octets of the point follow.
pub const SPKI_P256: [u8; 27] = [
    0x30, 0x59, 0x30, 0x13, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x08, 0x2a, 0x86,
    0x48, 0xce, 0x3d, 0x03, 0x01, 0x07, 0x03, 0x42, 0x00, 0x04,
];

/// A router's key for BGPsec (RFC 8210 section 5.10). All three together are what makes it another one.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct RouterKey {
    /// The AS that the router speaks for.
    pub asn: Asn,
    /// What signatures call the key.
    pub ski: Ski,
    /// The subjectPublicKeyInfo of its certificate, in DER.
    pub spki: Vec<u8>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_maximal_length_is_between_the_prefix_and_the_address() {
        let prefix: Prefix = "192.0.2.0/24".parse().unwrap();
        for (max_length, fits) in [(23, false), (24, true), (32, true), (33, false)] {
            assert_eq!(Vrp::new(prefix, max_length, Asn(1)).is_ok(), fits, "{max_length}");
        }
        let shown = [24, 26].map(|length| Vrp::new(prefix, length, Asn(64496)).unwrap().to_string());
        assert_eq!(shown, ["192.0.2.0/24 AS64496", "192.0.2.0/24-26 AS64496"]);
    }

    #[test]
    fn providers_are_a_set() {
        assert_eq!(Aspa::new(Asn(1), vec![Asn(3), Asn(2), Asn(3)]).providers(), [Asn(2), Asn(3)]);
    }
}

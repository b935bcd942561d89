//! Single values: from TOML's types and texts to ours.

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    str::FromStr,
};

use holdfast_policy::{
    AsnRange, Community, CommunityPattern, Origin, PathPattern, PathSecurity, PathValidity, PrefixRange,
    Protocol, Regex, Validity,
};
use holdfast_types::{Asn, BgpRole, Family, Prefix, RouterId};
use toml::de::DeValue;

use super::Problem;
use crate::{
    keyed::Word,
    moment::Moment,
    schema::{
        door::Pin,
        peer::{BgpsecFamily, BgpsecValidation, SendPaths},
    },
    size::Size,
};

/// Something that one TOML value can say.
pub(crate) trait Value: Sized {
    /// An example, in TOML.
    const EXPECTED: &'static str;
    /// Whether it is a number of TOML as it stands.
    const IS_NUMBER: bool = false;

    fn read(value: &DeValue<'_>) -> Result<Self, Problem>;
}

/// What a value is, in words.
pub(super) fn kind(value: &DeValue<'_>) -> &'static str {
    match value {
        DeValue::String(_) => "a text",
        DeValue::Integer(_) => "a number",
        DeValue::Float(_) => "a decimal number",
        DeValue::Boolean(_) => "a truth value",
        DeValue::Datetime(_) => "a date",
        DeValue::Array(_) => "a list",
        DeValue::Table(_) => "a table",
    }
}

fn wrong_type<T: Value>(value: &DeValue<'_>) -> Problem {
    Problem::new(format!("this is {}", kind(value))).expected(T::EXPECTED)
}

impl Value for bool {
    const EXPECTED: &'static str = "true or false";

    fn read(value: &DeValue<'_>) -> Result<Self, Problem> {
        value.as_bool().ok_or_else(|| wrong_type::<Self>(value))
    }
}

impl Value for String {
    const EXPECTED: &'static str = "\"text\"";

    fn read(value: &DeValue<'_>) -> Result<Self, Problem> {
        value.as_str().map(str::to_owned).ok_or_else(|| wrong_type::<Self>(value))
    }
}

/// A whole number, whatever its range.
pub(crate) fn integer(value: &DeValue<'_>) -> Option<i128> {
    let integer = value.as_integer()?;
    // A number of more digits than these is out of every range.
    Some(i128::from_str_radix(integer.as_str(), integer.radix()).unwrap_or(i128::MAX))
}

macro_rules! integers {
    ($($type:ty: $expected:literal),*) => {$(
        impl Value for $type {
            const EXPECTED: &'static str = $expected;
            const IS_NUMBER: bool = true;

            fn read(value: &DeValue<'_>) -> Result<Self, Problem> {
                let number = integer(value).ok_or_else(|| wrong_type::<Self>(value))?;
                number.try_into().map_err(|_| Problem::new("the number is out of range").expected($expected))
            }
        }
    )*};
}

integers!(u8: "a number from 0 to 255", u16: "a number from 0 to 65535", u32: "a number from 0 to 4294967295");

fn from_text<T: Value + FromStr<Err: ToString>>(value: &DeValue<'_>) -> Result<T, Problem> {
    let text = value.as_str().ok_or_else(|| wrong_type::<T>(value))?;
    text.parse().map_err(|error| Problem::from_error(&error))
}

macro_rules! texts {
    ($($type:ty: $expected:literal),*) => {$(
        impl Value for $type {
            const EXPECTED: &'static str = $expected;

            fn read(value: &DeValue<'_>) -> Result<Self, Problem> {
                from_text(value)
            }
        }
    )*};
}

texts! {
    RouterId: "\"10.0.0.1\"",
    Prefix: "\"192.0.2.0/24\"",
    Family: "\"ipv4-unicast\" or \"ipv6-unicast\"",
    PrefixRange: "\"10.0.0.0/8 le 24\"",
    CommunityPattern: "\"65001:100\"",
    Community: "\"65001:100\"",
    PathPattern: "\"65001 *\"",
    Origin: "\"igp\", \"egp\" or \"incomplete\"",
    Protocol: "\"bgp\", \"static\", \"connected\" or the name of another protocol",
    Regex: "a regular expression as in \"_65001$\"",
    Validity: "\"valid\", \"invalid\" or \"not-found\"",
    PathSecurity: "\"valid\", \"not-valid\", \"unverified\" or \"unsigned\"",
    PathValidity: "\"valid\", \"invalid\" or \"unknown\"",
    Size: "a size as in \"512 MiB\"",
    Pin: "a fingerprint as in \"2b:05:…\""
}

macro_rules! addresses {
    ($($type:ty: $expected:literal),*) => {$(
        impl Value for $type {
            const EXPECTED: &'static str = $expected;

            fn read(value: &DeValue<'_>) -> Result<Self, Problem> {
                let text = value.as_str().ok_or_else(|| wrong_type::<Self>(value))?;
                let problem = || Problem::new(format!("`{text}` is no such address"));
                text.parse().map_err(|_| problem().expected($expected))
            }
        }
    )*};
}

addresses! {
    IpAddr: "an address as in \"10.0.0.1\" or \"2001:db8::1\"",
    SocketAddr: "an address with a port as in \"127.0.0.1:9179\" or \"[::1]:9179\"",
    Ipv4Addr: "an IPv4 address as in \"10.0.0.1\"",
    Ipv6Addr: "an IPv6 address as in \"2001:db8::1\""
}

impl Value for Asn {
    const EXPECTED: &'static str = "an AS number as in 65001";

    fn read(value: &DeValue<'_>) -> Result<Self, Problem> {
        match value {
            DeValue::String(_) => from_text(value),
            _ => u32::read(value).map(Self).map_err(|problem| problem.expected(Self::EXPECTED)),
        }
    }
}

impl Value for AsnRange {
    const EXPECTED: &'static str = "an AS number as in 65001, or a range as in \"64512-65534\"";

    fn read(value: &DeValue<'_>) -> Result<Self, Problem> {
        match value {
            DeValue::String(_) => from_text(value),
            _ => Asn::read(value).map(Self::from).map_err(|problem| problem.expected(Self::EXPECTED)),
        }
    }
}

impl Value for BgpRole {
    const EXPECTED: &'static str =
        "\"provider\" or \"rs-server\" or \"rs-client\" or \"customer\" or \"peer\"";

    fn read(value: &DeValue<'_>) -> Result<Self, Problem> {
        let word = value.as_str().ok_or_else(|| wrong_type::<Self>(value))?;
        let problem = || Problem::new(format!("`{word}` is no role")).expected(Self::EXPECTED);
        let role = Self::ALL.into_iter().find(|role| role.name() == word);
        role.ok_or_else(|| problem().suggest(word, Self::ALL.map(Self::name)))
    }
}

macro_rules! words {
    ($($type:ty: $expected:literal),*) => {$(
        impl Value for $type {
            const EXPECTED: &'static str = $expected;

            fn read(value: &DeValue<'_>) -> Result<Self, Problem> {
                let word = value.as_str().ok_or_else(|| wrong_type::<Self>(value))?;
                let found = Self::WORDS.iter().find(|(known, _)| *known == word);
                let problem = || Problem::new(format!("`{word}` is none of them")).expected(Self::EXPECTED);
                found.map(|(_, value)| *value).ok_or_else(|| problem().suggest(word, Self::NAMES.iter().copied()))
            }
        }
    )*};
}

words! {
    BgpsecFamily: "\"ipv4\" or \"ipv6\"",
    BgpsecValidation: "\"off\", \"log\", \"prefer\" or \"require\""
}

impl Value for Moment {
    const EXPECTED: &'static str = "a time as in 2026-12-01T00:00:00Z";

    fn read(value: &DeValue<'_>) -> Result<Self, Problem> {
        let datetime = value.as_datetime().ok_or_else(|| wrong_type::<Self>(value))?;
        Self::of(datetime)
            .ok_or_else(|| Problem::new(format!("`{datetime}` is no moment")).expected(Self::EXPECTED))
    }
}

impl Value for SendPaths {
    const EXPECTED: &'static str = "1 to 16, or \"all\"";

    fn read(value: &DeValue<'_>) -> Result<Self, Problem> {
        match value.as_str() {
            Some("all") => Ok(Self::All),
            _ => match u8::read(value).map_err(|problem| problem.expected(Self::EXPECTED))? {
                most @ 1..=16 => Ok(Self::Best(most)),
                _ => Err(Problem::new("`send` is out of range").expected(Self::EXPECTED)),
            },
        }
    }
}

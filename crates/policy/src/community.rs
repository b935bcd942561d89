//! Communities: values, patterns, and sets of patterns.

use std::{
    fmt::{self, Write},
    net::Ipv4Addr,
    str::FromStr,
};

use crate::{
    regex::{Regex, Search},
    text::as_text,
};

/// Names of well-known communities (IANA; RFC 1997, 3765, 7611, 7999, 8326).
const WELL_KNOWN: [(&str, u32); 7] = [
    ("graceful-shutdown", 0xffff_0000),
    ("accept-own", 0xffff_0001),
    ("blackhole", 0xffff_029a),
    ("no-export", 0xffff_ff01),
    ("no-advertise", 0xffff_ff02),
    ("no-export-subconfed", 0xffff_ff03),
    ("no-peer", 0xffff_ff04),
];

/// A community that a policy adds. Written `65001:100` or by a well-known name (RFC 1997), `65001:1:2` (large,
/// RFC 8092), or `rt:65001:100`, `soo:10.0.0.1:5`, `ext:0002fde900000064` (extended, RFC 4360 and 5668).
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub enum Community {
    /// RFC 1997.
    Standard(u32),
    /// RFC 8092.
    Large(u32, u32, u32),
    /// RFC 4360, type octet first.
    Extended(u64),
}

/// Communities that a policy looks for or removes. A part may be `*`:
/// `65001:100`, `65001:*`, `no-export` (RFC 1997), `65001:1:*` (large, RFC 8092),
/// `rt:65001:100`, `soo:65001:*`, `rt:10.0.0.1:5`, `ext:0002fde900000064` (extended, RFC 4360 and 5668).
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub struct CommunityPattern(Kind);

#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
enum Kind {
    Standard(Masked<u32>),
    Large([Masked<u32>; 3]),
    Extended { subtype: Subtype, administrator: Administrator, number: Part },
    Octets(u64),
}

/// A part of a pattern; `None` is `*`.
type Part = Option<u32>;

/// The value where the mask has ones.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
struct Masked<T> {
    value: T,
    mask: T,
}

#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
enum Subtype {
    RouteTarget,
    SiteOfOrigin,
}

#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
enum Administrator {
    Asn(u32),
    Address(Ipv4Addr),
}

/// The text is no community.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is no community: expected {expected}")]
pub struct ParseCommunityError {
    text: String,
    expected: &'static str,
}

impl FromStr for Community {
    type Err = ParseCommunityError;

    fn from_str(text: &str) -> Result<Self, ParseCommunityError> {
        let value = match well_known(text) {
            Some(value) => Some(Self::Standard(value)),
            None => match *text.split(':').collect::<Vec<_>>() {
                ["ext", octets] => hexadecimal(octets).map(Self::Extended),
                ["rt", administrator, number] => whole(Subtype::RouteTarget, administrator, number),
                ["soo", administrator, number] => whole(Subtype::SiteOfOrigin, administrator, number),
                [global, first, second] => large(decimal(global), decimal(first), decimal(second)),
                [high, low] => standard(decimal(high), decimal(low)),
                _ => None,
            },
        };
        let expected = "a value as in 65001:100, 65001:1:2, rt:65001:100 or no-export";
        value.ok_or_else(|| ParseCommunityError { text: text.to_owned(), expected })
    }
}

fn standard(high: Option<u16>, low: Option<u16>) -> Option<Community> {
    Some(Community::Standard(u32::from(high?) << 16 | u32::from(low?)))
}

fn large(global: Option<u32>, first: Option<u32>, second: Option<u32>) -> Option<Community> {
    Some(Community::Large(global?, first?, second?))
}

fn whole(subtype: Subtype, administrator: &str, number: &str) -> Option<Community> {
    match extended(subtype, administrator, number)? {
        Kind::Extended { subtype, administrator, number: number @ Some(_) } => {
            Some(Community::Extended(extended_octets(subtype, administrator, number).value))
        }
        _ => None,
    }
}

/// Sixteen digits: eight octets.
fn hexadecimal(text: &str) -> Option<u64> {
    let digits = text.len() == 16 && text.bytes().all(|octet| octet.is_ascii_hexdigit());
    digits.then(|| u64::from_str_radix(text, 16).ok()).flatten()
}

fn well_known(text: &str) -> Option<u32> {
    WELL_KNOWN.iter().find(|(name, _)| *name == text).map(|&(_, value)| value)
}

/// Digits only: `from_str` would also take a sign.
fn decimal<T: FromStr>(text: &str) -> Option<T> {
    (!text.is_empty() && text.bytes().all(|b| b.is_ascii_digit())).then(|| text.parse().ok()).flatten()
}

impl fmt::Display for Community {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Standard(value) => match WELL_KNOWN.iter().find(|&&(_, known)| known == value) {
                Some((name, _)) => f.write_str(name),
                None => write!(f, "{}:{}", value >> 16, value & 0xffff),
            },
            Self::Large(global, first, second) => write!(f, "{global}:{first}:{second}"),
            Self::Extended(octets) => write_extended(octets, f),
        }
    }
}

/// By its parts where they have names here.
fn write_extended(octets: u64, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let (kind, subtype) = (octets >> 56, octets >> 48 & 0xff);
    let subtype = match subtype {
        2 => "rt",
        3 => "soo",
        _ => return write!(f, "ext:{octets:016x}"),
    };
    let (long, short) = ((octets >> 16) as u32, octets as u32);
    match kind {
        0 => write!(f, "{subtype}:{}:{short}", long >> 16),
        1 => write!(f, "{subtype}:{}:{}", Ipv4Addr::from_bits(long), short & 0xffff),
        // A short number in the long form is another community.
        2 if long > 0xffff => write!(f, "{subtype}:{long}:{}", short & 0xffff),
        _ => write!(f, "ext:{octets:016x}"),
    }
}

as_text!(Community);

impl FromStr for CommunityPattern {
    type Err = ParseCommunityError;

    fn from_str(text: &str) -> Result<Self, ParseCommunityError> {
        let expected = "a pattern as in 65001:100, 65001:*, 65001:1:*, rt:65001:100 or no-export";
        parse_pattern(text).map(Self).ok_or_else(|| ParseCommunityError { text: text.to_owned(), expected })
    }
}

fn parse_pattern(text: &str) -> Option<Kind> {
    if let Some(value) = well_known(text) {
        return Some(Kind::Standard(Masked { value, mask: u32::MAX }));
    }
    match *text.split(':').collect::<Vec<_>>() {
        ["ext", octets] => hexadecimal(octets).map(Kind::Octets),
        [high, low] => {
            let (high, low) = (part::<u16>(high)?, part::<u16>(low)?);
            Some(Kind::Standard(Masked {
                value: u32::from(high.value) << 16 | u32::from(low.value),
                mask: u32::from(high.mask) << 16 | u32::from(low.mask),
            }))
        }
        ["rt", administrator, number] => extended(Subtype::RouteTarget, administrator, number),
        ["soo", administrator, number] => extended(Subtype::SiteOfOrigin, administrator, number),
        [global, first, second] => Some(Kind::Large([part(global)?, part(first)?, part(second)?])),
        _ => None,
    }
}

/// A number, or `*`.
fn part<T: FromStr + Default + std::ops::Not<Output = T>>(text: &str) -> Option<Masked<T>> {
    match text {
        "*" => Some(Masked { value: T::default(), mask: T::default() }),
        _ => Some(Masked { value: decimal(text)?, mask: !T::default() }),
    }
}

fn extended(subtype: Subtype, administrator: &str, number: &str) -> Option<Kind> {
    let administrator = match administrator.parse() {
        Ok(address) => Administrator::Address(address),
        Err(_) => Administrator::Asn(decimal(administrator)?),
    };
    let number = match number {
        "*" => None,
        _ => Some(decimal(number)?),
    };
    let fits = number.unwrap_or(0) <= largest_number(administrator);
    fits.then_some(Kind::Extended { subtype, administrator, number })
}

/// Six octets are shared by administrator and number: a short AS number leaves four, the others two.
fn largest_number(administrator: Administrator) -> u32 {
    match administrator {
        Administrator::Asn(0..=0xffff) => u32::MAX,
        Administrator::Asn(_) | Administrator::Address(_) => 0xffff,
    }
}

/// The octets of an extended community (RFC 4360 section 3, RFC 5668 section 2).
fn extended_octets(subtype: Subtype, administrator: Administrator, number: Part) -> Masked<u64> {
    let (kind, administrator, shift) = match administrator {
        Administrator::Asn(asn @ 0..=0xffff) => (0u64, asn, 32),
        Administrator::Address(address) => (1, address.to_bits(), 16),
        Administrator::Asn(asn) => (2, asn, 16),
    };
    let subtype = match subtype {
        Subtype::RouteTarget => 2u64,
        Subtype::SiteOfOrigin => 3,
    };
    let head = kind << 56 | subtype << 48 | u64::from(administrator) << shift;
    let low = (1u64 << shift) - 1;
    // This bit of the type says whether it is transitive (RFC 4360 section 2): a route target is one with either.
    const TRANSITIVE: u64 = 1 << 62;
    match number {
        Some(number) => Masked { value: head | u64::from(number), mask: !TRANSITIVE },
        None => Masked { value: head, mask: !(low | TRANSITIVE) },
    }
}

impl From<Community> for CommunityPattern {
    fn from(community: Community) -> Self {
        let exactly = |value| Masked { value, mask: u32::MAX };
        Self(match community {
            Community::Standard(value) => Kind::Standard(exactly(value)),
            Community::Large(global, first, second) => Kind::Large([global, first, second].map(exactly)),
            Community::Extended(octets) => Kind::Octets(octets),
        })
    }
}

impl fmt::Display for CommunityPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Kind::Standard(Masked { value, mask: u32::MAX }) => Community::Standard(value).fmt(f),
            Kind::Standard(Masked { value, mask }) => {
                write!(f, "{}:", Star(value >> 16, mask >> 16))?;
                write!(f, "{}", Star(value & 0xffff, mask & 0xffff))
            }
            Kind::Large([global, first, second]) => {
                write!(f, "{}:", Star(global.value, global.mask))?;
                write!(f, "{}:{}", Star(first.value, first.mask), Star(second.value, second.mask))
            }
            Kind::Octets(octets) => write!(f, "ext:{octets:016x}"),
            Kind::Extended { subtype, administrator, number } => {
                f.write_str(match subtype {
                    Subtype::RouteTarget => "rt:",
                    Subtype::SiteOfOrigin => "soo:",
                })?;
                match administrator {
                    Administrator::Asn(asn) => write!(f, "{asn}:")?,
                    Administrator::Address(address) => write!(f, "{address}:")?,
                }
                write!(f, "{}", Star(number.unwrap_or(0), number.map_or(0, |_| u32::MAX)))
            }
        }
    }
}

/// A value, or `*` when its mask is empty.
struct Star(u32, u32);

impl fmt::Display for Star {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.1 {
            0 => f.write_str("*"),
            _ => self.0.fmt(f),
        }
    }
}

as_text!(CommunityPattern);

impl Masked<u32> {
    fn covers(self, value: u32) -> bool {
        value & self.mask == self.value
    }
}

type Large = (u32, u32, u32);

fn covers_large(pattern: &[Masked<u32>; 3], (global, first, second): Large) -> bool {
    pattern[0].covers(global) && pattern[1].covers(first) && pattern[2].covers(second)
}

/// Patterns sorted by the attribute they are about.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct CommunityMatcher {
    /// Whole values, sorted.
    exact: Box<[u32]>,
    masked: Box<[Masked<u32>]>,
    /// Whole values, sorted.
    exact_large: Box<[Large]>,
    large: Box<[[Masked<u32>; 3]]>,
    extended: Box<[Masked<u64>]>,
    regexes: Box<[Regex]>,
}

impl FromIterator<CommunityPattern> for CommunityMatcher {
    fn from_iter<I: IntoIterator<Item = CommunityPattern>>(patterns: I) -> Self {
        Self::new(patterns, [])
    }
}

/// The values in order, each once.
fn sorted<T: Ord>(mut values: Vec<T>) -> Box<[T]> {
    values.sort_unstable();
    values.dedup();
    values.into()
}

/// The value of a large pattern without `*`.
fn whole_large(pattern: &[Masked<u32>; 3]) -> Option<Large> {
    let [global, first, second] = pattern;
    let whole = pattern.iter().all(|part| part.mask == u32::MAX);
    whole.then_some((global.value, first.value, second.value))
}

impl CommunityMatcher {
    pub(crate) fn new(
        patterns: impl IntoIterator<Item = CommunityPattern>,
        regexes: impl IntoIterator<Item = Regex>,
    ) -> Self {
        let (mut exact, mut masked, mut exact_large) = (vec![], vec![], vec![]);
        let (mut large, mut extended) = (vec![], vec![]);
        for pattern in patterns {
            match pattern.0 {
                Kind::Standard(Masked { value, mask: u32::MAX }) => exact.push(value),
                Kind::Standard(pattern) => masked.push(pattern),
                Kind::Large(pattern) => match whole_large(&pattern) {
                    Some(value) => exact_large.push(value),
                    None => large.push(pattern),
                },
                Kind::Extended { subtype, administrator, number } => {
                    extended.push(extended_octets(subtype, administrator, number));
                }
                Kind::Octets(value) => extended.push(Masked { value, mask: u64::MAX }),
            }
        }
        Self {
            exact: sorted(exact),
            masked: masked.into(),
            exact_large: sorted(exact_large),
            large: large.into(),
            extended: extended.into(),
            regexes: regexes.into_iter().collect(),
        }
    }

    /// What each value is compared with one by one, at most.
    pub(crate) fn steps(&self) -> usize {
        self.masked.len().max(self.large.len()).max(self.extended.len()) + self.regexes.len()
    }

    pub(crate) fn wants_standard(&self) -> bool {
        !self.exact.is_empty() || !self.masked.is_empty() || !self.regexes.is_empty()
    }

    pub(crate) fn wants_large(&self) -> bool {
        !self.exact_large.is_empty() || !self.large.is_empty() || !self.regexes.is_empty()
    }

    pub(crate) fn wants_extended(&self) -> bool {
        !self.extended.is_empty() || !self.regexes.is_empty()
    }

    pub(crate) fn standard(&self, value: u32) -> bool {
        self.exact.binary_search(&value).is_ok()
            || self.masked.iter().any(|pattern| pattern.covers(value))
            || self.is_found(|search| write!(search, "{}:{}", value >> 16, value & 0xffff))
    }

    pub(crate) fn large(&self, value: Large) -> bool {
        self.exact_large.binary_search(&value).is_ok()
            || self.large.iter().any(|pattern| covers_large(pattern, value))
            || self.is_found(|search| write!(search, "{}:{}:{}", value.0, value.1, value.2))
    }

    pub(crate) fn extended(&self, value: u64) -> bool {
        self.extended.iter().any(|pattern| value & pattern.mask == pattern.value)
            || self.is_found(|search| write!(search, "{}", Community::Extended(value)))
    }

    fn is_found(&self, write: impl Fn(&mut Search<'_>) -> fmt::Result) -> bool {
        self.regexes.iter().any(|regex| regex.is_found(&write))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matcher(patterns: &[&str]) -> CommunityMatcher {
        patterns.iter().map(|text| text.parse::<CommunityPattern>().expect("a pattern")).collect()
    }

    #[test]
    fn values_and_patterns_are_printed_as_they_are_read() {
        let extended = ["rt:65001:100", "soo:70000:5", "rt:10.0.0.1:7", "ext:43fde90000000064"];
        for text in extended.into_iter().chain(["ext:0202000000010005", "ext:4002fde900000064"]) {
            assert_eq!(text.parse::<Community>().map(|c| c.to_string()).as_deref(), Ok(text));
        }
        for text in ["65001:100", "0:0", "no-export", "blackhole", "4200000000:1:2"] {
            assert_eq!(text.parse::<Community>().map(|c| c.to_string()).as_deref(), Ok(text));
            assert_eq!(text.parse::<CommunityPattern>().map(|c| c.to_string()).as_deref(), Ok(text));
        }
        for text in ["65001:*", "*:666", "*:*", "*:1:*", "rt:65001:100", "soo:70000:*", "rt:10.0.0.1:5"] {
            assert_eq!(text.parse::<CommunityPattern>().map(|c| c.to_string()).as_deref(), Ok(text));
        }
        assert_eq!("65535:65281".parse::<Community>().map(|c| c.to_string()).as_deref(), Ok("no-export"));
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let bad =
            ["", ":", "1", "65536:1", "1:65536", "1:2:3:4", "+1:2", "rt:70000:65536", "rt:x:1", "rt:*:1"];
        for text in bad {
            assert!(text.parse::<CommunityPattern>().is_err(), "{text}");
        }
        for text in ["65001:*", "rt:1:*", "rt:1", "ext:1", "ext:000000000000000g"] {
            assert!(text.parse::<Community>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_star_stands_for_every_value_of_its_part() {
        let set = matcher(&["65001:*", "*:666", "65002:7"]);
        let holds = |high: u32, low: u32| set.standard(high << 16 | low);
        assert!(holds(65001, 0) && holds(65001, 65535) && holds(3, 666) && holds(65002, 7));
        assert!(!holds(65002, 8) && !holds(0, 0));
        let set = matcher(&["65001:1:*"]);
        assert!(set.large((65001, 1, 9)) && !set.large((65001, 2, 9)) && !set.wants_standard());
    }

    #[test]
    fn route_targets_are_found_in_their_three_encodings() {
        let set = matcher(&["rt:65001:100", "rt:70000:5", "rt:10.0.0.1:*", "soo:65001:*"]);
        assert!(set.extended(0x0002_fde9_0000_0064), "two-octet AS");
        assert!(set.extended(0x4002_fde9_0000_0064), "not transitive");
        assert!(set.extended(0x0202_0001_1170_0005), "four-octet AS");
        assert!(set.extended(0x0102_0a00_0001_ffff), "address");
        assert!(set.extended(0x0003_fde9_0000_0000), "site of origin");
        assert!(!set.extended(0x0002_fde9_0000_0065) && !set.extended(0x0102_0a00_0002_0000));
    }

    #[test]
    fn a_regex_looks_at_each_community_of_every_kind() {
        let regexes =
            ["^65001:1[0-9]{2}$", "^rt:65001:", "^70000:1:"].map(|text| text.parse().expect("a regex"));
        let set = CommunityMatcher::new([], regexes);
        let standard = |low: u32| set.standard(65001 << 16 | low);
        assert!(standard(100) && standard(199) && !standard(99) && !standard(1000));
        assert!(set.large((70000, 1, 5)) && !set.large((70000, 11, 5)));
        assert!(set.extended(0x0002_fde9_0000_0001) && !set.extended(0x0003_fde9_0000_0001));
    }

    #[test]
    fn octets_are_that_community_and_no_other() {
        let set = matcher(&["ext:4002fde900000064"]);
        assert!(set.extended(0x4002_fde9_0000_0064) && !set.extended(0x0002_fde9_0000_0064));
    }
}

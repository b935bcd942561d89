//! What one peer sends to cost others as much as it can: recipes for UPDATEs, in `fuzz/corpus/cost`.

use std::{
    fs,
    net::{Ipv4Addr, Ipv6Addr},
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, ensure};
use holdfast_types::{Family, IpPrefix, Ipv4Prefix, Ipv6Prefix, Prefix};
use serde::{Deserialize, Serialize};

/// The longest message (RFC 8654), and the longest without that extension.
const LONGEST: usize = 65_535;
const USUAL: usize = 4096;

/// Who sends it.
#[derive(Copy, Clone, Debug)]
pub struct Sender {
    /// The first in each path.
    pub asn: u32,
    /// What its routes name as next hop.
    pub next_hop_v4: Ipv4Addr,
    /// The same of IPv6.
    pub next_hop_v6: Ipv6Addr,
}

/// Every recipe that there is, with its file.
///
/// # Errors
/// When one cannot be read, or there is none.
pub fn all() -> Result<Vec<(PathBuf, Recipe)>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/cost");
    let entries = fs::read_dir(&folder).with_context(|| folder.display().to_string())?;
    let mut paths: Vec<PathBuf> = entries.map(|entry| Ok(entry?.path())).collect::<Result<_>>()?;
    paths.sort_unstable();
    ensure!(!paths.is_empty(), "no recipes in {}", folder.display());
    paths.into_iter().map(|path| Ok((path.clone(), Recipe::read(&path)?))).collect()
}

/// What one peer sends, over and over.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Recipe {
    /// For people.
    pub what: String,
    /// Whom it is sent to.
    #[serde(default)]
    pub speaker: Setup,
    /// The first prefix.
    #[serde(with = "text")]
    pub first: Prefix,
    /// From one prefix to the next, counted in prefixes of that length.
    #[serde(default = "one")]
    pub stride: u64,
    /// After so many the first comes again; 0: never.
    #[serde(default)]
    pub wrap: u64,
    /// In one UPDATE, as far as it has room.
    #[serde(default = "one")]
    pub routes: u64,
    /// How many different attributes there are, which take turns; 0: others in each UPDATE.
    #[serde(default)]
    pub sets: u64,
    /// ASes in the path.
    #[serde(default = "one")]
    pub path: u64,
    /// In each set.
    #[serde(default)]
    pub communities: u64,
    /// Octets of an unknown transitive attribute.
    #[serde(default)]
    pub unknown: u64,
    /// The word that they repeat, in hexadecimal.
    #[serde(default)]
    pub filling: String,
    /// Paths to each prefix (RFC 7911); 0: without identifiers.
    #[serde(default)]
    pub paths: u64,
    /// Whether each round over the prefixes announces one path of every prefix, not all paths of one after the other.
    #[serde(default)]
    pub apart: bool,
    /// What each second round over the prefixes does.
    #[serde(default)]
    pub second: Second,
    /// A ROUTE-REFRESH after so many UPDATEs; 0: never.
    #[serde(default)]
    pub refresh: u64,
    /// How much is sent where it is counted.
    #[serde(default = "usual_octets")]
    pub octets: usize,
}

/// A prefix as people write it.
mod text {
    use holdfast_types::Prefix;
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub(super) fn serialize<S: Serializer>(prefix: &Prefix, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(prefix)
    }

    pub(super) fn deserialize<'a, D: Deserializer<'a>>(from: D) -> Result<Prefix, D::Error> {
        String::deserialize(from)?.parse().map_err(D::Error::custom)
    }
}

fn one() -> u64 {
    1
}

fn usual_octets() -> usize {
    256 << 10
}

/// Whom it is sent to.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Setup {
    /// Three other peers are told.
    #[default]
    Plain,
    /// Four others have announced the same with a longer path.
    Feeders,
    /// Three others have views of their own, and there are aggregates.
    Views,
    /// Three others are sent several paths.
    Paths,
    /// The RIB, which is given the prefixes; each set of attributes is another next hop.
    Rib,
}

/// What is sent in each second round over the prefixes.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Second {
    /// The same again.
    #[default]
    Again,
    /// It withdraws.
    Withdraws,
    /// The path is longer than everybody else's.
    Longer,
}

impl Recipe {
    /// From a file.
    ///
    /// # Errors
    /// When it cannot be read, or is no recipe.
    pub fn read(path: &Path) -> Result<Self> {
        let text = fs::read_to_string(path).with_context(|| path.display().to_string())?;
        toml::from_str(&text).with_context(|| path.display().to_string())
    }

    /// A table as they are, to the same speaker.
    pub fn ordinary(&self) -> Self {
        let first = match self.first {
            Prefix::V4(_) => "16.0.0.0/24",
            Prefix::V6(_) => "2001:db8::/48",
        };
        Self {
            what: "a table".into(),
            first: first.parse().expect("a prefix"),
            stride: 3,
            wrap: 0,
            routes: 8,
            sets: 0,
            path: 4,
            communities: 4,
            unknown: 0,
            filling: String::new(),
            paths: self.paths.min(2),
            apart: false,
            second: Second::Again,
            ..self.clone()
        }
    }

    /// Of its prefixes.
    pub fn family(&self) -> Family {
        match self.first {
            Prefix::V4(_) => Family::IPV4_UNICAST,
            Prefix::V6(_) => Family::IPV6_UNICAST,
        }
    }

    /// The prefix with this number.
    pub fn prefix(&self, number: u64) -> Prefix {
        fn nth<P: IpPrefix>(first: P, steps: u128) -> Prefix {
            let unit = 128 - u32::from(first.length());
            P::from_bits(first.bits().wrapping_add(steps.checked_shl(unit).unwrap_or(0)), first.length())
                .into()
        }
        let number = if self.wrap == 0 { number } else { number % self.wrap };
        let steps = u128::from(number) * u128::from(self.stride);
        match self.first {
            Prefix::V4(first) => nth::<Ipv4Prefix>(first, steps),
            Prefix::V6(first) => nth::<Ipv6Prefix>(first, steps),
        }
    }

    /// Attributes of this set but for MP_REACH_NLRI, with so many ASes.
    fn attributes(&self, set: u64, from: &Sender, hops: u64) -> Vec<u8> {
        let mut out = vec![0x40, 1, 1, 0];
        let mut path = Vec::new();
        let hops: Vec<u32> =
            (0..hops.clamp(1, 1000)).map(|hop| if hop == 0 { from.asn } else { 3000 + hop as u32 }).collect();
        for segment in hops.chunks(255) {
            path.extend([2, segment.len() as u8]);
            path.extend(segment.iter().flat_map(|asn| asn.to_be_bytes()));
        }
        attribute(&mut out, 0x40, 2, &path);
        if matches!(self.first, Prefix::V4(_)) {
            attribute(&mut out, 0x40, 3, &from.next_hop_v4.octets());
        }
        attribute(&mut out, 0x80, 4, &(set as u32).to_be_bytes());
        let communities: Vec<u8> =
            (0..self.communities.min(16_000)).flat_map(|n| (0x1000_0000 + n as u32).to_be_bytes()).collect();
        if !communities.is_empty() {
            attribute(&mut out, 0xc0, 8, &communities);
        }
        if self.unknown > 0 {
            let word = u64::from_str_radix(&self.filling, 16).unwrap_or(0);
            let mut value: Vec<u8> =
                word.to_be_bytes().into_iter().cycle().take(self.unknown.min(60_000) as usize).collect();
            let end = value.len().min(8);
            let at = value.len() - end;
            value[at..].copy_from_slice(&set.to_be_bytes()[8 - end..]);
            attribute(&mut out, 0xc0, 99, &value);
        }
        out
    }

    /// Whole messages of so many octets at least, as `from` sends them; with so many ASes in the path.
    pub fn octets(&self, from: &Sender, hops: u64, least: usize) -> Vec<u8> {
        let (mut out, mut number, mut updates) = (Vec::new(), 0_u64, 0_u64);
        while out.len() < least {
            let round = number.checked_div(self.wrap).unwrap_or(0);
            let is_second = round % 2 == 1;
            let hops = if is_second && self.second == Second::Longer { 250 } else { hops };
            let set = if self.sets == 0 { updates } else { updates % self.sets };
            let attributes = self.attributes(set, from, hops);
            let mut nlri = Vec::new();
            let room = if attributes.len() + 200 < USUAL { USUAL } else { LONGEST } - attributes.len() - 80;
            for _ in 0..self.routes.max(1) {
                let (prefix, identifier) = match self.paths {
                    0 => (number, None),
                    paths if self.apart => (number, Some((round % paths) as u32)),
                    paths => (number / paths, Some((number % paths) as u32)),
                };
                if nlri.len() + 21 > room || self.wrap != 0 && number / self.wrap != round {
                    break;
                }
                nlri.extend(identifier.map(u32::to_be_bytes).into_iter().flatten());
                push(&mut nlri, self.prefix(prefix));
                number += 1;
            }
            out.extend(self.update(from, &attributes, &nlri, is_second && self.second == Second::Withdraws));
            updates += 1;
            if self.refresh != 0 && updates % self.refresh == 0 {
                let (afi, safi) = (if matches!(self.first, Prefix::V4(_)) { 1 } else { 2 }, 1);
                message(&mut out, 5, &[0, afi, 0, safi]);
            }
        }
        out
    }

    fn update(&self, from: &Sender, attributes: &[u8], nlri: &[u8], withdraws: bool) -> Vec<u8> {
        let (mut withdrawn, mut announced, mut block) = (&[][..], &[][..], Vec::new());
        match (self.first, withdraws) {
            (Prefix::V4(_), true) => withdrawn = nlri,
            (Prefix::V4(_), false) => {
                announced = nlri;
                block.extend_from_slice(attributes);
            }
            (Prefix::V6(_), true) => attribute(&mut block, 0x80, 15, &[&[0, 2, 1], nlri].concat()),
            (Prefix::V6(_), false) => {
                let next_hop = from.next_hop_v6.octets();
                attribute(&mut block, 0x80, 14, &[&[0, 2, 1, 16], &next_hop[..], &[0], nlri].concat());
                block.extend_from_slice(attributes);
            }
        }
        let mut out = Vec::new();
        let lengths = [withdrawn.len(), block.len()].map(|len| (len as u16).to_be_bytes());
        message(&mut out, 2, &[&lengths[0], withdrawn, &lengths[1], &block, announced].concat());
        out
    }
}

/// The prefix of this length around another.
pub fn shorter(prefix: Prefix, length: u8) -> Prefix {
    match prefix {
        Prefix::V4(prefix) => Ipv4Prefix::from_bits(prefix.bits(), length).into(),
        Prefix::V6(prefix) => Ipv6Prefix::from_bits(prefix.bits(), length).into(),
    }
}

fn attribute(out: &mut Vec<u8>, flags: u8, code: u8, value: &[u8]) {
    match u8::try_from(value.len()) {
        Ok(len) => out.extend([flags, code, len]),
        Err(_) => {
            out.extend([flags | 0x10, code]);
            out.extend((value.len() as u16).to_be_bytes());
        }
    }
    out.extend_from_slice(value);
}

fn push(out: &mut Vec<u8>, prefix: Prefix) {
    let (bits, length) = match prefix {
        Prefix::V4(prefix) => (prefix.bits(), prefix.length()),
        Prefix::V6(prefix) => (prefix.bits(), prefix.length()),
    };
    out.push(length);
    out.extend_from_slice(&bits.to_be_bytes()[..usize::from(length).div_ceil(8)]);
}

fn message(out: &mut Vec<u8>, kind: u8, body: &[u8]) {
    out.extend([0xff; 16]);
    out.extend((19 + body.len() as u16).to_be_bytes());
    out.push(kind);
    out.extend_from_slice(body);
}

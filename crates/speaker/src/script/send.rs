//! `send`: what goes out.

use std::{net::IpAddr, path::PathBuf};

use holdfast_bgp_wire::{Origin, attribute::code};
use holdfast_bgpsec_wire::{CONFED_SEGMENT, Segment};
use holdfast_types::{Asn, Family, Prefix};

use super::{
    LONGEST_FILE, Statement,
    words::{Words, hex},
};

/// What goes out.
#[derive(Clone, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "the manual page says what each is")]
pub enum Outgoing {
    Open,
    Keepalive,
    Notification {
        code: u8,
        subcode: u8,
        data: Vec<u8>,
    },
    Update(Box<UpdateSpec>),
    EndOfRib(Family),
    Refresh(Family),
    /// Octets as they are.
    Octets(Vec<u8>),
    /// A header of this type around a body.
    Message {
        kind: u8,
        body: Vec<u8>,
    },
}

/// Octets of a file, or of what its digits say.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FilePart {
    /// The file.
    pub path: PathBuf,
    /// It has digits.
    pub is_hex: bool,
    /// The first octet.
    pub at: u64,
    /// How many; all if it is not said.
    pub length: Option<u64>,
}

/// An UPDATE.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct UpdateSpec {
    /// Announced; of one family.
    pub announced: Vec<Prefix>,
    /// Withdrawn; of one family.
    pub withdrawn: Vec<Prefix>,
    /// Our address on the connection if it is not said.
    pub next_hop: Option<IpAddr>,
    /// IPv4 routes go into MP_REACH_NLRI and MP_UNREACH_NLRI as well.
    pub is_mp: bool,
    /// AS_PATH; our AS if it is not said.
    pub path: Option<Vec<Asn>>,
    /// ORIGIN.
    pub origin: Option<Origin>,
    /// MULTI_EXIT_DISC.
    pub med: Option<u32>,
    /// LOCAL_PREF.
    pub local_pref: Option<u32>,
    /// COMMUNITIES.
    pub communities: Vec<u32>,
    /// Attributes that stand in the place of what we would have sent, or beside it.
    pub added: Vec<AddAttribute>,
    /// Types of attributes that are left out.
    pub without: Vec<u8>,
    /// BGPsec_PATH in the place of AS_PATH: whoever signs, the origin first, and for whom the last one does.
    pub bgpsec: Option<(Option<Asn>, Vec<Hop>)>,
}

/// An attribute as it is said.
#[derive(Clone, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "they are its fields")]
pub struct AddAttribute {
    pub flags: u8,
    pub code: u8,
    pub value: Vec<u8>,
}

/// Who signs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Hop {
    /// The private key.
    pub key: PathBuf,
    /// Whose it is; that of our OPEN if it is not said.
    pub asn: Option<Asn>,
    /// How often it counts.
    pub pcount: u8,
    /// Flags of the segment.
    pub flags: u8,
}

impl Hop {
    /// What it adds to the path.
    pub(crate) fn segment(&self, asn: Asn) -> Segment {
        Segment { pcount: self.pcount, flags: self.flags, asn }
    }
}

pub(super) fn read(words: &mut Words) -> Result<Statement, String> {
    let octet = u32::from(u8::MAX);
    Ok(Statement::Send(match words.need("what to send")?.as_str() {
        "open" => Outgoing::Open,
        "keepalive" => Outgoing::Keepalive,
        "notification" => {
            let (code, subcode) = (words.number("a code", octet)?, words.number("a subcode", octet)?);
            let data = if words.peek().is_some() { words.rest_of_hex()? } else { Vec::new() };
            Outgoing::Notification { code: code as u8, subcode: subcode as u8, data }
        }
        "update" => Outgoing::Update(Box::new(update(words)?)),
        "end-of-rib" => Outgoing::EndOfRib(words.parse("a family")?),
        "refresh" => Outgoing::Refresh(words.parse("a family")?),
        "hex" => Outgoing::Octets(words.rest_of_hex()?),
        "message" => {
            let kind = words.number("a type of messages", octet)? as u8;
            let body = if words.peek().is_some() { words.rest_of_hex()? } else { Vec::new() };
            Outgoing::Message { kind, body }
        }
        "file" => return Ok(Statement::SendFile(file(words, false)?)),
        "hexfile" => return Ok(Statement::SendFile(file(words, true)?)),
        other => return Err(format!("`{other}` cannot be sent")),
    }))
}

fn file(words: &mut Words, is_hex: bool) -> Result<FilePart, String> {
    let path = words.need("a file")?.into();
    let number = |words: &mut Words| words.number("a number of octets", LONGEST_FILE as u32).map(u64::from);
    let at = if words.take("at") { number(words)? } else { 0 };
    let length = if words.take("length") { Some(number(words)?) } else { None };
    Ok(FilePart { path, is_hex, at, length })
}

fn update(words: &mut Words) -> Result<UpdateSpec, String> {
    let mut spec = UpdateSpec { announced: prefixes(words), ..UpdateSpec::default() };
    while let Some(word) = words.next() {
        match word.as_str() {
            "withdraw" => spec.withdrawn.extend(prefixes(words)),
            "next-hop" => spec.next_hop = Some(words.parse("an address")?),
            "mp" => spec.is_mp = true,
            "path" => spec.path = Some(path(&words.need("a path")?)?),
            "origin" => spec.origin = Some(origin(&words.need("an origin")?)?),
            "med" => spec.med = Some(words.number("a MED", u32::MAX)?),
            "local-pref" => spec.local_pref = Some(words.number("a preference", u32::MAX)?),
            "community" => {
                let all = words.need("a community")?;
                for one in all.split(',') {
                    spec.communities
                        .push(community(one).ok_or_else(|| format!("`{one}` is no community: 64511:1"))?);
                }
            }
            "attribute" => spec.added.push(attribute(&words.need("an attribute")?)?),
            "without" => spec.without.push(words.number("a type of attributes", u8::MAX.into())? as u8),
            "bgpsec" => spec.bgpsec = Some(bgpsec(words)?),
            other => return Err(format!("`{other}` is not understood here")),
        }
    }
    for list in [&spec.announced, &spec.withdrawn] {
        if list.iter().any(|prefix| prefix.afi() != list[0].afi()) {
            return Err("prefixes of both families in one UPDATE".to_owned());
        }
    }
    let is_v6 = spec.announced.first().is_some_and(|prefix| matches!(prefix, Prefix::V6(_)));
    let hop_is_v4 = spec.next_hop.is_some_and(|address| address.is_ipv4());
    if is_v6 && hop_is_v4 {
        return Err("routes of IPv6 have a next hop of IPv6".to_owned());
    }
    if spec.bgpsec.is_some() && spec.announced.len() != 1 {
        // Two of them, or none, are for `send hex`: what is signed is one.
        return Err("`bgpsec` signs one prefix".to_owned());
    }
    Ok(spec)
}

fn prefixes(words: &mut Words) -> Vec<Prefix> {
    let mut all = Vec::new();
    while let Some(prefix) = words.peek().and_then(|word| word.parse().ok()) {
        all.push(prefix);
        words.next();
    }
    all
}

fn path(text: &str) -> Result<Vec<Asn>, String> {
    if text == "empty" {
        return Ok(Vec::new());
    }
    text.split(',').map(|asn| asn.parse().map_err(|_| format!("`{asn}` is no AS number"))).collect()
}

fn origin(text: &str) -> Result<Origin, String> {
    Ok(match text {
        "igp" => Origin::Igp,
        "egp" => Origin::Egp,
        "incomplete" => Origin::Incomplete,
        other => return Err(format!("`{other}` is none of `igp`, `egp`, `incomplete`")),
    })
}

fn community(text: &str) -> Option<u32> {
    let (high, low) = text.split_once(':')?;
    Some(u32::from(high.parse::<u16>().ok()?) << 16 | u32::from(low.parse::<u16>().ok()?))
}

/// `FLAGS:TYPE:VALUE`, the first and the last in hexadecimal digits.
fn attribute(text: &str) -> Result<AddAttribute, String> {
    let wrong = || format!("`{text}` is no attribute: FLAGS:TYPE:VALUE, as in c0:8:fbff0001");
    let [flags, kind, value] = text.split(':').collect::<Vec<_>>()[..] else { return Err(wrong()) };
    let [flags] = hex(flags).ok().and_then(|octets| octets.try_into().ok()).ok_or_else(wrong)?;
    let value = hex(value)?;
    let code = kind.parse().map_err(|_| wrong())?;
    if value.len() > usize::from(u16::MAX) { Err(wrong()) } else { Ok(AddAttribute { flags, code, value }) }
}

/// `[to AS] key FILE [as AS] [pcount N] [confederation] [flags HEX] [key …]`
fn bgpsec(words: &mut Words) -> Result<(Option<Asn>, Vec<Hop>), String> {
    let to = if words.take("to") { Some(words.parse("an AS number")?) } else { None };
    let mut hops = Vec::new();
    while words.take("key") {
        let mut hop = Hop { key: words.need("a file")?.into(), asn: None, pcount: 1, flags: 0 };
        loop {
            if words.take("as") {
                hop.asn = Some(words.parse("an AS number")?);
            } else if words.take("pcount") {
                hop.pcount = words.number("a pCount", u8::MAX.into())? as u8;
            } else if words.take("confederation") {
                hop.flags |= CONFED_SEGMENT;
            } else if words.take("flags") {
                let digits = words.need("an octet of flags")?;
                let flags: Option<[u8; 1]> = hex(&digits)?.try_into().ok();
                hop.flags = flags.ok_or_else(|| format!("`{digits}` is not one octet"))?[0];
            } else {
                break;
            }
        }
        hops.push(hop);
    }
    if hops.is_empty() {
        Err("a key of who signs first is missing: `key FILE`".to_owned())
    } else {
        Ok((to, hops))
    }
}

impl UpdateSpec {
    /// Whether the announced routes go into MP_REACH_NLRI.
    pub(crate) fn is_mp(&self) -> bool {
        let is_v6 = |list: &[Prefix]| matches!(list, [Prefix::V6(_), ..]);
        let hop_is_v6 = self.next_hop.is_some_and(|address| address.is_ipv6());
        self.is_mp || self.bgpsec.is_some() || is_v6(&self.announced) || hop_is_v6
    }

    /// Whether an attribute is said, or is to be left out.
    pub(crate) fn replaces(&self, kind: u8) -> bool {
        self.without.contains(&kind)
            || self.added.iter().any(|attribute| attribute.code == kind)
            || kind == code::AS_PATH && self.bgpsec.is_some()
    }
}

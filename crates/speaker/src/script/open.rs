//! `open`: what our OPEN says.

use std::net::Ipv4Addr;

use holdfast_bgp_wire::Capability;
use holdfast_types::{Afi, Asn, Family};

use super::words::{Words, hex};

/// BGPsec Capability (RFC 8205 section 2.1).
pub(crate) const BGPSEC: u8 = 7;

/// What our OPEN says. Anything can be said: that is what scripts are for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OpenSpec {
    /// Our AS; also in the four-octet capability, unless that is left out.
    pub asn: Asn,
    /// Seconds.
    pub hold: u16,
    /// BGP Identifier.
    pub id: Ipv4Addr,
    /// Version of BGP.
    pub version: u8,
    /// What is in the field for an AS of two octets, if not what belongs there.
    pub my_as: Option<u16>,
    /// In this order.
    pub capabilities: Vec<Capability>,
}

pub(super) fn read(words: &mut Words) -> Result<OpenSpec, String> {
    if !words.take("as") {
        return Err("`open as AS`: the AS is missing".to_owned());
    }
    let asn: Asn = words.parse("an AS number")?;
    let id = Ipv4Addr::from(0x0a00_0000 | asn.0 & 0x00ff_ffff);
    let mut spec = OpenSpec { asn, hold: 90, id, version: 4, my_as: None, capabilities: Vec::new() };
    let (mut families, mut has_as4, mut others) = (None, true, Vec::new());
    while let Some(word) = words.next() {
        match word.as_str() {
            "hold" => spec.hold = words.number("a hold time", u16::MAX.into())? as u16,
            "id" => spec.id = words.parse("an identifier")?,
            "version" => spec.version = words.number("a version", u8::MAX.into())? as u8,
            "my-as" => spec.my_as = Some(words.number("an AS of two octets", u16::MAX.into())? as u16),
            "no-as4" => has_as4 = false,
            "family" => families.get_or_insert_with(Vec::new).push(words.parse::<Family>("a family")?),
            "no-family" => families = Some(Vec::new()),
            "route-refresh" => others.push(Capability::RouteRefresh),
            "extended-message" => others.push(Capability::ExtendedMessage),
            "bgpsec" => others.push(bgpsec(words)?),
            "capability" => others.push(capability(&words.need("a capability")?)?),
            other => return Err(format!("`{other}` is not understood here")),
        }
    }
    let as4 = has_as4.then_some(Capability::FourOctetAs(asn));
    let families = families.unwrap_or_else(|| vec![Family::IPV4_UNICAST]);
    let families = families.into_iter().map(Capability::Multiprotocol);
    spec.capabilities = families.chain(as4).chain(others).collect();
    Ok(spec)
}

/// `send ipv4`: version 0, one direction, one AFI.
fn bgpsec(words: &mut Words) -> Result<Capability, String> {
    let direction = match words.need("`send` or `receive`")?.as_str() {
        "receive" => 0,
        "send" => 1_u8,
        other => return Err(format!("`{other}` is none of `send`, `receive`")),
    };
    let afi = match words.need("`ipv4` or `ipv6`")?.as_str() {
        "ipv4" => Afi::IPV4,
        "ipv6" => Afi::IPV6,
        other => return Err(format!("`{other}` is none of `ipv4`, `ipv6`")),
    };
    let [high, low] = afi.0.to_be_bytes();
    Ok(Capability::Unknown { code: BGPSEC, value: vec![direction << 3, high, low] })
}

/// `CODE` or `CODE:HEX`.
fn capability(text: &str) -> Result<Capability, String> {
    let (code, value) = text.split_once(':').unwrap_or((text, ""));
    let code = code.parse().map_err(|_| format!("`{text}` is no capability: CODE or CODE:HEX"))?;
    let value = hex(value)?;
    if value.len() > 255 {
        Err("a capability has 255 octets at most".to_owned())
    } else {
        Ok(Capability::Unknown { code, value })
    }
}

//! What is sent, as octets.

use std::net::{IpAddr, SocketAddr};

use holdfast_bgp_wire::{
    Capability, HEADER_LEN, KEEPALIVE, MAX_EXTENDED_LEN, MessageType, NextHop, Notification, Open, Origin,
    RouteRefresh,
    attribute::{code, flag, push},
    encode::end_of_rib,
    nlri::Nlri as _,
};
use holdfast_bgpsec_wire::{Nlri, Path};
use holdfast_path_validation::{P256Signer, Signer, sign};
use holdfast_types::{Asn, Family, Prefix, RouterId};

use crate::script::{Hop, OpenSpec, Outgoing, UpdateSpec};

/// AS_SEQUENCE (RFC 4271 section 4.3), and how many ASs one has room for.
const AS_SEQUENCE: u8 = 2;
const MOST_IN_SEGMENT: usize = 255;
const OPTIONAL_TRANSITIVE: u8 = flag::OPTIONAL | flag::TRANSITIVE;

/// Who sends, and to whom, as far as messages depend on it.
#[derive(Clone, Debug)]
pub(crate) struct Ends<'a> {
    /// Our OPEN, if the script has said what it is.
    pub(crate) open: Option<&'a OpenSpec>,
    /// Our address on the connection.
    pub(crate) address: SocketAddr,
    /// The AS in the peer's OPEN, if that has come.
    pub(crate) peer: Option<Asn>,
}

impl Ends<'_> {
    fn our_open(&self) -> Result<&OpenSpec, String> {
        self.open.ok_or_else(|| "no `open as AS` says who we are".to_owned())
    }

    fn has_as4(&self) -> bool {
        let is_as4 = |capability: &Capability| matches!(capability, Capability::FourOctetAs(_));
        self.open.is_none_or(|open| open.capabilities.iter().any(is_as4))
    }

    /// Whose segment a hop adds.
    pub(crate) fn asn_of(&self, hop: &Hop) -> Result<Asn, String> {
        hop.asn.map_or_else(|| Ok(self.our_open()?.asn), Ok)
    }
}

/// The octets of what is sent; `signers` are those of an UPDATE's hops.
pub(crate) fn octets(what: &Outgoing, ends: &Ends<'_>, signers: &[P256Signer]) -> Result<Vec<u8>, String> {
    let mut octets = Vec::new();
    match what {
        Outgoing::Open => return Ok(open(ends.our_open()?)),
        Outgoing::Keepalive => octets.extend(KEEPALIVE),
        Outgoing::Notification { code, subcode, data } => {
            return Ok(Notification { code: *code, subcode: *subcode, data: data.clone() }.encode());
        }
        Outgoing::Update(spec) => return message(MessageType::Update as u8, &update(spec, ends, signers)?),
        Outgoing::EndOfRib(family) => end_of_rib(*family, &mut octets),
        Outgoing::Refresh(family) => return Ok(RouteRefresh::request(*family).encode()),
        Outgoing::Octets(given) => octets.extend(given),
        Outgoing::Message { kind, body } => return message(*kind, body),
    }
    Ok(octets)
}

/// A header around a body.
fn message(kind: u8, body: &[u8]) -> Result<Vec<u8>, String> {
    let length = Some(HEADER_LEN + body.len()).filter(|length| *length <= MAX_EXTENDED_LEN);
    let length = length.ok_or_else(|| format!("no message has a body of {} octets", body.len()))? as u16;
    Ok([&[0xff; 16][..], &length.to_be_bytes(), &[kind], body].concat())
}

/// The encoder makes sound ones only; what the script has said otherwise is put in afterwards.
fn open(spec: &OpenSpec) -> Vec<u8> {
    let any = RouterId::new(1).expect("is not zero");
    let sound =
        Open { asn: spec.asn, hold_time: spec.hold, router_id: any, capabilities: spec.capabilities.clone() };
    let mut octets = sound.encode();
    octets[HEADER_LEN] = spec.version;
    let my_as = spec.my_as.unwrap_or_else(|| spec.asn.two_octets());
    octets[HEADER_LEN + 1..HEADER_LEN + 3].copy_from_slice(&my_as.to_be_bytes());
    octets[HEADER_LEN + 5..HEADER_LEN + 9].copy_from_slice(&spec.id.octets());
    octets
}

fn update(spec: &UpdateSpec, ends: &Ends<'_>, signers: &[P256Signer]) -> Result<Vec<u8>, String> {
    let mut attributes: Vec<(u8, u8, Vec<u8>)> = Vec::new();
    let (mut withdrawn, mut announced) = (Vec::new(), Vec::new());
    if let Some(first) = spec.announced.first() {
        attributes.push((flag::TRANSITIVE, code::ORIGIN, vec![spec.origin.unwrap_or(Origin::Igp) as u8]));
        match (&spec.bgpsec, spec.replaces(code::AS_PATH)) {
            (Some((to, hops)), _) => {
                let path = signed(*to, hops, *first, ends, signers)?;
                attributes.push((flag::OPTIONAL, code::BGPSEC_PATH, path));
            }
            (None, true) => {}
            (None, false) => attributes.push((flag::TRANSITIVE, code::AS_PATH, as_path(spec, ends)?)),
        }
        if spec.is_mp() {
            attributes.push((flag::OPTIONAL, code::MP_REACH_NLRI, mp_reach(spec, *first, ends)?));
        } else {
            if !spec.replaces(code::NEXT_HOP) {
                let next_hop = octets_of(next_hop(spec, *first, ends)?);
                attributes.push((flag::TRANSITIVE, code::NEXT_HOP, next_hop));
            }
            push_all(&spec.announced, &mut announced);
        }
    }
    match spec.withdrawn.first() {
        Some(first) if spec.is_mp || matches!(first, Prefix::V6(_)) => {
            let mut value = family_of(*first);
            push_all(&spec.withdrawn, &mut value);
            attributes.push((flag::OPTIONAL, code::MP_UNREACH_NLRI, value));
        }
        _ => push_all(&spec.withdrawn, &mut withdrawn),
    }
    let numbers = [
        (flag::OPTIONAL, code::MULTI_EXIT_DISC, spec.med),
        (flag::TRANSITIVE, code::LOCAL_PREF, spec.local_pref),
    ];
    for (flags, code, number) in numbers {
        attributes.extend(number.map(|number| (flags, code, number.to_be_bytes().to_vec())));
    }
    if !spec.communities.is_empty() {
        let value = spec.communities.iter().flat_map(|community| community.to_be_bytes()).collect();
        attributes.push((OPTIONAL_TRANSITIVE, code::COMMUNITIES, value));
    }
    attributes.retain(|(_, code, _)| !spec.replaces(*code));
    attributes.extend(spec.added.iter().map(|added| (added.flags, added.code, added.value.clone())));
    attributes.sort_by_key(|(_, code, _)| *code);
    let mut list = Vec::new();
    for (flags, code, value) in &attributes {
        push(&mut list, *flags, *code, value);
    }
    let length = |octets: &[u8]| {
        u16::try_from(octets.len()).map(u16::to_be_bytes).map_err(|_| "the UPDATE is too long".to_owned())
    };
    Ok([&length(&withdrawn)?[..], &withdrawn, &length(&list)?, &list, &announced].concat())
}

fn push_all(prefixes: &[Prefix], out: &mut Vec<u8>) {
    for prefix in prefixes {
        match prefix {
            Prefix::V4(prefix) => prefix.push(out),
            Prefix::V6(prefix) => prefix.push(out),
        }
    }
}

fn as_path(spec: &UpdateSpec, ends: &Ends<'_>) -> Result<Vec<u8>, String> {
    let path = match &spec.path {
        Some(path) => path.clone(),
        None => vec![ends.our_open()?.asn],
    };
    let mut value = Vec::new();
    for segment in path.chunks(MOST_IN_SEGMENT) {
        value.extend([AS_SEQUENCE, segment.len() as u8]);
        for asn in segment {
            match ends.has_as4() {
                true => value.extend(asn.0.to_be_bytes()),
                false => value.extend(asn.two_octets().to_be_bytes()),
            }
        }
    }
    Ok(value)
}

fn next_hop(spec: &UpdateSpec, first: Prefix, ends: &Ends<'_>) -> Result<NextHop, String> {
    match (spec.next_hop.unwrap_or_else(|| ends.address.ip()), first) {
        (IpAddr::V4(address), Prefix::V4(_)) => Ok(NextHop::V4(address)),
        (IpAddr::V6(global), _) => Ok(NextHop::V6 { global, link_local: None }),
        (IpAddr::V4(_), Prefix::V6(_)) => Err("routes of IPv6 want a `next-hop` over IPv4".to_owned()),
    }
}

fn octets_of(next_hop: NextHop) -> Vec<u8> {
    let mut octets = Vec::new();
    next_hop.push(&mut octets);
    octets
}

fn mp_reach(spec: &UpdateSpec, first: Prefix, ends: &Ends<'_>) -> Result<Vec<u8>, String> {
    let (mut value, next_hop) = (family_of(first), octets_of(next_hop(spec, first, ends)?));
    value.push(next_hop.len() as u8);
    value.extend(next_hop);
    value.push(0);
    push_all(&spec.announced, &mut value);
    Ok(value)
}

/// AFI and SAFI.
fn family_of(prefix: Prefix) -> Vec<u8> {
    let Family { afi, safi } = Nlri::unicast(prefix).family;
    let [high, low] = afi.0.to_be_bytes();
    vec![high, low, safi.0]
}

/// A path signed by each hop for the next one, and by the last for `to`, or for the peer.
fn signed(
    to: Option<Asn>,
    hops: &[Hop],
    prefix: Prefix,
    ends: &Ends<'_>,
    signers: &[P256Signer],
) -> Result<Vec<u8>, String> {
    let last =
        to.or(ends.peer).ok_or("for whom is to be signed? The peer's OPEN has not come: `bgpsec to AS`")?;
    let mut path: Option<Vec<u8>> = None;
    for (number, (hop, signer)) in hops.iter().zip(signers).enumerate() {
        let target = hops.get(number + 1).map_or(Ok(last), |next| ends.asn_of(next))?;
        let before = path.as_deref().map(Path::parse).transpose().map_err(|error| error.to_string())?;
        let segment = hop.segment(signer.asn());
        let signed = sign(before.as_ref(), segment, target, &Nlri::unicast(prefix), &[signer]);
        path = Some(signed.map_err(|error| error.to_string())?);
    }
    path.ok_or_else(|| "nobody signs".to_owned())
}

//! Routes as `bgp` hands them out, in the forms of others.

use std::{
    collections::HashMap,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

use holdfast_api::bgp::v1::{DumpedPath, DumpedPrefix};
use holdfast_bgp_wire::{
    Attributes, MAX_EXTENDED_LEN, NextHop, UpdateEncoder,
    edit::{Change, Edit, rewrite},
    encode,
    nlri::{Identified, Nlri},
};
use holdfast_types::{Family, Ipv4Prefix, Ipv6Prefix, Prefix};

/// 4 or 16 octets.
pub(crate) fn address(octets: &[u8]) -> Option<IpAddr> {
    let v4 = <[u8; 4]>::try_from(octets).map(IpAddr::from);
    v4.or_else(|_| <[u8; 16]>::try_from(octets).map(IpAddr::from)).ok()
}

/// The prefix of some routes.
pub(crate) fn prefix(dumped: &DumpedPrefix) -> Option<Prefix> {
    Prefix::new(address(&dumped.address)?, u8::try_from(dumped.length).ok()?)
}

/// Where a route leads to; ourselves, where it is our own.
fn next_hop(prefix: Prefix, path: &DumpedPath) -> NextHop {
    match (address(&path.next_hop), prefix) {
        (Some(IpAddr::V4(address)), _) => NextHop::V4(address),
        (Some(IpAddr::V6(global)), _) => NextHop::V6 { global, link_local: None },
        (None, Prefix::V4(_)) => NextHop::V4(Ipv4Addr::UNSPECIFIED),
        (None, Prefix::V6(_)) => NextHop::V6 { global: Ipv6Addr::UNSPECIFIED, link_local: None },
    }
}

fn with_next_hop(path: &DumpedPath, next_hop: NextHop) -> Vec<u8> {
    let next_hop = match next_hop {
        NextHop::V4(address) => Change::Set(address),
        NextHop::V6 { .. } => Change::Remove,
    };
    let mut attributes = Vec::with_capacity(path.attributes.len() + 7);
    rewrite(&path.attributes, &Edit { next_hop, ..Edit::default() }, &mut attributes);
    attributes
}

/// The attributes of a route in a table of MRT: MP_REACH_NLRI has only the next hop (RFC 6396 section 4.3.4).
pub(crate) fn table_attributes(prefix: Prefix, path: &DumpedPath) -> Vec<u8> {
    /// Optional; its code; octets of the value.
    const MP_REACH: [u8; 3] = [0x80, 14, 17];
    let next_hop = next_hop(prefix, path);
    let mut attributes = with_next_hop(path, next_hop);
    if let NextHop::V6 { global, .. } = next_hop {
        attributes.extend(MP_REACH);
        attributes.push(16);
        attributes.extend(global.octets());
    }
    attributes
}

/// Routes that differ by their prefix and path identifier only: of one family, with these attributes and this next hop.
type Alike<'a> = HashMap<(bool, bool, &'a [u8], &'a [u8]), Vec<(Prefix, &'a DumpedPath)>>;

/// UPDATEs, one message each, with routes that have everything but the prefix in common. Those that have a path identifier
/// are written with it (RFC 7911 section 3).
pub(crate) fn updates<'a>(
    routes: impl Iterator<Item = (Prefix, &'a DumpedPath)>,
    tell: &mut dyn FnMut(&[u8]),
) {
    let mut alike: Alike<'_> = HashMap::new();
    for (prefix, path) in routes {
        let is_v4 = matches!(prefix, Prefix::V4(_));
        let key = (is_v4, path.path_id.is_some(), &path.attributes[..], &path.next_hop[..]);
        alike.entry(key).or_default().push((prefix, path));
    }
    let encoder = UpdateEncoder::new(MAX_EXTENDED_LEN);
    for routes in alike.into_values() {
        let Some(&(first, path)) = routes.first() else { continue };
        let next_hop = next_hop(first, path);
        let attributes = with_next_hop(path, next_hop);
        let v4 = routes.iter().filter_map(|(prefix, path)| Some((prefix_v4(*prefix)?, path.path_id)));
        let v6 = routes.iter().filter_map(|(prefix, path)| Some((prefix_v6(*prefix)?, path.path_id)));
        let (mut messages, with) = (Vec::new(), (&attributes[..], next_hop));
        match (first, path.path_id) {
            (Prefix::V4(_), None) => announce_v4(&encoder, with, v4.map(|(prefix, _)| prefix), &mut messages),
            (Prefix::V4(_), Some(_)) => announce_v4(&encoder, with, v4.filter_map(identified), &mut messages),
            (Prefix::V6(_), None) => announce_v6(&encoder, with, v6.map(|(prefix, _)| prefix), &mut messages),
            (Prefix::V6(_), Some(_)) => announce_v6(&encoder, with, v6.filter_map(identified), &mut messages),
        }
        each(&messages, tell);
    }
}

fn identified<P>((prefix, identifier): (P, Option<u32>)) -> Option<Identified<P>> {
    Some(Identified { identifier: identifier?, prefix })
}

// Attributes that leave no room for a prefix came in a message that had it.

fn announce_v4<N: Nlri<Prefix = Ipv4Prefix>>(
    encoder: &UpdateEncoder,
    (attributes, next_hop): (&[u8], NextHop),
    prefixes: impl Iterator<Item = N>,
    messages: &mut Vec<u8>,
) {
    let _ = match next_hop {
        NextHop::V4(_) => encoder.announce(attributes, prefixes, messages),
        NextHop::V6 { .. } => encoder.announce_mp(attributes, next_hop, prefixes, messages),
    };
}

fn announce_v6<N: Nlri<Prefix = Ipv6Prefix>>(
    encoder: &UpdateEncoder,
    (attributes, next_hop): (&[u8], NextHop),
    prefixes: impl Iterator<Item = N>,
    messages: &mut Vec<u8>,
) {
    let _ = encoder.announce_mp(attributes, next_hop, prefixes, messages);
}

/// The IANA number of the address family whose prefixes an UPDATE has: that of its MP attributes, otherwise IPv4's.
pub(crate) fn afi(message: &[u8]) -> u32 {
    /// MP_REACH_NLRI and MP_UNREACH_NLRI (RFC 4760), both of which begin with the family.
    const MP: [u8; 2] = [14, 15];
    let attributes = message.get(19..).and_then(field).and_then(|(_withdrawn, rest)| field(rest));
    let mp = attributes.and_then(|(attributes, _)| {
        MP.into_iter().find_map(|code| Attributes(attributes).get(code))?.value.first_chunk()
    });
    mp.map_or(Family::IPV4_UNICAST.afi.0, |afi| u16::from_be_bytes(*afi)).into()
}

/// What is behind its length in two octets, and the rest.
fn field(octets: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = octets.split_first_chunk()?;
    rest.split_at_checked(usize::from(u16::from_be_bytes(*length)))
}

/// The withdrawal of a route.
pub(crate) fn withdrawal(prefix: Prefix) -> Vec<u8> {
    let (encoder, mut message) = (UpdateEncoder::new(MAX_EXTENDED_LEN), Vec::new());
    match prefix {
        Prefix::V4(prefix) => encoder.withdraw([prefix], &mut message),
        Prefix::V6(prefix) => encoder.withdraw_mp([prefix], &mut message),
    };
    message
}

/// The end of a table.
pub(crate) fn end_of_rib(family: Family) -> Vec<u8> {
    let mut message = Vec::new();
    encode::end_of_rib(family, &mut message);
    message
}

/// Whole messages, one by one.
pub(crate) fn each(mut messages: &[u8], tell: &mut dyn FnMut(&[u8])) {
    while let Some(length) = messages.get(16..18) {
        let length = usize::from(u16::from_be_bytes([length[0], length[1]]));
        let Some((message, rest)) = messages.split_at_checked(length.max(19)) else { return };
        tell(message);
        messages = rest;
    }
}

fn prefix_v4(prefix: Prefix) -> Option<Ipv4Prefix> {
    match prefix {
        Prefix::V4(prefix) => Some(prefix),
        Prefix::V6(_) => None,
    }
}

fn prefix_v6(prefix: Prefix) -> Option<Ipv6Prefix> {
    match prefix {
        Prefix::V6(prefix) => Some(prefix),
        Prefix::V4(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use holdfast_bgp_wire::{Attributes, Origin, edit::AttributesBuilder};

    use super::*;

    fn path(next_hop: &str) -> DumpedPath {
        let next_hop = match next_hop.parse::<IpAddr>() {
            Ok(IpAddr::V4(address)) => address.octets().to_vec(),
            Ok(IpAddr::V6(address)) => address.octets().to_vec(),
            Err(_) => Vec::new(),
        };
        let attributes = AttributesBuilder::new(Origin::Igp).build();
        DumpedPath { attributes, next_hop, ..DumpedPath::default() }
    }

    #[test]
    fn routes_that_are_alike_share_a_message() {
        let (near, far) = (path("192.0.2.1"), path("2001:db8::1"));
        let prefixes =
            ["10.0.0.0/8", "11.0.0.0/8", "2001:db8::/32"].map(|text| text.parse().expect("a prefix"));
        let mut told = Vec::new();
        let routes = [(prefixes[0], &near), (prefixes[1], &near), (prefixes[2], &far)];
        updates(routes.into_iter(), &mut |message| told.push(message.to_vec()));
        assert_eq!(told.len(), 2);
        assert!(told.iter().any(|message| message.ends_with(&[8, 10, 8, 11])));
        assert!(told.iter().all(|message| message[18] == 2), "UPDATEs");
    }

    #[test]
    fn routes_with_path_identifiers_are_written_with_them() {
        let prefix = "10.0.0.0/8".parse().expect("a prefix");
        let plain = path("192.0.2.1");
        let (first, second) = (
            DumpedPath { path_id: Some(7), ..plain.clone() },
            DumpedPath { path_id: Some(8), ..plain.clone() },
        );
        let mut told = Vec::new();
        updates([(prefix, &plain), (prefix, &first), (prefix, &second)].into_iter(), &mut |message| {
            told.push(message.to_vec());
        });
        assert_eq!(told.len(), 2, "not in one message");
        assert!(told.iter().any(|message| message.ends_with(&[0, 0, 0, 7, 8, 10, 0, 0, 0, 8, 8, 10])));
        assert!(told.iter().all(|message| afi(message) == 1));
        let v6 = path("2001:db8::1");
        let v6 = DumpedPath { path_id: Some(9), ..v6 };
        told.clear();
        updates([("2001:db8::/32".parse().expect("a prefix"), &v6)].into_iter(), &mut |message| {
            told.push(message.to_vec());
        });
        let nlri = [0, 0, 0, 9, 32, 0x20, 1, 0x0d, 0xb8];
        assert!(told[0].windows(nlri.len()).any(|octets| octets == nlri));
        assert_eq!((afi(&told[0]), afi(&[0; 19]), afi(&end_of_rib(Family::IPV6_UNICAST))), (2, 1, 2));
    }

    #[test]
    fn a_route_of_our_own_has_no_address_to_go_to() {
        let attributes = table_attributes("10.0.0.0/8".parse().expect("a prefix"), &path(""));
        assert_eq!(Attributes(&attributes).next_hop(), Some(Ipv4Addr::UNSPECIFIED));
        let attributes = table_attributes("2001:db8::/32".parse().expect("a prefix"), &path("2001:db8::1"));
        assert_eq!(Attributes(&attributes).next_hop(), None);
        assert_eq!(attributes[attributes.len() - 20..attributes.len() - 14], [0x80, 14, 17, 16, 0x20, 1]);
    }

    #[test]
    fn octets_that_are_no_messages_are_nothing() {
        let mut count = 0;
        each(&[0xff; 18], &mut |_| count += 1);
        each(&[0; 40], &mut |_| count += 1);
        assert!(count <= 2, "it ends");
    }
}

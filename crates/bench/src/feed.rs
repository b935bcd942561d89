//! What a feeder says, made before the clock starts.

use std::net::IpAddr;

use anyhow::Result;
use holdfast_bgp_wire::{
    MAX_LEN, NextHop, UpdateEncoder,
    edit::{Change, Edit, rewrite},
    encode::end_of_rib,
};
use holdfast_lab::table::Table;
use holdfast_types::{Asn, Family, IpPrefix, Ipv4Prefix, Ipv6Prefix, Prefix};

/// The UPDATEs of a whole table, from a peer with this address and AS number.
pub(crate) fn announce(table: &Table, from: IpAddr, asn: Asn) -> Result<Vec<u8>> {
    let (mut out, mut attributes) = (Vec::new(), Vec::new());
    for routes in table.routes.chunk_by(|a, b| (a.0.afi(), a.1) == (b.0.afi(), b.1)) {
        let edit = Edit {
            prepend: &[(asn, 1)],
            next_hop: match from {
                IpAddr::V4(address) => Change::Set(address),
                IpAddr::V6(_) => Change::Remove,
            },
            external: true,
            reflection: Change::Remove,
            four_octet_as: true,
            ..Edit::default()
        };
        attributes.clear();
        rewrite(&table.sets[routes[0].1 as usize].bytes, &edit, &mut attributes);
        let encoder = UpdateEncoder::new(MAX_LEN);
        match from {
            IpAddr::V4(_) => encoder.announce(&attributes, of::<Ipv4Prefix>(routes), &mut out)?,
            IpAddr::V6(global) => {
                let hop = NextHop::V6 { global, link_local: None };
                encoder.announce_mp(&attributes, hop, of::<Ipv6Prefix>(routes), &mut out)?
            }
        };
    }
    Ok(out)
}

/// End-of-RIB for the family of an address.
pub(crate) fn end(from: IpAddr) -> Vec<u8> {
    let mut out = Vec::new();
    end_of_rib(family(from), &mut out);
    out
}

/// The family that sessions with such addresses are for.
pub(crate) fn family(address: IpAddr) -> Family {
    match address {
        IpAddr::V4(_) => Family::IPV4_UNICAST,
        IpAddr::V6(_) => Family::IPV6_UNICAST,
    }
}

fn of<P: IpPrefix>(routes: &[(Prefix, u32)]) -> impl Iterator<Item = P> + '_ {
    routes.iter().filter_map(|(prefix, _)| P::from_prefix(*prefix))
}

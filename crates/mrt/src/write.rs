//! Writing: the records that a speaker makes of its own tables and sessions, with four-octet AS numbers throughout.

use std::net::IpAddr;

use holdfast_types::{Afi, Prefix};

use crate::{Message, Peer, RibEntry, Session, StateChange};

/// MRT types (RFC 6396 section 4).
const TABLE_DUMP_V2: u16 = 13;
const BGP4MP: u16 = 16;
const BGP4MP_ET: u16 = 17;

/// When something happened.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Stamp {
    /// Seconds since 1970.
    pub seconds: u32,
    /// With a fraction, the record's type is BGP4MP_ET.
    pub microseconds: Option<u32>,
}

/// What is too long for its field is left out; the record is not written.
#[derive(Copy, Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("too many peers or octets for one record")]
pub struct TooLong;

/// Appends a PEER_INDEX_TABLE (RFC 6396 section 4.3.1).
///
/// # Errors
/// More than 65,535 peers, or octets in the name of the view.
pub fn peer_index(
    seconds: u32,
    collector: u32,
    view: &[u8],
    peers: &[Peer],
    out: &mut Vec<u8>,
) -> Result<(), TooLong> {
    let counts = (u16::try_from(view.len()), u16::try_from(peers.len()));
    let (Ok(view_len), Ok(count)) = counts else { return Err(TooLong) };
    record(Stamp { seconds, microseconds: None }, TABLE_DUMP_V2, 1, out, |out| {
        out.extend(collector.to_be_bytes());
        out.extend(view_len.to_be_bytes());
        out.extend(view);
        out.extend(count.to_be_bytes());
        for peer in peers {
            // Bit 0: IPv6; bit 1: four-octet AS number.
            out.push(2 | u8::from(peer.address.is_ipv6()));
            out.extend(peer.router_id.to_be_bytes());
            address(peer.address, out);
            out.extend(peer.asn.0.to_be_bytes());
        }
    });
    Ok(())
}

/// Appends a RIB_IPV4_UNICAST or RIB_IPV6_UNICAST (section 4.3.2): the routes to a prefix, which all have a path identifier
/// or none (RFC 8050 section 4).
///
/// # Errors
/// More than 65,535 routes, or octets in the attributes of one.
pub fn rib(
    seconds: u32,
    sequence: u32,
    prefix: Prefix,
    entries: &[RibEntry<'_>],
    out: &mut Vec<u8>,
) -> Result<(), TooLong> {
    let identified = entries.iter().any(|entry| entry.path_id.is_some());
    let subtype = match (prefix, identified) {
        (Prefix::V4(_), false) => 2,
        (Prefix::V6(_), false) => 4,
        (Prefix::V4(_), true) => 8,
        (Prefix::V6(_), true) => 10,
    };
    let count = u16::try_from(entries.len()).map_err(|_| TooLong)?;
    if entries.iter().any(|entry| entry.attributes.len() > usize::from(u16::MAX)) {
        return Err(TooLong);
    }
    record(Stamp { seconds, microseconds: None }, TABLE_DUMP_V2, subtype, out, |out| {
        out.extend(sequence.to_be_bytes());
        out.push(prefix.length());
        let octets = usize::from(prefix.length().div_ceil(8));
        match prefix.address() {
            IpAddr::V4(address) => out.extend(&address.octets()[..octets]),
            IpAddr::V6(address) => out.extend(&address.octets()[..octets]),
        }
        out.extend(count.to_be_bytes());
        for entry in entries {
            out.extend(entry.peer.to_be_bytes());
            out.extend(entry.originated.to_be_bytes());
            if identified {
                out.extend(entry.path_id.unwrap_or(0).to_be_bytes());
            }
            out.extend((entry.attributes.len() as u16).to_be_bytes());
            out.extend(entry.attributes);
        }
    });
    Ok(())
}

/// Appends a whole BGP message as it was received: BGP4MP_MESSAGE_AS4 (section 4.4.3), or what tells a reader that paths have
/// two-octet AS numbers, or NLRI path identifiers (RFC 8050 section 3).
pub fn message(at: Stamp, message: &Message<'_>, out: &mut Vec<u8>) {
    let subtype = match (message.four_octet_as, message.add_path) {
        (true, false) => 4,
        (false, false) => 1,
        (true, true) => 9,
        (false, true) => 8,
    };
    record(at, bgp4mp(at), subtype, out, |out| {
        ends(&message.session, message.four_octet_as, out);
        out.extend(message.bytes);
    });
}

/// Appends a BGP4MP_STATE_CHANGE_AS4 (section 4.4.4); states as RFC 4271 numbers them, 1 to 6.
pub fn state_change(at: Stamp, change: &StateChange, out: &mut Vec<u8>) {
    record(at, bgp4mp(at), 5, out, |out| {
        ends(&change.session, true, out);
        out.extend(change.old.to_be_bytes());
        out.extend(change.new.to_be_bytes());
    });
}

fn bgp4mp(at: Stamp) -> u16 {
    if at.microseconds.is_some() { BGP4MP_ET } else { BGP4MP }
}

fn ends(session: &Session, four_octet_as: bool, out: &mut Vec<u8>) {
    /// RFC 6793 section 9.
    const AS_TRANS: u16 = 23_456;
    for asn in [session.peer_as, session.local_as] {
        match four_octet_as {
            true => out.extend(asn.0.to_be_bytes()),
            false => out.extend(u16::try_from(asn.0).unwrap_or(AS_TRANS).to_be_bytes()),
        }
    }
    out.extend(session.interface.to_be_bytes());
    let afi = if session.peer.is_ipv4() { Afi::IPV4 } else { Afi::IPV6 };
    out.extend(afi.0.to_be_bytes());
    address(session.peer, out);
    address(session.local, out);
}

fn address(address: IpAddr, out: &mut Vec<u8>) {
    match address {
        IpAddr::V4(address) => out.extend(address.octets()),
        IpAddr::V6(address) => out.extend(address.octets()),
    }
}

/// The header, whose length is known when the body is there.
fn record(at: Stamp, kind: u16, subtype: u16, out: &mut Vec<u8>, body: impl FnOnce(&mut Vec<u8>)) {
    out.extend(at.seconds.to_be_bytes());
    out.extend(kind.to_be_bytes());
    out.extend(subtype.to_be_bytes());
    let length_at = out.len();
    out.extend([0; 4]);
    // Section 3: the fraction counts as part of the message.
    at.microseconds.iter().for_each(|microseconds| out.extend(microseconds.to_be_bytes()));
    body(out);
    let length = (out.len() - length_at - 4) as u32;
    out[length_at..length_at + 4].copy_from_slice(&length.to_be_bytes());
}

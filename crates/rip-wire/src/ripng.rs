//! RIPng (RFC 2080 section 2.1).
//!
//! ```text
//! header: command (1) version (1) must be zero (2)
//! entry:  prefix or next hop (16) route tag (2) prefix length (1) metric (1), 0xff of a next hop
//! ```

use std::{convert::Infallible, net::Ipv6Addr};

use holdfast_types::{IpPrefix, Ipv6Prefix};

use crate::{
    Authentication, BadEntry, Command, ENTRY, Entry, HEADER, Malformed, Metric, Proof, Protocol, Ripng,
    Unauthentic, message::Frame, protocol::Layout,
};

/// The metric of an entry that is a next hop (RFC 2080 section 2.1.1).
const NEXT_HOP: u8 = 0xff;
/// Octets of the headers of IPv6 and UDP.
const BELOW: u32 = 40 + 8;
/// No link with IPv6 has a smaller MTU (RFC 8200 section 5).
const LEAST_MTU: u32 = 1280;
/// Octets that UDP can carry, and a header below.
const MOST_MTU: u32 = 65_535;

impl Layout for Ripng {
    type Prefix = Ipv6Prefix;
    type Address = Ipv6Addr;
    type Credentials = Infallible;

    const VERSION: u8 = 1;

    fn frame(octets: &[u8]) -> Result<Frame<'_>, Malformed> {
        let (&[_, version, ..], body) =
            octets.split_first_chunk::<HEADER>().ok_or(Malformed::Length(octets.len()))?;
        if version == Self::VERSION {
            Frame::new(body, Authentication::None)
        } else {
            Err(Malformed::Version(version))
        }
    }

    fn authenticate(_: &Frame<'_>, _: Option<&Infallible>) -> Result<Option<Proof>, Unauthentic> {
        Ok(None)
    }

    fn is_everything(entry: &[u8; ENTRY]) -> bool {
        let fields = Fields::read(entry);
        fields.address.is_unspecified() && fields.length == 0 && fields.metric == Metric::INFINITY.get()
    }

    fn everything() -> [u8; ENTRY] {
        let metric = Metric::INFINITY.get();
        Fields { address: Ipv6Addr::UNSPECIFIED, tag: 0, length: 0, metric }.octets()
    }

    fn queried(entry: &[u8; ENTRY]) -> Option<Result<Ipv6Prefix, BadEntry>> {
        let fields = Fields::read(entry);
        (fields.metric != NEXT_HOP).then(|| fields.prefix())
    }

    /// A next hop that is not link-local is none (RFC 2080 section 2.1.1).
    fn entry(entry: &[u8; ENTRY], next_hop: &mut Option<Ipv6Addr>) -> Option<Result<Entry<Self>, BadEntry>> {
        let fields = Fields::read(entry);
        if fields.metric == NEXT_HOP {
            *next_hop = Some(fields.address).filter(|address| Self::is_link_local(*address));
            return None;
        }
        Some(fields.route(*next_hop))
    }

    fn room(_: Option<&Infallible>, mtu: u32) -> usize {
        let octets = mtu.clamp(LEAST_MTU, MOST_MTU) - BELOW - HEADER as u32;
        octets as usize / ENTRY
    }

    fn begin(command: Command, _: Option<&Infallible>) -> Vec<u8> {
        vec![command.octet(), Self::VERSION, 0, 0]
    }

    fn put(
        entry: &Entry<Self>,
        next_hop: &mut Option<Ipv6Addr>,
        room: &mut usize,
        out: &mut Vec<u8>,
    ) -> bool {
        let changes = entry.next_hop != *next_hop;
        let Some(left) = room.checked_sub(1 + usize::from(changes)) else { return false };
        *room = left;
        if changes {
            let address = entry.next_hop.unwrap_or(Ipv6Addr::UNSPECIFIED);
            out.extend(Fields { address, tag: 0, length: 0, metric: NEXT_HOP }.octets());
            *next_hop = entry.next_hop;
        }
        let (address, length) = (entry.prefix.address(), entry.prefix.length());
        out.extend(Fields { address, tag: entry.tag, length, metric: entry.metric.get() }.octets());
        true
    }

    fn sign(_: &mut Vec<u8>, _: Option<&Infallible>, _: u32) {}
}

/// The fields of an entry.
#[derive(Copy, Clone)]
struct Fields {
    address: Ipv6Addr,
    tag: u16,
    length: u8,
    metric: u8,
}

impl Fields {
    fn read(entry: &[u8; ENTRY]) -> Self {
        let &[address @ .., t, u, length, metric] = entry;
        Self { address: address.into(), tag: u16::from_be_bytes([t, u]), length, metric }
    }

    fn octets(self) -> [u8; ENTRY] {
        let mut octets = [0; ENTRY];
        octets[..16].copy_from_slice(&self.address.octets());
        octets[16..18].copy_from_slice(&self.tag.to_be_bytes());
        octets[18..].copy_from_slice(&[self.length, self.metric]);
        octets
    }

    /// Bits after the length are cleared.
    fn prefix(self) -> Result<Ipv6Prefix, BadEntry> {
        let prefix = Ipv6Prefix::new(self.address, self.length).ok_or(BadEntry::PrefixLength(self.length))?;
        if Ripng::is_destination(prefix) { Ok(prefix) } else { Err(BadEntry::Destination) }
    }

    fn route(self, next_hop: Option<Ipv6Addr>) -> Result<Entry<Ripng>, BadEntry> {
        let prefix = self.prefix()?;
        let metric = u32::from(self.metric);
        let metric = Metric::new(metric).ok_or(BadEntry::Metric(metric))?;
        Ok(Entry { prefix, tag: self.tag, metric, next_hop })
    }
}

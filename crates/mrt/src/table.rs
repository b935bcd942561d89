//! TABLE_DUMP_V2 (RFC 6396 section 4.3): peers, and routes by prefix.

use std::net::IpAddr;

use holdfast_types::{Afi, Asn, Family, Prefix};

use crate::{Error, reader::Reader, record::at_end};

/// Whether RIB entries have a path identifier (RFC 8050 section 4.1).
pub(crate) const PLAIN: bool = false;
pub(crate) const IDENTIFIED: bool = true;

/// The peers of a table dump.
#[derive(Clone, Debug)]
pub struct PeerIndex<'a> {
    /// BGP identifier of the collector.
    pub collector: u32,
    /// Name of the view, usually empty; no character set is prescribed.
    pub view: &'a [u8],
    /// Number of peers.
    pub count: u16,
    peers: Reader<'a>,
}

/// One peer of a table dump.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Peer {
    /// BGP identifier.
    pub router_id: u32,
    /// Address of the session.
    pub address: IpAddr,
    /// AS number.
    pub asn: Asn,
}

impl<'a> PeerIndex<'a> {
    pub(crate) fn read(mut body: Reader<'a>) -> Result<Self, Error> {
        let collector = body.u32()?;
        let length = body.u16()?;
        let view = body.bytes(usize::from(length))?;
        let count = body.u16()?;
        Ok(Self { collector, view, count, peers: body })
    }

    /// The peers in the order of their numbers. After an error it ends.
    pub fn peers(&self) -> Peers<'a> {
        Peers { left: self.count, rest: self.peers }
    }
}

/// Iterator over peers.
#[derive(Clone, Debug)]
pub struct Peers<'a> {
    left: u16,
    rest: Reader<'a>,
}

impl Iterator for Peers<'_> {
    type Item = Result<Peer, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1)?;
        let peer = Peer::read(&mut self.rest);
        if peer.is_err() {
            self.left = 0;
        }
        Some(peer)
    }
}

impl Peer {
    fn read(body: &mut Reader<'_>) -> Result<Self, Error> {
        // RFC 6396 section 4.3.1: bit 0 of the type is for IPv6, bit 1 for four-octet AS numbers.
        let kind = body.u8()?;
        let router_id = body.u32()?;
        let address = body.address(if kind & 1 == 1 { Afi::IPV6 } else { Afi::IPV4 })?;
        let asn = if kind & 2 == 2 { body.u32()? } else { body.u16()?.into() };
        Ok(Self { router_id, address, asn: Asn(asn) })
    }
}

/// The routes to one prefix.
#[derive(Clone, Debug)]
pub struct Rib<'a> {
    /// Sequence number of the record.
    pub sequence: u32,
    /// Unicast or multicast, IPv4 or IPv6.
    pub family: Family,
    /// The destination.
    pub prefix: Prefix,
    /// Number of routes.
    pub count: u16,
    identified: bool,
    entries: Reader<'a>,
}

/// A route.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct RibEntry<'a> {
    /// Number of the peer in the [`PeerIndex`].
    pub peer: u16,
    /// Seconds since 1970.
    pub originated: u32,
    /// Where the session had ADD-PATH.
    pub path_id: Option<u32>,
    /// Path attributes with four-octet AS numbers. MP_REACH_NLRI has only the next hop and its length (RFC 6396
    /// section 4.3.4).
    pub attributes: &'a [u8],
}

impl<'a> Rib<'a> {
    pub(crate) fn read(
        sequence: u32,
        family: Family,
        identified: bool,
        mut body: Reader<'a>,
    ) -> Result<Self, Error> {
        let prefix = body.prefix(family.afi)?;
        let count = body.u16()?;
        Ok(Self { sequence, family, prefix, count, identified, entries: body })
    }

    /// The routes. After an error it ends.
    pub fn entries(&self) -> RibEntries<'a> {
        RibEntries { left: self.count, identified: self.identified, rest: self.entries }
    }
}

/// Iterator over routes.
#[derive(Clone, Debug)]
pub struct RibEntries<'a> {
    left: u16,
    identified: bool,
    rest: Reader<'a>,
}

impl<'a> RibEntries<'a> {
    fn read(&mut self) -> Result<RibEntry<'a>, Error> {
        let body = &mut self.rest;
        let (peer, originated) = (body.u16()?, body.u32()?);
        let path_id = self.identified.then(|| body.u32()).transpose()?;
        let length = body.u16()?;
        let attributes = body.bytes(usize::from(length))?;
        if self.left == 0 {
            at_end(*body)?;
        }
        Ok(RibEntry { peer, originated, path_id, attributes })
    }
}

impl<'a> Iterator for RibEntries<'a> {
    type Item = Result<RibEntry<'a>, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1)?;
        let entry = self.read();
        if entry.is_err() {
            self.left = 0;
        }
        Some(entry)
    }
}

//! RIP version 2 (RFC 2453 section 4).
//!
//! ```text
//! header: command (1) version (1) unused (2)
//! entry:  address family (2) route tag (2) address (4) subnet mask (4) next hop (4) metric (4)
//! ```

use std::net::Ipv4Addr;

use holdfast_types::{IpPrefix, Ipv4Prefix};

use crate::{
    Authentication, BadEntry, Command, Credentials, ENTRY, Entry, HEADER, MOST_ENTRIES, Malformed, Metric,
    Proof, Protocol, Ripv2, Unauthentic,
    authentication::{DIGEST, FAMILY, PASSWORD, TRAILER},
    message::Frame,
    protocol::{Layout, Ours},
};

/// The address family of IPv4.
const IPV4: u16 = 2;

impl Layout for Ripv2 {
    type Prefix = Ipv4Prefix;
    type Address = Ipv4Addr;
    type Credentials = Credentials;

    const VERSION: u8 = 2;

    /// Versions over 2 are read as 2 (RFC 2453 section 5); version 1 is not spoken.
    fn frame(octets: &[u8]) -> Result<Frame<'_>, Malformed> {
        let (&[_, version, ..], body) =
            octets.split_first_chunk::<HEADER>().ok_or(Malformed::Length(octets.len()))?;
        if version < Self::VERSION {
            return Err(Malformed::Version(version));
        }
        let (authentication, entries) = match body.first_chunk::<ENTRY>() {
            Some(first) if first.starts_with(&FAMILY) => Authentication::read(octets, first)?,
            _ => (Authentication::None, body),
        };
        let most = MOST_ENTRIES - usize::from(authentication != Authentication::None);
        let frame = Frame::new(entries, authentication)?;
        if frame.entries.len() > most {
            return Err(Malformed::Entries(frame.entries.len()));
        }
        Ok(frame)
    }

    fn authenticate(frame: &Frame<'_>, ours: Ours<'_>) -> Result<Option<Proof>, Unauthentic> {
        frame.authentication.check(ours)
    }

    fn is_everything(entry: &[u8; ENTRY]) -> bool {
        let fields = Fields::read(entry);
        fields.family == 0 && fields.metric == u32::from(Metric::INFINITY.get())
    }

    fn everything() -> [u8; ENTRY] {
        Fields { metric: Metric::INFINITY.get().into(), ..Fields::default() }.octets()
    }

    fn queried(entry: &[u8; ENTRY]) -> Option<Result<Ipv4Prefix, BadEntry>> {
        Some(Fields::read(entry).prefix())
    }

    fn entry(entry: &[u8; ENTRY], _: &mut Option<Ipv4Addr>) -> Option<Result<Entry<Self>, BadEntry>> {
        Some(Fields::read(entry).route())
    }

    fn room(ours: Ours<'_>, _: u32) -> usize {
        MOST_ENTRIES - usize::from(ours.is_some())
    }

    fn begin(command: Command, ours: Ours<'_>) -> Vec<u8> {
        let mut octets = vec![command.octet(), Self::VERSION, 0, 0];
        if ours.is_some() {
            octets.extend([0; ENTRY]);
        }
        octets
    }

    fn put(entry: &Entry<Self>, _: &mut Option<Ipv4Addr>, room: &mut usize, out: &mut Vec<u8>) -> bool {
        let Some(left) = room.checked_sub(1) else { return false };
        *room = left;
        let length = u32::from(entry.prefix.length());
        let fields = Fields {
            family: IPV4,
            tag: entry.tag,
            address: entry.prefix.address().to_bits(),
            mask: u32::MAX.checked_shl(32 - length).unwrap_or(0),
            next_hop: entry.next_hop.map_or(0, Ipv4Addr::to_bits),
            metric: entry.metric.get().into(),
        };
        out.extend(fields.octets());
        true
    }

    fn sign(octets: &mut Vec<u8>, ours: Ours<'_>, sequence: u32) {
        let mut first = [0; ENTRY];
        first[..2].copy_from_slice(&FAMILY);
        match ours {
            None => {}
            Some(Credentials::Password(password)) => {
                first[2..4].copy_from_slice(&PASSWORD.to_be_bytes());
                first[4..].copy_from_slice(password.octets());
                octets[HEADER..HEADER + ENTRY].copy_from_slice(&first);
            }
            Some(Credentials::Keys(keys)) => {
                let Some(key) = keys.sending() else { return };
                first[2..4].copy_from_slice(&DIGEST.to_be_bytes());
                // At most 25 entries and 64 octets.
                first[4..6].copy_from_slice(&(octets.len() as u16).to_be_bytes());
                first[6..8].copy_from_slice(&[key.id(), key.algorithm().length() as u8]);
                first[8..12].copy_from_slice(&sequence.to_be_bytes());
                octets[HEADER..HEADER + ENTRY].copy_from_slice(&first);
                octets.extend(TRAILER);
                octets.extend(key.digest(octets));
            }
        }
    }
}

/// The fields of an entry.
#[derive(Copy, Clone, Default)]
struct Fields {
    family: u16,
    tag: u16,
    address: u32,
    mask: u32,
    next_hop: u32,
    metric: u32,
}

impl Fields {
    fn read(entry: &[u8; ENTRY]) -> Self {
        let &[f, g, t, u, words @ ..] = entry;
        let (words, _) = words.as_chunks();
        let word = |at: usize| words.get(at).copied().map_or(0, u32::from_be_bytes);
        Self {
            family: u16::from_be_bytes([f, g]),
            tag: u16::from_be_bytes([t, u]),
            address: word(0),
            mask: word(1),
            next_hop: word(2),
            metric: word(3),
        }
    }

    fn octets(self) -> [u8; ENTRY] {
        let mut octets = [0; ENTRY];
        octets[..2].copy_from_slice(&self.family.to_be_bytes());
        octets[2..4].copy_from_slice(&self.tag.to_be_bytes());
        for (at, word) in [self.address, self.mask, self.next_hop, self.metric].into_iter().enumerate() {
            octets[4 + 4 * at..8 + 4 * at].copy_from_slice(&word.to_be_bytes());
        }
        octets
    }

    /// Bits after the mask are cleared: the mask "is applied to the IP address" (RFC 2453 section 4.3).
    fn prefix(self) -> Result<Ipv4Prefix, BadEntry> {
        if self.family != IPV4 {
            return Err(BadEntry::AddressFamily(self.family));
        }
        let length = self.mask.leading_ones();
        if self.mask.count_ones() != length {
            return Err(BadEntry::Mask(self.mask));
        }
        if self.mask == 0 && self.address != 0 {
            return Err(BadEntry::NoMask);
        }
        let prefix = Ipv4Prefix::from_bits(u128::from(self.address) << 96, length as u8);
        if Ripv2::is_destination(prefix) { Ok(prefix) } else { Err(BadEntry::Destination) }
    }

    fn route(self) -> Result<Entry<Ripv2>, BadEntry> {
        let prefix = self.prefix()?;
        let metric = Metric::new(self.metric).ok_or(BadEntry::Metric(self.metric))?;
        let next_hop = Some(Ipv4Addr::from_bits(self.next_hop)).filter(|address| !address.is_unspecified());
        Ok(Entry { prefix, tag: self.tag, metric, next_hop })
    }
}

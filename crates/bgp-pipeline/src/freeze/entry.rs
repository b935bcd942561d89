//! The form of records of routes, written and read. Numbers are LEB128 but for the one that says otherwise.
//!
//! ```text
//!  1 version
//!  1 1: of IPv6; 2 more where paths have identifiers; 4 more where sets say what is known of signatures
//!    entries, in the order of their prefixes:
//!      1 octets that the prefix shares with the one before (0 to 16); 32 more: its length is that of the one before;
//!        64 more: so are set and place; 128 more: the set is defined here
//!      1 length in bits, unless it is that of the one before
//!        what is left of its octets
//!        identifier, if paths have them
//!        unless set and place are those of the one before:
//!          number of the set
//!          if it is defined here: 2 octets of attributes, big-endian; these in canonical form;
//!          1 octets of the next hop: 0 where it is in NEXT_HOP; this
//!          1 what is known of its signatures, if sets say so: 0 unsigned, 1 unverified, 2 valid, 3 not valid
//!        1 place of the path, if paths have identifiers
//! ```
//!
//! A set is defined once in all records of a walk for a session. A number is that of another set from its next
//! definition on.

use std::{marker::PhantomData, net::IpAddr};

use holdfast_bgp_wire::Attributes;
use holdfast_policy::PathSecurity;
use holdfast_types::IpPrefix;

use crate::{path::SetId, source::MOST_PATHS};

/// The form of these records.
pub(super) const VERSION: u8 = 3;
/// Octets after which a record ends.
const LONG: usize = 4096;

const IPV6: u8 = 1;
const IDENTIFIED: u8 = 2;
const SECURED: u8 = 4;

const SHARED: u8 = 31;
const SAME_LENGTH: u8 = 32;
const SAME_SET: u8 = 64;
const DEFINES: u8 = 128;

/// What holds for all entries of a record.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) struct Header {
    pub(super) is_ipv6: bool,
    pub(super) is_identified: bool,
    /// Sets say what is known of signatures.
    pub(super) is_secured: bool,
}

impl Header {
    /// Of a record without its version; and the entries.
    pub(super) fn read(record: &[u8]) -> Option<(Self, &[u8])> {
        let (&flags, entries) = record.split_first()?;
        let has = |flag| flags & flag != 0;
        let header = Self { is_ipv6: has(IPV6), is_identified: has(IDENTIFIED), is_secured: has(SECURED) };
        (flags & !(IPV6 | IDENTIFIED | SECURED) == 0 && !entries.is_empty()).then_some((header, entries))
    }
}

/// The path of a session that may send several of a prefix.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) struct Identity {
    pub(super) identifier: u32,
    /// Among the session's paths of the prefix.
    pub(super) place: u8,
}

/// What a set is.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) struct Definition<'a> {
    /// In canonical form.
    pub(super) attributes: &'a [u8],
    /// The address that routes are resolved by; `None`: that of NEXT_HOP.
    pub(super) next_hop: Option<IpAddr>,
    /// What is known of the signatures of all routes with it.
    pub(super) signatures: PathSecurity,
}

/// Writes the records of one session.
#[derive(Debug, Default)]
pub(super) struct Writer {
    record: Vec<u8>,
    before: Before,
    /// The session has agreed on BGPsec.
    is_secured: bool,
}

/// What the next entry refers to.
#[derive(Copy, Clone, Debug, Default)]
struct Before {
    bits: u128,
    length: Option<u8>,
    set: Option<(SetId, u8)>,
}

impl Writer {
    /// Of a session that has, or has not, agreed on BGPsec.
    pub(super) fn new(is_secured: bool) -> Self {
        Self { is_secured, ..Self::default() }
    }

    /// Writes a path; `definition` if its set is not known to the reader.
    #[inline]
    pub(super) fn push<P: IpPrefix>(
        &mut self,
        prefix: P,
        identity: Option<Identity>,
        set: SetId,
        definition: Option<Definition<'_>>,
    ) {
        if self.record.is_empty() {
            let family = if P::WIDTH == 32 { 0 } else { IPV6 };
            let identified = if identity.is_some() { IDENTIFIED } else { 0 };
            let secured = if self.is_secured { SECURED } else { 0 };
            self.record.extend_from_slice(&[VERSION, family | identified | secured]);
            self.before = Before::default();
        }
        let (bits, length) = (prefix.bits(), prefix.length());
        let octets = usize::from(length.div_ceil(8));
        let shared = ((bits ^ self.before.bits).leading_zeros() / 8).min(octets as u32) as usize;
        let set_and_place = (set, identity.map_or(0, |identity| identity.place));
        let is_same_length = self.before.length == Some(length);
        let is_same_set = self.before.set == Some(set_and_place) && definition.is_none();
        let flags = if is_same_length { SAME_LENGTH } else { 0 }
            | if is_same_set { SAME_SET } else { 0 }
            | if definition.is_some() { DEFINES } else { 0 };
        self.record.push(shared as u8 | flags);
        if !is_same_length {
            self.record.push(length);
        }
        self.extend((bits << (8 * shared).min(127)).to_be_bytes(), octets - shared);
        if let Some(Identity { identifier, .. }) = identity {
            self.push_number(identifier);
        }
        if !is_same_set {
            self.push_number(set.0);
            if let Some(definition) = definition {
                definition.push(self.is_secured, &mut self.record);
            }
            if let Some(Identity { place, .. }) = identity {
                self.record.push(place);
            }
        }
        self.before = Before { bits, length: Some(length), set: Some(set_and_place) };
    }

    /// Some first octets of these: to copy all and forget the rest is less work than to copy so many.
    #[inline]
    fn extend<const OCTETS: usize>(&mut self, octets: [u8; OCTETS], count: usize) {
        let end = self.record.len() + count;
        self.record.extend_from_slice(&octets);
        self.record.truncate(end);
    }

    #[inline]
    fn push_number(&mut self, mut number: u32) {
        let (mut octets, mut count) = ([0; 8], 1);
        while number >= 0x80 {
            octets[count - 1] = number as u8 | 0x80;
            number >>= 7;
            count += 1;
        }
        octets[count - 1] = number as u8;
        self.extend(octets, count);
    }

    pub(super) fn is_long(&self) -> bool {
        self.record.len() >= LONG
    }

    /// Gives away what is written, and begins anew; what `sink` says, or `true`.
    pub(super) fn write_out(&mut self, sink: impl FnOnce(&[u8]) -> bool) -> bool {
        let is_taken = self.record.is_empty() || sink(&self.record);
        self.record.clear();
        is_taken
    }
}

impl<'a> Definition<'a> {
    fn push(self, is_secured: bool, record: &mut Vec<u8>) {
        // A set has at most 65,535 octets.
        record.extend_from_slice(&(self.attributes.len() as u16).to_be_bytes());
        record.extend_from_slice(self.attributes);
        match self.next_hop {
            None => record.push(0),
            Some(IpAddr::V4(address)) => {
                record.push(4);
                record.extend_from_slice(&address.octets());
            }
            Some(IpAddr::V6(address)) => {
                record.push(16);
                record.extend_from_slice(&address.octets());
            }
        }
        if is_secured {
            record.push(match self.signatures {
                PathSecurity::Unsigned => 0,
                PathSecurity::Unverified => 1,
                PathSecurity::Valid => 2,
                PathSecurity::NotValid => 3,
            });
        }
    }

    fn read(is_secured: bool, rest: &mut &'a [u8]) -> Option<Self> {
        let (length, after) = rest.split_first_chunk()?;
        let (attributes, after) = after.split_at_checked(usize::from(u16::from_be_bytes(*length)))?;
        let (&octets, after) = after.split_first()?;
        let (next_hop, after) = match octets {
            0 => (None, after),
            4 => after
                .split_first_chunk()
                .map(|(octets, after)| (Some(IpAddr::from(<[u8; 4]>::clone(octets))), after))?,
            16 => after
                .split_first_chunk()
                .map(|(octets, after)| (Some(IpAddr::from(<[u8; 16]>::clone(octets))), after))?,
            _ => return None,
        };
        *rest = after;
        let signatures = match if is_secured { octet(rest)? } else { 0 } {
            0 => PathSecurity::Unsigned,
            1 => PathSecurity::Unverified,
            2 => PathSecurity::Valid,
            3 => PathSecurity::NotValid,
            _ => return None,
        };
        let has_next_hop = next_hop.is_some() || Attributes(attributes).next_hop().is_some();
        (is_ascending(attributes) && has_next_hop).then_some(Self { attributes, next_hop, signatures })
    }
}

/// One path.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) struct Entry<'a, P> {
    pub(super) prefix: P,
    /// 0 where paths have none.
    pub(super) identifier: u32,
    /// `None`: set and place are those of the path before.
    pub(super) set: Option<NamedSet<'a>>,
}

/// What set a path has, and at which place of its session it is.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) struct NamedSet<'a> {
    pub(super) number: u32,
    /// `None`: it was defined before.
    pub(super) definition: Option<Definition<'a>>,
    /// 0 where paths have no identifiers.
    pub(super) place: u8,
}

/// Reads the entries of a record.
#[derive(Clone, Debug)]
pub(super) struct Entries<'a, P> {
    header: Header,
    rest: &'a [u8],
    bits: u128,
    length: Option<u8>,
    has_set: bool,
    family: PhantomData<P>,
}

impl<'a, P: IpPrefix> Entries<'a, P> {
    pub(super) fn new(header: Header, rest: &'a [u8]) -> Self {
        Self { header, rest, bits: 0, length: None, has_set: false, family: PhantomData }
    }

    fn entry(&mut self) -> Option<Entry<'a, P>> {
        let code = octet(&mut self.rest)?;
        let length = match code & SAME_LENGTH {
            0 => octet(&mut self.rest)?,
            _ => self.length?,
        };
        let (octets, shared) = (usize::from(length.div_ceil(8)), usize::from(code & SHARED));
        if length > P::WIDTH || shared > octets {
            return None;
        }
        let (own, rest) = self.rest.split_at_checked(octets - shared)?;
        self.rest = rest;
        let mut all = [0; 16];
        all[..shared].copy_from_slice(&self.bits.to_be_bytes()[..shared]);
        all[shared..octets].copy_from_slice(own);
        let prefix = P::from_bits(u128::from_be_bytes(all), length);
        (self.bits, self.length) = (prefix.bits(), Some(length));
        let identifier = if self.header.is_identified { number(&mut self.rest)? } else { 0 };
        let set = match code & SAME_SET {
            0 => Some(self.named(code & DEFINES != 0)?),
            _ if code & DEFINES != 0 || !self.has_set => return None,
            _ => None,
        };
        self.has_set = true;
        Some(Entry { prefix, identifier, set })
    }

    fn named(&mut self, defines: bool) -> Option<NamedSet<'a>> {
        let number = number(&mut self.rest)?;
        let is_secured = self.header.is_secured;
        let definition = if defines { Some(Definition::read(is_secured, &mut self.rest)?) } else { None };
        let place = if self.header.is_identified { octet(&mut self.rest)? } else { 0 };
        (usize::from(place) < MOST_PATHS).then_some(NamedSet { number, definition, place })
    }
}

/// `Some(None)`, as the last: it cannot be read.
impl<'a, P: IpPrefix> Iterator for Entries<'a, P> {
    type Item = Option<Entry<'a, P>>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let entry = self.entry();
        if entry.is_none() {
            self.rest = &[];
        }
        Some(entry)
    }
}

fn number(rest: &mut &[u8]) -> Option<u32> {
    let mut number = 0_u64;
    for shift in [0, 7, 14, 21, 28] {
        let octet = octet(rest)?;
        number |= u64::from(octet & 0x7f) << shift;
        if octet & 0x80 == 0 {
            return u32::try_from(number).ok();
        }
    }
    None
}

fn octet(rest: &mut &[u8]) -> Option<u8> {
    let (&octet, after) = rest.split_first()?;
    *rest = after;
    Some(octet)
}

/// Whether these are whole attributes, ordered as in canonical form.
pub(super) fn is_ascending(attributes: &[u8]) -> bool {
    let (mut octets, mut last) = (0, None);
    let ascending = Attributes(attributes).iter().all(|attribute| {
        octets += attribute.wire.len();
        last.replace(attribute.code) < Some(attribute.code)
    });
    ascending && octets == attributes.len()
}

#[cfg(test)]
mod tests {
    use holdfast_types::Ipv4Prefix;

    use super::*;

    #[test]
    fn an_entry_has_what_differs_from_the_one_before() {
        let prefix = |text: &str| text.parse::<Ipv4Prefix>().expect("a prefix");
        let attributes = [0x40, 3, 4, 192, 0, 2, 9];
        let definition =
            Definition { attributes: &attributes, next_hop: None, signatures: PathSecurity::Unsigned };
        let mut writer = Writer::default();
        writer.push(prefix("10.1.2.0/24"), None, SetId(300), Some(definition));
        writer.push(prefix("10.1.3.0/24"), None, SetId(300), None);
        writer.push(prefix("10.1.3.128/25"), None, SetId(300), None);
        writer.push(prefix("10.2.0.0/16"), None, SetId(7), None);
        let mut record = Vec::new();
        assert!(writer.write_out(|octets| {
            record.extend_from_slice(octets);
            true
        }));
        let [first, second] = [[VERSION, 0].as_slice(), &[DEFINES, 24, 10, 1, 2, 0xac, 2, 0, 7]];
        let rest =
            [[SAME_LENGTH | SAME_SET | 2, 3].as_slice(), &[SAME_SET | 3, 25, 128], &[1, 16, 2, 7]].concat();
        assert_eq!(record, [first, second, &attributes, &[0], &rest].concat());
        let (header, entries) = Header::read(&record[1..]).expect("a header");
        let read: Option<Vec<_>> = Entries::<Ipv4Prefix>::new(header, entries).collect();
        let read = read.expect("entries");
        let prefixes: Vec<String> = read.iter().map(|entry| entry.prefix.to_string()).collect();
        assert_eq!(prefixes, ["10.1.2.0/24", "10.1.3.0/24", "10.1.3.128/25", "10.2.0.0/16"]);
        let sets: Vec<_> =
            read.iter().map(|entry| entry.set.map(|set| (set.number, set.definition))).collect();
        assert_eq!(sets, [Some((300, Some(definition))), None, None, Some((7, None))]);
    }
}

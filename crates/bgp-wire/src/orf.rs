//! Outbound route filters in ROUTE-REFRESH (RFC 5291), by address prefix (RFC 5292): what a receiver of routes would
//! like to be told.

use holdfast_types::{Afi, Family, IpPrefix, Ipv4Prefix, Ipv6Prefix, Prefix, Safi};

use crate::{
    MessageType, Notification, RouteRefresh,
    message::{HEADER_LEN, begin, finish},
};

/// The ORF-Type of filters by address prefix (RFC 5292 section 3).
pub const ADDRESS_PREFIX: u8 = 64;

/// A ROUTE-REFRESH that changes a filter. Filters of types that we do not know are left out.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OrfMessage {
    /// Which routes are filtered.
    pub family: Family,
    /// When the change is to take effect.
    pub when: WhenToRefresh,
    /// In order.
    pub changes: Vec<OrfChange>,
}

/// When routes are sent that a changed filter concerns (RFC 5291 section 4).
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum WhenToRefresh {
    /// At once.
    Immediate = 1,
    /// With the next ROUTE-REFRESH of the family that is no such.
    Defer = 2,
}

/// A change of the filter by address prefix.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum OrfChange {
    /// Another entry.
    Add(OrfEntry),
    /// No such entry any more.
    Remove(OrfEntry),
    /// No entry any more.
    RemoveAll,
    /// An entry has a value that is none: the whole filter goes (RFC 5291 section 6), and what followed cannot be read.
    Unrecognized,
}

/// An entry of a filter by address prefix (RFC 5292 section 2).
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct OrfEntry {
    /// Of the entries that match, that with the lowest number counts.
    pub sequence: u32,
    /// Whether routes that match are wanted.
    pub permit: bool,
    /// Routes to it and to parts of it match, as far as the lengths allow.
    pub prefix: Prefix,
    /// The least length; 0: no such condition.
    pub min_length: u8,
    /// The greatest length; 0: no such condition. Without either only the prefix itself matches.
    pub max_length: u8,
}

const ADD: u8 = 0;
const REMOVE: u8 = 1;
const REMOVE_ALL: u8 = 2;
/// The Match bit: DENY.
const DENY: u8 = 1 << 5;

impl OrfEntry {
    /// Lengths of routes that match, first and last, if they are to this prefix or parts of it (RFC 5292 section 4).
    pub fn lengths(&self) -> (u8, u8) {
        let (length, width) = match self.prefix {
            Prefix::V4(prefix) => (prefix.length(), Ipv4Prefix::WIDTH),
            Prefix::V6(prefix) => (prefix.length(), Ipv6Prefix::WIDTH),
        };
        match (self.min_length, self.max_length) {
            (0, 0) => (length, length),
            (0, max) => (length, max),
            (min, 0) => (min.max(length), width),
            (min, max) => (min.max(length), max),
        }
    }

    fn read(bytes: &[u8], permit: bool, family: Family) -> Option<(Self, &[u8])> {
        let (&[a, b, c, d, min_length, max_length, length], rest) = bytes.split_first_chunk()?;
        let (octets, rest) = rest.split_at_checked(usize::from(length.div_ceil(8)))?;
        let mut address = [0; 16];
        address.get_mut(..octets.len())?.copy_from_slice(octets);
        let bits = u128::from_be_bytes(address);
        let (prefix, width): (Prefix, u8) = match family {
            Family::IPV4_UNICAST if length <= Ipv4Prefix::WIDTH => {
                (Ipv4Prefix::from_bits(bits, length).into(), Ipv4Prefix::WIDTH)
            }
            Family::IPV6_UNICAST if length <= Ipv6Prefix::WIDTH => {
                (Ipv6Prefix::from_bits(bits, length).into(), Ipv6Prefix::WIDTH)
            }
            _ => return None,
        };
        // A least length that says nothing is borne, though RFC 5292 section 2 wants it above the prefix's.
        let is_sound = min_length.max(max_length) <= width && (max_length == 0 || min_length <= max_length);
        let sequence = u32::from_be_bytes([a, b, c, d]);
        is_sound.then_some((Self { sequence, permit, prefix, min_length, max_length }, rest))
    }

    fn push(&self, action: u8, out: &mut Vec<u8>) {
        let (length, bits) = match self.prefix {
            Prefix::V4(prefix) => (prefix.length(), prefix.bits()),
            Prefix::V6(prefix) => (prefix.length(), prefix.bits()),
        };
        out.push(action << 6 | if self.permit { 0 } else { DENY });
        out.extend_from_slice(&self.sequence.to_be_bytes());
        out.extend_from_slice(&[self.min_length, self.max_length, length]);
        out.extend_from_slice(&bits.to_be_bytes()[..usize::from(length.div_ceil(8))]);
    }
}

impl OrfChange {
    /// Reads one, and what is behind it.
    fn read(bytes: &[u8], family: Family) -> Option<(Self, &[u8])> {
        let (&common, rest) = bytes.split_first()?;
        let entry = |rest| OrfEntry::read(rest, common & DENY == 0, family);
        match common >> 6 {
            ADD => entry(rest).map(|(entry, rest)| (Self::Add(entry), rest)),
            REMOVE => entry(rest).map(|(entry, rest)| (Self::Remove(entry), rest)),
            REMOVE_ALL => Some((Self::RemoveAll, rest)),
            _ => None,
        }
    }

    fn push(&self, out: &mut Vec<u8>) {
        match self {
            Self::Add(entry) => entry.push(ADD, out),
            Self::Remove(entry) => entry.push(REMOVE, out),
            Self::RemoveAll => out.push(REMOVE_ALL << 6),
            // An action that there is not.
            Self::Unrecognized => out.push(3 << 6),
        }
    }
}

impl OrfMessage {
    /// Whether a body is that of a message that changes filters: it asks, and is longer than one that only asks.
    pub fn is_one(body: &[u8]) -> bool {
        matches!(body, [_, _, RouteRefresh::REQUEST, _, _, ..])
    }

    /// Reads a body for which [`Self::is_one`].
    ///
    /// # Errors
    /// Lists of entries do not fit into it (RFC 4271 section 6.1).
    pub fn parse(body: &[u8]) -> Result<Self, Notification> {
        let wrong = || Notification::bad_body_length(body);
        let (&[afi_high, afi_low, _, safi, when], mut rest) = body.split_first_chunk().ok_or_else(wrong)?;
        let family = Family { afi: Afi(u16::from_be_bytes([afi_high, afi_low])), safi: Safi(safi) };
        let mut changes = Vec::new();
        while !rest.is_empty() {
            let (&[kind, high, low], behind) = rest.split_first_chunk().ok_or_else(wrong)?;
            let length = usize::from(u16::from_be_bytes([high, low]));
            let (entries, behind) = behind.split_at_checked(length).ok_or_else(wrong)?;
            rest = behind;
            if kind == ADDRESS_PREFIX && changes.last() != Some(&OrfChange::Unrecognized) {
                read(entries, family, &mut changes);
            }
        }
        let when = match when {
            2 => WhenToRefresh::Defer,
            1 => WhenToRefresh::Immediate,
            // Nobody knows when: without a filter there is nothing to wait for.
            _ => {
                changes = vec![OrfChange::Unrecognized];
                WhenToRefresh::Immediate
            }
        };
        Ok(Self { family, when, changes })
    }

    /// The whole message. There is no check of its length: see [`Self::replacing`].
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        let start = begin(&mut out, MessageType::RouteRefresh);
        out.extend_from_slice(&self.family.afi.0.to_be_bytes());
        out.extend_from_slice(&[
            RouteRefresh::REQUEST,
            self.family.safi.0,
            self.when as u8,
            ADDRESS_PREFIX,
            0,
            0,
        ]);
        let entries = out.len();
        self.changes.iter().for_each(|change| change.push(&mut out));
        let length = (out.len() - entries) as u16;
        out[entries - 2..entries].copy_from_slice(&length.to_be_bytes());
        finish(&mut out, start);
        out
    }

    /// Messages of at most `max_len` octets after which these entries are the filter, whatever it was before: all take
    /// effect with the last. The first takes back what there was and says nothing else: some do not read on behind that.
    pub fn replacing(family: Family, entries: &[OrfEntry], max_len: usize) -> Vec<Self> {
        let message = |changes| Self { family, when: WhenToRefresh::Defer, changes };
        let mut messages = vec![message(vec![OrfChange::RemoveAll])];
        let mut room = 0;
        for entry in entries {
            if room < LONGEST_ENTRY {
                messages.push(message(Vec::new()));
                room = max_len.saturating_sub(FIXED);
            }
            room = room.saturating_sub(LONGEST_ENTRY);
            if let Some(last) = messages.last_mut() {
                last.changes.push(OrfChange::Add(*entry));
            }
        }
        if let Some(last) = messages.last_mut() {
            last.when = WhenToRefresh::Immediate;
        }
        messages
    }
}

/// Octets of a message in front of its entries.
const FIXED: usize = HEADER_LEN + 8;
/// Octets of an entry for a host's address in IPv6.
const LONGEST_ENTRY: usize = 8 + 16;

/// The entries of one filter; those behind one that cannot be read are of no use.
fn read(mut entries: &[u8], family: Family, changes: &mut Vec<OrfChange>) {
    while !entries.is_empty() {
        let Some((change, rest)) = OrfChange::read(entries, family) else {
            return changes.push(OrfChange::Unrecognized);
        };
        changes.push(change);
        entries = rest;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{MAX_LEN, next_message};

    fn entry(sequence: u32, prefix: &str, (min_length, max_length): (u8, u8)) -> OrfEntry {
        OrfEntry { sequence, permit: true, prefix: prefix.parse().expect("a prefix"), min_length, max_length }
    }

    fn parse(body: &[u8]) -> Result<Vec<OrfChange>, (u8, u8)> {
        let read = OrfMessage::parse(body);
        read.map(|message| message.changes).map_err(|error| (error.code, error.subcode))
    }

    #[test]
    fn entries_are_those_of_rfc_5292() {
        let deny = OrfEntry { permit: false, ..entry(5, "10.0.0.0/8", (16, 24)) };
        // AFI, reserved, SAFI, IMMEDIATE; type 64, length; ADD|DENY, 5, 16, 24, /8; REMOVE, 10, /0 up to 32; REMOVE-ALL.
        let body = [
            &[0, 1, 0, 1, 1, 64, 0, 18][..],
            &[0x20, 0, 0, 0, 5, 16, 24, 8, 10],
            &[0x40, 0, 0, 0, 10, 0, 32, 0],
            &[0x80],
        ]
        .concat();
        let message = OrfMessage {
            family: Family::IPV4_UNICAST,
            when: WhenToRefresh::Immediate,
            changes: vec![
                OrfChange::Add(deny),
                OrfChange::Remove(entry(10, "0.0.0.0/0", (0, 32))),
                OrfChange::RemoveAll,
            ],
        };
        assert!(OrfMessage::is_one(&body) && !OrfMessage::is_one(&body[..4]));
        assert_eq!(OrfMessage::parse(&body), Ok(message.clone()));
        assert_eq!(message.encode()[HEADER_LEN..], body);
    }

    #[test]
    fn what_is_no_value_takes_the_filter_away() {
        let with = |entries: &[u8]| {
            parse(&[&[0, 1, 0, 1, 1, 64, 0, entries.len() as u8], entries].concat()).expect("it fits")
        };
        let faulty: [&[u8]; 6] = [
            &[0xc0],
            // A prefix of 33 bits, lengths beyond an address, the least above the greatest, an entry that ends early.
            &[0, 0, 0, 0, 1, 0, 0, 33, 1, 2, 3, 4, 5],
            &[0, 0, 0, 0, 1, 0, 33, 8, 10],
            &[0, 0, 0, 0, 1, 24, 16, 8, 10],
            &[0, 0, 0, 0, 1, 0, 0, 8],
            &[0, 0, 0],
        ];
        for entries in faulty {
            assert_eq!(with(entries), [OrfChange::Unrecognized], "{entries:?}");
            let second = with(&[&[0x80], entries].concat());
            assert_eq!(second, [OrfChange::RemoveAll, OrfChange::Unrecognized]);
        }
        assert_eq!(parse(&[0, 1, 0, 1, 3]), Ok(vec![OrfChange::Unrecognized]), "neither at once nor later");
    }

    #[test]
    fn filters_of_other_types_are_passed_over_and_lists_have_to_fit() {
        assert_eq!(parse(&[0, 1, 0, 1, 2, 128, 0, 1, 7, 64, 0, 1, 0x80]), Ok(vec![OrfChange::RemoveAll]));
        for body in [&[0, 1, 0, 1, 1, 64][..], &[0, 1, 0, 1, 1, 64, 0, 2, 0x80]] {
            assert_eq!(parse(body), Err((1, 2)), "{body:?}");
        }
    }

    #[test]
    fn lengths_are_those_of_table_1() {
        let lengths = |bounds| entry(1, "10.0.0.0/8", bounds).lengths();
        let expected = [((0, 0), (8, 8)), ((16, 0), (16, 32)), ((0, 24), (8, 24)), ((16, 24), (16, 24))];
        for (bounds, wanted) in expected {
            assert_eq!(lengths(bounds), wanted);
        }
    }

    #[test]
    fn many_entries_take_effect_with_the_last_of_several_messages() {
        let entries: Vec<_> = (0..1000).map(|number| entry(number, "2001:db8::1/128", (0, 0))).collect();
        let messages = OrfMessage::replacing(Family::IPV6_UNICAST, &entries, MAX_LEN);
        let mut changes = Vec::new();
        for (at, message) in messages.iter().enumerate() {
            let wire = message.encode();
            let body = next_message(&wire, MAX_LEN).expect("sound").expect("whole").body;
            assert_eq!(OrfMessage::parse(body).as_ref(), Ok(message));
            assert_eq!(message.when == WhenToRefresh::Immediate, at + 1 == messages.len());
            changes.extend(message.changes.iter().copied());
        }
        assert!(messages.len() > 1 && changes[0] == OrfChange::RemoveAll);
        assert_eq!(changes[1..], entries.into_iter().map(OrfChange::Add).collect::<Vec<_>>());
    }
}

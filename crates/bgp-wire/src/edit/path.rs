//! AS_PATH and AGGREGATOR as sent, to four-octet and two-octet speakers (RFC 6793 section 4.2.2).

use std::borrow::Cow;

use holdfast_types::{AS_TRANS, Asn};

use super::{Edit, PathEdit, PrivateAsns};
use crate::{
    as_path::{AsPath, Segment, SegmentType},
    attribute::{self, code, flag, push_header},
};

const SEQUENCE: u8 = SegmentType::Sequence as u8;
const AS_TRANS_OCTETS: [u8; 2] = (AS_TRANS.0 as u16).to_be_bytes();

/// A path to be written: numbers in front, then those of a segment that they joined, then the rest.
struct Prepended<'a> {
    front: &'a [(Asn, u8)],
    kind: u8,
    /// How many numbers are in front.
    count: usize,
    /// Numbers of the first segment, if it is of the same kind and has room.
    joined: &'a [u8],
    rest: &'a [u8],
}

impl<'a> Prepended<'a> {
    fn new(value: &'a [u8], edit: &Edit<'a>) -> Self {
        let count = edit.prepend.iter().map(|(_, count)| usize::from(*count)).sum();
        let kind = edit.prepend_into as u8;
        let apart = Self { front: edit.prepend, kind, count, joined: &[], rest: value };
        if count == 0 {
            return apart;
        }
        match *value {
            [first, len, ref after @ ..] if first == kind && count + usize::from(len) <= 255 => {
                match after.split_at_checked(4 * usize::from(len)) {
                    Some((joined, rest)) => Self { joined, rest, ..apart },
                    None => apart,
                }
            }
            _ => apart,
        }
    }

    fn len(&self) -> usize {
        2 * self.heads() + 4 * self.count + self.joined.len() + self.rest.len()
    }

    /// How many segments are begun: one, unless the numbers are too many for it.
    fn heads(&self) -> usize {
        match self.count {
            0 => 0,
            1..=255 => 1,
            _ => self.front.iter().filter(|(_, count)| *count != 0).count(),
        }
    }

    fn push(&self, out: &mut Vec<u8>) {
        let one = self.heads() == 1;
        if one {
            out.extend_from_slice(&[self.kind, (self.count + self.joined.len() / 4) as u8]);
        }
        for &(asn, count) in self.front.iter().filter(|(_, count)| *count != 0) {
            if !one {
                out.extend_from_slice(&[self.kind, count]);
            }
            for _ in 0..count {
                out.extend_from_slice(&asn.0.to_be_bytes());
            }
        }
        out.extend_from_slice(self.joined);
        out.extend_from_slice(self.rest);
    }

    fn bytes(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.len());
        self.push(&mut out);
        out
    }
}

impl PathEdit {
    fn apply(self, value: &[u8]) -> Cow<'_, [u8]> {
        if self == Self::default() {
            return Cow::Borrowed(value);
        }
        let mut out = Vec::with_capacity(value.len());
        for segment in AsPath(value).segments() {
            if self.strip_confederation && segment.kind.is_confed() {
                continue;
            }
            let start = out.len();
            out.extend_from_slice(&[segment.kind as u8, 0]);
            let kept = segment.asns().filter_map(|asn| self.number(asn));
            kept.for_each(|asn| out.extend_from_slice(&asn.0.to_be_bytes()));
            match (out.len() - start) / 4 {
                0 => out.truncate(start),
                count => out[start + 1] = count as u8,
            }
        }
        Cow::Owned(out)
    }

    /// What stands in the place of a number.
    fn number(self, asn: Asn) -> Option<Asn> {
        match (self.replace, self.private) {
            (Some((replaced, by)), _) if asn == replaced => Some(by),
            (_, PrivateAsns::Remove(except)) if asn.is_private() && asn != except => None,
            (_, PrivateAsns::Replace(except, by)) if asn.is_private() && asn != except => Some(by),
            _ => Some(asn),
        }
    }
}

/// Appends AS_PATH, edited and with numbers in front. RFC 4271 section 5.1.2: into the first segment if that is
/// of their kind and has room, else as a segment of its own.
pub(super) fn push(value: &[u8], edit: &Edit<'_>, out: &mut Vec<u8>) {
    let value = edit.path.apply(value);
    let path = Prepended::new(&value, edit);
    if edit.four_octet_as {
        push_header(out, flag::TRANSITIVE, code::AS_PATH, path.len());
        path.push(out);
    } else {
        attribute::push(out, flag::TRANSITIVE, code::AS_PATH, &two_octets(AsPath(&path.bytes())));
    }
}

fn two_octets(path: AsPath<'_>) -> Vec<u8> {
    let mut out = Vec::with_capacity(path.0.len());
    for segment in path.segments() {
        out.extend_from_slice(&[segment.kind as u8, segment.asns().len() as u8]);
        segment.asns().for_each(|asn| out.extend_from_slice(&asn.two_octets().to_be_bytes()));
    }
    out
}

/// Appends AS4_PATH if a number of the path does not fit two octets. Confederation segments never go there.
pub(super) fn push_as4_path(value: &[u8], edit: &Edit<'_>, out: &mut Vec<u8>) {
    let bytes = Prepended::new(&edit.path.apply(value), edit).bytes();
    let plain = || AsPath(&bytes).segments().filter(|segment| !segment.kind.is_confed());
    if plain().flat_map(Segment::asns).all(|asn| asn.0 <= u32::from(u16::MAX)) {
        return;
    }
    let mut path = Vec::with_capacity(bytes.len());
    for segment in plain() {
        path.extend_from_slice(&[segment.kind as u8, segment.asns().len() as u8]);
        segment.asns().for_each(|asn| path.extend_from_slice(&asn.0.to_be_bytes()));
    }
    attribute::push(out, super::OPTIONAL_TRANSITIVE, code::AS4_PATH, &path);
}

/// Appends AGGREGATOR with a two-octet number, AS_TRANS for a greater one.
pub(super) fn push_two_octet_aggregator(value: &[u8], flags: u8, out: &mut Vec<u8>) {
    let [a, b, c, d, ref address @ ..] = *value else { return };
    let number = if [a, b] == [0, 0] { [c, d] } else { AS_TRANS_OCTETS };
    push_header(out, flags, code::AGGREGATOR, 2 + address.len());
    out.extend_from_slice(&number);
    out.extend_from_slice(address);
}

/// Appends AS4_AGGREGATOR if the number does not fit two octets.
pub(super) fn push_as4_aggregator(value: &[u8], out: &mut Vec<u8>) {
    if value.len() == 8 && value[..2] != [0, 0] {
        attribute::push(out, super::OPTIONAL_TRANSITIVE, code::AS4_AGGREGATOR, value);
    }
}

/// Appends AS_PATH of AS_SEQUENCEs, 255 numbers each.
pub(super) fn push_sequences(asns: &[Asn], out: &mut Vec<u8>) {
    let segments = asns.chunks(255);
    push_header(out, flag::TRANSITIVE, code::AS_PATH, 2 * segments.len() + 4 * asns.len());
    for segment in segments {
        out.extend_from_slice(&[SEQUENCE, segment.len() as u8]);
        segment.iter().for_each(|asn| out.extend_from_slice(&asn.0.to_be_bytes()));
    }
}

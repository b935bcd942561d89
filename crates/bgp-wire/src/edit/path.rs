//! AS_PATH and AGGREGATOR as sent, to four-octet and two-octet speakers (RFC 6793 section 4.2.2).

use holdfast_types::{AS_TRANS, Asn};

use crate::{
    as_path::{AsPath, Segment, SegmentType},
    attribute::{self, code, flag, push_header},
};

const SEQUENCE: u8 = SegmentType::Sequence as u8;
const AS_TRANS_OCTETS: [u8; 2] = (AS_TRANS.0 as u16).to_be_bytes();

/// A path to be written: `count` times `asn`, then a segment that these numbers joined, then the rest.
struct Prepended<'a> {
    asn: Asn,
    count: u8,
    /// Numbers of the first segment, if it is an AS_SEQUENCE with room for `count` more.
    joined: &'a [u8],
    rest: &'a [u8],
}

impl<'a> Prepended<'a> {
    fn new(value: &'a [u8], prepend: Option<(Asn, u8)>) -> Self {
        let (asn, count) = prepend.unwrap_or_default();
        let apart = Self { asn, count, joined: &[], rest: value };
        if count == 0 {
            return apart;
        }
        match *value {
            [SEQUENCE, len, ref after @ ..] if len.checked_add(count).is_some() => {
                match after.split_at_checked(4 * usize::from(len)) {
                    Some((joined, rest)) => Self { joined, rest, ..apart },
                    None => apart,
                }
            }
            _ => apart,
        }
    }

    fn len(&self) -> usize {
        let head = if self.count == 0 { 0 } else { 2 + 4 * usize::from(self.count) };
        head + self.joined.len() + self.rest.len()
    }

    fn push(&self, out: &mut Vec<u8>) {
        if self.count != 0 {
            out.extend_from_slice(&[SEQUENCE, self.count + (self.joined.len() / 4) as u8]);
            for _ in 0..self.count {
                out.extend_from_slice(&self.asn.0.to_be_bytes());
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

/// Appends AS_PATH with `prepend` in front. RFC 4271 section 5.1.2: into the first segment if that is an
/// AS_SEQUENCE with room, else as a segment of its own.
pub(super) fn push(value: &[u8], prepend: Option<(Asn, u8)>, four_octet_as: bool, out: &mut Vec<u8>) {
    let path = Prepended::new(value, prepend);
    if four_octet_as {
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
pub(super) fn push_as4_path(value: &[u8], prepend: Option<(Asn, u8)>, out: &mut Vec<u8>) {
    let bytes = Prepended::new(value, prepend).bytes();
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

//! AS_PATH as received: its faults, and the way from two-octet numbers to four (RFC 6793 section 4.2.3).

use holdfast_types::AS_TRANS;

use super::{AsSets, PeerKind, Rules};
use crate::{as_path::SegmentType, fault::FaultReason};

/// A segment whose numbers are two or four octets wide.
#[derive(Copy, Clone)]
struct Segment<'a> {
    kind: SegmentType,
    count: usize,
    numbers: &'a [u8],
}

impl Segment<'_> {
    fn hops(self) -> usize {
        self.kind.hops(self.count)
    }
}

/// The segments of a value; ends after the first that is malformed (RFC 7606 section 7.2).
fn segments(value: &[u8], width: usize) -> impl Iterator<Item = Result<Segment<'_>, FaultReason>> {
    let mut rest = value;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let segment = split_segment(&mut rest, width).ok_or(FaultReason::MalformedSegment);
        if segment.is_err() {
            rest = &[];
        }
        Some(segment)
    })
}

fn split_segment<'a>(rest: &mut &'a [u8], width: usize) -> Option<Segment<'a>> {
    let (&[kind, count], after) = rest.split_first_chunk()?;
    let (kind, count) = (SegmentType::from_octet(kind)?, usize::from(count));
    let (numbers, after) = after.split_at_checked(count * width)?;
    *rest = after;
    (count != 0).then_some(Segment { kind, count, numbers })
}

/// What is wrong with an AS_PATH from a session with these rules.
pub(super) fn fault(value: &[u8], rules: &Rules) -> Option<FaultReason> {
    let width = if rules.four_octet_as { 4 } else { 2 };
    let (mut confed, mut set) = (false, false);
    for segment in segments(value, width) {
        let segment = match segment {
            Ok(segment) if has_zero(segment.numbers, width) => return Some(FaultReason::AsZero),
            Ok(segment) => segment,
            Err(reason) => return Some(reason),
        };
        confed |= segment.kind.is_confed();
        set |= segment.kind.is_set();
    }
    if confed && matches!(rules.kind, PeerKind::Ebgp | PeerKind::Ibgp) {
        return Some(FaultReason::ConfedSegment);
    }
    if set && rules.as_sets == AsSets::Reject {
        return Some(FaultReason::AsSet);
    }
    let names_itself = || value.first() == Some(&(SegmentType::ConfedSequence as u8));
    (rules.kind == PeerKind::ConfedEbgp && !names_itself()).then_some(FaultReason::NoConfedSequence)
}

/// Malformed segments and AS number 0 (RFC 7607).
pub(super) fn syntax_fault(value: &[u8], width: usize) -> Option<FaultReason> {
    segments(value, width).find_map(|segment| match segment {
        Ok(segment) => has_zero(segment.numbers, width).then_some(FaultReason::AsZero),
        Err(reason) => Some(reason),
    })
}

fn has_zero(numbers: &[u8], width: usize) -> bool {
    match width {
        4 => numbers.as_chunks().0.contains(&[0; 4]),
        _ => numbers.as_chunks().0.contains(&[0; 2]),
    }
}

pub(super) fn has_set(value: &[u8], width: usize) -> bool {
    segments(value, width).flatten().any(|segment| segment.kind.is_set())
}

pub(super) fn has_confed(value: &[u8], width: usize) -> bool {
    segments(value, width).flatten().any(|segment| segment.kind.is_confed())
}

/// The AGGREGATOR of a two-octet speaker with a four-octet number: that of AS4_AGGREGATOR where there is
/// one and AGGREGATOR says AS_TRANS. Both have their right lengths.
pub(super) fn four_octet_aggregator(value: &[u8], as4: Option<&[u8]>) -> Vec<u8> {
    let trans = AS_TRANS.two_octets().to_be_bytes();
    match as4 {
        Some(as4) if value.starts_with(&trans) => as4.to_vec(),
        _ => [&[0, 0], value].concat(),
    }
}

/// The path of a two-octet speaker with four-octet numbers: as much of the beginning of AS_PATH as is not in
/// AS4_PATH, then AS4_PATH. Both are without syntax faults; `as4_path` may be empty.
pub(super) fn join(as_path: &[u8], as4_path: &[u8]) -> Vec<u8> {
    let mut joined = Joined { bytes: Vec::with_capacity(2 * as_path.len()), open_sequence: None };
    let tail = || segments(as4_path, 4).flatten().filter(|segment| !segment.kind.is_confed());
    let hops = segments(as_path, 2).flatten().map(Segment::hops).sum::<usize>();
    match hops.checked_sub(tail().map(Segment::hops).sum()) {
        // AS_PATH is the shorter one: AS4_PATH cannot belong to it.
        None => joined.leading(as_path, usize::MAX),
        Some(_) if tail().next().is_none() => joined.leading(as_path, usize::MAX),
        Some(leading) => {
            joined.leading(as_path, leading);
            tail().for_each(|segment| joined.push(segment.kind, segment.numbers.as_chunks().0));
        }
    }
    joined.bytes
}

struct Joined {
    bytes: Vec<u8>,
    /// Where the last segment starts if it is an AS_SEQUENCE that the next one may continue.
    open_sequence: Option<usize>,
}

impl Joined {
    /// As many segments, and numbers of the last, as make up `hops`; confederation segments beside them too.
    fn leading(&mut self, as_path: &[u8], hops: usize) {
        let mut left = hops;
        for segment in segments(as_path, 2).flatten() {
            let take = match segment.kind {
                SegmentType::Sequence => segment.count.min(left),
                SegmentType::Set if left == 0 => 0,
                SegmentType::Set | SegmentType::ConfedSequence | SegmentType::ConfedSet => segment.count,
            };
            let widened = segment.numbers.as_chunks().0[..take].iter().map(|&[high, low]| [0, 0, high, low]);
            self.push(segment.kind, &widened.collect::<Vec<_>>());
            left -= segment.kind.hops(take).min(left);
            if take < segment.count {
                break;
            }
        }
    }

    /// Appends a segment, or its numbers to the AS_SEQUENCE before it.
    fn push(&mut self, kind: SegmentType, numbers: &[[u8; 4]]) {
        if numbers.is_empty() {
            return;
        }
        let continued = self.open_sequence.filter(|_| kind == SegmentType::Sequence);
        match continued
            .and_then(|start| Some((start, self.bytes[start + 1].checked_add(numbers.len() as u8)?)))
        {
            Some((start, count)) => self.bytes[start + 1] = count,
            None => {
                self.open_sequence = (kind == SegmentType::Sequence).then_some(self.bytes.len());
                self.bytes.extend_from_slice(&[kind as u8, numbers.len() as u8]);
            }
        }
        self.bytes.extend_from_slice(numbers.as_flattened());
    }
}

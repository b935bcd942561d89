//! A message that comes in pieces, in any order: CRYPTO frames (RFC 9000 section 19.6), fragments in records.

use std::ops::Range;

use thiserror::Error;

use crate::client_hello::{BadHello, Peek, peek};

/// Octets of a message that are kept at most. A ClientHello with post-quantum keys has some 1,800.
pub const MOST_OCTETS: usize = 16 * 1024;
/// Room is made for so many octets at a time.
const ROOM: usize = 2048;
/// Pieces with gaps between them that are kept at most. Some clients cut theirs into a dozen, to keep others honest.
pub const MOST_RANGES: usize = 32;

/// A message of which pieces are here. Keeps [`MOST_OCTETS`] at most, and nothing before the first piece.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Reassembly {
    /// Up to the highest octet that is here; zero where none is.
    octets: Vec<u8>,
    /// Where octets are: sorted, not empty, with gaps between them.
    ranges: Vec<Range<usize>>,
}

impl Reassembly {
    /// Puts a piece to its place. Pieces may come twice and overlap.
    ///
    /// # Errors
    /// It is left out, whole; what was here stays as it was.
    pub fn insert(&mut self, offset: u64, piece: &[u8]) -> Result<(), LeftOut> {
        let start = usize::try_from(offset).map_err(|_| LeftOut::TooLong)?;
        let end = start.checked_add(piece.len()).filter(|end| *end <= MOST_OCTETS).ok_or(LeftOut::TooLong)?;
        if piece.is_empty() {
            return Ok(());
        }
        // Those that overlap it or are beside it.
        let first = self.ranges.partition_point(|range| range.end < start);
        let last = self.ranges.partition_point(|range| range.start <= end);
        if first == last && self.ranges.len() == MOST_RANGES {
            return Err(LeftOut::TooMany);
        }
        let mut whole = start..end;
        for range in &self.ranges[first..last] {
            let both = range.start.max(start)..range.end.min(end);
            // Empty where they are only beside each other.
            let of_piece = both.start - start..both.end - start;
            if self.octets[both] != piece[of_piece] {
                return Err(LeftOut::Disagrees);
            }
            whole = whole.start.min(range.start)..whole.end.max(range.end);
        }
        if self.octets.len() < end {
            // Most messages fit into the first room that is made, so they are not moved as they grow.
            self.octets.reserve_exact(end.next_multiple_of(ROOM) - self.octets.len());
            self.octets.resize(end, 0);
        }
        self.octets[start..end].copy_from_slice(piece);
        drop(self.ranges.splice(first..last, [whole]));
        Ok(())
    }

    /// What is here from the first octet on without a gap.
    pub fn contiguous(&self) -> &[u8] {
        match self.ranges.first() {
            Some(range) if range.start == 0 => &self.octets[..range.end],
            _ => &[],
        }
    }

    /// Whether there is no piece yet.
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Forgets all pieces; the memory is kept for others.
    pub fn clear(&mut self) {
        self.octets.clear();
        self.ranges.clear();
    }

    /// Looks at what is here without a gap.
    ///
    /// # Errors
    /// As [`peek`]'s.
    pub fn peek(&self) -> Result<Peek<'_>, BadHello> {
        peek(self.contiguous())
    }
}

/// Why a piece was left out. The message stays incomplete.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Error)]
pub enum LeftOut {
    /// It ends behind [`MOST_OCTETS`].
    #[error("it ends behind the {MOST_OCTETS} octets that are kept")]
    TooLong,
    /// There are [`MOST_RANGES`] already, and it closes no gap.
    #[error("there are {MOST_RANGES} pieces with gaps between them already")]
    TooMany,
    /// It says something else than a piece that was here before.
    #[error("it contradicts an earlier piece")]
    Disagrees,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_out_of_order_make_a_whole() {
        let mut pieces = Reassembly::default();
        assert_eq!(pieces.insert(4, b"efgh"), Ok(()));
        assert!(!pieces.is_empty());
        assert_eq!(pieces.contiguous(), b"");
        assert_eq!(pieces.insert(0, b"ab"), Ok(()));
        assert_eq!(pieces.contiguous(), b"ab");
        assert_eq!(pieces.insert(1, b"bcde"), Ok(()));
        assert_eq!(pieces.contiguous(), b"abcdefgh");
        assert_eq!(pieces.ranges.len(), 1);
    }

    #[test]
    fn a_piece_that_contradicts_is_left_out_whole() {
        let mut pieces = Reassembly::default();
        pieces.insert(2, b"cd").expect("the first");
        assert_eq!(pieces.insert(0, b"abX"), Err(LeftOut::Disagrees));
        assert_eq!(pieces.contiguous(), b"");
        assert_eq!(pieces.insert(0, b"abcd"), Ok(()));
        assert_eq!(pieces.contiguous(), b"abcd");
    }

    #[test]
    fn nothing_grows_over_its_bounds() {
        let mut pieces = Reassembly::default();
        assert_eq!(pieces.insert(u64::MAX, b"x"), Err(LeftOut::TooLong));
        assert_eq!(pieces.insert(MOST_OCTETS as u64, b"x"), Err(LeftOut::TooLong));
        assert!(pieces.is_empty());
        assert_eq!(pieces.insert(MOST_OCTETS as u64, b""), Ok(()));
        for gap in 0..MOST_RANGES as u64 {
            assert_eq!(pieces.insert(2 * gap, b"x"), Ok(()));
        }
        assert_eq!(pieces.insert(2 * MOST_RANGES as u64, b"x"), Err(LeftOut::TooMany));
        // One that closes a gap needs no place of its own.
        assert_eq!(pieces.insert(1, b"y"), Ok(()));
        assert_eq!(pieces.contiguous(), b"xyx");
        assert_eq!(pieces.insert(2 * MOST_RANGES as u64, b"x"), Ok(()));
        pieces.clear();
        assert_eq!(pieces, Reassembly::default());
        assert_eq!(pieces.insert(MOST_OCTETS as u64 - 1, b"x"), Ok(()));
    }
}

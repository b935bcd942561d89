//! AS paths with four-octet numbers (RFC 4271 section 4.3, RFC 5065, RFC 6793).

use std::fmt;

use holdfast_types::Asn;

/// What a segment is: the octet on the wire.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub enum SegmentType {
    /// AS_SET: unordered, of an aggregate.
    Set = 1,
    /// AS_SEQUENCE: ordered, the nearest first.
    Sequence,
    /// AS_CONFED_SEQUENCE (RFC 5065).
    ConfedSequence,
    /// AS_CONFED_SET (RFC 5065).
    ConfedSet,
}

impl SegmentType {
    #[inline]
    pub(crate) fn from_octet(octet: u8) -> Option<Self> {
        Some(match octet {
            1 => Self::Set,
            2 => Self::Sequence,
            3 => Self::ConfedSequence,
            4 => Self::ConfedSet,
            _ => return None,
        })
    }

    /// Whether it is one of a confederation (RFC 5065).
    pub fn is_confed(self) -> bool {
        matches!(self, Self::ConfedSequence | Self::ConfedSet)
    }

    pub(crate) fn is_set(self) -> bool {
        matches!(self, Self::Set | Self::ConfedSet)
    }

    /// What the segment adds to the length of a path (RFC 4271 section 9.1.2.2 a, RFC 5065 section 5.3).
    #[inline]
    pub(crate) fn hops(self, numbers: usize) -> usize {
        match self {
            Self::Sequence => numbers,
            Self::Set => 1,
            Self::ConfedSequence | Self::ConfedSet => 0,
        }
    }
}

/// One segment of a path.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Segment<'a> {
    /// What it is.
    pub kind: SegmentType,
    numbers: &'a [[u8; 4]],
}

impl<'a> Segment<'a> {
    /// Its AS numbers in the order of the wire.
    pub fn asns(self) -> impl DoubleEndedIterator<Item = Asn> + ExactSizeIterator + Clone + use<'a> {
        self.numbers.iter().map(|octets| Asn(u32::from_be_bytes(*octets)))
    }

    #[inline]
    fn contains(self, asn: Asn) -> bool {
        self.numbers.contains(&asn.0.to_be_bytes())
    }
}

/// The value of an AS_PATH with four-octet numbers. Reading stops where a segment is malformed, which
/// canonical bytes exclude.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Default)]
pub struct AsPath<'a>(pub(crate) &'a [u8]);

impl<'a> AsPath<'a> {
    /// The view of an attribute's value.
    pub fn new(value: &'a [u8]) -> Self {
        Self(value)
    }

    /// The octets.
    pub fn as_bytes(self) -> &'a [u8] {
        self.0
    }

    /// The segments in order.
    #[inline]
    pub fn segments(self) -> impl Iterator<Item = Segment<'a>> + Clone {
        let mut rest = self.0;
        std::iter::from_fn(move || {
            let (&[kind, count], after) = rest.split_first_chunk()?;
            let (numbers, after) = after.split_at_checked(4 * usize::from(count))?;
            rest = after;
            Some(Segment { kind: SegmentType::from_octet(kind)?, numbers: numbers.as_chunks().0 })
        })
    }

    /// All AS numbers in order, those in sets included.
    pub fn asns(self) -> impl Iterator<Item = Asn> + Clone {
        self.segments().flat_map(Segment::asns)
    }

    /// The length that routes are compared by: a set counts 1, confederation segments nothing
    /// (RFC 4271 section 9.1.2.2 a, RFC 5065 section 5.3).
    pub fn hops(self) -> usize {
        self.segments().map(|segment| segment.kind.hops(segment.numbers.len())).sum()
    }

    /// The AS that sent the route: the first of the first segment, if that is an AS_SEQUENCE.
    pub fn first_as(self) -> Option<Asn> {
        let first = self.segments().next()?;
        (first.kind == SegmentType::Sequence).then(|| first.asns().next())?
    }

    /// The neighbouring AS by which MEDs are compared: that of the first segment outside the confederation
    /// (RFC 5065 section 5.3), if it is an AS_SEQUENCE.
    pub fn neighbor_as(self) -> Option<Asn> {
        let first = self.segments().find(|segment| !segment.kind.is_confed())?;
        (first.kind == SegmentType::Sequence).then(|| first.asns().next())?
    }

    /// The AS that originated the route: the last number, if the last segment is an AS_SEQUENCE (RFC 6811
    /// section 2). `None` for an empty path too: our own AS then.
    pub fn origin_as(self) -> Option<Asn> {
        let last = self.segments().last()?;
        (last.kind == SegmentType::Sequence).then(|| last.asns().next_back())?
    }

    /// Whether there is an AS_SET in it, or an AS_CONFED_SET.
    pub fn has_set(self) -> bool {
        self.segments().any(|segment| segment.kind.is_set())
    }

    /// How often the number is in the path.
    pub fn occurrences(self, asn: Asn) -> usize {
        self.asns().filter(|other| *other == asn).count()
    }

    /// Whether the number is anywhere in the path: the loop check.
    pub fn contains(self, asn: Asn) -> bool {
        self.segments().any(|segment| segment.contains(asn))
    }
}

/// `64512 {1,2} 7`; confederation segments as `(1 2)` and `[1,2]`.
impl fmt::Display for AsPath<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, segment) in self.segments().enumerate() {
            if index > 0 {
                f.write_str(" ")?;
            }
            let (open, between, close) = match segment.kind {
                SegmentType::Sequence => ("", " ", ""),
                SegmentType::Set => ("{", ",", "}"),
                SegmentType::ConfedSequence => ("(", " ", ")"),
                SegmentType::ConfedSet => ("[", ",", "]"),
            };
            f.write_str(open)?;
            for (index, asn) in segment.asns().enumerate() {
                if index > 0 {
                    f.write_str(between)?;
                }
                write!(f, "{asn}")?;
            }
            f.write_str(close)?;
        }
        Ok(())
    }
}

impl fmt::Debug for AsPath<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

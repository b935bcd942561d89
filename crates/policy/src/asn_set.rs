//! Ranges of AS numbers, and sets of them.

use std::{fmt, str::FromStr};

use holdfast_types::Asn;

use crate::text::as_text;

/// The AS numbers from `first` to `last`, both included. Written `65001` or `64512-65534`.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct AsnRange {
    first: Asn,
    last: Asn,
}

impl AsnRange {
    /// `None` when `last` comes before `first`.
    pub fn new(first: Asn, last: Asn) -> Option<Self> {
        (first <= last).then_some(Self { first, last })
    }

    /// The lowest number.
    pub fn first(self) -> Asn {
        self.first
    }

    /// The highest number.
    pub fn last(self) -> Asn {
        self.last
    }

    /// Whether the number lies in the range.
    pub fn contains(self, asn: Asn) -> bool {
        self.first <= asn && asn <= self.last
    }
}

impl From<Asn> for AsnRange {
    fn from(asn: Asn) -> Self {
        Self { first: asn, last: asn }
    }
}

impl fmt::Display for AsnRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.first == self.last {
            true => self.first.fmt(f),
            false => write!(f, "{}-{}", self.first, self.last),
        }
    }
}

/// The text is no range of AS numbers.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no AS number and no range of them: expected 65001 or 64512-65534")]
pub struct ParseAsnRangeError(String);

impl FromStr for AsnRange {
    type Err = ParseAsnRangeError;

    fn from_str(text: &str) -> Result<Self, ParseAsnRangeError> {
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        match (first.parse(), last.parse()) {
            (Ok(first), Ok(last)) => Self::new(first, last),
            _ => None,
        }
        .ok_or_else(|| ParseAsnRangeError(text.to_owned()))
    }
}

as_text!(AsnRange);

/// AS numbers as sorted, disjoint ranges.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct AsnSet(Box<[AsnRange]>);

impl AsnSet {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn contains(&self, asn: Asn) -> bool {
        let after = self.0.partition_point(|range| range.first <= asn);
        after > 0 && asn <= self.0[after - 1].last
    }
}

impl FromIterator<AsnRange> for AsnSet {
    fn from_iter<I: IntoIterator<Item = AsnRange>>(ranges: I) -> Self {
        let mut ranges: Vec<AsnRange> = ranges.into_iter().collect();
        ranges.sort_unstable();
        ranges.dedup_by(|next, kept| {
            let joins = next.first <= kept.last;
            if joins {
                kept.last = kept.last.max(next.last);
            }
            joins
        });
        Self(ranges.into())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn ranges_are_printed_as_they_are_read() {
        for text in ["65001", "64512-65534", "0-4294967295"] {
            assert_eq!(text.parse::<AsnRange>().map(|range| range.to_string()).as_deref(), Ok(text));
        }
        for text in ["", "-", "5-", "-5", "5-4", "1-2-3", "x"] {
            assert!(text.parse::<AsnRange>().is_err(), "{text}");
        }
    }

    proptest! {
        #![proptest_config(holdfast_testing::cases(256))]

        #[test]
        fn a_set_holds_what_one_of_its_ranges_holds(
            bounds in prop::collection::vec((0u32..60, 0u32..10), 0..12),
            asn in (0u32..80).prop_map(Asn),
        ) {
            let ranges: Vec<_> =
                bounds.iter().filter_map(|&(first, size)| AsnRange::new(Asn(first), Asn(first + size))).collect();
            let set: AsnSet = ranges.iter().copied().collect();
            prop_assert_eq!(set.contains(asn), ranges.iter().any(|range| range.contains(asn)));
        }
    }
}

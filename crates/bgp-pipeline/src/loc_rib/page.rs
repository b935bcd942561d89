//! A page of the table with each path of its prefixes.

use crate::fanout::Change;

/// What [`LocRib::page_of_each`](super::LocRib::page_of_each) finds.
pub(crate) struct EachPage<P> {
    pub(crate) paths: Vec<Change<P>>,
    /// Each with the place in `paths` after its own.
    pub(super) prefixes: Vec<(P, usize)>,
}

impl<P: Copy + Eq> EachPage<P> {
    /// The last prefix, and how many there are.
    pub(crate) fn extent(&self) -> (Option<P>, usize) {
        (self.prefixes.last().map(|(prefix, _)| *prefix), self.prefixes.len())
    }

    /// The paths of the first prefix if this one that is in no table is before them, else none.
    pub(crate) fn behind(&self, other: Option<Change<P>>) -> Vec<Change<P>> {
        let of_other = |change: &&Change<P>| other.is_some_and(|other| other.prefix == change.prefix);
        let end = self.prefixes.first().map_or(0, |(_, end)| *end);
        other.into_iter().chain(self.paths[..end].iter().filter(of_other).copied()).collect()
    }

    /// Each prefix with its paths, also where there are none to be told. What [`Self::behind`] says comes first, unless it is
    /// nothing, in the place of what the page has of its prefix.
    pub(crate) fn by_prefix<'a>(
        &'a self,
        first: &'a [Change<P>],
    ) -> impl Iterator<Item = (P, &'a [Change<P>])> {
        let starts = std::iter::once(0).chain(self.prefixes.iter().map(|(_, end)| *end));
        let each = self
            .prefixes
            .iter()
            .zip(starts)
            .map(|((prefix, end), start)| (*prefix, &self.paths[start..*end]));
        let other = first.first().map(|change| change.prefix);
        other
            .map(|prefix| (prefix, first))
            .into_iter()
            .chain(each.filter(move |(prefix, _)| Some(*prefix) != other))
    }
}

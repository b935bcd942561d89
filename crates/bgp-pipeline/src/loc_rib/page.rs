//! A page of the table with each path of its prefixes.

use crate::fanout::Change;

/// What [`LocRib::page_of_each`](super::LocRib::page_of_each) finds.
pub(crate) struct EachPage<P> {
    pub(crate) paths: Vec<Change<P>>,
    /// Each with the place in `paths` after its own.
    pub(super) prefixes: Vec<(P, usize)>,
}

/// How far a page goes.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Extent<P> {
    /// The last prefix; `None` if there is none.
    pub(crate) last: Option<P>,
    /// How many there are.
    pub(crate) prefixes: usize,
    /// How many paths were looked at.
    pub(crate) paths: usize,
}

impl<P: Copy + Eq> EachPage<P> {
    /// How far it goes.
    pub(crate) fn extent(&self) -> Extent<P> {
        let last = self.prefixes.last().map(|(prefix, _)| *prefix);
        Extent { last, prefixes: self.prefixes.len(), paths: self.paths.len() }
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

//! A page of the table with each path of its prefixes.

use crate::fanout::Change;

/// What [`LocRib::page_of_each`](super::LocRib::page_of_each) finds.
pub(crate) struct EachPage<P> {
    pub(crate) paths: Vec<Change<P>>,
    /// Each with the place in `paths` after its own.
    pub(super) prefixes: Vec<(P, usize)>,
}

impl<P: Copy> EachPage<P> {
    /// The last prefix, and how many there are.
    pub(crate) fn extent(&self) -> (Option<P>, usize) {
        (self.prefixes.last().map(|(prefix, _)| *prefix), self.prefixes.len())
    }

    /// Each prefix with its paths, also where there are none to be told.
    pub(crate) fn by_prefix(&self) -> impl Iterator<Item = (P, &[Change<P>])> {
        let starts = std::iter::once(0).chain(self.prefixes.iter().map(|(_, end)| *end));
        self.prefixes.iter().zip(starts).map(|((prefix, end), start)| (*prefix, &self.paths[start..*end]))
    }
}

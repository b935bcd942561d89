//! The Fanout stage: one log of changes of the best paths, read by cursors.
//!
//! While groups are sent several paths (RFC 7911) it has the changes of each path that takes part in the decision, too,
//! and of its standing among them. Both kinds are in one log: readers skip what is not for them, and all that depends
//! on how far readers have come holds for both. While there are views of their own (`view.rs`), each event on a prefix
//! leaves all its paths there, one behind the other, also those about which nothing has changed.
//!
//! Every update group and the RIB hold a position in the log and nothing else: a slow reader costs no copy
//! (XORP, section 5.1.1). The log is bounded; who is too far behind loses its place ([`Log::start`] has
//! passed it) and starts again from a walk over the table.

use std::collections::VecDeque;

use crate::path::Path;

/// The best path of a prefix is another one; or one of its paths, that of a source, has changed. Paths carry the
/// attributes as received.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct Change<P> {
    pub(crate) prefix: P,
    /// [`Path::NONE`] where there was none.
    pub(crate) old: Path,
    /// [`Path::NONE`] where there is none any more. The same as `old` where only the RIB has to look again.
    pub(crate) new: Path,
}

impl<P: Copy + Eq> Change<P> {
    /// What has become of one path; those that are not there have the source all the same.
    pub(crate) fn each(prefix: P, old: Path, new: Path) -> Self {
        Self { prefix, old: old.as_each(), new: new.as_each() }
    }

    /// Whether it is about one of several paths, not about which is best.
    pub(crate) fn is_each(&self) -> bool {
        self.new.is_each()
    }

    /// Whether nothing is another than before.
    #[inline]
    pub(crate) fn is_none(&self) -> bool {
        self.old.same_route(self.new)
    }

    /// Whether the paths of both are the same routes.
    #[inline]
    pub(crate) fn is_like(&self, other: &Self) -> bool {
        self.old.same_route(other.old) && self.new.same_route(other.new)
    }

    /// Whether both are about the same. Both are of one kind.
    pub(crate) fn concerns(&self, other: &Self) -> bool {
        self.prefix == other.prefix && (!self.is_each() || self.new.source == other.new.source)
    }
}

/// The changes of one family that some reader has not seen.
#[derive(Debug)]
pub(crate) struct Log<P> {
    changes: VecDeque<Change<P>>,
    start: u64,
    /// After the last change of one of several paths.
    mixed_to: u64,
}

/// Entries of room that are kept when the log is empty.
const SHRINK_ABOVE: usize = 1 << 14;

impl<P: Copy> Log<P> {
    pub(crate) fn new() -> Self {
        Self { changes: VecDeque::new(), start: 0, mixed_to: 0 }
    }

    /// The position of the oldest change.
    pub(crate) fn start(&self) -> u64 {
        self.start
    }

    /// The position after the newest.
    pub(crate) fn end(&self) -> u64 {
        self.start + self.changes.len() as u64
    }

    pub(crate) fn len(&self) -> usize {
        self.changes.len()
    }

    /// Adds a change of the best path.
    pub(crate) fn push(&mut self, change: Change<P>) {
        self.changes.push_back(change);
    }

    /// Adds a change of one of several.
    pub(crate) fn push_each(&mut self, change: Change<P>) {
        self.push(change);
        self.mixed_to = self.end();
    }

    /// Whether there may be changes of both kinds from a position on.
    pub(crate) fn is_mixed(&self, from: u64) -> bool {
        from < self.mixed_to
    }

    /// At most `count` changes from a position on.
    pub(crate) fn read(&self, from: u64, count: usize) -> impl ExactSizeIterator<Item = Change<P>> {
        let first = from.saturating_sub(self.start).min(self.changes.len() as u64) as usize;
        let last = self.changes.len().min(first.saturating_add(count));
        self.changes.range(first..last).copied()
    }

    /// The same, and what follows of the same event, if that is one of several paths.
    pub(crate) fn read_events(&self, from: u64, count: usize) -> impl ExactSizeIterator<Item = Change<P>>
    where
        P: Eq,
    {
        let first = from.saturating_sub(self.start).min(self.changes.len() as u64) as usize;
        let end = self.changes.len().min(first.saturating_add(count));
        let last = end.checked_sub(1).and_then(|last| self.changes.get(last)).filter(|last| last.is_each());
        let of_last =
            |change: &&Change<P>| last.is_some_and(|last| change.is_each() && change.prefix == last.prefix);
        let more = self.changes.range(end..).take_while(of_last).count();
        self.read(from, end - first + more)
    }

    /// Takes the oldest change.
    pub(crate) fn pop(&mut self) -> Option<Change<P>> {
        let change = self.changes.pop_front()?;
        self.start += 1;
        Some(change)
    }

    /// Forgets what all readers have passed; gives memory back after a burst.
    pub(crate) fn trim(&mut self, to: u64) {
        let count = to.saturating_sub(self.start).min(self.changes.len() as u64);
        self.changes.drain(..count as usize);
        self.start += count;
        if self.changes.is_empty() && self.changes.capacity() > SHRINK_ABOVE {
            self.changes = VecDeque::new();
        }
    }

    pub(crate) fn memory(&self) -> usize {
        self.changes.capacity() * size_of::<Change<P>>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(prefix: u32) -> Change<u32> {
        Change { prefix, old: Path::NONE, new: Path::NONE }
    }

    #[test]
    fn a_reader_goes_on_where_it_stopped_and_is_not_disturbed_by_trimming() {
        let mut log = Log::new();
        (0..10).for_each(|prefix| log.push(change(prefix)));
        log.trim(3);
        let read: Vec<u32> = log.read(4, 2).map(|change| change.prefix).collect();
        assert_eq!((log.start(), log.end(), read), (3, 10, vec![4, 5]));
        assert_eq!(log.read(10, 5).len(), 0);
        log.trim(99);
        assert_eq!((log.len(), log.start(), log.end()), (0, 10, 10));
    }
}

//! The log of changed prefixes, and cursors that follow it.
//!
//! An entry says only *that* a prefix changed; whoever reads it looks up what holds now. So changes of one prefix
//! fold together by themselves, an entry never outlives what it points to, and a reader that lags costs nothing but
//! its position. The log keeps the last `capacity` entries. A cursor whose entries are gone starts over with a walk
//! of the table, as a new one does.

use std::collections::VecDeque;

use holdfast_types::IpPrefix;

/// A changed prefix and the origins that had a route for it before, as bits.
pub(crate) type Entry<P> = (P, u32);

#[derive(Debug)]
pub(crate) struct Log<P> {
    entries: VecDeque<Entry<P>>,
    /// Position of the first entry.
    start: u64,
    capacity: usize,
}

impl<P: IpPrefix> Log<P> {
    pub(crate) fn new(capacity: usize) -> Self {
        Self { entries: VecDeque::new(), start: 0, capacity: capacity.max(1) }
    }

    pub(crate) fn end(&self) -> u64 {
        self.start + self.entries.len() as u64
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(crate) fn push(&mut self, prefix: P, origins_before: u32) {
        if self.entries.len() == self.capacity {
            self.entries.pop_front();
            self.start += 1;
        }
        self.entries.push_back((prefix, origins_before));
    }

    /// Forgets what every reader has read: all before `position`.
    pub(crate) fn trim(&mut self, position: u64) {
        let read = position.saturating_sub(self.start).min(self.entries.len() as u64);
        self.entries.drain(..read as usize);
        self.start += read;
        if self.entries.len() < self.entries.capacity() / 8 {
            self.entries.shrink_to(self.entries.len() * 2);
        }
    }

    fn get(&self, position: u64) -> Option<Entry<P>> {
        self.entries.get(usize::try_from(position.checked_sub(self.start)?).ok()?).copied()
    }

    /// The entries from a position on that are still there.
    pub(crate) fn since(&self, position: u64) -> impl Iterator<Item = Entry<P>> {
        let first = position.saturating_sub(self.start).min(self.entries.len() as u64);
        self.entries.range(first as usize..).copied()
    }

    pub(crate) fn memory(&self) -> usize {
        self.entries.capacity() * size_of::<Entry<P>>()
    }
}

/// How far a walk over a table has come.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Walk<P> {
    /// After this prefix; `None` is the start.
    After(Option<P>),
    /// All seen.
    Done,
}

impl<P: IpPrefix> Walk<P> {
    pub(crate) const START: Self = Self::After(None);

    pub(crate) fn has_passed(&self, prefix: P) -> bool {
        match self {
            Self::After(seen) => seen.is_some_and(|seen| prefix <= seen),
            Self::Done => true,
        }
    }
}

/// The place of one reader in the table of one family: first a walk, then the log. While the walk goes on, the log
/// is read for what lies behind it.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Cursor<P> {
    pub(crate) walk: Walk<P>,
    pub(crate) position: u64,
}

impl<P: IpPrefix> Cursor<P> {
    /// A cursor that has to walk everything.
    pub(crate) fn start(log: &Log<P>) -> Self {
        Self { walk: Walk::START, position: log.end() }
    }

    /// Whether entries that it had to read are gone.
    pub(crate) fn is_lost(&self, log: &Log<P>) -> bool {
        self.position < log.start
    }

    pub(crate) fn lag(&self, log: &Log<P>) -> u64 {
        log.end().saturating_sub(self.position)
    }

    /// The next entry of the log that the walk will not visit anyway.
    pub(crate) fn next_change(&mut self, log: &Log<P>) -> Option<Entry<P>> {
        loop {
            let entry = log.get(self.position)?;
            self.position += 1;
            if self.walk.has_passed(entry.0) {
                return Some(entry);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use holdfast_types::Ipv4Prefix;

    use super::*;

    fn prefix(number: u8) -> Ipv4Prefix {
        Ipv4Prefix::from_bits(u128::from(number) << 120, 8)
    }

    #[test]
    fn a_reader_that_falls_behind_is_lost_and_the_log_stays_bounded() {
        let mut log = Log::new(4);
        let mut cursor = Cursor::start(&log);
        cursor.walk = Walk::Done;
        (0..4).for_each(|n| log.push(prefix(n), 0));
        assert!(!cursor.is_lost(&log));
        log.push(prefix(4), 0);
        assert!(cursor.is_lost(&log));
        assert_eq!(log.entries.len(), 4);
    }

    #[test]
    fn during_the_walk_only_what_lies_behind_it_is_read() {
        let mut log = Log::new(8);
        let mut cursor = Cursor::start(&log);
        cursor.walk = Walk::After(Some(prefix(2)));
        (0..5).for_each(|n| log.push(prefix(n), 1));
        let read: Vec<_> = std::iter::from_fn(|| cursor.next_change(&log)).map(|entry| entry.0).collect();
        assert_eq!(read, [prefix(0), prefix(1), prefix(2)]);
        assert_eq!(cursor.lag(&log), 0);
    }

    #[test]
    fn what_was_read_is_given_back() {
        let mut log = Log::new(1000);
        (0..200).for_each(|n| log.push(prefix(n), 0));
        log.trim(200);
        assert_eq!((log.end(), log.entries.len()), (200, 0));
        assert!(log.memory() < 200);
    }
}

//! Records in a ring: when it is full, the oldest go.

use std::collections::VecDeque;

use holdfast_types::Prefix;

/// A route has passed a point.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    /// Nanoseconds of Unix time.
    pub(crate) time: u64,
    pub(crate) prefix: Prefix,
    pub(crate) point: u32,
    pub(crate) comes: bool,
}

/// Has no memory before [`Ring::resize`], and no more than that allows.
#[derive(Debug, Default)]
pub(crate) struct Ring {
    records: VecDeque<Record>,
    capacity: usize,
    /// Records that are gone: the position of the first one that is not.
    start: u64,
    overwritten: u64,
}

impl Ring {
    pub(crate) fn capacity(&self) -> usize {
        self.capacity
    }

    pub(crate) fn len(&self) -> usize {
        self.records.len()
    }

    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    pub(crate) fn overwritten(&self) -> u64 {
        self.overwritten
    }

    /// Empties it, and makes room for so many records at once: what is measured shall not wait for memory.
    pub(crate) fn resize(&mut self, capacity: usize) {
        self.clear();
        self.records = VecDeque::with_capacity(capacity);
        self.capacity = capacity;
    }

    pub(crate) fn clear(&mut self) {
        self.start += self.records.len() as u64;
        self.overwritten = 0;
        self.records.clear();
    }

    pub(crate) fn push(&mut self, record: Record) {
        if self.records.len() == self.capacity {
            self.start += 1;
            self.overwritten += 1;
            if self.records.pop_front().is_none() {
                return;
            }
        }
        self.records.push_back(record);
    }

    /// The position behind the last record.
    pub(crate) fn end(&self) -> u64 {
        self.start + self.records.len() as u64
    }

    /// At most `most` records from a position on, and the position after them. Of what has been overwritten meanwhile
    /// nothing comes.
    pub(crate) fn read(&self, position: u64, most: usize) -> (Vec<Record>, u64) {
        let skipped = position.saturating_sub(self.start).min(self.records.len() as u64) as usize;
        let records: Vec<_> = self.records.range(skipped..).take(most).copied().collect();
        let next = self.start + (skipped + records.len()) as u64;
        (records, next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(time: u64) -> Record {
        Record { time, prefix: "10.0.0.0/8".parse().expect("prefix"), point: 1, comes: true }
    }

    fn times(ring: &Ring, position: u64, most: usize) -> (Vec<u64>, u64) {
        let (records, next) = ring.read(position, most);
        (records.iter().map(|record| record.time).collect(), next)
    }

    #[test]
    fn a_full_ring_loses_its_oldest_and_counts_them() {
        let mut ring = Ring::default();
        ring.resize(3);
        (0..5).for_each(|time| ring.push(record(time)));
        assert_eq!((ring.len(), ring.overwritten(), ring.records.capacity()), (3, 2, 3));
        assert_eq!(times(&ring, 0, 9).0, [2, 3, 4]);
    }

    #[test]
    fn a_ring_without_room_takes_nothing() {
        let mut ring = Ring::default();
        ring.push(record(0));
        assert!(ring.is_empty());
        assert_eq!(ring.records.capacity(), 0);
    }

    #[test]
    fn who_reads_in_pages_goes_on_where_it_was_while_the_ring_moves() {
        let mut ring = Ring::default();
        ring.resize(4);
        (0..4).for_each(|time| ring.push(record(time)));
        let (first, next) = times(&ring, 0, 2);
        ring.push(record(4));
        assert_eq!((first, times(&ring, next, 9).0), (vec![0, 1], vec![2, 3, 4]));
        (5..9).for_each(|time| ring.push(record(time)));
        assert_eq!(times(&ring, next, 9).0, [5, 6, 7, 8], "what was overwritten is not read");
        ring.clear();
        assert_eq!((times(&ring, next, 9).0, ring.overwritten()), (vec![], 0));
    }
}

//! Keys of P-256, 68 octets each, in pages: tables that differ little share most of what they have.

use std::sync::Arc;

use holdfast_types::Asn;

/// Octets of a point on a curve of 256 bits: x and y.
pub(crate) type Point = [u8; 64];

/// Keys of a page: 17 KiB of them are copied for the first change in it that a reader must not see.
const PAGE: usize = 256;

#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct Record {
    pub(crate) asn: Asn,
    pub(crate) point: Point,
}

/// Records by number, without gaps. All pages but the last one are full.
#[derive(Clone, Debug, Default)]
pub(crate) struct Records(Vec<Arc<Vec<Record>>>);

impl Records {
    pub(crate) fn len(&self) -> usize {
        self.0.split_last().map_or(0, |(last, full)| full.len() * PAGE + last.len())
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Record> {
        self.0.iter().flat_map(|page| page.iter())
    }

    /// One that is there.
    pub(crate) fn at(&self, number: u32) -> &Record {
        let number = number as usize;
        &self.0[number / PAGE][number % PAGE]
    }

    pub(crate) fn push(&mut self, record: Record) {
        if self.len().is_multiple_of(PAGE) {
            self.0.push(Arc::default());
        }
        if let Some(last) = self.0.last_mut() {
            let last = Arc::make_mut(last);
            last.reserve_exact(PAGE - last.len());
            last.push(record);
        }
    }

    /// Takes one away that is there; the last one gets its number.
    pub(crate) fn swap_remove(&mut self, number: u32) {
        let number = number as usize;
        let Some(last) = self.0.last_mut() else { return };
        let moved = Arc::make_mut(last).pop();
        if last.is_empty() {
            self.0.pop();
        }
        if let (Some(moved), true) = (moved, number < self.len()) {
            Arc::make_mut(&mut self.0[number / PAGE])[number % PAGE] = moved;
        }
    }

    /// Gives back what is reserved.
    pub(crate) fn shrink(&mut self) {
        self.0.shrink_to_fit();
        // One that is shared was shrunk before.
        if let Some(last) = self.0.last_mut().and_then(Arc::get_mut) {
            last.shrink_to_fit();
        }
    }

    /// Octets of memory, without those of the allocator.
    pub(crate) fn memory(&self) -> usize {
        let page = |page: &Arc<Vec<Record>>| {
            // Two counters are with what is shared.
            2 * size_of::<usize>() + size_of::<Vec<Record>>() + page.capacity() * size_of::<Record>()
        };
        self.0.capacity() * size_of::<Arc<Vec<Record>>>() + self.0.iter().map(page).sum::<usize>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(number: u32) -> Record {
        Record { asn: Asn(number), point: [0; 64] }
    }

    #[test]
    fn what_does_not_change_is_shared() {
        let mut before = Records::default();
        (0..1000).for_each(|number| before.push(record(number)));
        before.shrink();
        let mut after = before.clone();
        // The last one gets the place of one in the second page.
        after.swap_remove(300);
        let shared: Vec<_> =
            before.0.iter().zip(&after.0).map(|(one, other)| Arc::ptr_eq(one, other)).collect();
        assert_eq!(shared, [true, false, true, false]);
        assert_eq!((before.at(300), before.len()), (&record(300), 1000));
        assert_eq!((after.at(300), after.len()), (&record(999), 999));
        // Page by page away, and back.
        (0..999).for_each(|_| after.swap_remove(0));
        assert_eq!((after.len(), after.iter().count()), (0, 0));
        after.push(record(7));
        assert_eq!((after.at(0), after.len()), (&record(7), 1));
        assert!(before.iter().eq((0..1000).map(record).collect::<Vec<_>>().iter()));
    }
}

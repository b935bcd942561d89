//! A batch while it is filled, and how much it frees.
//!
//! A store frees no more than [`MOST_FREED`] chunks with a batch: it would do nothing else meanwhile. A batch that removes more is
//! refused, and one that trims more is done in part. So what is removed is counted here before, from above: nobody but the store
//! knows how many chunks a range has.

use holdfast_store::{Batch, MERGED, MOST_FREED, MOST_OCTETS, MOST_OPERATIONS, Name, NoRoom, Operation};

/// A range in the store, as far as it is known here.
#[derive(Copy, Clone, PartialEq, Eq, Default, Debug)]
pub(crate) struct Held {
    /// It has no octets before this offset, or as few as the store could not free.
    start: u64,
    end: u64,
    /// What was appended, in so many parts.
    appends: u64,
    /// So many chunks were freed at its beginning.
    freed: u64,
}

impl Held {
    /// An empty range.
    pub(crate) fn at(offset: u64) -> Self {
        Self { start: offset, end: offset, ..Self::default() }
    }

    /// Octets were appended.
    pub(crate) fn grow(&mut self, octets: u64) {
        self.end += octets;
        self.appends += 1;
    }

    /// Chunks that it has at most: of two neighbours one is more than half of what small ones are merged to.
    fn chunks(&self) -> u64 {
        self.chunks_before(self.end).saturating_sub(self.freed)
    }

    fn chunks_before(&self, offset: u64) -> u64 {
        let octets = offset.saturating_sub(self.start);
        self.appends.min(2 * octets / MERGED as u64 + 2)
    }
}

/// A batch that is being filled.
#[derive(Debug)]
pub(crate) struct Draft {
    batch: Batch,
    /// Chunks that it may still free.
    may_free: u64,
}

impl Draft {
    pub(crate) fn new(batch: Batch) -> Self {
        Self { batch, may_free: MOST_FREED }
    }

    pub(crate) fn into_batch(self) -> Batch {
        self.batch
    }

    pub(crate) fn octets(&self) -> usize {
        self.batch.octets()
    }

    /// Adds an operation.
    ///
    /// # Errors
    /// [`NoRoom`]: it belongs to the next batch.
    pub(crate) fn push(&mut self, operation: Operation) -> Result<(), NoRoom> {
        self.batch.push(operation)
    }

    /// Adds all of these, or none.
    ///
    /// # Errors
    /// As [`Self::push`].
    pub(crate) fn push_all(&mut self, operations: impl IntoIterator<Item = Operation>) -> Result<(), NoRoom> {
        let operations: Vec<_> = operations.into_iter().collect();
        let octets: usize = operations.iter().map(Operation::octets).sum();
        let fits = self.batch.octets() + octets <= MOST_OCTETS
            && self.batch.operations().len() + operations.len() <= MOST_OPERATIONS;
        if !fits {
            return Err(no_room());
        }
        operations.into_iter().try_for_each(|operation| self.push(operation))
    }

    /// The range may be removed or replaced with this batch: what it has too much is trimmed before, in batches of their own.
    ///
    /// # Errors
    /// [`NoRoom`]: not with this one.
    pub(crate) fn clear(&mut self, name: Name, held: &mut Held) -> Result<(), NoRoom> {
        let chunks = held.chunks();
        if chunks <= self.may_free {
            self.may_free -= chunks;
            return Ok(());
        }
        if chunks > MOST_FREED && self.may_free == MOST_FREED {
            self.push(Operation::Trim { name, to: held.end })?;
            // Nothing else of this batch frees anything, so these went, or all.
            (self.may_free, held.freed) = (0, held.freed + MOST_FREED);
        }
        Err(no_room())
    }

    /// Whether it is worth saying that octets before an offset may go.
    pub(crate) fn is_trimmed(held: &Held, to: u64) -> bool {
        held.start < to && to <= held.end
    }

    /// A trim was added to this batch. What it does not free is trimmed the next time.
    pub(crate) fn trimmed(&mut self, held: &mut Held, to: u64) {
        let chunks = held.chunks_before(to);
        if chunks <= self.may_free {
            self.may_free -= chunks;
            held.start = to;
        } else {
            self.may_free = 0;
        }
    }
}

/// The batch is full, whatever does not fit.
pub(crate) fn no_room() -> NoRoom {
    NoRoom(Operation::Adopt)
}

#[cfg(test)]
mod tests {
    use holdfast_store::{Claim, Contents};

    use super::*;

    /// A range with so many chunks, made of parts of this length.
    fn long(contents: &mut Contents, name: Name, parts: u64, length: u64) -> (Held, u64) {
        let claim = Claim { incarnation: 1, is_empty: true, epoch: 1, generation: 1 };
        let mut sequence = contents.claim(&claim).expect("empty").sequence;
        let mut held = Held::at(77);
        for part in 0..parts {
            sequence += 1;
            let mut batch = Batch::new(1, 1, 1, sequence);
            let octets = vec![7; length as usize];
            batch.push(Operation::Append { name, at: 77 + part * length, octets }).expect("room");
            contents.apply(&batch).expect("it fits");
            held.grow(length);
        }
        (held, sequence)
    }

    #[test]
    fn a_range_of_any_length_goes_in_as_many_batches_as_it_takes() {
        let name = Name::new(b"long").expect("short");
        for (parts, length, batches) in
            [(4000, 3000, 1), (4096, 3000, 1), (4097, 3000, 2), (13_000, 3000, 4), (13_000, 7, 1)]
        {
            let mut contents = Contents::new(1 << 30);
            let (mut held, mut sequence) = long(&mut contents, name, parts, length);
            let mut count = 0;
            loop {
                (count, sequence) = (count + 1, sequence + 1);
                let mut draft = Draft::new(Batch::new(1, 1, 1, sequence));
                let is_clear = draft.clear(name, &mut held).is_ok();
                if is_clear {
                    draft.push(Operation::Remove { name }).expect("room");
                }
                contents.apply(&draft.into_batch()).expect("it frees no more than it may");
                if is_clear {
                    break;
                }
            }
            assert_eq!(count, batches, "{parts} of {length}");
            assert_eq!(contents.octets(), 0);
        }
    }

    #[test]
    fn a_batch_that_frees_something_leaves_the_rest_to_the_next() {
        let names = [b"one", b"two"].map(|name| Name::new(name).expect("short"));
        let mut held = [Held::at(0), Held::at(0)];
        for held in &mut held {
            (0..3000).for_each(|_| held.grow(3000));
        }
        let mut draft = Draft::new(Batch::new(1, 1, 1, 1));
        assert!(draft.clear(names[0], &mut held[0]).is_ok());
        assert!(draft.clear(names[1], &mut held[1]).is_err());
        assert_eq!(draft.into_batch().operations(), [], "it waits, and is not trimmed");
        let mut draft = Draft::new(Batch::new(1, 1, 1, 1));
        assert!(draft.clear(names[1], &mut held[1]).is_ok());
        // What is trimmed takes room as well, and does not count as gone where there was none.
        draft.trimmed(&mut held[0], 9000);
        assert!(!Draft::is_trimmed(&held[0], 9000) && Draft::is_trimmed(&held[0], 9001));
        draft.trimmed(&mut held[0], 8_000_000);
        assert!(Draft::is_trimmed(&held[0], 9001));
    }
}

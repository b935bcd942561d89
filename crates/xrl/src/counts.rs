//! Numbers of the calling thread that only grow.

use std::cell::Cell;

thread_local! {
    pub(crate) static COUNTS: Counts = const { Counts::new() };
}

/// The numbers that only grow.
pub(crate) struct Counts {
    pub(crate) calls_made: Cell<u64>,
    pub(crate) calls_served: Cell<u64>,
    pub(crate) calls_refused: Cell<u64>,
    pub(crate) sent: Cell<u64>,
    pub(crate) received: Cell<u64>,
    pub(crate) cut_off: Cell<u64>,
    pub(crate) unread: Cell<u64>,
    pub(crate) disconnected: Cell<u64>,
    pub(crate) full: Cell<u64>,
    pub(crate) unwritten: Cell<u64>,
    pub(crate) under_way: Cell<u64>,
    pub(crate) waiting: Cell<u64>,
}

impl Counts {
    const fn new() -> Self {
        Self {
            calls_made: Cell::new(0),
            calls_served: Cell::new(0),
            calls_refused: Cell::new(0),
            sent: Cell::new(0),
            received: Cell::new(0),
            cut_off: Cell::new(0),
            unread: Cell::new(0),
            disconnected: Cell::new(0),
            full: Cell::new(0),
            unwritten: Cell::new(0),
            under_way: Cell::new(0),
            waiting: Cell::new(0),
        }
    }
}

/// Counts something.
#[inline]
pub(crate) fn add(count: impl FnOnce(&Counts) -> &Cell<u64>, more: usize) {
    COUNTS.with(|counts| {
        let count = count(counts);
        count.set(count.get() + more as u64);
    });
}

/// A queue is this long now.
#[inline]
pub(crate) fn see(high: impl FnOnce(&Counts) -> &Cell<u64>, length: usize) {
    COUNTS.with(|counts| {
        let high = high(counts);
        high.set(high.get().max(length as u64));
    });
}

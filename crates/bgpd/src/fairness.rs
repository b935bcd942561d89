//! What all speakers of the process share: the turns that they take, and those who wait for them.

use std::{cell::Cell, rc::Rc, time::Duration};

use holdfast_process::progress::Progress;
use tokio::sync::{Mutex, MutexGuard};

use crate::patience::Waiters;

/// Longest wait of one read for receivers.
pub(crate) const PATIENCE: Duration = Duration::from_millis(500);

/// Turns that all speakers of the process take: what one of them does at a time delays others no longer, however many
/// there are.
#[derive(Debug, Default)]
pub(crate) struct Fairness {
    /// Held by the connection that reads.
    reading: Mutex<()>,
    /// How many wait for that whose wait counts.
    queue: Cell<usize>,
    /// Held by who writes to peers: to one by its own task, or to more than one turn is for. Its holder lets everything else
    /// have its turn before, so that however many are woken at once, timers and sockets are looked at between two of them.
    pub(crate) writing: Mutex<()>,
    /// Held by who does a slice of background work.
    pub(crate) working: Mutex<()>,
    /// What the keeper is told of finished work.
    pub(crate) progress: Progress,
    /// The peers.
    pub(crate) waiters: Rc<Waiters>,
}

impl Fairness {
    /// Of a process that tells the keeper of its work by this.
    pub(crate) fn new(progress: Progress) -> Self {
        Self { progress, waiters: Rc::new(Waiters::new(progress)), ..Self::default() }
    }

    /// The right to read, in the order of asking. `counts`: whoever has others wait for it may be ended for this one.
    pub(crate) async fn to_read(&self, counts: bool) -> MutexGuard<'_, ()> {
        let _queued = counts.then(|| Queued::new(&self.queue));
        self.reading.lock().await
    }

    /// Whether somebody whose wait counts waits to read.
    pub(crate) fn are_waited_for(&self) -> bool {
        self.queue.get() > 0
    }
}

/// Somebody who waits, also if the wait is given up.
struct Queued<'a>(&'a Cell<usize>);

impl<'a> Queued<'a> {
    fn new(queue: &'a Cell<usize>) -> Self {
        queue.set(queue.get() + 1);
        Self(queue)
    }
}

impl Drop for Queued<'_> {
    fn drop(&mut self) {
        self.0.set(self.0.get().saturating_sub(1));
    }
}

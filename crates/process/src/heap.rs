//! Memory goes back to the kernel when much of it has become free.
//!
//! The allocator does that only at the end of its heap, where most often something small is in use. So each process looks now
//! and then how much is free, and has it taken back.

use std::{cell::Cell, convert::Infallible, rc::Rc, time::Duration};

use holdfast_sys::heap::{Heap, give_back, heap, touched};
use tokio::sync::Notify;
use tracing::debug;

use crate::metrics::turn;

/// From one look to the next.
const LOOK: Duration = Duration::from_secs(10);

/// So much has to be free that was not given back before, and a sixteenth of what is in use: taking it back costs time, and so
/// does using it again.
const WORTH: usize = 64 << 10;

/// So much that was freed goes back at once: the kernel takes 0.1 ms for each MiB, during which nothing else has its turn.
const MUCH: usize = 8 << 20;

/// What has been given back of what is free.
#[derive(Debug, Default)]
struct Given {
    octets: usize,
    /// What the process had [`touched`] by then.
    touched: usize,
}

impl Given {
    /// All that is free has been given back.
    fn all(free: usize, touched: usize) -> Self {
        Self { octets: free, touched }
    }

    /// Whether to give back now. What was in use and is free again between two looks is free as before, and not with the kernel
    /// any more: the pages that the process has touched since may be of that.
    fn is_due(&self, Heap { used, free }: Heap, touched: usize) -> bool {
        let since = touched.saturating_sub(self.touched);
        let with_kernel = self.octets.saturating_sub(since).min(free);
        free - with_kernel >= WORTH + used / 16
    }
}

/// What was freed since memory was given back last, as far as it was noted.
#[derive(Debug, Default)]
struct Freed {
    octets: Cell<usize>,
    is_much: Notify,
}

impl Freed {
    fn note(&self, octets: usize) {
        self.octets.set(self.octets.get() + octets);
        if self.octets.get() >= MUCH {
            self.is_much.notify_one();
        }
    }

    /// Returns when much has been freed.
    async fn much(&self) {
        while self.octets.get() < MUCH {
            self.is_much.notified().await;
        }
    }
}

thread_local! {
    static FREED: Rc<Freed> = Rc::default();
}

/// Notes that this thread has freed so many octets: where they are many they go back to the kernel before there are more of
/// them, as it takes them all in one turn.
pub fn note_freed(octets: usize) {
    FREED.with(|freed| freed.note(octets));
}

/// Looks as long as the process lives.
pub(crate) async fn look() -> Infallible {
    let (mut given, freed) = (Given::default(), FREED.with(Rc::clone));
    loop {
        let is_much = tokio::select! {
            () = tokio::time::sleep(LOOK) => false,
            () = freed.much() => true,
        };
        freed.octets.set(0);
        if is_much || given.is_due(heap(), touched()) {
            let (found, _) = turn("giving memory back", || {
                give_back();
                heap()
            });
            given = Given::all(found.free, touched());
            debug!(event = "memory-given-back", free = found.free, used = found.used, "memory is given back");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_was_freed_is_given_back_before_there_is_more_of_it() {
        let (freed, waker) = (Freed::default(), std::task::Waker::noop());
        let is_much = || {
            let mut waiting = std::pin::pin!(freed.much());
            waiting.as_mut().poll(&mut std::task::Context::from_waker(waker)).is_ready()
        };
        freed.note(MUCH - 1);
        assert!(!is_much());
        let (waited, ()) = tokio::join!(tokio::time::timeout(LOOK, freed.much()), async { freed.note(1) });
        assert!(waited.is_ok() && is_much());
        freed.octets.set(0);
        // A bell that has rung before says nothing.
        freed.note(1);
        assert!(!is_much());
    }

    #[test]
    fn what_was_given_back_is_not_given_again_until_it_was_in_use() {
        const MIB: usize = 1 << 20;
        let mut given = Given::default();
        let steps = [
            (Heap { used: 800 * MIB, free: 50 * MIB }, 850, false),
            (Heap { used: 0, free: 850 * MIB }, 850, true),
            (Heap { used: 0, free: 850 * MIB }, 850, false),
            (Heap { used: 400 * MIB, free: 450 * MIB }, 860, false),
            (Heap { used: 0, free: 850 * MIB }, 1260, true),
            (Heap { used: 0, free: 850 * MIB + WORTH - 1 }, 1260, false),
            // It was in use for a moment, between two looks.
            (Heap { used: 0, free: 850 * MIB }, 1268, true),
            (Heap { used: 0, free: 850 * MIB }, 1268, false),
        ];
        for (at, (heap, touched, is_due)) in steps.into_iter().enumerate() {
            assert_eq!(given.is_due(heap, touched * MIB), is_due, "step {at}");
            if is_due {
                given = Given::all(heap.free, touched * MIB);
            }
        }
    }
}

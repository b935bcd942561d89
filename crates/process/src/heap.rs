//! Memory goes back to the kernel when much of it has become free.
//!
//! The allocator does that only at the end of its heap, where most often something small is in use. So each process looks now
//! and then how much is free, and has it taken back.

use std::{convert::Infallible, time::Duration};

use holdfast_sys::heap::{Heap, give_back, heap};
use tracing::debug;

/// From one look to the next.
const LOOK: Duration = Duration::from_secs(10);

/// So much has to be free that was not given back before, and an eighth of what is in use: taking it back costs time, and so
/// does using it again.
const WORTH: usize = 256 << 10;

/// What has been given back of what is free.
#[derive(Debug, Default)]
struct Given(usize);

impl Given {
    /// Whether to give back now.
    fn is_due(&mut self, Heap { used, free }: Heap) -> bool {
        // What is in use again is no longer with the kernel.
        self.0 = self.0.min(free);
        let is_due = free - self.0 >= WORTH + used / 8;
        if is_due {
            self.0 = free;
        }
        is_due
    }
}

/// Looks as long as the process lives.
pub(crate) async fn look() -> Infallible {
    let mut given = Given::default();
    loop {
        tokio::time::sleep(LOOK).await;
        let found = heap();
        if given.is_due(found) {
            give_back();
            debug!(event = "memory-given-back", free = found.free, used = found.used, "memory is given back");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_given_back_is_not_given_again_until_it_was_in_use() {
        const MIB: usize = 1 << 20;
        let mut given = Given::default();
        let steps = [
            (Heap { used: 800 * MIB, free: 50 * MIB }, false),
            (Heap { used: 0, free: 850 * MIB }, true),
            (Heap { used: 0, free: 850 * MIB }, false),
            (Heap { used: 400 * MIB, free: 450 * MIB }, false),
            (Heap { used: 0, free: 850 * MIB }, true),
            (Heap { used: 0, free: 850 * MIB + WORTH - 1 }, false),
        ];
        for (at, (heap, is_due)) in steps.into_iter().enumerate() {
            assert_eq!(given.is_due(heap), is_due, "step {at}");
        }
    }
}

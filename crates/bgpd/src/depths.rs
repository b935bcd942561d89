//! How deep the queues of a speaker were.

use std::cell::Cell;

use holdfast_process::metrics::High;

use crate::speaker::Speaker;

/// How long queues were, and how often they were too long.
#[derive(Debug, Default)]
pub(crate) struct Depths {
    pub(crate) logs: [High; 2],
    /// Batches that the rib has not acknowledged.
    pub(crate) window: Cell<usize>,
    pub(crate) window_high: High,
    /// How often the rib was so slow that it had to be told everything again.
    pub(crate) restarts: Cell<u64>,
    pub(crate) dials: High,
}

impl Depths {
    /// After an event.
    pub(crate) fn see(&self, speaker: &Speaker) {
        for (high, length) in self.logs.iter().zip(speaker.pipeline.log_lengths()) {
            high.see(length as u64);
        }
    }

    /// So many batches are under way to the rib.
    pub(crate) fn see_window(&self, batches: usize) {
        self.window.set(batches);
        self.window_high.see(batches as u64);
    }

    /// So many connections are asked for.
    pub(crate) fn see_dials(&self, dials: usize) {
        self.dials.see(dials as u64);
    }
}

//! How long queues were.

use holdfast_process::metrics::High;

/// How long queues were.
#[derive(Debug, Default)]
pub(crate) struct Depths {
    pub(crate) logs: [High; 2],
    pub(crate) window: High,
}

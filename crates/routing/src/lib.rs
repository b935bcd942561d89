//! What every process that speaks a routing protocol needs: interfaces, datagrams, routes to the RIB and from it.
//!
//! ```text
//!  fea ── Interfaces ──> links.rs ──────────┐
//!  fea ── Group ───────> datagrams.rs ──────┼── the protocol
//!  fea ── Port ────────> port.rs ───────────┤
//!  rib <─ Routes ─────── origin.rs ─────────┤
//!  rib ── Redistribute ─> redistribution.rs ┘
//! ```
//!
//! Each is for one table: that of the [`Boot`](holdfast_process::Boot) it is given. Each outlives the process at its other
//! end, and begins anew with the next one.

mod datagrams;
mod links;
mod origin;
mod port;
mod redistribution;
mod sequence;

pub use datagrams::{Datagram, Datagrams};
pub use holdfast_sys::packet::{Received, Way};
pub use links::{Link, LinkAddress, Links, follow};
pub use origin::{Origin, Route};
pub use port::Port;
pub use redistribution::{Change, Plain, Redistributed, Redistribution, Wanted};
pub use sequence::first_sequence;

use std::time::Duration;

use holdfast_process::Boot;
use holdfast_xrl::{Client, XrlError, scoped};
use tokio::time::sleep;
use tracing::warn;

/// Pause between two attempts to talk to another process.
const RETRY: Duration = Duration::from_millis(100);

/// Whoever is of this class for the table of the process.
async fn client<C: Client>(boot: &Boot, class: &str) -> Result<C, XrlError> {
    boot.resolver.wait_for(&scoped(class, boot.vrf.as_deref())).await
}

/// Says once why something ended that begins again, and waits a moment.
#[derive(Debug, Default)]
struct Retry(String);

impl Retry {
    async fn after(&mut self, what: &str, error: XrlError) {
        let error = error.to_string();
        if self.0 != error {
            warn!(event = "process-lost", "{what}: {error}");
            self.0 = error;
        }
        sleep(RETRY).await;
    }
}

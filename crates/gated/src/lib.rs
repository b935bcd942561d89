//! The process `gate`: our TCP segments from and to the ports of BGP leave when what they say is replicated. Which may leave is decided
//! in the crate `gate`; here are only the kernel, the keeper and the replicator.
//!
//! ```text
//!  replicator ── Attach: marks, bells ─> service.rs ─> gate.rs ──> station.rs: what all posts share, and their loops
//!  keeper <── marks, bells, connections ────────────────┘            │
//!  kernel: queue of packets, nf_tables, list of sockets <────────> post.rs, one for each network namespace
//! ```
//!
//! While the process is dead nothing leaves: our tables stay, and nobody reads the queue. Only an orderly end removes them.

mod from_config;
mod gate;
mod metrics;
mod orders;
mod post;
mod service;
mod station;
mod trial;

// Tests of what the crate offers, in the executable of its unit tests.
#[cfg(test)]
extern crate self as holdfast_gated;
#[cfg(test)]
#[path = "../tests/mod.rs"]
mod tests;

pub use post::{Missing, Post, QUEUE_ROOM, Settings, Sockets, Tally, Turn};
pub use station::{Attachment, Station};
pub use trial::try_out;

use std::rc::Rc;

use holdfast_api::gate::v1::{GateClient, GateDispatcher};
use holdfast_process::{Boot, CapabilitySet, End, Files, Network, Process, Reads, Rights, User};
use holdfast_xrl::Client;
use tokio::signal::unix::{SignalKind, signal};

use crate::{gate::Gate, service::GateService};

/// What the process is.
pub static PROCESS: Process = Process {
    name: "gate",
    does: "holds segments until what they say is replicated",
    user: User::Own(12),
    rights: Rights {
        capabilities: CapabilitySet::NET_ADMIN,
        network: Network::InternetAndNetlink,
        files: Files::Handed,
        real_time: false,
    },
    services: &[GateClient::SERVICE],
    // It is stopped after all that have connections.
    after: &[],
    feeds: &[],
    end: End::Killed,
    hang_limit: None,
    reads: Reads::Config(from_config::READER),
    reads_kept_of: &[],
    routing: None,
    shows: &[],
    clears: &[],
};

/// The life of the process: until SIGTERM, when our tables are removed, or the end of the keeper.
///
/// # Errors
/// SIGTERM cannot be waited for, or the keeper does not say what the process before has left.
pub async fn run(boot: Boot) -> anyhow::Result<()> {
    let mut end = signal(SignalKind::terminate())?;
    let gate = Gate::new(boot.keeper.clone());
    gate.recover().await?;
    metrics::register(&boot.metrics, &gate);
    boot.node.serve(GateDispatcher::new(GateService(Rc::clone(&gate))));
    boot.join();
    end.recv().await;
    gate.open_up();
    Ok(())
}

//! The process `fea`: the only one that talks to the kernel's tables. It installs what the rib selects, says
//! which interfaces there are, and stands at the door: it opens sockets for others (`transport.v1`).
//!
//! It decides nothing about routes and remembers none: the backends of [`holdfast_fib::Fib`] do the work. When it dies, the
//! kernel keeps forwarding; its successor is told the whole table again and writes the differences.
//!
//! ```text
//!  kernel ── link and address notices ──> monitor ─┬─> Interfaces ──> streams to the rib (each knows what it has said)
//!                                                  └─> Fib::interface_changed ──> losses ──> rib syncs again
//!  rib ── SyncBegin, Apply …, SyncEnd ──> turn (one after the other) ──> Fib ──> kernel
//! ```
//!
//! One thread. Applying a batch is one slice of work; a sync is cut into slices of [`SLICE`] routes, between
//! which everything else goes on.

mod batch;
mod engine;
mod interfaces;
mod metrics;
mod monitor;
mod service;

pub use engine::{Engine, SLICE};
pub use monitor::follow;
pub use service::FeaService;

use std::rc::Rc;

use anyhow::Context;
use holdfast_api::{fea::v1::FeaDispatcher, transport::v1::TransportDispatcher};
use holdfast_fib_linux::Monitor;
use holdfast_process::{Boot, CapabilitySet};
use holdfast_transport::TransportService;

/// What the process keeps of its rights: netlink and the TCP options, raw sockets, ports below 1024.
pub const CAPABILITIES: CapabilitySet =
    CapabilitySet::NET_ADMIN.union(CapabilitySet::NET_RAW).union(CapabilitySet::NET_BIND_SERVICE);

/// The life of the process.
///
/// # Errors
/// When the kernel cannot be asked about interfaces, at the start or later.
pub async fn run(boot: Boot) -> anyhow::Result<()> {
    let monitor = Monitor::open().context("asking the kernel about interfaces")?;
    let engine = Rc::new(Engine::new(monitor.interfaces().cloned(), &boot.profile));
    metrics::register(&boot.metrics, &engine);
    boot.node.serve(FeaDispatcher::new(FeaService::new(Rc::clone(&engine))));
    boot.node.serve(TransportDispatcher::new(TransportService::new()));
    boot.join();
    follow(monitor, &engine).await
}

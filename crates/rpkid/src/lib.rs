//! The process `rpki`: asks RPKI caches over RTR, and tells others what they say.
//!
//! ```text
//!  cache ──RTR──> connection ──octets──> holdfast_rtr::Caches ──differences──> log ──> watcher ──> bgp
//!                     └── descriptor <── transport                └── local exceptions <── manager
//! ```
//!
//! What a cache may say, what follows from it and what is published is decided in `holdfast-rtr`, without any input or
//! output. Here are the connections, which `transport.v1` makes, and the streams of those who watch: each is told all there
//! is, and then every change; one that is too slow is told all once more. The process has no rights, dials nobody and reads
//! no file.

mod columns;
mod connection;
mod from_config;
mod log;
mod metrics;
mod readiness;
mod rpki;
mod service;

use std::rc::Rc;

use holdfast_api::rpki::v1::{RpkiClient, RpkiDispatcher};
use holdfast_process::{
    Boot, Checks, End, Network, Prepared, Process, Reads, Rights, User, serve_preparation, spawn_task,
};
use holdfast_xrl::Client;
use tokio::signal::unix::{SignalKind, signal};

use crate::{rpki::Rpki, service::RpkiService};

/// What the process is.
pub static PROCESS: Process = Process {
    name: "rpki",
    does: "asks RPKI caches",
    user: User::Own(6),
    rights: Rights::worker(Network::Handed),
    services: &[RpkiClient::SERVICE],
    after: &["transport"],
    feeds: &["bgp", "pathsec"],
    end: End::Killed,
    hang_limit: None,
    reads: Reads::Config(from_config::READER),
    reads_kept_of: &[],
    routing: None,
    shows: &[],
    clears: &[],
};

/// The life of the process: until SIGTERM, or the end of the keeper.
///
/// # Errors
/// SIGTERM cannot be waited for.
pub async fn run(boot: Boot) -> anyhow::Result<()> {
    let mut end = signal(SignalKind::terminate())?;
    let rpki = Rpki::new(boot.resolver.clone());
    metrics::register(&boot.metrics, &rpki);
    let checks = Checks::default().of::<RpkiClient>(|configuration| rpki::check(&configuration));
    serve_preparation(&boot.node, checks, Prepared::default());
    boot.node.serve(RpkiDispatcher::new(RpkiService(Rc::clone(&rpki))));
    spawn_task(rpki::keep_time(rpki));
    boot.join();
    end.recv().await;
    Ok(())
}

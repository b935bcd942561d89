//! The process `monitor`: lets others watch what BGP does, on disk (MRT) and at collectors (BMP).
//!
//! ```text
//!  bgp ──watch (bounded, what is too much is lost)──> dump ──> file (a thread each) ──> disk
//!                                                └──> station ──TCP──> collector
//! ```
//!
//! Each file and each collector has a stream from `bgp` of its own, and takes the next item when it has handed the last one
//! on. What is slow is slow for itself: its own queue in `bgp` overflows, nobody else waits. It writes only below the
//! directories that it is told at its birth, and dials nobody: `transport.v1` does.

mod date;
mod dump;
mod file;
mod from_config;
mod routes;
mod service;
mod station;

use std::time::{SystemTime, UNIX_EPOCH};

use holdfast_api::monitor::v1::{MonitorClient, MonitorDispatcher};
use holdfast_process::{
    Boot, CapabilitySet, Checks, End, Files, Network, Prepared, Process, Reads, Rights, User,
    serve_preparation,
};
use holdfast_xrl::Client;
use tokio::signal::unix::{SignalKind, signal};

use crate::service::Monitor;

/// What the process is. It runs as the router's user: the dumps are that user's, and the one that is being written
/// gets its name.
pub static PROCESS: Process = Process {
    name: "monitor",
    does: "writes dumps and feeds collectors",
    user: User::OfRouter,
    rights: Rights {
        capabilities: CapabilitySet::empty(),
        network: Network::Handed,
        files: Files::Output,
        real_time: false,
    },
    services: &[MonitorClient::SERVICE],
    after: &["bgp"],
    feeds: &[],
    end: End::Asked,
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
    let monitor = Monitor::new(&boot);
    serve_preparation(&boot.node, Checks::default().of::<MonitorClient>(|_| Ok(())), Prepared::default());
    boot.node.serve(MonitorDispatcher::new(monitor.clone()));
    boot.join();
    end.recv().await;
    monitor.stop().await;
    Ok(())
}

fn unix_microseconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_micros() as u64)
}

//! The process `metrics`: answers Prometheus over HTTP, so that octets of HTTP reach no other process.
//!
//! It knows nothing by itself. Each scrape asks every process over XRL what it counts (`metrics.v1`) and writes the answers
//! down as text. It opens nothing: its listening socket comes from `transport.v1`.
//!
//! ```text
//!  scraper ──HTTP──> server ─> collect ──XRL──> metrics.v1 of bgp, rib, fea, manager, …
//!                                 └─> text
//! ```
//!
//! Whoever can connect may ask, but not for much: one scrape at a time asks the processes, few connections are open, and
//! each ends after one answer or a time limit, also when the other side reads slowly.

mod collect;
mod from_config;
mod server;
mod service;
mod text;

use std::rc::Rc;

use holdfast_api::metrics::v1::{ExporterClient, ExporterDispatcher};
use holdfast_process::{
    Boot, Checks, End, Listening, Network, Prepared, Process, Reads, Rights, User, serve_preparation,
};
use holdfast_xrl::Client;

use crate::{collect::Collector, service::Exporter};

/// What the process is.
pub static PROCESS: Process = Process {
    name: "metrics",
    does: "answers Prometheus",
    user: User::Own(3),
    rights: Rights::worker(Network::Handed),
    services: &[ExporterClient::SERVICE],
    after: &["transport"],
    feeds: &[],
    end: End::Killed,
    hang_limit: None,
    reads: Reads::Config(from_config::READER),
    reads_kept_of: &[],
    routing: None,
    shows: &[],
    clears: &[],
};

/// The life of the process.
///
/// # Errors
/// None: it ends with the keeper.
pub async fn run(boot: Boot) -> anyhow::Result<()> {
    let collector = Rc::new(Collector::new(boot.resolver.clone()));
    let checks =
        Checks::default().of::<ExporterClient>(|told| Ok(Listening::check((&*told.address, told.port))?));
    serve_preparation(&boot.node, checks, Prepared::default());
    boot.node.serve(ExporterDispatcher::new(Exporter::new(boot.resolver.clone(), collector)));
    boot.join();
    std::future::pending().await
}

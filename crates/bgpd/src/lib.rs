//! The bgp process: sessions over sockets, the pipeline between them, and the rib beside it.
//!
//! No protocol is here: what a session does is in `bgp-session`, what a route does in `bgp-pipeline`. `speaker` is
//! where both meet, `tasks` feeds it from sockets and timers, `rib` speaks to the rib process, `service` answers the
//! manager and the operator.

mod apply;
mod config;
mod connection;
mod freeze;
mod metrics;
mod nonstop;
mod points;
mod policy;
mod redistribute;
mod rib;
mod service;
mod show;
mod speaker;
mod takeover;
mod tasks;
#[cfg(test)]
mod tests;
mod watch;

use std::rc::Rc;

use holdfast_api::bgp::v1::BgpDispatcher;
use holdfast_bgp_pipeline::Stage;
use holdfast_process::Boot;

use crate::service::Server;

/// Makes the stages that are plugged into the pipeline between ImportPolicy and Decision, in this order. Called when
/// the process gets its first configuration.
pub type MakeStages = fn() -> Vec<Box<dyn Stage>>;

/// The life of the process.
///
/// # Errors
/// None: it ends with the keeper.
pub async fn run(boot: Boot) -> anyhow::Result<()> {
    run_with(boot, Vec::new).await
}

/// The life of a process whose pipeline has further stages.
///
/// # Errors
/// As of [`run`].
pub async fn run_with(boot: Boot, stages: MakeStages) -> anyhow::Result<()> {
    let server = Rc::new(Server::new(&boot, stages));
    metrics::register(&boot.metrics, &server);
    boot.node.serve(BgpDispatcher(server));
    boot.join();
    std::future::pending().await
}

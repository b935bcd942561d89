//! The bgp process: sessions over sockets, the pipeline between them, and the rib beside it.
//!
//! No protocol is here: what a session does is in `bgp-session`, what a route does in `bgp-pipeline`. `speaker` is
//! where both meet, `tasks` feeds it from sockets and timers, `rib` speaks to the rib process, `service` answers the
//! manager and the operator.

mod apply;
mod config;
mod connection;
mod rib;
mod service;
mod show;
mod speaker;
mod tasks;
#[cfg(test)]
mod tests;

use std::rc::Rc;

use holdfast_api::bgp::v1::BgpDispatcher;
use holdfast_process::Boot;

use crate::service::Server;

/// The life of the process.
///
/// # Errors
/// None: it ends with the keeper.
pub async fn run(boot: Boot) -> anyhow::Result<()> {
    let server = Rc::new(Server::new(boot.resolver.clone(), boot.keeper.clone()));
    boot.node.serve(BgpDispatcher(server));
    boot.join();
    std::future::pending().await
}

//! The bgp process: sessions over sockets, the pipeline between them, and the rib beside it.
//!
//! No protocol is here: what a session does is in `bgp-session`, what a route does in `bgp-pipeline`. `speaker` is
//! where both meet, with `protection` (the replication log) and `reporter` (log, watchers, profiling points); `sessions` has the peers. `tasks` feeds it from sockets and timers, `door` has it given connections, `rib` speaks to the rib process, `service` answers the
//! manager and the operator. All of that is there once for the default table, and once for each VRF (`vrf`).

mod apply;
mod bfd;
mod bgp;
mod config;
mod connection;
mod context;
mod custody;
mod depths;
mod door;
mod epoch;
mod fairness;
mod following;
mod freeze;
mod from_config;
pub mod fuzzing;
mod kept_signatures;
mod last_error;
mod location;
mod metrics;
mod neighbors;
mod nonstop;
mod patience;
mod points;
mod policy;
mod protection;
mod quarantine;
mod ranges;
mod redistribute;
mod redistribution;
mod reporter;
mod rib;
mod roster;
mod seed;
mod service;
mod sessions;
mod show;
mod signatures;
mod signing;
mod sleep;
mod speaker;
mod stream;
mod takeover;
mod tasks;
#[cfg(test)]
mod tests;
mod validation;
mod vrf;
mod watch;

use std::rc::Rc;

use holdfast_api::bgp::v1::BgpClient;

use holdfast_process::{BUILD, Boot, End, Network, Process, Reads, Rights, User};
use holdfast_xrl::Client;

use crate::{
    context::Context, custody::FdStore, fairness::Fairness, quarantine::Quarantine, service::Server,
    validation::Validation, vrf::Vrfs,
};

pub use context::{MakeRewriters, MakeStages, Plugs};

/// What the process is.
pub static PROCESS: Process = Process {
    name: "bgp",
    does: "speaks BGP",
    user: User::Own(2),
    rights: Rights::worker(Network::Handed),
    services: &[BgpClient::SERVICE],
    after: &["rib", "transport", "rpki", "replicator"],
    feeds: &["rib"],
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
    run_with(boot, Plugs::default()).await
}

/// The life of a process whose pipeline has further stages.
///
/// # Errors
/// As of [`run`].
pub async fn run_with(boot: Boot, plugs: Plugs) -> anyhow::Result<()> {
    serve(boot, plugs);
    std::future::pending().await
}

/// Serves `bgp.v1` from now on.
fn serve(boot: Boot, plugs: Plugs) -> Rc<Server> {
    let turns = Rc::new(Fairness::new(boot.progress));
    let boot = Rc::new(boot);
    let validation = Rc::new(Validation::new(FdStore::new(boot.keeper.clone(), None)));
    let build = std::env::var(BUILD).unwrap_or_default();
    let quarantine = Rc::new(Quarantine::new(FdStore::new(boot.keeper.clone(), None), build));
    let surroundings = Context::new(&boot, &turns, &validation, &quarantine);
    let vrfs = Vrfs::new(Rc::clone(&boot), plugs, turns, validation, quarantine);
    let server = Rc::new(Server::new(surroundings, plugs, Some(vrfs)));
    metrics::register(&boot.metrics, &server);
    service::serve(&boot.node, &server);
    boot.join();
    server
}

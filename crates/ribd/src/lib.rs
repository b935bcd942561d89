//! The rib process: serves `rib.v1`, follows the interfaces of the forwarding engine and feeds it. What routes mean
//! is in the `rib` crate; here are only the tasks that stand between it and the other processes.
//!
//! ```text
//!  manager ── Configure ──┐                       ┌─> fea.rs: Apply in a window, sync after a birth
//!  origins ── Routes ─────┼─> RefCell<Rib> ─ bell ┼─> service.rs: invalidations, redistribution
//!  fea ────── Interfaces ─┤                       └─> tasks.rs: slices of work, deadlines
//!  bfd ────── Watch ──────┘
//! ```
//!
//! One thread owns the table. Every change rings one bell; whoever waits for something to tell looks again.
//!
//! Each VRF has a table of its own with all of this around it, in the same process: its instance is the class `rib@NAME`
//! and feeds `fea@NAME` (`vrfs.rs`).

mod bfd;
mod depths;
mod fea;
mod from_config;
mod metrics;
mod origins;
mod readiness;
mod router;
mod service;
mod statics;
mod tasks;
mod vrfs;
mod wire;

// Tests of what the crate offers, in the executable of its unit tests.
#[cfg(test)]
extern crate self as holdfast_ribd;
#[cfg(test)]
#[path = "../tests/mod.rs"]
mod tests;

use std::{convert::Infallible, rc::Rc};

use holdfast_api::rib::v1::{RibClient, RibDispatcher};
use holdfast_process::{
    Boot, Checks, End, Network, Prepared, Process, Reads, Rights, User, hash_key, serve_preparation,
};
use holdfast_xrl::Client;

use crate::{router::Router, service::Server, vrfs::Vrfs};

/// What the process is.
pub static PROCESS: Process = Process {
    name: "rib",
    does: "merges routes",
    user: User::Own(1),
    rights: Rights::worker(Network::None),
    services: &[RibClient::SERVICE],
    after: &["fea"],
    feeds: &["fea"],
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
    let boot = Rc::new(boot);
    match table(&boot, Some(Vrfs::new(Rc::clone(&boot)))).await {}
}

/// The life of one table: the default one, which knows the VRFs, or that of a VRF.
async fn table(boot: &Boot, vrfs: Option<Vrfs>) -> Infallible {
    let router = Rc::new(Router::new(hash_key(), &boot.profile, boot.progress.finished));
    metrics::register(&boot.metrics, &router);
    let checks = Checks::default().of::<RibClient>(|configuration| Ok(statics::check(&configuration)?));
    serve_preparation(&boot.node, checks, Prepared::default());
    boot.node.serve(RibDispatcher::new(Server::new(Rc::clone(&router), vrfs)));
    boot.join();
    let ready = async {
        readiness::watch(&router).await;
        std::future::pending().await
    };
    tokio::select! {
        never = tasks::work(&router) => never,
        never = tasks::deadlines(&router) => never,
        never = fea::feed(&router, boot) => never,
        never = bfd::run(&router, boot) => never,
        never = ready => never,
    }
}

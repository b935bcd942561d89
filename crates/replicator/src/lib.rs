//! The process `replicator`: copies the replication log of `bgp` to a store outside of this host.
//!
//! It has no rights, dials nobody and opens no file. The keeper gives it copies of what `bgp` has there, `transport.v1` its
//! connections to the store, and the manager the files.

mod addresses;
mod copier;
mod draft;
mod engine;
mod follower;
mod from_config;
mod lease;
mod link;
mod local;
mod metrics;
mod preheating;
mod protection;
mod remaking;
mod replicator;
#[cfg(test)]
mod scene;
mod service;
mod sharing;
mod stand_ins;
mod table;
mod tasks;
#[cfg(test)]
#[path = "../tests/mod.rs"]
mod tests;
mod way;
mod writer;

use std::rc::Rc;

use holdfast_api::{
    carrier::v1::{CarrierClient, CarrierDispatcher},
    ready::v1::{ReadyClient, ReadyDispatcher},
    replicator::v1::{ReplicatorClient, ReplicatorDispatcher},
    shared::v1::{SharedClient, SharedDispatcher},
};
use holdfast_process::{
    Boot, CapabilitySet, Checks, End, Files, Network, Prepared, Process, Reads, Rights, User,
    serve_preparation, spawn_task,
};
use holdfast_xrl::Client;
use tokio::signal::unix::{SignalKind, signal};

use crate::{
    preheating::CarrierService,
    replicator::Replicator,
    service::{ReadyService, ReplicatorService, SharedService},
    tasks::Tasks,
};

/// What the process is.
pub static PROCESS: Process = Process {
    name: "replicator",
    does: "copies the replication log to a store",
    user: User::Own(11),
    rights: Rights {
        capabilities: CapabilitySet::empty(),
        network: Network::Handed,
        files: Files::HandedAndLocked,
        real_time: false,
    },
    services: &[
        ReplicatorClient::SERVICE,
        ReadyClient::SERVICE,
        CarrierClient::SERVICE,
        SharedClient::SERVICE,
    ],
    after: &["transport", "gate"],
    feeds: &[],
    end: End::Killed,
    hang_limit: None,
    reads: Reads::Config(from_config::READER),
    reads_kept_of: &["bgp"],
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
    let tasks = Tasks::begin(boot.keeper.clone(), boot.resolver.clone()).await?;
    metrics::register(&boot.metrics, &tasks);
    spawn_task(Rc::clone(&tasks).follow_keeper());
    spawn_task(Rc::clone(&tasks).follow_fea());
    spawn_task(Rc::clone(&tasks).run());
    let given = Replicator::with(tasks.kept_lease().await?);
    serve_preparation(&boot.node, Checks::default().of::<ReplicatorClient>(|_| Ok(())), Prepared::default());
    boot.node.serve(ReadyDispatcher::new(ReadyService(Rc::clone(&tasks))));
    boot.node.serve(SharedDispatcher::new(SharedService(Rc::clone(&tasks))));
    boot.node.serve(CarrierDispatcher::new(CarrierService(Rc::clone(&tasks))));
    boot.node.serve(ReplicatorDispatcher::new(ReplicatorService { given, tasks }));
    boot.join();
    end.recv().await;
    Ok(())
}

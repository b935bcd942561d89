//! The process `pathsec`: judges BGPsec paths (RFC 8205 section 5.2) and signs them (section 4.2), so that `bgp` waits for no
//! cryptography, and has no private key.
//!
//! ```text
//!  rpki ── router keys ──> rpki.rs ──> keys.rs: the table of keys, changes by epoch ── Watch ──> bgp
//!                                        │ the keys as they are now
//!  bgp ── Validate: a batch ──> service.rs ──> workers.rs ── parts of about as many hops ──> threads
//!                                        └───────────────────── verdicts ──────────────────────┘
//!
//!  manager ── private keys ──> private_keys.rs ── signers.rs: which are in use ── WatchSigners ──> bgp
//!                                        │ a key for each job
//!  bgp ── Sign: a batch ──> service.rs ──> signing.rs ──> the same threads, before what is to be judged
//! ```
//!
//! Verdicts are those of `holdfast-path-validation`. Here are the threads, the bounds, and the streams of those who watch. The
//! process has no rights, opens nothing and stores nothing: its death costs time only.

mod from_config;
pub mod fuzzing;
mod keys;
mod lapse;
mod log;
mod metrics;
mod pathsec;
mod private_keys;
mod queue;
mod rpki;
mod service;
mod signers;
mod signing;
mod workers;

#[cfg(test)]
#[path = "../tests/mod.rs"]
mod tests;

use std::{num::NonZero, rc::Rc, thread::available_parallelism};

use holdfast_api::pathsec::v1::{PathSecClient, PathSecDispatcher};
use holdfast_path_validation::{Validator, VerifiedSignatures, random_seed};
use holdfast_process::{
    Boot, Checks, End, Network, Prepared, Process, Reads, Rights, User, serve_preparation, spawn_task,
};
use holdfast_xrl::Client;
use tokio::signal::unix::{SignalKind, signal};

use crate::{
    keys::RouterKeys, pathsec::PathSec, private_keys::PrivateKeys, service::PathSecService, workers::Workers,
};

/// What the process is.
pub static PROCESS: Process = Process {
    name: "pathsec",
    does: "judges and signs BGPsec paths",
    user: User::Own(9),
    rights: Rights::worker(Network::None),
    services: &[PathSecClient::SERVICE],
    after: &["rpki"],
    feeds: &["bgp"],
    end: End::Killed,
    hang_limit: None,
    reads: Reads::Config(from_config::READER),
    reads_kept_of: &[],
    routing: None,
    shows: &[],
    clears: &[],
};

/// Good signatures that are remembered at most, 20 to 40 octets each: what 250,000 paths of four hops have.
const REMEMBERED: usize = 1_000_000;

/// The life of the process: until SIGTERM, or the end of the keeper.
///
/// # Errors
/// SIGTERM cannot be waited for, there is no randomness, or no thread.
pub async fn run(boot: Boot) -> anyhow::Result<()> {
    let mut end = signal(SignalKind::terminate())?;
    let memory = VerifiedSignatures::new(REMEMBERED, random_seed()?);
    let pathsec = Rc::new(PathSec {
        keys: RouterKeys::new(random_seed()?),
        private_keys: PrivateKeys::default(),
        workers: Workers::start(threads(), Validator::default().with_memory(memory))?,
    });
    metrics::register(&boot.metrics, &pathsec);
    serve_preparation(&boot.node, Checks::default().of::<PathSecClient>(|_| Ok(())), Prepared::default());
    boot.node.serve(PathSecDispatcher::new(PathSecService(Rc::clone(&pathsec))));
    spawn_task(private_keys::follow(Rc::clone(&pathsec)));
    spawn_task(rpki::follow(pathsec, boot.resolver.clone()));
    boot.join();
    end.recv().await;
    Ok(())
}

/// One core stays for all the others.
fn threads() -> usize {
    available_parallelism().map_or(1, NonZero::get).saturating_sub(1).max(1)
}

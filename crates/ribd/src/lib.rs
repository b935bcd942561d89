//! The rib process: serves `rib.v1`, follows the interfaces of the forwarding engine and feeds it. What routes mean
//! is in the `rib` crate; here are only the tasks that stand between it and the other processes.
//!
//! ```text
//!  manager ── Configure ──┐                       ┌─> fea.rs: Apply in a window, sync after a birth
//!  origins ── Routes ─────┼─> RefCell<Rib> ─ bell ┼─> service.rs: invalidations, redistribution
//!  fea ────── Interfaces ─┘                       └─> tasks.rs: slices of work, deadlines
//! ```
//!
//! One thread owns the table. Every change rings one bell; whoever waits for something to tell looks again.

mod fea;
mod metrics;
mod origins;
mod readiness;
mod router;
mod service;
mod statics;
mod tasks;
mod wire;

use std::{
    hash::{BuildHasher, RandomState},
    rc::Rc,
};

use holdfast_api::rib::v1::RibDispatcher;
use holdfast_process::Boot;

use crate::{router::Router, service::Server};

/// The life of the process.
///
/// # Errors
/// None: it ends with the keeper.
pub async fn run(boot: Boot) -> anyhow::Result<()> {
    let seed = RandomState::new().hash_one(());
    let router = Rc::new(Router::new(seed, &boot.profile));
    metrics::register(&boot.metrics, &router);
    boot.node.serve(RibDispatcher::new(Server::new(Rc::clone(&router))));
    boot.join();
    tokio::join!(
        tasks::work(&router),
        tasks::deadlines(&router),
        fea::feed(&router, &boot.resolver),
        readiness::watch(&router),
    );
    Ok(())
}

//! The process `fea`: the only one that talks to the kernel's tables. It installs what the rib selects, says
//! which interfaces there are, and opens sockets for who stands at the door (`socket.v1`).
//!
//! It decides nothing about routes: the backends of [`holdfast_fib::Fib`] do the work. When it dies, the kernel keeps
//! forwarding; its successor is told the whole table again and writes the differences. While it lives, the kernel's table is
//! as the rib wants it, whatever other programs do to it ([`keeping`]).
//!
//! ```text
//!  kernel ── link and address notices ──> monitor ─┬─> Interfaces ──> streams to the rib (each knows what it has said)
//!                                                  └─> Fib::interface_changed ──> Fib::work: lost routes again
//!  other programs ── notices about routes and next hops ──> Fib::hear ──────────────┘
//!  rib ── SyncBegin, Apply …, SyncEnd ──> turn (one after the other) ──> Fib ──> kernel
//!  rib <── Refusals (what the kernel does not have, as differences) ─────────┘
//! ```
//!
//! A VRF is another engine in this process, with a monitor and an opener of its own ([`vrfs`]), which the Finder knows as
//! `fea@NAME` and `socket@NAME`: at a device, or in a network namespace where the keeper makes its sockets. Both may be
//! deleted and made again: listeners, monitor and backend then go to the new one.
//!
//! One thread. Batches and syncs are cut into slices of a few milliseconds ([`pace`]), between which everything else goes on.

mod addresses;
mod announcing;
mod batch;
mod claiming;
mod engine;
mod from_config;
mod interfaces;
mod keeping;
mod kernel;
mod metrics;
mod monitor;
mod pace;
mod refusals;
mod repairs;
mod service;
mod vrfs;

// Tests of what the crate offers, in the executable of its unit tests.
#[cfg(test)]
extern crate self as holdfast_fea;
#[cfg(test)]
#[path = "../tests/mod.rs"]
mod tests;

pub use engine::Engine;
pub use monitor::follow;
pub use service::FeaService;

use std::{collections::BTreeSet, rc::Rc};

use addresses::AddressService;
use anyhow::Context;
use holdfast_api::{
    address::v1::{AddressClient, AddressDispatcher},
    fea::v1::{FeaClient, FeaDispatcher},
    socket::v1::{SocketClient, SocketDispatcher},
};
use holdfast_fib_linux::Monitor;
use holdfast_process::{
    Boot, CapabilitySet, Checks, End, Files, Network, Prepared, Process, Reads, Rights, User,
    serve_preparation, spawn_task,
};
use holdfast_sockets::{FdStore, SocketService};
use holdfast_xrl::Client;
use tokio::task::AbortHandle;
use tracing::Instrument;
use vrfs::Vrfs;

/// What the process keeps of its rights: netlink and the TCP options, raw sockets, ports below 1024.
const CAPABILITIES: CapabilitySet =
    CapabilitySet::NET_ADMIN.union(CapabilitySet::NET_RAW).union(CapabilitySet::NET_BIND_SERVICE);

/// What the process is.
pub static PROCESS: Process = Process {
    name: "fea",
    does: "talks to the kernel",
    user: User::Own(0),
    rights: Rights {
        capabilities: CAPABILITIES,
        network: Network::InternetAndNetlink,
        files: Files::Handed,
        real_time: false,
    },
    services: &[FeaClient::SERVICE, SocketClient::SERVICE, AddressClient::SERVICE],
    after: &[],
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
/// When the kernel cannot be asked about interfaces, at the start or later.
pub async fn run(boot: Boot) -> anyhow::Result<()> {
    let monitor = Monitor::open().context("asking the kernel about interfaces")?;
    let boot = Rc::new(boot);
    let engine = Rc::new(Engine::of_router(&boot));
    let vrfs = Rc::new(Vrfs::new(Rc::clone(&boot), Rc::clone(&engine)));
    serve(&boot, &engine, FeaService::of_process(Rc::clone(&engine), vrfs));
    boot.join();
    follow(monitor, &engine).await
}

/// Serves what there is for each table. What comes back hears the neighbours there.
fn serve(boot: &Boot, engine: &Rc<Engine>, service: FeaService) -> AbortHandle {
    metrics::register(&boot.metrics, engine);
    boot.node.serve(FeaDispatcher::new(service));
    let custody = FdStore::new(boot.keeper.clone(), boot.vrf.clone());
    let sockets = SocketService::new(engine.place(), Some(custody));
    metrics::register_discovery(&boot.metrics, sockets.malformed());
    metrics::register_packets(&boot.metrics, sockets.packets());
    let relayed = Rc::clone(engine);
    sockets.relay(engine.interfaces.versions(), move |name| relayed.interfaces.link(name));
    let (discovery, place) = (sockets.discovery(), sockets.follow_place(engine.interfaces.versions()));
    let known = Rc::clone(engine);
    let links = move |wanted: &BTreeSet<String>| known.interfaces.usable(wanted);
    let links = sockets.follow_links(engine.interfaces.versions(), links);
    let known = Rc::clone(engine);
    let refusals = async move { known.say_refusals().await };
    let known = Rc::clone(engine);
    let keeping = async move { known.keep_in_step().await };
    let addresses = Rc::clone(&engine.addresses).keep();
    let hearing = async move { _ = tokio::join!(discovery, place, links, refusals, addresses, keeping) };
    let hearing = spawn_task(hearing.instrument(boot.span()));
    let sockets = Rc::new(sockets);
    let tried = Rc::clone(&sockets);
    let checks = Checks::default()
        .of::<FeaClient>(|configuration| Ok(service::check(&configuration)?))
        .tried::<SocketClient, _>(move |configuration| {
        let sockets = Rc::clone(&tried);
        async move { Ok(sockets.try_out(configuration).await?) }
    });
    serve_preparation(&boot.node, checks, Prepared::default());
    boot.node.serve(SocketDispatcher(sockets));
    boot.node.serve(AddressDispatcher::new(AddressService(Rc::clone(&engine.addresses))));
    hearing.abort_handle()
}

//! The process `transport`: the door. All listeners where peers are expected are here, and all dialers; what gets in, or is
//! reached, is handed to the protocol as a connection: a descriptor, and who is at the other end.
//!
//! ```text
//!  socket.v1 (fea) ── listening socket ──> listen (1 per address) ──> admit: which peer is that? ──> handover ──Accept──> bgp
//!                  ── connecting socket ─> connect (1 per call) ────────────────────────────────────────Connect──> bgp
//!                  ── plain listener ─────────────────────────────────────────────────Listen──> metrics, glass, manager
//! ```
//!
//! It decides who may come in, and nothing about what they say afterwards: a TCP socket is the protocol's as soon as it is
//! handed over. It has no rights: whoever has them opens its sockets (`socket.v1`). Begin with [`ConnectionBroker`](door::ConnectionBroker), which is
//! what there is for one table; a VRF has one of its own ([`vrfs`]).
//! One that carries connections when another build takes its place lives on for them ([`retired`]).

mod admission;
mod carried;
mod connect;
mod door;
mod entry;
mod from_config;
mod handover;
mod letting_in;
mod listen;
mod listeners;
mod metrics;
mod peers;
mod plain;
mod quic;
mod retired;
mod secrets;
mod service;
mod shared;
mod side;
mod succession;
mod vrfs;
mod watched;

// Tests of what the crate offers, in the executable of its unit tests.
#[cfg(test)]
extern crate self as holdfast_transportd;
#[cfg(test)]
#[path = "../tests/mod.rs"]
mod tests;

use std::{rc::Rc, time::Duration};

use holdfast_api::transport::v1::{TransportClient, TransportDispatcher};
use holdfast_process::{Boot, End, Network, Process, Reads, Rights, User};
use holdfast_xrl::Client;
use tokio::{
    signal::unix::{SignalKind, signal},
    sync::{Notify, watch},
    time::timeout,
};

use crate::{door::ConnectionBroker, secrets::Secrets, service::DoorService, shared::Shared, vrfs::Vrfs};

/// What was said last over connections that are carried has so long to be sent when the process ends.
const LAST_WORDS: Duration = Duration::from_secs(3);

/// What the process is.
pub static PROCESS: Process = Process {
    name: "transport",
    does: "lets connections in and makes them",
    user: User::Own(5),
    rights: Rights::worker(Network::Datagrams),
    services: &[TransportClient::SERVICE],
    after: &["fea"],
    feeds: &[],
    end: End::Killed,
    hang_limit: None,
    reads: Reads::Config(from_config::READER),
    reads_kept_of: &[],
    routing: None,
    shows: &[],
    clears: &[],
};

/// The life of the process: until SIGTERM, the end of the keeper, or that of what it carries when it has retired.
///
/// # Errors
/// SIGTERM cannot be waited for, or the keeper cannot be asked.
pub async fn run(boot: Boot) -> anyhow::Result<()> {
    let boot = Rc::new(boot);
    let mut end = signal(SignalKind::terminate())?;
    let shared = Rc::new(Shared {
        side: side::begin(&boot.keeper).await?,
        keeper: boot.keeper.clone(),
        secrets: Secrets::default(),
        carried: watch::Sender::default(),
        retires: Notify::new(),
    });
    let door = ConnectionBroker::open(&boot, Rc::clone(&shared));
    metrics::register(&boot.metrics, &door);
    let vrfs = Rc::new(Vrfs::new(Rc::clone(&boot), Rc::clone(&shared)));
    let service = DoorService::of_process(Rc::clone(&door), Rc::clone(&vrfs));
    door::serve_checks(&boot.node);
    boot.node.serve(TransportDispatcher::new(service));
    boot.join();
    let life = async {
        shared.retires.notified().await;
        retired::live(&boot, &shared, &door, &vrfs).await
    };
    tokio::select! {
        _ = end.recv() => {}
        ended = life => return ended,
    }
    let mut carried = shared.carried.subscribe();
    let sent = timeout(LAST_WORDS, carried.wait_for(|carried| *carried == 0)).await;
    if sent.is_err() {
        tracing::debug!("connections are cut off: their protocols have not ended them");
    }
    Ok(())
}

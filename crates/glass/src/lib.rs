//! The process `glass`: a looking glass. It answers over HTTP what BGP does, in the words of birdwatcher, so that
//! alice-lg shows it; octets of HTTP reach no other process, and it can change nothing.
//!
//! ```text
//!  alice-lg ──HTTP──> server ─> request ─> answer ──XRL──> bgp.v1
//!                        <── chunks ──┘ └─> words
//! ```
//!
//! `request` reads what is asked for, `answer` asks `bgp` and writes, `words` says routes and sessions as birdwatcher does.
//! Nothing is held that grows with a table: routes are written as `bgp` streams them, and `bgp` waits for who reads. Few
//! connections are open, fewer walk the table at a time, and who does not read is cut off (`patient`). What everybody asks
//! for is asked for once (`kept`).

mod answer;
mod chunks;
mod from_config;
mod kept;
mod patient;
mod request;
mod server;
mod service;
mod time;
mod words;

use std::rc::Rc;

use holdfast_api::glass::v1::{GlassClient, GlassDispatcher};
use holdfast_process::{
    Boot, Checks, End, Listening, Network, Prepared, Process, Reads, Rights, User, serve_preparation,
};
use holdfast_xrl::Client;

use crate::{answer::Answerer, service::Glass};

/// What the process is.
pub static PROCESS: Process = Process {
    name: "glass",
    does: "answers looking glasses",
    user: User::Own(4),
    rights: Rights::worker(Network::Handed),
    services: &[GlassClient::SERVICE],
    after: &["transport", "bgp"],
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
    let answerer = Rc::new(Answerer::new(boot.resolver.clone()));
    let checks =
        Checks::default().of::<GlassClient>(|told| Ok(Listening::check((&*told.address, told.port))?));
    serve_preparation(&boot.node, checks, Prepared::default());
    boot.node.serve(GlassDispatcher::new(Glass::new(boot.resolver.clone(), answerer)));
    boot.join();
    std::future::pending().await
}

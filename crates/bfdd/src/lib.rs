//! The bfd process: Bidirectional Forwarding Detection for whoever asks (`bfd.v1`). What packets mean is in the `bfd` crate;
//! here are only the tasks that stand between it, its sockets and the other processes.
//!
//! ```text
//!  manager ── Configure ─> lib.rs ─> tables.rs ─> table.rs, one for each VRF with sessions
//!  bgp, rib ─ Follow ────> service.rs ──────────────┤ wanted.rs: which sessions, for whom
//!  fea ────── Interfaces ───────────────────────────┤ paths.rs: by which interface
//!  sockets <───────────────> sockets.rs ────────────┤
//!  keeper <──────────────── kept.rs, custody.rs ────┘
//! ```
//!
//! The process dies and comes back within the detection time of most sessions: their state and their sockets are at the
//! keeper.

mod custody;
mod kept;
mod metrics;
mod paths;
mod section;
mod service;
mod show;
mod sockets;
mod table;
mod tables;
mod wanted;

use std::{rc::Rc, time::Duration};

use holdfast_api::bfd::v1::{BfdClient, BfdDispatcher};
use holdfast_config::{Config, OwnSection};
use holdfast_process::{
    Boot, Command, Configured, End, HangLimit, Network, Part, Process, Reads, Rights, User, serve_configured,
};
use holdfast_xrl::{Client, XrlError};
use tokio::signal::unix::{SignalKind, signal};

use crate::{
    section::{NAME, SECTION, Settings},
    service::BfdService,
    tables::Tables,
};

/// What the process is.
pub static PROCESS: Process = Process {
    name: NAME,
    does: "finds failures of the paths to neighbours",
    user: User::Own(10),
    rights: Rights::worker(Network::Ports(&[3784, 4784])).in_real_time(),
    services: &[BfdClient::SERVICE],
    after: &["fea"],
    feeds: &["bgp", "rib"],
    end: End::Killed,
    hang_limit: Some(HangLimit::Exactly(Duration::from_millis(500))),
    reads: Reads::Section(OwnSection {
        key: NAME,
        table: &SECTION,
        check: Some(section::check),
        implied: Some(Config::uses_bfd),
    }),
    reads_kept_of: &[],
    routing: None,
    shows: &[
        Command { name: "brief", doc: "the sessions, each with its state" },
        Command { name: "peers", doc: "the sessions, with all that was agreed on" },
        Command { name: "counters", doc: "the packets and changes of each session" },
        Command { name: "status", doc: "how the process runs, and which packets were discarded" },
    ],
    clears: &[
        Command { name: "counters", doc: "count packets and changes from nothing" },
        Command { name: "sessions", doc: "begin all sessions anew, without a failure for who follows them" },
    ],
};

struct Bfd {
    tables: Rc<Tables>,
}

impl Configured for Bfd {
    type Settings = Settings;
    type Row = show::Row;
    type Cursor = show::Cursor;

    async fn configure(&self, settings: Settings, _: &str) -> Result<(), XrlError> {
        let profiles = settings.profiles().map_err(XrlError::invalid_argument)?;
        self.tables.configure(profiles, settings.max_sessions);
        Ok(())
    }

    fn show(
        &self,
        command: &str,
        from: Option<show::Cursor>,
    ) -> Result<Part<show::Row, show::Cursor>, XrlError> {
        Ok(show::part(command, from, &self.tables))
    }

    fn clear(&self, command: &str) -> Result<Vec<String>, XrlError> {
        Ok(self.tables.clear(command == "sessions"))
    }
}

/// The life of the process: until SIGTERM, when neighbours are told AdminDown, or the end of the keeper.
///
/// # Errors
/// SIGTERM cannot be waited for, or the keeper does not say what the process before has left.
pub async fn run(boot: Boot) -> anyhow::Result<()> {
    let mut end = signal(SignalKind::terminate())?;
    let boot = Rc::new(boot);
    let tables = Tables::new(Rc::clone(&boot));
    tables.recover().await?;
    boot.node.serve(BfdDispatcher::new(BfdService(Rc::clone(&tables))));
    serve_configured(&boot.node, &PROCESS, Rc::new(Bfd { tables: Rc::clone(&tables) }));
    boot.join();
    end.recv().await;
    tables.say_farewell();
    Ok(())
}

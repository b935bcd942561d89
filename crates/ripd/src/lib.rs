//! The rip process: RIPv2 (RFC 2453, RFC 4822) and RIPng (RFC 2080) on the interfaces that `[rip]` names. What messages mean
//! is in the `rip` crate; here are only the tasks that stand between it, its sockets and the other processes.
//!
//! ```text
//!  manager ── Configure ─> lib.rs ─> table.rs, one for each VRF
//!  fea ────── Interfaces ──────────────┤
//!  sockets <────────> speaker.rs <─────┼──> Origin ── Routes ─> rib
//!                                      └─── Redistribution <─── rib
//! ```

mod metrics;
mod section;
mod show;
mod speaker;
mod table;
mod version;

use std::{
    cell::RefCell,
    collections::BTreeMap,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    rc::Rc,
};

use holdfast_config::{Datagrams, OwnSection, Routing};
use holdfast_policy::Library;
use holdfast_process::{
    Boot, Command, Configured, End, Network, Part, Process, Reads, Rights, User, serve_configured, spawn_task,
};
use holdfast_xrl::XrlError;
use tokio::{
    signal::unix::{SignalKind, signal},
    task::JoinHandle,
};

use crate::{
    section::{NAME, SECTION, Settings},
    table::{Table, Tables},
};

/// What the process is.
pub static PROCESS: Process = Process {
    name: NAME,
    does: "speaks RIP",
    user: User::Own(8),
    rights: Rights::worker(Network::Datagrams),
    services: &[],
    after: &["rib"],
    feeds: &["rib"],
    end: End::Killed,
    hang_limit: None,
    reads: Reads::Section(OwnSection {
        key: NAME,
        table: &SECTION,
        check: Some(section::check),
        implied: None,
    }),
    reads_kept_of: &[],
    routing: Some(Routing { distance: 120, datagrams: &DATAGRAMS, raw: &[] }),
    shows: &[
        Command { name: "routes", doc: "the routes of RIP, as neighbours are told of them" },
        Command { name: "interfaces", doc: "where RIP is spoken, and what has come and gone there" },
        Command { name: "neighbors", doc: "the routers that were heard" },
    ],
    clears: &[],
};

static DATAGRAMS: [Datagrams; 2] = [
    Datagrams { port: 520, group: IpAddr::V4(Ipv4Addr::new(224, 0, 0, 9)), hops: 1 },
    Datagrams { port: 521, group: IpAddr::V6(Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 9)), hops: 255 },
];

struct Rip {
    boot: Rc<Boot>,
    tables: RefCell<Tables>,
    /// Tables whose neighbours are told that they end.
    leaving: RefCell<BTreeMap<Option<String>, JoinHandle<()>>>,
}

impl Rip {
    /// Ends a table in good order.
    fn leave(&self, vrf: Option<String>, table: Table) {
        let mut leaving = self.leaving.borrow_mut();
        leaving.retain(|_, task| !task.is_finished());
        leaving.insert(vrf, spawn_task(table.leave()));
    }

    /// A table that begins again waits for nobody, and its sockets are its own.
    fn end(&self, vrf: &Option<String>) {
        if let Some(task) = self.leaving.borrow_mut().remove(vrf) {
            task.abort();
        }
    }
}

impl Configured for Rip {
    type Settings = Settings;
    type Row = show::Row;
    type Cursor = show::Cursor;

    async fn configure(&self, settings: Settings, policies: &str) -> Result<(), XrlError> {
        let wrong = |error: String| XrlError::invalid_argument(error);
        let library = Library::receive(policies, 0).map_err(|error| wrong(error.to_string()))?;
        let sections = settings.vrfs().map(|vrf| {
            let section = settings.of_table(vrf.as_deref(), &library);
            section.map(|section| (vrf, section)).map_err(|error| wrong(error.to_string()))
        });
        // All before anything changes.
        let sections: BTreeMap<_, _> = sections.collect::<Result<_, _>>()?;
        let mut tables = self.tables.borrow_mut();
        let gone: Vec<_> = tables.keys().filter(|vrf| !sections.contains_key(*vrf)).cloned().collect();
        for vrf in gone {
            if let Some(table) = tables.remove(&vrf) {
                self.leave(vrf, table);
            }
        }
        for (vrf, section) in sections {
            match tables.get(&vrf) {
                Some(table) => table.configure(section),
                None => {
                    self.end(&vrf);
                    let boot = match &vrf {
                        None => Rc::clone(&self.boot),
                        Some(vrf) => Rc::new(self.boot.instance(vrf)),
                    };
                    tables.insert(vrf, Table::begin(boot, section));
                }
            }
        }
        Ok(())
    }

    fn show(
        &self,
        command: &str,
        from: Option<show::Cursor>,
    ) -> Result<Part<show::Row, show::Cursor>, XrlError> {
        Ok(show::part(command, from, &self.tables.borrow()))
    }
}

/// The life of the process: until SIGTERM, when neighbours are told that it goes, or the end of the keeper.
///
/// # Errors
/// SIGTERM cannot be waited for.
pub async fn run(boot: Boot) -> anyhow::Result<()> {
    let mut end = signal(SignalKind::terminate())?;
    let boot = Rc::new(boot);
    let rip =
        Rc::new(Rip { boot: Rc::clone(&boot), tables: RefCell::default(), leaving: RefCell::default() });
    serve_configured(&boot.node, &PROCESS, Rc::clone(&rip));
    boot.join();
    end.recv().await;
    for (vrf, table) in rip.tables.take() {
        rip.leave(vrf, table);
    }
    for task in rip.leaving.take().into_values() {
        let _ = task.await;
    }
    Ok(())
}

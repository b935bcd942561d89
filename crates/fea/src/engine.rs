//! The backend, and the order in which it is used.

use std::cell::RefCell;

use holdfast_api::{
    fea::v1::{Configuration, RouteError, Status},
    routes::v1::RouteBatch,
};
use holdfast_fib::{Fib, FibError, NoneFib, TableId};
use holdfast_fib_linux::{Interface, LinuxFib};
use holdfast_process::profile::{FEA_IN, KERNEL, Point, Profile, routes_of};
use holdfast_xrl::XrlError;
use tokio::sync::{Mutex, MutexGuard, watch};
use tracing::{error, info, warn};

use crate::{batch, interfaces::Interfaces, metrics::Applying};

/// Routes of a sync that are worked on at a time: a few milliseconds.
pub const SLICE: usize = 2000;

/// What the process does, apart from its interfaces to others.
pub struct Engine {
    backend: RefCell<Option<Backend>>,
    configured: watch::Sender<bool>,
    /// Held while something about the table is done that others of its kind have to wait for. First come,
    /// first served.
    turn: Mutex<()>,
    pub(crate) losses: watch::Sender<Loss>,
    pub(crate) interfaces: Interfaces,
    pub(crate) applying: Applying,
    arriving: Point,
    entering: Point,
}

struct Backend {
    fib: Box<dyn Fib>,
    table: TableId,
}

/// The last loss of routes, if no sync has begun since.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Loss {
    /// Counts losses.
    pub(crate) number: u64,
    pub(crate) reason: Option<String>,
}

impl Engine {
    /// Without a backend, which the configuration brings.
    pub fn new(interfaces: impl IntoIterator<Item = Interface>, profile: &Profile) -> Self {
        Self {
            backend: RefCell::new(None),
            configured: watch::Sender::new(false),
            turn: Mutex::new(()),
            losses: watch::Sender::default(),
            interfaces: Interfaces::new(interfaces),
            applying: Applying::default(),
            arriving: profile.point(&FEA_IN),
            entering: profile.point(&KERNEL),
        }
    }

    /// Brings the backend, or another one in its place: then the routes of the old one go, and the rib is
    /// asked for all of them again. The same configuration again changes nothing.
    pub(crate) async fn configure(&self, wanted: &Configuration) -> Result<(), XrlError> {
        let table = if wanted.table == 0 { TableId::MAIN } else { TableId(wanted.table) };
        let now = self.backend.borrow().as_ref().map(|backend| (backend.fib.name(), backend.table));
        if now == Some((wanted.backend.as_str(), table)) {
            return Ok(());
        }
        let fib = open(&wanted.backend)?;
        if now.is_some() {
            let _turn = self.turn.lock().await;
            self.with(|backend| backend.fib.clear())?;
            self.lose("another backend or table is configured");
        }
        info!(event = "fea-configured", backend = fib.name(), table = table.0, "configured");
        self.install(fib, table);
        Ok(())
    }

    pub(crate) fn install(&self, fib: Box<dyn Fib>, table: TableId) {
        *self.backend.borrow_mut() = Some(Backend { fib, table });
        self.configured.send_replace(true);
    }

    /// What follows until [`Engine::sync_end`] is the whole table, unless routes are of no use: returns whether that
    /// is so.
    pub(crate) async fn sync_begin(&self) -> Result<bool, XrlError> {
        let _turn = self.turn().await;
        self.losses.send_modify(|loss| loss.reason = None);
        let discards = self.with(|backend| {
            backend.fib.sync_begin()?;
            Ok(backend.fib.discards())
        })?;
        info!(
            event = "sync-begun",
            "{}",
            if discards { "no routes are wanted" } else { "the rib sends its whole table" }
        );
        self.work().await?;
        Ok(discards)
    }

    pub(crate) async fn sync_end(&self) -> Result<(), XrlError> {
        let _turn = self.turn().await;
        self.with(|backend| backend.fib.sync_end())?;
        self.work().await?;
        let counters = self.with(|backend| Ok(backend.fib.report().counters))?;
        info!(
            event = "sync-ended",
            routes = counters.routes,
            kept = counters.kept,
            deleted = counters.deleted,
            "in step with the rib"
        );
        Ok(())
    }

    /// Applies a batch: definitions, then rows, then what is not needed any more.
    pub(crate) async fn apply(&self, batch: &RouteBatch) -> Result<(), XrlError> {
        self.arriving.pass(|| routes_of(batch));
        let changes = batch::changes(batch)?;
        let sets = batch.define.iter().map(|set| batch::next_hops(set, |name| self.interfaces.index(name)));
        let sets = sets.collect::<Result<Vec<_>, _>>()?;
        let _applying = self.applying.enter();
        let _turn = self.turn().await;
        self.with(|Backend { fib, table }| {
            sets.iter().try_for_each(|(handle, next_hops)| fib.define(*handle, next_hops))?;
            fib.apply(*table, &changes)?;
            self.entering.pass(|| routes_of(batch));
            batch.undefine.iter().try_for_each(|handle| fib.undefine(holdfast_fib::Handle(*handle)))
        })
    }

    /// The end: from now on nothing is applied.
    pub(crate) async fn shut_down(&self, keep_routes: bool) -> Result<(), XrlError> {
        if !*self.configured.borrow() {
            return Ok(());
        }
        let _turn = self.turn.lock().await;
        if !keep_routes {
            self.with(|backend| backend.fib.clear())?;
        }
        info!(event = "fea-shut-down", keep_routes, "shut down");
        *self.backend.borrow_mut() = None;
        Ok(())
    }

    pub(crate) fn status(&self) -> Status {
        let backend = self.backend.borrow();
        let Some(Backend { fib, .. }) = backend.as_ref() else { return Status::default() };
        let report = fib.report();
        let error = |error: &holdfast_fib::RouteError| RouteError {
            prefix: error.what.clone(),
            error: error.error.clone(),
        };
        Status {
            backend: fib.name().into(),
            routes: report.counters.routes,
            next_hops: report.counters.next_hops,
            added: report.counters.added,
            deleted: report.counters.deleted,
            errors: report.counters.errors,
            last_errors: report.last_errors().map(error).collect(),
        }
    }

    pub(crate) fn interface_changed(&self, index: u32, usable: bool) {
        if self.backend.borrow().is_none() {
            return;
        }
        if let Err(error) = self.with(|backend| backend.fib.interface_changed(index, usable)) {
            error!(event = "kernel-loss", "an interface has changed, and {error}");
            self.lose(error.message());
        }
    }

    /// Waits for the backend and for those who came before.
    async fn turn(&self) -> MutexGuard<'_, ()> {
        // The sender lives as long as we do: this cannot fail.
        let _ = self.configured.subscribe().wait_for(|configured| *configured).await;
        self.turn.lock().await
    }

    /// Does the work of a sync, letting others in between.
    async fn work(&self) -> Result<(), XrlError> {
        while self.with(|backend| backend.fib.work(SLICE))? {
            tokio::task::yield_now().await;
        }
        Ok(())
    }

    fn with<T>(&self, act: impl FnOnce(&mut Backend) -> Result<T, FibError>) -> Result<T, XrlError> {
        let mut backend = self.backend.borrow_mut();
        let backend =
            backend.as_mut().ok_or_else(|| XrlError::failed_precondition("the fea is shut down"))?;
        let done = act(backend).map_err(|error| XrlError::unavailable(error.to_string()));
        if let Some(reason) = backend.fib.take_loss() {
            warn!(event = "kernel-loss", reason, "the kernel has lost routes");
            self.lose(&reason);
        }
        done
    }

    fn lose(&self, reason: &str) {
        self.losses.send_modify(|loss| {
            *loss = Loss { number: loss.number + 1, reason: Some(reason.to_owned()) };
        });
    }
}

fn open(backend: &str) -> Result<Box<dyn Fib>, XrlError> {
    match backend {
        "linux" => {
            let fib = LinuxFib::new()
                .map_err(|error| XrlError::unavailable(format!("opening netlink: {error}")))?;
            Ok(Box::new(fib))
        }
        "none" => Ok(Box::new(NoneFib::new())),
        other => Err(XrlError::invalid_argument(format!("`{other}` is no backend: expected linux or none"))),
    }
}

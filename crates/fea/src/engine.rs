//! The backend, and the order in which it is used.

use std::{
    cell::{Cell, RefCell},
    convert::Infallible,
    rc::Rc,
    time::{Duration, Instant},
};

use holdfast_api::{
    fea::v1::{Configuration, RouteError, Status},
    keeper::v1::KeeperClient,
    routes::v1::RouteBatch,
};
use holdfast_fib::{Fib, FibError, Handle, Interference, NextHops, Refused, Repairs, TableId};
use holdfast_fib_linux::{METRIC, Monitor, Ownership};
use holdfast_process::{
    Boot,
    metrics::turn,
    profile::{FEA_IN, KERNEL, Point, routes_of},
    progress::Finished,
};
use holdfast_sockets::Place;
use holdfast_types::Prefix;
use holdfast_xrl::{ErrorKind, XrlError};
use tokio::{
    net::UnixDatagram,
    sync::{Mutex, MutexGuard, Notify, watch},
    time::sleep,
};
use tracing::{Instrument, Span, error, info, warn};

use crate::{
    addresses::Addresses,
    batch,
    claiming::{self, Claimed},
    interfaces::{Interfaces, Part},
    kernel,
    metrics::Applying,
    pace::Pace,
    repairs,
};

/// Pause between two lines about what the backend refuses.
const REFUSALS: Duration = Duration::from_secs(10);

/// What the process does for one table, apart from its interfaces to others.
pub struct Engine {
    place: Place,
    /// Names the VRF in the log.
    span: Span,
    wanted: RefCell<Option<Wanted>>,
    /// Held while the backend is brought.
    settling: Mutex<()>,
    pub(crate) backend: RefCell<Option<Backend>>,
    /// The table of the backend, which no other router has.
    pub(crate) claimed: RefCell<Option<Claimed>>,
    /// Who has it, if it is another router.
    claimed_by: RefCell<String>,
    keeper: KeeperClient,
    vrf: Option<Rc<str>>,
    /// Readable when other programs have done something that concerns the backend.
    pub(crate) watched: RefCell<Option<Rc<UnixDatagram>>>,
    /// Rings when the backend may have work to do, or is another one.
    pub(crate) stirred: Notify,
    /// Comparisons of the whole table that have ended.
    pub(crate) compared: watch::Sender<u64>,
    /// An operator waits until so many have.
    pub(crate) asked: Cell<Option<u64>>,
    configured: watch::Sender<bool>,
    /// Not there yet: the namespace, or the device with this table.
    waits: watch::Sender<bool>,
    /// Held while something about the table is done that others of its kind have to wait for. First come,
    /// first served.
    pub(crate) turn: Mutex<()>,
    pace: RefCell<Pace>,
    pub(crate) losses: watch::Sender<Loss>,
    /// How often the backend has refused something.
    refused: watch::Sender<u64>,
    /// Rings when what it refuses now may be another.
    pub(crate) refusals: watch::Sender<()>,
    pub(crate) interfaces: Rc<Interfaces>,
    pub(crate) addresses: Rc<Addresses>,
    pub(crate) applying: Applying,
    arriving: Point,
    entering: Point,
    /// Counts routes that the backend has carried out.
    finished: Finished,
}

/// What is configured.
#[derive(Clone, PartialEq, Eq)]
struct Wanted {
    backend: String,
    ours: Ownership,
    /// Its directory; empty: the router shares none.
    lease: String,
}

pub(crate) struct Backend {
    pub(crate) fib: Box<dyn Fib>,
    ours: Ownership,
    /// Of what it refuses, as far as they were rung for.
    changes: u64,
    /// Routes that it has carried out, as far as they were counted.
    carried_out: u64,
}

/// The last loss of routes, if no sync has begun since.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Loss {
    /// Counts losses.
    pub(crate) number: u64,
    pub(crate) reason: Option<String>,
}

impl Engine {
    /// The engine of the default table; without a backend, which the configuration brings.
    pub fn of_router(boot: &Boot) -> Self {
        Self::new(Place::Here, Part::All, boot)
    }

    /// One for the table there, which shows this part of the interfaces.
    pub(crate) fn new(place: Place, part: Part, boot: &Boot) -> Self {
        let interfaces = Rc::new(Interfaces::new(part));
        Self {
            span: boot.span(),
            wanted: RefCell::new(None),
            settling: Mutex::new(()),
            backend: RefCell::new(None),
            claimed: RefCell::default(),
            claimed_by: RefCell::default(),
            keeper: boot.keeper.clone(),
            vrf: boot.vrf.clone(),
            watched: RefCell::default(),
            stirred: Notify::new(),
            compared: watch::Sender::default(),
            asked: Cell::default(),
            configured: watch::Sender::new(false),
            waits: watch::Sender::new(false),
            turn: Mutex::new(()),
            pace: RefCell::default(),
            losses: watch::Sender::default(),
            refused: watch::Sender::default(),
            refusals: watch::Sender::default(),
            addresses: Rc::new(Addresses::new(place.clone(), Rc::clone(&interfaces), boot.keeper.clone())),
            interfaces,
            place,
            applying: Applying::default(),
            arriving: boot.profile.point(&FEA_IN),
            entering: boot.profile.point(&KERNEL),
            finished: boot.progress.finished,
        }
    }

    /// Where it is, and the sockets of its protocols are.
    pub(crate) fn place(&self) -> Place {
        self.place.clone()
    }

    /// Brings the backend, or another one in its place: then the routes of the old one go, and the rib is
    /// asked for all of them again. The same configuration again changes nothing. In a namespace that is not there, or at
    /// a device with another table, the backend comes later ([`Engine::settle`]).
    pub(crate) async fn configure(&self, wanted: &Configuration) -> Result<(), XrlError> {
        self.wanted.replace(Some(Wanted {
            backend: wanted.backend.clone(),
            ours: ours(wanted),
            lease: wanted.lease.clone(),
        }));
        match self.settle().await {
            Err(error) if error.kind() == ErrorKind::FailedPrecondition => {
                let is_taken = !self.claimed_by.borrow().is_empty();
                self.span.in_scope(|| match is_taken {
                    true => warn!(event = "table-taken", "nothing is installed: {error}"),
                    false => warn!(event = "vrf-waits", "not yet: {error}"),
                });
                self.stirred.notify_one();
                Ok(())
            }
            result => result,
        }
    }

    /// Brings the backend that is configured, unless it is there.
    ///
    /// # Errors
    /// As those of [`kernel::backend`].
    pub(crate) async fn settle(&self) -> Result<(), XrlError> {
        let _settling = self.settling.lock().await;
        let result = self.bring().await;
        let waits = result.as_ref().is_err_and(|error| error.kind() == ErrorKind::FailedPrecondition);
        self.waits.send_replace(waits);
        result
    }

    /// Not by two at a time.
    async fn bring(&self) -> Result<(), XrlError> {
        let Some(Wanted { backend, ours, lease }) = self.wanted.borrow().clone() else { return Ok(()) };
        let now = self.backend.borrow().as_ref().map(|backend| (backend.fib.name(), backend.ours));
        if now == Some((backend.as_str(), ours)) {
            return Ok(());
        }
        let fib = kernel::backend(&self.place, &backend, ours).instrument(self.span.clone()).await?;
        let before = self.claim(fib.as_ref(), ours.table, &lease).await?;
        let watched = kernel::watch(fib.as_ref())
            .map_err(|error| XrlError::unavailable(format!("watching netlink: {error}")))?;
        if let Some((name, before)) = now {
            let _turn = self.turn.lock().await;
            // Routes of another metric in the same table stay until the next sync has put others beside them.
            if name != backend || before.table != ours.table {
                self.with(|backend| backend.fib.clear())?;
            }
            self.lose("another backend, table or metric is configured");
        }
        let Ownership { table, metric } = ours;
        self.span.in_scope(|| {
            info!(event = "fea-configured", backend = fib.name(), table = table.0, metric, "configured");
        });
        *self.backend.borrow_mut() = Some(Backend { fib, ours, changes: 0, carried_out: 0 });
        *self.watched.borrow_mut() = watched;
        self.give_up(before).await;
        self.stirred.notify_one();
        self.configured.send_replace(true);
        Ok(())
    }

    /// Returns when [`Engine::settle`] is to be tried again.
    pub(crate) async fn is_waiting(&self) {
        // The sender lives as long as we do: this cannot fail.
        let _ = self.waits.subscribe().wait_for(|waits| *waits).await;
    }

    /// Gives its table up, with the routes in it, unless it is to stay with this one, numbered as in a configuration.
    /// Tables are given up before any is taken: two engines may change theirs at once, and an old one's last deed must
    /// not be done to the routes of the next. What the rib has to say waits for the configuration.
    ///
    /// # Errors
    /// `Unavailable` when the kernel refuses; then it still has the table.
    pub(crate) async fn release_unless(&self, next: u32) -> Result<(), XrlError> {
        let next = table(next);
        // Nobody settles there any more.
        self.wanted.replace_with(|wanted| wanted.take().filter(|wanted| wanted.ours.table == next));
        let _settling = self.settling.lock().await;
        if self.backend.borrow().as_ref().is_none_or(|backend| backend.ours.table == next) {
            return Ok(());
        }
        let _turn = self.turn.lock().await;
        self.with(|backend| backend.fib.clear())?;
        self.span
            .in_scope(|| info!(event = "table-left", "its table is another's, or nobody's, from now on"));
        self.drop_backend().await;
        self.configured.send_replace(false);
        self.lose("another table is configured");
        Ok(())
    }

    /// Gives the backend up for another one of the same configuration, which [`Engine::settle`] brings: the place has become
    /// another. Then the rib is asked for all routes again.
    pub(crate) async fn leave(&self, reason: &str) {
        let _settling = self.settling.lock().await;
        let _turn = self.turn.lock().await;
        if self.backend.borrow().is_none() {
            return;
        }
        // Somebody may still be where it was.
        if let Err(error) = self.with(|backend| backend.fib.clear()) {
            self.span.in_scope(|| warn!(event = "vrf-moved", "its old routes may have stayed: {error}"));
        }
        self.drop_backend().await;
        self.configured.send_replace(false);
        self.lose(reason);
    }

    /// Whoever follows the interfaces there.
    ///
    /// # Errors
    /// As those of [`kernel::monitor`].
    pub(crate) async fn monitor(&self) -> Result<Monitor, XrlError> {
        kernel::monitor(&self.place).await
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
        let what = if discards { "no routes are wanted" } else { "the rib sends its whole table" };
        self.span.in_scope(|| info!(event = "sync-begun", "{what}"));
        self.work().await?;
        Ok(discards)
    }

    pub(crate) async fn sync_end(&self) -> Result<(), XrlError> {
        let _turn = self.turn().await;
        self.with(|backend| backend.fib.sync_end())?;
        self.work().await?;
        let counters = self.with(|backend| Ok(backend.fib.report().counters))?;
        self.span.in_scope(|| {
            info!(
                event = "sync-ended",
                routes = counters.routes,
                kept = counters.kept,
                deleted = counters.deleted,
                "in step with the rib"
            );
        });
        Ok(())
    }

    /// Applies a batch: definitions, then rows, then what is not needed any more.
    pub(crate) async fn apply(&self, batch: &RouteBatch) -> Result<(), XrlError> {
        self.arriving.pass(|| routes_of(batch));
        let changes = batch::changes(batch)?;
        let sets = self.sets(batch)?;
        let _applying = self.applying.enter();
        let _turn = self.turn().await;
        self.define(&sets)?;
        let mut rest = changes.as_slice();
        while !rest.is_empty() {
            let slice = |fib: &mut dyn Fib, routes: usize| {
                let (some, later) = rest.split_at(routes.min(rest.len()));
                fib.apply(some).map(|()| later)
            };
            rest = self.slice(slice).await?;
        }
        self.entering.pass(|| routes_of(batch));
        self.with(|Backend { fib, .. }| {
            batch.undefine.iter().try_for_each(|handle| fib.undefine(Handle(*handle)))
        })
    }

    /// Carries out the definitions of a batch, between two slices of what has its turn. Without a backend there is nothing that
    /// could lead elsewhere.
    ///
    /// # Errors
    /// `InvalidArgument` as of [`batch::next_hops`], `Unavailable` when the backend as a whole fails.
    pub(crate) fn define_at_once(&self, batch: &RouteBatch) -> Result<(), XrlError> {
        let sets = self.sets(batch)?;
        if self.backend.borrow().is_none() {
            return Ok(());
        }
        self.define(&sets)
    }

    fn sets(&self, batch: &RouteBatch) -> Result<Vec<(Handle, NextHops)>, XrlError> {
        let sets = batch.define.iter().map(|set| batch::next_hops(set, |name| self.interfaces.index(name)));
        sets.collect()
    }

    fn define(&self, sets: &[(Handle, NextHops)]) -> Result<(), XrlError> {
        self.with(|Backend { fib, .. }| {
            sets.iter().try_for_each(|(handle, next_hops)| fib.define(*handle, next_hops))
        })
    }

    /// The end: from now on nothing is applied.
    pub(crate) async fn shut_down(&self, keep_routes: bool) -> Result<(), XrlError> {
        self.wanted.replace(None);
        if let Err(error) = self.addresses.resign_all().await {
            self.span.in_scope(|| warn!(event = "service-address-left", "service addresses stay: {error}"));
        }
        let _settling = self.settling.lock().await;
        let _turn = self.turn.lock().await;
        if self.backend.borrow().is_none() {
            return Ok(());
        }
        if !keep_routes {
            self.with(|backend| backend.fib.clear())?;
        }
        self.span.in_scope(|| info!(event = "fea-shut-down", keep_routes, "shut down"));
        self.drop_backend().await;
        Ok(())
    }

    pub(crate) fn status(&self) -> Status {
        let backend = self.backend.borrow();
        let claimed_by = self.claimed_by.borrow().clone();
        let Some(Backend { fib, .. }) = backend.as_ref() else {
            return Status { claimed_by, ..Status::default() };
        };
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
            routes_refused: report.refused.routes().len() as u64,
            next_hops_refused: report.refused.handles().len() as u64,
            repairs: Some(repairs::api(report.repairs)),
            claimed_by,
        }
    }

    /// What the kernel does not have now, though it was told so.
    pub(crate) fn refused(&self) -> Refused {
        self.backend.borrow().as_ref().map_or_else(Refused::default, |it| it.fib.report().refused.clone())
    }

    /// Says what the backend refuses, for ever: the last of what was refused since the line before.
    pub(crate) async fn say_refusals(&self) -> Infallible {
        let (mut refusals, mut said) = (self.refused.subscribe(), 0);
        loop {
            let refused = *refusals.borrow_and_update();
            // Another backend begins at 0.
            let refusals_since = refused.checked_sub(said).unwrap_or(refused);
            said = refused;
            if refusals_since > 0
                && let Some(RouteError { prefix, error }) = self.status().last_errors.pop()
            {
                warn!(
                    event = "routes-refused",
                    refused = refusals_since,
                    route = prefix,
                    "the kernel refuses it: {error}"
                );
                sleep(REFUSALS).await;
            } else if refusals.changed().await.is_err() {
                return std::future::pending().await;
            }
        }
    }

    pub(crate) fn interface_changed(&self, index: u32, usable: bool) {
        self.on_interfaces(|backend| backend.fib.interface_changed(index, usable));
    }

    pub(crate) fn interfaces_unknown(&self) {
        self.on_interfaces(|backend| backend.fib.interfaces_unknown());
    }

    fn on_interfaces(&self, act: impl FnOnce(&mut Backend) -> Result<(), FibError>) {
        if self.backend.borrow().is_none() {
            return;
        }
        if let Err(error) = self.with(act) {
            self.span.in_scope(|| error!(event = "kernel-loss", "an interface has changed, and {error}"));
            self.lose(error.message());
        }
    }

    async fn drop_backend(&self) {
        *self.backend.borrow_mut() = None;
        *self.watched.borrow_mut() = None;
        let claimed = self.claimed.take();
        self.give_up(claimed).await;
    }

    /// Claims the table of a backend, if that writes any: the claim before, which is to be given up when the new backend is
    /// there.
    async fn claim(&self, fib: &dyn Fib, table: TableId, lease: &str) -> Result<Option<Claimed>, XrlError> {
        let has_table = self.claimed.borrow().as_ref().is_some_and(|claimed| claimed.table == table);
        if fib.discards() {
            return Ok(self.claimed.take());
        }
        if has_table {
            return Ok(None);
        }
        let wanted = (table, self.vrf.as_deref());
        let claim = claiming::claim(&self.place, &self.keeper, wanted, lease);
        match claim.instrument(self.span.clone()).await {
            Ok(claimed) => {
                self.claimed_by.take();
                Ok(self.claimed.replace(Some(claimed)))
            }
            Err(error) => {
                self.claimed_by.replace(error.message().to_owned());
                Err(error)
            }
        }
    }

    async fn give_up(&self, claimed: Option<Claimed>) {
        if let Some(claimed) = claimed {
            claiming::give_up(&self.keeper, claimed, self.vrf.as_deref()).await;
        }
    }

    /// Whether another router with the same lease has the table.
    pub(crate) fn shares_table(&self) -> bool {
        self.claimed.borrow().as_ref().is_some_and(Claimed::is_shared)
    }

    /// Claims the table that a router with the same lease has left; whether it has.
    pub(crate) async fn inherit_table(&self) -> bool {
        let Some(table) = self.claimed.borrow().as_ref().map(|claimed| claimed.table) else { return false };
        let taken = claiming::take(&self.place, &self.keeper, (table, self.vrf.as_deref())).await;
        let Ok(Some(claimed)) = taken else { return false };
        self.span.in_scope(|| {
            info!(event = "table-inherited", table = table.0, "the router that shared the table has left it");
        });
        self.claimed.replace(Some(claimed));
        true
    }

    /// Tells other routers who has the table, if they have asked.
    pub(crate) fn answer_claims(&self) {
        let wanted = self.wanted.borrow();
        let lease = wanted.as_ref().map_or("", |wanted| &wanted.lease);
        if let Some(claimed) = self.claimed.borrow().as_ref() {
            claimed.answer(lease);
        }
    }

    /// Whether the backend that is configured waits for what is not there yet.
    pub(crate) fn waits(&self) -> bool {
        *self.waits.borrow()
    }

    /// Totals of what other programs did and what followed.
    pub(crate) fn repairs(&self) -> Repairs {
        self.with_fib(|fib| fib.report().repairs).unwrap_or_default()
    }

    /// What another program did last, and the route of the last pause.
    pub(crate) fn interference(&self) -> (Option<Interference>, Option<Prefix>) {
        let of = |fib: &mut dyn Fib| (fib.report().interference.clone(), fib.report().contested);
        self.with_fib(of).unwrap_or_default()
    }

    /// Asks the backend, if there is one.
    pub(crate) fn with_fib<T>(&self, ask: impl FnOnce(&mut dyn Fib) -> T) -> Option<T> {
        self.backend.borrow_mut().as_mut().map(|backend| ask(backend.fib.as_mut()))
    }

    /// The kernel did not do what was asked.
    pub(crate) fn lose_for(&self, error: &XrlError) {
        self.span.in_scope(|| error!(event = "kernel-loss", "{error}"));
        self.lose(error.message());
    }

    /// Waits for the backend and for those who came before.
    async fn turn(&self) -> MutexGuard<'_, ()> {
        loop {
            // The sender lives as long as we do: this cannot fail.
            let _ = self.configured.subscribe().wait_for(|configured| *configured).await;
            let turn = self.turn.lock().await;
            // One of those may have been the last with this table.
            if *self.configured.borrow() {
                return turn;
            }
        }
    }

    /// Does the work of a sync.
    async fn work(&self) -> Result<(), XrlError> {
        while self.slice(|fib, routes| fib.work(routes)).await? {}
        Ok(())
    }

    /// Has the backend work on about as many routes as it is told, and then lets everything else have its turn.
    pub(crate) async fn slice<T>(
        &self,
        act: impl FnOnce(&mut dyn Fib, usize) -> Result<T, FibError>,
    ) -> Result<T, XrlError> {
        let routes = self.pace.borrow().slice();
        let begin = Instant::now();
        let (done, _) = turn("routes", || self.with(|backend| act(backend.fib.as_mut(), routes)));
        self.pace.borrow_mut().took(begin.elapsed());
        tokio::task::yield_now().await;
        done
    }

    pub(crate) fn with<T>(
        &self,
        act: impl FnOnce(&mut Backend) -> Result<T, FibError>,
    ) -> Result<T, XrlError> {
        let mut backend = self.backend.borrow_mut();
        let backend =
            backend.as_mut().ok_or_else(|| XrlError::failed_precondition("the fea is shut down"))?;
        let done = act(backend).map_err(|error| XrlError::unavailable(error.to_string()));
        let report = backend.fib.report();
        let (refused, changes) = (report.counters.errors, report.refused.changes());
        let carried_out = report.counters.added + report.counters.deleted + report.counters.kept;
        let before = std::mem::replace(&mut backend.carried_out, carried_out);
        self.finished.add(carried_out.saturating_sub(before));
        let comparisons = report.repairs.comparisons;
        self.compared.send_if_modified(|known| std::mem::replace(known, comparisons) != comparisons);
        self.refused.send_if_modified(|known| std::mem::replace(known, refused) != refused);
        if std::mem::replace(&mut backend.changes, changes) != changes {
            self.refusals.send_replace(());
        }
        if backend.fib.has_work() {
            self.stirred.notify_one();
        }
        if let Some(reason) = backend.fib.take_loss() {
            self.span.in_scope(|| warn!(event = "kernel-loss", reason, "the kernel has lost routes"));
            self.lose(&reason);
        }
        done
    }

    fn lose(&self, reason: &str) {
        self.losses.send_modify(|loss| {
            *loss = Loss { number: loss.number + 1, reason: Some(reason.to_owned()) };
        });
        // Of another backend.
        self.refusals.send_replace(());
    }
}

fn ours(configuration: &Configuration) -> Ownership {
    let metric = if configuration.metric == 0 { METRIC } else { configuration.metric };
    Ownership { table: table(configuration.table), metric }
}

/// The table of this number in a configuration.
fn table(number: u32) -> TableId {
    if number == 0 { TableId::MAIN } else { TableId(number) }
}

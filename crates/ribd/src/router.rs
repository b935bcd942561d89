//! The table and what the process keeps beside it, shared by all tasks.

use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
    rc::Rc,
    time::Instant,
};

use holdfast_process::{
    metrics::turn,
    profile::{Point, Profile, RIB_IN, RIB_QUEUED, RIB_SENT},
    progress::Finished,
    spawn_task,
};
use holdfast_rib::{ClientId, Rib, RibConfig};
use holdfast_types::HashKey;
use holdfast_xrl::Channel;
use tokio::sync::{Notify, watch};

use crate::{depths::Depths, origins::Origins, readiness::Readiness, statics::Statics};

/// What the tasks share.
pub(crate) struct Router {
    rib: RefCell<Rib>,
    /// Rings whenever something may have changed.
    bell: watch::Sender<()>,
    pub(crate) origins: RefCell<Origins>,
    pub(crate) readiness: RefCell<Readiness>,
    /// Administrative distances by the name of the origin, as configured.
    pub(crate) distances: RefCell<BTreeMap<String, u8>>,
    pub(crate) statics: RefCell<Statics>,
    /// The process `bfd` runs.
    pub(crate) bfd: Cell<bool>,
    /// There is another configuration.
    pub(crate) configured: Notify,
    /// The routing protocols that have subscribed to routes, each as often as it has.
    pub(crate) subscribers: RefCell<Vec<String>>,
    /// Routes that the forwarding engine has been sent and has not acknowledged.
    pub(crate) in_flight: Cell<usize>,
    /// The forwarding engine has lost routes since the last sync began.
    pub(crate) lost: Cell<bool>,
    pub(crate) depths: Depths,
    pub(crate) arriving: Point,
    queued: Point,
    pub(crate) sent: Point,
    /// Who has registered interest, by channel.
    clients: RefCell<BTreeMap<usize, ClientId>>,
    last_client: Cell<u32>,
    /// Counts routes of origins that are in the table, and routes sent to the forwarding engine.
    pub(crate) finished: Finished,
}

impl Router {
    pub(crate) fn new(key: HashKey, profile: &Profile, finished: Finished) -> Self {
        let mut rib = Rib::new(RibConfig::new(key));
        rib.hold_fib_sync(true);
        Self {
            rib: RefCell::new(rib),
            bell: watch::Sender::new(()),
            origins: RefCell::default(),
            readiness: RefCell::new(Readiness::new(Instant::now())),
            distances: RefCell::default(),
            statics: RefCell::default(),
            bfd: Cell::new(false),
            configured: Notify::new(),
            subscribers: RefCell::default(),
            in_flight: Cell::new(0),
            lost: Cell::new(false),
            depths: Depths::default(),
            arriving: profile.point(&RIB_IN),
            queued: profile.point(&RIB_QUEUED),
            sent: profile.point(&RIB_SENT),
            clients: RefCell::default(),
            last_client: Cell::new(0),
            finished,
        }
    }

    /// Changes the table and lets everybody look what follows.
    pub(crate) fn change<T>(&self, act: impl FnOnce(&mut Rib) -> T) -> T {
        let seen = self.queued.now().map(|_| self.quietly(|rib| rib.changes_end()));
        let ((result, lengths), _) = turn("change", || self.quietly(|rib| (act(rib), rib.log_lengths())));
        for (high, length) in self.depths.logs.iter().zip(lengths) {
            high.see(length as u64);
        }
        if let Some(seen) = seen {
            self.queued.pass(|| self.quietly(|rib| rib.changes_since(seen)));
        }
        self.ring();
        result
    }

    /// Looks at the table, or fetches something from it.
    pub(crate) fn quietly<T>(&self, act: impl FnOnce(&mut Rib) -> T) -> T {
        act(&mut self.rib.borrow_mut())
    }

    /// Tells everybody that something may have changed.
    pub(crate) fn ring(&self) {
        self.bell.send_replace(());
    }

    /// A bell that rings for every change from now on. Take it before looking, then wait.
    pub(crate) fn bell(&self) -> Bell {
        Bell(self.bell.subscribe())
    }
}

/// Wakes a task after a change.
pub(crate) struct Bell(watch::Receiver<()>);

impl Bell {
    /// Waits until something may have changed since the last time.
    pub(crate) async fn rings(&mut self) {
        // The sender lives as long as the router, and no task outlives that.
        if self.0.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

/// Clients that register interest.
impl Router {
    /// The client at the other end of a channel. Its interest ends with the channel.
    pub(crate) fn client(self: &Rc<Self>, channel: &Channel) -> ClientId {
        if let Some(&client) = self.clients.borrow().get(&channel.id()) {
            return client;
        }
        let client = self.next_client();
        self.clients.borrow_mut().insert(channel.id(), client);
        let (router, channel) = (Rc::clone(self), channel.clone());
        spawn_task(async move {
            channel.closed().await;
            router.clients.borrow_mut().remove(&channel.id());
            router.change(|rib| rib.client_gone(client));
        });
        client
    }

    fn next_client(&self) -> ClientId {
        let clients = self.clients.borrow();
        loop {
            let client = ClientId(self.last_client.get().wrapping_add(1));
            self.last_client.set(client.0);
            if clients.values().all(|used| *used != client) {
                return client;
            }
        }
    }
}

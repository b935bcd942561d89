//! All state of the manager.

use std::{
    cell::{Cell, RefCell},
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
    sync::Arc,
    time::Instant,
};

use holdfast_api::keeper::v1::{Empty, KeeperClient, LimitHangsRequest, ProcessEvent, SignalRequest};
use holdfast_config::{Config, Schema};
use holdfast_process::{Closed, Processes, metrics::High};
use holdfast_xrl::{Channel, Finder, Resolver};
use rustix::process::Signal;
use tokio::{
    sync::{Mutex, Notify},
    task::JoinHandle,
};

use crate::{
    doors::Doors, protocols::Protocols, seeds::Seeds, share::text::Sharing, supervisor::Supervisor, tcp,
    text::Text, turns::Turns,
};

/// All state.
pub(crate) struct Manager {
    /// What the router is made of.
    pub(crate) processes: Processes,
    /// What a configuration of it may say.
    pub(crate) schema: Schema,
    /// What runs, or is about to.
    pub(crate) config: RefCell<Arc<Config>>,
    /// The text that says it.
    pub(crate) text: RefCell<Arc<Text>>,
    pub(crate) file: PathBuf,
    /// What keys of QUIC derive from.
    pub(crate) seeds: Seeds,
    /// What rolls back a commit that nobody confirms.
    pub(crate) rollback: RefCell<Option<JoinHandle<()>>>,
    /// One reload or commit at a time.
    pub(crate) reloading: Mutex<()>,
    /// To tell one process its configuration.
    pub(crate) turns: Turns,
    pub(crate) sharing: Sharing,
    /// Peers and ranges whose connections are to be given other options, until bgp has heard of it.
    pub(crate) refit: RefCell<BTreeSet<String>>,
    pub(crate) supervisor: RefCell<Supervisor>,
    pub(crate) finder: Finder,
    pub(crate) keeper: KeeperClient,
    pub(crate) resolver: Resolver,
    /// What is due may have changed.
    pub(crate) changed: Notify,
    /// A process has taken its configuration.
    pub(crate) running: Notify,
    /// A process has ended.
    pub(crate) ended: Notify,
    /// Processes that have given their place up and live on, as the keeper says of them, by their ids.
    pub(crate) retired: RefCell<BTreeMap<u32, ProcessEvent>>,
    /// What the keeper says of this manager.
    pub(crate) own: RefCell<ProcessEvent>,
    /// What the keeper was started from.
    pub(crate) keeper_build: RefCell<String>,
    /// The keeper has said what runs already.
    pub(crate) synced: Notify,
    /// Connections of operators.
    pub(crate) operators: Cell<usize>,
    pub(crate) most_operators: High,
    pub(crate) born: Instant,
    /// What has closed this process, and with it every other: they run on one kernel.
    pub(crate) closed: Closed,
    /// Sockets of those that others start.
    pub(crate) protocols: RefCell<Protocols>,
    /// Connections to the Finder of programs that the router starts for others, by the name of the protocol.
    pub(crate) outsiders: RefCell<Vec<(String, Channel)>>,
    /// Where XRL listens on TCP.
    pub(crate) tcp: RefCell<Vec<tcp::Open>>,
    /// Where sockets of VRFs come from while no fea runs.
    pub(crate) doors: Doors,
}

impl Manager {
    pub(crate) fn config(&self) -> Arc<Config> {
        Arc::clone(&self.config.borrow())
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.supervisor.borrow().is_stopping()
    }

    pub(crate) fn pid(&self, name: &str) -> Option<u32> {
        self.supervisor.borrow().process(name).and_then(|process| process.state.life()).map(|(pid, _)| pid)
    }

    /// Tells the keeper when a process counts as hung. One of an earlier build does not want to know.
    pub(crate) fn limit_hangs(&self) {
        let limit = self.config().router.hang_limit;
        let limit_milliseconds = u64::try_from(limit.as_millis()).unwrap_or(u64::MAX);
        self.keeper.limit_hangs(LimitHangsRequest { limit_milliseconds }).detach();
    }

    /// Tells the keeper that this life has configured a process. A keeper of an earlier build does not want to know.
    pub(crate) fn tell_of_work(&self) {
        self.keeper.configured(Empty {}).detach();
    }

    /// `reason` is how its death is described, if it is wanted.
    pub(crate) fn signal(&self, pid: u32, signal: Signal, reason: &str) {
        let signal = signal.as_raw().unsigned_abs();
        self.keeper.signal(SignalRequest { pid, signal, reason: reason.to_owned() }).detach();
    }
}

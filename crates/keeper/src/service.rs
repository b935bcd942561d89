//! The keeper's interface, and the events that reach it.

use std::{cell::RefCell, ffi::OsString, os::fd::OwnedFd, path::PathBuf, rc::Rc};

use anyhow::Result;
use holdfast_api::{
    keeper::v1::{self as api, Empty, KeeperDispatcher, KeeperServer, ProcessEvent},
    manager::v1::{AdoptRequest, Empty as ManagerEmpty, ManagerClient},
};
use holdfast_process::OPERATOR_SOCKET;
use holdfast_xrl::{CallContext, Client, Node, PeerIdentity, ReplySink, XrlError};
use rustix::{
    net::{AddressFamily, SocketFlags, SocketType},
    process::Signal,
};
use tokio::sync::{Notify, broadcast};
use tracing::{info, warn};

use crate::{
    children::{Children, Starter, signal},
    store::{Full, MOST_PER_OWNER, OnDeath, Store},
};

/// Deaths that a slow listener may be behind.
const EVENTS: usize = 256;
/// The processes that can be started: nothing else is ever executed.
const NAMES: [&str; 3] = ["fea", "rib", "bgp"];

/// All state.
pub(crate) struct Keeper {
    node: Node,
    starter: Starter,
    children: RefCell<Children>,
    store: RefCell<Store>,
    manager: RefCell<Option<ManagerClient>>,
    manager_born: Notify,
    events: broadcast::Sender<ProcessEvent>,
    /// The manager has stopped everything.
    pub(crate) stopped: Notify,
}

/// What is served: calls reach the keeper through this.
struct Served(Rc<Keeper>);

impl Keeper {
    pub(crate) fn new(
        binary: PathBuf,
        environment: Vec<(String, String)>,
        manager_arguments: Vec<OsString>,
        listener: OwnedFd,
    ) -> Result<Rc<Self>> {
        let keeper = Rc::new(Self {
            node: Node::new("keeper"),
            starter: Starter { binary, environment, manager_arguments },
            children: RefCell::default(),
            store: RefCell::new(Store::new(MOST_PER_OWNER)),
            manager: RefCell::default(),
            manager_born: Notify::new(),
            events: broadcast::Sender::new(EVENTS),
            stopped: Notify::new(),
        });
        let kept = keeper.store.borrow_mut().put("manager", OPERATOR_SOCKET, listener, OnDeath::Keep);
        debug_assert_eq!(kept, Ok(()));
        keeper.node.serve(KeeperDispatcher::new(Served(Rc::clone(&keeper))));
        Ok(keeper)
    }

    /// Starts a process and attaches to it.
    fn spawn(&self, name: &str) -> Result<(u32, holdfast_xrl::Channel)> {
        let (pid, channel) = self.starter.start(name)?;
        self.children.borrow_mut().born(name, pid);
        let channel = self.node.attach(channel, PeerIdentity::new(name).pid(pid))?;
        Ok((pid, channel))
    }

    pub(crate) fn spawn_manager(&self) -> Result<()> {
        let (pid, channel) = self.spawn("manager")?;
        info!(pid, "manager started");
        self.manager.replace(Some(ManagerClient::new(channel)));
        self.manager_born.notify_waiters();
        Ok(())
    }

    /// Takes note of the dead: what they wanted closed is closed. Whether the manager was among them.
    pub(crate) fn reap(&self) -> bool {
        let mut manager = false;
        loop {
            let dead = self.children.borrow_mut().reap();
            let Some((name, pid, ended)) = dead else { return manager };
            self.store.borrow_mut().owner_died(&name);
            if name == "manager" {
                warn!(pid, "manager ended: {ended}");
                self.manager.replace(None);
                manager = true;
            }
            // Nobody listens while there is no manager; the next one asks what runs.
            let _ = self.events.send(ProcessEvent { name, pid, ended, synced: false });
        }
    }

    /// Asks the manager to stop everything.
    pub(crate) async fn ask_to_stop(&self) -> Result<(), XrlError> {
        let manager = self.manager.borrow().clone();
        let manager = manager.ok_or_else(|| XrlError::unavailable("it is not running"))?;
        manager.stop(ManagerEmpty {}).await?;
        Ok(())
    }

    /// Asks the manager to read the configuration again.
    pub(crate) fn ask_to_reload(&self) {
        match &*self.manager.borrow() {
            Some(manager) => manager.reload(ManagerEmpty {}).detach(),
            None => {
                warn!("no reload: the manager is not running; the next one reads the configuration anyway");
            }
        }
    }

    /// Ends what still runs.
    pub(crate) fn kill_all(&self) {
        for (name, pid) in self.children.borrow().iter() {
            if name != "manager" {
                warn!(name, pid, "killed");
            }
            let _ = signal(pid, Signal::KILL);
        }
    }

    fn living(&self) -> Vec<ProcessEvent> {
        let children = self.children.borrow();
        let event =
            |(name, pid): (&str, u32)| ProcessEvent { name: name.to_owned(), pid, ..Default::default() };
        children.iter().map(event).collect()
    }

    /// Hands the manager one end of a new socket pair, which is `peer`'s way to the Finder; the other end.
    async fn introduce(&self, peer: &PeerIdentity) -> Result<OwnedFd, XrlError> {
        loop {
            let manager = self.manager.borrow().clone();
            let Some(manager) = manager else {
                self.manager_born.notified().await;
                continue;
            };
            let flags = SocketFlags::CLOEXEC;
            let pair = rustix::net::socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None);
            let (ours, theirs) =
                pair.map_err(|error| XrlError::unavailable(format!("no socket pair: {error}")))?;
            let request = AdoptRequest { name: peer.role.clone(), pid: peer.pid };
            match manager.adopt(request, vec![theirs]).await {
                Ok(_) => return Ok(ours),
                // It died meanwhile: the next one is asked, once its death has been noticed.
                Err(_) if manager.channel().is_closed() => tokio::task::yield_now().await,
                Err(error) => return Err(error),
            }
            if self.manager.borrow().as_ref().is_some_and(|now| now.channel().id() == manager.channel().id())
            {
                self.manager_born.notified().await;
            }
        }
    }
}

fn one(fds: Vec<OwnedFd>) -> Result<OwnedFd, XrlError> {
    fds.into_iter().next().ok_or_else(|| XrlError::invalid_argument("no descriptor came with the call"))
}

impl KeeperServer for Served {
    async fn spawn(&self, _: &CallContext, request: api::SpawnRequest) -> Result<api::SpawnReply, XrlError> {
        if !NAMES.contains(&request.name.as_str()) {
            return Err(XrlError::invalid_argument(format!("there is no process {:?}", request.name)));
        }
        match self.0.spawn(&request.name) {
            Ok((pid, _)) => Ok(api::SpawnReply { pid }),
            Err(error) => Err(XrlError::unavailable(format!("{error:#}"))),
        }
    }

    async fn signal(&self, _: &CallContext, request: api::SignalRequest) -> Result<Empty, XrlError> {
        let number = i32::try_from(request.signal).ok().and_then(Signal::from_named_raw);
        let number = number.ok_or_else(|| XrlError::invalid_argument("no such signal"))?;
        if !self.0.children.borrow().is_ours(request.pid) {
            return Err(XrlError::not_found(format!("{} is no process of this router", request.pid)));
        }
        signal(request.pid, number).map_err(|error| XrlError::internal(error.to_string()))?;
        Ok(Empty {})
    }

    async fn processes(
        &self,
        _: &CallContext,
        _: Empty,
        mut replies: ReplySink<ProcessEvent>,
    ) -> Result<(), XrlError> {
        let mut events = self.0.events.subscribe();
        for event in self.0.living() {
            replies.send(event).await?;
        }
        replies.send(ProcessEvent { synced: true, ..Default::default() }).await?;
        while let Ok(event) = events.recv().await {
            replies.send(event).await?;
        }
        Err(XrlError::unavailable("too far behind: ask again"))
    }

    async fn put(
        &self,
        cx: &CallContext,
        request: api::PutRequest,
        fds: Vec<OwnedFd>,
    ) -> Result<Empty, XrlError> {
        let on_death = match request.on_death() {
            api::OnDeath::Close => OnDeath::Close,
            api::OnDeath::Keep => OnDeath::Keep,
        };
        let kept = self.0.store.borrow_mut().put(&cx.peer().role, &request.key, one(fds)?, on_death);
        kept.map_err(|Full| XrlError::unavailable(format!("{MOST_PER_OWNER} descriptors are kept already")))?;
        Ok(Empty {})
    }

    async fn get(
        &self,
        cx: &CallContext,
        request: api::GetRequest,
    ) -> Result<(Empty, Vec<OwnedFd>), XrlError> {
        let kept = self.0.store.borrow().get(&cx.peer().role, &request.key);
        match kept {
            Some(Ok(copy)) => Ok((Empty {}, vec![copy])),
            Some(Err(error)) => Err(XrlError::unavailable(error.to_string())),
            None => Err(XrlError::not_found(format!("nothing is kept as {:?}", request.key))),
        }
    }

    async fn drop(&self, cx: &CallContext, request: api::GetRequest) -> Result<Empty, XrlError> {
        self.0.store.borrow_mut().drop_key(&cx.peer().role, &request.key);
        Ok(Empty {})
    }

    async fn list(&self, _: &CallContext, _: Empty) -> Result<api::ListReply, XrlError> {
        let store = self.0.store.borrow();
        let kept = store.list().map(|(owner, key, on_death)| api::Kept {
            owner: owner.to_owned(),
            key: key.to_owned(),
            on_death: match on_death {
                OnDeath::Close => api::OnDeath::Close.into(),
                OnDeath::Keep => api::OnDeath::Keep.into(),
            },
        });
        Ok(api::ListReply { kept: kept.collect() })
    }

    async fn attach_finder(&self, cx: &CallContext, _: Empty) -> Result<(Empty, Vec<OwnedFd>), XrlError> {
        Ok((Empty {}, vec![self.0.introduce(cx.peer()).await?]))
    }

    async fn stopped(&self, _: &CallContext, _: Empty) -> Result<Empty, XrlError> {
        self.0.stopped.notify_one();
        Ok(Empty {})
    }
}

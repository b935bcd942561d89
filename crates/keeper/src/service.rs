//! The keeper's interface, and the events that reach it.

use std::{
    cell::{Cell, OnceCell, RefCell},
    ffi::{OsStr, OsString},
    fs::File,
    os::{fd::OwnedFd, unix::ffi::OsStrExt},
    path::Path,
    rc::Rc,
    time::{Duration, Instant},
};

use anyhow::Result;
use holdfast_api::{
    keeper::v1::{self as api, Empty, KeeperDispatcher, KeeperServer, ProcessEvent},
    manager::v1::{AdoptRequest, Empty as ManagerEmpty, ManagerClient},
};
use holdfast_process::{
    BUILD, Binary, Cgroup, DESCRIPTOR, ENVIRONMENT, Limits, OPERATOR_SOCKET, OUTSIDER, Processes, Settings,
    formats::Formats, log,
};
use holdfast_xrl::{CallContext, Client, Node, PeerIdentity, ReplySink, XrlError};
use rustix::process::Signal;
use tokio::sync::{Notify, broadcast};
use tracing::{info, warn};

use crate::{
    children::{Build, Child, Children, Record, formats, pair, signal},
    hang::{DEFAULT_LIMIT, Hangs},
    known_files, metrics, namespace,
    options::Options,
    output::Output,
    outsiders::Outsider,
    store::{Full, Kept, LONGEST_NOTE, MOST_PER_OWNER, OnDeath, Store},
    systemd::Systemd,
    told::{copies, describe, on_death},
    watched,
};

/// Deaths that a slow listener may be behind.
pub(crate) const EVENTS: usize = 256;
/// How the death of a process is described that is started again from another binary.
const UPGRADE: &str = "upgrade";
/// The same of one that makes way for the sessions of another router.
const MAKES_WAY: &str = "made way for other sessions";

/// All state.
pub(crate) struct Keeper {
    pub(crate) node: Node,
    pub(crate) options: Options,
    /// What is logged, unless the environment says it.
    log_filter: RefCell<String>,
    log_format: RefCell<String>,
    /// How the manager is confined.
    manager_sandbox: RefCell<api::Sandbox>,
    /// What it may start besides the manager.
    pub(crate) processes: Processes,
    /// Of the runtime directory.
    pub(crate) lock: File,
    /// What the keeper itself was started from.
    own: Rc<Build>,
    /// What processes are started from.
    pub(crate) build: RefCell<Rc<Build>>,
    pub(crate) children: RefCell<Children>,
    pub(crate) store: RefCell<Store>,
    pub(crate) hangs: RefCell<Hangs>,
    /// There is somebody new among them, or another limit.
    pub(crate) hangs_changed: Notify,
    pub(crate) systemd: Systemd,
    manager: RefCell<Option<ManagerClient>>,
    /// The manager has configured a process in this life.
    pub(crate) manager_has_configured: Cell<bool>,
    pub(crate) manager_changed: Notify,
    pub(crate) events: broadcast::Sender<ProcessEvent>,
    /// The manager has stopped everything.
    pub(crate) stopped: Notify,
    /// Another binary is to take over once the manager has ended.
    pub(crate) succession: Cell<bool>,
    /// It is about to: nobody is introduced to anybody.
    pub(crate) leaving: Cell<bool>,
    /// Where the processes have their limits, if the keeper has found a place for that.
    cgroup: OnceCell<Cgroup>,
}

/// What is served: calls reach the keeper through this.
struct Served(Rc<Keeper>);

impl Keeper {
    /// A keeper of nothing.
    pub(crate) fn empty(options: Options, processes: Processes, lock: File, own: Build) -> Result<Rc<Self>> {
        let own = Rc::new(own);
        let keeper = Rc::new(Self {
            node: Node::new("keeper"),
            log_filter: options.log_filter.clone().into(),
            log_format: options.log_format.clone().into(),
            manager_sandbox: options.sandbox.clone().into(),
            options,
            processes,
            lock,
            build: RefCell::new(Rc::clone(&own)),
            own,
            children: RefCell::default(),
            store: RefCell::new(Store::new(MOST_PER_OWNER)),
            hangs: RefCell::new(Hangs::new(DEFAULT_LIMIT)),
            hangs_changed: Notify::new(),
            systemd: Systemd::from_environment(),
            manager: RefCell::default(),
            manager_has_configured: Cell::default(),
            manager_changed: Notify::new(),
            events: broadcast::Sender::new(EVENTS),
            stopped: Notify::new(),
            succession: Cell::default(),
            leaving: Cell::default(),
            cgroup: OnceCell::new(),
        });
        keeper.node.serve(KeeperDispatcher::new(Served(Rc::clone(&keeper))));
        metrics::register(&keeper);
        Ok(keeper)
    }

    /// The keeper of a new router, which has nothing but the operator's socket.
    pub(crate) fn new(
        options: Options,
        processes: Processes,
        lock: File,
        listener: OwnedFd,
    ) -> Result<Rc<Self>> {
        let keeper = Self::empty(options, processes, lock, Build::own(None)?)?;
        let listener =
            Kept { descriptor: listener, on_death: OnDeath::Keep(None), deadline: None, note: None };
        let kept = keeper.store.borrow_mut().put("manager", OPERATOR_SOCKET, listener);
        debug_assert_eq!(kept, Ok(()));
        Ok(keeper)
    }

    /// Makes room for the processes' cgroups, if it can.
    pub(crate) fn claim_cgroup(&self) {
        match Cgroup::claim() {
            Ok(cgroup) => drop(self.cgroup.set(cgroup)),
            Err(error) => info!(
                event = "limits-missing",
                "processor time is not limited, and memory by RLIMIT_DATA: {error}"
            ),
        }
    }

    pub(crate) fn cgroup(&self) -> Option<&Cgroup> {
        self.cgroup.get()
    }

    /// A process may be silent for so long from now on; zero: for ever.
    pub(crate) fn limit_hangs(&self, limit: Duration) {
        let mut hangs = self.hangs.borrow_mut();
        if hangs.limit() != limit {
            hangs.set_limit(limit);
            self.hangs_changed.notify_one();
        }
    }

    /// What is logged, as far as the file says it.
    pub(crate) fn log_filter(&self) -> String {
        self.log_filter.borrow().clone()
    }

    /// The form of that.
    pub(crate) fn log_format(&self) -> String {
        self.log_format.borrow().clone()
    }

    /// How the next manager is confined.
    pub(crate) fn manager_sandbox(&self) -> api::Sandbox {
        self.manager_sandbox.borrow().clone()
    }

    /// What processes are told by environment.
    pub(crate) fn environment(&self) -> Vec<(String, String)> {
        let or = |name: &str, text: &String| std::env::var(name).unwrap_or_else(|_| text.clone());
        vec![
            (log::LEVEL.to_owned(), or(log::LEVEL, &self.log_filter.borrow())),
            (log::FORMAT.to_owned(), or(log::FORMAT, &self.log_format.borrow())),
        ]
    }

    /// Starts a process of ours and attaches to it.
    fn spawn(&self, name: &str, sandbox: api::Sandbox) -> Result<(u32, Child)> {
        let mut arguments = vec![OsString::from(name)];
        if name == "manager" {
            // Links in it are followed anew each time it is read.
            let file = std::path::absolute(&self.options.configuration)?;
            arguments.extend(["--config".into(), file.into_os_string()]);
        }
        let build = Rc::clone(&self.build.borrow());
        let environment = vec![(BUILD.to_owned(), build.name.clone())];
        let (pid, channel) = self.start(name, &arguments, sandbox, environment, None)?;
        let child = self.attach(name, pid, channel, build.name.clone())?;
        Ok((pid, child))
    }

    /// Starts a program of somebody else, by way of the router's binary, and attaches to it. It is of no build of ours.
    fn spawn_outsider(&self, name: &str, outsider: Outsider) -> Result<(u32, Child)> {
        let Outsider { descriptor, sandbox, hang_limit } = outsider;
        let arguments = [OUTSIDER.into(), name.into()];
        let environment = vec![(DESCRIPTOR.to_owned(), descriptor)];
        let (output, theirs) = Output::new()?;
        let (pid, channel) = self.start(name, &arguments, sandbox, environment, Some(theirs))?;
        let child = self.attach(name, pid, channel, String::new())?;
        output.follow(self, name, pid);
        hang_limit.iter().for_each(|limit| self.hangs.borrow_mut().set_limit_of(pid, *limit));
        Ok((pid, child))
    }

    /// Starts the router's binary; its process id and our end of its channel.
    fn start(
        &self,
        name: &str,
        arguments: &[OsString],
        sandbox: api::Sandbox,
        more: Vec<(String, String)>,
        output: Option<OwnedFd>,
    ) -> Result<(u32, OwnedFd)> {
        let limits = limits(&sandbox);
        let mut settings = settings(sandbox);
        if self.cgroup.get().is_none() {
            settings.memory = limits.memory;
        }
        let mut environment = self.environment();
        environment.push((ENVIRONMENT.to_owned(), settings.to_text()));
        environment.extend(more);
        let (pid, channel) = self.build.borrow().start(arguments, &environment, output)?;
        if let Some(Err(error)) = self.cgroup.get().map(|cgroup| cgroup.limit(name, pid, limits)) {
            warn!(event = "limits-missing", process = name, pid, "its limits are not in force: {error}");
        }
        Ok((pid, channel))
    }

    /// Takes a process into care: it may call what its name allows.
    pub(crate) fn attach(&self, name: &str, pid: u32, channel: OwnedFd, build: String) -> Result<Child> {
        let channel = self.node.attach(channel, PeerIdentity::new(name).pid(pid))?;
        let child = Child {
            name: name.to_owned(),
            is_retired: false,
            build,
            channel,
            reason: String::new(),
            hung: false,
            was_busy: false,
            page: None,
            longest_turn: 0,
        };
        let own = self.processes.named(name).and_then(|process| process.hang_limit);
        self.hangs.borrow_mut().born(pid, name, own);
        self.hangs_changed.notify_one();
        self.children.borrow_mut().living.insert(pid, child.clone());
        // The keeper before may have given it one.
        self.find_page(pid);
        Ok(child)
    }

    /// The same for one that has given this name up.
    pub(crate) fn attach_retired(&self, name: &str, pid: u32, channel: OwnedFd, build: String) -> Result<()> {
        self.attach(name, pid, channel, build)?;
        if let Some(child) = self.children.borrow_mut().living.get_mut(&pid) {
            child.is_retired = true;
        }
        Ok(())
    }

    pub(crate) fn spawn_manager(&self) -> Result<()> {
        let (pid, manager) = self.spawn("manager", self.manager_sandbox())?;
        info!(event = "process-started", process = "manager", pid, "manager started");
        self.manager.replace(Some(ManagerClient::new(manager.channel)));
        self.manager_changed.notify_waiters();
        Ok(())
    }

    /// Takes note of the dead: what they wanted closed is closed. Whether the manager was among them.
    pub(crate) fn reap(&self) -> bool {
        let mut manager = false;
        loop {
            let dead = self.children.borrow_mut().reap();
            let Some((child, pid, ended)) = dead else { return manager };
            // Who has retired has left what it had here to its successor.
            if !child.is_retired {
                self.store.borrow_mut().owner_died(&child.name, Instant::now());
            }
            self.hangs.borrow_mut().died(pid);
            self.forget_page(pid);
            self.forget_output(pid);
            if child.name == "manager" {
                warn!(event = "process-ended", process = "manager", pid, "manager ended: {ended}");
                self.manager.replace(None);
                manager = true;
            }
            let event = self.event(pid, &child);
            // Nobody listens while there is no manager; the next one asks what runs.
            let _ = self.events.send(ProcessEvent { ended, ..event });
        }
    }

    /// Closes what its owner has not come back for.
    pub(crate) fn expire(&self) {
        for (owner, key) in self.store.borrow_mut().expire(Instant::now()) {
            warn!(event = "descriptor-closed", owner, key, "closed: its owner stayed away");
        }
    }

    /// When [`Self::expire`] has something to do next.
    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        self.store.borrow().next_deadline()
    }

    /// The manager, if one runs.
    pub(crate) fn manager(&self) -> Result<ManagerClient, XrlError> {
        self.manager.borrow().clone().ok_or_else(|| XrlError::unavailable("it is not running"))
    }

    /// Asks the manager to stop everything.
    pub(crate) async fn ask_to_stop(&self) -> Result<(), XrlError> {
        self.manager()?.stop(ManagerEmpty {}).await?;
        Ok(())
    }

    /// Has the manager read the configuration again, and logs what comes of it.
    pub(crate) async fn reload(self: Rc<Self>) {
        self.systemd.reloading();
        match self.manager() {
            // What it answers it has logged.
            Ok(manager) => drop(manager.reload(ManagerEmpty {}).await),
            Err(_) => {
                warn!(
                    event = "reload-refused",
                    "no reload: the manager is not running; the next one reads the configuration anyway"
                );
            }
        }
        self.systemd.ready();
    }

    /// Ends what still runs.
    pub(crate) fn kill_all(&self) {
        for (&pid, child) in &self.children.borrow().living {
            if child.name != "manager" {
                warn!(event = "process-killed", process = child.called(), pid, "killed");
            }
            let _ = signal(pid, Signal::KILL);
        }
    }

    /// Sends a signal to a process, with what to call its death.
    fn signal(&self, pid: u32, number: Signal, reason: String) -> Result<(), XrlError> {
        let mut children = self.children.borrow_mut();
        let Some(child) = children.living.get_mut(&pid) else {
            return Err(XrlError::not_found(format!("{pid} is no process of this router")));
        };
        signal(pid, number).map_err(|error| XrlError::internal(error.to_string()))?;
        if !reason.is_empty() {
            child.reason = reason;
        }
        Ok(())
    }

    /// Ends the process of this name, and waits until it is no more.
    pub(crate) async fn end_process(&self, name: &str) -> Result<(), XrlError> {
        let mut events = self.events.subscribe();
        let is_it = |child: &Child| child.name == name && !child.is_retired;
        let living = |(pid, child): (&u32, &Child)| is_it(child).then_some(*pid);
        let pids: Vec<u32> = self.children.borrow().living.iter().filter_map(living).collect();
        for pid in pids {
            self.signal(pid, Signal::KILL, MAKES_WAY.into())?;
            while self.children.borrow().living.contains_key(&pid) {
                // Whoever is too far behind looks again.
                let _ = events.recv().await;
            }
        }
        Ok(())
    }

    fn living(&self) -> Vec<ProcessEvent> {
        self.children.borrow().living.iter().map(|(&pid, child)| self.event(pid, child)).collect()
    }

    /// What there is to say of a process.
    fn event(&self, pid: u32, child: &Child) -> ProcessEvent {
        let Record { deaths, last_exit, last_end, hung, was_busy: _ } =
            self.children.borrow().record(child.called());
        ProcessEvent {
            name: child.called().to_owned(),
            pid,
            build: child.build.clone(),
            restarts: deaths,
            last_exit,
            last_end,
            hung,
            retired_from: child.retired_from(),
            ..ProcessEvent::default()
        }
    }

    /// A process gives its place up. It is heard of at once, whoever listens.
    pub(crate) fn retire(&self, pid: u32) -> Result<(), XrlError> {
        let mut children = self.children.borrow_mut();
        let child = children.living.get_mut(&pid);
        let child =
            child.ok_or_else(|| XrlError::not_found(format!("{pid} is no process of this router")))?;
        child.is_retired = true;
        let child = child.clone();
        drop(children);
        info!(event = "process-retired", process = child.name, pid, "lives on as {}", child.called());
        let _ = self.events.send(self.event(pid, &child));
        Ok(())
    }

    /// Refuses who may not have copies of what is kept for `owner`.
    fn may_read(&self, caller: &PeerIdentity, owner: &str) -> Result<(), XrlError> {
        let process = self.processes.named(&caller.role);
        if process.is_some_and(|process| process.reads_kept_of.contains(&owner)) {
            return Ok(());
        }
        Err(XrlError::denied(format!("what is kept for {owner:?} is not for {}", caller.role)))
    }

    fn keep(&self, owner: &str, key: &str, kept: Kept) -> Result<Empty, XrlError> {
        let kept = self.store.borrow_mut().put(owner, key, kept);
        kept.map_err(|Full| XrlError::unavailable(format!("{MOST_PER_OWNER} descriptors are kept already")))?;
        Ok(Empty {})
    }

    /// Returns when another keeper is about to take this one's place.
    async fn until_leaving(&self) {
        loop {
            let mut changed = std::pin::pin!(self.manager_changed.notified());
            changed.as_mut().enable();
            if self.leaving.get() {
                return;
            }
            changed.await;
        }
    }

    /// Hands the manager one end of a new socket pair, which is `peer`'s way to the Finder; the other end.
    async fn introduce(&self, peer: &PeerIdentity) -> Result<OwnedFd, XrlError> {
        loop {
            if self.leaving.get() {
                return Err(XrlError::unavailable("the keeper is being replaced: ask again"));
            }
            let manager = self.manager.borrow().clone();
            let Some(manager) = manager else {
                self.manager_changed.notified().await;
                continue;
            };
            let (ours, theirs) =
                pair().map_err(|error| XrlError::unavailable(format!("no socket pair: {error}")))?;
            let request = AdoptRequest { name: peer.role.clone(), pid: peer.pid };
            match manager.adopt(request, vec![theirs]).await {
                Ok(_) => return Ok(ours),
                // It died meanwhile: the next one is asked, once its death has been noticed.
                Err(_) if manager.channel().is_closed() => tokio::task::yield_now().await,
                Err(error) => return Err(error),
            }
            if self.manager.borrow().as_ref().is_some_and(|now| now.channel().id() == manager.channel().id())
            {
                self.manager_changed.notified().await;
            }
        }
    }
}

fn one(fds: Vec<OwnedFd>) -> Result<OwnedFd, XrlError> {
    fds.into_iter().next().ok_or_else(|| XrlError::invalid_argument("no descriptor came with the call"))
}

/// What a process is told of its sandbox.
fn settings(sandbox: api::Sandbox) -> Settings {
    let user = Some(sandbox.user).filter(|user| *user != 0);
    let directories = sandbox.directories.into_iter().map(Into::into).collect();
    Settings { enforce: !sandbox.open, user, memory: None, directories }
}

fn limits(sandbox: &api::Sandbox) -> Limits {
    let memory = Some(sandbox.memory_octets).filter(|octets| *octets != 0);
    Limits { memory, cpu: Some(sandbox.cpu_percent).filter(|percent| *percent != 0) }
}

pub(crate) fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

impl KeeperServer for Served {
    async fn spawn(&self, _: &CallContext, request: api::SpawnRequest) -> Result<api::SpawnReply, XrlError> {
        let name = request.name.clone();
        let spawned = if request.descriptor.is_some() {
            let outsider = self.0.outsider(request);
            let outsider = outsider.map_err(|error| XrlError::denied(format!("{error:#}")))?;
            self.0.spawn_outsider(&name, outsider)
        } else if self.0.processes.named(&name).is_some() {
            self.0.spawn(&name, request.sandbox.unwrap_or_default())
        } else {
            return Err(XrlError::invalid_argument(format!("there is no process {name:?}")));
        };
        match spawned {
            Ok((pid, child)) => Ok(api::SpawnReply { pid, build: child.build }),
            Err(error) => Err(XrlError::unavailable(format!("{error:#}"))),
        }
    }

    async fn signal(&self, _: &CallContext, request: api::SignalRequest) -> Result<Empty, XrlError> {
        let number = i32::try_from(request.signal).ok().and_then(Signal::from_named_raw);
        let number = number.ok_or_else(|| XrlError::invalid_argument("no such signal"))?;
        self.0.signal(request.pid, number, request.reason)?;
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
        let build = self.0.own.name.clone();
        replies.send(ProcessEvent { synced: true, build, ..Default::default() }).await?;
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
        let on_death = on_death(request.on_death(), request.hold_milliseconds);
        if !self.0.is_ours(&cx.peer().role) {
            return Err(XrlError::denied("nothing is kept for programs of others"));
        }
        if request.note.len() > LONGEST_NOTE {
            return Err(XrlError::invalid_argument(format!("a note of more than {LONGEST_NOTE} octets")));
        }
        let descriptor = one(fds)?;
        // What a process has put in its last moment may arrive after the news of its death.
        let is_dead = !self.0.children.borrow().living.contains_key(&cx.peer().pid);
        let deadline = match on_death {
            OnDeath::Close if is_dead => return Ok(Empty {}),
            OnDeath::Keep(Some(hold)) if is_dead => Some(Instant::now() + hold),
            _ => None,
        };
        let kept = Kept { descriptor, on_death, deadline, note: Some(request.note) };
        self.0.keep(&cx.peer().role, &request.key, kept)
    }

    async fn get(
        &self,
        cx: &CallContext,
        request: api::GetRequest,
    ) -> Result<(Empty, Vec<OwnedFd>), XrlError> {
        let kept = self.0.store.borrow_mut().get(&cx.peer().role, &request.key);
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

    async fn get_many(
        &self,
        cx: &CallContext,
        request: api::GetManyRequest,
    ) -> Result<(api::GetManyReply, Vec<OwnedFd>), XrlError> {
        let mut store = self.0.store.borrow_mut();
        copies(&request.keys, |key| store.get(&cx.peer().role, key))
    }

    async fn list(&self, cx: &CallContext, _: Empty) -> Result<api::ListReply, XrlError> {
        let store = self.0.store.borrow();
        let caller = &cx.peer().role;
        let theirs = store.iter().filter(|(owner, ..)| caller == "manager" || caller == owner);
        let kept = theirs.map(|(owner, key, kept)| {
            let note = kept.note.clone().filter(|_| caller == owner);
            api::Kept { note, ..describe(owner, key, kept) }
        });
        Ok(api::ListReply { kept: kept.collect() })
    }

    async fn list_of(&self, cx: &CallContext, request: api::OfRequest) -> Result<api::ListReply, XrlError> {
        self.0.may_read(cx.peer(), &request.owner)?;
        let store = self.0.store.borrow();
        let kept = store
            .of(&request.owner)
            .map(|(key, _, kept)| api::Kept { note: None, ..describe(&request.owner, key, kept) });
        Ok(api::ListReply { kept: kept.collect() })
    }

    async fn get_of(
        &self,
        cx: &CallContext,
        request: api::GetOfRequest,
    ) -> Result<(api::GetManyReply, Vec<OwnedFd>), XrlError> {
        self.0.may_read(cx.peer(), &request.owner)?;
        let store = self.0.store.borrow();
        copies(&request.keys, |key| store.copy(&request.owner, key))
    }

    async fn put_of(
        &self,
        cx: &CallContext,
        request: api::PutOfRequest,
        fds: Vec<OwnedFd>,
    ) -> Result<Empty, XrlError> {
        let api::PutOfRequest { owner, put } = request;
        let put = put.unwrap_or_default();
        self.0.may_read(cx.peer(), &owner)?;
        let descriptor = one(fds)?;
        let on_death = on_death(put.on_death(), put.hold_milliseconds);
        let kept = Kept { descriptor, on_death, deadline: None, note: Some(String::new()) };
        self.0.keep(&owner, &put.key, kept)
    }

    async fn drop_of(&self, cx: &CallContext, request: api::DropOfRequest) -> Result<Empty, XrlError> {
        self.0.may_read(cx.peer(), &request.owner)?;
        if request.end {
            self.0.end_process(&request.owner).await?;
        }
        self.0.store.borrow_mut().forget(&request.owner);
        Ok(Empty {})
    }

    async fn configured(&self, cx: &CallContext, _: Empty) -> Result<Empty, XrlError> {
        // What one has said right before its end is not for the next one.
        if self.0.children.borrow().living.contains_key(&cx.peer().pid) {
            self.0.manager_has_configured.set(true);
        }
        Ok(Empty {})
    }

    async fn progress_page(
        &self,
        cx: &CallContext,
        _: Empty,
    ) -> Result<(api::ProgressPageReply, Vec<OwnedFd>), XrlError> {
        let caller = cx.peer();
        if !self.0.is_ours(&caller.role) {
            return Err(XrlError::denied("programs of others are not busy"));
        }
        if !self.0.children.borrow().living.contains_key(&caller.pid) {
            return Err(XrlError::not_found(format!("{} is no process of this router", caller.pid)));
        }
        let page = self.0.progress_page(caller.pid, &caller.role);
        let (last_was_busy, page) = page.map_err(|error| XrlError::unavailable(error.to_string()))?;
        Ok((api::ProgressPageReply { last_was_busy }, vec![page]))
    }

    async fn role(&self, _: &CallContext, _: Empty) -> Result<api::RoleReply, XrlError> {
        Ok(api::RoleReply { standby: self.0.options.standby })
    }

    async fn watch_kept(
        &self,
        cx: &CallContext,
        request: api::OfRequest,
        mut replies: ReplySink<api::KeptChanges>,
    ) -> Result<(), XrlError> {
        self.0.may_read(cx.peer(), &request.owner)?;
        tokio::select! {
            result = watched::tell(&self.0.store, &request.owner, &mut replies) => result,
            // A call that is under way would keep this keeper from being replaced.
            () = self.0.until_leaving() => Err(XrlError::unavailable("the keeper is being replaced: ask again")),
        }
    }

    async fn attach_finder(&self, cx: &CallContext, _: Empty) -> Result<(Empty, Vec<OwnedFd>), XrlError> {
        Ok((Empty {}, vec![self.0.introduce(cx.peer()).await?]))
    }

    async fn listen(
        &self,
        _: &CallContext,
        request: api::ListenRequest,
    ) -> Result<(Empty, Vec<OwnedFd>), XrlError> {
        let listener = self.0.listen(&request);
        let listener = listener.map_err(|error| XrlError::failed_precondition(format!("{error:#}")))?;
        Ok((Empty {}, vec![listener]))
    }

    async fn unlisten(&self, _: &CallContext, request: api::UnlistenRequest) -> Result<Empty, XrlError> {
        self.0.unlisten(&request.name);
        Ok(Empty {})
    }

    async fn socket(
        &self,
        _: &CallContext,
        request: api::SocketRequest,
    ) -> Result<(Empty, Vec<OwnedFd>), XrlError> {
        let socket = namespace::socket(&request);
        let socket = socket.map_err(|error| XrlError::failed_precondition(format!("{error:#}")))?;
        Ok((Empty {}, vec![socket]))
    }

    async fn open_file(
        &self,
        _: &CallContext,
        request: api::OpenFileRequest,
    ) -> Result<(Empty, Vec<OwnedFd>), XrlError> {
        let file = known_files::open(&request, &self.0.options.runtime_directory);
        let file = file.map_err(|error| XrlError::failed_precondition(format!("{error:#}")))?;
        Ok((Empty {}, vec![file]))
    }

    async fn limit_hangs(&self, _: &CallContext, request: api::LimitHangsRequest) -> Result<Empty, XrlError> {
        self.0.limit_hangs(Duration::from_millis(request.limit_milliseconds));
        Ok(Empty {})
    }

    async fn set_log(&self, _: &CallContext, request: api::LogFilter) -> Result<api::LogFilter, XrlError> {
        log::check(&request.filter).map_err(|error| XrlError::invalid_argument(error.to_string()))?;
        self.0.log_filter.replace(request.filter.clone());
        if !request.format.is_empty() {
            self.0.log_format.replace(request.format.clone());
        }
        let filter = std::env::var(log::LEVEL).unwrap_or(request.filter);
        let format = std::env::var(log::FORMAT).unwrap_or(request.format);
        log::set("keeper", &filter, &format);
        Ok(api::LogFilter { filter, format })
    }

    async fn forget(&self, _: &CallContext, request: api::ForgetRequest) -> Result<Empty, XrlError> {
        // What the keeper itself needs of the manager is not to be given up.
        if self.0.processes.named(&request.owner).is_none() {
            return Err(XrlError::invalid_argument(format!(
                "{:?} is no process of this router",
                request.owner
            )));
        }
        self.0.store.borrow_mut().forget(&request.owner);
        Ok(Empty {})
    }

    async fn confine_manager(&self, _: &CallContext, request: api::Sandbox) -> Result<Empty, XrlError> {
        self.0.manager_sandbox.replace(request);
        Ok(Empty {})
    }

    async fn turns(&self, _: &CallContext, _: Empty) -> Result<api::TurnsReply, XrlError> {
        let children = self.0.children.borrow();
        let hangs = self.0.hangs.borrow();
        let longest = |(&pid, child): (&u32, &Child)| api::LongestTurn {
            pid,
            microseconds: child.longest_turn,
            busy_milliseconds: hangs.busy(pid).map_or(0, milliseconds),
        };
        Ok(api::TurnsReply { turns: children.living.iter().map(longest).collect() })
    }

    async fn retire(&self, cx: &CallContext, _: Empty) -> Result<Empty, XrlError> {
        self.0.retire(cx.peer().pid)?;
        Ok(Empty {})
    }

    async fn stopped(&self, _: &CallContext, _: Empty) -> Result<Empty, XrlError> {
        self.0.stopped.notify_one();
        Ok(Empty {})
    }

    async fn use_binary(
        &self,
        _: &CallContext,
        request: api::UseBinaryRequest,
        fds: Vec<OwnedFd>,
    ) -> Result<Empty, XrlError> {
        let build = match fds.into_iter().next() {
            None => Rc::clone(&self.0.own),
            Some(file) => {
                let path = Path::new(OsStr::from_bytes(&request.path));
                let binary = Binary::offered(file.into(), path)
                    .map_err(|error| XrlError::failed_precondition(error.to_string()))?;
                let build = Rc::new(Build { binary, name: request.build });
                self.0.try_out(&build).await.map_err(|error| {
                    let text = format!("a keeper of {} cannot take over: {error:#}", build.name);
                    XrlError::failed_precondition(text)
                })?;
                build
            }
        };
        info!(event = "build-offered", build = build.name, path = %build.binary.path().display(), "processes are started from this binary");
        self.0.build.replace(build);
        Ok(Empty {})
    }

    async fn examine(
        &self,
        _: &CallContext,
        request: api::UseBinaryRequest,
        fds: Vec<OwnedFd>,
    ) -> Result<api::ExamineReply, XrlError> {
        let path = Path::new(OsStr::from_bytes(&request.path));
        let binary = Binary::offered(one(fds)?.into(), path)
            .map_err(|error| XrlError::failed_precondition(error.to_string()))?;
        let new = formats(&binary).await;
        let new = new.map_err(|error| XrlError::failed_precondition(format!("{error:#}")))?;
        let own = Formats::own(&self.0.processes).map_err(|error| XrlError::internal(error.to_string()))?;
        let obstacles = new.obstacles(&own);
        Ok(api::ExamineReply { build: new.build, obstacles })
    }

    async fn hand_over(&self, _: &CallContext, _: Empty) -> Result<Empty, XrlError> {
        let manager = self.0.living().into_iter().find(|process| process.name == "manager");
        let manager = manager.ok_or_else(|| XrlError::internal("it calls and does not live"))?;
        self.0.succession.set(true);
        self.0.signal(manager.pid, Signal::KILL, UPGRADE.to_owned())?;
        Ok(Empty {})
    }
}

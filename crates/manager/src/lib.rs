//! The manager: reads the configuration, hosts the Finder, decides what runs, and answers the operator about it.
//!
//! Its death stops nothing: what runs goes on, attaches to the next manager, and is configured again, which changes
//! nothing where nothing has changed. Begin with [`run`]; the decisions of starting and restarting are in
//! `supervisor`, what each process is told is in `configure`, how another configuration takes the place of the one that
//! runs in `reload`, and how it becomes the file, is kept as a version and rolled back in `commit`.

mod back_off;
mod birth;
mod commit;
mod configure;
mod doors;
mod file;
mod history;
mod metrics;
mod protocols;
mod reload;
mod sandbox;
mod secrets;
mod seeds;
mod service;
mod signal;
mod supervisor;
mod tcp;
#[cfg(test)]
mod tests;
mod upgrade;

use std::{
    cell::{Cell, RefCell},
    collections::VecDeque,
    io,
    path::{Path, PathBuf},
    rc::Rc,
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use holdfast_api::{
    keeper::v1::{
        Empty, GetRequest, LimitHangsRequest, LogFilter, ProcessEvent, SignalRequest, SpawnRequest,
    },
    log::v1::{Level, LogClient},
    socket::v1::SocketDispatcher,
};
use holdfast_config::{Config, Holds, List, Schema};
use holdfast_process::{Boot, OPERATOR_SOCKET, Processes, metrics::High, spawn_task};
use holdfast_sockets::{Custody, Place, SocketService};
use holdfast_tls::files;
use holdfast_xrl::{Channel, ErrorKind, Finder, Lifecycle, Link, PeerIdentity, XrlError};
use rustix::process::Signal;
use tokio::net::{UnixListener, UnixStream};
use tracing::{info, warn};

pub use crate::sandbox::sandbox;
use crate::{
    birth::wanted,
    doors::Doors,
    reload::Candidate,
    seeds::Seeds,
    service::Manager,
    supervisor::{Action, Found, Supervisor},
};

/// A process that takes its configuration takes no longer than this.
const CONFIGURE_LIMIT: Duration = Duration::from_secs(20);
/// Pause before a configuration that was refused is sent again.
const CONFIGURE_RETRY: Duration = Duration::from_secs(2);
/// Connections that operators may have at a time: for one more the oldest is closed.
const MOST_OPERATORS: usize = 256;
/// Pause after a connection could not be accepted: out of descriptors, most likely.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Reads and checks a configuration file.
///
/// # Errors
/// As text for the operator: every mistake with its line.
pub fn read_configuration(file: &Path, schema: Schema) -> Result<Config, String> {
    parse(&read_text(file)?, &file.display().to_string(), file, schema)
}

fn read_text(file: &Path) -> Result<String, String> {
    holdfast_sys::file::text(file).map_err(|error| format!("{}: {error}", file.display()))
}

/// `name` is how errors call the text, `file` where it is, or is to be: files that it names are beside it.
fn parse(text: &str, name: &str, file: &Path, schema: Schema) -> Result<Config, String> {
    let directory = file.parent().unwrap_or(Path::new(""));
    let read = |name: &str, holds: Holds<'_>| named(&directory.join(name), holds);
    let config = holdfast_config::parse_with(text, name, schema, &read);
    let mut config = config.map_err(|diagnostics| diagnostics.to_string())?;
    tcp::read_keys(&mut config, file)?;
    Ok(config)
}

/// What a file holds that the configuration names. Of other directories than the configuration's, this process may read
/// nothing once it runs.
fn named(file: &Path, holds: Holds<'_>) -> Result<Vec<Vec<u8>>, String> {
    let held = match holds {
        Holds::List(List::Certificates) => files::certificates(file),
        Holds::List(List::Authorities) => files::authorities(file),
        Holds::List(List::Revocations) => files::revocations(file),
        Holds::KeyOf(certificates) => files::private_key(file, certificates).map(|key| vec![key]),
        Holds::Text => files::text(file).map(|text| vec![text]),
    };
    held.map_err(|error| match error.starts_with("Permission denied") {
        true => format!(
            "{error}: it has to belong to the router's user, in the directory of the configuration or below"
        ),
        false => error,
    })
}

/// Does something that takes the longer the more is configured, while others are answered: a turn of the event loop has to be
/// short.
pub(crate) async fn apart<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, XrlError> {
    tokio::task::spawn_blocking(work).await.map_err(|error| XrlError::internal(error.to_string()))
}

/// The life of the manager of a router that is made of these processes.
///
/// # Errors
/// The configuration cannot be read, or the keeper is gone.
pub async fn run(boot: Boot, processes: Processes, schema: Schema, configuration: PathBuf) -> Result<()> {
    let fault = |text: String| anyhow::anyhow!("{text}");
    history::restore(&configuration);
    let candidate = Candidate::read(&configuration, schema).await;
    let Candidate { text, config } = candidate.map_err(|error| fault(error.message().to_owned()))?;
    let now = Instant::now();
    let boot = Rc::new(boot);
    let finder = Finder::new();
    let manager = Rc::new(Manager {
        supervisor: Supervisor::new(&wanted(&processes, &config), now).into(),
        processes,
        schema,
        config: RefCell::new(config),
        text: RefCell::new(text.into()),
        seeds: Seeds::default(),
        rollback: RefCell::default(),
        file: configuration,
        reloading: tokio::sync::Mutex::new(()),
        restart: RefCell::default(),
        finder: finder.clone(),
        keeper: boot.keeper.clone(),
        resolver: boot.resolver.clone(),
        changed: tokio::sync::Notify::new(),
        running: tokio::sync::Notify::new(),
        ended: tokio::sync::Notify::new(),
        retired: RefCell::default(),
        own: RefCell::default(),
        keeper_build: RefCell::default(),
        synced: tokio::sync::Notify::new(),
        operators: Cell::default(),
        most_operators: High::default(),
        born: now,
        closed: boot.closed,
        protocols: RefCell::default(),
        tcp: RefCell::default(),
        doors: Doors::new(Rc::clone(&boot)),
    });
    metrics::register(&boot.metrics, &manager);
    boot.metrics.relay(holdfast_xrl::Client::channel(&boot.keeper).clone());
    sandbox::log(manager.config().sandbox.mode, boot.closed);
    note(&manager.config());
    boot.node.serve(holdfast_api::manager::v1::ManagerDispatcher::new(service::Served(Rc::clone(&manager))));
    if !manager.config().rib.enabled {
        // Nobody else opens sockets then.
        let custody = Custody::new(boot.keeper.clone(), None);
        boot.node.serve(SocketDispatcher::new(SocketService::new(Place::Here, Some(custody))));
    }
    commit::resume(&manager);
    let (near, far) = Link::pair();
    let identity = PeerIdentity::new("manager").class("socket").pid(std::process::id());
    finder.attach_link(near, identity);
    boot.resolver.rejoin_link(far).await?;

    manager.limit_hangs();
    let listener = boot.keeper.get(GetRequest { key: OPERATOR_SOCKET.into() }).await?.1;
    let listener = listener.into_iter().next().context("the keeper has no operator's socket")?;
    spawn_task(operators(UnixListener::from_std(listener.into())?, Rc::clone(&manager)));
    protocols::follow(&manager).await;
    tcp::follow(&manager)?;
    manager.doors.follow(&manager.config()).await?;
    spawn_task(seeds::rotate(Rc::clone(&manager)));
    if !manager.config().rib.enabled {
        configure::tell_all(&manager, "manager")
            .await
            .context("configuring the sockets that the manager opens")?;
    }
    tokio::select! {
        result = deaths(&manager) => result,
        () = supervise(&manager) => Ok(()),
    }
}

/// Says what is allowed, and may not be what was meant.
fn note(config: &Config) {
    config.notes().iter().for_each(|note| warn!(event = "configuration-note", "{note}"));
}

/// Accepts operators' connections.
async fn operators(listener: UnixListener, manager: Rc<Manager>) {
    let mut open = VecDeque::new();
    loop {
        match listener.accept().await {
            Ok((stream, _)) => match operator(stream, &manager.finder) {
                Ok(channel) => {
                    admit(&mut open, channel);
                    manager.operators.set(open.len());
                    manager.most_operators.see(open.len() as u64);
                }
                Err(error) => warn!(event = "accept-failed", "an operator's connection: {error}"),
            },
            Err(error) => {
                warn!(event = "accept-failed", "accepting an operator's connection: {error}");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

fn operator(stream: UnixStream, finder: &Finder) -> io::Result<Channel> {
    // Who it is goes along with every call, for the history of the configuration.
    let instance = stream.peer_cred()?.uid().to_string();
    let identity = PeerIdentity { role: "operator".into(), instance, ..PeerIdentity::default() };
    finder.attach(stream.into_std()?.into(), identity)
}

/// Connections that somebody has forgotten to close must not keep the next operator out.
fn admit(open: &mut VecDeque<Channel>, newest: Channel) {
    open.retain(|channel| !channel.is_closed());
    if open.len() >= MOST_OPERATORS
        && let Some(oldest) = open.pop_front()
    {
        warn!(
            event = "too-many-operators",
            "{MOST_OPERATORS} operators are connected: closing the oldest connection"
        );
        oldest.close();
    }
    open.push_back(newest);
}

/// What the keeper says of processes: what runs when this manager begins, and what ends.
async fn deaths(manager: &Rc<Manager>) -> Result<()> {
    loop {
        let mut events = manager.keeper.processes(Empty {});
        while let Ok(Some(event)) = events.next().await {
            told(manager, event);
        }
        anyhow::ensure!(!holdfast_xrl::Client::channel(&manager.keeper).is_closed(), "the keeper is gone");
    }
}

fn told(manager: &Rc<Manager>, event: ProcessEvent) {
    let now = Instant::now();
    if event.synced {
        manager.keeper_build.replace(event.build);
        manager.synced.notify_one();
    } else if !event.retired_from.is_empty() {
        retired(manager, event, now);
    } else if event.ended.is_empty() {
        if event.name == "manager" {
            manager.own.replace(event);
        } else {
            let ProcessEvent { name, pid, build, restarts, last_exit, last_end, hung, .. } = &event;
            let found = Found { name, pid: *pid, build, restarts: *restarts, last_exit };
            let known = manager.supervisor.borrow_mut().found(&found, now);
            manager.supervisor.borrow_mut().remember(name, last_end, *hung);
            info!(event = "process-found", process = event.name, pid = event.pid, known, "runs already");
            if !known {
                // Of an earlier configuration.
                manager.signal(event.pid, Signal::TERM, "");
            }
        }
    } else {
        let is_wanted = manager.supervisor.borrow().process(&event.name).is_some();
        if is_wanted && !manager.is_stopping() {
            warn!(event = "process-ended", process = event.name, pid = event.pid, "ended: {}", event.ended);
        }
        manager.supervisor.borrow_mut().ended(&event.name, event.pid, &event.ended, now);
        manager.supervisor.borrow_mut().remember(&event.name, &event.last_end, event.hung);
        manager.ended.notify_waiters();
    }
    manager.changed.notify_one();
}

/// A process has given its place up, or one that had has ended. Told a second time, nothing is new.
fn retired(manager: &Manager, event: ProcessEvent, now: Instant) {
    let ProcessEvent { name, pid, ended, retired_from, .. } = &event;
    if ended.is_empty() {
        manager.supervisor.borrow_mut().retired(retired_from, *pid, now);
        manager.retired.borrow_mut().insert(*pid, event);
    } else {
        manager.retired.borrow_mut().remove(pid);
        info!(event = "process-ended", process = name, pid, "ended: {ended}");
    }
    manager.ended.notify_waiters();
}

/// Whoever registers at the Finder is told its configuration.
async fn births(manager: Rc<Manager>) {
    let mut watch = manager.resolver.watch("*");
    while let Ok(event) = watch.next().await {
        if let Lifecycle::Birth(instance) = event {
            let action =
                manager.supervisor.borrow_mut().registered(&instance.class, instance.pid, Instant::now());
            if let Some(Action::Configure(name)) = action {
                spawn_task(configure(Rc::clone(&manager), name, instance.pid));
            }
        }
    }
}

/// Tells a process its configuration, again and again while it lives and refuses.
async fn configure(manager: Rc<Manager>, name: &'static str, pid: u32) {
    // It did not answer before.
    let mut is_doubtful = false;
    loop {
        let result = configure::tell_all(&manager, name).await;
        if !manager.supervisor.borrow().is_alive(name, pid) {
            return;
        }
        match result {
            Ok(()) => {
                info!(event = "process-running", process = name, pid, "running");
                manager.supervisor.borrow_mut().configured(name);
                manager.running.notify_waiters();
                return;
            }
            // It has died, most likely: its end is told in a moment, and that is what there is to say of it.
            Err(error) if is_gone(&error) && !std::mem::replace(&mut is_doubtful, true) => {
                let ended = async {
                    while manager.supervisor.borrow().is_alive(name, pid) {
                        manager.ended.notified().await;
                    }
                };
                let _ = tokio::time::timeout(CONFIGURE_RETRY, ended).await;
            }
            Err(error) => {
                warn!(
                    event = "configuration-refused",
                    process = name,
                    pid,
                    "does not take its configuration: {error}"
                );
                manager.supervisor.borrow_mut().refused(name, error.to_string());
                tokio::time::sleep(CONFIGURE_RETRY).await;
            }
        }
    }
}

/// Whether nobody is there who could have refused.
fn is_gone(error: &XrlError) -> bool {
    matches!(error.kind(), ErrorKind::Disconnected | ErrorKind::NotFound | ErrorKind::Unavailable)
}

/// Starts what is due, until everything has been stopped.
async fn supervise(manager: &Rc<Manager>) {
    // What runs already is not to be started a second time; and a birth means something only to who knows what runs.
    manager.synced.notified().await;
    spawn_task(births(Rc::clone(manager)));
    loop {
        let actions = manager.supervisor.borrow_mut().due(Instant::now());
        for action in actions {
            if let Action::Spawn(name) = action {
                spawn(manager, name).await;
            }
        }
        let next = manager.supervisor.borrow().next_due();
        let due = async {
            match next {
                Some(at) => tokio::time::sleep_until(at.into()).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! { () = due => {} () = manager.changed.notified() => {} }
    }
}

async fn spawn(manager: &Rc<Manager>, name: &'static str) {
    let sandbox = Some(sandbox(name, &manager.config(), &manager.processes));
    let result = manager.keeper.spawn(SpawnRequest { name: name.into(), sandbox }).await;
    let now = Instant::now();
    let mut supervisor = manager.supervisor.borrow_mut();
    match result {
        Ok(reply) => supervisor.spawned(name, reply.pid, reply.build, now),
        Err(error) => {
            warn!(event = "process-failed", process = name, "cannot be started: {error}");
            supervisor.spawn_failed(name, error.to_string(), now);
        }
    }
}

/// Has everybody log by another filter. One that cannot be told now is told at its next start.
async fn set_log(manager: Rc<Manager>, filter: String) {
    let filter = match manager.keeper.set_log(LogFilter { filter }).await {
        Ok(in_effect) => in_effect.filter,
        Err(error) => return warn!(event = "log-failed", "the keeper keeps its log as it is: {error}"),
    };
    holdfast_process::log::set("manager", &filter);
    let names: Vec<_> = manager.supervisor.borrow().processes().iter().map(|process| process.name).collect();
    for name in names {
        let (manager, filter) = (Rc::clone(&manager), filter.clone());
        spawn_task(async move {
            let told = async {
                let process: LogClient = manager.resolver.client(name).await?;
                process.set_level(Level { filter }).await
            };
            let late = |_| Err(XrlError::timeout("no answer"));
            if let Err(error) = tokio::time::timeout(CONFIGURE_LIMIT, told).await.unwrap_or_else(late) {
                warn!(event = "log-failed", process = name, "keeps its log as it is: {error}");
            }
        });
    }
}

impl Manager {
    /// Starts what a new configuration wants besides, and ends what it does not.
    pub(crate) fn want(&self, config: &Config) {
        for pid in self.supervisor.borrow_mut().want(&wanted(&self.processes, config), Instant::now()) {
            self.signal(pid, Signal::TERM, "not wanted any more");
        }
        self.changed.notify_one();
    }

    /// Tells the keeper when a process counts as hung. One of an earlier build does not want to know.
    pub(crate) fn limit_hangs(&self) {
        let limit = self.config().router.hang_limit;
        let limit_milliseconds = u64::try_from(limit.as_millis()).unwrap_or(u64::MAX);
        self.keeper.limit_hangs(LimitHangsRequest { limit_milliseconds }).detach();
    }

    /// `reason` is how its death is described, if it is wanted.
    fn signal(&self, pid: u32, signal: Signal, reason: &str) {
        let signal = signal.as_raw().unsigned_abs();
        self.keeper.signal(SignalRequest { pid, signal, reason: reason.to_owned() }).detach();
    }
}

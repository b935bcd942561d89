//! The manager: reads the configuration, hosts the Finder, decides what runs, and answers the operator about it.
//!
//! Its death stops nothing: what runs goes on, attaches to the next manager, and is configured again, which changes
//! nothing where nothing has changed. Begin with [`run`]; the decisions of starting and restarting are in
//! `supervisor`, what each process is told is in `configure`, how another configuration takes the place of the one that
//! runs in `reload`, and how it becomes the file, is kept as a version and rolled back in `commit`.

mod apart;
mod birth;
mod births;
mod commit;
mod configure;
mod doors;
mod faults;
mod file;
mod history;
mod logging;
mod manager;
mod metrics;
mod outsiders;
mod protocols;
mod read;
mod reload;
mod replacement;
mod sandbox;
mod secrets;
mod seeds;
mod service;
mod share;
mod signal;
mod stop;
mod supervisor;
mod tcp;
mod text;
mod turns;
mod upgrade;

use std::{
    cell::{Cell, RefCell},
    collections::VecDeque,
    io,
    path::PathBuf,
    rc::Rc,
    time::Instant,
};

use anyhow::{Context, Result};
use holdfast_api::keeper::v1::{Empty, GetRequest, ProcessEvent};
use holdfast_config::Schema;
use holdfast_process::{Boot, OPERATOR_SOCKET, Processes, metrics::High, spawn_task};
use holdfast_xrl::{Channel, Finder, Link, PeerIdentity};
use rustix::process::Signal;
use tokio::net::{UnixListener, UnixStream};
use tracing::{info, warn};

use crate::{
    birth::{MANAGER, wanted},
    doors::Doors,
    manager::Manager,
    reload::Candidate,
    seeds::Seeds,
    supervisor::{Action, Found, Supervisor},
};
pub use crate::{
    configure::Message,
    read::read_configuration,
    reload::{Ending, Messages, Plan},
    sandbox::sandbox,
};

/// Connections that operators may have at a time: for one more the oldest is closed.
const MOST_OPERATORS: usize = 256;

/// The life of the manager of a router that is made of these processes.
///
/// # Errors
/// The configuration cannot be read, or the keeper is gone.
pub async fn run(boot: Boot, processes: Processes, schema: Schema, configuration: PathBuf) -> Result<()> {
    let fault = |text: String| anyhow::anyhow!("{text}");
    history::take_back(&configuration);
    history::restore(&configuration);
    let candidate = Candidate::read(&configuration, schema).await;
    let Candidate { text, config, .. } = candidate.map_err(|error| fault(error.message().to_owned()))?;
    let now = Instant::now();
    let boot = Rc::new(boot);
    let finder = Finder::new();
    let manager = Rc::new(Manager {
        supervisor: Supervisor::new(&wanted(&processes, &config), now).paced(&processes).into(),
        processes,
        schema,
        config: RefCell::new(config),
        text: RefCell::new(text),
        seeds: Seeds::default(),
        rollback: RefCell::default(),
        file: configuration,
        reloading: tokio::sync::Mutex::new(()),
        turns: turns::Turns::default(),
        sharing: share::text::Sharing::default(),
        refit: RefCell::default(),
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
        outsiders: RefCell::default(),
        tcp: RefCell::default(),
        doors: Doors::new(Rc::clone(&boot), finder.clone()),
    });
    metrics::register(&boot.metrics, &manager);
    boot.metrics.relay(holdfast_xrl::Client::channel(&boot.keeper).clone());
    sandbox::log(manager.config().sandbox.mode, boot.closed);
    read::note(&manager.config());
    boot.node.serve(holdfast_api::manager::v1::ManagerDispatcher::new(service::Served(Rc::clone(&manager))));
    commit::resume(&manager);
    let (near, far) = Link::pair();
    let identity = PeerIdentity::new(MANAGER).pid(std::process::id());
    finder.attach_link(near, identity);
    boot.resolver.rejoin_link(far).await?;

    manager.limit_hangs();
    let listener = boot.keeper.get(GetRequest { key: OPERATOR_SOCKET.into() }).await?.1;
    let listener = listener.into_iter().next().context("the keeper has no operator's socket")?;
    spawn_task(operators(UnixListener::from_std(listener.into())?, Rc::clone(&manager)));
    protocols::follow(&manager).await;
    tcp::follow(&manager)?;
    manager.doors.follow(&manager.config()).await?;
    spawn_task(seeds::rotation::rotate(Rc::clone(&manager)));
    for name in manager.sharing_processes() {
        spawn_task(share::taking::follow(Rc::clone(&manager), name));
    }
    if !manager.config().rib.enabled {
        configure::tell_all(&manager, "manager", || true)
            .await
            .context("configuring the sockets that the manager opens")?;
    }
    tokio::select! {
        result = deaths(&manager) => result,
        () = supervise(&manager) => Ok(()),
    }
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
                tokio::time::sleep(protocols::ACCEPT_PAUSE).await;
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

/// Starts what is due, until everything has been stopped.
async fn supervise(manager: &Rc<Manager>) {
    // What runs already is not to be started a second time; and a birth means something only to who knows what runs.
    manager.synced.notified().await;
    spawn_task(births::births(Rc::clone(manager)));
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
    let config = manager.config();
    let sandbox = sandbox(name, &config, &manager.processes);
    let result = manager.keeper.spawn(outsiders::request(name, &config, sandbox)).await;
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

//! The keeper: starts every process, keeps descriptors for them, and does little else, so that it never dies.
//!
//! It is `holdfast run`. It is the parent of all processes; the manager says which. What they put here outlives
//! them, or is closed at their death, as they wish. When the manager dies the keeper starts another.
//! Begin with [`run`]; [`store`] is the kept descriptors, [`children`] the processes, [`service`] what can be called,
//! [`progress`] how hung processes are found, [`systemd`] what a service manager hears, [`namespace`] the network namespaces in which sockets are made.
//! Another binary takes its place without an end of anything: [`handover`].

mod children;
mod handover;
mod hang;
mod known_files;
mod metrics;
mod namespace;
mod options;
mod output;
mod outsiders;
mod parcel;
mod progress;
mod service;
mod sockets;
mod store;
mod systemd;
#[cfg(test)]
mod tests;
mod told;
mod watchdog;
mod watched;

use std::{
    fs::{self, File},
    os::{
        fd::OwnedFd,
        unix::{fs::PermissionsExt, net::UnixListener},
    },
    path::Path,
    rc::Rc,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use holdfast_process::{
    CapabilitySet, Processes, SOCKET_NAME,
    back_off::{BackOff, FIRST_DELAY, Pauses},
    born_with, log, spawn_task,
};
use rustix::fs::{FlockOperation, flock};
use tokio::{
    signal::unix::{SignalKind, signal},
    task::LocalSet,
};
use tracing::{error, info, warn};

pub use holdfast_api::keeper::v1::Sandbox;

pub use crate::options::Options;
use crate::{handover::Handed, namespace::ENTERING, service::Keeper};

/// What the keeper keeps of its rights: what it takes to start processes as other users, to end them and to open
/// the router's files; and what one of them needs, which is born with no more than is here.
const CAPABILITIES: CapabilitySet = CapabilitySet::SETUID
    .union(CapabilitySet::SETGID)
    .union(CapabilitySet::SETPCAP)
    .union(CapabilitySet::KILL)
    .union(CapabilitySet::CHOWN)
    .union(CapabilitySet::DAC_OVERRIDE)
    .union(CapabilitySet::FOWNER)
    .union(CapabilitySet::NET_ADMIN)
    .union(CapabilitySet::NET_RAW)
    .union(CapabilitySet::NET_BIND_SERVICE)
    .union(CapabilitySet::SYS_NICE);

/// An orderly stop takes no longer than this.
const STOP_LIMIT: Duration = Duration::from_secs(30);
/// How long the manager's starts wait. A process that dies with it is not started before: BFD waits for 900 ms at most.
const MANAGER_PAUSES: Pauses = Pauses { slow: Duration::from_millis(250), longest: Duration::from_secs(5) };
/// A manager that lived this long has done its work, be it that there was nobody to configure.
const GOOD_LIFE: Duration = Duration::from_secs(60);

/// Runs the router of these processes until SIGTERM or SIGINT, then stops it in order. SIGHUP has the configuration read again.
///
/// # Errors
/// The runtime directory is in use or cannot be used; the stop was not orderly.
pub fn run(options: Options, processes: Processes) -> Result<()> {
    log::start("keeper", &options.log_filter, &options.log_format);
    let _named = log::process("keeper").entered();
    holdfast_sys::process::keep_descriptors().context("keeping inherited descriptors from processes")?;
    let directory = &options.runtime_directory;
    let lock = lock(directory)?;
    let listener = listen(directory)?;
    holdfast_sys::process::become_subreaper().context("becoming the parent of orphans")?;
    holdfast_sys::process::raise_open_files()?;
    take_rights()?;
    info!(event = "router-started", pid = std::process::id(), "router starts");
    let directory = directory.clone();
    live(&directory, || Keeper::new(options, processes, lock, listener))
}

/// Goes on where the keeper ended that has executed this program in its place, with what it left on standard input.
/// With `trial` it does nothing, but says on standard output that it could.
///
/// # Errors
/// What was handed over is not understood; and as [`run`].
pub fn take_over(trial: bool, processes: Processes) -> Result<()> {
    let handed = Handed::open(&born_with()?)?;
    if trial {
        return Handed::say_ready();
    }
    take_rights()?;
    // The kernel has named it after the descriptor that was executed.
    holdfast_sys::process::set_name("holdfast")?;
    log::start("keeper", &handed.options.log_filter, &handed.options.log_format);
    let _named = log::process("keeper").entered();
    info!(event = "handover-ended", "this keeper has taken over");
    let directory = handed.options.runtime_directory.clone();
    live(&directory, || handed.keeper(processes))
}

fn take_rights() -> Result<()> {
    holdfast_sys::process::set_no_new_privs()?;
    // For processes in real time. Where it fails, that process says so; where it was done, the next keeper has it.
    let _ = holdfast_sys::process::raise_locked_memory();
    holdfast_sys::process::limit_capabilities(CAPABILITIES.union(ENTERING))
        .context("dropping capabilities")?;
    holdfast_sys::process::lower_capabilities(ENTERING).context("putting capabilities away")
}

/// The life of a keeper, from whatever beginning.
fn live(directory: &Path, begin: impl FnOnce() -> Result<Rc<Keeper>>) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let result = LocalSet::new().block_on(&runtime, keep(begin));
    let _ = fs::remove_file(directory.join(SOCKET_NAME));
    sockets::remove_all(directory);
    result
}

/// One router per directory; the lock goes with this process, however it ends.
fn lock(directory: &Path) -> Result<File> {
    let create = || {
        fs::create_dir_all(directory)?;
        File::create(directory.join("holdfast.lock"))
    };
    let file = create().with_context(|| format!("the runtime directory {}", directory.display()))?;
    if flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
        bail!("a router is already running with the runtime directory {}", directory.display());
    }
    Ok(file)
}

fn listen(directory: &Path) -> Result<OwnedFd> {
    let path = directory.join(SOCKET_NAME);
    // What an earlier router left: the lock says that it is gone.
    let _ = fs::remove_file(&path);
    let listener =
        UnixListener::bind(&path).with_context(|| format!("the operator's socket {}", path.display()))?;
    fs::set_permissions(&path, fs::Permissions::from_mode(0o660))?;
    listener.set_nonblocking(true)?;
    Ok(listener.into())
}

async fn keep(begin: impl FnOnce() -> Result<Rc<Keeper>>) -> Result<()> {
    let mut deaths = signal(SignalKind::child())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut hangup = signal(SignalKind::hangup())?;
    let keeper = begin()?;
    keeper.claim_cgroup();
    // Those who died while one keeper became the other: their signal came to nobody.
    keeper.reap();
    spawn_task(watchdog::attend(Rc::clone(&keeper)));
    spawn_task(progress::attend(Rc::clone(&keeper)));
    let mut back_off = BackOff::new(MANAGER_PAUSES);
    let mut born = Instant::now();
    let mut manager_due = Some(born);
    let orderly = loop {
        tokio::select! {
            _ = deaths.recv() => {
                if keeper.reap() {
                    let did_work = keeper.manager_has_configured.take() || born.elapsed() >= GOOD_LIFE;
                    if keeper.succession.take() {
                        let error = keeper.hand_over().await;
                        error!(event = "handover-failed", "this keeper stays: {error:#}");
                        back_off.forgive();
                    }
                    let now = Instant::now();
                    manager_due = Some(now + back_off.died(did_work, now));
                }
            }
            () = until(manager_due) => {
                born = Instant::now();
                manager_due = None;
                if let Err(error) = keeper.spawn_manager() {
                    error!(event = "process-failed", "starting the manager: {error:#}");
                    // As long as after a life that did nothing, and never at once: there was no life.
                    manager_due = Some(born + back_off.died(false, born).max(FIRST_DELAY));
                }
            }
            () = until(keeper.next_deadline()) => keeper.expire(),
            _ = terminate.recv() => break stop(&keeper, &mut deaths).await,
            _ = interrupt.recv() => break stop(&keeper, &mut deaths).await,
            _ = hangup.recv() => drop(spawn_task(Rc::clone(&keeper).reload())),
            // An operator has asked the manager.
            () = keeper.stopped.notified() => break true,
        }
    };
    keeper.kill_all();
    anyhow::ensure!(orderly, "not all processes stopped in order: killed");
    info!(event = "router-stopped", "router stopped");
    Ok(())
}

/// Returns at this time; never if there is none.
async fn until(time: Option<Instant>) {
    match time {
        Some(at) => tokio::time::sleep_until(at.into()).await,
        None => std::future::pending().await,
    }
}

/// Asks the manager to stop everything; whether it did in time.
async fn stop(keeper: &Rc<Keeper>, deaths: &mut tokio::signal::unix::Signal) -> bool {
    info!(event = "stop-begun", "router stops");
    keeper.systemd.stopping();
    let limit = tokio::time::sleep(STOP_LIMIT);
    tokio::pin!(limit);
    let ask = keeper.ask_to_stop();
    tokio::pin!(ask);
    let mut asked = false;
    loop {
        tokio::select! {
            result = &mut ask, if !asked => {
                asked = true;
                if let Err(error) = result {
                    warn!(event = "stop-failed", "the manager cannot stop the router: {error}");
                    return false;
                }
            }
            _ = deaths.recv() => { keeper.reap(); }
            () = keeper.stopped.notified() => return true,
            () = &mut limit => return false,
        }
    }
}

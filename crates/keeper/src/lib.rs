//! The keeper: starts every process, keeps descriptors for them, and does little else, so that it never dies.
//!
//! It is `holdfast run`. It is the parent of all processes; the manager says which. What they put here outlives
//! them, or is closed at their death, as they wish. When the manager dies the keeper starts another.
//! Begin with [`run`]; [`store`] is the kept descriptors, [`children`] the processes, [`service`] what can be called.

mod children;
mod service;
mod store;

use std::{
    fs::{self, File},
    os::{
        fd::OwnedFd,
        unix::{fs::PermissionsExt, net::UnixListener},
    },
    path::{Path, PathBuf},
    rc::Rc,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use holdfast_process::{SOCKET_NAME, log};
use rustix::fs::{FlockOperation, flock};
use tokio::{
    signal::unix::{SignalKind, signal},
    task::LocalSet,
};
use tracing::{error, info, warn};

use crate::service::Keeper;

/// An orderly stop takes no longer than this.
const STOP_LIMIT: Duration = Duration::from_secs(30);
/// Pauses between the manager's lives.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LAST_PAUSE: Duration = Duration::from_secs(5);
/// A manager that lived this long is started again at once.
const GOOD_LIFE: Duration = Duration::from_secs(10);

/// How `holdfast run` was called.
#[derive(Clone, Debug)]
pub struct Options {
    /// The configuration file, which has been checked.
    pub configuration: PathBuf,
    /// Directory of the operator's socket; created if missing.
    pub runtime_directory: PathBuf,
    /// Level of the log, as the configuration says.
    pub log_level: String,
    /// "text" or "json".
    pub log_format: String,
}

/// Runs the router until SIGTERM or SIGINT, then stops it in order. SIGHUP has the configuration read again.
///
/// # Errors
/// The runtime directory is in use or cannot be used; the stop was not orderly.
pub fn run(options: Options) -> Result<()> {
    log::start(&options.log_level, &options.log_format);
    let _named = log::process("keeper").entered();
    let directory = &options.runtime_directory;
    let _lock = lock(directory)?;
    let listener = listen(directory)?;
    holdfast_sys::process::become_subreaper().context("becoming the parent of orphans")?;
    holdfast_sys::process::raise_open_files()?;
    holdfast_sys::process::set_no_new_privs()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let result = LocalSet::new().block_on(&runtime, keep(&options, listener));
    let _ = fs::remove_file(directory.join(SOCKET_NAME));
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

async fn keep(options: &Options, listener: OwnedFd) -> Result<()> {
    let environment = vec![
        (log::LEVEL.to_owned(), std::env::var(log::LEVEL).unwrap_or_else(|_| options.log_level.clone())),
        (log::FORMAT.to_owned(), std::env::var(log::FORMAT).unwrap_or_else(|_| options.log_format.clone())),
    ];
    // Links in it are followed anew each time it is read.
    let arguments = vec!["--config".into(), std::path::absolute(&options.configuration)?.into_os_string()];
    let keeper = Keeper::new(std::env::current_exe()?, environment, arguments, listener)?;
    let mut deaths = signal(SignalKind::child())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut hangup = signal(SignalKind::hangup())?;
    info!(pid = std::process::id(), "router starts");
    let mut pause = FIRST_PAUSE;
    let mut born = Instant::now();
    let mut manager_due = Some(born);
    let orderly = loop {
        let due = async {
            match manager_due {
                Some(at) => tokio::time::sleep_until(at.into()).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            _ = deaths.recv() => {
                if keeper.reap() {
                    pause = if born.elapsed() >= GOOD_LIFE { FIRST_PAUSE } else { (pause * 2).min(LAST_PAUSE) };
                    manager_due = Some(Instant::now() + pause);
                }
            }
            () = due => {
                born = Instant::now();
                manager_due = None;
                if let Err(error) = keeper.spawn_manager() {
                    error!("starting the manager: {error:#}");
                    pause = (pause * 2).min(LAST_PAUSE);
                    manager_due = Some(born + pause);
                }
            }
            _ = terminate.recv() => break stop(&keeper, &mut deaths).await,
            _ = interrupt.recv() => break stop(&keeper, &mut deaths).await,
            // The manager logs what comes of it.
            _ = hangup.recv() => keeper.ask_to_reload(),
            // An operator has asked the manager.
            () = keeper.stopped.notified() => break true,
        }
    };
    keeper.kill_all();
    anyhow::ensure!(orderly, "not all processes stopped in order: killed");
    info!("router stopped");
    Ok(())
}

/// Asks the manager to stop everything; whether it did in time.
async fn stop(keeper: &Rc<Keeper>, deaths: &mut tokio::signal::unix::Signal) -> bool {
    info!("router stops");
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
                    warn!("the manager cannot stop the router: {error}");
                    return false;
                }
            }
            _ = deaths.recv() => { keeper.reap(); }
            () = keeper.stopped.notified() => return true,
            () = &mut limit => return false,
        }
    }
}

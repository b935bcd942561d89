//! What every process does at start, and what it is given.
//!
//! A process is born with one channel to the keeper, as its standard input. [`run`] names it, takes its rights away,
//! starts its log and its one thread's event loop, and hands [`Boot`] to its body. It ends when the body does, or
//! when the keeper is gone. It opens nothing by itself.

use std::{
    fs::File,
    future::poll_fn,
    os::fd::{AsFd, OwnedFd},
    panic::{AssertUnwindSafe, catch_unwind},
    pin::pin,
    process::ExitCode,
    time::Duration,
};

use anyhow::{Context, Result};
use holdfast_api::{
    keeper::v1::{Empty, KeeperClient},
    profile::v1::ProfileDispatcher,
};
use holdfast_sandbox::Sandbox;
use holdfast_xrl::{Client, Node, PeerIdentity, XrlError};
use rustix::process::Signal;
use tokio::task::{JoinHandle, LocalSet, spawn_local};
use tracing::{debug, error};

mod binary;
pub mod formats;
pub mod log;
pub mod metrics;
pub mod profile;

pub use binary::{Binary, BinaryError};
pub use holdfast_sandbox::{
    CapabilitySet, Cgroup, Closed, ENVIRONMENT, Limits, Network, Rights, Settings, status,
};
pub use holdfast_xrl::Resolver;
use metrics::Metrics;
use profile::{Profile, ProfileService};

/// Name of the operator's socket in the runtime directory.
pub const SOCKET_NAME: &str = "holdfast.sock";
/// Key under which the keeper has that socket, as the manager's.
pub const OPERATOR_SOCKET: &str = "operator";

/// Pause before the keeper is asked again for a way to the Finder.
const RETRY: Duration = Duration::from_millis(20);

/// What a process is given.
pub struct Boot {
    /// What it serves; call [`Boot::join`] when all services are there.
    pub node: Node,
    /// The way to everybody else. Usable at once: it waits for [`Boot::join`] to reach the Finder.
    pub resolver: Resolver,
    /// The keeper.
    pub keeper: KeeperClient,
    /// Where routes pass.
    pub profile: Profile,
    /// What is counted.
    pub metrics: Metrics,
    /// What has closed this process.
    pub closed: Closed,
}

impl Boot {
    /// For a process that serves on `node` and has this keeper, with the services that all have in common.
    pub fn new(node: Node, keeper: KeeperClient) -> Self {
        let profile = Profile::default();
        node.serve(ProfileDispatcher::new(ProfileService(profile.clone())));
        let metrics = Metrics::of(&node);
        Self { resolver: node.resolver(), node, keeper, profile, metrics, closed: Closed::default() }
    }

    /// Registers at the Finder, and again whenever there is a new one.
    pub fn join(&self) {
        let (keeper, resolver) = (self.keeper.clone(), self.resolver.clone());
        spawn_task(async move {
            loop {
                match attach(&keeper, &resolver).await {
                    Ok(()) => resolver.finder_gone().await,
                    Err(error) => {
                        debug!("no way to the Finder: {error}");
                        tokio::time::sleep(RETRY).await;
                    }
                }
            }
        });
    }
}

/// Starts a task that the process cannot do without: its panic ends the process, which is then started again. Tokio
/// would drop the task and go on, with a listener that does not listen or timers that never expire.
pub fn spawn_task<T: 'static>(task: impl Future<Output = T> + 'static) -> JoinHandle<T> {
    spawn_local(async move {
        let mut task = pin!(task);
        poll_fn(|cx| {
            let polled = catch_unwind(AssertUnwindSafe(|| task.as_mut().poll(cx)));
            // What went wrong has been printed.
            polled.unwrap_or_else(|_| std::process::abort())
        })
        .await
    })
}

async fn attach(keeper: &KeeperClient, resolver: &Resolver) -> Result<(), XrlError> {
    let (_, fds) = keeper.attach_finder(Empty {}).await?;
    let fd = fds.into_iter().next().ok_or_else(|| XrlError::internal("the keeper sent no descriptor"))?;
    resolver.rejoin(fd).await
}

/// The life of a process, which keeps these rights and nothing else.
pub fn run<F>(rights: Rights, body: impl FnOnce(Boot) -> F) -> ExitCode
where
    F: Future<Output = Result<()>>,
{
    log::start(rights.name, "info", "text");
    let _named = log::process(rights.name).entered();
    match live(rights, body) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            error!(event = "process-failed", "{error:#}");
            ExitCode::FAILURE
        }
    }
}

fn live<F>(rights: Rights, body: impl FnOnce(Boot) -> F) -> Result<()>
where
    F: Future<Output = Result<()>>,
{
    let channel = born_with()?;
    let name = rights.name;
    holdfast_sys::process::set_name(name)?;
    holdfast_sys::process::raise_open_files()?;
    let sandbox = Sandbox::new(rights);
    sandbox.take_rights()?;
    // Also when this process is too busy to notice that the keeper is gone. Another user forgets it.
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    LocalSet::new().block_on(&runtime, async move {
        let closed = sandbox.close()?;
        let node = Node::new(name);
        node.be_sole();
        let keeper = KeeperClient::new(node.attach(channel, PeerIdentity::new("keeper"))?);
        let boot = Boot { closed, ..Boot::new(node, keeper.clone()) };
        tokio::select! {
            result = body(boot) => result,
            error = keeper.channel().closed() => anyhow::bail!("the keeper is gone: {error}"),
        }
    })
}

/// The socket that this process was started with, its way to the keeper. Standard input is nothing afterwards.
///
/// # Errors
/// When it is no socket: somebody has typed the command.
pub fn born_with() -> Result<OwnedFd> {
    let channel = std::io::stdin().as_fd().try_clone_to_owned()?;
    let socket = rustix::net::sockopt::socket_type(&channel);
    socket.context("this process is started by the keeper: use `holdfast run`")?;
    rustix::stdio::dup2_stdin(File::open("/dev/null")?)?;
    Ok(channel)
}

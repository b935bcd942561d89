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
use holdfast_api::keeper::v1::{Empty, KeeperClient};
use holdfast_xrl::{Client, Node, PeerIdentity, XrlError};
use rustix::process::Signal;
use tokio::task::{JoinHandle, LocalSet, spawn_local};
use tracing::{debug, error};

pub mod log;

pub use holdfast_sys::CapabilitySet;
pub use holdfast_xrl::Resolver;

/// Name of the operator's socket in the runtime directory.
pub const SOCKET_NAME: &str = "holdfast.sock";
/// Key under which the keeper has that socket, as the manager's.
pub const OPERATOR_SOCKET: &str = "operator";

/// Pause before the keeper is asked again for a way to the Finder.
const RETRY: Duration = Duration::from_millis(100);

/// What a process is given.
pub struct Boot {
    /// What it serves; call [`Boot::join`] when all services are there.
    pub node: Node,
    /// The way to everybody else. Usable at once: it waits for [`Boot::join`] to reach the Finder.
    pub resolver: Resolver,
    /// The keeper.
    pub keeper: KeeperClient,
}

impl Boot {
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

/// The life of the process `name`, which keeps only the capabilities `keep`.
pub fn run<F>(name: &'static str, keep: CapabilitySet, body: impl FnOnce(Boot) -> F) -> ExitCode
where
    F: Future<Output = Result<()>>,
{
    log::start("info", "text");
    let _named = log::process(name).entered();
    match live(name, keep, body) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            error!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

fn live<F>(name: &'static str, keep: CapabilitySet, body: impl FnOnce(Boot) -> F) -> Result<()>
where
    F: Future<Output = Result<()>>,
{
    let channel = born_with().context("this process is started by the keeper: use `holdfast run`")?;
    // Also when this process is too busy to notice that the keeper is gone.
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
    holdfast_sys::process::set_name(name)?;
    holdfast_sys::process::raise_open_files()?;
    holdfast_sys::process::set_no_new_privs().context("setting no_new_privs")?;
    holdfast_sys::process::keep_capabilities(keep).context("dropping capabilities")?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    LocalSet::new().block_on(&runtime, async move {
        let node = Node::new(name);
        let keeper = KeeperClient::new(node.attach(channel, PeerIdentity::new("keeper"))?);
        let boot = Boot { resolver: node.resolver(), node, keeper: keeper.clone() };
        tokio::select! {
            result = body(boot) => result,
            error = keeper.channel().closed() => anyhow::bail!("the keeper is gone: {error}"),
        }
    })
}

/// The channel to the keeper. Standard input is nothing afterwards.
fn born_with() -> Result<OwnedFd> {
    let channel = std::io::stdin().as_fd().try_clone_to_owned()?;
    rustix::net::sockopt::socket_type(&channel).context("standard input is no socket")?;
    rustix::stdio::dup2_stdin(File::open("/dev/null")?)?;
    Ok(channel)
}

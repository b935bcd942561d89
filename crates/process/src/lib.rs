//! What every process does at start, and what it is given.
//!
//! A process is born with one channel to the keeper, as its standard input. [`run`] names it, takes its rights away,
//! starts its log and its one thread's event loop, and hands [`Boot`] to its body. It ends when the body does, or
//! when the keeper is gone. It opens nothing by itself.

use std::{
    cell::RefCell,
    fs::File,
    future::poll_fn,
    hash::{BuildHasher, RandomState},
    os::fd::{AsFd, OwnedFd},
    panic::{AssertUnwindSafe, catch_unwind},
    process::ExitCode,
    rc::Rc,
    time::Duration,
};

use anyhow::{Context, Result};
use holdfast_api::{
    keeper::v1::{Empty, KeeperClient},
    log::v1::LogDispatcher,
    profile::v1::ProfileDispatcher,
};
use holdfast_sandbox::Sandbox;
use holdfast_types::HashKey;
use holdfast_xrl::{Client, Node, PeerIdentity, XrlError, scoped};
use rustix::process::Signal;
use tokio::{
    runtime::{Builder, LocalOptions, LocalRuntime},
    task::{AbortHandle, JoinHandle, spawn_local},
};
use tracing::{Span, debug, error, warn};

pub mod back_off;
mod binary;
mod configured;
mod descriptor;
mod dial;
pub mod formats;
pub mod heap;
pub mod kept;
mod listening;
pub mod log;
pub mod metrics;
mod outsider;
pub mod preparation;
pub mod profile;
pub mod progress;
mod reads;
mod sealed;
mod visitors;

pub use binary::{Binary, BinaryError};
pub use configured::{Configured, Part, ROWS, serve_configured};
pub use descriptor::{
    Command, DescriptorError, End, HangLimit, OLD_TRANSPORT, PROTOCOL, Process, Processes, User,
};
pub use dial::{Stream, dial};
pub use holdfast_sandbox::{
    CapabilitySet, Cgroup, Closed, ENVIRONMENT, Files, Limits, Network, RealTime, Rights, Settings, status,
};
pub use holdfast_xrl::Resolver;
pub use listening::Listening;
use metrics::Metrics;
pub use outsider::{DESCRIPTOR, OUTSIDER, OUTSIDERS, become_outsider};
pub use preparation::{Checks, Prepare, Prepared, Refusal, serve_preparation};
use profile::{Profile, ProfileService};
use progress::Progress;
pub use reads::{
    ConfigReader, ConfigureRequest, FilesToGive, MakeRequests, Reads, Refit, Secrets, policies, seconds,
};
pub use sealed::{seal, unseal};
pub use visitors::{Visit, serve_visitors};

/// Name of the operator's socket in the runtime directory.
pub const SOCKET_NAME: &str = "holdfast.sock";
/// Key under which the keeper has that socket, as the manager's.
pub const OPERATOR_SOCKET: &str = "operator";

/// In a process's environment: what it was started from, version and hash of the file.
pub const BUILD: &str = "HOLDFAST_BUILD";

/// Pause before the keeper is asked again for a way to the Finder.
const RETRY: Duration = Duration::from_millis(20);

/// Tasks that have their turn before sockets and timers are looked at. Where each turn takes the 10 ms that one may take, what
/// has come is noticed after 80 ms. With tokio's 61, and in its `LocalSet`, which knows no other number, it would take 610 ms.
const EVENT_INTERVAL: u32 = 8;

/// A key for the hash tables of this process, which nobody outside can guess.
pub fn hash_key() -> HashKey {
    HashKey::new([0_u64, 1].map(|word| RandomState::new().hash_one(word)))
}

/// What a process is given: for itself, or for one VRF ([`Boot::instance`]).
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
    /// What the keeper is told of finished work.
    pub progress: Progress,
    /// What has closed this process.
    pub closed: Closed,
    /// What it has got of real time; `None`: its rights have none.
    pub real_time: Option<RealTime>,
    /// The VRF that this is for; `None`: the default table.
    pub vrf: Option<Rc<str>>,
    membership: Membership,
}

/// What an instance has at the Finder, for as long as it lives. The process itself leaves with its descriptors.
#[derive(Default)]
struct Membership {
    /// The node of an instance.
    node: Option<Node>,
    joining: RefCell<Option<AbortHandle>>,
}

impl Drop for Membership {
    fn drop(&mut self) {
        if let Some(node) = &self.node {
            self.joining.take().iter().for_each(AbortHandle::abort);
            node.end();
        }
    }
}

impl Boot {
    /// For a process that serves on `node` and has this keeper, with the services that all have in common.
    pub fn new(node: Node, keeper: KeeperClient) -> Self {
        let profile = Profile::default();
        node.serve(ProfileDispatcher::new(ProfileService(profile.clone())));
        node.serve(LogDispatcher::new(log::LogService(node.class().to_owned())));
        let metrics = Metrics::of(&node);
        let (closed, real_time, membership) = Default::default();
        let (resolver, vrf, progress) = (node.resolver(), None, Progress::default());
        Self { resolver, node, keeper, profile, metrics, progress, closed, real_time, vrf, membership }
    }

    /// What the part of this process for a VRF is given, which the Finder knows under a class of its own ("rib@blue").
    /// It has the same keeper, and what it counts is told with the VRF. [Joining](Self::join) is its own, too. Dropped, it
    /// leaves the Finder, and its channels close; tasks that were started for it are for their owner to end.
    pub fn instance(&self, vrf: &str) -> Self {
        let vrf: Rc<str> = vrf.into();
        let node = Node::of_scope(self.node.class(), Rc::clone(&vrf));
        node.be_sole();
        let profile = Profile::default();
        node.serve(ProfileDispatcher::new(ProfileService(profile.clone())));
        let metrics = Metrics::of_vrf(&node, Rc::clone(&vrf));
        let membership = Membership { node: Some(node.clone()), joining: RefCell::default() };
        let (keeper, resolver, vrf) = (self.keeper.clone(), node.resolver(), Some(vrf));
        let (closed, real_time, progress) = (self.closed, self.real_time.clone(), self.progress);
        Self { resolver, node, keeper, profile, metrics, progress, closed, real_time, vrf, membership }
    }

    /// Leaves the Finder and whoever has called this: for them the process, or this instance, has died. The keeper
    /// has the process still. What is returned is for what goes on: it is found under this class, and joins on its
    /// own.
    pub fn retire(&self, class: &str) -> Self {
        self.membership.joining.take().iter().for_each(AbortHandle::abort);
        match &self.membership.node {
            Some(node) => node.end(),
            None => self.node.leave(self.keeper.channel()),
        }
        let node = Node::retired(class, self.vrf.clone());
        node.be_sole();
        let profile = Profile::default();
        node.serve(ProfileDispatcher::new(ProfileService(profile.clone())));
        let metrics = match &self.vrf {
            Some(vrf) => Metrics::of_vrf(&node, Rc::clone(vrf)),
            None => Metrics::of(&node),
        };
        let membership = Membership { node: Some(node.clone()), joining: RefCell::default() };
        let (keeper, resolver, vrf) = (self.keeper.clone(), node.resolver(), self.vrf.clone());
        let (closed, real_time, progress) = (self.closed, self.real_time.clone(), self.progress);
        Self { resolver, node, keeper, profile, metrics, progress, closed, real_time, vrf, membership }
    }

    /// The class under which others of the same VRF are found: "fea@blue" for "fea".
    pub fn class(&self, class: &str) -> String {
        scoped(class, self.vrf.as_deref())
    }

    /// What names the VRF in each line of the log; nothing for the default table. For `Instrument::instrument`.
    pub fn span(&self) -> Span {
        let class = self.node.class();
        match &self.vrf {
            Some(vrf) => log::vrf(class.split_once('@').map_or(class, |(process, _)| process), vrf),
            None => Span::none(),
        }
    }

    /// Registers at the Finder, and again whenever there is a new one.
    pub fn join(&self) {
        let (keeper, resolver) = (self.keeper.clone(), self.resolver.clone());
        let joining = spawn_task(async move {
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
        self.membership.joining.replace(Some(joining.abort_handle()));
    }
}

/// Starts a task that the process cannot do without: its panic ends the process, which is then started again. Tokio
/// would drop the task and go on, with a listener that does not listen or timers that never expire.
pub fn spawn_task<T: 'static>(task: impl Future<Output = T> + 'static) -> JoinHandle<T> {
    // An async block that pins what it has captured has room for it twice, and there are thousands of tasks.
    let mut task = Box::pin(task);
    spawn_local(poll_fn(move |cx| {
        let polled = catch_unwind(AssertUnwindSafe(|| task.as_mut().poll(cx)));
        // What went wrong has been printed.
        polled.unwrap_or_else(|_| std::process::abort())
    }))
}

async fn attach(keeper: &KeeperClient, resolver: &Resolver) -> Result<(), XrlError> {
    let (_, fds) = keeper.attach_finder(Empty {}).await?;
    let fd = fds.into_iter().next().ok_or_else(|| XrlError::internal("the keeper sent no descriptor"))?;
    resolver.rejoin(fd).await
}

/// The life of the process of this name, which keeps these rights and nothing else.
pub fn run<F>(name: &'static str, rights: Rights, body: impl FnOnce(Boot) -> F) -> ExitCode
where
    F: Future<Output = Result<()>>,
{
    log::start(name, "info", "text");
    let _named = log::process(name).entered();
    match live(name, rights, body) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            error!(event = "process-failed", "{error:#}");
            ExitCode::FAILURE
        }
    }
}

fn live<F>(name: &'static str, rights: Rights, body: impl FnOnce(Boot) -> F) -> Result<()>
where
    F: Future<Output = Result<()>>,
{
    let channel = born_with()?;
    holdfast_sys::process::set_name(name)?;
    holdfast_sys::process::raise_open_files()?;
    let sandbox = Sandbox::new(rights);
    let real_time = sandbox.take_rights()?;
    for refusal in real_time.iter().flat_map(RealTime::refusals) {
        warn!(event = "real-time-refused", "{refusal}");
    }
    // Also when this process is too busy to notice that the keeper is gone. Another user forgets it.
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
    holdfast_sys::heap::share();
    event_loop()?.block_on(async move {
        let closed = sandbox.close()?;
        let node = Node::new(name);
        node.be_sole();
        node.counts_turns(metrics::longest_turn);
        let keeper = KeeperClient::new(node.attach(channel, PeerIdentity::new("keeper"))?);
        // Before it has anything to do that may take long.
        let progress = Progress::of(&keeper).await;
        let boot = Boot { progress, closed, real_time, ..Boot::new(node, keeper.clone()) };
        tokio::select! {
            result = body(boot) => result,
            never = heap::look() => match never {},
            error = keeper.channel().closed() => anyhow::bail!("the keeper is gone: {error}"),
        }
    })
}

/// The one thread's event loop.
fn event_loop() -> std::io::Result<LocalRuntime> {
    let mut builder = Builder::new_current_thread();
    builder.enable_all().event_interval(EVENT_INTERVAL).build_local(LocalOptions::default())
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

#[cfg(test)]
mod tests {
    use std::{cell::Cell, io::Write, os::unix::net::UnixStream, rc::Weak, task::Poll};

    use holdfast_api::{metrics::v1::MetricsClient, rib::v1::RibClient};
    use holdfast_xrl::{
        Channel, ErrorKind, Finder, Handler, IncomingCall, Lifecycle, Link, Service, ServiceInfo, Watch,
    };

    use tokio::task::LocalSet;

    use super::*;

    /// A keeper that takes whoever asks to this Finder, as `rib`.
    struct Doorman(Finder);

    impl Service for Doorman {
        fn info(&self) -> &'static ServiceInfo {
            KeeperClient::SERVICE
        }

        fn dispatch(&self, call: IncomingCall<'_>) -> Handler {
            let (near, far) = UnixStream::pair().expect("sockets");
            self.0.attach(far.into(), PeerIdentity::new("rib").class("rib-old").pid(7)).expect("attached");
            call.unary(|_, _: Empty, _| async { Ok((Empty {}, vec![near.into()])) })
        }
    }

    /// What a service of an instance may hold: the way to others, which holds the node.
    struct Holder(Resolver, Rc<()>);

    impl Service for Holder {
        fn info(&self) -> &'static ServiceInfo {
            RibClient::SERVICE
        }

        fn dispatch(&self, call: IncomingCall<'_>) -> Handler {
            let _held = (&self.0, &self.1);
            call.unknown()
        }
    }

    /// A process with its keeper.
    fn boot(finder: &Finder) -> (Node, Boot) {
        let (near, far) = UnixStream::pair().expect("sockets");
        let keeper = Node::new("keeper");
        keeper.serve(Doorman(finder.clone()));
        keeper.attach(far.into(), PeerIdentity::new("rib")).expect("attached");
        let client = KeeperClient::new(Channel::connect(near.into()).expect("connected"));
        (keeper, Boot::new(Node::new("rib"), client))
    }

    async fn next(watch: &mut Watch) -> (&'static str, String) {
        match watch.next().await.expect("news") {
            Lifecycle::Birth(instance) => ("birth", instance.name),
            Lifecycle::Death(instance) => ("death", instance.name),
        }
    }

    async fn story() {
        let finder = Finder::new();
        let (_keeper, boot) = boot(&finder);
        let mut watch = boot.resolver.watch("*");
        boot.join();
        let pid = std::process::id();
        assert_eq!(next(&mut watch).await, ("birth", format!("rib-{pid}")));
        let blue = boot.instance("blue");
        let held = Rc::new(());
        let is_held: Weak<()> = Rc::downgrade(&held);
        blue.node.serve(Holder(blue.resolver.clone(), held));
        blue.join();
        assert_eq!(next(&mut watch).await, ("birth", format!("rib@blue-{pid}")));
        assert_eq!((boot.class("fea"), blue.class("fea")), ("fea".into(), "fea@blue".into()));

        let (near, far) = Link::pair();
        finder.attach_link(far, PeerIdentity::new("metrics"));
        let caller = Resolver::over(Channel::over(near));
        let client: MetricsClient = caller.client("rib@blue").await.expect("resolved");
        client.queues(holdfast_api::metrics::v1::Empty {}).next().await.expect("an answer");

        drop(blue);
        assert_eq!(next(&mut watch).await, ("death", format!("rib@blue-{pid}")));
        assert!(is_held.upgrade().is_none(), "nothing of it is left");
        let gone = caller.client::<MetricsClient>("rib@blue").await.map(|_| ());
        assert_eq!(gone.expect_err("gone").kind(), ErrorKind::NotFound);
        caller.client::<MetricsClient>("rib").await.map(|_| ()).expect("the process itself lives on");
        let blue = boot.instance("blue");
        blue.join();
        assert_eq!(next(&mut watch).await, ("birth", format!("rib@blue-{pid}")), "it may come back");
    }

    async fn retirement() {
        let finder = Finder::new();
        let (_keeper, boot) = boot(&finder);
        let (near, far) = Link::pair();
        finder.attach_link(far, PeerIdentity::new("bgp"));
        let caller = Resolver::over(Channel::over(near));
        let mut watch = caller.watch("*");
        let pid = std::process::id();
        boot.node.serve(Holder(boot.resolver.clone(), Rc::new(())));
        boot.join();
        assert_eq!(next(&mut watch).await, ("birth", format!("rib-{pid}")));
        let blue = boot.instance("blue");
        blue.join();
        assert_eq!(next(&mut watch).await, ("birth", format!("rib@blue-{pid}")));
        let client: RibClient = caller.client("rib").await.expect("resolved");

        let old = [boot.retire("rib-old"), blue.retire("rib-old")];
        client.channel().closed().await;
        let mut dead = [next(&mut watch).await, next(&mut watch).await];
        dead.sort();
        assert_eq!(dead, ["rib", "rib@blue"].map(|name| ("death", format!("{name}-{pid}"))));
        for (old, name) in old.iter().zip(["rib-old", "rib-old@blue"]) {
            old.node.serve(Holder(old.resolver.clone(), Rc::new(())));
            old.join();
            assert_eq!(next(&mut watch).await, ("birth", format!("{name}-{pid}")));
            caller.client::<RibClient>(name).await.map(|_| ()).expect("it serves the same");
        }
        for name in ["rib", "rib@blue"] {
            let gone = caller.client::<RibClient>(name).await.map(|_| ());
            assert_eq!(gone.expect_err("that is for another one").kind(), ErrorKind::NotFound);
        }
        assert!(!boot.keeper.channel().is_closed(), "the keeper has it still");
    }

    #[test]
    fn a_socket_is_looked_at_after_a_few_turns_of_those_who_always_have_something_to_do() {
        let turns = Rc::new(Cell::new(0_u32));
        let heard = event_loop().expect("a runtime").block_on(async {
            let (near, mut far) = UnixStream::pair().expect("sockets");
            near.set_nonblocking(true).expect("set");
            let near = tokio::net::UnixStream::from_std(near).expect("a stream");
            for _ in 0..2 {
                let turns = Rc::clone(&turns);
                spawn_local(poll_fn(move |cx| {
                    turns.set(turns.get() + 1);
                    cx.waker().wake_by_ref();
                    Poll::<()>::Pending
                }));
            }
            let counted = Rc::clone(&turns);
            let heard = spawn_local(async move {
                near.readable().await.expect("a socket");
                counted.get()
            });
            while turns.get() < 1000 {
                tokio::task::yield_now().await;
            }
            let before = turns.get();
            far.write_all(b"?").expect("there is room");
            heard.await.expect("heard") - before
        });
        assert!(heard <= 2 * EVENT_INTERVAL, "after {heard} turns");
    }

    #[test]
    fn who_retires_has_died_for_all_but_the_keeper_and_is_found_under_another_class() {
        let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
        LocalSet::new().block_on(&runtime, retirement());
    }

    #[test]
    fn a_vrf_is_found_under_a_class_of_its_own_until_its_instance_is_dropped() {
        let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
        LocalSet::new().block_on(&runtime, story());
    }
}

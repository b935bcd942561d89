//! The manager's interface.

use std::{
    fs,
    os::fd::OwnedFd,
    rc::Rc,
    time::{Duration, Instant},
};

use holdfast_api::{
    keeper::v1::{Empty as KeeperEmpty, LongestTurn, ProcessEvent},
    manager::v1::{
        AdoptRequest, AliveRequest, CommitReply, CommitRequest, ConfigurationReply, Descriptor, DiffReply,
        DiffRequest, Empty, HistoryReply, ManagerServer, Process, ReloadReply, ReloadWithoutRequest,
        ShowDescriptorsReply, ShowProcessesReply, ShowVrfsReply, SignalReply, SignalRequest, UpgradeProgress,
        UpgradeRequest, VersionRequest, Vrf,
    },
};
use holdfast_config::schema::{self, VrfPlace};
use holdfast_process::{OLD_TRANSPORT, spawn_task};
use holdfast_xrl::{CallContext, PeerIdentity, ReplySink, XrlError};
use tokio::{sync::mpsc, time::timeout};

use crate::{
    commit, faults,
    manager::Manager,
    outsiders, protocols,
    reload::{self, Asking},
    sandbox, signal,
    supervisor::State,
    upgrade,
};

/// The operator does not wait longer for what only the keeper knows.
const KEEPER_LIMIT: Duration = Duration::from_millis(200);

/// What is served: calls reach the manager through this.
pub(crate) struct Served(pub(crate) Rc<Manager>);

impl Manager {
    /// All processes and how they fare.
    pub(crate) fn processes(&self, now: Instant) -> Vec<Process> {
        let mut processes = vec![keeper(&self.keeper_build.borrow()), manager(self, now)];
        processes.extend(self.supervisor.borrow().processes().iter().map(|process| show(process, now)));
        processes.extend(self.retired.borrow().values().map(show_retired));
        processes
    }
}

impl Served {
    /// Not in the task of a call: one who asks and goes away must not leave it half done.
    async fn begin_reload(&self, asking: Asking) -> Result<ReloadReply, XrlError> {
        let manager = Rc::clone(&self.0);
        let done = spawn_task(async move { reload::reload(&manager, &asking).await }).await;
        done.unwrap_or_else(|error| Err(XrlError::internal(error.to_string())))
    }
}

impl ManagerServer for Served {
    async fn adopt(
        &self,
        _: &CallContext,
        request: AdoptRequest,
        fds: Vec<OwnedFd>,
    ) -> Result<Empty, XrlError> {
        let fd = fds.into_iter().next().ok_or_else(|| XrlError::invalid_argument("no descriptor"))?;
        let process = self.0.processes.named(&request.name);
        if process.is_none() && request.name != "manager" {
            protocols::adopt(&self.0, &request.name, request.pid, fd)?;
            return Ok(Empty {});
        }
        let mut identity = PeerIdentity::new(&request.name).pid(request.pid);
        if let Some(process) = process {
            identity.role = process.role().to_owned();
        }
        if request.name == "manager" {
            identity = identity.class("socket");
        }
        for class in process.into_iter().flat_map(holdfast_process::Process::classes) {
            identity = identity.class(class);
        }
        if request.name == "transport" {
            identity = identity.class(OLD_TRANSPORT);
        }
        let attached = self.0.finder.attach(fd, identity);
        attached.map_err(|error| XrlError::internal(error.to_string()))?;
        Ok(Empty {})
    }

    async fn stop(&self, _: &CallContext, _: Empty) -> Result<Empty, XrlError> {
        if !self.0.is_stopping() {
            spawn_task(Rc::clone(&self.0).stop());
        }
        Ok(Empty {})
    }

    async fn reload(&self, cx: &CallContext, _: Empty) -> Result<ReloadReply, XrlError> {
        let asking = match cx.peer().role.as_str() {
            // Of SIGHUP nobody reads the answer.
            "keeper" => Asking::WhoAnswers,
            _ => Asking::everybody(Vec::new()),
        };
        self.begin_reload(asking).await
    }

    async fn reload_without(
        &self,
        _: &CallContext,
        request: ReloadWithoutRequest,
    ) -> Result<ReloadReply, XrlError> {
        self.begin_reload(Asking::everybody(request.without)).await
    }

    async fn diff(&self, _: &CallContext, request: DiffRequest) -> Result<DiffReply, XrlError> {
        reload::diff(&self.0, request).await
    }

    async fn show_configuration(&self, _: &CallContext, _: Empty) -> Result<ConfigurationReply, XrlError> {
        commit::show(&self.0).await
    }

    async fn commit(&self, cx: &CallContext, request: CommitRequest) -> Result<CommitReply, XrlError> {
        let (manager, uid) = (Rc::clone(&self.0), cx.peer().instance.parse().ok());
        // Not this call's own task, as above.
        let done = spawn_task(async move { commit::commit(&manager, request, uid).await }).await;
        done.unwrap_or_else(|error| Err(XrlError::internal(error.to_string())))
    }

    async fn confirm(&self, _: &CallContext, _: Empty) -> Result<Empty, XrlError> {
        commit::confirm(&self.0).await.map(|()| Empty {})
    }

    async fn history(&self, _: &CallContext, _: Empty) -> Result<HistoryReply, XrlError> {
        commit::history(&self.0)
    }

    async fn show_version(
        &self,
        _: &CallContext,
        request: VersionRequest,
    ) -> Result<ConfigurationReply, XrlError> {
        commit::version(&self.0, request.number)
    }

    async fn alive(&self, _: &CallContext, request: AliveRequest) -> Result<Empty, XrlError> {
        while request.running && !self.0.supervisor.borrow().all_run() {
            self.0.running.notified().await;
        }
        Ok(Empty {})
    }

    async fn upgrade(
        &self,
        cx: &CallContext,
        request: UpgradeRequest,
        fds: Vec<OwnedFd>,
        mut replies: ReplySink<UpgradeProgress>,
    ) -> Result<(), XrlError> {
        let file = fds.into_iter().next().ok_or_else(|| XrlError::invalid_argument("no descriptor"))?;
        let (say, mut said) = mpsc::unbounded_channel();
        let manager = Rc::clone(&self.0);
        // Not this call's own task: one who asks and goes away must not leave it half done.
        let done = spawn_task(async move { upgrade::upgrade(&manager, &request, file, &say).await });
        while let Some(progress) = said.recv().await {
            let last = progress.last;
            replies.send(progress).await?;
            if last {
                // This process ends as soon as `said` is closed.
                cx.channel().flush().await?;
                break;
            }
        }
        drop(said);
        done.await.unwrap_or_else(|error| Err(XrlError::internal(error.to_string())))
    }

    async fn signal(&self, _: &CallContext, request: SignalRequest) -> Result<SignalReply, XrlError> {
        signal::send(&self.0, request).await
    }

    async fn show_vrfs(&self, _: &CallContext, _: Empty) -> Result<ShowVrfsReply, XrlError> {
        let mut vrfs: Vec<Vrf> = self.0.config().vrfs.iter().map(vrf).collect();
        vrfs.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(ShowVrfsReply { vrfs })
    }

    async fn show_descriptors(&self, _: &CallContext, _: Empty) -> Result<ShowDescriptorsReply, XrlError> {
        let config = self.0.config();
        let descriptors = config.protocols.iter().filter_map(|protocol| {
            let (name, text) = (protocol.name.clone(), protocol.descriptor?.text().to_owned());
            Some(Descriptor { name, text })
        });
        Ok(ShowDescriptorsReply { descriptors: descriptors.collect() })
    }

    async fn show_processes(&self, _: &CallContext, _: Empty) -> Result<ShowProcessesReply, XrlError> {
        let mut processes = self.0.processes(Instant::now());
        let config = self.0.config();
        processes.iter_mut().for_each(|process| sandbox::tell(process, self.0.closed));
        for process in &mut processes {
            process.described = outsiders::descriptor(&process.name, &config).is_some();
        }
        for (name, fault) in faults::now(&self.0).await {
            let of_it =
                processes.iter_mut().find(|process| process.name == name && process.detail.is_empty());
            of_it.into_iter().for_each(|process| process.detail.clone_from(&fault));
        }
        // A keeper that hangs, or is of an earlier build, leaves this out and nothing else.
        if let Ok(Ok(reply)) = timeout(KEEPER_LIMIT, self.0.keeper.turns(KeeperEmpty {})).await {
            for LongestTurn { pid, microseconds, busy_milliseconds } in reply.turns {
                for process in processes.iter_mut().filter(|process| process.pid == pid) {
                    process.longest_turn_microseconds = microseconds;
                    process.busy_milliseconds = busy_milliseconds;
                }
            }
        }
        Ok(ShowProcessesReply { processes })
    }
}

fn vrf(vrf: &schema::Vrf) -> Vrf {
    let (device, netns, table) = match &vrf.place {
        VrfPlace::Device { name, table } => (name.as_str(), "", *table),
        VrfPlace::Netns { name, table } => ("", name.as_str(), *table),
    };
    Vrf { name: vrf.name.clone(), table, device: device.into(), netns: netns.into() }
}

fn keeper(build: &str) -> Process {
    let pid = rustix::process::getppid().map_or(0, |pid| pid.as_raw_nonzero().get().unsigned_abs());
    Process {
        name: "keeper".into(),
        pid,
        state: "running".into(),
        memory_bytes: memory(pid),
        uptime_seconds: uptime(pid),
        build: build.to_owned(),
        ..Process::default()
    }
}

fn manager(manager: &Manager, now: Instant) -> Process {
    let pid = std::process::id();
    let own = manager.own.borrow();
    Process {
        name: "manager".into(),
        pid,
        state: "running".into(),
        uptime_seconds: now.duration_since(manager.born).as_secs(),
        memory_bytes: memory(pid),
        restarts: own.restarts,
        last_exit: own.last_exit.clone(),
        last_end: own.last_end.clone(),
        hung: own.hung,
        build: own.build.clone(),
        ..Process::default()
    }
}

fn show(process: &crate::supervisor::Process, now: Instant) -> Process {
    let (pid, since) = process.state.life().unzip();
    let retry = match process.state {
        State::BackingOff { until } => until.saturating_duration_since(now),
        _ => Duration::ZERO,
    };
    Process {
        name: process.name.into(),
        pid: pid.unwrap_or(0),
        state: process.state.word().into(),
        uptime_seconds: since.map_or(0, |since| now.saturating_duration_since(since).as_secs()),
        restarts: process.restarts,
        last_exit: process.last_exit.clone(),
        last_end: process.last_end.clone(),
        hung: process.hung,
        quarantined: process.quarantined.clone(),
        retry_seconds: retry.as_secs_f32().ceil() as u64,
        memory_bytes: pid.map_or(0, memory),
        detail: process.detail.clone(),
        build: process.build.clone(),
        ..Process::default()
    }
}

/// One that lives on beside another in its place.
fn show_retired(event: &ProcessEvent) -> Process {
    Process {
        name: event.name.clone(),
        pid: event.pid,
        state: "running".into(),
        uptime_seconds: uptime(event.pid),
        restarts: event.restarts,
        last_exit: event.last_exit.clone(),
        last_end: event.last_end.clone(),
        hung: event.hung,
        memory_bytes: memory(event.pid),
        detail: "until the connections end that it carries".into(),
        build: event.build.clone(),
        ..Process::default()
    }
}

/// Resident octets of a process; 0 when it cannot be read.
fn memory(pid: u32) -> u64 {
    let text = fs::read_to_string(format!("/proc/{pid}/statm")).unwrap_or_default();
    let pages = text.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok()).unwrap_or(0);
    pages * rustix::param::page_size() as u64
}

/// Seconds since a process began; 0 when it cannot be read.
fn uptime(pid: u32) -> u64 {
    let read = |path: String| fs::read_to_string(path).unwrap_or_default();
    let now = read("/proc/uptime".into()).split('.').next().and_then(|s| s.parse::<u64>().ok()).unwrap_or(0);
    let stat = read(format!("/proc/{pid}/stat"));
    // Field 22 counts from 1; what is before the last bracket may contain blanks.
    let ticks =
        stat.rsplit(')').next().and_then(|rest| rest.split(' ').nth(20)).and_then(|t| t.parse::<u64>().ok());
    ticks.map_or(0, |ticks| now.saturating_sub(ticks / rustix::param::clock_ticks_per_second()))
}

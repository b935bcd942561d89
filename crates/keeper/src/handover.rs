//! One keeper after the other: the binary is replaced, the process is not.
//!
//! A keeper that hands over takes back its ends of the channels when nothing is under way on them, packs them with
//! everything else, and executes the other binary in its own place. Its process id stays, and with it its children and
//! the lock. They notice nothing: what they ask meanwhile waits in their sockets. If it cannot be executed, the keeper
//! goes on as if nothing had happened.

use std::{
    ffi::OsStr,
    os::{
        fd::{AsFd, OwnedFd},
        unix::{ffi::OsStrExt, process::CommandExt},
    },
    path::PathBuf,
    process::Stdio,
    rc::Rc,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};
use holdfast_api::keeper::v1 as api;
use holdfast_process::{Processes, formats::KEEPER_STATE};
use tracing::{error, info};

use crate::{
    children::{Build, Child, Record, answer},
    options::Options,
    parcel,
    service::{Keeper, milliseconds},
    store::Kept,
    told::{describe, on_death},
};

/// The command of the one that takes over; for a trial with [`TRIAL`].
const COMMAND: &str = "keeper";
const TRIAL: &str = "--trial";
/// What a trial writes that has understood everything.
const READY: &[u8] = b"ready\n";
/// All channels are quiet within this time, or nothing comes of it.
const QUIET_LIMIT: Duration = Duration::from_secs(2);

/// What was handed over, and understood.
pub(crate) struct Handed {
    pub(crate) options: Options,
    lock: OwnedFd,
    state: api::State,
    /// Channels of the processes, then what is kept.
    descriptors: Vec<OwnedFd>,
}

impl Handed {
    /// Opens what this process was born with.
    ///
    /// # Errors
    /// When it cannot be understood, or is not complete.
    pub(crate) fn open(socket: &OwnedFd) -> Result<Self> {
        let (state, mut descriptors) = parcel::unpack(socket)?;
        ensure!(
            state.format == KEEPER_STATE,
            "a keeper's state of version {} is not understood",
            state.format
        );
        let expected = 1 + state.processes.len() + state.kept.len();
        ensure!(descriptors.len() == expected, "{} descriptors instead of {expected}", descriptors.len());
        let path = |octets: &[u8]| PathBuf::from(OsStr::from_bytes(octets));
        let options = Options {
            configuration: path(&state.configuration),
            runtime_directory: path(&state.runtime_directory),
            log_filter: state.log_level.clone(),
            log_format: state.log_format.clone(),
            sandbox: state.sandbox.clone().unwrap_or_default(),
            first_user: state.first_user,
            standby: state.standby,
        };
        Ok(Self { options, lock: descriptors.remove(0), state, descriptors })
    }

    /// Says that it is understood, to who tries this build out.
    pub(crate) fn say_ready() -> Result<()> {
        Ok(std::io::Write::write_all(&mut std::io::stdout(), READY)?)
    }

    /// The keeper of all this.
    pub(crate) fn keeper(self, processes: Processes) -> Result<Rc<Keeper>> {
        let keeper =
            Keeper::empty(self.options, processes, self.lock.into(), Build::own(Some(self.state.build))?)?;
        let mut descriptors = self.descriptors.into_iter();
        for (process, channel) in self.state.processes.into_iter().zip(&mut descriptors) {
            match process.retired_from.as_str() {
                "" => drop(keeper.attach(&process.name, process.pid, channel, process.build)?),
                name => keeper.attach_retired(name, process.pid, channel, process.build)?,
            }
            if let Some(limit) = process.hang_limit_milliseconds.map(Duration::from_millis) {
                keeper.hangs.borrow_mut().set_limit_of(process.pid, limit);
            }
        }
        let now = Instant::now();
        for (handed, descriptor) in self.state.kept.into_iter().zip(descriptors) {
            let kept = handed.kept.unwrap_or_default();
            let deadline = handed.left_milliseconds.map(|left| now + Duration::from_millis(left));
            let on_death = on_death(kept.on_death(), kept.hold_milliseconds);
            let put = Kept { descriptor, on_death, deadline, note: kept.note };
            let put = keeper.store.borrow_mut().put(&kept.owner, &kept.key, put);
            // The bound was kept before; a build with a smaller one gives up what is over it.
            if put.is_err() {
                error!(event = "descriptor-closed", owner = kept.owner, key = kept.key, "closed: too many");
            }
        }
        keeper.pids().into_iter().for_each(|pid| keeper.find_page(pid));
        keeper.follow_outputs()?;
        if let Some(limit) = self.state.hang_limit_milliseconds {
            keeper.limit_hangs(Duration::from_millis(limit));
        }
        keeper.children.borrow_mut().records = self.state.records.into_iter().map(remembered).collect();
        Ok(keeper)
    }
}

fn remembered(record: api::Record) -> (String, Record) {
    let api::Record { name, restarts, last_exit, last_end, hung, busy: was_busy } = record;
    (name, Record { deaths: restarts, last_exit, last_end, hung, was_busy })
}

impl Keeper {
    /// Whether a build can take over: it is handed a copy of everything and says that it understands.
    pub(crate) async fn try_out(&self, build: &Build) -> Result<()> {
        // Any descriptor will do for the channels: nobody talks on them.
        let channels =
            self.pids().iter().map(|_| Ok(self.lock.try_clone()?.into())).collect::<Result<Vec<_>>>()?;
        let parcel = self.pack(build, &channels)?;
        let mut command = build.binary.command();
        command.args([COMMAND, TRIAL]).stdin(Stdio::from(parcel));
        ensure!(answer(command).await? == READY, "it does not understand what is kept");
        Ok(())
    }

    /// Puts the binary in use into this keeper's place.
    ///
    /// # Errors
    /// It always is one if this returns; everything is then as before.
    pub(crate) async fn hand_over(&self) -> anyhow::Error {
        let build = Rc::clone(&self.build.borrow());
        info!(event = "handover-begun", build = build.name, "another keeper takes over");
        self.leaving.set(true);
        self.manager_changed.notify_waiters();
        let (pids, mut channels) = (self.pids(), Vec::new());
        let result = self.release(&pids, &mut channels).await;
        let error = match result.and_then(|()| self.pack(&build, &channels)) {
            Ok(parcel) => {
                let mut command = build.binary.command();
                command.arg(COMMAND).envs(self.environment()).stdin(Stdio::from(parcel));
                anyhow::Error::from(command.exec()).context("executing it")
            }
            Err(error) => error,
        };
        for (pid, channel) in pids.into_iter().zip(channels) {
            let child = self.children.borrow().living.get(&pid).cloned();
            let limit = child.as_ref().and_then(|child| self.foreign_limit(pid, child));
            let attached = child.map(|child| match child.is_retired {
                false => self.attach(&child.name, pid, channel, child.build).map(drop),
                true => self.attach_retired(&child.name, pid, channel, child.build),
            });
            if let Some(Err(error)) = attached {
                error!(event = "handover-failed", pid, "its channel is lost: {error:#}");
            }
            limit.iter().for_each(|limit| self.hangs.borrow_mut().set_limit_of(pid, *limit));
        }
        self.leaving.set(false);
        error
    }

    /// How long a program of somebody else may be silent, if that was said.
    fn foreign_limit(&self, pid: u32, child: &Child) -> Option<Duration> {
        self.hangs.borrow().limit_of(pid).filter(|_| !self.is_ours(&child.name))
    }

    fn pids(&self) -> Vec<u32> {
        self.children.borrow().living.keys().copied().collect()
    }

    /// Takes the channels of these processes back, as soon as each is quiet.
    pub(crate) async fn release(&self, pids: &[u32], channels: &mut Vec<OwnedFd>) -> Result<()> {
        let limit = tokio::time::Instant::now() + QUIET_LIMIT;
        for pid in pids {
            let child = self.children.borrow().living.get(pid).cloned();
            let child = child.context("a process has ended meanwhile")?;
            match tokio::time::timeout_at(limit, child.channel.release()).await {
                Ok(channel) => channels.push(channel?),
                Err(_) => bail!("{} does not stop asking", child.name),
            }
        }
        ensure!(self.pids() == pids, "a process has ended meanwhile");
        Ok(())
    }

    /// Everything there is, with these as the channels of the living.
    pub(crate) fn pack(&self, build: &Build, channels: &[OwnedFd]) -> Result<OwnedFd> {
        let (children, store, now) = (self.children.borrow(), self.store.borrow(), Instant::now());
        let process = |(&pid, child): (&u32, &Child)| api::HandedProcess {
            name: child.called().to_owned(),
            pid,
            build: child.build.clone(),
            retired_from: child.retired_from(),
            // Those of ours are in the descriptors of the next build.
            hang_limit_milliseconds: self.foreign_limit(pid, child).map(milliseconds),
        };
        let kept = |(owner, key, kept): (&str, &str, &Kept)| api::HandedDescriptor {
            kept: Some(describe(owner, key, kept)),
            left_milliseconds: kept.deadline.map(|at| milliseconds(at.saturating_duration_since(now))),
        };
        let record = |(name, record): (&String, &Record)| api::Record {
            name: name.clone(),
            restarts: record.deaths,
            last_exit: record.last_exit.clone(),
            last_end: record.last_end.clone(),
            hung: record.hung,
            busy: record.was_busy,
        };
        let state = api::State {
            format: KEEPER_STATE,
            configuration: self.options.configuration.as_os_str().as_bytes().to_vec(),
            runtime_directory: self.options.runtime_directory.as_os_str().as_bytes().to_vec(),
            log_level: self.log_filter(),
            log_format: self.log_format(),
            processes: children.living.iter().map(process).collect(),
            kept: store.iter().map(kept).collect(),
            records: children.records.iter().map(record).collect(),
            build: build.name.clone(),
            sandbox: Some(self.manager_sandbox()),
            hang_limit_milliseconds: Some(milliseconds(self.hangs.borrow().limit())),
            first_user: self.options.first_user,
            standby: self.options.standby,
        };
        let mut descriptors = vec![self.lock.as_fd()];
        descriptors.extend(channels.iter().map(AsFd::as_fd));
        descriptors.extend(store.iter().map(|(.., kept)| kept.descriptor.as_fd()));
        parcel::pack(&state, &descriptors)
    }
}

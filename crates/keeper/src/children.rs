//! The processes: started with a channel on standard input, reaped when they end.

use std::{
    collections::BTreeMap,
    os::fd::OwnedFd,
    process::{Command, Stdio},
    rc::Rc,
    time::Duration,
};

use anyhow::{Context, Result};
use holdfast_process::{Binary, OLD_TRANSPORT, formats::Formats};
use holdfast_sys::memory::ForeignMemory;
use holdfast_xrl::Channel;
use rustix::{
    net::{AddressFamily, SocketFlags, SocketType},
    process::{Pid, Signal, WaitOptions, WaitStatus},
};
use tokio::{io::AsyncReadExt, net::unix::pipe};

use crate::systemd::SOCKET;

/// What processes are started from.
#[derive(Debug)]
pub(crate) struct Build {
    pub(crate) binary: Binary,
    /// Version and hash.
    pub(crate) name: String,
}

impl Build {
    /// That of the keeper; named after its content if it does not know its name.
    pub(crate) fn own(name: Option<String>) -> Result<Self> {
        let binary = Binary::own().context("opening the router's own binary")?;
        let name = name.map_or_else(|| binary.build(env!("CARGO_PKG_VERSION")), Ok)?;
        Ok(Self { binary, name })
    }

    /// Starts `holdfast ARGUMENTS`; its process id and our end of the channel that it has as standard input. `output` is
    /// its standard output, if not that of the keeper.
    pub(crate) fn start(
        &self,
        arguments: &[std::ffi::OsString],
        environment: &[(String, String)],
        output: Option<OwnedFd>,
    ) -> Result<(u32, OwnedFd)> {
        let (ours, theirs) = pair()?;
        let mut command = self.binary.command();
        command.args(arguments).env_remove(SOCKET).envs(environment.iter().map(|(key, value)| (key, value)));
        command.stdout(output.map_or_else(Stdio::inherit, Stdio::from));
        // A group of its own: an interrupt typed at the terminal is for the keeper only.
        let child = {
            use std::os::unix::process::CommandExt;
            command.stdin(Stdio::from(theirs)).process_group(0).spawn()
        };
        let child = child.with_context(|| format!("starting {}", self.binary.path().display()))?;
        Ok((child.id(), ours))
    }
}

/// An answer of another binary that is longer is none.
const ANSWER_MOST: u64 = 1 << 20;
/// It takes no longer.
const ANSWER_LIMIT: Duration = Duration::from_secs(5);

/// Runs a command, which is reaped with the orphans; what it says on its standard output.
pub(crate) async fn answer(mut command: Command) -> Result<Vec<u8>> {
    let mut child = command.stdout(Stdio::piped()).spawn().context("it cannot be executed")?;
    let stdout = child.stdout.take().context("no pipe")?;
    let stdout = pipe::Receiver::from_owned_fd(stdout.into())?;
    let mut said = Vec::new();
    let read = tokio::time::timeout(ANSWER_LIMIT, stdout.take(ANSWER_MOST).read_to_end(&mut said)).await;
    if !matches!(read, Ok(Ok(_))) {
        // It lives, so the number is its own.
        let _ = signal(child.id(), Signal::KILL);
    }
    read.context("it does not say in time what it can do")??;
    Ok(said)
}

/// What a binary says that it reads and writes.
pub(crate) async fn formats(binary: &Binary) -> Result<Formats> {
    let mut command = binary.command();
    command.arg("formats").stdin(Stdio::null()).stderr(Stdio::null());
    let said = answer(command).await?;
    Formats::from_answer(&said).context("it is no holdfast that can be upgraded to")
}

/// Two ends of a socket.
pub(crate) fn pair() -> rustix::io::Result<(OwnedFd, OwnedFd)> {
    rustix::net::socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)
}

/// One that lives.
#[derive(Clone, Debug)]
pub(crate) struct Child {
    /// As it was started.
    pub(crate) name: String,
    /// It has given that up to another one.
    pub(crate) is_retired: bool,
    pub(crate) build: String,
    pub(crate) channel: Channel,
    /// Why it is about to end, if that is wanted.
    pub(crate) reason: String,
    /// It is about to end because it is hung.
    pub(crate) hung: bool,
    /// And was busy before.
    pub(crate) was_busy: bool,
    /// Where it counts the work that it has finished.
    pub(crate) page: Option<Rc<ForeignMemory>>,
    /// Microseconds that its longest turn has taken, as it has said.
    pub(crate) longest_turn: u64,
}

impl Child {
    /// What it is called now.
    pub(crate) fn called(&self) -> &str {
        if self.is_retired { OLD_TRANSPORT } else { &self.name }
    }

    /// Of which name it has given the place up; empty: of none.
    pub(crate) fn retired_from(&self) -> String {
        if self.is_retired { self.name.clone() } else { String::new() }
    }
}

/// What is remembered of the dead of a name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) deaths: u32,
    pub(crate) last_exit: String,
    /// "exit", "signal" or "hung".
    pub(crate) last_end: String,
    /// How many of them were ended because they were hung.
    pub(crate) hung: u32,
    /// The last of them was ended because it was hung, and was busy before.
    pub(crate) was_busy: bool,
}

/// The living by process id, and the record of each name.
#[derive(Debug, Default)]
pub(crate) struct Children {
    pub(crate) living: BTreeMap<u32, Child>,
    pub(crate) records: BTreeMap<String, Record>,
}

impl Children {
    pub(crate) fn record(&self, name: &str) -> Record {
        self.records.get(name).cloned().unwrap_or_default()
    }

    /// One that has ended, with how: "exit 1", "signal 9", or why it had to. Orphans are reaped and not reported.
    pub(crate) fn reap(&mut self) -> Option<(Child, u32, String)> {
        loop {
            let (pid, status) = rustix::process::wait(WaitOptions::NOHANG).ok()??;
            let pid = pid.as_raw_nonzero().get().unsigned_abs();
            if let Some(child) = self.living.remove(&pid) {
                let ended = if child.reason.is_empty() { describe(status) } else { child.reason.clone() };
                let record = self.records.entry(child.called().to_owned()).or_default();
                record.deaths += 1;
                record.hung += u32::from(child.hung);
                record.was_busy = child.was_busy;
                record.last_exit.clone_from(&ended);
                kind(status, child.hung).clone_into(&mut record.last_end);
                return Some((child, pid, ended));
            }
        }
    }
}

fn describe(status: WaitStatus) -> String {
    match (status.exit_status(), status.terminating_signal()) {
        (Some(code), _) => format!("exit {code}"),
        (_, Some(signal)) => format!("signal {signal}"),
        (None, None) => "ended".to_owned(),
    }
}

/// The same as one word.
fn kind(status: WaitStatus, hung: bool) -> &'static str {
    match (hung, status.exit_status()) {
        (true, _) => "hung",
        (false, Some(_)) => "exit",
        (false, None) => "signal",
    }
}

/// Sends a signal to one of our children.
pub(crate) fn signal(pid: u32, signal: Signal) -> rustix::io::Result<()> {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw).ok_or(rustix::io::Errno::SRCH)?;
    rustix::process::kill_process(pid, signal)
}

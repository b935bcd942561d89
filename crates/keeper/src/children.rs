//! The processes: started with a channel on standard input, reaped when they end.

use std::{collections::BTreeMap, ffi::OsString, os::fd::OwnedFd, path::PathBuf, process::Command};

use anyhow::{Context, Result};
use rustix::{
    net::{AddressFamily, SocketFlags, SocketType},
    process::{Pid, Signal, WaitOptions, WaitStatus},
};

/// How processes are started.
#[derive(Debug)]
pub(crate) struct Starter {
    pub(crate) binary: PathBuf,
    pub(crate) environment: Vec<(String, String)>,
    /// Further arguments of the manager.
    pub(crate) manager_arguments: Vec<OsString>,
}

impl Starter {
    /// Starts `holdfast NAME`; its process id and our end of the channel that it has as standard input.
    pub(crate) fn start(&self, name: &str) -> Result<(u32, OwnedFd)> {
        let flags = SocketFlags::CLOEXEC;
        let (ours, theirs) = rustix::net::socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        let mut command = Command::new(&self.binary);
        command.arg(name);
        if name == "manager" {
            command.args(&self.manager_arguments);
        }
        command.envs(self.environment.iter().map(|(key, value)| (key, value)));
        // A group of its own: an interrupt typed at the terminal is for the keeper only.
        let child = {
            use std::os::unix::process::CommandExt;
            command.stdin(theirs).process_group(0).spawn()
        };
        let child = child.with_context(|| format!("starting {} {name}", self.binary.display()))?;
        Ok((child.id(), ours))
    }
}

/// The living, by process id.
#[derive(Debug, Default)]
pub(crate) struct Children {
    names: BTreeMap<u32, String>,
}

impl Children {
    pub(crate) fn born(&mut self, name: &str, pid: u32) {
        self.names.insert(pid, name.to_owned());
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, u32)> {
        self.names.iter().map(|(&pid, name)| (name.as_str(), pid))
    }

    pub(crate) fn is_ours(&self, pid: u32) -> bool {
        self.names.contains_key(&pid)
    }

    /// One that has ended, with how: "exit 1", "signal 9". Orphans are reaped and not reported.
    pub(crate) fn reap(&mut self) -> Option<(String, u32, String)> {
        loop {
            let (pid, status) = rustix::process::wait(WaitOptions::NOHANG).ok()??;
            let pid = pid.as_raw_nonzero().get().unsigned_abs();
            if let Some(name) = self.names.remove(&pid) {
                return Some((name, pid, describe(status)));
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

/// Sends a signal to one of our children.
pub(crate) fn signal(pid: u32, signal: Signal) -> rustix::io::Result<()> {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw).ok_or(rustix::io::Errno::SRCH)?;
    rustix::process::kill_process(pid, signal)
}

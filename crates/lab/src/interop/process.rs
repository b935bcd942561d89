//! A stock router's process and its directory.

use std::{
    fs::{self, File},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

use anyhow::{Context, Result};
use rustix::process::{Pid, Signal, kill_process};

use crate::{netns::output, wait};

static NEXT: AtomicU32 = AtomicU32::new(0);

/// A directory of a router's own, removed with it.
#[derive(Debug)]
pub(super) struct Directory(PathBuf);

impl Directory {
    pub(super) fn new(kind: &str) -> Result<Self> {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path =
            std::env::temp_dir().join(format!("holdfast-interop-{kind}-{}-{number}", std::process::id()));
        fs::create_dir_all(&path)?;
        Ok(Self(path))
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    pub(super) fn write(&self, name: &str, mode: u32, text: &str) -> Result<PathBuf> {
        let path = self.path(name);
        fs::write(&path, text)?;
        fs::set_permissions(&path, fs::Permissions::from_mode(mode))?;
        Ok(path)
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A process in the foreground, ended in order when dropped.
#[derive(Debug)]
pub(super) struct Process {
    child: Child,
    log: PathBuf,
}

impl Process {
    pub(super) fn start(command: &mut Command, log: &Path) -> Result<Self> {
        let file = File::create(log)?;
        let command = command.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file);
        let child = command.spawn().with_context(|| format!("starting {:?}", command.get_program()))?;
        Ok(Self { child, log: log.to_owned() })
    }

    /// Waits until a command of its control program succeeds.
    pub(super) fn until_answers(&self, mut ask: impl FnMut() -> Result<String>) -> Result<()> {
        let answered = wait::until("its control program", Duration::from_secs(20), || {
            ask().map_err(|error| error.to_string())
        });
        answered.map(drop).with_context(|| fs::read_to_string(&self.log).unwrap_or_default())
    }
}

impl Process {
    /// kill -9.
    pub(super) fn kill(&mut self) -> Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(Some(_))) {
            return;
        }
        // `ip netns exec` replaces itself with the program.
        if let Some(pid) = Pid::from_raw(self.child.id() as i32) {
            let _ = kill_process(pid, Signal::TERM);
        }
        let ended = wait::until("the end", Duration::from_secs(5), || {
            self.child.try_wait().ok().flatten().ok_or_else(String::new)
        });
        if ended.is_err() {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

/// A command in a host, to its end.
pub(super) fn inside(host: &str, program: &Path, args: &[&str]) -> Result<String> {
    output(Command::new("ip").args(["netns", "exec", host]).arg(program).args(args))
}

//! Hosts as containers of Docker, with a router in each. The image is made here, and the network is the laboratory's.
//!
//! A container begins without a network (`--network none`). Its network namespace gets a name, and an interface as other
//! [hosts](crate::netns) have. The router begins when a file is there that says so.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::{
        OnceLock,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use rustix::process::{Pid, Signal, kill_process};

use crate::{
    netns::{Namespace, output},
    wait,
};

/// What an image has beside libraries.
const PROGRAMS: [&str; 2] = ["/bin/sh", "/bin/sleep"];
/// Where the router is in a container.
const BINARY: &str = "/bin/holdfast";
/// What a router needs, and Docker does not give.
const RIGHTS: [&str; 1] = ["NET_ADMIN"];
/// Begins the router when the file is there that is named first.
const BEGIN: &str = "until [ -e \"$0\" ]; do sleep 0.01; done; exec \"$@\"";

static NEXT: AtomicU32 = AtomicU32::new(0);

fn docker(args: &[&str]) -> Result<String> {
    output(Command::new("docker").args(args))
}

/// An image with what a router needs beside its binary; removed when dropped.
#[derive(Debug)]
pub struct Image {
    name: String,
    binary: PathBuf,
}

impl Image {
    /// Makes it.
    ///
    /// # Errors
    /// Docker does not run here.
    pub fn new(binary: &Path) -> Result<Self> {
        let mut files: BTreeSet<String> = PROGRAMS.map(str::to_owned).into();
        for program in PROGRAMS.map(Path::new).into_iter().chain([binary]) {
            let libraries = output(Command::new("ldd").arg(program))?;
            files
                .extend(libraries.split_whitespace().filter(|word| word.starts_with('/')).map(str::to_owned));
        }
        let name = format!("holdfast-lab-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let mut tar = Command::new("tar");
        tar.args(["--create", "--dereference", "--file", "-", "--directory", "/"]);
        tar.args(files.iter().map(|file| file.trim_start_matches('/')));
        let mut archive = tar.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().context("tar")?;
        let octets = archive.stdout.take().context("output of tar")?;
        let imported = Command::new("docker").args(["import", "-", &name]).stdin(octets).output()?;
        ensure!(archive.wait()?.success(), "tar has failed");
        ensure!(
            imported.status.success(),
            "docker import: {}",
            String::from_utf8_lossy(&imported.stderr).trim()
        );
        Ok(Self { name, binary: binary.to_owned() })
    }

    /// A command that runs the router in a new container, which has these directories, when a file is in one of them. Arguments of
    /// the router follow.
    pub fn command(&self, begin: &Path, directories: &[&Path]) -> (Command, Container) {
        let name = format!("{}-{}", self.name, NEXT.fetch_add(1, Ordering::Relaxed));
        let mut command = Command::new("docker");
        command.args(["run", "--rm", "--network", "none", "--name", &name]);
        for right in RIGHTS {
            command.args(["--cap-add", right]);
        }
        command.arg("--volume").arg(format!("{}:{BINARY}:ro", self.binary.display()));
        for directory in directories {
            command.arg("--volume").arg(format!("{0}:{0}", directory.display()));
        }
        command.args([&self.name, "/bin/sh", "-c", BEGIN]).arg(begin).arg(BINARY);
        (command, Container { name, first: OnceLock::new() })
    }
}

impl Drop for Image {
    fn drop(&mut self) {
        let _ = docker(&["image", "rm", "--force", &self.name]);
    }
}

/// A container; removed when dropped.
#[derive(Debug)]
pub struct Container {
    name: String,
    /// Its first process, as this host numbers it.
    first: OnceLock<Pid>,
}

impl Container {
    /// Its network, once it is there.
    ///
    /// # Errors
    /// It does not run.
    pub fn host(&self, role: &str) -> Result<Namespace> {
        let pid = wait::until("a container", Duration::from_secs(20), || {
            let said = docker(&["inspect", "--format", "{{.State.Pid}}", &self.name]);
            let said = said.map_err(|error| error.to_string())?;
            said.trim().parse().ok().filter(|pid| *pid > 0_u32).ok_or(said)
        })?;
        let first = Pid::from_raw(i32::try_from(pid)?).context("a process")?;
        let _ = self.first.set(first);
        Namespace::of(role, pid)
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// SIGKILL to its first process, as `docker kill` does in its own time: the kernel ends all others with it.
    ///
    /// # Errors
    /// It does not run.
    pub fn kill(&self) -> Result<()> {
        let first = self.first.get().context("nobody has asked for its host")?;
        Ok(kill_process(*first, Signal::KILL)?)
    }
}

impl Drop for Container {
    fn drop(&mut self) {
        let _ = docker(&["rm", "--force", &self.name]);
    }
}

//! OpenBGPD.

use std::{
    fs,
    io::Write as _,
    path::PathBuf,
    process::{Command, Stdio},
};

use anyhow::{Context, Result, ensure};

use super::{
    Programs,
    process::{Directory, Line, Process},
};
use crate::netns::{Namespace, output};

/// OpenBGPD.
#[derive(Debug)]
pub struct OpenBgpd {
    programs: Programs,
    process: Process,
    directory: Directory,
    configuration: PathBuf,
}

impl OpenBgpd {
    /// Starts it with this configuration, which names no control socket, and waits until it answers.
    ///
    /// # Errors
    /// It does not run.
    pub fn start_of(programs: Programs, host: &Namespace, configuration: &str) -> Result<Self> {
        fs::create_dir_all("/run/openbgpd")?;
        let directory = Directory::new("openbgpd")?;
        let socket = directory.path("ctl");
        let text = format!("socket \"{}\"\n{configuration}", socket.display());
        let configuration = directory.write("bgpd.conf", 0o600, &text)?;
        let process = Process::start(command(&programs, host, &configuration))?;
        let started = Self { programs, process, directory, configuration };
        started.process.until_answers(|| started.bgpctl(&["show"]))?;
        Ok(started)
    }

    fn control(&self) -> Command {
        let mut command = Command::new(self.programs.path("bgpctl", "bgpctl"));
        command.arg("-s").arg(self.directory.path("ctl"));
        command
    }

    /// One command of bgpctl.
    ///
    /// # Errors
    /// It fails.
    pub fn bgpctl(&self, args: &[&str]) -> Result<String> {
        output(self.control().args(args))
    }

    /// Announces prefixes, or withdraws them that it has announced so.
    ///
    /// # Errors
    /// It does not take them.
    pub fn bulk(&self, announces: bool, prefixes: impl Iterator<Item = String>) -> Result<()> {
        let mut command = self.control();
        command.args(["network", "bulk", if announces { "add" } else { "delete" }]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().context("bgpctl")?;
        let mut input = child.stdin.take().context("input of bgpctl")?;
        for prefix in prefixes {
            writeln!(input, "{prefix}")?;
        }
        drop(input);
        let status = child.wait()?;
        ensure!(status.success(), "bgpctl network bulk ended with {status}");
        Ok(())
    }

    /// All that it has logged, at the level that tells the states of sessions.
    pub fn lines(&self) -> Vec<Line> {
        self.process.lines()
    }

    /// kill -9.
    ///
    /// # Errors
    /// It is gone.
    pub fn kill(&mut self) -> Result<()> {
        self.process.kill()
    }

    /// Starts it again after [`Self::kill`], with the same configuration.
    ///
    /// # Errors
    /// It does not run.
    pub fn start_again(&mut self, host: &Namespace) -> Result<()> {
        self.process.start_again(command(&self.programs, host, &self.configuration))?;
        self.process.until_answers(|| self.bgpctl(&["show"]))
    }
}

fn command(programs: &Programs, host: &Namespace, configuration: &PathBuf) -> Command {
    let mut command = host.command(programs.path("/usr/sbin/bgpd", "openbgpd"));
    command.args(["-d", "-v", "-f"]).arg(configuration);
    command
}

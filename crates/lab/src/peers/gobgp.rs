//! GoBGP.

mod paths;

use std::{path::PathBuf, process::Command};

use anyhow::{Context, Result};
use holdfast_types::Prefix;

use super::{
    Programs,
    process::{Directory, Line, Process, inside},
};
use crate::netns::Namespace;

/// GoBGP.
#[derive(Debug)]
pub struct GoBgp {
    programs: Programs,
    process: Process,
    host: String,
    configuration: PathBuf,
    _directory: Directory,
}

impl GoBgp {
    /// Starts it with this configuration, and waits until it answers.
    ///
    /// # Errors
    /// It does not run.
    pub fn start_of(programs: Programs, host: &Namespace, configuration: &str) -> Result<Self> {
        let directory = Directory::new("gobgp")?;
        let configuration = directory.write("gobgpd.toml", 0o600, configuration)?;
        let process = Process::start(command(&programs, host, &configuration))?;
        let host = host.name().to_owned();
        let started = Self { programs, process, host, configuration, _directory: directory };
        started.until_answers()?;
        Ok(started)
    }

    fn until_answers(&self) -> Result<()> {
        self.process.until_answers(|| self.gobgp(&["global"]))
    }

    /// One command of gobgp.
    ///
    /// # Errors
    /// It fails.
    pub fn gobgp(&self, args: &[&str]) -> Result<String> {
        inside(&self.host, &self.programs.path("gobgp", "gobgp"), args)
    }

    /// Announces prefixes, and withdraws others. The program `gobgp` would do so one by one.
    ///
    /// # Errors
    /// It does not take them.
    pub fn change(&self, host: &Namespace, announced: Vec<Prefix>, withdrawn: Vec<Prefix>) -> Result<()> {
        host.run(move || paths::change(&announced, &withdrawn))?.with_context(|| self.process.text())
    }

    /// All that it has logged.
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
        self.until_answers()
    }
}

fn command(programs: &Programs, host: &Namespace, configuration: &PathBuf) -> Command {
    let mut command = host.command(programs.path("gobgpd", "gobgpd"));
    command
        .arg("-f")
        .arg(configuration)
        .arg("--api-hosts")
        .arg(paths::API.to_string())
        .arg("--pprof-disable");
    command
}

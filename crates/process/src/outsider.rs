//! A program of somebody else, as the process that the keeper starts for a protocol with a descriptor.
//!
//! It begins as the router's own binary, which knows how a process gives its rights up. It reads the descriptor again, whoever
//! has sent it, becomes the user of the protocol, closes files and system calls, and executes the program in its own place.
//! Standard input is the channel to the keeper, and standard output a pipe to it. What goes wrong before the program is
//! there is a line of the router's log; the program itself has the pipe in the place of that.

use std::{
    convert::Infallible,
    ops::Range,
    os::unix::process::CommandExt,
    process::{Command, ExitCode},
};

use anyhow::{Context, Result, ensure};
use holdfast_config::Descriptor;
use holdfast_sandbox::{Rights, Sandbox};
use rustix::process::Signal;
use tracing::error;

use crate::log;

/// The command of the binary, before the name of the protocol.
pub const OUTSIDER: &str = "outsider";
/// In its environment: the text of the descriptor.
pub const DESCRIPTOR: &str = "HOLDFAST_DESCRIPTOR";
/// In the environment of the program: the name of the protocol.
const NAME: &str = "HOLDFAST_PROTOCOL";
/// Where the program looks for others.
const PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// The users of protocols with a descriptor: so many after the first. Those of our own processes are below.
pub const OUTSIDERS: Range<u32> = 200..456;

/// Becomes the program of the protocol of this name; returns only if that cannot be.
pub fn become_outsider(name: &str) -> ExitCode {
    log::start(name, "info", "text");
    match execute(name) {
        Ok(never) => match never {},
        Err(error) => {
            error!(event = "process-failed", process = name, "{error:#}");
            ExitCode::FAILURE
        }
    }
}

fn execute(name: &str) -> Result<Infallible> {
    ensure!(rustix::net::sockopt::socket_type(std::io::stdin()).is_ok(), "it is started by the keeper");
    let text = std::env::var(DESCRIPTOR).context("there is no descriptor")?;
    let descriptor = Descriptor::parse(&text, "its descriptor")?;
    holdfast_sys::process::set_name(name)?;
    std::env::set_current_dir("/")?;
    let reads = descriptor.reads.iter().chain([&descriptor.program]).cloned();
    let sandbox = Sandbox::new(Rights::program(reads.collect()));
    sandbox.take_rights()?;
    let user = rustix::process::geteuid();
    ensure!(
        !user.is_root() && Some(user.as_raw()) == sandbox.user(),
        "it cannot become a user of its own: a router without rights executes no programs of others"
    );
    // Another user forgets it, and another program does not.
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
    let environment =
        [log::LEVEL, log::FORMAT].map(|name| (name, std::env::var_os(name).unwrap_or_default()));
    let mut command = Command::new(&descriptor.program);
    command.args(&descriptor.arguments).env_clear().envs(environment);
    command.env(NAME, name).env("PATH", PATH).env("LANG", "C.UTF-8");
    sandbox.close()?;
    let log = rustix::io::fcntl_dupfd_cloexec(std::io::stderr(), 0)?;
    rustix::stdio::dup2_stderr(std::io::stdout())?;
    let error = command.exec();
    rustix::stdio::dup2_stderr(log)?;
    Err(error).with_context(|| format!("executing {}", descriptor.program.display()))
}

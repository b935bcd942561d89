//! Which processes a configuration wants, and what each takes at its birth only: a change of that replaces the process.
//!
//! Sessions and the kernel's routes outlive the processes that have them, so that a setting that is worked into every route
//! need not change in a process that runs.

use holdfast_config::{
    Config, Descriptor,
    schema::{ProcessLimits, SandboxMode},
};
use holdfast_process::{Processes, Reads};

use crate::outsiders;

/// How this process is called.
pub(crate) const MANAGER: &str = "manager";

/// Which processes a configuration wants, in the order of start.
pub(crate) fn wanted(processes: &Processes, config: &Config) -> Vec<&'static str> {
    let names = processes.as_configured().map(|process| process.name);
    names.filter(|name| is_wanted(processes, name, config)).chain(outsiders::names(config)).collect()
}

/// Whether a configuration wants the process of this name.
pub(crate) fn is_wanted(processes: &Processes, process: &str, config: &Config) -> bool {
    match processes.named(process).map(|process| process.reads) {
        Some(Reads::Config(reader)) => (reader.is_wanted)(config),
        Some(Reads::Section(_)) | None => process == MANAGER || config.sections.contains_key(process),
    }
}

/// The class of the process that says when this one may have its configuration.
pub(crate) fn waits_for(processes: &Processes, process: &str, config: &Config) -> Option<&'static str> {
    let class = match processes.named(process).map(|process| process.reads) {
        Some(Reads::Config(reader)) => (reader.waits_for)(config)?,
        Some(Reads::Section(_)) | None => return None,
    };
    is_wanted(processes, class, config).then_some(class)
}

/// What the router gives a process at its birth only.
#[derive(PartialEq)]
struct Birth {
    sandbox: SandboxMode,
    /// The first of the users, one of which it becomes.
    first_user: u32,
    limits: ProcessLimits,
    /// Of a program of somebody else.
    descriptor: Option<&'static Descriptor>,
}

fn birth(process: &str, config: &Config) -> Birth {
    let descriptor = outsiders::descriptor(process, config);
    // The manager keeps the router's, and the keeper knows those of programs of others.
    let is_given = process != MANAGER && descriptor.is_none();
    Birth {
        sandbox: config.sandbox.mode,
        first_user: if is_given { config.sandbox.first_user } else { 0 },
        limits: config.sandbox.limits_of(process),
        descriptor,
    }
}

/// Whether a process has to be another one for another configuration, and is wanted by both.
pub(crate) fn is_replaced(processes: &Processes, process: &str, old: &Config, new: &Config) -> bool {
    let takes_other = || match processes.named(process).map(|process| process.reads) {
        Some(Reads::Config(reader)) => (reader.is_replaced)(old, new),
        Some(Reads::Section(_)) | None => false,
    };
    [old, new].iter().all(|config| is_wanted(processes, process, config))
        && (birth(process, old) != birth(process, new) || takes_other())
}

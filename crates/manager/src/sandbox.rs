//! How each process is confined, as far as the configuration has a say.

use holdfast_api::{
    keeper::v1::Sandbox,
    manager::v1::{Limits, Process},
};
use holdfast_config::{Config, schema::SandboxMode};
use holdfast_process::{Closed, Files, Processes, Reads, User, status};
use tracing::{info, warn};

/// How the process of this name is confined. The manager keeps the router's user, since the configuration is that user's.
pub fn sandbox(name: &str, config: &Config, processes: &Processes) -> Sandbox {
    let settings = &config.sandbox;
    let process = processes.named(name);
    let user = match process.map(|process| process.user) {
        Some(User::Own(number)) if settings.first_user != 0 => settings.first_user + number,
        // The keeper knows those of programs of others.
        Some(User::Own(_) | User::OfRouter) | None => 0,
    };
    let limits = settings.limits_of(name);
    Sandbox {
        open: settings.mode == SandboxMode::Off,
        user,
        memory_octets: limits.memory.map_or(0, holdfast_config::schema::Size::octets),
        cpu_percent: limits.cpu.unwrap_or(0),
        directories: match process.map(|process| (&process.rights.files, process.reads)) {
            Some((Files::Output, Reads::Config(reader))) => (reader.directories)(config),
            Some(_) | None => Vec::new(),
        },
    }
}

/// Says once what closes the processes.
pub(crate) fn log(mode: SandboxMode, closed: Closed) {
    match (mode, closed.landlock) {
        (SandboxMode::Off, _) => warn!(event = "sandbox", "the sandbox is off: neither Landlock nor seccomp"),
        (SandboxMode::Enforce, 0) => {
            warn!(event = "sandbox", "the kernel has no Landlock: seccomp alone closes the processes");
        }
        (SandboxMode::Enforce, version) => {
            info!(event = "sandbox", landlock = version, "Landlock and seccomp close the processes");
        }
    }
}

/// Adds to a process what is in force for it, as the kernel tells; Landlock has no place there.
pub(crate) fn tell(process: &mut Process, closed: Closed) {
    let Some(status) = Some(process.pid).filter(|pid| *pid != 0).and_then(status) else { return };
    process.user = status.user;
    process.capabilities = status.capabilities;
    process.seccomp = status.seccomp;
    // A process that has just begun is closed by both or by neither; the keeper is not.
    process.landlock = if process.name != "keeper" && status.seccomp { closed.landlock } else { 0 };
    process.limits = Some(Limits {
        memory_octets: status.limits.memory.unwrap_or(0),
        cpu_percent: status.limits.cpu.unwrap_or(0),
    });
}

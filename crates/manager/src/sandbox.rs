//! How each process is confined, as far as the configuration has a say.

use std::{collections::BTreeSet, path::Path};

use holdfast_api::{
    keeper::v1::Sandbox,
    manager::v1::{Limits, Process},
};
use holdfast_config::{Config, schema::SandboxMode};
use holdfast_process::{Closed, Files, Processes, User, status};
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
        directories: match process.map(|process| &process.rights.files) {
            Some(Files::Output) => directories(config),
            Some(Files::Handed | Files::Configuration(_) | Files::Program(_)) | None => Vec::new(),
        },
    }
}

/// Where dumps are written.
pub(crate) fn directories(config: &Config) -> Vec<String> {
    let dumps = config.bgp.iter().flat_map(|bgp| &bgp.mrt);
    let parents = dumps.filter_map(|mrt| Some(Path::new(&mrt.file).parent()?.to_str()?.to_owned()));
    parents.collect::<BTreeSet<_>>().into_iter().collect()
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

#[cfg(test)]
mod tests {

    use holdfast_config::ProcessKeys;

    use super::*;

    fn of(name: &str, section: &str) -> Sandbox {
        let text = format!("[router]\nid = \"10.0.0.1\"\nasn = 65000\n{section}");
        let config = holdfast_config::parse(
            &text,
            "test",
            holdfast_config::Schema::new([ProcessKeys {
                name: "bgp",
                does: "speaks BGP",
                section: None,
                routing: None,
            }]),
        )
        .expect("no errors");
        sandbox(name, &config, &crate::tests::processes())
    }

    #[test]
    fn each_process_but_the_manager_has_a_user_of_its_own() {
        let users = ["manager", "fea", "rib", "bgp", "metrics", "glass", "transport", "rpki", "monitor"];
        let users = users.map(|name| of(name, "").user);
        assert_eq!(users, [0, 60_700, 60_701, 60_702, 60_703, 60_704, 60_705, 60_706, 0]);
        assert_eq!(of("bgp", "[sandbox]\nfirst-user = 900\n").user, 902);
        assert_eq!(of("bgp", "[sandbox]\nfirst-user = 0\n").user, 0);
    }

    #[test]
    fn limits_are_for_the_process_that_they_name() {
        let file = "[sandbox.limits.bgp]\nmemory = \"2 GiB\"\ncpu = 150\n";
        let limits = |name| (of(name, file).memory_octets, of(name, file).cpu_percent);
        assert_eq!((limits("bgp"), limits("rib")), ((2 << 30, 150), (0, 0)));
    }

    #[test]
    fn it_is_open_only_where_that_is_said() {
        assert!(!of("bgp", "").open && of("bgp", "[sandbox]\nmode = \"off\"\n").open);
    }
}

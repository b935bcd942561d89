//! How each process is confined, as far as the configuration has a say.

use std::{collections::BTreeSet, path::Path};

use holdfast_api::{
    keeper::v1::Sandbox,
    manager::v1::{Limits, Process},
};
use holdfast_config::{Config, schema::SandboxMode};
use holdfast_process::{Closed, status};
use tracing::{info, warn};

/// Who becomes a user of its own, in the order of their numbers: new ones at the end. The manager keeps the router's:
/// the configuration is that user's; and so does the monitor: the dumps are, too.
const USERS: [&str; 7] = ["fea", "rib", "bgp", "metrics", "glass", "transport", "rpki"];

/// How the process of this name is confined.
pub fn sandbox(name: &str, config: &Config) -> Sandbox {
    let settings = config.sandbox;
    let place = USERS.iter().position(|user| *user == name);
    let user = place.filter(|_| settings.first_user != 0).map(|place| settings.first_user + place as u32);
    let limits = settings.limits_of(name);
    Sandbox {
        open: settings.mode == SandboxMode::Off,
        user: user.unwrap_or(0),
        memory_octets: limits.memory.map_or(0, holdfast_config::schema::Size::octets),
        cpu_percent: limits.cpu.unwrap_or(0),
        directories: if name == "monitor" { directories(config) } else { Vec::new() },
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
    use super::*;

    fn of(name: &str, section: &str) -> Sandbox {
        let text = format!("[router]\nid = \"10.0.0.1\"\nasn = 65000\n{section}");
        sandbox(name, &holdfast_config::parse(&text, "test").expect("no errors"))
    }

    #[test]
    fn each_process_but_the_manager_has_a_user_of_its_own() {
        let users = ["manager", "fea", "rib", "bgp"].map(|name| of(name, "").user);
        assert_eq!(users, [0, 60_700, 60_701, 60_702]);
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

//! Another process in the place of one that runs: for another build, or for what is decided at its birth.
//!
//! Sessions and the kernel's routes outlive the processes that have them, so that a setting that a process takes at its
//! birth only is changed by replacing it.

use std::time::Duration;

use holdfast_config::{
    Config,
    schema::{Damping, ProcessLimits, Size},
};
use holdfast_process::End;
use holdfast_types::RouterId;
use rustix::process::Signal;

use crate::{
    is_wanted, sandbox,
    service::Manager,
    supervisor::{Process, State},
};

/// A new process takes no longer to run.
const RUN_LIMIT: Duration = Duration::from_secs(60);
/// So often a new process may die before it runs.
const MOST_DEATHS: u32 = 3;

/// A process that is about to be replaced.
pub(crate) struct Replacement<'a> {
    manager: &'a Manager,
    name: &'a str,
    pub(crate) old: Option<u32>,
    deaths: u32,
}

impl<'a> Replacement<'a> {
    /// Begins with the process as it is. Its deaths until now no longer delay its next start.
    pub(crate) fn of(manager: &'a Manager, name: &'a str) -> Self {
        let old = manager.pid(name);
        manager.supervisor.borrow_mut().forgive(name);
        Self { manager, name, old, deaths: deaths(manager, name) }
    }

    /// Ends it as its descriptor says.
    pub(crate) fn end(&self, reason: &str) {
        let signal = match self.manager.processes.named(self.name).map(|process| process.end) {
            Some(End::Asked) => Signal::TERM,
            Some(End::Killed) | None => Signal::KILL,
        };
        self.old.iter().for_each(|pid| self.manager.signal(*pid, signal, reason));
    }

    /// Waits until another one runs.
    ///
    /// # Errors
    /// In words of the operator, why none does.
    pub(crate) async fn runs(&self) -> Result<(), String> {
        let runs = async {
            loop {
                // Before it is looked at: nothing is missed.
                let (running, ended) = (self.manager.running.notified(), self.manager.ended.notified());
                let state = self.look(|process| process.state.clone());
                if let Some(State::Running { pid, .. }) = state
                    && Some(pid) != self.old
                {
                    return Ok(());
                }
                if deaths(self.manager, self.name).saturating_sub(self.deaths) > MOST_DEATHS {
                    let how = self.look(|process| process.last_exit.clone()).unwrap_or_default();
                    return Err(format!("it has ended {MOST_DEATHS} times ({how})"));
                }
                tokio::select! { () = running => {} () = ended => {} }
            }
        };
        let late = |_| {
            let now = self.look(|process| format!("it is {}; {}", process.state.word(), process.detail));
            Err(now.unwrap_or_default())
        };
        tokio::time::timeout(RUN_LIMIT, runs).await.unwrap_or_else(late)
    }

    fn look<T>(&self, what: impl FnOnce(&Process) -> T) -> Option<T> {
        self.manager.supervisor.borrow().process(self.name).map(what)
    }
}

fn deaths(manager: &Manager, name: &str) -> u32 {
    manager.supervisor.borrow().process(name).map_or(0, |process| process.restarts)
}

/// What a process takes at its birth only.
#[derive(Debug, PartialEq)]
struct Birth {
    limits: ProcessLimits,
    /// Where it writes.
    directories: Vec<String>,
    /// Of connected routes, and of those of BGP.
    distances: Option<[u8; 3]>,
    speaker: Option<Speaker>,
}

/// What `bgp` has worked into every route.
#[derive(Debug, PartialEq)]
struct Speaker {
    local_preference: u32,
    max_paths: u8,
    cluster_id: Option<RouterId>,
    damping: Option<Damping>,
    nonstop_memory: Size,
}

fn birth(process: &str, config: &Config) -> Birth {
    let limits = match process {
        // What it carries would end with it: its limits are in effect from its next start on.
        "transport" => ProcessLimits::default(),
        _ => config.sandbox.limits_of(process),
    };
    let distance = config.rib.distance;
    let speaker = config.bgp.as_ref().filter(|_| process == "bgp").map(|bgp| Speaker {
        local_preference: bgp.local_preference,
        max_paths: bgp.max_paths,
        cluster_id: bgp.cluster_id,
        damping: bgp.damping,
        nonstop_memory: bgp.nonstop_memory,
    });
    Birth {
        limits,
        directories: if process == "monitor" { sandbox::directories(config) } else { Vec::new() },
        distances: ["rib", "bgp"].contains(&process).then_some([
            distance.connected,
            distance.ebgp,
            distance.ibgp,
        ]),
        speaker,
    }
}

/// Whether a process has to be another one for another configuration, and is wanted by both.
pub(crate) fn is_replaced(process: &str, old: &Config, new: &Config) -> bool {
    is_wanted(process, old) && is_wanted(process, new) && birth(process, old) != birth(process, new)
}

//! A process in the place of another one, which dies, or lives on for the connections that it carries.

use std::time::Duration;

use holdfast_api::transport::v1::{RetireRequest, TransportClient};
use holdfast_process::End;
use holdfast_xrl::{ErrorKind, XrlError};
use rustix::process::Signal;
use tracing::warn;

use crate::{
    manager::Manager,
    outsiders,
    supervisor::{Process, State},
};

/// The process that carries connections, which no other can take over: it retires.
pub(crate) const CARRIES: &str = "transport";
/// It gives its place up within this time.
const RETIRE_LIMIT: Duration = Duration::from_secs(5);
/// A new process takes no longer to run.
const RUN_LIMIT: Duration = Duration::from_secs(60);
/// So often a new process may die before it runs.
const MOST_DEATHS: u32 = 3;

/// A process that is about to be replaced.
pub(crate) struct Replacement<'a> {
    manager: &'a Manager,
    pub(crate) name: &'a str,
    old: Option<u32>,
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

    /// Has one that carries connections live on for them, not as this process; whether it does.
    pub(crate) async fn retire(&self) -> bool {
        let Some(pid) = self.old else { return false };
        match ask_to_retire(self.manager, false).await {
            Ok(0) => return false,
            Ok(_) => {}
            // It leaves whoever has called it.
            Err(error) if error.kind() == ErrorKind::Disconnected => {}
            Err(error) => {
                let process = self.name;
                warn!(event = "retirement-failed", process, pid, "its connections end: {error}");
                return false;
            }
        }
        let retired = async {
            loop {
                let ended = self.manager.ended.notified();
                if self.manager.pid(self.name) != Some(pid) {
                    return;
                }
                ended.await;
            }
        };
        let in_time = tokio::time::timeout(RETIRE_LIMIT, retired).await.is_ok();
        if !in_time {
            let process = self.name;
            warn!(
                event = "retirement-failed",
                process, pid, "its connections end: it does not retire in time"
            );
        }
        in_time
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
                // One that waits for its time has nothing else to do here.
                if let Some(State::Running { pid, .. } | State::Waiting { pid, .. }) = state
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
        let limit = outsiders::patience(self.name, &self.manager.config(), RUN_LIMIT);
        tokio::time::timeout(limit, runs).await.unwrap_or_else(late)
    }

    fn look<T>(&self, what: impl FnOnce(&Process) -> T) -> Option<T> {
        self.manager.supervisor.borrow().process(self.name).map(what)
    }
}

fn deaths(manager: &Manager, name: &str) -> u32 {
    manager.supervisor.borrow().process(name).map_or(0, |process| process.restarts)
}

/// How many connections there are for which [`CARRIES`] would retire. One of an earlier build does not, and does not know
/// the question.
pub(crate) async fn carried(manager: &Manager) -> u32 {
    ask_to_retire(manager, true).await.unwrap_or(0)
}

async fn ask_to_retire(manager: &Manager, dry_run: bool) -> Result<u32, XrlError> {
    let asked = async {
        let transport: TransportClient = manager.resolver.client(CARRIES).await?;
        Ok(transport.retire(RetireRequest { dry_run }).await?.connections)
    };
    let late = |_| Err(XrlError::timeout("no answer"));
    tokio::time::timeout(RETIRE_LIMIT, asked).await.unwrap_or_else(late)
}

//! The orderly stop: of all processes, or of those that another configuration does not want.

use std::{
    rc::Rc,
    time::{Duration, Instant},
};

use holdfast_api::{
    bgp::v1::{BgpClient, ShutdownRequest as BgpShutdown},
    fea::v1::{FeaClient, ShutdownRequest as FeaShutdown},
    finder::v1::ListRequest,
    keeper::v1::{Empty as KeeperEmpty, ForgetRequest},
};
use holdfast_config::Config;
use holdfast_process::OLD_TRANSPORT;
use holdfast_xrl::XrlError;
use rustix::process::Signal;
use tokio::time::timeout;
use tracing::{info, warn};

use crate::{birth::wanted, manager::Manager, outsiders};

/// What one process may take to stop in order.
const STOP_LIMIT: Duration = Duration::from_secs(8);
/// How often it is looked whether a process that ends is still registered.
const LOOK: Duration = Duration::from_millis(10);

impl Manager {
    /// Stops everything in order, then tells the keeper.
    pub(crate) async fn stop(self: Rc<Self>) {
        info!(event = "stop-begun", "stopping all processes");
        let names: Vec<_> = self.in_turn().into_iter().filter(|name| self.pid(name).is_some()).collect();
        self.supervisor.borrow_mut().stop();
        for name in names {
            self.shut_down(name, "Holdfast is stopped").await;
            if let Some(pid) = self.pid(name) {
                self.signal(pid, Signal::TERM, "");
                self.wait_for_end(name).await;
            }
        }
        // What they carry has ended with `bgp`.
        self.end_retired(Signal::TERM, "").await;
        self.keeper.stopped(KeeperEmpty {}).detach();
    }

    /// Starts what a new configuration wants besides, and ends what it does not, in order. Nothing that the keeper has of
    /// who is gone is left for a next one.
    pub(crate) async fn want(&self, config: &Config) {
        let wanted = wanted(&self.processes, config);
        let is_gone =
            |name: &&str| !wanted.contains(name) && self.supervisor.borrow().process(name).is_some();
        let gone: Vec<_> = self.in_turn().into_iter().filter(is_gone).collect();
        for name in gone.iter().filter(|name| self.pid(name).is_some()) {
            self.shut_down(name, "BGP is not configured any more").await;
        }
        let ending = self.supervisor.borrow_mut().want(&wanted, Instant::now());
        for (name, pid) in &ending {
            self.signal(*pid, Signal::TERM, "not wanted any more");
            if self.is_foreign(name) {
                outsiders::end_for_good(self.keeper.clone(), *pid);
            }
        }
        let pids: Vec<_> = ending.into_iter().map(|(_, pid)| pid).collect();
        self.changed.notify_one();
        if timeout(STOP_LIMIT, self.are_gone(&pids)).await.is_err() {
            warn!(event = "stop-failed", "{} do not end", gone.join(", "));
        }
        for name in gone {
            if let Err(error) = self.keeper.forget(ForgetRequest { owner: name.to_owned() }).await {
                warn!(event = "stop-failed", process = name, "the keeper keeps what it has of it: {error}");
            }
        }
    }

    /// All processes in the order in which they are stopped: who feeds another stops first.
    fn in_turn(&self) -> Vec<&'static str> {
        let supervisor = self.supervisor.borrow();
        let foreign =
            supervisor.processes().iter().map(|process| process.name).filter(|name| self.is_foreign(name));
        foreign.chain(self.processes.as_configured().rev().map(|process| process.name)).collect()
    }

    /// Whether it is a program of somebody else.
    fn is_foreign(&self, name: &str) -> bool {
        self.processes.named(name).is_none()
    }

    /// Returns when nobody with these process ids is registered at the Finder.
    async fn are_gone(&self, pids: &[u32]) {
        loop {
            let listed = match self.resolver.finder() {
                Ok(finder) => finder.list(ListRequest {}).await,
                Err(error) => Err(error),
            };
            if !listed
                .is_ok_and(|listed| listed.instances.iter().any(|instance| pids.contains(&instance.pid)))
            {
                return;
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    async fn shut_down(&self, name: &str, text: &str) {
        let shut_down = timeout(STOP_LIMIT, self.ask_to_shut_down(name, text)).await;
        if let Err(error) = shut_down.unwrap_or_else(|_| Err(XrlError::timeout("no answer"))) {
            warn!(event = "stop-failed", process = name, "does not stop in order: {error}");
        }
    }

    async fn ask_to_shut_down(&self, name: &str, text: &str) -> Result<(), XrlError> {
        match name {
            "bgp" => {
                let text = text.to_owned();
                self.resolver.client::<BgpClient>(name).await?.shutdown(BgpShutdown { text }).await?;
            }
            "fea" => {
                let keep_routes = self.config().fea.keep_routes;
                self.resolver.client::<FeaClient>(name).await?.shutdown(FeaShutdown { keep_routes }).await?;
            }
            _ => {}
        }
        Ok(())
    }

    async fn wait_for_end(&self, name: &str) {
        let ended = async {
            while self.pid(name).is_some() {
                self.ended.notified().await;
            }
        };
        if timeout(STOP_LIMIT, ended).await.is_err() {
            warn!(event = "stop-failed", process = name, "does not end");
        }
    }

    /// Ends those that have given their place up, with what they carry; whether all have ended.
    pub(crate) async fn end_retired(&self, signal: Signal, reason: &str) -> bool {
        self.retired.borrow().keys().for_each(|pid| self.signal(*pid, signal, reason));
        let ended = async {
            loop {
                let ended = self.ended.notified();
                if self.retired.borrow().is_empty() {
                    return;
                }
                ended.await;
            }
        };
        let all = timeout(STOP_LIMIT, ended).await.is_ok();
        if !all {
            warn!(event = "stop-failed", process = OLD_TRANSPORT, "does not end");
        }
        all
    }
}

//! The orderly stop.

use std::{rc::Rc, time::Duration};

use holdfast_api::{
    bgp::v1::{BgpClient, ShutdownRequest as BgpShutdown},
    fea::v1::{FeaClient, ShutdownRequest as FeaShutdown},
    keeper::v1::Empty as KeeperEmpty,
};
use holdfast_process::OLD_TRANSPORT;
use holdfast_xrl::XrlError;
use rustix::process::Signal;
use tokio::time::timeout;
use tracing::{info, warn};

use crate::manager::Manager;

/// What one process may take to stop in order.
const STOP_LIMIT: Duration = Duration::from_secs(8);

impl Manager {
    /// Stops everything in order, then tells the keeper.
    pub(crate) async fn stop(self: Rc<Self>) {
        info!(event = "stop-begun", "stopping all processes");
        // Who feeds another stops first.
        let names = self.processes.as_configured().rev().map(|process| process.name);
        let names: Vec<_> = names.filter(|name| self.pid(name).is_some()).collect();
        self.supervisor.borrow_mut().stop();
        for name in names {
            let shut_down = timeout(STOP_LIMIT, self.shut_down(name)).await;
            if let Err(error) = shut_down.unwrap_or_else(|_| Err(XrlError::timeout("no answer"))) {
                warn!(event = "stop-failed", process = name, "does not stop in order: {error}");
            }
            if let Some(pid) = self.pid(name) {
                self.signal(pid, Signal::TERM, "");
                self.wait_for_end(name).await;
            }
        }
        // What they carry has ended with `bgp`.
        self.end_retired(Signal::TERM, "").await;
        self.keeper.stopped(KeeperEmpty {}).detach();
    }

    async fn shut_down(&self, name: &str) -> Result<(), XrlError> {
        match name {
            "bgp" => {
                let text = "Holdfast is stopped".to_owned();
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

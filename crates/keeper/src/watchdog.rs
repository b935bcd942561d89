//! The service manager is told that the router is ready, and then that it lives, as long as its manager answers.

use std::{rc::Rc, time::Duration};

use holdfast_api::manager::v1::AliveRequest;
use tracing::warn;

use crate::service::Keeper;

/// Who does not take its configuration within this time does not keep the router from being ready.
const READY_LIMIT: Duration = Duration::from_secs(60);
/// Pause before a manager that does not answer is asked again.
const PAUSE: Duration = Duration::from_millis(100);

/// Says when the router is ready, and then that it lives, for ever.
pub(crate) async fn attend(keeper: Rc<Keeper>) {
    if keeper.systemd.address.is_none() {
        return;
    }
    if tokio::time::timeout(READY_LIMIT, answered(&keeper, true)).await.is_err() {
        warn!(event = "ready-in-part", "ready, with processes that do not take their configuration");
    }
    keeper.systemd.ready();
    let Some(interval) = keeper.systemd.watchdog.map(|interval| interval / 2) else { return };
    loop {
        if keeper.hangs.borrow().interval().is_some() {
            answered(&keeper, false).await;
        }
        keeper.systemd.say("WATCHDOG=1");
        tokio::time::sleep(interval).await;
    }
}

/// Returns when the manager has answered, with `running` when all processes run.
async fn answered(keeper: &Rc<Keeper>, running: bool) {
    while keeper.manager_alive(running).await.is_err() {
        tokio::time::sleep(PAUSE).await;
    }
}

impl Keeper {
    async fn manager_alive(&self, running: bool) -> Result<(), holdfast_xrl::XrlError> {
        let manager = self.manager()?;
        manager.alive(AliveRequest { running }).await.map(|_| ())
    }
}

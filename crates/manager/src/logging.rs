//! What everybody logs.

use std::rc::Rc;

use holdfast_api::{
    keeper::v1::LogFilter,
    log::v1::{Level, LogClient},
};
use holdfast_config::schema::Log;
use holdfast_process::spawn_task;
use holdfast_xrl::XrlError;
use tracing::warn;

use crate::{configure::CONFIGURE_LIMIT, manager::Manager};

/// Has everybody log in this way from now on. One that cannot be told now is told at its next start.
pub(crate) async fn follow(manager: Rc<Manager>, log: Log) {
    let wanted = LogFilter { filter: log.filter(), format: log.format.name().to_owned() };
    let LogFilter { filter, format } = match manager.keeper.set_log(wanted).await {
        Ok(in_effect) => in_effect,
        Err(error) => return warn!(event = "log-failed", "the keeper keeps its log as it is: {error}"),
    };
    holdfast_process::log::set("manager", &filter, &format);
    let ours = |name: &&str| manager.processes.named(name).is_some();
    let all: Vec<_> = manager.supervisor.borrow().processes().iter().map(|process| process.name).collect();
    for name in all.into_iter().filter(ours) {
        let manager = Rc::clone(&manager);
        let level = Level { filter: filter.clone(), format: format.clone() };
        spawn_task(async move {
            let told = async {
                let process: LogClient = manager.resolver.client(name).await?;
                process.set_level(level).await
            };
            let late = |_| Err(XrlError::timeout("no answer"));
            if let Err(error) = tokio::time::timeout(CONFIGURE_LIMIT, told).await.unwrap_or_else(late) {
                warn!(event = "log-failed", process = name, "keeps its log as it is: {error}");
            }
        });
    }
}

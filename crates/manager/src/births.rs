//! Whoever comes to life is told its configuration.

use std::{
    rc::Rc,
    time::{Duration, Instant},
};

use holdfast_api::ready::v1::{Empty, ReadyClient};
use holdfast_process::spawn_task;
use holdfast_xrl::{ErrorKind, Lifecycle, XrlError};
use tracing::{info, warn};

use crate::{birth, configure, manager::Manager, supervisor::Action};

/// Pause before a configuration that was refused is sent again.
const CONFIGURE_RETRY: Duration = Duration::from_secs(2);

/// Whoever says when others may be configured, and has not answered for so long, is not waited for.
const SILENCE: Duration = Duration::from_secs(10);
/// It answers after a second at the latest.
const ANSWER: Duration = Duration::from_secs(2);
/// Pause before it is asked again.
const ASK_AGAIN: Duration = Duration::from_millis(50);

/// Whoever registers at the Finder is told its configuration.
pub(crate) async fn births(manager: Rc<Manager>) {
    let mut watch = manager.resolver.watch("*");
    while let Ok(event) = watch.next().await {
        if let Lifecycle::Birth(instance) = event {
            let action =
                manager.supervisor.borrow_mut().registered(&instance.class, instance.pid, Instant::now());
            if let Some(Action::Configure(name)) = action {
                spawn_task(configure(Rc::clone(&manager), name, instance.pid));
            }
        }
    }
}

/// Tells a process its configuration, again and again while it lives and refuses. One at a time does so.
pub(crate) async fn configure(manager: Rc<Manager>, name: &'static str, pid: u32) {
    if !manager.supervisor.borrow_mut().begins_to_tell(name, pid) {
        return;
    }
    wait(&manager, name, pid).await;
    let is_alive = || manager.supervisor.borrow().is_alive(name, pid);
    if !is_alive() {
        // The next one of that name waits by itself.
        return;
    }
    manager.supervisor.borrow_mut().waited(name);
    // It did not answer before.
    let mut is_doubtful = false;
    loop {
        let result = configure::tell_all(&manager, name, is_alive).await;
        if !is_alive() {
            return;
        }
        match result {
            Ok(()) if manager.supervisor.borrow_mut().has_told(name, pid) => {}
            Ok(()) => {
                info!(event = "process-running", process = name, pid, "running");
                manager.supervisor.borrow_mut().configured(name);
                manager.tell_of_work();
                manager.running.notify_waiters();
                return;
            }
            // It has died, most likely: its end is told in a moment, and that is what there is to say of it.
            Err(error) if is_gone(&error) && !std::mem::replace(&mut is_doubtful, true) => {
                let ended = async {
                    while is_alive() {
                        manager.ended.notified().await;
                    }
                };
                let _ = tokio::time::timeout(CONFIGURE_RETRY, ended).await;
            }
            Err(error) => {
                warn!(
                    event = "configuration-refused",
                    process = name,
                    pid,
                    "does not take its configuration: {error}"
                );
                manager.supervisor.borrow_mut().refused(name, error.to_string());
                tokio::time::sleep(CONFIGURE_RETRY).await;
            }
        }
    }
}

/// Waits until the process may have its configuration. Whoever says so and does not answer for long keeps nobody waiting.
async fn wait(manager: &Manager, name: &'static str, pid: u32) {
    // Counted by questions: a router that was stopped as a whole has heard nothing for long, and nobody was silent.
    let mut silent = Duration::ZERO;
    while let Some(class) = birth::waits_for(&manager.processes, name, &manager.config())
        && manager.supervisor.borrow().is_alive(name, pid)
        && silent < SILENCE
    {
        manager.supervisor.borrow_mut().waits(name);
        manager.running.notify_waiters();
        let asked = async {
            let other: ReadyClient = manager.resolver.wait_for(class).await?;
            other.wait(Empty {}).await
        };
        let asked_at = Instant::now();
        match tokio::time::timeout(ANSWER, asked).await {
            Ok(Ok(reply)) if reply.ready => break,
            Ok(Ok(_)) => silent = Duration::ZERO,
            Ok(Err(_)) | Err(_) => {
                tokio::time::sleep(ASK_AGAIN).await;
                silent += asked_at.elapsed().min(ANSWER + ASK_AGAIN);
            }
        }
    }
    if silent >= SILENCE {
        warn!(event = "configuration-forced", process = name, "whoever it waits for does not answer");
    }
}

/// Whether nobody is there who could have refused.
fn is_gone(error: &XrlError) -> bool {
    matches!(error.kind(), ErrorKind::Disconnected | ErrorKind::NotFound | ErrorKind::Unavailable)
}

//! What other routers have is taken.

use std::{
    rc::Rc,
    sync::Arc,
    time::{Duration, Instant},
};

use holdfast_api::shared::v1::{Configuration, NextRequest, OfferRequest, SharedClient};
use holdfast_config::Config;
use holdfast_xrl::XrlError;
use tokio::time::{sleep, timeout};
use tracing::{debug, error, info};

use super::text::{merged, sealing};
use crate::{apart::apart, commit, manager::Manager, reload::Candidate, text::Text};

/// A process that shares has so long for what it answers after a second at the latest.
const NEXT_LIMIT: Duration = Duration::from_secs(5);
/// Between two attempts to ask it.
const RETRY: Duration = Duration::from_millis(500);

/// After so long what could not be taken is tried once more: the reason may have been a passing one.
const PATIENCE: Duration = Duration::from_secs(60);

/// What could not be taken.
struct Refused {
    serial: u64,
    /// What ran here.
    text: Arc<Text>,
    at: Instant,
}

/// Tells a process that shares what runs here, and takes what it has of another router, for ever.
pub(crate) async fn follow(manager: Rc<Manager>, name: &'static str) {
    let mut refused = None;
    loop {
        let Some(pid) = manager.pid(name) else {
            manager.running.notified().await;
            continue;
        };
        if let Err(error) = turn(&manager, name, pid, &mut refused).await {
            debug!("{name}: {}", error.message());
            sleep(RETRY).await;
        }
    }
}

async fn turn(
    manager: &Rc<Manager>,
    name: &str,
    pid: u32,
    refused: &mut Option<Refused>,
) -> Result<(), XrlError> {
    let own = manager.own().await?;
    let limit = || XrlError::timeout("no answer about the configuration");
    let shared = timeout(NEXT_LIMIT, manager.resolver.wait_for::<SharedClient>(name));
    let shared = shared.await.map_err(|_| limit())??;
    if manager.sharing.said.get() != Some((pid, own.number)) {
        let running = OfferRequest { configuration: Some(own.clone()), running: true };
        let reply = timeout(NEXT_LIMIT, shared.offer(running)).await.map_err(|_| limit())??;
        if manager.sharing.is_behind(own.serial, reply.serial) {
            // The clock was set back meanwhile: others would take it for an older one.
            return Ok(());
        }
        manager.sharing.said.set(Some((pid, own.number)));
    }
    let still = |refused: &Refused| {
        refused.at.elapsed() < PATIENCE && Arc::ptr_eq(&refused.text, &manager.text.borrow())
    };
    *refused = refused.take().filter(still);
    let request = NextRequest { refused: refused.as_ref().map_or(0, |refused| refused.serial) };
    let next = timeout(NEXT_LIMIT, shared.next(request));
    let reply = tokio::select! {
        reply = next => reply.map_err(|_| limit())??,
        () = manager.sharing.changed.notified() => return Ok(()),
    };
    let Some(theirs) = reply.configuration.filter(|theirs| theirs.number != own.number) else {
        return Ok(());
    };
    match take(manager, &theirs).await {
        Ok(()) => {
            info!(event = "configuration-taken", "this router is configured as the one with the sessions");
        }
        Err(why) => {
            error!(
                event = "configuration-not-taken",
                "the configuration of the router with the sessions cannot be taken here: {why}"
            );
            let text = Arc::clone(&manager.text.borrow());
            *refused = Some(Refused { serial: theirs.serial, text, at: Instant::now() });
        }
    }
    Ok(())
}

/// Has this router run what another one does, and keeps it in the file.
async fn take(manager: &Rc<Manager>, theirs: &Configuration) -> Result<(), String> {
    let _turn = manager.reloading.lock().await;
    let sealing = sealing(&manager.config()).ok_or("there is no `key-file` in [nonstop.store]")?;
    if theirs.serial < manager.sharing.taken.get() {
        return Err("it is older than one that was here before".to_owned());
    }
    let serial = theirs.serial;
    let (own, theirs) = (Arc::clone(&manager.text.borrow()), theirs.clone());
    let merge = move || {
        let own = own.read().map_err(|error| error.to_string())?;
        merged(&own, &theirs, &sealing)
    };
    let merged = apart(merge).await.map_err(|error| error.to_string())??;
    // It was opened, so whoever has the key has made it.
    manager.sharing.taken.set(serial);
    let name = "configuration of the other router";
    let candidate = Candidate::parse(merged, name, &manager.file, manager.schema).await;
    let candidate = candidate.map_err(|error| error.message().to_owned())?;
    let key = |config: &Config| config.store.as_ref().and_then(|store| store.key.clone());
    if key(&candidate.config) != key(&manager.config()) {
        return Err("the file with the key has been changed and not reloaded".to_owned());
    }
    let comment = "from the router with the sessions".to_owned();
    let taken = commit::take(manager, candidate, comment).await;
    taken.map_err(|error| error.message().to_owned())
}

//! Seeds are replaced when they are old, and `transport` is told.

use std::{rc::Rc, time::Instant};

use holdfast_api::transport::v1::TransportClient;
use holdfast_process::{OLD_TRANSPORT, Secrets};
use holdfast_xrl::{Client as _, XrlError};
use tokio::time::sleep_until;
use tracing::{info, warn};

use super::{OLD, beside::keep, fresh, say_not_kept, since_1970};
use crate::{configure, manager::Manager, reload, replacement::CARRIES, secrets};

/// Has others take their place whenever it is time, and tells `transport`; for ever.
pub(crate) async fn rotate(manager: Rc<Manager>) {
    loop {
        let due = manager.seeds.held.borrow().as_ref().map(|held| held.due);
        match due {
            Some(due) => sleep_until(due.into()).await,
            None => manager.seeds.begun.notified().await,
        }
        let _turn = manager.reloading.lock().await;
        if renew(&manager) && tell(&manager).await {
            info!(event = "seeds-rotated", "keys of QUIC have changed: those before are good for a day more");
        }
    }
}

fn renew(manager: &Manager) -> bool {
    let mut held = manager.seeds.held.borrow_mut();
    let Some(held) = held.as_mut() else { return false };
    let fresh = match fresh() {
        Ok(fresh) => fresh,
        Err(error) => {
            say_not_kept(&error);
            held.due += OLD;
            return false;
        }
    };
    let rotated = held.rotate(since_1970(), Instant::now(), &fresh);
    if rotated {
        keep(manager, &held.kept);
    }
    rotated
}

/// Every door of `transport`, and whether all have taken them. One that refuses is told again, as after its birth.
async fn tell(manager: &Rc<Manager>) -> bool {
    let mut all = true;
    for message in configure::all(manager, CARRIES).await.unwrap_or_default() {
        if let Err(error) = reload::tell(manager, CARRIES, message).await {
            warn!(event = "seeds-refused", "transport does not take other keys of QUIC: {error}");
            all = false;
        }
    }
    if !manager.retired.borrow().is_empty()
        && let Err(error) = tell_retired(manager).await
    {
        warn!(event = "seeds-refused", "{OLD_TRANSPORT} does not take other keys of QUIC: {error}");
    }
    all
}

/// One that has retired goes on making connection ids, for which its successor may have to answer.
async fn tell_retired(manager: &Manager) -> Result<(), XrlError> {
    // It proves nothing to anybody any more.
    let seeds = Secrets { seeds: true, ..Secrets::new(TransportClient::KEEP, &()) };
    let channel = manager.resolver.channel(OLD_TRANSPORT, TransportClient::SERVICE, false).await?;
    secrets::give(&seeds, &channel, manager).await
}

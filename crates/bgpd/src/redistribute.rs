//! The rib is followed, and what it says of routes of other protocols taken in ([`crate::redistribution`]).

use std::{
    rc::Rc,
    time::{Duration, Instant},
};

use holdfast_api::rib::v1::{RedistributeRequest, RibClient};
use holdfast_bgp_pipeline::Pressure;
use holdfast_xrl::XrlError;
use tokio::{sync::Notify, time::sleep};
use tracing::{info, warn};

use crate::{
    bgp::{Bgp, PACE},
    fairness::PATIENCE,
    redistribution::{Place, Wanted},
};

/// Pause between two attempts to talk to a rib.
const RETRY: Duration = Duration::from_millis(100);
/// Sessions of the process before wait so long for what the rib has to say before their peers are told what is new.
const RESUME_LIMIT: Duration = Duration::from_secs(30);

/// Follows the rib for ever; ends when nothing is wanted and all is withdrawn.
pub(crate) async fn run(bgp: Rc<Bgp>, wanted: Wanted) {
    if wanted.is_empty() {
        bgp.redistribution.borrow_mut().begin();
        return sweep(&bgp).await;
    }
    let mut said = String::new();
    loop {
        let error = follow(&bgp, &wanted).await.to_string();
        if said != error {
            warn!(event = "redistribution-lost", "redistribution: {error}");
            said = error;
        }
        sleep(RETRY).await;
    }
}

/// Follows one rib; what ended it. What it has said stays until the next one has said all.
async fn follow(bgp: &Rc<Bgp>, wanted: &Wanted) -> XrlError {
    let client = match bgp.surroundings.client::<RibClient>("rib").await {
        Ok(client) => client,
        Err(error) => return error,
    };
    bgp.redistribution.borrow_mut().begin();
    let request = RedistributeRequest { origins: wanted.keys().cloned().collect(), afi: 0 };
    let mut told = client.redistribute(request);
    loop {
        let message = match told.next().await {
            Ok(Some(message)) => message,
            Ok(None) => return XrlError::unavailable("the rib ended it"),
            Err(error) => return error,
        };
        room(bgp).await;
        let taken = bgp.with(|speaker, _| bgp.redistribution.borrow_mut().take(speaker, wanted, &message));
        if let Err(error) = taken {
            return error;
        }
        if message.synced {
            sweep(bgp).await;
            info!(
                event = "redistribution-synced",
                protocols = wanted.len(),
                "all routes to redistribute are here"
            );
        }
        // Sessions have their turn between two batches.
        tokio::task::yield_now().await;
    }
}

/// Waits until those who are told of changes have come near, as reading from peers does.
async fn room(bgp: &Bgp) {
    let start = Instant::now();
    while start.elapsed() < PATIENCE && bgp.speaker.borrow().pressure() > Pressure::Low {
        sleep(PACE).await;
    }
}

/// Withdraws what this telling has not named, in slices.
async fn sweep(bgp: &Rc<Bgp>) {
    let mut place = Some(Place::V4(None));
    while let Some(from) = place {
        place = bgp.with(|speaker, _| {
            let (gone, next) = bgp.redistribution.borrow_mut().unnamed(from);
            speaker.pipeline.withdraw_redistributed(&gone);
            next
        });
        tokio::task::yield_now().await;
    }
    bgp.redistribution.borrow_mut().is_awaited = false;
    bgp.redistributed.notify_waiters();
}

/// Waits until it is known what is redistributed, so that peers whose sessions go on are not told that it is gone.
pub(crate) async fn known(bgp: &Bgp) {
    let known = async {
        let notified: &Notify = &bgp.redistributed;
        loop {
            let swept = notified.notified();
            if !bgp.redistribution.borrow().is_awaited {
                return;
            }
            swept.await;
        }
    };
    if tokio::time::timeout(RESUME_LIMIT, known).await.is_err() {
        warn!(
            event = "redistribution-late",
            "the rib does not say what to redistribute: peers are told without it"
        );
    }
}

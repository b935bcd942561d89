//! What the table does on its own: background work in slices, and deadlines.

use std::{convert::Infallible, time::Instant};

use tokio::{task::yield_now, time::sleep_until};

use crate::router::Router;

/// Rows in a slice of background work: a fraction of a millisecond.
const SLICE: usize = 2048;

/// Does background work; between two slices everybody else has a turn.
pub(crate) async fn work(router: &Router) -> Infallible {
    let mut bell = router.bell();
    loop {
        let waits = router.quietly(|rib| rib.is_idle() || rib.is_congested());
        if waits {
            bell.rings().await;
        } else {
            router.change(|rib| rib.work(SLICE));
            yield_now().await;
        }
    }
}

/// Ends the patience with origins that do not come back.
pub(crate) async fn deadlines(router: &Router) -> Infallible {
    let mut bell = router.bell();
    loop {
        let due = router.quietly(|rib| rib.poll_timeout());
        let passes = async {
            match due {
                Some(due) => sleep_until(due.into()).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = passes => router.change(|rib| rib.handle_timeout(Instant::now())),
            () = bell.rings() => {}
        }
    }
}

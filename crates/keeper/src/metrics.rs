//! How full the keeper's queues are. The manager passes it on: nobody else reaches the keeper.

use std::rc::Rc;

use holdfast_process::metrics::{Metrics, Queue, Sheet};

use crate::{
    service::{EVENTS, Keeper},
    store::MOST_PER_OWNER,
};

/// Serves the numbers from now on.
pub(crate) fn register(keeper: &Rc<Keeper>) {
    let metrics = Metrics::of(&keeper.node);
    // The keeper has the node, which has this.
    let keeper = Rc::downgrade(keeper);
    metrics.register(move |sheet| {
        if let Some(keeper) = keeper.upgrade() {
            queues(sheet, &keeper);
        }
    });
}

fn queues(sheet: &mut Sheet, keeper: &Keeper) {
    let behind = keeper.events.len() as u64;
    let deaths = Queue { name: "deaths".into(), unit: "events".into(), ..Queue::default() };
    sheet.queue(Queue { length: behind, high: behind, bound: EVENTS as u64, ..deaths });
    for (owner, kept) in keeper.store.borrow().counts() {
        let queue = Queue { name: "descriptors".into(), unit: "descriptors".into(), ..Queue::default() };
        let (length, bound) = (kept as u64, MOST_PER_OWNER as u64);
        sheet.queue(Queue { of: owner.into(), length, high: length, bound, ..queue });
    }
}

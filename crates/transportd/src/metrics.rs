//! What the process counts, and how many connections wait to be taken.

use std::rc::{Rc, Weak};

use holdfast_process::metrics::{Metric, Metrics, Queue, Sheet};

use crate::{door::Door, handover};

static DECISIONS: Metric = Metric::counter(
    "holdfast_transport_attempts",
    "Attempts to connect, by the stage of admission that has decided and what",
);
static HANDSHAKES: Metric =
    Metric::gauge("holdfast_transport_handshakes", "Handshakes of TLS and QUIC under way");
static FAILED: Metric =
    Metric::counter("holdfast_transport_handshakes_failed", "Handshakes that were let in and failed");
static ESTABLISHED: Metric =
    Metric::counter("holdfast_transport_connections_accepted", "Connections that were let in");
static DROPS: Metric = Metric::counter(
    "holdfast_transport_kernel_drops",
    "Packets that the kernel has dropped at a listening socket: its filter did not let them through, or there was no room",
);
static CARRIED: Metric = Metric::gauge(
    "holdfast_transport_connections_carried",
    "Connections over TLS and QUIC, let in and dialled",
);

/// From now on the numbers can be read.
pub(crate) fn register(metrics: &Metrics, door: &Rc<Door>) {
    let door: Weak<Door> = Rc::downgrade(door);
    metrics.register(move |sheet| {
        if let Some(door) = door.upgrade() {
            read(sheet, &door);
        }
    });
}

fn read(sheet: &mut Sheet, door: &Door) {
    for metric in [&DECISIONS, &DROPS, &HANDSHAKES, &FAILED, &ESTABLISHED] {
        sheet.declare(metric);
    }
    sheet.add(&CARRIED, &[], door.carried.len() as u64);
    for entry in door.entries() {
        let (shown, address) = (entry.show(), entry.address.to_string());
        let labels = [("listener", address.as_str()), ("protocol", entry.protocol.name())];
        sheet.add(&DROPS, &labels, shown.kernel_drops);
        sheet.add(&HANDSHAKES, &labels, shown.handshakes.into());
        sheet.add(&FAILED, &labels, shown.failed);
        sheet.add(&ESTABLISHED, &labels, shown.established);
        for stage in &shown.stages {
            let decided = [
                ("ignored", stage.ignored),
                ("refused", stage.refused),
                ("retried", stage.retried),
                ("accepted", stage.accepted),
            ];
            for (verdict, count) in decided.into_iter().filter(|(_, count)| *count > 0) {
                let decided = [("stage", stage.name.as_str()), ("verdict", verdict)];
                sheet.add(&DECISIONS, &[labels.as_slice(), &decided].concat(), count);
            }
        }
    }
    let (length, high, lost) = door.handover.borrow().figures();
    sheet.queue(Queue {
        name: "handover".into(),
        unit: "connections".into(),
        length: length as u64,
        high: high as u64,
        bound: handover::MOST as u64,
        drops: lost,
        ..Queue::default()
    });
}

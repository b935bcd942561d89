//! What the process counts, and how many connections wait to be taken.

use std::rc::{Rc, Weak};

use holdfast_process::metrics::{Metric, Metrics, Queue, Sheet};

use crate::{door::ConnectionBroker, handover};

static DECISIONS: Metric = Metric::counter(
    "holdfast_transport_attempts",
    "Attempts to connect, by the stage of admission that has decided and what",
);
static HANDSHAKES: Metric = Metric::gauge(
    "holdfast_transport_handshakes",
    "Handshakes of TLS and QUIC under way, and connections whose first octets are waited for",
);
static PASSED: Metric = Metric::counter("holdfast_transport_passed", "Attempts that admission has let in");
static LET_IN: Metric =
    Metric::counter("holdfast_transport_let_in", "Of those, connections that were handed over");
static FAILED: Metric =
    Metric::counter("holdfast_transport_failed", "Of those, attempts that came to nothing");
static UNDER_WAY: Metric = Metric::gauge("holdfast_transport_under_way", "Of those, handshakes under way");
static REFUSED: Metric = Metric::counter(
    "holdfast_transport_refused_after_proof",
    "Of those, connections that were refused when the peer had proven who it is",
);
static NO_ATTEMPT: Metric = Metric::counter(
    "holdfast_transport_no_attempt",
    "Datagrams at a listener of QUIC that are no attempt and of no connection, by what they are",
);
static DROPS: Metric = Metric::counter(
    "holdfast_transport_kernel_drops",
    "Packets that the kernel has dropped at a listening socket: its filter did not let them through, or there was no room",
);
static CARRIED: Metric = Metric::gauge(
    "holdfast_transport_connections_carried",
    "Connections over TLS and QUIC, let in and dialled",
);

/// From now on the numbers can be read.
pub(crate) fn register(metrics: &Metrics, door: &Rc<ConnectionBroker>) {
    let door: Weak<ConnectionBroker> = Rc::downgrade(door);
    metrics.register(move |sheet| {
        if let Some(door) = door.upgrade() {
            read(sheet, &door);
        }
    });
}

fn read(sheet: &mut Sheet, door: &ConnectionBroker) {
    let of_attempts = [&PASSED, &LET_IN, &FAILED, &UNDER_WAY, &REFUSED];
    for metric in [&DECISIONS, &DROPS, &HANDSHAKES, &NO_ATTEMPT].into_iter().chain(of_attempts) {
        sheet.declare(metric);
    }
    sheet.add(&CARRIED, &[], door.carried.len() as u64);
    for entry in door.entries() {
        let (shown, address) = (entry.show(), entry.address.to_string());
        let labels = [("listener", address.as_str()), ("protocol", entry.protocol.name())];
        sheet.add(&DROPS, &labels, shown.kernel_drops);
        sheet.add(&HANDSHAKES, &labels, shown.handshakes.into());
        let outcomes =
            [shown.passed, shown.established, shown.failed, shown.under_way, shown.refused_after_proof];
        for (metric, count) in of_attempts.into_iter().zip(outcomes) {
            sheet.add(metric, &labels, count);
        }
        let strays = [
            ("garbage", shown.garbage),
            ("unknown_version", shown.unknown_version),
            ("resets_sent", shown.resets_sent),
        ];
        for (what, count) in strays.into_iter().filter(|_| entry.is_quic()) {
            sheet.add(&NO_ATTEMPT, &[labels.as_slice(), &[("what", what)]].concat(), count);
        }
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

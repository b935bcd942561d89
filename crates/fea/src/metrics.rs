//! What the process counts, and how many batches wait for the kernel.

use std::{cell::Cell, rc::Rc};

use holdfast_process::metrics::{High, Metric, Metrics, Queue, Sheet};
use holdfast_sockets::Counts;
use holdfast_xrl::WINDOW_CALLS;

use crate::Engine;

static ROUTES: Metric = Metric::gauge("holdfast_fea_routes", "Routes of ours in the forwarding plane");
static NEXT_HOPS: Metric =
    Metric::gauge("holdfast_fea_nexthops", "Next hops of ours in the forwarding plane");
static ADDED: Metric = Metric::counter("holdfast_fea_routes_added", "Routes added or replaced");
static DELETED: Metric = Metric::counter("holdfast_fea_routes_deleted", "Routes deleted");
static ERRORS: Metric =
    Metric::counter("holdfast_fea_errors", "Routes and next hops that the forwarding plane refused");
static ROUTES_REFUSED: Metric = Metric::gauge(
    "holdfast_fea_routes_refused",
    "Routes that the forwarding plane refuses now, but for those whose next hops it refuses; 16384 and more are 16384",
);
static NEXT_HOPS_REFUSED: Metric = Metric::gauge(
    "holdfast_fea_nexthops_refused",
    "Sets of next hops that the forwarding plane refuses now, with all their routes",
);
static LOSSES: Metric = Metric::counter(
    "holdfast_fea_losses",
    "How often the kernel may have lost routes, after which it is told all of them again",
);
static REPAIRS: Metric = Metric::counter(
    "holdfast_fea_repairs",
    "Routes and sets of next hops that other programs changed and that were repaired, by cause",
);
static OVERRUNS: Metric = Metric::counter(
    "holdfast_fea_watch_overruns",
    "How often the kernel had more to tell of other programs than there was room for, after which the whole table is compared",
);
static COMPARISONS: Metric =
    Metric::counter("holdfast_fea_comparisons", "Comparisons of the whole table with the kernel's");
static PAUSES: Metric = Metric::counter(
    "holdfast_fea_contested",
    "How often other programs changed a route so often that it was left alone for a while",
);
static MALFORMED: Metric = Metric::counter(
    "holdfast_fea_discovery_malformed",
    "Router advertisements and solicitations on the links of peers without address that were ignored: malformed, or from another link",
);
static PACKETS_SENT: Metric =
    Metric::counter("holdfast_fea_packets_sent", "Raw IP packets sent for protocols");
static PACKETS_RECEIVED: Metric =
    Metric::counter("holdfast_fea_packets_received", "Raw IP packets handed to protocols");
static PACKETS_REFUSED: Metric = Metric::counter(
    "holdfast_fea_packets_refused",
    "Raw IP packets that were not sent, because a packet of their call was not granted",
);
static PACKETS_FAILED: Metric = Metric::counter(
    "holdfast_fea_packets_failed",
    "Raw IP packets of protocols that the kernel did not take",
);
static PACKETS_DROPPED: Metric = Metric::counter(
    "holdfast_fea_packets_dropped",
    "Raw IP packets that were lost, because a protocol did not read them in time",
);
static INTERFACES: Metric = Metric::gauge("holdfast_fea_interfaces", "Interfaces of the kernel");

/// Batches that wait for their turn or are being applied.
#[derive(Debug, Default)]
pub(crate) struct Applying {
    now: Cell<u64>,
    high: High,
}

impl Applying {
    /// One more, until what comes back is dropped.
    pub(crate) fn enter(&self) -> impl Drop + '_ {
        self.now.set(self.now.get() + 1);
        self.high.see(self.now.get());
        Leaves(self)
    }
}

struct Leaves<'a>(&'a Applying);

impl Drop for Leaves<'_> {
    fn drop(&mut self) {
        self.0.now.set(self.0.now.get() - 1);
    }
}

/// From now on the numbers can be read.
pub(crate) fn register(metrics: &Metrics, engine: &Rc<Engine>) {
    let engine = Rc::clone(engine);
    metrics.register(move |sheet| read(sheet, &engine));
}

/// The same of what is heard of neighbours.
pub(crate) fn register_discovery(metrics: &Metrics, malformed: impl Fn() -> u64 + 'static) {
    metrics.register(move |sheet| sheet.add(&MALFORMED, &[], malformed()));
}

/// The same of packets that are relayed.
pub(crate) fn register_packets(metrics: &Metrics, packets: Rc<Counts>) {
    metrics.register(move |sheet| {
        for (metric, count) in [
            (&PACKETS_SENT, &packets.sent),
            (&PACKETS_RECEIVED, &packets.received),
            (&PACKETS_REFUSED, &packets.refused),
            (&PACKETS_FAILED, &packets.failed),
            (&PACKETS_DROPPED, &packets.dropped),
        ] {
            sheet.add(metric, &[], count.get());
        }
    });
}

fn read(sheet: &mut Sheet, engine: &Engine) {
    let status = engine.status();
    for (metric, value) in [
        (&ROUTES, status.routes),
        (&NEXT_HOPS, status.next_hops),
        (&ADDED, status.added),
        (&DELETED, status.deleted),
        (&ERRORS, status.errors),
        (&ROUTES_REFUSED, status.routes_refused),
        (&NEXT_HOPS_REFUSED, status.next_hops_refused),
        (&LOSSES, engine.losses.borrow().number),
        (&INTERFACES, engine.interfaces.shown().len() as u64),
    ] {
        sheet.add(metric, &[], value);
    }
    let repairs = engine.repairs();
    for (cause, count) in [
        ("removed", repairs.removed),
        ("replaced", repairs.replaced),
        ("next-hops", repairs.next_hops),
        ("unseen", repairs.unseen),
        ("stray", repairs.strays),
    ] {
        sheet.add(&REPAIRS, &[("cause", cause)], count);
    }
    for (metric, count) in
        [(&OVERRUNS, repairs.overruns), (&COMPARISONS, repairs.comparisons), (&PAUSES, repairs.pauses)]
    {
        sheet.add(metric, &[], count);
    }
    let Applying { now, high } = &engine.applying;
    sheet.queue(Queue {
        name: "kernel".into(),
        unit: "batches".into(),
        length: now.get(),
        high: high.with(now.get()),
        bound: WINDOW_CALLS as u64,
        ..Queue::default()
    });
}

//! What the process counts, and how full its queues are.

use std::rc::Rc;

use holdfast_process::metrics::{Metric, Metrics, Queue, Sheet};
use holdfast_rib::MAX_SUBSCRIPTIONS;

use crate::{fea, router::Router};

static ROUTES: Metric = Metric::gauge("holdfast_rib_routes", "Routes of an origin");
static ALIVE: Metric =
    Metric::gauge("holdfast_rib_origin_alive", "Whether the process that is the origin lives");
static SYNCED: Metric =
    Metric::gauge("holdfast_rib_origin_synced", "Whether the origin has announced all that it has");
static PREFIXES: Metric = Metric::gauge("holdfast_rib_prefixes", "Prefixes in the table");
static NEXT_HOPS: Metric = Metric::gauge("holdfast_rib_nexthop_sets", "Sets of next hops in use");
static FEA_SYNCED: Metric =
    Metric::gauge("holdfast_rib_fea_synced", "Whether the forwarding engine has the whole table");
static MEMORY: Metric = Metric::gauge("holdfast_rib_memory_bytes", "Memory of the tables");

/// From now on the numbers can be read.
pub(crate) fn register(metrics: &Metrics, router: &Rc<Router>) {
    let router = Rc::clone(router);
    metrics.register(move |sheet| {
        status(sheet, &router);
        queues(sheet, &router);
    });
}

fn status(sheet: &mut Sheet, router: &Router) {
    let status = router.quietly(|rib| rib.status());
    for origin in &status.origins {
        let labels = [("origin", &*origin.name)];
        sheet.add(&ROUTES, &labels, origin.routes);
        sheet.add(&ALIVE, &labels, origin.alive.into());
        sheet.add(&SYNCED, &labels, origin.synced.into());
    }
    sheet.add(&PREFIXES, &[("family", "ipv4-unicast")], status.ipv4_prefixes);
    sheet.add(&PREFIXES, &[("family", "ipv6-unicast")], status.ipv6_prefixes);
    sheet.add(&NEXT_HOPS, &[], status.nexthop_sets);
    sheet.add(&FEA_SYNCED, &[], status.fib_synced.into());
    sheet.add(&MEMORY, &[], status.memory as u64);
}

fn queues(sheet: &mut Sheet, router: &Router) {
    let (lengths, bound, subscriptions) =
        router.quietly(|rib| (rib.log_lengths(), rib.log_capacity(), rib.subscriptions()));
    for (family, (length, high)) in
        ["ipv4-unicast", "ipv6-unicast"].into_iter().zip(lengths.into_iter().zip(&router.depths.logs))
    {
        let high = high.with(length as u64);
        sheet.queue(Queue { of: family.into(), high, ..queue("change-log", "routes", length, bound) });
    }
    let in_flight = router.in_flight.get();
    let high = router.depths.window.with(in_flight as u64);
    sheet.queue(Queue { high, ..queue("fea-window", "routes", in_flight, fea::WINDOW * fea::BATCH) });
    let high = subscriptions as u64;
    sheet.queue(Queue { high, ..queue("subscribers", "readers", subscriptions, MAX_SUBSCRIPTIONS) });
}

fn queue(name: &str, unit: &str, length: usize, bound: usize) -> Queue {
    Queue {
        name: name.into(),
        unit: unit.into(),
        length: length as u64,
        bound: bound as u64,
        ..Queue::default()
    }
}

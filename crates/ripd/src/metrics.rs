//! What the process counts, for each of its tables.

use std::rc::Rc;

use holdfast_process::metrics::{Metric, Metrics, Sheet};

use crate::{speaker::Speaker, table::Inner, version::Version};

static ROUTES: Metric = Metric::gauge("holdfast_rip_routes", "Destinations in the table");
static IGNORED: Metric =
    Metric::counter("holdfast_rip_routes_ignored", "Routes that found no room in the table");
static NEIGHBORS: Metric = Metric::gauge("holdfast_rip_neighbors", "Routers that were heard on an interface");
static SENT: Metric = Metric::counter("holdfast_rip_datagrams_sent", "Datagrams sent on an interface");
static RECEIVED: Metric =
    Metric::counter("holdfast_rip_datagrams_received", "Datagrams received on an interface");
static BAD: Metric = Metric::counter(
    "holdfast_rip_datagrams_discarded",
    "Datagrams discarded on an interface: malformed, or from no neighbour",
);
static NOT_AUTHENTIC: Metric = Metric::counter(
    "holdfast_rip_datagrams_not_authentic",
    "Datagrams discarded for their digest or password",
);
static BAD_ROUTES: Metric =
    Metric::counter("holdfast_rip_bad_routes", "Entries ignored in datagrams of an interface");
static REFUSED: Metric =
    Metric::counter("holdfast_rip_requests_refused", "Requests on an interface that were not answered");

/// From now on the numbers can be read.
pub(crate) fn register(metrics: &Metrics, table: &Rc<Inner>) {
    // Those of a table end with it.
    let table = Rc::downgrade(table);
    metrics.register(move |sheet| {
        [&NEIGHBORS, &SENT, &RECEIVED, &BAD, &NOT_AUTHENTIC, &BAD_ROUTES, &REFUSED]
            .into_iter()
            .for_each(|metric| sheet.declare(metric));
        if let Some(table) = table.upgrade() {
            count(sheet, &table.v2);
            count(sheet, &table.ng);
        }
    });
}

fn count<P: Version>(sheet: &mut Sheet, speaker: &Speaker<P>) {
    let engine = speaker.engine();
    let version = ("version", P::VERSION_NAME);
    sheet.add(&ROUTES, &[version], engine.route_count() as u64);
    sheet.add(&IGNORED, &[version], engine.ignored_routes());
    for shown in engine.interfaces() {
        let name = speaker.interface(shown.id);
        let labels = [version, ("interface", &*name)];
        let counters = shown.counters;
        sheet.add(&NEIGHBORS, &labels, shown.neighbours as u64);
        sheet.add(&SENT, &labels, counters.sent);
        sheet.add(&RECEIVED, &labels, counters.received);
        sheet.add(&BAD, &labels, counters.bad_packets);
        sheet.add(&NOT_AUTHENTIC, &labels, counters.authentication_failures);
        sheet.add(&BAD_ROUTES, &labels, counters.bad_routes);
        sheet.add(&REFUSED, &labels, counters.refused_requests);
    }
}

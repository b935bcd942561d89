//! What is counted.

use std::{
    rc::{Rc, Weak},
    time::Instant,
};

use holdfast_process::metrics::{Metric, Metrics, Sheet};
use holdfast_rtr::{Client, Counts, Dataset, Phase};

use crate::rpki::{Known, Rpki, State};

static UP: Metric = Metric::gauge("holdfast_rpki_cache_up", "Whether there is a session with the cache");
static USED: Metric =
    Metric::gauge("holdfast_rpki_cache_used", "Whether what is published comes from the cache");
static SERIAL: Metric =
    Metric::gauge("holdfast_rpki_cache_serial", "Serial number of the data that are held");
static RECORDS: Metric = Metric::gauge("holdfast_rpki_cache_records", "Records that the cache has said");
static AGE: Metric =
    Metric::gauge("holdfast_rpki_cache_age_seconds", "Since the last End of Data of the cache");
static LOST: Metric =
    Metric::counter("holdfast_rpki_cache_lost", "Sessions and attempts at one that have failed");
static CONNECTS: Metric = Metric::counter("holdfast_rpki_cache_connects", "Connections asked for");
static RESETS: Metric = Metric::counter("holdfast_rpki_cache_resets", "How often all was asked for");
static PUBLISHED: Metric = Metric::gauge("holdfast_rpki_records", "Records that hold, with local exceptions");
static EPOCH: Metric = Metric::counter("holdfast_rpki_epoch", "Changes of what is published, and renewals");

/// Has the numbers read when somebody asks.
pub(crate) fn register(metrics: &Metrics, rpki: &Rc<Rpki>) {
    let rpki: Weak<Rpki> = Rc::downgrade(rpki);
    metrics.register(move |sheet| {
        if let Some(rpki) = rpki.upgrade() {
            put(sheet, &rpki.state.borrow());
        }
    });
}

fn put(sheet: &mut Sheet, state: &State) {
    for (id, _, client) in state.caches.clients() {
        if let Some(known) = state.known.get(&id) {
            let used = state.caches.uses(id);
            put_cache(sheet, known, client, used);
        }
    }
    let counts = Counts { aspas: state.caches.aspas().count(), ..state.counts };
    for (kind, count) in kinds(counts) {
        sheet.add(&PUBLISHED, &[("kind", kind)], count);
    }
    sheet.add(&EPOCH, &[], state.log.epoch());
}

fn put_cache(sheet: &mut Sheet, known: &Known, client: &Client, used: bool) {
    let name = ("cache", known.configuration.name.as_str());
    let is_up = !matches!(client.phase(), Phase::Down | Phase::Connecting);
    sheet.add(&UP, &[name], is_up.into());
    sheet.add(&USED, &[name], used.into());
    for (kind, count) in kinds(client.data().map_or(Counts::default(), Dataset::counts)) {
        sheet.add(&RECORDS, &[name, ("kind", kind)], count);
    }
    if let Some((_, serial)) = client.serial() {
        sheet.add(&SERIAL, &[name], serial.0.into());
    }
    if let Some(updated) = client.updated() {
        sheet.add(&AGE, &[name], Instant::now().saturating_duration_since(updated).as_secs());
    }
    sheet.add(&LOST, &[name], known.losses);
    sheet.add(&CONNECTS, &[name], client.connects());
    sheet.add(&RESETS, &[name], client.resets());
}

fn kinds(counts: Counts) -> [(&'static str, u64); 4] {
    let Counts { ipv4, ipv6, router_keys, aspas } = counts;
    [("ipv4", ipv4), ("ipv6", ipv6), ("router-key", router_keys), ("aspa", aspas)]
        .map(|(kind, count)| (kind, count as u64))
}

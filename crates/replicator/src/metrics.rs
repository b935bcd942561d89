//! What is counted.

use std::{
    rc::{Rc, Weak},
    time::Instant,
};

use holdfast_process::metrics::{Metric, Metrics, Sheet};

use crate::{engine::Engine, protection::Protection, tasks::Tasks};

static FULL: Metric =
    Metric::gauge("holdfast_replicator_protection", "Whether nothing leaves that the store does not have");
static LEASE: Metric = Metric::gauge("holdfast_replicator_lease", "Whether the lease is held");
static BATCHES: Metric = Metric::counter("holdfast_replicator_batches", "Answers that confirmed batches");
static OCTETS: Metric = Metric::counter("holdfast_replicator_octets", "Octets of batches");
static WAITING: Metric =
    Metric::gauge("holdfast_replicator_batches_waiting", "Batches that are not confirmed");
static SILENT: Metric = Metric::gauge(
    "holdfast_replicator_silent_milliseconds",
    "Since when the store has confirmed nothing that waits",
);
static STORED: Metric = Metric::gauge("holdfast_replicator_store_octets", "Octets of sessions in the store");
static LOSSES: Metric =
    Metric::counter("holdfast_replicator_losses", "How often the store had lost what it had confirmed");
static GAPS: Metric = Metric::counter("holdfast_replicator_gaps", "How often sessions lost their protection");
static SESSIONS: Metric = Metric::gauge("holdfast_replicator_sessions", "Sessions in the logs");

/// Has the numbers read when somebody asks.
pub(crate) fn register(metrics: &Metrics, tasks: &Rc<Tasks>) {
    let tasks: Weak<Tasks> = Rc::downgrade(tasks);
    metrics.register(move |sheet| {
        if let Some(tasks) = tasks.upgrade() {
            put(sheet, &mut tasks.engine.borrow_mut());
        }
    });
}

fn put(sheet: &mut Sheet, engine: &mut Engine) {
    sheet.add(&FULL, &[], (engine.protection == Protection::Full).into());
    sheet.add(&LEASE, &[], engine.lease.is_some().into());
    sheet.add(&BATCHES, &[], engine.batches);
    sheet.add(&OCTETS, &[], engine.octets);
    sheet.add(&WAITING, &[], engine.writer.waiting() as u64);
    let silent = engine.silent(Instant::now());
    sheet.add(&SILENT, &[], u64::try_from(silent.as_millis()).unwrap_or(u64::MAX));
    sheet.add(&STORED, &[], engine.writer.octets_in_store());
    sheet.add(&LOSSES, &[], engine.writer.losses());
    sheet.add(&GAPS, &[], engine.gaps);
    let (protected, other) = engine.count();
    sheet.add(&SESSIONS, &[("protected", "yes")], protected);
    sheet.add(&SESSIONS, &[("protected", "no")], other);
}

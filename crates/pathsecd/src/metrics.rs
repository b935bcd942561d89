//! What is counted: the numbers of `Status`.

use std::rc::Rc;

use holdfast_api::pathsec::v1::PathSecStatus;
use holdfast_process::metrics::{Metric, Metrics};

use crate::pathsec::PathSec;

static ROUTER_KEYS: Metric =
    Metric::gauge("holdfast_pathsec_router_keys", "Keys of routers that paths are judged by");
static VERIFIED: Metric = Metric::counter(
    "holdfast_pathsec_verified",
    "Signatures that were verified, once for each key that was tried",
);
static REMEMBERED: Metric = Metric::counter(
    "holdfast_pathsec_remembered",
    "Signatures that were known as good, so that nothing was verified",
);
static FAILED: Metric =
    Metric::counter("holdfast_pathsec_failed", "Signatures that were verified and are bad");
static JOBS: Metric =
    Metric::gauge("holdfast_pathsec_jobs_under_way", "Paths that were taken and have no verdict yet");
static MEMORY: Metric = Metric::gauge(
    "holdfast_pathsec_memory_octets",
    "Octets of the table of keys, and of the memory of good signatures",
);
static EPOCH: Metric = Metric::counter("holdfast_pathsec_epoch", "Changes of the table of keys");
static PRIVATE_KEYS: Metric =
    Metric::gauge("holdfast_pathsec_private_keys", "Private keys of the router, in use or not");
static SIGNED: Metric = Metric::counter("holdfast_pathsec_signed", "Signatures that were made");
static REFUSED_KEYS: Metric = Metric::counter(
    "holdfast_pathsec_refused_keys",
    "Keys of routers that were refused: of another name than that of their octets, or of as many of a name as may be",
);
static KNOWN: Metric =
    Metric::gauge("holdfast_pathsec_known", "Whether rpki was heard since the start of the process");

/// Has the numbers read when somebody asks.
pub(crate) fn register(metrics: &Metrics, pathsec: &Rc<PathSec>) {
    let pathsec = Rc::downgrade(pathsec);
    metrics.register(move |sheet| {
        let Some(pathsec) = pathsec.upgrade() else { return };
        let PathSecStatus {
            router_keys,
            verified,
            remembered,
            failed,
            jobs_under_way,
            memory_octets,
            epoch,
            known,
            private_keys,
            signed,
            refused_keys,
        } = pathsec.status();
        for (metric, value) in [
            (&ROUTER_KEYS, router_keys),
            (&VERIFIED, verified),
            (&REMEMBERED, remembered),
            (&FAILED, failed),
            (&JOBS, jobs_under_way),
            (&MEMORY, memory_octets),
            (&EPOCH, epoch),
            (&KNOWN, known.into()),
            (&PRIVATE_KEYS, private_keys.len() as u64),
            (&SIGNED, signed),
            (&REFUSED_KEYS, refused_keys),
        ] {
            sheet.add(metric, &[], value);
        }
    });
}

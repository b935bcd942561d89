//! What the process counts, for each of its queues.

use std::rc::Rc;

use holdfast_process::metrics::{Metric, Metrics};

use crate::gate::Gate;

static ATTACHED: Metric =
    Metric::gauge("holdfast_gate_attached", "1 while there are marks that say what may leave");
static TABLES: Metric = Metric::gauge("holdfast_gate_tables", "1 while the tables of the gate are in place");
static HELD: Metric = Metric::gauge("holdfast_gate_segments_held", "Segments that are held now");
static OLDEST: Metric =
    Metric::gauge("holdfast_gate_oldest_held_milliseconds", "For how long the oldest held segment waits");
static FLOWS: Metric = Metric::gauge("holdfast_gate_flows", "Connections that are known");
static ACCEPTED: Metric = Metric::counter("holdfast_gate_segments_accepted", "Segments that have left");
static DELAYED: Metric =
    Metric::counter("holdfast_gate_segments_delayed", "Segments that were held before they had a verdict");
static DROPPED: Metric = Metric::counter("holdfast_gate_segments_dropped", "Segments that did not leave");
static LOST: Metric =
    Metric::counter("holdfast_gate_segments_lost", "Segments that the kernel dropped while they were held");
static OVERRUNS: Metric =
    Metric::counter("holdfast_gate_overruns", "How often there was no room for what the kernel has queued");
static GAPS: Metric =
    Metric::counter("holdfast_gate_gaps", "How often somebody removed the tables of the gate");

/// From now on the numbers can be read.
pub(crate) fn register(metrics: &Metrics, gate: &Rc<Gate>) {
    let gate = Rc::downgrade(gate);
    metrics.register(move |sheet| {
        [&ATTACHED, &TABLES, &HELD, &OLDEST, &FLOWS, &ACCEPTED, &DELAYED, &DROPPED, &LOST, &OVERRUNS, &GAPS]
            .into_iter()
            .for_each(|metric| sheet.declare(metric));
        let Some(gate) = gate.upgrade() else { return };
        let status = gate.status();
        sheet.add(&ATTACHED, &[], u64::from(status.attached));
        for queue in &status.queues {
            let vrf = [("vrf", queue.vrf.as_str())];
            let labels = if queue.vrf.is_empty() { &vrf[..0] } else { &vrf[..] };
            sheet.add(&TABLES, labels, u64::from(queue.tables));
            sheet.add(&HELD, labels, queue.held);
            sheet.add(&OLDEST, labels, queue.oldest_held_milliseconds);
            sheet.add(&FLOWS, labels, queue.flows);
            sheet.add(&ACCEPTED, labels, queue.accepted);
            sheet.add(&DELAYED, labels, queue.delayed);
            sheet.add(&LOST, labels, queue.lost);
            sheet.add(&OVERRUNS, labels, queue.overruns);
            sheet.add(&GAPS, labels, queue.gaps);
            let reasons = [
                ("unknown", queue.unknown),
                ("closed", queue.closed),
                ("no-lease", queue.no_lease),
                ("superseded", queue.superseded),
                ("bound", queue.bound),
                ("unreadable", queue.unreadable),
            ];
            for (reason, number) in reasons {
                let labels = [&[("reason", reason)], labels].concat();
                sheet.add(&DROPPED, &labels, number);
            }
        }
    });
}

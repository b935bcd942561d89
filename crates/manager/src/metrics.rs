//! What the manager counts: how its processes fare, and how far watchers of the Finder are behind.

use std::{rc::Rc, time::Instant};

use holdfast_process::metrics::{Metric, Metrics, Queue, Sheet};

use crate::{MOST_OPERATORS, manager::Manager};

static BUILD: Metric =
    Metric::gauge("holdfast_build_info", "What a process was started from as a label; always 1");
static UP: Metric =
    Metric::gauge("holdfast_process_up", "Whether the process runs and has its configuration");
static RESTARTS: Metric =
    Metric::counter("holdfast_process_restarts", "How often the process was started again");
static HUNG: Metric =
    Metric::counter("holdfast_process_hung", "How often the process was ended because it did not answer");
static MEMORY: Metric = Metric::gauge("holdfast_process_memory_bytes", "Resident memory of the process");
static UPTIME: Metric = Metric::gauge("holdfast_process_uptime_seconds", "Age of the process");

/// From now on the numbers can be read.
pub(crate) fn register(metrics: &Metrics, manager: &Rc<Manager>) {
    let manager = Rc::clone(manager);
    metrics.register(move |sheet| {
        processes(sheet, &manager);
        queues(sheet, &manager);
    });
}

fn processes(sheet: &mut Sheet, manager: &Manager) {
    for process in manager.processes(Instant::now()) {
        let of_process = [("process", process.name.as_str())];
        sheet.add(&BUILD, &[("process", &process.name), ("build", &process.build)], 1);
        sheet.add(&UP, &of_process, (process.state == "running").into());
        sheet.add(&RESTARTS, &of_process, process.restarts.into());
        sheet.add(&HUNG, &of_process, process.hung.into());
        sheet.add(&MEMORY, &of_process, process.memory_bytes);
        sheet.add(&UPTIME, &of_process, process.uptime_seconds);
    }
}

fn queues(sheet: &mut Sheet, manager: &Manager) {
    let (length, bound) = manager.finder.events();
    let events = Queue { name: "finder-events".into(), unit: "events".into(), ..Queue::default() };
    sheet.queue(Queue { length: length as u64, high: length as u64, bound: bound as u64, ..events });
    let operators = manager.operators.get() as u64;
    let queue = Queue { name: "operators".into(), unit: "connections".into(), ..Queue::default() };
    let high = manager.most_operators.with(operators);
    sheet.queue(Queue { length: operators, high, bound: MOST_OPERATORS as u64, ..queue });
}

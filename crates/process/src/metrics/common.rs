//! What every process counts.

use holdfast_xrl::traffic::{self, Traffic};
use rustix::time::{ClockId, clock_gettime};

use super::{Metric, Metrics, Queue, Sheet, turns};

static CPU: Metric =
    Metric::counter("holdfast_process_cpu_seconds", "Processor time that the process has used");
static TURN: Metric = Metric::histogram(
    "holdfast_process_turn_seconds",
    "Processor time of turns: what the process's one thread does before anything else can happen",
);
static LONGEST_TURN: Metric =
    Metric::gauge("holdfast_process_longest_turn_seconds", "The longest turn so far, and what it was for");
static CHANNELS: Metric = Metric::gauge("holdfast_xrl_channels", "Open channels to other processes");
static CALLS_MADE: Metric = Metric::counter("holdfast_xrl_calls_made", "Calls to other processes");
static CALLS_SERVED: Metric = Metric::counter("holdfast_xrl_calls_served", "Calls from other processes");
static CALLS_REFUSED: Metric =
    Metric::counter("holdfast_xrl_calls_refused", "Calls from other processes that the access rules refused");
static SENT: Metric = Metric::counter("holdfast_xrl_sent_bytes", "Octets written to channels");
static RECEIVED: Metric = Metric::counter("holdfast_xrl_received_bytes", "Octets read from channels");

impl Metrics {
    /// Registers what every process counts, under the name of this one.
    pub(crate) fn register_common(&self) {
        let process = self.0.process.clone();
        self.register(move |sheet| common(sheet, &process));
    }
}

fn common(sheet: &mut Sheet, process: &str) {
    let labels = [("process", process)];
    let cpu = clock_gettime(ClockId::ProcessCPUTime);
    sheet.add_real(&CPU, &labels, cpu.tv_sec as f64 + cpu.tv_nsec as f64 / 1e9);
    let turns = turns::of_this_thread();
    sheet.add_histogram(&TURN, &labels, turns.histogram());
    let longest = [("process", process), ("cause", turns.cause)];
    sheet.add_real(&LONGEST_TURN, &longest, turns.longest.as_secs_f64());
    let traffic = traffic::of_this_thread();
    for (metric, value) in [
        (&CHANNELS, traffic.channels),
        (&CALLS_MADE, traffic.calls_made),
        (&CALLS_SERVED, traffic.calls_served),
        (&CALLS_REFUSED, traffic.calls_refused),
        (&SENT, traffic.sent),
        (&RECEIVED, traffic.received),
    ] {
        sheet.add(metric, &labels, value);
    }
    queues(&traffic).into_iter().for_each(|queue| sheet.queue(queue));
}

/// The longest of each kind among the channels: each channel has its own, but for what readers have not read.
fn queues(traffic: &Traffic) -> [Queue; 4] {
    let queue = |name: &str, unit: &str, depth: traffic::Depth, bound: usize, drops| Queue {
        name: name.into(),
        of: String::new(),
        unit: unit.into(),
        length: depth.now,
        high: depth.high,
        bound: bound as u64,
        drops,
        process: String::new(),
    };
    [
        queue("xrl-unwritten", "octets", traffic.unwritten, traffic::MAX_UNREAD, traffic.cut_off),
        queue("xrl-unread", "octets", traffic.unread, traffic::MOST_UNREAD, traffic.disconnected),
        queue("xrl-under-way", "calls", traffic.under_way, holdfast_xrl::WINDOW_CALLS, 0),
        queue("xrl-waiting", "calls", traffic.waiting, holdfast_xrl::MAX_WAITING, traffic.full),
    ]
}

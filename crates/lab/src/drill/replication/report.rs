//! What a drill found, for people and as JSON.

use std::{collections::BTreeMap, fmt};

use serde::Serialize;

use super::{Failure, Kind, Options};
use crate::drill::{phases::Column, stock};

/// What came of one failure.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Series {
    /// How often it was made.
    pub times: u32,
    /// From when it was mended until a peer was acknowledged more, in seconds. One of them sends something every 250 ms.
    pub total: Option<Column>,
    #[serde(skip)]
    took: Vec<u64>,
}

/// What a drill found.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// What it was about.
    pub kind: Kind,
    /// The stock routers.
    pub peer: stock::Kind,
    /// IPv4 routes of the feeder that stayed.
    pub routes: u32,
    /// Seed of all chance.
    pub seed: u64,
    /// How many failures were made.
    pub kills: u32,
    /// How often `gate` or `replicator` was killed.
    pub deaths: u32,
    /// By failure.
    pub series: BTreeMap<Failure, Series>,
    /// The same of all failures.
    pub total: Option<Column>,
    /// How often sessions of stock routers went down, by their own logs.
    pub peer_flaps: u64,
    /// How often the drill has ended a session, by stock router.
    pub ends: Vec<usize>,
    /// How often the feeder's session went down.
    pub feeder_flaps: u64,
    /// Ends of connections with stock routers on the wire, and those torn down.
    pub fin: usize,
    /// Connections torn down.
    pub rst: usize,
    /// Segments of the router that were judged.
    pub segments: usize,
    /// Those that acknowledged or brought what the store did not have.
    pub stale_segments: usize,
    /// How long it took at most until removed rules were back, in milliseconds.
    pub noticed_ms: u64,
    /// How often another program had the packet queue for a while.
    pub queues_taken: u64,
    /// How many replicators have had the lease.
    pub epoch: u64,
    /// `show nsr`, at the end.
    pub nsr: Option<serde_json::Value>,
    /// What is not as it must be.
    pub faults: Vec<String>,
    /// Nothing is.
    pub ok: bool,
}

impl Report {
    /// Of a drill that begins.
    pub(super) fn new(kind: Kind, options: &Options, stocks: usize) -> Self {
        Self {
            kind,
            peer: options.peer,
            routes: options.routes,
            seed: options.seed,
            kills: 0,
            deaths: 0,
            series: BTreeMap::new(),
            total: None,
            peer_flaps: 0,
            ends: vec![0; stocks],
            feeder_flaps: 0,
            fin: 0,
            rst: 0,
            segments: 0,
            stale_segments: 0,
            noticed_ms: 0,
            queues_taken: 0,
            epoch: 0,
            nsr: None,
            faults: Vec::new(),
            ok: false,
        }
    }

    /// A failure was made, and a peer was acknowledged more so many microseconds after it was mended.
    pub(super) fn count(&mut self, failure: Failure, took: u64) {
        self.kills += 1;
        let series = self.series.entry(failure).or_default();
        series.times += 1;
        series.took.push(took);
        series.total = Column::of(series.took.iter().copied());
        self.total = Column::of(self.series.values().flat_map(|series| series.took.iter().copied()));
    }

    /// Compares what was found with what may be, and sets `ok`.
    pub(super) fn judge(&mut self) {
        let ends: usize = self.ends.iter().sum();
        let mut fault = |wrong: bool, text: String| {
            if wrong {
                self.faults.push(text);
            }
        };
        fault(self.stale_segments > 0, format!("{} segments were ahead of the store", self.stale_segments));
        fault(self.segments == 0, "no segment was judged".to_owned());
        fault(self.peer_flaps != ends as u64, format!("{} flaps of peers, not {ends}", self.peer_flaps));
        fault(self.feeder_flaps > 0, format!("{} flaps of the feeder", self.feeder_flaps));
        let torn = self.fin + self.rst;
        fault(ends == 0 && torn > 0, format!("{} FIN and {} RST on the wire", self.fin, self.rst));
        self.ok = self.faults.is_empty();
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{:?}, {:?} as peers, {} routes, seed {}: {} failures, {} deaths, epoch {}",
            self.kind, self.peer, self.routes, self.seed, self.kills, self.deaths, self.epoch
        )?;
        for (failure, Series { times, total, .. }) in &self.series {
            if let Some(Column { median, max }) = total {
                let name = format!("{failure:?}");
                writeln!(
                    f,
                    "  {name:<18} {times:>3} times, goes on after {median:>8.3} s, {max:>8.3} s at most"
                )?;
            }
        }
        writeln!(
            f,
            "  segments: {} judged, {} ahead of the store; rules back after {} ms at most",
            self.segments, self.stale_segments, self.noticed_ms
        )?;
        writeln!(
            f,
            "  sessions: {} flaps of peers, {} of the feeder; {} FIN, {} RST on the wire; queue taken {} times",
            self.peer_flaps, self.feeder_flaps, self.fin, self.rst, self.queues_taken
        )?;
        for fault in &self.faults {
            writeln!(f, "  fault: {fault}")?;
        }
        write!(f, "  {}", if self.ok { "ok" } else { "FAILED" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(change: impl FnOnce(&mut Report)) -> Report {
        let options = Options {
            peer: stock::Kind::Bird,
            routes: 1,
            rounds: 1,
            only: None,
            stop: 1,
            seed: 1,
            limit: 1,
            late: 0,
            json: false,
        };
        let mut report = Report::new(Kind::Gate, &options, 4);
        report.segments = 1;
        report.count(Failure::KillGate, 1_000_000);
        change(&mut report);
        report.judge();
        report
    }

    #[test]
    fn every_figure_can_fail_a_drill() {
        assert!(report(|_| ()).ok);
        let changes: [fn(&mut Report); 7] = [
            |report| report.stale_segments = 1,
            |report| report.segments = 0,
            |report| report.peer_flaps = 1,
            |report| report.feeder_flaps = 1,
            |report| report.fin = 1,
            |report| report.rst = 1,
            |report| report.faults.push("a fault".to_owned()),
        ];
        for change in changes {
            let report = report(change);
            assert!(!report.ok && report.faults.len() == 1, "{:?}", report.faults);
        }
    }

    #[test]
    fn a_session_that_the_drill_ends_is_to_end_once() {
        let ended = |report: &mut Report| (report.ends[2], report.peer_flaps, report.fin) = (1, 1, 2);
        assert!(report(ended).ok);
        assert!(!report(|report| report.ends[2] = 1).ok);
    }

    #[test]
    fn times_are_counted_by_failure_and_together() {
        let report = report(|report| report.count(Failure::FlushRules, 3_000_000));
        let max = |column: Option<Column>| column.expect("a time").max;
        assert_eq!((report.kills, max(report.total)), (2, 3.0));
        assert_eq!(max(report.series[&Failure::KillGate].total), 1.0);
    }
}

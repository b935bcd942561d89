//! What a drill found, for people and as JSON, and whether that is well.

use std::fmt;

use serde::Serialize;

use super::{
    Failure,
    judge::Counts,
    phases::{Column, Phases},
    stock,
};

/// What a drill found.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// What was done to the router.
    pub kind: Failure,
    /// The stock router.
    pub peer: stock::Kind,
    /// Routes of each peer that stayed.
    pub routes: u32,
    /// Seed of all chance.
    pub seed: u64,
    /// How often the drill did it.
    pub kills: u32,
    /// How often `bgp` died.
    pub deaths: u64,
    /// Kills after which all parts of the recovery could be measured, before the next.
    pub measured: usize,
    /// From the kill until the manager knew; this and the following in seconds.
    pub detection: Option<Column>,
    /// From there until a new process had its configuration.
    pub migration: Option<Column>,
    /// From there until the sessions were taken over.
    pub tcp_recovery: Option<Column>,
    /// From there until a route that was fed after the kill came to the stock router.
    pub application_recovery: Option<Column>,
    /// From the kill until that.
    pub total: Option<Column>,
    /// How often the stock router's session went down, by its own log.
    pub peer_flaps: u64,
    /// How long it was down, in seconds.
    pub peer_downtime_s: f64,
    /// How often the feeder's session went down.
    pub feeder_flaps: u64,
    /// What was counted on the wire, of both sessions.
    #[serde(flatten)]
    pub wire: Wire,
    /// Differences between what is announced and what every table has at the end.
    pub updates_lost: usize,
    /// Deletions and other changes of kernel routes whose announcement did not change.
    pub kernel_changes: usize,
    /// `show nsr`, at the end.
    pub nsr: Option<serde_json::Value>,
    /// What is not as it must be.
    pub faults: Vec<String>,
    /// Nothing is.
    pub ok: bool,
}

/// What was counted on the wire.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Wire {
    /// Connections that somebody has tried to open.
    pub syn: u64,
    /// Ends of a connection.
    pub fin: u64,
    /// Connections torn down.
    pub rst: u64,
    /// NOTIFICATIONs of the router.
    pub notifications: u64,
    /// UPDATEs of the router.
    pub updates: u64,
    /// Of a prefix: told what the peer had been told already.
    pub updates_doubled: u64,
    /// Of a prefix: told what was no longer so.
    pub updates_reordered: u64,
}

impl Wire {
    /// The counts of both captures.
    pub fn of(counts: &Counts) -> Self {
        let Counts { syn, fin, rst, notifications, updates, doubled, reordered } = *counts;
        Self { syn, fin, rst, notifications, updates, updates_doubled: doubled, updates_reordered: reordered }
    }
}

impl Report {
    /// Fills the columns.
    pub fn measure(&mut self, phases: &[Phases]) {
        let column = |of: fn(&Phases) -> u64| Column::of(phases.iter().map(of));
        self.measured = phases.len();
        self.detection = column(|phases| phases.detection);
        self.migration = column(|phases| phases.migration);
        self.tcp_recovery = column(|phases| phases.tcp_recovery);
        self.application_recovery = column(|phases| phases.application_recovery);
        self.total = column(|phases| phases.total);
    }

    /// Compares what was found with what may be, and sets `ok`.
    pub fn judge(&mut self) {
        let allowed = self.kind.allowed();
        let mut fault = |wrong: bool, text: String| {
            if wrong {
                self.faults.push(text);
            }
        };
        let (flaps, wire) = ((self.peer_flaps, self.feeder_flaps), &self.wire);
        fault(
            flaps != allowed,
            format!(
                "the sessions of the stock router and the feeder went down {flaps:?} times, not {allowed:?}"
            ),
        );
        // A session given up in order is ended by one side, and opened again by the peer.
        let ends = allowed.0 + allowed.1;
        let touched = wire.syn + wire.fin + wire.rst;
        fault(
            ends == 0 && touched > 0,
            format!("{} SYN, {} FIN and {} RST on the wire", wire.syn, wire.fin, wire.rst),
        );
        fault(
            wire.notifications != ends,
            format!("{} sessions were ended with a NOTIFICATION, not {ends}", wire.notifications),
        );
        fault(self.updates_lost > 0, format!("{} updates lost", self.updates_lost));
        // A session that begins anew is told everything anew, and of its routes so are others.
        fault(ends == 0 && wire.updates_doubled > 0, format!("{} updates doubled", wire.updates_doubled));
        fault(wire.updates_reordered > 0, format!("{} updates out of order", wire.updates_reordered));
        fault(self.kernel_changes > 0, format!("{} changes in the kernel", self.kernel_changes));
        self.ok = self.faults.is_empty();
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{:?} of bgp, {:?} as peer, {} routes each way, seed {}: {} times, {} deaths, {} measured",
            self.kind, self.peer, self.routes, self.seed, self.kills, self.deaths, self.measured
        )?;
        for (name, column) in [
            ("detection", self.detection),
            ("migration", self.migration),
            ("TCP recovery", self.tcp_recovery),
            ("application recovery", self.application_recovery),
            ("total", self.total),
        ] {
            if let Some(Column { median, max }) = column {
                writeln!(f, "  {name:<22} median {median:>9.4} s   max {max:>9.4} s")?;
            }
        }
        let Wire { syn, fin, rst, notifications, updates, updates_doubled, updates_reordered } = self.wire;
        writeln!(
            f,
            "  sessions: {} flaps of the peer, {:.3} s down; {} flaps of the feeder; {notifications} NOTIFICATIONs",
            self.peer_flaps, self.peer_downtime_s, self.feeder_flaps
        )?;
        writeln!(f, "  on the wire: {syn} SYN, {fin} FIN, {rst} RST, {updates} UPDATEs")?;
        writeln!(
            f,
            "  updates: {} lost, {updates_doubled} doubled, {updates_reordered} out of order",
            self.updates_lost
        )?;
        writeln!(f, "  kernel: {} changes of routes that did not change", self.kernel_changes)?;
        for fault in &self.faults {
            writeln!(f, "  fault: {fault}")?;
        }
        write!(f, "  {}", if self.ok { "ok" } else { "FAILED" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(kind: Failure, change: impl FnOnce(&mut Report)) -> Report {
        let mut report = Report {
            kind,
            peer: stock::Kind::Bird,
            routes: 10,
            seed: 1,
            kills: 1,
            deaths: 1,
            measured: 0,
            detection: None,
            migration: None,
            tcp_recovery: None,
            application_recovery: None,
            total: None,
            peer_flaps: 0,
            peer_downtime_s: 0.0,
            feeder_flaps: 0,
            wire: Wire::default(),
            updates_lost: 0,
            kernel_changes: 0,
            nsr: None,
            faults: Vec::new(),
            ok: false,
        };
        change(&mut report);
        report.judge();
        report
    }

    #[test]
    fn every_figure_can_fail_a_drill() {
        assert!(report(Failure::Kill, |_| ()).ok);
        let changes: [fn(&mut Report); 10] = [
            |report| report.peer_flaps = 1,
            |report| report.feeder_flaps = 1,
            |report| report.wire.syn = 1,
            |report| report.wire.fin = 1,
            |report| report.wire.rst = 1,
            |report| report.wire.notifications = 1,
            |report| report.wire.updates_doubled = 1,
            |report| report.wire.updates_reordered = 1,
            |report| report.updates_lost = 1,
            |report| report.kernel_changes = 1,
        ];
        for change in changes {
            let report = report(Failure::Kill, change);
            assert!(!report.ok && report.faults.len() == 1, "{:?}", report.faults);
        }
    }

    #[test]
    fn a_session_that_is_to_be_given_up_must_be() {
        let given_up = |report: &mut Report| {
            (report.feeder_flaps, report.wire.notifications, report.wire.syn, report.wire.fin) = (1, 1, 1, 2);
        };
        assert!(report(Failure::Poison, given_up).ok);
        assert!(!report(Failure::Poison, |_| ()).ok && !report(Failure::Kill, given_up).ok);
    }
}

//! What a drill found, for people and as JSON, and whether that is well.

use std::fmt;

use serde::Serialize;

use super::{
    Failure,
    audit::Audit,
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
    /// From there until a new process had the connections and its configuration.
    pub migration: Option<Column>,
    /// From there until it read all of the connections again, with what had been received before in its tables.
    pub tcp_recovery: Option<Column>,
    /// From there until a route that was fed after the kill came to the stock router, by the capture.
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
    /// What became of each UPDATE.
    #[serde(flatten)]
    pub passages: Passages,
    /// Where the router has counted other UPDATEs than there were on the wire. Empty where a session has ended.
    pub miscounts: Vec<Miscount>,
    /// Differences between what is announced and what every table has at the end.
    pub differences: usize,
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
    /// UPDATEs of the router, to all peers.
    pub updates: u64,
    /// UPDATEs of all peers.
    pub updates_of_peers: u64,
}

impl Wire {
    /// The counts of all captures since those of `before`.
    pub fn of(counts: &[Counts], before: &[Counts]) -> Self {
        let mut wire = Self::default();
        for (counts, before) in counts.iter().zip(before) {
            let Counts { syn, fin, rst, notifications, updates, updates_of_peer } = counts.since(before);
            wire.syn += syn;
            wire.fin += fin;
            wire.rst += rst;
            wire.notifications += notifications;
            wire.updates += updates;
            wire.updates_of_peers += updates_of_peer;
        }
        wire
    }
}

/// UPDATEs of one direction of a session, counted on both sides of the wire.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Miscount {
    /// Which ones.
    pub what: String,
    /// How many the router says there were.
    pub by_the_router: u64,
    /// How many the capture at the peer has.
    pub on_the_wire: u64,
}

/// What became of each UPDATE, by direction and together.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Passages {
    /// From the feeder to the stock router.
    pub to_peer: Audit,
    /// From the stock router to the feeder.
    pub to_feeder: Audit,
    /// States of prefixes that had to be told, and were not.
    pub updates_lost: u64,
    /// Of a prefix: told what the peer had been told already.
    pub updates_doubled: u64,
    /// Told after what came later.
    pub updates_reordered: u64,
    /// Told what nobody has sent.
    pub updates_corrupted: u64,
}

impl Passages {
    /// To the stock router and to the feeder.
    pub fn of([to_peer, to_feeder]: [Audit; 2]) -> Self {
        let sum = |count: fn(&Audit) -> u64| count(&to_peer) + count(&to_feeder);
        Self {
            updates_lost: sum(|audit| audit.lost),
            updates_doubled: sum(|audit| audit.doubled),
            updates_reordered: sum(|audit| audit.reordered),
            updates_corrupted: sum(|audit| audit.corrupted),
            to_peer,
            to_feeder,
        }
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
        let (flaps, wire, passages) = ((self.peer_flaps, self.feeder_flaps), &self.wire, &self.passages);
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
        for (count, what) in [
            (passages.updates_lost, "lost"),
            (passages.updates_doubled, "doubled"),
            (passages.updates_reordered, "out of order"),
            (passages.updates_corrupted, "corrupted"),
        ] {
            fault(count > 0, format!("{count} updates {what}"));
        }
        for Miscount { what, by_the_router, on_the_wire } in &self.miscounts {
            fault(
                true,
                format!("{on_the_wire} UPDATEs {what} on the wire, {by_the_router} counted by the router"),
            );
        }
        fault(self.differences > 0, format!("{} differences between tables", self.differences));
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
            if let Some(column) = column {
                column.line(f, name)?;
            }
        }
        let Wire { syn, fin, rst, notifications, updates, updates_of_peers } = self.wire;
        writeln!(
            f,
            "  sessions: {} flaps of the peer, {:.3} s down; {} flaps of the feeder; {notifications} NOTIFICATIONs",
            self.peer_flaps, self.peer_downtime_s, self.feeder_flaps
        )?;
        writeln!(
            f,
            "  on the wire: {syn} SYN, {fin} FIN, {rst} RST, {updates_of_peers} UPDATEs in, {updates} UPDATEs out"
        )?;
        for (name, audit) in
            [("to the peer", &self.passages.to_peer), ("to the feeder", &self.passages.to_feeder)]
        {
            let Audit { used_once, lost, doubled, reordered, corrupted, findings: _ } = audit;
            writeln!(
                f,
                "  {name:<13} {used_once} prefixes used once; {lost} updates lost, {doubled} doubled, \
                 {reordered} out of order, {corrupted} corrupted"
            )?;
        }
        writeln!(f, "  tables: {} differences; {} miscounts", self.differences, self.miscounts.len())?;
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
            passages: Passages::default(),
            miscounts: Vec::new(),
            differences: 0,
            kernel_changes: 0,
            nsr: None,
            faults: Vec::new(),
            ok: false,
        };
        change(&mut report);
        report.judge();
        report
    }

    fn lost() -> Audit {
        Audit { lost: 1, ..Audit::default() }
    }

    #[test]
    fn every_figure_can_fail_a_drill() {
        assert!(report(Failure::Kill, |_| ()).ok);
        let changes: [fn(&mut Report); 14] = [
            |report| report.peer_flaps = 1,
            |report| report.feeder_flaps = 1,
            |report| report.wire.syn = 1,
            |report| report.wire.fin = 1,
            |report| report.wire.rst = 1,
            |report| report.wire.notifications = 1,
            |report| report.passages = Passages::of([lost(), Audit::default()]),
            |report| report.passages = Passages::of([Audit::default(), lost()]),
            |report| report.passages.updates_doubled = 1,
            |report| report.passages.updates_reordered = 1,
            |report| report.passages.updates_corrupted = 1,
            |report| {
                let what = "to the feeder".to_owned();
                report.miscounts = vec![Miscount { what, by_the_router: 2, on_the_wire: 1 }];
            },
            |report| report.differences = 1,
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

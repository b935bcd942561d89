//! What a drill found, for people and as JSON.

use std::fmt;

use serde::Serialize;

use super::{Engine, Kind, Options, Pause, Standby, Wires, audit::Audit, stock};
use crate::{
    drill::{phases::Column, report::Wire},
    shaper,
};

/// When what came, in microseconds from the failure on.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct Times {
    /// The next router had the lease, by its log.
    pub detection: Option<u64>,
    /// It had made the sessions again, by its log.
    pub start: Option<u64>,
    /// Its first segment was at a peer.
    pub first_segment: Option<u64>,
    /// A peer was acknowledged more than before.
    pub tcp: Option<u64>,
    /// A route that was fed after the failure was at a stock router.
    pub bgp: Option<u64>,
    /// All changes were everywhere.
    pub total: u64,
}

/// What a drill found.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// What it was about.
    pub kind: Kind,
    /// The stock routers.
    pub peer: stock::Kind,
    /// Their name and version.
    pub peer_version: String,
    /// Who waits for the sessions.
    pub standby: Standby,
    /// What a host is.
    pub engine: Engine,
    /// Which processes were stopped; none: the router died.
    pub pause: Option<Pause>,
    /// IPv4 routes of the feeder that stayed.
    pub routes: u32,
    /// The wires of the stock routers.
    pub wires: Wires,
    /// What became of the frames there, if the wires are not as they should be.
    pub frames: Option<shaper::Counts>,
    /// Seed of all chance.
    pub seed: u64,
    /// How many failures were made.
    pub kills: u32,
    /// Routers that have died.
    pub deaths: u32,
    /// Failures after which all was as it should be.
    pub measured: usize,
    /// From the failure until the next router had the lease; this and the following in seconds, all from the failure on.
    pub detection: Option<Column>,
    /// Until it had made the sessions again.
    pub start: Option<Column>,
    /// Until its first segment was at a peer.
    pub first_segment: Option<Column>,
    /// Until a peer was acknowledged more than before.
    pub tcp_recovery: Option<Column>,
    /// Until a route that was fed after the failure was at a stock router.
    pub application_recovery: Option<Column>,
    /// Until all changes were everywhere.
    pub total: Option<Column>,
    /// How often sessions of stock routers went down, by their own logs.
    pub peer_flaps: u64,
    /// How long they were down together, in seconds.
    pub peer_downtime_s: f64,
    /// How often the feeder's session went down.
    pub feeder_flaps: u64,
    /// What was counted on the wire after all sessions had come up.
    #[serde(flatten)]
    pub wire: Wire,
    /// ICMP messages of the router to peers that say something cannot be reached.
    pub unreachable: u64,
    /// What became of the UPDATEs, by the peer that was told.
    pub passages: Vec<(String, Audit)>,
    /// Announcements and withdrawals that did not come.
    pub updates_lost: u64,
    /// That came more often than they were sent.
    pub updates_doubled: u64,
    /// That came in another order.
    pub updates_reordered: u64,
    /// That nobody has sent so.
    pub updates_corrupted: u64,
    /// Routes that the kernel has too many or too few of at the end.
    pub differences: usize,
    /// The longest time for which no packet came through, in milliseconds; 0 if none was lost.
    pub forwarding_gap_ms: u64,
    /// Packets sent.
    pub packets: u64,
    /// Packets that did not arrive.
    pub packets_lost: u64,
    /// Segments of a router that was dead already, and octets that came again as others.
    pub stale_segments: u64,
    /// Segments that kernels of peers have dropped for their signatures.
    pub bad_signatures: u64,
    /// How many routers have had the lease.
    pub epoch: u64,
    /// `show nsr`, at the end.
    pub nsr: Option<serde_json::Value>,
    /// What is not as it must be.
    pub faults: Vec<String>,
    /// Nothing is.
    pub ok: bool,
    #[serde(skip)]
    times: Vec<Times>,
}

impl Report {
    /// Of a drill that begins.
    pub(super) fn new(kind: Kind, options: &Options) -> Self {
        Self {
            kind,
            peer: options.peer,
            peer_version: String::new(),
            standby: options.standby,
            engine: options.engine,
            pause: options.pause,
            routes: options.routes,
            wires: options.wires,
            frames: None,
            seed: options.seed,
            kills: 0,
            deaths: 0,
            measured: 0,
            detection: None,
            start: None,
            first_segment: None,
            tcp_recovery: None,
            application_recovery: None,
            total: None,
            peer_flaps: 0,
            peer_downtime_s: 0.0,
            feeder_flaps: 0,
            wire: Wire::default(),
            unreachable: 0,
            passages: Vec::new(),
            updates_lost: 0,
            updates_doubled: 0,
            updates_reordered: 0,
            updates_corrupted: 0,
            differences: 0,
            forwarding_gap_ms: 0,
            packets: 0,
            packets_lost: 0,
            stale_segments: 0,
            bad_signatures: 0,
            epoch: 0,
            nsr: None,
            faults: Vec::new(),
            ok: false,
            times: Vec::new(),
        }
    }

    /// All was as it should be after a failure.
    pub(super) fn count(&mut self, times: Times) {
        self.times.push(times);
        let column = |of: fn(&Times) -> Option<u64>| Column::of(self.times.iter().filter_map(of));
        self.measured = self.times.len();
        self.detection = column(|times| times.detection);
        self.start = column(|times| times.start);
        self.first_segment = column(|times| times.first_segment);
        self.tcp_recovery = column(|times| times.tcp);
        self.application_recovery = column(|times| times.bgp);
        self.total = column(|times| Some(times.total));
    }

    /// Compares what was found with what may be, and sets `ok`.
    pub(super) fn judge(&mut self) {
        let sum = |of: fn(&Audit) -> u64| self.passages.iter().map(|(_, audit)| of(audit)).sum::<u64>();
        let updates = [
            sum(|audit| audit.lost),
            sum(|audit| audit.doubled),
            sum(|audit| audit.reordered),
            sum(|audit| audit.corrupted),
        ];
        [self.updates_lost, self.updates_doubled, self.updates_reordered, self.updates_corrupted] = updates;
        for (name, audit) in &self.passages {
            self.faults.extend(audit.findings.iter().map(|finding| format!("to {name}: {finding}")));
        }
        let Wire { syn, fin, rst, notifications, .. } = self.wire;
        for (is_wrong, text) in [
            (self.kills == 0, "no failure was made".to_owned()),
            (
                self.measured != self.kills as usize,
                format!("{} of {} failures went well", self.measured, self.kills),
            ),
            (self.peer_flaps > 0, format!("{} flaps of peers", self.peer_flaps)),
            (self.feeder_flaps > 0, format!("{} flaps of the feeder", self.feeder_flaps)),
            (syn + fin + rst > 0, format!("{syn} SYN, {fin} FIN and {rst} RST on the wire")),
            (notifications > 0, format!("{notifications} NOTIFICATIONs of the router")),
            (self.unreachable > 0, format!("{} ICMP messages of the router to peers", self.unreachable)),
            (updates != [0; 4], format!("updates lost, doubled, out of order, corrupted: {updates:?}")),
            (self.differences > 0, format!("{} differences in the kernel", self.differences)),
            (self.packets == 0, "no packet was sent".to_owned()),
            (
                self.kind == Kind::Keeper && self.packets_lost > 0,
                format!("{} packets lost", self.packets_lost),
            ),
            (self.stale_segments > 0, format!("{} stale segments", self.stale_segments)),
            (self.bad_signatures > 0, format!("{} bad signatures at peers", self.bad_signatures)),
        ] {
            if is_wrong {
                self.faults.push(text);
            }
        }
        self.ok = self.faults.is_empty();
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{:?}, standby {:?}, {:?}, {} as peers, {} routes, seed {}: {} failures, {} went well, epoch {}",
            self.kind,
            self.standby,
            self.engine,
            self.peer_version,
            self.routes,
            self.seed,
            self.kills,
            self.measured,
            self.epoch
        )?;
        if let Some(shaper::Counts { frames, lost, doubled, overtaken }) = self.frames {
            writeln!(
                f,
                "  wires of the peers: {} ms there and back; {frames} frames, {lost} lost, {doubled} doubled, \
                 {overtaken} overtaken",
                self.wires.delay
            )?;
        }
        for (name, column) in [
            ("lease", self.detection),
            ("sessions made again", self.start),
            ("first segment", self.first_segment),
            ("first acknowledgement", self.tcp_recovery),
            ("first new route", self.application_recovery),
            ("all routes", self.total),
        ] {
            if let Some(column) = column {
                column.line(f, name)?;
            }
        }
        writeln!(
            f,
            "  sessions: {} flaps of peers, {:.3} s down; {} of the feeder; {} NOTIFICATIONs, {} bad signatures",
            self.peer_flaps,
            self.peer_downtime_s,
            self.feeder_flaps,
            self.wire.notifications,
            self.bad_signatures
        )?;
        let Wire { syn, fin, rst, updates, updates_of_peers, .. } = self.wire;
        writeln!(
            f,
            "  on the wire: {syn} SYN, {fin} FIN, {rst} RST, {} ICMP, {} stale; {updates_of_peers} UPDATEs in, {updates} out",
            self.unreachable, self.stale_segments
        )?;
        for (name, Audit { prefixes, lost, doubled, reordered, corrupted, findings: _ }) in &self.passages {
            writeln!(
                f,
                "  to {name:<8} {prefixes} prefixes; {lost} lost, {doubled} doubled, {reordered} out of order, \
                 {corrupted} corrupted"
            )?;
        }
        writeln!(
            f,
            "  packets: {} sent, {} lost, none for {} ms at most; kernel: {} differences",
            self.packets, self.packets_lost, self.forwarding_gap_ms, self.differences
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

    fn report(kind: Kind, standby: Standby, change: impl FnOnce(&mut Report)) -> Report {
        let options = Options { standby, ..Options::short(stock::Kind::Bird) };
        let mut report = Report::new(kind, &options);
        (report.kills, report.packets) = (1, 1);
        report.count(Times { total: 1_000_000, ..Times::default() });
        change(&mut report);
        report.judge();
        report
    }

    #[test]
    fn every_figure_can_fail_a_drill() {
        assert!(report(Kind::Keeper, Standby::None, |_| ()).ok);
        let changes: [fn(&mut Report); 16] = [
            |report| (report.kills, report.measured) = (0, 0),
            |report| report.kills = 2,
            |report| report.peer_flaps = 1,
            |report| report.feeder_flaps = 1,
            |report| report.wire.syn = 1,
            |report| report.wire.fin = 1,
            |report| report.wire.rst = 1,
            |report| report.wire.notifications = 1,
            |report| report.unreachable = 1,
            |report| report.passages = vec![("peer".into(), Audit { lost: 1, ..Audit::default() })],
            |report| report.differences = 1,
            |report| report.packets = 0,
            |report| report.packets_lost = 1,
            |report| report.stale_segments = 1,
            |report| report.bad_signatures = 1,
            |report| report.faults.push("a fault".to_owned()),
        ];
        for change in changes {
            let report = report(Kind::Keeper, Standby::None, change);
            assert!(!report.ok && report.faults.len() == 1, "{:?}", report.faults);
        }
    }

    #[test]
    fn another_host_may_lose_packets() {
        let lost = |report: &mut Report| (report.packets_lost, report.forwarding_gap_ms) = (400, 400);
        assert!(report(Kind::Container, Standby::Cold, lost).ok);
        assert!(!report(Kind::Keeper, Standby::Cold, lost).ok);
    }
}

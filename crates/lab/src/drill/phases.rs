//! How long each part of a recovery took, read from the router's log and from the capture.

use std::{fmt, ops::Range};

use serde::Serialize;
use serde_json::Value;

use super::time::micros;

/// How the router's log says what the drill wants to know. All of it is here.
pub mod phrase {
    /// The manager, of a process that has died.
    pub const DEATH: &str = "ended: ";
    /// `bgp`: it has the connections of the process before, and its configuration.
    pub const CONFIGURED: &str = "peers configured";
    /// `bgp`, of a session whose received octets are in the tables again: from here on it reads the connection.
    pub const SESSION_RESUMED: &str = "session resumed";
    /// `bgp`, when peers are told what changes again: "resumed 2 sessions in 12 ms".
    pub const ALL_RESUMED: &str = "resumed ";
    /// `bgp`, of a session that came up anew.
    pub const SESSION_UP: &str = "session up ";
}

/// A line of the router's log.
#[derive(Clone, Debug)]
pub struct Line {
    /// Microseconds since 1970.
    pub at: u64,
    /// The process that it is about, or that wrote it.
    pub process: String,
    /// What happened.
    pub message: String,
}

/// Reads a log in JSON; what is not is left out.
pub fn lines(log: &str) -> Vec<Line> {
    let line = |text: &str| {
        let value: Value = serde_json::from_str(text).ok()?;
        let process = value["process"].as_str().or(value["span"]["process"].as_str()).unwrap_or_default();
        Some(Line {
            at: micros(value["timestamp"].as_str()?)?,
            process: process.to_owned(),
            message: value["message"].as_str()?.to_owned(),
        })
    };
    log.lines().filter_map(line).collect()
}

/// A death made by the drill.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Kill {
    /// When, in microseconds since 1970.
    pub at: u64,
    /// When a route that was fed after it came to the stock router, if before the next.
    pub recovered: Option<u64>,
}

/// The parts of one recovery, each from the end of the one before, in microseconds; 0 if it had come to its end before
/// that one had.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Phases {
    /// Until the manager knew.
    pub detection: u64,
    /// Until a new process had the connections and its configuration.
    pub migration: u64,
    /// Until it read all of the connections again, with what had been received before in its tables, or had new ones.
    pub tcp_recovery: u64,
    /// Until a route that was fed after the kill was on the wire at the stock router.
    pub application_recovery: u64,
    /// All together: from the kill until that route was there.
    pub total: u64,
}

/// The parts of each recovery that came to its end before the next kill.
pub fn phases(kills: &[Kill], log: &[Line]) -> Vec<Phases> {
    let next = kills.iter().skip(1).map(|kill| kill.at).chain([u64::MAX]);
    kills.iter().zip(next).filter_map(|(kill, end)| recovery(kill, end, log)).collect()
}

fn recovery(kill: &Kill, end: u64, log: &[Line]) -> Option<Phases> {
    let recovered = kill.recovered.filter(|at| (kill.at..end).contains(at))?;
    let about = log.iter().filter(|line| line.process == "bgp" && (kill.at..end).contains(&line.at));
    let said = |phrase: &'static str| {
        let lines = about.clone().filter(move |line| line.message.starts_with(phrase));
        lines.map(|line| line.at)
    };
    let detected = said(phrase::DEATH).next()?;
    let configured = said(phrase::CONFIGURED).find(|at| *at >= detected)?;
    let resumed = [phrase::SESSION_RESUMED, phrase::SESSION_UP].into_iter().flat_map(said);
    let read_again = resumed.filter(|at| (detected..=recovered).contains(at)).max()?;
    let mut before = kill.at;
    let mut phase = |at: u64| {
        let passed = at.saturating_sub(before);
        before = before.max(at);
        passed
    };
    Some(Phases {
        detection: phase(detected),
        migration: phase(configured),
        tcp_recovery: phase(read_again),
        application_recovery: phase(recovered),
        total: recovered - kill.at,
    })
}

/// The times from each death of `bgp` until peers were told what changes again.
pub fn takeovers(log: &[Line]) -> Vec<Range<u64>> {
    let about = || log.iter().filter(|line| line.process == "bgp");
    let deaths = about().filter(|line| line.message.starts_with(phrase::DEATH));
    let end = |death: &Line| {
        about().find(|line| line.at >= death.at && line.message.starts_with(phrase::ALL_RESUMED))
    };
    deaths.map(|death| death.at..end(death).map_or(u64::MAX, |line| line.at)).collect()
}

/// A column of the table, in seconds.
#[derive(Copy, Clone, PartialEq, Debug, Serialize)]
pub struct Column {
    /// As many are below as above.
    pub median: f64,
    /// The longest.
    pub max: f64,
}

impl Column {
    /// Of these values; `None` if there are none.
    pub fn of(values: impl Iterator<Item = u64>) -> Option<Self> {
        let mut values: Vec<u64> = values.collect();
        values.sort_unstable();
        let max = *values.last()?;
        let middle = &values[(values.len() - 1) / 2..=values.len() / 2];
        let seconds = |sum: u64, count: usize| sum as f64 / 1e6 / count as f64;
        Some(Self { median: seconds(middle.iter().sum(), middle.len()), max: seconds(max, 1) })
    }

    /// Writes it as a line of a table.
    ///
    /// # Errors
    /// Those of the formatter.
    pub fn line(self, f: &mut fmt::Formatter<'_>, name: &str) -> fmt::Result {
        writeln!(f, "  {name:<22} median {:>9.4} s   max {:>9.4} s", self.median, self.max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(second: u64, process: &str, message: &str) -> String {
        format!(
            r#"{{"timestamp":"1970-01-01T00:00:{second:02}.000000Z","level":"INFO","message":"{message}","process":"{process}"}}"#
        ) + "\n"
    }

    #[test]
    fn each_phase_begins_where_the_one_before_ended() {
        let log = [
            line(1, "bgp", "peers configured"),
            line(11, "rib", "ended: signal 9"),
            line(12, "bgp", "ended: signal 9"),
            line(14, "bgp", "peers configured"),
            "no JSON\n".to_owned(),
            line(15, "bgp", "session resumed"),
            line(17, "bgp", "session resumed"),
            line(19, "bgp", "resumed 2 sessions in 3 ms"),
            line(31, "bgp", "ended: signal 9"),
        ]
        .concat();
        let second = |second: u64| second * 1_000_000;
        let kills = [
            Kill { at: second(10), recovered: Some(second(21)) },
            // Not recovered before the next, and that one not at all.
            Kill { at: second(30), recovered: Some(second(45)) },
            Kill { at: second(40), recovered: None },
        ];
        let [detection, migration, tcp_recovery, application_recovery, total] = [2, 2, 3, 4, 11].map(second);
        let expected = Phases { detection, migration, tcp_recovery, application_recovery, total };
        assert_eq!(phases(&kills, &lines(&log)), [expected]);
        assert_eq!(takeovers(&lines(&log)), [second(12)..second(19), second(31)..u64::MAX]);
    }

    #[test]
    fn a_phase_that_came_to_its_end_too_early_took_no_time_and_the_sum_is_the_total() {
        let log = [
            line(2, "bgp", "ended: signal 9"),
            line(4, "bgp", "session resumed"),
            line(5, "bgp", "peers configured"),
        ]
        .concat();
        let found = phases(&[Kill { at: 1_000_000, recovered: Some(7_000_000) }], &lines(&log));
        let [detection, migration, tcp_recovery, application_recovery, total] =
            [1, 3, 0, 2, 6].map(|second| second * 1_000_000);
        assert_eq!(found, [Phases { detection, migration, tcp_recovery, application_recovery, total }]);
    }

    #[test]
    fn a_session_that_came_up_anew_is_a_recovery_too() {
        let log = [
            line(1, "bgp", "ended: signal 9"),
            line(2, "bgp", "peers configured"),
            line(4, "bgp", "session up on the incoming connection"),
            line(9, "bgp", "session up on the incoming connection"),
        ]
        .concat();
        let found = phases(&[Kill { at: 0, recovered: Some(6_000_000) }], &lines(&log));
        assert_eq!(found.first().map(|phases| phases.tcp_recovery), Some(2_000_000));
    }

    #[test]
    fn a_column_is_the_middle_and_the_end() {
        let column = Column::of([3_000_000, 1_000_000, 2_000_000].into_iter());
        assert_eq!(column, Some(Column { median: 2.0, max: 3.0 }));
        let column = Column::of([4_000_000, 1_000_000].into_iter());
        assert_eq!(column, Some(Column { median: 2.5, max: 4.0 }));
        assert_eq!(Column::of(std::iter::empty()), None);
    }
}

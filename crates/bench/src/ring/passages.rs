//! When each prefix entered R1 first, and when it came back.

use std::{collections::HashMap, time::Duration};

use anyhow::{Context, Result, bail, ensure};
use holdfast_lab::table::Table;
use holdfast_types::Prefix;
use serde::Deserialize;

/// A line of `holdfast profile show --records --json`.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Journey<'a> {
    prefix: &'a str,
    change: &'a str,
    begin_epoch_nsec: u64,
}

/// Of all prefixes, none left out.
#[derive(Debug)]
pub(super) struct Latencies {
    /// Nanoseconds from entering to being back, ascending.
    pub(super) around: Vec<u64>,
    /// From the first prefix entering to the last being back.
    pub(super) all_back: Duration,
}

/// Milliseconds that 0 %, 1 % … 100 % of the routes do not exceed.
#[derive(Clone, Debug)]
pub(super) struct Quantiles(Vec<f64>);

impl Quantiles {
    /// Of values in nanoseconds, ascending, at least one.
    pub(super) fn of(ascending: &[u64]) -> Self {
        let last = ascending.len() - 1;
        let at = |percent: usize| ascending[(last * percent).div_ceil(100)] as f64 / 1e6;
        Self((0..=100).map(at).collect())
    }

    /// That of so many per cent, at most 100.
    pub(super) fn at(&self, percent: usize) -> f64 {
        self.0[percent]
    }
}

/// Reads what R1 has noted.
///
/// # Errors
/// A prefix of the tables did not come exactly twice, or another one came.
pub(super) fn read<'a>(records: &str, tables: impl Iterator<Item = &'a Table>) -> Result<Latencies> {
    let mut passed: HashMap<Prefix, Passed> =
        tables.flat_map(|table| &table.routes).map(|(prefix, _)| (*prefix, Passed::Never)).collect();
    for line in records.lines() {
        let Journey { prefix, change, begin_epoch_nsec: time } =
            serde_json::from_str(line).with_context(|| line.to_owned())?;
        ensure!(change == "add", "{prefix} was withdrawn");
        let passed =
            passed.get_mut(&prefix.parse()?).with_context(|| format!("{prefix} was never announced"))?;
        *passed = match *passed {
            Passed::Never => Passed::Once(time),
            // In the order of time.
            Passed::Once(first) => Passed::Twice(first, time),
            Passed::Twice(..) => bail!("{prefix} came a third time"),
        };
    }
    let mut around = Vec::with_capacity(passed.len());
    let (mut begin, mut end) = (u64::MAX, 0);
    for (prefix, passed) in &passed {
        let Passed::Twice(first, second) = *passed else { bail!("{prefix} did not come back") };
        around.push(second.checked_sub(first).context("records out of order")?);
        (begin, end) = (begin.min(first), end.max(second));
    }
    ensure!(!around.is_empty(), "there are no routes");
    around.sort_unstable();
    Ok(Latencies { around, all_back: Duration::from_nanos(end - begin) })
}

/// How often a prefix has entered, and when.
#[derive(Copy, Clone)]
enum Passed {
    Never,
    Once(u64),
    Twice(u64, u64),
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(third: u32, time: u64) -> String {
        format!(
            r#"{{"prefix":"10.0.{third}.0/24","change":"add","beginEpochNsec":{time},"afterNsec":{{"bgp-in":0}}}}"#
        )
    }

    fn read(lines: &[String]) -> Result<Latencies> {
        let prefixes =
            (0..101).map(|third| Prefix::new([10, 0, third, 0].into(), 24).expect("a length of IPv4"));
        super::read(&lines.join("\n"), [Table::plain(prefixes)].iter())
    }

    #[test]
    fn each_prefix_counts_from_its_own_entry() {
        let first = (0..101).map(|third| line(third, 1_000_000 * u64::from(third)));
        let back = (0..101).map(|third| line(third, 3_000_000 * u64::from(third)));
        let latencies = read(&first.chain(back).collect::<Vec<_>>()).expect("all are back");
        let quantiles = Quantiles::of(&latencies.around);
        assert_eq!([0, 5, 50, 100].map(|percent| quantiles.at(percent)), [0.0, 10.0, 100.0, 200.0]);
        assert_eq!(latencies.all_back, Duration::from_millis(300));
    }

    #[test]
    fn what_is_missing_or_too_much_is_an_error() {
        let twice = |thirds: std::ops::Range<u32>| {
            thirds.clone().chain(thirds).map(|third| line(third, 7)).collect::<Vec<_>>()
        };
        let said = |lines: &[String]| read(lines).expect_err("an error").to_string();
        assert!(read(&twice(0..101)).is_ok());
        assert!(said(&twice(0..100)).contains("10.0.100.0/24 did not come back"));
        assert!(said(&[twice(0..101), vec![line(3, 8)]].concat()).contains("10.0.3.0/24 came a third time"));
        assert!(said(&twice(0..102)).contains("10.0.101.0/24 was never announced"));
        let gone = line(3, 7).replace("add", "delete");
        assert!(said(&[gone]).contains("10.0.3.0/24 was withdrawn"));
    }
}

//! Tables for people, JSON for programs.

use std::fmt::Write;

use serde::Serialize;

use crate::rows::{Figure, Outcome};

/// Everything that was measured.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    pub(crate) machine: String,
    /// Seconds since 1970.
    pub(crate) time: u64,
    pub(crate) rows: Vec<RowReport>,
}

/// One row.
#[derive(Debug, Serialize)]
pub(crate) struct RowReport {
    pub(crate) name: &'static str,
    pub(crate) title: String,
    pub(crate) routers: Vec<RouterReport>,
}

/// One router in one row.
#[derive(Debug, Serialize)]
pub(crate) struct RouterReport {
    pub(crate) name: String,
    pub(crate) title: String,
    pub(crate) version: String,
    #[serde(skip)]
    pub(crate) ours: bool,
    pub(crate) runs: Vec<Outcome>,
    /// Runs that were not taken because others disturbed them, however often they were repeated.
    pub(crate) left_out: usize,
    /// Why there is no figure, or fewer runs than wanted.
    pub(crate) failure: Option<String>,
}

impl RouterReport {
    /// The median of the runs for each metric.
    fn medians(&self) -> Vec<Figure> {
        let Some(first) = self.runs.first() else { return Vec::new() };
        let median = |metric: &'static str| {
            let figures = self.runs.iter().flat_map(|run| &run.figures);
            let mut values: Vec<f64> =
                figures.filter(|figure| figure.metric == metric).map(|figure| figure.value).collect();
            values.sort_unstable_by(f64::total_cmp);
            Figure { metric, value: values[values.len() / 2] }
        };
        first.figures.iter().map(|figure| median(figure.metric)).collect()
    }

    fn busiest(&self) -> f64 {
        self.runs.iter().map(|run| run.others + run.stolen).fold(0.0, f64::max)
    }
}

impl RowReport {
    /// The row as a table: medians, and for our own routers the ratio to the best of the others.
    pub(crate) fn table(&self) -> String {
        let mut text = format!("\n{} ({})\n", self.title, self.name);
        let medians: Vec<Vec<Figure>> = self.routers.iter().map(RouterReport::medians).collect();
        let metrics: Vec<&str> =
            medians.iter().max_by_key(|m| m.len()).into_iter().flatten().map(|f| f.metric).collect();
        let _ = write!(text, "{:36}", "");
        for metric in &metrics {
            let _ = write!(text, " {metric:>14}");
        }
        let _ = writeln!(text, "  others busy");
        let value = |figures: &[Figure], metric: &str| {
            figures.iter().find(|figure| figure.metric == metric).map(|figure| figure.value)
        };
        let best_peer = |metric: &str| {
            let peers = self.routers.iter().zip(&medians).filter(|(router, _)| !router.ours);
            peers.filter_map(|(_, figures)| value(figures, metric)).min_by(f64::total_cmp)
        };
        for (router, figures) in self.routers.iter().zip(&medians) {
            let name = format!("{} {}", router.title, short(&router.version));
            let _ = write!(text, "{name:36}");
            if figures.is_empty() {
                let noisy = router.left_out > 0;
                let why = if noisy { "left out: others disturbed every run" } else { "not run" };
                let _ = writeln!(text, " {}", router.failure.as_deref().unwrap_or(why));
                continue;
            }
            for metric in &metrics {
                let _ = match value(figures, metric) {
                    Some(value) => write!(text, " {:>14}", digits(value)),
                    None => write!(text, " {:>14}", "-"),
                };
            }
            let noisy = if router.runs.iter().any(|run| run.noisy) { " noisy" } else { "" };
            let _ = writeln!(text, " {:>11.0} %{noisy}", 100.0 * router.busiest());
            if router.left_out > 0 {
                let _ = writeln!(text, "    {} runs are left out: others disturbed them", router.left_out);
            }
            if let Some(failure) = &router.failure {
                let _ = writeln!(text, "    a run failed: {failure}");
            }
        }
        for (router, figures) in self.routers.iter().zip(&medians).filter(|(router, _)| router.ours) {
            let ratios: Vec<Option<f64>> =
                metrics.iter().map(|metric| Some(value(figures, metric)? / best_peer(metric)?)).collect();
            if ratios.iter().all(Option::is_none) {
                continue;
            }
            let _ = write!(text, "{:36}", format!("{} / best peer", router.title));
            for ratio in ratios {
                let _ = match ratio {
                    Some(ratio) => write!(text, " {:>14}", format!("{ratio:.2} x")),
                    None => write!(text, " {:>14}", "-"),
                };
            }
            text.push('\n');
        }
        text
    }
}

/// Three digits that count.
fn digits(value: f64) -> String {
    match value.abs() {
        100.0.. => format!("{value:.0}"),
        10.0.. => format!("{value:.1}"),
        0.1.. => format!("{value:.2}"),
        _ => format!("{value:.4}"),
    }
}

/// The number in a line about a version.
fn short(version: &str) -> &str {
    let number = |word: &&str| word.starts_with(|c: char| c.is_ascii_digit());
    let word = version.split_whitespace().find(number).unwrap_or("");
    word.split(['-', '+']).next().unwrap_or(word)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn router(title: &str, ours: bool, values: &[f64]) -> RouterReport {
        let run = |value: &f64| Outcome {
            figures: vec![Figure { metric: "CPU s", value: *value }],
            ..Outcome::default()
        };
        RouterReport {
            name: title.to_lowercase(),
            title: title.to_owned(),
            version: "thing version 2.0.12-x".to_owned(),
            ours,
            runs: values.iter().map(run).collect(),
            left_out: 0,
            failure: values.is_empty().then(|| "no session".to_owned()),
        }
    }

    #[test]
    fn a_row_shows_medians_and_the_ratio_to_the_best_peer() {
        let mut routers = vec![
            router("Ours", true, &[0.3, 0.2, 9.0]),
            router("One", false, &[0.6]),
            router("Two", false, &[1.2]),
            router("Three", false, &[]),
            router("Four", false, &[]),
        ];
        routers[1].runs[0].noisy = true;
        (routers[2].left_out, routers[4].left_out, routers[4].failure) = (2, 3, None);
        let table = RowReport { name: "x", title: "A row".to_owned(), routers }.table();
        let lines: Vec<String> =
            table.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
        assert_eq!(lines[3], "Ours 2.0.12 0.30 0 %");
        assert_eq!(lines[4], "One 2.0.12 0.60 0 % noisy");
        assert_eq!(lines[6], "2 runs are left out: others disturbed them");
        assert_eq!(lines[7], "Three 2.0.12 no session");
        assert_eq!(lines[8], "Four 2.0.12 left out: others disturbed every run");
        assert_eq!(lines[9], "Ours / best peer 0.50 x");
    }

    #[test]
    fn versions_are_cut_to_their_numbers() {
        assert_eq!(short("BIRD version 2.0.12"), "2.0.12");
        assert_eq!(short("7.7-1+b1"), "7.7");
        assert_eq!(short("no number"), "");
    }
}

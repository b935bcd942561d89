//! Figures 10 to 13: single routes on their way.

use std::{collections::BTreeMap, time::Duration};

use anyhow::{Context, Result};
use holdfast_lab::netns::output;
use serde::{Deserialize, Serialize};

use crate::{
    daemon::Daemon,
    rows::{Kind, Paced, Tables},
};

/// Routes that are measured; the paper has as many.
const PROBES: u32 = 255;

/// When routes passed the points of one run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Way {
    /// The paper's figure.
    pub(crate) figure: u8,
    pub(crate) title: String,
    /// Routes in the table before.
    pub(crate) loaded: usize,
    /// Milliseconds from one route to the next.
    pub(crate) pace: u64,
    pub(crate) points: Vec<Point>,
    /// Milliseconds of each route until it was in the kernel, in order.
    pub(crate) kernel: Vec<f64>,
}

/// What `holdfast profile show --json` says of a point.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Point {
    pub(crate) title: String,
    pub(crate) routes: u64,
    pub(crate) average_msec: f64,
    pub(crate) deviation_msec: f64,
    pub(crate) min_msec: f64,
    pub(crate) max_msec: f64,
}

/// When routes of one peer appeared at another.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Arrivals {
    pub(crate) router: String,
    pub(crate) version: String,
    /// Milliseconds from one route to the next.
    pub(crate) interval: u64,
    /// Milliseconds after it was sent, for each route.
    pub(crate) milliseconds: Vec<f64>,
}

#[derive(Deserialize)]
struct Sums {
    points: Vec<Point>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Journey {
    after_nsec: BTreeMap<String, u64>,
}

pub(crate) fn ways(routes: usize, pace: Duration) -> Result<Vec<Way>> {
    let tables = Tables::default();
    let full = match std::env::var_os("HOLDFAST_DATA") {
        Some(_) => Kind::Real { ipv6: false },
        None => Kind::Synthetic { ipv6: false, routes },
    };
    let runs = [
        (10, "no other routes", None, false),
        (11, "a full table, routes of the same peering", Some(full), true),
        (12, "a full table, routes of another peering", Some(full), false),
    ];
    let daemon = daemon("holdfast-router")?.0;
    let way = |(figure, title, table, same_peering): (u8, &str, Option<Kind>, bool)| {
        eprintln!("figure {figure}: {title}");
        let paced = Paced { table, same_peering, probes: PROBES, interval: pace, kernel: true };
        let (mut points, mut kernel) = (Vec::new(), Vec::new());
        let passed = paced.run(&daemon, &tables, |router, done| {
            if !done {
                return output(&mut router(&["profile", "on"])).map(drop);
            }
            output(&mut router(&["profile", "off"]))?;
            let sums = output(&mut router(&["profile", "show", "--json"]))?;
            points = serde_json::from_str::<Sums>(&sums)?.points;
            let records = output(&mut router(&["profile", "show", "--records", "--json"]))?;
            kernel = records.lines().filter_map(into_kernel).collect();
            Ok(())
        })?;
        let title = title.to_owned();
        Ok(Way { figure, title, loaded: passed.loaded, pace: pace.as_millis() as u64, points, kernel })
    };
    runs.into_iter().map(way).collect()
}

/// Milliseconds of a journey.
fn into_kernel(line: &str) -> Option<f64> {
    let journey: Journey = serde_json::from_str(line).ok()?;
    Some(*journey.after_nsec.get("kernel")? as f64 / 1e6)
}

pub(crate) fn arrivals(interval: Duration) -> Result<Vec<Arrivals>> {
    let mut arrivals = Vec::new();
    for name in ["holdfast-router", "bird", "frr"] {
        let (daemon, version) = daemon(name)?;
        let Some(version) = version else {
            eprintln!("figure 13: {} is left out: {}", daemon.title, daemon.missing());
            continue;
        };
        eprintln!("figure 13: {}", daemon.title);
        let paced = Paced { table: None, same_peering: false, probes: PROBES, interval, kernel: false };
        let passed = paced.run(&daemon, &Tables::default(), |_, _| Ok(()))?;
        arrivals.push(Arrivals {
            router: daemon.title.clone(),
            version,
            interval: interval.as_millis() as u64,
            milliseconds: passed.arrivals,
        });
    }
    Ok(arrivals)
}

/// A router by name, with its version if it is installed.
fn daemon(name: &str) -> Result<(Daemon, Option<String>)> {
    let found = Daemon::all(&[])?.into_iter().find(|daemon| daemon.name == name);
    let daemon = found.with_context(|| format!("there is no router {name}"))?;
    let version = daemon.installed_version();
    Ok((daemon, version))
}

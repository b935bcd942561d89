//! What a route costs against how many there are, and a peer against how many there are: numbers as JSON, and plots.

use std::{fs, path::PathBuf, time::Instant};

use anyhow::{Context, Result, ensure};
use serde::Serialize;

use crate::{
    cgroup,
    daemon::Daemon,
    machine,
    plot::{Plot, Style},
    rows::{Flow, Kind, Outcome, Tables},
};

/// How many routes go to one peer.
const ROUTES: [usize; 6] = [10_000, 30_000, 100_000, 300_000, 1_000_000, 4_000_000];
/// To how many peers the same routes go.
const PEERS: [usize; 5] = [1, 10, 100, 1_000, 5_000];

/// `holdfast-bench curve`
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Where the plots go, and `curve.json` with their numbers.
    #[arg(long, value_name = "DIR")]
    svg: PathBuf,
    /// Only these routers; of the defaults those that are installed.
    #[arg(long, value_delimiter = ',', default_value = "holdfast,holdfast-router,bird,bird3")]
    routers: Vec<String>,
    /// Leaves out points with more routes.
    #[arg(long, default_value_t = ROUTES[5])]
    most_routes: usize,
    /// Leaves out points with more peers.
    #[arg(long, default_value_t = PEERS[4])]
    most_peers: usize,
    /// Routes that go to all peers.
    #[arg(long, default_value_t = 10_000)]
    table: usize,
    /// A router that has taken longer for a point has no further ones on that curve.
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    patience: u64,
}

/// What one router gave.
#[derive(Debug, Serialize)]
struct Curve {
    router: String,
    version: String,
    routes: Vec<Point>,
    peers: Vec<Point>,
}

/// One run.
#[derive(Debug, Serialize)]
struct Point {
    /// Routes, or peers.
    count: usize,
    cpu_seconds: f64,
    /// Growth from the sessions to the last route.
    octets_per_path: f64,
    /// Of all processes at the end.
    octets: u64,
    noisy: bool,
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    cgroup::sweep()?;
    machine::allow_files();
    fs::create_dir_all(&arguments.svg)?;
    println!("{}", machine::description());
    let all = Daemon::all(&[])?;
    let mut curves = Vec::new();
    for name in &arguments.routers {
        let daemon = all.iter().find(|daemon| daemon.name == *name);
        let daemon = daemon.with_context(|| format!("there is no router {name}"))?;
        let Some(version) = daemon.installed_version() else {
            println!("{} is left out: {}", daemon.title, daemon.missing());
            continue;
        };
        // Tables of millions of routes are not kept for the next router.
        let flow = |routes, sinks| {
            let kind = Kind::Synthetic { ipv6: false, routes };
            Flow { kind, sinks, ..Flow::default() }.run(daemon, &Tables::default())
        };
        let routes =
            arguments.points(daemon, "routes", &ROUTES, arguments.most_routes, |count| flow(count, 1));
        let table = arguments.table;
        let peers =
            arguments.points(daemon, "peers", &PEERS, arguments.most_peers, |count| flow(table, count));
        curves.push(Curve { router: daemon.title.clone(), version, routes, peers });
        fs::write(arguments.svg.join("curve.json"), serde_json::to_string_pretty(&curves)?)?;
    }
    ensure!(!curves.is_empty(), "there is no router to be measured");
    let plots = plots(&curves, arguments.table).into_iter();
    for (name, plot) in plots.filter(|(_, plot)| plot.series.iter().any(|series| !series.1.is_empty())) {
        fs::write(arguments.svg.join(name), plot.svg()?)?;
    }
    Ok(())
}

impl Arguments {
    /// Runs each count up to the most, as long as they do not take too long.
    fn points(
        &self,
        daemon: &Daemon,
        what: &str,
        counts: &[usize],
        most: usize,
        run: impl Fn(usize) -> Result<Outcome>,
    ) -> Vec<Point> {
        let mut points = Vec::new();
        for &count in counts.iter().filter(|count| **count <= most) {
            let start = Instant::now();
            let outcome = match run(count) {
                Ok(outcome) => outcome,
                Err(error) => {
                    println!("{}: {count} {what}: {error:#}", daemon.title);
                    break;
                }
            };
            let point = Point {
                count,
                cpu_seconds: outcome.value("CPU s"),
                octets_per_path: outcome.value("B/path"),
                octets: outcome.memory,
                noisy: outcome.noisy,
            };
            let noisy = if point.noisy { ", noisy" } else { "" };
            println!(
                "{}: {count} {what}: {:.3} s of CPU, {:.0} B a path, {:.1} MB{noisy}",
                daemon.title,
                point.cpu_seconds,
                point.octets_per_path,
                point.octets as f64 / 1e6
            );
            points.push(point);
            if start.elapsed().as_secs() > self.patience {
                println!("{}: more {what} are left out: this took {:.0?}", daemon.title, start.elapsed());
                break;
            }
        }
        points
    }
}

/// Of one curve against its count.
type Value<'a> = &'a dyn Fn(&Point, &Curve) -> Option<f64>;

fn plots(curves: &[Curve], table: usize) -> Vec<(&'static str, Plot)> {
    let plot = |title: &str,
                labels: (&'static str, &'static str),
                points: fn(&Curve) -> &[Point],
                value: Value<'_>| {
        let series = curves.iter().map(|curve| {
            let at = |point: &Point| Some((point.count as f64, value(point, curve)?));
            let measured = points(curve).iter().filter_map(at).filter(|at| at.1 > 0.0);
            (curve.router.clone(), measured.collect())
        });
        Plot {
            title: title.to_owned(),
            x_label: labels.0,
            y_label: labels.1,
            style: Style::Marked,
            logarithmic: true,
            x_logarithmic: true,
            series: series.collect(),
        }
    };
    let of_peers = format!("{table} routes to so many peers");
    // A further peer: without what the router has with one.
    let memory = |point: &Point, curve: &Curve| {
        let first = curve.peers.first()?;
        let more = (point.count - first.count) as f64;
        (more > 0.0).then(|| point.octets.saturating_sub(first.octets) as f64 / 1e3 / more)
    };
    vec![
        (
            "routes-cpu.svg",
            plot(
                "Routes in and out to one peer",
                ("routes", "µs of CPU a route"),
                |curve| &curve.routes,
                &|point, _| Some(point.cpu_seconds * 1e6 / point.count as f64),
            ),
        ),
        (
            "routes-memory.svg",
            plot(
                "Routes in and out to one peer",
                ("routes", "octets a path"),
                |curve| &curve.routes,
                &|point, _| Some(point.octets_per_path),
            ),
        ),
        (
            "peers-cpu.svg",
            plot(&of_peers, ("peers", "µs of CPU a route and peer"), |curve| &curve.peers, &|point, _| {
                Some(point.cpu_seconds * 1e6 / (point.count * table) as f64)
            }),
        ),
        ("peers-memory.svg", plot(&of_peers, ("peers", "kB a further peer"), |curve| &curve.peers, &memory)),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn costs_are_those_of_one_route_and_of_a_further_peer() {
        let point = |count, cpu_seconds, octets| Point {
            count,
            cpu_seconds,
            octets_per_path: 30.0,
            octets,
            noisy: false,
        };
        let curve = Curve {
            router: "Ours".to_owned(),
            version: String::new(),
            routes: vec![point(10_000, 0.01, 0), point(100_000, 0.2, 0)],
            peers: vec![point(1, 0.1, 1_000_000), point(10, 0.5, 1_900_000)],
        };
        let plots = plots(&[curve], 1_000);
        let points = |number: usize| plots[number].1.series[0].1.clone();
        assert_eq!(points(0), [(10_000.0, 1.0), (100_000.0, 2.0)]);
        assert_eq!(points(1), [(10_000.0, 30.0), (100_000.0, 30.0)]);
        assert_eq!(points(2), [(1.0, 100.0), (10.0, 50.0)]);
        assert_eq!(points(3), [(10.0, 100.0)]);
        for (name, plot) in &plots {
            assert!(plot.svg().expect("an SVG").contains(">Ours</text>"), "{name}");
        }
    }
}

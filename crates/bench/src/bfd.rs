//! What BFD costs, whether its sessions hold while tables are loaded, and how soon a failure is in the kernel's table; for
//! Holdfast, BIRD and FRR in turn, against the same far end ([`far`]).
//!
//! Holdfast gives its process real time by itself; the others are given it. Goals are those of issue 22.

mod cost;
mod far;
mod forwarding;
mod hold;
mod loss;

use std::{
    collections::BTreeMap,
    net::IpAddr,
    path::PathBuf,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use serde::Serialize;

use crate::{
    cgroup::{self, Process},
    daemon::{BfdLink, BfdNeighbor, Daemon, Feature, Peer, Running, peer_asn},
    machine,
    net::Place,
    rows::Tables,
};
use far::{End, Seen};

/// Longest wait for anything.
const LIMIT: Duration = Duration::from_secs(120);
/// From all sessions up to the first look: intervals are agreed on by then.
const SETTLE: Duration = Duration::from_secs(3);
/// Seconds that a router with sessions of BGP waits for a neighbour.
const HOLD: u16 = 90;
/// Milliseconds between two packets of a fast session and of a slow one.
const FAST: u32 = 50;
const SLOW: u32 = 300;

#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Only these rows.
    #[arg(long, value_delimiter = ',', value_enum, default_values_t = Row::ALL)]
    rows: Vec<Row>,
    /// Only these routers: see `holdfast-bench list`.
    #[arg(long, value_delimiter = ',')]
    routers: Vec<String>,
    /// How long `cost` looks, and `hold`; 30 and 60 if it is not said. What is published of `hold` are 600.
    #[arg(long)]
    seconds: Option<u64>,
    /// Sessions of 50 ms.
    #[arg(long, default_value_t = 64)]
    fast: usize,
    /// Sessions of 300 ms, in `hold`. With those of 50 ms they are 1,000: a table has no more static next hops with BFD.
    #[arg(long, default_value_t = 936)]
    slow: usize,
    /// Routes that are loaded again and again in `hold`.
    #[arg(long, default_value_t = 1_000_000)]
    loaded: usize,
    /// Routes in `loss`.
    #[arg(long, default_value_t = 100_000)]
    routes: usize,
    /// Losses of a neighbour in `loss`; figures are medians.
    #[arg(long, default_value_t = 3)]
    runs: usize,
    /// An object of JSON for each figure, a line each, instead of the table.
    #[arg(long)]
    json: bool,
    /// Descriptions of further routers.
    #[arg(long = "daemon", value_name = "FILE")]
    files: Vec<PathBuf>,
}

/// What is measured.
#[derive(Copy, Clone, PartialEq, Eq, Debug, clap::ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Row {
    /// Processor time of sessions that are up.
    Cost,
    /// Whether sessions hold while a table is loaded again and again.
    Hold,
    /// From the last packet of a neighbour to the change of the kernel's table.
    Loss,
}

impl Row {
    const ALL: [Self; 3] = [Self::Cost, Self::Hold, Self::Loss];

    fn name(self) -> &'static str {
        match self {
            Self::Cost => "cost",
            Self::Hold => "hold",
            Self::Loss => "loss",
        }
    }

    fn run(self, daemon: &Daemon, arguments: &Arguments, tables: &Tables) -> Result<Vec<Figure>> {
        match self {
            Self::Cost => cost::run(daemon, arguments),
            Self::Hold => hold::run(daemon, arguments, tables),
            Self::Loss => loss::run(daemon, arguments, tables),
        }
    }
}

/// A measured value.
#[derive(Clone, Debug)]
struct Figure {
    name: String,
    value: f64,
    unit: &'static str,
    /// At most so much, of Holdfast.
    goal: Option<f64>,
}

impl Figure {
    /// One without a goal.
    fn new(name: impl Into<String>, value: f64, unit: &'static str) -> Self {
        Self { name: name.into(), value, unit, goal: None }
    }

    fn at_most(self, goal: f64) -> Self {
        Self { goal: Some(goal), ..self }
    }
}

/// A figure of all routers.
#[derive(Debug, Serialize)]
struct Compared<'a> {
    row: Row,
    name: &'a str,
    unit: &'static str,
    /// By router.
    values: BTreeMap<&'a str, f64>,
    /// Holdfast's by that of each other router.
    ratios: BTreeMap<&'a str, f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    goal: Option<Goal>,
}

#[derive(Debug, Serialize)]
struct Goal {
    at_most: f64,
    is_reached: bool,
}

/// A router that could not be measured.
#[derive(Debug, Serialize)]
struct Failure<'a> {
    row: Row,
    router: &'a str,
    failure: String,
}

/// A router, its version, and what was measured of it.
struct Measured<'a> {
    daemon: &'a Daemon,
    figures: Result<Vec<Figure>>,
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    ensure!(rustix::process::geteuid().is_root(), "it needs root");
    ensure!(arguments.fast > 0 && arguments.slow > 0 && arguments.runs > 0, "nothing is to be done");
    cgroup::sweep()?;
    machine::allow_files();
    let daemons = chosen(arguments)?;
    if !arguments.json {
        println!("{}", machine::description());
        for (daemon, version) in &daemons {
            println!("{}: {version}", daemon.title);
        }
    }
    let (tables, mut failed) = (Tables::default(), false);
    for row in &arguments.rows {
        let load = machine::load()?;
        let measure = |(daemon, _): &'_ (Daemon, String)| {
            eprintln!("{}: {}", row.name(), daemon.title);
            row.run(daemon, arguments, &tables)
        };
        let measured = daemons.iter().map(|of| Measured { daemon: &of.0, figures: measure(of) });
        let measured: Vec<_> = measured.collect();
        failed |= measured.iter().any(|of| of.daemon.is_ours() && of.figures.is_err());
        if arguments.json {
            print_json(*row, &measured)?;
        } else {
            println!("{}, load {load:.2} before", row.name());
            print_table(*row, &measured);
        }
    }
    ensure!(!failed, "Holdfast could not be measured");
    Ok(())
}

/// Those that are wanted and installed, ours first, with their versions.
fn chosen(arguments: &Arguments) -> Result<Vec<(Daemon, String)>> {
    let all = Daemon::all(&arguments.files)?.into_iter().filter(|daemon| daemon.can(&[Feature::Bfd]));
    let all: Vec<_> = all.collect();
    for name in &arguments.routers {
        ensure!(all.iter().any(|daemon| daemon.name == *name), "there is no router {name} with BFD");
    }
    let is_wanted =
        |daemon: &Daemon| arguments.routers.is_empty() || arguments.routers.contains(&daemon.name);
    let mut chosen = Vec::new();
    for daemon in all.into_iter().filter(is_wanted) {
        match daemon.installed_version() {
            Some(version) => chosen.push((daemon, version)),
            None => eprintln!("{} is left out: {}", daemon.title, daemon.missing()),
        }
    }
    Ok(chosen)
}

/// Figures by their names in the order of the first router that has them, each with the values of all.
fn compared<'a>(row: Row, measured: &'a [Measured<'a>]) -> Vec<Compared<'a>> {
    let mut compared: Vec<Compared<'a>> = Vec::new();
    for Measured { daemon, figures } in measured {
        for figure in figures.iter().flatten() {
            let place = compared.iter().position(|of| of.name == figure.name).unwrap_or_else(|| {
                let (values, ratios) = Default::default();
                compared.push(Compared {
                    row,
                    name: &figure.name,
                    unit: figure.unit,
                    values,
                    ratios,
                    goal: None,
                });
                compared.len() - 1
            });
            let of = &mut compared[place];
            of.values.insert(&daemon.name, figure.value);
            if let Some(at_most) = figure.goal.filter(|_| daemon.is_ours()) {
                of.goal = Some(Goal { at_most, is_reached: figure.value <= at_most });
            }
        }
    }
    let ours = measured.iter().find(|of| of.daemon.is_ours()).map(|of| of.daemon.name.as_str());
    for of in &mut compared {
        let Some((ours, value)) = ours.and_then(|ours| Some((ours, *of.values.get(ours)?))) else { continue };
        let others = of.values.iter().filter(|(name, other)| **name != ours && **other > 0.0);
        of.ratios = others.map(|(name, other)| (*name, value / other)).collect();
    }
    compared
}

fn print_json(row: Row, measured: &[Measured<'_>]) -> Result<()> {
    for of in compared(row, measured) {
        println!("{}", serde_json::to_string(&of)?);
    }
    for of in measured {
        if let Err(error) = &of.figures {
            let failure = Failure { row, router: &of.daemon.name, failure: format!("{error:#}") };
            println!("{}", serde_json::to_string(&failure)?);
        }
    }
    Ok(())
}

fn print_table(row: Row, measured: &[Measured<'_>]) {
    print!("  {:52} {:10}", "", "unit");
    measured.iter().for_each(|of| print!(" {:>16}", of.daemon.title));
    println!("  Holdfast / others; goal");
    for of in compared(row, measured) {
        print!("  {:52} {:10}", of.name, of.unit);
        for Measured { daemon, .. } in measured {
            let value = of.values.get(daemon.name.as_str());
            print!(" {:>16}", value.map_or("-".to_owned(), |value| format!("{value:.2}")));
        }
        let ratios = of.ratios.iter().map(|(name, ratio)| format!("{ratio:.3} {name}"));
        print!("  {}", ratios.collect::<Vec<_>>().join(", "));
        if let Some(Goal { at_most, is_reached }) = of.goal {
            print!("; at most {at_most}: {}", if is_reached { "reached" } else { "MISSED" });
        }
        println!();
    }
    for Measured { daemon, figures } in measured {
        if let Err(error) = figures {
            println!("  {}: {error:#}", daemon.title);
        }
    }
}

/// A link as the router's configuration has it, with sessions to these neighbours.
fn link(number: usize, interval: u32, places: &[Place]) -> BfdLink {
    let neighbor = |place: &Place| BfdNeighbor { address: place.peer, behind: behind(place.peer) };
    BfdLink { name: format!("l{number}"), interval, neighbors: places.iter().map(neighbor).collect() }
}

/// A destination that is behind this neighbour only, and in no table.
fn behind(address: IpAddr) -> String {
    match address {
        IpAddr::V4(address) => {
            let [_, second, third, fourth] = address.octets().map(u16::from);
            format!("10.{}.{third}.{fourth}/32", 100 + second)
        }
        IpAddr::V6(address) => format!("{address}/128"),
    }
}

/// The far ends of a link's sessions.
fn ends(interval: u32, places: &[Place]) -> impl Iterator<Item = End> {
    let interval = Duration::from_millis(interval.into());
    places.iter().map(move |place| End { place: *place, interval })
}

/// Peers of BGP at these places; `bfd` says whether they have a session each, on the link of their number.
fn peers(places: &[Place], bfd: bool) -> Vec<Peer> {
    let peer = |(number, place): (usize, &Place)| Peer {
        number,
        address: place.peer,
        local: place.router,
        asn: peer_asn(number).0,
        vrf: None,
        bfd: bfd.then(|| format!("l{number}")),
    };
    places.iter().enumerate().map(peer).collect()
}

/// The process of the router that has the sessions, and whether all of its threads count.
fn process(running: &Running) -> Result<(Process, bool)> {
    let bfd = running.daemon.bfd.as_ref().context("its description does not say who has the sessions")?;
    Ok((running.cgroup.process(&bfd.process)?, !bfd.not_the_first_thread))
}

/// What the process of BFD has of a processor.
struct Meter {
    process: Process,
    all_threads: bool,
    cpu: Duration,
    start: Instant,
}

impl Meter {
    fn start(running: &Running) -> Result<Self> {
        let (process, all_threads) = process(running)?;
        let cpu = process.cpu(all_threads)?;
        Ok(Self { process, all_threads, cpu, start: Instant::now() })
    }

    /// Percent of a processor since then, and whether it runs in real time.
    fn stop(&self) -> Result<[Figure; 2]> {
        let cpu = self.process.cpu(self.all_threads)? - self.cpu;
        let share = 100.0 * cpu.as_secs_f64() / self.start.elapsed().as_secs_f64();
        let is_in_real_time = self.process.is_in_real_time()?;
        Ok([
            Figure::new("CPU of BFD", share, "% of one"),
            Figure::new("BFD is in real time", f64::from(u8::from(is_in_real_time)), "0 or 1"),
        ])
    }
}

/// What the far end saw of its sessions.
fn seen(report: &BTreeMap<Duration, Seen>) -> impl Iterator<Item = Figure> {
    report.iter().flat_map(|(interval, Seen { losses, silence })| {
        let of = format!("sessions of {} ms", interval.as_millis());
        [
            Figure::new(format!("{of}: lost at either end"), *losses as f64, "sessions").at_most(0.0),
            Figure::new(format!("{of}: longest silence"), milliseconds(*silence), "ms"),
        ]
    })
}

fn milliseconds(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_neighbour_has_a_destination_of_its_own_outside_of_all_links() {
        assert_eq!(behind([10, 101, 1, 7].into()), "10.201.1.7/32");
        assert_eq!(behind([10, 102, 6, 200].into()), "10.202.6.200/32");
    }

    #[test]
    fn ratios_are_ours_by_each_other_and_goals_are_ours() {
        let all = Daemon::all(&[]).expect("descriptions");
        let daemon = |name: &str| all.iter().find(|daemon| daemon.name == name).expect("a router");
        let of = |name, value| Measured {
            daemon: daemon(name),
            figures: Ok(vec![Figure::new("CPU", value, "%").at_most(3.0)]),
        };
        let failed = Measured { daemon: daemon("openbgpd"), figures: Err(anyhow::anyhow!("no")) };
        let measured = [of("holdfast-router", 2.0), of("bird", 8.0), of("frr", 0.0), failed];
        let compared = compared(Row::Cost, &measured);
        assert_eq!(compared.len(), 1);
        assert_eq!(compared[0].values.len(), 3);
        assert_eq!(compared[0].ratios, BTreeMap::from([("bird", 0.25)]));
        assert!(compared[0].goal.as_ref().is_some_and(|goal| goal.is_reached && goal.at_most == 3.0));
    }
}

//! Holdfast measured against other routers, side by side on one machine.
//!
//! Feeders and sinks ([`load`]) play in network namespaces ([`net`]) against any router that a small file describes
//! ([`daemon`]); what the router's processes cost is read from their control group ([`cgroup`]); what sinks heard is
//! verified ([`verify`]) before a figure counts. [`rows`] says what is measured.
//!
//! [`admission`] measures what it costs to turn somebody away, and what a session loses meanwhile; [`ring`] what it costs to
//! carry a table over another transport; [`bgpsec`] what signed routes cost, in the library and in a whole router; [`bfd`] what
//! sessions of BFD cost, and how soon a loss changes routes; [`nsr`] what it costs that sessions outlive their
//! host. [`kernels`] counts instructions of the parts, which do not depend on how busy the machine is.

mod admission;
mod bfd;
mod bgpsec;
mod cgroup;
mod curve;
mod daemon;
mod feed;
mod figures;
mod hearing;
mod kernels;
mod load;
mod machine;
mod net;
mod nsr;
mod plot;
mod raw;
mod report;
mod ring;
mod rows;
mod verify;

use std::{
    fs,
    path::PathBuf,
    process::ExitCode,
    time::{SystemTime, UNIX_EPOCH},
};

use anyhow::{Result, ensure};
use clap::Parser;

use daemon::Daemon;
use report::{Report, RouterReport, RowReport};
use rows::{Outcome, Row, Tables};

/// Measures routers side by side. Needs root, control groups of version 2, and the routers' packages.
#[derive(Debug, Parser)]
#[command(name = "holdfast-bench")]
enum Arguments {
    /// Lists rows and routers.
    List {
        /// Descriptions of further routers.
        #[arg(long = "daemon", value_name = "FILE")]
        files: Vec<PathBuf>,
    },
    /// Measures.
    Run(RunArguments),
    /// Measures and plots what a route and a peer cost against how many there are.
    Curve(curve::Arguments),
    /// Measures and plots the figures of the XORP paper.
    Figures(figures::Arguments),
    /// Measures what it costs to turn somebody away, and who is served meanwhile; on the loopback, without rights.
    Admission(admission::Arguments),
    /// Measures how long a full table takes around three routers, over TCP, TLS and QUIC.
    Ring(ring::Arguments),
    /// An echo service, of which `admission` measures the CPU time.
    #[command(hide = true)]
    AdmissionServer(admission::server::Arguments),
    /// Measures what a BGP session over QUIC loses in a flood of ClientHellos. Needs root.
    Session(admission::session::Arguments),
    /// Measures what BGPsec costs: routers' keys, verifying and signing against the bare library, and signed routes in a whole
    /// router, which needs root.
    Bgpsec(bgpsec::Arguments),
    /// Measures what BFD costs, whether its sessions hold while tables are loaded, and how soon a loss is in the kernel's table.
    /// Needs root.
    Bfd(bfd::Arguments),
    /// Measures what it costs that sessions outlive their process and their host, beside routers that keep none. Needs root.
    Nsr(nsr::Arguments),
    /// By how many octets a process grows with so many keys.
    #[command(hide = true)]
    BgpsecKeys { count: u32 },
    /// Measures what it costs to validate routes by what the RPKI says, and how soon a change takes effect.
    Rpki,
    /// Counts the instructions of the hot kernels and compares with the committed baseline.
    Kernels {
        /// Makes what is counted the baseline.
        #[arg(long)]
        accept: bool,
        /// Only runs this one, without counting.
        #[arg(long, value_name = "KERNEL", conflicts_with = "accept")]
        run: Option<String>,
    },
    /// Counts what the dearest octets of one peer cost beside ordinary ones: the recipes in fuzz/corpus/cost.
    Cost {
        /// Looks for dearer ones for so many seconds.
        #[arg(long, value_name = "SECONDS", requires = "into")]
        search: Option<u64>,
        /// Where those go.
        #[arg(long, value_name = "FOLDER")]
        into: Option<PathBuf>,
        /// Only runs this recipe, without counting.
        #[arg(long, value_name = "FILE", conflicts_with = "search")]
        run: Option<PathBuf>,
        /// Runs an ordinary table in its place.
        #[arg(long, requires = "run")]
        ordinary: bool,
    },
}

#[derive(Debug, clap::Args)]
struct RunArguments {
    /// Only these rows.
    #[arg(long, value_delimiter = ',')]
    rows: Vec<String>,
    /// Only these routers.
    #[arg(long, value_delimiter = ',')]
    routers: Vec<String>,
    /// The important rows, Holdfast, BIRD and FRR only, one run each.
    #[arg(long)]
    quick: bool,
    /// Makes the rows bigger that can be: some need several GB and many minutes.
    #[arg(long)]
    long: bool,
    /// Repeats runs in which others disturbed the machine, three times at most, and leaves out those that they go on
    /// disturbing.
    #[arg(long)]
    publish: bool,
    /// Runs of each; figures are medians.
    #[arg(long, default_value_t = 3)]
    runs: usize,
    /// Also writes everything here; of several the last counts, as `make bench` names one.
    #[arg(long, value_name = "FILE", overrides_with = "json")]
    json: Option<PathBuf>,
    /// Sinks keep all octets: slower, but a failure says what is wrong with which route.
    #[arg(long)]
    explain: bool,
    /// Descriptions of further routers.
    #[arg(long = "daemon", value_name = "FILE")]
    files: Vec<PathBuf>,
}

/// Routers of the quick run.
const QUICK: [&str; 4] = ["holdfast", "holdfast-router", "bird", "frr"];

fn main() -> ExitCode {
    let result = match Arguments::parse() {
        Arguments::List { files } => list(&files),
        Arguments::Run(arguments) => run(&arguments),
        Arguments::Curve(arguments) => curve::run(&arguments),
        Arguments::Figures(arguments) => figures::run(&arguments),
        Arguments::Admission(arguments) => admission::run(&arguments),
        Arguments::Ring(arguments) => ring::run(&arguments),
        Arguments::AdmissionServer(arguments) => admission::server::run(&arguments),
        Arguments::Session(arguments) => admission::session::run(&arguments),
        Arguments::Bgpsec(arguments) => bgpsec::run(&arguments),
        Arguments::Bfd(arguments) => bfd::run(&arguments),
        Arguments::Nsr(arguments) => nsr::run(&arguments),
        Arguments::BgpsecKeys { count } => bgpsec::resident(count),
        Arguments::Rpki => kernels::validation::run(),
        Arguments::Kernels { run: Some(name), .. } => kernels::run(&name),
        Arguments::Kernels { accept, run: None } => kernels::compare(accept),
        Arguments::Cost { run: Some(path), ordinary, .. } => kernels::cost::run(&path, ordinary),
        Arguments::Cost { search: Some(seconds), into: Some(into), .. } => {
            kernels::search::search(seconds, &into)
        }
        Arguments::Cost { .. } => kernels::cost::compare(),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("holdfast-bench: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn list(files: &[PathBuf]) -> Result<()> {
    println!("rows (* also in the quick run):");
    for row in rows::all(false) {
        println!("  {:19}{} {}", row.name, if row.quick { '*' } else { ' ' }, row.title);
    }
    println!("routers:");
    for daemon in Daemon::all(files)? {
        let version = daemon.installed_version();
        println!("  {:16} {}", daemon.name, version.as_deref().unwrap_or("not installed"));
    }
    Ok(())
}

fn run(arguments: &RunArguments) -> Result<()> {
    cgroup::sweep()?;
    machine::allow_files();
    if arguments.explain {
        hearing::explain();
    }
    let rows = chosen_rows(arguments)?;
    let routers = chosen_routers(arguments)?;
    let machine = machine::description();
    println!("{machine}");
    let time = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs();
    let mut report = Report { machine, time, rows: Vec::new() };
    let tables = Tables::default();
    let mut failures = 0;
    for row in rows {
        let runs = if arguments.quick { 1 } else { arguments.runs };
        let row = measure(&row, &routers, Runs { count: runs, publish: arguments.publish }, &tables);
        print!("{}", row.table());
        failures += row.routers.iter().filter(|router| router.ours && router.failure.is_some()).count();
        report.rows.push(row);
        if let Some(path) = &arguments.json {
            fs::write(path, serde_json::to_string_pretty(&report)?)?;
        }
    }
    ensure!(failures == 0, "Holdfast failed in {failures} places");
    Ok(())
}

fn chosen_rows(arguments: &RunArguments) -> Result<Vec<Row>> {
    let all = rows::all(arguments.long);
    for name in &arguments.rows {
        ensure!(all.iter().any(|row| row.name == name), "there is no row {name}: see holdfast-bench list");
    }
    let wanted = |row: &Row| match arguments.rows.is_empty() {
        true => row.quick || !arguments.quick,
        false => arguments.rows.iter().any(|name| name == row.name),
    };
    let mut chosen: Vec<Row> = all.into_iter().filter(wanted).collect();
    if std::env::var_os("HOLDFAST_DATA").is_none() {
        for row in chosen.extract_if(.., |row| row.needs_data()) {
            println!(
                "{}: HOLDFAST_DATA, which names a folder with real tables, is not set: left out",
                row.name
            );
        }
    }
    Ok(chosen)
}

/// Those that are wanted and installed, with their versions.
fn chosen_routers(arguments: &RunArguments) -> Result<Vec<(Daemon, String)>> {
    let all = Daemon::all(&arguments.files)?;
    for name in &arguments.routers {
        ensure!(all.iter().any(|router| router.name == *name), "there is no router {name}");
    }
    let wanted = |router: &Daemon| match arguments.routers.is_empty() {
        true => !arguments.quick || QUICK.contains(&router.name.as_str()),
        false => arguments.routers.contains(&router.name),
    };
    let mut chosen = Vec::new();
    for router in all.into_iter().filter(wanted) {
        match router.installed_version() {
            Some(version) => chosen.push((router, version)),
            None => println!("{} is left out: {}", router.title, router.missing()),
        }
    }
    Ok(chosen)
}

/// How often everything is measured.
#[derive(Copy, Clone)]
struct Runs {
    count: usize,
    /// Nothing that others have disturbed is taken.
    publish: bool,
}

/// How often a run is repeated for that.
const REPEATS: usize = 3;

impl Runs {
    /// Runs it once, or until others leave it alone; `None` if they do not.
    fn outcome(self, mut run: impl FnMut() -> Result<Outcome>) -> Result<Option<Outcome>> {
        for _ in 0..=REPEATS {
            let outcome = run()?;
            if !(self.publish && outcome.noisy) {
                return Ok(Some(outcome));
            }
            eprintln!("  others had {:.0} % of the machine", 100.0 * (outcome.others + outcome.stolen));
        }
        Ok(None)
    }
}

/// All routers in turn, again and again, so that what the machine does besides hits all alike.
fn measure(row: &Row, routers: &[(Daemon, String)], runs: Runs, tables: &Tables) -> RowReport {
    let able = routers.iter().filter(|(router, _)| router.can(&row.work.features()));
    let mut reports: Vec<(&Daemon, RouterReport)> = able
        .map(|(router, version)| {
            let report = RouterReport {
                name: router.name.clone(),
                title: router.title.clone(),
                version: version.clone(),
                ours: router.is_ours(),
                runs: Vec::new(),
                left_out: 0,
                failure: None,
            };
            (router, report)
        })
        .collect();
    for number in 1..=runs.count {
        for (router, report) in &mut reports {
            eprintln!("{}: {} ({number} of {})", row.name, router.title, runs.count);
            match runs.outcome(|| row.work.run(router, tables)) {
                Ok(Some(outcome)) => report.runs.push(outcome),
                Ok(None) => report.left_out += 1,
                Err(error) => report.failure = Some(format!("{error:#}")),
            }
        }
    }
    RowReport {
        name: row.name,
        title: row.title.clone(),
        routers: reports.into_iter().map(|(_, report)| report).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_published_was_left_alone() {
        let run = |publish, noise: [bool; 5]| {
            let mut tried = 0;
            let outcome = Runs { count: 1, publish }.outcome(|| {
                tried += 1;
                Ok(Outcome { noisy: noise[tried - 1], ..Outcome::default() })
            });
            (outcome.expect("no run fails").map(|outcome| outcome.noisy), tried)
        };
        assert_eq!(run(false, [true; 5]), (Some(true), 1));
        assert_eq!(run(true, [true, true, false, false, false]), (Some(false), 3));
        assert_eq!(run(true, [true; 5]), (None, 4));
    }

    #[test]
    fn another_file_can_be_named_than_make_does() {
        let line = ["holdfast-bench", "run", "--json", "target/bench.json", "--json", "mine.json"];
        let Ok(Arguments::Run(arguments)) = Arguments::try_parse_from(line) else { panic!("it is refused") };
        assert_eq!(arguments.json, Some("mine.json".into()));
    }
}

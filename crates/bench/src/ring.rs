//! Figure 1 of "Routing over QUIC" (section 3): how long routes take around a ring of three routers, by what carries the
//! sessions between them.
//!
//! ```text
//!  feeder ──TCP──> R1 ──> R2
//!                   ^      │      a ring by export policy alone
//!                   └─ R3 <┘
//! ```
//! R1 notes when a prefix enters `bgp` (the profiling point `bgp-in`): once from the feeder and once from R3, before it sees
//! its own AS in the path and drops it. Runs of all transports alternate, so that what else the machine does meets all.

mod passages;
mod routers;

use std::{
    fs,
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use clap::ValueEnum;
use holdfast_lab::{keys::Signer, table::Table};
use serde::Serialize;

use crate::{
    admission::{median, name},
    cgroup, feed,
    load::Session,
    machine::{self, Clock},
    plot::{Plot, Style},
    ring::{passages::Quantiles, routers::Ring},
    rows::{Kind, Tables},
};

/// Routes of both families where `HOLDFAST_DATA` names no real tables: as many as in the paper.
const ROUTES: [usize; 2] = [970_000, 171_000];
/// Longest wait for the last route.
const LIMIT: Duration = Duration::from_secs(400);
/// From one question how many routes are back to the next: each takes some of the time that is measured.
const ASKING: Duration = Duration::from_millis(250);
/// After the last route, before what all has cost is read: what the routers still do for it.
const QUIET: Duration = Duration::from_millis(500);

/// What carries the sessions of the ring.
#[derive(Copy, Clone, PartialEq, Eq, Debug, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Transport {
    Tcp,
    Tls,
    Quic,
    QuicS2n,
}

impl Transport {
    fn title(self) -> &'static str {
        match self {
            Self::Tcp => "TCP",
            Self::Tls => "TLS",
            Self::Quic => "QUIC (noq)",
            Self::QuicS2n => "QUIC (s2n-quic)",
        }
    }
}

/// `holdfast-bench ring`
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Only these transports.
    #[arg(long, value_delimiter = ',')]
    transports: Vec<Transport>,
    /// So many routes of the tables, IPv4 and IPv6 in their proportion.
    #[arg(long)]
    routes: Option<usize>,
    /// Runs of each; figures are medians.
    #[arg(long, default_value_t = 3)]
    runs: usize,
    /// An object of JSON for each transport, a line each, instead of the table.
    #[arg(long)]
    json: bool,
    /// Also draws the distribution; of several the last counts, as `make bench-ring` names one.
    #[arg(long, value_name = "FILE", overrides_with = "svg")]
    svg: Option<PathBuf>,
}

/// What one run gave.
#[derive(Clone, Debug)]
struct Outcome {
    /// Milliseconds from entering to being back.
    latency: Quantiles,
    /// From the first route entering to the last being back.
    all_back: Duration,
    /// Of all processes of the three routers.
    cpu: Duration,
    /// The same, octets.
    memory: u64,
    /// Share of the machine that other processes, and the host, had meanwhile.
    others: f64,
}

/// What is printed: medians of the runs.
#[derive(Debug, Serialize)]
struct Row {
    transport: Transport,
    routes: usize,
    runs: usize,
    p5_ms: f64,
    p25_ms: f64,
    p50_ms: f64,
    p75_ms: f64,
    p95_ms: f64,
    p99_ms: f64,
    max_ms: f64,
    all_back_s: f64,
    cpu_s: f64,
    peak_memory_mib: f64,
    /// Medians of what each run had to that over TCP beside it.
    #[serde(skip_serializing_if = "Option::is_none")]
    p95_to_tcp: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cpu_to_tcp: Option<f64>,
    /// The largest share of the machine that others had in a run.
    others: f64,
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    ensure!(arguments.runs > 0 && arguments.routes != Some(0), "nothing is to be done");
    let transports = match arguments.transports.is_empty() {
        true => Transport::value_variants(),
        false => &arguments.transports[..],
    };
    cgroup::sweep()?;
    let tables = tables(arguments.routes)?;
    let feeds = Feeds::new(tables)?;
    let signer = Signer::new("Ring CA")?;
    let mut outcomes: Vec<(Transport, Vec<Outcome>)> =
        transports.iter().map(|&transport| (transport, Vec::new())).collect();
    for number in 1..=arguments.runs {
        for (transport, outcomes) in &mut outcomes {
            eprintln!("ring: {} ({number} of {})", transport.title(), arguments.runs);
            let outcome = measure(*transport, &signer, &feeds);
            outcomes.push(outcome.with_context(|| format!("over {}", transport.title()))?);
        }
    }
    let tcp = outcomes.iter().find(|(transport, _)| *transport == Transport::Tcp);
    let tcp = tcp.map(|(_, outcomes)| &outcomes[..]);
    let rows = outcomes.iter().map(|(transport, of)| Row::of(*transport, feeds.count(), of, tcp));
    print(&rows.collect::<Vec<_>>(), arguments.json)?;
    if let Some(path) = &arguments.svg {
        fs::write(path, plot(&outcomes).svg()?).with_context(|| path.display().to_string())?;
    }
    Ok(())
}

/// Of IPv4 and of IPv6.
fn tables(routes: Option<usize>) -> Result<[Arc<Table>; 2]> {
    let tables = Tables::default();
    if std::env::var_os("HOLDFAST_DATA").is_none() {
        let [ipv4, ipv6] = shares(routes, ROUTES);
        let table = |ipv6, routes| tables.get(Kind::Synthetic { ipv6, routes });
        return Ok([table(false, ipv4)?, table(true, ipv6)?]);
    }
    let mut both = [tables.get(Kind::Real { ipv6: false })?, tables.get(Kind::Real { ipv6: true })?];
    let counts = shares(routes, both.each_ref().map(|table| table.routes.len()));
    for (table, count) in both.iter_mut().zip(counts) {
        Arc::make_mut(table).truncate(count);
    }
    Ok(both)
}

/// So many routes, in the proportion of what there is; all if it is not said.
fn shares(wanted: Option<usize>, [ipv4, ipv6]: [usize; 2]) -> [usize; 2] {
    let all = ipv4 + ipv6;
    let wanted = wanted.unwrap_or(all).min(all);
    let first = wanted * ipv4 / all;
    [first, wanted - first]
}

/// What the feeder says, on a session for each family.
struct Feeds {
    tables: [Arc<Table>; 2],
    octets: [Arc<[u8]>; 2],
}

impl Feeds {
    fn new(tables: [Arc<Table>; 2]) -> Result<Self> {
        let say = |family: usize| -> Result<Arc<[u8]>> {
            let from = routers::feeder(family).peer;
            let mut octets = feed::announce(&tables[family], from, routers::feeder_asn(family))?;
            octets.extend(feed::end(from));
            Ok(octets.into())
        };
        Ok(Self { octets: [say(0)?, say(1)?], tables })
    }

    fn count(&self) -> usize {
        self.tables.iter().map(|table| table.routes.len()).sum()
    }
}

fn measure(transport: Transport, signer: &Signer, feeds: &Feeds) -> Result<Outcome> {
    let mut ring = Ring::start(transport, signer)?;
    ring.record(2 * feeds.count())?;
    let (cpu, clock, start) = (ring.cgroup.cpu()?, Clock::now()?, Instant::now());
    for (session, octets) in ring.load.sessions.iter_mut().zip(&feeds.octets) {
        session.send(Arc::clone(octets));
    }
    ring.load
        .until("the feeder to be heard", LIMIT, |load| Ok(load.sessions.iter().all(Session::is_idle)))?;
    while ring.recorded()? < 2 * feeds.count() as u64 {
        ensure!(start.elapsed() < LIMIT, "{} of {} routes came back", ring.recorded()?, feeds.count());
        ring.load.rest(ASKING)?;
    }
    ring.load.rest(QUIET)?;
    let cpu = ring.cgroup.cpu()? - cpu;
    let others = clock.others(cpu, start.elapsed())?.into_iter().sum();
    let memory = ring.cgroup.peak_memory()?;
    let latencies = passages::read(&ring.records()?, feeds.tables.iter().map(|table| &**table))?;
    Ok(Outcome {
        latency: Quantiles::of(&latencies.around),
        all_back: latencies.all_back,
        cpu,
        memory,
        others,
    })
}

impl Row {
    fn of(transport: Transport, routes: usize, outcomes: &[Outcome], tcp: Option<&[Outcome]>) -> Self {
        let of = |value: &dyn Fn(&Outcome) -> f64| median(outcomes.iter().map(value).collect());
        let at = |percent: usize| of(&|outcome| outcome.latency.at(percent));
        let to_tcp = |value: &dyn Fn(&Outcome) -> f64| {
            tcp.map(|tcp| median(outcomes.iter().zip(tcp).map(|(it, tcp)| value(it) / value(tcp)).collect()))
        };
        let cpu = |outcome: &Outcome| outcome.cpu.as_secs_f64();
        Self {
            transport,
            routes,
            runs: outcomes.len(),
            p5_ms: at(5),
            p25_ms: at(25),
            p50_ms: at(50),
            p75_ms: at(75),
            p95_ms: at(95),
            p99_ms: at(99),
            max_ms: at(100),
            all_back_s: of(&|outcome| outcome.all_back.as_secs_f64()),
            cpu_s: of(&cpu),
            peak_memory_mib: of(&|outcome| outcome.memory as f64 / f64::from(1 << 20)),
            p95_to_tcp: to_tcp(&|outcome| outcome.latency.at(95)),
            cpu_to_tcp: to_tcp(&cpu),
            others: outcomes.iter().map(|outcome| outcome.others).fold(0.0, f64::max),
        }
    }
}

fn print(rows: &[Row], json: bool) -> Result<()> {
    if json {
        for row in rows {
            println!("{}", serde_json::to_string(row)?);
        }
        return Ok(());
    }
    let row = rows.first().context("a transport")?;
    println!("{}", machine::description());
    println!("{} routes around the ring, milliseconds; medians of {} runs", row.routes, row.runs);
    println!(
        "{:10} {:>7} {:>7} {:>7} {:>7} {:>7} {:>7} {:>7} {:>10} {:>6} {:>9} {:>8} {:>8} {:>6}",
        "transport",
        "p5",
        "p25",
        "p50",
        "p75",
        "p95",
        "p99",
        "max",
        "all back s",
        "CPU s",
        "peak MiB",
        "p95/TCP",
        "CPU/TCP",
        "others"
    );
    let ratio = |ratio: Option<f64>| ratio.map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.2}"));
    for row in rows {
        let Row { p5_ms, p25_ms, p50_ms, p75_ms, p95_ms, p99_ms, max_ms, .. } = row;
        print!("{:10}", name(row.transport));
        for value in [p5_ms, p25_ms, p50_ms, p75_ms, p95_ms, p99_ms, max_ms] {
            print!(" {value:>7.1}");
        }
        println!(
            " {:>10.2} {:>6.2} {:>9.0} {:>8} {:>8} {:>4.0} %",
            row.all_back_s,
            row.cpu_s,
            row.peak_memory_mib,
            ratio(row.p95_to_tcp),
            ratio(row.cpu_to_tcp),
            100.0 * row.others,
        );
    }
    Ok(())
}

/// Which share of the routes was back after which time: of each percentile the median of the runs.
fn plot(outcomes: &[(Transport, Vec<Outcome>)]) -> Plot {
    let line = |outcomes: &[Outcome]| {
        let at = |percent| median(outcomes.iter().map(|outcome| outcome.latency.at(percent)).collect());
        (0..=100).map(|percent| (at(percent), percent as f64)).collect()
    };
    Plot {
        title: "Once around the ring, by what carries the sessions".into(),
        x_label: "ms from entering R1 to being back",
        y_label: "% of the routes",
        style: Style::Line,
        logarithmic: false,
        x_logarithmic: false,
        series: outcomes.iter().map(|(transport, of)| (transport.title().into(), line(of))).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fewer_routes_are_of_both_families_as_all_are() {
        assert_eq!(shares(None, [90, 10]), [90, 10]);
        assert_eq!(shares(Some(25), [90, 10]), [22, 3]);
        assert_eq!(shares(Some(1000), [90, 10]), [90, 10]);
    }

    #[test]
    fn figures_are_medians_and_ratios_are_of_runs_beside_each_other() {
        let outcome = |latency: u64, cpu: u64| Outcome {
            latency: Quantiles::of(&[latency * 1_000_000; 3]),
            all_back: Duration::from_secs(latency),
            cpu: Duration::from_secs(cpu),
            memory: 1 << 20,
            others: 0.0,
        };
        let tcp = [outcome(1, 1), outcome(10, 1), outcome(100, 1)];
        let quic = [outcome(2, 3), outcome(30, 1), outcome(150, 2)];
        let row = Row::of(Transport::Quic, 7, &quic, Some(&tcp));
        assert_eq!((row.p50_ms, row.all_back_s, row.cpu_s, row.peak_memory_mib), (30.0, 30.0, 2.0, 1.0));
        assert_eq!((row.p95_to_tcp, row.cpu_to_tcp), (Some(2.0), Some(2.0)));
        assert_eq!(Row::of(Transport::Quic, 7, &quic, None).cpu_to_tcp, None);
    }
}

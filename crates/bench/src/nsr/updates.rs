//! Figure 6 (a) and (b): routes from one peer, until the router has learnt them, and until other peers have been told.
//!
//! To learn is measured with a peer that is told of the last route only, by an export policy: routers take routes in order.
//! Beside the three ways to run Holdfast stand other routers, which keep no session.

use std::{
    net::Ipv4Addr,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Result, ensure};
use holdfast_lab::table::{Synthetic, Table};
use holdfast_types::{Afi, Asn, Ipv4Prefix, Prefix};

use super::{
    Size,
    figure::{Figure, Print},
    scene::{Scene, Store, Tier},
};
use crate::{
    daemon::{ASN, Daemon, Feature, Setup},
    feed,
    hearing::Hearing,
    machine::Clock,
    net::{Links, Net},
    rows::{Bench, HOLD, milliseconds},
    verify::Expected,
};

/// Beside Holdfast if nothing else is said.
const OTHERS: [&str; 3] = ["bird", "frr", "gobgp"];
/// The route that says that all before it are known. It is in no table.
const LAST: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 0);
/// After the last route, before what all has cost is read: what processes still do for it.
const QUIET: Duration = Duration::from_millis(300);
/// Times that of `nonstop off`: wall of tier 1 and of tier 2, CPU of tier 2. And the wall of any, to BIRD's.
const MOST_FIRST: f64 = 1.10;
const MOST_SECOND: f64 = 1.20;
const MOST_CPU: f64 = 1.40;
const MOST_BIRD: f64 = 1.0;

/// Who is measured.
enum Router {
    Ours(Tier),
    Other(Box<Daemon>),
}

impl Router {
    fn name(&self) -> &str {
        match self {
            Self::Ours(tier) => tier.name(),
            Self::Other(daemon) => &daemon.title,
        }
    }
}

/// What one run gave.
#[derive(Copy, Clone, Debug, Default)]
struct Outcome {
    /// Milliseconds.
    wall: f64,
    cpu: f64,
    store_cpu: f64,
    /// Octets of the store when all was done, and what was written to it.
    held: f64,
    written: f64,
    /// Share of the machine that others had.
    others: f64,
}

/// Who is measured, with what came of each round.
struct Measured {
    router: Router,
    rounds: Vec<Outcome>,
    failure: Option<String>,
}

impl Measured {
    fn of(&self, value: fn(&Outcome) -> f64) -> Vec<f64> {
        self.rounds.iter().map(value).collect()
    }
}

/// `sinks`: how many peers are told; 0: none, so that only learning is measured.
pub(super) fn run(size: &Size, sinks: &[usize], others: &[String], print: Print<'_>) -> Result<()> {
    for sinks in sinks {
        for count in &size.updates {
            let way = match sinks {
                0 => format!("{count} routes in"),
                1 => format!("{count} routes to 1 peer"),
                sinks => format!("{count} routes to {sinks} peers"),
            };
            let mut measured = Vec::new();
            for router in routers(others)? {
                measured.push(Measured { router, rounds: Vec::new(), failure: None });
            }
            let table = table(*count);
            for number in 1..=size.rounds {
                for one in measured.iter_mut().filter(|one| one.failure.is_none()) {
                    eprintln!("{way}: {} ({number} of {})", one.router.name(), size.rounds);
                    match measure(&one.router, &table, *sinks) {
                        Ok(outcome) => one.rounds.push(outcome),
                        Err(error) => match one.router {
                            Router::Ours(_) => return Err(error.context(way)),
                            Router::Other(_) => one.failure = Some(format!("{error:#}")),
                        },
                    }
                }
            }
            figures(&way, *count, &measured, print)?;
        }
    }
    Ok(())
}

/// Ours, and those of the others that are installed.
fn routers(others: &[String]) -> Result<Vec<Router>> {
    let mut routers: Vec<_> = [Tier::Off, Tier::One, Tier::STORED].map(Router::Ours).into();
    let wanted = |daemon: &Daemon| match others.is_empty() {
        true => OTHERS.contains(&daemon.name.as_str()),
        false => others.contains(&daemon.name),
    };
    for daemon in Daemon::all(&[])?.into_iter().filter(|daemon| !daemon.is_ours() && wanted(daemon)) {
        ensure!(daemon.can(&[Feature::Only]), "{} cannot tell of one route only", daemon.title);
        match daemon.installed_version() {
            Some(_) => routers.push(Router::Other(Box::new(daemon))),
            None => eprintln!("{} is left out: {}", daemon.title, daemon.missing()),
        }
    }
    Ok(routers)
}

/// So many routes, [`LAST`] at their end.
fn table(count: usize) -> Table {
    let mut table = Synthetic::ipv4(1, count.saturating_sub(1)).build();
    table.append(Table::plain(Ipv4Prefix::new(LAST, 32).map(Prefix::V4)));
    table
}

/// The router with a feeder and its sinks up.
fn scene(router: &Router, sinks: usize) -> Result<Scene> {
    let peers = 1 + sinks.max(1);
    let change = |setup: &mut Setup| setup.only = (sinks == 0).then(|| format!("{LAST}/32"));
    match router {
        Router::Ours(tier) => Scene::ours(*tier, peers, change),
        Router::Other(daemon) => {
            let net = Net::new(peers, Afi::IPV4, Links::Few)?;
            Ok(Scene { bench: Bench::on(net, daemon, (Afi::IPV4, HOLD), change)?, store: None })
        }
    }
}

fn measure(router: &Router, table: &Table, sinks: usize) -> Result<Outcome> {
    let told = if sinks == 0 { &last(table) } else { table };
    let expected = Expected::best(&[(told, Bench::asn(0))], Asn(ASN));
    let mut scene = scene(router, sinks)?;
    let mut octets = feed::announce(table, scene.bench.peer(0), Bench::asn(0))?;
    octets.extend(feed::end(scene.bench.peer(0)));
    let listening = 1..1 + sinks.max(1);
    scene.bench.load.sessions[listening.clone()].iter_mut().for_each(|sink| sink.hearing = Hearing::once());
    let before = scene.store.is_some().then(|| scene.status()).transpose()?;
    let store_cpu = |scene: &Scene| scene.store.as_ref().map_or(Ok(Duration::ZERO), Store::cpu);
    let (clock, cpu, cpu_of_store) = (Clock::now()?, scene.bench.running.cgroup.cpu()?, store_cpu(&scene)?);
    let start = Instant::now();
    scene.bench.load.sessions[0].send(Arc::from(octets));
    let done = scene.bench.settle(&expected, listening)?;
    scene.bench.load.rest(QUIET)?;
    let cpu = scene.bench.running.cgroup.cpu()? - cpu;
    let cpu_of_store = store_cpu(&scene)? - cpu_of_store;
    let mut outcome = Outcome {
        wall: milliseconds(done - start),
        cpu: milliseconds(cpu),
        store_cpu: milliseconds(cpu_of_store),
        others: clock.others(cpu + cpu_of_store, start.elapsed())?.into_iter().sum(),
        ..Outcome::default()
    };
    if let Some(before) = before {
        let (_, after) = scene.until_full(0.0)?;
        outcome.held = after.number("octetsInStore")?;
        outcome.written = after.number("octets")? - before.number("octets")?;
    }
    Ok(outcome)
}

/// The last route alone.
fn last(table: &Table) -> Table {
    Table { sets: table.sets.clone(), routes: table.routes.last().copied().into_iter().collect() }
}

fn figures(way: &str, count: usize, measured: &[Measured], print: Print<'_>) -> Result<()> {
    let [off, first, second, others @ ..] = measured else { return Ok(()) };
    for (what, value) in [("wall", (|of| of.wall) as fn(&Outcome) -> f64), ("CPU", |of| of.cpu)] {
        let is_wall = what == "wall";
        for one in [off, first, second] {
            let ours = one.of(value);
            let name = one.router.name();
            let mut figure = Figure::new(format!("{way}: {what}, {name}"), &ours, "ms");
            if let Router::Ours(tier @ (Tier::One | Tier::Two { .. })) = one.router {
                figure = figure.beside(off.router.name(), &ours, &off.of(value));
                figure = match (tier, is_wall) {
                    (Tier::One, true) => figure.ratio_at_most(MOST_FIRST),
                    (Tier::Two { .. }, true) => figure.ratio_at_most(MOST_SECOND),
                    (Tier::Two { .. }, false) => figure.ratio_at_most(MOST_CPU),
                    _ => figure,
                };
            }
            for other in others.iter().filter(|other| !other.rounds.is_empty()) {
                let name = other.router.name();
                figure = figure.beside(name, &ours, &other.of(value));
                if is_wall && name == "BIRD" {
                    figure = figure.ratio_at_most(MOST_BIRD);
                }
            }
            print(figure)?;
        }
    }
    print(Figure::new(format!("{way}: CPU of the store"), &second.of(|of| of.store_cpu), "ms"))?;
    let share = |value: fn(&Outcome) -> f64| {
        second.of(value).into_iter().map(|octets| octets / count as f64).collect::<Vec<_>>()
    };
    print(Figure::new(format!("{way}: in the store for each"), &share(|of| of.held), "octets"))?;
    print(Figure::new(format!("{way}: written to the store for each"), &share(|of| of.written), "octets"))?;
    let others_had = measured.iter().flat_map(|of| &of.rounds).map(|of| of.others).fold(0.0, f64::max);
    print(Figure::new(format!("{way}: others had of the machine at most"), &[100.0 * others_had], "%"))?;
    for failed in others {
        if let Some(failure) = &failed.failure {
            eprintln!("  {way}: {}: {failure}", failed.router.name());
        }
    }
    Ok(())
}

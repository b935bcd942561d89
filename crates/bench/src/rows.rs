//! What is measured.

mod change;
mod churn;
mod death;
mod drop;
mod flow;
mod idle;
mod keepalives;
mod loaded;
mod paced;
mod scale;
mod served;
mod single;
mod small;
mod sparse;
mod vrfs;

use std::{
    cell::RefCell,
    collections::HashMap,
    net::IpAddr,
    ops::Range,
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};
use holdfast_bgp_wire::{
    Attributes,
    as_path::SegmentType,
    edit::{Edit, Values, rewrite},
};
use holdfast_lab::table::{AttributeSet, Synthetic, Table, random::Random};
use holdfast_types::{Afi, Asn, Prefix};
use serde::Serialize;

use crate::{
    daemon::{Daemon, Feature, Peer, Policy, Running, Setup, peer_asn},
    load::{Load, Session},
    machine::Clock,
    net::{Links, Net, Place},
    verify::{Expected, Listener},
};

pub(crate) use flow::Flow;
pub(crate) use keepalives::Keepalives;
pub(crate) use paced::Paced;

/// Longest wait for anything that a slow router does.
pub(crate) const LIMIT: Duration = Duration::from_secs(400);
/// Longest wait for the sessions.
const START: Duration = Duration::from_secs(60);
/// And for each of them.
const START_OF_EACH: Duration = Duration::from_millis(20);
/// No UPDATE for so long: it is done, if verification agrees.
const QUIET: Duration = Duration::from_millis(250);
/// From the establishment of the sessions to the first route.
const SETTLE: Duration = Duration::from_millis(400);
/// The share of the machine that others, and the host, may have in a run.
const NOISY: f64 = 0.03;
/// Hold time where keepalives are not what is looked at.
pub(crate) const HOLD: u16 = 30;

/// One line of the big table.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    /// On the command line and in the JSON.
    pub(crate) name: &'static str,
    /// In tables.
    pub(crate) title: String,
    /// Part of the quick run.
    pub(crate) quick: bool,
    pub(crate) work: Work,
}

/// What is done.
#[derive(Clone, Debug)]
pub(crate) enum Work {
    /// Routes in and out.
    Flow(Flow),
    /// A peer with many routes drops; another's single routes meanwhile.
    Drop { routes: usize },
    /// One route after the other, with many loaded.
    Single { routes: usize, probes: usize },
    /// Routes change without end, with short hold times and an operator who asks.
    Churn { routes: usize, time: Duration },
    /// How late KEEPALIVEs are while routes change.
    Keepalives(Keepalives),
    /// Another export policy, with many routes loaded.
    Change { routes: usize },
    /// The death of the process that holds the sessions, with routes from several peers.
    Death { routes: usize, feeders: usize },
    /// Start and reload with many peers and prefix-set entries.
    Scale { peers: usize, entries: usize },
    /// Members of a route server, each with its share of the routes, all to all.
    Served { members: usize, routes: usize, own_view: bool },
    /// So many routes in each VRF, in and out to one peer there.
    Vrfs { vrfs: usize, routes: usize },
    /// Peers that are there and say nothing.
    Idle { peers: usize, time: Duration },
    /// A router that has next to nothing to do.
    Small,
}

/// A measured value; less is better.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Figure {
    /// With its unit.
    pub(crate) metric: &'static str,
    pub(crate) value: f64,
}

/// What one run of one router gave.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Outcome {
    pub(crate) figures: Vec<Figure>,
    /// Share of the machine that other processes had meanwhile, and that the host took away.
    pub(crate) others: f64,
    pub(crate) stolen: f64,
    /// Whether that was too much for the figures to be believed.
    pub(crate) noisy: bool,
    /// Octets that all processes of the router had at the end, where that was looked at.
    pub(crate) memory: u64,
}

impl Outcome {
    /// The value of a figure; not a number if it was not measured.
    pub(crate) fn value(&self, metric: &str) -> f64 {
        self.figures.iter().find(|figure| figure.metric == metric).map_or(f64::NAN, |figure| figure.value)
    }

    fn add(&mut self, metric: &'static str, value: f64) {
        self.figures.push(Figure { metric, value });
    }
}

/// Where tables come from; made once for all routers.
#[derive(Debug, Default)]
pub(crate) struct Tables {
    made: RefCell<HashMap<Kind, Arc<Table>>>,
}

/// Which table.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Kind {
    /// Made from a seed: as many routes, seven or so to a set of attributes.
    Synthetic { ipv6: bool, routes: usize },
    /// The same, with the attributes of another seed; `shuffled` in an order of its own too, but routes that follow each
    /// other with the same attributes stay together.
    Variant { routes: usize, seed: u64, shuffled: bool },
    /// IPv6 prefixes nearly all of which have no neighbour nearby.
    Sparse { routes: usize },
    /// Every prefix has attributes of its own.
    OneSetPerPrefix { routes: usize },
    /// A table of `HOLDFAST_DATA`.
    Real { ipv6: bool },
}

impl Tables {
    pub(crate) fn get(&self, kind: Kind) -> Result<Arc<Table>> {
        if let Some(table) = self.made.borrow().get(&kind) {
            return Ok(Arc::clone(table));
        }
        let table = Arc::new(self.make(kind)?);
        self.made.borrow_mut().insert(kind, Arc::clone(&table));
        Ok(table)
    }

    fn make(&self, kind: Kind) -> Result<Table> {
        Ok(match kind {
            Kind::Synthetic { ipv6: false, routes } => Synthetic::ipv4(1, routes).build(),
            Kind::Synthetic { ipv6: true, routes } => Synthetic::ipv6(1, routes).build(),
            Kind::Variant { routes, seed, shuffled } => {
                let base = self.get(Kind::Synthetic { ipv6: false, routes })?;
                let other = Synthetic::ipv4(seed, routes).build();
                let routes = base.routes.iter().zip(&other.routes);
                let table = Table { routes: routes.map(|(a, b)| (a.0, b.1)).collect(), sets: other.sets };
                if shuffled { in_another_order(&table, seed) } else { table }
            }
            Kind::Sparse { routes } => sparse::table(1, routes),
            Kind::OneSetPerPrefix { routes } => one_set_per_prefix(&Synthetic::ipv4(1, routes).build()),
            Kind::Real { ipv6 } => {
                let folder = std::env::var("HOLDFAST_DATA").context("HOLDFAST_DATA is not set")?;
                let name = if ipv6 { "table-v6.mrt.gz" } else { "table-v4.mrt.gz" };
                let mut table = Table::load(Path::new(&folder).join(name))?;
                // Many routers refuse AS_SETs (RFC 9774).
                table.routes.retain(|(_, set)| !has_as_set(&table.sets[*set as usize].bytes));
                table
            }
        })
    }
}

/// A large community of its own for every prefix.
pub(crate) fn one_set_per_prefix(table: &Table) -> Table {
    let mut own = Table::default();
    for (number, (prefix, set)) in table.routes.iter().enumerate() {
        let add = [(65_536, number as u32, 1)];
        let edit = Edit { large_communities: Values { add: &add, ..Values::default() }, ..Edit::default() };
        let mut bytes = Vec::new();
        rewrite(&table.sets[*set as usize].bytes, &edit, &mut bytes);
        own.sets.push(AttributeSet { bytes });
        own.routes.push((*prefix, number as u32));
    }
    own
}

/// The runs of routes with the same attributes in an order by chance.
fn in_another_order(table: &Table, seed: u64) -> Table {
    let mut runs: Vec<&[(Prefix, u32)]> = table.routes.chunk_by(|a, b| a.1 == b.1).collect();
    let mut random = Random::new(seed);
    for last in (1..runs.len()).rev() {
        runs.swap(last, random.below(last as u32 + 1) as usize);
    }
    Table { sets: table.sets.clone(), routes: runs.concat() }
}

fn has_as_set(attributes: &[u8]) -> bool {
    let path = Attributes(attributes).as_path();
    path.segments().any(|segment| segment.kind == SegmentType::Set)
}

/// A router with its sessions up and nothing else.
pub(crate) struct Bench {
    pub(crate) running: Running,
    pub(crate) load: Load,
    pub(crate) net: Net,
}

impl Bench {
    /// Starts the router in a host of its own. `change` has the last word about its setup.
    fn start(
        daemon: &Daemon,
        (peers, afi, hold): (usize, Afi, u16),
        change: impl FnOnce(&mut Setup),
    ) -> Result<Self> {
        Self::start_over(Links::Few, daemon, (peers, afi, hold), change)
    }

    /// The same over other links.
    fn start_over(
        links: Links,
        daemon: &Daemon,
        (peers, afi, hold): (usize, Afi, u16),
        change: impl FnOnce(&mut Setup),
    ) -> Result<Self> {
        Self::on(Net::new(peers, afi, links)?, daemon, (afi, hold), change)
    }

    /// The same in hosts that are there already.
    pub(crate) fn on(
        net: Net,
        daemon: &Daemon,
        (afi, hold): (Afi, u16),
        change: impl FnOnce(&mut Setup),
    ) -> Result<Self> {
        let peer = |(number, place): (usize, &Place)| Peer {
            number,
            address: place.peer,
            local: place.router,
            asn: peer_asn(number).0,
            vrf: None,
            bfd: None,
        };
        let mut setup = Setup {
            netns: net.router.name().to_owned(),
            hold,
            peers: net.places.iter().enumerate().map(peer).collect(),
            ipv6: afi == Afi::IPV6,
            ..Setup::default()
        };
        change(&mut setup);
        let running = daemon.start(setup)?;
        let places = net.places.clone();
        let limit = START + START_OF_EACH * places.len() as u32;
        let load = net.load.run(move || Load::establish(&places, peer_asn, hold, limit))?;
        let mut bench = Self { load: load.with_context(|| running.log_tail())?, running, net };
        bench.load.rest(SETTLE)?;
        Ok(bench)
    }

    pub(crate) fn asn(number: usize) -> Asn {
        peer_asn(number)
    }

    pub(crate) fn peer(&self, number: usize) -> IpAddr {
        self.net.places[number].peer
    }

    fn router(&self, number: usize) -> IpAddr {
        self.net.places[number].router
    }

    /// Whether the routes that a session has heard of are the right ones.
    fn verify(&self, expected: &Expected, number: usize) -> Result<()> {
        let Session { hearing, withdrawn, .. } = &self.load.sessions[number];
        let router = self.router(number);
        expected.check(&Listener { session: number, hearing, withdrawn: *withdrawn, router })
    }

    /// Waits until these sessions have exactly what is expected; returns when the last UPDATE of that came.
    pub(crate) fn settle(&mut self, expected: &Expected, sinks: Range<usize>) -> Result<Instant> {
        let own = expected.owned(self.load.sessions.len());
        let enough = |sink: usize| (expected.len() - own[sink]) as u64;
        self.settle_each(|sink| (expected, enough(sink)), sinks)
    }

    /// The same where each has its own, of which so many routes must have come before anything is compared.
    fn settle_each<'e>(
        &mut self,
        expected: impl Fn(usize) -> (&'e Expected, u64),
        sinks: Range<usize>,
    ) -> Result<Instant> {
        let start = Instant::now();
        loop {
            let all =
                |load: &Load| sinks.clone().all(|sink| load.sessions[sink].announced >= expected(sink).1);
            let waited = self.load.until("the routes", LIMIT.saturating_sub(start.elapsed()), |load| {
                Ok(all(load) && load.is_quiet(sinks.clone(), QUIET))
            });
            waited.with_context(|| {
                let short = |sink: &usize| self.load.sessions[*sink].announced < expected(*sink).1;
                format!("{} of {} sinks lack routes", sinks.clone().filter(short).count(), sinks.len())
            })?;
            let done = self.load.last_update(sinks.clone()).context("there is no sink")?;
            match sinks.clone().try_for_each(|sink| self.verify(expected(sink).0, sink)) {
                Ok(()) => return Ok(done),
                // A sum never becomes right again.
                Err(error) if self.load.sessions[sinks.clone()].iter().all(Session::is_summed) => {
                    bail!(error)
                }
                Err(error) => ensure!(start.elapsed() < LIMIT, "{error:#}"),
            }
            // It may be thinking.
            let before = done;
            let moved = |load: &Load| load.last_update(sinks.clone()) > Some(before);
            let waited =
                self.load.until("more", LIMIT.saturating_sub(start.elapsed()), |load| Ok(moved(load)));
            if waited.is_err() {
                let why = sinks.clone().try_for_each(|sink| self.verify(expected(sink).0, sink));
                return why.map(|()| done);
            }
        }
    }
}

/// A clock, a CPU meter and a look at the machine.
struct Meter {
    cpu: Duration,
    clock: Clock,
    start: Instant,
}

impl Meter {
    fn start(bench: &Bench) -> Result<Self> {
        Ok(Self { cpu: bench.running.cgroup.cpu()?, clock: Clock::now()?, start: Instant::now() })
    }

    /// Notes what others had of the machine while the router had this time.
    fn look(&self, cpu: Duration, outcome: &mut Outcome) -> Result<()> {
        [outcome.others, outcome.stolen] = self.clock.others(cpu, self.start.elapsed())?;
        outcome.noisy = outcome.others + outcome.stolen > NOISY;
        Ok(())
    }

    /// Adds wall time up to `done` and the CPU time up to now.
    fn stop(&self, bench: &Bench, done: Instant, outcome: &mut Outcome) -> Result<()> {
        let cpu = bench.running.cgroup.cpu()? - self.cpu;
        outcome.add("wall s", (done - self.start).as_secs_f64());
        outcome.add("CPU s", cpu.as_secs_f64());
        self.look(cpu, outcome)
    }
}

/// By how much the router has grown since it had so much memory, once it has given back what it used on the way.
fn grown(bench: &mut Bench, before: u64, outcome: &mut Outcome) -> Result<u64> {
    bench.load.rest(Duration::from_millis(500))?;
    outcome.memory = bench.running.cgroup.memory()?;
    Ok(outcome.memory.saturating_sub(before))
}

/// The value below which this share of the others lies.
pub(crate) fn percentile(values: &mut [f64], share: f64) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    values.get(((values.len().max(1) - 1) as f64 * share).round() as usize).copied().unwrap_or(f64::NAN)
}

pub(crate) fn milliseconds(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}

/// A policy that refuses one of a hundred of the table's routes, by a set of 10,000 prefixes most of which are not
/// there, and one path in many.
fn realistic_policy(table: &Table) -> Policy {
    let there = table.routes.iter().step_by(100).map(|(prefix, _)| prefix.to_string());
    let mut refused: Vec<String> = there.take(10_000).collect();
    // 240.0.0.0/4 is in no table.
    let strangers = (0..10_000 - refused.len()).map(|n| format!("240.{}.{}.0/24", n / 256, n % 256));
    refused.extend(strangers.collect::<Vec<_>>());
    let mut communities: HashMap<u32, usize> = HashMap::new();
    let mut ases: HashMap<u32, usize> = HashMap::new();
    for set in &table.sets {
        let attributes = Attributes(&set.bytes);
        attributes.communities().for_each(|community| *communities.entry(community).or_default() += 1);
        attributes.as_path().asns().for_each(|asn| *ases.entry(asn.0).or_default() += 1);
    }
    let most = |counts: HashMap<u32, usize>| counts.into_iter().max_by_key(|&(value, count)| (count, value));
    let community = most(communities).map_or(0, |(community, _)| community);
    let rare = ases.into_iter().filter(|(_, count)| *count > table.sets.len() / 500);
    let rare = rare.min_by_key(|&(asn, count)| (count, asn)).map_or(0, |(asn, _)| asn);
    Policy { refused, refused_as: rare, matched: (community >> 16, community & 0xffff), added: (65_000, 100) }
}

/// The prefixes that the policy's list names, for looking up.
fn refused(policy: &Policy) -> std::collections::HashSet<Prefix> {
    policy.refused.iter().filter_map(|text| text.parse().ok()).collect()
}

impl Row {
    /// Whether its tables are in `HOLDFAST_DATA`.
    pub(crate) fn needs_data(&self) -> bool {
        matches!(&self.work, Work::Flow(flow) if matches!(flow.kind, Kind::Real { .. }))
    }
}

impl Work {
    /// What a router must be able to do.
    pub(crate) fn features(&self) -> Vec<Feature> {
        match self {
            Self::Flow(flow) => flow.features(),
            Self::Drop { .. } | Self::Single { .. } | Self::Small => Vec::new(),
            Self::Churn { .. } | Self::Keepalives(_) => vec![Feature::Churn],
            Self::Change { .. } => vec![Feature::PolicyChange],
            Self::Death { .. } => vec![Feature::Nonstop],
            Self::Scale { .. } => vec![Feature::Scale],
            Self::Served { own_view, .. } => {
                vec![if *own_view { Feature::OwnView } else { Feature::RouteServer }]
            }
            Self::Vrfs { .. } => vec![Feature::Vrfs],
            Self::Idle { .. } => vec![Feature::Scale],
        }
    }

    /// Runs it once.
    pub(crate) fn run(&self, daemon: &Daemon, tables: &Tables) -> Result<Outcome> {
        match self {
            Self::Flow(flow) => flow.run(daemon, tables),
            Self::Drop { routes } => drop::run(daemon, tables, *routes),
            Self::Single { routes, probes } => single::run(daemon, tables, *routes, *probes),
            Self::Churn { routes, time } => churn::run(daemon, tables, *routes, *time),
            Self::Keepalives(keepalives) => keepalives.run(daemon, tables),
            Self::Small => small::run(daemon),
            Self::Change { routes } => change::run(daemon, tables, *routes),
            Self::Scale { peers, entries } => scale::run(daemon, *peers, *entries),
            Self::Served { members, routes, own_view } => {
                served::run(daemon, tables, (*members, *routes, *own_view))
            }
            Self::Vrfs { vrfs, routes } => vrfs::run(daemon, tables, *vrfs, *routes),
            Self::Idle { peers, time } => idle::run(daemon, *peers, *time),
            Self::Death { routes, feeders } => death::run(daemon, tables, *routes, *feeders),
        }
    }
}

/// All rows; `long` makes some of them ten times as big.
pub(crate) fn all(long: bool) -> Vec<Row> {
    let flow = |routes| Flow { kind: Kind::Synthetic { ipv6: false, routes }, ..Flow::default() };
    let mut rows = Vec::new();
    let mut row = |name, title: &str, quick, work| {
        rows.push(Row { name, title: title.to_owned(), quick, work });
    };
    row("100k", "100k routes in and out to one peer", false, Work::Flow(flow(100_000)));
    row("500k", "500k routes in and out to one peer", true, Work::Flow(flow(500_000)));
    row("1m", "1M routes in and out to one peer", false, Work::Flow(flow(1_000_000)));
    let ipv6 = Flow { kind: Kind::Synthetic { ipv6: true, routes: 200_000 }, ..Flow::default() };
    row("ipv6", "200k IPv6 routes in and out to one peer", true, Work::Flow(ipv6));
    let sparse = Flow { kind: Kind::Sparse { routes: 200_000 }, ..Flow::default() };
    row(
        "ipv6-sparse",
        "200k IPv6 routes without neighbours in and out to one peer",
        false,
        Work::Flow(sparse),
    );
    row("sinks", "200k routes to 10 peers", true, Work::Flow(Flow { sinks: 10, ..flow(200_000) }));
    row("sinks-100", "300k routes to 100 peers", false, Work::Flow(Flow { sinks: 100, ..flow(300_000) }));
    row("many-sinks", "100 routes to 700 peers", true, Work::Flow(Flow { sinks: 700, ..flow(100) }));
    let feeders = Flow { feeders: 10, ..flow(100_000) };
    row(
        "feeders",
        "10 feeders of the same 100k prefixes, to each other and one peer",
        true,
        Work::Flow(feeders),
    );
    let shuffled = Flow { feeders: 10, shuffled: true, ..flow(100_000) };
    row(
        "feeders-shuffled",
        "10 feeders of the same 100k prefixes, each in an order of its own",
        false,
        Work::Flow(shuffled),
    );
    let (size, times) = if long { ("1M", 10) } else { ("100k", 1) };
    let tables = Flow { feeders: 20, shuffled: true, ..flow(times * 100_000) };
    let title =
        format!("20 feeders with other paths of the same {size} prefixes, each in an order of its own");
    row("tables", &title, false, Work::Flow(tables));
    let sets = Flow { kind: Kind::OneSetPerPrefix { routes: 500_000 }, ..Flow::default() };
    row("sets", "500k routes, each with attributes of its own", false, Work::Flow(sets));
    let policy = Flow { policy: true, ..flow(500_000) };
    row("policy", "500k routes through a realistic import policy", false, Work::Flow(policy));
    let real = Flow { kind: Kind::Real { ipv6: false }, ..Flow::default() };
    row("real", "the Internet's IPv4 table in and out to one peer", false, Work::Flow(real));
    let real = Flow { kind: Kind::Real { ipv6: true }, ..Flow::default() };
    row("real6", "the Internet's IPv6 table in and out to one peer", false, Work::Flow(real));
    row("drop", "a peer with 500k routes drops", true, Work::Drop { routes: 500_000 });
    let single = Work::Single { routes: 1_000_000, probes: 300 };
    row("single", "one route after the other with 1M loaded", false, single);
    let churn = Work::Churn { routes: 200_000, time: Duration::from_secs(8) };
    row("churn", "200k routes that change for 8 s; hold time 3 s", true, churn);
    let keepalives =
        Keepalives { loaded: 1_000_000, changing: 200_000, silent: 125, time: Duration::from_secs(8) };
    row(
        "keepalives",
        "lateness of KEEPALIVEs to 125 silent peers, 200k of 1M routes changing for 8 s; hold time 3 s",
        false,
        Work::Keepalives(keepalives),
    );
    let death = |routes| Work::Death { routes, feeders: 4 };
    row("death-10k", "bgp is killed with 10k routes from 4 peers", false, death(10_000));
    row("death", "bgp is killed with 1M routes from 4 peers", false, death(1_000_000));
    row("change", "another export policy over 1M routes", false, Work::Change { routes: 1_000_000 });
    let scale = Work::Scale { peers: 5_000, entries: 45_000 };
    row("scale", "5,000 peers and 45,000 prefix-set entries", false, scale);
    let served = |own_view| Work::Served { members: 1_000, routes: times * 20_000, own_view };
    let size = times * 20;
    row("route-server", &format!("{size}k routes of 1,000 members, all to all"), false, served(false));
    let title = format!("{size}k routes of 1,000 members, all to all, each by its own view");
    row("route-server-views", &title, false, served(true));
    let vrfs = Work::Vrfs { vrfs: 250, routes: 1_000 };
    row("vrfs", "1,000 routes in and out in each of 250 VRFs", false, vrfs);
    let idle = Work::Idle { peers: 5_000, time: Duration::from_secs(20) };
    row("idle", "5,000 peers that say nothing, 20 s", false, idle);
    row("small", "a router with two peers and no routes", false, Work::Small);
    let kernel = Flow { kernel: true, ..flow(1_000_000) };
    row("kernel", "1M routes into the kernel and out to one peer", false, Work::Flow(kernel));
    rows
}

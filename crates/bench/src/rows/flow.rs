//! Routes in from feeders and out to sinks.

use std::{
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use holdfast_lab::{netns::Namespace, table::Table};
use holdfast_types::{Afi, Asn};

use super::{Bench, HOLD, Kind, LIMIT, Meter, Outcome, Tables, realistic_policy, refused};
use crate::{
    daemon::{ASN, Daemon, Feature},
    feed,
    verify::{Expected, Route},
};

/// Prefixes looked up in the RIB when all are there.
const LOOKUPS: usize = 20;

/// Who sends what to how many.
#[derive(Clone, Debug)]
pub(crate) struct Flow {
    pub(crate) kind: Kind,
    pub(crate) feeders: usize,
    pub(crate) sinks: usize,
    pub(crate) kernel: bool,
    pub(crate) policy: bool,
}

impl Default for Flow {
    fn default() -> Self {
        Self { kind: Kind::Real { ipv6: false }, feeders: 1, sinks: 1, kernel: false, policy: false }
    }
}

impl Flow {
    pub(crate) fn features(&self) -> Vec<Feature> {
        let wanted = [(self.kernel, Feature::Kernel), (self.policy, Feature::Policy)];
        wanted.into_iter().filter_map(|(wanted, feature)| wanted.then_some(feature)).collect()
    }

    /// What each feeder has: of several, each has its own attributes for the same prefixes.
    fn tables(&self, tables: &Tables) -> Result<Vec<Arc<Table>>> {
        let kind = |number: usize| match self.kind {
            Kind::Synthetic { ipv6: false, routes } if number > 0 => {
                Kind::Variant { routes, seed: 1 + number as u64 }
            }
            kind => kind,
        };
        (0..self.feeders).map(|number| tables.get(kind(number))).collect()
    }

    pub(crate) fn run(&self, daemon: &Daemon, tables: &Tables) -> Result<Outcome> {
        let tables = self.tables(tables)?;
        let afi = tables[0].routes[0].0.afi();
        let policy = self.policy.then(|| realistic_policy(&tables[0]));
        let mut bench = Bench::start(daemon, (self.feeders + self.sinks, afi, HOLD), |setup| {
            (setup.kernel, setup.policy) = (self.kernel, policy.clone());
        })?;
        let sinks = self.feeders..self.feeders + self.sinks;
        let with_asn = |(number, table): (usize, &Arc<Table>)| (Arc::clone(table), Bench::asn(number));
        let of: Vec<_> = tables.iter().enumerate().map(with_asn).collect();
        let of: Vec<_> = of.iter().map(|(table, asn)| (&**table, *asn)).collect();
        let mut expected = Expected::best(&of, Asn(ASN));
        if let Some(policy) = &policy {
            let refused = refused(policy);
            let community = |(high, low): (u32, u32)| high << 16 | low;
            let passes = |prefix, route: &Route| {
                !refused.contains(&prefix) && !route.path.contains(&Asn(policy.refused_as))
            };
            expected.apply(passes, |route| {
                if route.communities.contains(&community(policy.matched)) {
                    route.communities.insert(community(policy.added));
                }
            });
        }
        let mut feeds = Vec::new();
        for (number, (table, asn)) in of.iter().enumerate() {
            let mut octets = feed::announce(table, bench.peer(number), *asn)?;
            octets.extend(feed::end(bench.peer(number)));
            feeds.push(Arc::<[u8]>::from(octets));
            // What feeders hear of each other is not looked at.
            bench.load.sessions[number].keep = false;
        }
        let mut outcome = Outcome::default();
        let before = bench.running.cgroup.memory()?;
        let installed = self.kernel.then(|| wait_for_kernel(&bench.net.router, afi, expected.len()));
        let meter = Meter::start(&bench)?;
        for (number, octets) in feeds.into_iter().enumerate() {
            bench.load.sessions[number].send(octets);
        }
        let mut done = bench.settle(&expected, sinks, expected.len() as u64)?;
        if let Some(installed) = installed {
            done = done.max(installed.join().ok().context("the watcher of the kernel panicked")??);
        }
        meter.stop(&bench, done, &mut outcome)?;
        let paths: usize = tables.iter().map(|table| table.routes.len()).sum();
        // Let it give back what it used on the way.
        bench.load.rest(Duration::from_millis(500))?;
        let memory = bench.running.cgroup.memory()?.saturating_sub(before);
        if paths >= 100_000 {
            outcome.add("B/path", memory as f64 / paths as f64);
        }
        let step = (tables[0].routes.len() / LOOKUPS).max(1);
        if !self.policy {
            for (prefix, _) in tables[0].routes.iter().step_by(step) {
                bench.running.lookup(&prefix.to_string()).with_context(|| format!("RIB without {prefix}"))?;
            }
        }
        Ok(outcome)
    }
}

/// Watches the kernel's table until it has so many routes more than now.
pub(super) fn wait_for_kernel(
    host: &Namespace,
    afi: Afi,
    more: usize,
) -> thread::JoinHandle<Result<Instant>> {
    let name = host.name().to_owned();
    thread::spawn(move || {
        ensure!(afi == Afi::IPV4, "only the IPv4 table can be counted cheaply");
        let count = || -> Result<usize> {
            let mut command = std::process::Command::new("ip");
            command.args(["netns", "exec", &name, "cat", "/proc/net/fib_triestat"]);
            let text = holdfast_lab::netns::output(&mut command)?;
            // Both tables: local and main.
            let prefixes = text.lines().filter_map(|line| line.trim().strip_prefix("Prefixes:"));
            Ok(prefixes.filter_map(|count| count.trim().parse::<usize>().ok()).sum())
        };
        let (start, wanted) = (Instant::now(), count()? + more);
        while start.elapsed() < LIMIT {
            let now = Instant::now();
            if count()? >= wanted {
                return Ok(now);
            }
            thread::sleep(Duration::from_millis(50));
        }
        anyhow::bail!("{} routes in the kernel instead of {wanted}", count()?)
    })
}

//! Routes in from feeders and out to sinks.

use std::{
    fs,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use holdfast_lab::{netns::Namespace, table::Table};
use holdfast_types::Asn;

use super::{Bench, HOLD, Kind, LIMIT, Meter, Outcome, Tables, grown, realistic_policy, refused};
use crate::{
    daemon::{ASN, Daemon, Feature},
    feed,
    hearing::Hearing,
    raw,
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
    /// Each feeder has an order of its own.
    pub(crate) shuffled: bool,
}

impl Default for Flow {
    fn default() -> Self {
        let kind = Kind::Real { ipv6: false };
        Self { kind, feeders: 1, sinks: 1, kernel: false, policy: false, shuffled: false }
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
            Kind::Synthetic { ipv6: false, routes } if number > 0 || self.shuffled => {
                Kind::Variant { routes, seed: 1 + number as u64, shuffled: self.shuffled }
            }
            kind => kind,
        };
        (0..self.feeders).map(|number| tables.get(kind(number))).collect()
    }

    pub(crate) fn run(&self, daemon: &Daemon, tables: &Tables) -> Result<Outcome> {
        let tables = self.tables(tables)?;
        let afi = tables[0].routes[0].0.afi();
        let policy = self.policy.then(|| realistic_policy(&tables[0]));
        // While this is made nobody sends KEEPALIVEs: before there are sessions.
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
        let mut bench = Bench::start(daemon, (self.feeders + self.sinks, afi, HOLD), |setup| {
            (setup.kernel, setup.policy) = (self.kernel, policy.clone());
        })?;
        let sinks = self.feeders..self.feeders + self.sinks;
        let mut feeds = Vec::new();
        for (number, (table, asn)) in of.iter().enumerate() {
            let mut octets = feed::announce(table, bench.peer(number), *asn)?;
            octets.extend(feed::end(bench.peer(number)));
            feeds.push(Arc::<[u8]>::from(octets));
            bench.load.turn(Duration::ZERO)?;
        }
        // What feeders hear of each other is not looked at. A sink hears of one feeder's routes once each.
        let hearing = if self.feeders == 1 { Hearing::once } else { Hearing::last };
        bench.load.sessions[sinks.clone()].iter_mut().for_each(|sink| sink.hearing = hearing());
        let mut outcome = Outcome::default();
        let before = bench.running.cgroup.memory()?;
        let installed =
            self.kernel.then(|| wait_for_kernel(&bench.net.router, expected.len())).transpose()?;
        let meter = Meter::start(&bench)?;
        for (number, octets) in feeds.into_iter().enumerate() {
            bench.load.sessions[number].send(octets);
        }
        let mut done = bench.settle(&expected, sinks)?;
        if let Some(installed) = installed {
            done = done.max(installed.join().ok().context("the watcher of the kernel panicked")??);
        }
        meter.stop(&bench, done, &mut outcome)?;
        let paths: usize = tables.iter().map(|table| table.routes.len()).sum();
        let memory = grown(&mut bench, before, &mut outcome)?;
        if paths >= 10_000 {
            outcome.add("B/path", memory as f64 / paths as f64);
        }
        let step = (tables[0].routes.len() / LOOKUPS).max(1);
        if !self.policy {
            for (prefix, _) in tables[0].routes.iter().step_by(step) {
                bench.running.lookup(&prefix.to_string()).with_context(|| format!("RIB without {prefix}"))?;
            }
        }
        if self.kernel {
            // In the same run: what the kernel takes for a route differs from one minute to the next.
            let raw = raw::write(&tables[0])?.as_secs_f64();
            let ratio = outcome.value("wall s") / raw;
            outcome.add("raw s", raw);
            outcome.add("wall / raw", ratio);
        }
        Ok(outcome)
    }
}

/// Watches the kernel's table until it has so many routes more than now.
pub(super) fn wait_for_kernel(host: &Namespace, more: usize) -> Result<thread::JoinHandle<Result<Instant>>> {
    let before = host.run(prefixes_in_kernel)??;
    host.spawn(move || {
        let start = Instant::now();
        while start.elapsed() < LIMIT {
            let now = Instant::now();
            let added = prefixes_in_kernel()?.saturating_sub(before);
            if added >= more {
                return Ok(now);
            }
            thread::sleep(next_look(start.elapsed(), added, more));
        }
        bail!("{} routes more in the kernel instead of {more}", prefixes_in_kernel()? - before)
    })
}

/// Prefixes of all IPv4 tables of the calling thread's host.
fn prefixes_in_kernel() -> Result<usize> {
    let text = fs::read_to_string("/proc/thread-self/net/fib_triestat")?;
    let prefixes = text.lines().filter_map(|line| line.trim().strip_prefix("Prefixes:"));
    Ok(prefixes.filter_map(|count| count.trim().parse::<usize>().ok()).sum())
}

/// The pause before the table is counted again, which takes the kernel long when it has much to count: half of what is left
/// if all goes on as it did.
fn next_look(elapsed: Duration, added: usize, more: usize) -> Duration {
    let left = elapsed.as_secs_f64() * (more - added) as f64 / (added.max(1)) as f64;
    Duration::from_secs_f64((left / 2.0).clamp(0.01, 0.3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_counted_the_more_often_the_nearer_the_end_is() {
        let after = |milliseconds, added| next_look(Duration::from_millis(milliseconds), added, 1_000);
        assert_eq!(after(1, 0).as_millis(), 300);
        assert_eq!(after(1_000, 800).as_millis(), 125);
        assert_eq!(after(1_000, 999).as_millis(), 10);
    }
}

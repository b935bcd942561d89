//! What a router needs that has next to nothing to do: two peers, and no routes.

use std::time::Duration;

use anyhow::Result;
use holdfast_types::Afi;

use super::{Bench, HOLD, Outcome};
use crate::daemon::Daemon;

const PEERS: usize = 2;
/// What the start has left to be done, and given back, by then.
const REST: Duration = Duration::from_secs(10);

pub(super) fn run(daemon: &Daemon) -> Result<Outcome> {
    let mut bench = Bench::start(daemon, (PEERS, Afi::IPV4, HOLD), |_| {})?;
    bench.load.rest(REST)?;
    let mut outcome = Outcome::default();
    let processes = bench.running.cgroup.memory_of_each()?;
    for (name, octets) in &processes {
        eprintln!("  {name}: {:.2} MiB", mib(*octets));
    }
    outcome.memory = processes.iter().map(|(_, octets)| octets).sum();
    outcome.add("MiB", mib(outcome.memory));
    outcome.add("processes", processes.len() as f64);
    Ok(outcome)
}

fn mib(octets: u64) -> f64 {
    octets as f64 / f64::from(1 << 20)
}

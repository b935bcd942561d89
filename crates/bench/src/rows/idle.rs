//! Many peers whose sessions are up, and who say nothing but KEEPALIVEs.

use std::time::{Duration, Instant};

use anyhow::Result;
use holdfast_types::Afi;

use super::{Bench, HOLD, Meter, Outcome};
use crate::{daemon::Daemon, net::Links};

/// What the start has left to be done.
const REST: Duration = Duration::from_secs(3);

pub(super) fn run(daemon: &Daemon, peers: usize, time: Duration) -> Result<Outcome> {
    let mut bench = Bench::start_over(Links::One, daemon, (peers, Afi::IPV4, HOLD), |_| {})?;
    bench.load.rest(REST)?;
    let mut outcome = Outcome::default();
    let meter = Meter::start(&bench)?;
    bench.load.rest(time)?;
    let done = Instant::now();
    let (cpu, wall) = (bench.running.cgroup.cpu()? - meter.cpu, done - meter.start);
    meter.look(cpu, &mut outcome)?;
    outcome.memory = bench.running.cgroup.memory()?;
    let memory = outcome.memory as f64;
    outcome.add("CPU %", 100.0 * cpu.as_secs_f64() / wall.as_secs_f64());
    outcome.add("MB", memory / 1e6);
    outcome.add("kB/peer", memory / 1e3 / peers as f64);
    Ok(outcome)
}

//! One route at a time through a router that has many.

use std::time::Duration;

use anyhow::{Context, Result};

use super::{
    Bench, LIMIT, Meter, Outcome, Tables,
    loaded::{Probe, SINK},
    milliseconds, percentile,
};
use crate::{daemon::Daemon, hearing::Hearing};

pub(super) fn run(daemon: &Daemon, tables: &Tables, routes: usize, probes: usize) -> Result<Outcome> {
    let (mut bench, _) = Bench::loaded(daemon, tables, SINK + 1, routes)?;
    bench.load.sessions[SINK].hearing = Hearing::Count;

    let mut outcome = Outcome::default();
    let meter = Meter::start(&bench)?;
    let (mut waits, mut done) = (Vec::new(), meter.start);
    for number in 0..probes as u32 {
        let sent = Probe::new(&bench, number)?.send(&mut bench)?;
        bench.load.until("the route", LIMIT, |load| Ok(load.sessions[SINK].seen.is_some()))?;
        done = bench.load.sessions[SINK].seen.context("it was seen a moment ago")?;
        waits.push(milliseconds(done - sent));
        bench.load.rest(Duration::from_millis(3))?;
    }
    meter.stop(&bench, done, &mut outcome)?;
    outcome.figures.retain(|figure| figure.metric != "wall s");
    outcome.add("p50 ms", percentile(&mut waits, 0.5));
    outcome.add("p99 ms", percentile(&mut waits, 0.99));
    Ok(outcome)
}

//! A peer with many routes drops. How long until the last of them is withdrawn, and what happens to others meanwhile?

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use super::{
    Bench, LIMIT, Meter, Outcome, Tables,
    loaded::{BIG, Probe, SINK},
    milliseconds, percentile,
};
use crate::{daemon::Daemon, hearing::Hearing};

pub(super) fn run(daemon: &Daemon, tables: &Tables, routes: usize) -> Result<Outcome> {
    let (mut bench, _) = Bench::loaded(daemon, tables, SINK + 1, routes)?;
    bench.load.sessions[SINK].hearing = Hearing::Count;
    Probe::new(&bench, 0)?.send(&mut bench)?;
    bench.load.until("the first route", LIMIT, |load| Ok(load.sessions[SINK].seen.is_some()))?;
    bench.load.rest(Duration::from_millis(100))?;

    let mut outcome = Outcome::default();
    let meter = Meter::start(&bench)?;
    bench.load.drop_session(BIG)?;
    let (mut waits, mut number, mut last) = (Vec::new(), 1, Instant::now());
    let (mut seen, limit) = (0, Instant::now() + LIMIT);
    while bench.load.sessions[SINK].withdrawn < routes as u64 {
        ensure!(Instant::now() < limit, "{} of {routes} withdrawn", bench.load.sessions[SINK].withdrawn);
        let sent = Probe::new(&bench, number)?.send(&mut bench)?;
        number += 1;
        bench.load.until("the unrelated route", LIMIT, |load| {
            let sink = &load.sessions[SINK];
            if sink.withdrawn > seen {
                (seen, last) = (sink.withdrawn, sink.last_update);
            }
            Ok(sink.seen.is_some())
        })?;
        if let Some(at) = bench.load.sessions[SINK].seen {
            waits.push(milliseconds(at - sent));
        }
    }
    meter.stop(&bench, last, &mut outcome)?;
    outcome.add("other p50 ms", percentile(&mut waits, 0.5));
    outcome.add("other worst ms", percentile(&mut waits, 1.0));
    Ok(outcome)
}

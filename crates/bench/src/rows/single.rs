//! One route at a time through a router that has many.

use std::{sync::Arc, time::Duration};

use anyhow::{Context, Result};
use holdfast_types::{Afi, Asn};

use super::{Bench, HOLD, Kind, LIMIT, Meter, Outcome, Tables, drop::Probe, milliseconds, percentile};
use crate::{
    daemon::{ASN, Daemon},
    feed,
    verify::Expected,
};

const BIG: usize = 0;
const OTHER: usize = 1;
const SINK: usize = 2;

pub(super) fn run(daemon: &Daemon, tables: &Tables, routes: usize, probes: usize) -> Result<Outcome> {
    let table = tables.get(Kind::Synthetic { ipv6: false, routes })?;
    let mut bench = Bench::start(daemon, (3, Afi::IPV4, HOLD), |_| {})?;
    let expected = Expected::best(&[(&table, Bench::asn(BIG))], Asn(ASN));
    bench.load.sessions[BIG].keep = false;
    bench.load.sessions[OTHER].keep = false;
    let octets = feed::announce(&table, bench.peer(BIG), Bench::asn(BIG))?;
    bench.load.sessions[BIG].send(Arc::from(octets));
    bench.settle(&expected, SINK..SINK + 1, routes as u64)?;
    bench.load.rest(Duration::from_millis(500))?;
    bench.load.sessions[SINK].forget();
    bench.load.sessions[SINK].keep = false;

    let mut outcome = Outcome::default();
    let meter = Meter::start(&bench)?;
    let (mut waits, mut done) = (Vec::new(), meter.start);
    for number in 0..probes as u32 {
        let probe = Probe::new(&bench, number)?;
        bench.load.sessions[SINK].watch(probe.nlri);
        let sent = bench.load.sessions[OTHER].send_now(&probe.announcement)?;
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

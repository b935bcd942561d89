//! The process that holds the sessions is killed. How long until a route goes through the router again, with every
//! session as it was?

use std::{sync::Arc, time::Duration};

use anyhow::{Context, Result, ensure};
use holdfast_lab::table::Table;
use holdfast_types::{Afi, Asn};

use super::{
    Bench, HOLD, Kind, LIMIT, Meter, Outcome, Tables,
    loaded::{OTHER, Probe, SINK},
    milliseconds, percentile,
};
use crate::{
    daemon::{ASN, Daemon},
    feed,
    hearing::Hearing,
    verify::Expected,
};

/// Deaths in one run: the first replays what was received, later ones what snapshots there are.
const DEATHS: u32 = 5;
/// Between two of them: a router that dies faster is in a crash loop.
const REST: Duration = Duration::from_secs(6);

pub(super) fn run(daemon: &Daemon, tables: &Tables, routes: usize, feeders: usize) -> Result<Outcome> {
    // The one with single routes and the sink stand where they do elsewhere; feeders are the others.
    let peers = feeders + 2;
    let mut bench = Bench::start(daemon, (peers, Afi::IPV4, HOLD), |_| {})?;
    let table = tables.get(Kind::Synthetic { ipv6: false, routes })?;
    let feeding: Vec<usize> = (0..peers).filter(|peer| ![OTHER, SINK].contains(peer)).collect();
    let part = |number: usize| {
        let routes = table.routes.iter().skip(number).step_by(feeders).copied().collect();
        Table { sets: table.sets.clone(), routes }
    };
    let parts: Vec<(Table, Asn)> =
        feeding.iter().enumerate().map(|(number, &peer)| (part(number), Bench::asn(peer))).collect();
    let expected =
        Expected::best(&parts.iter().map(|(table, asn)| (table, *asn)).collect::<Vec<_>>(), Asn(ASN));
    for (&peer, (table, asn)) in feeding.iter().zip(&parts) {
        let octets = feed::announce(table, bench.peer(peer), *asn)?;
        bench.load.sessions[peer].send(Arc::from(octets));
    }
    bench.load.sessions[SINK].hearing = Hearing::once();
    bench.settle(&expected, SINK..SINK + 1)?;
    bench.load.sessions[SINK].forget();
    bench.load.sessions[SINK].hearing = Hearing::Count;
    bench.load.rest(Duration::from_millis(500))?;

    let mut outcome = Outcome::default();
    let meter = Meter::start(&bench)?;
    let mut waits = Vec::new();
    for number in 0..DEATHS {
        let before = bench.load.sessions[SINK].announced;
        bench.running.die()?;
        let sent = Probe::new(&bench, number)?.send(&mut bench)?;
        bench.load.until("the route", LIMIT, |load| Ok(load.sessions[SINK].seen.is_some()))?;
        let seen = bench.load.sessions[SINK].seen.context("it was seen a moment ago")?;
        waits.push(milliseconds(seen - sent));
        bench.load.rest(REST)?;
        let told = bench.load.sessions[SINK].announced - before;
        ensure!(
            told == 1 && bench.load.sessions[SINK].withdrawn == 0,
            "{told} routes were told, not the one"
        );
    }
    meter.look(bench.running.cgroup.cpu()? - meter.cpu, &mut outcome)?;
    outcome.add("p50 ms", percentile(&mut waits, 0.5));
    outcome.add("worst ms", percentile(&mut waits, 1.0));
    Ok(outcome)
}

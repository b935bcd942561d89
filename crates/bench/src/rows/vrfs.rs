//! Many VRFs, each with a feeder and a sink. All have the same prefixes, and each attributes of its own: a route that
//! gets from one into another is noticed.

use std::{sync::Arc, time::Duration};

use anyhow::Result;
use holdfast_lab::table::Table;
use holdfast_types::{Afi, Asn};

use super::{Bench, HOLD, Kind, Meter, Outcome, Tables, grown};
use crate::{
    daemon::{ASN, Daemon},
    feed,
    hearing::Hearing,
    net::Links,
    verify::Expected,
};

pub(super) fn run(daemon: &Daemon, tables: &Tables, vrfs: usize, routes: usize) -> Result<Outcome> {
    let table = |vrf: usize| tables.get(Kind::Variant { routes, seed: 1 + vrf as u64, shuffled: false });
    let tables = (0..vrfs).map(table).collect::<Result<Vec<_>>>()?;
    let of = |(vrf, table): (usize, &Arc<Table>)| Expected::best(&[(table, Bench::asn(vrf))], Asn(ASN));
    let expected: Vec<Expected> = tables.iter().enumerate().map(of).collect();
    let mut bench = Bench::start_over(Links::Pairs, daemon, (2 * vrfs, Afi::IPV4, HOLD), |setup| {
        setup.vrfs = vrfs;
        setup.peers.iter_mut().for_each(|peer| peer.vrf = Some(peer.number % vrfs));
    })?;
    let mut feeds = Vec::new();
    for (vrf, table) in tables.iter().enumerate() {
        let mut octets = feed::announce(table, bench.peer(vrf), Bench::asn(vrf))?;
        octets.extend(feed::end(bench.peer(vrf)));
        feeds.push(Arc::<[u8]>::from(octets));
        bench.load.turn(Duration::ZERO)?;
    }
    let sinks = vrfs..2 * vrfs;
    bench.load.sessions[sinks.clone()].iter_mut().for_each(|sink| sink.hearing = Hearing::once());
    let mut outcome = Outcome::default();
    let before = bench.running.cgroup.memory()?;
    let meter = Meter::start(&bench)?;
    for (session, octets) in bench.load.sessions.iter_mut().zip(feeds) {
        session.send(octets);
    }
    let done = bench.settle_each(|sink| (&expected[sink - vrfs], routes as u64), sinks)?;
    meter.stop(&bench, done, &mut outcome)?;
    let grown = grown(&mut bench, before, &mut outcome)?;
    outcome.add("B/path", grown as f64 / (vrfs * routes) as f64);
    outcome.add("MB before", before as f64 / 1e6);
    Ok(outcome)
}

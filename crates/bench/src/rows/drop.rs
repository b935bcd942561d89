//! A peer with many routes drops. How long until the last of them is withdrawn, and what happens to others meanwhile?

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Result, ensure};
use holdfast_lab::table::Table;
use holdfast_types::{Afi, Asn, Ipv4Prefix, Prefix};

use super::{Bench, HOLD, Kind, LIMIT, Meter, Outcome, Tables, milliseconds, percentile};
use crate::{
    daemon::{ASN, Daemon},
    feed,
    verify::Expected,
};

/// The one that drops, the unrelated one, the sink.
const BIG: usize = 0;
const OTHER: usize = 1;
const SINK: usize = 2;

pub(super) fn run(daemon: &Daemon, tables: &Tables, routes: usize) -> Result<Outcome> {
    let table = tables.get(Kind::Synthetic { ipv6: false, routes })?;
    let mut bench = Bench::start(daemon, (3, Afi::IPV4, HOLD), |_| {})?;
    bench.load.sessions[BIG].keep = false;
    bench.load.sessions[OTHER].keep = false;
    let expected = Expected::best(&[(&table, Bench::asn(BIG))], Asn(ASN));
    let octets = feed::announce(&table, bench.peer(BIG), Bench::asn(BIG))?;
    bench.load.sessions[BIG].send(Arc::from(octets));
    bench.settle(&expected, SINK..SINK + 1, routes as u64)?;
    bench.load.rest(Duration::from_millis(500))?;
    bench.load.sessions[SINK].forget();
    bench.load.sessions[SINK].keep = false;
    let first = Probe::new(&bench, 0)?;
    bench.load.sessions[SINK].watch(first.nlri);
    bench.load.sessions[OTHER].send_now(&first.announcement)?;
    bench.load.until("the first route", LIMIT, |load| Ok(load.sessions[SINK].seen.is_some()))?;
    bench.load.rest(Duration::from_millis(100))?;

    let mut outcome = Outcome::default();
    let meter = Meter::start(&bench)?;
    bench.load.drop_session(BIG)?;
    let (mut waits, mut number, mut last) = (Vec::new(), 1, Instant::now());
    let (mut seen, limit) = (0, Instant::now() + LIMIT);
    while bench.load.sessions[SINK].withdrawn < routes as u64 {
        ensure!(Instant::now() < limit, "{} of {routes} withdrawn", bench.load.sessions[SINK].withdrawn);
        let probe = Probe::new(&bench, number)?;
        let sent = bench.load.sessions[OTHER].send_now(&probe.announcement)?;
        bench.load.sessions[SINK].watch(probe.nlri);
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

/// A route that nobody else has.
pub(super) struct Probe {
    pub(super) announcement: Vec<u8>,
    /// How a sink recognises it.
    pub(super) nlri: Box<[u8]>,
}

impl Probe {
    /// The `number`th, from the unrelated peer.
    pub(super) fn new(bench: &Bench, number: u32) -> Result<Self> {
        let prefix = Ipv4Prefix::new(std::net::Ipv4Addr::from_bits(0xc612_0000 + number), 32);
        let prefix = prefix.ok_or_else(|| anyhow::anyhow!("too many probes"))?;
        let table = Table::plain([Prefix::V4(prefix)]);
        let announcement = feed::announce(&table, bench.peer(OTHER), Bench::asn(OTHER))?;
        let nlri = announcement[announcement.len() - 5..].into();
        Ok(Self { announcement, nlri })
    }
}

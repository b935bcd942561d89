//! Another export policy while many routes are loaded: all of them are announced anew.

use std::sync::Arc;

use anyhow::Result;
use holdfast_types::{Afi, Asn};

use super::{Bench, HOLD, Kind, Meter, Outcome, Tables};
use crate::{
    daemon::{ASN, Daemon},
    feed,
    verify::Expected,
};

const FEEDER: usize = 0;
const SINK: usize = 1;
/// What the second policy adds.
const ADDED: (u32, u32) = (65_000, 77);

pub(super) fn run(daemon: &Daemon, tables: &Tables, routes: usize) -> Result<Outcome> {
    let table = tables.get(Kind::Synthetic { ipv6: false, routes })?;
    let mut bench = Bench::start(daemon, (2, Afi::IPV4, HOLD), |_| {})?;
    let mut expected = Expected::best(&[(&table, Bench::asn(FEEDER))], Asn(ASN));
    bench.load.sessions[FEEDER].keep = false;
    let octets = feed::announce(&table, bench.peer(FEEDER), Bench::asn(FEEDER))?;
    bench.load.sessions[FEEDER].send(Arc::from(octets));
    bench.settle(&expected, SINK..SINK + 1, routes as u64)?;
    bench.load.sessions[SINK].forget();

    expected.apply(
        |_, _| true,
        |route| {
            route.communities.insert(ADDED.0 << 16 | ADDED.1);
        },
    );
    bench.running.setup.export_community = Some(ADDED);
    bench.running.write_files()?;
    let mut outcome = Outcome::default();
    let meter = Meter::start(&bench)?;
    bench.running.reload()?;
    let done = bench.settle(&expected, SINK..SINK + 1, routes as u64)?;
    meter.stop(&bench, done, &mut outcome)?;
    Ok(outcome)
}

//! Another export policy while many routes are loaded: all of them are announced anew.

use anyhow::Result;

use super::{Bench, Meter, Outcome, Tables};
use crate::{daemon::Daemon, hearing::Hearing};

const SINK: usize = 1;
/// What the second policy adds.
const ADDED: (u32, u32) = (65_000, 77);

pub(super) fn run(daemon: &Daemon, tables: &Tables, routes: usize) -> Result<Outcome> {
    let (mut bench, mut expected) = Bench::loaded(daemon, tables, SINK + 1, routes)?;
    expected.apply(
        |_, _| true,
        |route| {
            route.communities.insert(ADDED.0 << 16 | ADDED.1);
        },
    );
    bench.running.setup.export_community = Some(ADDED);
    bench.running.write_files()?;
    bench.load.sessions[SINK].hearing = Hearing::last();
    let mut outcome = Outcome::default();
    let meter = Meter::start(&bench)?;
    bench.running.reload()?;
    let done = bench.settle(&expected, SINK..SINK + 1)?;
    meter.stop(&bench, done, &mut outcome)?;
    Ok(outcome)
}

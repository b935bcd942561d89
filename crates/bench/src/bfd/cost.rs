//! What sessions cost that are up, with nothing else to be done.

use std::{thread, time::Duration};

use anyhow::Result;

use super::{Arguments, FAST, Figure, HOLD, LIMIT, Meter, SETTLE, ends, far::Far, link, seen};
use crate::{
    daemon::{Daemon, Setup},
    net::Net,
};

/// Percent of a processor, of 64 sessions of 50 ms.
const MOST: f64 = 3.0;
const SECONDS: u64 = 30;

pub(super) fn run(daemon: &Daemon, arguments: &Arguments) -> Result<Vec<Figure>> {
    let net = Net::sharing(&[arguments.fast])?;
    let running = daemon.start(Setup {
        netns: net.router.name().to_owned(),
        hold: HOLD,
        kernel: true,
        bfd: vec![link(0, FAST, &net.places)],
        ..Setup::default()
    })?;
    let mut far = Far::start(&net.load, ends(FAST, &net.places).collect())?;
    far.until_up(LIMIT).map_err(|error| error.context(running.log_tail()))?;
    thread::sleep(SETTLE);
    far.begin()?;
    let meter = Meter::start(&running)?;
    thread::sleep(Duration::from_secs(arguments.seconds.unwrap_or(SECONDS)));
    let [cpu, real_time] = meter.stop()?;
    let cpu = if arguments.fast == 64 { cpu.at_most(MOST) } else { cpu };
    Ok([cpu, real_time].into_iter().chain(seen(&far.report()?)).collect())
}

//! One route at a time through a router, at a pace, and when it appears at another peer.

use std::{
    process::Command,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use holdfast_types::{Afi, Asn};

use super::{
    Bench, HOLD, Kind, LIMIT, Tables,
    flow::wait_for_kernel,
    loaded::{BIG, OTHER, Probe, SINK},
    milliseconds,
};
use crate::{
    daemon::{ASN, Daemon},
    feed,
    hearing::Hearing,
    verify::Expected,
};

/// What is announced, to whom, and how fast.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Paced {
    /// What the router has before, from one peer.
    pub(crate) table: Option<Kind>,
    /// Whether the routes that are measured come from that peer, too.
    pub(crate) same_peering: bool,
    /// How many.
    pub(crate) probes: u32,
    /// From one to the next.
    pub(crate) interval: Duration,
    /// Routes go into the kernel.
    pub(crate) kernel: bool,
}

/// What became of them.
#[derive(Clone, Debug)]
pub(crate) struct Passed {
    /// Milliseconds from being sent to the router to arriving at the other peer, in order.
    pub(crate) arrivals: Vec<f64>,
    /// Routes that the router had before.
    pub(crate) loaded: usize,
}

impl Paced {
    /// Runs it. `around` is told when the router has its table, with `false`, and with `true` after the last route; it
    /// may ask the router things.
    pub(crate) fn run(
        &self,
        daemon: &Daemon,
        tables: &Tables,
        mut around: impl FnMut(&dyn Fn(&[&str]) -> Command, bool) -> Result<()>,
    ) -> Result<Passed> {
        let mut bench =
            Bench::start(daemon, (SINK + 1, Afi::IPV4, HOLD), |setup| setup.kernel = self.kernel)?;
        let loaded = self.table.map_or(Ok(0), |kind| self.load(&mut bench, tables, kind))?;
        let setup = bench.running.setup.clone();
        let ask = move |arguments: &[&str]| {
            let mut command = Command::new(&setup.holdfast);
            command.args(arguments).env("HOLDFAST_RUNTIME_DIR", &setup.directory);
            command
        };
        around(&ask, false)?;
        let arrivals = self.announce(&mut bench)?;
        bench.load.rest(Duration::from_millis(200))?;
        around(&ask, true)?;
        Ok(Passed { arrivals, loaded })
    }

    fn load(&self, bench: &mut Bench, tables: &Tables, kind: Kind) -> Result<usize> {
        let table = tables.get(kind)?;
        let expected = Expected::best(&[(&table, Bench::asn(BIG))], Asn(ASN));
        let octets = feed::announce(&table, bench.peer(BIG), Bench::asn(BIG))?;
        let installed =
            self.kernel.then(|| wait_for_kernel(&bench.net.router, expected.len())).transpose()?;
        bench.load.sessions[SINK].hearing = Hearing::once();
        bench.load.sessions[BIG].send(Arc::from(octets));
        bench.settle(&expected, SINK..SINK + 1)?;
        if let Some(installed) = installed {
            installed.join().ok().context("the watcher of the kernel panicked")??;
        }
        bench.load.rest(Duration::from_secs(1))?;
        bench.load.sessions[SINK].forget();
        bench.load.sessions[SINK].hearing = Hearing::Count;
        Ok(expected.len())
    }

    fn announce(&self, bench: &mut Bench) -> Result<Vec<f64>> {
        let from = if self.same_peering { BIG } else { OTHER };
        let mut arrivals = Vec::new();
        for number in 0..self.probes {
            let next = Instant::now() + self.interval;
            let sent = Probe::from(bench, from, number)?.send(bench)?;
            bench.load.until("the route", LIMIT, |load| Ok(load.sessions[SINK].seen.is_some()))?;
            let seen = bench.load.sessions[SINK].seen.context("it was seen a moment ago")?;
            arrivals.push(milliseconds(seen - sent));
            bench.load.rest(next.saturating_duration_since(Instant::now()))?;
        }
        Ok(arrivals)
    }
}

//! Start and reload with a big configuration.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use holdfast_types::Afi;

use super::{Bench, HOLD, Meter, Outcome, milliseconds, percentile};
use crate::daemon::{Daemon, Peer, peer_asn};

/// Prefix sets that share the entries; peers' policies use them in turn.
const SETS: usize = 9;
/// How often the operator asks.
const QUESTIONS: usize = 10;

pub(super) fn run(daemon: &Daemon, peers: usize, entries: usize) -> Result<Outcome> {
    let start = Instant::now();
    let mut started = start;
    let mut bench = Bench::start(daemon, (1, Afi::IPV4, HOLD), |setup| {
        let local = setup.peers[0].local;
        // One peer is there, the others are not.
        setup.peers.extend((1..peers).map(|number| Peer {
            number,
            address: [10, 200, (number >> 8) as u8, number as u8].into(),
            local,
            asn: peer_asn(number % 400).0,
            vrf: None,
            bfd: None,
        }));
        setup.prefix_sets = (0..SETS).map(|set| prefixes(set, entries / SETS)).collect();
        started = Instant::now();
    })?;
    let mut outcome = Outcome::default();
    let meter = Meter::start(&bench)?;
    // The session has rested before it is handed over.
    let up = started.elapsed().saturating_sub(super::SETTLE);
    outcome.add("start s", up.as_secs_f64());
    outcome.add("MB", bench.running.cgroup.memory()? as f64 / 1e6);
    let mut answers = Vec::new();
    for _ in 0..QUESTIONS {
        let Some(mut command) = bench.running.summary()? else { break };
        let asked = Instant::now();
        command.output()?;
        answers.push(milliseconds(asked.elapsed()));
        bench.load.rest(Duration::from_millis(20))?;
    }
    if !answers.is_empty() {
        outcome.add("CLI worst ms", percentile(&mut answers, 1.0));
    }
    // One entry of one set is another.
    let entry = bench.running.setup.prefix_sets[0].last_mut().context("an empty prefix set")?;
    *entry = "192.0.2.0/24".to_owned();
    bench.running.write_files()?;
    let asked = Instant::now();
    bench.running.reload()?;
    outcome.add("reload s", asked.elapsed().as_secs_f64());
    bench.load.rest(Duration::from_millis(100))?;
    meter.look(bench.running.cgroup.cpu()? - meter.cpu, &mut outcome)?;
    Ok(outcome)
}

fn prefixes(set: usize, count: usize) -> Vec<String> {
    (0..count).map(|n| format!("{}.{}.{}.0/24", 20 + set, n >> 8, n & 0xff)).collect()
}

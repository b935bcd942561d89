//! Full load without end: does the router keep its sessions, and answer its operator?

use std::{
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use anyhow::{Result, ensure};
use holdfast_types::{Afi, Asn};

use super::{Bench, Kind, Meter, Outcome, Tables, milliseconds, percentile};
use crate::{
    daemon::{ASN, Daemon},
    feed,
    hearing::Hearing,
    verify::Expected,
};

/// The shortest that BGP allows: a KEEPALIVE every second.
const HOLD: u16 = 3;
/// Between two questions of the operator.
const ASK: Duration = Duration::from_millis(100);
const FEEDER: usize = 0;
const SINK: usize = 1;

pub(super) fn run(daemon: &Daemon, tables: &Tables, routes: usize, time: Duration) -> Result<Outcome> {
    let kinds = [Kind::Synthetic { ipv6: false, routes }, Kind::Variant { routes, seed: 2, shuffled: false }];
    let both = [tables.get(kinds[0])?, tables.get(kinds[1])?];
    // The last peer says and is told next to nothing: its KEEPALIVEs are what is looked at.
    let mut bench = Bench::start(daemon, (2, Afi::IPV4, HOLD), |_| {})?;
    let mut feeds = Vec::new();
    for table in &both {
        feeds.push(Arc::<[u8]>::from(feed::announce(table, bench.peer(FEEDER), Bench::asn(FEEDER))?));
    }
    let mut outcome = Outcome::default();
    let stop = Arc::new(AtomicBool::new(false));
    let asked = bench.running.summary()?.map(|command| ask(command, Arc::clone(&stop)));
    let meter = Meter::start(&bench)?;
    let (start, mut sent) = (Instant::now(), 0);
    while start.elapsed() < time {
        if bench.load.sessions[FEEDER].is_idle() {
            bench.load.sessions[FEEDER].send(Arc::clone(&feeds[sent % 2]));
            sent += 1;
        }
        bench.load.turn(Duration::from_millis(2))?;
    }
    stop.store(true, Ordering::Relaxed);
    let silence = bench.load.silence(0..2);
    bench.load.until("the rest", super::LIMIT, |load| Ok(load.is_quiet(0..2, super::QUIET)))?;
    let cpu = bench.running.cgroup.cpu()? - meter.cpu;
    meter.look(cpu, &mut outcome)?;
    let changes = sent * routes;
    outcome.add("CPU us/change", cpu.as_secs_f64() * 1e6 / changes as f64);
    if let Some(asked) = asked {
        let mut answers = asked.join().map_err(|_| anyhow::anyhow!("the operator panicked"))??;
        outcome.add("CLI p50 ms", percentile(&mut answers, 0.5));
        outcome.add("CLI worst ms", percentile(&mut answers, 1.0));
    }
    outcome.add("silence s", silence.as_secs_f64());
    finish(&mut bench, &both[(sent - 1) % 2], Bench::asn(FEEDER))?;
    Ok(outcome)
}

/// The last table must be what the sink is told when it asks again; nothing that came before was kept.
fn finish(bench: &mut Bench, table: &holdfast_lab::table::Table, feeder: Asn) -> Result<()> {
    bench.load.sessions[SINK].forget();
    bench.load.sessions[SINK].hearing = Hearing::last();
    let refresh = holdfast_bgp_wire::RouteRefresh::request(holdfast_types::Family::IPV4_UNICAST);
    bench.load.sessions[SINK].send(Arc::from(refresh.encode()));
    let expected = Expected::best(&[(table, feeder)], Asn(ASN));
    bench.settle(&expected, SINK..SINK + 1)?;
    Ok(())
}

/// Asks again and again; milliseconds of each answer.
fn ask(mut command: Command, stop: Arc<AtomicBool>) -> thread::JoinHandle<Result<Vec<f64>>> {
    thread::spawn(move || {
        let mut answers = Vec::new();
        while !stop.load(Ordering::Relaxed) {
            let start = Instant::now();
            let output = command.output()?;
            ensure!(output.status.success(), "{:?}", String::from_utf8_lossy(&output.stderr));
            answers.push(milliseconds(start.elapsed()));
            thread::sleep(ASK);
        }
        Ok(answers)
    })
}

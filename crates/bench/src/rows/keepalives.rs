//! How late KEEPALIVEs are while routes change.
//!
//! Silent peers, who are told of no route and so hear nothing but KEEPALIVEs, note the time from one to the next. A KEEPALIVE
//! is due a third of the negotiated hold time after the one before (RFC 4271, 4.4). Routers may begin earlier, by chance: the
//! jitter of RFC 4271, 10 takes away a quarter at most. BIRD 2 and 3 have it always. Holdfast has it, too, but sends no two
//! KEEPALIVEs within 1 s, so that with a hold time of 3 s it has none. How much it was cannot be seen from outside, so *late* is
//! what goes beyond the whole third. Of Holdfast that is all lateness there is. Of BIRD a KEEPALIVE that was to come early can be
//! late without being counted: 100 ms are seen in four cases of ten. The tail is a share of *all* KEEPALIVEs, and BIRD's p50 says
//! nothing.
//!
//! What this program takes to look is part of it; the longest time in which it did not is a figure, too.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Result, ensure};
use holdfast_bgp_wire::RouteRefresh;
use holdfast_lab::table::Table;
use holdfast_types::{Afi, Asn, Family};

use super::{Bench, Kind, LIMIT, Meter, Outcome, QUIET, Tables, milliseconds, percentile};
use crate::{
    daemon::{ASN, Daemon},
    feed,
    hearing::Hearing,
    verify::Expected,
};

/// The shortest that BGP allows, for the most KEEPALIVEs.
const HOLD: u16 = 3;
/// When a KEEPALIVE is due.
const DUE: Duration = Duration::from_secs(HOLD as u64 / 3);
const FEEDER: usize = 0;
const SINK: usize = 1;
const FIRST_SILENT: usize = 2;

/// What is loaded, and what changes.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Keepalives {
    pub(crate) loaded: usize,
    /// The first so many of them.
    pub(crate) changing: usize,
    pub(crate) silent: usize,
    pub(crate) time: Duration,
}

impl Keepalives {
    pub(super) fn run(self, daemon: &Daemon, tables: &Tables) -> Result<Outcome> {
        let loaded = tables.get(Kind::Synthetic { ipv6: false, routes: self.loaded })?;
        let other = Kind::Variant { routes: self.loaded, seed: 2, shuffled: false };
        let changing = [first(&loaded, self.changing), first(&*tables.get(other)?, self.changing)];
        // Before there are sessions, for which this would take too long.
        let expected = changing.each_ref().map(|changed| {
            let after = with(&loaded, changed);
            Expected::best(&[(&after, Bench::asn(FEEDER))], Asn(ASN))
        });
        let peers = FIRST_SILENT + self.silent;
        let mut bench = Bench::start(daemon, (peers, Afi::IPV4, HOLD), |setup| {
            setup.untold = Some(FIRST_SILENT);
        })?;
        let whole = feed::announce(&loaded, bench.peer(FEEDER), Bench::asn(FEEDER))?;
        let mut feeds = Vec::new();
        for table in &changing {
            bench.load.turn(Duration::ZERO)?;
            feeds.push(Arc::<[u8]>::from(feed::announce(table, bench.peer(FEEDER), Bench::asn(FEEDER))?));
        }
        bench.load.sessions[SINK].hearing = Hearing::once();
        bench.load.sessions[FEEDER].send(Arc::from(whole));
        bench.settle(&expected[0], SINK..SINK + 1)?;
        bench.load.sessions[SINK].forget();
        bench.load.sessions[SINK].hearing = Hearing::Count;
        bench.load.rest(Duration::from_secs(2))?;

        let mut outcome = Outcome::default();
        bench.load.time(FIRST_SILENT..peers);
        let meter = Meter::start(&bench)?;
        let sent = self.change(&mut bench, &feeds)?;
        let mut late: Vec<f64> = bench.load.pauses(FIRST_SILENT..peers, DUE).map(late).collect();
        let unwatched = bench.load.unwatched;
        let answered = self.silent * (self.time.as_secs() / (2 * DUE.as_secs())) as usize;
        ensure!(late.len() >= answered, "only {} KEEPALIVEs came", late.len());
        bench.load.until("the rest", LIMIT, |load| Ok(load.is_quiet(0..FIRST_SILENT, QUIET)))?;
        let cpu = bench.running.cgroup.cpu()? - meter.cpu;
        meter.look(cpu, &mut outcome)?;
        for (metric, share) in [("p50 ms", 0.5), ("p99 ms", 0.99), ("p99.9 ms", 0.999), ("worst ms", 1.0)] {
            outcome.add(metric, percentile(&mut late, share));
        }
        outcome.add("unwatched ms", milliseconds(unwatched));
        outcome.add("CPU us/change", cpu.as_secs_f64() * 1e6 / (sent * self.changing) as f64);

        bench.load.sessions[SINK].forget();
        bench.load.sessions[SINK].hearing = Hearing::last();
        bench.load.sessions[SINK].send(Arc::from(RouteRefresh::request(Family::IPV4_UNICAST).encode()));
        bench.settle(&expected[sent % 2], SINK..SINK + 1)?;
        Ok(outcome)
    }

    /// Has the routes change for some time, as fast as the router takes it; how often all of them did. The first of the two
    /// is what it has before, and after every second time.
    fn change(self, bench: &mut Bench, feeds: &[Arc<[u8]>]) -> Result<usize> {
        let (start, mut sent) = (Instant::now(), 0);
        while start.elapsed() < self.time {
            if bench.load.sessions[FEEDER].is_idle() {
                sent += 1;
                bench.load.sessions[FEEDER].send(Arc::clone(&feeds[sent % 2]));
            }
            bench.load.turn(Duration::from_millis(2))?;
        }
        Ok(sent)
    }
}

/// Milliseconds by which a KEEPALIVE was late that came so long after the one before.
fn late(pause: Duration) -> f64 {
    milliseconds(pause.saturating_sub(DUE))
}

/// The first routes of a table.
fn first(table: &Table, routes: usize) -> Table {
    Table { sets: table.sets.clone(), routes: table.routes[..routes].to_vec() }
}

/// The table after its first routes have changed to these.
fn with(table: &Table, changed: &Table) -> Table {
    let mut after = table.clone();
    let sets = after.sets.len() as u32;
    after.sets.extend_from_slice(&changed.sets);
    for (route, (prefix, set)) in after.routes.iter_mut().zip(&changed.routes) {
        *route = (*prefix, sets + set);
    }
    after
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_goes_beyond_a_third_of_the_hold_time_is_late() {
        let late = [750, 1_000, 1_100].map(|pause| late(Duration::from_millis(pause)));
        assert_eq!(late, [0.0, 0.0, 100.0]);
    }

    #[test]
    fn what_changes_is_the_beginning_of_the_table() -> Result<()> {
        let tables = Tables::default();
        let base = tables.get(Kind::Synthetic { ipv6: false, routes: 100 })?;
        let other = tables.get(Kind::Variant { routes: 100, seed: 2, shuffled: false })?;
        let after = with(&base, &first(&other, 30));
        let bytes = |table: &Table, at: usize| table.sets[table.routes[at].1 as usize].bytes.clone();
        for at in 0..100 {
            let from = if at < 30 { &other } else { &base };
            assert_eq!((after.routes[at].0, bytes(&after, at)), (base.routes[at].0, bytes(from, at)), "{at}");
        }
        Ok(())
    }
}

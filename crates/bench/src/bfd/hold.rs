//! Whether sessions hold while a table is loaded again and again: a neighbour announces it, is heard of by another, and drops.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context, Result};

use super::{Arguments, FAST, Figure, HOLD, LIMIT, Meter, SETTLE, SLOW, ends, far::Far, link, peers, seen};
use crate::{
    daemon::{Daemon, Setup, peer_asn},
    feed,
    hearing::Hearing,
    load::{Load, Session},
    net::{Net, Place},
    rows::{Kind, Tables},
};

const SECONDS: u64 = 60;
const FEEDER: usize = 0;
const SINK: usize = 1;

pub(super) fn run(daemon: &Daemon, arguments: &Arguments, tables: &Tables) -> Result<Vec<Figure>> {
    let Arguments { fast, slow, loaded, .. } = *arguments;
    let table = tables.get(Kind::Synthetic { ipv6: false, routes: loaded })?;
    let net = Net::sharing(&[fast, slow, 2])?;
    let (fast, others) = net.places.split_at(fast);
    let (slow, with_bgp) = others.split_at(slow);
    let octets = Arc::from(feed::announce(&table, with_bgp[FEEDER].peer, peer_asn(FEEDER))?);
    let running = daemon.start(Setup {
        netns: net.router.name().to_owned(),
        hold: HOLD,
        kernel: true,
        peers: peers(with_bgp, false),
        bfd: vec![link(0, FAST, fast), link(1, SLOW, slow)],
        ..Setup::default()
    })?;
    let mut far = Far::start(&net.load, ends(FAST, fast).chain(ends(SLOW, slow)).collect())?;
    let places = with_bgp.to_vec();
    let load = net.load.run(move || Load::establish(&places, peer_asn, HOLD, LIMIT))?;
    let load = load.with_context(|| running.log_tail())?;
    let mut loads = Loads { load, net: &net, feeder: with_bgp[FEEDER], number: FEEDER, octets, loaded };
    far.until_up(LIMIT).with_context(|| running.log_tail())?;
    loads.load.rest(SETTLE)?;
    far.begin()?;
    let meter = Meter::start(&running)?;
    let count = loads.repeat(Duration::from_secs(arguments.seconds.unwrap_or(SECONDS)))?;
    let (figures, report) = (meter.stop()?, far.report()?);
    let figures = figures.into_iter().chain(seen(&report));
    Ok(figures.chain([Figure::new("times that the table was loaded", count, "times")]).collect())
}

/// A table that comes and goes.
struct Loads<'a> {
    load: Load,
    net: &'a Net,
    feeder: Place,
    /// Of the feeder's session.
    number: usize,
    octets: Arc<[u8]>,
    loaded: usize,
}

impl Loads<'_> {
    /// Loads the table again and again; how often it was there. A load that is not done in time counts by its part.
    fn repeat(&mut self, time: Duration) -> Result<f64> {
        let (end, routes) = (Instant::now() + time, self.loaded as u64);
        let mut count = 0.0;
        loop {
            self.load.sessions[SINK].forget();
            self.load.sessions[self.number].send(Arc::clone(&self.octets));
            self.until(end, |load, feeder| {
                load.sessions[SINK].announced >= routes && load.sessions[feeder].is_idle()
            })?;
            count += self.load.sessions[SINK].announced.min(routes) as f64 / routes as f64;
            if Instant::now() >= end {
                return Ok(count);
            }
            self.load.drop_session(self.number)?;
            self.until(end, |load, _| load.sessions[SINK].withdrawn >= routes)?;
            if Instant::now() >= end {
                return Ok(count);
            }
            self.come_back()?;
        }
    }

    fn until(&mut self, end: Instant, done: impl Fn(&Load, usize) -> bool) -> Result<()> {
        let left = end.saturating_duration_since(Instant::now()) + LIMIT;
        let feeder = self.number;
        self.load.until("the routes", left, |load| Ok(done(load, feeder) || Instant::now() >= end))
    }

    /// The router may not have taken note of the end of the session before.
    fn come_back(&mut self) -> Result<()> {
        let start = Instant::now();
        let session = loop {
            let place = self.feeder;
            let session = self.net.load.run(move || {
                Session::establish(&place, peer_asn(FEEDER), Vec::new(), HOLD, Hearing::Count)
            })?;
            match session {
                Ok(session) => break session,
                Err(error) if start.elapsed() > LIMIT => return Err(error),
                Err(_) => self.load.rest(Duration::from_millis(20))?,
            }
        };
        self.number = self.load.sessions.len();
        self.load.add(session)
    }
}

//! From the last packet of a neighbour to the change of the kernel's table: two neighbours announce the same routes, and the
//! one that is preferred falls silent.
//!
//! Detection ends when the router says Down to the neighbour that it does not hear any more: packets of the other direction
//! arrive. Everything is measured from the neighbour's last packet, so it is the longest time that a loss can take: if the
//! packet that was to come next is the first to be lost, the loss itself is up to an interval later.

use std::{
    net::{IpAddr, Ipv4Addr},
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};
use holdfast_lab::table::Table;
use holdfast_types::{Afi, Prefix};

use super::{
    Arguments, FAST, Figure, HOLD, LIMIT, SETTLE, ends,
    far::{Far, Silenced},
    forwarding::{self, Changed},
    link, milliseconds, peers,
};
use crate::{
    admission::median,
    daemon::{Daemon, Setup, peer_asn},
    feed,
    load::Load,
    net::{Links, Net, Place},
    rows::{Kind, Tables},
};

/// Routes that are asked for, of all parts of the table.
const SAMPLES: usize = 32;
/// Milliseconds from the last packet to the last route's change.
const MOST: f64 = 170.0;
const PREFERRED: usize = 0;
const OTHER: usize = 1;
/// As the manual advises: the kernel does not tell of each route when a next hop changes.
const QUIET: [&str; 2] = ["-w", "net.ipv4.nexthop_compat_mode=0"];

pub(super) fn run(daemon: &Daemon, arguments: &Arguments, tables: &Tables) -> Result<Vec<Figure>> {
    let table = tables.get(Kind::Synthetic { ipv6: false, routes: arguments.routes })?;
    let runs = (0..arguments.runs).map(|_| lose(daemon, &table)).collect::<Result<Vec<_>>>()?;
    let of = |value: fn(&Lost) -> f64| runs.iter().map(value).collect::<Vec<_>>();
    let figure = |name, value, unit| Figure::new(name, median(of(value)), unit);
    let worst = of(Lost::last).into_iter().fold(f64::MIN, f64::max);
    Ok(vec![
        figure("last packet to the first route elsewhere", Lost::first, "ms"),
        figure("last packet to the last route elsewhere", Lost::last, "ms").at_most(MOST),
        Figure::new("the same, worst run", worst, "ms"),
        figure("last packet to the router's Down", Lost::detection, "ms"),
        figure("the router's Down to the first route elsewhere", |of| of.first() - of.detection(), "ms"),
        figure("the router's Down to the last route elsewhere", |of| of.last() - of.detection(), "ms"),
        figure("requests to the kernel until the first", |of| of.changed.requests_until_first as f64, ""),
        figure("requests to the kernel until the last", |of| of.changed.requests_until_last as f64, ""),
    ])
}

/// A neighbour that was lost.
struct Lost {
    last_sent: Instant,
    told_down: Instant,
    changed: Changed,
}

impl Lost {
    fn since_last_packet(&self, then: Instant) -> f64 {
        milliseconds(then.saturating_duration_since(self.last_sent))
    }

    fn first(&self) -> f64 {
        self.since_last_packet(self.changed.first)
    }

    fn last(&self) -> f64 {
        self.since_last_packet(self.changed.last)
    }

    fn detection(&self) -> f64 {
        self.since_last_packet(self.told_down)
    }
}

fn lose(daemon: &Daemon, table: &Table) -> Result<Lost> {
    let net = Net::new(2, Afi::IPV4, Links::Few)?;
    // Of a kernel without it every route is told of.
    let _ = net.router.command("sysctl").args(QUIET).output();
    let [preferred, other] = [v4(&net.places[PREFERRED])?, v4(&net.places[OTHER])?];
    let octets = [PREFERRED, OTHER]
        .map(|number| feed::announce(table, net.places[number].peer, peer_asn(number)).map(Arc::from));
    let running = daemon.start(Setup {
        netns: net.router.name().to_owned(),
        hold: HOLD,
        kernel: true,
        peers: peers(&net.places, true),
        bfd: vec![link(PREFERRED, FAST, &[]), link(OTHER, FAST, &[])],
        ..Setup::default()
    })?;
    let mut far = Far::start(&net.load, ends(FAST, &net.places).collect())?;
    let mut loads = Vec::new();
    for (number, octets) in octets.into_iter().enumerate() {
        let place = [net.places[number]];
        let load = net.load.run(move || Load::establish(&place, |_| peer_asn(number), HOLD, LIMIT))?;
        let mut load = load.with_context(|| running.log_tail())?;
        load.sessions[0].send(octets?);
        load.until("the routes to be sent", LIMIT, |load| Ok(load.sessions[0].is_idle()))?;
        loads.push(load);
    }
    far.until_up(LIMIT).with_context(|| running.log_tail())?;
    let samples = samples(table);
    forwarding::until_via(&net.router, &samples, preferred, LIMIT).with_context(|| running.log_tail())?;
    settle(&mut loads, table.routes.len())?;
    let watch = forwarding::watch(&net.router, samples, other, LIMIT)?;
    far.silence(preferred)?;
    // What the lost neighbour is told by BGP is nothing that it hears.
    let hearer = &mut loads[OTHER];
    while !watch.is_finished() {
        hearer.turn(Duration::from_millis(2))?;
    }
    let Ok(changed) = watch.join() else { bail!("nobody watches") };
    let Silenced { last_sent, told_down } = far.silenced()?;
    Ok(Lost {
        last_sent,
        told_down: told_down.context("the router says nothing of a loss")?,
        changed: changed?,
    })
}

fn v4(place: &Place) -> Result<Ipv4Addr> {
    match place.peer {
        IpAddr::V4(address) => Ok(address),
        IpAddr::V6(address) => bail!("{address} is none of IPv4"),
    }
}

/// Addresses in routes from the first to the last.
fn samples(table: &Table) -> Vec<Ipv4Addr> {
    let step = (table.routes.len() / SAMPLES).max(1);
    let last = table.routes.last().into_iter();
    let some = table.routes.iter().step_by(step).chain(last);
    some.filter_map(|(prefix, _)| match prefix {
        Prefix::V4(prefix) => Some(prefix.address()),
        Prefix::V6(_) => None,
    })
    .collect()
}

/// Until the neighbour that is not preferred has been told of all routes, and nothing moves any more.
fn settle(loads: &mut [Load], routes: usize) -> Result<()> {
    let start = Instant::now();
    while loads[OTHER].sessions[0].announced < routes as u64 {
        ensure!(start.elapsed() < LIMIT, "{} routes are told", loads[OTHER].sessions[0].announced);
        loads.iter_mut().try_for_each(|load| load.turn(Duration::from_millis(2)))?;
    }
    let quiet = Instant::now();
    while quiet.elapsed() < SETTLE {
        loads.iter_mut().try_for_each(|load| load.turn(Duration::from_millis(2)))?;
    }
    Ok(())
}

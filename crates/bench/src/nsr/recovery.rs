//! A store that is killed and comes back with nothing, until it has every session again; and what it holds for each.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use holdfast_lab::table::{Synthetic, Table};

use super::{
    Size,
    figure::{Figure, Print},
    scene::{Scene, Tier},
};
use crate::{
    feed,
    rows::{Bench, LIMIT},
};

/// From the last route to the loss: what was acknowledged is given back by then.
const REST: Duration = Duration::from_secs(2);
/// Seconds from an empty store to protection.
const MOST: f64 = 5.0;

pub(super) fn run(size: &Size, print: Print<'_>) -> Result<()> {
    let Size { routes, sessions, feeders, .. } = *size;
    let table = Synthetic::ipv4(1, routes).build();
    let mut scene = Scene::ours(Tier::STORED, sessions, |_| {})?;
    let empty = scene.status()?.number("octetsInStore")?;
    for feeder in 0..feeders {
        let share = table.routes.iter().skip(feeder).step_by(feeders).copied().collect();
        let share = Table { sets: table.sets.clone(), routes: share };
        let octets = feed::announce(&share, scene.bench.peer(feeder), Bench::asn(feeder))?;
        scene.bench.load.sessions[feeder].send(Arc::from(octets));
    }
    let all = |feeders: usize, told: u64| told >= (routes - routes / feeders) as u64;
    scene.bench.load.until("the routes", LIMIT, |load| {
        let have_all = load.sessions.iter().enumerate().all(|(number, session)| match number < feeders {
            true => all(feeders, session.announced),
            false => session.announced >= routes as u64,
        });
        Ok(have_all && load.is_quiet(0..sessions, QUIET))
    })?;
    scene.bench.load.rest(REST)?;
    let (_, status) = scene.until_full(0.0)?;
    let held = status.number("octetsInStore")?;
    let (mut times, mut written) = (Vec::new(), Vec::new());
    let mut before = status;
    for number in 1..=size.rounds {
        eprintln!("recovery ({number} of {})", size.rounds);
        let losses = before.number("losses")?;
        scene.store.as_mut().context("there is a store")?.server.restart()?;
        let start = Instant::now();
        let (done, after) = scene.until_full(losses + 1.0)?;
        times.push((done - start).as_secs_f64());
        written.push((after.number("octets")? - before.number("octets")?) / (1 << 20) as f64);
        before = after;
        scene.bench.load.rest(REST)?;
    }
    let way = format!("{routes} routes, {sessions} sessions, an empty store");
    print(Figure::new(format!("{way}: until protected"), &times, "s").at_most(MOST))?;
    print(Figure::new(format!("{way}: written"), &written, "MiB"))?;
    let each = |octets: f64| [octets / sessions as f64];
    print(Figure::new(
        format!("{sessions} sessions without routes: in the store for each"),
        &each(empty),
        "octets",
    ))?;
    print(Figure::new(format!("{way}: in the store for each session"), &each(held), "octets"))?;
    print(Figure::new(format!("{way}: in the store for each route"), &[held / routes as f64], "octets"))
}

/// No UPDATE for so long: all are there.
const QUIET: Duration = Duration::from_millis(250);

//! A table from one peer to its last verdict, and what everybody else notices meanwhile.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use super::{
    Print, Size,
    probes::{Operator, Probes, Sessions},
    scene::{Hosts, LIMIT, Plan, Role, Scene, fillers, milliseconds, workers},
    signing::Signers,
};
use crate::{
    bgpsec::{Figure, Goal},
    daemon::peer_asn,
    machine::Clock,
    rows::percentile,
};

const SIGNER: usize = 0;
const PLAIN: usize = 1;
const SINK: usize = 2;
const HOPS: usize = 4;
/// Seconds: the shortest that BGP allows.
const HOLD: u16 = 3;
/// Signatures that the bare library verifies, by routes.
const BARE: u32 = 250;

/// Before signed routes are withdrawn, so many times as long as it took to send them: all have been taken in then.
const MOST_TAKING: f64 = 3.0;

/// To what the bare library would take with as many threads.
const MOST_TIME: f64 = 1.1;
/// Milliseconds.
const MOST_TURN: f64 = 1.0;
const MOST_WITHDRAWAL: f64 = 50.0;
const MOST_SHOW: f64 = 100.0;
/// Plain routes to those of an idle router.
const MOST_LATENESS: f64 = 2.0;

pub(super) fn run(size: &Size, print: Print<'_>) -> Result<()> {
    let hosts = Hosts::new(3)?;
    let (signers, target) = (Signers::new(peer_asn(SIGNER), size.signers)?, Scene::target());
    let path = |signers: &Signers, route| signers.path(route, HOPS, target);
    let feed = signers.feed(0..size.routes, hosts.address(SIGNER), path)?;
    let bare = signers.bare(0..BARE, HOPS, target)?;
    let fillers = fillers(size.table_keys.saturating_sub(size.signers + 1))?;
    let plan =
        Plan { hold: HOLD, ..Plan::of(&[Role::Signs { validation: "require" }, Role::Plain, Role::Sink]) };
    let mut scene = Scene::on(hosts, &plan)?;
    scene.give(0, signers.keys().chain(fillers))?;

    let mut probes = Probes::new(Sessions { plain: PLAIN, signer: SIGNER, sink: SINK });
    let operator = Operator::start(&scene.router)?;
    while probes.announced.len() < size.idle_probes as usize || !probes.is_quiet() {
        probes.step(&mut scene, 0)?;
        scene.load.turn(Duration::from_millis(1))?;
    }
    let mut idle = std::mem::take(&mut probes.announced);
    let mut idle_shows = operator.end()?;
    probes.forget();

    let mut us = vec![bare.verify()?];
    let operator = Operator::start(&scene.router)?;
    let (cpu, clock, start) = (scene.cpu()?, Clock::now()?, Instant::now());
    scene.load.sessions[SIGNER].send(feed.into());
    let mut taken_in = None;
    // Only what is valid is used, and told the sink.
    let seconds = loop {
        let signed = scene.load.sessions[SINK].announced - probes.told;
        // One that has come, but is not counted as heard of yet, is the probe's.
        if signed >= u64::from(size.routes) && probes.is_quiet() {
            break start.elapsed().as_secs_f64();
        }
        ensure!(start.elapsed() < LIMIT, "{signed} of {} routes are valid", size.routes);
        if taken_in.is_none() && scene.load.sessions[SIGNER].is_idle() {
            taken_in = Some(start.elapsed().as_secs_f64());
        }
        // What is in the sockets comes first: that is no time of the router's.
        let is_taken = taken_in.is_some_and(|sent: f64| start.elapsed().as_secs_f64() > MOST_TAKING * sent);
        probes.step(&mut scene, if is_taken { signed } else { 0 })?;
        scene.load.turn(Duration::from_millis(1))?;
    };
    let mut shows = operator.end()?;
    let wall = start.elapsed();
    let cpu = scene.cpu()?.since(cpu);
    let others: f64 = clock.others(cpu.all, wall)?.into_iter().sum();
    us.push(bare.verify()?);

    let us = us.iter().sum::<f64>() / us.len() as f64;
    let name = |what: &str| format!("table of {} routes, {HOPS} hops: {what}", size.routes);
    let least = f64::from(size.routes) * HOPS as f64 * us / workers() as f64 / 1e6;
    print(Figure {
        bare: Some(least),
        ratio: Some(seconds / least),
        goal: Goal::at_most(seconds, (1e3 * MOST_TIME * least).round() / 1e3),
        ..Figure::new(name("until all are valid"), seconds, "s")
    })?;
    print(Figure::new(name("what others had of the machine"), 100.0 * others, "%"))?;
    print(Figure::new(name("until all are sent"), taken_in.unwrap_or(seconds), "s"))?;
    let each = |time: Duration| time.as_secs_f64() * 1e6 / f64::from(size.routes);
    print(Figure::new(name("CPU of bgp"), each(cpu.bgp), "us/route"))?;
    let bare = HOPS as f64 * us;
    let pathsec = each(cpu.pathsec);
    print(Figure {
        bare: Some(bare),
        ratio: Some(pathsec / bare),
        ..Figure::new(name("CPU of pathsec"), pathsec, "us/route")
    })?;
    let turn = scene.longest_turn()?;
    print(Figure {
        goal: Goal::at_most(turn, MOST_TURN),
        ..Figure::new(name("longest turn of bgp"), turn, "ms")
    })?;
    let before = percentile(&mut idle, 0.99);
    print(Figure::new(name("a plain route before, p99"), before, "ms"))?;
    let meanwhile = percentile(&mut probes.announced, 0.99);
    print(Figure {
        ratio: Some(meanwhile / before),
        goal: Goal::at_most(meanwhile, (1e3 * MOST_LATENESS * before).round() / 1e3),
        ..Figure::new(name("a plain route meanwhile, p99"), meanwhile, "ms")
    })?;
    for (what, taken) in [
        ("a withdrawal, worst", &mut probes.withdrawn),
        ("a withdrawal of a signed route, worst", &mut probes.signed_withdrawn),
    ] {
        // A table that is small is verified before one of these was withdrawn.
        if !taken.is_empty() {
            let worst = percentile(taken, 1.0);
            print(Figure {
                goal: Goal::at_most(worst, MOST_WITHDRAWAL),
                ..Figure::new(name(what), worst, "ms")
            })?;
        }
    }
    print(Figure::new(name("show before, worst"), percentile(&mut idle_shows, 1.0), "ms"))?;
    let worst = percentile(&mut shows, 1.0);
    print(Figure { goal: Goal::at_most(worst, MOST_SHOW), ..Figure::new(name("show, worst"), worst, "ms") })?;
    let silence = milliseconds(scene.load.silence(0..3));
    print(Figure {
        goal: Goal::at_most(silence, f64::from(HOLD) * 1e3),
        ..Figure::new(name("longest silence towards a peer"), silence, "ms")
    })
}

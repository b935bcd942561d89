//! A table that is signed for a new peer, and what others notice meanwhile.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use super::{
    Print, Size,
    probes::{Probes, Sessions},
    scene::{LIMIT, Plan, Role, Scene},
    signing::Signers,
};
use crate::{
    bgpsec::{Figure, Goal},
    daemon::peer_asn,
    hearing::{Hearing, Sum},
    rows::percentile,
};

const SIGNER: usize = 0;
const PLAIN: usize = 1;
const SINK: usize = 2;
const HOPS: usize = 1;
/// Milliseconds.
const MOST_TURN: f64 = 1.0;
/// Plain routes to those before.
const MOST_LATENESS: f64 = 2.0;

pub(super) fn run(size: &Size, print: Print<'_>) -> Result<()> {
    let signers = Signers::new(peer_asn(SIGNER), size.signers)?;
    let roles = [Role::Signs { validation: "off" }, Role::Plain, Role::Sink, Role::Takes];
    let mut scene = Scene::start(&Plan::of_signing(&roles, 1))?;
    let path = |signers: &Signers, route| signers.path(route, HOPS, Scene::target());
    let feed = signers.feed(0..size.announced, scene.address(SIGNER), path)?;
    scene.send(SIGNER, feed)?;
    scene.until_told(SINK, size.announced)?;

    let mut probes = Probes::new(Sessions { plain: PLAIN, signer: SIGNER, sink: SINK });
    while probes.announced.len() < size.idle_probes as usize || !probes.is_quiet() {
        step(&mut probes, &mut scene)?;
    }
    let mut idle = std::mem::take(&mut probes.announced);
    let turn_before = scene.longest_turn()?;
    let start = Instant::now();
    let taker = scene.join(Hearing::Signed(Sum::default()))?;
    let seconds = loop {
        let Hearing::Signed(sum) = scene.load.sessions[taker].hearing else {
            anyhow::bail!("somebody hears otherwise");
        };
        // A small table is signed before one plain route has gone through.
        let is_measured = probes.is_quiet() && !probes.announced.is_empty();
        if sum.routes >= u64::from(size.announced) && is_measured {
            break start.elapsed().as_secs_f64();
        }
        ensure!(start.elapsed() < LIMIT, "{} of {} routes are signed", sum.routes, size.announced);
        step(&mut probes, &mut scene)?;
    };
    let turn = scene.longest_turn()?;

    let name = |what: &str| format!("{} routes signed for a new peer: {what}", size.announced);
    print(Figure::new(name("until all are told"), seconds, "s"))?;
    print(Figure::new(name("longest turn of bgp before"), turn_before, "ms"))?;
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
    })
}

fn step(probes: &mut Probes, scene: &mut Scene) -> Result<()> {
    probes.step(scene, 0)?;
    scene.load.turn(Duration::from_millis(1))
}
